//! How long something took, as the programs of several captures add it up.

use mitra_model::capture::{CaptureHistogram, CaptureRow, Cell};

use super::rows::{Column, Who};
use crate::bpf::sys::Plain;

const BUCKETS: usize = 28;
const FIRST_NS: u64 = 256;
/// As many rows of a table have their distribution kept.
const HISTOGRAMS_MAX: usize = 12;

/// Columns of [`Times`].
pub(in crate::capture) const MEDIAN: Column =
    ("median", "s", "half of them took no longer; the bound of its bucket");
pub(in crate::capture) const P99: Column =
    ("99 %", "s", "99 of a hundred took no longer; the bound of its bucket");
pub(in crate::capture) const LONGEST: Column = ("longest", "s", "the longest one");

/// `struct times` of bpf/calls.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::capture) struct Times {
    pub(in crate::capture) count: u64,
    pub(in crate::capture) total_ns: u64,
    pub(in crate::capture) longest_ns: u64,
    pub(in crate::capture) comm: [u8; 16],
    latency: [u64; BUCKETS],
}
const _: () = assert!(size_of::<Times>() == 264, "twin: struct times in bpf/calls.h");
// SAFETY: repr(C), u64 fields and bytes without a hole.
unsafe impl Plain for Times {}

impl Times {
    pub(in crate::capture) fn add(&mut self, other: &Times) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.latency.iter_mut().zip(other.latency).for_each(|(to, from)| *to += from);
    }

    pub(in crate::capture) fn total_s(&self) -> f64 {
        self.total_ns as f64 * 1e-9
    }

    /// Time and mean.
    pub(in crate::capture) fn time_cells(&self) -> [Cell; 2] {
        time_cells(self.total_ns, self.count)
    }

    /// The bound below which a share of all lies; the last bucket has none.
    pub(in crate::capture) fn quantile(&self, share: f64) -> Cell {
        Histogram(self.latency).quantile_s(share).map_or(Cell::Unknown(()), Cell::number)
    }

    pub(in crate::capture) fn longest(&self) -> Cell {
        Cell::number(self.longest_ns as f64 * 1e-9)
    }

    pub(in crate::capture) fn top(&self, who: &Who, what: impl Into<String>) -> CaptureRow {
        who.top(what, self.count as f64, self.total_s())
    }
}

/// The cells of a time, and of its mean.
pub(in crate::capture) fn time_cells(total_ns: u64, count: u64) -> [Cell; 2] {
    let total = total_ns as f64 * 1e-9;
    [Cell::number(total), Cell::number(total / count as f64)]
}

/// The distribution of all rows together, and of each of the first ones.
pub(in crate::capture) fn histograms<'a>(
    all: &str,
    rows: impl Iterator<Item = (String, &'a Times)>,
) -> Vec<CaptureHistogram> {
    let mut sum = Histogram::default();
    let mut each = Vec::new();
    for (name, times) in rows {
        sum.add(times);
        if each.len() < HISTOGRAMS_MAX {
            each.push(Histogram(times.latency).named(name));
        }
    }
    std::iter::once(sum.named(all)).chain(each).collect()
}

/// A distribution of times in buckets that double: bucket `i` goes up to `FIRST_NS << i`, the last one has no bound.
#[derive(Debug, Clone, Default)]
pub(in crate::capture) struct Histogram(pub(in crate::capture) [u64; BUCKETS]);

impl Histogram {
    pub(in crate::capture) fn add(&mut self, times: &Times) {
        self.0.iter_mut().zip(times.latency).for_each(|(to, from)| *to += from);
    }

    fn bound_s(bucket: usize) -> Option<f64> {
        (bucket + 1 < BUCKETS).then(|| FIRST_NS as f64 * 2f64.powi(bucket as i32) * 1e-9)
    }

    /// The bound below which a share of all lies, in seconds; none where nothing was counted, or it is the last bucket.
    fn quantile_s(&self, share: f64) -> Option<f64> {
        let all: u64 = self.0.iter().sum();
        let wanted = (all as f64 * share).ceil().max(1.0);
        let mut below = 0u64;
        for (bucket, count) in self.0.iter().enumerate() {
            below += count;
            if below as f64 >= wanted {
                return Self::bound_s(bucket);
            }
        }
        None
    }

    pub(in crate::capture) fn named(&self, name: impl Into<String>) -> CaptureHistogram {
        CaptureHistogram {
            name: name.into(),
            unit: "s".to_owned(),
            buckets: self.0.iter().enumerate().map(|(i, count)| (Self::bound_s(i), *count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::sys::zeroed;

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let mut times: Times = zeroed();
        assert_eq!(times.quantile(0.5), Cell::Unknown(()), "nothing was counted");
        times.latency[2] = 90;
        times.latency[3] = 9;
        times.latency[BUCKETS - 1] = 1;
        let seconds = |share: f64| Histogram(times.latency).quantile_s(share);
        assert_eq!((seconds(0.5), seconds(0.99)), (Some(1024e-9), Some(2048e-9)));
        assert_eq!(seconds(1.0), None, "the last bucket has no bound");
    }

    #[test]
    fn all_rows_together_come_before_the_first_ones() {
        let mut times: Times = zeroed();
        times.latency[BUCKETS - 1] = 2;
        let rows = vec![times; HISTOGRAMS_MAX + 5];
        let named = rows.iter().enumerate().map(|(i, times)| (format!("row {i}"), times));
        let made = histograms("all", named);
        assert_eq!(made.len(), 1 + HISTOGRAMS_MAX);
        assert_eq!((made[0].name.as_str(), made[1].name.as_str()), ("all", "row 0"));
        assert_eq!(made[0].buckets[BUCKETS - 1], (None, 2 * rows.len() as u64));
        assert_eq!(made[1].buckets[BUCKETS - 1], (None, 2));
    }
}
