//! The root cause of machines made of numbers, and of their look-alikes. The numbers are of the size that the real
//! incidents have on a machine with two CPUs.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use std::sync::Arc;

use mitra_model::time::SECOND;
use mitra_model::{EventKind, TextSeries, lookup};
use support::{HEALTHY, INCIDENT, Machine, START, each, ids, is_on, root, row};

#[test]
fn an_idle_machine_has_no_incident() {
    let report = Machine::idle().explain();
    assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
    assert!(report.healthy.iter().any(|a| a == "swap"));
    assert!(report.healthy.iter().any(|a| a == "disk"));
    assert_eq!(report.ledger.lost_task_seconds, Some(0.0));
}

#[test]
fn nothing_known_is_no_incident_and_nothing_is_called_healthy() {
    let mut machine = Machine::idle();
    machine.set = mitra_model::SeriesSet::default();
    let report = machine.explain();
    assert!(report.incidents.is_empty() && report.healthy.is_empty());
    assert_eq!(report.ledger.lost_task_seconds, None);
}

/// What streaming a large file does to a machine whose memory is full.
fn flood(m: &mut Machine) {
    m.task(50, "dd", HEALTHY).task_during(50, "task.read_bytes", 1e9).task_during(50, "task.rchar", 1e9);
    m.task_during(50, "task.cpu_time", 0.6);
    m.row("disk.read_bytes", "vda", 1e4, 1.02e9).row("disk.reads", "vda", 2.0, 4000.0);
    m.row("disk.io_time", "vda", 0.0, 0.97).row("disk.weighted_time", "vda", 0.0, 4.0);
    m.row("disk.read_time", "vda", 0.0, 4.0);
    m.sys("vm.pgsteal_file", 0.0, 245_000.0).sys("vm.pgscan_kswapd", 0.0, 250_000.0);
    m.sys("psi.io_some", 0.0, 0.8).sys("tasks.d_io", 0.0, 1.4).sys("sys.cpu_iowait", 0.0, 0.8);
    m.sys("sys.cpu_idle", 1.96, 0.4);
}

#[test]
fn a_flood_that_hurts_others_is_named_with_its_reader_and_device() {
    let mut m = Machine::idle();
    flood(&mut m);
    m.task(40, "java", 0).task_rate(40, "task.majflt", 0.0, 3000.0).task_rate(
        40,
        "task.read_bytes",
        0.0,
        12e6,
    );
    m.sys("vm.pgmajfault", 0.0, 3000.0).sys("vm.workingset_refault_file", 0.0, 3000.0);
    let report = m.explain();
    assert_eq!(root(&report), ("streaming-read-flood", Some("dd"), Some(50)));
    let incident = &report.incidents[0];
    assert_eq!(incident.root_cause.culprit.device.as_deref(), Some("vda"));
    assert!(incident.root_cause.statement.contains("java"), "{}", incident.root_cause.statement);
    let chain: Vec<&str> = incident.chain.iter().map(|l| l.condition.as_str()).collect();
    assert_eq!(chain[0], "streaming-read-flood");
    for link in ["kswapd-scanning", "page-cache-eviction", "refaults", "major-faults", "pressure-io"] {
        assert!(chain.contains(&link), "{link} is missing in {chain:?}");
    }
}

#[test]
fn a_flood_of_two_seconds_is_the_cause_of_what_others_fetch_for_long() {
    let mut m = Machine::idle();
    let in_time = |rate: fn(usize) -> f64| {
        let end = HEALTHY + INCIDENT + support::AFTER;
        (0..end).map(|i| i.checked_sub(HEALTHY).map_or(0.0, rate)).collect::<Vec<f64>>()
    };
    let read = in_time(|s| if s < 3 { 1e9 } else { 0.0 });
    m.task(50, "dd", 0).values("task.read_bytes", "50@50000000", 0, read.clone());
    m.row("disk.reads", "vda", 2.0, 4000.0).values("disk.read_bytes", "vda", 0, read);
    // Emptied at once; what comes back needs a page now and then, for longer than the flood took.
    let steal = in_time(|s| match s {
        1..3 => 200_000.0,
        8..18 => 3_000.0,
        _ => 0.0,
    });
    m.values("vm.pgsteal_file", "", 0, steal);
    m.sys("psi.io_some", 0.0, 0.25).sys("tasks.d_io", 0.0, 0.3);
    m.task(40, "java", 0).task_rate(40, "task.majflt", 0.0, 7000.0);
    m.task_rate(40, "task.read_bytes", 0.0, 3e7);
    m.sys("vm.pgmajfault", 0.0, 7000.0).sys("vm.workingset_refault_file", 0.0, 7000.0);
    let report = m.explain();
    let roots: Vec<_> = report.incidents.iter().map(|i| &i.root_cause).collect();
    let [root] = roots[..] else { panic!("{roots:#?}") };
    assert_eq!(
        (root.condition.as_str(), root.culprit.process.as_deref()),
        ("streaming-read-flood", Some("dd"))
    );
    assert!(root.statement.contains("java") && report.incidents[0].other_roots.is_empty());
}

