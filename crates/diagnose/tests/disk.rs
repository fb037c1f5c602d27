//! Troubles of disks and filesystems as a recording has them, and what looks like them.

#[path = "support/disks.rs"]
mod disks;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use disks::{N, device, stuck, text, waits};

use mitra_diagnose::view::View;
use mitra_diagnose::{Observation, conditions};
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use mitra_model::{EventKind, Span};
use support::{HEALTHY, INCIDENT, Machine, START, ids, is_on, root, row};

#[test]
fn a_device_that_answers_slowly_to_one_reader_is_slow() {
    let mut m = Machine::idle();
    device(&mut m, "loop1", (400.0, 4096.0, 45e-6), (40.0, 4096.0, 0.025), "read");
    m.task(70, "reader", 0).task_rate(70, "task.read_bytes", 1.6e6, 1.6e5);
    waits(&mut m, 0.81, 0.9);
    let report = m.explain();
    assert_eq!(root(&report).0, "slow-device");
    let culprit = &report.incidents[0].root_cause.culprit;
    assert_eq!((culprit.device.as_deref(), culprit.process.as_deref()), (Some("loop1"), None));
    let chain: Vec<&str> = report.incidents[0].chain.iter().map(|l| l.condition.as_str()).collect();
    assert!(chain.contains(&"pressure-io"), "{chain:?}");
}

#[test]
fn a_slow_device_with_a_queue_is_not_its_users_doing() {
    let mut m = Machine::idle();
    // Eight readers before and after; each request alone took 0.1 ms and takes 30 ms.
    device(&mut m, "sda", (400.0, 8192.0, 1e-4), (33.0, 8192.0, 0.24), "read");
    m.task(70, "postgres", 0).task_rate(70, "task.read_bytes", 3e6, 2.7e5);
    stuck(&mut m, 71, "checkpointer", "folio_wait_bit_common;filemap_read");
    waits(&mut m, 1.0, 7.5);
    let report = m.explain();
    assert_eq!(root(&report), ("slow-device", None, None));
    assert_eq!(report.incidents[0].root_cause.culprit.device.as_deref(), Some("sda"));
}

#[test]
fn a_queue_of_somebodys_making_is_no_slow_device() {
    let mut m = Machine::idle();
    device(&mut m, "vda", (100.0, 4096.0, 2e-4), (700.0, 1_048_576.0, 0.04), "read");
    m.task(70, "fio", HEALTHY).task_during(70, "task.read_bytes", 7.3e8);
    stuck(&mut m, 71, "shop", "folio_wait_bit_common;filemap_read");
    waits(&mut m, 0.9, 1.9);
    assert_eq!(root(&m.explain()), ("disk-hog", Some("fio"), Some(70)));
}

#[test]
fn large_requests_and_slowness_that_nobody_waits_for_are_no_slow_device() {
    // A nightly copy of 1 MB each at 40 MB/s to a disk that served small requests before.
    let mut m = Machine::idle();
    device(&mut m, "sda", (50.0, 4096.0, 1e-3), (40.0, 1_048_576.0, 0.025), "write");
    waits(&mut m, 0.3, 0.5);
    assert!(ids(&m.explain()).is_empty());
    let mut m = Machine::idle();
    device(&mut m, "sda", (50.0, 4096.0, 1e-3), (30.0, 4096.0, 0.03), "write");
    m.row("disk.io_time", "sda", 0.05, 0.95);
    assert!(ids(&m.explain()).is_empty(), "nobody waits");
}

#[test]
fn the_slow_half_of_a_mirror_is_named() {
    let mut m = Machine::idle();
    device(&mut m, "sda", (50.0, 16_384.0, 5e-4), (20.0, 16_384.0, 6e-4), "write");
    device(&mut m, "sdb", (50.0, 16_384.0, 5e-4), (20.0, 16_384.0, 0.045), "write");
    device(&mut m, "md0", (50.0, 16_384.0, 5e-4), (20.0, 16_384.0, 0.045), "write");
    text(&mut m, "disk.mirror", "sda", "md0");
    text(&mut m, "disk.mirror", "sdb", "md0");
    stuck(&mut m, 71, "mysqld", "jbd2_log_wait_commit;ext4_sync_file");
    waits(&mut m, 0.9, 1.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "mirror-member-slow");
    let incident = &report.incidents[0];
    assert_eq!(incident.root_cause.culprit.device.as_deref(), Some("sdb"));
    assert!(incident.other_roots.is_empty(), "{:?}", incident.other_roots);
}

