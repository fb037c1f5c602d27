//! What is sent: series with their samples, in portions that a store takes at once.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Samples of one request: what stores are used to.
pub const BATCH_SAMPLES: usize = 5_000;

/// Whether it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesKind {
    /// The total since it began to count.
    Counter,
    /// The value at the time of the sample.
    Gauge,
}

/// A series: its name, what it is, and its samples in order of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// As Prometheus calls it: `mitra_disk_read_bytes_total`.
    pub name: Arc<str>,
    /// Whether it counts.
    pub kind: SeriesKind,
    /// `bytes`, `seconds` or nothing.
    pub unit: &'static str,
    /// What it means.
    pub help: &'static str,
    /// Names and values, in order of the names. No value is empty.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
    /// Nanoseconds since 1970 and values, none of which is `NaN`.
    pub samples: Vec<(i64, f64)>,
}

/// A portion of series: whole intervals, and where the last of them ends.
pub type Batch = (i64, Vec<Series>);

/// Series in portions of whole intervals, in order of time: at most so many samples each, or one interval. So a position between
/// two portions says exactly what was sent.
#[must_use]
pub fn batches(series: &[Series], every_ns: i64, most: usize) -> Vec<Batch> {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for (t, _) in series.iter().flat_map(|one| &one.samples) {
        *counts.entry(t.div_euclid(every_ns)).or_default() += 1;
    }
    let (mut ends, mut count) = (Vec::new(), 0);
    for (interval, more) in counts {
        if count > 0 && count + more > most {
            ends.push(interval.saturating_mul(every_ns));
            count = 0;
        }
        count += more;
    }
    if count > 0 {
        ends.push(i64::MAX);
    }
    let mut since = i64::MIN;
    let batch = |until: i64| {
        let from = std::mem::replace(&mut since, until);
        (until, series.iter().filter_map(|one| part(one, from, until)).collect())
    };
    ends.into_iter().map(batch).collect()
}

/// The samples of a series within a span, if there are any.
fn part(series: &Series, since: i64, until: i64) -> Option<Series> {
    let at = |end: i64| series.samples.partition_point(|(t, _)| *t < end);
    let samples = series.samples.get(at(since)..at(until)).filter(|samples| !samples.is_empty())?.to_vec();
    Some(Series {
        name: Arc::clone(&series.name),
        kind: series.kind,
        unit: series.unit,
        help: series.help,
        labels: series.labels.clone(),
        samples,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A series of a disk, or of the whole machine.
    pub fn series(name: &str, disk: Option<&str>, samples: &[(i64, f64)]) -> Series {
        let label = |(name, value): (&str, &str)| (Arc::from(name), Arc::from(value));
        let labels = disk.map(|disk| ("disk", disk)).into_iter().chain([("host", "web1")]);
        Series {
            name: name.into(),
            kind: if name.ends_with("_total") { SeriesKind::Counter } else { SeriesKind::Gauge },
            unit: if name.contains("bytes") { "bytes" } else { "" },
            help: "Help.",
            labels: labels.map(label).collect(),
            samples: samples.to_vec(),
        }
    }

    #[test]
    fn batches_are_whole_intervals_and_lose_no_sample() {
        let count = |n: i64| (0..n).map(|t| (t, t as f64)).collect::<Vec<_>>();
        let all = [series("a", None, &count(40)), series("b", None, &[]), series("c", None, &count(25))];
        for (most, ends) in
            [(1_000, vec![i64::MAX]), (40, vec![20, i64::MAX]), (1, vec![10, 20, 30, i64::MAX])]
        {
            let batches = batches(&all, 10, most);
            assert_eq!(batches.iter().map(|(end, _)| *end).collect::<Vec<_>>(), ends);
            for one in &all {
                let of_it = batches.iter().flat_map(|(_, batch)| batch).filter(|s| s.name == one.name);
                assert_eq!(of_it.flat_map(|s| s.samples.clone()).collect::<Vec<_>>(), one.samples);
            }
        }
        assert!(batches(&[], 10, 1).is_empty());
    }
}
