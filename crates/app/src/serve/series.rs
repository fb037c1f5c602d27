//! Values over time as a drawing needs them: how they lie in each of its columns.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use hyper::StatusCode;
use mitra_archive::{self as archive, RowFilter};
use mitra_diagnose::process;
use mitra_model::time::SECOND;
use mitra_model::{Entity, Metric, SeriesSet, Span};

use super::archive::{Version, View};
use super::cache::Cache;
use super::pool::Cancel;
use super::query::{Query, number_metric};
use super::response::Failure;
use crate::recording::chunks;

pub const COLUMNS_MAX: usize = 4096;
const SERIES_MAX: usize = 32;
/// The first bytes of an answer: `MRT1`.
const MAGIC: u32 = 0x3154_524D;
/// Minimum, 10 %, median, 90 % and maximum.
pub const LINES: usize = 5;
/// Read at a time; less where each task has a row.
const CHUNK_NS: i64 = 6 * 3600 * SECOND;
const CHUNK_TASKS_NS: i64 = 600 * SECOND;
/// Values of the columns that are not complete, of all series together.
const HELD_MAX: usize = 4 << 20;

/// One line of a drawing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wanted {
    pub metric: &'static str,
    pub row: String,
    /// The row is of a task, and its whole process is meant.
    pub is_process: bool,
}

/// What is drawn.
pub struct Drawing {
    pub wanted: Vec<Wanted>,
    pub span: Span,
    pub columns: usize,
}

/// A series in a span, and of which view it is.
type Key = (Wanted, i64, i64, usize, Version);
/// The values of all columns, one line after the other.
pub type Columns = Cache<Key, Vec<f32>>;

