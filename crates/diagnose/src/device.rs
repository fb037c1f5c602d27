//! What a block device needs for a request, apart from how many wait for it.
//!
//! A request's latency is the queue before it and its own service. Divided by the queue (Little's law) it is the time for
//! one request alone, which tells a device that is slow from one that is asked too much: a queue of thirty makes each
//! request take thirty times as long and its service no longer.

use mitra_model::{SeriesSet, Span};

use crate::signal::Signal;
use crate::view::View;
use crate::words;

/// What is read here of each device.
pub const NEEDS: &[&str] = &[
    "disk.io_time",
    "disk.weighted_time",
    "disk.reads",
    "disk.writes",
    "disk.read_time",
    "disk.write_time",
    "disk.read_bytes",
    "disk.write_bytes",
];

/// Busy for this part of a sample without completing anything: its request takes longer than the sample.
const STUCK: f64 = 0.9;
/// So few requests a second say nothing about the device.
const REQUESTS_S: f64 = 0.5;

/// What a device did for each request.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Reads and writes a second.
    pub requests_s: f64,
    /// The part of them that reads.
    pub read_share: f64,
    /// Bytes of a request.
    pub size: f64,
    /// Seconds from start to completion, the queue included.
    pub await_s: f64,
    /// Seconds of it that a request alone would have taken.
    pub service_s: f64,
    /// The mean number of requests in the device and its queue.
    pub queue: f64,
    /// The share of the time in which it had one at least.
    pub busy: f64,
}

/// The mean cost of a request in a span; `None` where the device had none or they are not known.
pub fn cost(set: &SeriesSet, device: &str, span: Span) -> Option<Cost> {
    let mean = |metric: &str| set.get(metric, device).and_then(|s| s.mean(span));
    let both = |a: &str, b: &str| match (mean(a), mean(b)) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
    };
    let requests_s = both("disk.reads", "disk.writes").filter(|n| *n >= REQUESTS_S)?;
    let await_s = both("disk.read_time", "disk.write_time")? / requests_s;
    let queue = mean("disk.weighted_time").unwrap_or(0.0);
    Some(Cost {
        requests_s,
        read_share: mean("disk.reads").unwrap_or(0.0) / requests_s,
        size: both("disk.read_bytes", "disk.write_bytes")? / requests_s,
        await_s,
        service_s: await_s / queue.max(1.0),
        queue,
        busy: mean("disk.io_time").unwrap_or(0.0),
    })
}

/// The service of a request over time. Samples without requests are left out, but one in which the device was busy all
/// the time and completed nothing stands for a request that takes as long as the sample.
pub fn service(view: &View<'_>, device: &str) -> Option<Signal> {
    of_each(view, device, |time, queue| time / queue.max(1.0))
}

/// The same from start to completion, the queue included.
pub fn latency(view: &View<'_>, device: &str) -> Option<Signal> {
    of_each(view, device, |time, _| time)
}

/// What a request took over time, of the time that all of a sample took and of the queue.
fn of_each(view: &View<'_>, device: &str, part: impl Fn(f64, f64) -> f64) -> Option<Signal> {
    let sum =
        |metrics: &[&str]| Signal::sum(metrics.iter().filter_map(|m| view.set.get(m, device)), view.window);
    let requests = sum(&["disk.reads", "disk.writes"])?;
    let time = sum(&["disk.read_time", "disk.write_time"])?;
    let queue = view.of("disk.weighted_time", device)?;
    let busy = view.of("disk.io_time", device)?;
    let took = time.zip(&queue, part);
    let of_each = took.zip(&requests, |time, n| if n > 0.0 { time / n } else { -1.0 });
    let step_s = requests.step_s();
    let known = of_each.zip(&busy, |took, busy| match took {
        s if s >= 0.0 => s,
        _ if busy >= STUCK => step_s,
        _ => f64::NAN,
    });
    (!known.t.is_empty()).then_some(known)
}

/// Devices that stand on others: what they do shows on the one below as well.
pub fn is_stacked(device: &str) -> bool {
    ["loop", "dm-", "md", "drbd", "bcache"].iter().any(|prefix| device.starts_with(prefix))
}

/// Whether the row is a partition of another row: its requests are counted on the whole device too.
pub fn is_partition(view: &View<'_>, device: &str) -> bool {
    whole_of(device).is_some_and(|whole| view.set.get("disk.io_time", whole).is_some())
}

/// Whether one device is a partition of the other, by their names.
pub fn is_part_of(device: &str, whole: &str) -> bool {
    whole_of(device) == Some(whole)
}

