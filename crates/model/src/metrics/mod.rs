//! The rows of the metric table: everything that Mitra measures, declared once in `crates/model/metrics/*.txt`.
//!
//! The order of the rows of one entity is the order of its columns in a frame. The archive stores names, so rows may be
//! added anywhere.

#[cfg(test)]
mod table;

use crate::metric::{Entity, Kernel, Kind, Metric, Unit};

/// Each table by the name of its file.
static TABLES: &[(&str, &[Metric])] = include!(concat!(env!("OUT_DIR"), "/metrics.rs"));

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    TABLES.iter().flat_map(|(_, rows)| *rows)
}

/// The rows of `metrics/NAME.txt`.
#[must_use]
pub fn table(name: &str) -> &'static [Metric] {
    TABLES.iter().find(|(table, _)| *table == name).map_or(&[], |(_, rows)| rows)
}
