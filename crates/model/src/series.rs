//! What the diagnosis reads: values over time, in base units, whatever they came from.
//!
//! A counter has become its rate per second over the interval that ends at the sample; a gauge is the level at
//! the sample. Nanoseconds have become seconds and sectors bytes. What was not measured is `NaN`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::frame::{Event, HostInfo, SourceLine};
use crate::metric::{Entity, Metric, lookup};
use crate::time::{SECOND, Span};

/// The moments of a group of series.
///
/// Times are strictly increasing. When the wall clock stepped inside the range, earlier samples are shown on the
/// clock as it was after the last step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Axis {
    /// The end of each sample's interval, in nanoseconds since 1970 UTC.
    pub t: Vec<i64>,
    /// How many seconds each sample covers; `NaN` where that is not known (the first one, the first of a boot).
    pub dt: Vec<f64>,
    /// The line that each sample was read from; empty where the samples do not come from files of other tools.
    pub places: Vec<SourceLine>,
}

impl Axis {
    /// How many samples there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.t.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.t.is_empty()
    }

    /// The positions of the samples inside the span.
    #[must_use]
    pub fn range(&self, span: Span) -> std::ops::Range<usize> {
        let start = self.t.partition_point(|t| *t < span.since);
        let end = self.t.partition_point(|t| *t < span.until);
        start..end.max(start)
    }

    /// The usual distance of two samples in seconds: the median.
    #[must_use]
    pub fn step_s(&self) -> f64 {
        let mut steps: Vec<f64> = self.dt.iter().copied().filter(|dt| dt.is_finite()).collect();
        if steps.is_empty() {
            return f64::NAN;
        }
        let middle = steps.len() / 2;
        *steps.select_nth_unstable_by(middle, f64::total_cmp).1
    }
}

/// One metric of one thing over time.
#[derive(Debug, Clone)]
pub struct Series {
    /// The moments.
    pub axis: Arc<Axis>,
    /// The position on the axis of the first value; a task that came later has no values before.
    pub start: usize,
    /// The values, one for each position from `start` on; `NaN` is unavailable.
    pub values: Vec<f64>,
}

impl Series {
    /// The value at a position of the axis.
    #[must_use]
    pub fn at(&self, position: usize) -> f64 {
        position.checked_sub(self.start).and_then(|i| self.values.get(i)).copied().unwrap_or(f64::NAN)
    }

    /// Time, covered seconds and value of each sample inside the span that was measured.
    pub fn samples(&self, span: Span) -> impl Iterator<Item = (i64, f64, f64)> {
        let range = self.axis.range(span);
        let start = range.start.max(self.start);
        let end = range.end.min(self.start + self.values.len());
        (start..end.max(start)).filter_map(move |i| {
            let value = self.values[i - self.start];
            value.is_finite().then(|| (self.axis.t[i], self.axis.dt[i], value))
        })
    }

    /// The values inside the span that were measured.
    #[must_use]
    pub fn values(&self, span: Span) -> Vec<f64> {
        self.samples(span).map(|(_, _, value)| value).collect()
    }

    /// The mean over time inside the span; `None` when nothing was measured.
    #[must_use]
    pub fn mean(&self, span: Span) -> Option<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (_, dt, value) in self.samples(span) {
            let dt = if dt.is_finite() { dt } else { 1.0 };
            sum += value * dt;
            weight += dt;
        }
        (weight > 0.0).then(|| sum / weight)
    }

    /// The largest value inside the span.
    #[must_use]
    pub fn max(&self, span: Span) -> Option<f64> {
        self.samples(span).map(|(_, _, value)| value).max_by(f64::total_cmp)
    }

    /// The smallest value inside the span.
    #[must_use]
    pub fn min(&self, span: Span) -> Option<f64> {
        self.samples(span).map(|(_, _, value)| value).min_by(f64::total_cmp)
    }

    /// The last value inside the span.
    #[must_use]
    pub fn last(&self, span: Span) -> Option<f64> {
        self.samples(span).last().map(|(_, _, value)| value)
    }

    /// The first value inside the span.
    #[must_use]
    pub fn first(&self, span: Span) -> Option<f64> {
        self.samples(span).next().map(|(_, _, value)| value)
    }

    /// A rate added up over the span: how many events, bytes or seconds there were.
    #[must_use]
    pub fn total(&self, span: Span) -> Option<f64> {
        let mut any = false;
        let mut sum = 0.0;
        for (_, dt, value) in self.samples(span) {
            if dt.is_finite() {
                sum += value * dt;
                any = true;
            }
        }
        any.then_some(sum)
    }
}

