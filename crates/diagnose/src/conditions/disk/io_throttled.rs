//! A limit throttles I/O, not the device: a cgroup has reached its I/O limit.
//!
//! Tasks wait for I/O, pressure is high, and the device idles: its own times are as short as ever, since what a rule holds
//! back has not reached it yet. `blkio.throttle.*` of version 1 and `io.max` of version 2 work that way, in requests and in
//! bytes, for reads and for writes. A slow device shows long times of its own (`slow-device`), a full one a queue
//! (`disk-hog`). A group that is kept at its limit while nobody waits does what it was meant to do.
//!
//! Other rules have no limit that could be compared: shares of a device (`io.cost`), a wanted latency (`io.latency`), the
//! bound of what is written back (`wbt_lat_usec`). Who waits for them shows in its kernel stack alone.

use mitra_model::lookup;

use crate::device;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "io-throttled",
    title: "a cgroup is throttled by its I/O limit",
    area: "disk",
    needs: &[
        "cgroup.io_limit_riops",
        "cgroup.io_limit_wiops",
        "cgroup.io_limit_rbps",
        "cgroup.io_limit_wbps",
        "cgroup.io_limit_device",
        "cgroup.io_reads",
        "cgroup.io_writes",
        "cgroup.io_read_bytes",
        "cgroup.io_write_bytes",
        "cgroup.psi_io_some",
        "psi.io_some",
        "tasks.d_io",
        "tasks.d_throttle",
        "disk.read_merges",
        "disk.write_merges",
        "task.read_bytes",
        "task.write_bytes",
        "task.state",
        "task.kstack",
    ],
    needs_of: &[device::NEEDS],
    observe,
    causes: &[
        explains("disk-hog", "the tasks that wait are throttled").here(),
        effect("dirty-writeback-stall", "throttled writes stay dirty").here(),
        effect("pressure-io", "requests are throttled"),
        effect("tasks-in-d-state", "requests are throttled"),
        explains("hung-task", "a throttled task can wait for minutes"),
        effect("service-slow", "a throttled server answers late"),
        effect("lock-queue", "the lock holder is throttled"),
    ],
    cgroup_limit: Some("io."),
    remedies_of: remedies,
    next_of: next,
    suspicions: &[Suspicion {
        rank: 140,
        name: "io-waits-without-io",
        when: "psi.io_some > 50% and max(disk.io_time) < 20% for 3s",
        arm: &["offcpu d-only"],
        why: "Tasks wait for I/O half of the time while every device is idle for most of it: they wait for something \
              in front of the device (a throttle, a lock or a remote server).",
        ..Suspicion::NONE
    }],
    source: include_str!("io_throttled.rs"),
    ..Condition::ROOT
};

/// Each limit, what it limits, and how people say it. Of several devices a group has the smallest limit and the rate of all.
const LIMITS: [(&str, &str, &str); 4] = [
    ("cgroup.io_limit_riops", "cgroup.io_reads", "reads"),
    ("cgroup.io_limit_wiops", "cgroup.io_writes", "writes"),
    ("cgroup.io_limit_rbps", "cgroup.io_read_bytes", "read"),
    ("cgroup.io_limit_wbps", "cgroup.io_write_bytes", "written"),
];

/// The kernel hands out the budget in slices of a tenth of a second and rounds requests up to whole ones: a group that is
/// held at its limit is a little below or above it in each second.
const AT_LIMIT: f64 = 0.8;
/// What did more than that in a second did it before the limit was set, or past it.
const ABOVE_LIMIT: f64 = 1.3;
/// In each slice of a tenth of a second one request more may pass than the limit allows (`throtl_slice`, rounded up to
/// whole requests): of a limit of 8 requests a second 18 are seen.
const SLICES_PER_S: f64 = 10.0;
/// Its tasks wait for a tenth of the time.
const PRESSURE: f64 = 0.1;
/// And twice as much as before.
const MORE: f64 = 2.0;
/// A device with a queue of this length is itself what is waited for.
const QUEUE: f64 = 2.0;
/// Of the time.
const BUSY: f64 = 0.5;
/// A request of the device takes this many times as long as before: then it is slow, whatever the rule does.
const SLOWER: f64 = 3.0;
/// The device has to be what is waited for during half of the wait to be what is to blame.
const EXPLAINS: f64 = 0.5;
/// What did less than half of a limit was not held by it.
const ON_DEVICE: f64 = 0.5;
/// In one second twice what the limit gives in one: it was saved up.
const LUMP: f64 = 2.0;
const NEED_S: f64 = 3.0;
/// A task in two seconds is found held back.
const HELD: f64 = 0.5;
/// Functions that hold requests back by other rules than a limit (block/blk-rq-qos.c, blk-iocost.c, blk-iolatency.c,
/// blk-wbt.c, blk-cgroup.c). Who is made to wait for dirty pages is in none of them.
const RULES: &[&str] = &["rq_qos", "ioc_rqos", "iolatency", "wbt_wait", "blkcg_maybe_throttle"];

