//! An archive of Performance Co-Pilot: `mitra.disk.read_bytes` of the instance `vda`, as `pmval`, `pmrep` and others read it.
//!
//! Counters are as the kernel counts them, so that PCP computes the rates. A value has the time at which it was measured; what
//! was not measured has no value. A gap in the recording is a mark, over which PCP computes nothing.

mod archive;

use std::collections::{BTreeMap, HashMap};
use std::iter::Peekable;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use mitra_archive::{Query, RowFilter};
use mitra_model::series::Gap;
use mitra_model::time::SECOND;
use mitra_model::{Entity, Kind, Metric, SeriesSet, Span, Unit, lookup};

use self::archive::{Archive, Cell, Description, NONE, Semantics, Type, Values};
use super::Source;
use crate::recording::all_metrics;
use crate::render::style::clean;

/// What archives have whose values PCP's own agents did not measure (`PMI_DOMAIN`), where numbers of metrics and instances have it.
const DOMAIN: u32 = 245 << 22;
/// Parts of `pmUnits`: the dimension, and the scale unless it is bytes, nanoseconds or one.
const SPACE: u32 = 1 << 28;
const TIME: u32 = 1 << 24;
const COUNT: u32 = 1 << 20;
const KBYTE: u32 = 1 << 16;
const USEC: u32 = 1 << 12;
const MSEC: u32 = 2 << 12;
/// Read at a time.
const CHUNK_NS: i64 = 600 * SECOND;
const CHUNK_TASKS_NS: i64 = 60 * SECOND;
const NS_OF_US: i64 = 1_000;

/// How PCP is told of the values of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Form {
    kind: Type,
    semantics: Semantics,
    unit: u32,
    /// Of the stored values.
    factor: f64,
}

impl Form {
    fn of(metric: &Metric) -> Self {
        let (unit, factor) = match metric.unit {
            Unit::Bytes => (SPACE, 1.0),
            Unit::KiB => (SPACE | KBYTE, 1.0),
            Unit::Nanos => (TIME, 1.0),
            Unit::Micros => (TIME | USEC, 1.0),
            Unit::Millis => (TIME | MSEC, 1.0),
            Unit::Ticks => (TIME | MSEC, 10.0),
            Unit::Sectors => (SPACE, metric.unit.scale()),
            Unit::Count | Unit::Pages => (COUNT, 1.0),
            Unit::Centi | Unit::Ppm => (0, metric.unit.scale()),
            Unit::Text | Unit::None => (0, 1.0),
        };
        let kind = match (metric.kind, metric.unit) {
            (Kind::Text, _) => Type::Text,
            (_, Unit::Centi | Unit::Ppm) => Type::Double,
            (Kind::Gauge, _) => Type::Signed,
            (Kind::Counter | Kind::Bucket, _) => Type::Unsigned,
        };
        let semantics = match metric.kind {
            Kind::Counter | Kind::Bucket => Semantics::Counter,
            Kind::Gauge => Semantics::Instant,
            Kind::Text => Semantics::Discrete,
        };
        Form { kind, semantics, unit, factor }
    }

    fn cell<'v>(self, stored: f64) -> Cell<'v> {
        let value = stored * self.factor;
        match self.kind {
            Type::Unsigned => Cell::Unsigned(value as u64),
            Type::Double => Cell::Double(value),
            Type::Signed | Type::Text => Cell::Signed(value as i64),
        }
    }
}

/// `mitra.disk.read_bytes` of `disk.read_bytes`. Metrics of the recorder itself are `mitra.recorder.…`.
fn name(metric: &str) -> String {
    let of_recorder = metric.strip_prefix("mitra.").map(|rest| format!("recorder.{rest}"));
    format!("mitra.{}", of_recorder.as_deref().unwrap_or(metric).replace('-', "_"))
}

/// The names of the rows of an entity, by their numbers.
#[derive(Default)]
struct Instances {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Instances {
    fn number(&mut self, row: &Arc<str>) -> u32 {
        if let Some(known) = self.numbers.get(row) {
            return *known;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(Arc::clone(row), number);
        // PCP's tools print names to terminals.
        self.names.push(clean(row).into());
        number
    }
}

type Cells<'a> = Box<dyn Iterator<Item = (i64, Cell<'a>)> + 'a>;

/// One metric of one row, with what is still to be written of it.
struct Column<'a> {
    metric: u32,
    instance: u32,
    cells: Peekable<Cells<'a>>,
}

