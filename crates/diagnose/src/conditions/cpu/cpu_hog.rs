//! One program takes most of the CPU and others wait for it.
//!
//! The program is one process with any number of threads, or a handful of processes of one name, about as many as
//! there are CPUs; a crowd, of which each gets less than a third of a CPU, is `runqueue-saturation`. It must have lived for a while (a compiler that runs for two
//! seconds is part of a job), no CPU may be idle, and others must lose time that they did not lose before.
//!
//! A task of a real-time class runs before all others of its CPU, whatever their weights. Those that may use another CPU move there; those
//! that may not wait, while the others idle.

use crate::prelude::*;
use crate::weights;

pub const CONDITION: Condition = Condition {
    id: "cpu-hog",
    title: "one program takes the CPU from others",
    area: "cpu",
    needs: &[
        "task.cpu_time",
        "task.run_delay",
        "tasks.run_delay",
        "task.ppid",
        "sys.cpu_idle",
        "sys.cpu_iowait",
        "task.user_time",
        "task.system_time",
        "task.policy",
        "task.cpu",
        "task.cpus_allowed",
    ],
    needs_of: &[weights::NEEDS],
    observe,
    causes: &[
        effect("cpu-saturated", "one program takes the CPUs"),
        effect("runqueue-wait", "others wait while it runs"),
        explains("runqueue-saturation", "the queue is long because one program takes the CPUs"),
    ],
    remedies_of: remedies,
    next: &[measure("what it computes", "perf record -g -p {pid} -- sleep 10")],
    suspicions: &[Suspicion {
        rank: 100,
        name: "system-time-of-a-process",
        when: "sys.cpu_system > 60% and sum(task.system_time{kthread=0}) by pid > 60% for 3s",
        arm: &["oncpu", "syscalls"],
        is_of_culprit: true,
        why: "A process that spends most of a CPU inside the kernel does one thing there again and again, and only a profile \
              says which.",
        ..Suspicion::NONE
    }],
    source: include_str!("cpu_hog.rs"),
    ..Condition::ROOT
};

/// More than all others together.
const SHARE: f64 = 0.5;
/// Of all CPUs together.
const BUSY: f64 = 0.9;
/// Others lose a tenth of a task's time more than before.
const HARM: f64 = 0.1;
/// Two wait for each one that runs: where `runqueue-saturation` begins.
const CROWD_PER_CPU: f64 = 3.0;
/// A choice: with less every step of a build would be named, with more nobody is told while it goes on for ten seconds.
const LIVED_S: f64 = 6.0;

