//! Tasks touch mapped pages that are not in memory and wait for the device.
//!
//! Starting a program causes some: its text is read by faults. A stream of them means that mapped pages are evicted while
//! they are in use, from files or from swap.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "major-faults",
    title: "major faults read pages from disk",
    area: "page cache",
    needs: METRICS,
    triggers: &[above(METRICS, FLOOR)],
    observe: |view| observe_level(view, METRICS, FLOOR, 3.0, "major faults"),
    causes: &[
        effect("disk-saturated", "each major fault is a read"),
        effect("tasks-in-d-state", "a task in a major fault is in uninterruptible sleep"),
        effect("pressure-io", "a task in a major fault waits for the device"),
        effect("service-slow", "a server in a major fault does not answer"),
    ],
    source: include_str!("major_faults.rs"),
    ..Condition::MECHANISM
};

const METRICS: &[&str] = &["vm.pgmajfault"];

/// At a tenth of a millisecond a fault (fast SSD) one hundredth of a task's time, at eight milliseconds
/// (disk) most of it. Starting programs stays below.
const FLOOR: f64 = 100.0;
