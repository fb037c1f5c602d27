//! Counts by process, made into tables.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

use mitra_model::capture::{CaptureColumn, CaptureRow, CaptureTable, Cell};

use crate::bpf::comm_str;

/// As many rows of a table are kept.
const ROWS_MAX: usize = 500;

/// A column: its name, its unit, and what it means.
pub(in crate::capture) type Column = (&'static str, &'static str, &'static str);

/// The columns of [`Who`].
pub(in crate::capture) const PID: Column =
    ("pid", "", "the process, while it lives; those that ended are summed by name");
pub(in crate::capture) const COMM: Column = ("comm", "", "its name");

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
    /// A row of a table that begins with [`PID`] and [`COMM`].
    pub(in crate::capture) fn row<const N: usize>(&self, rest: [Cell; N]) -> Vec<Cell> {
        let pid = self.pid.map_or(Cell::Unknown(()), |pid| Cell::number(f64::from(pid)));
        [pid, Cell::text(self.comm.as_str())].into_iter().chain(rest).collect()
    }

    /// One of the rows that matter most.
    pub(in crate::capture) fn top(&self, what: impl Into<String>, count: f64, amount: f64) -> CaptureRow {
        CaptureRow {
            pid: self.pid,
            comm: self.comm.clone(),
            what: what.into(),
            count,
            amount,
            ..CaptureRow::default()
        }
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
    fn who(&mut self, pid: u32, comm: &str) -> Who {
        let lives =
            *self.lives.entry(pid).or_insert_with(|| pid > 0 && Path::new(&format!("/proc/{pid}")).exists());
        Who { pid: lives.then_some(pid), comm: comm.to_owned() }
    }

    /// Adds to a row of a process. `add` gets what was there.
    pub(in crate::capture) fn add(
        &mut self,
        pid: u32,
        comm: &[u8; 16],
        key: K,
        fresh: V,
        add: impl FnOnce(&mut V, V),
    ) {
        use std::collections::hash_map::Entry;
        let who = self.who(pid, comm_str(comm));
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

impl<K: Eq + Hash + Ord, V> Rows<K, V> {
    /// All rows, the heaviest first; those of equal weight in the order of their names, so that a table is the same
    /// each time.
    pub(in crate::capture) fn sorted(self, weight: impl Fn(&V) -> f64) -> Vec<(Who, K, V)> {
        let mut rows = self.into_rows();
        rows.sort_by(|a, b| {
            let by_weight = weight(&b.2).total_cmp(&weight(&a.2));
            by_weight.then_with(|| (&a.0.comm, &a.1).cmp(&(&b.0.comm, &b.1)))
        });
        rows
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

/// A table of the most important rows.
pub(in crate::capture) fn table(
    name: &str,
    columns: &'static [Column],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_have_ended_are_summed_by_name() {
        let mut comm = [0; 16];
        comm[0] = b'x';
        let mut rows: Rows<&str, u64> = Rows::new();
        let own = std::process::id();
        // Beyond the largest id that there can be.
        for (pid, count) in [(own, 1), (u32::MAX - 1, 2), (u32::MAX - 2, 3)] {
            rows.add(pid, &comm, "call", count, |to, from| *to += from);
        }
        let rows = rows.sorted(|count| *count as f64);
        let seen: Vec<(Option<u32>, u64)> = rows.iter().map(|(who, _, n)| (who.pid, *n)).collect();
        assert_eq!(seen, [(None, 5), (Some(own), 1)]);
        assert!(rows.iter().all(|(who, ..)| who.comm == "x"));
        let unknown = vec![Cell::Unknown(()), Cell::text("x"), Cell::number(7.0)];
        assert_eq!(rows[0].0.row([Cell::number(7.0)]), unknown);
    }
}
