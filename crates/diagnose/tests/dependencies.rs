//! What services call and wait for: addresses that answer late or not at all, and the way to them.

#[path = "support/services.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod services;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use services::{Asked, N, attempts, dependency, during, links, one, queue, service, slow};
use support::{HEALTHY, INCIDENT, Machine, is_on, root};

const WEB: &str = "0.0.0.0:80";
const APP: &str = "127.0.0.1:8080";
const DB: &str = "10.0.0.7:5432";

/// Nginx before four workers that call a database.
fn tiers(m: &mut Machine, of: impl Fn(usize) -> Asked + Copy) {
    service(m, WEB, (40, "nginx"), of);
    dependency(m, (40, "nginx"), APP, of);
    service(m, APP, (50, "python3"), of);
    for pid in 51..54 {
        m.task(pid, "python3", 0).task_rate(pid, "task.cpu_time", 0.02, 0.01);
    }
    // They answer in turns, and their master has never run.
    m.values("service.pid", APP, 0, (0..N).map(|i| 50.0 + (i % 4) as f64).collect());
    (50..54).for_each(|pid| _ = m.values("task.ppid", &support::row(pid), 0, vec![49.0; N]));
}

#[test]
fn an_address_that_nobody_answers_is_the_root_through_two_services() {
    let mut m = Machine::idle();
    tiers(&mut m, during(Asked::each(100.0, 0.002), Asked::each(2.7, 1.6)));
    for pid in 50..54 {
        dependency(&mut m, (pid, "python3"), DB, during(Asked::each(20.0, 0.001), Asked::nothing(0.0)));
        // Each gives up after a second and a half.
        attempts(&mut m, &format!("{pid}>{DB}"), 1.0, 0.67, (0.5, 0.0));
    }
    m.sys("tcpext.IPReversePathFilter", 0.0, 4.0);
    let report = m.explain();
    assert_eq!(root(&report), ("dependency-unreachable", None, None));
    let incident = one(&report);
    assert!(incident.root_cause.remarks[0].contains("rp_filter"), "{:?}", incident.root_cause.remarks);
    assert_eq!(incident.root_cause.culprit.address.as_deref(), Some(DB));
    let statement = &incident.root_cause.statement;
    assert!(statement.starts_with("nginx (port 80) answered in 1.6 s instead of 2.0 ms: "), "{statement}");
    assert!(statement.contains("4 processes named python3"), "{statement}");
    assert!(links(incident).contains(&"service-slow"));
    assert!(incident.other_roots.is_empty(), "{:?}", incident.other_roots);
    assert!(
        incident
            .next
            .iter()
            .any(|n| n.command.contains("ss -tnpo state syn-sent dst 10.0.0.7 dport = :5432"))
    );
}

#[test]
fn who_keeps_all_connections_that_a_gateway_allows_is_named() {
    let report = |kept: f64| {
        let mut m = Machine::idle();
        tiers(&mut m, during(Asked::each(100.0, 0.002), Asked::each(2.7, 1.6)));
        for pid in 50..54 {
            dependency(&mut m, (pid, "python3"), DB, during(Asked::each(20.0, 0.001), Asked::nothing(0.0)));
            attempts(&mut m, &format!("{pid}>{DB}"), 1.0, 0.67, (0.5, 0.0));
        }
        dependency(&mut m, (60, "recon"), DB, during(Asked::nothing(0.0), Asked::nothing(0.0)));
        m.task(60, "recon", HEALTHY).row("dependency.established", &format!("60>{DB}"), 0.0, kept);
        m.explain()
    };
    let found = report(512.0);
    assert_eq!(root(&found), ("dependency-unreachable", Some("recon"), Some(60)));
    let statement = &one(&found).root_cause.statement;
    assert!(statement.contains("though recon (60) keeps 5"), "{statement}");
    assert!(statement.contains(" of the 512 that are open (0 before)"), "{statement}");
    assert_eq!(root(&report(3.0)), ("dependency-unreachable", None, None));
}

