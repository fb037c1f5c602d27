//! A process has ever more threads, far beyond what its work needs.
//!
//! A thread for each request that never ends, a pool without a bound, a library that starts one per call. Each costs the kernel
//! some 30 kB that it cannot take back, eight megabytes of address space, and a place in the run queue when they wake together;
//! at `pids.max`, `RLIMIT_NPROC` or `kernel.threads-max` the next one fails. So do children that nobody reaps: each is a task until
//! its parent has asked how it ended. A program that starts with a large pool has them at
//! once and then no more: that is its size, not an explosion.

use std::collections::BTreeMap;

use crate::growth;
use crate::prelude::*;
use crate::services::{self, Address, Servers};

pub const CONDITION: Condition = Condition {
    id: "thread-explosion",
    title: "a process keeps adding threads",
    area: "process",
    needs: &[
        "task.threads",
        "task.comm",
        "tasks.total",
        "mem.kernel_stack",
        "cgroup.pids_current",
        "cgroup.pids_max",
        "sysctl.kernel.threads-max",
        "task.ppid",
        "task.state",
        "tasks.run_delay",
        "tasks.pids_fullest",
        "sys.forks",
        "dependency.open",
        "dependency.connecting",
        "service.open",
        "service.abandoned",
        "service.pid",
    ],
    needs_of: &[services::NEEDS],
    triggers: &[
        // Threads and processes: twice as many, and more than any program starts with.
        above(&["tasks.pids_fullest"], AT_LIMIT),
        climbs(&["tasks.total"], |from, to| to - from >= LEAST && to >= 1.5 * from),
        // The same in recordings that do not have it. There may be hundreds of cgroups: of a day they are not read for this, only where
        // everything is.
        Trigger::Signals(Signals {
            metrics: &[],
            find: groups_without_room,
            need_s: 2.0,
            can_be_steady: true,
        }),
    ],
    observe,
    causes: &[
        effect("runqueue-saturation", "threads that wake together queue for the CPUs"),
        effect("cpu-saturated", "threads that wake together queue for the CPUs"),
        effect("runqueue-wait", "threads that wake together queue for the CPUs"),
        effect("service-failing", "what a server starts for a request fails at the limit"),
        explains("service-slow", "what a server starts for a request fails at the limit"),
        explains("service-silent", "what a server starts for a request fails at the limit"),
        explains("cpu-hog", "the CPU goes into its threads"),
        effect("free-memory-low", "each thread takes memory of the kernel"),
        explains("slab-leak", "each thread takes objects of the kernel"),
        explains("anonymous-growth", "each thread touches a stack of its own"),
        explains("mmap-lock-contention", "each start of a thread maps a stack"),
        explains("minor-fault-storm", "each thread touches a stack of its own"),
    ],
    remedies_of: remedies,
    next: &[measure(
        "what the threads wait for, and what they are called",
        "ps -L -o comm=,wchan:32= -p {pid} | sort | uniq -c | sort -rn | head",
    )],
    source: include_str!("thread_explosion.rs"),
    ..Condition::ROOT
};

const ADVICE: &[Advice] = &[
    Advice {
        action: "limit the threads of {process:the process}: a pool with a queue instead of a thread for each request",
        command: "",
        verify: "ps -o nlwp= -p {pid}: levels off",
        risk: "requests queue when the pool is busy",
    },
    Advice {
        action: "until then, set its own limit, below the machine's",
        command: "systemctl set-property UNIT TasksMax=NUMBER",
        verify: "systemctl status UNIT: Tasks",
        risk: "starting a thread fails at the limit",
    },
];

/// That stands in a statement about children of which only their exit status is left.
const NOT_REAPED: &str = " that have ended and that it has not reaped";

fn remedies(finding: &Finding) -> Vec<Remedy> {
    if finding.culprit.pid.is_none() {
        return vec![Remedy {
            action: "see which tasks the group has, and end those that do nothing; or raise its limit".to_owned(),
            command: "systemd-cgtop -m; cat /sys/fs/cgroup/GROUP/cgroup.procs; systemctl set-property UNIT TasksMax=NUMBER".to_owned(),
            verify: "pids.current of the group is far below pids.max".to_owned(),
            risk: "what leaks tasks reaches any limit".to_owned(),
        }];
    }
    if !finding.statement.contains(NOT_REAPED) {
        return ADVICE.iter().map(|advice| advice.of(&finding.culprit)).collect();
    }
    let (pid, who) = (finding.pid(), finding.culprit.process.as_deref().unwrap_or("the parent"));
    vec![Remedy {
        action: format!(
            "restart {who}: init reaps its zombies when it is gone; then let it call waitpid for each SIGCHLD"
        ),
        command: format!("ps -o pid=,stat=,comm= --ppid {pid}; systemctl status {pid}"),
        verify: "pids.current of the group is far below pids.max".to_owned(),
        risk: "what it does at the moment is cut off".to_owned(),
    }]
}