#[test]
fn a_member_that_is_being_filled_is_not_the_one_to_take_out() {
    let mut m = Machine::idle();
    device(&mut m, "sda", (50.0, 16_384.0, 5e-4), (20.0, 16_384.0, 6e-4), "write");
    device(&mut m, "sdb", (50.0, 16_384.0, 5e-4), (200.0, 524_288.0, 0.03), "write");
    for member in ["sda", "sdb"] {
        text(&mut m, "disk.mirror", member, "md0");
    }
    waits(&mut m, 0.9, 1.0);
    assert!(!ids(&m.explain()).contains(&"mirror-member-slow"));
}

/// What a condition says of the incident, compared with the time before.
fn observe(m: &Machine, id: &str) -> Observation {
    let span = |from: usize, to: usize| Span {
        since: START + from as i64 * SECOND + 1,
        until: START + to as i64 * SECOND + 1,
    };
    let view = View::new(&m.set, span(HEALTHY - 5, HEALTHY + INCIDENT), &m.set, Some(span(0, HEALTHY - 5)));
    (conditions().iter().find(|c| c.id == id).unwrap().observe)(&view)
}

#[test]
fn a_volume_that_serves_a_tenth_behind_the_same_queue_is_slow() {
    let slow = |during: (f64, f64, f64)| {
        let mut m = Machine::idle();
        device(&mut m, "vdb", (8_000.0, 4096.0, 0.004), during, "read");
        m.row("disk.rotational", "vdb", 0.0, 0.0);
        m.sys("psi.io_some", 0.99, 0.99).sys("tasks.d_io", 30.0, 31.0);
        matches!(observe(&m, "slow-device"), Observation::Active(_))
    };
    assert!(slow((744.0, 4096.0, 0.043)));
    assert!(!slow((744.0, 4096.0, 0.43)), "ten times as many wait");
    assert!(!slow((744.0, 131_072.0, 0.043)), "larger requests");
    assert!(!slow((6_000.0, 4096.0, 0.005)));
}

#[test]
fn more_tasks_that_wait_count_where_somebody_always_did() {
    let slow = |tasks: f64| {
        let mut m = Machine::idle();
        device(&mut m, "sda", (400.0, 8192.0, 1e-4), (33.0, 8192.0, 0.24), "read");
        m.sys("psi.io_some", 0.97, 1.0).sys("tasks.d_io", 1.0, tasks);
        matches!(observe(&m, "slow-device"), Observation::Active(_))
    };
    assert!(slow(7.5) && !slow(1.1));
}

#[test]
fn two_disks_that_are_no_mirror_are_not_compared() {
    let mut m = Machine::idle();
    device(&mut m, "sda", (50.0, 16_384.0, 5e-4), (20.0, 16_384.0, 6e-4), "write");
    device(&mut m, "sdb", (50.0, 16_384.0, 5e-4), (20.0, 16_384.0, 0.045), "write");
    waits(&mut m, 0.9, 1.0);
    assert_eq!(root(&m.explain()).0, "slow-device");
}

/// One writer fills the page cache in front of a device that takes 8 MB/s.
fn backlog(m: &mut Machine, device_s: f64) {
    m.sys("mem.dirty", 2e6, 6e8).sys("mem.writeback", 0.0, 5e8);
    device(m, "loop0", (5.0, 4096.0, 1e-3), (device_s / 524_288.0, 524_288.0, 1.0), "write");
    m.row("disk.io_time", "loop0", 0.01, 0.99).row("disk.weighted_time", "loop0", 0.0, 30.0);
    m.task(80, "dd", HEALTHY).task_during(80, "task.write_bytes", 4e7);
    waits(m, 1.0, 2.0);
}

#[test]
fn a_backlog_that_a_sync_waits_for_is_the_writers_doing() {
    let mut m = Machine::idle();
    backlog(&mut m, 8e6);
    stuck(&mut m, 81, "orderd", "folio_wait_bit_common;folio_wait_writeback;file_write_and_wait_range");
    let report = m.explain();
    assert_eq!(root(&report), ("dirty-writeback-stall", Some("dd"), Some(80)));
    let incident = &report.incidents[0];
    assert_eq!(incident.root_cause.culprit.device.as_deref(), Some("loop0"));
    assert!(incident.other_roots.is_empty(), "{:?}", incident.other_roots);
}