/// More than all others together.
const MOST: f64 = 0.5;

struct ThrottledGroup<'a> {
    group: &'a str,
    /// The device that has the limit, of several the first one that did enough.
    device: Option<&'a str>,
    /// Whether no other device could be the one that has it.
    is_sure: bool,
    limit: f64,
    rate: f64,
    metric: &'static str,
    limit_metric: &'static str,
    what: &'static str,
    high: High,
    pressure: f64,
    pressure_before: f64,
}

fn observe(view: &View<'_>) -> Observation {
    let knows = |metric: &&str| view.each(metric).next().is_some();
    let limits = LIMITS.map(|(limit, ..)| limit);
    if !limits.iter().any(knows) {
        if let Some(suspicion) = without_limit(view) {
            return suspicion;
        }
        if view.has("cgroup.io_reads") {
            return Observation::inactive("no cgroup that did I/O has an I/O limit");
        }
        return Observation::cannot_tell(
            "I/O limits of cgroups: cat /sys/fs/cgroup/GROUP/io.max (version 1: blkio/…/blkio.throttle.*)",
        );
    }
    let mut best: Option<ThrottledGroup<'_>> = None;
    for (limit_metric, metric, what) in LIMITS {
        for (group, series) in view.each(limit_metric) {
            // It may have been lifted since.
            let mut known = series.samples(view.window).filter(|(_, _, limit)| *limit > 0.0);
            let Some((_, _, limit)) = known.next_back() else { continue };
            let Some(held) = held(view, group, limit, (limit_metric, metric, what)) else { continue };
            if best
                .as_ref()
                .is_none_or(|b| held.pressure * held.high.run.high_s > b.pressure * b.high.run.high_s)
            {
                best = Some(held);
            }
        }
    }
    let Some(held) = best else {
        if let Some(suspicion) = without_limit(view) {
            return suspicion;
        }
        return Observation::inactive("no cgroup waited at its I/O limit");
    };
    let span = held.high.run.span();
    if let Some(why) = devices_of(view, held.group).find_map(|device| own_fault(view, device, &held, span)) {
        return Observation::Inactive(why);
    }
    finding(view, &held).active()
}

/// Tasks are held back by a rule that has no limit to compare with; `None` where none is.
fn without_limit(view: &View<'_>) -> Option<Observation> {
    let high = view.high("tasks.d_throttle", "", HELD, 3.0)?;
    let span = high.run.span();
    let is_rule = |stack: &str| RULES.iter().any(|name| stack.contains(name));
    let mut stacks = view
        .set
        .each_text("task.kstack")
        .flat_map(|(_, text)| &text.changes)
        .filter_map(|(t, stack)| stack.as_deref().filter(|_| span.contains(*t)));
    stacks.any(is_rule).then(|| {
        Observation::suspected(
            "which rule throttles I/O, a weight or a latency target: cat /sys/fs/cgroup/io.cost.qos \
             /sys/fs/cgroup/GROUP/io.latency /sys/block/DEVICE/queue/wbt_lat_usec",
        )
    })
}

/// What counts on a device as a metric of a group does: requests before they were put together, or bytes.
fn on_device(metric: &str) -> &'static [&'static str] {
    match metric {
        "cgroup.io_reads" => &["disk.reads", "disk.read_merges"],
        "cgroup.io_writes" => &["disk.writes", "disk.write_merges"],
        "cgroup.io_read_bytes" => &["disk.read_bytes"],
        _ => &["disk.write_bytes"],
    }
}

