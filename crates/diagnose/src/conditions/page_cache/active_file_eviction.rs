//! File pages that were in active use are evicted.
//!
//! The kernel keeps pages that were used twice on an active list and evicts from the inactive one. When the active
//! list shrinks fast, reclaim has run through the inactive pages: the working set itself goes.

use crate::page_cache::Fall;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "active-file-eviction",
    title: "file pages in active use are evicted",
    area: "page cache",
    needs: &["mem.active_file", "vm.pgsteal_file"],
    observe,
    causes: &[effect("refaults", "active pages are in use")],
    source: include_str!("active_file_eviction.rs"),
    ..Condition::MECHANISM
};

fn observe(view: &View<'_>) -> Observation {
    let Some(active) = view.system("mem.active_file") else {
        return Observation::needs(&["mem.active_file"]);
    };
    match Fall::of(view, "mem.active_file") {
        Some(fall) => {
            let mut finding = view.finding(&fall.run);
            finding.statement = format!(
                "active file pages fell from {} to {} within {}",
                words::bytes(fall.evidence.before.unwrap_or(0.0)),
                words::bytes(fall.evidence.during),
                words::seconds(fall.within_s)
            );
            finding.evidence.push(fall.evidence);
            finding.active()
        }
        None => Observation::Inactive(format!(
            "active file pages went from {} to {} at the least",
            words::bytes(active.v.first().copied().unwrap_or(0.0)),
            words::bytes(active.v.iter().copied().fold(f64::INFINITY, f64::min))
        )),
    }
}
