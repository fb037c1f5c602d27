//! Stacks: `perf script`, folded stacks, and what offcputime and profile of bcc print.
//!
//! ```text
//! curl  4242/4243 [001]  1234.567890:     250000 cpu-clock:pppH:
//!         ffffffff8104a6b6 native_write_msr+0x6 ([kernel.kallsyms])
//!             55d0c9a3f1a0 main+0x20 (/usr/bin/curl)
//!
//! curl;main;native_write_msr 12
//!
//! Tracing off-CPU time (us) of all threads by user + kernel stack... Hit Ctrl-C to end.
//!     finish_task_switch
//!     schedule
//!     -                sleep (4711)
//!         1000123
//! ```

use std::collections::HashMap;

use crate::text::prelude::*;

use super::ftrace::seconds;

/// See the module.
pub(super) const FORMATS: [Format; 3] = [
    Format::new("perf script", "samples by stack", |l, _| at_header(l), script),
    Format::new(
        "folded stacks",
        "stacks on one line with a count, as for flame graphs",
        folded_starts,
        folded,
    ),
    Format::new(
        "BPF stacks",
        "stacks of `offcputime` and `profile` of bcc",
        |l, _| l.peek().is_some_and(|l| banner(l).is_some()),
        long,
    ),
];

/// Different stacks that are kept; the samples of the rest are counted together.
const STACKS_MAX: usize = 20_000;
/// Bytes of their names.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Frames of one stack, the innermost; the kernel takes no more.
const FRAMES_MAX: usize = 127;
const OTHER: &[u8] = b"(other)";

/// Stacks and how often, or how long, each was seen.
#[derive(Default)]
struct Stacks {
    found: HashMap<Box<[u8]>, usize>,
    list: Vec<(Box<[u8]>, f64, u32)>,
    bytes: usize,
    other: f64,
    switches: u64,
    lines: u64,
}

impl Stacks {
    fn add(&mut self, stack: &[u8], n: f64, line: u32) {
        if let Some(known) = self.found.get(stack).and_then(|at| self.list.get_mut(*at)) {
            known.1 += n;
        } else if self.list.len() < STACKS_MAX && self.bytes + stack.len() <= BYTES_MAX {
            self.bytes += stack.len();
            self.found.insert(stack.into(), self.list.len());
            self.list.push((stack.into(), n, line));
        } else {
            self.other += n;
        }
    }

    fn finish(self, metric: &str, factor: f64, import: &mut Import) {
        let Some(column) = Column::new(metric, Form::Total, factor) else { return };
        let group = import.group(vec![column]);
        if self.other > 0.0 {
            import.note(format!(
                "more than {} different stacks: the others are counted together",
                self.list.len()
            ));
        }
        let other = (self.other > 0.0).then_some((OTHER, self.other, 0));
        for (stack, n, line) in self.list.iter().map(|(s, n, l)| (&**s, *n, *l)).chain(other) {
            if let Some(slot) = import.row(group, stack, When::Fact, line).first_mut() {
                *slot = if slot.is_finite() { *slot + n } else { n };
            }
        }
    }
}

/// The name of the task and what stands behind the event in the first line of a sample.
fn header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    if line.first()?.is_ascii_digit() {
        return None;
    }
    // Asked for every line: the time has a colon behind its last digit.
    let is_end = |at: usize| at.checked_sub(1).and_then(|at| line.get(at)).is_some_and(u8::is_ascii_digit);
    if !memchr::memchr_iter(b':', line).any(is_end) {
        return None;
    }
    let mut list = words(line);
    let mut before: [&[u8]; 2] = [b"", b""];
    for _ in 0..12 {
        let word = list.next()?;
        if seconds(word).is_none() {
            before = [before[1], word];
            continue;
        }
        let [a, b] = before;
        let id = if b.starts_with(b"[") && b.ends_with(b"]") { a } else { b };
        let (pid, tid) = id.split_at_checked(memchr::memchr(b'/', id).unwrap_or(id.len()))?;
        integer(pid)?;
        integer(tid.strip_prefix(b"/").unwrap_or(b"0"))?;
        let at = id.as_ptr() as usize - line.as_ptr() as usize;
        let comm = line.get(..at)?.trim_ascii();
        let mut event = list.next()?;
        if integer(event).is_some() {
            event = list.next()?;
        }
        return (event.len() > 1 && event.ends_with(b":") && !comm.is_empty()).then(|| (comm, list.rest()));
    }
    None
}