struct Exporter<'a> {
    archive: &'a mut Archive,
    /// The numbers of metrics: their positions in the table of all.
    numbers: HashMap<&'static str, u32>,
    /// The metrics that have values.
    written: BTreeMap<u32, &'static Metric>,
    instances: BTreeMap<Entity, Instances>,
    moments: u64,
}

/// Writes an archive; returns how many moments it has.
pub fn write(
    source: &Source<'_>,
    base: &Path,
    metrics: &[&'static Metric],
    rows: Option<RowFilter>,
) -> Result<u64> {
    let gaps = source.reader.gaps_in(source.span)?;
    let has_tasks = metrics.iter().any(|metric| metric.entity == Entity::Task);
    let chunk_ns = if has_tasks { CHUNK_TASKS_NS } else { CHUNK_NS };
    let host = super::host_name(source.reader);
    archive::write(base, &host, source.span.since.div_euclid(NS_OF_US), |archive| {
        let numbers = all_metrics().zip(DOMAIN..).map(|(metric, number)| (metric.name, number)).collect();
        let (written, instances) = (BTreeMap::new(), BTreeMap::new());
        let mut exporter = Exporter { archive, numbers, written, instances, moments: 0 };
        for stretch in stretches(source.span, &gaps) {
            exporter.archive.mark()?;
            for part in source.parts(stretch, chunk_ns) {
                // Of a step that is longer only the end is read.
                let since = part.since.max(part.until.saturating_sub(chunk_ns));
                let part = Span { since, ..part };
                let query = Query { raw: true, rows: rows.clone(), ..Query::new(part, metrics.to_vec()) };
                exporter.take(&source.reader.read(&query)?, part, source.step)?;
            }
        }
        exporter.finish()
    })
}

/// A span without its gaps.
fn stretches(span: Span, gaps: &[Gap]) -> Vec<Span> {
    let inside = gaps.iter().filter(|gap| span.since <= gap.span.since && gap.span.until < span.until);
    let begins: Vec<i64> = std::iter::once(span.since).chain(inside.map(|gap| gap.span.until)).collect();
    let ends = begins.iter().skip(1).copied().chain([span.until]);
    begins.iter().zip(ends).map(|(since, until)| Span { since: *since, until }).collect()
}

/// The last one of the samples of each step.
fn kept(samples: impl Iterator<Item = (i64, f64)>, step: i64) -> impl Iterator<Item = (i64, f64)> {
    let mut samples = samples.peekable();
    std::iter::from_fn(move || {
        loop {
            let (t, value) = samples.next()?;
            if samples.peek().is_none_or(|(next, _)| next.div_euclid(step) != t.div_euclid(step)) {
                return Some((t, value));
            }
        }
    })
}

impl Exporter<'_> {
    /// Writes what was read of a part.
    fn take(&mut self, set: &SeriesSet, part: Span, step: i64) -> Result<()> {
        let mut columns: Vec<Column<'_>> = Vec::new();
        for (name, rows) in set.metrics() {
            let Some(metric) = lookup(name) else { continue };
            let form = Form::of(metric);
            for (row, series) in rows {
                let samples = series.samples(part).map(|(t, _, value)| (t, value));
                let cells = kept(samples, step).map(move |(t, value)| (t, form.cell(value)));
                columns.extend(self.column(metric, row, Box::new(cells)));
            }
        }
        for (name, rows) in set.text_metrics() {
            let Some(metric) = lookup(name) else { continue };
            for (row, text) in rows {
                let changes = text.changes.iter().filter(move |(t, _)| *t < part.until);
                let cells = changes.filter_map(move |(t, text)| {
                    Some(((*t).max(part.since), Cell::Text(clean(text.as_deref()?))))
                });
                columns.extend(self.column(metric, row, Box::new(cells)));
            }
        }
        columns.sort_by_key(|column| (column.metric, column.instance));
        while let Some(t) = columns.iter_mut().filter_map(|column| Some(column.cells.peek()?.0)).min() {
            let mut record: Vec<Values<'_>> = Vec::new();
            for column in &mut columns {
                let Some((_, cell)) = column.cells.next_if(|(at, _)| *at == t) else { continue };
                match record.last_mut().filter(|values| values.metric == column.metric) {
                    Some(values) => values.cells.push((column.instance, cell)),
                    None => {
                        record.push(Values { metric: column.metric, cells: vec![(column.instance, cell)] });
                    }
                }
            }
            self.archive.record(t.div_euclid(NS_OF_US), &record)?;
            self.moments += 1;
        }
        Ok(())
    }

    /// A column, if it has values.
    fn column<'s>(
        &mut self,
        metric: &'static Metric,
        row: &Arc<str>,
        cells: Cells<'s>,
    ) -> Option<Column<'s>> {
        let number = *self.numbers.get(metric.name)?;
        let mut cells = cells.peekable();
        cells.peek()?;
        self.written.insert(number, metric);
        let instance = match metric.entity {
            Entity::System => NONE,
            entity => self.instances.entry(entity).or_default().number(row),
        };
        Some(Column { metric: number, instance, cells })
    }

    /// Describes what was written.
    fn finish(self) -> Result<u64> {
        if self.moments == 0 {
            return Err(anyhow!(
                "nothing of that was recorded in that time; what there is: mitra dump --list"
            ));
        }
        for (number, metric) in &self.written {
            let form = Form::of(metric);
            self.archive.describe(&Description {
                metric: *number,
                kind: form.kind,
                semantics: form.semantics,
                unit: form.unit,
                instances: set_of(metric.entity),
                name: &name(metric.name),
                help: metric.help,
            })?;
        }
        for (entity, instances) in &self.instances {
            self.archive.instances(set_of(*entity), &instances.names)?;
        }
        Ok(self.moments)
    }
}

