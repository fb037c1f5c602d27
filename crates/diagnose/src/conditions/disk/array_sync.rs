//! An md array is checked, resynchronised or rebuilt, and whoever else needs its disks waits.
//!
//! Many systems read all of an array once a month (`checkarray`, `mdcheck`, `raid-check`); after a crash or where a disk was
//! replaced all of it is copied. A thread of the kernel does it (`md0_resync`): no process is charged with its requests, and
//! the device of the array shows none of them. So its members move more than was asked of the array, and that is told from a
//! program that fills the queue (`disk-hog`), whose bytes pass the array.
//!
//! The kernel slows it down to `sync_speed_min` while others use the disks. Where that was raised, or an arm has to go to and
//! fro, they wait all the same. Volumes of LVM that are mirrors, and filesystems that check themselves (`btrfs scrub`,
//! `zpool scrub`), are not seen.

use mitra_model::TextSeries;

use crate::device::{self, HARM};
use crate::prelude::*;
use crate::saturated::{self, Saturated};
use crate::xfs;

pub const CONDITION: Condition = Condition {
    id: "array-sync",
    title: "an array is checked or rebuilt while others need its disks",
    area: "disk",
    needs: &[
        "disk.sync_action",
        "disk.sync_speed",
        "disk.sync_left",
        "disk.array",
        "disk.io_time",
        "psi.io_some",
        "tasks.d_io",
    ],
    needs_of: &[device::NEEDS, xfs::NEEDS],
    observe,
    causes: &[
        explains("disk-saturated", "the array's own requests keep its disks busy").here(),
        explains("disk-hog", "the queue is full of the array's own requests").here(),
        explains("slow-device", "requests wait behind those of the array itself").here(),
        effect("dirty-writeback-stall", "the disks take less beside the array's own requests").here(),
        effect("pressure-io", "requests wait behind those of the array itself"),
        effect("tasks-in-d-state", "requests wait behind those of the array itself"),
    ],
    remedies_of: remedies,
    next: &[measure(
        "what the array does and how far it is",
        "cat /proc/mdstat; grep . /sys/block/{device}/md/sync_*",
    )],
    source: include_str!("array_sync.rs"),
    ..Condition::ROOT
};

/// More than everything else on the disk.
const SHARE: f64 = 0.5;
/// What a write to an array costs a member at most: with parity it reads what it replaces, and then writes.
const FOR_A_WRITE: f64 = 2.0;
/// The disks are busy all the time: at this part of its speed three quarters of it are left to others.
const SLOWED: f64 = 0.25;
/// KiB a second, where the speed is not known: a tenth of what one disk with an arm reads in sequence.
const SLOW_KIB_S: f64 = 10_000.0;

/// So few requests a second are nobody's work.
const ASKED_S: f64 = 0.5;
/// All members take part: those that are busy for less than this part of the busiest one do not, and that one is slow by itself.
const TOGETHER: f64 = 0.5;

/// An array whose own requests fill one of its disks.
struct Busy<'a> {
    array: &'a str,
    action: &'a str,
    member: &'a str,
    disk: &'a Saturated,
    own: Own,
}

/// What a member does that nobody asked the array for, a second.
struct Own {
    bytes_s: f64,
    requests_s: f64,
}

/// What an array does beside its work in a span.
fn action(text: &TextSeries, span: Span) -> Option<&str> {
    let seen = text.changes.iter().filter(|(t, _)| span.contains(*t)).filter_map(|(_, text)| text.as_deref());
    text.at(span.since).into_iter().chain(seen).find(|action| !matches!(*action, "idle" | "frozen"))
}

/// What an action is called.
fn word(action: &str) -> &'static str {
    match action {
        "check" => "a check",
        "repair" => "a repair",
        "recover" => "a rebuild",
        "reshape" => "a reshape",
        _ => "a resync",
    }
}

/// The sum of two metrics of a device, of which the second counts so many times.
fn both(view: &View<'_>, metrics: [&str; 2], device: &str, span: Span, times: f64) -> Option<f64> {
    let [one, other] = metrics.map(|metric| view.set.get(metric, device)?.mean(span));
    Some(one? + times * other?)
}

const BYTES: [&str; 2] = ["disk.read_bytes", "disk.write_bytes"];
const REQUESTS: [&str; 2] = ["disk.reads", "disk.writes"];
const TIME: [&str; 2] = ["disk.read_time", "disk.write_time"];

impl Own {
    /// `None` where numbers of the member or of the array are missing.
    fn of(view: &View<'_>, array: &str, member: &str, span: Span) -> Option<Own> {
        let sum = |metrics, device, times| both(view, metrics, device, span, times);
        Some(Own {
            bytes_s: sum(BYTES, member, 1.0)? - sum(BYTES, array, FOR_A_WRITE)?,
            requests_s: sum(REQUESTS, member, 1.0)? - sum(REQUESTS, array, 1.0)?,
        })
    }