/// The name that the whole device of a partition of this name has. The number of a partition follows the name at once, or
/// after a `p` where the name itself ends with a digit (`disk_name` in block/): `sda1` of `sda`, `nvme0n1p1` of `nvme0n1`.
fn whole_of(name: &str) -> Option<&str> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.is_empty() || stem.len() == name.len() {
        return None;
    }
    Some(stem.strip_suffix('p').filter(|whole| whole.ends_with(|c: char| c.is_ascii_digit())).unwrap_or(stem))
}

/// The devices that do I/O in the window: whole ones, not their partitions.
pub fn devices<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a str> {
    view.each("disk.io_time").map(|(device, _)| device).filter(|device| !is_partition(view, device))
}

/// The device that most is written to, in bytes a second: of a stack of devices the upper one, which is where the
/// writers wait.
pub fn most_written<'a>(view: &'a View<'_>, span: Span) -> Option<(&'a str, f64)> {
    let written =
        |device: &str| view.set.get("disk.write_bytes", device).and_then(|s| s.mean(span)).unwrap_or(0.0);
    let queue =
        |device: &str| view.set.get("disk.weighted_time", device).and_then(|s| s.mean(span)).unwrap_or(0.0);
    let all: Vec<(&str, f64)> = devices(view).map(|device| (device, written(device))).collect();
    let most = all.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max);
    // What is written to an upper device is written to those below it too, give or take a journal.
    all.into_iter().filter(|(_, bytes)| *bytes > 0.0 && *bytes >= 0.5 * most).max_by(|a, b| {
        (is_stacked(a.0), queue(a.0))
            .partial_cmp(&(is_stacked(b.0), queue(b.0)))
            .unwrap_or(std::cmp::Ordering::Equal)
    })
}

/// Somebody waits for a twentieth of the time more than before.
pub const HARM: f64 = 0.05;
/// Where somebody waits for half of the time, more who wait hardly show in it any more.
const FULL: f64 = 0.5;
/// Their number does, once there are so many times as many: a count of once a second scatters.
const MORE: f64 = 1.5;

/// Who waits for I/O in a span, and who did before.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// The part of the time in which somebody waited, or how many tasks did at a time.
    pub during: f64,
    /// The same before.
    pub before: f64,
    /// Whether it is tasks that are counted.
    pub is_tasks: bool,
}

impl Waiting {
    /// How much more than before.
    pub fn more(&self) -> f64 {
        self.during - self.before
    }

    /// `somebody waited for I/O 81 % of the time (0.4 % before)`.
    pub fn words(&self) -> String {
        if self.is_tasks {
            return format!("{:.1} tasks waited for I/O at a time ({:.1} before)", self.during, self.before);
        }
        format!(
            "somebody waited for I/O {} of the time ({} before)",
            words::percent(self.during.min(1.0)),
            words::percent(self.before)
        )
    }
}

/// Who waits for I/O; `None` where it is not known. The time in which somebody waits tells most, unless it was mostly so
/// before: then how many they are does.
pub fn waiting(view: &View<'_>, span: Span) -> Option<Waiting> {
    let of = |metric: &str, is_tasks: bool| {
        let during = view.system(metric)?.within(span).mean()?;
        Some(Waiting { during, before: view.before_span(metric, "", span).unwrap_or(0.0), is_tasks })
    };
    let (time, tasks) = (of("psi.io_some", false), of("tasks.d_io", true));
    let is_told_by_tasks = |time: &Waiting, tasks: &Waiting| {
        time.more() < HARM
            && time.before >= FULL
            && tasks.more() >= HARM
            && tasks.during >= MORE * tasks.before
    };
    match (time, tasks) {
        (Some(time), Some(tasks)) if is_told_by_tasks(&time, &tasks) => Some(tasks),
        (time, tasks) => time.or(tasks),
    }
}

/// Devices that stand on each other are looked through to this depth: encryption on volumes on a mirror on partitions.
const STACK_MAX: usize = 6;

/// Whether what happens to one device may show on the other: they are one, or parts of one, or one stands on the other or
/// may do so for all that is known, or both are members of one mirror or array.
pub fn is_one_place(set: &SeriesSet, a: &str, b: &str) -> bool {
    // Members are often partitions.
    let groups = |device: &str| -> Vec<&str> {
        members(set).filter(|(member, _)| is_same_disk(member, device)).map(|(_, group)| group).collect()
    };
    let of_a = groups(a);
    is_same_disk(a, b)
        || groups(b).iter().any(|name| of_a.contains(name))
        || may_stand_on(set, a, b, STACK_MAX)
        || may_stand_on(set, b, a, STACK_MAX)
}

/// Whether one device is the other or a part of it, or an array or a mirror of which the other is a member.
pub fn is_on(set: &SeriesSet, upper: &str, lower: &str) -> bool {
    is_same_disk(upper, lower)
        || members(set).any(|(member, group)| group == upper && is_same_disk(member, lower))
}