fn observe(view: &View<'_>) -> Observation {
    let Some(idle) = view.idle() else { return Observation::needs(&["sys.cpu_idle"]) };
    if !view.has("task.cpu_time") {
        return Observation::cannot_tell("CPU time of each process: pidstat -u 1");
    }
    if !view.has("task.run_delay") {
        return Observation::cannot_tell("how long others waited: pidstat -u 1 with %wait");
    }
    if let Some(finding) = runs_first(view) {
        return finding.active();
    }
    let cpus = view.cpus();
    let busy = idle.map(|idle| 1.0 - idle / cpus);
    let Some(high) = view.high_signal(&busy, BUSY, 5.0, None) else {
        return Observation::Inactive(format!(
            "CPUs were idle: {} busy on average",
            words::percent(busy.mean().unwrap_or(0.0))
        ));
    };
    let span = high.run.span();
    let lasting = |p: &Process<'_>| {
        let signal = p.signal(view.set, "task.cpu_time", span).unwrap_or_default();
        if signal.dt.iter().sum::<f64>() >= LIVED_S { signal.total() } else { 0.0 }
    };
    let tops = process::ranking(view.processes(), span, lasting);
    let capacity = cpus * high.run.seconds();
    let Some(top) = tops.first().filter(|t| t.total >= SHARE * capacity) else {
        return Observation::inactive("no program that stayed took half of the CPU");
    };
    let top = &takers(view, top, lasting, span);
    let single = top.lead_share >= 0.8;
    if !single && top.processes as f64 > CROWD_PER_CPU * cpus {
        return Observation::Inactive(format!(
            "{} processes named {} share the CPU: a crowd",
            top.processes, top.comm
        ));
    }
    let (waited, before) = others(view, top, span);
    if waited - before < HARM {
        return Observation::Inactive(format!(
            "{} took {} of the CPU and others waited {} of a task's time ({} before)",
            top.comm,
            words::percent(top.total / capacity),
            words::percent(waited),
            words::percent(before)
        ));
    }
    let series = view
        .processes()
        .iter()
        .filter(|p| top.members.contains(&p.pid))
        .flat_map(|p| p.series(view.set, "task.cpu_time"));
    let run = Signal::sum(series, view.window).and_then(|s| s.run(0.5 * top.rate, 3.0)).unwrap_or(high.run);
    let mut finding = view.finding(&run);
    finding.blame_top(top);
    finding.statement = format!(
        "{} took {} of all CPUs; other tasks waited {} of a task's time for one ({} before)",
        top.words(),
        words::percent(top.total / capacity),
        words::percent(waited),
        words::percent(before)
    );
    let before_s = base_cpu(view, top.comm);
    finding.evidence.push(view.task_evidence("task.cpu_time", &top.lead, before_s, top.rate, span));
    finding.evidence.push(view.evidence_of("task.run_delay", "others", Some(before), waited));
    finding.evidence.extend(view.evidence("sys.cpu_idle", "", span));
    // Without it nobody would queue, its own processes included.
    let queued = view.excess(&["tasks.run_delay"], run.span());
    finding.loss_s = queued.or(Some((waited - before) * run.seconds()));
    finding.confidence = 0.5 + 0.5 * top.share;
    finding.remarks.extend(weights::starved(view, span, |p| !top.members.contains(&p.pid)));
    finding.active()
}

/// `SCHED_FIFO`, `SCHED_RR` and `SCHED_DEADLINE`.
const REAL_TIME: [f64; 3] = [1.0, 2.0, 6.0];
/// Half of a CPU; what is left to others comes when it sleeps.
const TAKES: f64 = 0.5;
const CLASS: &str = "real-time";
/// Of a CPU, more than before.
const MORE: f64 = 0.3;

/// A task of a real-time class that takes a CPU, on which others wait that may use no other.
fn runs_first(view: &View<'_>) -> Option<Finding> {
    let last =
        |metric: &str, row: &str| view.set.get(metric, row).and_then(|series| series.last(view.window));
    let is_first = |row: &str| last("task.policy", row).is_some_and(|policy| REAL_TIME.contains(&policy));
    let takers =
        view.processes().iter().filter(|p| !p.kthread).flat_map(|p| p.rows.iter().map(move |row| (p, *row)));
    let findings = takers.filter(|(_, row)| is_first(row)).filter_map(|(process, row)| {
        let run = view.of("task.cpu_time", row)?.run(TAKES, 3.0)?;
        takes_a_cpu(view, process, row, last("task.cpu", row)?, &run)
    });
    findings.max_by(|a, b| a.loss_s.unwrap_or(0.0).total_cmp(&b.loss_s.unwrap_or(0.0)))
}

