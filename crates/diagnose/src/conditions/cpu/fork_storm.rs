//! Processes are started and end so fast that starting them is most of the work.
//!
//! Each lives for milliseconds, so tools that look once a second see none of them: their CPU time belongs to nobody.
//! An ordinary build shows the same gap with few forks, so the rate decides: the parent that starts them is the
//! culprit.

use std::collections::BTreeMap;

use crate::captured;
use crate::deaths;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "fork-storm",
    title: "processes are forked and exit all the time",
    area: "cpu",
    needs: &[
        "sys.cpu_idle",
        "sys.forks",
        "exited.count",
        "exited.lifetime",
        "exited.cpu_time",
        "exited.run_delay",
        "tasks.exited",
        "tasks.total",
        "tasks.exited_cpu_time",
        "tasks.run_delay",
        "sys.cpu_system",
        "vm.pgfault",
        "task.ppid",
    ],
    triggers: &[Trigger::Signals(Signals {
        metrics: &["sys.forks", "tasks.exited", "tasks.total"],
        find: are_many,
        need_s: 2.0,
        can_be_steady: true,
    })],
    observe,
    causes: &[
        explains("minor-fault-storm", "each new process touches its pages for the first time"),
        effect("cpu-saturated", "fork, exec and exit cost CPU"),
        effect("runqueue-wait", "each new process wants a CPU at once"),
        explains("runqueue-saturation", "the tasks in the queue are the ones that are started all the time"),
        explains("cpu-hog", "the CPU goes into starting processes"),
        explains("single-thread-bottleneck", "the thread is busy with starting processes"),
    ],
    remedies: &[Advice {
        action: "stop the loop in {process:the parent}, or do the work in one process instead of starting a program per item",
        command: "kill -STOP {pid}   (kill -CONT {pid} to resume)",
        verify: "sar -w 1: proc/s falls",
        risk: "the work of the loop stops",
    }],
    next: &[measure("which script or service it is", "tr '\\0' ' ' < /proc/{pid}/cmdline; pstree -sp {pid}")],
    suspicions: &[Suspicion {
        rank: 60,
        name: "fork-rate",
        when: "sys.forks > 300/s for 3s",
        arm: &["fork"],
        why: "A fork with its exit costs a third to a whole millisecond: 300 each second are a tenth to a third of a CPU. \
              A package upgrade reaches 115 on two CPUs.",
        ..Suspicion::NONE
    }],
    source: include_str!("fork_storm.rs"),
    ..Condition::ROOT
};

/// To fork, exec and exit the smallest program costs 0.5 to 1 ms of CPU, so from here on a fifth of a CPU does nothing
/// else. Package upgrades and builds stay below half of it.
const FORKS_S: f64 = 250.0;
/// On a machine with many CPUs it takes more to be a storm: an eighth of all CPUs.
const FORKS_PER_CPU_S: f64 = 125.0;
/// A process that lives for a tenth of a second does something; the storm's do not.
const SHORT_S: f64 = 0.1;

/// Ten times what the start and the end of the smallest program cost: who uses more is there for something else.
const SHORT_CPU_S: f64 = 0.01;
/// Of their lives, in which they wait for a CPU: the rest is spent in waiting for those that they have started.
const HELD_UP: f64 = 0.25;

/// Subshells that start others come and go faster than they find room in the table of parents. Whoever started nearly all of those that
/// did, a quarter of all or more, started the others as well: they came from the same storm.
const KNOWN: f64 = 0.25;
const MOST_OF_KNOWN: f64 = 0.8;
/// Times as many as before.
const MORE: f64 = 3.0;

/// A thread shares its memory and its files with the others: to make and to end one costs 28 µs (`pthread_create`, Linux
/// 6.18), a twentieth of the 550 µs of `vfork`, `exec` and the end of the smallest program.
const THREADS: f64 = 20.0;

/// A fork, exec and exit costs about a millisecond: from here on a twentieth of each of two CPUs goes into them.
const MANY: f64 = 100.0;

