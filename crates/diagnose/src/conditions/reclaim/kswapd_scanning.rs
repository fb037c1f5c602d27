//! kswapd runs: a zone fell below its low watermark and pages are freed in the background.
//!
//! It is a messenger. It costs CPU of its own, but what matters is what takes the memory.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "kswapd-scanning",
    title: "kswapd looks for pages to free",
    area: "reclaim",
    needs: METRICS,
    triggers: &[
        // With what direct reclaim looks at: four megabytes a second.
        above(&["vm.pgscan_kswapd", "vm.pgscan_direct"], FLOOR),
    ],
    observe: |view| observe_level(view, METRICS, FLOOR, 2.0, "kswapd scanned pages:"),
    causes: &[
        effect("page-cache-eviction", "kswapd frees file pages first"),
        effect("direct-reclaim", "when kswapd does not keep up, tasks that allocate have to reclaim"),
        effect("mass-reclaim", "kswapd frees until its watermark is reached again"),
    ],
    settings: Settings::new("more memory has to stay free, or is set aside", settings::KEPT_FREE),
    source: include_str!("kswapd_scanning.rs"),
    ..Condition::MECHANISM
};

const METRICS: &[&str] = &["vm.pgscan_kswapd"];

/// Four megabytes a second: below that a machine trims its cache in passing.
const FLOOR: f64 = 1000.0;