/// A thread of a real-time class that takes a CPU on which others wait. `None` where nobody does, or it always took as much.
fn takes_a_cpu(view: &View<'_>, process: &Process<'_>, row: &str, cpu: f64, run: &Run) -> Option<Finding> {
    let span = run.span();
    let mask = 2_f64.powf(cpu);
    let waited = |set: &SeriesSet, span: Span| {
        let may_use_no_other = |row: &str| {
            set.get("task.cpus_allowed", row).and_then(|allowed| allowed.last(span)) == Some(mask)
                && set.get("task.kthread", row).and_then(|kthread| kthread.last(span)) != Some(1.0)
        };
        let others = set
            .each("task.run_delay")
            .filter(|(other, _)| !process.rows.contains(other) && may_use_no_other(other));
        others.filter_map(|(_, delay)| delay.total(span)).fold(0.0, |a, b| a + b) / span.seconds().max(1e-9)
    };
    let before = view.baseline.map_or(0.0, |baseline| waited(view.base_set, baseline));
    let during = waited(view.set, span);
    if during - before < HARM {
        return None;
    }
    let used = view.set.get("task.cpu_time", row).and_then(|series| series.mean(span)).unwrap_or(0.0);
    // What it took before is not what they wait for now.
    let earlier = view.before("task.cpu_time", row);
    if used - earlier.unwrap_or(0.0) < MORE {
        return None;
    }
    let mut finding = view.finding(run);
    finding.blame(process);
    finding.statement = format!(
        "{} ({}) has a {CLASS} thread that took {} of CPU {cpu:.0}; others that may use no other CPU waited {} of a task's time for it ({} before)",
        process.comm,
        process.pid,
        words::percent(used),
        words::percent(during),
        words::percent(before)
    );
    finding.evidence.push(view.task_evidence("task.cpu_time", process, earlier, used, span));
    finding.evidence.push(view.evidence_of("task.run_delay", "others", Some(before), during));
    finding.loss_s = Some((during - before) * run.seconds());
    finding.confidence = 0.9;
    Some(finding)
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let pid = finding.pid();
    let (action, command) = match finding.statement.contains(CLASS) {
        true => (
            "give it an ordinary class, or a CPU that nobody else needs",
            format!("chrt -a -o -p 0 {pid}; taskset -acp CPU {pid}"),
        ),
        false => ("give it a lower weight, or a cgroup with a quota", format!("renice -n 19 -p {pid}")),
    };
    vec![Remedy {
        action: action.to_owned(),
        command,
        verify: "pidstat -u 1: the %wait of the others falls".to_owned(),
        risk: "it takes longer".to_owned(),
    }]
}

/// Of the processes of a name those that take the CPU. Programs of one interpreter have its name: who was there before and
/// takes little beside the others may be another program, and wait for them.
fn takers<'a>(view: &View<'a>, top: &Top<'a>, took: impl Fn(&Process<'_>) -> f64, span: Span) -> Top<'a> {
    let same = view.processes().iter().filter(|p| !p.kthread && p.comm == top.comm);
    let mut list: Vec<(f64, &Process<'_>)> = same.map(|p| (took(p), p)).collect();
    list.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut sum, mut least) = (0.0, f64::INFINITY);
    for (took, _) in &list {
        if sum < NEARLY_ALL * top.total {
            (sum, least) = (sum + took, *took);
        }
    }
    let is_new = |p: &Process<'_>| p.first_seen(view.set).is_none_or(|t| t + EDGE_NS > span.since);
    list.retain(|(took, p)| *took >= ALIKE * least || is_new(p));
    Top { processes: list.len(), members: list.iter().map(|(_, p)| p.pid).collect(), ..top.clone() }
}

/// Of what those of a name took.
const NEARLY_ALL: f64 = 0.8;
/// Who takes half as much as the least of these is one of them.
const ALIKE: f64 = 0.5;
/// A process is seen in the sample after its birth.
const EDGE_NS: i64 = 2 * SECOND;

/// Run-queue delay per second of user processes that are neither the program nor its parent, now and before.
fn others(view: &View<'_>, hog: &Top<'_>, span: Span) -> (f64, f64) {
    let rate = |set, span: Span, processes: &[Process<'_>]| {
        let total: f64 = processes
            .iter()
            .filter(|p| !p.kthread && !hog.members.contains(&p.pid) && Some(p.pid) != hog.lead.ppid)
            .map(|p| p.total(set, "task.run_delay", span))
            .sum();
        total / span.seconds().max(1e-9)
    };
    let before = view.baseline.map_or(0.0, |b| rate(view.base_set, b, &process::collect(view.base_set)));
    (rate(view.set, span, view.processes()), before)
}

fn base_cpu(view: &View<'_>, comm: &str) -> Option<f64> {
    let baseline = view.baseline?;
    let processes = process::collect(view.base_set);
    let total: f64 = processes
        .iter()
        .filter(|p| p.comm == comm)
        .map(|p| p.total(view.base_set, "task.cpu_time", baseline))
        .sum();
    Some(total / baseline.seconds().max(1e-9))
}
