//! Counts by process, made into tables.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

use mitra_model::capture::{CaptureColumn, CaptureHistogram, CaptureTable, Cell};

/// As many rows of a table are kept.
const ROWS_MAX: usize = 500;

/// Whose a row is. Processes that have ended are summed by name: their ids say nothing any more, and of short-lived
/// ones there may be thousands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::capture) struct Who {
    /// The process, while it lives.
    pub(in crate::capture) pid: Option<u32>,
    /// Its name.
    pub(in crate::capture) comm: String,
}

impl Who {
    /// As a cell.
    pub(in crate::capture) fn pid_cell(&self) -> Cell {
        self.pid.map_or(Cell::Unknown(()), |pid| Cell::number(f64::from(pid)))
    }
}

/// Rows under their owner and a key of the kind.
pub(in crate::capture) struct Rows<K, V> {
    lives: HashMap<u32, bool>,
    rows: HashMap<(Who, K), V>,
}

impl<K: Eq + Hash, V> Rows<K, V> {
    pub(in crate::capture) fn new() -> Self {
        Self { lives: HashMap::new(), rows: HashMap::new() }
    }

    /// The owner: the process, or its name if it is gone. Process 0 is the idle one, and interrupts that came then.
    pub(in crate::capture) fn who(&mut self, pid: u32, comm: &str) -> Who {
        let lives =
            *self.lives.entry(pid).or_insert_with(|| pid > 0 && Path::new(&format!("/proc/{pid}")).exists());
        Who { pid: lives.then_some(pid), comm: comm.to_owned() }
    }

    /// Adds to a row. `add` gets what was there.
    pub(in crate::capture) fn add(&mut self, who: Who, key: K, fresh: V, add: impl FnOnce(&mut V, V)) {
        use std::collections::hash_map::Entry;
        match self.rows.entry((who, key)) {
            Entry::Occupied(mut there) => add(there.get_mut(), fresh),
            Entry::Vacant(free) => _ = free.insert(fresh),
        }
    }

    /// All rows, in no order.
    pub(in crate::capture) fn into_rows(self) -> Vec<(Who, K, V)> {
        self.rows.into_iter().map(|((who, key), value)| (who, key, value)).collect()
    }
}

/// Largest weight first; rows of equal weight in the order of their names, so that a table is the same each time.
pub(in crate::capture) fn sort_by_weight<T, N: Ord>(
    rows: &mut [T],
    weight: impl Fn(&T) -> f64,
    name: impl Fn(&T) -> N,
) {
    rows.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then_with(|| name(a).cmp(&name(b))));
}

/// A row of a table: numbers and texts.
pub(in crate::capture) fn cells<const N: usize>(cells: [Cell; N]) -> Vec<Cell> {
    cells.into()
}

/// A table of the most important rows.
pub(in crate::capture) fn table(
    name: &str,
    columns: &'static [(&'static str, &'static str, &'static str)],
    mut rows: Vec<Vec<Cell>>,
) -> CaptureTable {
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let columns = columns.iter().map(|(name, unit, help)| CaptureColumn {
        name: (*name).into(),
        unit: (*unit).into(),
        help: (*help).into(),
    });
    CaptureTable { name: name.to_owned(), columns: columns.collect(), rows, left_out: left_out as u64 }
}

/// A distribution of times in buckets that double.
#[derive(Debug, Clone)]
pub(in crate::capture) struct Histogram<const N: usize> {
    /// Counts; bucket `i` goes up to `first_ns << i`, the last one has no bound.
    pub(in crate::capture) counts: [u64; N],
    /// The bound of the first bucket.
    pub(in crate::capture) first_ns: u64,
}

impl<const N: usize> Histogram<N> {
    pub(in crate::capture) const fn new(first_ns: u64) -> Self {
        Self { counts: [0; N], first_ns }
    }

    pub(in crate::capture) fn add(&mut self, counts: &[u64; N]) {
        self.counts.iter_mut().zip(counts).for_each(|(to, from)| *to += from);
    }

    fn bound_s(&self, bucket: usize) -> Option<f64> {
        (bucket + 1 < N).then(|| self.first_ns as f64 * 2f64.powi(bucket as i32) * 1e-9)
    }

    /// The bound below which a share of all lies, in seconds; none where nothing was counted, or it is the last bucket.
    pub(in crate::capture) fn quantile_s(&self, share: f64) -> Option<f64> {
        let all: u64 = self.counts.iter().sum();
        let wanted = (all as f64 * share).ceil().max(1.0);
        let mut below = 0u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below as f64 >= wanted {
                return self.bound_s(bucket);
            }
        }
        None
    }

    pub(in crate::capture) fn named(&self, name: impl Into<String>) -> CaptureHistogram {
        CaptureHistogram {
            name: name.into(),
            unit: "s".to_owned(),
            buckets: self.counts.iter().enumerate().map(|(i, count)| (self.bound_s(i), *count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_have_ended_are_summed_by_name() {
        let mut rows: Rows<&str, u64> = Rows::new();
        let own = std::process::id();
        // Beyond the largest id that there can be.
        for (pid, count) in [(own, 1), (u32::MAX - 1, 2), (u32::MAX - 2, 3)] {
            let who = rows.who(pid, "x");
            rows.add(who, "call", count, |to, from| *to += from);
        }
        let mut rows = rows.into_rows();
        sort_by_weight(&mut rows, |row| row.2 as f64, |row| row.1);
        let seen: Vec<(Option<u32>, u64)> = rows.iter().map(|(who, _, n)| (who.pid, *n)).collect();
        assert_eq!(seen, [(None, 5), (Some(own), 1)]);
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let mut histogram: Histogram<4> = Histogram::new(1000);
        assert_eq!(histogram.quantile_s(0.5), None);
        histogram.add(&[90, 9, 0, 1]);
        let us = |share: f64| histogram.quantile_s(share).map(|seconds| (seconds * 1e6).round());
        assert_eq!((us(0.5), us(0.99)), (Some(1.0), Some(2.0)));
        assert_eq!(histogram.quantile_s(1.0), None, "the last bucket has no bound");
        assert_eq!(histogram.named("x").buckets[3], (None, 1));
    }
}
