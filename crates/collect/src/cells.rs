//! Writing cells of a frame by the names of the metric table.

use mitra_model::{NA, Table, column};

/// The column of a metric. A name that the table lacks leads nowhere; a test of each user finds it.
#[must_use]
pub fn col(name: &str) -> usize {
    column(name).unwrap_or(usize::MAX)
}

/// Fills a cell, if there is such a column.
pub fn set(row: &mut [i64], column: usize, value: i64) {
    if let Some(cell) = row.get_mut(column) {
        *cell = value;
    }
}

/// A number of the kernel as a cell. What does not fit is not a count.
#[must_use]
pub fn cell(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(NA)
}

/// Nanoseconds of the kernel as a cell of microseconds; its mark for a number that it does not keep stays one.
#[must_use]
pub fn micros(ns: u64) -> i64 {
    if ns == u64::MAX { NA } else { cell(ns / 1_000) }
}

/// The row with the key, which is added if there is none.
pub fn row(table: &mut Table, key: mitra_model::Key) -> &mut [i64] {
    match table.keys().iter().position(|k| *k == key) {
        Some(at) => table.row_mut(at),
        None => table.push(key),
    }
}
