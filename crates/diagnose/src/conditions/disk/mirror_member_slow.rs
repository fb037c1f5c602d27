//! One member of a mirror takes far longer than the others, and every write waits for the slowest.
//!
//! A mirror is as slow in writing as its worst member: the others show short times and idle. Seen from outside it is a slow
//! device, and the whole array is suspected; the members side by side tell which disk to replace. The members of md
//! mirrors and of btrfs filesystems that keep their data twice are known.
//!
//! A member that is being filled is written to while the others are read from: its writes are others than theirs, and it is
//! the last one to take out.

use std::collections::BTreeMap;

use crate::device::{self, HARM, Waiting};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "mirror-member-slow",
    title: "one member of a mirror is far slower than the others",
    area: "disk",
    needs: &["disk.mirror", "psi.io_some", "tasks.d_io"],
    needs_of: &[device::NEEDS],
    observe,
    causes: &[
        explains("slow-device", "the member is the device that is slow").here(),
        explains("disk-hog", "the queue is long because one member is slow").here(),
        explains("disk-saturated", "each write waits for the slowest member").here(),
        effect("dirty-writeback-stall", "a mirror takes no more than its slowest member").here(),
        effect("pressure-io", "each write waits for the slowest member"),
        effect("tasks-in-d-state", "each write waits for the slowest member"),
    ],
    remedies: &[Advice {
        action: "make sure that the mirror is complete and not resyncing, then remove {device} from it and replace it",
        command: "cat /proc/mdstat   (btrfs: btrfs balance status MOUNT; btrfs replace status MOUNT); mdadm ARRAY --fail /dev/{device} --remove /dev/{device}   (btrfs: btrfs replace start /dev/{device} /dev/NEW MOUNT)",
        verify: "iostat -x 1: the writes of the mirror take as long as those of the members that stay",
        risk: "until the resync is done there is one copy less: check the other members first",
    }],
    next: &[measure(
        "whether the device reports errors",
        "smartctl -a /dev/{device}; btrfs device stats MOUNT; cat /proc/mdstat",
    )],
    source: include_str!("mirror_member_slow.rs"),
    ..Condition::ROOT
};

/// Members of a mirror are alike and are written the same bytes: three times as long is no scatter.
const SLOWER: f64 = 3.0;
/// Longer than the others by so much: what a flash device takes for a write that it has to move other data for.
const MORE_S: f64 = 0.005;
/// Writes a second on each member below which a mean says nothing.
const WRITES_S: f64 = 0.5;
/// What is written to a mirror is written to each of its members, give or take a second and what is put together on the way.
const SAME_WRITES: f64 = 2.0;

/// A member that is slower than all the others.
struct Laggard<'a> {
    mirror: &'a str,
    device: &'a str,
    peer: &'a str,
    high: High,
    write_s: f64,
    peer_s: f64,
    /// Whether both are written the same.
    is_even: bool,
}

/// The members of each mirror.
fn mirrors<'a>(view: &'a View<'_>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (device, _) in view.each("disk.io_time") {
        if let Some(mirror) = view.set.text("disk.mirror", device).and_then(|t| t.last()) {
            all.entry(mirror).or_default().push(device);
        }
    }
    all.retain(|_, members| members.len() > 1);
    all
}

/// Seconds that a write took on a device.
fn write_s(set: &SeriesSet, device: &str, span: Span) -> Option<f64> {
    let writes = set.get("disk.writes", device)?.mean(span).filter(|n| *n >= WRITES_S)?;
    Some(set.get("disk.write_time", device)?.mean(span)? / writes)
}

/// The same over time.
fn writes_over_time(view: &View<'_>, device: &str) -> Option<Signal> {
    let writes = view.of("disk.writes", device)?;
    let time = view.of("disk.write_time", device)?;
    Some(time.zip(&writes, |time, n| if n > 0.0 { time / n } else { f64::NAN }))
}

