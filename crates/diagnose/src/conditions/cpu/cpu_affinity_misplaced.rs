//! Tasks queue for the CPUs that they are allowed to use while other CPUs idle.
//!
//! What is lost is what the idle CPUs could have served: at each moment the smaller of the waiting of pinned tasks and
//! the idle time of CPUs they may not use. A CPU set of a cgroup shows the same way as `taskset`. Waiting for
//! CPU quota looks alike and is told by the group's throttled time; when every CPU is busy it is saturation.
//!
//! Other tools do not print which CPUs a task may use, but pidstat prints the one it ran on last. The kernel moves a
//! task that waits to an idle CPU within milliseconds, so one that is seen on the same full CPU at sample after sample,
//! waiting, while another idles, may not leave it.

use std::collections::BTreeMap;

use crate::prelude::*;
use crate::stats;

pub const CONDITION: Condition = Condition {
    id: "cpu-affinity-misplaced",
    title: "tasks are pinned to a busy CPU while another is idle",
    area: "cpu",
    needs: &[
        "task.run_delay",
        "task.cpus_allowed",
        "task.cpus_allowed_count",
        "task.cpu",
        "task.kthread",
        "cpu.idle",
        "cpu.iowait",
        "cgroup.throttled_time",
    ],
    observe,
    causes: &[effect("runqueue-wait", "tasks queue for the CPUs they may use while others idle")],
    remedies: &[Advice {
        action: "let the tasks use all CPUs, or spread them",
        command: "taskset -acp 0-N {pid}   (or widen cpuset.cpus of its cgroup)",
        verify: "mpstat -P ALL 1: the CPUs are equally busy",
        risk: "the pinning may be deliberate, to keep the other CPUs free",
    }],
    next: &[measure("what pinned it: a tool or a cpuset", "taskset -acp {pid}; cat /proc/{pid}/cpuset")],
    suspicions: &[Suspicion {
        rank: 160,
        name: "waits-beside-idle-cpus",
        when: "psi.cpu_some > 50% and sys.cpu_idle > 30% * sys.cpus_online for 4s",
        arm: &["runqlat"],
        why: "Tasks wait for a CPU half of the time while a third of the CPUs is idle: affinity or a quota keeps \
              them away.",
        ..Suspicion::NONE
    }],
    source: include_str!("cpu_affinity_misplaced.rs"),
    ..Condition::ROOT
};

/// Three tenths of a CPU's work waits for no reason.
const AVOIDABLE: f64 = 0.3;
/// A CPU that idles for less than a twentieth of the time is full.
const FULL_IDLE: f64 = 0.05;
/// As often on one CPU is no accident: where a task may use two, it is on the same at five samples once in sixteen
/// times, and then it does not wait while the other idles.
const SEEN_LEAST: usize = 5;

fn observe(view: &View<'_>) -> Observation {
    if view.set.host.cpus == 0 {
        return Observation::cannot_tell("how many CPUs the machine has: nproc");
    }
    if view.cpus() < 2.0 {
        return Observation::inactive("the machine has one CPU");
    }
    let is_seen = !view.has("task.cpus_allowed_count");
    if is_seen && (!view.has("task.cpu") || !view.has("task.run_delay")) {
        return Observation::cannot_tell(
            "allowed CPUs and run-queue delay of each task: pidstat -u -t 1 (CPU, %wait), taskset -acp PID",
        );
    }
    if is_seen && !view.has("cpu.idle") {
        return Observation::cannot_tell("how busy each CPU is: mpstat -P ALL 1");
    }
    let mut by_mask: BTreeMap<u64, Vec<&Series>> = BTreeMap::new();
    for process in view.processes().iter().filter(|p| !p.kthread) {
        for row in &process.rows {
            let mask = if is_seen { seen_on(view, row) } else { allowed(view, row) };
            let (Some(mask), Some(delay)) = (mask, view.set.get("task.run_delay", row)) else { continue };
            by_mask.entry(mask).or_default().push(delay);
        }
    }
    let best = by_mask
        .into_iter()
        .filter_map(|(mask, delays)| {
            let waiting = Signal::sum(delays, view.window)?;
            let idle = idle_outside(view, mask)?;
            let mut avoidable = waiting.zip(&idle, f64::min);
            if is_seen {
                // Held back by a quota, a task waits beside an idle CPU of its own; behind others, on a full one.
                let own = idle_of(view.set, view.window, |cpu| mask & (1 << cpu) != 0)?;
                avoidable = avoidable.zip(&own, |lost, own| if own <= FULL_IDLE { lost } else { 0.0 });
            }
            let usual = view.baseline.map_or_else(Vec::new, |good| usual(view, mask, good));
            let run = avoidable.run(view.threshold(AVOIDABLE, &usual), 3.0)?;
            let before = stats::level(&usual).map_or(0.0, |level| level.median);
            let lost = avoidable.within(run.span()).total() - before * run.seconds();
            Some((mask, lost, waiting, idle, run))
        })
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((mask, lost, waiting, idle, run)) = best else {
        return Observation::inactive("no pinned task waited while a CPU that it may not use was idle");
    };
    let span = run.span();
    // What the kernel counts as waiting may be the wait for quota.
    let throttled: f64 = view.each("cgroup.throttled_time").filter_map(|(_, s)| s.mean(span)).sum();
    let waited = waiting.within(span).mean().unwrap_or(0.0);
    if throttled > 0.5 * waited {
        return Observation::inactive("the pinned tasks waited for CPU quota");
    }
    let pinned = |p: &Process<'_>| -> f64 {
        p.rows
            .iter()
            .filter(|row| {
                let mine = if is_seen { seen_on(view, row) } else { allowed(view, row) };
                mine == Some(mask)
            })
            .filter_map(|row| view.set.get("task.run_delay", row)?.total(span))
            .sum()
    };
    let tops = process::ranking(view.processes(), span, pinned);
    let mut finding = view.finding(&run);
    let spare = idle.within(span).mean().unwrap_or(0.0);
    let cpus = list(mask);
    if let Some(top) = tops.first() {
        finding.blame_top(top);
        let may = if is_seen { "was seen" } else { "may run" };
        finding.statement = format!(
            "{} {may} on CPU {cpus} only and waited {:.1} task-seconds a second for it while {:.1} other CPUs idled",
            top.words(),
            waited,
            spare
        );
        let before = before(view, top.comm);
        finding.evidence.push(view.task_evidence("task.run_delay", &top.lead, before, top.rate, span));
    }
    for cpu in 0..(view.cpus() as u32).min(64) {
        finding.evidence.extend(view.evidence("cpu.idle", &cpu.to_string(), span));
    }
    finding.evidence.truncate(9);
    finding.loss_s = Some(lost);
    // More tasks wait than there are CPUs for them: they would be in each other's way without any interrupt.
    if waited > f64::from(mask.count_ones()) {
        finding.despite.push("interrupt-imbalance");
    }
    finding.confidence = (0.6 + 0.4 * (waited.min(spare) / waited.max(spare).max(1e-9)).sqrt()).min(1.0);
    if is_seen {
        finding.confidence *= 0.8;
        finding.remarks.push(
            "which CPUs it may use was not recorded; a task that may leave a full CPU does not wait on it while another \
             idles"
                .to_owned(),
        );
    }
    finding.active()
}

