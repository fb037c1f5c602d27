//! Reclaim takes file pages out of memory.
//!
//! That by itself is how a page cache works: pages that nobody wants make room. It matters when the pages were in use:
//! see `refaults` and `major-faults`. Counted for reclaim inside cgroups too.

use crate::page_cache::Eviction;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "page-cache-eviction",
    title: "file pages are evicted",
    area: "page cache",
    needs: &[
        "vm.pgsteal_file",
        "vm.pgsteal",
        "vm.pgsteal_kswapd",
        "vm.pgsteal_direct",
        "vm.pgscan_kswapd",
        "vm.pgscan_direct",
        "mem.active_file",
        "mem.cached",
    ],
    triggers: &[above(&["vm.pgsteal"], FLOOR).of_files()],
    observe,
    causes: &[
        effect("active-file-eviction", "when inactive pages run out, active ones go"),
        effect("refaults", "evicted pages that are in use come back"),
        effect("major-faults", "evicted pages of mapped files come back by a fault"),
    ],
    settings: Settings::new("file pages go to make room", settings::KEPT_FREE_OR_LOCAL),
    source: include_str!("page_cache_eviction.rs"),
    ..Condition::MECHANISM
};

const METRICS: &[&str] = &["vm.pgsteal_file"];

/// Four megabytes a second: below that a machine trims its cache in passing.
const FLOOR: f64 = 1000.0;

fn observe(view: &View<'_>) -> Observation {
    if view.system("vm.pgsteal_file").is_some() {
        return observe_level(view, METRICS, FLOOR, 2.0, "file pages were evicted:");
    }
    let Some(eviction) = Eviction::of(view) else {
        let known = ["vm.pgsteal", "vm.pgsteal_kswapd", "vm.pgscan_kswapd", "mem.cached"];
        return match known.iter().find_map(|m| view.system(m)) {
            Some(_) => Observation::inactive("neither reclaim counters nor cache sizes show evictions"),
            None => Observation::cannot_tell("vm.pgsteal_file; sar -B 1"),
        };
    };
    let mut finding = view.finding(&eviction.run);
    let evicted = eviction.bytes.map(|b| format!(": about {}", words::bytes(b))).unwrap_or_default();
    finding.statement = format!("file pages left memory{evicted}");
    finding.evidence = eviction.evidence;
    finding.active()
}
