//! Growth, locks and forks as a recording has them, and what looks like them.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the support")]
mod support;

use mitra_model::EventKind;
use mitra_model::capture::CaptureRow;
use mitra_model::report::Report;
use support::{HEALTHY, INCIDENT, Machine, each, ids, row};

const MB: f64 = 1e6;

/// From one value to another over the incident, and there it stays.
fn ramp(from: f64, to: f64) -> Vec<f64> {
    each(|i| from + (to - from) * i.saturating_sub(HEALTHY).min(INCIDENT) as f64 / INCIDENT as f64)
}

fn set_text(m: &mut Machine, metric: &str, row: &str, text: &str) {
    m.text(metric, row, 1, text);
}

fn culprit(report: &Report) -> (Option<&str>, Option<u32>) {
    let culprit = &report.incidents[0].root_cause.culprit;
    (culprit.process.as_deref(), culprit.pid)
}

/// A machine of 24 GB of which 3 GB are left, and what is left falls to so much.
fn falling(to: f64) -> Machine {
    let mut m = Machine::idle();
    m.set.host.memory_bytes = 24_000_000_000;
    m.values("mem.available", "", 0, ramp(3000.0 * MB, to));
    m
}

fn grows_by(mb: f64, left: f64) -> Machine {
    let mut m = falling(left * MB);
    m.values("mem.anon", "", 0, ramp(400.0 * MB, (400.0 + mb) * MB));
    m.task(70, "cartd", 0).values("task.rss_anon", &row(70), 0, ramp(5_000.0, 5_000.0 + mb * MB / 4096.0));
    m
}

#[test]
fn what_takes_most_of_what_was_left_is_growth_whatever_the_size_of_memory() {
    let report = grows_by(2_000.0, 900.0).explain();
    assert_eq!(ids(&report), ["anonymous-growth"]);
    assert_eq!(culprit(&report), (Some("cartd"), Some(70)));
    let unknown: Vec<&str> = report.incidents[0].unknown.iter().map(|u| u.condition.as_str()).collect();
    assert!(
        unknown.contains(&"memory-leak-native") && unknown.contains(&"memory-leak-managed"),
        "{unknown:?}"
    );
    // As much where there is room, and a service that starts and is then as large as it is.
    assert!(grows_by(500.0, 2_400.0).explain().incidents.is_empty());
    let mut m = falling(1_000.0 * MB);
    let step = |from: f64, to: f64| each(move |i| if i < HEALTHY { from } else { to });
    m.values("mem.anon", "", 0, step(400.0 * MB, 2_400.0 * MB));
    m.values("mem.available", "", 0, step(3000.0 * MB, 1000.0 * MB));
    assert!(m.explain().incidents.is_empty());
}

#[test]
fn a_tmpfs_that_fills_is_named_with_its_place_and_its_writer() {
    let mut m = falling(700.0 * MB);
    m.values("mem.shmem", "", 0, ramp(10.0 * MB, 2_300.0 * MB));
    m.values("fs.free_bytes", "/run/spool", 0, ramp(4_000.0 * MB, 1_700.0 * MB));
    set_text(&mut m, "fs.type", "/run/spool", "tmpfs");
    m.task(71, "mailer", 0).task_rate(71, "task.wchar", 0.0, 57.0 * MB);
    let report = m.explain();
    assert_eq!(ids(&report), ["shmem-growth"]);
    assert_eq!(culprit(&report), (Some("mailer"), Some(71)));
    assert_eq!(report.incidents[0].root_cause.culprit.path.as_deref(), Some("/run/spool"));
}

#[test]
fn memory_of_the_kernel_that_descriptors_hold() {
    let mut m = falling(900.0 * MB);
    m.values("mem.sunreclaim", "", 0, ramp(80.0 * MB, 1_200.0 * MB));
    m.task(72, "relay2", 0).values("task.fds", &row(72), 0, ramp(20.0, 300_000.0));
    let report = m.explain();
    assert_eq!(ids(&report), ["slab-leak"]);
    assert_eq!(culprit(&report), (Some("relay2"), Some(72)));
}

fn names(per_s: f64, inodes: f64) -> Machine {
    let mut m = Machine::idle();
    m.set.host.memory_bytes = 24_000_000_000;
    m.values("dentry.negative", "", 0, ramp(3e3, 3e3 + per_s * INCIDENT as f64));
    m.values("inode.nr", "", 0, ramp(4e4, 4e4 + inodes * INCIDENT as f64));
    m.task(73, "probed", 0).task_rate(73, "task.system_time", 0.0, 0.9);
    m
}

