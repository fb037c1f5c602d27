//! What was changed long before: when it is the cause, when it is only worth knowing, and when it is neither.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use mitra_diagnose::History;
use mitra_model::report::{Moment, Report};
use mitra_model::time::SECOND;
use mitra_model::{Change, ChangeKind, TextSeries, lookup};
use support::network::{serving, text};
use support::{HEALTHY, INCIDENT, Machine, START, ids};

/// A change so many seconds before the incident.
fn change(seconds_before: i64, name: &str, from: &str, to: &str) -> Change {
    let at = Moment(START + (HEALTHY as i64 - seconds_before) * SECOND);
    Change {
        at,
        not_before: Some(Moment(at.0 - 60 * SECOND)),
        kind: ChangeKind::Sysctl,
        name: name.to_owned(),
        cgroup: None,
        cgroup_name: None,
        from: Some(from.to_owned()),
        to: Some(to.to_owned()),
        diff: None,
        source: "index",
    }
}

fn with(m: &Machine, changes: &[Change]) -> Report {
    m.explain_with(History { changes, since: Some(START - 7200 * SECOND), scheduled_jobs: &[] })
}

fn thrash() -> Machine {
    let mut m = Machine::idle();
    m.task(140, "touch", 0).task_rate(140, "task.majflt", 0.0, 60_000.0);
    m.sys("vm.pswpin", 0.0, 60_000.0).sys("vm.pswpout", 0.0, 60_000.0).sys("vm.pgmajfault", 0.0, 60_000.0);
    m.sys("vm.workingset_refault_anon", 0.0, 60_000.0).sys("psi.memory_some", 0.0, 0.28);
    m
}

#[test]
fn swappiness_that_was_raised_five_minutes_before_is_the_cause() {
    let report = with(&thrash(), &[change(300, "vm.swappiness", "60", "150")]);
    assert_eq!(ids(&report), ["config-drift"]);
    let incident = &report.incidents[0];
    assert_eq!(incident.root_cause.culprit.sysctl.as_deref(), Some("vm.swappiness"));
    assert!(incident.root_cause.statement.contains("from 60 to 150"), "{}", incident.root_cause.statement);
    let late = (incident.onset.0 - START) / SECOND - HEALTHY as i64;
    assert!(late.abs() <= 2, "it began when it hurt, not {late} s from there");
    assert_eq!(incident.changes.len(), 1);
    let revert = &incident.remedies[0].command;
    assert!(revert.contains("vm.swappiness='60'"), "{revert}");
}

#[test]
fn a_change_the_other_way_or_of_yesterday_is_only_listed() {
    let lowered = change(300, "vm.swappiness", "60", "10");
    let yesterday = change(20 * 3600, "vm.swappiness", "60", "150");
    let other = change(300, "kernel.pid_max", "32768", "4194304");
    for harmless in [lowered, yesterday, other] {
        let report = with(&thrash(), std::slice::from_ref(&harmless));
        assert_eq!(ids(&report), ["swap-thrash"], "{}", harmless.words());
        assert_eq!(report.incidents[0].changes, [harmless]);
    }
    assert!(with(&Machine::idle(), &[change(300, "vm.swappiness", "60", "150")]).incidents.is_empty());
}

#[test]
fn those_that_feed_it_are_listed_first() {
    let changes = [change(900, "vm.swappiness", "60", "10"), change(30, "kernel.pid_max", "1", "2")];
    let report = with(&thrash(), &changes);
    let names: Vec<&str> = report.incidents[0].changes.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["vm.swappiness", "kernel.pid_max"]);
}

/// A server whose queue of so many connections is full.
fn overflow(backlog: f64) -> Machine {
    let mut m = serving();
    m.task(50, "orderd", 0).task_rate(50, "task.cpu_time", 0.2, 0.0);
    m.sys("tcpext.ListenOverflows", 0.0, 205.0).sys("tcpext.ListenDrops", 0.0, 205.0);
    m.sys("tcpext.TCPSynRetrans", 0.0, 161.0).sys("tcp.RetransSegs", 0.0, 190.0);
    m.values("listener.queue", "10.9.0.2:8080", HEALTHY, vec![backlog + 1.0; INCIDENT]);
    m.values("listener.backlog", "10.9.0.2:8080", HEALTHY, vec![backlog; INCIDENT]);
    m.values("listener.pid", "10.9.0.2:8080", HEALTHY, vec![50.0; INCIDENT]);
    text(&mut m, "listener.comm", "10.9.0.2:8080", "orderd");
    m
}