#[test]
fn a_backlog_that_nobody_waits_for_or_that_is_gone_in_a_second_is_work() {
    let mut m = Machine::idle();
    backlog(&mut m, 8e6);
    assert!(ids(&m.explain()).is_empty());
    let mut m = Machine::idle();
    backlog(&mut m, 1e9);
    stuck(&mut m, 81, "orderd", "folio_wait_bit_common;folio_wait_writeback");
    assert!(!ids(&m.explain()).contains(&"dirty-writeback-stall"));
}

#[test]
fn dirty_pages_that_are_too_young_to_be_written_are_no_backlog() {
    let mut m = Machine::idle();
    backlog(&mut m, 2.6e6);
    m.sys("mem.dirty", 2e6, 3e8).sys("mem.writeback", 0.0, 2e5);
    m.row("disk.io_time", "loop0", 0.01, 0.1).row("disk.weighted_time", "loop0", 0.0, 0.2);
    stuck(&mut m, 81, "reader", "folio_wait_bit_common;filemap_read");
    assert!(!ids(&m.explain()).contains(&"dirty-writeback-stall"));
}

#[test]
fn a_virtual_disk_that_calls_itself_rotational_is_held_to_what_it_did() {
    let slow = |during: (f64, f64, f64)| {
        let mut m = Machine::idle();
        device(&mut m, "vda", (150.0, 4096.0, 1e-4), during, "read");
        m.row("disk.rotational", "vda", 1.0, 1.0);
        waits(&mut m, 0.5, 0.6);
        ids(&m.explain()).contains(&"slow-device")
    };
    assert!(slow((80.0, 4096.0, 0.006)));
    assert!(!slow((150.0, 4096.0, 0.0012)), "flash takes a millisecond or two");
    assert!(!slow((150.0, 4096.0, 0.0015)));
    // A disk with an arm and a cache: more is asked for, or something else.
    assert!(!slow((500.0, 4096.0, 0.006)), "more than the cache takes");
    assert!(!slow((80.0, 65_536.0, 0.008)), "requests of another size");
    let mut m = Machine::idle();
    device(&mut m, "sda", (150.0, 4096.0, 0.003), (80.0, 4096.0, 0.012), "read");
    m.row("disk.rotational", "sda", 1.0, 1.0);
    waits(&mut m, 0.5, 0.9);
    assert!(!ids(&m.explain()).contains(&"slow-device"), "an arm moves now");
}

/// A group at its limit, in which two tasks wait in reclaim for pages that are being written: none gets so far as to run into
/// the limit again.
#[test]
fn a_group_that_stands_still_in_its_own_reclaim_is_held_at_its_limit() {
    let held = |used: f64| {
        let mut m = Machine::idle();
        for tid in [72, 73] {
            let stack = "folio_wait_bit;folio_wait_writeback;shrink_folio_list;shrink_lruvec;try_to_free_mem_cgroup_pages";
            stuck(&mut m, tid, "import", stack);
            m.cgroup(tid, "/batch");
        }
        m.row("cgroup.memory_failcnt", "/batch", 0.0, 0.0);
        // It was lifted at the end.
        m.values(
            "cgroup.memory_max",
            "/batch",
            0,
            (0..N).map(|i| if i + 1 < N { 6e8 } else { 9e9 }).collect(),
        );
        m.values("cgroup.memory_current", "/batch", 0, vec![used; N]);
        m.row("cgroup.writeback", "/batch", 0.0, 1.5e8);
        m.sys("psi.memory_some", 0.0, 0.7).sys("tasks.d_memory", 0.0, 2.0);
        m.explain()
    };
    let report = held(5.8e8);
    assert_eq!(ids(&report), ["cgroup-memory-limit"]);
    let root = &report.incidents[0].root_cause;
    assert!(!root.unexplained && root.strength > 0.5, "{root:#?}");
    assert!(root.statement.starts_with("/batch is held at its memory limit of 600 MB"), "{}", root.statement);
    assert!(root.remarks.iter().any(|r| r.contains("being written back to a device")), "{root:#?}");
    // Both tasks, for as long as it lasts.
    assert!(root.share > Some(0.9), "{root:#?}");
    // With room in the group it is not its limit; that tasks stand still is told all the same.
    let report = held(2e8);
    assert_eq!(ids(&report), ["pressure-memory"]);
    assert!(report.incidents[0].root_cause.statement.ends_with("the cause was not found"));
}