#[test]
fn what_nobody_answers_on_loopback_is_dropped_by_a_filter() {
    const NEXT: &str = "127.0.0.1:5432";
    let report = |no_room: f64| {
        let mut m = Machine::idle();
        tiers(&mut m, during(Asked::each(100.0, 0.002), Asked::each(2.7, 1.6)));
        for pid in 50..54 {
            dependency(&mut m, (pid, "python3"), NEXT, during(Asked::each(20.0, 0.001), Asked::nothing(0.0)));
            attempts(&mut m, &format!("{pid}>{NEXT}"), 1.0, 0.67, (0.5, 0.0));
        }
        m.sys("tcpext.ListenOverflows", 0.0, no_room).sys("tcpext.ListenDrops", 0.0, no_room);
        m.explain()
    };
    let found = report(0.0);
    assert_eq!(root(&found).0, "dependency-unreachable");
    let incident = one(&found);
    let said = &incident.root_cause.statement;
    assert!(said.contains("a packet filter of this machine drops what is sent to 127.0.0.1:5432"), "{said}");
    assert!(incident.remedies[0].command.contains("grep -w 5432"), "{:?}", incident.remedies);
    let full = report(3.0);
    assert!(full.incidents.iter().all(|i| !i.root_cause.statement.contains("packet filter")));
}

#[test]
fn an_address_of_another_namespace_of_this_machine_that_is_gone_is_unreachable_too() {
    let mut m = Machine::idle();
    tiers(&mut m, during(Asked::each(100.0, 0.002), Asked::each(2.7, 1.6)));
    service(
        &mut m,
        "10.0.0.7:5432@db",
        (70, "postgres"),
        during(Asked::each(80.0, 0.001), Asked::nothing(0.0)),
    );
    for pid in 50..54 {
        dependency(&mut m, (pid, "python3"), DB, during(Asked::each(20.0, 0.001), Asked::nothing(0.0)));
        attempts(&mut m, &format!("{pid}>{DB}"), 1.0, 0.67, (0.5, 0.0));
    }
    let gone = m.explain();
    assert_eq!(root(&gone), ("dependency-unreachable", Some("postgres"), None));
    // It is there and takes no connection: it is what is to be looked at.
    queue(&mut m, "10.0.0.7:5432@db", (70, "postgres"), |_| 200.0);
    let full = m.explain();
    assert!(full.incidents.iter().all(|i| i.root_cause.condition != "dependency-unreachable"));
}

#[test]
fn an_address_that_was_never_called_before_is_one_too_where_several_wait_for_it() {
    let vain = |processes: u32| {
        let mut m = Machine::idle();
        for pid in 50..50 + processes {
            m.task(pid, "python3", 0);
            dependency(&mut m, (pid, "python3"), DB, during(Asked::nothing(0.0), Asked::nothing(0.0)));
            attempts(&mut m, &format!("{pid}>{DB}"), 1.0, 0.0, (0.0, 0.0));
        }
        m.explain()
    };
    assert_eq!(root(&vain(4)).0, "dependency-unreachable");
    assert!(vain(1).incidents.is_empty());
}

#[test]
fn the_kernel_counts_whether_an_attempt_was_begun_and_whether_it_was_refused() {
    let failing = |begun: f64, refused: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "shop"), during(Asked::each(90.0, 0.01), Asked::each(50.0, 4.0)));
        dependency(&mut m, (60, "caller"), APP, during(Asked::each(90.0, 0.01), Asked::each(50.0, 4.0)));
        queue(&mut m, APP, (50, "shop"), |_| 512.0);
        // Each takes 80 ms.
        attempts(&mut m, &format!("60>{APP}"), 7.0, 88.0, (90.0, 40.0));
        m.sys("tcp.ActiveOpens", 90.0, begun).sys("tcp.AttemptFails", 0.0, refused);
        let report = m.explain();
        let chain = report.incidents.iter().flat_map(|i| &i.chain);
        chain
            .into_iter()
            .find(|link| link.condition == "dependency-unreachable")
            .map(|link| link.statement.clone())
    };
    assert!(failing(128.0, 88.0).is_some_and(|said| said.contains("refuses connections")));
    assert!(failing(0.0, 0.0).is_some_and(|said| said.contains("fails before anything is sent")));
    // The callers give up before the queue takes them: the service is there, and full.
    assert_eq!(failing(128.0, 0.0), None);
}

