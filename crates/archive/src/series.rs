//! Columns to series: rates, levels and texts on one axis.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mitra_model::{
    Entity, Event, HostInfo, Key, Kind as MetricKind, Metric, NA, Series, SeriesSet, Span, TextSeries,
    columns,
};

use crate::block::{Kind, NO_ENTITY};
use crate::clock::Timeline;
use crate::log::decode::ns;
use crate::open::Times;
use crate::reader::{Part, Query, RowFilter};
use crate::schema::{Schema, convert};
use crate::segment::column;
use crate::segment::decode::{Column, Columns, Rows, events, texts};
use crate::segment::file::{Opened, SchemaCache};

const NEVER: u32 = u32::MAX;

/// What tells a row from others across segments.
#[derive(PartialEq, Eq, Hash)]
struct RowKey(u64, u64, Arc<str>);

/// The rows of one entity that were met so far.
#[derive(Default)]
struct Known {
    numbers: HashMap<RowKey, Option<u32>>,
    names: Vec<Arc<str>>,
    born_ns: Vec<i64>,
}

/// One metric of one row while it is being read.
#[derive(Clone)]
struct Track {
    /// The index on the axis of the first value that is known, or [`NEVER`].
    start: u32,
    /// No value is stored yet: those since `start` are 0, see [`Query::moving_only`].
    still: bool,
    last_position: u32,
    last_raw: i64,
    values: Vec<f64>,
    changes: Vec<(i64, Option<Arc<str>>)>,
}

const NEW: Track = Track {
    start: NEVER,
    still: true,
    last_position: NEVER,
    last_raw: NA,
    values: Vec::new(),
    changes: Vec::new(),
};

/// How the stored values of a metric become what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// As stored, unscaled.
    Raw,
    Level,
    /// Unknown where it was not there before.
    Rate,
    /// From zero where the row is younger than the frame before.
    RateFromBirth,
    /// From zero where the row is new.
    RateFromNothing,
    Text,
}

struct Wanted {
    metric: &'static Metric,
    reading: Reading,
    moving_only: bool,
    tracks: Vec<Track>,
}

/// Collects the series of one read.
pub(crate) struct Builder {
    span: Span,
    filter: Option<RowFilter>,
    wanted: Vec<Wanted>,
    known: BTreeMap<Entity, Known>,
    events: Vec<Event>,
    unavailable: Vec<(String, String)>,
    host: Option<HostInfo>,
    /// For the schema last seen: for each entity its columns that are wanted, which they are, and the factor to
    /// their unit.
    plan: Option<(Arc<Schema>, Plan)>,
    values: Vec<i64>,
    /// How many frames there will be, at most.
    frames_max: usize,
}

type Plan = Vec<(u8, Entity, HashMap<u32, (usize, f64)>)>;

impl Builder {
    /// `frames_max`: how many frames there are in the segments that will be read.
    pub(crate) fn new(query: &Query, frames_max: usize) -> Self {
        let metrics = query
            .metrics
            .clone()
            .unwrap_or_else(|| Entity::ALL.iter().flat_map(|entity| columns(*entity)).copied().collect());
        let wanted = metrics.into_iter().map(|metric| {
            let reading = match (metric.kind, metric.entity) {
                (MetricKind::Text, _) => Reading::Text,
                _ if query.raw => Reading::Raw,
                (MetricKind::Gauge, _) => Reading::Level,
                (_, Entity::Task) => Reading::RateFromBirth,
                (_, Entity::Exited) => Reading::RateFromNothing,
                _ => Reading::Rate,
            };
            let moving_only = query.moving_only && metric.is_rate() && metric.entity != Entity::System;
            Wanted { metric, reading, moving_only: moving_only && !query.raw, tracks: Vec::new() }
        });
        Builder {
            span: query.span,
            filter: query.rows.clone(),
            wanted: wanted.collect(),
            known: BTreeMap::new(),
            events: Vec::new(),
            unavailable: Vec::new(),
            host: None,
            plan: None,
            values: Vec::new(),
            frames_max,
        }
    }