#[test]
fn a_large_file_read_once_with_nobody_hurt_is_no_incident() {
    let mut m = Machine::idle();
    flood(&mut m);
    let report = m.explain();
    assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
}

#[test]
fn a_working_set_that_comes_back_is_a_thrash_of_its_reader() {
    let mut m = Machine::idle();
    m.task(60, "fio", 0).task_rate(60, "task.read_bytes", 0.0, 2.2e8).cgroup(60, "/small");
    m.row("disk.read_bytes", "vda", 0.0, 2.2e8).row("disk.reads", "vda", 0.0, 20_000.0);
    m.sys("vm.pgsteal_file", 0.0, 55_000.0).sys("vm.workingset_refault_file", 0.0, 52_000.0);
    m.sys("vm.workingset_activate_file", 0.0, 9_000.0);
    m.row("cgroup.refault_file", "/small", 0.0, 52_000.0).row(
        "cgroup.memory_failcnt",
        "/small",
        0.0,
        60_000.0,
    );
    m.row("cgroup.memory_current", "/small", 4e8, 4e8).row("cgroup.memory_max", "/small", 4.02e8, 4.02e8);
    m.row("cgroup.psi_memory_some", "/small", 0.0, 0.1);
    m.sys("psi.io_some", 0.0, 0.6).sys("tasks.d_io", 0.0, 1.2).sys("psi.memory_some", 0.0, 0.09);
    let report = m.explain();
    assert_eq!(root(&report), ("page-cache-thrash", Some("fio"), Some(60)));
    assert_eq!(report.incidents[0].root_cause.culprit.cgroup.as_deref(), Some("/small"));
    assert!(report.incidents[0].other_roots.is_empty(), "the group's limit is a link, not a root");
}

/// A container writes files to a volume in memory, and what another one of its pod reads does not fit any more.
#[test]
fn shared_memory_that_takes_the_room_of_a_group_is_why_a_working_set_does_not_fit() {
    let thrash = |fills: f64| {
        let mut m = Machine::idle();
        m.task(60, "searchd", 0).task_rate(60, "task.read_bytes", 0.0, 2.2e8).cgroup(60, "/pod");
        m.row("disk.read_bytes", "vda", 0.0, 2.2e8).row("disk.reads", "vda", 0.0, 20_000.0);
        m.sys("vm.pgsteal_file", 0.0, 55_000.0).sys("vm.workingset_refault_file", 0.0, 52_000.0);
        m.sys("vm.workingset_activate_file", 0.0, 9_000.0);
        m.row("cgroup.refault_file", "/pod", 0.0, 52_000.0);
        m.row("cgroup.memory_current", "/pod", 2e8, 4e8).row("cgroup.memory_max", "/pod", 4.02e8, 4.02e8);
        m.sys("psi.io_some", 0.0, 0.6).sys("tasks.d_io", 0.0, 1.2).sys("psi.memory_some", 0.0, 0.09);
        let filled = |i: usize| fills * (i.saturating_sub(HEALTHY).min(3)) as f64 / 3.0;
        let n = HEALTHY + INCIDENT + support::AFTER;
        m.values("cgroup.shmem", "/pod", 0, (0..n).map(filled).collect());
        m.values("fs.free_bytes", "/shm", 0, (0..n).map(|i| 9e8 - filled(i)).collect());
        m.text("fs.type", "/shm", 0, "tmpfs");
        m.task(70, "tracer", HEALTHY).task_during(70, "task.wchar", fills / INCIDENT as f64);
        m.explain()
    };
    let report = thrash(2.4e8);
    assert_eq!(ids(&report), ["shmem-growth"]);
    let incident = &report.incidents[0];
    let culprit = &incident.root_cause.culprit;
    assert_eq!((culprit.process.as_deref(), culprit.pid), (Some("tracer"), Some(70)));
    assert_eq!((culprit.cgroup.as_deref(), culprit.path.as_deref()), (Some("/pod"), Some("/shm")));
    assert!(incident.chain.iter().any(|link| link.condition == "page-cache-thrash"));
    // A twentieth of what the group may have.
    assert_eq!(ids(&thrash(2e7)), ["page-cache-thrash"]);
}

