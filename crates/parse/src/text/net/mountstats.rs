//! `/proc/self/mountstats` and `nfsstat -c`: how an NFS server answered since a filesystem was mounted, as notes.
//!
//! ```text
//! device 10.0.0.5:/srv mounted on /data with fstype nfs4 statvers=1.1
//!         age:    3542
//!         per-op statistics
//!                 READ: 1000 1003 2 128000 131072000 500 12000 13000 0
//! ```
//!
//! The numbers of an operation are: calls, transmissions, timeouts, bytes sent and received, and milliseconds in the
//! queue, until the answer, and in all. There are no metrics of NFS: what its clients wait for shows in their stacks.

use crate::text::prelude::*;

/// `/proc/self/mountstats`.
pub const FORMAT: Format = Format::new(
    "mountstats",
    "how NFS servers answered since they were mounted, as notes",
    |lines, _| lines.at(|line| mount(line).is_some()),
    read,
);
/// `nfsstat -c`.
pub const NFSSTAT: Format = Format::new(
    "nfsstat",
    "calls to NFS servers and how many were sent again, as a note",
    |lines, _| lines.at(|line| line == CLIENT) && lines.soon(1, |line| words(line).eq(CALLS.iter().copied())),
    nfsstat,
);

const CLIENT: &[u8] = b"Client rpc stats:";
const CALLS: &[&[u8]] = list!("calls retrans authrefrsh");
/// Operations that are told of one mount, those that took longest in all.
const TOLD: usize = 4;

/// `device SOURCE mounted on PATH with fstype TYPE`: source, path, and whether it has statistics.
fn mount(line: &[u8]) -> Option<(&[u8], &[u8], bool)> {
    let rest = line.strip_prefix(b"device ")?;
    let on = find!(rest, b" mounted on ")?;
    let with = find!(rest, b" with fstype ")?;
    let kind = rest.get(with + 13..)?;
    Some((rest.get(..on)?, rest.get(on + 12..with)?, kind.starts_with(b"nfs") && has(kind, b"statvers=")))
}

/// Lines that begin with a blank: `age: 3542`, `READ: 1000 …`.
fn is_below(line: &[u8]) -> bool {
    let text = line.trim_ascii_start();
    text.len() < line.len() && text.first().is_some_and(u8::is_ascii_alphabetic) && text.contains(&b':')
}

struct Operation {
    name: String,
    calls: f64,
    sent: f64,
    timeouts: f64,
    queue_ms: f64,
    answer_ms: f64,
    all_ms: f64,
}

/// `READ: 1000 1003 2 …` with eight numbers or nine.
fn operation(line: &[u8]) -> Option<Operation> {
    let mut list = words(line);
    let name = list.next()?.strip_suffix(b":")?;
    let numbers: Vec<f64> = list.map_while(integer).map(|n| n as f64).take(10).collect();
    let [calls, sent, timeouts, _, _, queue_ms, answer_ms, all_ms, ..] = *numbers.as_slice() else {
        return None;
    };
    Some(Operation { name: text(name), calls, sent, timeouts, queue_ms, answer_ms, all_ms })
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut title = String::new();
    let mut operations: Vec<Operation> = Vec::new();
    let mut counted = false;
    lines.each(import, |lines, _, import| {
        let line = lines.line();
        if let Some((source, path, has_statistics)) = mount(line) {
            tell(&title, &mut operations, import);
            title = if has_statistics {
                format!("NFS {} on {}", text(source), text(path))
            } else {
                String::new()
            };
            counted = false;
            import.has_read();
        } else if line.trim_ascii() == b"per-op statistics" {
            counted = true;
        } else if !(is_below(line) || line.trim_ascii().is_empty()) {
            return Took::No;
        } else if counted && operations.len() < 256 {
            operations.extend(operation(line).filter(|operation| operation.calls > 0.0));
        }
        Took::Yes
    });
    tell(&title, &mut operations, import);
}

fn tell(title: &str, operations: &mut Vec<Operation>, import: &mut Import) {
    let mut all = std::mem::take(operations);
    all.sort_by(|a, b| b.all_ms.total_cmp(&a.all_ms));
    if title.is_empty() || all.is_empty() {
        return;
    }
    let one = |op: &Operation| {
        let of = |ms: f64| ms / op.calls;
        format!(
            "{:.0} {} of {:.1} ms each (server {:.1} ms, queue {:.1} ms)",
            op.calls,
            op.name,
            of(op.all_ms),
            of(op.answer_ms),
            of(op.queue_ms)
        )
    };
    let told: Vec<String> = all.iter().take(TOLD).map(one).collect();
    let sum = |of: fn(&Operation) -> f64| all.iter().map(of).sum::<f64>();
    let (again, timeouts) = (sum(|op| (op.sent - op.calls).max(0.0)), sum(|op| op.timeouts));
    import.note(format!(
        "{title} since it was mounted: {}; {again:.0} requests were sent again, {timeouts:.0} timed out",
        told.join(", ")
    ));
}

fn nfsstat(lines: &mut Lines<'_>, import: &mut Import) {
    let mut header = false;
    lines.each(import, |lines, _, import| {
        let line = lines.line();
        if words(line).eq(CALLS.iter().copied()) {
            header = true;
            return Took::Yes;
        }
        let mut list = words(line).map(integer);
        if let (true, Some(Some(calls)), Some(Some(again))) = (header, list.next(), list.next()) {
            import.has_read();
            import.note(format!("NFS since boot: {calls} calls, {again} of them sent again"));
            header = false;
            return Took::Yes;
        }
        // Tables of operations follow: a line of names and a line of numbers with shares.
        let is_own = line == CLIENT
            || line.trim_ascii().is_empty()
            || line.starts_with(b"Client nfs ")
            || is_numbers(line);
        let is_names = words(line).all(|word| word.iter().all(|b| b.is_ascii_lowercase() || *b == b'_'));
        let is_own = is_own || is_names && lines.soon(1, is_numbers);
        if is_own { Took::Yes } else { Took::No }
    });
}

fn is_numbers(line: &[u8]) -> bool {
    let mut list = words(line);
    list.clone().next().is_some() && list.all(|word| number(word).is_some())
}
