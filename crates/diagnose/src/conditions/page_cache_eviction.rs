//! Reclaim takes pages of files out of memory.
//!
//! That by itself is how a page cache works: pages that nobody wants make room. It matters when the pages were in use:
//! see `refaults` and `major-faults`. Counted for reclaim inside control groups too.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "page-cache-eviction",
    title: "pages of files are evicted",
    role: Role::Mechanism,
    area: "page cache",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("page_cache_eviction.rs"),
};

const METRICS: &[&str] = &["vm.pgsteal_file"];

/// Four megabytes a second: below that a machine trims its cache in passing.
const FLOOR: f64 = 1000.0;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, METRICS, FLOOR, 2.0, "pages of files were evicted:")
}