/// Of the machine: one where many processes are started.
fn are_many(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let floor = MANY * (f64::from(set.host.cpus) / 2.0).max(1.0);
    started(set, window).map(|started| started.map(|started| step(started >= floor))).into_iter().collect()
}

fn system(set: &SeriesSet, metric: &str, window: Span) -> Option<Signal> {
    set.system(metric).map(|series| Signal::of(series, window))
}

/// What was started, in processes a second, a thread taken for a part of one.
fn started(set: &SeriesSet, window: Span) -> Option<Signal> {
    let forks = system(set, "sys.forks", window)?;
    Some(match processes(set, window) {
        Some(processes) => forks.zip(&processes, |all, some| some.min(all) + (all - some).max(0.0) / THREADS),
        None => forks,
    })
}

/// Processes that were started each second: those that ended, and those that came to stay. The kernel counts threads with
/// them; they are known apart where ends are seen.
fn processes(set: &SeriesSet, window: Span) -> Option<Signal> {
    let ended = system(set, "tasks.exited", window)?;
    Some(match came_to_stay(set, window) {
        Some(came) => ended.zip(&came, |ended, came| ended + came),
        None => ended,
    })
}

/// How many more tasks there are each second than before: what was started and has not ended.
fn came_to_stay(set: &SeriesSet, window: Span) -> Option<Signal> {
    let mut tasks = system(set, "tasks.total", window)?;
    for i in (1..tasks.v.len()).rev() {
        tasks.v[i] = ((tasks.v[i] - tasks.v[i - 1]) / tasks.dt[i].max(1e-9)).max(0.0);
    }
    tasks.v.first_mut().into_iter().for_each(|first| *first = 0.0);
    Some(tasks)
}