fn before(view: &View<'_>, comm: &str) -> Option<f64> {
    let baseline = view.baseline?;
    let processes = process::collect(view.base_set);
    let total: f64 = processes
        .iter()
        .filter(|p| p.comm == comm)
        .map(|p| p.total(view.base_set, "task.run_delay", baseline))
        .sum();
    Some(total / baseline.seconds().max(1e-9))
}

/// The CPUs that a task may use, where that is not all of them.
fn allowed(view: &View<'_>, row: &str) -> Option<u64> {
    let last = |metric: &str| view.set.get(metric, row).and_then(|s| s.last(view.window));
    last("task.cpus_allowed_count").filter(|count| *count < view.cpus())?;
    last("task.cpus_allowed").map(|mask| mask as u64)
}

/// The CPUs that a task was seen on while it waited, where it was seen often enough and not on all of them.
fn seen_on(view: &View<'_>, row: &str) -> Option<u64> {
    let cpu = view.of("task.cpu", row)?;
    let waits = cpu.zip(&view.of("task.run_delay", row)?, |cpu, delay| if delay > 0.0 { cpu } else { -1.0 });
    let mut mask = 0u64;
    let mut seen = 0;
    for cpu in waits.v.iter().filter(|cpu| (0.0..63.0).contains(*cpu)) {
        mask |= 1 << (*cpu as u32);
        seen += 1;
    }
    (seen >= SEEN_LEAST && f64::from(mask.count_ones()) < view.cpus()).then_some(mask)
}

/// Idle time per second of the CPUs that are not in the mask.
fn idle_outside(view: &View<'_>, mask: u64) -> Option<Signal> {
    idle_of(view.set, view.window, |cpu| mask & (1 << cpu) == 0)
}

/// What tasks with this mask waited in the baseline while another CPU idled.
fn usual(view: &View<'_>, mask: u64, good: Span) -> Vec<f64> {
    let set = view.base_set;
    let last = |metric: &str, row: &str| set.get(metric, row).and_then(|s| s.last(good));
    let is_pinned = |row: &str| {
        last("task.cpus_allowed", row).is_some_and(|m| m as u64 == mask)
            && last("task.kthread", row) != Some(1.0)
    };
    let delays = set.each("task.run_delay").filter(|(row, _)| is_pinned(row)).map(|(_, delay)| delay);
    let waiting = Signal::sum(delays, good);
    let idle = idle_of(set, good, |cpu| mask & (1 << cpu) == 0);
    waiting.zip(idle).map_or_else(Vec::new, |(waiting, idle)| waiting.zip(&idle, f64::min).v)
}

/// Idle time per second of some CPUs.
fn idle_of(set: &SeriesSet, span: Span, is_of: impl Fn(u32) -> bool) -> Option<Signal> {
    let wanted = |cpu: &str| cpu.parse::<u32>().is_ok_and(|cpu| cpu < 63 && is_of(cpu));
    let series = ["cpu.idle", "cpu.iowait"]
        .into_iter()
        .flat_map(|metric| set.each(metric))
        .filter(|(cpu, _)| wanted(cpu))
        .map(|(_, series)| series);
    Signal::sum(series, span)
}

/// `0-3,8` of a mask.
fn list(mask: u64) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut cpu = 0;
    while cpu < 63 {
        if mask & (1 << cpu) == 0 {
            cpu += 1;
            continue;
        }
        let first = cpu;
        while cpu < 63 && mask & (1 << cpu) != 0 {
            cpu += 1;
        }
        parts.push(if cpu - first == 1 { first.to_string() } else { format!("{first}-{}", cpu - 1) });
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn masks_are_listed_as_ranges() {
        assert_eq!(super::list(0b1), "0");
        assert_eq!(super::list(0b1_0000_1111), "0-3,8");
        assert_eq!(super::list(0), "");
    }
}
