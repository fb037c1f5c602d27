//! Some task waits for memory: in reclaim, in compaction, for a page that comes back from swap, or for a page of a file
//! that had been evicted while it was in use.
//!
//! Memory pressure is work that is done a second time, so little of it means more than much I/O pressure.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "pressure-memory",
    title: "memory pressure (PSI): tasks wait for memory",
    area: "memory",
    needs: &["psi.memory_some", "tasks.d_memory"],
    triggers: &[
        // Waiting for memory costs more than waiting for a device: it is work done twice.
        above(METRICS, FLOOR),
    ],
    observe,
    source: include_str!("pressure_memory.rs"),
    ..Condition::SYMPTOM
};

const METRICS: &[&str] = &["psi.memory_some"];

/// One twentieth of the time is far from what a machine with enough memory has, which is zero.
const FLOOR: f64 = 0.05;
/// A fifth of the time, for more than a burst, and some task stands still in reclaim: pages that come back from swap after a
/// shortage count as pressure too.
const SEVERE: f64 = 0.2;
const STALLED: f64 = 0.5;
const SEVERE_S: f64 = 5.0;

fn observe(view: &View<'_>) -> Observation {
    let mut found =
        observe_level(view, METRICS, FLOOR, 3.0, "memory pressure (PSI): some task waited for memory for");
    if let Observation::Active(finding) = &mut found {
        let is_stalled = |high: &High| {
            let stalled =
                view.system("tasks.d_memory").and_then(|tasks| tasks.within(high.run.span()).mean());
            stalled.is_some_and(|tasks| tasks >= STALLED)
        };
        let severe = view.high(METRICS[0], "", SEVERE, SEVERE_S).filter(is_stalled);
        finding.is_severe = severe.is_some();
        finding.loss_s = severe.and_then(|high| view.excess(METRICS, high.run.span()));
    }
    found
}
