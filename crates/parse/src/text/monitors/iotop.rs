//! `iotop -b`, of Python and of C.
//!
//! ```text
//! 23:10:01 Total DISK READ:         0.00 B/s | Total DISK WRITE:         7.63 K/s
//! 23:10:01 Actual DISK READ:        0.00 B/s | Actual DISK WRITE:       0.00 B/s
//!     TIME    TID  PRIO  USER     DISK READ  DISK WRITE  SWAPIN      IO    COMMAND
//! 23:10:01   1234 be/4 root        0.00 B/s    7.63 K/s  0.00 %  0.00 % systemd-journald
//! ```
//!
//! The kernel counts the share of I/O only with delay accounting; without it the column is `?unavailable?`, or zero.

use super::csv::step;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("iotop", "what each task reads and writes, of `iotop -b`", starts, read);

/// What `iotop` of C says first where the kernel does not count delays.
const WARNING: &[u8] = b"Warning: task_delayacct is 0";

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(is_total) || (lines.at(|line| line.starts_with(WARNING)) && lines.soon(1, is_total))
}

/// `Total DISK READ …`, with a time before it.
fn is_total(line: &[u8]) -> bool {
    let rest = stamped(line).1;
    rest.starts_with(b"Total DISK READ") && has(rest, b"Total DISK WRITE")
}

/// The time of a line, if it has one, and what follows.
fn stamped(line: &[u8]) -> (Option<When>, &[u8]) {
    let mut list = words(line);
    match list.next().and_then(clock::time_of_day) {
        Some(ns) => (Some(When::Clock(ns)), list.rest()),
        None => (None, line.trim_ascii_start()),
    }
}

/// `7.63 K/s`, or with `-a` `7.63 K` in all: the bytes, and whether they are a rate.
fn amount(value: &[u8], unit: &[u8]) -> Option<(f64, bool)> {
    let (size, is_rate) = match unit.strip_suffix(b"/s") {
        Some(size) => (size, true),
        None => (unit, false),
    };
    let factor = match size {
        b"B" => 1.0,
        b"K" | b"KiB" | b"kB" => 1024.0,
        b"M" | b"MiB" | b"MB" => 1024.0 * 1024.0,
        b"G" | b"GiB" | b"GB" => 1024.0 * 1024.0 * 1024.0,
        b"T" | b"TiB" | b"TB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((number(value)? * factor, is_rate))
}

struct Row<'a> {
    tid: u32,
    read: f64,
    written: f64,
    is_rate: bool,
    io: Option<f64>,
    command: &'a [u8],
}

fn row(rest: &[u8]) -> Option<Row<'_>> {
    let mut list = words(rest);
    let tid = u32::try_from(integer(list.next()?)?).ok()?;
    // `be/4`, `?dif`, `rt/0`.
    list.next().filter(|prio| prio.len() <= 5)?;
    list.next()?;
    let (read, is_rate) = amount(list.next()?, list.next()?)?;
    let (written, _) = amount(list.next()?, list.next()?)?;
    let mut io = None;
    // Shares of swapping and of I/O, of which one or both may be missing.
    for _ in 0..2 {
        let mut ahead = list.clone();
        let word = ahead.next()?;
        if word == b"?unavailable?" {
            list = ahead;
            io = None;
        } else if ahead.next() == Some(b"%") && number(word).is_some() {
            list = ahead;
            io = number(word);
        }
    }
    let command = list.rest().trim_ascii_end();
    (!command.is_empty()).then_some(Row { tid, read, written, is_rate, io, command })
}

/// The name of the task in a command line, as the kernel keeps it.
fn comm(command: &[u8]) -> &[u8] {
    let inside = command.strip_prefix(b"[").and_then(|c| c.split(|b| *b == b']').next());
    let name = inside.unwrap_or_else(|| {
        let first = words(command).next().unwrap_or(command);
        first.rsplit(|b| *b == b'/').next().filter(|_| first.starts_with(b"/")).unwrap_or(first)
    });
    name.get(..15).unwrap_or(name)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let rates = import.columns(&["task.read_bytes", "task.write_bytes", "task.blkio_delay"], Form::Rate);
    import.zeros_are_unavailable(rates, 2);
    let totals = import.columns(&["task.read_bytes", "task.write_bytes"], Form::Total);
    let mut when = import.now();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        let (time, rest) = stamped(line);
        if is_total(line) {
            when = time.or(import.context.stamp).unwrap_or_else(|| step(import));
            import.sampled(rates, when);
            return Took::Yes;
        }
        let is_head = line.starts_with(WARNING)
            || begins(rest, &[b"Actual DISK READ", b"Current DISK READ", b"TID ", b"PID ", b"TIME "]);
        if is_head || line.trim_ascii().is_empty() {
            return Took::Yes;
        }
        let Some(found) = row(rest) else {
            return Took::unread_if(lines.soon(2, |line| row(stamped(line).1).is_some()));
        };
        let task = import.task(found.tid, &text(comm(found.command)));
        if found.is_rate {
            let delay = found.io.map_or(f64::NAN, |share| share / 100.0);
            import.put(rates, task.as_bytes(), when, at, &[found.read, found.written, delay]);
        } else {
            import.put(totals, task.as_bytes(), when, at, &[found.read, found.written]);
        }
        Took::Yes
    });
}
