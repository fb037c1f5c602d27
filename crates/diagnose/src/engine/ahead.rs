//! Growth that has not hurt anybody yet: what will be at its limit, and when.
//!
//! A straight line is drawn through the climb that lasts to the end of what is known, and through each third of it. Only
//! where the thirds agree is a time told: the pace of the fastest and of the slowest of them are its uncertainty.

use mitra_model::Span;
use mitra_model::report::{Culprit, Evidence, Finding, Incident};

use crate::condition::Condition;
use crate::engine::parts::FOCUS_NS;
use crate::filesystems::Room;
use crate::process::{self, Process, Top};
use crate::signal::Signal;
use crate::view::View;
use crate::{conditions, growth, words};

/// What is read of the whole window.
pub(crate) const SCANNED: &[&str] = &[
    "mem.total",
    "mem.available",
    "mem.swap_total",
    "mem.swap_free",
    "fs.total_bytes",
    "fs.avail_bytes",
    "fs.inodes",
    "fs.inodes_free",
];
/// What is read of its last minutes besides.
pub(crate) const DETAILED: &[&str] = &[
    "cgroup.anon",
    "cgroup.shmem",
    "cgroup.memory_max",
    "cgroup.pids_current",
    "cgroup.pids_max",
    "files.nr",
    "files.max",
    "netns.conntrack_count",
    "netns.conntrack_max",
    "task.fds",
    "task.fd_limit",
    "task.rss_anon",
    "task.swap",
];

/// Something that fills up.
struct Filling<'a> {
    /// The condition that it becomes when it is full.
    becomes: &'static str,
    /// In words: `memory of the cgroup /svc`.
    what: String,
    used: Signal,
    limit: f64,
    is_bytes: bool,
    culprit: Culprit,
    /// The metrics that prove it, with their row.
    proof: (&'static [&'static str], &'a str),
}

/// What will be at its limit, that which is nearest first.
pub(crate) fn findings(view: &View<'_>, incidents: &[Incident]) -> Vec<Finding> {
    // What has come to its limit already is no longer ahead, as long as it lasts. What was there once may come again.
    let is_told = |filling: &Filling<'_>| {
        let names = |incident: &&Incident| {
            let roots = std::iter::once(&incident.root_cause).chain(&incident.other_roots);
            let links = incident.chain.iter().map(|link| &link.condition);
            roots.map(|root| &root.condition).chain(links).any(|known| known == filling.becomes)
        };
        incidents
            .iter()
            .filter(names)
            .any(|incident| incident.end.is_none_or(|end| end.0 >= view.window.until))
    };
    let all = everything(view).into_iter().filter(|filling| !is_told(filling));
    let mut found: Vec<(f64, Finding)> = all
        .filter_map(|filling| {
            let climb = Climb::of(&filling)?;
            Some((climb.soonest_s, climb.told(view, filling)))
        })
        .collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.into_iter().map(|(_, finding)| finding).collect()
}

fn everything<'a>(view: &View<'a>) -> Vec<Filling<'a>> {
    let mut all: Vec<Filling<'a>> = memory(view).into_iter().collect();
    all.extend(groups(view));
    all.extend(filesystems(view));
    all.extend(descriptors(view));
    all.extend(pairs(view, "files.nr", "files.max").map(|(row, used, limit)| Filling {
        becomes: "fd-exhaustion",
        what: "the number of open files of the machine".to_owned(),
        used,
        limit,
        is_bytes: false,
        culprit: Culprit::default(),
        proof: (&["files.nr", "files.max"], row),
    }));
    all.extend(pairs(view, "netns.conntrack_count", "netns.conntrack_max").map(|(row, used, limit)| {
        Filling {
            becomes: "conntrack-full",
            what: "the number of tracked connections".to_owned(),
            used,
            limit,
            is_bytes: false,
            culprit: Culprit::default(),
            proof: (&["netns.conntrack_count", "netns.conntrack_max"], row),
        }
    }));
    all.extend(pairs(view, "cgroup.pids_current", "cgroup.pids_max").map(|(group, used, limit)| Filling {
        becomes: "thread-explosion",
        what: format!("the number of tasks of {}", of_group(view, group)),
        used,
        limit,
        is_bytes: false,
        culprit: Culprit { cgroup: Some(group.to_owned()), ..Culprit::default() },
        proof: (&["cgroup.pids_current", "cgroup.pids_max"], group),
    }));
    all
}