pub fn drawing(query: &Query, view: &View) -> Result<Drawing, Failure> {
    let mut wanted: Vec<(&'static Metric, Option<String>)> = Vec::new();
    for (name, value) in query.pairs() {
        match (name, wanted.last_mut()) {
            ("metric", _) => wanted.push((number_metric(value)?, None)),
            ("row", Some((_, row))) if row.is_none() => *row = Some(value.to_owned()),
            ("row", _) => return Err(Failure::bad("bad_parameter", "row: want metric=NAME before each row")),
            _ => {}
        }
    }
    if wanted.is_empty() || wanted.len() > SERIES_MAX {
        return Err(Failure::bad("bad_parameter", format!("want 1 to {SERIES_MAX} times metric=NAME")));
    }
    let of_processes = query.flag("process")?;
    let named = |(metric, row): (&'static Metric, Option<String>)| match row {
        None if metric.entity != Entity::System => {
            let why = format!("{} is of a {}: want row=NAME after it", metric.name, metric.entity);
            Err(Failure::bad("no_row", why))
        }
        row => Ok(Wanted {
            metric: metric.name,
            row: row.unwrap_or_default(),
            is_process: of_processes && metric.entity == Entity::Task,
        }),
    };
    let wanted = wanted.into_iter().map(named).collect::<Result<_, _>>()?;
    let missing = || Failure::bad("bad_number", format!("want columns=N, 1 to {COLUMNS_MAX}"));
    let columns = query.number("columns", 1..=COLUMNS_MAX)?.ok_or_else(missing)?;
    Ok(Drawing { wanted, span: query.span(view)?, columns })
}

/// The answer: a header, and the lines of each series. See `openapi.json`.
pub fn answer(view: &View, drawing: &Drawing, cache: &Columns, cancel: &Cancel) -> Result<Vec<u8>, Failure> {
    let known = lines(view, drawing, cache, cancel)?;
    let seconds = |ns: i64| ns as f64 / SECOND as f64;
    let width = drawing.span.until.saturating_sub(drawing.span.since);
    let mut out = Vec::with_capacity(32 + known.len() * LINES * drawing.columns * size_of::<f32>());
    for number in [MAGIC, known.len() as u32, drawing.columns as u32, 0] {
        out.extend(number.to_le_bytes());
    }
    out.extend(seconds(drawing.span.since).to_le_bytes());
    out.extend((seconds(width) / drawing.columns as f64).to_le_bytes());
    known.iter().for_each(|lines| lines.iter().for_each(|value| out.extend(value.to_le_bytes())));
    Ok(out)
}

/// The lines of each series: minima, 10 %, medians, 90 % and maxima of all columns.
pub fn lines(
    view: &View,
    drawing: &Drawing,
    cache: &Columns,
    cancel: &Cancel,
) -> Result<Vec<Arc<Vec<f32>>>, Failure> {
    let Drawing { span, columns, .. } = drawing;
    let key = |wanted: &Wanted| (wanted.clone(), span.since, span.until, *columns, view.version(*span));
    let mut known: Vec<Option<Arc<Vec<f32>>>> =
        drawing.wanted.iter().map(|wanted| cache.get(&key(wanted))).collect();
    let missing: Vec<usize> = (0..known.len()).filter(|i| known[*i].is_none()).collect();
    if !missing.is_empty() {
        let wanted: Vec<&Wanted> = missing.iter().map(|i| &drawing.wanted[*i]).collect();
        let read = read(view, &wanted, drawing, cancel)?;
        for (i, lines) in missing.into_iter().zip(read) {
            let lines = Arc::new(lines);
            cache.put(key(&drawing.wanted[i]), Arc::clone(&lines), lines.len() * size_of::<f32>());
            known[i] = Some(lines);
        }
    }
    Ok(known.into_iter().flatten().collect())
}

fn read(
    view: &View,
    wanted: &[&Wanted],
    drawing: &Drawing,
    cancel: &Cancel,
) -> Result<Vec<Vec<f32>>, Failure> {
    let mut filling: Vec<Filling> =
        wanted.iter().map(|_| Filling::new(drawing.span, drawing.columns)).collect();
    let Some(span) = drawing.span.intersect(view.span) else { return Ok(finished(filling)) };
    let mut metrics: Vec<&'static Metric> =
        wanted.iter().filter_map(|w| mitra_model::lookup(w.metric)).collect();
    metrics.sort_unstable_by_key(|metric| metric.name);
    metrics.dedup_by_key(|metric| metric.name);
    let leaders: HashSet<&str> = wanted.iter().filter(|w| w.is_process).map(|w| w.row.as_str()).collect();
    let is_of_tasks = metrics.iter().any(|metric| metric.entity == Entity::Task);
    for part in chunks(span, if is_of_tasks { CHUNK_TASKS_NS } else { CHUNK_NS }) {
        if cancel.is_set() {
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "gone", "nobody waits for it"));
        }
        let threads = threads(view, part, &leaders)?;
        let single = wanted.iter().map(|w| &w.row);
        let names: HashSet<String> = single.chain(threads.values().flatten()).cloned().collect();
        let rows: RowFilter = Arc::new(move |_, row| names.contains(row));
        let query = archive::Query { rows: Some(rows), ..archive::Query::new(part, metrics.clone()) };
        let set = view.reader.read(&query).map_err(anyhow::Error::from)?;
        for (wanted, filling) in wanted.iter().zip(&mut filling) {
            match threads.get(wanted.row.as_str()).filter(|_| wanted.is_process) {
                Some(rows) => filling.take(together(&set, wanted.metric, rows, part)),
                None => filling.take(samples(&set, wanted.metric, &wanted.row, part)),
            }
        }
        if filling.iter().map(|one| one.held.len()).sum::<usize>() > HELD_MAX {
            let why = "too many values fall into one column; ask for more columns, or for fewer series";
            return Err(Failure::bad("too_few_columns", why));
        }
    }
    Ok(finished(filling))
}

/// The rows of all threads of the processes of some tasks, as far as they were there in a part of the time.
fn threads<'a>(
    view: &View,
    part: Span,
    tasks: &HashSet<&'a str>,
) -> Result<HashMap<&'a str, Vec<String>>, Failure> {
    if tasks.is_empty() {
        return Ok(HashMap::new());
    }
    let tgid = mitra_model::lookup("task.tgid").into_iter().collect();
    let set = view.reader.read(&archive::Query::new(part, tgid)).map_err(anyhow::Error::from)?;
    let mut found = HashMap::new();
    for process in process::collect(&set) {
        for task in process.rows.iter().filter_map(|row| tasks.get(*row)) {
            found.insert(*task, process.rows.iter().map(|row| (*row).to_owned()).collect());
        }
    }
    Ok(found)
}

fn samples(set: &SeriesSet, metric: &str, row: &str, part: Span) -> impl Iterator<Item = (i64, f64)> {
    set.get(metric, row)
        .into_iter()
        .flat_map(move |series| series.samples(part))
        .map(|(t, _, value)| (t, value))
}

