//! What one line of the kernel log means.
//!
//! ```text
//! orderd[4242]: segfault at 8 ip 00005648dc8451a0 sp 00007ffd4df000b0 error 4 in orderd[11a0,5648dc845000+1000]
//! Memory cgroup out of memory: Killed process 23059 (eater) total-vm:35372kB, anon-rss:32384kB, file-rss:968kB
//! INFO: task java:4242 blocked for more than 120 seconds.
//! TCP: too many orphaned sockets
//! eth0: NIC Link is Down
//! ```
//!
//! The words are those of `printk` calls in the kernel's sources, from 2.6.32 to 6.18; they are no interface, so a
//! line that is not exactly of a known form means nothing here. A report of many lines has its meaning in one of
//! them, except for a kill for lack of memory: its lines name the same process.

mod crash;
mod device;
mod sentence;

use mitra_model::EventKind;

pub use self::sentence::{explained, sentence};
use crate::find::Pieces;

/// Longer messages are cut where an event keeps them.
pub(crate) const TEXT_BYTES_MAX: usize = 1_024;
/// The length of the name of a task, without the zero behind it (`TASK_COMM_LEN`).
const COMM_BYTES_MAX: usize = 15;

/// The event of the line, if it is about a process, a device or TCP. `text` is the line without
/// the time and without `kernel:`.
#[must_use]
pub fn meaning(text: &str) -> Option<EventKind> {
    /// Of each line that has a meaning, some bytes that few others have.
    static PIECES: Pieces = Pieces::new(&[
        // Crashes.
        *b"segf", *b" ip:", *b"unha", // Lack of memory, and tasks that do not go on.
        *b"oom-", *b"Kill", *b"y: k", *b"FO: ", *b"ft l", // Of TCP, and allocations.
        *b"Out ", *b"y --", *b"orph", *b"lloc", // Devices and links: see there.
        *b"dev ", *b"/O e", *b"sfer", *b"Disk", *b"-fs*", *b"XFS*", *b"TRFS", *b"F2FS", *b"GFS2", *b"Emas",
        *b"rd r", *b"disa", *b"nvme", *b"offl", *b"dead", *b"ming", *b"ink*", *b"ETDE", *b"[Har", *b"EDAC",
        *b"y fa", *b"PCIe", *b"king", *b"g sp", *b"MRES", *b". Se", *b"e-ma",
    ]);
    let text = text.trim();
    if !PIECES.may_be_in(text.as_bytes()) {
        return None;
    }
    crash::crash(text)
        .or_else(|| oom_kill(text))
        .or_else(|| stuck(text))
        .or_else(|| tcp_pressure(text))
        .or_else(|| allocation_failure(text))
        .or_else(|| device::device_error(text))
        .or_else(|| device::link_up(text))
}

/// Whether the live recorder learns this from the kernel log alone. Kills for lack of memory come from a probe, with
/// more detail.
#[must_use]
pub fn is_only_in_the_log(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Crash { .. }
            | EventKind::Stuck { .. }
            | EventKind::DeviceError { .. }
            | EventKind::Device { .. }
            | EventKind::TcpPressure { .. }
            | EventKind::AllocationFailure { .. }
    )
}

/// The text of a message as events keep it.
#[must_use]
pub fn kept(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().to_owned()
}

/// The number that a text begins with.
fn leading(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// The text after the first of some words.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let at = memchr::memmem::find(text.as_bytes(), word.as_bytes())?;
    text.get(at + word.len()..)
}

fn contains(text: &str, word: &str) -> bool {
    memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some()
}

