//! Tasks that stand still while nothing that is seen explains it.

#[path = "support/disks.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod disks;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use disks::{stuck, waits};
use support::{Machine, ids, row};

/// A program appends a little and waits for its journal, as ever or for good; no device is slow or busy.
fn appender(stands_still: bool, writes: (f64, f64)) -> Machine {
    let mut m = Machine::idle();
    m.task(80, "wal-appender", 0);
    if stands_still {
        stuck(&mut m, 80, "wal-appender", "jbd2_log_wait_commit;ext4_sync_file;do_fsync");
    }
    m.values("task.tgid", &row(80), 0, vec![80.0; disks::N]);
    m.task_rate(80, "task.write_bytes", writes.0, writes.1);
    waits(&mut m, 0.98, 1.0);
    m
}

#[test]
fn whoever_did_nothing_else_before_and_stands_still_now_is_never_nothing() {
    let report = appender(true, (1e5, 1e4)).explain();
    assert_eq!(ids(&report), ["pressure-io"], "{:#?}", report.incidents);
    let incident = &report.incidents[0];
    assert!(incident.root_cause.statement.ends_with("the cause was not found"), "{incident:#?}");
    assert!(incident.lost_task_seconds.unwrap_or(0.0) > 10.0, "{incident:#?}");
    // Who writes more waits more: that is how work is done.
    assert!(appender(true, (1e5, 1e7)).explain().incidents.is_empty());
    assert!(appender(false, (1e5, 1e4)).explain().incidents.is_empty());
}