/// A group that may read 40 times a second from a device that answers in 50 us.
fn limited(m: &mut Machine, rate: f64, pressure: f64) {
    device(m, "loop2", (400.0, 4096.0, 5e-5), (rate, 4096.0, 5e-5), "read");
    m.row("cgroup.io_limit_riops", "/batch", 40.0, 40.0).row("cgroup.io_reads", "/batch", 20.0, rate);
    m.row("cgroup.psi_io_some", "/batch", 0.001, pressure);
    text(m, "cgroup.io_limit_device", "/batch", "loop2");
    m.task(90, "importd", 0).cgroup(90, "/batch");
    let states = (0..N).map(|i| f64::from(if is_on(i) { b'D' } else { b'S' })).collect();
    m.values("task.state", &row(90), 0, states);
    waits(m, pressure, pressure);
}

/// Beside it another group stands still at its quota of CPU.
#[test]
fn two_at_once_that_have_nothing_to_do_with_each_other_are_two() {
    let mut m = Machine::idle();
    limited(&mut m, 40.0, 0.8);
    m.task(110, "nginx", 0).task_rate(110, "task.run_delay", 0.01, 0.5).cgroup(110, "/app");
    m.row("cgroup.throttled_time", "/app", 0.0, 0.5).row("cgroup.nr_throttled", "/app", 0.0, 9.4);
    m.row("cgroup.nr_periods", "/app", 0.0, 9.8).row("cgroup.cpu_quota", "/app", 0.02, 0.02);
    m.row("cgroup.cpu_period", "/app", 0.1, 0.1);
    m.sys("tasks.run_delay", 0.01, 0.51).sys("psi.cpu_some", 0.0, 0.5);
    let report = m.explain();
    assert_eq!(ids(&report), ["io-throttled", "cpu-quota-throttled"], "the more costly one comes first");
    let costs: Vec<f64> = report.incidents.iter().filter_map(|i| i.lost_task_seconds).collect();
    assert!(costs.len() == 2 && costs[0] > costs[1], "{costs:?}");
    assert!(report.incidents.iter().all(|incident| incident.other_roots.is_empty()));
}

#[test]
fn a_group_at_its_limit_is_throttled_and_the_device_is_not_to_blame() {
    let mut m = Machine::idle();
    limited(&mut m, 40.0, 0.8);
    let report = m.explain();
    assert_eq!(root(&report), ("io-throttled", Some("importd"), Some(90)));
    let culprit = &report.incidents[0].root_cause.culprit;
    assert_eq!((culprit.cgroup.as_deref(), culprit.device.as_deref()), (Some("/batch"), Some("loop2")));
    assert!(report.incidents[0].root_cause.statement.contains("may do 40/s reads"));
}

#[test]
fn who_uses_a_limit_up_is_named_before_who_waits_at_it() {
    let culprit = |importd: f64, exportd: f64| {
        let mut m = Machine::idle();
        limited(&mut m, 20.0, 0.8);
        m.row("cgroup.io_limit_wbps", "/batch", 2e7, 2e7).row("cgroup.io_write_bytes", "/batch", 0.0, 2e7);
        m.row("disk.write_bytes", "loop2", 0.0, 2e7);
        m.task_rate(90, "task.write_bytes", 0.0, importd);
        m.task(91, "exportd", 0).task_rate(91, "task.write_bytes", 0.0, exportd).cgroup(91, "/batch");
        m.task(92, "otherd", 0).task_rate(92, "task.write_bytes", 0.0, 9e7);
        let report = m.explain();
        assert_eq!(ids(&report), ["io-throttled"]);
        report.incidents[0].root_cause.culprit.pid
    };
    assert_eq!(culprit(1e6, 1.9e7), Some(91));
    assert_eq!(culprit(0.0, 0.0), Some(90), "who writes is not known");
}

