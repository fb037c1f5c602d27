//! What a cell or a curve shows, worked out of the series of some rows.

use std::sync::Arc;

use mitra_diagnose::{ledger, process};
use mitra_model::time::SECOND;
use mitra_model::{Axis, Series, SeriesSet, Span};

/// How a number is worked out of metrics. What was not measured is `NaN`.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// All added up.
    Sum(&'static [&'static str]),
    /// The same of pages, in bytes.
    Pages(&'static [&'static str]),
    /// One sum divided by the other.
    Ratio(&'static [&'static str], &'static [&'static str]),
    /// Of one metric the smallest.
    Least(&'static str),
    /// Bytes per second by which pages grew in the last minute, negative where they shrank.
    Growth(&'static [&'static str]),
    /// Task-seconds that a process has lost, per second.
    Lost,
}

impl Value {
    pub fn metrics(self) -> impl Iterator<Item = &'static str> {
        let (a, b): (&[&str], &[&str]) = match self {
            Value::Sum(names) | Value::Pages(names) | Value::Growth(names) => (names, &[]),
            Value::Ratio(above, below) => (above, below),
            Value::Least(_) => (&[], &[]),
            Value::Lost => (LOST, &[]),
        };
        let least = if let Value::Least(name) = self { Some(name) } else { None };
        a.iter().chain(b).copied().chain(least)
    }

    /// The value at an index of the axis.
    pub fn at(self, set: &SeriesSet, rows: &[&str], axis: &Axis, i: usize) -> f64 {
        let sum = |names: &[&str]| sum(set, names, rows, i);
        match self {
            Value::Sum(names) => sum(names),
            Value::Pages(names) => sum(names) * set.host.page_bytes as f64,
            Value::Ratio(above, below) => {
                let below = sum(below);
                if below > 0.0 { sum(above) / below } else { f64::NAN }
            }
            Value::Least(name) => {
                let values = rows.iter().filter_map(|row| set.get(name, row)).map(|series| series.at(i));
                values.filter(|value| value.is_finite()).reduce(f64::min).unwrap_or(f64::NAN)
            }
            Value::Growth(names) => growth(set, names, rows, axis, i) * set.host.page_bytes as f64,
            Value::Lost => lost(set, rows, axis, i),
        }
    }

    /// The same over time.
    pub fn series(self, set: &SeriesSet, rows: &[&str], axis: &Arc<Axis>) -> Series {
        let values = (0..axis.len()).map(|i| self.at(set, rows, axis, i)).collect();
        Series { axis: Arc::clone(axis), start: 0, values }
    }
}

/// What growth is measured over.
pub const GROWTH_NS: i64 = 60 * SECOND;
/// What [`ledger::lost_by`] adds up.
const LOST: &[&str] = &["task.run_delay", "task.state", "task.kstack"];

fn sum(set: &SeriesSet, names: &[&str], rows: &[&str], i: usize) -> f64 {
    let series = names.iter().flat_map(|name| rows.iter().filter_map(|row| set.get(name, row)));
    series
        .map(|series| series.at(i))
        .filter(|value| value.is_finite())
        .reduce(|a, b| a + b)
        .unwrap_or(f64::NAN)
}

/// By how much a sum grew per second, between the first sample of the minute before that has it and this one.
pub fn growth(set: &SeriesSet, names: &[&str], rows: &[&str], axis: &Axis, i: usize) -> f64 {
    let Some(&t) = axis.t.get(i) else { return f64::NAN };
    let from = axis.t.partition_point(|before| *before < t.saturating_sub(GROWTH_NS));
    let before = (from..i).find_map(|at| {
        let value = sum(set, names, rows, at);
        value.is_finite().then(|| (axis.t[at], value))
    });
    before.map_or(f64::NAN, |(then, value)| {
        (sum(set, names, rows, i) - value) / mitra_model::series::seconds_between(then, t)
    })
}

fn lost(set: &SeriesSet, rows: &[&str], axis: &Axis, i: usize) -> f64 {
    let (Some(&t), Some(&dt)) = (axis.t.get(i), axis.dt.get(i)) else { return f64::NAN };
    if sum(set, &["task.run_delay", "task.state"], rows, i).is_nan() || !dt.is_finite() || dt <= 0.0 {
        return f64::NAN;
    }
    let process = process::Process {
        pid: 0,
        comm: "",
        kthread: false,
        cgroup: None,
        ppid: None,
        born_boot_ns: 0,
        rows: rows.to_vec(),
    };
    ledger::lost_by(&process, set, Span { since: t, until: t.saturating_add(1) }) / dt
}

