//! Services that are slow by what is inside of them: a collector, a file system, a limit of their own.

#[path = "support/services.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod services;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use services::{Asked, N, dependency, during, is_silent, links, one, service, slow};
use support::{HEALTHY, INCIDENT, Machine, is_on, root};

const WEB: &str = "0.0.0.0:80";
const APP: &str = "127.0.0.1:8080";
const DB: &str = "10.0.0.7:5432";

/// A JVM whose collector takes as much of a CPU before and in the incident, and whose program takes the other numbers.
fn jvm(m: &mut Machine, gc: (f64, f64), program: (f64, f64)) {
    m.task(50, "java", 0).thread(50, 51, "VM Thread", 0).thread(50, 52, "GC Thread#0", 0);
    m.thread(50, 53, "HTTP-Dispatcher", 0);
    m.task_rate(51, "task.cpu_time", 0.5 * gc.0, 0.5 * gc.1);
    m.task_rate(52, "task.cpu_time", 0.5 * gc.0, 0.5 * gc.1);
    m.task_rate(53, "task.cpu_time", program.0, program.1);
}

#[test]
fn a_jvm_at_the_end_of_its_heap_is_slow_by_its_collector() {
    let mut m = Machine::idle();
    jvm(&mut m, (0.05, 1.4), (0.4, 0.2));
    m.cgroup(50, "/shop").sys("tasks.busiest", 0.4, 0.7).sys("sys.cpu_idle", 1.5, 0.3);
    service(&mut m, APP, (50, "java"), slow());
    let report = m.explain();
    assert_eq!(root(&report), ("gc-pressure", Some("java"), Some(50)));
    let incident = one(&report);
    assert!(links(incident).contains(&"service-slow"));
    assert_eq!(incident.root_cause.culprit.cgroup.as_deref(), Some("/shop"));
    assert!(incident.remedies.iter().any(|r| r.command.contains("jcmd 50 GC.heap_info")));
}

#[test]
fn collections_that_are_requested_are_told_from_those_of_a_full_heap() {
    let made_for = |causes: &[&str]| {
        let mut m = Machine::idle();
        jvm(&mut m, (0.05, 1.4), (0.4, 0.2));
        m.sys("tasks.busiest", 0.4, 0.7).sys("sys.cpu_idle", 1.5, 0.3);
        service(&mut m, APP, (50, "java"), slow());
        m.texts("jvm.gc_cause", "50", causes);
        let report = m.explain();
        assert_eq!(root(&report), ("gc-pressure", Some("java"), Some(50)));
        one(&report).clone()
    };
    let asked = made_for(&["Heap Inspection Initiated GC", "No GC", "Heap Inspection Initiated GC", "No GC"]);
    let statement = &asked.root_cause.statement;
    assert!(
        statement.ends_with("; they are requested explicitly (Heap Inspection Initiated GC)"),
        "{statement}"
    );
    assert!(asked.remedies[0].action.contains("who asks for full collections"));
    assert!(asked.remedies.iter().all(|remedy| !remedy.command.contains("DisableExplicitGC")));
    let full = made_for(&["Heap Inspection Initiated GC", "Allocation Failure"]);
    assert!(!full.root_cause.statement.contains("requested"), "{}", full.root_cause.statement);
    assert!(full.remedies[0].command.contains("GC.heap_info"));
}