/// What a device did in the terms of a metric of a group.
fn of_device(view: &View<'_>, metric: &str, device: &str, span: Span) -> Option<Signal> {
    Signal::sum(on_device(metric).iter().filter_map(|metric| view.set.get(metric, device)), span)
}

/// A group that runs at a limit while its tasks wait.
fn held<'a>(
    view: &'a View<'_>,
    group: &'a str,
    limit: f64,
    (limit_metric, metric, what): (&'static str, &'static str, &'static str),
) -> Option<ThrottledGroup<'a>> {
    let rate = rate_of(view, group, metric)?;
    // Version 2 has the pressure of each group; elsewhere it is the machine's.
    let pressure = view.of("cgroup.psi_io_some", group).filter(|p| p.max().unwrap_or(0.0) > 0.0);
    let (pressure, pressure_before, base) = match pressure {
        Some(p) => {
            (p, view.before("cgroup.psi_io_some", group), view.base_values("cgroup.psi_io_some", group))
        }
        None => {
            (view.system("psi.io_some")?, view.before("psi.io_some", ""), view.base_values("psi.io_some", ""))
        }
    };
    let floor = view.threshold(PRESSURE, &base).max(MORE * pressure_before.unwrap_or(0.0)).min(0.9);
    let most = ABOVE_LIMIT * limit + SLICES_PER_S * request(view, group, metric);
    let least = if metric.ends_with("_bytes") { limit } else { one_by_one(limit) };
    // Who also does something else than wait goes at the limit for as long as he waits.
    let at_limit = |rate: f64, waiting: f64| {
        (AT_LIMIT * least * waiting.min(1.0)..=most).contains(&rate).then_some(waiting)
    };
    let now = pressure.zip(&rate, |p, rate| at_limit(rate, p).unwrap_or(0.0));
    // Bursts of large requests pass in one second what the limit gives for several: a mean over three seconds tells.
    let mean = pressure.zip(&smooth(&rate), |p, rate| at_limit(rate, p).unwrap_or(0.0));
    let both = now.zip(&mean, f64::max);
    let steady = view.high_signal(&both, floor, NEED_S, pressure_before);
    let lumps = in_lumps(view, &pressure, (&rate, limit), floor).filter(|_| metric.ends_with("_bytes"));
    let high = steady.into_iter().chain(lumps).max_by(|a, b| a.run.high_s.total_cmp(&b.run.high_s))?;
    let span = high.run.span();
    let rate = rate.within(span).mean()?;
    // A group does I/O on devices without a limit too. On one that has a limit it did no more than that device did in all.
    let devices: Vec<&str> = devices_of(view, group).collect();
    let device = devices.iter().copied().find(|device| {
        of_device(view, metric, device, span)
            .and_then(|on_it| on_it.mean())
            .is_none_or(|on_it| on_it >= ON_DEVICE * rate.min(limit))
    });
    if device.is_none() && !devices.is_empty() {
        return None;
    }
    Some(ThrottledGroup {
        group,
        device,
        is_sure: devices.len() <= 1,
        limit,
        rate,
        metric,
        limit_metric,
        what,
        pressure: high.during,
        pressure_before: pressure_before.unwrap_or(0.0),
        high,
    })
}

/// What a group did each second in the terms of a limit. The root has in its own number what is done on devices without a limit as well: what
/// counts is what the busiest of those did that have one, each of which has its own.
fn rate_of(view: &View<'_>, group: &str, metric: &str) -> Option<Signal> {
    let devices = devices_of(view, group).filter(|_| group == "/");
    let rates = devices.filter_map(|device| of_device(view, metric, device, view.window));
    rates.max_by(|a, b| a.total().total_cmp(&b.total())).or_else(|| view.of(metric, group))
}

/// The stretch in which tasks wait while a request that is larger than what the limit gives in seconds passes as a whole from time to
/// time, and so many bytes in all as the limit allows. At its ends parts of such a request are missing.
fn in_lumps(view: &View<'_>, pressure: &Signal, (rate, limit): (&Signal, f64), floor: f64) -> Option<High> {
    let high = view.high_signal(pressure, floor, NEED_S, None)?;
    let inside = rate.within(high.run.span());
    let mean = inside.mean()?;
    let is_lump = inside.max()? >= LUMP * limit && mean >= ON_DEVICE * limit && mean <= ABOVE_LIMIT * limit;
    is_lump.then_some(high)
}

