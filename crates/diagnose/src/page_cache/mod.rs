//! What can be told of the page cache from numbers of very different kinds: counters of reclaim, sizes of memory, hit
//! ratios, and what the block devices read.

pub mod flood;
pub mod returns;
pub mod thrash;

use mitra_model::report::Evidence;

use crate::device::{is_partition, is_stacked};
use crate::page_cache::returns::{EVICTION_PAGES_S, SEQUENTIAL_BYTES};
use crate::signal::Run;
use crate::view::View;

/// A quarter of the pages gone at once is no longer aging.
const FELL_BY: f64 = 0.25;

/// File pages leave memory.
pub struct Eviction {
    /// When, by the first witness below that there is.
    pub run: Run,
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
    /// Bytes that went, as far as sizes or rates tell.
    pub bytes: Option<f64>,
}

impl Eviction {
    /// Looks for eviction: by counters of reclaim, or by file pages that went although nobody dropped them.
    pub fn of(view: &View<'_>) -> Option<Eviction> {
        let mut runs: Vec<Run> = Vec::new();
        let mut evidence: Vec<Evidence> = Vec::new();
        let mut bytes: Option<f64> = None;
        let counters = [
            "vm.pgsteal_file",
            "vm.pgsteal_kswapd",
            "vm.pgsteal_direct",
            "vm.pgsteal",
            "vm.pgscan_kswapd",
            "vm.pgscan_direct",
        ];
        for metric in counters {
            if let Some(high) = view.high(metric, "", EVICTION_PAGES_S, 2.0) {
                evidence.extend(view.evidence(metric, "", high.run.span()));
                if metric.contains("steal") && bytes.is_none() {
                    bytes = Some(high.during * high.run.high_s * view.page_bytes());
                }
                runs.push(high.run);
            }
        }
        for metric in ["mem.active_file", "mem.cached"] {
            let Some(fall) = Fall::of(view, metric) else { continue };
            evidence.push(fall.evidence);
            bytes = bytes.or(Some(fall.bytes));
            runs.push(fall.run);
        }
        Some(Eviction { run: *runs.first()?, evidence, bytes })
    }
}

/// A size that fell by a quarter or more.
pub struct Fall {
    /// While it was low.
    pub run: Run,
    /// From, and down to.
    pub evidence: Evidence,
    /// By how much.
    pub bytes: f64,
    /// Seconds from the last sample that was not low to the lowest one.
    pub within_s: f64,
}

impl Fall {
    /// Whether the size fell, inside the view, below what it was before.
    pub fn of(view: &View<'_>, metric: &str) -> Option<Fall> {
        let signal = view.system(metric)?;
        let before = view.before(metric, "").or_else(|| signal.v.first().copied()).filter(|b| *b > 0.0)?;
        let low = signal.clone().map(|v| if v <= before * (1.0 - FELL_BY) { 1.0 } else { 0.0 });
        let run = *low.runs(1.0).first()?;
        let inside = signal.within(run.span());
        let lowest = (0..inside.v.len()).min_by(|a, b| inside.v[*a].total_cmp(&inside.v[*b]))?;
        let (least, at) = (inside.v[lowest], inside.t[lowest]);
        // The fall began after the last sample that had what there was before.
        let whole = |i: &usize| signal.t[*i] < run.span().since && signal.v[*i] >= 0.99 * before;
        let from = (0..signal.t.len()).rev().find(whole).map_or(run.onset, |i| signal.t[i]);
        let mut evidence = view.evidence(metric, "", run.span())?;
        evidence.before = Some(before);
        evidence.during = least;
        evidence.peak = None;
        Some(Fall { run, evidence, bytes: before - least, within_s: crate::words::between(from, at) })
    }
}

/// A device that is read.
pub struct Reader {
    /// Its name.
    pub device: String,
    /// While it was read most.
    pub run: Run,
    /// Bytes a second before; `None` where that is not known.
    pub before: Option<f64>,
    /// Bytes a second while it was read most.
    pub during: f64,
    /// Bytes that were read in that time.
    pub total: f64,
    /// Bytes of a mean request.
    pub request_bytes: Option<f64>,
    /// Seconds that a mean request took.
    pub await_s: Option<f64>,
    /// Seconds that one took before.
    pub await_before_s: Option<f64>,
}

