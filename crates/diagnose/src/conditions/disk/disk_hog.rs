//! One program fills a block device's queue and others that need the device wait.
//!
//! The device is not faulty: its latency is its queue. The culprit is the process that moves most bytes; the harm is
//! that other programs are found waiting for I/O more than before. A backup on a disk that nobody else wants is no
//! incident; where others ask for so little that hardly any time is lost, and each of their requests takes twice as long, it
//! is a finding. Kernel threads that write back or serve a loop device are messengers and never the culprit. Bytes are counted
//! per process and not per device, so where several devices are busy the device named is the one whose traffic is nearest to
//! what the program moved, and a stacked device before the one it stands on.
//!
//! Where no state of tasks was recorded, as in what pidstat and iostat print, the harm is counted in requests: what
//! others read meanwhile, in requests of the size that the device served before, each of which took as much longer as
//! requests took longer than before.

use crate::device;
use crate::prelude::*;
use crate::saturated::{self, Saturated};
use crate::stats;
use crate::xfs;

pub const CONDITION: Condition = Condition {
    id: "disk-hog",
    title: "one program fills a disk's queue",
    area: "disk",
    needs: &[
        "disk.io_time",
        "task.read_bytes",
        "task.write_bytes",
        "task.state",
        "task.blkio_delay",
        "task.kstack",
        "psi.io_some",
        "tasks.d_io",
        "disk.transfers",
        "disk.transfer_time",
    ],
    needs_of: &[device::NEEDS, xfs::NEEDS],
    may_be_harmless: true,
    observe,
    causes: &[effect("disk-saturated", "one process keeps the device's queue full").here()],
    remedies: &[Advice {
        action: "lower its I/O priority, or limit it with io.max in a cgroup of its own",
        command: "ionice -c 3 -p {pid}",
        verify: "iostat -x 1 {device}: await and aqu-sz fall to what they were",
        risk: "it takes longer; ionice works only with the bfq and mq-deadline schedulers",
    }],
    next: &[measure("which files it has open", "ls -l /proc/{pid}/fd")],
    source: include_str!("disk_hog.rs"),
    ..Condition::ROOT
};

/// More than all others together.
const SHARE: f64 = 0.5;
/// Who reads more than this from a device reads from another one too: counters are read some milliseconds apart, and what
/// the last program before this one asked for is given now.
const BEYOND: f64 = 1.5;
/// Others spend a tenth of a task's time more in D state than before.
const HARM: f64 = 0.1;
/// Requests that share the queue with as many others take twice as long.
const SLOWER: f64 = 2.0;
/// A task's time that others wait beyond before and that is no stray of the counters: they are read some ten milliseconds apart.
const STRAY: f64 = 0.01;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("disk.io_time") {
        return Observation::needs(&["disk.io_time"]);
    }
    let has_states = view.has("task.state") || io_delay_is_known(view);
    let has_bytes = ["task.read_bytes", "task.write_bytes"].iter().any(|m| view.has(m));
    if !has_states && !has_bytes {
        return Observation::cannot_tell("I/O of each process: pidstat -d 1");
    }
    let saturated = saturated::all(view);
    let Some(first) = saturated.first() else {
        return Observation::inactive("no device was busy for long with a queue");
    };
    let span = first.busy.run.span();
    let moved = |p: &Process<'_>| {
        p.total(view.set, "task.read_bytes", span) + p.total(view.set, "task.write_bytes", span)
    };
    let mut tops = process::ranking(view.processes(), span, moved);
    // Bytes are counted of all devices together: who read more than the full ones gave read from another one.
    if let Some(given) = saturated.iter().map(|disk| disk.read_bytes_per_s).sum::<Option<f64>>() {
        tops.retain(|top| reads_of(view, top, span) <= (BEYOND * given).max(0.5 * top.rate));
    }
    let all: f64 = tops.iter().map(|top| top.total).sum();
    let Some(top) = tops.first() else {
        return Observation::inactive("no process moved any bytes from or to it");
    };
    let share = top.total / all.max(1e-9);
    if share < SHARE {
        return Observation::Inactive(format!(
            "no program moved most of the bytes: {} moved {}",
            top.comm,
            words::percent(share)
        ));
    }
    let disk = nearest(&saturated, top.rate);
    let longer = others_requests(view, &top.members, disk);
    let by_requests = longer.as_ref().map(|longer| (longer.waited, 0.0));
    let harm = if has_states {
        // States are seen once a second: of a wait that is short and comes often a few samples tell little.
        let by_states = process::others_waiting_for_io(view, &top.members, span);
        let more = |(now, before): &(f64, f64)| now - before;
        by_requests.filter(|r| more(r) > more(&by_states)).or(Some(by_states))
    } else {
        by_requests
    };
    let Some((waiting, waited_before)) = harm else {
        return Observation::cannot_tell(
            "whether others waited: iostat -x 1 from before it began, or the states of tasks",
        );
    };
    let slower = disk.await_before_s.is_some_and(|before| disk.await_s >= SLOWER * before);
    let is_minor = waiting - waited_before < HARM;
    let is_felt = |longer: &Longer| longer.waited > STRAY && longer.await_s >= SLOWER * longer.before_s;
    let felt = longer.filter(is_felt);
    if is_minor && felt.is_none() {
        return Observation::Inactive(format!(
            "{} filled {} and no other task was found waiting ({} of a task's time)",
            top.comm,
            disk.device,
            words::percent(waiting)
        ));
    }
    // Without states of tasks it takes both: others that waited, and requests that got slower.
    if !has_states && !slower {
        return Observation::Inactive(format!(
            "{} filled {} and its requests took no longer than before",
            top.comm, disk.device
        ));
    }
    let mut finding = saturated::finding(view, disk);
    let reads = top.lead.total(view.set, "task.read_bytes", span);
    let verb = if reads > moved(&top.lead) / 2.0 { "read" } else { "wrote" };
    finding.statement = format!(
        "{} {verb} {}/s, {} of all bytes; {}; other tasks waited {} of a task's time for I/O ({} before)",
        top.words(),
        words::bytes(top.rate),
        words::percent(share),
        finding.statement,
        words::percent(waiting),
        words::percent(waited_before),
    );
    finding.blame_top(top);
    // Without the first one the device would be the second one's.
    if let Some(second) = tops.get(1).filter(|second| second.total >= 0.5 * top.total) {
        finding.remarks.push(format!(
            "{} moved {}/s beside it, {} of all bytes",
            second.words(),
            words::bytes(second.rate),
            words::percent(second.total / all)
        ));
    }
    let metric = if verb == "read" { "task.read_bytes" } else { "task.write_bytes" };
    finding.evidence.push(view.task_evidence(metric, &top.lead, None, top.rate, span));
    finding.evidence.push(view.evidence_of("tasks.d_io", "others", Some(waited_before), waiting));
    finding.loss_s = Some((waiting - waited_before) * disk.busy.run.seconds());
    // The share of the bytes, and whether requests really took longer than before.
    finding.confidence = 0.5 * share + if slower { 0.5 } else { 0.25 };
    if let Some(longer) = felt.filter(|_| is_minor) {
        finding.is_harmless = true;
        finding.remarks.push(format!(
            "requests took {} instead of {}: whoever waits for one at a time is that much slower",
            words::seconds(longer.await_s),
            words::seconds(longer.before_s)
        ));
    }
    finding.active()
}