/// `oom-kill:constraint=…,task_memcg=/x,task=y,pid=z,uid=0` since 4.19; `Out of memory: Kill process 123 (java) score
/// 900 or sacrifice child` before; `Killed process 123 (java) total-vm:…kB, anon-rss:…kB` always.
fn oom_kill(text: &str) -> Option<EventKind> {
    if let Some(fields) = text.strip_prefix("oom-kill:") {
        let (before, task) = fields.split_once(",task=")?;
        let (comm, pid) = task.rsplit_once(",pid=")?;
        let group = |key| {
            let rest: &str = after(before, key)?;
            rest.split(',').next().filter(|g| !g.is_empty()).map(str::to_owned)
        };
        // The group whose limit was hit. If the whole machine was out of memory, the victim's group has no part in it.
        let is_limit = !["CONSTRAINT_NONE", "CONSTRAINT_CPUSET", "CONSTRAINT_MEMORY_POLICY", ",global_oom"]
            .iter()
            .any(|mark| contains(before, mark));
        let cgroup = group("oom_memcg=").or_else(|| group("task_memcg=")).filter(|_| is_limit);
        let pid = u32::try_from(leading(pid)?).ok()?;
        return Some(EventKind::OomKill { pid, comm: comm.to_owned(), cgroup, anon_bytes: None });
    }
    let rest = after(text, "Killed process ")
        .or_else(|| after(text, "emory: Kill process "))
        .or_else(|| after(text, "emory: kill process "))?;
    // Processes that share the victim's memory die with it; the victim has its own line.
    if contains(rest, "sharing same memory") {
        return None;
    }
    let pid = u32::try_from(leading(rest)?).ok()?;
    let (_, name) = rest.split_once('(')?;
    let end = [") total-vm", ") vsz", ") score", "),"].iter().find_map(|end| name.find(end));
    let comm = name.get(..end.or_else(|| name.rfind(')'))?)?;
    let anon = after(rest, "anon-rss:").and_then(leading).and_then(|kib| kib.checked_mul(1024));
    Some(EventKind::OomKill { pid, comm: comm.to_owned(), cgroup: None, anon_bytes: anon })
}

fn stuck(text: &str) -> Option<EventKind> {
    if let Some(rest) = text.strip_prefix("INFO: task ") {
        let (task, rest) = rest.split_once(" blocked ")?;
        let seconds = leading(after(rest, "for more than ")?)?;
        return stuck_task("hung-task", task, seconds);
    }
    if let Some(rest) = after(text, "BUG: soft lockup - CPU#") {
        let (_, rest) = rest.split_once("stuck for ")?;
        let seconds = leading(rest)?;
        let task = rest.split_once('[')?.1.strip_suffix(']')?;
        return stuck_task("soft-lockup", task, seconds);
    }
    // `rcu: INFO: rcu_sched self-detected stall on CPU`, `INFO: rcu_preempt detected stalls on CPUs/tasks:`
    let rcu = after(text, "INFO: rcu")?;
    let is_stall = contains(rcu, "detected stall") || contains(rcu, "detected expedited stall");
    is_stall.then(|| EventKind::Stuck {
        what: "rcu-stall".to_owned(),
        pid: 0,
        comm: String::new(),
        seconds: 0.0,
    })
}

/// A task as `name:pid`; names of kernel threads have colons.
fn stuck_task(what: &str, task: &str, seconds: u64) -> Option<EventKind> {
    let (comm, pid) = task.rsplit_once(':')?;
    let (pid, seconds) = (pid.parse().ok()?, seconds as f64);
    Some(EventKind::Stuck { what: what.to_owned(), pid, comm: comm.to_owned(), seconds })
}

fn tcp_pressure(text: &str) -> Option<EventKind> {
    let words = text.strip_prefix("TCP: ").unwrap_or(text);
    let what = if words.starts_with("Out of socket memory") {
        "unnamed"
    } else if words.starts_with("out of memory -- consider tuning tcp_mem") {
        "memory"
    } else if words.starts_with("too many orphaned sockets")
        || words.starts_with("too many of orphaned sockets")
    {
        "orphans"
    } else {
        return None;
    };
    Some(EventKind::TcpPressure { what: what.to_owned(), text: kept(text) })
}

/// `java: page allocation failure: order:4, mode:0x40cc0(…)`, `… page allocation stalls for 10004ms, order:0, …`.
fn allocation_failure(text: &str) -> Option<EventKind> {
    let at = memchr::memmem::find(text.as_bytes(), b": page allocation ")?;
    let (comm, rest) = text.split_at_checked(at)?;
    let rest = rest.strip_prefix(": page allocation ")?;
    if !(rest.starts_with("failure") || rest.starts_with("stalls for ")) {
        return None;
    }
    let order = u32::try_from(leading(after(rest, "order:")?)?).ok()?;
    Some(EventKind::AllocationFailure { order, comm: comm.to_owned() })
}

#[cfg(test)]
mod tests;