fn laggard<'a>(view: &'a View<'_>, mirror: &'a str, members: &[&'a str]) -> Option<Laggard<'a>> {
    members
        .iter()
        .filter_map(|device| {
            let own = writes_over_time(view, device)?;
            let before = view.baseline.and_then(|b| write_s(view.base_set, device, b));
            let floor = MORE_S.max(before.map_or(0.0, |b| SLOWER * b));
            let high = view.high_signal(&own, floor, 3.0, before)?;
            let span = high.run.span();
            let write = write_s(view.set, device, span)?;
            // The slowest of the others: it has to be slower than each of them.
            let others = members
                .iter()
                .filter(|m| m != &device)
                .filter_map(|m| Some((*m, write_s(view.set, m, span)?)));
            let (peer, peer_s) = others.max_by(|a, b| a.1.total_cmp(&b.1))?;
            let is_slower = write >= SLOWER * peer_s && write >= peer_s + MORE_S;
            let is_even = ["disk.writes", "disk.write_bytes"]
                .iter()
                .all(|metric| is_alike(view.set, metric, device, peer, span));
            is_slower.then_some(Laggard { mirror, device, peer, high, write_s: write, peer_s, is_even })
        })
        .max_by(worse)
}

/// Whether a metric of two devices is about the same, as far as it is known.
fn is_alike(set: &SeriesSet, metric: &str, one: &str, other: &str, span: Span) -> bool {
    let mean = |device: &str| set.get(metric, device).and_then(|s| s.mean(span));
    let (Some(a), Some(b)) = (mean(one), mean(other)) else { return true };
    a <= SAME_WRITES * b && b <= SAME_WRITES * a
}

/// What is written the same comes first, then what is slower.
fn worse(a: &Laggard<'_>, b: &Laggard<'_>) -> std::cmp::Ordering {
    let slower = |one: &Laggard<'_>| one.write_s - one.peer_s;
    a.is_even.cmp(&b.is_even).then(slower(a).total_cmp(&slower(b)))
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("disk.io_time") {
        return Observation::cannot_tell("disk.write_time of each member: iostat -x 1");
    }
    let mirrors = mirrors(view);
    if mirrors.is_empty() {
        return Observation::inactive("no device is a member of a mirror, as far as is known");
    }
    let found = mirrors.iter().filter_map(|(mirror, members)| laggard(view, mirror, members));
    let Some(worst) = found.max_by(worse) else {
        return Observation::inactive("the members of each mirror took about as long for a write");
    };
    if !worst.is_even {
        return Observation::Inactive(format!(
            "{} and {} of {} are written different amounts: a resync",
            worst.device, worst.peer, worst.mirror
        ));
    }
    let span = worst.high.run.span();
    let Some(waited) = device::waiting(view, span) else {
        return Observation::needs_as(
            "whether tasks waited: psi.io_some, tasks.d_io",
            &["psi.io_some", "tasks.d_io"],
        );
    };
    if waited.more() < HARM {
        return Observation::Inactive(format!(
            "{} is slower than its peers and no task waited for it",
            worst.device
        ));
    }
    finding(view, &worst, &waited).active()
}

fn finding(view: &View<'_>, worst: &Laggard<'_>, waited: &Waiting) -> Finding {
    let span = worst.high.run.span();
    let mut finding = view.finding(&worst.high.run);
    finding.culprit.device = Some(worst.device.to_owned());
    finding.statement = format!(
        "{}, a member of the mirror {}, took {} for a write while {} took {}; each write waits for the slowest, and {}",
        worst.device,
        worst.mirror,
        words::seconds(worst.write_s),
        worst.peer,
        words::seconds(worst.peer_s),
        waited.words(),
    );
    for device in [worst.device, worst.peer] {
        finding.prove(
            view,
            &["disk.write_time", "disk.writes", "disk.write_bytes", "disk.io_time"],
            device,
            span,
        );
    }
    finding.evidence.extend(view.evidence("psi.io_some", "", span));
    finding.loss_s = Some(waited.more().max(0.0) * worst.high.run.seconds());
    finding.confidence = 0.9;
    finding
}