#[test]
fn a_lowered_limit_is_the_cause_where_it_is_what_is_reached() {
    let changes = [change(3 * 3600, "net.core.somaxconn", "4096", "16")];
    let report = with(&overflow(16.0), &changes);
    assert_eq!(ids(&report), ["config-drift"]);
    assert!(report.incidents[0].root_cause.strength >= 0.9);
    // Clients come in waves, and no sample meets the queue at its fullest.
    let mut waves = overflow(16.0);
    waves.values("listener.queue", "10.9.0.2:8080", HEALTHY, vec![10.0; INCIDENT]);
    assert_eq!(ids(&with(&waves, &changes)), ["config-drift"]);
    // Its own backlog is smaller: the server asked for no more.
    let report = with(&overflow(8.0), &changes);
    assert_eq!(ids(&report), ["listen-overflow"]);
}

/// Tasks that stand still beside so many dirty bytes; writers are made to wait from 1.2 GB on.
fn stall(dirty: f64) -> Machine {
    let mut m = Machine::idle();
    m.sys("tasks.d_memory", 0.0, 3.0).sys("psi.io_some", 0.0, 0.9).sys("mem.dirty", 1e6, dirty);
    m.sys("mem.writeback", 0.0, 1e6);
    m.sys("vm.nr_dirty_threshold", 400_000.0, 400_000.0);
    m.sys("vm.nr_dirty_background_threshold", 200_000.0, 200_000.0);
    m
}

#[test]
fn a_limit_of_dirty_pages_holds_nobody_where_few_are_dirty() {
    let back = [change(46, "vm.dirty_ratio", "80", "20")];
    assert!(!ids(&with(&stall(1e8), &back)).contains(&"config-drift"));
    assert_eq!(ids(&with(&stall(1.3e9), &back)), ["config-drift"]);
    // A group has a limit of its own: its writers are seen to wait there.
    let mut group = stall(1e8);
    group.task(90, "writer", HEALTHY);
    let waits =
        (START + (HEALTHY as i64 + 2) * SECOND, Some("balance_dirty_pages;generic_perform_write".into()));
    let stacks = TextSeries { changes: vec![waits], place: None };
    group.set.insert_text(lookup("task.kstack").unwrap(), support::row(90).as_str().into(), stacks);
    assert_eq!(ids(&with(&group, &back)), ["config-drift"]);
    // More may be dirty than before, and that is no harm where it is not used.
    let raised = [change(46, "vm.dirty_ratio", "20", "80")];
    assert!(!ids(&with(&stall(1.3e9), &raised)).contains(&"config-drift"), "it has to be lowered");
    let bytes = [change(46, "vm.dirty_background_bytes", "100000000", "800000000")];
    assert_eq!(ids(&with(&stall(4e8), &bytes)), ["config-drift"], "the old limit was 100 MB");
    assert!(!ids(&with(&stall(5e7), &bytes)).contains(&"config-drift"));
}

#[test]
fn the_value_counts_that_was_in_force() {
    let bad = |seconds| change(seconds, "vm.dirty_ratio", "20", "5");
    let back = |seconds| change(seconds, "vm.dirty_ratio", "5", "20");
    let report = with(&stall(1.3e9), &[bad(30), back(-20)]);
    assert_eq!(ids(&report), ["config-drift"]);
    assert!(report.incidents[0].root_cause.statement.contains("from 20 to 5"), "it was put back meanwhile");
    assert!(!ids(&with(&stall(1.3e9), &[bad(50), back(25)])).contains(&"config-drift"), "put back before");
}

#[test]
fn a_group_at_its_limit_says_when_the_limit_was_lowered() {
    let mut m = Machine::idle();
    m.row("cgroup.memory_failcnt", "/app", 0.0, 500.0).row("cgroup.psi_memory_some", "/app", 0.0, 0.6);
    m.row("cgroup.memory_max", "/app", 2e8, 2e8).row("cgroup.memory_current", "/app", 2e8, 2e8);
    m.sys("psi.memory_some", 0.0, 0.6);
    let limit = |cgroup: &str, name: &str| Change {
        kind: ChangeKind::Cgroup,
        cgroup: Some(cgroup.to_owned()),
        ..change(300, name, "1000000000", "200000000")
    };
    let remarks = |change: Change| {
        let report = with(&m, &[change]);
        assert_eq!(ids(&report), ["cgroup-memory-limit"]);
        report.incidents[0].root_cause.remarks.join("; ")
    };
    assert!(remarks(limit("/app", "memory.max")).contains("memory.max of /app 1000000000 → 200000000"));
    assert!(!remarks(limit("/other", "memory.max")).contains("memory.max"));
    assert!(!remarks(limit("/app", "cpu.max")).contains("cpu.max"));
}