#[test]
fn a_limit_of_the_root_is_for_what_its_device_does() {
    let mut m = Machine::idle();
    m.row("cgroup.io_limit_wbps", "/", 2e7, 2e7).row("cgroup.io_write_bytes", "/", 1e6, 4e7);
    text(&mut m, "cgroup.io_limit_device", "/", "loop2");
    // Its file is on another device, of which the root has the bytes as well.
    m.row("disk.write_bytes", "loop2", 5e5, 2e7).row("disk.write_bytes", "vda", 5e5, 2e7);
    m.row("disk.io_time", "loop2", 0.01, 0.02).row("disk.weighted_time", "loop2", 0.01, 0.02);
    m.row("disk.writes", "loop2", 10.0, 100.0);
    m.sys("psi.io_some", 0.01, 0.8).sys("tasks.d_io", 0.0, 1.0).sys("tasks.d_throttle", 0.0, 1.0);
    m.task(91, "exportd", 0).task_rate(91, "task.write_bytes", 0.0, 1.9e7).cgroup(91, "/");
    m.task(92, "ledger", 0).task_rate(92, "task.write_bytes", 1e5, 1e5).cgroup(92, "/");
    assert_eq!(root(&m.explain()), ("io-throttled", Some("exportd"), Some(91)));
    // Two of them are halfway to theirs.
    text(&mut m, "cgroup.io_limit_device", "/", "loop2,vda");
    m.row("disk.write_bytes", "loop2", 5e5, 1e7).row("disk.write_bytes", "vda", 5e5, 1e7);
    assert!(!ids(&m.explain()).contains(&"io-throttled"));
}

#[test]
fn only_a_limit_that_is_reached_and_waited_for_throttles() {
    let mut m = Machine::idle();
    limited(&mut m, 20.0, 0.8);
    assert!(!ids(&m.explain()).contains(&"io-throttled"));
    let mut m = Machine::idle();
    limited(&mut m, 90.0, 0.8);
    assert!(!ids(&m.explain()).contains(&"io-throttled"), "what passes the limit is not held by it");
    let mut m = Machine::idle();
    limited(&mut m, 40.0, 0.02);
    assert!(ids(&m.explain()).is_empty());
    // A small limit is handed out in slices: one by one, a request waits for two tenths of a second.
    let small = |rate: f64| {
        let mut m = Machine::idle();
        limited(&mut m, rate, 0.95);
        m.row("cgroup.io_limit_riops", "/batch", 9.0, 9.0).row("cgroup.io_reads", "/batch", 300.0, rate);
        ids(&m.explain()).contains(&"io-throttled")
    };
    assert!(small(5.5) && !small(2.0));
    // At its limit, and the device itself is what is slow.
    let mut m = Machine::idle();
    limited(&mut m, 38.0, 0.9);
    device(&mut m, "loop2", (400.0, 4096.0, 5e-5), (38.0, 4096.0, 0.026), "read");
    assert_eq!(ids(&m.explain()), ["slow-device"]);
}

#[test]
fn a_queue_of_others_does_not_excuse_the_rule_that_holds_a_group_back() {
    // Another program keeps the device busy; of the group's wait it explains next to nothing.
    let mut m = Machine::idle();
    limited(&mut m, 40.0, 0.8);
    device(&mut m, "loop2", (3_000.0, 4096.0, 1e-3), (3_000.0, 4096.0, 1e-3), "read");
    assert!(matches!(observe(&m, "io-throttled"), Observation::Active(_)));
    // Forty wait, and two of these at the device, which is idle for nine tenths of the time.
    let crowd = |busy: f64| {
        let mut m = Machine::idle();
        limited(&mut m, 40.0, 0.9);
        device(&mut m, "loop2", (40.0, 4096.0, 5e-5), (40.0, 4096.0, 0.05), "read");
        m.row("disk.io_time", "loop2", 0.002, busy).sys("tasks.d_io", 0.0, 40.0);
        matches!(observe(&m, "io-throttled"), Observation::Active(_))
    };
    assert!(crowd(0.1) && !crowd(1.0));
    // The limit is one of a device that did hardly anything: the group was busy elsewhere.
    let mut m = Machine::idle();
    limited(&mut m, 40.0, 0.8);
    device(&mut m, "loop2", (3.0, 4096.0, 5e-5), (3.0, 4096.0, 5e-5), "read");
    assert!(!matches!(observe(&m, "io-throttled"), Observation::Active(_)));
}

