//! Samples of the archive as PromQL wants them: counters as the kernel counts, everything else as it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use mitra_archive::{Query, RowFilter};
use mitra_ask::promql::{Error, Matcher, NAME, Series, Source};
use mitra_model::time::SECOND;
use mitra_model::{Entity, Metric, Span, lookup};

use super::{all_match, label_of, named};
use crate::recording::{all_metrics, chunks};
use crate::serve::archive::View;
use crate::serve::openmetrics::{Family, family};
use crate::serve::pool::Cancel;

/// Read at a time of one metric, and the least of many; less where each task has a row.
const CHUNK_NS: (i64, i64) = (3600 * SECOND, 60 * SECOND);
const CHUNK_TASKS_NS: (i64, i64) = (60 * SECOND, 10 * SECOND);
/// Of one question; they take sixteen bytes each.
const SAMPLES_MAX: usize = 4_000_000;
/// A sample holds until the next one would have come, and half as long again because it may come late.
const HOLDS: f64 = 1.5;
/// What is read least often is read so seldom.
const HOLDS_MAX_INTERVALS: f64 = 30.0;
const NS_OF_MS: i64 = 1_000_000;
/// The name of a task, beside its id.
const COMM: &str = "comm";

/// All metrics that Prometheus can be told, how, and the factor of their stored values.
pub fn families(view: &View) -> impl Iterator<Item = (&'static Metric, Family<'static>, f64)> {
    let page_bytes = view.reader.host().page_bytes as f64;
    all_metrics()
        .filter_map(move |metric| family(metric, page_bytes).map(|(family, scale)| (metric, family, scale)))
}

/// What one question reads.
pub struct Samples<'a> {
    view: &'a View,
    cancel: &'a Cancel,
    count: usize,
}

impl<'a> Samples<'a> {
    pub fn new(view: &'a View, cancel: &'a Cancel) -> Self {
        Samples { view, cancel, count: 0 }
    }

    fn interval_ms(&self) -> f64 {
        if self.view.interval_s.is_finite() { self.view.interval_s * 1000.0 } else { 1000.0 }
    }

    /// How long a sample of a series holds.
    fn holds_ms(&self, samples: &[(i64, f64)]) -> i64 {
        let mut between: Vec<i64> = samples.windows(2).map(|two| two[1].0 - two[0].0).collect();
        let middle = between.len() / 2;
        let step = if between.is_empty() {
            self.interval_ms()
        } else {
            *between.select_nth_unstable(middle).1 as f64
        };
        ((step * HOLDS) as i64).min(self.holds_max_ms())
    }
}

/// Whether a metric can have a series that matches, by its name and the names of its labels.
fn may_match(metric: &Metric, name: &str, matchers: &[Matcher]) -> bool {
    let has = |label: &str| {
        Some(label) == label_of(metric.entity) || metric.entity == Entity::Task && label == COMM
    };
    matchers.iter().all(|matcher| match matcher.name.as_str() {
        NAME => matcher.is_match(name),
        label => has(label) || matcher.is_match(""),
    })
}

impl Source for Samples<'_> {
    fn select(&mut self, matchers: &[Matcher], from_ms: i64, to_ms: i64) -> Result<Vec<Series>, Error> {
        let wanted: Vec<(&'static Metric, String, f64)> = families(self.view)
            .map(|(metric, family, scale)| (metric, family.of_samples(), scale))
            .filter(|(metric, name, _)| may_match(metric, name, matchers))
            .collect();
        let ns = |ms: i64| ms.saturating_add(1).saturating_mul(NS_OF_MS);
        let span = Span { since: ns(from_ms), until: ns(to_ms) };
        let Some(span) =
            Some(span).filter(|span| span.since < span.until).and_then(|span| span.intersect(self.view.span))
        else {
            return Ok(Vec::new());
        };
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let of_rows: Vec<Matcher> = matchers.to_vec();
        let rows: RowFilter = Arc::new(move |entity, row| {
            let mut of_entity =
                of_rows.iter().filter(|matcher| Some(matcher.name.as_str()) == label_of(entity));
            of_entity.all(|matcher| matcher.is_match(row))
        });
        let is_of_tasks = wanted.iter().any(|(metric, ..)| metric.entity == Entity::Task);
        let comm = lookup("task.comm").filter(|_| is_of_tasks);
        let metrics: Vec<&'static Metric> =
            comm.into_iter().chain(wanted.iter().map(|(metric, ..)| *metric)).collect();
        // The name of a task, and the samples.
        type Found = (Option<String>, Vec<(i64, f64)>);
        let mut found: BTreeMap<(usize, Arc<str>), Found> = BTreeMap::new();
        let (of_one, least) = if is_of_tasks { CHUNK_TASKS_NS } else { CHUNK_NS };
        for part in chunks(span, (of_one / wanted.len() as i64).max(least)) {
            self.goes_on()?;
            let query =
                Query { raw: true, rows: Some(Arc::clone(&rows)), ..Query::new(part, metrics.clone()) };
            let set = self.view.reader.read(&query).map_err(|error| Error::Unreadable(error.to_string()))?;
            for (i, (metric, _, scale)) in wanted.iter().enumerate() {
                for (row, series) in set.each(metric.name) {
                    let mut samples = series.samples(part).peekable();
                    if samples.peek().is_none() {
                        continue;
                    }
                    let (name, list) = found.entry((i, row.into())).or_default();
                    if metric.entity == Entity::Task {
                        *name = comm
                            .and_then(|comm| set.text(comm.name, row)?.last())
                            .map(str::to_owned)
                            .or(name.take());
                    }
                    let before = list.len();
                    for (t, _, value) in samples {
                        let t = t.div_euclid(NS_OF_MS);
                        if list.last().is_none_or(|(last, _)| *last < t) {
                            list.push((t, value * scale));
                        }
                    }
                    self.count += list.len() - before;
                }
            }
            if self.count > SAMPLES_MAX {
                let why =
                    format!("more than {SAMPLES_MAX} samples; ask for a shorter range, or for fewer series");
                return Err(Error::Execution(why));
            }
        }
        let series = found.into_iter().map(|((i, row), (comm, samples))| {
            let (metric, name, _) = &wanted[i];
            let mut labels = named(name);
            if let Some(label) = label_of(metric.entity) {
                labels.insert(label.to_owned(), row.to_string());
            }
            if let Some(comm) = comm {
                labels.insert(COMM.to_owned(), comm);
            }
            Series { holds_ms: self.holds_ms(&samples), labels, samples }
        });
        Ok(series.filter(|series| all_match(matchers, &series.labels)).collect())
    }

    fn holds_max_ms(&self) -> i64 {
        (self.interval_ms() * HOLDS_MAX_INTERVALS) as i64
    }

    fn goes_on(&self) -> Result<(), Error> {
        if self.cancel.is_set() { Err(Error::Gone) } else { Ok(()) }
    }
}
