//! What armed probes saw confirms and names, and does not make an incident by itself.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the support")]
mod support;

use mitra_model::report::Report;
use mitra_model::{CaptureRow, EventKind, TextSeries};
use support::{HEALTHY, Machine, root};

fn row(pid: u32, comm: &str, what: &str, count: f64, amount: f64) -> CaptureRow {
    CaptureRow { pid: Some(pid), comm: comm.into(), what: what.into(), device: String::new(), count, amount }
}

fn capture(m: &mut Machine, second: usize, kind: &str, tops: Vec<CaptureRow>) {
    let kind = EventKind::Capture {
        capture: kind.into(),
        why: "rule test".into(),
        seconds: 4.0,
        events: 1000,
        lost: 0,
        ended: "time".into(),
        cost_ns: None,
        file: Some("x.json.zst".into()),
        tops,
    };
    m.event(second, kind);
}

fn remarks(report: &Report) -> String {
    let chain = report.incidents.iter().flat_map(|i| &i.chain);
    let roots = report.incidents.iter().flat_map(|i| &i.root_cause.remarks);
    chain.flat_map(|link| &link.remarks).chain(roots).cloned().collect::<Vec<_>>().join("\n")
}

fn storm() -> Machine {
    let mut m = Machine::idle();
    m.task(120, "bash", 0);
    m.sys("sys.forks", 1.0, 2200.0).sys("tasks.exited", 1.0, 2200.0).sys("tasks.exited_cpu_time", 0.0, 0.9);
    m.sys("sys.cpu_idle", 1.96, 0.1).sys("tasks.run_delay", 0.01, 1.1).sys("psi.cpu_some", 0.0, 0.6);
    m.row("exited.count", "120:true", 0.0, 2200.0).row("exited.lifetime", "120:true", 0.0, 2200.0 * 0.001);
    let parent = TextSeries { changes: vec![(support::START, Some("bash".into()))], place: None };
    m.set.insert_text(mitra_model::lookup("exited.parent_comm").unwrap(), "120:true".into(), parent);
    m
}

/// Of most conditions a capture is shown, with the words to see all of it.
#[test]
fn what_a_suspicion_armed_is_told_beside_what_was_suspected() {
    let with = |suspects: &str| {
        let mut m = storm();
        let kind = EventKind::Suspicion {
            rule: "test".into(),
            condition: Some(suspects.into()),
            text: String::new(),
            armed: vec!["offcpu".into()],
        };
        m.event(HEALTHY + 4, kind);
        let rows = vec![row(7, "cron", "do_nanosleep", 9.0, 12.0), row(120, "bash", "do_wait", 800.0, 3.5)];
        capture(&mut m, HEALTHY + 8, "offcpu", rows);
        remarks(&m.explain())
    };
    let told = with("fork-storm");
    assert!(told.contains("captured (offcpu, 4.0 s): bash (120) 800 times do_wait, 3.5 s in all"), "{told}");
    assert!(told.contains("mitra capture --show x.json.zst"), "{told}");
    assert!(!with("cpu-hog").contains("captured"));
}

#[test]
fn a_fork_storm_says_which_program_was_started() {
    let mut m = storm();
    assert!(!remarks(&m.explain()).contains("captured"));
    capture(
        &mut m,
        HEALTHY + 8,
        "fork",
        vec![
            row(120, "bash", "starts /usr/bin/true", 8000.0, 1.0),
            row(120, "bash", "clone", 9000.0, 2.0),
            row(7, "cron", "starts /bin/sh", 4.0, 0.1),
        ],
    );
    let report = m.explain();
    assert_eq!(root(&report), ("fork-storm", Some("bash"), Some(120)));
    let said = remarks(&report);
    assert!(said.contains("captured (fork, 4.0 s)") || said.contains("captured (fork, 4 s)"), "{said}");
    assert!(said.contains("bash (120) started /usr/bin/true"), "{said}");
}

fn bloat() -> Machine {
    let mut m = Machine::idle();
    let n = HEALTHY + support::INCIDENT + support::AFTER;
    let level =
        (0..n).map(|i| 3000.0 + 60_000.0 * (i as f64 - HEALTHY as f64).clamp(0.0, support::INCIDENT as f64));
    m.values("dentry.negative", "", 0, level.collect());
    m.values("inode.nr", "", 0, vec![50_000.0; n]);
    m.task(130, "indexer", 0);
    m.sys("sys.cpu_system", 0.01, 0.9);
    m
}

#[test]
fn negative_dentries_are_of_whom_the_probe_saw() {
    let mut m = bloat();
    let report = m.explain();
    let (condition, process, _) = root(&report);
    assert_eq!((condition, process), ("slab-dentry-bloat", None));
    capture(
        &mut m,
        HEALTHY + 10,
        "lookups",
        vec![row(130, "indexer", "/srv/spool", 230_000.0, 0.0), row(9, "make", "/usr/include", 400.0, 0.0)],
    );
    let report = m.explain();
    assert_eq!(root(&report), ("slab-dentry-bloat", Some("indexer"), Some(130)));
    let cause = &report.incidents[0].root_cause;
    assert_eq!(cause.culprit.path.as_deref(), Some("/srv/spool"));
    assert!(cause.statement.contains("failed lookups in /srv/spool"), "{}", cause.statement);
    // A search path fails too, but not so often: it is not blamed.
    let mut m = bloat();
    capture(&mut m, HEALTHY + 10, "lookups", vec![row(9, "make", "/usr/include", 400.0, 0.0)]);
    let report = m.explain();
    assert_eq!(root(&report).1, None);
    // What was captured at another time says nothing.
    let mut m = bloat();
    capture(&mut m, 10, "lookups", vec![row(130, "indexer", "/srv/spool", 230_000.0, 0.0)]);
    assert_eq!(root(&m.explain()).1, None);
}

