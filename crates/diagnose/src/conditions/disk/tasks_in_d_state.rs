//! Tasks are in uninterruptible sleep at each sample.
//!
//! D state is not disk: the kernel stack tells whether they wait for block I/O, for a lock of the kernel, inside reclaim,
//! or because a rule holds them back. Parents that wait for a vfork child are not counted. Other tools have one number
//! for it, `b` of vmstat and `blocked` of sar -q: those that wait for block I/O.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "tasks-in-d-state",
    title: "tasks are in uninterruptible sleep (D state)",
    area: "disk",
    needs: &["tasks.d_io", "tasks.d_lock", "tasks.d_memory", "tasks.d_throttle", "sys.procs_blocked"],
    triggers: &[above(METRICS, 2.0), above(&["sys.procs_blocked"], 2.0).of_files()],
    observe,
    causes: &[effect("load-high", "the load average counts tasks in D state")],
    settings: settings::DIRTY_LIMITS,
    source: include_str!("tasks_in_d_state.rs"),
    ..Condition::SYMPTOM
};

const METRICS: &[&str] = &["tasks.d_io", "tasks.d_lock", "tasks.d_memory", "tasks.d_throttle"];

/// At least one task at every sample: somebody waits all the time.
const FLOOR: f64 = 1.0;

fn observe(view: &View<'_>) -> Observation {
    if view.system_sum(METRICS).is_none() && view.system("sys.procs_blocked").is_some() {
        return observe_level(view, &["sys.procs_blocked"], FLOOR, 3.0, "tasks that wait for block I/O:");
    }
    observe_level(view, METRICS, FLOOR, 3.0, "tasks in D state:")
}
