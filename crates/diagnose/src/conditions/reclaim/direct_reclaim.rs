//! Tasks that allocate have to free memory first, because kswapd does not keep up.
//!
//! They stand still for as long as that takes. It shows as latency in the tasks that happen to allocate.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "direct-reclaim",
    title: "tasks free memory themselves (direct reclaim)",
    area: "reclaim",
    needs: METRICS,
    observe: |view| observe_level(view, METRICS, FLOOR, 1.0, "tasks scanned pages themselves:"),
    causes: &[
        effect("page-cache-eviction", "direct reclaim frees file pages first"),
        effect("pressure-memory", "tasks that allocate wait"),
        effect("mass-reclaim", "many tasks reclaim at once"),
        effect("scheduling-stall", "a task that allocates reclaims instead of doing its work"),
        effect("service-slow", "a server that allocates reclaims before it answers"),
    ],
    settings: Settings::new("more memory has to stay free, or is set aside", settings::KEPT_FREE_OR_LOCAL),
    suspicions: &[Suspicion {
        rank: 130,
        name: "memory-stall",
        when: "psi.memory_full > 10% or probe.direct_reclaim_time > 20% for 2s",
        arm: &["offcpu d-only"],
        why: "For a tenth of the time no task makes progress because memory has to be reclaimed first.",
        ..Suspicion::NONE
    }],
    source: include_str!("direct_reclaim.rs"),
    ..Condition::MECHANISM
};

const METRICS: &[&str] = &["vm.pgscan_direct"];

/// A task scans at least 32 pages (SWAP_CLUSTER_MAX) at a time: three stalls a second.
const FLOOR: f64 = 100.0;