/// One text of one thing over time, as its changes.
#[derive(Debug, Clone, Default)]
pub struct TextSeries {
    /// When the text began to hold, and the text; `None` when it became unavailable.
    pub changes: Vec<(i64, Option<Arc<str>>)>,
    /// The line of the last change, where it comes from a file of another tool.
    pub place: Option<SourceLine>,
}

impl TextSeries {
    /// The text that held at the moment, or the first one when the moment is before all of them.
    #[must_use]
    pub fn at(&self, t: i64) -> Option<&str> {
        let i = self.changes.partition_point(|(since, _)| *since <= t);
        self.changes.get(i.saturating_sub(1)).and_then(|(_, text)| text.as_deref())
    }

    /// The last text that held.
    #[must_use]
    pub fn last(&self) -> Option<&str> {
        self.changes.iter().rev().find_map(|(_, text)| text.as_deref())
    }
}

/// A stretch of time without samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// From the last sample before to the first one after.
    pub span: Span,
    /// What is known of the reason: `recorder stopped`, `damaged`, `suspend`, `reboot`.
    pub why: String,
}

/// Everything that is known of one machine over one range of time.
#[derive(Debug, Clone, Default)]
pub struct SeriesSet {
    /// The machine.
    pub host: HostInfo,
    /// Where it comes from: `archive`, `files`.
    pub source: String,
    /// Events in order of time.
    pub events: Vec<Event>,
    /// What could not be observed, and why.
    pub unavailable: Vec<(String, String)>,
    /// Stretches without samples.
    pub gaps: Vec<Gap>,
    /// The names of the files that a [`SourceLine`] points to.
    pub files: Vec<String>,
    totals: BTreeMap<&'static str, BTreeMap<Arc<str>, Series>>,
    numbers: BTreeMap<&'static str, BTreeMap<Arc<str>, Series>>,
    texts: BTreeMap<&'static str, BTreeMap<Arc<str>, TextSeries>>,
}

impl SeriesSet {
    /// Adds a series. `row` is the name of the thing as [`crate::frame::row_name`] writes it.
    pub fn insert(&mut self, metric: &'static Metric, row: Arc<str>, series: Series) {
        self.numbers.entry(metric.name).or_default().insert(row, series);
    }

    /// Adds readings of a counter as they stand: what it had come to since it began to count. Readings count for
    /// what they are where there is only one, and no rate.
    pub fn insert_total(&mut self, metric: &'static Metric, row: Arc<str>, series: Series) {
        self.totals.entry(metric.name).or_default().insert(row, series);
    }

    /// Readings of a counter as they stand, in base units.
    #[must_use]
    pub fn total(&self, metric: &str, row: &str) -> Option<&Series> {
        debug_assert!(lookup(metric).is_some(), "{metric} is not in the metric table");
        self.totals.get(metric)?.get(row)
    }

    /// Readings of a counter as they stand, of everything that has it, by name.
    pub fn each_total(&self, metric: &str) -> impl Iterator<Item = (&str, &Series)> {
        debug_assert!(lookup(metric).is_some(), "{metric} is not in the metric table");
        self.totals.get(metric).into_iter().flatten().map(|(row, series)| (row.as_ref(), series))
    }

    /// Adds a text series.
    pub fn insert_text(&mut self, metric: &'static Metric, row: Arc<str>, series: TextSeries) {
        self.texts.entry(metric.name).or_default().insert(row, series);
    }

    /// The series of a metric of the whole machine.
    #[must_use]
    pub fn system(&self, metric: &str) -> Option<&Series> {
        debug_assert!(
            lookup(metric).is_none_or(|m| m.entity == Entity::System),
            "{metric} is no system metric"
        );
        self.get(metric, "")
    }

    /// The series of a metric of one thing.
    #[must_use]
    pub fn get(&self, metric: &str, row: &str) -> Option<&Series> {
        debug_assert!(lookup(metric).is_some(), "{metric} is not in the metric table");
        self.numbers.get(metric)?.get(row)
    }