/// The number of the set of instances that the rows of an entity are.
fn set_of(entity: Entity) -> u32 {
    if entity == Entity::System { NONE } else { DOMAIN | entity as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_one_that_pcp_takes() {
        let names: Vec<String> = all_metrics().map(|metric| name(metric.name)).collect();
        for name in &names {
            for part in name.split('.') {
                let is_good = part.starts_with(|c: char| c.is_ascii_alphabetic())
                    && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                assert!(is_good, "{name}");
            }
            // In the tree of names a leaf has nothing below it.
            let below = format!("{name}.");
            assert!(!names.iter().any(|other| other.starts_with(&below)), "{name}");
        }
        let unique: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        assert_eq!(name("mitra.rss"), "mitra.recorder.rss");
        assert!(names.len() < 1 << 22, "numbers have 22 bits beside the domain");
    }

    #[test]
    fn values_keep_what_they_are() {
        let form = |name: &str| Form::of(lookup(name).unwrap());
        let (kind, semantics) = (Type::Unsigned, Semantics::Counter);
        assert_eq!(form("disk.read_bytes"), Form { kind, semantics, unit: SPACE, factor: 512.0 });
        assert_eq!(form("disk.read_time"), Form { kind, semantics, unit: TIME | MSEC, factor: 1.0 });
        assert_eq!(form("disk.read_latency_le_16us"), Form { kind, semantics, unit: COUNT, factor: 1.0 });
        assert_eq!(form("sys.cpu_user").cell(7.0), Cell::Unsigned(70));
        let (kind, semantics) = (Type::Signed, Semantics::Instant);
        assert_eq!(form("mem.free"), Form { kind, semantics, unit: SPACE | KBYTE, factor: 1.0 });
        assert_eq!(form("mem.free").cell(-3.0), Cell::Signed(-3));
        assert_eq!(form("sys.load1").cell(150.0), Cell::Double(1.5));
        assert_eq!(form("disk.queue_scheduler").semantics, Semantics::Discrete);
    }

    #[test]
    fn a_step_has_its_last_sample() {
        let samples = [(0, 1.0), (4, 2.0), (9, 3.0), (10, 4.0), (31, 5.0)];
        let of_steps: Vec<_> = kept(samples.into_iter(), 10).collect();
        assert_eq!(of_steps, [(9, 3.0), (10, 4.0), (31, 5.0)]);
        assert_eq!(kept(samples.into_iter(), 1).count(), samples.len());
    }

    #[test]
    fn a_recording_is_cut_at_its_gaps() {
        let span = |since, until| Span { since, until };
        let gap = |since, until| Gap { span: span(since, until), why: String::new() };
        // The first one ends where the recording begins.
        let gaps = [gap(0, 10), gap(20, 30), gap(50, 60)];
        assert_eq!(stretches(span(10, 61), &gaps), [span(10, 30), span(30, 60), span(60, 61)]);
        assert_eq!(stretches(span(10, 20), &[]), [span(10, 20)]);
    }
}