/// A program that reads its working set for the first time, and then again.
#[test]
fn a_working_set_comes_back_only_once_it_was_read() {
    let thrash = |later: f64| {
        let mut m = Machine::idle();
        m.task(60, "fio", 0).task_rate(60, "task.read_bytes", 0.0, 2.2e8);
        m.row("disk.read_bytes", "vda", 0.0, 2.2e8).row("disk.reads", "vda", 0.0, 20_000.0);
        m.sys("vm.pgsteal_file", 0.0, 55_000.0).sys("vm.workingset_activate_file", 0.0, 3_000.0);
        let back = |i: usize| match i.checked_sub(HEALTHY) {
            Some(0..27) => 3_000.0,
            Some(27..INCIDENT) => later,
            _ => 0.0,
        };
        let n = HEALTHY + INCIDENT + support::AFTER;
        m.values("vm.workingset_refault_file", "", 0, (0..n).map(back).collect());
        m.sys("psi.io_some", 0.0, 0.6).sys("tasks.d_io", 0.0, 1.2).sys("psi.memory_some", 0.0, 0.09);
        m.explain()
    };
    // A fifth of all that was evicted, and half of it at the end.
    assert_eq!(root(&thrash(30_000.0)), ("page-cache-thrash", Some("fio"), Some(60)));
    let roots = thrash(5_000.0).incidents;
    assert!(roots.iter().all(|i| i.root_cause.condition != "page-cache-thrash"), "{roots:#?}");
}

#[test]
fn refaults_without_any_steal_are_not_blamed_on_a_reader() {
    let mut m = Machine::idle();
    m.task(60, "fio", 0).task_rate(60, "task.read_bytes", 0.0, 5e7);
    m.sys("vm.workingset_refault_file", 0.0, 8_000.0).sys("psi.io_some", 0.0, 0.3);
    assert!(m.explain().incidents.is_empty());
}

/// A device that one process keeps full.
fn full_disk_queue(m: &mut Machine) {
    m.task(70, "fio", HEALTHY).task_during(70, "task.write_bytes", 2e8);
    m.row("disk.io_time", "vda", 0.02, 1.0).row("disk.weighted_time", "vda", 0.02, 16.0);
    m.row("disk.writes", "vda", 20.0, 800.0).row("disk.write_time", "vda", 0.02, 15.0);
    m.row("disk.write_bytes", "vda", 1e5, 2e8);
    m.sys("psi.io_some", 0.01, 0.95).sys("tasks.d_io", 0.0, 1.9).sys("sys.cpu_iowait", 0.0, 0.9);
}

#[test]
fn a_writer_that_makes_others_wait_is_a_hog() {
    let mut m = Machine::idle();
    full_disk_queue(&mut m);
    m.task(71, "postgres", 0).task_rate(71, "task.write_bytes", 1e5, 1e5);
    let states: Vec<f64> = (0..HEALTHY + INCIDENT + 20)
        .map(|i| f64::from(if (HEALTHY..HEALTHY + INCIDENT).contains(&i) { b'D' } else { b'S' }))
        .collect();
    m.values("task.state", "71@71000000", 0, states);
    let report = m.explain();
    assert_eq!(root(&report), ("disk-hog", Some("fio"), Some(70)));
    assert_eq!(report.incidents[0].root_cause.culprit.device.as_deref(), Some("vda"));
}

#[test]
fn a_victim_may_have_the_name_of_the_hog() {
    let mut m = Machine::idle();
    full_disk_queue(&mut m);
    m.task(71, "fio", 0).task_rate(71, "task.write_bytes", 1e5, 1e5);
    let states: Vec<f64> = (0..HEALTHY + INCIDENT + 20)
        .map(|i| f64::from(if (HEALTHY..HEALTHY + INCIDENT).contains(&i) { b'D' } else { b'S' }))
        .collect();
    m.values("task.state", "71@71000000", 0, states);
    assert_eq!(root(&m.explain()), ("disk-hog", Some("fio"), Some(70)));
}

#[test]
fn a_writer_alone_on_its_disk_is_no_incident() {
    let mut m = Machine::idle();
    full_disk_queue(&mut m);
    assert!(m.explain().incidents.is_empty());
}

#[test]
fn workers_pinned_to_one_cpu_are_misplaced() {
    let mut m = Machine::idle();
    for tid in 80..84 {
        m.task(tid, "worker", HEALTHY).task_during(tid, "task.run_delay", 0.75).task_during(
            tid,
            "task.cpu_time",
            0.25,
        );
        m.task_during(tid, "task.cpus_allowed", 1.0).task_during(tid, "task.cpus_allowed_count", 1.0);
    }
    m.row("cpu.idle", "0", 0.98, 0.0).sys("sys.cpu_idle", 1.96, 0.98);
    m.sys("tasks.run_delay", 0.01, 3.0).sys("psi.cpu_some", 0.0, 0.9);
    let report = m.explain();
    let (condition, process, pid) = root(&report);
    assert_eq!((condition, process), ("cpu-affinity-misplaced", Some("worker")));
    assert!((80..84).contains(&pid.unwrap()));
    let seconds = report.ledger.by_cause.iter().find(|c| c.cause == "run-queue").unwrap().seconds;
    assert!((seconds - 120.0).abs() < 5.0, "{seconds}");
}

