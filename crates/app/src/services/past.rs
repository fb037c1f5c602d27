//! Since when a service is slower than it was.
//!
//! This is the simple comparison with the hour before, for a table. `mitra explain` judges with the whole machine in view.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::time::SECOND;
use mitra_model::{Series, SeriesSet, Span};

/// How far back a service is compared with itself.
pub const BACK_NS: i64 = 3600 * SECOND;
pub const METRICS: &[&str] = &["service.latency_p50", "service.open"];
/// Slow is twice as long as usual and a millisecond longer: less nobody notices in an answer that takes microseconds.
const TIMES: f64 = 2.0;
const LONGER_S: f64 = 0.001;
/// The usual time is that of the fastest quarter of samples, so that a service that is slow for most of the hour still has
/// one.
const USUAL: f64 = 0.25;
/// Fast samples between slow ones that do not end a slow stretch.
const PAUSE: usize = 5;
/// Slow samples without which there is no slow stretch, and samples before it without which nothing is usual.
const SLOW_MIN: usize = 3;
const BEFORE_MIN: usize = 30;
/// Where samples without an answer and with open requests are more frequent than this, clients are meant to wait: they
/// poll, or listen to events.
const SILENT_MAX: f64 = 0.05;

/// Slower than it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slower {
    /// The first slow sample.
    pub since: i64,
    /// The usual median before, in seconds.
    pub before: f64,
    /// The usual median since then; `None` if nothing was answered.
    pub now: Option<f64>,
}

/// Medians by service and time. Infinite where requests are open and none is answered.
#[derive(Debug, Default)]
pub struct History {
    medians: BTreeMap<String, Vec<(i64, f64)>>,
}

impl History {
    pub fn add(&mut self, set: &SeriesSet, span: Span) {
        // A service that hangs for long has no medians at all.
        let rows: BTreeSet<&str> = METRICS.iter().flat_map(|m| set.each(m)).map(|(row, _)| row).collect();
        for row in rows {
            let [medians, open] = ["service.latency_p50", "service.open"].map(|m| set.get(m, row));
            let Some(axis) = medians.or(open).map(|series| &series.axis) else { continue };
            let at = |series: Option<&Series>, i: usize| series.map_or(f64::NAN, |series| series.at(i));
            let list = self.medians.entry(row.to_owned()).or_default();
            for i in axis.range(span) {
                let (median, is_open) = (at(medians, i), at(open, i) > 0.0);
                if median.is_finite() || is_open {
                    list.push((axis.t[i], if median.is_finite() { median } else { f64::INFINITY }));
                }
            }
        }
    }

    pub fn slower(&self, key: &str) -> Option<Slower> {
        slower(self.medians.get(key)?)
    }
}

fn slower(medians: &[(i64, f64)]) -> Option<Slower> {
    let usual = quantile(medians, USUAL)?;
    let is_slow = |median: f64| median > (usual * TIMES).max(usual + LONGER_S);
    // Back from the end as long as it is slow.
    let (mut first, mut slow, mut fast) = (None, 0, 0);
    for (i, (_, median)) in medians.iter().enumerate().rev() {
        if is_slow(*median) {
            (first, slow, fast) = (Some(i), slow + 1, 0);
        } else {
            fast += 1;
            if fast > PAUSE {
                break;
            }
        }
    }
    let first = first?;
    let (before, stretch) = medians.split_at(first);
    let silent = before.iter().filter(|(_, median)| median.is_infinite()).count();
    if slow < SLOW_MIN
        || slow * 2 < stretch.len()
        || before.len() < BEFORE_MIN
        || silent as f64 > before.len() as f64 * SILENT_MAX
    {
        return None;
    }
    let before = quantile(before, 0.5).filter(|before| !is_slow(*before))?;
    Some(Slower { since: stretch[0].0, before, now: quantile(stretch, 0.5) })
}

/// Of the samples with answers.
fn quantile(medians: &[(i64, f64)], share: f64) -> Option<f64> {
    let mut known: Vec<f64> = medians.iter().map(|(_, m)| *m).filter(|m| m.is_finite()).collect();
    let at = ((known.len() as f64 * share) as usize).min(known.len().checked_sub(1)?);
    Some(*known.select_nth_unstable_by(at, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(parts: &[(usize, f64)]) -> Vec<(i64, f64)> {
        let values = parts.iter().flat_map(|(count, median)| std::iter::repeat_n(*median, *count));
        values.enumerate().map(|(i, median)| (i as i64 * SECOND, median)).collect()
    }

    fn since(parts: &[(usize, f64)]) -> Option<i64> {
        slower(&stretch(parts)).map(|slower| slower.since / SECOND)
    }

    #[test]
    fn it_is_slower_since_it_left_its_usual_time() {
        assert_eq!(
            slower(&stretch(&[(300, 0.0025), (60, 6.8)])),
            Some(Slower { since: 300 * SECOND, before: 0.0025, now: Some(6.8) })
        );
        assert_eq!(since(&[(100, 0.002), (2000, 0.5)]), None, "for longer than it was fast");
        assert_eq!(since(&[(600, 0.002), (1700, 0.5)]), Some(600));
        assert_eq!(
            since(&[(100, 0.002), (20, 0.5), (3, 0.002), (20, 0.5), (2, 0.002)]),
            Some(100),
            "with pauses"
        );
        assert_eq!(since(&[(100, 0.002), (20, f64::INFINITY)]), Some(100), "it hangs");
    }

    #[test]
    fn what_is_usual_or_over_is_not_slower() {
        assert_eq!(since(&[(300, 0.0025), (60, 6.8), (30, 0.0025)]), None, "over");
        assert_eq!(since(&[(300, 0.002), (60, 0.0035)]), None, "within twice");
        assert_eq!(since(&[(300, 0.0001), (60, 0.0008)]), None, "nobody notices");
        assert_eq!(since(&[(300, 0.002), (2, 0.5)]), None, "one or two samples");
        assert_eq!(since(&[(10, 0.002), (60, 0.5)]), None, "too little is known of before");
        assert_eq!(
            since(&[(60, 0.002), (30, f64::INFINITY), (60, 0.002), (30, f64::INFINITY)]),
            None,
            "polls"
        );
        assert_eq!(since(&[]), None);
        assert_eq!(since(&[(50, f64::INFINITY)]), None);
    }
}