/// A program that computes on both CPUs all the time, and a server of another group that waits for one in the incident.
fn starved(waits: f64) -> Machine {
    let mut m = Machine::idle();
    m.task(90, "crunch", 0).thread(90, 91, "crunch", 0).cgroup(90, "/batch");
    m.task_rate(90, "task.cpu_time", 0.85, 0.9).task_rate(91, "task.cpu_time", 0.85, 0.9);
    m.task(95, "web", 0).cgroup(95, "/web").task_rate(95, "task.cpu_time", 0.2, 0.1);
    m.task_rate(95, "task.run_delay", 0.01, waits);
    m.sys("sys.cpu_idle", 0.02, 0.02).sys("tasks.run_delay", 0.02, waits).sys("tasks.cpu_time", 1.9, 1.9);
    m.sys("psi.cpu_some", 0.02, (waits / 2.0).min(0.95));
    m.row("cgroup.cpu_usage", "/web", 0.2, 0.1);
    m
}

#[test]
fn a_weight_that_was_lowered_is_why_its_group_waits_for_a_cpu() {
    let with = |waits: f64, metric: &str, group: &str, from: f64, to: f64| {
        let mut m = starved(waits);
        m.values(metric, group, 0, support::each(|i| if i < HEALTHY { from } else { to }));
        m.explain()
    };
    for (metric, file, from, to) in [
        ("cgroup.cpu_weight", "cpu.weight", 100.0, 1.0),
        ("cgroup.cpu_shares", "cpu.shares", 8192.0, 2.0),
        ("cgroup.cpu_idle", "cpu.idle", 0.0, 1.0),
    ] {
        let report = with(1.5, metric, "/web", from, to);
        assert_eq!(ids(&report), ["config-drift"]);
        let incident = &report.incidents[0];
        assert_eq!(incident.root_cause.culprit.cgroup.as_deref(), Some("/web"));
        let statement = &incident.root_cause.statement;
        assert!(
            statement.starts_with(&format!("{file} of /web was changed from {from} to {to}")),
            "{statement}"
        );
        assert!(incident.chain.iter().any(|link| link.condition == "runqueue-wait"), "{incident:#?}");
        assert!(incident.remedies[0].command.starts_with(&format!("echo {from} > ")), "{incident:#?}");
    }
    let told = |report: &Report| ids(report).contains(&"config-drift");
    assert!(!told(&with(1.5, "cgroup.cpu_weight", "/web", 100.0, 200.0)), "it gets more");
    assert!(!told(&with(1.5, "cgroup.cpu_weight", "/other", 100.0, 1.0)), "nobody of that group waits");
    assert!(with(0.05, "cgroup.cpu_weight", "/web", 100.0, 1.0).incidents.is_empty(), "nobody waits");
    let raised = with(1.5, "cgroup.cpu_weight", "/batch", 10.0, 10_000.0);
    assert_eq!(ids(&raised), ["config-drift"], "who stands beside it gets less");
    assert_eq!(raised.incidents[0].root_cause.culprit.cgroup.as_deref(), Some("/batch"));
}

#[test]
fn who_is_always_outweighed_is_told_beside_who_takes_the_cpus() {
    let mut m = starved(1.5);
    for (group, weight) in [("/web", 1.0), ("/batch", 100.0)] {
        m.values("cgroup.cpu_weight", group, 0, support::each(|_| weight));
    }
    let report = m.explain();
    assert_eq!(ids(&report), ["cpu-hog"]);
    let remarks = report.incidents[0].root_cause.remarks.join("\n");
    assert!(remarks.contains("web (95) waits most: cpu.weight of /web is 1"), "{remarks}");
}

#[test]
fn options_of_a_mount_that_make_writes_wait_are_the_cause_where_they_do() {
    let with = |options: &str, flush_s: f64| {
        let mut m = Machine::idle();
        m.text("fs.device", "/srv", 0, "/dev/vda").texts("fs.options", "/srv", &["rw,relatime", options]);
        m.row("disk.flushes", "vda", 0.1, 800.0).row("disk.flush_time", "vda", 0.0001, flush_s);
        m.explain()
    };
    let report = with("rw,sync,relatime", 0.12);
    assert_eq!(ids(&report), ["config-drift"]);
    let root = &report.incidents[0].root_cause;
    assert_eq!((root.culprit.path.as_deref(), root.culprit.device.as_deref()), (Some("/srv"), Some("vda")));
    assert!(root.statement.starts_with("/srv was mounted anew with sync by "), "{}", root.statement);
    assert!(report.incidents[0].remedies[0].command.contains("findmnt /srv"));
    assert!(with("rw,noatime", 0.12).incidents.is_empty(), "that makes no write wait");
    assert!(with("rw,sync,relatime", 0.01).incidents.is_empty(), "nobody waits");
}
