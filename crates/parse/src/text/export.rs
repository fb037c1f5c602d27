//! A recording in steps, for writers of other tools' formats. A writer stands beside its reader and has that reader's
//! table of columns: what is written under a name is what is read under it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use mitra_model::time::SECOND;
use mitra_model::{Metric, SeriesSet, Span, lookup};

/// The samples of one step, taken together.
pub struct Sample<'a> {
    set: &'a SeriesSet,
    span: Span,
    /// When the last of them was taken, in nanoseconds since 1970 UTC.
    pub t: i64,
    /// Seconds that they cover.
    pub interval_s: f64,
}

/// Metrics that kernels count in parts only, and those that some tools do not tell apart.
#[rustfmt::skip]
const SUMS: &[(&str, &[&str])] = &[
    ("disk.transfers", &["disk.reads", "disk.writes", "disk.discards"]),
    ("disk.transfer_time", &["disk.read_time", "disk.write_time", "disk.discard_time"]),
    ("vm.pgscan", &["vm.pgscan_kswapd", "vm.pgscan_direct", "vm.pgscan_khugepaged", "vm.pgscan_proactive"]),
    ("vm.pgsteal", &["vm.pgsteal_kswapd", "vm.pgsteal_direct", "vm.pgsteal_khugepaged", "vm.pgsteal_proactive"]),
    ("vm.allocstall", &[
        "vm.allocstall_dma", "vm.allocstall_dma32", "vm.allocstall_normal", "vm.allocstall_high",
        "vm.allocstall_movable", "vm.allocstall_device",
    ]),
];

/// The metrics of these names, with the parts of those that kernels count in parts only.
pub fn metrics<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'static Metric> {
    let mut list: Vec<&'static Metric> = Vec::new();
    for name in names {
        let parts = SUMS.iter().find(|(sum, _)| *sum == name).map_or(&[][..], |(_, parts)| parts);
        for metric in std::iter::once(name).chain(parts.iter().copied()).filter_map(lookup) {
            if !list.iter().any(|known| known.name == metric.name) {
                list.push(metric);
            }
        }
    }
    list
}

/// The samples of a span by steps of so many nanoseconds. Formats of intervals have no place for a sample of which it
/// is not known what it covers, the first one of a boot.
#[must_use]
pub fn samples(set: &SeriesSet, span: Span, step: i64) -> Vec<Sample<'_>> {
    let step = step.max(SECOND);
    let mut axes = HashSet::new();
    let mut times: BTreeMap<i64, f64> = BTreeMap::new();
    for (_, rows) in set.metrics() {
        for axis in rows.values().map(|series| &series.axis).filter(|axis| axes.insert(Arc::as_ptr(axis))) {
            let range = axis.range(span);
            let taken = axis.t.get(range.clone()).into_iter().flatten();
            for (t, dt) in taken.zip(axis.dt.get(range).into_iter().flatten()) {
                let known = times.entry(*t).or_insert(f64::NAN);
                if known.is_nan() {
                    *known = *dt;
                }
            }
        }
    }
    let mut samples: Vec<Sample<'_>> = Vec::new();
    for (t, dt) in times.into_iter().filter(|(_, dt)| dt.is_finite() && *dt > 0.0) {
        match samples.last_mut().filter(|sample| sample.span.contains(t)) {
            Some(last) => (last.t, last.interval_s) = (t, last.interval_s + dt),
            None => {
                let since = t.div_euclid(step).saturating_mul(step);
                let span = Span { since, until: since.saturating_add(step) };
                samples.push(Sample { set, span, t, interval_s: dt });
            }
        }
    }
    samples
}

impl<'a> Sample<'a> {
    /// The number of a metric in base units: the mean rate, or the last level. `NaN` if it was not measured.
    #[must_use]
    pub fn value(&self, metric: &str, row: &str) -> f64 {
        let value = self.measured(metric, row);
        if value.is_finite() {
            return value;
        }
        let parts = SUMS.iter().find(|(sum, _)| *sum == metric).map_or(&[][..], |(_, parts)| parts);
        self.sum(parts, row)
    }

    /// The sum of those metrics that were measured; `NaN` if none was.
    #[must_use]
    pub fn sum(&self, metrics: &[&str], row: &str) -> f64 {
        let values = metrics.iter().map(|metric| self.measured(metric, row)).filter(|v| v.is_finite());
        values.reduce(|a, b| a + b).unwrap_or(f64::NAN)
    }

    /// The mean rate over all of the step of what uses nothing while it is not there, as a task does.
    #[must_use]
    pub fn mean_of_step(&self, metric: &str, row: &str) -> f64 {
        let total = self.set.get(metric, row).and_then(|series| series.total(self.span));
        total.map_or(f64::NAN, |total| total / self.interval_s)
    }

    fn measured(&self, metric: &str, row: &str) -> f64 {
        let (Some(metric), Some(series)) = (lookup(metric), self.set.get(metric, row)) else {
            return f64::NAN;
        };
        let value = if metric.is_rate() { series.mean(self.span) } else { series.last(self.span) };
        value.unwrap_or(f64::NAN)
    }

    /// The rows of which a metric was measured, by name; numbers by their value.
    #[must_use]
    pub fn rows(&self, metric: &str) -> Vec<&'a str> {
        let measured = self.set.each(metric).filter(|(_, series)| series.samples(self.span).next().is_some());
        let mut rows: Vec<&str> = measured.map(|(row, _)| row).collect();
        rows.sort_by_key(|row| (row.parse::<u32>().unwrap_or(u32::MAX), *row));
        rows
    }

    /// A number that does not change while there is such a row; files name it once, without a time.
    #[must_use]
    pub fn constant(&self, metric: &str, row: &str) -> Option<f64> {
        self.set.get(metric, row)?.last(Span::ALL)
    }

    /// A text of a row.
    #[must_use]
    pub fn text(&self, metric: &str, row: &str) -> Option<&'a str> {
        self.set.text(metric, row)?.at(self.t)
    }
}

/// A name as one word of a line: names come from the machine.
#[must_use]
pub fn word(name: &str) -> String {
    name.chars().map(|c| if c.is_whitespace() || mitra_model::must_escape(c) { '_' } else { c }).collect()
}

/// The date and the time of day, UTC: `2026-11-28`, `16:22:44`.
#[must_use]
pub fn date_and_time(t: i64) -> (String, String) {
    let text = mitra_model::report::Moment(t).to_string();
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default().to_owned();
    (part(0..10), part(11..19))
}

/// `sda1`, `nvme0n1p2`: the kernel puts a `p` before the number where the name of the disk ends in a digit.
#[must_use]
pub fn is_partition(name: &str) -> bool {
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if disk.len() == name.len() {
        return false;
    }
    let is_numbered = |disk: &str| disk.ends_with(|c: char| c.is_ascii_digit());
    disk.strip_suffix('p').is_some_and(is_numbered)
        || ["sd", "vd", "hd", "xvd"].iter().any(|kind| {
            let letters = disk.strip_prefix(kind);
            letters.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_lowercase()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_no_disks() {
        for name in ["sda1", "sdp1", "sdab12", "vda1", "nvme0n1p2", "mmcblk0p1", "md0p1"] {
            assert!(is_partition(name), "{name}");
        }
        for name in ["sda", "nvme0n1", "mmcblk0", "dm-0", "md0", "sr0", "loop0", "zram0", "sdp"] {
            assert!(!is_partition(name), "{name}");
        }
    }
}