/// A pool that is as large as this for each CPU serves nothing that runs; most servers have a few dozen in all.
const PER_CPU: f64 = 32.0;
/// On a small machine too: no ordinary program adds as many in a minute.
const LEAST: f64 = 200.0;
/// A program's threads at the start and under load differ by less.
const GREW: f64 = 3.0;
/// At a limit the number matters less: who brought half of it made the next one fail.
const OF_LIMIT: f64 = 0.5;
/// The limit is reached, give or take those that end at the moment.
const AT_LIMIT: f64 = 0.98;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("task.threads") {
        return Observation::cannot_tell("threads of each process: ps -eo nlwp,pid,comm | sort -n");
    }
    let floor = LEAST.max(PER_CPU * view.cpus());
    let mut because = "no process came to have many more threads".to_owned();
    let mut best: Option<(f64, Finding)> = None;
    for process in view.processes().iter().filter(|p| !p.kthread) {
        let Some(row) = process.rows.first().copied() else { continue };
        let Some(series) = view.set.get("task.threads", row) else { continue };
        let most = series.max(view.window).unwrap_or(0.0);
        if most < GREW {
            continue;
        }
        let limit = limit(view, process.cgroup, most);
        // What comes to a limit slowly may have begun long before anybody looked.
        let long = Span { since: i64::MIN, until: view.window.until };
        let signal = Signal::of(series, if limit.is_some() { long } else { view.window });
        let before = view.before("task.threads", row).filter(|_| limit.is_none());
        let least = before.or_else(|| signal.v.first().copied()).unwrap_or(1.0).max(1.0);
        if most < GREW * least {
            continue;
        }
        let needed = limit.as_ref().map_or(floor, |limit| floor.min(OF_LIMIT * limit.max));
        if most - least < needed {
            continue;
        }
        let name = format!("{} ({})", process.comm, process.pid);
        let of_leader = |set: &SeriesSet, span: Span| {
            let since = if limit.is_some() { i64::MIN } else { span.since };
            Some(Signal::of(set.get("task.threads", row)?, Span { since, ..span }))
        };
        let Some(grown) =
            growth::climb(view, of_leader).filter(|g| !jumped(&signal, g.run.span(), least, most))
        else {
            because = format!("{name} has {} threads since it started them at once", words::count(most));
            continue;
        };
        if grown.levels_off && limit.is_none() {
            because = format!("{name} went to {} threads and stayed there", words::count(most));
            continue;
        }
        if best.as_ref().is_some_and(|(b, _)| *b >= most - least) {
            continue;
        }
        let whom = waits_for(view, process.pid, grown.run.span(), KEPT * (most - least));
        if limit.is_none()
            && let Some(whom) = &whom
        {
            because = format!("{name} has a thread for each answer that it waits for, and {whom} is late");
            continue;
        }
        // Whatever keeps it from answering keeps the threads.
        if limit.is_none() && unanswered(view, process.pid, grown.run.span()) >= KEPT * (most - least) {
            because = format!("{name} has a thread for each request that it does not answer");
            continue;
        }
        let mut finding = view.finding(&grown.run);
        finding.blame(process);
        let is_own_limit = limit.is_some() && whom.is_none();
        let at = limit.map(|l| format!(", which is the limit ({})", l.words)).unwrap_or_default();
        finding.statement = format!(
            "{name} went from {} to {} threads in {}{at}",
            words::count(least),
            words::count(most),
            words::seconds(grown.run.seconds())
        );
        let span = grown.run.span();
        finding.evidence.push(view.task_evidence("task.threads", process, Some(least), most, span));
        finding.prove(view, &["tasks.total", "mem.kernel_stack", "tasks.run_delay"], "", span);
        finding.loss_s = view.excess(&["tasks.run_delay"], span);
        // A client has a thread for each request that waits: the service that it waits for is late by itself.
        // Where it has none for whom it waits, and reached a limit, nothing more can be started for a request.
        finding.governs = (!is_own_limit).then_some(OF_THREADS);
        finding.confidence = if before.is_some() { 0.9 } else { 0.75 };
        best = Some((most - least, finding));
    }
    match best.map(|(_, finding)| finding).or_else(|| without_room(view)) {
        Some(finding) => finding.active(),
        None => Observation::Inactive(because),
    }
}

