//! Some task waits for memory: in reclaim, in compaction, for a page that comes back from swap, or for a page of a file
//! that had been evicted while it was in use.
//!
//! Memory pressure is work that is done a second time, so little of it means more than much I/O pressure.

use crate::prelude::*;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "pressure-memory",
    title: "tasks wait for memory",
    area: "memory",
    needs: METRICS,
    triggers: &[
        // Waiting for memory costs more than waiting for a device: it is work done twice.
        above(METRICS, FLOOR),
    ],
    observe: |view| observe_level(view, METRICS, FLOOR, 3.0, "some task waited for memory for"),
    source: include_str!("pressure_memory.rs"),
    ..Condition::SYMPTOM
};

const METRICS: &[&str] = &["psi.memory_some"];

/// One twentieth of the time is far from what a machine with enough memory has, which is zero.
const FLOOR: f64 = 0.05;
