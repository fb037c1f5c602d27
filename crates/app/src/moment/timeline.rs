//! Lost time over all of a recording, in few numbers.

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::ledger;
use mitra_model::time::SECOND;
use mitra_model::{Series, Span};

use super::samples::axis_of;
use super::{metrics, value};
use crate::recording::chunks;

/// More columns than a terminal has.
pub const COLUMNS: usize = 480;
const CHUNK_NS: i64 = 6 * 3600 * SECOND;

#[derive(Debug, Clone)]
pub struct Timeline {
    pub span: Span,
    /// Task-seconds lost per second; `NaN` where nothing was measured.
    pub lost: Vec<f64>,
}

impl Timeline {
    pub fn read(reader: &Reader, span: Span) -> Result<Self> {
        let mut lost = vec![(0.0, 0.0); COLUMNS];
        let length = i128::from(span.until.saturating_sub(span.since).max(1));
        for part in chunks(span, CHUNK_NS) {
            // Throttled time is part of the delays, and of many groups.
            let names = ledger::METRICS.iter().copied().filter(|name| !name.starts_with("cgroup."));
            let set = reader.read(&Query::new(part, metrics(names)))?;
            let Some(axis) = axis_of(&set) else { continue };
            let Some(signal) = ledger::lost(&set, part) else { continue };
            let mut values = vec![f64::NAN; axis.len()];
            for (t, value) in signal.t.iter().zip(&signal.v) {
                if let Ok(i) = axis.t.binary_search(t) {
                    values[i] = *value;
                }
            }
            let series = Series { axis: axis.clone(), start: 0, values: values.into() };
            // As many columns as lie in this part, so that each number has one weight.
            let column = |t: i64| (i128::from(t - span.since) * COLUMNS as i128 / length) as usize;
            let columns = (column(part.until) - column(part.since)).max(1);
            for (i, value) in value::bars(&series, part, columns).into_iter().enumerate() {
                if let (true, Some((sum, weight))) = (value.is_finite(), lost.get_mut(column(part.since) + i))
                {
                    *sum += value;
                    *weight += 1.0;
                }
            }
        }
        let lost = lost.into_iter().map(|(sum, weight)| if weight > 0.0 { sum / weight } else { f64::NAN });
        Ok(Timeline { span, lost: lost.collect() })
    }

    /// The largest of so many columns each, so that short trouble is seen.
    pub fn bars(&self, columns: usize) -> Vec<f64> {
        let edge = |i: usize| i * self.lost.len() / columns.max(1);
        let most = |i: usize| {
            let part =
                &self.lost[edge(i).min(self.lost.len())..edge(i + 1).max(edge(i) + 1).min(self.lost.len())];
            part.iter().copied().filter(|value| value.is_finite()).reduce(f64::max).unwrap_or(f64::NAN)
        };
        (0..columns).map(most).collect()
    }

    /// The time in the middle of a column.
    pub fn time(&self, column: usize, columns: usize) -> i64 {
        let length = i128::from(self.span.until.saturating_sub(self.span.since));
        let columns = columns.max(1) as i128;
        let into = length * (2 * column as i128 + 1) / (2 * columns);
        self.span.since.saturating_add(into.min(length) as i64)
    }

    /// The column of a time.
    pub fn column(&self, t: i64, columns: usize) -> usize {
        let length = i128::from(self.span.until.saturating_sub(self.span.since).max(1));
        let at = i128::from(t.clamp(self.span.since, self.span.until) - self.span.since) * columns as i128
            / length;
        (at as usize).min(columns.saturating_sub(1))
    }
}