#[test]
fn a_serial_collector_that_takes_a_cpu_is_no_mere_busy_thread() {
    let mut m = Machine::idle();
    jvm(&mut m, (0.02, 0.0), (0.3, 0.05));
    m.task_rate(51, "task.cpu_time", 0.02, 0.95);
    m.sys("tasks.busiest", 0.3, 0.95).sys("sys.cpu_idle", 1.6, 0.95);
    let report = m.explain();
    assert_eq!(root(&report), ("gc-pressure", Some("java"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("java (50) spent 95 % of its CPU time on collecting garbage"), "{statement}");
}

#[test]
fn a_jvm_that_stops_for_a_fifth_of_the_time_is_one_where_its_clients_wait() {
    // Nine of ten answers are as fast as ever.
    let pauses = |waiting: f64| {
        let mut m = Machine::idle();
        jvm(&mut m, (0.01, 0.4), (0.1, 0.1));
        let asked = Asked { waiting, ..Asked::each(200.0, 0.0005) };
        service(&mut m, APP, (50, "java"), during(Asked::each(200.0, 0.0005), asked));
        m.explain()
    };
    assert_eq!(root(&pauses(1.3)), ("gc-pressure", Some("java"), Some(50)));
    assert!(pauses(0.12).incidents.is_empty());
}

#[test]
fn what_a_jvm_counts_itself_says_how_long_it_stands_still_and_how_full_it_is() {
    let mut m = Machine::idle();
    // Many threads collect, so that none of them is busy for long.
    jvm(&mut m, (0.05, 1.2), (0.4, 0.2));
    m.row("jvm.gc_time", "50", 0.02, 0.9);
    m.values("jvm.old_used", "50", 0, vec![194e6; N]);
    m.values("jvm.old_max", "50", 0, vec![200e6; N]);
    service(&mut m, APP, (50, "java"), slow());
    let report = m.explain();
    assert_eq!(root(&report), ("gc-pressure", Some("java"), Some(50)));
    let cause = &one(&report).root_cause;
    assert!(cause.statement.contains("stood still for 9"), "{}", cause.statement);
    let full =
        "194 MB of the old generation were left after the last collection, 97 % of its maximum of 200 MB";
    assert!(cause.remarks.iter().any(|remark| remark == full), "{:?}", cause.remarks);
}

/// A FUSE file system whose requests wait in the incident, and its daemon, which is stopped meanwhile or wakes so often.
fn fuse(m: &mut Machine, waiting: f64, state: u8, wakes: f64) {
    m.task(80, "sshfs", 0).task_rate(80, "task.nvcsw", 30.0, wakes);
    m.task_rate(80, "task.cpu_time", 0.01, 0.0005 * wakes);
    let of = |i| f64::from(if is_on(i) { state } else { b'S' });
    m.values("task.state", &support::row(80), 0, (0..N).map(of).collect());
    m.values("fuse.waiting", "0:45", 0, (0..N).map(|i| if is_on(i) { waiting } else { 0.0 }).collect());
    m.values("fuse.pid", "0:45", HEALTHY, vec![80.0; N - HEALTHY]);
    for (metric, text) in [("fuse.mount", "/srv/share"), ("fuse.type", "fuse.sshfs"), ("fuse.comm", "sshfs")]
    {
        let text =
            mitra_model::TextSeries { changes: vec![(support::START, Some(text.into()))], place: None };
        m.set.insert_text(mitra_model::lookup(metric).unwrap(), "0:45".into(), text);
    }
}

#[test]
fn a_request_that_was_answered_just_before_does_not_hide_that_the_others_are_not() {
    let mut m = Machine::idle();
    fuse(&mut m, 5.0, b'S', 0.0);
    let answered = |i| if is_on(i) { 5.0 } else { f64::from(i + 4 == HEALTHY) };
    m.values("fuse.waiting", "0:45", 0, (0..N).map(answered).collect());
    assert_eq!(root(&m.explain()), ("filesystem-hung", Some("sshfs"), Some(80)));
}

#[test]
fn a_daemon_that_is_stopped_hangs_the_service_that_reads_from_its_file_system() {
    let mut m = Machine::idle();
    fuse(&mut m, 4.0, b'T', 0.0);
    service(&mut m, APP, (50, "appd"), during(Asked::each(50.0, 0.002), Asked::nothing(4.0)));
    let report = m.explain();
    assert_eq!(root(&report), ("filesystem-hung", Some("sshfs"), Some(80)));
    let incident = one(&report);
    assert_eq!(incident.root_cause.culprit.path.as_deref(), Some("/srv/share"));
    assert!(links(incident).contains(&"service-silent"));
    let statement = &incident.root_cause.statement;
    assert!(statement.contains("/srv/share (fuse.sshfs) did not answer for 40"), "{statement}");
    assert!(statement.contains("sshfs (80), is stopped"), "{statement}");
    assert_eq!(incident.remedies[0].command, "kill -CONT 80");
    assert!(incident.remedies[1].command.contains("/sys/fs/fuse/connections/45/abort"));
}

#[test]
fn processes_that_hang_in_a_file_system_are_an_incident_without_any_service() {
    let mut m = Machine::idle();
    fuse(&mut m, 5.0, b'S', 0.0);
    for pid in 60..65 {
        m.task(pid, "cat", HEALTHY).task_during(pid, "task.state", f64::from(b'D'));
        m.task_during(pid, "task.nvcsw", 0.0);
    }
    m.sys("tasks.d_io", 0.0, 5.0).sys("psi.io_some", 0.0, 1.0).sys("sys.cpu_iowait", 0.0, 1.5);
    let report = m.explain();
    assert_eq!(root(&report), ("filesystem-hung", Some("sshfs"), Some(80)));
    let chain = links(one(&report));
    assert!(chain.contains(&"tasks-in-d-state") && chain.contains(&"pressure-io"), "{chain:?}");
    assert!(chain.contains(&"iowait-high"), "{chain:?}");
}

#[test]
fn a_file_system_whose_daemon_is_not_known_hangs_where_nobody_wakes() {
    let hangs = |wakes: f64| {
        let mut m = Machine::idle();
        m.values("fuse.waiting", "0:45", 0, (0..N).map(|i| if is_on(i) { 2.0 } else { 0.0 }).collect());
        m.task(60, "cat", HEALTHY).task_during(60, "task.state", f64::from(b'D'));
        m.task_during(60, "task.nvcsw", wakes);
        m.sys("tasks.d_io", 0.0, 1.0).sys("psi.io_some", 0.0, 1.0);
        m.explain()
    };
    assert_eq!(root(&hangs(0.0)), ("filesystem-hung", None, None));
    assert!(hangs(40.0).incidents.iter().all(|i| i.root_cause.condition != "filesystem-hung"));
}

/// An nginx that turns clients away from some moment on, and says why so many times in each second.
fn turning_away(row: &str, lines: impl Fn(usize) -> f64) -> Machine {
    let mut m = Machine::idle();
    service(&mut m, WEB, (40, "nginx"), during(Asked::each(12.0, 0.002), Asked::each(6.0, 0.002)));
    m.row("service.connections", WEB, 12.0, 16.0).row("service.unanswered", WEB, 0.0, 10.0);
    m.values("limit.lines", row, HEALTHY, (0..INCIDENT).map(lines).collect());
    m.values("limit.pid", row, HEALTHY, vec![40.0; INCIDENT]).values(
        "limit.logs",
        "",
        HEALTHY,
        vec![2.0; INCIDENT],
    );
    m
}

#[test]
fn a_service_whose_log_names_a_limit_again_and_again_has_reached_it() {
    let report = turning_away("nginx:worker_connections", |_| 124.0).explain();
    assert_eq!(root(&report), ("connection-limit", Some("nginx"), Some(40)));
    let incident = one(&report);
    let statement = &incident.root_cause.statement;
    assert!(statement.contains("nginx (port 80) has reached worker_connections"), "{statement}");
    assert!(statement.contains("124 lines a second"), "{statement}");
    assert!(links(incident).contains(&"service-failing"), "{:?}", links(incident));
    assert_eq!(incident.root_cause.culprit.address.as_deref(), Some(WEB));
    assert!(incident.remedies.iter().any(|remedy| remedy.action.contains("nginx.conf")));
}

#[test]
fn a_broker_that_says_once_that_its_disk_is_full_and_answers_nothing_has_reached_that_limit() {
    let alarm = |silent_from: usize, wrote: f64| {
        let mut m = Machine::idle();
        m.values(
            "fs.avail_bytes",
            "/mq",
            0,
            (0..HEALTHY + INCIDENT).map(|i| if is_on(i) { 150e6 } else { 390e6 }).collect(),
        );
        m.row("fs.total_bytes", "/mq", 1e9, 1e9);
        m.task(90, "copy", 0).values("exited.write_bytes", "90:cp", HEALTHY - 1, vec![wrote]);
        let is_silent = move |i: usize| is_on(i) && i >= HEALTHY + silent_from;
        let of = move |i: usize| if is_silent(i) { Asked::nothing(0.0) } else { Asked::each(30.0, 0.002) };
        service(&mut m, DB, (70, "beam.smp"), of);
        let row = "beam.smp:disk_free_limit";
        m.values(
            "limit.lines",
            row,
            HEALTHY,
            (0..INCIDENT).map(|i| if i == 2 { 1.0 } else { 0.0 }).collect(),
        );
        m.values("limit.pid", row, HEALTHY, vec![70.0; INCIDENT]).row("service.established", DB, 5.0, 5.0);
        m.explain()
    };
    let report = alarm(0, 0.0);
    assert_eq!(root(&report), ("connection-limit", Some("beam.smp"), Some(70)));
    let statement = &one(&report).root_cause.statement;
    assert!(
        statement.contains("disk_free_limit") && statement.contains("then answered next to nothing for"),
        "{statement}"
    );
    assert!(one(&report).remedies[0].command.contains("rabbitmq-diagnostics alarms"));
    // Whoever took the space is the cause, by children that came and went.
    let taken = alarm(0, 240e6);
    assert_eq!(root(&taken), ("connection-limit", Some("copy"), Some(90)));
    let remark = "/mq lost 240 MB of free space shortly before, of which copy (90) wrote most";
    assert!(one(&taken).root_cause.remarks.iter().any(|one| one == remark), "{:?}", one(&taken).root_cause);
    assert!(one(&taken).remedies[0].command.contains("rabbitmq-diagnostics alarms"));
    // The address is that of the broker.
    assert_eq!(one(&report).root_cause.culprit.address.as_deref(), Some(DB));
    assert_eq!(one(&taken).root_cause.culprit.address, None);
    // It went on answering, and nobody asked later.
    assert!(alarm(10, 0.0).incidents.is_empty());
}

#[test]
fn a_database_that_turns_clients_away_with_an_answer_has_reached_its_limit() {
    let mut m = Machine::idle();
    service(&mut m, DB, (70, "postgres"), |_| Asked::each(60.0, 0.002));
    m.values("limit.lines", "postgres:max_connections", HEALTHY + 1, vec![18.0; INCIDENT - 1]);
    m.values("limit.pid", "postgres:max_connections", HEALTHY + 1, vec![70.0; INCIDENT - 1]);
    dependency(&mut m, (80, "keeper"), DB, |_| Asked::each(1.0, 0.002));
    m.task(80, "keeper", 0).row("dependency.established", &format!("80>{DB}"), 2.0, 95.0);
    m.row("service.established", DB, 7.0, 100.0);
    let report = m.explain();
    assert_eq!(root(&report), ("connection-limit", Some("postgres"), Some(70)));
    let incident = one(&report);
    let remarks = incident.root_cause.remarks.join("; ");
    assert!(remarks.contains("connections are with keeper (80)"), "{remarks}");
    assert!(incident.remedies.iter().any(|remedy| remedy.command.contains("idle_session_timeout")));
    assert!(incident.next.iter().any(|next| next.command.contains("pg_stat_activity")));
}

#[test]
fn a_limit_that_is_named_in_passing_or_by_others_is_not_the_cause() {
    let once = |i: usize| if i == 7 { 1.0 } else { 0.0 };
    // A log that was put together again has all that was ever said in one sample.
    let repeated = |i: usize| if i == 7 { 300.0 } else { 0.0 };
    let now_and_then = |i: usize| if i % 10 == 7 { 1.0 } else { 0.0 };
    for (row, lines) in [
        ("nginx:worker_connections", &once as &dyn Fn(usize) -> f64),
        ("nginx:worker_connections", &repeated),
        ("nginx:worker_connections", &now_and_then),
        // A program that does not say so, and a limit that is none of connections.
        ("cat:worker_connections", &|_| 124.0),
        ("nginx:upstream-timeout", &|_| 124.0),
    ] {
        let report = turning_away(row, lines).explain();
        assert_eq!(root(&report).0, "service-failing", "{row}");
    }
    // A limit that is meant to turn some away.
    let mut m = Machine::idle();
    service(&mut m, WEB, (40, "nginx"), |_| Asked::each(50.0, 0.002));
    m.row("limit.lines", "nginx:limit_conn", 0.0, 20.0).row("limit.pid", "nginx:limit_conn", 40.0, 40.0);
    is_silent(&m);
    // What another service of the machine has reached.
    let mut m = turning_away("postgres:max_connections", |_| 124.0);
    service(&mut m, DB, (70, "postgres"), |_| Asked::each(60.0, 0.002));
    m.values("limit.pid", "postgres:max_connections", HEALTHY, vec![70.0; INCIDENT]);
    let all: Vec<_> = m.explain().incidents.into_iter().map(|i| i.root_cause.condition).collect();
    assert!(all.contains(&"service-failing".to_owned()), "{all:?}");
}

#[test]
fn a_limit_that_was_reached_before_the_recording_began_is_named_with_a_doubt() {
    let mut m = Machine::idle();
    service(&mut m, DB, (70, "postgres"), |_| Asked::each(60.0, 0.002));
    let row = "postgres:max_connections";
    m.row("limit.lines", row, 20.0, 20.0).row("limit.pid", row, 70.0, 70.0);
    let report = m.explain();
    let cause = &one(&report).root_cause;
    assert_eq!((&*cause.condition, cause.culprit.process.as_deref()), ("connection-limit", Some("postgres")));
    assert!(cause.strength < 0.8);
}

#[test]
fn a_service_that_has_no_log_and_as_many_connections_as_ever_is_suspected() {
    let mut m = turning_away("nginx:worker_connections", |_| 0.0);
    m.values("limit.logs", "", HEALTHY, vec![0.0; INCIDENT]);
    m.values("service.established", WEB, 0, (0..N).map(|i| if is_on(i) { 100.0 } else { 12.0 }).collect());
    let report = m.explain();
    assert_eq!(root(&report).0, "service-failing");
    let unknown = &one(&report).unknown;
    assert!(unknown.iter().any(|u| format!("{u:?}").contains("keeps 100 connections")), "{unknown:?}");
}

#[test]
fn a_service_that_is_asked_more_and_comes_to_its_limit_is_slow_for_that() {
    let mut m = Machine::idle();
    service(&mut m, WEB, (40, "nginx"), during(Asked::each(46.0, 0.002), Asked::each(125.0, 0.4)));
    assert_eq!(root(&m.explain()).0, "load-increase");
    let row = "nginx:worker_connections";
    m.values("limit.lines", row, HEALTHY + 2, vec![30.0; INCIDENT - 2]);
    m.values("limit.pid", row, HEALTHY + 2, vec![40.0; INCIDENT - 2]);
    assert_eq!(root(&m.explain()), ("connection-limit", Some("nginx"), Some(40)));
}

#[test]
fn a_service_whose_only_thread_hangs_in_a_frozen_file_system_is_silent_for_that_reason() {
    let mut m = Machine::idle();
    service(&mut m, WEB, (40, "nginx"), during(Asked::each(50.0, 0.001), Asked::nothing(6.0)));
    m.values(
        "task.state",
        &support::row(40),
        0,
        (0..N).map(|i| f64::from(if is_on(i) { b'D' } else { b'S' })).collect(),
    );
    m.task_rate(40, "task.nvcsw", 40.0, 0.0).task_rate(40, "task.cpu_time", 0.02, 0.0);
    m.sys("tasks.d_lock", 0.0, 1.1);
    let stack = "percpu_rwsem_wait;__percpu_down_read;ext4_file_write_iter;vfs_write;ksys_write";
    m.text("task.kstack", &support::row(40), HEALTHY, stack);
    let report = m.explain();
    let incident = one(&report);
    assert_eq!(incident.root_cause.condition, "hung-task", "{incident:#?}");
    assert!(links(incident).contains(&"service-silent"), "{:?}", links(incident));
    assert!(incident.root_cause.statement.contains("frozen"), "{}", incident.root_cause.statement);
}

#[test]
fn datagrams_that_begin_to_come_are_work_beside_the_requests() {
    let gets = |before: f64| {
        let mut m = Machine::idle();
        let late = Asked { waiting: 6.0, ..Asked::each(3.0, 2.0) };
        service(&mut m, APP, (50, "registry"), during(Asked::each(60.0, 0.002), late));
        m.task_rate(50, "task.cpu_time", 0.045, 0.98).task_rate(50, "task.run_delay", 0.0, 0.1);
        m.sys("sys.cpu_idle", 1.9, 0.9);
        m.sys("udp.InDatagrams", before, 8_600.0).sys("udp.OutDatagrams", before, 8_600.0);
        m.task(60, "edge-agent", HEALTHY).task_during(60, "task.cpu_time", 0.025);
        m.explain()
    };
    let report = gets(40.0);
    assert_eq!(root(&report), ("load-increase", Some("registry"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("works on") && statement.contains("of edge-agent (60)"), "{statement}");
    // As many have always come.
    assert_eq!(root(&gets(8_600.0)), ("query-regression", Some("registry"), Some(50)));
}

#[test]
fn a_service_that_writes_to_a_slow_reader_while_it_answers_nobody_is_said_to() {
    let sends = |bytes: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "itemsvc"), during(Asked::each(60.0, 0.002), Asked::nothing(6.0)));
        m.row("service.sent_bytes", APP, 22_000.0, bytes);
        let report = m.explain();
        assert_eq!(root(&report), ("service-silent", Some("itemsvc"), Some(50)));
        let remarks = &one(&report).root_cause.remarks;
        remarks.iter().any(|remark| remark.contains("a client that reads slowly"))
    };
    assert!(sends(2_000.0));
    assert!(!sends(0.0));
}

#[test]
fn what_a_service_asks_of_itself_is_no_pool_of_its_own() {
    // The calls of the service to its own address, before and in the incident.
    let pool = |calls_database: bool, own: (Asked, Asked)| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "shop"), during(Asked::each(50.0, 0.004), Asked::nothing(12.0)));
        m.task_rate(50, "task.cpu_time", 0.1, 0.001);
        // A check of its health.
        dependency(&mut m, (50, "shop"), APP, during(own.0, own.1));
        if calls_database {
            let asked = during(Asked::each(50.0, 0.002), Asked::nothing(0.0));
            dependency(&mut m, (50, "shop"), DB, asked);
        }
        m.explain()
    };
    // The check waits as all requests do.
    let report = pool(true, (Asked::each(1.0, 0.004), Asked::nothing(1.0)));
    assert_eq!(root(&report), ("worker-pool-exhausted", Some("shop"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("it called 10.0.0.7:5432 50.0 times a second and has stopped"), "{statement}");
    // The check alone has stopped.
    let silent = pool(false, (Asked::each(5.0, 0.004), Asked::nothing(0.0)));
    assert_eq!(root(&silent), ("service-silent", Some("shop"), Some(50)));
}

#[test]
fn a_service_that_can_start_no_task_is_slow_or_silent_by_who_took_the_room_of_its_group() {
    let answers = |now: Asked| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "appd"), during(Asked::each(50.0, 0.002), now));
        m.cgroup(50, "/pod3").task(80, "jobrunner", 0);
        m.values("task.threads", &support::row(80), 0, vec![1.0; N]);
        for pid in 200..260 {
            m.task(pid, "job", 0).cgroup(pid, "/pod3");
            m.values("task.ppid", &support::row(pid), 0, vec![80.0; N]);
            m.values("task.state", &support::row(pid), 0, vec![f64::from(b'Z'); N]);
        }
        let tasks = |i| if is_on(i) { 90.0 } else { 5.0 };
        m.values("cgroup.pids_current", "/pod3", 0, (0..N).map(tasks).collect());
        m.values("cgroup.pids_max", "/pod3", 0, vec![90.0; N]);
        m.explain()
    };
    let late = answers(Asked::each(15.0, 1.6));
    assert_eq!(root(&late), ("thread-explosion", Some("jobrunner"), Some(80)));
    assert_eq!(links(one(&late)), ["thread-explosion", "service-slow"]);
    let statement = &one(&late).root_cause.statement;
    assert!(statement.starts_with("appd (port 8080) answered in 1.6 s"), "{statement}");
    assert!(statement.contains("60 children that have ended"), "{statement}");
    let silent = answers(Asked::nothing(4.0));
    assert_eq!(root(&silent), ("thread-explosion", Some("jobrunner"), Some(80)));
    assert!(links(one(&silent)).contains(&"service-silent"), "{:?}", links(one(&silent)));
}

