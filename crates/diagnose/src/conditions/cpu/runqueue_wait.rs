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
        // A build on all CPUs keeps its own compilers waiting, and a program that computes more its own threads.
        let wait =
            |process: &Process<'_>, set: &SeriesSet, span: Span| process.total(set, "task.run_delay", span);
        process::judge_by_bystanders(view, found, wait, &["task.cpu_time"])
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