/// Requests a second of who waits for each before the next, at a limit. A slice gives whole requests only, and what is
/// left of a budget goes with it: a request at a limit of 9 waits for two slices, since one gives nine tenths of it.
fn one_by_one(limit: f64) -> f64 {
    let in_slice = limit / SLICES_PER_S;
    let whole = if in_slice >= 1.0 { in_slice.floor() } else { 1.0 / in_slice.recip().ceil() };
    whole * SLICES_PER_S
}

/// What one request counts in a metric of a group: one, or its bytes.
fn request(view: &View<'_>, group: &str, metric: &str) -> f64 {
    let mean = |metric: &str| view.of(metric, group).and_then(|signal| signal.mean());
    let size =
        |bytes: &str, requests: &str| Some(mean(bytes)? / mean(requests).filter(|count| *count > 0.0)?);
    match metric {
        "cgroup.io_read_bytes" => size(metric, "cgroup.io_reads").unwrap_or(0.0),
        "cgroup.io_write_bytes" => size(metric, "cgroup.io_writes").unwrap_or(0.0),
        _ => 1.0,
    }
}

/// Each value as the mean of itself and its neighbours.
fn smooth(signal: &Signal) -> Signal {
    let mut out = signal.clone();
    for i in 0..signal.v.len() {
        let near = signal.v.get(i.saturating_sub(1)..(i + 2).min(signal.v.len())).unwrap_or_default();
        if let Some(value) = out.v.get_mut(i) {
            *value = near.iter().sum::<f64>() / near.len().max(1) as f64;
        }
    }
    out
}

/// The devices that a group has limits for.
fn devices_of<'a>(view: &'a View<'_>, group: &str) -> impl Iterator<Item = &'a str> {
    let devices = view.set.text("cgroup.io_limit_device", group).and_then(|t| t.last());
    devices.into_iter().flat_map(|devices| devices.split(',')).filter(|device| !device.is_empty())
}

/// Why a device is itself what is waited for. Little's law: the requests of the group times what each took on the device are
/// the part of the wait that the device explains; what others wait for it says nothing.
fn own_fault(view: &View<'_>, device: &str, held: &ThrottledGroup<'_>, span: Span) -> Option<String> {
    let now = device::cost(view.set, device, span)?;
    let mean = |metric: &str| view.set.get(metric, held.group).and_then(|s| s.mean(span));
    let requests_s = match (mean("cgroup.io_reads"), mean("cgroup.io_writes")) {
        (None, None) => now.requests_s,
        (reads, writes) => reads.unwrap_or(0.0) + writes.unwrap_or(0.0),
    };
    if requests_s * now.await_s < EXPLAINS * held.pressure.min(1.0) {
        return None;
    }
    // Most of those that wait do so before a device that is idle for most of the time.
    let waiting = view.system("tasks.d_io").and_then(|tasks| tasks.within(span).mean()).unwrap_or(0.0);
    if now.queue < EXPLAINS * waiting && now.busy < BUSY {
        return None;
    }
    if now.queue >= QUEUE {
        return Some(format!("{device} had a queue of {:.0} requests itself", now.queue));
    }
    let before = view.baseline.and_then(|b| device::cost(view.base_set, device, b))?;
    let is_slower = now.service_s >= SLOWER * before.service_s && now.busy >= BUSY;
    is_slower.then(|| {
        format!(
            "{device} itself took {} for a request after {}",
            words::seconds(now.service_s),
            words::seconds(before.service_s)
        )
    })
}