/// What follows from threads as such.
const OF_THREADS: &[&str] = &[
    "runqueue-saturation",
    "cpu-saturated",
    "runqueue-wait",
    "service-failing",
    "cpu-hog",
    "free-memory-low",
    "slab-leak",
    "anonymous-growth",
    "mmap-lock-contention",
    "minor-fault-storm",
];
/// Two samples.
const NEED_S: f64 = 2.0;

/// A group that may have no more tasks, and whose children most of them are.
fn without_room(view: &View<'_>) -> Option<Finding> {
    view.each("cgroup.pids_max").find_map(|(group, max)| no_room_in(view, group, max))
}

fn no_room_in(view: &View<'_>, group: &str, max: &Series) -> Option<Finding> {
    let now = Signal::of(view.set.get("cgroup.pids_current", group)?, view.window);
    let is_full = now.zip(&Signal::of(max, view.window), |now, max| step(max > 0.0 && now >= AT_LIMIT * max));
    let high = view.high_signal(&is_full, 1.0, NEED_S, None)?;
    let max = max.last(view.window)?;
    let span = high.run.span();
    let mut children: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    // Those that are there at its end: a shell has had many more.
    let end =
        Span { since: span.until - (NEED_S * high.run.step_s * SECOND as f64) as i64, until: span.until };
    // Of several hierarchies (version 1) the group that is known of a task may be that of another one, which counts no tasks.
    let counts = |group: &str| view.set.get("cgroup.pids_current", group).is_some();
    let are_known = view.processes().iter().any(|p| process::is_inside(p.cgroup, group));
    let is_member = |p: &&Process<'_>| {
        process::is_inside(p.cgroup, group) || !are_known && p.cgroup.is_none_or(|own| !counts(own))
    };
    for process in view.processes().iter().filter(is_member) {
        let state = process.rows.first().and_then(|row| view.set.get("task.state", row)?.last(end));
        if let (Some(parent), Some(state)) = (process.ppid.filter(|parent| *parent > INIT), state) {
            let (all, ended) = children.entry(parent).or_default();
            *all += 1.0;
            *ended += step(state == f64::from(b'Z'));
        }
    }
    // Those that sleep throughout are not known: what most of the others belong to started those too.
    let known: f64 = children.values().map(|(all, _)| all).sum();
    let most = children.into_iter().max_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
    let parent = most.and_then(|(pid, counts)| Some((view.process(pid)?, counts)));
    // A machine that is always busy with something has no quiet time to compare with.
    let earlier = Span { since: i64::MIN, until: high.run.onset };
    let before = view.before("cgroup.pids_current", group);
    let before = before.or_else(|| view.set.get("cgroup.pids_current", group)?.mean(earlier));
    let is_new = before.is_some_and(|before| before < AT_LIMIT * max);
    let has_most = |all: f64| all >= OF_LIMIT * max || is_new && all >= OF_LIMIT * known.max(FEW);
    let parent = parent.filter(|(_, (all, _))| has_most(*all));
    // A process may have many tasks: of those that are not known nobody can say whose they are.
    let is_sure = are_known && parent.is_some_and(|(_, (all, _))| all >= OF_LIMIT * max);
    let forks = view.system("sys.forks").and_then(|forks| forks.within(span).mean());
    let forks_before = view.before("sys.forks", "").or_else(|| view.set.system("sys.forks")?.mean(earlier));
    let fewer_forks = forks.zip(forks_before);
    let fewer_forks = fewer_forks.filter(|(now, before)| *before >= FORKS_S && 2.0 * now <= *before);
    let mut finding = view.finding(&high.run);
    finding.statement = format!(
        "{} is at its limit of {max:.0} tasks (pids.max), and whatever it starts next fails",
        view.group(group)
    );
    match parent {
        Some((parent, (all, ended))) => {
            finding.blame(parent);
            let which = if 2.0 * ended >= all { NOT_REAPED } else { "" };
            finding.statement = format!(
                "{} ({}) has {} children{which}; {}",
                parent.comm,
                parent.pid,
                words::count(if which.is_empty() { all } else { ended }),
                finding.statement
            );
        }
        // Somebody wanted more.
        None if is_new && fewer_forks.is_some() => finding.culprit.cgroup = Some(group.to_owned()),
        None => return None,
    }
    finding.prove(view, &["cgroup.pids_current", "cgroup.pids_max"], group, span);
    if let Some((now, before)) = fewer_forks {
        finding.remarks.push(format!(
            "{} processes and threads a second were started on the machine, {} before",
            words::count(now),
            words::count(before)
        ));
        finding.prove(view, &["sys.forks"], "", span);
    }
    finding.confidence = if is_sure { 0.85 } else { 0.7 };
    Some(finding)
}