/// Threads of one process that put each other to sleep and wake each other.
fn contended() -> Machine {
    let mut m = Machine::idle();
    for tid in 140..148 {
        m.thread(140, tid, "server", 0);
        m.task_rate(tid, "task.nvcsw", 5.0, 5_800.0).task_rate(tid, "task.cpu_time", 0.001, 0.15);
        m.task_rate(tid, "task.system_time", 0.0005, 0.12);
    }
    m.sys("sys.ctxt", 80.0, 47_000.0).sys("sys.cpu_system", 0.01, 1.0).sys("sys.cpu_idle", 1.96, 0.7);
    m
}

#[test]
fn a_lock_of_a_program_is_named_by_its_address() {
    let mut m = contended();
    let before = m.explain();
    assert_eq!(root(&before), ("user-lock-contention", Some("server"), Some(140)));
    assert_eq!(before.incidents[0].root_cause.culprit.address, None);
    capture(
        &mut m,
        HEALTHY + 9,
        "locks",
        vec![
            row(140, "server", "futex 0x7f00aa10: do_futex < __x64_sys_futex", 90_000.0, 40.0),
            // More time, and a lock of the kernel.
            row(140, "server", "rwsem: down_read", 10.0, 90.0),
            row(3, "pool", "futex 0x55d0: do_futex", 4.0, 100.0),
        ],
    );
    let report = m.explain();
    assert_eq!(root(&report), ("user-lock-contention", Some("server"), Some(140)));
    let cause = &report.incidents[0].root_cause;
    assert_eq!(cause.culprit.address.as_deref(), Some("0x7f00aa10"));
    assert!(cause.statement.contains("a probe saw"), "{}", cause.statement);
}

#[test]
fn the_file_that_a_thrash_goes_over_is_named() {
    let thrash = |m: &mut Machine| {
        m.task(150, "fio", 0).task_during(150, "task.read_bytes", 3e8);
        m.sys("vm.pgsteal_file", 0.0, 70_000.0).sys("vm.workingset_refault_file", 0.0, 66_000.0);
        m.sys("vm.workingset_activate_file", 0.0, 20_000.0).sys("tasks.d_io", 0.0, 3.0);
        m.sys("psi.io_some", 0.0, 0.6);
        m.row("disk.read_bytes", "vda", 0.0, 3e8).row("disk.reads", "vda", 0.0, 70_000.0);
    };
    let mut m = Machine::idle();
    thrash(&mut m);
    assert_eq!(root(&m.explain()), ("page-cache-thrash", Some("fio"), Some(150)));
    capture(
        &mut m,
        HEALTHY + 9,
        "cache",
        vec![
            row(150, "fio", "/srv/data/set", 60_000.0, 9e8),
            row(150, "fio", "/usr/lib/libc.so.6", 10.0, 1e6),
            row(150, "fio", "evicts /srv/other", 60_000.0, 2e9),
            row(8, "cp", "/srv/big", 60_000.0, 5e9),
        ],
    );
    let report = m.explain();
    assert_eq!(root(&report), ("page-cache-thrash", Some("fio"), Some(150)));
    assert_eq!(report.incidents[0].root_cause.culprit.path.as_deref(), Some("/srv/data/set"));
    assert!(remarks(&report).contains("captured (cache"), "{}", remarks(&report));
}

#[test]
fn a_capture_on_an_idle_machine_is_no_incident() {
    let mut m = Machine::idle();
    capture(&mut m, HEALTHY + 9, "locks", vec![row(1, "x", "futex 0x1: y", 1e6, 100.0)]);
    capture(&mut m, HEALTHY + 9, "lookups", vec![row(1, "x", "/tmp", 1e6, 0.0)]);
    capture(&mut m, HEALTHY + 9, "fork", vec![row(1, "x", "starts /bin/true", 1e6, 0.0)]);
    assert!(m.explain().incidents.is_empty());
}

#[test]
fn short_processes_that_are_in_each_others_way_are_a_storm_too() {
    let lived = |lived_s: f64, cpu_s: f64, waited_s: f64| {
        let mut m = storm();
        m.row("exited.lifetime", "120:true", 0.0, 2200.0 * lived_s);
        m.row("exited.cpu_time", "120:true", 0.0, 2200.0 * cpu_s);
        m.row("exited.run_delay", "120:true", 0.0, 2200.0 * waited_s);
        m.explain()
    };
    let report = lived(0.3, 0.001, 0.15);
    assert_eq!(root(&report), ("fork-storm", Some("bash"), Some(120)));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(statement.contains("which lived for 300 ms each for 1.0 ms of CPU"), "{statement}");
    // Jobs that work, and such that wait for something else.
    assert!(lived(0.3, 0.001, 0.01).incidents.iter().all(|i| i.root_cause.condition != "fork-storm"));
    let report = lived(0.3, 0.05, 0.15);
    assert!(
        report.incidents.iter().all(|i| i.root_cause.condition != "fork-storm"),
        "{:#?}",
        report.incidents
    );
}
