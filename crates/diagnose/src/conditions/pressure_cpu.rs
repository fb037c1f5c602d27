//! Some task waits for a CPU for a large part of the time.
//!
//! PSI counts the share of time in which at least one task was runnable and not running. It says nothing of how many
//! waited: one thread of a thousand that waits all the time is 100 %.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "pressure-cpu",
    title: "tasks wait for a CPU",
    role: Role::Symptom,
    area: "cpu",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("pressure_cpu.rs"),
};

const METRICS: &[&str] = &["psi.cpu_some"];

/// A task that waits for a fifth of the time takes a quarter longer.
const FLOOR: f64 = 0.2;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, METRICS, FLOOR, 3.0, "some task waited for a CPU for")
}