    /// Reads one segment.
    pub(crate) fn segment(
        &mut self,
        opened: &mut Opened<'_>,
        schemas: &SchemaCache,
        part: &Part,
        timeline: &Timeline,
    ) {
        if part.from == part.until && !part.has_lead {
            return;
        }
        let meta = &opened.index().meta;
        self.host = Some(meta.host.clone());
        for (source, why) in &meta.unavailable {
            match self.unavailable.iter_mut().find(|(known, _)| known == source) {
                Some((_, known)) => known.clone_from(why),
                None => self.unavailable.push((source.clone(), why.clone())),
            }
        }
        if part.from < part.until {
            self.events(opened, part, timeline);
        }
        if self.wanted.is_empty() {
            return;
        }
        let Some(schema) = opened.schema(schemas) else { return };
        let plan = match self.plan.take() {
            Some((of, plan)) if Arc::ptr_eq(&of, &schema) => plan,
            _ => self.plan(&schema),
        };
        let mut segment_texts = None;
        for (number, entity, columns) in &plan {
            self.entity(opened, part, timeline, (*number, *entity), columns, &mut segment_texts);
        }
        self.plan = Some((schema, plan));
    }

    fn plan(&self, schema: &Schema) -> Plan {
        let mut by_metric: HashMap<&str, usize> = HashMap::new();
        for (i, wanted) in self.wanted.iter().enumerate() {
            by_metric.insert(wanted.metric.name, i);
        }
        let mut plan = Plan::new();
        for (number, stored) in schema.entities.iter().enumerate() {
            let Some(entity) = stored.entity else { continue };
            let mut columns = HashMap::new();
            for (i, column) in stored.columns.iter().enumerate() {
                if let Some(&wanted) = column.metric.and_then(|metric| by_metric.get(metric.name)) {
                    columns.insert(i as u32, (wanted, column.factor()));
                }
            }
            if !columns.is_empty() {
                plan.push((number as u8, entity, columns));
            }
        }
        plan
    }

    fn events(&mut self, opened: &mut Opened<'_>, part: &Part, timeline: &Timeline) {
        for number in 0..opened.index().blocks.len() {
            if opened.index().blocks[number].kind != Kind::Events {
                continue;
            }
            let Some(payload) = opened.block(number) else { continue };
            let done = events(&payload, &mut |frame, json| {
                let Some(position) = (frame as usize).checked_sub(part.from) else { return };
                if frame as usize >= part.until {
                    return;
                }
                let Some(moment) = timeline.moments.get(part.position - 1 + position) else { return };
                let Ok(mut event) = serde_json::from_slice::<Event>(json) else { return };
                // Moved with the frames when the clock stepped afterwards.
                let moved = part.placed.offset_us.saturating_sub(moment.times.real_off_us);
                event.real = match event.mono {
                    Some(mono) => mono.saturating_add(ns(offset_to_mono(part, moment.times))),
                    None => event.real.saturating_add(ns(moved)),
                };
                self.events.push(event);
            });
            if let Err(corrupt) = done {
                opened.skip(number, corrupt);
            }
        }
    }

    fn entity(
        &mut self,
        opened: &mut Opened<'_>,
        part: &Part,
        timeline: &Timeline,
        (number, entity): (u8, Entity),
        columns: &HashMap<u32, (usize, f64)>,
        segment_texts: &mut Option<Vec<Arc<str>>>,
    ) {
        let has = |block: &crate::segment::index::BlockRef| {
            block.kind == Kind::Columns
                && block.entity == number
                && block.columns.iter().any(|column| columns.contains_key(column))
        };
        if !opened.index().blocks.iter().any(has) {
            return;
        }
        let Some(rows) = opened.either(Kind::Rows, number, |payload| Rows::parse(&payload, part.frames))
        else {
            return;
        };
        let needs_texts = !matches!(entity, Entity::System | Entity::Task)
            || columns.values().any(|(wanted, _)| self.wanted[*wanted].reading == Reading::Text);
        if needs_texts && segment_texts.is_none() {
            *segment_texts = opened.either(Kind::Texts, NO_ENTITY, |payload| texts(&payload));
        }
        let words = segment_texts.as_deref().unwrap_or_default();
        let numbers = self.rows(entity, &rows, words, part);
        for number in 0..opened.index().blocks.len() {
            if !has(&opened.index().blocks[number]) {
                continue;
            }
            let Some(payload) = opened.block(number) else { continue };
            let done = Columns::parse(&payload, rows.len()).and_then(|parsed| {
                for (id, body) in &parsed.bodies {
                    let Some(&(wanted, factor)) = columns.get(id) else { continue };
                    let column = parsed.column(body)?;
                    self.column(wanted, factor, &column, &rows, &numbers, part, timeline, words)?;
                }
                Ok(())
            });
            if let Err(corrupt) = done {
                opened.skip(number, corrupt);
            }
        }
    }

