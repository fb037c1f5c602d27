//! What clients of services waited, in their own currency: it is never added to the task-seconds that the machine lost.
//!
//! Many clients may wait for one task, and most of them are elsewhere. A service that asks another one keeps its own clients
//! waiting for both, so that of all services the one whose clients waited longest counts.

use mitra_model::{SeriesSet, Span};

use crate::services::{SERVICE, Traffic};
use crate::signal::Signal;

/// Clients that wait longer than usual, in each sample: of the service where they waited longest. What is usual is the best
/// that is known, so that less than three times as much counts for nothing.
pub(crate) fn waits(set: &SeriesSet, span: Span) -> Option<Signal> {
    let of_row = |row: &str| {
        let traffic = Traffic::of(set, &SERVICE, &[row], span)?;
        let usual = traffic.at_best()?;
        let late = traffic.is_late(&usual);
        let waits = Signal { t: traffic.t.clone(), dt: traffic.dt.clone(), v: traffic.beyond_all(&usual) };
        Some(waits.zip(&late, |waits, late| waits * late))
    };
    let all = set.each("service.requests").filter_map(|(row, _)| of_row(row));
    all.max_by(|a, b| a.total().total_cmp(&b.total()))
}