#[test]
fn waiting_with_all_cpus_busy_is_not_misplacement() {
    let mut m = Machine::idle();
    for tid in 80..112 {
        m.task(tid, "spin", HEALTHY).task_during(tid, "task.run_delay", 0.93).task_during(
            tid,
            "task.cpu_time",
            0.06,
        );
    }
    m.row("cpu.idle", "0", 0.98, 0.0).row("cpu.idle", "1", 0.98, 0.0).sys("sys.cpu_idle", 1.96, 0.0);
    m.sys("tasks.run_delay", 0.01, 30.0).sys("psi.cpu_some", 0.0, 1.0).sys("tasks.cpu_time", 0.04, 2.0);
    let report = m.explain();
    let (condition, process, pid) = root(&report);
    assert_eq!((condition, process), ("runqueue-saturation", Some("spin")));
    assert!((80..112).contains(&pid.unwrap()));
}

#[test]
fn a_build_is_work() {
    let mut m = Machine::idle();
    m.sys("sys.cpu_idle", 1.96, 0.02).sys("tasks.run_delay", 0.01, 0.7).sys("psi.cpu_some", 0.0, 0.5);
    m.sys("sys.forks", 1.0, 17.0).sys("tasks.exited_cpu_time", 0.0, 1.9).sys("tasks.cpu_time", 0.04, 2.0);
    m.sys("tasks.busiest", 0.0, 0.97);
    for i in 0..10 {
        let start = HEALTHY + i * 4;
        m.task(500 + i as u32, "cc1", start);
        m.values("task.cpu_time", &format!("{}@{}", 500 + i, (500 + i) * 1_000_000), start, vec![0.97; 4]);
    }
    assert!(m.explain().incidents.is_empty());
}

#[test]
fn a_build_with_too_many_jobs_is_work_too() {
    let mut m = Machine::idle();
    m.sys("sys.cpu_idle", 1.96, 0.0).sys("tasks.run_delay", 0.01, 6.0).sys("psi.cpu_some", 0.0, 0.95);
    m.sys("tasks.cpu_time", 0.04, 2.0);
    for i in 0..40 {
        let (tid, start) = (500 + i as u32, HEALTHY + i / 8 * 8);
        m.task(tid, "rustc", start);
        let row = format!("{tid}@{}", u64::from(tid) * 1_000_000);
        for (metric, value) in
            [("task.cpu_time", 0.25), ("task.run_delay", 0.75), ("task.tgid", f64::from(tid))]
        {
            m.values(metric, &row, start, vec![value; 8]);
        }
    }
    assert!(m.explain().incidents.is_empty());
}

#[test]
fn one_program_that_takes_the_cpus_from_another_is_a_hog() {
    let mut m = Machine::idle();
    m.task(90, "crunch", HEALTHY);
    for tid in 90..94 {
        if tid != 90 {
            m.thread(90, tid, "crunch", HEALTHY);
        }
        m.task_during(tid, "task.cpu_time", 0.45).task_during(tid, "task.run_delay", 0.4);
    }
    m.task(95, "web", 0).task_rate(95, "task.run_delay", 0.01, 0.6).task_rate(95, "task.cpu_time", 0.3, 0.2);
    m.sys("sys.cpu_idle", 1.6, 0.0).sys("tasks.run_delay", 0.02, 2.2).sys("tasks.cpu_time", 0.34, 2.0);
    m.sys("psi.cpu_some", 0.0, 0.95);
    assert_eq!(root(&m.explain()), ("cpu-hog", Some("crunch"), Some(90)));
}

#[test]
fn a_server_that_came_to_its_limit_is_a_bottleneck() {
    let mut m = Machine::idle();
    m.task(100, "redis-server", 0).task_rate(100, "task.cpu_time", 0.2, 1.0).task_rate(
        100,
        "task.rchar",
        1e6,
        5e6,
    );
    m.sys("sys.cpu_idle", 1.7, 0.9).sys("tasks.busiest", 0.2, 1.0);
    assert_eq!(root(&m.explain()), ("single-thread-bottleneck", Some("redis-server"), Some(100)));
}

#[test]
fn a_job_that_burns_a_cpu_without_progress_is_a_finding_and_a_streaming_one_is_not() {
    for (moved, expected) in [(0.0, 1), (5e7, 0)] {
        let mut m = Machine::idle();
        m.task(101, "gzip", HEALTHY).task_during(101, "task.cpu_time", 0.99).task_during(
            101,
            "task.write_bytes",
            moved,
        );
        m.sys("sys.cpu_idle", 1.9, 0.95).sys("tasks.busiest", 0.0, 0.99);
        let report = m.explain();
        assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
        assert_eq!(report.findings.len(), expected, "{:#?}", report.findings);
    }
}

#[test]
fn a_moderate_server_is_no_bottleneck() {
    let mut m = Machine::idle();
    m.task(100, "redis-server", 0).task_rate(100, "task.cpu_time", 0.0, 0.6);
    m.sys("sys.cpu_idle", 1.9, 1.2).sys("tasks.busiest", 0.0, 0.6);
    assert!(m.explain().incidents.is_empty());
}

