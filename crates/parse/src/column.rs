//! Columns of a row, looked up once by the names of their metrics.

use mitra_model::{NA, column};

/// The column of a metric in the table of its entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column(u32);

impl Column {
    /// No column: discards the value.
    pub(crate) const NONE: Self = Column(u32::MAX);

    /// The column of a metric of the table.
    pub(crate) fn of(name: &str) -> Self {
        let column = Self::find(name);
        debug_assert!(column.is_some(), "no metric {name}");
        column.unwrap_or(Self::NONE)
    }

    /// The column of a name that was read from a file.
    pub(crate) fn find(name: &str) -> Option<Self> {
        column(name).and_then(|at| u32::try_from(at).ok()).map(Column)
    }

    /// The column of `AREA.NAME`, with the kernel's name of a counter, which may be any bytes.
    pub(crate) fn in_area(area: &str, name: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(name).ok()?;
        Self::find(&format!("{area}.{name}"))
    }

    /// Several at once.
    pub(crate) fn list<const N: usize>(names: [&str; N]) -> [Self; N] {
        names.map(Self::of)
    }

    /// Writes the cell.
    #[inline]
    pub(crate) fn set(self, row: &mut [i64], value: i64) {
        if let Some(cell) = row.get_mut(self.0 as usize) {
            *cell = value;
        }
    }

    /// Reads the cell.
    pub(crate) fn get(self, row: &[i64]) -> i64 {
        row.get(self.0 as usize).copied().unwrap_or(NA)
    }
}

/// Multiplies a value; the result is unavailable if the value is or if it overflows.
pub(crate) fn scaled(value: i64, factor: i64) -> i64 {
    if value == NA { NA } else { value.checked_mul(factor).unwrap_or(NA) }
}

/// Adds to a sum; the result is unavailable if either part is.
pub(crate) fn sum(a: i64, b: i64) -> i64 {
    if a == NA || b == NA { NA } else { a.checked_add(b).unwrap_or(NA) }
}
