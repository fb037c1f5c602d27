//! What nobody suffers from yet is told below incidents, and never as one.

#[path = "support/services.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod services;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the support")]
mod support;

use mitra_model::report::Report;
use mitra_model::{CaptureRow, EventKind};
use services::{Asked, during, service};
use support::{AFTER, HEALTHY, INCIDENT, Machine};

const SECONDS: usize = HEALTHY + INCIDENT + AFTER;
const MB: f64 = 1e6;

fn level(m: &mut Machine, metric: &str, row: &str, at: impl Fn(f64) -> f64) {
    m.values(metric, row, 0, (0..SECONDS).map(|i| at(i as f64)).collect());
}

/// A cgroup with a limit of 400 MB in which something grows all the time.
fn group(grows: impl Fn(f64) -> f64) -> Report {
    let mut m = Machine::idle();
    m.task(70, "worker", 0).cgroup(70, "/svc");
    level(&mut m, "task.rss_anon", "70@70000000", |t| grows(t) / 4096.0);
    level(&mut m, "cgroup.anon", "/svc", &grows);
    level(&mut m, "cgroup.memory_max", "/svc", |_| 400.0 * MB);
    m.explain()
}

#[test]
fn a_fork_storm_that_leaves_a_cpu_free_harms_nobody() {
    let storm = |idle: f64, waits: f64| {
        let mut m = Machine::idle();
        m.task(120, "bash", 0).sys("sys.forks", 1.0, 290.0).sys("tasks.exited", 0.0, 290.0);
        m.sys("sys.cpu_idle", 1.9, idle).sys("tasks.run_delay", 0.01, waits);
        m.row("exited.count", "120:sed", 0.0, 290.0).row("exited.lifetime", "120:sed", 0.0, 0.3);
        m.text("exited.parent_comm", "120:sed", 0, "bash");
        let report = m.explain();
        let has = |ids: Vec<&str>| ids.contains(&"fork-storm");
        (
            has(report.incidents.iter().map(|incident| incident.root_cause.condition.as_str()).collect()),
            has(report.findings.iter().map(|finding| finding.condition.as_str()).collect()),
        )
    };
    assert_eq!(storm(1.5, 0.12), (false, true));
    // No CPU is free; and somebody waits all the same, such as in a group at its quota.
    assert_eq!(storm(0.1, 0.12), (true, false));
    assert_eq!(storm(1.5, 1.1), (true, false));
}

#[test]
fn memory_of_a_group_is_told_before_it_is_at_its_limit() {
    let report = group(|t| 50.0 * MB + 2.0 * MB * t);
    assert!(report.incidents.is_empty());
    let [finding] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    let culprit = &finding.culprit;
    assert_eq!((finding.condition.as_str(), culprit.pid), ("oom-kill", Some(70)));
    assert_eq!(culprit.cgroup.as_deref(), Some("/svc"));
    let left = (350.0 - 2.0 * (SECONDS - 1) as f64) / 2.0;
    let [soonest, latest] = finding.limit_in_seconds.unwrap();
    assert!((soonest - left).abs() < 6.0 && (latest - left).abs() < 6.0, "{left}: {soonest} {latest}");
}

#[test]
fn what_was_killed_once_and_grows_again_is_told_again() {
    let mut m = Machine::idle();
    m.task(70, "worker", 0).cgroup(70, "/svc");
    // Another one of its kind was killed, and it grows as that one did.
    let killed = HEALTHY as f64;
    let grows = |t: f64| 40.0 * MB + 3.0 * MB * (t - killed).max(0.0);
    level(&mut m, "task.rss_anon", "70@70000000", |t| grows(t) / 4096.0);
    level(&mut m, "cgroup.anon", "/svc", grows);
    level(&mut m, "cgroup.memory_max", "/svc", |_| 400.0 * MB);
    let (comm, cgroup) = ("worker".into(), Some("/svc".into()));
    m.event(HEALTHY, EventKind::OomKill { pid: 69, comm, cgroup, anon_bytes: None });
    let report = m.explain();
    assert_eq!(report.incidents[0].root_cause.condition, "oom-kill");
    assert!(report.findings.iter().any(|finding| finding.condition == "oom-kill"), "{:#?}", report.findings);
}

#[test]
fn memory_that_stands_is_not() {
    assert!(group(|t| 50.0 * MB + 4.0 * MB * t.min(20.0)).findings.is_empty());
    assert!(group(|t| 350.0 * MB + MB * (t % 2.0)).findings.is_empty());
}

/// A program that takes a CPU in the second half, and came in some second.
fn busy(came: usize) -> Report {
    let mut m = Machine::idle();
    m.task(70, "solver", came);
    let one = |i: usize| if i >= came && i >= HEALTHY { 1.0 } else { 0.0 };
    m.values("task.cpu_time", "70@70000000", came, (came..SECONDS).map(one).collect());
    level(&mut m, "tasks.busiest", "", |t| one(t as usize));
    level(&mut m, "sys.cpu_idle", "", |t| 1.9 - one(t as usize));
    m.explain()
}

