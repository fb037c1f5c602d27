//! Services with several addresses and processes, who waits for whom among them, and their look-alikes.

#[path = "support/services.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod services;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use mitra_model::report::Report;
use services::{Asked, N, dependency, during, is_silent, links, one, queue, service, slow};
use support::{HEALTHY, INCIDENT, Machine, ids, is_on, root, row};

const WEB: &str = "0.0.0.0:80";
const APP: &str = "127.0.0.1:8080";
const SOCKET: &str = "unix:/run/app.sock";

fn has(report: &Report, id: &str) -> bool {
    report.incidents.iter().any(|i| i.root_cause.condition == id || links(i).contains(&id))
}

/// One answer in a hundred takes 180 ms, and as many are given as ever; less than a client more waits.
fn late_tail() -> impl Fn(usize) -> Asked + Copy {
    let late = Asked { rate: 100.0, p50: 0.002, p90: 0.09, waiting: 0.6 };
    during(Asked::each(100.0, 0.002), late)
}

/// A service that two programs ask, of which the second one is answered like this.
fn asked_by_two(second: impl Fn(usize) -> Asked + Copy) -> Machine {
    let mut m = Machine::idle();
    let tail = late_tail();
    service(&mut m, APP, (50, "postgres"), move |i| Asked { waiting: 2.0 * tail(i).waiting, ..tail(i) });
    m.task(60, "web", 0).task(61, "jobs", 0);
    dependency(&mut m, (60, "web"), APP, tail);
    dependency(&mut m, (61, "jobs"), APP, second);
    m
}

#[test]
fn a_tail_that_two_callers_share_is_of_the_service_and_that_of_one_is_its_own() {
    let report = asked_by_two(late_tail()).explain();
    assert_eq!(root(&report), ("service-slow", Some("postgres"), Some(50)));
    assert!(one(&report).root_cause.statement.contains("one request in a hundred"), "{report:#?}");
    is_silent(&asked_by_two(|_| Asked::each(100.0, 0.002)));
    // One that came with a command that takes long, and keeps the other waiting.
    let came = Asked { rate: 1.0, p50: 0.18, p90: 0.2, waiting: 0.2 };
    let report = asked_by_two(during(Asked::nothing(0.0), came)).explain();
    assert_eq!(root(&report), ("service-slow", Some("postgres"), Some(50)));
}

/// Two processes of one parent, each with an address. Others of their kind have answered at the first one too, by turns: `turn`
/// says who does in each second.
fn siblings(turn: impl Fn(usize) -> u32) -> Machine {
    let mut m = Machine::idle();
    let of = during(Asked::each(100.0, 0.002), Asked::each(20.0, 0.1));
    service(&mut m, APP, (51, "python3"), of);
    service(&mut m, SOCKET, (52, "python3"), of);
    m.task(53, "python3", 0);
    for pid in [51, 52, 53] {
        m.values("task.ppid", &row(pid), 0, vec![50.0; N]);
        m.task_rate(pid, "task.cpu_time", 0.0133, 0.6);
    }
    m.values("service.pid", APP, 0, (0..N).map(|i| f64::from(turn(i))).collect());
    m
}

#[test]
fn a_server_is_one_service_at_all_its_addresses() {
    let others = |report: &Report| -> usize {
        let remarks = one(report).chain.iter().flat_map(|link| &link.remarks);
        remarks.filter(|remark| remark.contains("beside it")).count()
    };
    // Workers of one server: 40 requests a second in all take 1.8 CPUs.
    let report = siblings(|i| if i % 2 == 1 { 53 } else { 51 }).explain();
    assert_eq!(one(&report).root_cause.condition, "query-regression");
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("costs 45.0 ms of CPU instead of 200 µs"), "{statement}");
    assert_eq!(others(&report), 0);
    // Services of one supervisor, of which one was started again.
    assert!(others(&siblings(|_| 51).explain()) > 0);
    assert!(others(&siblings(|i| if i < 20 { 53 } else { 51 }).explain()) > 0);
}