/// Ten megabytes a second: below that a cache of a few gigabytes is not turned over within minutes.
const READ_BYTES_S: f64 = 1e7;

/// The devices that are read much, the one that is read most first; those that stand on others come last.
pub fn readers(view: &View<'_>, least_bytes_s: f64) -> Vec<Reader> {
    let mut list: Vec<Reader> = view
        .each("disk.read_bytes")
        .filter(|(device, _)| !is_partition(view, device))
        .filter_map(|(device, _)| reader(view, device, least_bytes_s))
        .collect();
    list.sort_by(|a, b| {
        (is_stacked(&a.device), b.during)
            .partial_cmp(&(is_stacked(&b.device), a.during))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    list
}

fn reader(view: &View<'_>, device: &str, least: f64) -> Option<Reader> {
    let signal = view.of("disk.read_bytes", device)?;
    let peak = signal.max()?;
    // While it does more than a tenth of its most: a reader begins long before it is at full speed.
    let high = view.high_signal(&signal, least.max(0.1 * peak), 2.0, None)?;
    let span = high.run.span();
    let mean = |metric: &str| view.of(metric, device).and_then(|s| s.within(span).mean());
    let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b);
    let await_of = |get: &dyn Fn(&str) -> Option<f64>| {
        ratio(get("disk.read_time"), get("disk.reads"))
            .or_else(|| ratio(get("disk.transfer_time"), get("disk.transfers")))
    };
    let written = mean("disk.write_bytes").unwrap_or(0.0);
    Some(Reader {
        device: device.to_owned(),
        before: view.before_span("disk.read_bytes", device, span),
        during: high.during,
        total: signal.within(span).total(),
        request_bytes: ratio(Some(high.during), mean("disk.reads"))
            .or_else(|| ratio(Some(high.during + written), mean("disk.transfers"))),
        await_s: await_of(&mean),
        await_before_s: await_of(&|metric| view.before_span(metric, device, span)),
        run: high.run,
    })
}

/// The device whose reading fills the cache: it does most of all reading, and reads a lot.
pub fn flooding_device(view: &View<'_>) -> Option<Reader> {
    let (stacked, mut list): (Vec<Reader>, Vec<Reader>) =
        readers(view, READ_BYTES_S).into_iter().partition(|r| is_stacked(&r.device));
    let sum = |list: &[Reader]| list.iter().map(|r| r.during).sum::<f64>();
    // What is read from a stacked device is read from its members too, where these were recorded.
    if let Some(top) = stacked.into_iter().next().filter(|top| top.during > 2.0 * sum(&list)) {
        list.insert(0, top);
    }
    let all = sum(&list);
    if list.is_empty() || list[0].during < 0.5 * all {
        return None;
    }
    Some(list.remove(0))
}

/// Devices other than one that had to read more than before while it was read: what was evicted is fetched again.
pub fn victims(view: &View<'_>, flood: &Reader) -> Vec<Reader> {
    // A megabyte a second of fetching again is a hundred small reads of a disk and keeps it busy.
    const AGAIN_BYTES_S: f64 = 1e6;
    readers(view, AGAIN_BYTES_S)
        .into_iter()
        .filter(|r| r.device != flood.device && (is_stacked(&flood.device) || !is_stacked(&r.device)))
        .filter(|r| r.during >= 4.0 * r.before.unwrap_or(0.0))
        .filter(|r| !is_same_reading(r, flood))
        .collect()
}

/// Whether a device is read by the flood itself: as a member of what is read, as a volume on top of it, as its mirror.
/// What was evicted is fetched again page by page; the flood comes in large requests, and in comparable amounts.
fn is_same_reading(other: &Reader, flood: &Reader) -> bool {
    // A stripe over more than twenty devices is rare.
    const MEMBER_SHARE: f64 = 0.05;
    other.request_bytes.is_none_or(|bytes| bytes >= SEQUENTIAL_BYTES)
        && other.during >= MEMBER_SHARE * flood.during
}

/// Seconds between the ends of two stretches; `None` where one of them lasts.
pub fn ends_apart_s(a: &Run, b: &Run) -> Option<f64> {
    (!a.lasts && !b.lasts).then(|| (a.end - b.end).abs() as f64 / 1e9)
}