#[test]
fn a_connection_that_is_refused_at_once_is_unreachable_if_it_used_to_be_accepted() {
    let refused = |before: f64, always: bool| {
        let mut m = Machine::idle();
        m.task(50, "php-fpm", 0);
        dependency(&mut m, (50, "php-fpm"), "127.0.0.1:6379", |_| Asked::nothing(0.0));
        attempts(&mut m, "50>127.0.0.1:6379", 0.0, 8.0, (before, 0.0));
        // Who is let in waits as long as who is refused: some microseconds.
        m.row("dependency.connect_time", "50>127.0.0.1:6379", 0.0006, 0.0006);
        if always {
            m.row("dependency.connect_failed", "50>127.0.0.1:6379", 8.0, 8.0);
        }
        m.explain()
    };
    let report = refused(8.0, false);
    assert_eq!(root(&report).0, "dependency-unreachable");
    assert!(one(&report).root_cause.statement.contains("refuses connections"));
    assert_eq!(root(&refused(0.0, false)).0, "dependency-unreachable");
    // Somebody has always tried it in vain.
    assert!(refused(0.0, true).incidents.is_empty());
}

#[test]
fn an_address_that_answers_late_is_the_root_of_a_service_that_waits_for_it() {
    let mut m = Machine::idle();
    tiers(&mut m, slow());
    for pid in 50..54 {
        dependency(&mut m, (pid, "python3"), DB, during(Asked::each(50.0, 0.001), Asked::each(1.0, 1.0)));
    }
    let report = m.explain();
    assert_eq!(root(&report), ("dependency-slow", None, None));
    let incident = one(&report);
    assert_eq!(incident.root_cause.culprit.address.as_deref(), Some(DB));
    assert!(incident.root_cause.statement.contains("10.0.0.7:5432 answered in 1.0 s instead of 1.0 ms"));
    assert!(links(incident).contains(&"service-slow"));
}

#[test]
fn a_path_to_a_service_of_the_same_machine_is_slow_where_the_service_is_not() {
    let kept = |waits: bool| {
        let mut m = Machine::idle();
        m.task(60, "web-user", 0);
        if waits {
            m.task_rate(60, "task.run_delay", 0.0, 4.0);
        }
        service(&mut m, APP, (50, "python3"), during(Asked::each(40.0, 0.0004), Asked::each(8.0, 0.0004)));
        dependency(&mut m, (60, "web-user"), APP, during(Asked::each(40.0, 0.0005), Asked::each(8.0, 0.5)));
        m.explain()
    };
    let report = kept(false);
    assert_eq!(root(&report).0, "dependency-slow");
    let statement = &one(&report).root_cause.statement;
    assert!(
        statement.contains("python3 (port 8080) serves there on this machine and answered in 400 µs"),
        "{statement}"
    );
    // Who gets no CPU takes no answer.
    assert!(kept(true).incidents.iter().all(|i| i.root_cause.condition != "dependency-slow"));
}

#[test]
fn a_service_of_the_same_machine_is_no_dependency_elsewhere() {
    let mut m = Machine::idle();
    tiers(&mut m, slow());
    let report = m.explain();
    // The one that is asked gives its name, and the one that it waits for is the culprit.
    assert_eq!(root(&report), ("service-slow", Some("python3"), None));
    let incident = one(&report);
    assert!(
        incident.root_cause.statement.starts_with("nginx (port 80) answered"),
        "{}",
        incident.root_cause.statement
    );
    assert!(incident.root_cause.remarks.iter().any(|r| r.contains("it waits for python3 (port 8080)")));
    let out = incident.ruled_out.iter().find(|r| r.condition == "dependency-slow").unwrap();
    assert!(out.because.contains("served on this machine by python3 (port 8080)"), "{}", out.because);
}

