//! A block device takes far longer for a request than it did, and not because too many wait for it.
//!
//! A disk that tries a bad sector again and again, a controller that lost its cache, a volume whose credits are used up, a
//! network behind an iSCSI target, a neighbour on the same array: requests take long although the queue is short. A device
//! that somebody floods has long waits too, and they are its queue: each request alone takes no longer than before
//! (`disk-hog`). Where a rule holds requests back above the device, its own times stay what they were (`io-throttled`).
//! Large requests take longer by nature, so what they may take grows with their size, and only requests of about the same
//! size are compared.
//!
//! What the device says of itself is not always so: virtual disks call themselves rotational and answer in a tenth of a
//! millisecond. One that answered faster than an arm moves is held to what it did, as long as it is asked for no more than
//! then and for the same kind of thing: a true disk with a cache answers as fast until the cache is full.
//!
//! Who keeps as many requests waiting as before and is served a tenth as fast waits ten times as long for each, although none
//! alone may take longer than flash does: a volume at its limit, behind which a queue was always there.
//!
//! Of devices that stand on each other the lowest one that is slow is named.

use crate::device::{self, Cost, HARM, Waiting};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "slow-device",
    title: "a device takes far longer per request",
    area: "disk",
    needs: &["disk.read_time", "disk.rotational", "disk.backing", "psi.io_some", "tasks.d_io"],
    needs_of: &[device::NEEDS],
    triggers: &[
        // Somebody waits for a tenth of the time, and goes on doing so: a device that is slow and has no queue.
        above(&["psi.io_some"], 0.1).lasting(5.0),
    ],
    observe,
    causes: &[
        explains("disk-saturated", "the same requests take longer, so they queue").here(),
        explains(
            "disk-hog",
            "the queue is long because the device is slow, not because of its heaviest user",
        )
        .here(),
        effect("dirty-writeback-stall", "a slower device lets the backlog grow").here(),
        effect("pressure-io", "each request takes longer"),
        effect("service-slow", "a server that waits for the device answers late"),
        effect("lock-queue", "the lock holder waits for the device"),
        effect("tasks-in-d-state", "each request takes longer"),
        explains("hung-task", "each request takes longer, and a task that needs many waits for minutes"),
    ],
    remedies: &[Advice {
        action: "find out what backs {device} and why it is slow (a failing disk, a volume out of burst credits, \
                 network storage), and move its data or its load elsewhere",
        command: "smartctl -a /dev/{device}; dmesg -T | grep -i {device}",
        verify: "iostat -x 1 {device}: r_await and w_await are what they were",
        risk: "reading a failing disk in full may kill it: copy the important data first",
    }],
    next: &[
        measure("what backs the device", "lsblk -s /dev/{device}; losetup -a"),
        measure("the latency of one small read while nothing else reads", "ioping -D -c 10 /dev/{device}"),
    ],
    source: include_str!("slow_device.rs"),
    ..Condition::ROOT
};

/// No disk needs longer for one request: the slowest that are sold move their arm in 12 ms and turn once in 11.
const ARM_S: f64 = 0.02;
/// And no disk moves its data more slowly, in bytes a second: a memory stick on USB 2.
const ARM_BYTES_S: f64 = 20e6;
/// The same for what has no moving parts: the slowest flash answers within a millisecond or two.
const FLASH_S: f64 = 0.002;
/// Bytes a second of such a device.
const FLASH_BYTES_S: f64 = 100e6;
/// So many times as long as before, where that was known: the slowest tenth of a device's requests may take three times as
/// long as the others, not all of them.
const SLOWER: f64 = 3.0;
/// A device that says it has no moving parts, or shows it: below what an arm needs it takes more to be sure.
const FLASH_SLOWER: f64 = 10.0;
/// Half a turn of the fastest spindle: who answers sooner on average did not wait for a sector to come by.
const NO_TURN_S: f64 = 0.002;
/// As many requests as before, give or take the scatter of seconds.
const SAME_RATE: f64 = 1.5;
/// Reads are as large a part of the requests as before, to within this.
const SAME_MIX: f64 = 0.25;
/// Requests are of one size if they are within this factor.
const SAME_SIZE: f64 = 4.0;
/// Requests up to this size need no comparison of sizes: moving them takes less than the rest.
const SMALL_BYTES: f64 = 65_536.0;
/// How far beyond the slowest disk a device has to be where nothing is known of it before.
const BEYOND: f64 = 5.0;
/// A device that is slow.
#[derive(Debug, Clone)]
pub struct Slow<'a> {
    /// Its name.
    pub device: &'a str,
    /// When, and the service of a request in seconds.
    pub high: High,
    /// What it did meanwhile.
    pub now: Cost,
    /// What it did before.
    pub before: Option<Cost>,
    /// Whether it shows in what a request takes with its queue, which is as long as it was, and not in what it takes alone.
    pub with_queue: bool,
}

