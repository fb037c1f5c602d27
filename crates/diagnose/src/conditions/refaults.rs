//! Pages of files come back soon after they were evicted: they were in use.
//!
//! The kernel leaves a shadow entry for an evicted page and counts a refault when the page is read again while the entry
//! is still there. Something other than reclaim can evict too (DAMON, drop_caches): refaults without any steal are no
//! sign of memory pressure.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "refaults",
    title: "evicted pages come back",
    role: Role::Mechanism,
    area: "page cache",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("refaults.rs"),
};

const METRICS: &[&str] = &["vm.workingset_refault_file"];

/// Four megabytes a second. At a tenth of a millisecond a page, what a fast SSD takes, a tenth of a task's
/// time goes into waiting.
const FLOOR: f64 = 1000.0;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, METRICS, FLOOR, 3.0, "pages of files came back after eviction:")
}