/// The same without a time: `java  3244 cpu-clock:`, above the first frame of its stack.
fn header_without_time(line: &[u8]) -> Option<(&[u8], &[u8])> {
    if !line.trim_ascii_end().ends_with(b":") || line.first()?.is_ascii_whitespace() {
        return None;
    }
    let list: Vec<&[u8]> = words(line).take(12).collect();
    let at = list.iter().skip(1).position(|w| {
        let mut ids = w.split(|b| *b == b'/').map(integer);
        ids.clone().count() <= 2 && ids.all(|id| id.is_some())
    })? + 1;
    let behind = list.get(at + 1..)?;
    let fits = match behind {
        [_] => true,
        // The CPU, the period.
        [.., _] => behind
            .iter()
            .rev()
            .skip(1)
            .all(|w| integer(w).is_some() || (w.starts_with(b"[") && w.ends_with(b"]"))),
        [] => false,
    };
    let id = list.get(at)?;
    let comm = line.get(..id.as_ptr() as usize - line.as_ptr() as usize)?.trim_ascii();
    (fits && !comm.is_empty()).then_some((comm, &b""[..]))
}

/// Whether a sample begins at the cursor.
fn at_header(lines: &mut Lines<'_>) -> bool {
    lines.at(|l| header(l).is_some())
        || (lines.at(|l| header_without_time(l).is_some())
            && lines.soon(1, |l| frame(l).is_some() && is_frame(l)))
}

/// Whether a line is a frame wherever it begins: an address, a symbol, a file in parentheses.
fn is_frame(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let address = words(line).next().unwrap_or_default();
    address.len() >= 4
        && address.iter().all(u8::is_ascii_hexdigit)
        && has(line, b" (")
        && line.ends_with(b")")
}

/// The symbol in `ffffffff8104a6b6 native_write_msr+0x6 ([kernel.kallsyms])`.
fn frame(line: &[u8]) -> Option<&[u8]> {
    let mut list = words(line);
    hexadecimal(list.next()?)?;
    let rest = list.rest();
    let end = memchr::memmem::rfind(rest, b" (").unwrap_or(rest.len());
    let symbol = rest.get(..end)?.trim_ascii();
    let cut = memchr::memmem::rfind(symbol, b"+0x").unwrap_or(symbol.len());
    let symbol = symbol.get(..cut)?;
    Some(if symbol.is_empty() { b"[unknown]" } else { symbol })
}

/// Puts a stack together whose frames came the innermost first.
fn fold(comm: &[u8], frames: &[Box<[u8]>], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(comm);
    for frame in frames.iter().rev() {
        out.push(b';');
        // A semicolon in a symbol would be taken for the end of it.
        out.extend(frame.iter().map(|b| if *b == b';' { b':' } else { *b }));
    }
}

fn script(lines: &mut Lines<'_>, import: &mut Import) {
    let mut stacks = Stacks::default();
    let mut frames: Vec<Box<[u8]>> = Vec::new();
    let (mut comm, mut key) = (Vec::new(), Vec::new());
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        if line.starts_with(b"#") {
            lines.advance();
            continue;
        }
        let found = header(line).or_else(|| header_without_time(line));
        let Some((name, rest)) = found else {
            let is_next = |l: &[u8]| header(l).is_some() || header_without_time(l).is_some();
            if line.trim_ascii().is_empty() && lines.soon(1, is_next) {
                lines.advance();
                continue;
            }
            break;
        };
        comm.clear();
        comm.extend_from_slice(name);
        frames.clear();
        frames.extend(frame(rest).map(Box::from));
        lines.advance();
        while let Some(line) =
            lines.peek().filter(|l| l.first().is_some_and(|b| b.is_ascii_whitespace()) || is_frame(l))
        {
            let Some(symbol) = frame(line) else { break };
            if frames.len() < FRAMES_MAX {
                frames.push(symbol.into());
            }
            lines.advance();
        }
        fold(&comm, &frames, &mut key);
        stacks.add(&key, 1.0, number);
    }
    stacks.finish("path.samples", 1.0, import);
}

/// The stack and the number in a folded line.
fn folded_line(line: &[u8]) -> Option<(&[u8], f64)> {
    let at = memchr::memrchr(b' ', line)?;
    let n = integer(line.get(at + 1..)?)?;
    let stack = line.get(..at)?;
    let mut frames = stack.split(|b| *b == b';');
    let named = |f: &[u8]| !f.is_empty() && f.iter().any(u8::is_ascii_alphabetic);
    // Tables with semicolons have numbers in their columns.
    let first = frames.next()?;
    let good =
        named(first) && frames.clone().count() > 0 && frames.all(|f| named(f) || f == b"-" || f == b"--");
    good.then_some((stack, n as f64))
}