fn observe(view: &View<'_>) -> Observation {
    let Some(started) = started(view.set, view.window) else {
        return Observation::needs(&["sys.forks"]);
    };
    let counted = if view.system("tasks.exited").is_some() { "tasks.exited" } else { "sys.forks" };
    let threshold =
        view.threshold(FORKS_S.max(FORKS_PER_CPU_S * view.cpus()), &view.base_values(counted, ""));
    let Some(mut high) = view.high_signal(&started, threshold, 3.0, None) else {
        return Observation::Inactive(format!(
            "{} forks/s at most, {THREADS} threads taken for one",
            words::count(started.max().unwrap_or(0.0))
        ));
    };
    let span = high.run.span();
    let mut finding = view.finding(&high.run);
    finding.prove(
        view,
        &["sys.forks", "tasks.exited", "tasks.exited_cpu_time", "sys.cpu_system", "vm.pgfault"],
        "",
        span,
    );
    finding.loss_s = view.excess(&["tasks.run_delay"], span);
    let mean = |signal: Option<Signal>| signal.and_then(|s| s.within(span).mean());
    let all = mean(view.system("sys.forks")).unwrap_or(high.during);
    let processes = mean(processes(view.set, view.window)).unwrap_or(all).min(all);
    if all - processes > THREADS * processes {
        finding.confidence = 0.6;
        finding.statement = format!(
            "{} threads a second were created and exited, and {} processes; `mitra capture fork` shows which program \
             starts them",
            words::count(all - processes),
            words::count(processes)
        );
        captured::name_program(view, &mut finding);
        return finding.active();
    }
    (high.during, high.before) = (processes, view.before_span(counted, "", span));
    let ended = mean(view.system("tasks.exited")).unwrap_or(processes);
    if ended < 0.5 * processes {
        finding.confidence = 0.6;
        let by = name_spawner(view, &mut finding, span);
        finding.statement = format!(
            "{} processes a second were started ({} before), and most of them are there still{by}",
            words::count(processes),
            words::count(high.before.unwrap_or(0.0))
        );
        return finding.active();
    }
    let parents = parents(view, span);
    // What is left of all is of parents and names that found no room.
    let nameless = 1.0 - parents.iter().map(|p| p.share).sum::<f64>();
    let known = 1.0 - nameless;
    // Who forks all the time forks beside a storm as well.
    let came = |top: &Parent| top.ended_s >= MORE * ended_before(view, &top.parent);
    let is_known = |top: &&Parent| {
        top.share > nameless || known >= KNOWN && top.share >= MOST_OF_KNOWN * known && came(top)
    };
    let Some(top) = parents.first().filter(is_known) else {
        let why = if parents.is_empty() {
            "which program starts them is unknown without the exit probe"
        } else {
            "no single program starts most of them"
        };
        finding.confidence = 0.6;
        finding.statement = format!(
            "{} processes a second were started ({} before); {why}",
            words::count(high.during),
            words::count(high.before.unwrap_or(0.0))
        );
        captured::name_program(view, &mut finding);
        return finding.active();
    };
    // Where they are in each other's way they live for as long as they wait for a CPU.
    let are_held_up =
        top.waited_s >= HELD_UP * top.lifetime_s && top.cpu_s.is_some_and(|cpu_s| cpu_s < SHORT_CPU_S);
    if top.lifetime_s >= SHORT_S && !are_held_up {
        return Observation::Inactive(format!(
            "the processes that ended had lived for {} each{}",
            words::seconds(top.lifetime_s),
            top.cpu_s.map(|cpu_s| format!(" and used {} of CPU", words::seconds(cpu_s))).unwrap_or_default()
        ));
    }
    finding.culprit.process = Some(top.parent.clone());
    finding.culprit.pid = top.pid;
    finding.culprit.cgroup = top
        .pid
        .and_then(|pid| view.processes().iter().find(|p| p.pid == pid))
        .and_then(|p| p.cgroup)
        .filter(|c| *c != "/")
        .map(str::to_owned);
    let by = match top.pid {
        Some(pid) if top.lead_share >= 0.5 => format!("{} ({pid})", top.parent),
        Some(pid) => format!("{} processes named {}, {pid} most of all,", top.pids, top.parent),
        None => top.parent.clone(),
    };
    finding.statement = format!(
        "{} processes a second were started ({} before); {by} started {} of those that ended, mostly {}, which lived for {} each{}",
        words::count(high.during),
        words::count(high.before.unwrap_or(0.0)),
        words::percent(top.share),
        top.child,
        words::seconds(top.lifetime_s),
        top.cpu_s
            .filter(|_| top.lifetime_s >= SHORT_S)
            .map(|cpu_s| format!(" for {} of CPU", words::seconds(cpu_s)))
            .unwrap_or_default()
    );
    finding.confidence = 0.5 + 0.5 * top.share;
    finding.is_harmless = leaves_room(view, &finding, span);
    captured::name_program(view, &mut finding);
    finding.active()
}

/// A CPU that idles is there for whoever wants one.
const IDLE: f64 = 1.0;
/// Of a task's time, and in all: what the short processes wait for each other.
const FELT: f64 = 0.25;

/// Whether a CPU was free on average, and tasks hardly waited longer for one than before.
fn leaves_room(view: &View<'_>, finding: &Finding, span: Span) -> bool {
    let idle = view.system("sys.cpu_idle").and_then(|idle| idle.within(span).mean());
    let lost = finding.loss_s.map(|lost| lost / span.seconds().max(1.0));
    idle.is_some_and(|idle| idle >= IDLE) && lost.is_some_and(|lost| lost < FELT)
}

/// Names the parent of most of the processes that came in a span, and says so.
fn name_spawner(view: &View<'_>, finding: &mut Finding, span: Span) -> String {
    let is_new = |row: &&str| {
        let series = view.set.get("task.ppid", row);
        series.and_then(|s| s.axis.t.get(s.start)).is_some_and(|first| span.contains(*first))
    };
    let mut children: BTreeMap<u32, usize> = BTreeMap::new();
    let new = view.processes().iter().filter(|p| p.rows.first().is_some_and(is_new));
    new.filter_map(|p| p.ppid).for_each(|parent| *children.entry(parent).or_default() += 1);
    let all: usize = children.values().sum();
    let most = children.into_iter().max_by_key(|(_, n)| *n).filter(|(_, n)| 2 * n > all);
    let Some(parent) = most.and_then(|(pid, _)| view.processes().iter().find(|p| p.pid == pid)) else {
        return String::new();
    };
    finding.blame(parent);
    finding.confidence = 0.8;
    format!("; {} ({}) started most of them", parent.comm, parent.pid)
}