    /// A megabyte in one request takes a disk as long as one block elsewhere: both bytes and requests have to be the array's.
    fn fills(&self, disk: &Saturated) -> bool {
        self.bytes_s > 0.0
            && self.bytes_s >= SHARE * disk.bytes_per_s
            && self.requests_s >= SHARE * disk.requests_s
    }
}

/// Whether somebody asks a device and waits for it longer than before. Kernels before 5.14 count no time of an array.
fn is_asked(view: &View<'_>, device: &str, span: Span) -> bool {
    let before = || {
        let [one, other] = TIME.map(|metric| view.before_span(metric, device, span).unwrap_or(0.0));
        one + other
    };
    both(view, REQUESTS, device, span, 1.0).is_some_and(|requests| requests >= ASKED_S)
        && both(view, TIME, device, span, 1.0)
            .filter(|time| *time > 0.0)
            .is_none_or(|time| time - before() >= HARM)
}

/// Whether somebody asks the array, or for something else on one of its disks.
fn is_in_the_way(view: &View<'_>, busy: &Busy<'_>, span: Span) -> bool {
    let own = members(view, busy.array);
    let is_beside = |part: &str, member: &str| {
        let mut disks = view.each("disk.io_time").map(|(disk, _)| disk);
        disks.any(|disk| device::is_part_of(part, disk) && device::is_part_of(member, disk))
    };
    let is_other = |part: &str| !own.contains(&part) && own.iter().any(|member| is_beside(part, member));
    is_asked(view, busy.array, span)
        || view.each("disk.reads").any(|(part, _)| is_other(part) && is_asked(view, part, span))
}

/// The part of the time in which the disk below a member is busy.
fn busy_time(view: &View<'_>, member: &str, span: Span) -> Option<f64> {
    let whole = view.each("disk.io_time").find(|(disk, _)| device::is_part_of(member, disk));
    whole.map(|(_, time)| time).or_else(|| view.set.get("disk.io_time", member))?.mean(span)
}

/// The members of an array.
fn members<'a>(view: &'a View<'_>, array: &str) -> Vec<&'a str> {
    let all = view.set.each_text("disk.array").filter(|(_, of)| of.last() == Some(array));
    all.map(|(member, _)| member).collect()
}

/// Whether a member is on a disk.
fn is_on(member: &str, disk: &str) -> bool {
    disk == member || device::is_part_of(member, disk)
}

/// The array that fills a disk most, and whether there is one of which that cannot be told.
fn busiest<'a>(view: &'a View<'_>, saturated: &'a [Saturated]) -> (Option<Busy<'a>>, bool) {
    let mut all: Vec<Busy<'a>> = Vec::new();
    let mut is_unknown = false;
    for (array, text) in view.set.each_text("disk.sync_action") {
        let members = members(view, array);
        for member in members.iter().copied() {
            let Some(disk) = saturated.iter().find(|disk| is_on(member, &disk.device)) else { continue };
            let span = disk.busy.run.span();
            let Some(action) = action(text, span) else { continue };
            let others = members.iter().filter(|other| !is_on(other, &disk.device));
            let others: Vec<f64> = others.filter_map(|other| busy_time(view, other, span)).collect();
            let Some(own) = Own::of(view, array, member, span).filter(|_| !others.is_empty()) else {
                is_unknown = true;
                continue;
            };
            let of_others = others.iter().sum::<f64>() / others.len() as f64;
            if own.fills(disk) && of_others >= TOGETHER * disk.busy.during {
                all.push(Busy { array, action, member, disk, own });
            }
        }
    }
    (all.into_iter().max_by(|a, b| a.own.bytes_s.total_cmp(&b.own.bytes_s)), is_unknown)
}

