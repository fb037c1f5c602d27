//! Pages of files that were in active use are evicted.
//!
//! The kernel keeps pages that were used twice on an active list and evicts from the inactive one. When the active
//! list shrinks fast, reclaim has run through the inactive pages: the working set itself goes.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "active-file-eviction",
    title: "file pages in active use are evicted",
    role: Role::Mechanism,
    area: "page cache",
    needs: &["mem.active_file", "vm.pgsteal_file"],
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("active_file_eviction.rs"),
};

/// A quarter of the active pages gone is no longer aging.
const FELL_BY: f64 = 0.25;

fn observe(view: &View<'_>) -> Observation {
    let Some(active) = view.system("mem.active_file") else {
        return Observation::CannotTell("mem.active_file".to_owned());
    };
    let Some(before) = view.before("mem.active_file", "").or_else(|| active.v.first().copied()) else {
        return Observation::CannotTell("mem.active_file before".to_owned());
    };
    let least = active.v.iter().copied().fold(f64::INFINITY, f64::min);
    let fallen = active.clone().map(|v| if v <= before * (1.0 - FELL_BY) { 1.0 } else { 0.0 });
    match fallen.run(1.0, 1.0) {
        Some(run) if before > 0.0 => {
            let mut finding = view.finding(&run);
            finding.statement = format!(
                "active pages of files fell from {} to {}",
                words::bytes(before),
                words::bytes(least)
            );
            finding.evidence.push(view.evidence_of("mem.active_file", "", Some(before), least));
            Observation::Active(Box::new(finding))
        }
        _ => Observation::Inactive(format!(
            "active pages of files went from {} to {} at the least",
            words::bytes(before),
            words::bytes(least)
        )),
    }
}
