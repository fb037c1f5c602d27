//! Some task waits for memory: in reclaim, in compaction, for a page that comes back from swap, or for a page of a file
//! that had been evicted while it was in use.
//!
//! Memory pressure is work that is done a second time, so little of it means more than much I/O pressure.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "pressure-memory",
    title: "tasks wait for memory",
    role: Role::Symptom,
    area: "memory",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("pressure_memory.rs"),
};

const METRICS: &[&str] = &["psi.memory_some"];

/// One twentieth of the time is far from what a machine with enough memory has, which is zero.
const FLOOR: f64 = 0.05;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, METRICS, FLOOR, 3.0, "some task waited for memory for")
}