/// The rows of two metrics, what is used and what there is, with the last limit.
fn pairs<'a>(
    view: &View<'a>,
    used: &'static str,
    limit: &'static str,
) -> impl Iterator<Item = (&'a str, Signal, f64)> {
    let (set, window) = (view.set, view.window);
    view.each(used).filter_map(move |(row, series)| {
        let limit = set.get(limit, row)?.last(window).filter(|limit| *limit > 0.0)?;
        Some((row, Signal::of(series, window), limit))
    })
}

/// Memory and swap of the machine.
fn memory<'a>(view: &View<'a>) -> Option<Filling<'a>> {
    let total = view.set.get("mem.total", "")?.last(view.window)?;
    let swap = view.set.get("mem.swap_total", "").and_then(|s| s.last(view.window)).unwrap_or(0.0);
    let available = view.system("mem.available")?;
    let left = match view.system("mem.swap_free") {
        Some(free) => available.zip(&free, |a, b| a + b),
        None => available,
    };
    Some(Filling {
        becomes: "oom-kill",
        what: if swap > 0.0 { "memory and swap of the machine" } else { "memory of the machine" }.to_owned(),
        used: left.map(|left| total + swap - left),
        limit: total + swap,
        is_bytes: true,
        culprit: Culprit::default(),
        proof: (&["mem.available", "mem.swap_free"], ""),
    })
}

/// What a cgroup cannot give back without swapping, page cache apart.
fn groups<'a>(view: &View<'a>) -> impl Iterator<Item = Filling<'a>> {
    let (set, window) = (view.set, view.window);
    pairs(view, "cgroup.anon", "cgroup.memory_max").filter(|(group, ..)| *group != "/").map(
        move |(group, anon, limit)| {
            let shmem = set.get("cgroup.shmem", group).map(|s| Signal::of(s, window));
            Filling {
                becomes: "oom-kill",
                what: format!("memory of {}", of_group(view, group)),
                used: shmem.map_or_else(|| anon.clone(), |shmem| anon.zip(&shmem, |a, b| a + b)),
                limit,
                is_bytes: true,
                culprit: Culprit { cgroup: Some(group.to_owned()), ..Culprit::default() },
                proof: (&["cgroup.anon", "cgroup.shmem", "cgroup.memory_max"], group),
            }
        },
    )
}

fn of_group(view: &View<'_>, group: &str) -> String {
    view.cgroup_name(group).unwrap_or_else(|| format!("the cgroup {group}"))
}

fn filesystems<'a>(view: &View<'a>) -> Vec<Filling<'a>> {
    let mut all = Vec::new();
    for (room, becomes, what) in
        [(Room::Bytes, "filesystem-full", "space"), (Room::Inodes, "inode-exhaustion", "inodes")]
    {
        let metrics = room.metrics();
        for (mount, series) in view.each(metrics[1]) {
            let total = view.set.get(metrics[0], mount).and_then(|s| s.last(view.window));
            let Some(total) = total.filter(|total| *total > 0.0) else { continue };
            all.push(Filling {
                becomes,
                what: format!("{what} of {mount}"),
                used: Signal::of(series, view.window).map(|left| (total - left).max(0.0)),
                limit: total,
                is_bytes: room == Room::Bytes,
                culprit: Culprit { path: Some(mount.to_owned()), ..Culprit::default() },
                proof: (metrics, mount),
            });
        }
    }
    all
}

fn descriptors<'a>(view: &View<'a>) -> Vec<Filling<'a>> {
    let of = |process: &Process<'a>| {
        let row = process.rows.first().copied()?;
        let limit = view.set.get("task.fd_limit", row)?.last(view.window).filter(|limit| *limit > 0.0)?;
        Some(Filling {
            becomes: "fd-exhaustion",
            what: format!("descriptors of {} ({})", process.comm, process.pid),
            used: Signal::of(view.set.get("task.fds", row)?, view.window),
            limit,
            is_bytes: false,
            culprit: culprit_of(process),
            proof: (&["task.fds", "task.fd_limit"], row),
        })
    };
    view.processes().iter().filter(|process| !process.kthread).filter_map(of).collect()
}

fn culprit_of(process: &Process<'_>) -> Culprit {
    Culprit {
        process: Some(process.comm.to_owned()),
        pid: Some(process.pid),
        cgroup: process.cgroup.filter(|group| *group != "/").map(str::to_owned),
        ..Culprit::default()
    }
}

