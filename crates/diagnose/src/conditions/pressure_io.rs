//! Some task waits for block I/O for a large part of the time.
//!
//! PSI counts the share of time in which at least one task waited for a device, or for a page that is read from one.
//! A program that does nothing but read has 100 % and may be quite happy: pressure by itself is no incident.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "pressure-io",
    title: "tasks wait for block I/O",
    role: Role::Symptom,
    area: "disk",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("pressure_io.rs"),
};

const METRICS: &[&str] = &["psi.io_some"];

/// A task that waits for a tenth of the time takes a ninth longer. The kernel counts less than that: who waits for the
/// journal of a file system waits for another task and not, as it counts, for a device.
const FLOOR: f64 = 0.1;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, METRICS, FLOOR, 3.0, "some task waited for I/O for")
}
