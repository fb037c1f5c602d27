//! Processes that accessed memory that they may not.
//!
//! ```text
//! hbase_regionser[32760]: segfault at 8 ip 00007f26cabd608b sp 00007fffb0798270 error 4 in libc-2.9.so[7f26cab66000+168000]
//! orderd[22553]: segfault at 8 ip 00005648dc8451a0 sp … error 4 in orderd[11a0,5648dc845000+1000] likely on CPU 0 (core 0, socket 0)
//! traps: orderd[22561] general protection fault ip:560d6ff2c1ca sp:7fffea780450 error:0 in orderd[11ca,560d6ff2c000+1000]
//! orderd[77]: unhandled level 2 translation fault (11) at 0x00000008, esr 0x92000006, in orderd[aaaae0000000+1000]
//! ```

use mitra_model::EventKind;

use super::{COMM_BYTES_MAX, after, contains};

pub(super) fn crash(text: &str) -> Option<EventKind> {
    segfault(text).or_else(|| trap(text)).or_else(|| arm(text))
}

/// The file of an address: name, start of the mapping, offset in the file.
#[derive(Default)]
struct Mapping {
    object: Option<String>,
    base: Option<u64>,
    file_offset: Option<u64>,
}

fn segfault(text: &str) -> Option<EventKind> {
    let (task, rest) = split(text, ": segfault at ")?;
    let (comm, pid) = named(task)?;
    let mut words = rest.split_ascii_whitespace();
    let address = hex(words.next()?)?;
    let (mut ip, mut error) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "ip" | "rip" | "eip" => ip = words.next().and_then(hex),
            "error" => {
                error = words.next().and_then(hex);
                break;
            }
            _ => {}
        }
    }
    let error = u32::try_from(error?).ok()?;
    Some(event(comm, pid, [address, ip?], error, mapping(after(rest, " in "))))
}

/// Traps that have no address: the instruction's own stands for it.
fn trap(text: &str) -> Option<EventKind> {
    let (before, rest) = split(text, " ip:")?;
    let (task, what) = before.rsplit_once("] ")?;
    if !(what.starts_with("trap ") || what.starts_with("general protection")) {
        return None;
    }
    let (comm, pid) = named(before.get(..=task.len())?)?;
    let ip = hex(rest.split_ascii_whitespace().next()?)?;
    let error = after(rest, " error:").and_then(|e| hex(e.split_ascii_whitespace().next()?))?;
    let error = u32::try_from(error).ok()?;
    Some(event(comm, pid, [ip, ip], error, mapping(after(rest, " in "))))
}

/// arm64 prints the syndrome register in place of an error code, and the instruction's address on another line. Since
/// 4.17 it leaves out the accessed address too.
fn arm(text: &str) -> Option<EventKind> {
    let (task, rest) = split(text, ": unhandled ")?;
    let (comm, pid) = named(task)?;
    let esr = after(rest, "esr 0x").or_else(|| after(rest, "ESR 0x"))?;
    let end = esr.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(esr.len());
    let esr = hex(esr.get(..end)?)?;
    let address = after(rest, ") at 0x").and_then(|a| hex(a.split(',').next()?)).unwrap_or(0);
    Some(event(comm, pid, [address, 0], error_of_syndrome(esr), mapping(after(rest, " in "))))
}

/// The bits of x86 for an ESR of arm64, see the Architecture Reference Manual, ESR_EL1.
fn error_of_syndrome(esr: u64) -> u32 {
    let (class, status, is_write) = ((esr >> 26) & 0x3f, esr & 0x3f, esr & 0x40 != 0);
    let present = u32::from((0x0c..=0x0f).contains(&status));
    match class {
        // A data abort of user mode.
        0x24 => 4 | present | if is_write { 2 } else { 0 },
        // An instruction abort of user mode.
        0x20 => 4 | 16 | present,
        _ => 0,
    }
}

fn event(comm: &str, pid: u32, at: [u64; 2], error: u32, mapping: Mapping) -> EventKind {
    let [address, ip] = at;
    let Mapping { object, base, file_offset } = mapping;
    EventKind::Crash { pid, comm: comm.to_owned(), address, ip, error, object, base, file_offset }
}

fn split<'a>(text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    let at = memchr::memmem::find(text.as_bytes(), mark.as_bytes())?;
    Some((text.get(..at)?, text.get(at + mark.len()..)?))
}

/// `name[123]`. A name may hold spaces and brackets, but not be longer than the kernel keeps it.
fn named(task: &str) -> Option<(&str, u32)> {
    let task = task.strip_prefix("traps: ").unwrap_or(task);
    let (comm, pid) = task.strip_suffix(']')?.rsplit_once('[')?;
    let is_name = !comm.is_empty() && comm.len() <= COMM_BYTES_MAX;
    is_name.then_some((comm, pid.parse().ok()?))
}

/// `libc-2.9.so[7f26cab66000+168000]`, since 6.4 or so with the place in the file before the comma.
fn mapping(text: Option<&str>) -> Mapping {
    parsed_mapping(text.unwrap_or_default()).unwrap_or_default()
}

fn parsed_mapping(text: &str) -> Option<Mapping> {
    let text = if contains(text, " likely on CPU ") { text.split(" likely on CPU ").next()? } else { text };
    let (object, range) = text.trim().strip_suffix(']')?.rsplit_once('[')?;
    let (range, _size) = range.split_once('+')?;
    let (file_offset, base) = match range.split_once(',') {
        Some((offset, base)) => (Some(hex(offset)?), base),
        None => (None, range),
    };
    Some(Mapping { object: Some(object.to_owned()), base: Some(hex(base)?), file_offset })
}

/// A number as `%lx` and `%p` print it.
fn hex(word: &str) -> Option<u64> {
    if word == "(null)" {
        return Some(0);
    }
    let digits = word.strip_prefix("0x").unwrap_or(word);
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, 16).ok() }
}
