//! What is imported is read back.

use std::convert::Infallible;
use std::sync::Arc;

use mitra_archive::{Options, Query, Reader, Writer};
use mitra_model::{Axis, EventKind, HostInfo, Series, Span};

use super::*;

/// 2026-11-21T00:00:00Z.
const DAY: i64 = 1_795_219_200 * SECOND;

fn put_series(set: &mut SeriesSet, metric: &str, row: &str, start: i64, step_s: i64, values: &[f64]) {
    let t = (1..=values.len() as i64).map(|i| start + i * step_s * SECOND).collect();
    let axis = Arc::new(Axis { t, dt: vec![step_s as f64; values.len()], places: Vec::new() });
    set.insert(lookup(metric).unwrap(), row.into(), Series { axis, start: 0, values: values.into() });
}

fn text(set: &mut SeriesSet, metric: &str, row: &str, text: &str) {
    let changes = vec![(Era::Fact.zero(), Some(text.into()))];
    set.insert_text(lookup(metric).unwrap(), row.into(), TextSeries { changes, ..TextSeries::default() });
}

/// Ten minutes by the ten seconds, a finer file with other times, and things without a date.
fn set() -> SeriesSet {
    let mut set = SeriesSet::default();
    let rates: Vec<f64> = (0..60).map(|i| 100.0 + 3.7 * f64::from(i % 7)).collect();
    put_series(&mut set, "vm.pgmajfault", "", DAY, 10, &rates);
    put_series(&mut set, "disk.io_time", "sda", DAY, 10, &[0.25; 60]);
    put_series(&mut set, "disk.read_bytes", "sda", DAY + 3 * SECOND, 7, &[512_000.0; 60]);
    put_series(&mut set, "mem.free", "", DAY + 500_000_000, 10, &[1e9; 60]);
    put_series(&mut set, "task.minflt", "4242@0", DAY, 10, &[12.5; 60]);
    put_series(&mut set, "task.tgid", "4242@0", Era::Fact.zero(), 1, &[4242.0]);
    text(&mut set, "task.comm", "4242@0", "java");
    put_series(&mut set, "vm.pgfault", "", Era::Day.zero(), 10, &[5.0; 6]);
    set.events.push(Event::at(DAY + 45 * SECOND, EventKind::KernelLog { priority: 4, text: "late".into() }));
    set.events
        .push(Event::at(DAY + 9000 * SECOND, EventKind::KernelLog { priority: 4, text: "alone".into() }));
    set.events
        .push(Event::at(Era::Boot.zero() + 5, EventKind::KernelLog { priority: 4, text: "lost".into() }));
    set
}

fn stored(sets: &[&SeriesSet]) -> (tempfile::TempDir, Reader, Imported) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        max_age: std::time::Duration::from_secs(1 << 40),
        max_bytes: u64::MAX / 4,
        ..Options::default()
    };
    let mut writer = Writer::open(dir.path(), &HostInfo::default(), options).unwrap();
    let done = import(sets, &mut |frame, strings| writer.append(frame, strings)).unwrap();
    writer.finish().unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader, done)
}

fn read(reader: &Reader, metric: &str) -> SeriesSet {
    reader.read(&Query::new(Span::ALL, vec![lookup(metric).unwrap(), lookup("task.comm").unwrap()])).unwrap()
}

/// The mean rate over the interval that ends at each moment of the original, as the archive has it.
fn rates_again(original: &Series, again: &Series) -> Vec<(f64, f64)> {
    original
        .samples(Span::ALL)
        .filter_map(|(t, dt, value)| {
            let span = Span { since: t - (dt * 1e9) as i64 + 1, until: t + 1 };
            Some((value, again.total(span)? / dt))
        })
        .collect()
}