/// Of fewer children a share says nothing.
const FEW: f64 = 10.0;
/// Fewer say nothing.
const FORKS_S: f64 = 5.0;
/// Children of the first process were left by others, those of the second are the kernel's.
const INIT: u32 = 2;

/// The share of the new threads each of which waits for an answer of somebody else: who is late is the cause then.
const KEPT: f64 = 0.5;

/// The address of which a process waits for so many answers and connections at a time.
fn waits_for(view: &View<'_>, pid: u32, span: Span, answers: f64) -> Option<String> {
    let servers = Servers::of_process(view, pid)?;
    let rows = services::called_by(view, view.set, &servers);
    let open = |row: &&str| {
        let of = |metric: &str| view.set.get(metric, row).and_then(|s| s.max(span)).unwrap_or(0.0);
        of("dependency.open") + of("dependency.connecting")
    };
    let (row, open) = rows.iter().map(|row| (row, open(row))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (open >= answers).then(|| Address::called(row).text.to_owned())
}

/// How many requests a process has not answered in a span: its thread may stay though the client has gone.
fn unanswered(view: &View<'_>, pid: u32, span: Span) -> f64 {
    let is_own =
        |row: &str| view.set.get("service.pid", row).and_then(|own| own.last(span)) == Some(f64::from(pid));
    let of = |(row, open): (&str, &Series)| {
        let gone = view.set.get("service.abandoned", row).and_then(|gone| gone.total(span)).unwrap_or(0.0);
        open.max(span).unwrap_or(0.0) + gone
    };
    view.each("service.open").filter(|(row, _)| is_own(row)).map(of).fold(0.0, |a, b| a + b)
}

/// Whether most of the threads came within two samples.
fn jumped(signal: &Signal, span: Span, least: f64, most: f64) -> bool {
    let inside = signal.within(span).v;
    let steps = inside.windows(3).map(|w| w[2] - w[0]);
    steps.fold(0.0, f64::max) >= 0.75 * (most - least)
}

/// A limit of threads that was reached.
struct Limit {
    max: f64,
    words: String,
}

/// The limit that a number of threads has come to: of its group, of one above it, or of the machine.
fn limit(view: &View<'_>, cgroup: Option<&str>, threads: f64) -> Option<Limit> {
    let largest = |metric: &str, row: &str| view.set.get(metric, row).and_then(|s| s.max(view.window));
    let last = |metric: &str, row: &str| view.set.get(metric, row).and_then(|s| s.last(view.window));
    let mut group = cgroup.unwrap_or("/");
    loop {
        let max = last("cgroup.pids_max", group).filter(|max| *max > 0.0);
        let now = largest("cgroup.pids_current", group).unwrap_or(threads);
        if let Some(max) = max.filter(|max| now >= AT_LIMIT * max) {
            return Some(Limit { max, words: format!("pids.max {max:.0} of {}", view.group(group)) });
        }
        match group.rsplit_once('/') {
            None | Some(("", "")) => break,
            Some(("", _)) => group = "/",
            Some((above, _)) => group = above,
        }
    }
    let all = largest("tasks.total", "")?;
    let max = last("sysctl.kernel.threads-max", "").filter(|max| *max > 0.0 && all >= AT_LIMIT * max)?;
    Some(Limit { max, words: format!("kernel.threads-max {max:.0}") })
}

/// For each cgroup with a limit of tasks: one where it is at the limit.
fn groups_without_room(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let limited = set
        .each("cgroup.pids_max")
        .filter_map(|(group, max)| Some((max, set.get("cgroup.pids_current", group)?)));
    limited
        .map(|(max, now)| {
            let (now, max) = (Signal::of(now, window), Signal::of(max, window));
            now.zip(&max, |now, max| step(max > 0.0 && now >= AT_LIMIT * max))
        })
        .collect()
}