/// What several threads did at each moment: of what is counted the sum, of everything else the most that one of them says, because memory and
/// descriptors belong to all.
fn together(set: &SeriesSet, metric: &str, rows: &[String], part: Span) -> BTreeMap<i64, f64> {
    let is_counted = mitra_model::lookup(metric).is_some_and(Metric::is_rate);
    let mut all: BTreeMap<i64, f64> = BTreeMap::new();
    for (t, value) in rows.iter().flat_map(|row| samples(set, metric, row, part)) {
        let so_far = all.entry(t).or_insert(if is_counted { 0.0 } else { value });
        *so_far = if is_counted { *so_far + value } else { so_far.max(value) };
    }
    all
}

fn finished(filling: Vec<Filling>) -> Vec<Vec<f32>> {
    filling.into_iter().map(Filling::finish).collect()
}

/// The columns of one series. Samples come in order of time, so that only the values of one column are held.
struct Filling {
    span: Span,
    columns: usize,
    lines: Vec<f32>,
    /// The column that is being filled, and its values.
    column: usize,
    held: Vec<f32>,
}

impl Filling {
    fn new(span: Span, columns: usize) -> Self {
        Filling { span, columns, lines: vec![f32::NAN; LINES * columns], column: 0, held: Vec::new() }
    }

    fn take(&mut self, samples: impl IntoIterator<Item = (i64, f64)>) {
        let width = i128::from(self.span.until) - i128::from(self.span.since);
        for (t, value) in samples {
            let column = (i128::from(t) - i128::from(self.span.since)) * self.columns as i128 / width;
            let column = (column.max(0) as usize).min(self.columns - 1);
            if column != self.column {
                self.close();
                self.column = column;
            }
            self.held.push(value as f32);
        }
    }

    /// Writes the column that was filled.
    fn close(&mut self) {
        let Some(last) = self.held.len().checked_sub(1) else { return };
        self.held.sort_unstable_by(f32::total_cmp);
        let at = [0, last / 10, last / 2, last - last / 10, last];
        for (line, at) in at.into_iter().enumerate() {
            self.lines[line * self.columns + self.column] = self.held[at];
        }
        self.held.clear();
    }

    fn finish(mut self) -> Vec<f32> {
        self.close();
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use mitra_model::{Axis, Series};

    use super::*;

    #[test]
    fn all_values_of_a_column_are_in() {
        let span = Span { since: 100 * SECOND, until: 130 * SECOND };
        let t: Vec<i64> = (100..121).map(|s| s * SECOND).collect();
        let values = (0..21).map(|i| if i == 20 { f64::NAN } else { f64::from(i) }).collect();
        let axis = Axis { dt: vec![1.0; t.len()], t, places: Vec::new() };
        let series = Series { axis: Arc::new(axis), start: 0, values };
        let mut filling = Filling::new(span, 3);
        // As two chunks, whose border lies within a column.
        for part in [(span.since, 104 * SECOND), (104 * SECOND, span.until)] {
            let part = Span { since: part.0, until: part.1 };
            filling.take(series.samples(part).map(|(t, _, value)| (t, value)));
        }
        let lines = filling.finish();
        let column = |i: usize| [0, 1, 2, 3, 4].map(|line| lines[line * 3 + i]);
        assert_eq!(column(0), [0.0, 0.0, 4.0, 9.0, 9.0]);
        assert_eq!(column(1), [10.0, 10.0, 14.0, 19.0, 19.0]);
        assert!(column(2).iter().all(|value| value.is_nan()), "nothing was measured there");
    }

    #[test]
    fn a_process_is_all_of_its_threads() {
        let axis = Arc::new(Axis { t: vec![SECOND, 2 * SECOND], dt: vec![1.0; 2], places: Vec::new() });
        let mut set = SeriesSet::default();
        for (row, read, resident) in
            [("7@1", [1.0, f64::NAN], [5.0, 6.0]), ("8@2", [2.0, 4.0], [f64::NAN, 3.0])]
        {
            for (metric, values) in [("task.read_bytes", read), ("task.rss_anon", resident)] {
                let values = values.into_iter().collect();
                let series = Series { axis: Arc::clone(&axis), start: 0, values };
                set.insert(mitra_model::lookup(metric).unwrap(), row.into(), series);
            }
        }
        let rows = ["7@1", "8@2"].map(str::to_owned);
        let of = |metric: &str| together(&set, metric, &rows, Span::ALL).into_values().collect::<Vec<f64>>();
        assert_eq!(of("task.read_bytes"), [3.0, 4.0], "bytes of both");
        assert_eq!(of("task.rss_anon"), [5.0, 6.0], "memory that they share");
    }
}
