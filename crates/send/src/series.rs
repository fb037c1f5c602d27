//! What is sent: series with their samples, in portions that a store takes at once.

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

/// Series in portions of at most [`BATCH_SAMPLES`] samples. A series whose samples are more is divided.
pub struct Batches<'a> {
    rest: std::slice::Iter<'a, Series>,
    begun: Option<Series>,
}

impl<'a> Batches<'a> {
    /// All of these series.
    #[must_use]
    pub fn of(series: &'a [Series]) -> Self {
        Batches { rest: series.iter(), begun: None }
    }
}

impl Iterator for Batches<'_> {
    type Item = Vec<Series>;

    fn next(&mut self) -> Option<Vec<Series>> {
        let (mut batch, mut count) = (Vec::new(), 0);
        while count < BATCH_SAMPLES {
            let Some(mut series) = self.begun.take().or_else(|| self.rest.next().cloned()) else { break };
            let room = BATCH_SAMPLES - count;
            if series.samples.len() > room {
                let later = series.samples.split_off(room);
                self.begun = Some(Series { samples: later, ..series.clone() });
            }
            count += series.samples.len();
            if !series.samples.is_empty() {
                batch.push(series);
            }
        }
        (!batch.is_empty()).then_some(batch)
    }
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
    fn no_batch_is_larger_and_none_loses_a_sample() {
        let count = |n: i64| (0..n).map(|t| (t, t as f64)).collect::<Vec<_>>();
        let all = [
            series("a", None, &count(BATCH_SAMPLES as i64 - 1)),
            series("b", None, &[]),
            series("c", None, &count(2 * BATCH_SAMPLES as i64)),
            series("d", None, &count(3)),
        ];
        let batches: Vec<Vec<Series>> = Batches::of(&all).collect();
        let sizes: Vec<usize> =
            batches.iter().map(|batch| batch.iter().map(|s| s.samples.len()).sum()).collect();
        assert_eq!(sizes, [BATCH_SAMPLES, BATCH_SAMPLES, BATCH_SAMPLES, 2]);
        for one in &all {
            let of_it = batches.iter().flatten().filter(|s| s.name == one.name);
            assert_eq!(of_it.flat_map(|s| s.samples.clone()).collect::<Vec<_>>(), one.samples);
        }
        assert_eq!(Batches::of(&[]).count(), 0);
    }
}
