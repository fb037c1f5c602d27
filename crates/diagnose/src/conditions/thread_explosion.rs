//! A process has ever more threads, far beyond what its work needs.
//!
//! A thread for each request that never ends, a pool without a bound, a library that starts one per call. Each costs the kernel
//! some 30 kB that it cannot take back, eight megabytes of address space, and a place in the run queue when they wake together;
//! at `pids.max`, `RLIMIT_NPROC` or `kernel.threads-max` the next one fails. A program that starts with a large pool has them at
//! once and then no more: that is its size, not an explosion.

use mitra_model::report::{Next, Remedy};
use mitra_model::{SeriesSet, Span};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::growth;
use crate::signal::Signal;
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "thread-explosion",
    title: "a process has ever more threads",
    role: Role::Root,
    area: "process",
    needs: &[
        "task.threads",
        "task.comm",
        "tasks.total",
        "mem.kernel_stack",
        "cgroup.pids_current",
        "cgroup.pids_max",
        "sysctl.kernel.threads-max",
    ],
    observe,
    remedies,
    next,
    source: include_str!("thread_explosion.rs"),
};

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
    if view.each("task.threads").next().is_none() {
        return Observation::CannotTell("threads of each process: ps -eo nlwp,pid,comm | sort -n".to_owned());
    }
    let floor = LEAST.max(PER_CPU * view.cpus());
    let mut because = "no process came to have many more threads".to_owned();
    let mut best: Option<(f64, Finding)> = None;
    for process in view.processes().iter().filter(|p| !p.kthread) {
        let Some(row) = process.rows.first().copied() else { continue };
        let Some(series) = view.set.get("task.threads", row) else { continue };
        let signal = Signal::of(series, view.window);
        let most = signal.max().unwrap_or(0.0);
        if most < GREW {
            continue;
        }
        let limit = limit(view, process.cgroup, most);
        // What comes to a limit slowly may have begun long before anybody looked.
        let long = Span { since: i64::MIN, until: view.window.until };
        let signal = if limit.is_some() { Signal::of(series, long) } else { signal };
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
        let mut finding = view.finding(&grown.run);
        finding.culprit.process = Some(process.comm.to_owned());
        finding.culprit.pid = Some(process.pid);
        finding.culprit.cgroup = process.cgroup.filter(|c| *c != "/").map(str::to_owned);
        let at = limit.map(|l| format!(", which is the limit ({})", l.words)).unwrap_or_default();
        finding.statement = format!(
            "{name} went from {} to {} threads in {}{at}",
            words::count(least),
            words::count(most),
            words::seconds(grown.run.seconds())
        );
        let span = grown.run.span();
        finding.evidence.push(view.task_evidence("task.threads", process, Some(least), most, span));
        for metric in ["tasks.total", "mem.kernel_stack", "tasks.run_delay"] {
            finding.evidence.extend(view.evidence(metric, "", span));
        }
        finding.loss_s = view.excess(&["tasks.run_delay"], span);
        finding.confidence = if before.is_some() { 0.9 } else { 0.75 };
        best = Some((most - least, finding));
    }
    match best {
        Some((_, finding)) => Observation::Active(Box::new(finding)),
        None => Observation::Inactive(because),
    }
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
            return Some(Limit { max, words: format!("pids.max {max:.0} of {group}") });
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

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let name = finding.culprit.process.as_deref().unwrap_or("the process");
    let pid = finding.culprit.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    vec![
        Remedy {
            action: format!(
                "bound the threads of {name}: a pool with a queue in place of a thread for each request"
            ),
            command: String::new(),
            verify: format!("ps -o nlwp= -p {pid}: levels off"),
            risk: "requests queue when the pool is busy".to_owned(),
        },
        Remedy {
            action: "until then, a limit of its own is hit before the machine's".to_owned(),
            command: "systemctl set-property UNIT TasksMax=NUMBER".to_owned(),
            verify: "systemctl status UNIT: Tasks".to_owned(),
            risk: "starting a thread fails at the limit".to_owned(),
        },
    ]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.culprit.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    vec![Next {
        measure: "what the threads wait for, and what they are called".to_owned(),
        command: format!("ps -L -o comm=,wchan:32= -p {pid} | sort | uniq -c | sort -rn | head"),
    }]
}