#[test]
fn a_culprit_in_a_container_has_its_name() {
    const ID: &str = "4f0c1e7d9b2a5c8e3f6a1b4d7e0c9f2a5b8d1e4c7f0a3b6d9e2c5f8a1b4d7e0c";
    let group = format!("/docker/{ID}");
    let throttled = |names: &[(&str, &str)]| {
        let mut m = Machine::idle();
        m.task(110, "nginx", 0).task_rate(110, "task.run_delay", 0.01, 0.75).cgroup(110, &group);
        m.row("cgroup.throttled_time", &group, 0.0, 0.75).row("cgroup.nr_throttled", &group, 0.0, 9.4);
        m.row("cgroup.nr_periods", &group, 0.0, 9.8).row("cgroup.cpu_quota", &group, 0.02, 0.02);
        m.row("cgroup.cpu_period", &group, 0.1, 0.1);
        m.sys("tasks.run_delay", 0.01, 0.76).sys("psi.cpu_some", 0.0, 0.75);
        for (metric, name) in names {
            // Found out some seconds after the cgroup was made, and gone with it.
            let until = START + (HEALTHY + INCIDENT) as i64 * SECOND;
            let changes = vec![(START + 3 * SECOND, Some(Arc::from(*name))), (until, None)];
            m.set.insert_text(
                lookup(metric).unwrap(),
                group.as_str().into(),
                TextSeries { changes, place: None },
            );
        }
        let report = m.explain();
        assert_eq!(root(&report), ("cpu-quota-throttled", Some("nginx"), Some(110)));
        report.incidents[0].clone()
    };
    let named = throttled(&[("cgroup.container", "web"), ("cgroup.image", "docker.io/library/nginx:1.25")]);
    let root = &named.root_cause;
    assert_eq!(root.culprit.cgroup_name.as_deref(), Some("container web (nginx:1.25)"));
    assert_eq!(root.culprit.cgroup.as_deref(), Some(group.as_str()));
    assert!(
        root.statement.starts_with("container web (nginx:1.25) may use 20 % of a CPU"),
        "{}",
        root.statement
    );
    let remedy = &named.remedies[0];
    assert!(remedy.action.contains("container web") && remedy.command.contains(&group), "{remedy:?}");
    let unnamed = throttled(&[]);
    assert_eq!(unnamed.root_cause.culprit.cgroup_name.as_deref(), Some("docker container 4f0c1e7d9b2a"));
}

#[test]
fn who_uses_up_a_quota_is_named_and_not_who_waits_for_it() {
    let shared = |sidecar: f64| {
        let mut m = Machine::idle();
        m.task(110, "quote-app", 0).task_rate(110, "task.run_delay", 0.01, 0.9).cgroup(110, "/pod7/app");
        m.task_rate(110, "task.cpu_time", 0.03, 0.03);
        m.task(120, "compactor", 0).task_rate(120, "task.run_delay", 0.0, 0.5).cgroup(120, "/pod7/sidecar");
        m.task_rate(120, "task.cpu_time", 0.0, sidecar);
        m.row("cgroup.throttled_time", "/pod7", 0.0, 1.4).row("cgroup.nr_throttled", "/pod7", 0.0, 4.8);
        m.row("cgroup.nr_periods", "/pod7", 0.0, 5.0).row("cgroup.cpu_quota", "/pod7", 0.1, 0.1);
        m.row("cgroup.cpu_period", "/pod7", 0.2, 0.2);
        m.sys("tasks.run_delay", 0.01, 1.4).sys("psi.cpu_some", 0.0, 0.9);
        m.explain()
    };
    let report = shared(0.45);
    assert_eq!(root(&report), ("cpu-quota-throttled", Some("compactor"), Some(120)));
    let remarks = &report.incidents[0].root_cause.remarks;
    assert!(
        remarks.iter().any(|r| r == "compactor uses 94 % of the CPU time of the group, and quote-app waits"),
        "{remarks:?}"
    );
    assert_eq!(root(&shared(0.01)).1, Some("quote-app"));
}

#[test]
fn quota_is_told_from_saturation() {
    let mut m = Machine::idle();
    m.task(110, "nginx", 0).task_rate(110, "task.run_delay", 0.01, 0.75).cgroup(110, "/app");
    m.row("cgroup.throttled_time", "/app", 0.0, 0.75).row("cgroup.nr_throttled", "/app", 0.0, 9.4);
    m.row("cgroup.nr_periods", "/app", 0.0, 9.8).row("cgroup.cpu_quota", "/app", 0.02, 0.02);
    m.row("cgroup.cpu_period", "/app", 0.1, 0.1);
    m.sys("tasks.run_delay", 0.01, 0.76).sys("psi.cpu_some", 0.0, 0.75);
    let report = m.explain();
    assert_eq!(root(&report), ("cpu-quota-throttled", Some("nginx"), Some(110)));
    assert_eq!(report.incidents[0].root_cause.culprit.cgroup.as_deref(), Some("/app"));
    assert!(
        report.incidents[0].root_cause.statement.contains("20 %"),
        "{}",
        report.incidents[0].root_cause.statement
    );
    let causes: Vec<&str> = report.ledger.by_cause.iter().map(|c| c.cause.as_str()).collect();
    assert_eq!(causes.first(), Some(&"cpu-quota"), "{causes:?}");
}

