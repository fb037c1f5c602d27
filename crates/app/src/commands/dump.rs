//! `mitra dump`: recorded values as a table, CSV or lines of JSON.

use std::io::{BufWriter, IsTerminal, Write};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use mitra_archive::Query;
use mitra_model::time::SECOND;
use mitra_model::{Axis, Entity, Kind, Metric, Series, SeriesSet, Span, TextSeries, lookup};
use serde_json::json;

use crate::cli::{DumpArgs, DumpFormat};
use crate::commands::{print, select};
use crate::errors::usage;
use crate::pager;
use crate::progress::Progress;
use crate::recording::{Recording, ToldTexts, Wanted, chunks};
use crate::render::style::{Style, clean, clean_json, rfc3339};
use crate::render::table::Table;
use crate::render::units;

/// Without --since.
const USUAL_NS: i64 = 60 * SECOND;
/// Read at a time: the length of a segment, or less where each task has a column.
const CHUNK_NS: i64 = 600 * SECOND;
const CHUNK_TASKS_NS: i64 = 60 * SECOND;
/// Wider tables are refused.
const TABLE_COLUMNS_MAX: usize = 40;
/// Without --metric: roughly the columns of vmstat.
const TABLE_METRICS: &[&str] = &[
    "tasks.running",
    "tasks.uninterruptible",
    "mem.free",
    "mem.cached",
    "vm.pgpgin",
    "vm.pgpgout",
    "vm.pgmajfault",
    "sys.ctxt",
    "sys.cpu_user",
    "sys.cpu_system",
    "sys.cpu_idle",
    "sys.cpu_iowait",
    "tasks.run_delay",
];

pub fn run(args: &DumpArgs, style: &Style) -> Result<()> {
    let format = if args.json { DumpFormat::Json } else { args.format };
    let unnamed = args.select.metric.is_empty() && args.select.entity.is_empty();
    let metrics = if unnamed && format == DumpFormat::Table && !args.list {
        TABLE_METRICS.iter().filter_map(|name| lookup(name)).collect()
    } else {
        select::metrics(&args.select)?
    };
    let recording = Recording::open_for(&args.archive.chosen(), &Wanted::new(&args.range, USUAL_NS))?;
    let span = recording.recorded(&args.range, USUAL_NS)?;
    let dump = Dump { recording: &recording, metrics, args, style };
    let progress = Progress::new("reading");
    if args.list {
        let text = dump.list(span, format)?;
        drop(progress);
        return print(&text);
    }
    // Both would write to one screen.
    if pager::child().is_some() {
        drop(progress);
    }
    let mut out = BufWriter::new(pager::Output);
    match format {
        DumpFormat::Table => dump.table(span, &mut out)?,
        DumpFormat::Csv => {
            writeln!(out, "time,metric,entity,row,value")?;
            // Programs get names as recorded; a terminal would execute their escape sequences.
            let is_shown = std::io::stdout().is_terminal();
            dump.each(span, &mut |t, column, value| csv_line(&mut out, t, column, value, is_shown))?;
        }
        DumpFormat::Json => dump.each(span, &mut |t, column, value| json_line(&mut out, t, column, value))?,
    }
    out.flush().context("cannot write to standard output")
}

struct Dump<'a> {
    recording: &'a Recording,
    metrics: Vec<&'static Metric>,
    args: &'a DumpArgs,
    style: &'a Style,
}

/// One metric of one entity.
struct Column<'a> {
    metric: &'static Metric,
    row: &'a str,
    values: Values<'a>,
}

