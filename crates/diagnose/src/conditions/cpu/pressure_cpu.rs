//! Some task waits for a CPU for a large part of the time.
//!
//! PSI counts the share of time in which at least one task was runnable and not running. It says nothing of how many
//! waited: one thread of a thousand that waits all the time is 100 %.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "pressure-cpu",
    title: "CPU pressure (PSI): tasks wait for a CPU",
    area: "cpu",
    needs: METRICS,
    triggers: &[
        // Somebody waits for a quarter of the time.
        above(METRICS, 0.25),
    ],
    observe: |view| {
        observe_level(view, METRICS, FLOOR, 3.0, "CPU pressure (PSI): some task waited for a CPU for")
    },
    source: include_str!("pressure_cpu.rs"),
    ..Condition::SYMPTOM
};

const METRICS: &[&str] = &["psi.cpu_some"];

/// A task that waits for a fifth of the time takes a quarter longer.
const FLOOR: f64 = 0.2;