#[test]
fn names_that_do_not_exist_and_who_asks_for_them() {
    let report = names(200_000.0, 0.0).explain();
    assert_eq!(ids(&report), ["slab-dentry-bloat"]);
    assert_eq!(culprit(&report), (Some("probed"), Some(73)));
    // Fifty megabytes are nothing on a machine of 24 GB, but a part of one of 2 GB, or of what is left.
    assert!(names(6_000.0, 0.0).explain().incidents.is_empty());
    let mut m = names(6_000.0, 0.0);
    m.set.host.memory_bytes = 2_000_000_000;
    assert_eq!(ids(&m.explain()), ["slab-dentry-bloat"]);
    let mut m = names(15_000.0, 0.0);
    m.values("mem.available", "", 0, ramp(900.0 * MB, 780.0 * MB));
    assert_eq!(ids(&m.explain()), ["slab-dentry-bloat"]);
    // What a probe saw of the lookups is its cost in time.
    let mut m = names(6_000.0, 0.0);
    let tops = vec![CaptureRow {
        pid: Some(73),
        comm: "probed".into(),
        what: "/srv/spool".into(),
        device: String::new(),
        count: 18_000.0,
        amount: 0.0,
    }];
    let (capture, ended) = ("lookups".to_owned(), "time".to_owned());
    let (why, cost_ns, file) = (String::new(), None, None);
    m.event(
        HEALTHY + 10,
        EventKind::Capture {
            capture,
            why,
            seconds: 3.0,
            events: 18_000,
            lost: 0,
            ended,
            cost_ns,
            file,
            tops,
        },
    );
    assert_eq!(ids(&m.explain()), ["slab-dentry-bloat"]);
    // Names that are made all the time are how the machine is, whatever else is looked at.
    let busy = |during: f64| {
        let mut m = names(0.0, 0.0);
        m.set.host.memory_bytes = 2_000_000_000;
        let made = |i: usize| {
            let more = i.saturating_sub(HEALTHY).min(INCIDENT) as f64;
            5e7 + 25_000.0 * i as f64 + (during - 25_000.0) * more
        };
        m.values("dentry.negative", "", 0, each(made)).sys("psi.cpu_some", 0.0, 0.5);
        m.explain().incidents.len()
    };
    assert_eq!((busy(25_000.0), busy(200_000.0)), (0, 1));
    assert!(names(1_000.0, 0.0).explain().incidents.is_empty(), "a build with a long search path");
    assert!(names(30_000.0, 30_000.0).explain().incidents.is_empty(), "names of files");
}

#[test]
fn inodes_that_leave_no_room() {
    let inodes = |scans: f64| {
        let mut m = falling(2_000.0 * MB);
        m.values("mem.sreclaimable", "", 0, ramp(60.0 * MB, 1_200.0 * MB));
        m.values("inode.nr", "", 0, ramp(4e4, 1.1e6)).sys("vm.pgscan_kswapd", 0.0, scans);
        m.explain()
    };
    assert_eq!(ids(&inodes(20_000.0)), ["slab-inode-bloat"]);
    assert!(inodes(0.0).incidents.is_empty(), "there is room");
}

/// A program whose threads switch so often, with so many packets a second beside it.
fn racing(threads: u32, each: f64, packets: f64) -> Machine {
    let mut m = Machine::idle();
    m.task(100, "quoted", 0).task_rate(100, "task.nvcsw", 10.0, each);
    for tid in 101..100 + threads {
        m.thread(100, tid, "quoted", 0).task_rate(tid, "task.nvcsw", 10.0, each);
        m.task_rate(tid, "task.cpu_time", 0.0, 0.1).task_rate(tid, "task.system_time", 0.0, 0.05);
    }
    m.sys("sys.ctxt", 500.0, 2.0 * each * f64::from(threads)).sys("sys.cpu_idle", 1.96, 0.7);
    m.row("softnet.processed", "0", 5.0, packets);
    m
}

#[test]
fn threads_that_wake_each_other_for_nothing_from_outside_race_for_a_lock() {
    let report = racing(12, 3_000.0, 5.0).explain();
    assert_eq!(ids(&report), ["user-lock-contention"]);
    assert_eq!(culprit(&report), (Some("quoted"), Some(100)));
    assert!(racing(12, 3_000.0, 40_000.0).explain().incidents.is_empty(), "a server and its packets");
    // The packets came before, and its threads did not race.
    let mut m = racing(12, 3_000.0, 5.0);
    m.row("softnet.processed", "0", 20_000.0, 20_000.0);
    let report = m.explain();
    assert_eq!(ids(&report), ["user-lock-contention"]);
    assert!(report.incidents[0].root_cause.strength <= 0.5);
    assert!(racing(2, 18_000.0, 5.0).explain().incidents.is_empty(), "two hand over to each other");
    assert!(racing(12, 100.0, 5.0).explain().incidents.is_empty(), "little of it");
}