enum Values<'a> {
    Numbers(&'a Series),
    Texts(&'a TextSeries),
}

enum Value<'a> {
    Number(f64),
    Text(&'a str),
}

impl Dump<'_> {
    fn read(&self, span: Span) -> Result<SeriesSet> {
        let query = Query {
            rows: select::row_filter(&self.args.select),
            raw: self.args.raw,
            ..Query::new(span, self.metrics.clone())
        };
        Ok(self.recording.reader.read(&query)?)
    }

    fn columns<'s>(&self, set: &'s SeriesSet) -> Vec<Column<'s>> {
        let numbers = set.metrics().flat_map(|(name, rows)| {
            rows.iter().map(move |(row, series)| (name, row.as_ref(), Values::Numbers(series)))
        });
        let texts = set.text_metrics().flat_map(|(name, rows)| {
            rows.iter().map(move |(row, series)| (name, row.as_ref(), Values::Texts(series)))
        });
        let position = |metric: &Metric| self.metrics.iter().position(|m| m.name == metric.name);
        let mut columns: Vec<Column<'s>> = numbers
            .chain(texts)
            .filter(|(_, row, _)| select::row(&self.args.select, row))
            .filter_map(|(name, row, values)| Some(Column { metric: lookup(name)?, row, values }))
            .collect();
        columns.sort_by_key(|c| (position(c.metric), c.row));
        columns
    }

    /// Every value, by time and then by metric; texts where they change.
    fn each(
        &self,
        span: Span,
        emit: &mut dyn FnMut(i64, &Column<'_>, &Value<'_>) -> std::io::Result<()>,
    ) -> Result<()> {
        let tasks = self.metrics.iter().any(|m| m.entity == Entity::Task);
        let chunk_ns = if tasks { CHUNK_TASKS_NS } else { CHUNK_NS };
        let mut told = ToldTexts::default();
        for part in chunks(span, chunk_ns) {
            let set = self.read(part)?;
            for_each_value(&self.columns(&set), &mut told, part, emit)
                .context("cannot write to standard output")?;
            told.next_piece();
        }
        Ok(())
    }

    fn table(&self, span: Span, out: &mut dyn Write) -> Result<()> {
        let mut heads: Vec<(String, usize)> = Vec::new();
        for part in chunks(span, CHUNK_NS) {
            let set = self.read(part)?;
            let columns = self.columns(&set);
            if columns.len() > TABLE_COLUMNS_MAX {
                return Err(usage(format!(
                    "that is {} columns and a table holds {TABLE_COLUMNS_MAX}; narrow it with --metric and --row, or use --format csv",
                    columns.len()
                )));
            }
            let now: Vec<(String, usize)> = columns.iter().map(head).collect();
            // Entities come and go: then there is a new heading.
            if now != heads && !now.is_empty() {
                heads = now;
                let line: String = heads.iter().map(|(head, width)| format!("  {head:>width$}")).collect();
                writeln!(out, "{:<8}{line}", "TIME")?;
            }
            for t in moments(&columns, part) {
                write!(out, "{}", self.style.clock(t))?;
                for (column, (_, width)) in columns.iter().zip(&heads) {
                    write!(out, "  {:>width$}", self.cell(column, t))?;
                }
                writeln!(out)?;
            }
        }
        if heads.is_empty() {
            return Err(anyhow!(
                "nothing of that was recorded in that time; what there is: mitra dump --list"
            ));
        }
        Ok(())
    }

    fn cell(&self, column: &Column<'_>, t: i64) -> String {
        match &column.values {
            Values::Texts(texts) => clean(texts.at(t).unwrap_or("-")).chars().take(40).collect(),
            Values::Numbers(series) => {
                let value = series.axis.t.binary_search(&t).map_or(f64::NAN, |i| series.at(i));
                match (value.is_finite(), self.args.raw) {
                    (false, _) => "-".to_owned(),
                    (true, true) => format!("{value:.0}"),
                    (true, false) => units::value(value, &column.metric.unit_label()),
                }
            }
        }
    }

    fn list(&self, span: Span, format: DumpFormat) -> Result<String> {
        let set = self.read(span)?;
        let mut rows: Vec<(&Metric, usize, String)> = Vec::new();
        for column in self.columns(&set) {
            match rows.last_mut() {
                Some((metric, count, _)) if metric.name == column.metric.name => *count += 1,
                _ => {
                    let last = match &column.values {
                        Values::Numbers(series) => series
                            .last(span)
                            .map_or_else(|| "-".to_owned(), |v| units::value(v, &column.metric.unit_label())),
                        Values::Texts(texts) => texts.last().unwrap_or("-").to_owned(),
                    };
                    rows.push((column.metric, 1, last));
                }
            }
        }
        if format == DumpFormat::Json {
            let lines = rows.iter().map(|(m, count, _)| {
                json!({ "metric": m.name, "entity": m.entity.name(), "rows": count, "unit": m.unit_label() })
                    .to_string()
                    + "\n"
            });
            return Ok(lines.collect());
        }
        let mut table = Table::of("METRIC|OF|>ROWS|UNIT|LAST OF THE FIRST");
        for (m, count, last) in rows {
            table.row([m.name.to_owned(), m.entity.to_string(), count.to_string(), m.unit_label(), last]);
        }
        Ok(table.render(self.style))
    }
}