    /// The series of a metric of everything that has it, by name.
    pub fn each(&self, metric: &str) -> impl Iterator<Item = (&str, &Series)> {
        debug_assert!(lookup(metric).is_some(), "{metric} is not in the metric table");
        self.numbers.get(metric).into_iter().flatten().map(|(row, series)| (row.as_ref(), series))
    }

    /// A text of one thing.
    #[must_use]
    pub fn text(&self, metric: &str, row: &str) -> Option<&TextSeries> {
        debug_assert!(lookup(metric).is_some(), "{metric} is not in the metric table");
        self.texts.get(metric)?.get(row)
    }

    /// A text of everything that has it, by name.
    pub fn each_text(&self, metric: &str) -> impl Iterator<Item = (&str, &TextSeries)> {
        self.texts.get(metric).into_iter().flatten().map(|(row, series)| (row.as_ref(), series))
    }

    /// Every metric that has at least one series, with its things.
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, &BTreeMap<Arc<str>, Series>)> {
        self.numbers.iter().map(|(name, rows)| (*name, rows))
    }

    /// Every text metric that has at least one series, with its things.
    pub fn text_metrics(&self) -> impl Iterator<Item = (&'static str, &BTreeMap<Arc<str>, TextSeries>)> {
        self.texts.iter().map(|(name, rows)| (*name, rows))
    }

    /// From the first sample of anything to just after the last one.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        let mut span: Option<Span> = None;
        for series in self.numbers.values().flat_map(BTreeMap::values) {
            let (Some(first), Some(last)) = (series.axis.t.first(), series.axis.t.last()) else { continue };
            let until = last.saturating_add(1);
            span = Some(match span {
                None => Span { since: *first, until },
                Some(s) => Span { since: s.since.min(*first), until: s.until.max(until) },
            });
        }
        span
    }
}

/// Turns two readings of a counter into a rate per second in base units; `NaN` when either is unavailable or the
/// counter went back (it was reset, or it is another thing's).
#[must_use]
pub fn rate(metric: &Metric, before: i64, now: i64, dt_s: f64) -> f64 {
    use crate::frame::NA;
    if before == NA || now == NA || now < before || !dt_s.is_finite() || dt_s <= 0.0 {
        return f64::NAN;
    }
    (now - before) as f64 * metric.unit.scale() / dt_s
}

/// A stored gauge in base units.
#[must_use]
pub fn level(metric: &Metric, cell: i64) -> f64 {
    if cell == crate::frame::NA { f64::NAN } else { cell as f64 * metric.unit.scale() }
}

/// Seconds between two moments in nanoseconds.
#[must_use]
pub fn seconds_between(from: i64, to: i64) -> f64 {
    to.saturating_sub(from) as f64 / SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        let t = (0..values.len() as i64).map(|i| i * SECOND).collect();
        let mut dt = vec![1.0; values.len()];
        dt[0] = f64::NAN;
        Series { axis: Arc::new(Axis { t, dt, places: Vec::new() }), start: 0, values: values.to_vec() }
    }

    #[test]
    fn what_was_not_measured_does_not_count() {
        let s = series(&[f64::NAN, 2.0, f64::NAN, 4.0]);
        assert_eq!(s.mean(Span::ALL), Some(3.0));
        assert_eq!(s.total(Span::ALL), Some(6.0));
        assert_eq!(s.first(Span::ALL), Some(2.0));
        assert_eq!(s.mean(Span { since: 2 * SECOND, until: 3 * SECOND }), None);
    }

    #[test]
    fn a_series_that_starts_late_has_nothing_before() {
        let mut s = series(&[1.0, 2.0, 3.0]);
        s.start = 2;
        s.values = vec![9.0];
        assert!(s.at(0).is_nan());
        assert_eq!(s.at(2), 9.0);
        assert_eq!(s.values(Span::ALL), [9.0]);
    }

    #[test]
    fn a_counter_that_went_back_has_no_rate() {
        let metric = lookup("sys.ctxt").unwrap();
        assert!(rate(metric, 10, 5, 1.0).is_nan());
        assert_eq!(rate(metric, 10, 20, 2.0), 5.0);
        assert!(rate(metric, crate::frame::NA, 20, 2.0).is_nan());
    }
}