#[test]
fn requests_that_cost_ten_times_as_much_are_a_regression_however_few_wait() {
    let dear = |rate: f64, took_s: f64, cpu: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "postgres"), during(Asked::each(50.0, 0.0001), Asked::each(rate, took_s)));
        m.task_rate(50, "task.cpu_time", 0.006, cpu);
        m
    };
    let report = dear(45.0, 0.004, 0.18).explain();
    assert_eq!(root(&report), ("query-regression", Some("postgres"), Some(50)));
    // It waits for somebody; twice as much is asked, and half of it is of another kind; hundreds of microseconds more.
    is_silent(&dear(45.0, 0.004, 0.006));
    is_silent(&dear(100.0, 0.004, 0.4));
    is_silent(&dear(45.0, 0.0006, 0.18));
}

#[test]
fn a_thread_that_answers_somewhere_else_meanwhile_is_not_blocked() {
    let served = |other_s: f64| {
        let mut m = Machine::idle();
        let asked = Asked { rate: 60.0, p50: 0.002, p90: 0.003, waiting: 1.0 };
        for address in [APP, SOCKET] {
            service(&mut m, address, (50, "node"), during(Asked::each(100.0, 0.002), asked));
        }
        m.task_rate(50, "task.cpu_time", 0.02, 0.6);
        m.row("service.oncpu_max", APP, 0.004, 0.3).row("service.oncpu_max", SOCKET, 0.004, other_s);
        m.explain()
    };
    assert_eq!(ids(&served(0.25)), ["event-loop-blocked"]);
    assert!(!has(&served(0.004), "event-loop-blocked"));
}

/// A server in front whose queue overflows, and one behind it that is asked three times as often as it was.
fn behind(calls: &str) -> Machine {
    let mut m = Machine::idle();
    let more = during(Asked::each(100.0, 0.002), Asked { waiting: 60.0, ..Asked::each(300.0, 0.2) });
    service(&mut m, APP, (50, "backend"), more);
    m.task_rate(50, "task.cpu_time", 0.2, 0.6);
    service(&mut m, WEB, (40, "front"), during(Asked::each(100.0, 0.003), Asked::each(90.0, 0.3)));
    m.task_rate(40, "task.cpu_time", 0.05, 0.12);
    dependency(&mut m, (40, "front"), calls, more);
    queue(&mut m, WEB, (40, "front"), |_| 129.0);
    m.row("listener.backlog", WEB, 128.0, 128.0).sys("tcpext.ListenOverflows", 0.0, 10.0);
    m
}

#[test]
fn a_queue_that_overflows_before_a_server_that_waits_for_another_follows_from_that_one() {
    let report = behind(APP).explain();
    let incident = one(&report);
    assert_eq!(incident.root_cause.condition, "load-increase", "{:#?}", incident.root_cause);
    assert_eq!(incident.root_cause.culprit.pid, Some(50));
    assert!(links(incident).contains(&"listen-overflow") && incident.other_roots.is_empty(), "{incident:#?}");
    // It waits for somebody else: what the other one is asked has nothing to do with it.
    let report = behind("10.9.9.9:5432").explain();
    let incident = one(&report);
    let roots = incident.other_roots.iter().chain([&incident.root_cause]);
    assert!(roots.into_iter().any(|root| root.condition == "listen-overflow"), "{incident:#?}");
}

#[test]
fn what_is_sent_again_to_the_machine_itself_was_not_lost_on_the_way() {
    let again = |peer: &str| {
        let mut m = Machine::idle();
        m.sys("tcp.OutSegs", 400.0, 400.0).sys("tcp.RetransSegs", 0.0, 12.0);
        m.sys("tcpext.TCPTimeouts", 0.0, 5.0).sys("tcpext.TCPSynRetrans", 0.0, 0.0);
        m.row("peer.retransmits", peer, 0.0, 11.0);
        m
    };
    assert_eq!(root(&again("10.7.0.9:5432").explain()).0, "retransmit-storm");
    is_silent(&again("127.0.0.1:5432"));
    is_silent(&again("[::1]:*"));
}

