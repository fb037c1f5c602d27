//! Series against the plain definition, worked out from the frames one by one.

use std::collections::HashMap;

use crate::common::scratch;
use mitra_archive::simulate::{Machine, Noise};
use mitra_archive::{Options, Query, Reader, Writer};
use mitra_model::frame::row_name;
use mitra_model::{Entity, Frame, Key, Kind, NA, SeriesSet, Span, Strings, columns};

/// A machine on which rows come and go, cells get lost, counters go back and seconds are missed.
fn frames(noise: &mut Noise, count: usize) -> (Vec<Frame>, Strings) {
    let mut machine = Machine::new(8, 4, noise.any());
    let mut frames = Vec::new();
    while frames.len() < count {
        machine.tick();
        if noise.one_in(12) {
            continue;
        }
        let mut frame = machine.frame().clone();
        for entity in Entity::ALL {
            let table = frame.table_mut(entity);
            for row in (0..table.len()).rev() {
                if noise.one_in(25) {
                    table.swap_remove(row);
                    continue;
                }
                for _ in 0..noise.below(4) {
                    let column = noise.below(table.width() as u64) as usize;
                    let cells = table.row_mut(row);
                    if columns(entity)[column].kind != Kind::Text {
                        cells[column] = if noise.one_in(2) { NA } else { noise.below(90) as i64 };
                    }
                }
            }
        }
        frames.push(frame);
    }
    (frames, machine.strings().clone())
}

/// The rate at frame `at`, by the words of the contract.
fn rate(frames: &[Frame], at: usize, entity: Entity, key: Key, column: usize, seen_from: usize) -> f64 {
    let cell =
        |frame: &Frame| frame.table(entity).rows().find(|(of, _)| *of == key).map(|(_, cells)| cells[column]);
    let us = |ns: i64| ns.div_euclid(1000);
    let Some(now) = cell(&frames[at]) else { return f64::NAN };
    if now == NA || at == 0 {
        return f64::NAN;
    }
    let before = &frames[at - 1];
    let seconds = (us(frames[at].time.mono) - us(before.time.mono)) as f64 * 1e-6;
    let by = |value: i64| {
        if value == NA || now < value { f64::NAN } else { (now - value) as f64 / seconds }
    };
    match (cell(before), entity) {
        (Some(value), _) => by(value),
        (None, Entity::Task) if key.born as i64 > us(before.time.boot) * 1000 => by(0),
        (None, entity) if entity.counts_from_nothing() => {
            // What was seen of it last inside what is read.
            let earlier = (seen_from..at).rev().find_map(|frame| cell(&frames[frame]));
            match earlier {
                Some(value) if value != NA && now >= value => by(value),
                _ => by(0),
            }
        }
        _ => f64::NAN,
    }
}

/// Returns how many values were compared.
fn check(
    set: &SeriesSet,
    frames: &[Frame],
    strings: &Strings,
    range: std::ops::Range<usize>,
    moving_only: bool,
) -> usize {
    let seen_from = range.start.saturating_sub(1);
    let mut keys: HashMap<(Entity, Key), String> = HashMap::new();
    for frame in &frames[range.clone()] {
        for entity in Entity::ALL {
            for key in frame.table(entity).keys() {
                keys.entry((entity, *key)).or_insert_with(|| row_name(entity, *key, strings));
            }
        }
    }
    let mut compared = 0;
    for ((entity, key), name) in &keys {
        // A part of the columns is enough, and each is in some row of some run.
        for (column, metric) in columns(*entity).iter().enumerate().filter(|(c, _)| c % 5 == name.len() % 5) {
            if metric.kind == Kind::Text {
                continue;
            }
            let wanted: Vec<f64> = range
                .clone()
                .map(|at| match metric.is_rate() {
                    true => rate(frames, at, *entity, *key, column, seen_from) * metric.unit.scale(),
                    false => frames[at]
                        .table(*entity)
                        .rows()
                        .find(|(of, _)| of == key)
                        .filter(|(_, cells)| cells[column] != NA)
                        .map_or(f64::NAN, |(_, cells)| cells[column] as f64 * metric.unit.scale()),
                })
                .collect();
            let Some(series) = set.get(metric.name, name) else {
                let is_dropped = moving_only && metric.is_rate() && *entity != Entity::System;
                let is_nothing = |value: &f64| value.is_nan() || is_dropped && *value == 0.0;
                assert!(wanted.iter().all(is_nothing), "{} of {name}: {wanted:?}", metric.name);
                continue;
            };
            assert_eq!(series.axis.len(), range.len());
            for (position, wanted) in wanted.iter().enumerate() {
                let got = series.at(position);
                let near = (got - wanted).abs() <= 1e-6 * wanted.abs();
                assert!(
                    near || got.is_nan() && wanted.is_nan(),
                    "{} of {name} at {position} of {range:?}: {got} instead of {wanted}; cells {:?}",
                    metric.name,
                    frames[seen_from..range.end]
                        .iter()
                        .map(|f| f.table(*entity).rows().find(|(of, _)| of == key).map(|(_, c)| c[column]))
                        .collect::<Vec<_>>()
                );
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn series_are_what_the_frames_say() {
    let mut compared = 0;
    for seed in 0..6 {
        let mut noise = Noise::new(seed);
        let count = 60;
        let (frames, strings) = frames(&mut noise, count);
        let dir = scratch();
        let options = Options { segment_frames: 1 + noise.below(25) as u32, ..Options::default() };
        let mut writer = Writer::open(dir.path(), &Machine::host(), options).unwrap();
        for frame in &frames {
            writer.append(frame, &strings).unwrap();
        }
        let reader = Reader::open(dir.path()).unwrap();
        for round in 0..4 {
            let a = noise.below(count as u64 - 1) as usize;
            let b = a + 1 + noise.below((count - a) as u64 - 1) as usize;
            let range = if round == 0 { 0..count } else { a..b };
            let t = |at: usize| frames[at].time.real - 2_000_000;
            let until = if range.end == count { i64::MAX } else { t(range.end) };
            let moving_only = round % 2 == 1;
            let query =
                Query { moving_only, span: Span { since: t(range.start), until }, ..Query::default() };
            let set = reader.read(&query).unwrap();
            compared += check(&set, &frames, &strings, range, moving_only);
        }
        assert_eq!(reader.skipped(), []);
    }
    assert!(compared > 100_000, "{compared}");
}
