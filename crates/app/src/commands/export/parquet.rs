//! Parquet, one row for each value.
//!
//! Columns: `time` (microseconds, UTC), `metric`, `entity`, `row`, `value` (base units, as `mitra
//! dump` shows) and `text`. What was not measured has no row, and a text one where it changes.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use mitra_archive::{Query, Reader, RowFilter};
use mitra_model::{Entity, Metric, SeriesSet, Span};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::whole;
use crate::recording::{ToldTexts, chunks};

const SCHEMA: &str = "message mitra {
    required int64 time (TIMESTAMP(MICROS, true));
    required binary metric (STRING);
    required binary entity (STRING);
    required binary row (STRING);
    optional double value;
    optional binary text (STRING);
}";
/// Read at a time: the length of a segment.
const CHUNK_NS: i64 = 600 * mitra_model::time::SECOND;
/// Metrics of tasks that are read at a time: there may be thousands of tasks.
const TASK_METRICS_AT_ONCE: usize = 4;
/// Tens of MB of memory, and large enough for a reader to skip by statistics.
const ROW_GROUP_ROWS: usize = 256 * 1024;

/// Writes a file. It is there whole or not at all.
pub fn file(
    path: &Path,
    reader: &Reader,
    span: Span,
    metrics: &[&'static Metric],
    rows: Option<RowFilter>,
) -> Result<u64> {
    whole(path, |file| write(file, reader, span, metrics, rows))
}

/// Writes to a file or a pipe. Returns how many values that was.
pub fn write<W: Write + Send>(
    out: W,
    reader: &Reader,
    span: Span,
    metrics: &[&'static Metric],
    rows: Option<RowFilter>,
) -> Result<u64> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("mitra {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut sink = Sink {
        writer: SerializedFileWriter::new(out, schema, Arc::new(properties))?,
        rows: Rows::default(),
        told: ToldTexts::default(),
        written: 0,
    };
    for part in chunks(span, CHUNK_NS) {
        for batch in batches(metrics) {
            let query = Query { rows: rows.clone(), ..Query::new(part, batch) };
            sink.take(&reader.read(&query)?, part)?;
        }
        sink.told.next_piece();
    }
    sink.flush()?;
    sink.writer.close()?;
    Ok(sink.written)
}

/// The metrics in portions of bounded size.
fn batches(metrics: &[&'static Metric]) -> Vec<Vec<&'static Metric>> {
    let (tasks, others): (Vec<_>, Vec<_>) = metrics.iter().copied().partition(|m| m.entity == Entity::Task);
    let mut batches: Vec<Vec<&'static Metric>> =
        tasks.chunks(TASK_METRICS_AT_ONCE).map(<[_]>::to_vec).collect();
    if !others.is_empty() {
        batches.push(others);
    }
    batches
}

/// Values to be written, by column.
#[derive(Default)]
struct Rows {
    time: Vec<i64>,
    metric: Vec<ByteArray>,
    entity: Vec<ByteArray>,
    row: Vec<ByteArray>,
    value: Vec<f64>,
    has_value: Vec<i16>,
    text: Vec<ByteArray>,
    has_text: Vec<i16>,
}

struct Sink<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Rows,
    told: ToldTexts,
    written: u64,
}

impl<W: Write + Send> Sink<W> {
    fn take(&mut self, set: &SeriesSet, span: Span) -> Result<()> {
        for (name, series) in set.metrics() {
            let (metric, entity) = names(name);
            for (row, series) in series {
                let row = ByteArray::from(row.as_bytes().to_vec());
                for (t, _, value) in series.samples(span) {
                    self.rows.key(t, &metric, &entity, &row);
                    self.rows.value.push(value);
                    self.rows.has_value.push(1);
                    self.rows.has_text.push(0);
                    self.flush_if_full()?;
                }
            }
        }
        for (name, texts) in set.text_metrics() {
            let (metric, entity) = names(name);
            for (row, text) in texts {
                let known = self.told.known(name, row, text);
                let row = ByteArray::from(row.as_bytes().to_vec());
                let changes = text.changes.iter().skip(known).filter(|(t, _)| *t < span.until);
                for (t, text) in changes {
                    let Some(text) = text else { continue };
                    self.rows.key((*t).max(span.since), &metric, &entity, &row);
                    self.rows.has_value.push(0);
                    self.rows.text.push(ByteArray::from(text.as_bytes().to_vec()));
                    self.rows.has_text.push(1);
                    self.flush_if_full()?;
                }
            }
        }
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.rows.time.len() >= ROW_GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if rows.time.is_empty() {
            return Ok(());
        }
        self.written += rows.time.len() as u64;
        let mut group = self.writer.next_row_group()?;
        let mut position = 0;
        while let Some(mut column) = group.next_column()? {
            match position {
                0 => _ = column.typed::<Int64Type>().write_batch(&rows.time, None, None)?,
                1 => _ = column.typed::<ByteArrayType>().write_batch(&rows.metric, None, None)?,
                2 => _ = column.typed::<ByteArrayType>().write_batch(&rows.entity, None, None)?,
                3 => _ = column.typed::<ByteArrayType>().write_batch(&rows.row, None, None)?,
                4 => {
                    _ = column.typed::<DoubleType>().write_batch(&rows.value, Some(&rows.has_value), None)?
                }
                _ => {
                    _ = column.typed::<ByteArrayType>().write_batch(&rows.text, Some(&rows.has_text), None)?
                }
            }
            column.close()?;
            position += 1;
        }
        group.close()?;
        Ok(())
    }
}

impl Rows {
    fn key(&mut self, t: i64, metric: &ByteArray, entity: &ByteArray, row: &ByteArray) {
        self.time.push(t.div_euclid(1000));
        self.metric.push(metric.clone());
        self.entity.push(entity.clone());
        self.row.push(row.clone());
    }
}

fn names(metric: &'static str) -> (ByteArray, ByteArray) {
    let entity = mitra_model::lookup(metric).map_or("", |m| m.entity.name());
    (ByteArray::from(metric), ByteArray::from(entity))
}