/// A program of four threads that use so much of a CPU each, switch so often, and wait for a CPU.
fn queueing(each: f64, switches: f64, wait: f64) -> Machine {
    let mut m = Machine::idle();
    m.task(100, "quoted", 0);
    for tid in 101..105 {
        m.thread(100, tid, "quoted", 0).task_rate(tid, "task.nvcsw", 50.0, switches);
        m.task_rate(tid, "task.cpu_time", 0.001, each).task_rate(tid, "task.run_delay", 0.001, wait);
    }
    m.sys("sys.cpu_idle", 1.96, 1.96 - 4.0 * each).sys("tasks.run_delay", 0.01, 4.0 * wait);
    m.sys("tasks.cpu_time", 0.04, 4.0 * each).sys("psi.cpu_some", 0.0, 0.5);
    m
}

#[test]
fn threads_that_queue_beside_an_idle_cpu_and_use_one_together_take_turns() {
    let report = queueing(0.25, 900.0, 0.25).explain();
    assert_eq!(ids(&report), ["user-lock-contention"]);
    assert_eq!(culprit(&report), (Some("quoted"), Some(100)));
    assert!(queueing(0.34, 900.0, 0.25).explain().incidents.is_empty(), "they compute side by side");
    assert!(queueing(0.25, 20.0, 0.25).explain().incidents.is_empty(), "they compute for long at a time");
    assert!(queueing(0.25, 900.0, 0.05).explain().incidents.is_empty(), "they hardly wait");
    let mut m = queueing(0.25, 900.0, 0.25);
    m.row("softnet.processed", "0", 5.0, 2_000.0);
    assert!(m.explain().incidents.is_empty(), "a server and its packets");
    // What a probe saw counts for more than what all of it adds up to.
    let mut m = queueing(0.34, 900.0, 0.25);
    let top = |count: f64| CaptureRow {
        pid: Some(100),
        comm: "quoted".into(),
        what: "futex 0x55aa: do_futex".into(),
        device: String::new(),
        count,
        amount: 6.0,
    };
    for (count, is_lock) in [(12.0, false), (9_000.0, true)] {
        m.set.events.clear();
        m.event(
            HEALTHY + 6,
            EventKind::Capture {
                capture: "locks".into(),
                why: String::new(),
                seconds: 3.0,
                events: 9_000,
                lost: 0,
                ended: "time".into(),
                cost_ns: None,
                file: None,
                tops: vec![top(count)],
            },
        );
        assert_eq!(m.explain().incidents.len(), usize::from(is_lock), "{count} waits");
    }
}

#[test]
fn a_capture_of_locks_makes_it_sure() {
    let mut m = racing(12, 3_000.0, 5.0);
    let top = CaptureRow {
        pid: Some(100),
        comm: "quoted".into(),
        what: "futex 0x5581".into(),
        device: String::new(),
        count: 40_000.0,
        amount: 55.0,
    };
    m.event(
        HEALTHY + 10,
        EventKind::Capture {
            capture: "locks".into(),
            why: String::new(),
            seconds: 5.0,
            events: 40_000,
            lost: 0,
            ended: "time".into(),
            cost_ns: None,
            file: None,
            tops: vec![top],
        },
    );
    let report = m.explain();
    let found = &report.incidents[0].root_cause;
    assert!(found.confidence > 0.9 && found.statement.contains("futex 0x5581"), "{}", found.statement);
}

#[test]
fn a_large_process_that_forks_and_copies() {
    let fork = |held_mb: f64, copies: f64| {
        let mut m = Machine::idle();
        let pages = held_mb * MB / 4096.0;
        m.task(90, "redis-server", 0).values("task.rss_anon", &row(90), 0, each(|_| pages));
        m.task_rate(90, "task.minflt", 50.0, copies).sys("vm.pgfault", 500.0, copies.max(40_000.0));
        m.task(91, "redis-server", HEALTHY).task_during(91, "task.ppid", 90.0);
        m.task_during(91, "task.rss_anon", 0.95 * pages);
        m.explain()
    };
    let report = fork(1_200.0, 20_000.0);
    assert_eq!(ids(&report), ["fork-stall"]);
    assert_eq!(culprit(&report), (Some("redis-server"), Some(90)));
    assert!(fork(1_200.0, 200.0).incidents.is_empty(), "nothing is written to");
    assert!(fork(60.0, 20_000.0).incidents.is_empty(), "it is small");
}

