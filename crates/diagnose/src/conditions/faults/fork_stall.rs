//! A process with much memory forks, and stands still while the kernel copies its page tables.
//!
//! Ten milliseconds for each gigabyte in small pages, during which none of its threads may fault; afterwards each page that it
//! writes to is copied. Redis and other databases that fork for their snapshots know it as latency that comes at regular hours; a service
//! that forks for each request to start a small program, as latency all the time.

use crate::captured;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "fork-stall",
    title: "a large process stalls while it forks",
    area: "faults and locks",
    needs: &[
        "call.time_max",
        "call.calls",
        "task.rss_anon",
        "task.ppid",
        "task.minflt",
        "task.system_time",
        "vm.pgfault",
        "sys.forks",
        "task.tgid",
    ],
    observe,
    causes: &[
        effect("mmap-lock-contention", "page tables are copied under the lock"),
        explains("minor-fault-storm", "each page that is written to after the fork is copied by a fault"),
        explains("single-thread-bottleneck", "the thread is busy with copying pages"),
        within("service-slow", "the forking process answers nothing while its page tables are copied"),
        within(
            "query-regression",
            "the CPU time goes into page tables that are copied, and into the faults after it",
        ),
        within("scheduled-burst", "the work of the copies comes as often as it forks"),
    ],
    remedies: &[Advice {
        action: "give the process huge pages (fewer page tables to copy), or fork from a small helper",
        command: "redis: latency monitor; echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        verify: "strace -T -e trace=clone -p PID: each fork below a tenth of a second",
        risk: "huge pages are copied whole when they are written to after the fork",
    }],
    next: &[measure("how much memory the process has", "grep -E 'VmRSS|VmPTE' /proc/PID/status")],
    source: include_str!("fork_stall.rs"),
    ..Condition::ROOT
};

/// A tenth of a second.
const LONG_S: f64 = 0.1;

fn observe(view: &View<'_>) -> Observation {
    const CALLS: &[&str] = &["clone", "clone3", "fork", "vfork"];
    let is_fork = |row: &str| CALLS.contains(&row.rsplit('/').next().unwrap_or(row));
    let mut longest: Option<(&str, f64)> = None;
    let mut any = false;
    for (row, series) in view.each("call.time_max").filter(|(row, _)| is_fork(row)) {
        any = true;
        if let Some(time) = series.max(view.window).filter(|t| longest.is_none_or(|(_, most)| *t > most)) {
            longest = Some((row, time));
        }
    }
    if !any && !view.is_case {
        return live(view);
    }
    let Some((row, seconds)) = longest.filter(|(_, seconds)| *seconds >= LONG_S) else {
        return if any {
            Observation::Inactive(format!(
                "a fork took {} at most",
                words::seconds(longest.map_or(0.0, |l| l.1))
            ))
        } else {
            Observation::cannot_tell("how long forks take: strace -f -T -e trace=clone,fork,clone3 -p PID")
        };
    };
    let at = view.set.get("call.time_max", row).and_then(|s| s.axis.t.first().copied());
    let mut finding = view.finding_at(at.unwrap_or(mitra_model::Era::Fact.zero()));
    finding.culprit.process = row.split_once('/').map(|(program, _)| program.to_owned());
    finding.statement = format!("a fork took {}", words::seconds(seconds));
    finding.evidence.extend(view.reading_evidence("call.time_max", row));
    finding.confidence = 0.8;
    finding.active()
}

/// A quarter of a gigabyte: below, the copy takes two milliseconds.
const LARGE: f64 = 256e6;
/// A child that shares half of its parent's pages was forked and has not called exec.
const SHARED: f64 = 0.5;
/// Twenty megabytes a second are copied page by page.
const COPIES_S: f64 = 5_000.0;
/// A mean of fewer says little; a child that lives for two seconds is seen in as many.
const LEAST_SAMPLES: usize = 2;
/// As many times more than without a child.
const MORE: f64 = 3.0;