#[test]
fn threads_of_requests_that_are_not_answered_are_no_explosion() {
    let grown = |gave_up: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "quotes"), during(Asked::each(150.0, 0.002), Asked::nothing(50.0)));
        m.row("service.abandoned", APP, 0.0, gave_up);
        let threads = |i: usize| 44.0 + i.saturating_sub(HEALTHY).min(INCIDENT) as f64 * 8.0;
        m.values("task.threads", &support::row(50), 0, (0..N).map(threads).collect());
        m.values("tasks.total", "", 0, (0..N).map(|i| 100.0 + threads(i)).collect());
        m.explain().incidents.iter().any(|incident| incident.root_cause.condition == "thread-explosion")
    };
    assert!(!grown(8.0) && grown(0.0));
}

#[test]
fn threads_that_become_ever_more_and_take_the_cpus_make_a_service_slow() {
    let threads = |of: &dyn Fn(usize) -> f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "appd"), slow());
        m.task_rate(50, "task.run_delay", 0.001, 0.7);
        m.task(90, "poold", 0).values("task.threads", &support::row(90), 0, (0..N).map(of).collect());
        m.values("tasks.total", "", 0, (0..N).map(|i| 150.0 + of(i)).collect());
        for tid in 90..94 {
            if tid != 90 {
                m.thread(90, tid, "poold", 0);
            }
            m.task_rate(tid, "task.cpu_time", 0.01, 0.45).task_rate(tid, "task.run_delay", 0.0, 0.4);
        }
        m.sys("sys.cpu_idle", 1.8, 0.0).sys("tasks.run_delay", 0.02, 2.3).sys("tasks.cpu_time", 0.1, 2.0);
        m.sys("psi.cpu_some", 0.0, 0.95);
        m.explain()
    };
    let grows = |i: usize| match i.checked_sub(HEALTHY) {
        Some(more) => 112.0 + 30.0 * more.min(INCIDENT) as f64,
        None => 12.0,
    };
    let report = threads(&grows);
    assert_eq!(root(&report), ("thread-explosion", Some("poold"), Some(90)));
    let incident = one(&report);
    for link in ["cpu-hog", "runqueue-wait", "service-slow"] {
        assert!(links(incident).contains(&link), "{:?}", links(incident));
    }
    assert!(incident.other_roots.is_empty(), "{:?}", incident.other_roots);
    // A pool that has always been as large computes.
    assert_eq!(root(&threads(&|_| 1312.0)), ("cpu-hog", Some("poold"), Some(90)));
}