#[test]
fn the_parent_of_a_fork_storm_is_named() {
    let mut m = Machine::idle();
    m.task(120, "bash", 0);
    m.sys("sys.forks", 1.0, 2200.0).sys("tasks.exited", 1.0, 2200.0).sys("tasks.exited_cpu_time", 0.0, 0.9);
    m.sys("sys.cpu_idle", 1.96, 0.1).sys("tasks.run_delay", 0.01, 1.1).sys("psi.cpu_some", 0.0, 0.6);
    m.row("exited.count", "120:true", 0.0, 2200.0).row("exited.lifetime", "120:true", 0.0, 2200.0 * 0.001);
    let parent = TextSeries { changes: vec![(START, Some("bash".into()))], place: None };
    m.set.insert_text(lookup("exited.parent_comm").unwrap(), "120:true".into(), parent);
    assert_eq!(root(&m.explain()), ("fork-storm", Some("bash"), Some(120)));
}

#[test]
fn threads_are_cheaper_than_processes_and_who_had_no_room_is_nobody() {
    let storm = |threads: f64, others: f64| {
        let mut m = Machine::idle();
        m.task(120, "bash", 0).sys("sys.forks", 1.0, 200.0 + others + threads);
        m.sys("tasks.exited", 1.0, 200.0 + others).sys("tasks.exited_cpu_time", 0.0, 0.9);
        m.sys("tasks.run_delay", 0.01, 1.1).sys("psi.cpu_some", 0.0, 0.6);
        m.row("exited.count", "120:true", 0.0, 200.0).row("exited.lifetime", "120:true", 0.0, 0.2);
        m.row("exited.count", "0:other", 0.0, others).row("exited.lifetime", "0:other", 0.0, others * 0.001);
        for (row, parent) in [("120:true", "bash"), ("0:other", "")] {
            let text = TextSeries { changes: vec![(START, Some(parent.into()))], place: None };
            m.set.insert_text(lookup("exited.parent_comm").unwrap(), row.into(), text);
        }
        m.explain().incidents
    };
    let named = |incidents: &[mitra_model::report::Incident]| {
        let found = incidents.iter().find(|i| i.root_cause.condition == "fork-storm");
        found.map(|i| (i.root_cause.culprit.process.clone(), i.root_cause.culprit.pid))
    };
    assert_eq!(named(&storm(600.0, 0.0)), None, "200 processes and 600 threads");
    assert_eq!(named(&storm(0.0, 150.0)), Some((Some("bash".to_owned()), Some(120))));
    assert_eq!(named(&storm(0.0, 2000.0)), Some((None, None)), "of most nobody knows");
    let threads = storm(20_000.0, 0.0);
    assert_eq!(named(&threads), Some((None, None)));
    assert!(
        threads[0].root_cause.statement.contains("20,000 threads"),
        "{}",
        threads[0].root_cause.statement
    );
}

#[test]
fn an_oom_kill_is_named_even_without_pressure() {
    let mut m = Machine::idle();
    let at = HEALTHY + 10;
    let mut kills = vec![0.0; HEALTHY + INCIDENT + 20];
    kills[at] = 1.0;
    m.values("vm.oom_kill", "", 0, kills);
    m.event(
        at,
        EventKind::OomKill {
            pid: 130,
            comm: "hog".into(),
            cgroup: Some("/small".into()),
            anon_bytes: Some(250 << 20),
        },
    );
    let report = m.explain();
    assert_eq!(report.incidents.len(), 1);
    let root = &report.incidents[0].root_cause;
    assert_eq!(root.condition, "oom-kill");
    assert_eq!((root.culprit.process.as_deref(), root.culprit.pid), (Some("hog"), Some(130)));
    assert_eq!(root.culprit.cgroup.as_deref(), Some("/small"));
    assert_eq!(report.incidents[0].lost_task_seconds, Some(0.0));
}

/// Up to Linux 6.7 the probe tells of a number, before the kernel's log has the name.
#[test]
fn who_was_killed_is_named_by_whoever_knows_it() {
    let killed = |log: Option<&str>| {
        let mut m = Machine::idle();
        m.task(130, "hog", 0);
        for comm in [Some(""), log].into_iter().flatten() {
            let (comm, cgroup) = (comm.to_owned(), Some("/small".to_owned()));
            m.event(HEALTHY + 10, EventKind::OomKill { pid: 130, comm, cgroup, anon_bytes: None });
        }
        let report = m.explain();
        let root = &report.incidents[0].root_cause;
        (root.culprit.process.clone(), root.statement.clone())
    };
    for log in [Some("hog"), None] {
        let (process, statement) = killed(log);
        assert_eq!(process.as_deref(), Some("hog"));
        assert!(statement.contains("the OOM killer killed hog (130)"), "{statement}");
    }
}