/// Members of mirrors and of arrays, each with the name of that.
fn members(set: &SeriesSet) -> impl Iterator<Item = (&str, &str)> {
    let all = ["disk.mirror", "disk.array"].into_iter().flat_map(move |metric| set.each_text(metric));
    all.filter_map(|(member, group)| Some((member, group.last()?)))
}

fn is_same_disk(a: &str, b: &str) -> bool {
    a == b || is_part_of(a, b) || is_part_of(b, a)
}

fn may_stand_on(set: &SeriesSet, upper: &str, lower: &str, depth: usize) -> bool {
    if depth == 0 || !is_stacked(upper) {
        return false;
    }
    let members: Vec<&str> =
        members(set).filter(|(_, group)| *group == upper).map(|(member, _)| member).collect();
    let below = if members.is_empty() { below(set, upper).into_iter().collect() } else { members };
    // Nobody knows what it stands on.
    below.is_empty() || below.iter().any(|d| is_same_disk(d, lower) || may_stand_on(set, d, lower, depth - 1))
}

/// The device with the file system on which the file of a loop device lies; `None` where that is not known.
fn below<'a>(set: &'a SeriesSet, device: &str) -> Option<&'a str> {
    let file = set.text("disk.backing", device)?.last()?;
    let holds =
        |mount: &str| mount == "/" || file.strip_prefix(mount).is_some_and(|rest| rest.starts_with('/'));
    let mounts = set.each_text("fs.device").filter(|(mount, _)| holds(mount));
    let (_, device) = mounts.max_by_key(|(mount, _)| mount.len())?;
    let name = device.last()?.strip_prefix("/dev/")?;
    set.each("disk.io_time").any(|(known, _)| is_same_disk(name, known)).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::{Axis, Series, TextSeries, lookup};

    use super::*;

    #[test]
    fn disks_that_have_nothing_to_do_with_each_other_are_two_places() {
        let mut set = SeriesSet::default();
        let axis = Arc::new(Axis { t: vec![1], dt: vec![1.0], places: Vec::new() });
        for disk in ["sda", "sdb", "nvme0n1", "loop1", "loop2", "loop10", "md0", "dm-0"] {
            let series = Series { axis: Arc::clone(&axis), start: 0, values: vec![0.0].into() };
            set.insert(lookup("disk.io_time").unwrap(), disk.into(), series);
        }
        let mut text = |metric: &str, row: &str, text: &str| {
            let series = TextSeries { changes: vec![(0, Some(text.into()))], place: None };
            set.insert_text(lookup(metric).unwrap(), row.into(), series);
        };
        text("disk.backing", "loop1", "/srv/images/a.img");
        text("fs.device", "/", "/dev/nvme0n1p2");
        text("fs.device", "/srv", "/dev/sda1");
        text("disk.mirror", "sda", "md0");
        text("disk.mirror", "sdb", "md0");
        text("disk.array", "sdc1", "md5");
        text("disk.array", "sdd1", "md5");
        for (a, b, is_one) in [
            ("sda", "sda", true),
            ("sda1", "sda", true),
            ("sda", "nvme0n1", false),
            ("sda", "sdb", true),
            ("md0", "sdb", true),
            ("md0", "nvme0n1", false),
            ("md5", "sdd", true),
            ("sdc", "sdd", true),
            ("md5", "sda", false),
            ("loop1", "sda", true),
            ("loop1", "nvme0n1", false),
            ("loop10", "loop1", true),
            ("dm-0", "nvme0n1", true),
        ] {
            assert_eq!(is_one_place(&set, a, b), is_one, "{a} and {b}");
            assert_eq!(is_one_place(&set, b, a), is_one, "{b} and {a}");
        }
        assert!(!is_part_of("loop10", "loop1") && is_part_of("nvme0n1p1", "nvme0n1"));
    }

    #[test]
    fn a_number_behind_a_name_is_not_always_a_partition() {
        for (name, whole) in [
            ("sda1", Some("sda")),
            ("sdp12", Some("sdp")),
            ("nvme0n1p2", Some("nvme0n1")),
            ("mmcblk0p1", Some("mmcblk0")),
            ("loop1p1", Some("loop1")),
            ("sda", None),
            ("", None),
            ("7", None),
        ] {
            assert_eq!(whole_of(name), whole, "{name}");
        }
        for (name, other) in
            [("dm-10", "dm-1"), ("nvme0n10", "nvme0n1"), ("loop10", "loop1"), ("md12", "md1")]
        {
            assert_ne!(whole_of(name), Some(other));
        }
    }
}
