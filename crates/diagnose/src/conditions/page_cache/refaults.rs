//! File pages come back soon after they were evicted: they were in use.
//!
//! The kernel leaves a shadow entry for an evicted page and counts a refault when the page is read again while the entry
//! is still there. Something other than reclaim can evict too (DAMON, drop_caches): refaults without any steal are no
//! sign of memory pressure.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "refaults",
    title: "evicted pages are read back (refaults)",
    area: "page cache",
    needs: METRICS,
    triggers: &[
        // Eight megabytes a second that come back.
        above(&["vm.workingset_refault_file"], 2000.0),
    ],
    observe: |view| observe_level(view, METRICS, FLOOR, 3.0, "file pages came back after eviction:"),
    causes: &[
        effect("major-faults", "a page of a mapped file comes back by a major fault"),
        effect("disk-saturated", "pages that come back are read from the device"),
        effect(
            "pressure-memory",
            "waiting for a page that was evicted while in use counts as memory pressure",
        ),
        effect("pressure-io", "waiting for a page is waiting for the device"),
    ],
    settings: Settings::new("file pages went to make room", settings::KEPT_FREE_OR_LOCAL),
    source: include_str!("refaults.rs"),
    ..Condition::MECHANISM
};

const METRICS: &[&str] = &["vm.workingset_refault_file"];

/// Four megabytes a second. At a tenth of a millisecond a page, what a fast SSD takes, a tenth of a task's
/// time goes into waiting.
const FLOOR: f64 = 1000.0;