#[test]
fn what_happens_at_one_moment_cost_something_also_where_the_sample_comes_late() {
    let at = HEALTHY + 10;
    let mut seconds = vec![1.0; HEALTHY + INCIDENT];
    seconds[at] = 6.0;
    let mut m = Machine::sampled(seconds);
    m.event(
        at,
        EventKind::OomKill { pid: 130, comm: "hog".into(), cgroup: None, anon_bytes: Some(250 << 20) },
    );
    let report = m.explain();
    assert_eq!(ids(&report), ["oom-kill"]);
    assert_eq!(report.incidents[0].lost_task_seconds, Some(0.0), "a sample of six seconds has it");
}

#[test]
fn a_group_above_memory_high_is_slowed_down() {
    let mut m = Machine::idle();
    m.row("cgroup.memory_high", "/app", 2e8, 2e8).row("cgroup.memory_current", "/app", 1.5e8, 2.02e8);
    m.row("cgroup.memory_high_events", "/app", 0.0, 40.0).row("cgroup.psi_memory_some", "/app", 0.0, 0.6);
    m.sys("psi.memory_some", 0.0, 0.6).sys("tasks.d_throttle", 0.0, 3.0);
    let report = m.explain();
    assert_eq!(root(&report), ("cgroup-memory-high", None, None));
    let incident = &report.incidents[0];
    assert_eq!(incident.root_cause.culprit.cgroup.as_deref(), Some("/app"));
    let chain: Vec<&str> = incident.chain.iter().map(|link| link.condition.as_str()).collect();
    assert!(chain.contains(&"pressure-memory") && chain.contains(&"tasks-in-d-state"), "{chain:?}");
    // The same events at `memory.max` are that limit's.
    m.row("cgroup.memory_max", "/app", 2e8, 2e8).row("cgroup.memory_failcnt", "/app", 0.0, 500.0);
    assert_eq!(ids(&m.explain()), ["cgroup-memory-limit"]);
}

#[test]
fn swapping_both_ways_with_pressure_is_a_thrash() {
    let mut m = Machine::idle();
    m.task(140, "touch", 0).task_rate(140, "task.majflt", 0.0, 60_000.0).task_rate(
        140,
        "task.cpu_time",
        0.3,
        0.98,
    );
    m.sys("vm.pswpin", 0.0, 60_000.0).sys("vm.pswpout", 0.0, 60_000.0).sys("vm.pgmajfault", 0.0, 60_000.0);
    m.sys("vm.workingset_refault_anon", 0.0, 60_000.0).sys("psi.memory_some", 0.0, 0.28);
    m.sys("sys.cpu_idle", 1.6, 0.9).sys("tasks.busiest", 0.3, 0.98);
    m.row("cgroup.refault_anon", "/small", 0.0, 60_000.0).row("cgroup.memory_max", "/small", 2.6e8, 2.6e8);
    m.row("cgroup.memory_failcnt", "/small", 0.0, 9_000.0).row("cgroup.psi_memory_some", "/small", 0.0, 0.28);
    let report = m.explain();
    assert_eq!(root(&report), ("swap-thrash", Some("touch"), Some(140)));
    assert_eq!(report.incidents[0].root_cause.culprit.cgroup.as_deref(), Some("/small"));
}

/// A server that holds 600 MB, of which half goes to swap and comes back while a job of as much is there, or its limit is lower.
#[test]
fn who_came_and_took_memory_is_the_culprit_and_not_who_was_swapped_out_for_it() {
    let thrash = |comes: bool| {
        let mut m = Machine::idle();
        m.sys("vm.pswpin", 0.0, 3_000.0).sys("vm.pswpout", 0.0, 3_000.0).sys("psi.memory_some", 0.0, 0.3);
        m.task(140, "redis-server", 0).cgroup(140, "/shop").task_rate(140, "task.majflt", 0.0, 3_000.0);
        let swapped = |i: usize| if is_on(i) { 75_000.0 } else { 0.0 };
        m.values("task.rss_anon", &row(140), 0, each(|i| 150_000.0 - swapped(i)));
        m.values("task.swap", &row(140), 0, each(swapped));
        if comes {
            m.task(150, "batch", HEALTHY).cgroup(150, "/shop");
            let took = |i: usize| 37_500.0 * (1 + i).min(4) as f64;
            m.values("task.rss_anon", &row(150), HEALTHY, (0..INCIDENT).map(took).collect());
            m.values("task.majflt", &row(150), HEALTHY, vec![900.0; INCIDENT]);
        }
        m
    };
    let report = thrash(true).explain();
    assert_eq!(root(&report), ("swap-thrash", Some("batch"), Some(150)));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(
        statement.contains("redis-server (140)") && statement.contains("batch (150) took"),
        "{statement}"
    );
    assert_eq!(root(&thrash(false).explain()), ("swap-thrash", Some("redis-server"), Some(140)));
}

