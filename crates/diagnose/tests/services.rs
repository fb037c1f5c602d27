//! Services that are slow while the machine is not, and their look-alikes.

#[path = "support/services.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod services;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use mitra_diagnose::Role;
use services::{Asked, N, dependency, during, is_silent, links, one, queue, service, slow};
use support::{HEALTHY, Machine, is_on, root};

const WEB: &str = "0.0.0.0:80";
const APP: &str = "127.0.0.1:8080";
const DB: &str = "10.0.0.7:5432";

#[test]
fn every_condition_of_services_says_what_to_do_and_never_renices() {
    let list = mitra_diagnose::conditions().iter().filter(|c| c.area == "service");
    let list: Vec<_> = list.collect();
    assert!(list.len() >= 7);
    for condition in list {
        let finding = mitra_diagnose::Finding::default();
        let remedies = condition.remedies(&finding);
        assert!(!remedies.is_empty(), "{}", condition.id);
        for remedy in &remedies {
            assert!(!remedy.verify.is_empty() && !remedy.command.contains("renice"), "{remedy:?}");
        }
        assert!(!condition.next(&finding).is_empty(), "{}", condition.id);
        assert_eq!(condition.stands_alone, condition.role == Role::Symptom);
    }
}

#[test]
fn a_service_that_is_slow_for_no_reason_that_is_known_is_an_incident() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "python3"), slow());
    let report = m.explain();
    assert_eq!(root(&report), ("service-slow", Some("python3"), Some(50)));
    let incident = one(&report);
    let statement = &incident.root_cause.statement;
    assert!(statement.contains("python3 (port 8080) answered in 1.6 s instead of 2.0 ms"), "{statement}");
    assert!(statement.contains("the cause was not found"), "{statement}");
    assert!(incident.root_cause.unexplained && incident.root_cause.confidence < 0.5, "nobody is sure of it");
    assert!(!incident.ruled_out.is_empty() && !incident.next.is_empty());
    // Twenty-four clients wait for forty seconds, and no task of the machine does.
    let cost = incident.client_wait_seconds.unwrap();
    assert!((800.0..1000.0).contains(&cost), "{cost}");
    assert!(report.ledger.lost_task_seconds.unwrap() < 1.0);
    let waits = report.ledger.by_cause.iter().find(|c| c.cause == "client-wait").unwrap();
    assert!((800.0..1000.0).contains(&waits.seconds), "{waits:?}");
}

#[test]
fn a_service_that_answers_nothing_any_more_is_slow_by_what_its_clients_have_waited() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "node"), during(Asked::each(200.0, 0.002), Asked::nothing(8.0)));
    m.task_rate(50, "task.cpu_time", 0.2, 1.0);
    let report = m.explain();
    let incident = one(&report);
    let statement = &incident.root_cause.statement;
    assert!(
        statement.contains("node (port 8080) answered in 40.0 s") && statement.contains("or more"),
        "{statement}"
    );
    // It works, and does not sleep.
    assert!(!incident.symptoms.contains(&"service-silent".to_owned()), "{:?}", incident.symptoms);
}

#[test]
fn a_service_whose_processes_sleep_while_requests_wait_is_silent() {
    for row in [APP, "unix:/run/app.sock"] {
        let mut m = Machine::idle();
        // One client is enough: its answers stopped.
        service(&mut m, row, (50, "appd"), during(Asked::each(50.0, 0.002), Asked::nothing(1.0)));
        let report = m.explain();
        assert_eq!(root(&report), ("service-silent", Some("appd"), Some(50)));
        let statement = &one(&report).root_cause.statement;
        assert!(
            statement.contains("appd") && statement.contains("answered nothing for 40.0 s"),
            "{statement}"
        );
    }
}

#[test]
fn an_accept_queue_that_grows_before_a_server_that_sleeps_is_seen_long_before_it_overflows() {
    // Nothing else is known of the service.
    let mut m = Machine::idle();
    m.task(50, "java", 0).task_rate(50, "task.cpu_time", 0.3, 0.0);
    queue(&mut m, APP, (50, "java"), |i| 14.0 * i as f64);
    let report = m.explain();
    let incident = one(&report);
    assert_eq!(incident.root_cause.condition, "service-silent");
    let statement = &incident.root_cause.statement;
    assert!(statement.contains("java (port 8080)") && statement.contains("546 connections"), "{statement}");
    // A server that works on what it has takes the next one later.
    m.task_rate(50, "task.cpu_time", 0.3, 0.9);
    assert!(m.explain().incidents.iter().all(|i| i.root_cause.condition != "service-silent"));
}

