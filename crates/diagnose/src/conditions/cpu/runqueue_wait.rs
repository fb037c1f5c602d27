//! Tasks are runnable and wait for a CPU.
//!
//! The kernel counts the delay for each task. It counts a task that its cgroup's quota holds back in the same
//! number, so see `cpu-quota-throttled`; and idle CPUs beside waiting tasks mean pinning, see
//! `cpu-affinity-misplaced`.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "runqueue-wait",
    title: "tasks wait in the run queue",
    area: "cpu",
    needs: &["tasks.run_delay", "task.run_delay", "task.cpu_time"],
    triggers: &[
        // Each CPU keeps somebody waiting for a fifth of the time. That a single task waits is seen by `psi.cpu_some`.
        above(METRICS, 0.4).per_pair(),
        // For a whole second each CPU had a task more than it could run: a burst, however short.
        above(METRICS, 1.0).per_cpu().lasting(0.0),
    ],
    observe: |view| {
        let found = observe_level(view, METRICS, FLOOR, 3.0, "tasks waiting for a CPU:");
        judge(view, found)
    },
    causes: &[
        effect("pressure-cpu", "waiting for a CPU is CPU pressure"),
        effect("load-high", "the load average counts runnable tasks"),
        effect("listen-overflow", "a server that waits for a CPU does not accept"),
        effect("service-slow", "a server that waits for a CPU answers late"),
    ],
    source: include_str!("runqueue_wait.rs"),
    ..Condition::MECHANISM
};

const METRICS: &[&str] = &["tasks.run_delay"];

/// Together the tasks lose three tenths of a task's time.
const FLOOR: f64 = 0.3;
/// Bystanders lose half of a task's time: one service takes twice as long.
const SEVERE: f64 = 0.5;
/// A few seconds are a burst.
const SEVERE_S: f64 = 5.0;
/// As much work as before, give or take.
const NO_MORE: f64 = 1.1;

/// Where nothing explains the queue it is an incident all the same if bystanders lose much: processes that were there before,
/// compute no more than they did then, and wait for it. A build on all CPUs keeps its own compilers waiting, and a program
/// that computes more its own threads: that is how work is done.
fn judge(view: &View<'_>, mut observation: Observation) -> Observation {
    let Observation::Active(finding) = &mut observation else { return observation };
    let Some(baseline) = view.baseline else { return observation };
    let until = finding.end.unwrap_or(view.window.until);
    let span = Span { since: finding.onset, until: until.saturating_add(1) };
    let usual = |process: &Process<'_>, metric: &str| {
        process.total(view.base_set, metric, baseline) / baseline.seconds().max(1e-9)
    };
    let now = |process: &Process<'_>, metric: &str| {
        process.total(view.set, metric, span) / span.seconds().max(1e-9)
    };
    let was_there = |process: &Process<'_>| {
        let mut known = process.series(view.base_set, "task.tgid");
        known.any(|series| series.samples(baseline).next().is_some())
    };
    let is_bystander = |process: &&Process<'_>| {
        let usual = usual(process, "task.cpu_time");
        !process.kthread && was_there(process) && now(process, "task.cpu_time") <= NO_MORE * usual
    };
    let bystanders = view.processes().iter().filter(is_bystander);
    let lost: f64 = bystanders
        .map(|process| (now(process, "task.run_delay") - usual(process, "task.run_delay")).max(0.0))
        .sum();
    if lost >= SEVERE && span.seconds() >= SEVERE_S {
        finding.is_severe = true;
        finding.loss_s = Some(lost * span.seconds());
    }
    observation
}