#[test]
fn threads_that_each_wait_for_an_answer_are_no_explosion() {
    let threads = |open: f64| {
        let grown = |i: usize| 30.0 * i.saturating_sub(HEALTHY).min(INCIDENT) as f64;
        let mut m = Machine::idle();
        m.task(80, "clientd", 0);
        m.values("task.threads", &row(80), 0, (0..N).map(|i| 12.0 + grown(i)).collect());
        m.values("tasks.total", "", 0, (0..N).map(|i| 162.0 + grown(i)).collect());
        dependency(&mut m, (80, "clientd"), "10.7.0.9:6379", |_| Asked::each(50.0, 0.002));
        m.values("dependency.open", "80>10.7.0.9:6379", 0, (0..N).map(|i| open * grown(i)).collect());
        m.explain()
    };
    assert_eq!(ids(&threads(0.1)), ["thread-explosion"]);
    assert!(!has(&threads(0.9), "thread-explosion"));
}

#[test]
fn a_server_without_descriptors_is_not_slow_by_its_load() {
    let asked = |fds: f64| {
        let mut m = Machine::idle();
        service(&mut m, WEB, (40, "nginx"), during(Asked::each(46.0, 0.002), Asked::each(125.0, 0.4)));
        m.values("task.fd_limit", &row(40), 0, vec![128.0; N]);
        let used = move |i: usize| if is_on(i) { fds } else { 15.0 };
        m.values("task.fds", &row(40), 0, (0..N).map(used).collect());
        m.values("tasks.fds_fullest", "", 0, (0..N).map(|i| used(i) / 128.0).collect());
        m.explain()
    };
    assert_eq!(root(&asked(60.0)).0, "load-increase");
    assert_eq!(root(&asked(128.0)), ("fd-exhaustion", Some("nginx"), Some(40)));
}

#[test]
fn a_name_of_a_unix_socket_that_nobody_answers_at_is_no_silent_service() {
    let mut m = Machine::idle();
    m.task(50, "lockd", 0);
    queue(&mut m, "unix:abstract:lockd", (50, "lockd"), |i| i as f64);
    is_silent(&m);
}

#[test]
fn workers_that_share_a_unix_socket_are_exhausted_like_others() {
    let mut m = Machine::idle();
    let of = during(Asked::each(100.0, 0.002), Asked { waiting: 104.0, ..Asked::each(4.0, 6.0) });
    service(&mut m, SOCKET, (50, "php-fpm8.2"), of);
    queue(&mut m, SOCKET, (50, "php-fpm8.2"), |_| 100.0);
    for pid in 51..54 {
        m.task(pid, "php-fpm8.2", 0);
    }
    assert_eq!(root(&m.explain()).0, "worker-pool-exhausted");
    // Clients that gave up stay in the queue, and are no open requests any more.
    queue(&mut m, SOCKET, (50, "php-fpm8.2"), |i| if i < 5 { 100.0 } else { 110.0 });
    assert_eq!(root(&m.explain()).0, "worker-pool-exhausted");
}

#[test]
fn clients_that_give_up_wait_in_the_queue_until_the_workers_come_to_them() {
    // Seven workers. From the fifth second on ten clients a second give up, of whom some are taken out of the queue.
    let pool = |open: [f64; INCIDENT], queued: [f64; INCIDENT]| {
        let mut m = Machine::idle();
        let at = |i: usize| if i < HEALTHY { 0.0 } else { open[i - HEALTHY] };
        let late = |i| Asked { waiting: at(i), ..Asked::each(7.0, 4.0) };
        service(&mut m, APP, (50, "puma"), |i| if is_on(i) { late(i) } else { Asked::each(47.0, 0.0013) });
        queue(&mut m, APP, (50, "puma"), |i| queued[i]);
        let given_up = (0..N).map(|i| if is_on(i) && i >= HEALTHY + 5 { 10.0 } else { 0.0 }).collect();
        m.values("service.abandoned", APP, 0, given_up);
        for tid in 1..8 {
            m.thread(50, 500 + tid, "puma srv tp", 0);
        }
        m.explain()
    };
    let queued: [f64; INCIDENT] = std::array::from_fn(|i| 20.0 + 15.0 * i as f64);
    let some_taken = |i: usize| if i < 5 { 0.0 } else { 5.0 * (i - 4) as f64 };
    let report = pool(std::array::from_fn(|i| queued[i] + 7.0 - some_taken(i)), queued);
    assert_eq!(root(&report), ("worker-pool-exhausted", Some("puma"), Some(50)));
    assert!(
        one(&report).root_cause.statement.contains("all 7 workers"),
        "{}",
        one(&report).root_cause.statement
    );
    // More and more at a time is no pool that is full.
    let report = pool(std::array::from_fn(|i| queued[i] + 7.0 + 4.0 * i as f64), queued);
    assert_ne!(root(&report).0, "worker-pool-exhausted");
}

