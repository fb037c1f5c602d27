//! The root cause of machines made of numbers, and of their look-alikes. The numbers are of the size that the real
//! incidents have on a machine with two CPUs.

#[path = "incidents/cpu.rs"]
mod cpu;
#[path = "incidents/memory.rs"]
mod memory;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use support::{HEALTHY, INCIDENT, Machine, ids, root};

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
fn pod(fills: f64) -> Machine {
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
    m
}

#[test]
fn shared_memory_that_takes_the_room_of_a_group_is_why_a_working_set_does_not_fit() {
    let report = pod(2.4e8).explain();
    assert_eq!(ids(&report), ["shmem-growth"]);
    let incident = &report.incidents[0];
    let culprit = &incident.root_cause.culprit;
    assert_eq!((culprit.process.as_deref(), culprit.pid), (Some("tracer"), Some(70)));
    assert_eq!((culprit.cgroup.as_deref(), culprit.path.as_deref()), (Some("/pod"), Some("/shm")));
    assert!(incident.chain.iter().any(|link| link.condition == "page-cache-thrash"));
    // A twentieth of what the group may have.
    assert_eq!(ids(&pod(2e7).explain()), ["page-cache-thrash"]);
}

#[test]
fn who_came_and_took_the_room_of_what_others_read_is_named() {
    let came = |group: &str, took: f64| {
        let mut m = pod(0.0);
        let n = HEALTHY + INCIDENT + support::AFTER;
        m.values(
            "cgroup.file",
            "/pod",
            0,
            (0..n)
                .map(|i| {
                    if i < 3 {
                        1e8 * i as f64
                    } else if i < HEALTHY {
                        3.2e8
                    } else {
                        1e8
                    }
                })
                .collect(),
        );
        m.task(80, "etl", HEALTHY).cgroup(80, group);
        m.values("task.rss_anon", &support::row(80), HEALTHY, vec![took / 4096.0; INCIDENT]);
        let report = m.explain();
        let (condition, who, _) = root(&report);
        (condition.to_owned(), who.map(str::to_owned), report.incidents[0].root_cause.statement.clone())
    };
    let (condition, who, said) = came("/pod", 2.5e8);
    assert_eq!((condition.as_str(), who.as_deref()), ("page-cache-thrash", Some("etl")), "{said}");
    assert!(said.contains("searchd") && said.contains("etl (80) took 250 MB"), "{said}");
    assert_eq!(came("/elsewhere", 2.5e8).1.as_deref(), Some("searchd"));
    assert_eq!(came("/pod", 2.5e7).1.as_deref(), Some("searchd"), "far less than went");
}

#[test]
fn shared_memory_that_takes_the_room_of_a_group_drives_it_to_its_limit_of_io() {
    let limited = |fills: f64| {
        let mut m = pod(fills);
        m.row("cgroup.io_limit_rbps", "/pod", 2.2e8, 2.2e8).row("cgroup.io_read_bytes", "/pod", 0.0, 2.2e8);
        m.row("cgroup.io_reads", "/pod", 0.0, 20_000.0).text("cgroup.io_limit_device", "/pod", 0, "vda");
        m.explain()
    };
    let report = limited(2.4e8);
    assert_eq!(root(&report), ("shmem-growth", Some("tracer"), Some(70)));
    let incident = &report.incidents[0];
    assert!(incident.other_roots.is_empty(), "{:#?}", incident.other_roots);
    assert!(incident.chain.iter().any(|link| link.condition == "io-throttled"), "{:#?}", incident.chain);
    // Shared memory has hardly grown: the limit is one of the causes.
    let report = limited(2e7);
    let roots = report.incidents.iter().flat_map(|i| std::iter::once(&i.root_cause).chain(&i.other_roots));
    let mut roots: Vec<&str> = roots.map(|root| root.condition.as_str()).collect();
    roots.sort_unstable();
    assert_eq!(roots, ["io-throttled", "page-cache-thrash"]);
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

/// Subshells that start others are so short that most of what they start finds no room in the table of parents.
#[test]
fn who_started_nearly_all_that_is_known_of_a_storm_started_the_rest() {
    // Row, parent, and how many end in a second before and during the storm.
    let storm = |ended: &[(&str, &str, f64, f64)]| {
        let mut m = Machine::idle();
        let before: f64 = ended.iter().map(|(.., before, _)| before).sum();
        let during: f64 = ended.iter().map(|(.., during)| during).sum();
        m.task(120, "bash", 0).sys("sys.forks", 1.0 + before, during).sys("tasks.exited", before, during);
        m.sys("tasks.exited_cpu_time", 0.0, 0.9);
        m.sys("tasks.run_delay", 0.01, 1.1).sys("psi.cpu_some", 0.0, 0.6);
        for (row, parent, before, during) in ended {
            m.row("exited.count", row, *before, *during);
            m.row("exited.lifetime", row, 0.001 * before, 0.001 * during);
            m.text("exited.parent_comm", row, 0, parent);
        }
        let report = m.explain();
        let found = report.incidents.iter().find(|i| i.root_cause.condition == "fork-storm");
        found.expect("a storm").root_cause.clone()
    };
    let culprit = |ended: &[(&str, &str, f64, f64)]| {
        let found = storm(ended).culprit;
        found.process.zip(found.pid)
    };
    let bash = Some(("bash".to_owned(), 120));
    let third = [("120:true", "bash", 0.0, 200.0), ("0:other", "", 0.0, 400.0)];
    assert_eq!(culprit(&third), bash);
    let statement = storm(&third).statement;
    assert!(statement.contains("bash (120) started 33 % of those that ended, mostly true"), "{statement}");
    let less = [("120:true", "bash", 0.0, 200.0), ("0:other", "", 0.0, 700.0)];
    assert_eq!(culprit(&less), None, "a little more than a fifth of all is known");
    let two = [("120:true", "bash", 0.0, 140.0), ("130:cc", "make", 0.0, 60.0), ("0:other", "", 0.0, 400.0)];
    assert_eq!(culprit(&two), None, "three in ten of those that are known have another parent");
    // It starts some all the time.
    let usual = |before: f64| [("120:true", "bash", before, 200.0), ("0:other", "", 0.0, 400.0)];
    assert_eq!(culprit(&usual(60.0)), bash);
    assert_eq!(culprit(&usual(80.0)), None, "less than three times as many as before");
}