#[test]
fn a_job_that_takes_an_idle_cpu_is_a_finding_and_a_server_at_its_limit_an_incident() {
    let report = busy(HEALTHY);
    assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
    let [finding] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    assert_eq!((finding.condition.as_str(), finding.culprit.pid), ("single-thread-bottleneck", Some(70)));
    let report = busy(0);
    assert_eq!(report.incidents[0].root_cause.condition, "single-thread-bottleneck");
    assert!(report.findings.is_empty());
}

#[test]
fn a_thread_that_is_busy_from_the_first_sample_on_may_always_have_been() {
    let since_the_beginning = |busy: &dyn Fn(usize) -> f64| {
        let mut m = Machine::idle();
        m.task(70, "solver", 0);
        m.values("task.cpu_time", "70@70000000", 0, (0..SECONDS).map(busy).collect());
        level(&mut m, "tasks.busiest", "", |t| busy(t as usize));
        level(&mut m, "sys.cpu_idle", "", |t| 1.9 - busy(t as usize));
        m.explain()
    };
    let report = since_the_beginning(&|_| 1.0);
    assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
    let [finding] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    assert_eq!((finding.condition.as_str(), finding.culprit.pid), ("single-thread-bottleneck", Some(70)));
    // It came to its limit while it was looked at.
    let report = since_the_beginning(&|i| if i < HEALTHY { 0.1 } else { 1.0 });
    assert_eq!(report.incidents[0].root_cause.condition, "single-thread-bottleneck");
}

#[test]
fn a_thread_that_was_always_busy_is_no_incident_beside_one() {
    // It has a CPU for itself until others come for it.
    let mut m = Machine::idle();
    m.task(70, "solver", 0).task_rate(70, "task.cpu_time", 1.0, 0.4).task_rate(
        70,
        "task.run_delay",
        0.0,
        0.6,
    );
    for pid in 80..84 {
        m.task(pid, "spin", HEALTHY).task_during(pid, "task.cpu_time", 0.4).task_during(
            pid,
            "task.run_delay",
            0.6,
        );
    }
    m.sys("tasks.busiest", 1.0, 0.4).sys("sys.cpu_idle", 0.95, 0.0).sys("tasks.run_delay", 0.0, 3.0);
    m.sys("psi.cpu_some", 0.0, 0.95);
    let report = m.explain();
    let roots: Vec<&str> = report.incidents.iter().map(|i| i.root_cause.condition.as_str()).collect();
    assert!(!roots.is_empty() && !roots.contains(&"single-thread-bottleneck"), "{roots:?}");
}

fn failing(per_s: f64) -> Report {
    let mut m = Machine::idle();
    m.task(70, "api", 0);
    m.task_rate(70, "task.system_time", 0.8, 0.8);
    let what = "access ENOENT".to_owned();
    let row = CaptureRow {
        pid: Some(70),
        comm: "api".into(),
        what,
        device: String::new(),
        count: 3.0 * per_s,
        amount: 0.0,
    };
    let kind = EventKind::Capture {
        capture: "errors".into(),
        why: "rule busy-in-the-kernel".into(),
        seconds: 3.0,
        events: 1000,
        lost: 0,
        ended: "time".into(),
        cost_ns: None,
        file: None,
        tops: vec![row],
    };
    m.event(HEALTHY, kind);
    m.explain()
}

#[test]
fn calls_in_vain_are_told_with_what_they_cost() {
    let report = failing(250_000.0);
    assert!(report.incidents.is_empty());
    let [finding] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    assert_eq!((finding.condition.as_str(), finding.culprit.pid), ("futile-calls", Some(70)));
    assert!(finding.statement.starts_with("api (70) makes 250"), "{}", finding.statement);
    assert!(
        finding.statement.contains("fail with ENOENT, and is in the kernel for 80 %"),
        "{}",
        finding.statement
    );
    assert!(failing(900.0).findings.is_empty());
}

/// A store at a full load by its clients, and what is told of it.
fn store(before: Asked, then: Asked) -> Report {
    let mut m = Machine::idle();
    service(&mut m, "127.0.0.1:11211", (50, "memcached"), during(before, then));
    m.explain()
}

#[test]
fn a_store_several_times_slower_and_still_fast_is_told_and_never_as_an_incident() {
    // Eight clients that ask again half a millisecond after their answer.
    let closed_loop = |took_s: f64| Asked::each(8.0 / (took_s + 0.0005), took_s);
    let report = store(closed_loop(0.0005), closed_loop(0.0017));
    assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
    let [finding] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    assert_eq!((finding.condition.as_str(), finding.culprit.pid), ("service-slower", Some(50)));
    let says = "memcached (port 11211) answered in 1.7 ms instead of 500 µs";
    assert!(finding.statement.contains(says), "{}", finding.statement);
    // One client at a time, who waits for most of its time.
    let report = store(Asked::each(30.0, 0.0005), Asked::each(29.0, 0.009));
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    // Little more, hardly anybody who waits, or more clients: nothing to say.
    for (before, then) in [
        (closed_loop(0.0005), closed_loop(0.0012)),
        (Asked::each(100.0, 0.0005), Asked::each(100.0, 0.0017)),
        (Asked::each(1000.0, 0.0005), Asked::each(3000.0, 0.004)),
    ] {
        let report = store(before, then);
        assert!(report.findings.iter().all(|f| f.condition != "service-slower"), "{:#?}", report.findings);
    }
}