#[test]
fn about_as_many_requests_as_there_are_workers_leave_one_connection_in_the_queue() {
    // Six threads, most of which sleep with a long request each.
    let pool = |queued: &dyn Fn(usize) -> f64, busy: f64| {
        let mut m = Machine::idle();
        let open = |i: usize| busy + if i >= HEALTHY { queued(i - HEALTHY) } else { 0.0 };
        let late = |i| Asked { waiting: open(i), p90: 0.97, ..Asked::each(30.0, 0.06) };
        service(&mut m, APP, (50, "puma"), |i| if is_on(i) { late(i) } else { Asked::each(47.0, 0.0013) });
        queue(&mut m, APP, (50, "puma"), queued);
        for tid in 1..8 {
            m.thread(50, 500 + tid, "puma srv tp", 0);
        }
        m.explain()
    };
    let report = pool(&|i| [2.0, 1.0, 0.0, 2.0][i % 4], 6.0);
    assert_eq!(root(&report), ("worker-pool-exhausted", Some("puma"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(
        statement.contains("all 6 workers of puma (port 8080) wait, and up to 2 connections"),
        "{statement}"
    );
    assert_eq!(
        root(&pool(&|i| if i % 4 == 0 { 1.0 } else { 0.0 }, 6.0)).0,
        "service-slow",
        "mostly one of them is free"
    );
}

#[test]
fn workers_that_wait_for_another_service_of_the_machine_are_not_the_root() {
    // It answers what it is asked, and no longer what it promised before: who has told it something waits for its word.
    let report = |kind: &str| {
        let mut m = Machine::idle();
        let queued = Asked { waiting: 24.0, ..Asked::each(4.0, 3.0) };
        service(&mut m, WEB, (40, "payd"), during(Asked::each(46.0, 0.002), queued));
        queue(&mut m, WEB, (40, "payd"), |_| 20.0);
        for tid in 1..4 {
            m.thread(40, 400 + tid, "payd", 0);
        }
        dependency(&mut m, (40, "payd"), APP, during(Asked::each(46.0, 0.001), Asked::each(4.0, 0.001)));
        service(&mut m, APP, (50, "beam.smp"), during(Asked::each(46.0, 0.001), Asked::each(4.0, 0.001)));
        let waits = format!("40>{kind}:50");
        m.values("wait.threads", &waits, HEALTHY, vec![4.0; INCIDENT]);
        m.values("wait.pid", &waits, HEALTHY, vec![50.0; INCIDENT]);
        m.explain()
    };
    assert_eq!(root(&report("answer")), ("service-slow", Some("beam.smp"), Some(50)));
    assert_eq!(root(&report("tcp")), ("service-slow", Some("beam.smp"), Some(50)));
}

/// Clients wait in the accept queue of a program that sleeps, and the server behind it answers one request in ten, and then
/// most of them, late.
fn full_proxy(threads: u32, p90_before: f64) -> Report {
    let mut m = Machine::idle();
    let (before, after) = (Asked::each(46.0, 0.002), Asked { waiting: 35.0, ..Asked::each(12.0, 3.0) });
    let before = Asked { p90: p90_before, waiting: 46.0 * p90_before * 0.1, ..before };
    let queued = Asked { waiting: 135.0, ..Asked::each(12.0, 9.0) };
    service(&mut m, WEB, (40, "haproxy"), during(before, queued));
    queue(&mut m, WEB, (40, "haproxy"), |_| 100.0);
    for tid in 1..threads {
        m.thread(40, 400 + tid, "haproxy", 0);
    }
    dependency(&mut m, (40, "haproxy"), APP, during(before, after));
    service(&mut m, APP, (50, "shop"), during(before, after));
    m.explain()
}

#[test]
fn a_program_with_a_few_threads_that_sleeps_and_takes_no_more_connections_is_at_its_limit() {
    let report = full_proxy(1, 2.9);
    assert_eq!(root(&report), ("connection-limit", Some("haproxy"), Some(40)));
    assert_eq!(links(one(&report)), ["connection-limit", "service-slow"]);
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("has taken 35 connections and takes no more"), "{statement}");
    // With a thread for each of them they are its workers.
    assert_eq!(root(&full_proxy(35, 2.9)).0, "worker-pool-exhausted");
    // What it waits for has become slow: that comes first.
    assert_eq!(root(&full_proxy(1, 0.003)), ("service-slow", Some("shop"), Some(50)));
}

#[test]
fn who_says_that_no_descriptor_is_left_has_none_however_few_are_seen_open() {
    let said = |lines: f64, fds: f64| {
        let mut m = Machine::idle();
        service(&mut m, WEB, (40, "nginx"), slow());
        m.values("task.fd_limit", &row(40), 0, vec![128.0; N]);
        m.values("task.fds", &row(40), 0, (0..N).map(|i| if is_on(i) { fds } else { 15.0 }).collect());
        m.values("limit.lines", "nginx:open-files", HEALTHY + 1, vec![lines; INCIDENT - 1]);
        m.values("limit.pid", "nginx:open-files", HEALTHY + 1, vec![40.0; INCIDENT - 1]);
        m.explain()
    };
    assert_eq!(root(&said(30.0, 110.0)), ("fd-exhaustion", Some("nginx"), Some(40)));
    assert_eq!(root(&said(0.0, 110.0)).0, "service-slow");
    // It was another process of the same name.
    assert_eq!(root(&said(30.0, 20.0)).0, "service-slow");
}

#[test]
fn a_service_with_fewer_connections_to_another_than_requests_may_wait_for_that() {
    let mut m = Machine::idle();
    service(&mut m, WEB, (40, "gateway"), slow());
    dependency(&mut m, (40, "gateway"), APP, during(Asked::each(200.0, 0.002), Asked::each(15.0, 0.002)));
    service(&mut m, APP, (50, "shop"), during(Asked::each(200.0, 0.002), Asked::each(15.0, 0.002)));
    let mut may_wait = |connections: f64| {
        m.row("dependency.established", &format!("40>{APP}"), connections, connections);
        let report = m.explain();
        one(&report).root_cause.remarks.iter().any(|remark| remark.starts_with("it may wait for shop (port "))
    };
    assert!(may_wait(1.0));
    assert!(!may_wait(24.0));
}

#[test]
fn worker_processes_that_nearly_all_have_a_request_are_exhausted_before_a_queue_grows() {
    let pool = |waiting: f64, cpu: f64| {
        let mut m = Machine::idle();
        m.task(50, "php-fpm8.2", 0);
        let late = Asked { waiting, p90: 1.5, ..Asked::each(38.0, 0.0014) };
        service(&mut m, SOCKET, (51, "php-fpm8.2"), during(Asked::each(47.0, 0.0014), late));
        for pid in 51..59 {
            if pid > 51 {
                m.task(pid, "php-fpm8.2", 0);
            }
            m.values("task.ppid", &row(pid), 0, vec![50.0; N]);
        }
        m.task_rate(51, "task.cpu_time", 0.02, cpu);
        // What its status page says; another master has pools as well.
        for (row, used, pid) in [("50:www", 8.0, 50.0), ("50:api", 1.0, 50.0), ("90:other", 8.0, 90.0)] {
            for (metric, value) in
                [("pool.used", used), ("pool.max", 8.0), ("pool.queue", used - 1.0), ("pool.pid", pid)]
            {
                m.values(metric, row, HEALTHY, vec![value; INCIDENT]);
            }
        }
        m.explain()
    };
    let report = pool(8.0, 0.02);
    assert_eq!(root(&report), ("worker-pool-exhausted", Some("php-fpm8.2"), Some(50)));
    let own: Vec<_> = one(&report)
        .root_cause
        .remarks
        .iter()
        .filter(|remark| remark.starts_with("by its own count"))
        .collect();
    assert_eq!(
        own,
        ["by its own count www has 8 of its 8 workers busy (pm.max_children), and 7 wait for it"]
    );
    assert!(one(&report).remedies.iter().any(|remedy| remedy.command.contains("request_slowlog_timeout")));
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("8 of the 8 workers of php-fpm8.2"), "{statement}");
    assert_eq!(root(&pool(5.0, 0.02)).0, "service-slow", "three are free");
    assert_ne!(root(&pool(8.0, 1.8)).0, "worker-pool-exhausted", "they compute");
}

#[test]
fn a_service_that_is_stopped_again_and_again_is_said_to_be_and_has_no_workers_that_wait() {
    let stopped = |one_in: usize| {
        let mut m = Machine::idle();
        service(&mut m, WEB, (40, "shop"), slow());
        queue(&mut m, WEB, (40, "shop"), |_| 20.0);
        let state = |i: usize| if is_on(i) && i.is_multiple_of(one_in) { b'T' } else { b'S' };
        m.values("task.state", &row(40), 0, (0..N).map(|i| f64::from(state(i))).collect());
        m.explain()
    };
    let report = stopped(3);
    assert_eq!(root(&report), ("service-slow", Some("shop"), Some(40)));
    let remarks = &one(&report).root_cause.remarks;
    assert!(
        remarks.iter().any(|r| r.starts_with("the processes of shop were stopped (state T) in 3")),
        "{remarks:?}"
    );
    let never = stopped(usize::MAX);
    assert!(!one(&never).root_cause.remarks.iter().any(|remark| remark.contains("stopped")));
}

#[test]
fn programs_of_one_interpreter_are_told_apart_by_what_they_serve() {
    let mut m = Machine::idle();
    let (front, middle, back) = ("127.0.0.1:9000", "127.0.0.1:9500", "127.0.0.1:8500");
    // A script has started all of them, which has the same name.
    m.task(59, "python3", 0);
    for (pid, address) in [(60, front), (61, middle), (62, back)] {
        service(&mut m, address, (pid, "python3"), slow());
        m.values("task.ppid", &row(pid), 0, vec![59.0; N]);
    }
    dependency(&mut m, (60, "python3"), middle, slow());
    dependency(&mut m, (61, "python3"), back, slow());
    let report = m.explain();
    assert_eq!(root(&report), ("service-slow", Some("python3"), Some(62)));
    let root = &one(&report).root_cause;
    assert_eq!(root.culprit.address.as_deref(), Some(back));
    assert!(root.statement.starts_with("python3 (port 9000) answered"), "{}", root.statement);
    assert!(root.statement.contains(": it waits for python3 (port 8500)"), "{}", root.statement);
}

#[test]
fn who_has_started_a_program_of_an_interpreter_is_not_its_master() {
    let mut m = Machine::idle();
    m.task(59, "python3", 0);
    service(&mut m, APP, (60, "python3"), slow());
    m.values("task.ppid", &row(60), 0, vec![59.0; N]);
    assert_eq!(root(&m.explain()), ("service-slow", Some("python3"), Some(60)));
}

#[test]
fn who_asks_no_more_than_ever_is_kept_waiting_by_those_who_came() {
    let asked = |took_s: f64, rate: f64| {
        let mut m = Machine::idle();
        let all = Asked { waiting: 5.0, ..Asked::each(840.0, 0.003) };
        service(&mut m, APP, (50, "nginx"), during(Asked::each(30.0, 0.001), all));
        dependency(&mut m, (60, "shop"), APP, during(Asked::each(30.0, 0.001), Asked::each(rate, took_s)));
        m
    };
    assert_eq!(root(&asked(0.008, 30.0).explain()), ("load-increase", Some("nginx"), Some(50)));
    is_silent(&asked(0.002, 30.0));
    // A page of thirty is late by less than a tenth of a second: among 28 times as many requests that is no chance.
    assert_eq!(root(&asked(0.0035, 30.0).explain()).0, "load-increase");
    // It is the one that asks more.
    is_silent(&asked(0.008, 120.0));
    // They came to another address of the same process.
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "nginx"), during(Asked::each(30.0, 0.001), Asked::each(30.0, 0.008)));
    let others = Asked { waiting: 5.0, ..Asked::each(840.0, 0.003) };
    service(&mut m, WEB, (50, "nginx"), during(Asked::nothing(0.0), others));
    dependency(&mut m, (60, "shop"), APP, during(Asked::each(30.0, 0.001), Asked::each(30.0, 0.008)));
    assert_eq!(root(&m.explain()), ("load-increase", Some("nginx"), Some(50)));
    // And what they ask there costs what it costs, which is more: nothing of before is dearer.
    m.task_rate(50, "task.cpu_time", 0.02, 1.0);
    assert_eq!(root(&m.explain()).0, "load-increase");
}