#[test]
fn an_overflow_of_a_server_that_stands_still_begins_when_it_stopped_to_answer() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "appd"), during(Asked::each(100.0, 0.002), Asked::nothing(12.0)));
    queue(&mut m, APP, (50, "appd"), |i| (10.0 * i as f64).min(129.0));
    m.row("listener.backlog", APP, 128.0, 128.0);
    let overflows = (0..N).map(|i| if is_on(i) && i >= HEALTHY + 14 { 10.0 } else { 0.0 }).collect();
    m.values("tcpext.ListenOverflows", "", 0, overflows);
    let report = m.explain();
    assert_eq!(root(&report), ("listen-overflow", Some("appd"), Some(50)));
    let incident = one(&report);
    let chain = links(incident);
    assert!(chain.contains(&"service-silent") && chain.contains(&"service-slow"), "{chain:?}");
    assert!(
        incident.root_cause.statement.starts_with("appd (port 8080) answered"),
        "{}",
        incident.root_cause.statement
    );
}

#[test]
fn a_server_that_takes_none_of_its_queue_is_at_no_limit_though_clients_give_up() {
    // Those that gave up in the seventh and the eighth second are out of the queue, and new ones in their places.
    let mut m = Machine::idle();
    let queued = Asked { waiting: 60.0, ..Asked::each(40.0, 1.5) };
    service(&mut m, APP, (50, "appd"), during(Asked::each(100.0, 0.002), queued));
    queue(&mut m, APP, (50, "appd"), |_| 60.0);
    let given_up = (0..N).map(|i| if (HEALTHY + 7..HEALTHY + 9).contains(&i) { 12.0 } else { 0.0 }).collect();
    m.values("service.abandoned", APP, 0, given_up);
    m.row("listener.backlog", APP, 60.0, 60.0).sys("tcpext.ListenOverflows", 0.0, 10.0);
    assert_eq!(root(&m.explain()), ("listen-overflow", Some("appd"), Some(50)));
}

#[test]
fn a_service_under_a_quota_is_slow_by_the_quota() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "api"), during(Asked::each(100.0, 0.004), Asked::each(60.0, 0.4)));
    m.cgroup(50, "/app").task_rate(50, "task.run_delay", 0.0, 1.5).task_rate(50, "task.cpu_time", 0.3, 0.5);
    m.row("cgroup.throttled_time", "/app", 0.0, 1.4).row("cgroup.nr_periods", "/app", 10.0, 10.0);
    m.row("cgroup.nr_throttled", "/app", 0.0, 9.0).sys("tasks.run_delay", 0.0, 1.5);
    let report = m.explain();
    assert_eq!(root(&report), ("cpu-quota-throttled", Some("api"), Some(50)));
    let incident = one(&report);
    assert!(links(incident).contains(&"service-slow"));
    // What the tasks lost is part of what the clients waited, and is not added to it.
    let cost = incident.client_wait_seconds.unwrap();
    assert!((850.0..1000.0).contains(&cost), "{cost}");
    assert_eq!(incident.root_cause.share, Some(0.93));
    // What comes and goes in a group below it uses most of what there is.
    m.task(60, "thumbs", 0).cgroup(60, "/app/jobs").row("exited.cpu_time", "60:gzip", 0.0, 0.9);
    let report = m.explain();
    assert_eq!(root(&report), ("cpu-quota-throttled", Some("thumbs"), Some(60)));
    let remark = "gzip, started again and again by thumbs (60), uses 64 % of the CPU time of the group";
    assert!(one(&report).root_cause.remarks.iter().any(|one| one == remark));
}

/// A machine whose CPUs are taken by a program that came, and by nothing else.
fn hogged(m: &mut Machine, server: u32, waits: f64) {
    m.task(90, "crunch", HEALTHY);
    for tid in 90..94 {
        if tid != 90 {
            m.thread(90, tid, "crunch", HEALTHY);
        }
        m.task_during(tid, "task.cpu_time", 0.45).task_during(tid, "task.run_delay", 0.4);
    }
    m.task_rate(server, "task.run_delay", 0.001, waits);
    m.sys("sys.cpu_idle", 1.8, 0.0).sys("tasks.run_delay", 0.02, 1.6 + waits).sys("tasks.cpu_time", 0.1, 2.0);
    m.sys("psi.cpu_some", 0.0, 0.95);
}

