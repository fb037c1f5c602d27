//! The rows of the metric table: everything that Mitra measures, declared once.
//!
//! The order of the rows of one entity is the order of its columns in a frame. The archive stores names, so rows
//! may be added anywhere.

pub mod summary;
pub mod tasks;

use crate::metric::Metric;

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    [summary::SUMMARY, tasks::TASK, tasks::EXITED].into_iter().flatten()
}
