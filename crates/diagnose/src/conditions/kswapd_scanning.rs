//! kswapd runs: a zone fell below its low watermark and pages are freed in the background.
//!
//! It is a messenger. It costs CPU of its own, but what matters is who takes the memory.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "kswapd-scanning",
    title: "kswapd looks for pages to free",
    role: Role::Mechanism,
    area: "reclaim",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("kswapd_scanning.rs"),
};

const METRICS: &[&str] = &["vm.pgscan_kswapd"];

/// Four megabytes a second: below that a machine trims its cache in passing.
const FLOOR: f64 = 1000.0;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, METRICS, FLOOR, 2.0, "kswapd scanned pages:")
}