#[test]
fn a_rule_without_a_limit_is_suspected() {
    let held = |stack: &str| {
        let mut m = Machine::idle();
        stuck(&mut m, 71, "batch", stack);
        m.row("cgroup.io_reads", "/batch", 40.0, 4.0).sys("tasks.d_throttle", 0.0, 3.0);
        observe(&m, "io-throttled")
    };
    assert!(matches!(
        held("io_schedule;rq_qos_wait;ioc_rqos_throttle;submit_bio"),
        Observation::Suspected(_)
    ));
    assert!(matches!(held("io_schedule_timeout;balance_dirty_pages"), Observation::Inactive(_)));
}

#[test]
fn tasks_that_wait_for_a_lock_are_no_victims_of_who_fills_a_disk() {
    let hog = |stack: &str| {
        let mut m = Machine::idle();
        device(&mut m, "vda", (100.0, 4096.0, 2e-4), (700.0, 1_048_576.0, 0.04), "read");
        m.task(70, "fio", HEALTHY).task_during(70, "task.read_bytes", 7.3e8);
        stuck(&mut m, 71, "shop", stack);
        matches!(observe(&m, "disk-hog"), Observation::Active(_))
    };
    assert!(hog("folio_wait_bit_common;filemap_read"));
    assert!(!hog("rwsem_down_read_slowpath;down_read;do_user_addr_fault"));
}

#[test]
fn a_device_is_full_where_its_writer_lets_it_idle_between_long_queues() {
    let hog = |busy: f64, queue: f64| {
        let mut m = Machine::idle();
        device(&mut m, "vda", (100.0, 4096.0, 2e-4), (2_000.0, 1_048_576.0, 0.008), "write");
        m.row("disk.io_time", "vda", 0.02, busy).row("disk.weighted_time", "vda", 0.02, queue);
        m.task(70, "thumbs", HEALTHY).task_during(70, "task.write_bytes", 2e9);
        stuck(&mut m, 71, "postgres", "folio_wait_bit_common;filemap_fdatawait");
        matches!(observe(&m, "disk-hog"), Observation::Active(_))
    };
    assert!(hog(0.8, 16.0));
    assert!(!hog(0.8, 3.0), "a few at a time, and it idles");
    assert!(!hog(0.3, 16.0), "it idles for most of the time");
}

#[test]
fn who_needs_many_short_requests_is_hurt_though_hardly_found_waiting() {
    // Requests of 4 kB took 0.2 ms and take 40 ms behind those of fio. Nobody is in D when the states are seen.
    let hog = |bytes_s: f64| {
        let mut m = Machine::idle();
        device(&mut m, "vda", (100.0, 4096.0, 2e-4), (700.0, 1_048_576.0, 0.04), "read");
        m.task(70, "fio", HEALTHY).task_during(70, "task.read_bytes", 7.3e8);
        m.task(71, "shop", 0).task_rate(71, "task.read_bytes", bytes_s, bytes_s);
        observe(&m, "disk-hog")
    };
    let Observation::Active(found) = hog(10.0 * 4096.0) else { panic!("two fifths of a task's time") };
    assert_eq!(found.culprit.process.as_deref(), Some("fio"));
    assert!(found.statement.contains("waited 40 %") && !found.is_harmless, "{}", found.statement);
    // A request a second is a twenty-fifth of a task's time: two hundred times as slow, and hardly anybody's loss.
    let Observation::Active(found) = hog(4096.0) else { panic!("a finding") };
    assert!(found.is_harmless && found.remarks.iter().any(|remark| remark.contains("instead of 200 µs")));
    assert!(matches!(hog(409.6), Observation::Inactive(_)), "the counters stray as far");
}

/// A filesystem of 64 MB: what is left of space and of inodes in each second.
fn filesystem(m: &mut Machine, avail: impl Fn(usize) -> f64, inodes: impl Fn(usize) -> f64) {
    m.row("fs.total_bytes", "/srv/app", 64e6, 64e6).row("fs.inodes", "/srv/app", 16_384.0, 16_384.0);
    m.values("fs.avail_bytes", "/srv/app", 0, (0..N).map(&avail).collect());
    m.values("fs.free_bytes", "/srv/app", 0, (0..N).map(&avail).collect());
    m.values("fs.inodes_free", "/srv/app", 0, (0..N).map(inodes).collect());
    text(m, "fs.type", "/srv/app", "ext4");
    text(m, "fs.device", "/srv/app", "/dev/loop3");
}

