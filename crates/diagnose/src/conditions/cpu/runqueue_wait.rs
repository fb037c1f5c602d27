//! Tasks are runnable and wait for a CPU.
//!
//! The kernel counts the delay for each task. It counts a task that its control group's quota holds back in the same
//! number, so see `cpu-quota-throttled`; and idle CPUs beside waiting tasks mean pinning, see
//! `cpu-affinity-misplaced`.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "runqueue-wait",
    title: "tasks queue for a CPU",
    area: "cpu",
    needs: METRICS,
    triggers: &[
        // Each CPU keeps somebody waiting for a fifth of the time. That a single task waits is seen by `psi.cpu_some`.
        above(METRICS, 0.4).per_pair(),
        // For a whole second each CPU had a task more than it could run: a burst, however short.
        above(METRICS, 1.0).per_cpu().lasting(0.0),
    ],
    observe: |view| {
        observe_level(view, METRICS, FLOOR, 3.0, "task-seconds of waiting for a CPU in a second:")
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