fn finding(view: &View<'_>, held: &ThrottledGroup<'_>) -> Finding {
    let span = held.high.run.span();
    let mut finding = view.finding(&held.high.run);
    finding.culprit.cgroup = Some(held.group.to_owned());
    let device = held.device;
    finding.culprit.device = device.map(str::to_owned);
    let ranked = |of: &dyn Fn(&Process<'_>) -> f64| {
        let tops = process::ranking(view.processes(), span, |p| {
            if process::is_inside(p.cgroup, held.group) { of(p) } else { 0.0 }
        });
        tops.into_iter().next()
    };
    // Who uses most of a limit up makes the others wait for it; else who waits most is all that is known.
    let uses = match held.metric {
        "cgroup.io_read_bytes" => ranked(&|p| p.total(view.set, "task.read_bytes", span)),
        "cgroup.io_write_bytes" => ranked(&|p| p.total(view.set, "task.write_bytes", span)),
        _ => None,
    };
    let uses = uses.filter(|top| top.share >= MOST);
    if let Some(top) = uses.or_else(|| ranked(&|p| p.uninterruptible_s(view.set, span))) {
        finding.blame_pid(top.comm, top.pid());
    }
    let bytes = held.metric.ends_with("_bytes");
    let say = |value: f64| {
        if bytes { format!("{}/s", words::bytes(value)) } else { format!("{}/s", words::count(value)) }
    };
    let busy = device.and_then(|d| device::cost(view.set, d, span).map(|cost| (d, cost)));
    finding.statement = format!(
        "{} may do {} {}{} and did {}: its tasks waited for I/O {} of the time ({} before){}",
        view.group(held.group),
        say(held.limit),
        held.what,
        device.map(|d| format!(" on {d}")).unwrap_or_default(),
        say(held.rate),
        words::percent(held.pressure.min(1.0)),
        words::percent(held.pressure_before),
        busy.map(|(d, cost)| format!(
            ", while {d} took {} for a request and was busy {}",
            words::seconds(cost.await_s),
            words::percent(cost.busy.min(1.0))
        ))
        .unwrap_or_default(),
    );
    finding.prove(view, &[held.limit_metric, held.metric, "cgroup.psi_io_some"], held.group, span);
    finding.evidence.extend(view.evidence("psi.io_some", "", span));
    for metric in ["disk.io_time", "disk.weighted_time"] {
        finding.evidence.extend(device.and_then(|d| view.evidence(metric, d, span)));
    }
    // Pressure counts a second in which somebody waits, however many they are.
    let pressure_s = (held.pressure - held.pressure_before).max(0.0) * held.high.run.seconds();
    let waited_s = process::group_waited_s(view, held.group, span, &[WaitKind::Io, WaitKind::Throttle]);
    finding.loss_s = Some(pressure_s.max(waited_s));
    finding.confidence = if (held.rate / held.limit - 1.0).abs() <= 0.1 { 0.95 } else { 0.8 };
    if !held.is_sure {
        finding.confidence = 0.6;
        finding.remarks.push(
            "the cgroup has limits for several devices; the smallest is compared with all that it did, since what it did on \
             each is not recorded"
                .to_owned(),
        );
    }
    finding
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let group = finding.culprit.cgroup.as_deref().unwrap_or("the cgroup");
    let file = finding
        .evidence
        .iter()
        .find(|e| e.metric.starts_with("cgroup.io_limit_"))
        .and_then(|e| lookup(&e.metric))
        .map_or("io.max", |m| m.source);
    vec![Remedy {
        action: format!(
            "raise or remove the I/O limit of {}; a weight limits it only when others want the device",
            finding.culprit.group().unwrap_or("the cgroup")
        ),
        command: format!(
            "echo 'MAJ:MIN rbps=max wbps=max riops=max wiops=max' > {}   ({file}: echo 'MAJ:MIN 0')",
            words::shell(&format!("/sys/fs/cgroup{}/io.max", group.trim_end_matches('/')))
        ),
        verify: "its io.pressure falls, and its rate rises beyond the old limit".to_owned(),
        risk: "others that use the device may wait for it then".to_owned(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let group = finding.culprit.cgroup.as_deref().unwrap_or("");
    if group == "/" {
        return Vec::new();
    }
    vec![to_measure(
        "what set the limit: a unit file or a container limit".to_owned(),
        format!(
            "systemctl show -p IOReadIOPSMax,IOWriteIOPSMax,IOReadBandwidthMax,IOWriteBandwidthMax {}",
            words::shell(group.rsplit('/').next().unwrap_or_default())
        ),
    )]
}