    /// The number of each row of the segment among all rows, `None` where it is not wanted or not in the span.
    fn rows(&mut self, entity: Entity, rows: &Rows, words: &[Arc<str>], part: &Part) -> Vec<Option<u32>> {
        let known = self.known.entry(entity).or_default();
        let empty: Arc<str> = "".into();
        let first = (part.from - usize::from(part.has_lead)) as u32;
        let until = part.until as u32;
        let word = |number: u64| usize::try_from(number).ok().and_then(|n| words.get(n)).cloned();
        (0..rows.len())
            .map(|row| {
                if !rows.runs(row).iter().any(|(start, end)| *start < until.max(first + 1) && *end > first) {
                    return None;
                }
                let key = rows.keys[row];
                // A row whose name is lost cannot be told from others.
                let (row_key, born_ns) = match entity {
                    Entity::System => (RowKey(0, 0, empty.clone()), 0),
                    Entity::Task => {
                        (RowKey(key.id, key.born, empty.clone()), i64::try_from(key.born).unwrap_or(0))
                    }
                    Entity::Exited => (RowKey(key.id, 0, word(key.born)?), 0),
                    _ => (RowKey(0, key.born, word(key.id)?), 0),
                };
                if let Some(number) = known.numbers.get(&row_key) {
                    return *number;
                }
                let name = name(entity, key, &row_key.2);
                let wanted = self.filter.as_ref().is_none_or(|filter| filter(entity, &name));
                let number = wanted.then(|| {
                    known.names.push(name);
                    known.born_ns.push(born_ns);
                    (known.names.len() - 1) as u32
                });
                known.numbers.insert(row_key, number);
                number
            })
            .collect()
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the one inner loop; a struct would only rename the arguments"
    )]
    fn column(
        &mut self,
        wanted: usize,
        factor: f64,
        column: &Column<'_>,
        rows: &Rows,
        numbers: &[Option<u32>],
        part: &Part,
        timeline: &Timeline,
        words: &[Arc<str>],
    ) -> crate::varint::Got<()> {
        let wanted = &mut self.wanted[wanted];
        let known = self.known.entry(wanted.metric.entity).or_default();
        wanted.tracks.resize(wanted.tracks.len().max(known.names.len()), NEW);
        let mut active = column.active.iter().peekable();
        for (row, number) in numbers.iter().enumerate() {
            let active = active.next_if(|active| active.row == row);
            let Some(number) = number else { continue };
            let samples = rows.samples[row] as usize;
            self.values.clear();
            if let Some(active) = active {
                column::read(active.form, column.firsts[row], samples, active.bytes, &mut self.values)?;
                if factor != 1.0 {
                    self.values.iter_mut().for_each(|cell| *cell = convert(*cell, factor));
                }
            }
            let first = convert(column.firsts[row], factor);
            let track = &mut wanted.tracks[*number as usize];
            if wanted.metric.entity == Entity::System && track.values.is_empty() {
                track.values.reserve_exact(self.frames_max);
            }
            let cell = Cell {
                reading: wanted.reading,
                scale: wanted.metric.unit.scale(),
                moving_only: wanted.moving_only,
                born_ns: known.born_ns[*number as usize],
                timeline,
                first: part.position,
                words,
            };
            let mut sample = 0;
            for &(start, end) in rows.runs(row) {
                let (start, end) = (start as usize, end as usize);
                let values = match active {
                    Some(_) => Values::Each(&self.values[sample..sample + end - start]),
                    None => Values::Same(first, end - start),
                };
                sample += end - start;
                if part.has_lead && (start..end).contains(&(part.from - 1)) {
                    cell.lead(track, values.at(part.from - 1 - start));
                }
                let (from, until) = (start.max(part.from), end.min(part.until));
                if from < until {
                    cell.run(
                        track,
                        part.position + from - part.from,
                        values.part(from - start, until - start),
                    );
                }
            }
        }
        Ok(())
    }

    /// Everything that was read.
    pub(crate) fn finish(mut self, timeline: Timeline, host: &HostInfo) -> SeriesSet {
        let axis = Arc::new(timeline.axis());
        let mut set = SeriesSet::default();
        set.host = self.host.take().unwrap_or_else(|| host.clone());
        set.source = "archive".to_owned();
        set.events = self.events;
        set.unavailable = self.unavailable;
        set.gaps = timeline.gaps;
        set.events.retain(|event| self.span.contains(event.real));
        set.events.sort_by_key(|event| event.real);
        for wanted in self.wanted {
            let Some(known) = self.known.get(&wanted.metric.entity) else { continue };
            for (track, name) in wanted.tracks.into_iter().zip(&known.names) {
                if !track.changes.is_empty() {
                    set.insert_text(wanted.metric, name.clone(), TextSeries { changes: track.changes });
                } else if track.start != NEVER && !track.values.is_empty() {
                    let (start, values) = (track.start as usize, track.values);
                    set.insert(
                        wanted.metric,
                        name.clone(),
                        Series { axis: Arc::clone(&axis), start, values },
                    );
                }
            }
        }
        set
    }
}

