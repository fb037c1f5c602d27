//! Other tools' output as frames of an archive, so that every command works on it.
//!
//! There is a frame at every moment at which anything has a value. A rate becomes a counter that grows evenly over the
//! interval that the rate covers; between intervals it is not measured. A gauge has its value at its own moments and
//! nowhere else. What has no date cannot be placed and is left out by name.

mod track;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mitra_model::time::SECOND;
use mitra_model::{
    Entity, Era, Event, Frame, Key, Kind, SeriesSet, Stamp, Strings, TextSeries, column, lookup,
};

use track::Track;

/// How long an event may wait for a frame; one that nothing follows so soon gets a frame of its own.
const EVENT_WAIT: i64 = 60 * SECOND;
/// The archive keeps microseconds.
const RESOLUTION: i64 = 1_000;
/// What says who a thing is: it holds whenever the thing is there.
const IDENTITY: &[&str] = &["task.tgid", "task.ppid"];

/// The fact of the host that says that an archive was imported.
pub const MARK: &str = "imported_by";

/// What became of an import.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Frames written.
    pub frames: usize,
    /// The first and the last moment.
    pub span: Option<(i64, i64)>,
    /// Series written.
    pub series: usize,
    /// Events written.
    pub events: usize,
    /// What has no date, as metrics with the number of things that have it; events as `events`.
    pub left_out: BTreeMap<String, usize>,
}

/// One text of one thing.
struct Words<'a> {
    row: usize,
    column: usize,
    series: &'a TextSeries,
}

/// Everything that will be written.
#[derive(Default)]
struct Plan<'a> {
    rows: Vec<(Entity, Key)>,
    index: HashMap<(Entity, String), usize>,
    tracks: Vec<Track>,
    /// Numbers that hold whenever their thing is there.
    identity: Vec<(usize, usize, i64)>,
    words: Vec<Words<'a>>,
    events: Vec<Event>,
    strings: Strings,
    done: Imported,
}

/// Turns the sets into frames, in order of time, and hands out each.
pub fn import<E>(
    sets: &[&SeriesSet],
    each: &mut dyn FnMut(&Frame, &Strings) -> Result<(), E>,
) -> Result<Imported, E> {
    let mut plan = Plan::default();
    for set in sets {
        plan.numbers(set);
        plan.texts(set);
        plan.events(set);
    }
    plan.tracks.sort_by_key(Track::first);
    plan.events.sort_by_key(|event| event.real);
    let times = plan.times();
    plan.write(&times, each)?;
    Ok(plan.done)
}

impl<'a> Plan<'a> {
    /// The row of a thing; `None` for a name that such a thing cannot have.
    fn row(&mut self, entity: Entity, name: &str) -> Option<usize> {
        if let Some(row) = self.index.get(&(entity, name.to_owned())) {
            return Some(*row);
        }
        let key = match entity {
            Entity::System => Key::SYSTEM,
            Entity::Task => {
                let (tid, born) = name.split_once('@')?;
                Key::task(tid.parse().ok()?, born.parse().ok()?)
            }
            Entity::Exited => {
                let (parent, comm) = name.split_once(':')?;
                Key::exited(parent.parse().ok()?, self.strings.intern(comm))
            }
            _ => Key::named(self.strings.intern(name)),
        };
        self.rows.push((entity, key));
        self.index.insert((entity, name.to_owned()), self.rows.len() - 1);
        Some(self.rows.len() - 1)
    }

    fn numbers(&mut self, set: &SeriesSet) {
        for (name, rows) in set.metrics() {
            let (Some(metric), Some(column)) = (lookup(name), column(name)) else { continue };
            for (thing, series) in rows {
                let undated = series.axis.t.iter().any(|t| Era::of(*t) != Era::Dated);
                let Some(row) = self.row(metric.entity, thing) else { continue };
                if IDENTITY.contains(&name)
                    && let Some(value) = series.last(mitra_model::Span::ALL)
                {
                    self.identity.push((row, column, (value / metric.unit.scale()).round() as i64));
                    continue;
                }
                match Track::of(metric, series, row, column) {
                    Some(track) => {
                        self.tracks.push(track);
                        self.done.series += 1;
                    }
                    None if undated => *self.done.left_out.entry(name.to_owned()).or_default() += 1,
                    None => {}
                }
            }
        }
    }

    fn texts(&mut self, set: &'a SeriesSet) {
        for (name, rows) in set.text_metrics() {
            let (Some(metric), Some(column)) = (lookup(name), column(name)) else { continue };
            for (thing, series) in rows {
                if let Some(row) = self.row(metric.entity, thing) {
                    self.words.push(Words { row, column, series });
                }
            }
        }
    }

    fn events(&mut self, set: &SeriesSet) {
        for event in &set.events {
            if Era::of(event.real) == Era::Dated {
                self.events.push(event.clone());
            } else {
                *self.done.left_out.entry("events".to_owned()).or_default() += 1;
            }
        }
        self.done.events = self.events.len();
    }