fn folded_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is = |line: Option<&[u8]>| line.is_some_and(|l| folded_line(l).is_some());
    is(lines.peek()) && lines.ahead(1).is_none_or(|l| l.trim_ascii().is_empty() || folded_line(l).is_some())
}

fn folded(lines: &mut Lines<'_>, import: &mut Import) {
    let by_command = import.context.ran("offcputime", Some('f'));
    folded_as(lines, import, by_command.then_some(true));
}

/// Whether the innermost frame is where a task leaves the CPU.
fn switches(stack: &[u8]) -> bool {
    let leaf = stack.rsplit(|b| *b == b';').next().unwrap_or_default();
    leaf.starts_with(b"finish_task_switch") || matches!(leaf, b"schedule" | b"__schedule" | b"context_switch")
}

fn folded_as(lines: &mut Lines<'_>, import: &mut Import, off_cpu: Option<bool>) {
    let mut stacks = Stacks::default();
    lines.each(import, |lines, number, _| {
        let line = lines.line();
        if let Some((stack, n)) = folded_line(line) {
            let from = stack.iter().enumerate().rev().filter(|(_, b)| **b == b';').nth(FRAMES_MAX);
            let stack = from.and_then(|(at, _)| stack.get(at + 1..)).unwrap_or(stack);
            stacks.lines += 1;
            stacks.switches += u64::from(switches(stack));
            stacks.add(stack, n, number);
        } else if line.is_empty() || lines.ahead(1).is_none_or(|l| folded_line(l).is_none()) {
            return Took::No;
        } else {
            return Took::Unread;
        }
        Took::Yes
    });
    // A sample is hardly ever taken inside the switch; time off the CPU always begins there.
    let off_cpu = off_cpu.unwrap_or(stacks.switches * 10 >= stacks.lines * 9);
    if off_cpu {
        stacks.finish("path.time", 1e-6, import);
    } else {
        stacks.finish("path.samples", 1.0, import);
    }
}

/// Whether the numbers are microseconds off the CPU.
fn banner(line: &[u8]) -> Option<bool> {
    if line.starts_with(b"Tracing off-CPU time (us)") {
        return Some(true);
    }
    (line.starts_with(b"Sampling at ") && has(line, b" stack")).then_some(false)
}

/// The task in `    -                sleep (4711)`.
fn task(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"    -")?.strip_prefix(b"   ")?.trim_ascii();
    let rest = rest.strip_suffix(b")")?;
    let at = memchr::memrchr(b'(', rest)?;
    integer(rest.get(at + 1..)?)?;
    Some(rest.get(..at)?.trim_ascii())
}

fn long(lines: &mut Lines<'_>, import: &mut Import) {
    let off_cpu = lines.peek().and_then(banner).unwrap_or(false);
    lines.advance();
    while lines.at(|l| matches!(l.trim_ascii(), b"" | b"^C")) {
        lines.advance();
    }
    if lines.at(|l| folded_line(l).is_some()) {
        return folded_as(lines, import, Some(off_cpu));
    }
    let mut stacks = Stacks::default();
    let mut frames: Vec<Box<[u8]>> = Vec::new();
    let (mut comm, mut key) = (Vec::new(), Vec::new());
    lines.each(import, |lines, number, _| {
        let line = lines.line();
        if let Some(name) = task(line) {
            comm.clear();
            comm.extend_from_slice(name);
        } else if let Some(n) = integer(line.trim_ascii()).filter(|_| line.starts_with(b"  ")) {
            fold(&comm, &frames, &mut key);
            if !comm.is_empty() {
                stacks.add(&key, n as f64, number);
            }
            frames.clear();
            comm.clear();
        } else if let Some(symbol) = line.strip_prefix(b"    ") {
            // Addresses of `-v` stand before the symbols.
            let symbol = frame(symbol).filter(|_| symbol.starts_with(b"0x")).unwrap_or(symbol.trim_ascii());
            if frames.len() < FRAMES_MAX && symbol != b"--" {
                frames.push(symbol.into());
            }
        } else if !line.is_empty() {
            return Took::No;
        }
        Took::Yes
    });
    if off_cpu {
        stacks.finish("path.time", 1e-6, import);
    } else {
        stacks.finish("path.samples", 1.0, import);
    }
}
