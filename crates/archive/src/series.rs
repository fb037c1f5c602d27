//! Columns to series: rates, levels and texts on one axis.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mitra_model::{
    Entity, Event, HostInfo, Key, Kind as MetricKind, Metric, Series, SeriesSet, Span, TextSeries, columns,
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
use crate::segment::index::BlockRef;
use crate::series_builder::{Cell, Cells, NEVER, NEW, Reading, SeriesBuilder};

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

struct Wanted {
    metric: &'static Metric,
    reading: Reading,
    moving_only: bool,
    builders: Vec<SeriesBuilder>,
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
}

/// What is read of an entity, and of which number it is.
pub(crate) type Plan = Vec<(u8, Entity, HashMap<u32, (usize, f64)>)>;

/// Whether a block with rows or columns is read.
pub(crate) fn is_planned(plan: &Plan, block: &BlockRef) -> bool {
    plan.iter().filter(|(number, ..)| *number == block.entity).any(|(_, _, columns)| {
        block.kind == Kind::Rows || block.columns.iter().any(|column| columns.contains_key(column))
    })
}

impl Builder {
    pub(crate) fn new(query: &Query) -> Self {
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
                (_, entity) if entity.counts_from_nothing() => Reading::RateFromNothing,
                _ => Reading::Rate,
            };
            let moving_only = query.moving_only && metric.is_rate() && metric.entity != Entity::System;
            Wanted { metric, reading, moving_only: moving_only && !query.raw, builders: Vec::new() }
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

    /// What is read of files with this schema.
    pub(crate) fn plan(&self, schema: &Schema) -> Plan {
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
        let has = |block: &BlockRef| {
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
        wanted.builders.resize(wanted.builders.len().max(known.names.len()), NEW);
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
            let builder = &mut wanted.builders[*number as usize];
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
                    Some(_) => Cells::Each(&self.values[sample..sample + end - start]),
                    None => Cells::Same(first, end - start),
                };
                sample += end - start;
                if part.has_lead && (start..end).contains(&(part.from - 1)) {
                    cell.lead(builder, values.at(part.from - 1 - start));
                }
                let (from, until) = (start.max(part.from), end.min(part.until));
                if from < until {
                    cell.run(
                        builder,
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
            for (builder, name) in wanted.builders.into_iter().zip(&known.names) {
                if !builder.changes.is_empty() {
                    set.insert_text(
                        wanted.metric,
                        name.clone(),
                        TextSeries { changes: builder.changes, place: None },
                    );
                } else if builder.start != NEVER && !builder.values.is_empty() {
                    let (start, values) = (builder.start as usize, builder.values);
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