#[test]
fn services_are_said_to_be_fine_only_where_they_were_asked_and_none_is_in_trouble() {
    let fine = |of: &dyn Fn(usize) -> Asked| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "shop"), of);
        m.explain().healthy.contains(&"services".to_owned())
    };
    assert!(fine(&|_| Asked::each(50.0, 0.004)));
    assert!(!fine(&during(Asked::each(50.0, 0.004), Asked::each(20.0, 1.2))), "it is slow");
    let long = Asked { rate: 200.0, p50: 0.002, p90: 0.09, waiting: 2.2 };
    assert!(
        !fine(&during(Asked::each(200.0, 0.002), long)),
        "a few answers are late, and nobody knows for whom"
    );
    assert!(!fine(&|_| Asked::nothing(0.0)), "nobody asks");
    assert!(!Machine::idle().explain().healthy.contains(&"services".to_owned()), "there is none");
}

#[test]
fn a_service_that_gets_only_the_long_ones_of_who_turns_the_rest_away_is_not_slow() {
    // Long polls beside short requests; then the proxy has no connection left for nine of ten.
    let shop = |polled: f64, proxy_s: f64| {
        let mut m = Machine::idle();
        let (before, left) = (Asked::each(48.0, 0.001), Asked { waiting: 40.0, ..Asked::each(16.0, 2.8) });
        let before = Asked { p90: polled, waiting: 15.0, ..before };
        service(
            &mut m,
            WEB,
            (40, "nginx"),
            during(
                Asked { p50: proxy_s, ..before },
                Asked { waiting: 40.0, ..Asked::each(107.0, 0.1 * proxy_s) },
            ),
        );
        dependency(&mut m, (40, "nginx"), APP, during(before, left));
        service(&mut m, APP, (50, "shop"), during(before, left));
        m
    };
    is_silent(&shop(2.8, 0.001));
    // Nor where it is not known how fast the proxy answers.
    is_silent(&shop(2.8, f64::NAN));
    assert_eq!(root(&shop(0.002, 0.001).explain()), ("service-slow", Some("shop"), Some(50)));
}

