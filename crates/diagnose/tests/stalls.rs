//! Tasks that stand still while nothing that is seen explains it.

#[path = "support/disks.rs"]
mod disks;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use disks::{N, device, stuck, text, waits};
use support::{HEALTHY, Machine, ids, is_on, row};

/// A program appends a little and waits for its journal, as ever or for good; no device is slow or busy.
fn appender(stands_still: bool, writes: (f64, f64)) -> Machine {
    let mut m = Machine::idle();
    m.task(80, "wal-appender", 0);
    if stands_still {
        stuck(&mut m, 80, "wal-appender", "jbd2_log_wait_commit;ext4_sync_file;do_fsync");
    }
    m.values("task.tgid", &row(80), 0, vec![80.0; N]);
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

#[test]
fn a_request_that_is_larger_than_a_limit_of_seconds_passes_in_lumps() {
    // A backup that may write 1.5 MB/s sends 12 MB at a time, and a journal waits for it.
    let lumps = |bytes: f64| {
        let mut m = appender(true, (1e5, 1e4));
        device(&mut m, "loop0", (25.0, 4096.0, 1e-4), (12.0, 131_072.0, 1e-4), "write");
        m.task(90, "vm-backup", HEALTHY).cgroup(90, "/backup");
        m.values("cgroup.io_limit_wbps", "/backup", 0, vec![1.5e6; N]);
        text(&mut m, "cgroup.io_limit_device", "/backup", "loop0");
        let is_lump = |i: usize| is_on(i) && (i - HEALTHY) % 8 == 7;
        let written = |i: usize| if is_lump(i) { bytes } else { 0.0 };
        m.values("cgroup.io_write_bytes", "/backup", 0, (0..N).map(written).collect());
        m.values("cgroup.io_writes", "/backup", 0, (0..N).map(|i| written(i) / 1.1e6).collect());
        m.explain()
    };
    let report = lumps(1.2e7);
    assert_eq!(ids(&report), ["io-throttled"], "{:#?}", report.incidents);
    assert_eq!(report.incidents[0].root_cause.culprit.cgroup.as_deref(), Some("/backup"));
    // A group that writes far less than it may is not held back.
    assert_eq!(ids(&lumps(3.2e6)), ["pressure-io"]);
}

#[test]
fn a_batch_that_was_never_faster_than_its_quota_is_a_finding() {
    let batch = |born: usize| {
        let mut m = Machine::idle();
        m.task(90, "thumb-batch", born).cgroup(90, "/batch");
        m.values("task.cpu_time", &row(90), born, vec![0.1; N - born]);
        let waits = |i: usize| if is_on(i) { 0.89 } else { 0.0 };
        m.values("task.run_delay", &row(90), born, (born..N).map(waits).collect());
        m.row("cgroup.throttled_time", "/batch", 0.0, 0.89).row("cgroup.nr_throttled", "/batch", 0.0, 9.9);
        m.row("cgroup.nr_periods", "/batch", 0.0, 9.9).row("cgroup.cpu_quota", "/batch", 0.01, 0.01);
        m.row("cgroup.cpu_period", "/batch", 0.1, 0.1);
        m.sys("tasks.run_delay", 0.01, 0.9).sys("psi.cpu_some", 0.0, 0.84);
        m.explain()
    };
    let new = batch(HEALTHY);
    assert!(new.incidents.is_empty(), "{:#?}", new.incidents);
    assert!(
        new.findings.iter().any(|finding| finding.condition == "cpu-quota-throttled"),
        "{:#?}",
        new.findings
    );
    // It was there before and did not wait.
    assert_eq!(ids(&batch(0)), ["cpu-quota-throttled"]);
}

#[test]
fn a_real_time_task_is_named_by_those_that_may_use_no_other_cpu() {
    let pinned = |policy: f64, allowed: f64| {
        let mut m = Machine::idle();
        m.task(70, "meter-poll", 0).task_rate(70, "task.cpu_time", 0.0, 0.91);
        m.task(50, "voice", 0).task_rate(50, "task.run_delay", 0.0, 0.9);
        for (pid, policy, allowed) in [(70, policy, 2.0), (50, 0.0, allowed)] {
            m.values("task.policy", &row(pid), 0, vec![policy; N]);
            m.values("task.cpu", &row(pid), 0, vec![1.0; N]);
            m.values("task.cpus_allowed", &row(pid), 0, vec![allowed; N]);
        }
        m.sys("tasks.run_delay", 0.01, 0.95).sys("psi.cpu_some", 0.0, 0.9).sys("sys.cpu_idle", 1.9, 0.3);
        m.explain()
    };
    let report = pinned(1.0, 2.0);
    assert_eq!(ids(&report), ["cpu-hog"], "{:#?}", report.incidents);
    let cause = &report.incidents[0].root_cause;
    assert_eq!((cause.culprit.process.as_deref(), cause.culprit.pid), (Some("meter-poll"), Some(70)));
    assert!(
        cause.statement.contains("has a real-time thread that took 91 % of CPU 1"),
        "{}",
        cause.statement
    );
    // An ordinary task gives way, and whoever may use another CPU goes there.
    assert!(!ids(&pinned(0.0, 2.0)).contains(&"cpu-hog"));
    assert!(!ids(&pinned(1.0, 3.0)).contains(&"cpu-hog"));
}
