//! A thrash told by hit ratios: what is left when the kernel's refault counters were not recorded.
//!
//! The cache is as large as memory allows, much of what is asked for is not in it, and the device that has to deliver it
//! is busy with that. That the data are *re-read* shows only in a comparison: a run whose data fit and whose hits are
//! nearly all. Without one a first reading of cold data looks the same.

use super::{Reader, readers};
use crate::condition::{Finding, Observation};
use crate::page_cache::returns::{EVICTION_PAGES_S, THRASH_PER_STEAL};
use crate::saturated;
use crate::view::View;
use crate::words;

/// Most of memory, and nothing left: the cache cannot grow.
const FULL_SHARE: f64 = 0.5;
/// A few per cent stay free for the watermarks on any machine.
const FREE_SHARE: f64 = 0.05;
/// Hits of a cache that holds what is asked for.
const FITS: f64 = 0.95;

/// Looks.
pub fn observe(view: &View<'_>) -> Observation {
    let Some(misses) = view.system("cache.misses") else {
        return Observation::needs_as(
            "vm.workingset_refault_file, or the hit ratio of the page cache (cachestat 1)",
            &["vm.workingset_refault_file"],
        );
    };
    let Some(high) = view.high_signal(&misses, EVICTION_PAGES_S, 2.0, None) else {
        return Observation::Inactive(format!(
            "{} pages/s at most were not in the page cache",
            words::count(misses.max().unwrap_or(0.0))
        ));
    };
    let Some(hits) = view.system("cache.hits") else {
        return Observation::cannot_tell("hits of the page cache (cachestat 1)");
    };
    let ratio = hits.zip(&misses, |hits, misses| hits / (hits + misses));
    // A case is all of its samples: the first one of a trace has often seen little.
    let span = if view.is_case { high.run.seen } else { high.run.span() };
    let within = ratio.within(span);
    let (Some(mean), Some(best)) = (within.mean(), within.max()) else {
        return Observation::cannot_tell("hits of the page cache (cachestat 1)");
    };
    let worst = within.v.iter().copied().fold(f64::INFINITY, f64::min);
    if mean > 1.0 - THRASH_PER_STEAL {
        return Observation::Inactive(format!(
            "{} of what was asked for was in the page cache",
            words::percent(mean)
        ));
    }
    let Some(full) = Full::of(view) else {
        return Observation::cannot_tell("how much of memory the page cache has: free -m, /proc/meminfo");
    };
    if !full.is_full {
        return Observation::Inactive(format!(
            "{} of memory are free: the page cache could grow, so the misses are first reads",
            words::bytes(full.free)
        ));
    }
    let mut finding = view.finding(&high.run);
    let reader = readers(view, 1e6).into_iter().next();
    finding.culprit.device = reader.as_ref().map(|r| r.device.clone());
    finding.statement = format!(
        "a working set does not fit the page cache of {} (memory {}): {} to {} of what was asked for was in it{}",
        words::bytes(full.cache),
        full.memory.map_or_else(|| "unknown".to_owned(), words::bytes),
        words::percent(worst),
        words::percent(best),
        reader.as_ref().map(from).unwrap_or_default()
    );
    finding.prove(view, &["cache.hit_ratio", "cache.misses", "cache.hits", "mem.cached"], "", span);
    for metric in ["mem.buff_cache", "mem.free", "mem.total"] {
        finding.evidence.extend(view.reading_evidence(metric, ""));
    }
    if let Some(reader) = &reader {
        finding.prove(view, &["disk.reads", "disk.read_bytes"], &reader.device, reader.run.span());
    }
    judge(view, &mut finding, reader.as_ref());
    finding.active()
}

fn from(reader: &Reader) -> String {
    format!("; the rest came from {} at {}/s", reader.device, words::bytes(reader.during))
}

/// How sure it is, and what must be said beside it.
fn judge(view: &View<'_>, finding: &mut Finding, reader: Option<&Reader>) {
    let good = view.baseline.and_then(|b| {
        let (hits, misses) =
            (view.base_set.system("cache.hits")?.mean(b)?, view.base_set.system("cache.misses")?.mean(b)?);
        Some(hits / (hits + misses))
    });
    finding.confidence = match good {
        Some(good) if good >= FITS => {
            finding.remarks.push(format!(
                "in the baseline {} of what was asked for was in the page cache: the same work re-reads its data, and \
                 here they no longer fit",
                words::percent(good)
            ));
            0.85
        }
        _ => {
            finding.remarks.push(
                "data that are read for the first time miss the cache too; compare with a run whose data fit, or look at \
                 workingset_refault_file in /proc/vmstat"
                    .to_owned(),
            );
            0.55
        }
    };
    if let Some(reader) = reader
        && let Some(disk) = saturated::all(view).into_iter().find(|d| d.device == reader.device)
    {
        finding.remarks.extend(saturated::finding(view, &disk).remarks);
        finding.confidence += 0.05;
    }
}

/// Whether the cache has all that it can get.
struct Full {
    cache: f64,
    free: f64,
    memory: Option<f64>,
    is_full: bool,
}

impl Full {
    fn of(view: &View<'_>) -> Option<Full> {
        let cache = view.reading("mem.cached", "").or_else(|| view.reading("mem.buff_cache", ""))?;
        let free = view.reading("mem.free", "")?;
        let memory = view.memory_bytes();
        let is_full = memory.is_none_or(|m| cache >= FULL_SHARE * m && free <= FREE_SHARE * m);
        Some(Full { cache, free, memory, is_full })
    }
}