#[test]
fn a_filesystem_that_fills_up_is_named_with_who_filled_it() {
    let mut m = Machine::idle();
    let fills = |i: usize| {
        if is_on(i) {
            0.0
        } else if i < HEALTHY {
            (49e6 - 1e7 * i.saturating_sub(HEALTHY - 5) as f64).max(1e6)
        } else {
            3e7
        }
    };
    filesystem(&mut m, fills, |_| 16_000.0);
    m.task(95, "logwriter", 0);
    let written = (0..N).map(|i| if (HEALTHY - 6..HEALTHY + 1).contains(&i) { 1e7 } else { 0.0 }).collect();
    m.values("task.write_bytes", &row(95), 0, written);
    let report = m.explain();
    assert_eq!(root(&report), ("filesystem-full", Some("logwriter"), Some(95)));
    let culprit = &report.incidents[0].root_cause.culprit;
    assert_eq!((culprit.path.as_deref(), culprit.device.as_deref()), (Some("/srv/app"), Some("loop3")));
}

#[test]
fn a_filesystem_that_is_full_all_the_time_or_nearly_full_is_as_it_was() {
    let mut m = Machine::idle();
    filesystem(&mut m, |_| 0.0, |_| 0.0);
    assert!(ids(&m.explain()).is_empty());
    let mut m = Machine::idle();
    filesystem(&mut m, |i| if is_on(i) { 3e6 } else { 4e7 }, |i| if is_on(i) { 500.0 } else { 16_000.0 });
    assert!(ids(&m.explain()).is_empty());
}

#[test]
fn inodes_may_run_out_with_space_left() {
    let mut m = Machine::idle();
    filesystem(&mut m, |_| 4e7, |i| if is_on(i) { 0.0 } else { 9_000.0 });
    m.task(96, "sessiond", 0);
    let worked = (0..N).map(|i| if (HEALTHY - 3..=HEALTHY).contains(&i) { 0.5 } else { 0.0 }).collect();
    m.values("task.system_time", &row(96), 0, worked);
    let report = m.explain();
    assert_eq!(root(&report), ("inode-exhaustion", Some("sessiond"), Some(96)));
    assert_eq!(report.incidents[0].root_cause.culprit.path.as_deref(), Some("/srv/app"));
    // A fast CPU needs nine microseconds for a file, and the last ones went in the sample in which there was none left.
    let mut m = Machine::idle();
    filesystem(&mut m, |_| 4e7, |i| if is_on(i) { 0.0 } else { 9_000.0 });
    m.task(96, "sessiond", 0);
    m.values(
        "task.system_time",
        &row(96),
        0,
        (0..N).map(|i| if i == HEALTHY { 0.08 } else { 0.0 }).collect(),
    );
    assert_eq!(root(&m.explain()), ("inode-exhaustion", Some("sessiond"), Some(96)));
    // Without space either it is the space: XFS shows no free inode then.
    let mut m = Machine::idle();
    let left = |i: usize| if is_on(i) { 0.0 } else { 4e7 };
    filesystem(&mut m, left, left);
    assert_eq!(ids(&m.explain()), ["filesystem-full"]);
}