impl Slow<'_> {
    /// Seconds per second that its requests took longer than before.
    fn lost(&self) -> f64 {
        let took = |cost: Cost| if self.with_queue { cost.await_s } else { cost.service_s };
        self.now.requests_s * (took(self.now) - self.before.map_or(0.0, took)).max(0.0)
    }
}

enum Verdict<'a> {
    Slow(Box<Slow<'a>>),
    Fast,
    Unknown(&'a str),
}

fn judge<'a>(view: &'a View<'_>, device: &'a str) -> Option<Verdict<'a>> {
    let service = device::service(view, device)?;
    let Some(before) = view.baseline.and_then(|b| device::cost(view.base_set, device, b)) else {
        return unknown_before(view, device, &service);
    };
    let is_flash = view.set.get("disk.rotational", device).and_then(|s| s.last(view.window)) == Some(0.0);
    let mut verdict = None;
    // Slower than any disk; or than any flash, where the device is one or was as fast.
    let bars = [(ARM_S, ARM_BYTES_S, SLOWER, true), (FLASH_S, FLASH_BYTES_S, FLASH_SLOWER, is_flash)];
    for (base_s, bytes_s, slower, holds) in bars {
        if !holds && before.service_s > NO_TURN_S {
            continue;
        }
        let floor = base_s.max(slower * before.service_s);
        let Some(high) = view.high_signal(&service, floor, 3.0, Some(before.service_s)) else { continue };
        let Some(now) = device::cost(view.set, device, high.run.span()) else { continue };
        let is_slow = now.service_s >= base_s + now.size / bytes_s
            && now.service_s >= slower * before.service_s
            && (holds || is_same_load(&now, &before));
        if is_slow {
            let is_alike = now.size <= SMALL_BYTES || now.size <= SAME_SIZE * before.size;
            let slow = Slow { device, now, before: Some(before), high, with_queue: false };
            return Some(if is_alike { Verdict::Slow(Box::new(slow)) } else { Verdict::Unknown(device) });
        }
        verdict = Some(Verdict::Fast);
    }
    match behind_its_queue(view, device, before, is_flash) {
        Some(slow) => Some(Verdict::Slow(Box::new(slow))),
        None => verdict,
    }
}

/// Whether requests wait ten times as long as before behind a queue that is no longer than it was.
fn behind_its_queue<'a>(
    view: &'a View<'_>,
    device: &'a str,
    before: Cost,
    is_flash: bool,
) -> Option<Slow<'a>> {
    if !is_flash && before.service_s > NO_TURN_S {
        return None;
    }
    let (base_s, bytes_s) = if is_flash { (FLASH_S, FLASH_BYTES_S) } else { (ARM_S, ARM_BYTES_S) };
    let floor = base_s.max(FLASH_SLOWER * before.await_s);
    let high = view.high_signal(&device::latency(view, device)?, floor, 3.0, Some(before.await_s))?;
    let now = device::cost(view.set, device, high.run.span())?;
    let is_slow = now.await_s >= base_s + now.size / bytes_s
        && now.await_s >= FLASH_SLOWER * before.await_s
        && now.queue <= SAME_RATE * before.queue.max(1.0)
        && is_same_load(&now, &before);
    is_slow.then_some(Slow { device, now, before: Some(before), high, with_queue: true })
}

/// Whether a device is asked for no more than before, and for the same kind of thing.
fn is_same_load(now: &Cost, before: &Cost) -> bool {
    now.requests_s <= SAME_RATE * before.requests_s
        && (now.read_share - before.read_share).abs() <= SAME_MIX
        && (before.size / SAME_SIZE..=before.size * SAME_SIZE).contains(&now.size)
}

/// The verdict on a device of which nothing is known before.
fn unknown_before<'a>(view: &View<'_>, device: &'a str, service: &Signal) -> Option<Verdict<'a>> {
    let high = view.high_signal(service, ARM_S, 3.0, None)?;
    let now = device::cost(view.set, device, high.run.span())?;
    let is_flash = view.set.get("disk.rotational", device).and_then(|s| s.last(view.window)) == Some(0.0);
    let of_disk = ARM_S + now.size / ARM_BYTES_S;
    let (base_s, bytes_s) = if is_flash { (FLASH_S, FLASH_BYTES_S) } else { (ARM_S, ARM_BYTES_S) };
    let is_slow = now.service_s >= BEYOND * (base_s + now.size / bytes_s) && now.service_s >= of_disk;
    Some(match is_slow && now.size <= SMALL_BYTES {
        true => Verdict::Slow(Box::new(Slow { device, now, before: None, high, with_queue: false })),
        false if now.service_s >= of_disk => Verdict::Unknown(device),
        false => Verdict::Fast,
    })
}

