//! Memory is freed by hundreds of megabytes a second: free memory rises while the page cache falls.
//!
//! Reclaim that goes on for seconds at that rate keeps CPUs in the kernel: it walks lists under locks, and shrinks slab
//! caches object by object. A process that exits frees as fast, but its own pages: then the page cache does not fall.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "mass-reclaim",
    title: "bulk memory release of hundreds of megabytes a second",
    area: "reclaim",
    needs: &["mem.free_change", "mem.cached_change", "mem.free", "mem.cached", "mem.sreclaimable"],
    observe,
    causes: &[effect(
        "scheduling-stall",
        "reclaim keeps the CPUs in the kernel and holds locks that lookups need",
    )],
    settings: Settings::new("file pages go to make room", settings::KEPT_FREE),
    source: include_str!("mass_reclaim.rs"),
    ..Condition::MECHANISM
};

/// A hundred megabytes a second: reclaim that keeps up with ordinary demand frees what is allocated, so that free memory
/// does not rise at all.
const FLOOR_BYTES_S: f64 = 1e8;
/// What goes has to be cache, not the memory of a process that ended.
const CACHE_SHARE: f64 = 0.3;

fn observe(view: &View<'_>) -> Observation {
    let page = view.page_bytes();
    let slope = |metric: &str| view.system(metric).and_then(|s| s.slope());
    let free = view.system("mem.free_change").map(|s| s.map(|v| v * page)).or_else(|| slope("mem.free"));
    let Some(free) = free else {
        return Observation::cannot_tell("how free memory moves: sar -R 1, sar -r 1");
    };
    let cached =
        view.system("mem.cached_change").map(|s| s.map(|v| v * page)).or_else(|| slope("mem.cached"));
    let slab = slope("mem.sreclaimable");
    let Some(cached) = cached.or_else(|| slab.clone()) else {
        return Observation::cannot_tell("how the page cache moves: sar -R 1, sar -r 1");
    };
    let falls = match slab {
        Some(slab) => cached.zip(&slab, |a, b| a.min(0.0) + b.min(0.0)),
        None => cached,
    };
    let joint = free.zip(&falls, |up, down| if -down >= CACHE_SHARE * up { up } else { 0.0 });
    let Some(high) = view.high_signal(&joint, FLOOR_BYTES_S, 3.0, None) else {
        return Observation::Inactive(format!(
            "free memory rose by {}/s at most while cache fell",
            words::bytes(joint.max().unwrap_or(0.0).max(0.0))
        ));
    };
    let span = high.run.span();
    let mut finding = view.finding(&high.run);
    let down = falls.within(span).mean().unwrap_or(0.0);
    finding.statement = format!(
        "memory was freed at {}/s (at most {}/s) for {} while the cache fell by {}/s",
        words::bytes(high.during),
        words::bytes(high.peak),
        words::seconds(high.run.high_s),
        words::bytes(-down)
    );
    finding.prove(view, &["mem.free_change", "mem.cached_change", "mem.free", "mem.cached"], "", span);
    finding.active()
}