/// A span in columns: the mean of each, `NaN` where nothing was measured.
///
/// A sample stands for the time that it covers, and for no more than two of the usual steps: what lies in a gap was not measured.
pub fn bars(series: &Series, span: Span, columns: usize) -> Vec<f64> {
    let length = span.until.saturating_sub(span.since);
    let columns = columns.max(1);
    let edge = |i: usize| span.since + (i128::from(length) * i as i128 / columns as i128) as i64;
    let step_s = series.axis.step_s();
    let most_s = if step_s.is_finite() { 2.0 * step_s } else { 1.0 };
    let mut sums = vec![(0.0, 0.0); columns];
    let from = series.axis.t.partition_point(|t| *t <= span.since);
    let mut column = 0;
    for i in from..series.axis.len() {
        let value = series.at(i);
        let t = series.axis.t[i];
        let dt = series.axis.dt[i];
        let covers = (if dt.is_finite() { dt.min(most_s) } else { most_s / 2.0 }) * SECOND as f64;
        let start = t.saturating_sub(covers as i64).max(span.since);
        if start >= span.until {
            break;
        }
        while column + 1 < columns && edge(column + 1) <= start {
            column += 1;
        }
        let mut at = column;
        while value.is_finite() && at < columns && edge(at) < t {
            let overlap = edge(at + 1).min(t) - edge(at).max(start);
            let (sum, weight) = &mut sums[at];
            *sum += value * overlap.max(0) as f64;
            *weight += overlap.max(0) as f64;
            at += 1;
        }
    }
    sums.into_iter().map(|(sum, weight)| if weight > 0.0 { sum / weight } else { f64::NAN }).collect()
}

/// The mean of what was measured.
pub fn mean(values: &[f64]) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values.iter().filter(|value| value.is_finite()) {
        sum += value;
        count += 1.0;
    }
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[(i64, f64)]) -> Series {
        let t: Vec<i64> = samples.iter().map(|(t, _)| t * SECOND).collect();
        let dt = t.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / SECOND as f64);
        let dt = std::iter::once(f64::NAN).chain(dt).collect();
        let values = samples.iter().map(|(_, value)| *value).collect();
        Series { axis: Arc::new(Axis { t, dt, places: Vec::new() }), start: 0, values }
    }

    fn of(samples: &[(i64, f64)], span: (i64, i64), columns: usize) -> Vec<Option<f64>> {
        let span = Span { since: span.0 * SECOND, until: span.1 * SECOND };
        let bars = bars(&series(samples), span, columns);
        bars.into_iter().map(|bar| bar.is_finite().then_some((bar * 100.0).round() / 100.0)).collect()
    }

    #[test]
    fn a_column_is_the_mean_of_what_it_covers() {
        let samples: Vec<(i64, f64)> = (1..=8).map(|i| (i, i as f64)).collect();
        assert_eq!(of(&samples, (0, 8), 4), [Some(1.5), Some(3.5), Some(5.5), Some(7.5)]);
        assert_eq!(
            of(&samples, (0, 8), 16)[2..4],
            [Some(2.0), Some(2.0)],
            "more columns than samples have no holes"
        );
        assert_eq!(of(&samples, (2, 4), 2), [Some(3.0), Some(4.0)]);
    }

    #[test]
    fn a_gap_has_no_values() {
        let samples = [(1, 1.0), (2, 1.0), (3, 1.0), (20, 5.0), (21, 5.0), (22, f64::NAN), (23, 5.0)];
        let bars = of(&samples, (0, 24), 24);
        assert_eq!(bars[..3], [Some(1.0); 3]);
        assert!(bars[3..18].iter().all(Option::is_none), "{bars:?}");
        assert_eq!(bars[18..], [Some(5.0), Some(5.0), Some(5.0), None, Some(5.0), None]);
    }

    #[test]
    fn growth_is_that_of_the_last_minute_and_of_what_was_measured() {
        let at = |samples: &[(i64, f64)], i: usize| {
            let mut set = SeriesSet::default();
            set.host.page_bytes = 4096;
            let series = series(samples);
            let axis = Arc::clone(&series.axis);
            set.insert(mitra_model::lookup("task.rss_anon").unwrap(), "7@1".into(), series);
            Value::Growth(&["task.rss_anon", "task.swap"]).at(&set, &["7@1"], &axis, i) / 4096.0
        };
        let samples = [(1, 1000.0), (41, 100.0), (51, f64::NAN), (101, 220.0), (111, 20.0)];
        assert_eq!([at(&samples, 1), at(&samples, 3)], [-22.5, 2.0]);
        assert_eq!(at(&samples, 4), -20.0, "nothing was measured earlier in that minute");
        assert!(at(&samples, 0).is_nan() && at(&samples, 2).is_nan() && at(&samples, 9).is_nan());
    }

    #[test]
    fn what_was_not_measured_is_not_zero() {
        assert_eq!(of(&[(1, f64::NAN), (2, 0.0)], (0, 2), 2), [None, Some(0.0)]);
        assert_eq!(of(&[], (0, 2), 2), [None, None]);
        assert!(mean(&[f64::NAN]).is_nan() && mean(&[f64::NAN, 2.0, 4.0]) == 3.0);
    }
}