/// Processes of one name that start others.
struct Parent {
    parent: String,
    /// The one that started most.
    pid: Option<u32>,
    /// Its share of what those of its name started.
    lead_share: f64,
    pids: usize,
    child: String,
    share: f64,
    /// What it started and ended, in a second.
    ended_s: f64,
    lifetime_s: f64,
    /// What each used of a CPU, where that is known.
    cpu_s: Option<f64>,
    /// What each waited for one.
    waited_s: f64,
}

/// Processes a second that were started by one of this name and ended before.
fn ended_before(view: &View<'_>, parent: &str) -> f64 {
    let Some(baseline) = view.baseline else { return 0.0 };
    let is_its = |row: &str| {
        view.base_set.text("exited.parent_comm", row).and_then(|text| text.last()) == Some(parent)
    };
    let all = view.base_set.each("exited.count").filter(|(row, _)| is_its(row));
    all.filter_map(|(_, series)| series.mean(baseline)).fold(0.0, |a, b| a + b)
}

fn parents(view: &View<'_>, span: Span) -> Vec<Parent> {
    #[derive(Default)]
    struct Sum<'a> {
        count: f64,
        lifetime_s: f64,
        cpu_s: Option<f64>,
        waited_s: f64,
        by_pid: BTreeMap<u32, f64>,
        by_child: BTreeMap<&'a str, f64>,
    }
    let mut sums: BTreeMap<&str, Sum<'_>> = BTreeMap::new();
    let mut all = 0.0;
    for (row, series) in view.each("exited.count") {
        let Some(count) = series.total(span).filter(|n| *n > 0.0) else { continue };
        all += count;
        let Some((pid, child)) = deaths::family(row) else { continue };
        let parent = view.set.text("exited.parent_comm", row).and_then(|t| t.last()).unwrap_or("?");
        let sum = sums.entry(parent).or_default();
        sum.count += count;
        sum.lifetime_s += view.set.get("exited.lifetime", row).and_then(|s| s.total(span)).unwrap_or(0.0);
        let cpu_s = view.set.get("exited.cpu_time", row).and_then(|s| s.total(span));
        sum.cpu_s = cpu_s.map(|cpu_s| cpu_s + sum.cpu_s.unwrap_or(0.0)).or(sum.cpu_s);
        sum.waited_s += view.set.get("exited.run_delay", row).and_then(|s| s.total(span)).unwrap_or(0.0);
        *sum.by_pid.entry(pid).or_default() += count;
        *sum.by_child.entry(child).or_default() += count;
    }
    let mut parents: Vec<Parent> = sums
        .into_iter()
        .map(|(parent, sum)| {
            let most = |(_, n): &(_, f64)| *n;
            let lead =
                sum.by_pid.iter().map(|(pid, n)| (*pid, *n)).max_by(|a, b| most(a).total_cmp(&most(b)));
            let child = sum.by_child.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(c, _)| (*c).to_owned());
            Parent {
                parent: parent.to_owned(),
                pid: lead.map(|(pid, _)| pid),
                lead_share: lead.map_or(0.0, |(_, n)| n / sum.count),
                pids: sum.by_pid.len(),
                child: child.unwrap_or_default(),
                share: sum.count / all,
                ended_s: sum.count / span.seconds().max(1.0),
                lifetime_s: sum.lifetime_s / sum.count.max(1.0),
                waited_s: sum.waited_s / sum.count.max(1.0),
                cpu_s: sum.cpu_s.map(|cpu_s| cpu_s / sum.count.max(1.0)),
            }
        })
        .collect();
    parents.sort_by(|a, b| b.share.total_cmp(&a.share));
    parents
}
