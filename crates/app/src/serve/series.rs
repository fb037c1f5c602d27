//! Values over time as a drawing needs them: how they lie in each of its columns.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use hyper::StatusCode;
use mitra_archive::{self as archive, RowFilter};
use mitra_diagnose::process;
use mitra_model::time::SECOND;
use mitra_model::{Entity, Metric, SeriesSet, Span};

use super::api::ROWS_MAX_NS;
use super::archive::{Version, View};
use super::cache::Cache;
use super::pool::Cancel;
use super::query::{Query, number_metric, within};
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
/// All tasks are looked through for the threads of a process, so much of the time at once.
const THREADS_NS: i64 = 60 * SECOND;
/// Values that are read at once, of all rows and metrics.
const READ_MAX: usize = 16 << 20;
/// With so many that as much is read at once, each part of the archive would be read again and again.
const CHUNK_MIN_NS: i64 = 60 * SECOND;
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
/// A task, the beginning of a part of the time, and of which view it is.
type ThreadsKey = (String, i64, Version);

/// What was worked out before.
pub struct Columns {
    /// The values of all columns, one line after the other.
    lines: Cache<Key, Vec<f32>>,
    /// The rows of all threads of the process of a task.
    threads: Cache<ThreadsKey, Vec<String>>,
}

impl Columns {
    /// An eighth of the bytes is for names of threads.
    pub fn new(bytes_max: usize) -> Self {
        Columns { lines: Cache::new(bytes_max - bytes_max / 8), threads: Cache::new(bytes_max / 8) }
    }
}

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
    let wanted: Vec<Wanted> = wanted.into_iter().map(named).collect::<Result<_, _>>()?;
    let missing = || Failure::bad("bad_number", format!("want columns=N, 1 to {COLUMNS_MAX}"));
    let columns = query.number("columns", 1..=COLUMNS_MAX)?.ok_or_else(missing)?;
    let span = query.span(view)?;
    if let Some(read) = span.intersect(view.span).filter(|_| wanted.iter().any(|one| one.is_process)) {
        within(read, ROWS_MAX_NS)?;
    }
    Ok(Drawing { wanted, span, columns })
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
        drawing.wanted.iter().map(|wanted| cache.lines.get(&key(wanted))).collect();
    let missing: Vec<usize> = (0..known.len()).filter(|i| known[*i].is_none()).collect();
    if !missing.is_empty() {
        let wanted: Vec<&Wanted> = missing.iter().map(|i| &drawing.wanted[*i]).collect();
        let read = read(view, &wanted, drawing, cache, cancel)?;
        for (i, lines) in missing.into_iter().zip(read) {
            let lines = Arc::new(lines);
            cache.lines.put(key(&drawing.wanted[i]), Arc::clone(&lines), lines.len() * size_of::<f32>());
            known[i] = Some(lines);
        }
    }
    Ok(known.into_iter().flatten().collect())
}

fn read(
    view: &View,
    wanted: &[&Wanted],
    drawing: &Drawing,
    cache: &Columns,
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
    let longest = if is_of_tasks { CHUNK_TASKS_NS } else { CHUNK_NS };
    // The same parts of the time whatever is drawn, so that their threads are known the next time.
    let first = span.since.div_euclid(longest).saturating_mul(longest);
    for window in chunks(Span { since: first, until: span.until }, longest) {
        let window = Span { until: window.since.saturating_add(longest), ..window };
        let Some(part) = window.intersect(span) else { continue };
        let threads = threads(view, window, &leaders, cache, cancel)?;
        let single = wanted.iter().map(|w| &w.row);
        let names: HashSet<String> =
            single.chain(threads.values().flat_map(|rows| rows.iter())).cloned().collect();
        let chunk_ns = chunk_ns(names.len() * metrics.len(), view.interval_s, longest)?;
        let rows: RowFilter = Arc::new(move |_, row| names.contains(row));
        for part in chunks(part, chunk_ns) {
            waits(cancel)?;
            let rows = Some(Arc::clone(&rows));
            let query = archive::Query { rows, ..archive::Query::new(part, metrics.clone()) };
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
    }
    Ok(finished(filling))
}

fn waits(cancel: &Cancel) -> Result<(), Failure> {
    if cancel.is_set() {
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "gone", "nobody waits for it"));
    }
    Ok(())
}

