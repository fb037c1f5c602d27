//! Who takes the memory, and what is killed or swapped out for it.

use mitra_model::EventKind;

use crate::support::{HEALTHY, INCIDENT, Machine, each, ids, is_on, root, row};

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