#[test]
fn a_service_that_gets_no_cpu_is_not_said_to_sleep() {
    let starved = |delay: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "appd"), during(Asked::each(50.0, 0.002), Asked::nothing(8.0)));
        m.task_rate(50, "task.cpu_time", 0.1, 0.02).task_rate(50, "task.run_delay", 0.0, delay);
        m.task(90, "miner", HEALTHY);
        m.task_during(90, "task.cpu_time", 1.98).task_during(90, "task.run_delay", 1.5);
        m.sys("sys.cpu_idle", 1.8, 0.0).sys("tasks.run_delay", 0.02, 1.5 + delay);
        m.sys("tasks.cpu_time", 0.2, 2.0).sys("psi.cpu_some", 0.0, 0.95);
        m.explain()
    };
    let report = starved(0.95);
    assert_eq!(root(&report), ("cpu-hog", Some("miner"), Some(90)));
    let incident = one(&report);
    assert!(links(incident).contains(&"service-silent"), "{:?}", links(incident));
    assert!(
        incident.chain.iter().any(|link| link.statement.contains("while its processes waited for a CPU"))
    );
    // It sleeps beside the same program: that is no reason.
    let asleep = starved(0.0);
    assert!(asleep.incidents.iter().any(|i| i.root_cause.condition == "service-silent"), "{asleep:#?}");
}