    /// The moments of the frames.
    fn times(&self) -> Vec<i64> {
        let mut times: BTreeSet<i64> = self.tracks.iter().flat_map(Track::moments).collect();
        // A frame inside each hole, where the counter is not measured: without one it would seem to stand still.
        let holes: Vec<(i64, i64)> = self.tracks.iter().flat_map(Track::holes).collect();
        for (from, to) in holes {
            if times.range(from + 1..to).next().is_none() {
                let middle = from + (to - from) / 2;
                times.insert(middle - middle.rem_euclid(RESOLUTION));
            }
        }
        let mut waiting: Option<i64> = None;
        for event in &self.events {
            let at = event.real - event.real.rem_euclid(RESOLUTION) + RESOLUTION;
            if times.range(at..at.saturating_add(EVENT_WAIT)).next().is_some() {
                continue;
            }
            if let Some(first) = waiting.filter(|first| event.real - first >= EVENT_WAIT) {
                times.insert(first);
            }
            waiting = Some(at);
            times.insert(at);
        }
        times.into_iter().collect()
    }

    fn write<E>(
        &mut self,
        times: &[i64],
        each: &mut dyn FnMut(&Frame, &Strings) -> Result<(), E>,
    ) -> Result<(), E> {
        let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
        let usual = usual_step(times);
        let mut frame = Frame::new();
        let mut active: Vec<usize> = Vec::new();
        let mut next_track = 0;
        let mut next_event = 0;
        // The place of each row in its table of the frame, with the number of the frame.
        let mut places: Vec<(usize, usize)> = vec![(usize::MAX, 0); self.rows.len()];
        for (number, t) in times.iter().enumerate() {
            frame.clear();
            let mono = t - first + SECOND;
            frame.time = Stamp { real: *t, mono, boot: mono };
            while self.tracks.get(next_track).is_some_and(|track| track.first() <= *t) {
                active.push(next_track);
                next_track += 1;
            }
            let mut is_covered = false;
            active.retain(|i| {
                let Some(track) = self.tracks.get_mut(*i) else { return false };
                if let Some(cell) = track.cell(*t) {
                    put(&mut frame, &self.rows, &mut places, number, (track.row, track.column, cell));
                }
                is_covered |= track.covers_beyond(*t);
                !track.is_over(*t)
            });
            let step = times.get(number + 1).map_or(usual, |next| next - t);
            frame.interval_ns = u64::try_from(if is_covered { step } else { step.min(usual) }).unwrap_or(0);
            self.known(&mut frame, &mut places, number, *t);
            while let Some(event) = self.events.get(next_event).filter(|event| event.real <= *t) {
                frame.events.push(event.clone());
                next_event += 1;
            }
            each(&frame, &self.strings)?;
        }
        self.done.frames = times.len();
        self.done.span = Some((*first, *last));
        Ok(())
    }

    /// Names and other texts of the things that are in the frame.
    fn known(&mut self, frame: &mut Frame, places: &mut [(usize, usize)], number: usize, t: i64) {
        for (row, column, cell) in &self.identity {
            if places.get(*row).is_some_and(|place| place.0 == number) {
                put(frame, &self.rows, places, number, (*row, *column, *cell));
            }
        }
        for words in &self.words {
            let is_system = self.rows.get(words.row).is_some_and(|row| row.0 == Entity::System);
            if !is_system && places.get(words.row).is_none_or(|place| place.0 != number) {
                continue;
            }
            if let Some(text) = text_at(words.series, t) {
                let cell = i64::from(self.strings.intern(text));
                put(frame, &self.rows, places, number, (words.row, words.column, cell));
            }
        }
    }
}

/// The text that held at a moment: the last one with a date, or one that has none.
fn text_at(series: &TextSeries, t: i64) -> Option<&str> {
    let held = |(since, _): &&(i64, Option<std::sync::Arc<str>>)| match Era::of(*since) {
        Era::Dated => *since <= t,
        _ => true,
    };
    series.changes.iter().rfind(held).and_then(|(_, text)| text.as_deref())
}

/// Puts a cell into the row of a thing, which is added to the frame if it is not there yet.
fn put(
    frame: &mut Frame,
    rows: &[(Entity, Key)],
    places: &mut [(usize, usize)],
    number: usize,
    (row, column, cell): (usize, usize, i64),
) {
    let (Some((entity, key)), Some(place)) = (rows.get(row), places.get_mut(row)) else { return };
    let table = frame.table_mut(*entity);
    if place.0 != number {
        table.push(*key);
        *place = (number, table.len() - 1);
    }
    if let Some(slot) = table.row_mut(place.1).get_mut(column) {
        *slot = cell;
    }
}

/// The median distance of two frames.
fn usual_step(times: &[i64]) -> i64 {
    let mut steps: Vec<i64> = times.windows(2).filter_map(|w| Some(w.last()? - w.first()?)).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied().unwrap_or(SECOND)
}

/// Whether readers see the metric as a rate.
fn is_rate(kind: Kind) -> bool {
    matches!(kind, Kind::Counter | Kind::Bucket)
}

#[cfg(test)]
mod tests;