/// What has to be added to a monotonic time, in microseconds, to place it on the axis.
fn offset_to_mono(part: &Part, times: Times) -> i64 {
    part.placed.offset_us.saturating_sub(times.mono_off_us)
}

fn name(entity: Entity, key: Key, word: &Arc<str>) -> Arc<str> {
    match entity {
        Entity::System => "".into(),
        Entity::Task => format!("{}@{}", key.id, key.born).into(),
        Entity::Exited => format!("{}:{word}", key.id).into(),
        _ => Arc::clone(word),
    }
}

/// The cells of a row in one stretch of its presence.
#[derive(Clone, Copy)]
enum Values<'a> {
    Same(i64, usize),
    Each(&'a [i64]),
}

impl Values<'_> {
    fn len(self) -> usize {
        match self {
            Values::Same(_, len) => len,
            Values::Each(values) => values.len(),
        }
    }

    fn at(self, sample: usize) -> i64 {
        match self {
            Values::Same(value, _) => value,
            Values::Each(values) => values[sample],
        }
    }

    fn part(self, from: usize, until: usize) -> Self {
        match self {
            Values::Same(value, _) => Values::Same(value, until - from),
            Values::Each(values) => Values::Each(&values[from..until]),
        }
    }
}

/// How one cell becomes a value.
struct Cell<'a> {
    reading: Reading,
    scale: f64,
    moving_only: bool,
    born_ns: i64,
    timeline: &'a Timeline,
    /// The first position of the segment.
    first: usize,
    words: &'a [Arc<str>],
}

