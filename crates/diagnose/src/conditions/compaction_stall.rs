//! Tasks that ask for several adjoining pages have to move others' pages out of the way first, and wait for that.
//!
//! kcompactd does the same in the background without anybody waiting; only stalls count here.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "compaction-stall",
    title: "tasks move pages to make room for large ones",
    role: Role::Mechanism,
    area: "reclaim",
    needs: &["vm.compact_stall", "vm.compact_fail", "probe.compaction_time"],
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("compaction_stall.rs"),
};

/// One stall takes a millisecond or more: from ten a second on somebody notices.
const STALLS_S: f64 = 10.0;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, &["vm.compact_stall"], STALLS_S, 2.0, "stalls for compaction")
}
