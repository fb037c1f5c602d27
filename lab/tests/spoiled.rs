//! Recordings whose numbers were spoiled: metrics that are missing, wrong by a factor, late, of other rows or of another machine,
//! with holes. Whatever is told of them, no report contradicts itself or breaks the contract of its JSON.
//!
//! `SPOIL_SECONDS=3600` goes on for so long, with other seeds each time; `SPOIL_SEED=7` is that one again.

#[expect(dead_code, reason = "each test program uses its own part of the support")]
mod support;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mitra_archive::{Query, Reader};
use mitra_diagnose::{History, Request, detail_metrics, explain, scan_metrics};
use mitra_lab::draw::Draw;
use mitra_lab::report::check_contract;
use mitra_model::time::SECOND;
use mitra_model::{Series, SeriesSet, Span, lookup};

use support::{folders, shipped, with_each};

/// As many are tried where nobody asks for more.
const SEEDS: u64 = 60;

/// What a recording holds of its window, and before.
struct Recording {
    key: String,
    window: Span,
    set: SeriesSet,
}

fn read(folder: &Path) -> Recording {
    let run = shipped(folder).run;
    let window =
        Span { since: run.since_s.floor() as i64 * SECOND, until: run.until_s.ceil() as i64 * SECOND };
    let reader = Reader::open(&folder.join("archive")).unwrap();
    let all = reader.span().unwrap_or(window);
    let wanted = detail_metrics().into_iter().chain(scan_metrics());
    let set = reader.read(&Query::new(all, wanted.collect())).unwrap();
    Recording { key: run.key, window, set }
}

/// The values of a metric of one row, spoiled.
fn spoiled(values: &[f64], draw: &mut Draw) -> Vec<f64> {
    let n = values.len().max(1);
    let at = draw.number() as usize % n;
    let mut new = values.to_vec();
    match draw.number() % 6 {
        0 => {
            let factors = [0.0, 0.01, 0.3, 3.0, 30.0, 1e4];
            let factor = factors[draw.number() as usize % factors.len()];
            new.iter_mut().for_each(|value| *value *= factor);
        }
        1 => new.iter_mut().skip(at).take(n / 4).for_each(|value| *value = f64::NAN),
        2 => new.rotate_right(at % 20),
        3 => new.iter_mut().skip(at).take(3).for_each(|value| *value = *value * 1000.0 + 1.0),
        4 => new.reverse(),
        _ => new.fill(values.get(at).copied().unwrap_or(f64::NAN)),
    }
    new
}

fn spoil(one: &Recording, other: &Recording, seed: u64) -> SeriesSet {
    let mut set = SeriesSet::default();
    (set.host, set.source) = (one.set.host.clone(), one.set.source.clone());
    let mut draw = Draw::new(seed, "how much");
    set.events = one.set.events.iter().filter(|_| !draw.number().is_multiple_of(5)).cloned().collect();
    // Of a thousand metrics so many are spoiled, and so many are those of the other machine.
    let (many, mixed) = (draw.between(5, 500), draw.between(1, 300));
    let others: BTreeMap<&str, _> = other.set.metrics().collect();
    for (name, rows) in one.set.metrics() {
        let metric = lookup(name).unwrap();
        let mut draw = Draw::new(seed, name);
        let (is_spoiled, is_mixed) = (draw.number() % 1000 < many, draw.number() % 1000 < mixed);
        if is_spoiled && draw.number().is_multiple_of(4) {
            continue;
        }
        let turned = usize::from(is_spoiled && draw.number().is_multiple_of(5));
        let values_of = rows.values().cycle().skip(turned);
        for ((row, series), from) in rows.iter().zip(values_of) {
            let mut values = if turned == 0 { series.values.to_vec() } else { from.values.to_vec() };
            if is_mixed && let Some(theirs) = others.get(name).and_then(|rows| rows.values().next()) {
                values = theirs.values.iter().copied().cycle().take(values.len()).collect();
            } else if is_spoiled {
                values = spoiled(&values, &mut draw);
            }
            values.resize(series.values.len(), f64::NAN);
            let series =
                Series { axis: Arc::clone(&series.axis), start: series.start, values: values.into() };
            set.insert(metric, Arc::clone(row), series);
        }
    }
    for (name, rows) in one.set.text_metrics() {
        let is_gone = Draw::new(seed, name).number() % 1000 < many / 2;
        for (row, text) in rows.iter().filter(|_| !is_gone) {
            set.insert_text(lookup(name).unwrap(), Arc::clone(row), text.clone());
        }
    }
    set
}

/// The window, or a part of it, or what comes after.
fn asked(window: Span, draw: &mut Draw) -> Span {
    let length = window.until - window.since;
    let mut part = || length / 10 * (draw.number() % 10) as i64;
    let (first, second, third) = (part(), part(), part());
    match first % 4 {
        0 => Span { since: window.since + second, until: window.until + third },
        1 => {
            Span { since: window.since + second.min(third), until: window.since + second.max(third) + SECOND }
        }
        _ => window,
    }
}

/// How many incidents the report of a spoiled recording has; an error is what is wrong with it.
fn told(recordings: &[Recording], seed: u64) -> Result<usize, String> {
    let mut draw = Draw::new(seed, "which");
    let mut any = || &recordings[draw.number() as usize % recordings.len()];
    let (one, other) = (any(), any());
    let told = catch_unwind(AssertUnwindSafe(|| {
        let set = spoil(one, other, seed);
        let window = asked(one.window, &mut Draw::new(seed, "when"));
        let request = Request { window, baseline: None, history: History::default() };
        let report = explain(&request, &set, &|_| Ok(set.clone()));
        let mut faults = report.contradictions.clone();
        faults.extend(
            serde_json::to_value(&report)
                .map_err(|e| e.to_string())
                .and_then(|json| check_contract(&json))
                .err(),
        );
        (report.incidents.len(), faults)
    }));
    match told {
        Ok((incidents, faults)) if faults.is_empty() => Ok(incidents),
        Ok((_, faults)) => Err(faults.join("; ")),
        Err(panic) => Err(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned())),
    }
}

#[test]
fn no_report_of_spoiled_numbers_contradicts_itself() {
    let given = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let mut recordings = with_each(&folders(), read);
    recordings.sort_by(|a, b| a.key.cmp(&b.key));
    let (first, until) = match (given("SPOIL_SEED"), given("SPOIL_SECONDS")) {
        (Some(seed), _) => (seed, seed + 1),
        (None, Some(_)) => {
            (SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()) << 20, u64::MAX)
        }
        (None, None) => (0, SEEDS),
    };
    let ends = given("SPOIL_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (next, with_incidents) = (AtomicU64::new(first), AtomicU64::new(0));
    let faults: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= until || ends.is_some_and(|ends| Instant::now() > ends) {
                    return found;
                }
                match told(&recordings, seed) {
                    Ok(incidents) => {
                        _ = with_incidents.fetch_add(u64::from(incidents > 0), Ordering::Relaxed)
                    }
                    Err(fault) => found.push(format!("SPOIL_SEED={seed}: {fault}")),
                }
            }
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (all, with_incidents) = (next.into_inner() - first, with_incidents.into_inner());
    println!("{all} spoiled recordings, {with_incidents} with incidents");
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
    assert!(all == 1 || 4 * with_incidents > all, "most are no longer of any incident");
}
