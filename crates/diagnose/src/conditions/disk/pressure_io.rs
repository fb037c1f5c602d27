//! Some task waits for block I/O for a large part of the time.
//!
//! PSI counts the share of time in which at least one task waited for a device, or for a page that is read from one.
//! A program that does nothing but read has 100 % and may be quite happy: pressure by itself is no incident.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "pressure-io",
    title: "I/O pressure (PSI): tasks wait for block I/O",
    area: "disk",
    needs: METRICS,
    triggers: &[
        // Somebody waits for a quarter of the time.
        above(METRICS, 0.25),
    ],
    observe: |view| {
        observe_level(view, METRICS, FLOOR, 3.0, "I/O pressure (PSI): some task waited for I/O for")
    },
    causes: &[effect("iowait-high", "a CPU idles while a task of it waits for the device")],
    settings: settings::DIRTY_LIMITS,
    source: include_str!("pressure_io.rs"),
    ..Condition::SYMPTOM
};

const METRICS: &[&str] = &["psi.io_some"];

/// A task that waits for a tenth of the time takes a ninth longer. The kernel counts less than that: who waits for the
/// journal of a file system waits for another task and not, as it counts, for a device.
const FLOOR: f64 = 0.1;