/// In a recording: a child appears that shares the pages of its large parent, and from then on the parent faults at what it
/// writes to.
fn live(view: &View<'_>) -> Observation {
    let page = view.page_bytes();
    let begin = view.set.span().map_or(i64::MIN, |s| s.since) + 2 * SECOND;
    let mut because = "no large process forked".to_owned();
    let mut best: Option<(f64, Finding)> = None;
    for parent in view.processes().iter().filter(|p| !p.kthread) {
        let held =
            parent.series(view.set, "task.rss_anon").filter_map(|s| s.max(view.window)).fold(0.0, f64::max);
        if held * page < LARGE {
            continue;
        }
        let name = format!("{} ({})", parent.comm, parent.pid);
        if let Some((share, finding)) = often(view, parent, held * page) {
            // As if it copied as much afterwards.
            let copies = share / OFTEN * COPIES_S;
            if best.as_ref().is_none_or(|(b, _)| copies > *b) {
                best = Some((copies, finding));
            }
            continue;
        }
        let lived = children(view, parent, held, begin);
        let Some(first) = lived.iter().map(|s| s.since).min() else { continue };
        let Some(faults) = parent.signal(view.set, "task.minflt", Span::ALL) else { continue };
        let with = |t: i64| lived.iter().any(|s| s.since <= t && t <= s.until);
        let mean = |is_meant: &dyn Fn(i64) -> bool| {
            let v: Vec<f64> =
                faults.t.iter().zip(&faults.v).filter(|(t, _)| is_meant(**t)).map(|(_, v)| *v).collect();
            (v.len() >= LEAST_SAMPLES).then(|| v.iter().sum::<f64>() / v.len() as f64)
        };
        let Some(during) = mean(&with) else { continue };
        // After the child has ended each page that it shared costs the parent one more fault, though no copy.
        let without = mean(&|t| t <= first).or_else(|| mean(&|t| !with(t))).unwrap_or(0.0);
        if during < COPIES_S || during < MORE * without {
            because = format!("{name} forked and copied {} pages/s afterwards", words::count(during));
            continue;
        }
        let mut finding = view.finding_at(first);
        let last = lived.iter().map(|s| s.until).max().unwrap_or(first);
        finding.end = (last + 10 * SECOND < view.window.until).then_some(last);
        finding.seen = Some(view.window);
        finding.blame(parent);
        finding.statement = format!(
            "{name} forked {} with {} in memory, {} of page tables to copy each time, and then copied {} pages/s that it wrote to \
             ({} without a child)",
            if lived.len() == 1 { "once".to_owned() } else { format!("{} times", lived.len()) },
            words::bytes(held * page),
            words::seconds(held * page * COPY_S_PER_BYTE),
            words::count(during),
            words::count(without)
        );
        let span = Span { since: first, until: last.saturating_add(1) };
        finding.evidence.push(view.task_evidence("task.minflt", parent, Some(without), during, span));
        let system = |span| parent.total(view.set, "task.system_time", span) / span.seconds().max(1e-9);
        let before = view.baseline.map(&system);
        finding.evidence.push(view.task_evidence("task.system_time", parent, before, system(span), span));
        finding.confidence = 0.75;
        for captured in captured::of_process(view, &["fork"], parent.pid, parent.comm) {
            let mean = captured.row.amount / captured.row.count.max(1.0);
            finding.statement = format!("{}; a fork took {}", finding.statement, words::seconds(mean));
            finding.evidence.push(view.event_evidence(
                "event.capture",
                parent.comm,
                mean,
                "s",
                captured.event,
            ));
            finding.confidence = 0.95;
        }
        if best.as_ref().is_none_or(|(b, _)| during > *b) {
            best = Some((during, finding));
        }
    }
    match best {
        Some((_, finding)) => finding.active(),
        None => Observation::Inactive(because),
    }
}

/// Ten milliseconds for a gigabyte in small pages.
const COPY_S_PER_BYTE: f64 = 0.01 / 1e9;
/// A tenth of the time: whoever comes at any moment waits for it one time in ten.
const OFTEN: f64 = 0.1;
/// Half of what is estimated has to be there.
const COPIES: f64 = 0.5;
/// Of a few forks seen nothing is counted.
const LEAST_FORKS: usize = 3;

/// A parent that forks again and again, for children that are gone by the next sample: which share of the time its page tables are
/// copied. How often the machine forks is counted, and whose children these are is seen of those that live at a sample.
fn often(view: &View<'_>, parent: &Process<'_>, held: f64) -> Option<(f64, Finding)> {
    let copy_s = held * COPY_S_PER_BYTE;
    let (forks, before) = (view.system("sys.forks")?, view.before("sys.forks", "").unwrap_or(0.0));
    let threshold = (OFTEN / copy_s).max(MORE * before);
    let high = view.high_signal(&forks, threshold, 3.0, Some(before))?;
    let span = high.run.span();
    let is_new =
        |p: &&Process<'_>| p.first_seen(view.set).is_some_and(|t| span.contains(t)) && p.pid != parent.pid;
    let new: Vec<&Process<'_>> = view.processes().iter().filter(is_new).collect();
    // What has the name of its parent has not called exec yet.
    let is_own = |p: &&&Process<'_>| p.ppid == Some(parent.pid);
    let is_copy = |p: &&&Process<'_>| is_own(p) && p.comm == parent.comm;
    let own = new.iter().filter(is_own).count();
    if new.iter().filter(is_copy).count() < LEAST_FORKS {
        return None;
    }
    let rate = high.during * own as f64 / new.len() as f64;
    let share = rate * copy_s;
    if share < OFTEN {
        return None;
    }
    // To copy page tables is system time of the parent.
    let system =
        |set: &SeriesSet, span: Span| parent.total(set, "task.system_time", span) / span.seconds().max(1e-9);
    let before_s = view.baseline.map(|baseline| system(view.base_set, baseline));
    let system_s = system(view.set, span);
    if system_s - before_s.unwrap_or(0.0) < COPIES * share {
        return None;
    }
    let mut finding = view.finding(&high.run);
    finding.blame(parent);
    finding.statement = format!(
        "{} ({}) forks some {} times a second with {} in memory: {} of page tables to copy each time, about {} of the time, in which none of its \
         threads may fault",
        parent.comm,
        parent.pid,
        words::count(rate),
        words::bytes(held),
        words::seconds(copy_s),
        words::percent(share.min(1.0))
    );
    finding.remarks.push(format!(
        "{own} of the {} processes that came and were seen are its children: its part of the forks, and how long a copy takes, are estimated",
        new.len()
    ));
    finding.prove(view, &["sys.forks"], "", span);
    finding.evidence.push(view.task_evidence("task.system_time", parent, before_s, system_s, span));
    finding.confidence = 0.8;
    Some((share, finding))
}

/// When children lived that share their parent's pages.
fn children(view: &View<'_>, parent: &Process<'_>, held: f64, begin: i64) -> Vec<Span> {
    let forked = view.processes().iter().filter(|p| p.ppid == Some(parent.pid)).filter_map(|child| {
        let series = view.set.get("task.rss_anon", child.rows.first()?)?;
        let samples: Vec<(i64, f64)> = series.samples(Span::ALL).map(|(t, _, v)| (t, v)).collect();
        let (born, first) = *samples.first()?;
        let last = samples.last()?.0;
        (born > begin && first >= SHARED * held && view.window.contains(born))
            .then(|| Span { since: born - SECOND, until: last + SECOND })
    });
    forked.collect()
}