/// The slow devices, the one that explains the others first; and those of which it cannot be told.
fn slow<'a>(view: &'a View<'_>) -> (Vec<Slow<'a>>, Vec<&'a str>) {
    let (mut slow, mut unknown) = (Vec::new(), Vec::new());
    for device in device::devices(view) {
        match judge(view, device) {
            Some(Verdict::Slow(one)) => slow.push(*one),
            Some(Verdict::Unknown(one)) => unknown.push(one),
            Some(Verdict::Fast) | None => {}
        }
    }
    slow.sort_by(|a, b| b.lost().total_cmp(&a.lost()));
    // What stands on a slow device passes on its time.
    if let Some(first) = slow.first()
        && device::is_stacked(first.device)
        && let Some(below) = slow
            .iter()
            .position(|s| !device::is_stacked(s.device) && s.now.service_s >= 0.5 * first.now.service_s)
    {
        slow.swap(0, below);
    }
    (slow, unknown)
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("disk.io_time") {
        return Observation::cannot_tell("disk.read_time: what a request takes: iostat -x 1");
    }
    let (slow, unknown) = slow(view);
    let Some(first) = slow.first() else {
        return match unknown.first() {
            Some(device) => Observation::cannot_tell(format!(
                "how long {device} took for requests of this size before: iostat -x 1 from a healthy time"
            )),
            None => Observation::inactive(
                "no device took longer per request than a slow disk does, queueing excluded",
            ),
        };
    };
    let span = first.high.run.span();
    let Some(waited) = device::waiting(view, span) else {
        return Observation::needs_as(
            "whether tasks waited: psi.io_some, tasks.d_io",
            &["psi.io_some", "tasks.d_io"],
        );
    };
    // Behind a queue that is as long as before the same tasks wait all the time, and are served a tenth as often.
    let waits_in_vain = first.with_queue && first.lost().min(waited.during) >= HARM;
    if waited.more() < HARM && !waits_in_vain {
        return Observation::Inactive(format!(
            "{} took {} for a request and no task waited for it",
            first.device,
            words::seconds(first.now.service_s)
        ));
    }
    finding(view, first, &waited).active()
}

fn finding(view: &View<'_>, slow: &Slow<'_>, waited: &Waiting) -> Finding {
    let span = slow.high.run.span();
    let mut finding = view.finding(&slow.high.run);
    finding.culprit.device = Some(slow.device.to_owned());
    let took = |cost: Cost| if slow.with_queue { cost.await_s } else { cost.service_s };
    let before = match slow.before {
        Some(before) => format!(
            " after {} before ({} of {} each)",
            words::seconds(took(before)),
            "requests",
            words::bytes(before.size)
        ),
        None => ", with no data from before".to_owned(),
    };
    let as_before = match slow.before.filter(|_| slow.with_queue) {
        Some(before) => format!(" as {:.1} did before", before.queue),
        None => String::new(),
    };
    finding.statement = format!(
        "{} took {} for each request of {}{before}, with {:.1} waiting at a time{as_before}; {}",
        slow.device,
        words::seconds(took(slow.now)),
        words::bytes(slow.now.size),
        slow.now.queue,
        waited.words(),
    );
    finding.prove(
        view,
        &[
            "disk.read_time",
            "disk.write_time",
            "disk.reads",
            "disk.writes",
            "disk.weighted_time",
            "disk.io_time",
        ],
        slow.device,
        span,
    );
    finding.prove(view, &["psi.io_some", "tasks.d_io"], "", span);
    if let Some(file) = view.set.text("disk.backing", slow.device).and_then(|t| t.last()) {
        finding.remarks.push(format!(
            "{} is backed by {file}: the storage of that file may be what is slow",
            slow.device
        ));
    }
    if slow.now.service_s < ARM_S && view.reading("disk.rotational", slow.device) == Some(1.0) {
        finding.remarks.push(format!(
            "{} reports itself as rotational; under no more load and for the same requests it answered faster than any \
             rotational disk",
            slow.device
        ));
    }
    let lost = waited.more().max(if slow.with_queue { slow.lost().min(waited.during) } else { 0.0 });
    finding.loss_s = Some(lost.max(0.0) * slow.high.run.seconds());
    finding.confidence = match slow.before {
        Some(_) if slow.with_queue => 0.75,
        Some(before) if slow.now.service_s >= FLASH_SLOWER * before.service_s => 0.95,
        Some(_) => 0.8,
        None => 0.6,
    };
    finding
}