#[test]
fn workers_that_all_wait_are_the_way_from_an_address_to_its_victims() {
    let mut m = Machine::idle();
    let of = during(Asked::each(100.0, 0.002), Asked { waiting: 104.0, ..Asked::each(4.0, 6.0) });
    service(&mut m, APP, (50, "gunicorn"), of);
    queue(&mut m, APP, (50, "gunicorn"), |_| 100.0);
    for pid in 50..54 {
        if pid > 50 {
            m.task(pid, "gunicorn", 0);
        }
        dependency(&mut m, (pid, "gunicorn"), DB, during(Asked::each(25.0, 0.001), Asked::each(1.0, 1.0)));
    }
    let report = m.explain();
    assert_eq!(root(&report).0, "dependency-slow");
    let incident = one(&report);
    assert_eq!(links(incident)[..2], ["dependency-slow", "worker-pool-exhausted"]);
    let pool = &incident.chain[1].statement;
    assert!(pool.contains("all 4 workers of gunicorn (port 8080) wait for 10.0.0.7:5432"), "{pool}");
}

#[test]
fn processes_that_live_for_a_moment_are_callers_by_their_name() {
    let mut m = Machine::idle();
    dependency(&mut m, (50, "curl"), DB, |_| Asked::nothing(0.0));
    let row = format!("curl>{DB}");
    for metric in ["connecting", "connect_time"] {
        m.row(&format!("dependency.{metric}"), &row, 0.0, 5.0);
    }
    m.row("dependency.connect_failed", &row, 0.0, 1.0).row("dependency.connects", &row, 3.0, 0.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "dependency-unreachable");
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("processes named curl waited"), "{statement}");
}

#[test]
fn who_tries_again_keeps_a_server_at_work_for_clients_that_have_gone() {
    let tried = |asked: f64, sent_bytes: f64| {
        let mut m = Machine::idle();
        let late = Asked { waiting: 45.0, ..Asked::each(2.0, 3.9) };
        service(&mut m, APP, (50, "pricing"), during(Asked::each(55.0, 0.015), late));
        m.row("service.abandoned", APP, 0.0, asked).row("service.sent_bytes", APP, 7_700.0, sent_bytes);
        m.task(60, "order-sync", 0);
        let calls = during(Asked::each(30.0, 0.015), Asked::nothing(40.0));
        dependency(&mut m, (60, "order-sync"), APP, calls);
        m.row("dependency.abandoned", &format!("60>{APP}"), 0.0, asked);
        m.explain()
    };
    let report = tried(128.0, 17_800.0);
    assert_eq!(root(&report), ("abandoned-work", Some("order-sync"), Some(60)));
    let incident = one(&report);
    assert!(links(incident).contains(&"service-slow"), "{:?}", links(incident));
    assert!(incident.other_roots.is_empty(), "{:?}", incident.other_roots);
    let statement = &incident.root_cause.statement;
    assert!(statement.contains("order-sync (60) goes on asking"), "{statement}");
    let is_in_vain = |asked: f64, sent_bytes: f64| {
        let report = tried(asked, sent_bytes);
        report.incidents.iter().any(|incident| incident.root_cause.condition == "abandoned-work")
    };
    // It sends nothing: it stands still, and its clients try in vain.
    assert!(!is_in_vain(128.0, 280.0));
    // As much is asked as ever: it works off what a pause has left.
    assert!(!is_in_vain(53.0, 7_700.0));
}

#[test]
fn a_service_that_is_hardly_ever_asked_and_answers_nothing_is_what_its_caller_waits_for() {
    let waits = |answers: f64| {
        let mut m = Machine::idle();
        service(&mut m, WEB, (40, "java"), during(Asked::each(100.0, 0.002), Asked::nothing(15.0)));
        let seldom = during(Asked::each(0.2, 0.02), Asked { rate: answers, ..Asked::nothing(3.0) });
        service(&mut m, APP, (50, "ledger"), seldom);
        dependency(&mut m, (40, "java"), APP, seldom);
        m.explain()
    };
    let report = waits(0.0);
    assert_eq!(root(&report), ("service-slow", Some("ledger"), Some(50)));
    let cause = &one(&report).root_cause;
    assert!(cause.statement.contains("it waits for ledger (port 8080)"), "{}", cause.statement);
    assert!(cause.remarks.iter().any(|remark| remark.contains("too seldom")), "{:?}", cause.remarks);
    // It answers ten times a second, and nobody knows how fast it usually is.
    let answers = waits(10.0);
    assert!(answers.incidents.iter().all(|i| i.root_cause.culprit.pid != Some(50)), "{answers:#?}");
}