#[test]
fn a_service_that_tries_again_since_no_file_can_be_made_is_slow_because_of_who_made_them_all() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "uploadd"), during(Asked::each(80.0, 0.0005), Asked::each(65.0, 0.3)));
    let left = |i: usize| if is_on(i) { 0.0 } else { 9_000.0 };
    for (metric, of) in
        [("fs.total_bytes", 64e6), ("fs.inodes", 16_384.0), ("fs.avail_bytes", 4e7), ("fs.free_bytes", 4e7)]
    {
        m.row(metric, "/srv/app", of, of);
    }
    m.values("fs.inodes_free", "/srv/app", 0, (0..N).map(left).collect());
    m.text("fs.type", "/srv/app", 0, "ext4").text("fs.device", "/srv/app", 0, "/dev/loop3");
    m.task(96, "thumbsd", 0);
    let worked = (0..N).map(|i| if (HEALTHY - 3..=HEALTHY).contains(&i) { 0.5 } else { 0.0 }).collect();
    m.values("task.system_time", &row(96), 0, worked);
    let report = m.explain();
    assert_eq!(root(&report), ("inode-exhaustion", Some("thumbsd"), Some(96)));
    assert!(links(one(&report)).contains(&"service-slow"), "{:?}", links(one(&report)));
}
