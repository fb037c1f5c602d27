//! Some task waits for block I/O for a large part of the time.
//!
//! PSI counts the share of time in which at least one task waited for a device, or for a page that is read from one.
//! A program that does nothing but read has 100 % and may be quite happy: pressure by itself is no incident. It is one where nothing
//! explains it and those stand still that were there before and read and write no more than then.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "pressure-io",
    title: "I/O pressure (PSI): tasks wait for block I/O",
    area: "disk",
    needs: &[
        "psi.io_some",
        "task.state",
        "task.read_bytes",
        "task.write_bytes",
        "task.blkio_delay",
        "task.tgid",
    ],
    triggers: &[
        // Somebody waits for a quarter of the time.
        above(METRICS, 0.25),
    ],
    observe: |view| {
        let found =
            observe_level(view, METRICS, FLOOR, 3.0, "I/O pressure (PSI): some task waited for I/O for");
        let wait = |process: &Process<'_>, set: &SeriesSet, span: Span| {
            process.waiting_for_io_s(set, span).max(process.total(set, "task.blkio_delay", span))
        };
        process::judge_by_bystanders(view, found, wait, &["task.read_bytes", "task.write_bytes"])
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