/// Half a minute: a burst of work is over by then, and each third still has ten samples.
const LEAST_S: f64 = 30.0;
/// The thirds of a line agree within a factor of two; a start slows down, a runaway speeds up.
const STEADY: f64 = 2.0;
/// An hour tells of a day, and no more.
const HORIZON: f64 = 24.0;

/// A climb towards a limit.
struct Climb {
    from: f64,
    to: f64,
    per_s: f64,
    span: Span,
    soonest_s: f64,
    latest_s: f64,
}

impl Climb {
    fn of(filling: &Filling<'_>) -> Option<Climb> {
        let grown = growth::until_top(&filling.used)?;
        let span = Span { since: grown.run.onset, until: grown.run.end.saturating_add(1) };
        let climb = filling.used.within(span);
        let (first, last) = (*climb.t.first()?, *climb.t.last()?);
        let seconds = words::between(first, last);
        if !grown.run.lasts || seconds < LEAST_S {
            return None;
        }
        let third = (last - first) / 3;
        let paces: Vec<f64> = (0..3)
            .map(|i| Span { since: first + i * third, until: first + (i + 1) * third + 1 })
            .map_while(|span| line(&climb.within(span)).map(|(per_s, _)| per_s))
            .collect();
        let least = paces.iter().copied().fold(f64::INFINITY, f64::min);
        let most = paces.iter().copied().fold(0.0, f64::max);
        let (per_s, to) = line(&climb)?;
        let left = filling.limit - to;
        let is_line = paces.len() == 3 && least > 0.0 && most <= STEADY * least && left > 0.0;
        let climb =
            Climb { from: grown.from, to, per_s, span, soonest_s: left / most, latest_s: left / least };
        (is_line && climb.latest_s <= HORIZON * seconds).then_some(climb)
    }

    fn told(&self, view: &View<'_>, mut filling: Filling<'_>) -> Finding {
        let size = |value: f64| if filling.is_bytes { words::bytes(value) } else { words::count(value) };
        let mut statement = format!(
            "{} reaches its limit of {} in {} at this pace: {} more a second, {} now",
            filling.what,
            size(filling.limit),
            range(self.soonest_s, self.latest_s),
            size(self.per_s),
            size(self.to),
        );
        let is_of_group = filling.culprit.cgroup.is_some();
        if let Some(taker) = taker(view, &filling, self) {
            statement.push_str(&format!("; {} takes it", taker.words()));
            filling.culprit = culprit_of(&taker.lead);
        }
        let grew = format!(
            "it grew from {} to {} in {} and did not slow down",
            size(self.from),
            size(self.to),
            words::seconds(words::between(self.span.since, self.span.until))
        );
        let (metrics, row) = filling.proof;
        let evidence: Vec<Evidence> =
            metrics.iter().filter_map(|metric| view.evidence(metric, row, self.span)).collect();
        let condition = conditions().iter().find(|condition| condition.id == filling.becomes);
        // Who takes the machine's memory may run in a group whose limit has nothing to do with it.
        let cgroup = filling.culprit.cgroup.clone().filter(|_| is_of_group);
        let culprit = Culprit { cgroup, ..filling.culprit.clone() };
        let finding = crate::condition::Finding { culprit, ..Default::default() };
        let remedies = |condition: &Condition| condition.remedies(&finding);
        Finding {
            condition: filling.becomes.to_owned(),
            culprit: view.named(filling.culprit.known()),
            statement,
            remarks: vec![grew],
            evidence,
            remedies: condition.map(remedies).unwrap_or_default(),
            limit_in_seconds: Some([self.soonest_s.round(), self.latest_s.round()]),
        }
    }
}

/// The line of least squares: its slope in units a second, and where it ends.
fn line(signal: &Signal) -> Option<(f64, f64)> {
    let n = signal.t.len();
    let first = *signal.t.first()?;
    if n < 4 {
        return None;
    }
    let at = |i: usize| words::between(first, signal.t[i]);
    let mean_t = (0..n).map(at).sum::<f64>() / n as f64;
    let mean_v = signal.v.iter().sum::<f64>() / n as f64;
    let (mut both, mut square) = (0.0, 0.0);
    for (i, v) in signal.v.iter().enumerate() {
        both += (at(i) - mean_t) * (v - mean_v);
        square += (at(i) - mean_t).powi(2);
    }
    let slope = both / square;
    (square > 0.0).then(|| (slope, mean_v + slope * (at(n - 1) - mean_t)))
}

