//! Tasks are runnable and wait for a CPU.
//!
//! The kernel counts the delay for each task. It counts a task that its control group's quota holds back in the same
//! number, so see `cpu-quota-throttled`; and idle CPUs beside waiting tasks mean pinning, see
//! `cpu-affinity-misplaced`.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "runqueue-wait",
    title: "tasks queue for a CPU",
    role: Role::Mechanism,
    area: "cpu",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("runqueue_wait.rs"),
};

const METRICS: &[&str] = &["tasks.run_delay"];

/// Together the tasks lose three tenths of a task's time.
const FLOOR: f64 = 0.3;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, METRICS, FLOOR, 3.0, "task-seconds of waiting for a CPU in a second:")
}
