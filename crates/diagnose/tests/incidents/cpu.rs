//! Who takes the CPUs, and who only computes.

use std::sync::Arc;

use mitra_model::time::SECOND;
use mitra_model::{TextSeries, lookup};

use crate::support::{HEALTHY, INCIDENT, Machine, START, ids, root};

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
