//! Time series in base units, the input of the diagnosis, from a recording or from the output of other tools.
//!
//! A counter is its rate per second over the interval that ends at the sample, a gauge the value at the sample. A value
//! that was not measured is `NaN`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::frame::{Event, HostInfo, SourceLine};
use crate::metric::{Entity, Metric, lookup};
use crate::time::{SECOND, Span};
use crate::values::Values;

/// The sample times that several series share.
///
/// Times are strictly increasing. After a step of the wall clock inside the range, earlier samples are shifted to the clock
/// after the step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Axis {
    /// The end of each sample's interval, in nanoseconds since 1970 UTC.
    pub t: Vec<i64>,
    /// The seconds that each sample covers; `NaN` if unknown (the first one, the first of a boot).
    pub dt: Vec<f64>,
    /// The line of each sample; empty if the samples are not from the output of other tools.
    pub places: Vec<SourceLine>,
}

impl Axis {
    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.t.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.t.is_empty()
    }

    /// The indices of the samples inside the span.
    #[must_use]
    pub fn range(&self, span: Span) -> std::ops::Range<usize> {
        let start = self.t.partition_point(|t| *t < span.since);
        let end = self.t.partition_point(|t| *t < span.until);
        start..end.max(start)
    }

    /// The sampling interval in seconds: the median distance of two samples.
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

/// One metric of one row over time.
#[derive(Debug, Clone)]
pub struct Series {
    /// The sample times.
    pub axis: Arc<Axis>,
    /// The index on the axis of the first value; a task that started later has no values before.
    pub start: usize,
    /// One value for each index from `start` on; `NaN` is unavailable.
    pub values: Values,
}

impl Series {
    /// The value at an index of the axis.
    #[must_use]
    pub fn at(&self, position: usize) -> f64 {
        position.checked_sub(self.start).and_then(|i| self.values.get(i)).copied().unwrap_or(f64::NAN)
    }

    /// Time, covered seconds and value of each measured sample inside the span.
    pub fn samples(&self, span: Span) -> impl DoubleEndedIterator<Item = (i64, f64, f64)> {
        let range = self.axis.range(span);
        let start = range.start.max(self.start);
        let end = range.end.min(self.start + self.values.len());
        (start..end.max(start)).filter_map(move |i| {
            let value = self.values[i - self.start];
            value.is_finite().then(|| (self.axis.t[i], self.axis.dt[i], value))
        })
    }

    /// The measured values inside the span.
    #[must_use]
    pub fn values(&self, span: Span) -> Vec<f64> {
        self.samples(span).map(|(_, _, value)| value).collect()
    }

    /// The time-weighted mean inside the span; `None` if nothing was measured.
    #[must_use]
    pub fn mean(&self, span: Span) -> Option<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for (_, dt, value) in self.samples(span) {
            let dt = if dt.is_finite() { dt } else { 1.0 };
            sum += value * dt;
            weight += dt;
            (least, most) = (least.min(value), most.max(value));
        }
        // Rounding puts the mean of equal values beside them.
        (weight > 0.0).then(|| (sum / weight).max(least).min(most))
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
        self.samples(span).next_back().map(|(_, _, value)| value)
    }

    /// The first value inside the span.
    #[must_use]
    pub fn first(&self, span: Span) -> Option<f64> {
        self.samples(span).next().map(|(_, _, value)| value)
    }

    /// The integral of a rate over the span: the number of events, bytes or seconds.
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

/// One text metric of one row over time, as its changes.
#[derive(Debug, Clone, Default)]
pub struct TextSeries {
    /// Time of change and new text; `None` if it became unavailable.
    pub changes: Vec<(i64, Option<Arc<str>>)>,
    /// The line of the last change, if it is from the output of another tool.
    pub place: Option<SourceLine>,
}

impl TextSeries {
    /// The text at that time, or the first one if the time is before all changes.
    #[must_use]
    pub fn at(&self, t: i64) -> Option<&str> {
        let i = self.changes.partition_point(|(since, _)| *since <= t);
        self.changes.get(i.saturating_sub(1)).and_then(|(_, text)| text.as_deref())
    }

    /// The last text.
    #[must_use]
    pub fn last(&self) -> Option<&str> {
        self.changes.iter().rev().find_map(|(_, text)| text.as_deref())
    }
}

