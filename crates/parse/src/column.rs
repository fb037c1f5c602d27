//! Columns of a row, looked up once by the names of their metrics.

use mitra_model::{NA, column};

/// The column of a metric in the table of its entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column(u32);

impl Column {
    /// Of nothing: what is written there is lost.
    pub(crate) const NONE: Self = Column(u32::MAX);

    /// Of a metric that the table has for certain.
    pub(crate) fn of(name: &str) -> Self {
        let column = Self::find(name);
        debug_assert!(column.is_some(), "no metric {name}");
        column.unwrap_or(Self::NONE)
    }

    /// Of a name that a file has brought.
    pub(crate) fn find(name: &str) -> Option<Self> {
        column(name).and_then(|at| u32::try_from(at).ok()).map(Column)
    }

    /// Of an area and the kernel's own name for a counter, which may be any bytes.
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

/// Multiplies a measured value; what is unavailable or no longer fits is unavailable.
pub(crate) fn scaled(value: i64, factor: i64) -> i64 {
    if value == NA { NA } else { value.checked_mul(factor).unwrap_or(NA) }
}

/// Adds to a sum; once a part is unavailable the whole is.
pub(crate) fn sum(a: i64, b: i64) -> i64 {
    if a == NA || b == NA { NA } else { a.checked_add(b).unwrap_or(NA) }
}