#[test]
fn memory_that_comes_home_from_swap_is_no_thrash() {
    let mut m = Machine::idle();
    m.task(140, "touch", 0).task_rate(140, "task.majflt", 0.0, 5_000.0);
    m.sys("vm.pswpin", 0.0, 5_000.0).sys("vm.pgmajfault", 0.0, 5_000.0).sys("psi.memory_some", 0.0, 0.2);
    assert!(m.explain().incidents.is_empty());
}

#[test]
fn two_incidents_one_after_the_other_are_two() {
    let mut m = Machine::idle();
    let n = HEALTHY + INCIDENT + 20;
    let part = |from: usize, to: usize, value: f64| -> Vec<f64> {
        (0..n).map(|i| if (from..to).contains(&i) { value } else { 0.0 }).collect()
    };
    m.task(110, "nginx", 0).cgroup(110, "/app");
    m.values("cgroup.throttled_time", "/app", 0, part(20, 35, 0.7));
    m.task(100, "redis-server", 0);
    m.values("task.cpu_time", "100@100000000", 0, part(80, 100, 1.0));
    m.values("tasks.busiest", "", 0, part(80, 100, 1.0));
    let report = m.explain();
    let roots: Vec<&str> = report.incidents.iter().map(|i| i.root_cause.condition.as_str()).collect();
    assert_eq!(roots, ["cpu-quota-throttled", "single-thread-bottleneck"]);
}

#[test]
fn an_incident_that_lasts_has_no_end() {
    let mut m = Machine::idle();
    let n = HEALTHY + INCIDENT + 20;
    m.task(110, "nginx", 0).cgroup(110, "/app");
    m.values(
        "cgroup.throttled_time",
        "/app",
        0,
        (0..n).map(|i| if i >= HEALTHY { 0.7 } else { 0.0 }).collect(),
    );
    let report = m.explain();
    assert_eq!(report.incidents.len(), 1);
    assert_eq!(report.incidents[0].end, None);
}

/// All CPUs are busy with programs of many names, and nobody takes most of them.
fn crowded() -> Machine {
    let mut m = Machine::idle();
    m.sys("sys.cpu_idle", 1.9, 0.0).sys("psi.cpu_some", 0.0, 0.9);
    for (pid, name) in [(90, "a"), (91, "b"), (92, "c"), (93, "d")] {
        m.task(pid, name, HEALTHY).task_during(pid, "task.cpu_time", 0.45);
        m.task_during(pid, "task.run_delay", 0.4);
    }
    m
}

#[test]
fn a_queue_without_a_known_cause_is_an_incident_if_bystanders_pay_for_it() {
    let queue = |cpu: f64| {
        let mut m = crowded();
        m.task(80, "api", 0).task_rate(80, "task.cpu_time", 0.1, cpu).task_rate(
            80,
            "task.run_delay",
            0.0,
            0.7,
        );
        m.sys("tasks.run_delay", 0.0, 2.3);
        m.explain()
    };
    let report = queue(0.1);
    assert_eq!(ids(&report), ["runqueue-wait"]);
    assert!(report.incidents[0].root_cause.statement.ends_with("the cause was not found"));
    assert!(queue(0.19).incidents.is_empty(), "it computes more itself");
    let mut alone = crowded();
    alone.sys("tasks.run_delay", 0.0, 1.6);
    assert!(alone.explain().incidents.is_empty(), "they wait for each other");
}

/// Programs of one interpreter: two that were there wait for five that came.
#[test]
fn of_one_name_those_that_came_and_take_the_cpu_are_the_hog() {
    let mut m = Machine::idle();
    m.sys("sys.cpu_idle", 1.9, 0.0).sys("tasks.run_delay", 0.0, 3.4).sys("psi.cpu_some", 0.0, 1.0);
    for pid in [80, 81] {
        m.task(pid, "python3", 0).task_rate(pid, "task.cpu_time", 0.02, 0.02);
        m.task_rate(pid, "task.run_delay", 0.0, 0.3);
    }
    for pid in 90..95 {
        m.task(pid, "python3", HEALTHY).task_during(pid, "task.cpu_time", 0.38);
        m.task_during(pid, "task.run_delay", 0.55);
    }
    let report = m.explain();
    assert_eq!(ids(&report), ["cpu-hog"]);
    let root = &report.incidents[0].root_cause;
    assert!(root.statement.starts_with("5 processes named python3"), "{}", root.statement);
    assert!(root.culprit.pid >= Some(90) && root.share > Some(0.9), "{root:#?}");
}