#[test]
fn clients_that_give_up_have_waited_for_the_service_that_the_one_they_ask_waits_for() {
    // One request in four needs a service that answers nothing any more.
    let fails = |metric: &str, waiting: f64| {
        let mut m = Machine::idle();
        let fewer = Asked { waiting: 3.0, ..Asked::each(9.0, 0.002) };
        service(&mut m, WEB, (40, "shop"), during(Asked::each(12.0, 0.002), fewer));
        m.row(metric, WEB, 0.0, 3.0);
        let seldom = during(Asked::each(0.2, 0.02), Asked::nothing(waiting));
        service(&mut m, APP, (50, "ledger"), seldom);
        dependency(&mut m, (40, "shop"), APP, seldom);
        m.explain()
    };
    let report = fails("service.abandoned", 3.0);
    assert_eq!(root(&report), ("service-failing", Some("ledger"), Some(50)));
    let cause = &one(&report).root_cause;
    assert_eq!(cause.culprit.address.as_deref(), Some(APP));
    assert!(cause.statement.starts_with("clients of shop (port 80) gave up"), "{}", cause.statement);
    assert!(cause.statement.contains(": it waits for ledger (port 8080)"), "{}", cause.statement);
    // It waits for nobody.
    let alone = fails("service.abandoned", 0.0);
    assert_eq!(root(&alone), ("service-failing", Some("shop"), Some(40)));
    // It closes connections by itself.
    let closes = fails("service.unanswered", 3.0);
    assert_eq!(root(&closes), ("service-failing", Some("shop"), Some(40)));
}

#[test]
fn a_service_that_is_asked_is_named_where_clients_wait_for_it_in_the_same_seconds() {
    // How many clients wait for the one that asks, and for the one that is asked. The answers of
    // that one are as fast as ever.
    let waits = |outer: fn(usize) -> f64, inner: fn(usize) -> f64| {
        let mut m = Machine::idle();
        let late = |i| Asked { waiting: outer(i), ..Asked::each(15.0, 1.6) };
        service(&mut m, WEB, (40, "shop"), |i| if is_on(i) { late(i) } else { Asked::each(50.0, 0.004) });
        let fewer = |i| Asked { waiting: inner(i), ..Asked::each(60.0, 0.001) };
        let asked = |i| if is_on(i) { fewer(i) } else { Asked::each(100.0, 0.001) };
        dependency(&mut m, (40, "shop"), APP, asked);
        service(&mut m, APP, (50, "cached"), asked);
        m.explain()
    };
    let report = waits(|i| [1.0, 9.0, 3.0, 5.0][i % 4], |i| [0.5, 4.5, 1.5, 2.5][i % 4]);
    assert_eq!(root(&report), ("service-slow", Some("cached"), Some(50)));
    let cause = &one(&report).root_cause;
    assert!(cause.statement.starts_with("shop (port 80) answered in 1.6 s"), "{}", cause.statement);
    assert!(cause.statement.contains(": it waits for cached (port 8080)"), "{}", cause.statement);
    let same = "the clients of cached (port 8080) wait longer than usual in the same seconds";
    assert!(cause.remarks.iter().any(|remark| remark == same), "{:?}", cause.remarks);
    // As many wait, in other seconds.
    let others = waits(|i| [1.0, 9.0, 3.0, 5.0][i % 4], |i| [4.5, 1.5, 2.5, 0.5][i % 4]);
    assert_eq!(root(&others), ("service-slow", Some("shop"), Some(40)));
    // As many wait all the time, with a little noise that both share.
    assert_eq!(root(&waits(|_| 8.0, |_| 4.0)), ("service-slow", Some("shop"), Some(40)));
}