#[test]
fn a_pool_whose_sessions_are_idle_in_transactions_waits_for_whoever_left_them() {
    const POOL: &str = "127.0.0.1:6432";
    let pinned = |idle: usize, more: &dyn Fn(&mut Machine)| {
        let mut m = Machine::idle();
        service(&mut m, POOL, (50, "pgbouncer"), during(Asked::each(60.0, 0.001), Asked::each(6.0, 2.0)));
        service(&mut m, DB, (70, "postgres"), during(Asked::each(60.0, 0.001), Asked::each(6.0, 0.001)));
        dependency(&mut m, (50, "pgbouncer"), DB, during(Asked::each(60.0, 0.001), Asked::each(6.0, 0.001)));
        m.row("dependency.established", &format!("50>{DB}"), 6.0, 6.0);
        dependency(&mut m, (80, "exporter"), POOL, during(Asked::each(1.0, 0.001), Asked::each(0.5, 0.001)));
        m.task(80, "exporter", 0).values(
            "dependency.established",
            &format!("80>{POOL}"),
            0,
            (0..HEALTHY + INCIDENT).map(|i| if is_on(i) { 6.0 } else { 0.0 }).collect(),
        );
        for pid in (71..77).take(idle) {
            let row = pid.to_string();
            m.values("session.pid", &row, HEALTHY, vec![f64::from(pid); INCIDENT]);
            m.text("session.activity", &row, HEALTHY, "idle in transaction");
        }
        more(&mut m);
        let report = m.explain();
        let is_of_pool =
            |incident: &&mitra_model::report::Incident| incident.root_cause.statement.contains("pgbouncer");
        let incident = report.incidents.iter().find(is_of_pool).expect("the pool is late");
        let culprit = incident.root_cause.culprit.process.clone();
        (incident.root_cause.statement.clone(), culprit, incident.remedies[0].command.clone())
    };
    let (said, culprit, remedy) = pinned(6, &|_| {});
    assert!(said.contains("requests wait inside of pgbouncer (port 6432): 6 of the 6 sessions that pgbouncer (port 6432) has at postgres"), "{said}");
    assert!(said.contains("6 of its connections are those of exporter (80) (0 before)"), "{said}");
    assert!(culprit.as_deref() == Some("exporter") && remedy.contains("pg_terminate_backend"), "{remedy}");
    // A program that always has eight there asks nothing on six of them, and waits for six answers of somebody else.
    const RATES: &str = "127.0.0.1:7104";
    let elsewhere = |waiting: f64| {
        pinned(6, &|m| {
            m.task(90, "billing", 0).row("dependency.established", &format!("90>{POOL}"), 8.0, 8.0);
            dependency(m, (90, "billing"), POOL, during(Asked::each(14.0, 0.001), Asked::nothing(2.0)));
            dependency(m, (90, "billing"), RATES, during(Asked::each(14.0, 0.005), Asked::nothing(waiting)));
            service(m, RATES, (95, "rates"), during(Asked::each(14.0, 0.005), Asked::nothing(waiting)));
        })
    };
    let (said, culprit, _) = elsewhere(6.0);
    assert!(said.contains("billing (90), which ask nothing there and wait for rates (port 7104)"), "{said}");
    assert_eq!(culprit.as_deref(), Some("rates"));
    let (said, culprit, _) = elsewhere(1.0);
    assert!(culprit.as_deref() == Some("exporter"), "{said}");
    let (said, culprit, _) = pinned(2, &|_| {});
    assert!(!said.contains("idle in a transaction") && culprit.as_deref() == Some("pgbouncer"), "{said}");
}
