//! Programs that crash and write their memory to a disk, and those that crash beside somebody else who writes.

#[path = "support/disks.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod disks;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use disks::{device, stuck, waits};
use mitra_model::EventKind;
use mitra_model::report::Report;
use support::{HEALTHY, INCIDENT, Machine, each, ids, root, row};

/// More is written into the page cache than the device takes, and a task that calls fsync waits for it.
fn backlog(m: &mut Machine) {
    m.sys("mem.dirty", 2e6, 6e8).sys("mem.writeback", 0.0, 5e8);
    device(m, "loop0", (5.0, 4096.0, 1e-3), (15.0, 524_288.0, 1.0), "write");
    m.row("disk.io_time", "loop0", 0.01, 0.99).row("disk.weighted_time", "loop0", 0.0, 30.0);
    stuck(m, 81, "orderd", "folio_wait_bit_common;folio_wait_writeback;file_write_and_wait_range");
    waits(m, 1.0, 2.0);
}

/// The queue of a device is full of writes, and a task that reads from it waits.
fn full_queue(m: &mut Machine) {
    device(m, "vda", (100.0, 4096.0, 2e-4), (700.0, 1_048_576.0, 0.04), "write");
    stuck(m, 81, "orderd", "folio_wait_bit_common;filemap_read");
    waits(m, 0.9, 1.9);
}

type Trouble = (fn(&mut Machine), &'static str, f64);

/// What befalls a disk, what that is called, and how many bytes a second are written for it.
const TROUBLES: [Trouble; 2] = [(backlog, "dirty-writeback-stall", 4e7), (full_queue, "disk-hog", 7.3e8)];

/// A program that has nothing to do with those that crash.
fn somebody_else(m: &mut Machine, writes: f64) {
    m.task(90, "backup", HEALTHY).task_during(90, "task.write_bytes", writes);
}

/// The roots of all incidents, also of those that stand beside another one.
fn all_roots(report: &Report) -> Vec<&str> {
    let roots = report.incidents.iter().flat_map(|i| std::iter::once(&i.root_cause).chain(&i.other_roots));
    let mut ids: Vec<&str> = roots.map(|root| root.condition.as_str()).collect();
    ids.sort_unstable();
    ids
}

/// The only incident has one root, and this follows from it.
fn follows(report: &Report, id: &str) {
    let incident = &report.incidents[0];
    assert!(incident.other_roots.is_empty(), "{id}: {:#?}", incident.other_roots);
    assert!(incident.chain.iter().any(|link| link.condition == id), "{id}: {:#?}", incident.chain);
}

/// Seconds that a life lasts.
const LIFE: usize = 2;
/// The first and the last life of the loop.
const FIRST: u32 = 700;
const LAST: u32 = FIRST + (INCIDENT / LIFE) as u32 - 1;

/// A service of process 70 runs until the incident begins, and then for two seconds each time. Each life writes so many bytes a second,
/// and one of them twice as many.
fn crash_loop(m: &mut Machine, writes: f64, most: u32) {
    m.task(70, "runsv", 0).task(71, "ledgerd", 0);
    for (metric, value) in [("task.ppid", 70.0), ("task.tgid", 71.0)] {
        m.values(metric, &row(71), 0, vec![value; HEALTHY]);
    }
    for (pid, start) in (FIRST..=LAST).zip((HEALTHY..).step_by(LIFE)) {
        let bytes = if pid == most { 2.0 * writes } else { writes };
        for (metric, value) in [
            ("task.tgid", f64::from(pid)),
            ("task.ppid", 70.0),
            ("task.kthread", 0.0),
            ("task.state", f64::from(b'S')),
            ("task.write_bytes", bytes),
        ] {
            m.values(metric, &row(pid), start, vec![value; LIFE]);
        }
        m.text("task.comm", &row(pid), start, "ledgerd");
    }
    let name = "70:ledgerd";
    let is_death = |i: usize| (HEALTHY..=HEALTHY + INCIDENT).contains(&i) && i.is_multiple_of(LIFE);
    let rate = |n: f64| each(move |i| if is_death(i) { n } else { 0.0 });
    m.values("exited.count", name, 0, rate(1.0)).values("exited.failed", name, 0, rate(1.0));
    m.values("exited.lifetime", name, 0, rate(LIFE as f64)).values("exited.cpu_time", name, 0, rate(0.002));
    m.values("exited.last_pid", name, 0, each(|_| f64::from(LAST)));
    m.text("exited.parent_comm", name, 0, "runsv");
}

#[test]
fn what_a_loop_of_crashes_writes_fills_the_disk() {
    for (trouble, id, writes) in TROUBLES {
        // The life that wrote most may be another one than the last.
        for most in [LAST, FIRST + 2] {
            let mut m = Machine::idle();
            crash_loop(&mut m, writes, most);
            trouble(&mut m);
            let report = m.explain();
            assert_eq!(root(&report), ("crash-loop", Some("ledgerd"), Some(LAST)), "{id}");
            follows(&report, id);
        }
    }
}

#[test]
fn a_loop_of_crashes_beside_a_writer_is_not_why_the_disk_is_full() {
    for (trouble, id, writes) in TROUBLES {
        let mut m = Machine::idle();
        crash_loop(&mut m, 0.0, LAST);
        somebody_else(&mut m, writes);
        trouble(&mut m);
        assert_eq!(all_roots(&m.explain()), ["crash-loop", id]);
    }
}

/// Process 80 crashes when the incident begins.
fn crash(m: &mut Machine) {
    m.event(
        HEALTHY,
        EventKind::Crash {
            pid: 80,
            comm: "ledgerd".into(),
            address: 0x10,
            ip: 0x514a,
            error: 6,
            object: None,
            base: None,
            file_offset: None,
        },
    );
}

#[test]
fn the_memory_of_a_process_that_crashed_fills_the_disk() {
    for (trouble, id, writes) in TROUBLES {
        let mut m = Machine::idle();
        m.task(80, "ledgerd", HEALTHY).task_during(80, "task.write_bytes", writes);
        crash(&mut m);
        trouble(&mut m);
        let report = m.explain();
        assert_eq!(ids(&report), ["process-crash"], "{id}");
        let incident = &report.incidents[0];
        assert_eq!(incident.root_cause.culprit.pid, Some(80));
        follows(&report, id);
        // It goes on until the process is gone.
        assert!(incident.lost_task_seconds.unwrap_or(0.0) > 5.0, "{id}: {incident:#?}");
    }
}

#[test]
fn a_crash_beside_a_writer_is_not_why_the_disk_is_full() {
    for (trouble, id, writes) in TROUBLES {
        let mut m = Machine::idle();
        crash(&mut m);
        somebody_else(&mut m, writes);
        trouble(&mut m);
        assert_eq!(all_roots(&m.explain()), [id, "process-crash"]);
    }
}