/// The heading of a column, and its width.
fn head(column: &Column<'_>) -> (String, usize) {
    let head = if column.row.is_empty() {
        column.metric.name.to_owned()
    } else {
        format!("{} {}", column.metric.name, clean(column.row))
    };
    // The widest value is something like `999.9 MB/s`.
    let width = head.chars().count().max(10);
    (head, width)
}

/// Every time at which one of the columns has a sample.
fn moments(columns: &[Column<'_>], span: Span) -> Vec<i64> {
    let mut axes: Vec<&Arc<Axis>> = Vec::new();
    let mut all: Vec<i64> = Vec::new();
    for column in columns {
        match &column.values {
            Values::Numbers(series) if !axes.iter().any(|axis| Arc::ptr_eq(axis, &series.axis)) => {
                axes.push(&series.axis);
                all.extend_from_slice(&series.axis.t[series.axis.range(span)]);
            }
            Values::Numbers(_) => {}
            Values::Texts(texts) => {
                let shown = texts.changes.iter().map(|(t, _)| (*t).max(span.since));
                all.extend(shown.filter(|t| *t < span.until));
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Emits the values of a chunk by time.
fn for_each_value(
    columns: &[Column<'_>],
    told: &mut ToldTexts,
    span: Span,
    emit: &mut dyn FnMut(i64, &Column<'_>, &Value<'_>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let told = columns.iter().map(|column| match &column.values {
        Values::Numbers(_) => 0,
        Values::Texts(texts) => told.known(column.metric.name, column.row, texts),
    });
    let mut next: Vec<usize> = told.collect();
    for t in moments(columns, span) {
        for (column, next) in columns.iter().zip(&mut next) {
            match &column.values {
                Values::Numbers(series) => {
                    let axis = &series.axis.t;
                    while axis.get(*next).is_some_and(|at| *at < t) {
                        *next += 1;
                    }
                    let value = series.at(*next);
                    if axis.get(*next) == Some(&t) && value.is_finite() {
                        emit(t, column, &Value::Number(value))?;
                    }
                }
                Values::Texts(texts) => {
                    while let Some((_, text)) = texts.changes.get(*next).filter(|(since, _)| *since <= t) {
                        *next += 1;
                        if let Some(text) = text {
                            emit(t, column, &Value::Text(text))?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

fn csv_line(
    out: &mut dyn Write,
    t: i64,
    column: &Column<'_>,
    value: &Value<'_>,
    is_shown: bool,
) -> std::io::Result<()> {
    let quoted = |text: &str| {
        let text = if is_shown { clean(text) } else { text.into() };
        if text.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.into_owned()
        }
    };
    let metric = column.metric;
    write!(out, "{},{},{},{},", rfc3339(t), metric.name, metric.entity, quoted(column.row))?;
    match value {
        Value::Number(number) => writeln!(out, "{number}"),
        Value::Text(text) => writeln!(out, "{}", quoted(text)),
    }
}

fn json_line(out: &mut dyn Write, t: i64, column: &Column<'_>, value: &Value<'_>) -> std::io::Result<()> {
    let metric = column.metric;
    let mut line = json!({ "time": rfc3339(t), "metric": metric.name, "entity": metric.entity.name(), "row": column.row });
    match value {
        Value::Number(number) => line["value"] = json!(number),
        Value::Text(text) => line["text"] = json!(text),
    }
    debug_assert!(
        matches!(value, Value::Text(_)) == (metric.kind == Kind::Text),
        "{} is of another kind",
        metric.name
    );
    writeln!(out, "{}", clean_json(&line.to_string()))
}