/// The roots of all incidents, also of those that stand beside another one.
fn all_roots(report: &Report) -> Vec<&str> {
    let roots = report.incidents.iter().flat_map(|i| std::iter::once(&i.root_cause).chain(&i.other_roots));
    let mut ids: Vec<&str> = roots.map(|root| root.condition.as_str()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_slow_disk_does_not_explain_the_queue_of_another_one() {
    let trouble = |hogged: &str| {
        let mut m = Machine::idle();
        device(&mut m, "sdb", (50.0, 16_384.0, 5e-4), (20.0, 16_384.0, 0.045), "write");
        device(&mut m, hogged, (100.0, 4096.0, 2e-4), (700.0, 1_048_576.0, 0.04), "read");
        m.task(70, "fio", HEALTHY).task_during(70, "task.read_bytes", 7.3e8);
        stuck(&mut m, 71, "shop", "folio_wait_bit_common;filemap_read");
        waits(&mut m, 1.0, 2.9);
        m
    };
    assert_eq!(all_roots(&trouble("nvme0n1").explain()), ["disk-hog", "slow-device"]);
    // Nobody knows what this one stands on.
    assert_eq!(all_roots(&trouble("dm-0").explain()), ["slow-device"]);
    let mut m = trouble("loop3");
    text(&mut m, "disk.backing", "loop3", "/srv/images/a.img");
    text(&mut m, "fs.device", "/srv", "/dev/sdb1");
    assert_eq!(all_roots(&m.explain()), ["slow-device"]);
    text(&mut m, "fs.device", "/srv", "/dev/vda1");
    assert_eq!(all_roots(&m.explain()), ["disk-hog", "slow-device"]);
}

/// What the kernel's watchdog says of a task that has slept for two minutes.
fn watchdog(m: &mut Machine) {
    let what = "hung-task".to_owned();
    m.event(HEALTHY + 30, EventKind::Stuck { what, pid: 71, comm: "shop".into(), seconds: 122.0 });
}

#[test]
fn who_waits_for_a_slow_device_for_minutes_is_not_its_own_cause() {
    let mut m = Machine::idle();
    device(&mut m, "sda", (400.0, 8192.0, 1e-4), (33.0, 8192.0, 0.24), "read");
    stuck(&mut m, 71, "shop", "folio_wait_bit_common;filemap_read");
    waits(&mut m, 1.0, 7.5);
    watchdog(&mut m);
    assert_eq!(all_roots(&m.explain()), ["slow-device"]);
    let mut m = Machine::idle();
    backlog(&mut m, 8e6);
    stuck(&mut m, 71, "shop", "folio_wait_bit_common;folio_wait_writeback");
    watchdog(&mut m);
    assert_eq!(all_roots(&m.explain()), ["dirty-writeback-stall"]);
    let mut m = Machine::idle();
    watchdog(&mut m);
    assert_eq!(all_roots(&m.explain()), ["hung-task"], "nothing else explains it");
}

#[test]
fn a_frozen_file_system_hangs_its_writers_whatever_else_is_slow() {
    const FROZEN: &str = "percpu_rwsem_wait;__percpu_down_read;ext4_file_write_iter;vfs_write";
    let mut m = Machine::idle();
    device(&mut m, "sda", (400.0, 8192.0, 1e-4), (33.0, 8192.0, 0.24), "read");
    waits(&mut m, 1.0, 7.5);
    stuck(&mut m, 71, "shop", FROZEN);
    assert_eq!(all_roots(&m.explain()), ["hung-task", "slow-device"]);
    // What is meant for it stays dirty.
    let mut m = Machine::idle();
    backlog(&mut m, 8e6);
    stuck(&mut m, 71, "shop", FROZEN);
    assert_eq!(all_roots(&m.explain()), ["hung-task"]);
}

/// A script drops the caches each second, and so many bytes a second are read again from a disk.
fn dropped(read: f64) -> Machine {
    let mut m = Machine::idle();
    m.sys("vm.drop_pagecache", 0.0, 1.0).sys("vm.drop_slab", 0.0, 1.0).task(77, "tidy", HEALTHY);
    m.row("disk.read_bytes", "vda", 0.0, read);
    for second in HEALTHY..HEALTHY + INCIDENT {
        let text = "tidy (77): drop_caches: 3".to_owned();
        m.event(second, EventKind::KernelLog { priority: 6, text });
    }
    m
}

#[test]
fn caches_that_a_script_drops_each_second_are_the_root() {
    let report = dropped(40e6).explain();
    assert_eq!(root(&report), ("caches-dropped", Some("tidy"), Some(77)));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(statement.starts_with("tidy (77) dropped the caches of the kernel "), "{statement}");
    assert!(statement.ends_with(" MB/s were read from vda (0 B/s before)"), "{statement}");
    // Nothing was read again.
    assert!(!ids(&dropped(0.0).explain()).contains(&"caches-dropped"));
}

#[test]
fn what_is_read_again_through_a_loop_device_is_counted_once() {
    let statement = |m: &Machine| {
        let report = m.explain();
        assert_eq!(root(&report), ("caches-dropped", Some("tidy"), Some(77)));
        let found = &report.incidents[0].root_cause;
        assert_eq!(found.culprit.device.as_deref(), Some("vda"));
        found.statement.clone()
    };
    let mut m = dropped(40e6);
    let alone = statement(&m);
    m.row("disk.read_bytes", "loop0", 0.0, 40e6);
    assert_eq!(statement(&m), alone);
    // This disk is read all the time.
    m.row("disk.read_bytes", "sdb", 90e6, 90e6);
    assert_eq!(statement(&m), alone);
}