#[test]
fn a_service_that_waits_for_a_cpu_is_slow_for_that_reason_and_no_other() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "python3"), slow());
    hogged(&mut m, 50, 0.7);
    let report = m.explain();
    assert_eq!(root(&report), ("cpu-hog", Some("crunch"), Some(90)));
    let incident = one(&report);
    assert!(links(incident).contains(&"service-slow"));
    assert!(incident.root_cause.statement.starts_with("python3 (port 8080) answered"));
}

#[test]
fn a_program_that_takes_the_cpu_is_not_why_a_service_is_slow_that_sleeps() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "python3"), slow());
    dependency(&mut m, (50, "python3"), DB, during(Asked::each(200.0, 0.001), Asked::each(15.0, 1.5)));
    hogged(&mut m, 50, 0.0);
    m.task(95, "batch", 0).task_rate(95, "task.run_delay", 0.01, 0.6);
    let report = m.explain();
    let first = &report.incidents[0].root_cause;
    assert_eq!(first.condition, "dependency-slow", "{:#?}", report.incidents);
    assert!(!links(&report.incidents[0]).contains(&"cpu-hog"));
}

#[test]
fn who_polls_and_waits_for_half_a_minute_has_always_done_so() {
    let poll =
        |i: usize| Asked { waiting: 10.0, ..Asked::each(if i.is_multiple_of(3) { 1.0 } else { 0.0 }, 30.0) };
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "pushd"), poll);
    dependency(&mut m, (60, "agent"), "10.1.1.1:443", poll);
    is_silent(&m);
    // Beside others that stop to ask.
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "pushd"), move |i| match is_on(i) {
        true => poll(i),
        false => Asked { rate: 100.0, p50: 0.002, p90: 0.004, waiting: 10.2 },
    });
    is_silent(&m);
}

#[test]
fn a_job_with_long_queries_is_no_slow_database() {
    // The others are answered as ever; a report of one client takes five seconds, again and again.
    let mut m = Machine::idle();
    service(&mut m, DB, (50, "postgres"), |i| {
        let report = f64::from(u8::from(is_on(i)));
        let p90 = if is_on(i) && i.is_multiple_of(5) { 5.0 } else { 0.004 };
        Asked { rate: 5.0, p50: 0.002, p90, waiting: 0.01 + report }
    });
    is_silent(&m);
    // Queries that have always been long, of a changing number of clients.
    let mut m = Machine::idle();
    service(&mut m, DB, (50, "postgres"), |i| {
        Asked::each(0.5 + (i % 3) as f64, 8.0 + 3.0 * ((i * 31) % 7) as f64)
    });
    is_silent(&m);
}

#[test]
fn a_service_that_has_just_been_started_is_not_judged() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "java"), during(Asked::nothing(0.0), Asked::each(50.0, 0.4)));
    is_silent(&m);
    // The same address before and after a restart, with caches that are empty.
    let mut m = Machine::idle();
    m.task(50, "java", HEALTHY);
    service(&mut m, APP, (50, "java"), during(Asked::each(50.0, 0.004), Asked::each(50.0, 0.2)));
    m.task(50, "java", HEALTHY);
    is_silent(&m);
}

#[test]
fn requests_that_are_closed_without_an_answer_are_failures_of_the_service() {
    let failing = |metric: &str, usual: f64| {
        let mut m = Machine::idle();
        service(&mut m, WEB, (40, "nginx"), during(Asked::each(12.0, 0.002), Asked::each(6.0, 0.002)));
        m.row("service.connections", WEB, 12.0 + usual, 16.0).row(metric, WEB, usual, 10.0);
        m.explain()
    };
    for (metric, words) in [
        ("service.unanswered", "nginx (port 80) closed the connections of"),
        ("service.abandoned", "clients of nginx (port 80) gave up"),
        ("service.resets", "were reset without an answer"),
    ] {
        let report = failing(metric, 0.0);
        assert_eq!(root(&report), ("service-failing", Some("nginx"), Some(40)));
        let statement = &one(&report).root_cause.statement;
        assert!(statement.contains(words), "{statement}");
        assert!(failing(metric, 10.0).incidents.is_empty(), "{metric} was always so");
    }
    // Who ends a connection by a reset after the answer harms nobody.
    let mut m = Machine::idle();
    service(&mut m, WEB, (40, "nginx"), |_| Asked::each(50.0, 0.002));
    m.row("service.resets", WEB, 0.0, 50.0);
    is_silent(&m);
}