/// A time range without samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// From the last sample before to the first one after.
    pub span: Span,
    /// The reason, if known: `recorder stopped`, `damaged`, `suspend`, `reboot`.
    pub why: String,
}

/// The data of one machine over one time range.
#[derive(Debug, Clone, Default)]
pub struct SeriesSet {
    /// The machine.
    pub host: HostInfo,
    /// The source: `archive`, `files`.
    pub source: String,
    /// Events in order of time.
    pub events: Vec<Event>,
    /// Unavailable sources and the reasons.
    pub unavailable: Vec<(String, String)>,
    /// Time ranges without samples.
    pub gaps: Vec<Gap>,
    /// The names of the files, by [`SourceLine::file`].
    pub files: Vec<String>,
    totals: BTreeMap<&'static str, BTreeMap<Arc<str>, Series>>,
    numbers: BTreeMap<&'static str, BTreeMap<Arc<str>, Series>>,
    texts: BTreeMap<&'static str, BTreeMap<Arc<str>, TextSeries>>,
}

impl SeriesSet {
    /// Adds a series. `row` is a [`crate::frame::row_name`].
    pub fn insert(&mut self, metric: &'static Metric, row: Arc<str>, series: Series) {
        self.numbers.entry(metric.name).or_default().insert(row, series);
    }

    /// Adds raw readings of a counter: its total since it started to count. A single reading has no rate.
    pub fn insert_total(&mut self, metric: &'static Metric, row: Arc<str>, series: Series) {
        self.totals.entry(metric.name).or_default().insert(row, series);
    }

    /// Raw readings of a counter, in base units.
    #[must_use]
    pub fn total(&self, metric: &str, row: &str) -> Option<&Series> {
        debug_assert!(lookup(metric).is_some(), "{metric} is not in the metric table");
        self.totals.get(metric)?.get(row)
    }

    /// Raw readings of a counter of all rows, by name.
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

    /// The series of a metric of one row.
    #[must_use]
    pub fn get(&self, metric: &str, row: &str) -> Option<&Series> {
        debug_assert!(lookup(metric).is_some(), "{metric} is not in the metric table");
        self.numbers.get(metric)?.get(row)
    }

    /// The series of a metric of all rows, by name.
    pub fn each(&self, metric: &str) -> impl Iterator<Item = (&str, &Series)> {
        debug_assert!(lookup(metric).is_some(), "{metric} is not in the metric table");
        self.numbers.get(metric).into_iter().flatten().map(|(row, series)| (row.as_ref(), series))
    }

    /// A text of one row.
    #[must_use]
    pub fn text(&self, metric: &str, row: &str) -> Option<&TextSeries> {
        debug_assert!(lookup(metric).is_some(), "{metric} is not in the metric table");
        self.texts.get(metric)?.get(row)
    }

    /// A text of all rows, by name.
    pub fn each_text(&self, metric: &str) -> impl Iterator<Item = (&str, &TextSeries)> {
        self.texts.get(metric).into_iter().flatten().map(|(row, series)| (row.as_ref(), series))
    }

    /// Every metric with at least one series, with its rows.
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, &BTreeMap<Arc<str>, Series>)> {
        self.numbers.iter().map(|(name, rows)| (*name, rows))
    }

    /// Every text metric with at least one series, with its rows.
    pub fn text_metrics(&self) -> impl Iterator<Item = (&'static str, &BTreeMap<Arc<str>, TextSeries>)> {
        self.texts.iter().map(|(name, rows)| (*name, rows))
    }

    /// From the first sample of any series to just after the last one.
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

/// The rate per second in base units between two readings of a counter; `NaN` if either is unavailable or the counter
/// decreased (it was reset, or belongs to another object).
#[must_use]
pub fn rate(metric: &Metric, before: i64, now: i64, dt_s: f64) -> f64 {
    use crate::frame::NA;
    if before == NA || now == NA || now < before || !dt_s.is_finite() || dt_s <= 0.0 {
        return f64::NAN;
    }
    (now - before) as f64 * metric.unit.scale() / dt_s
}

/// The value of a gauge cell in base units.
#[must_use]
pub fn level(metric: &Metric, cell: i64) -> f64 {
    if cell == crate::frame::NA { f64::NAN } else { cell as f64 * metric.unit.scale() }
}

/// Seconds between two times in nanoseconds.
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
        Series { axis: Arc::new(Axis { t, dt, places: Vec::new() }), start: 0, values: values.into() }
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
        s.values = vec![9.0].into();
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