/// Who took most of it, of memory.
fn taker<'a>(view: &View<'a>, filling: &Filling<'_>, climb: &Climb) -> Option<Top<'a>> {
    if filling.becomes != "oom-kill" {
        return None;
    }
    let group = filling.culprit.cgroup.as_deref();
    let is_inside =
        |process: &&Process<'a>| group.is_none_or(|group| process::is_inside(process.cgroup, group));
    let inside: Vec<Process<'a>> = view.processes().iter().filter(is_inside).cloned().collect();
    let top = growth::takers(view, &inside, climb.span).into_iter().next()?;
    (top.total >= mitra_model::growth::MOST * (climb.to - climb.from)).then_some(top)
}

/// The last minutes of a window, which are looked at with their tasks: as much as a part of an episode.
pub(crate) fn last_minutes(window: Span) -> Span {
    Span { since: window.since.max(window.until.saturating_sub(FOCUS_NS)), until: window.until }
}

/// Adds findings of another look, but for what is known.
pub(crate) fn add(all: &mut Vec<Finding>, more: Vec<Finding>) {
    let proof = |finding: &Finding| finding.evidence.first().map(|e| (e.metric.clone(), e.entity.clone()));
    for finding in more {
        if !all.iter().any(|known| known.condition == finding.condition && proof(known) == proof(&finding)) {
            all.push(finding);
        }
    }
}

fn range(soonest_s: f64, latest_s: f64) -> String {
    let (soonest, latest) = (words::seconds(soonest_s), words::seconds(latest_s));
    if soonest == latest { soonest } else { format!("{soonest} to {latest}") }
}

#[cfg(test)]
mod tests {
    use mitra_model::time::SECOND;

    use super::*;

    /// A size by the second, against a limit of 1000.
    fn climb(sizes: impl Iterator<Item = f64>) -> Option<Climb> {
        let v: Vec<f64> = sizes.collect();
        let used =
            Signal { t: (1..=v.len() as i64).map(|i| i * SECOND).collect(), dt: vec![1.0; v.len()], v };
        Climb::of(&Filling {
            becomes: "oom-kill",
            what: "memory".to_owned(),
            used,
            limit: 1000.0,
            is_bytes: true,
            culprit: Culprit::default(),
            proof: (&[], ""),
        })
    }

    type Size = fn(f64) -> f64;

    fn seconds(n: i32) -> impl Iterator<Item = f64> {
        (0..n).map(f64::from)
    }

    #[test]
    fn a_line_has_a_time() {
        let line = climb(seconds(60).map(|t| 100.0 + 3.0 * t)).unwrap();
        assert!((line.per_s - 3.0).abs() < 0.01, "{}", line.per_s);
        // 277 at the end: 723 more at 3 a second.
        assert!((line.soonest_s - 241.0).abs() < 4.0 && (line.latest_s - 241.0).abs() < 4.0);
    }

    #[test]
    fn it_counts_from_where_the_climb_began() {
        let late = climb(seconds(300).map(|t| if t < 240.0 { 100.0 } else { 100.0 + 3.0 * (t - 240.0) }));
        assert!(late.is_some_and(|late| (late.per_s - 3.0).abs() < 0.2));
    }

    #[test]
    fn of_garbage_that_is_collected_the_trend_counts() {
        let saw = climb(seconds(120).map(|t| 100.0 + 4.0 * t + 5.0 * (t % 6.0))).unwrap();
        assert!(saw.soonest_s < saw.latest_s && (saw.per_s - 4.0).abs() < 0.2, "{}", saw.per_s);
    }

    #[test]
    fn what_is_no_line_has_none() {
        let silent: [(&str, Size); 8] = [
            ("stands", |_| 300.0),
            ("falls", |t| 900.0 - t),
            ("a start that levels off", |t| 900.0 * (1.0 - (-t / 12.0).exp())),
            ("stood still before the end", |t| 100.0 + 5.0 * t.min(60.0)),
            ("was given back", |t| if t < 80.0 { 100.0 + 5.0 * t } else { 100.0 }),
            ("a step", |t| if t < 50.0 { 100.0 } else { 800.0 }),
            ("an hour of which says nothing of a week", |t| 100.0 + 0.01 * t),
            ("runs away", |t| 10.0 * (t / 20.0).exp()),
        ];
        for (what, size) in silent {
            assert!(climb(seconds(90).map(size)).is_none(), "{what}");
        }
        assert!(climb(seconds(20).map(|t| 10.0 * t)).is_none(), "a burst");
    }
}