/// A web server that answers as fast as ever, so many a second with an error: before, and in the incident.
fn erring(before: f64, errors: f64, protocol: &str) -> Machine {
    let mut m = Machine::idle();
    service(&mut m, WEB, (40, "nginx"), |_| Asked::each(50.0, 0.002));
    m.row("service.server_errors", WEB, before, errors).text("service.protocol", WEB, 0, protocol);
    m
}

#[test]
fn a_service_that_answers_fast_with_errors_is_failing() {
    for (protocol, words) in [("HTTP", "(HTTP 5xx)"), ("PostgreSQL", "(PostgreSQL)")] {
        let report = erring(0.0, 20.0, protocol).explain();
        assert_eq!(root(&report), ("service-failing", Some("nginx"), Some(40)));
        let statement = &one(&report).root_cause.statement;
        assert!(statement.contains(&format!("% of its requests with errors {words}")), "{statement}");
        let (_, share) = statement.split_once("nginx (port 80) answered ").expect(statement);
        let percent: f64 = share.split(' ').next().unwrap().parse().unwrap();
        assert!((37.0..43.0).contains(&percent), "{statement}");
    }
    // One in a hundred is no trouble, nor are errors of clients, nor those that were always there.
    is_silent(&erring(0.0, 0.5, "HTTP"));
    is_silent(&erring(20.0, 20.0, "HTTP"));
    is_silent(&erring(20.0, 21.0, "HTTP"));
    let mut m = erring(0.0, 0.0, "HTTP");
    m.row("service.client_errors", WEB, 0.0, 40.0);
    is_silent(&m);
}

#[test]
fn errors_that_were_not_read_before_are_not_new() {
    // The option was switched on as the incident begins: it may always have been so.
    let mut m = erring(20.0, 20.0, "HTTP");
    m.values("service.server_errors", WEB, HEALTHY, vec![20.0; N - HEALTHY]);
    is_silent(&m);
}

#[test]
fn a_few_late_answers_are_an_incident_where_they_keep_clients_from_asking() {
    let few = |rate: f64| {
        let mut m = Machine::idle();
        let asked = Asked { rate, p50: 0.002, p90: 0.09, waiting: 2.2 };
        service(&mut m, APP, (50, "java"), during(Asked::each(200.0, 0.002), asked));
        m
    };
    let report = few(85.0).explain();
    assert_eq!(root(&report), ("service-slow", Some("java"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("one request in a hundred in 180 ms or more"), "{statement}");
    // As much is asked as ever: two clients have begun to ask for something that takes long.
    is_silent(&few(200.0));
}

#[test]
fn requests_that_wait_inside_while_nothing_is_asked_of_the_database_wait_for_its_pool() {
    let pool = |called: Asked| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "shop"), during(Asked::each(50.0, 0.004), Asked::nothing(12.0)));
        dependency(&mut m, (50, "shop"), DB, during(Asked::each(50.0, 0.002), called));
        m.task_rate(50, "task.cpu_time", 0.1, 0.001);
        m.explain()
    };
    let report = pool(Asked::nothing(0.0));
    assert_eq!(root(&report), ("worker-pool-exhausted", Some("shop"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("it called 10.0.0.7:5432 50.0 times a second and has stopped"), "{statement}");
    // The database does not answer: it is the database.
    let slow = pool(Asked::nothing(12.0));
    assert_eq!(one(&slow).root_cause.condition, "dependency-slow");
}

#[test]
fn calls_that_are_given_up_and_tried_again_stand_between_a_slow_address_and_its_victims() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "shop"), during(Asked::each(50.0, 0.004), Asked::each(20.0, 1.2)));
    dependency(&mut m, (50, "shop"), DB, during(Asked::each(50.0, 0.002), Asked::each(20.0, 0.4)));
    let row = format!("50>{DB}");
    // Three tries for each request, and most of them in vain.
    m.row("dependency.abandoned", &row, 0.0, 100.0).row("service.abandoned", APP, 0.0, 20.0);
    m.task_rate(50, "task.cpu_time", 0.02, 0.01);
    let report = m.explain();
    let incident = one(&report);
    assert_eq!(incident.root_cause.condition, "dependency-slow");
    assert!(links(incident).contains(&"retry-storm"), "{:?}", links(incident));
    assert!(links(incident).contains(&"timeout-cascade"), "{:?}", links(incident));
    let storm = incident.chain.iter().find(|link| link.condition == "retry-storm").unwrap();
    assert!(
        storm.statement.contains("called 3.0 times for each request of its callers instead of 1.0"),
        "{}",
        storm.statement
    );
    // As many calls for each request as ever, of more requests: nobody tries again.
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "shop"), during(Asked::each(50.0, 0.004), Asked::each(120.0, 0.4)));
    dependency(&mut m, (50, "shop"), DB, during(Asked::each(50.0, 0.002), Asked::each(90.0, 0.4)));
    m.row("dependency.abandoned", &row, 0.0, 30.0);
    assert!(!links(one(&m.explain())).contains(&"retry-storm"));
}

