//! Reclaim takes pages of files out of memory.
//!
//! That by itself is how a page cache works: pages that nobody wants make room. It matters when the pages were in use:
//! see `refaults` and `major-faults`. Counted for reclaim inside control groups too.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::page_cache::Eviction;
use crate::view::{View, observe_level};
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "page-cache-eviction",
    title: "pages of files are evicted",
    role: Role::Mechanism,
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
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("page_cache_eviction.rs"),
};

const METRICS: &[&str] = &["vm.pgsteal_file"];

/// Four megabytes a second: below that a machine trims its cache in passing.
const FLOOR: f64 = 1000.0;

fn observe(view: &View<'_>) -> Observation {
    if view.system("vm.pgsteal_file").is_some() {
        return observe_level(view, METRICS, FLOOR, 2.0, "pages of files were evicted:");
    }
    let Some(eviction) = Eviction::of(view) else {
        let known = ["vm.pgsteal", "vm.pgsteal_kswapd", "vm.pgscan_kswapd", "mem.cached"];
        return match known.iter().find_map(|m| view.system(m)) {
            Some(_) => {
                Observation::Inactive("neither counters of reclaim nor sizes tell of eviction".to_owned())
            }
            None => Observation::CannotTell("vm.pgsteal_file; sar -B 1".to_owned()),
        };
    };
    let mut finding = view.finding(&eviction.run);
    let evicted = eviction.bytes.map(|b| format!(": about {}", words::bytes(b))).unwrap_or_default();
    finding.statement = format!("pages of files left memory{evicted}");
    finding.evidence = eviction.evidence;
    Observation::Active(Box::new(finding))
}