/// How much of the time is read at once of so many series.
fn chunk_ns(series: usize, interval_s: f64, longest: i64) -> Result<i64, Failure> {
    let interval_s = if interval_s > 0.0 { interval_s } else { 1.0 };
    let samples = (READ_MAX / series.max(1)) as f64;
    let chunk_ns = (samples * interval_s * SECOND as f64) as i64;
    if chunk_ns < CHUNK_MIN_NS {
        let why = "the processes have too many threads for so many metrics; ask for fewer metrics";
        return Err(Failure::bad("too_many_rows", why));
    }
    Ok(chunk_ns.min(longest))
}

/// The rows of all threads of the processes of some tasks, as far as they were there in a part of the time.
fn threads<'a>(
    view: &View,
    window: Span,
    tasks: &HashSet<&'a str>,
    cache: &Columns,
    cancel: &Cancel,
) -> Result<HashMap<&'a str, Arc<Vec<String>>>, Failure> {
    let key = |task: &str| (task.to_owned(), window.since, view.version(window));
    let mut threads: HashMap<&'a str, Arc<Vec<String>>> = HashMap::new();
    let mut missing: HashMap<&'a str, BTreeSet<String>> = HashMap::new();
    for task in tasks.iter().copied() {
        match cache.threads.get(&key(task)) {
            Some(rows) => _ = threads.insert(task, rows),
            None => _ = missing.insert(task, BTreeSet::new()),
        }
    }
    let span = window.intersect(view.span).filter(|_| !missing.is_empty());
    let tgid: Vec<&'static Metric> = mitra_model::lookup("task.tgid").into_iter().collect();
    for part in span.into_iter().flat_map(|span| chunks(span, THREADS_NS)) {
        waits(cancel)?;
        let set = view.reader.read(&archive::Query::new(part, tgid.clone())).map_err(anyhow::Error::from)?;
        for process in process::collect(&set) {
            for (_, rows) in missing.iter_mut().filter(|(task, _)| process.rows.contains(*task)) {
                rows.extend(process.rows.iter().map(|row| (*row).to_owned()));
            }
        }
    }
    for (task, rows) in missing {
        let rows: Arc<Vec<String>> = Arc::new(rows.into_iter().collect());
        let bytes = rows.iter().map(|row| row.len() + size_of::<String>()).sum();
        cache.threads.put(key(task), Arc::clone(&rows), bytes);
        threads.insert(task, rows);
    }
    // A task that nobody saw stands for itself.
    threads.retain(|_, rows| !rows.is_empty());
    Ok(threads)
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
    fn less_of_the_time_is_read_at_once_where_there_are_many_rows() {
        let chunk = |series: usize, interval_s: f64| {
            chunk_ns(series, interval_s, CHUNK_TASKS_NS).map_err(|failure| failure.code)
        };
        assert_eq!(chunk(0, f64::NAN), Ok(CHUNK_TASKS_NS));
        assert_eq!(chunk(10_000, 1.0), Ok(CHUNK_TASKS_NS));
        assert_eq!(chunk(1 << 17, 1.0), Ok(128 * SECOND));
        assert_eq!(chunk(32 * 10_000, 1.0), Err("too_many_rows"));
        assert_eq!(chunk(32 * 10_000, 10.0), Ok(520 * SECOND));
        assert!(chunk(SERIES_MAX * SERIES_MAX, 0.01).is_ok(), "of single rows there are never too many");
        let day = Span { since: SECOND, until: SECOND + ROWS_MAX_NS };
        assert!(within(day, ROWS_MAX_NS).is_ok());
        assert!(within(Span { since: 0, ..day }, ROWS_MAX_NS).is_err());
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