/// Bytes a second that the processes of one line of a ranking read.
fn reads_of(view: &View<'_>, top: &Top<'_>, span: Span) -> f64 {
    let members = view.processes().iter().filter(|p| top.members.contains(&p.pid));
    members.map(|p| p.total(view.set, "task.read_bytes", span)).sum::<f64>() / span.seconds().max(1e-9)
}

/// Of several saturated devices the one whose traffic fits best what the program moved; the order of the list, a
/// stacked device first, decides between equals.
fn nearest(saturated: &[Saturated], rate: f64) -> &Saturated {
    let distance = |disk: &Saturated| ((disk.bytes_per_s.max(1.0) / rate.max(1.0)).ln().abs() * 2.0).round();
    saturated.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(&saturated[0])
}

/// Whether the kernel accounts for the time that tasks wait for I/O: where it does not the tools print zeros.
fn io_delay_is_known(view: &View<'_>) -> bool {
    view.each("task.blkio_delay").any(|(_, series)| series.max(view.window).is_some_and(|delay| delay > 0.0))
}

/// What others lose by requests that take longer.
struct Longer {
    /// Task-seconds per second beyond before.
    waited: f64,
    await_s: f64,
    before_s: f64,
}

/// How much longer requests of other processes took than before; `None` where the time before is not known. Reads alone count, since what is written goes to the page cache and is waited for by few.
/// Their requests are taken to be as large as those that the device served before.
fn others_requests(view: &View<'_>, these: &[u32], disk: &Saturated) -> Option<Longer> {
    let span = disk.busy.run.span();
    let both = &["disk.reads", "disk.writes"][..];
    let usual = |of: &[&str]| {
        usual_ratio(view, disk, of, both).or_else(|| usual_ratio(view, disk, of, &["disk.transfers"]))
    };
    let of_reads = || -> Option<(f64, f64, f64)> {
        let now = |metric: &str| view.of(metric, &disk.device)?.within(span).mean();
        let (reads, time) = (now("disk.reads")?, now("disk.read_time")?);
        let usual = |of: &str| usual_ratio(view, disk, &[of], &["disk.reads"]);
        Some(((reads > 0.0).then(|| time / reads)?, usual("disk.read_time")?, usual("disk.read_bytes")?))
    };
    let of_all = || -> Option<(f64, f64, f64)> {
        let before =
            usual(&["disk.read_time", "disk.write_time"]).or_else(|| usual(&["disk.transfer_time"]))?;
        Some((disk.await_s, before, usual(&["disk.read_bytes", "disk.write_bytes"])?))
    };
    let (await_s, before_s, bytes) = of_reads().or_else(of_all).filter(|(.., bytes)| *bytes > 0.0)?;
    let (seconds, longer_s) = (span.seconds().max(1e-9), (await_s - before_s).max(0.0));
    let waited: f64 = view
        .processes()
        .iter()
        .filter(|p| !p.kthread && !these.contains(&p.pid))
        .flat_map(|p| p.series(view.set, "task.read_bytes"))
        .filter_map(|read| read.total(span))
        // A task waits for one request at a time, so for no more than all of the time.
        .map(|read| (read / seconds / bytes * longer_s).min(1.0))
        .sum();
    Some(Longer { waited, await_s, before_s })
}

/// The median over the samples of the baseline, or of those before the device was full, of a sum of its metrics for each
/// of another sum: what a request was before. A mean would be that of the sample in which the change falls.
fn usual_ratio(view: &View<'_>, disk: &Saturated, of: &[&str], per: &[&str]) -> Option<f64> {
    let span = view.baseline.unwrap_or(Span { since: i64::MIN, until: disk.busy.run.span().since });
    let sum = |metrics: &[&str]| {
        Signal::sum(metrics.iter().filter_map(|m| view.base_set.get(m, &disk.device)), span)
    };
    let ratio = sum(of)?.zip(&sum(per)?, |a, b| if b > 0.0 { a / b } else { f64::NAN });
    let mut values = ratio.v;
    stats::median(&mut values)
}