#[test]
fn rates_come_back_within_rounding_and_do_not_drift() {
    let set = set();
    let (_dir, reader, _) = stored(&[&set]);
    for (metric, row, rounding) in
        [("vm.pgmajfault", "", 0.1), ("disk.io_time", "sda", 1e-4), ("disk.read_bytes", "sda", 512.0 / 7.0)]
    {
        let again = read(&reader, metric);
        let pairs = rates_again(set.get(metric, row).unwrap(), again.get(metric, row).unwrap());
        assert_eq!(pairs.len(), 60, "{metric}");
        for (before, after) in &pairs {
            assert!((before - after).abs() <= rounding * 1.001, "{metric}: {before} {after}");
        }
        let sum = |side: fn(&(f64, f64)) -> f64| pairs.iter().map(side).sum::<f64>();
        assert!((sum(|p| p.0) - sum(|p| p.1)).abs() <= rounding * 1.001, "{metric} drifts");
    }
}

#[test]
fn gauges_have_their_values_at_their_own_moments() {
    let set = set();
    let (_dir, reader, _) = stored(&[&set]);
    let again = read(&reader, "mem.free");
    let series = again.get("mem.free", "").unwrap();
    let seen: Vec<(i64, f64)> = series.samples(Span::ALL).map(|(t, _, v)| (t, v)).collect();
    assert_eq!(seen.len(), 60);
    assert!(seen.iter().all(|(_, v)| (v - 1e9).abs() < 1024.0));
    assert_eq!(seen[0].0, DAY + 10_500_000_000);
}

#[test]
fn tasks_keep_their_names_and_ids() {
    let set = set();
    let (_dir, reader, _) = stored(&[&set]);
    let again = read(&reader, "task.tgid");
    assert_eq!(again.text("task.comm", "4242@0").and_then(|t| t.last()), Some("java"));
    assert_eq!(again.get("task.tgid", "4242@0").and_then(|s| s.last(Span::ALL)), Some(4242.0));
    let faults = read(&reader, "task.minflt");
    assert_eq!(faults.get("task.minflt", "4242@0").and_then(|s| s.mean(Span::ALL)), Some(12.5));
}

#[test]
fn what_has_no_date_is_left_out_by_name_and_events_are_kept() {
    let set = set();
    let (_dir, reader, done) = stored(&[&set]);
    assert_eq!(done.left_out, BTreeMap::from([("vm.pgfault".into(), 1), ("events".into(), 1)]));
    assert!(read(&reader, "vm.pgfault").get("vm.pgfault", "").is_none());
    let events: Vec<(i64, String)> = read(&reader, "vm.pgfault")
        .events
        .into_iter()
        .filter_map(|e| match e.kind {
            EventKind::KernelLog { text, .. } => Some((e.real, text)),
            _ => None,
        })
        .collect();
    assert_eq!(events, [(DAY + 45 * SECOND, "late".into()), (DAY + 9000 * SECOND, "alone".into())]);
    assert_eq!(done.events, 2);
}

#[test]
fn a_hole_is_a_hole_and_not_a_time_in_which_nothing_happened() {
    let mut set = SeriesSet::default();
    let t = vec![DAY, DAY + 10 * SECOND, DAY + 3600 * SECOND, DAY + 3610 * SECOND];
    let axis = Arc::new(Axis { t, dt: vec![10.0; 4], places: Vec::new() });
    // Zero before: the counter does not go back at the hole, so only the frame inside tells.
    let values = vec![0.0, 0.0, 0.0, 7.0].into();
    set.insert(lookup("vm.pgmajfault").unwrap(), "".into(), Series { axis, start: 0, values });
    let (_dir, reader, _) = stored(&[&set]);
    let again = read(&reader, "vm.pgmajfault");
    let series = again.get("vm.pgmajfault", "").unwrap();
    assert_eq!(
        series.values(Span { since: DAY + 11 * SECOND, until: DAY + 3595 * SECOND }),
        Vec::<f64>::new()
    );
    assert_eq!(series.at(series.axis.len() - 1), 7.0);
    assert_eq!(series.total(Span::ALL), Some(70.0));
    assert!(!again.gaps.is_empty());
}

#[test]
fn nothing_gives_no_frames() {
    let mut each = |_: &Frame, _: &Strings| -> Result<(), Infallible> { panic!("a frame") };
    assert_eq!(import(&[&SeriesSet::default()], &mut each), Ok(Imported::default()));
}