impl Cell<'_> {
    /// The cell of the frame before the range.
    fn lead(&self, track: &mut Track, raw: i64) {
        track.last_position = 0;
        track.last_raw = raw;
    }

    /// Takes a stretch of cells: one by one until there is nothing special about them, the rest in one go.
    fn run(&self, track: &mut Track, position: usize, values: Values<'_>) {
        let len = values.len();
        let is_text = self.reading == Reading::Text;
        let mut next = 0;
        while next < len {
            if let Values::Same(raw, _) = values {
                let stands = next > 0 && (is_text || raw == NA && track.start == NEVER);
                if stands || next > 1 && track.still && track.start != NEVER && self.moving_only {
                    // What does not change has been taken.
                    track.last_position = (position + len - 1) as u32;
                    return;
                }
            }
            let is_stored = !is_text && track.start != NEVER && !track.still;
            if is_stored && next > 0 && track.start as usize + track.values.len() == position + next - 1 {
                break;
            }
            self.take(track, position + next, values.at(next));
            next += 1;
        }
        if next == len {
            return;
        }
        let per_second = self.timeline.per_seconds(position + next..position + len);
        match (values, self.reading) {
            (_, Reading::Text) => return,
            (Values::Same(raw, _), Reading::Raw | Reading::Level) => {
                let value = self.level(raw);
                track.values.resize(track.values.len() + len - next, value);
            }
            (Values::Same(raw, _), _) => {
                let still = if raw == NA { f64::NAN } else { 0.0 };
                track.values.extend(per_second.iter().map(|per_second| still * per_second));
            }
            (Values::Each(cells), Reading::Raw | Reading::Level) => {
                track.values.extend(cells[next..].iter().map(|raw| self.level(*raw)));
            }
            (Values::Each(cells), _) => {
                let pairs = cells[next - 1..].windows(2).zip(per_second);
                track.values.extend(pairs.map(|(pair, per_second)| {
                    let (before, now) = (pair[0], pair[1]);
                    if before == NA || now == NA || now < before {
                        return f64::NAN;
                    }
                    now.wrapping_sub(before) as u64 as f64 * (per_second * self.scale)
                }));
            }
        }
        track.last_position = (position + len - 1) as u32;
        track.last_raw = values.at(len - 1);
    }

    fn level(&self, raw: i64) -> f64 {
        match self.reading {
            _ if raw == NA => f64::NAN,
            Reading::Raw => raw as f64,
            _ => raw as f64 * self.scale,
        }
    }

    fn take(&self, track: &mut Track, position: usize, raw: i64) {
        if self.reading == Reading::Text {
            return self.text(track, position, raw);
        }
        let value = match self.reading {
            Reading::Raw | Reading::Level => self.level(raw),
            _ if raw == NA => f64::NAN,
            _ => self.rate(track, position, raw),
        };
        let is_next = track.last_position != NEVER && track.last_position as usize + 1 == position;
        let last = track.last_position as usize;
        track.last_position = position as u32;
        track.last_raw = raw;
        let index = position - 1;
        if track.start == NEVER {
            if value.is_nan() {
                return;
            }
            track.start = index as u32;
        }
        let start = track.start as usize;
        if track.still {
            // The rates of a counter that stands still are not stored until it moves, or is lost from sight.
            let is_known = self.timeline.per_second(position).is_finite();
            let stands = value == 0.0 || value.is_nan() && !is_known;
            if self.moving_only && stands && (is_next || start == index) {
                return;
            }
            track.still = false;
            if self.moving_only && start < index {
                // It stood at every position from the first to the last; after that it may have been away.
                let known = (start + 1..=last).map(|before| self.timeline.per_second(before).is_finite());
                track.values.extend(known.map(|known| if known { 0.0 } else { f64::NAN }));
            }
        }
        if track.values.len() < index - start {
            track.values.resize(index - start, f64::NAN);
        }
        track.values.push(value);
    }

    /// The rate over the interval that ends here. `NaN` where the length of the interval is not known.
    fn rate(&self, track: &Track, position: usize, raw: i64) -> f64 {
        let per_second = self.timeline.per_second(position) * self.scale;
        let since = |before: i64| {
            if raw >= before { raw.wrapping_sub(before) as u64 as f64 * per_second } else { f64::NAN }
        };
        if track.last_position != NEVER && track.last_position as usize + 1 == position {
            return if track.last_raw == NA { f64::NAN } else { since(track.last_raw) };
        }
        let is_new = match self.reading {
            Reading::RateFromBirth => {
                self.timeline.before(position).is_some_and(|before| self.born_ns > ns(before.times.boot_us))
            }
            Reading::RateFromNothing => self.timeline.before(position).is_some(),
            _ => false,
        };
        match (is_new, self.reading) {
            // A group that was away goes on counting, unless it was forgotten.
            (true, Reading::RateFromNothing)
                if track.last_position != NEVER && track.last_raw != NA && raw >= track.last_raw =>
            {
                since(track.last_raw)
            }
            (true, _) => since(0),
            (false, _) => f64::NAN,
        }
    }

    fn text(&self, track: &mut Track, position: usize, raw: i64) {
        let is_next = track.last_position != NEVER && track.last_position as usize + 1 == position;
        // Another segment numbers its texts anew.
        if is_next && track.last_raw == raw && position > self.first {
            track.last_position = position as u32;
            return;
        }
        track.last_position = position as u32;
        track.last_raw = raw;
        let text = usize::try_from(raw).ok().and_then(|number| self.words.get(number)).cloned();
        let Some(moment) = self.timeline.moments.get(position - 1) else { return };
        if track.changes.last().is_none_or(|(_, last)| *last != text) {
            track.changes.push((moment.t, text));
        }
    }
}