/// Whether there is an array of which nobody said what it does. One without redundancy has members and no action.
fn is_any_unknown(view: &View<'_>) -> bool {
    let is_unknown = |name: &str| {
        name.starts_with("md")
            && !device::is_partition(view, name)
            && view.set.text("disk.sync_action", name).is_none()
            && members(view, name).is_empty()
    };
    view.each("disk.io_time").any(|(name, _)| is_unknown(name))
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("disk.io_time") {
        return Observation::needs(&["disk.io_time"]);
    }
    let is_any = |(_, text): (&str, &TextSeries)| action(text, view.window).is_some();
    if !view.set.each_text("disk.sync_action").any(is_any) {
        if is_any_unknown(view) {
            return Observation::needs_as("/proc/mdstat", &["disk.sync_action"]);
        }
        return Observation::inactive("no md array is checked or rebuilt, as far as is known");
    }
    let saturated = saturated::all(view);
    let busy = match busiest(view, &saturated) {
        (Some(busy), _) => busy,
        (None, true) => {
            return Observation::needs_as(
                "what each partition and each array moves: iostat -x -p ALL",
                &["disk.read_bytes", "disk.write_bytes"],
            );
        }
        (None, false) => {
            return Observation::inactive("an array is checked or rebuilt, and its disks are not full of it");
        }
    };
    let span = busy.disk.busy.run.span();
    let fills = format!("{} of {} fills {}", word(busy.action), busy.array, busy.disk.device);
    if !is_in_the_way(view, &busy, span) {
        return Observation::Inactive(format!("{fills} and nobody else waits for its disks"));
    }
    let Some(waited) = device::waiting(view, span) else {
        return Observation::needs_as(
            "whether tasks waited: psi.io_some, tasks.d_io",
            &["psi.io_some", "tasks.d_io"],
        );
    };
    if waited.more() < HARM {
        return Observation::Inactive(format!("{fills} and no task waited for it"));
    }
    let mut finding = saturated::finding(view, busy.disk);
    finding.statement = format!(
        "{} of {} moves {}/s on its member {}, {} of what that disk does; {}; {}",
        word(busy.action),
        busy.array,
        words::bytes(busy.own.bytes_s),
        busy.member,
        words::percent((busy.own.bytes_s / busy.disk.bytes_per_s).min(1.0)),
        finding.statement,
        waited.words(),
    );
    finding.culprit.device = Some(busy.array.to_owned());
    finding.prove(view, &["disk.read_bytes", "disk.write_bytes", "disk.sync_speed"], busy.array, span);
    finding.prove(view, &["psi.io_some", "tasks.d_io"], "", span);
    let last = |metric: &str| view.set.get(metric, busy.array)?.last(span);
    if let Some((left, speed)) = last("disk.sync_left").zip(last("disk.sync_speed").filter(|s| *s > 0.0)) {
        finding.remarks.push(format!(
            "{} of it are left, which takes {} at {}/s",
            words::bytes(left),
            words::seconds(left / speed),
            words::bytes(speed)
        ));
    }
    finding.loss_s = Some(waited.more().max(0.0) * busy.disk.busy.run.seconds());
    finding.confidence = 0.9;
    finding.active()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let array = words::shell(finding.device());
    let folder = format!("/sys/block/{array}/md");
    let is_for_safety = ["a check", "a repair"].iter().any(|what| finding.statement.starts_with(what));
    let speed = finding.evidence.iter().find(|e| e.metric == "disk.sync_speed");
    let slowed = speed.map_or(SLOW_KIB_S, |e| (SLOWED * e.during / 1024.0).max(1000.0));
    let limit = match speed {
        Some(_) => "a quarter of its speed".to_owned(),
        None => format!("{}/s of each disk", words::bytes(slowed * 1024.0)),
    };
    let mut remedies = Vec::new();
    if is_for_safety {
        remedies.push(Remedy {
            action: format!("stop it for now, and let {} be checked in a quiet hour", finding.device()),
            command: format!(
                "echo idle > {folder}/sync_action; systemctl list-timers 'mdcheck*' 'raid-check*'; cat /etc/cron.d/mdadm"
            ),
            verify: "cat /proc/mdstat: no check; iostat -x 1: await of the disks is what it was".to_owned(),
            risk: "sectors that cannot be read stay unknown until the next check".to_owned(),
        });
    }
    remedies.push(Remedy {
        action: format!(
            "let it take {limit} at most, so that {} has room for others",
            finding.device()
        ),
        command: format!("echo {slowed:.0} > {folder}/sync_speed_max; cat {folder}/sync_speed_min"),
        verify: format!(
            "iostat -x 1: await of the disks falls; cat /proc/mdstat: speed; once it is done: echo system > {folder}/sync_speed_max"
        ),
        risk: "it takes longer, and a rebuild leaves one copy less for as long; a larger sync_speed_min wins"
            .to_owned(),
    });
    remedies
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::{Axis, lookup};

    use super::*;

    #[test]
    fn what_nobody_said_of_an_array_is_asked_for() {
        let mut set = SeriesSet::default();
        let axis = Arc::new(Axis { t: vec![1], dt: vec![1.0], places: Vec::new() });
        let mut busy = |disk: &str| {
            let series = Series { axis: Arc::clone(&axis), start: 0, values: vec![0.0].into() };
            set.insert(lookup("disk.io_time").unwrap(), disk.into(), series);
        };
        busy("sda");
        busy("md0");
        let missing = |set: &SeriesSet| match observe(&View::of_case(set, None)) {
            Observation::CannotTell(missing) => missing.metrics.to_vec(),
            _ => Vec::new(),
        };
        assert_eq!(missing(&set), ["disk.sync_action"]);
        // Its members are known, and it has nothing to check.
        let text = TextSeries { changes: vec![(0, Some("md0".into()))], place: None };
        set.insert_text(lookup("disk.array").unwrap(), "sda1".into(), text);
        assert!(missing(&set).is_empty());
    }
}