#[test]
fn a_service_that_polls_for_a_key_and_who_came_when_it_began_are_said() {
    const KEYS: &str = "127.0.0.1:6379";
    let polls = |calls: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "stock-api"), during(Asked::each(30.0, 0.002), Asked::nothing(4.0)));
        let asked = during(Asked::each(90.0, 0.0001), Asked::each(calls, 0.0001));
        dependency(&mut m, (50, "stock-api"), KEYS, asked);
        service(&mut m, KEYS, (70, "redis-server"), asked);
        let row = format!("reconcile>{KEYS}");
        m.values("dependency.requests", &row, HEALTHY, vec![0.0; INCIDENT]);
        m.values("dependency.pid", &row, HEALTHY, vec![60.0; INCIDENT]);
        m.text("dependency.comm", &row, HEALTHY, "reconcile");
        m.explain()
    };
    let report = polls(200.0);
    assert_eq!(root(&report), ("service-silent", Some("stock-api"), Some(50)));
    let cause = &one(&report).root_cause;
    let asks = "stock-api (port 8080) asks redis-server (port 6379) again and again";
    assert!(cause.statement.contains(asks), "{}", cause.statement);
    let came = "for the first time when it began: reconcile (60) called redis-server (port 6379)";
    assert!(cause.remarks.iter().any(|remark| remark == came), "{:?}", cause.remarks);
    // What it asks besides its requests goes on as before.
    let steady = polls(90.0);
    assert!(!one(&steady).root_cause.statement.contains("again and again"));
}

#[test]
fn a_server_that_answers_at_once_and_unlike_its_peers_fails() {
    // Connections and bytes of each answer, and how often it is asked.
    let machine = |took_s: f64, connections: f64, bytes: f64, rate: f64, others: f64| {
        let mut m = Machine::idle();
        m.task(40, "haproxy", 0);
        for port in [8081, 8082, 8083] {
            let (row, pid) = (format!("127.0.0.1:{port}"), port - 8000);
            let is_it = port == 8083;
            let now = if is_it { Asked::each(rate, took_s) } else { Asked::each(others, 0.03) };
            service(&mut m, &row, (pid, "shop"), during(Asked::each(50.0, 0.03), now));
            dependency(&mut m, (40, "haproxy"), &row, during(Asked::each(50.0, 0.03), now));
            let (opened, size) = if is_it { (connections, bytes) } else { (0.0, 43.0) };
            m.row("service.connections", &row, 0.2, opened * now.rate);
            m.row("dependency.connects", &format!("40>{row}"), 0.2, opened * now.rate);
            m.row("service.sent_bytes", &row, 50.0 * 43.0, size * now.rate);
        }
        m
    };
    let report = machine(0.0003, 1.0, 130.0, 100.0, 25.0).explain();
    assert_eq!(root(&report), ("failing-fast", Some("shop"), Some(83)));
    let cause = &one(&report).root_cause;
    assert!(cause.statement.contains("most likely these are errors"), "{}", cause.statement);
    let share =
        |remark: &String| remark.contains("haproxy (40) gives it 67 %") && remark.contains("2 other servers");
    assert!(cause.remarks.iter().any(share), "{:?}", cause.remarks);
    // A cache got warm.
    assert!(machine(0.0003, 0.0, 43.0, 50.0, 50.0).explain_against_before().incidents.is_empty());
    // Somebody asks for something cheap besides, over a connection for each.
    assert!(machine(0.0003, 1.0, 130.0, 400.0, 50.0).explain_against_before().incidents.is_empty());
    // As slow as ever, over a connection for each.
    assert!(machine(0.03, 1.0, 130.0, 50.0, 50.0).explain_against_before().incidents.is_empty());
}

#[test]
fn who_opens_many_files_when_a_service_begins_to_fail_is_said() {
    let fails = |opened: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "livetail"), during(Asked::each(15.0, 0.005), Asked::each(15.0, 0.0003)));
        m.row("service.connections", APP, 0.0, 15.0).row("service.sent_bytes", APP, 615.0, 1_150.0);
        m.sys("sysctl.fs.inotify.max_user_instances", 128.0, 128.0);
        m.task(60, "sync-agent", HEALTHY).task_during(60, "task.fds", opened);
        let report = m.explain();
        assert_eq!(root(&report), ("failing-fast", Some("livetail"), Some(50)));
        let says = |remark: &String| remark.contains("sync-agent (60) opened 131 files");
        one(&report).root_cause.remarks.iter().any(says)
    };
    assert!(fails(131.0));
    assert!(!fails(20.0));
}