#[test]
fn answers_that_take_ten_times_as_long_are_late_where_several_clients_wait_for_them() {
    let asked = |rate: f64, took_s: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "postgres"), during(Asked::each(190.0, 0.0001), Asked::each(rate, took_s)));
        m
    };
    assert_eq!(root(&asked(145.0, 0.021).explain()), ("service-slow", Some("postgres"), Some(50)));
    // One client waits a little longer.
    is_silent(&asked(50.0, 0.003));
    // Others have begun to ask for something that takes as long, and as often.
    is_silent(&asked(400.0, 0.005));
    // Four times as long: a page of thirty answers is late by a tenth of a second, for whoever waits beside another one.
    let page = |rate: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "postgres"), during(Asked::each(rate, 0.002), Asked::each(rate, 0.008)));
        m
    };
    assert_eq!(root(&page(300.0).explain()), ("service-slow", Some("postgres"), Some(50)));
    is_silent(&page(100.0));
}

#[test]
fn who_stands_still_for_longer_than_an_answer_took_is_said_to() {
    let mut m = Machine::idle();
    let first = Asked { waiting: 5.0, ..Asked::each(50.0, 0.05) };
    let of = move |i| match i {
        HEALTHY => first,
        i if is_on(i) => Asked::nothing(6.0),
        _ => Asked::each(200.0, 0.002),
    };
    service(&mut m, APP, (50, "postgres"), of);
    let report = m.explain();
    let says = |words: &str| one(&report).chain.iter().any(|link| link.statement.contains(words));
    assert!(says("answered in 39.0 s or more instead of 2.0 ms"), "{report:#?}");
}

#[test]
fn a_service_that_is_slow_only_for_a_caller_that_it_did_not_have_is_no_incident() {
    let report = |own: Asked| {
        let mut m = Machine::idle();
        // A proxy, what it asks, and two clients of which one comes with the incident.
        let both = during(Asked::each(100.0, 0.002), Asked { waiting: 14.0, ..Asked::each(100.0, 0.002) });
        let late = |i: usize| if is_on(i) { Asked { p90: 3.5, ..both(i) } } else { both(i) };
        service(&mut m, WEB, (40, "haproxy"), late);
        service(&mut m, APP, (50, "nginx"), late);
        dependency(&mut m, (40, "haproxy"), APP, late);
        dependency(&mut m, (60, "desk"), "127.0.0.1:80", during(Asked::each(96.0, 0.002), own));
        dependency(
            &mut m,
            (70, "crawler"),
            "127.0.0.1:80",
            during(Asked::nothing(0.0), Asked::each(4.0, 3.5)),
        );
        m.explain()
    };
    let report_of_all = report(Asked::each(96.0, 0.002));
    assert!(report_of_all.incidents.is_empty(), "{:#?}", report_of_all.incidents);
    // Who was there before waits too; and it asks less, as who has given up.
    assert_eq!(root(&report(Asked { waiting: 9.0, ..Asked::each(96.0, 0.1) })).0, "service-slow");
    assert_eq!(root(&report(Asked::each(30.0, 0.002))).0, "service-slow");
}