#[test]
fn erlang_that_faults_and_does_not_grow() {
    let beam = |name: &str, grown: f64| {
        let mut m = Machine::idle();
        m.task(80, name, 0).task_rate(80, "task.minflt", 30.0, 270_000.0).sys("vm.pgfault", 50.0, 271_000.0);
        m.values("task.rss_anon", &row(80), 0, ramp(20_000.0, 20_000.0 + grown));
        m.explain()
    };
    assert_eq!(ids(&beam("beam.smp", 0.0)), ["allocator-carrier-misfit"]);
    assert!(ids(&beam("beam.smp", 9e6)).is_empty(), "it keeps what it touches");
    assert_eq!(ids(&beam("renderd", 0.0)), ["minor-fault-storm"]);
}

/// A machine of 24 GB of which 20 GB are to be had. Within seconds something takes so many GB and keeps them.
fn takes(metric: &str, gb: f64, seconds: f64) -> Machine {
    let mut m = Machine::idle();
    m.set.host.memory_bytes = 24_000_000_000;
    let taken = move |i: usize| 1e9 * gb * (i.saturating_sub(HEALTHY) as f64 / seconds).min(1.0);
    m.values("mem.available", "", 0, each(|i| 20e9 - taken(i)));
    m.values(metric, "", 0, each(|i| 4e8 + taken(i)));
    m
}

#[test]
fn a_program_that_touches_its_memory_when_it_starts_does_not_leak() {
    for metric in ["mem.anon", "mem.shmem"] {
        // Half of what there is within seconds; and then it stands still, or the recording ends.
        for (gb, seconds) in [(12.0, 8.0), (12.0, 20.0), (14.0, 40.0), (14.0, 60.0)] {
            let report = takes(metric, gb, seconds).explain();
            assert_eq!(ids(&report), Vec::<&str>::new(), "{metric}: {gb} GB in {seconds} s");
        }
    }
    // Until nothing is left.
    let mut m = takes("mem.anon", 19.5, 20.0);
    m.sys("vm.pgscan_direct", 0.0, 5_000.0);
    assert_eq!(ids(&m.explain()), ["anonymous-growth"]);
    let report = takes("mem.shmem", 19.5, 20.0).explain();
    assert_eq!(ids(&report), ["shmem-growth"]);
    let statement = &report.incidents[0].root_cause.statement;
    assert!(statement.contains("memory ran short"), "{statement}");
}

#[test]
fn a_group_that_waits_at_its_own_limit_is_no_shortage_of_the_machine() {
    let mut m = takes("mem.anon", 3.5, 40.0);
    m.sys("psi.memory_some", 0.0, 0.3).sys("vm.pswpout", 0.0, 400.0);
    assert_eq!(ids(&m.explain()), Vec::<&str>::new());
    // The same where the machine itself looks for pages.
    m.sys("vm.pgscan_kswapd", 0.0, 5_000.0);
    assert_eq!(ids(&m.explain()), ["anonymous-growth"]);
}

#[test]
fn a_working_set_that_no_longer_fits_beside_what_grows_is_its_victim() {
    let machine = |gb: f64| {
        let mut m = takes("mem.anon", gb, 20.0);
        let from = HEALTHY + 12;
        let late =
            |value: f64| each(move |i| if (from..HEALTHY + INCIDENT).contains(&i) { value } else { 0.0 });
        m.sys("vm.pgscan_direct", 0.0, 5_000.0);
        m.values("vm.pgsteal_file", "", 0, late(55_000.0));
        m.values("vm.workingset_refault_file", "", 0, late(52_000.0));
        m.values("vm.workingset_activate_file", "", 0, late(9_000.0));
        m.task(60, "fio", 0).values("task.read_bytes", &row(60), 0, late(2.2e8));
        m.values("disk.read_bytes", "vda", 0, late(2.2e8)).values("disk.reads", "vda", 0, late(20_000.0));
        m.values("psi.io_some", "", 0, late(0.6)).values("tasks.d_io", "", 0, late(1.2));
        m.values("psi.memory_some", "", 0, late(0.2));
        let report = m.explain();
        let roots =
            report.incidents.iter().flat_map(|i| std::iter::once(&i.root_cause).chain(&i.other_roots));
        roots.map(|root| root.condition.clone()).collect::<Vec<String>>()
    };
    assert_eq!(machine(19.5), ["anonymous-growth"]);
    assert_eq!(machine(0.0), ["page-cache-thrash"]);
}
