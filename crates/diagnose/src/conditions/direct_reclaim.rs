//! Tasks that allocate have to free memory first, because kswapd does not keep up.
//!
//! They stand still for as long as that takes. It shows as latency in whoever happens to allocate.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "direct-reclaim",
    title: "tasks free memory themselves",
    role: Role::Mechanism,
    area: "reclaim",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("direct_reclaim.rs"),
};

const METRICS: &[&str] = &["vm.pgscan_direct"];

/// A task scans at least 32 pages (SWAP_CLUSTER_MAX) at a time: three stalls a second.
const FLOOR: f64 = 100.0;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, METRICS, FLOOR, 1.0, "tasks scanned pages themselves:")
}
