//! What waits and is dropped on its way: queueing disciplines, and the table of tracked connections.
//!
//! ```text
//! qdisc pfifo_fast 0: dev eth0 root refcnt 2 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1
//!  Sent 895907 bytes 9578 pkt (dropped 0, overlimits 0 requeues 1)
//!  backlog 0b 0p requeues 1
//! ```
//! ```text
//! cpu=0     found=0 invalid=0 insert=0 insert_failed=0 drop=0 early_drop=0 error=0 search_restart=0
//! ```

use super::Out;
use crate::text::prelude::*;

/// `tc -s qdisc`.
pub const QDISC: Format =
    Format::new("tc -s qdisc", "queueing disciplines: what waits and is dropped", qdisc_starts, qdisc);
/// `conntrack -S`.
pub const TRACKING: Format = Format::new(
    "conntrack -S",
    "what connection tracking found, dropped and could not insert",
    tracking_starts,
    tracking,
);
/// `conntrack -C`.
pub const COUNT: Format =
    Format::new("conntrack -C", "how many connections are tracked", count_starts, count);

/// The device of `qdisc KIND HANDLE: dev NAME …`, and whether the discipline is its root.
fn qdisc_header(line: &[u8]) -> Option<(&[u8], bool)> {
    let mut list = words(line);
    if list.next()? != b"qdisc" {
        return None;
    }
    let (_, handle, dev, name) = (list.next()?, list.next()?, list.next()?, list.next()?);
    (handle.ends_with(b":") && dev == b"dev").then(|| (name, list.next() == Some(b"root")))
}

fn qdisc_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| qdisc_header(line).is_some())
}

fn qdisc(lines: &mut Lines<'_>, import: &mut Import) {
    let mut out = Out::default();
    // What stands below the root is in its numbers already.
    let mut device: Option<Vec<u8>> = None;
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        let line = line.to_vec();
        if let Some((name, is_root)) = qdisc_header(&line) {
            device = is_root.then(|| name.to_vec());
        } else if line.starts_with(b" ") || line.starts_with(b"\t") {
            let trimmed = line.trim_ascii();
            if let Some(device) = &device
                && (trimmed.starts_with(b"Sent ") || trimmed.starts_with(b"backlog "))
            {
                qdisc_line(trimmed, device, at, &mut out, import);
            }
        } else {
            return Took::No;
        }
        Took::Yes
    });
}

fn qdisc_line(line: &[u8], device: &[u8], at: u32, out: &mut Out, import: &mut Import) {
    let is_sent = line.starts_with(b"Sent ");
    let mut list = words(line);
    while let Some(word) = list.next() {
        let key = word.strip_prefix(b"(").unwrap_or(word);
        let found = match key {
            b"dropped" if is_sent => "nic.qdisc_dropped",
            b"overlimits" if is_sent => "nic.qdisc_overlimits",
            b"requeues" if is_sent => "nic.qdisc_requeues",
            b"backlog" => {
                let bytes = list.next().and_then(size);
                let packets = list.next().and_then(|w| integer(w.strip_suffix(b"p")?));
                match (bytes, packets) {
                    (Some(bytes), Some(packets)) => {
                        out.put(import, "nic.qdisc_backlog_bytes", device, at, bytes);
                        out.put(import, "nic.qdisc_backlog_packets", device, at, packets as f64);
                    }
                    _ => import.unread(at, line),
                }
                continue;
            }
            _ => continue,
        };
        let value = list.next().and_then(|w| {
            let w = w.strip_suffix(b")").or_else(|| w.strip_suffix(b",")).unwrap_or(w);
            integer(w)
        });
        match value {
            Some(value) => out.put(import, found, device, at, value as f64),
            None => import.unread(at, line),
        }
    }
}

/// `0b`, `12Kb`, `3Mb`: bytes as `tc` prints them.
fn size(word: &[u8]) -> Option<f64> {
    let (value, unit) = leading(word)?;
    match unit {
        b"b" => Some(value),
        b"Kb" => Some(value * 1024.0),
        b"Mb" => Some(value * 1024.0 * 1024.0),
        b"Gb" => Some(value * 1024.0 * 1024.0 * 1024.0),
        _ => None,
    }
}

const TRACKED: [(&[u8], &str); 6] = [
    (b"found", "conntrack.found"),
    (b"invalid", "conntrack.invalid"),
    (b"insert_failed", "conntrack.insert_failed"),
    (b"drop", "conntrack.drop"),
    (b"early_drop", "conntrack.early_drop"),
    (b"search_restart", "conntrack.search_restart"),
];

/// The counters of one CPU, those that the line has.
fn tracked(line: &[u8]) -> Option<[Option<u64>; TRACKED.len()]> {
    let mut list = words(line);
    integer(list.next()?.strip_prefix(b"cpu=")?)?;
    let mut values = [None; TRACKED.len()];
    let mut n = 0;
    for word in list {
        let equals = word.iter().position(|b| *b == b'=')?;
        let (key, value) = word.split_at_checked(equals)?;
        let value = integer(value.get(1..)?)?;
        n += 1;
        if let Some(slot) = TRACKED.iter().position(|(k, _)| *k == key).and_then(|i| values.get_mut(i)) {
            *slot = Some(value);
        }
    }
    (n >= 6 && values.iter().flatten().count() >= 3).then_some(values)
}

fn tracking_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| tracked(line).is_some())
}

/// Adds up the CPUs.
fn tracking(lines: &mut Lines<'_>, import: &mut Import) {
    let first = lines.number();
    let mut sums: [Option<u64>; TRACKED.len()] = [None; TRACKED.len()];
    let mut is_first = true;
    while let Some(line) = lines.peek() {
        // Another output of the same begins with the first CPU again.
        if !is_first && line.starts_with(b"cpu=0 ") {
            break;
        }
        let Some(values) = tracked(line) else { break };
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = match (*sum, value) {
                (None, value) if is_first => value,
                (Some(sum), Some(value)) => sum.checked_add(value),
                _ => None,
            };
        }
        is_first = false;
        lines.advance();
    }
    let mut out = Out::default();
    for ((_, metric), sum) in TRACKED.iter().zip(sums) {
        if let Some(sum) = sum {
            out.put(import, metric, b"", first, sum as f64);
        }
    }
}

/// `conntrack -C` prints a number, and `conntrack` without a table says how many it has shown.
fn count_starts(lines: &mut Lines<'_>, context: &Context) -> bool {
    context.ran("conntrack", Some('C')) && lines.at(|line| integer(line.trim_ascii()).is_some())
}

fn count(lines: &mut Lines<'_>, import: &mut Import) {
    let at = lines.number();
    if let Some(value) = lines.peek().and_then(|line| integer(line.trim_ascii())) {
        Out::default().put(import, "sysctl.net.netfilter.nf_conntrack_count", b"", at, value as f64);
        lines.advance();
        // Only the line after the prompt is its output.
        import.context.command.clear();
    }
}
