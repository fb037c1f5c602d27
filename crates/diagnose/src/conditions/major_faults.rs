//! Tasks touch mapped pages that are not in memory and wait for the device.
//!
//! Starting a program causes some: its text is read by faults. A stream of them means that mapped pages are evicted while
//! they are in use, from files or from swap.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "major-faults",
    title: "pages are fetched by faults",
    role: Role::Mechanism,
    area: "page cache",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("major_faults.rs"),
};

const METRICS: &[&str] = &["vm.pgmajfault"];

/// At a tenth of a millisecond a fault (fast SSD) one hundredth of a task's time, at eight milliseconds
/// (disk) most of it. Starting programs stays below.
const FLOOR: f64 = 100.0;

fn observe(view: &View<'_>) -> Observation {
    observe_level(view, METRICS, FLOOR, 3.0, "major faults")
}