#[test]
fn what_its_caller_waits_for_and_the_server_knows_nothing_of_is_lost_on_the_way() {
    // Both ends are on this machine, each in a network namespace of its own.
    let between = |server_waits: f64| {
        let mut m = Machine::idle();
        service(
            &mut m,
            "10.1.0.2:8000@app",
            (50, "api"),
            during(Asked::each(40.0, 0.002), Asked::each(40.0, 0.2)),
        );
        let asked = |waiting: f64| Asked { waiting, ..Asked::each(280.0, 0.0001) };
        service(&mut m, "10.1.0.1:6379@db", (60, "redis-server"), during(asked(0.03), asked(server_waits)));
        dependency(&mut m, (50, "api"), "10.1.0.1:6379@app", during(asked(0.03), asked(4.0)));
        m.row("netns.tcp_OutSegs", "app", 500.0, 500.0).row("netns.tcp_RetransSegs", "app", 0.0, 17.0);
        m.row("netns.tcpext_TCPTimeouts", "app", 0.0, 15.0).row(
            "peer.retransmits",
            "10.1.0.1:6379@app",
            0.0,
            17.0,
        );
        m.explain()
    };
    let report = between(0.03);
    let incident = one(&report);
    assert_eq!(incident.root_cause.condition, "retransmit-storm", "{:#?}", incident.root_cause);
    assert!(incident.chain.iter().any(|link| link.condition == "service-slow"));
    // Here the server is late itself.
    let late = between(4.0);
    assert!(late.incidents.iter().all(|incident| {
        let has = |id: &str| incident.chain.iter().any(|link| link.condition == id);
        !(has("retransmit-storm") && has("service-slow"))
    }));
}

#[test]
fn services_that_wait_for_each_other_are_a_deadlock_where_nobody_has_a_place_free() {
    const PRICING: &str = "127.0.0.1:8090";
    // Three workers wait for answers of pricing, which asks back; so many connections wait before them.
    let circle = |back: f64, queued: f64| {
        let mut m = Machine::idle();
        let stuck = |waiting: f64| during(Asked::each(30.0, 0.03), Asked::nothing(waiting));
        service(&mut m, APP, (50, "accounts"), stuck(3.0 + queued));
        service(&mut m, PRICING, (60, "pricing"), stuck(3.0));
        queue(&mut m, APP, (50, "accounts"), |_| queued);
        dependency(&mut m, (50, "accounts"), PRICING, stuck(3.0));
        dependency(&mut m, (60, "pricing"), APP, during(Asked::nothing(0.0), Asked::nothing(back)));
        m.explain()
    };
    let report = circle(3.0, 8.0);
    assert_eq!(root(&report), ("deadlock", Some("accounts"), Some(50)));
    let said = &one(&report).root_cause.statement;
    assert!(
        said.contains("accounts (port 8080), pricing (port 8090) wait for each other in a circle"),
        "{said}"
    );
    assert!(one(&report).remedies[0].action.contains("made one of them call the other"));
    // A service that asks itself needs nobody else for that.
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "accounts"), during(Asked::each(30.0, 0.03), Asked::nothing(7.0)));
    queue(&mut m, APP, (50, "accounts"), |_| 4.0);
    dependency(&mut m, (50, "accounts"), APP, during(Asked::each(3.0, 0.001), Asked::nothing(3.0)));
    let report = m.explain();
    assert_eq!(root(&report).0, "deadlock");
    assert!(one(&report).root_cause.statement.contains("the workers of accounts (port 8080) wait"));
    // Pricing waits for somebody else, too; or the next call would be taken.
    for (back, queued) in [(1.0, 8.0), (3.0, 0.0)] {
        assert_ne!(root(&circle(back, queued)).0, "deadlock");
    }
}
