//! What requests to a service cost, how many there are, and their look-alikes.

#[path = "support/services.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod services;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use services::{Asked, attempts, dependency, during, is_silent, one, queue, service};
use support::{HEALTHY, INCIDENT, Machine, each, is_on, root, row};

const APP: &str = "127.0.0.1:8080";
const DB: &str = "10.0.0.7:5432";

#[test]
fn a_service_that_is_asked_more_at_the_same_cost_is_under_load() {
    let load = |cpu: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "java"), during(Asked::each(200.0, 0.002), Asked::each(700.0, 0.2)));
        dependency(&mut m, (60, "crawler"), APP, during(Asked::each(20.0, 0.002), Asked::each(520.0, 0.2)));
        m.task(60, "crawler", 0).task_rate(50, "task.cpu_time", 0.2, cpu);
        for tid in [501, 502] {
            m.thread(50, tid, "worker", 0).task_rate(tid, "task.cpu_time", 0.1, cpu / 2.0);
        }
        m.explain()
    };
    let report = load(0.7);
    assert_eq!(root(&report), ("load-increase", Some("java"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(
        statement.contains("got 699 requests/s instead of 200/s") && statement.contains("crawler (60)"),
        "{statement}"
    );
    // Three times the CPU for each request: it is the requests.
    let dear = load(3.0);
    assert_eq!(root(&dear), ("query-regression", Some("java"), Some(50)));
    let out = one(&dear).ruled_out.iter().find(|r| r.condition == "load-increase").unwrap();
    assert!(out.because.contains("each request to java (port 8080) cost"), "{}", out.because);
}

#[test]
fn clients_that_come_to_wait_for_something_are_no_load() {
    // A chat: browsers that wait for the next message for seconds.
    let of = |poster_s: f64, waiting: f64| {
        let mut m = Machine::idle();
        let all = Asked { rate: 92.0, p50: 1.0, p90: 4.0, waiting: waiting + 25.0 * poster_s };
        service(&mut m, APP, (50, "chat"), during(Asked::each(25.0, 0.0008), all));
        m.task_rate(50, "task.cpu_time", 0.03, 0.05);
        dependency(
            &mut m,
            (60, "poster"),
            APP,
            during(Asked::each(25.0, 0.0006), Asked::each(25.0, poster_s)),
        );
        let polls = Asked { rate: 67.0, p50: 1.5, p90: 5.0, waiting };
        dependency(&mut m, (70, "browsers"), APP, during(Asked::nothing(0.0), polls));
        m.task(60, "poster", 0).task(70, "browsers", 0);
        m.explain()
    };
    assert!(of(0.0006, 499.0).incidents.is_empty());
    // Who asked before waits as well.
    assert_eq!(root(&of(0.4, 30.0)).0, "load-increase");
}

#[test]
fn connections_that_queue_behind_ever_more_requests_are_load_though_answers_are_quick() {
    let of = |rate: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "gunicorn"), during(Asked::each(120.0, 0.007), Asked::each(rate, 0.015)));
        m.task(50, "gunicorn", 0).task_rate(50, "task.cpu_time", 0.04, rate / 3_000.0);
        queue(&mut m, APP, (50, "gunicorn"), |_| 6.0);
        dependency(
            &mut m,
            (60, "crawler"),
            APP,
            during(Asked::each(60.0, 0.007), Asked::each(rate - 60.0, 0.015)),
        );
        m.task(60, "crawler", 0);
        attempts(&mut m, &format!("60>{APP}"), 45.0, 0.0, (60.0, rate - 60.0));
        m.row("tcpext.ListenOverflows", "", 0.0, 70.0);
        m.explain()
    };
    let report = of(520.0);
    assert_eq!(root(&report), ("load-increase", Some("gunicorn"), Some(50)));
    let said = &one(&report).root_cause.statement;
    assert!(said.contains("instead of 120/s, most of it more by crawler (60)"), "{said}");
    // No more than before is answered: something holds it back.
    assert_ne!(root(&of(125.0)).0, "load-increase");
}

#[test]
fn requests_that_cost_more_because_they_are_large_name_who_sends_them() {
    let large = |bytes: f64, calls: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "node"), during(Asked::each(80.0, 0.0004), Asked::each(80.0, 0.07)));
        m.task(50, "node", 0).task_rate(50, "task.cpu_time", 0.03, 0.7);
        m.task_rate(50, "task.run_delay", 0.0, 0.5);
        dependency(&mut m, (60, "partner-sync"), APP, during(Asked::each(2.0, 0.001), Asked::each(2.0, 0.3)));
        m.task(60, "partner-sync", 0).row("dependency.sent_bytes", &format!("60>{APP}"), 12e3, bytes);
        dependency(&mut m, (50, "node"), DB, during(Asked::each(80.0, 0.0001), Asked::each(calls, 0.0001)));
        let report = m.explain();
        assert_eq!(root(&report).0, "query-regression");
        one(&report).root_cause.statement.clone()
    };
    let said = large(15.6e6, 80.0);
    assert!(said.contains("partner-sync (60) sends it 15.6 MB a second"), "{said}");
    assert!(!large(13e3, 80.0).contains("sends it"));
    let said = large(13e3, 40_000.0);
    assert!(said.contains("makes 500 calls of 10.0.0.7:5432 instead of 1"), "{said}");
}

#[test]
fn answers_that_come_in_bursts_are_no_more_requests() {
    // Something holds all of them back for a second and lets them go.
    let of = |i: usize| match is_on(i) {
        true if i.is_multiple_of(2) => Asked::each(400.0, 0.5),
        true => Asked::each(4.0, 0.5),
        false => Asked::each(200.0, 0.002),
    };
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "java"), of);
    m.task(50, "java", 0).task_rate(50, "task.cpu_time", 0.2, 0.2);
    let report = m.explain();
    let out = one(&report).ruled_out.iter().find(|r| r.condition == "load-increase").unwrap();
    assert!(out.because.contains("requests/s"), "{}", out.because);
}

#[test]
fn what_a_thread_does_besides_is_no_cost_of_its_requests() {
    // Hardly asked, a server with one thread takes twice the CPU for its housekeeping that its requests take: 200 us for each of them,
    // which are answered in 60. Then 8,000 a second take 120 us each.
    let asked = |took_s: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "cached"), during(Asked::each(100.0, took_s), Asked::each(8000.0, 0.03)));
        m.task(50, "cached", 0).task_rate(50, "task.cpu_time", 0.02, 0.98);
        m.sys("sys.cpu_idle", 1.97, 1.0);
        m.explain()
    };
    assert_eq!(root(&asked(60e-6)).0, "single-thread-bottleneck");
    assert_eq!(root(&asked(180e-6)).0, "load-increase");
    // Eighty times as many requests, and each takes four times as much CPU: they are others.
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "cached"), during(Asked::each(50.0, 60e-6), Asked::each(4000.0, 0.05)));
    m.task(50, "cached", 0).task_rate(50, "task.cpu_time", 0.003, 0.98);
    m.sys("sys.cpu_idle", 1.97, 1.0);
    assert_eq!(root(&m.explain()).0, "single-thread-bottleneck");
}

#[test]
fn load_that_rises_and_falls_and_is_answered_as_fast_is_no_incident() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "java"), |i| {
        Asked::each(10.0 + 490.0 * ((i as f64) / 15.0).sin().abs(), 0.004)
    });
    dependency(&mut m, (50, "java"), DB, |i| {
        Asked::each(10.0 + 490.0 * ((i as f64) / 15.0).sin().abs(), 0.001)
    });
    is_silent(&m);
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "java"), during(Asked::each(50.0, 0.004), Asked::each(900.0, 0.006)));
    is_silent(&m);
    // Nobody asks any more, and the connections stay.
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "java"), during(Asked::each(500.0, 0.004), Asked::nothing(0.0)));
    is_silent(&m);
}

/// One that answers a hundred requests a second with 2 % of a CPU, and then less, which cost more or not.
fn dear(comm: &str, cpu: f64) -> Machine {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, comm), during(Asked::each(100.0, 0.002), Asked::each(20.0, 0.1)));
    m.task_rate(50, "task.cpu_time", 0.02, cpu);
    m
}

#[test]
fn who_connects_for_each_request_is_the_reason_that_they_cost_more() {
    let of = |connects: f64, cpu: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "nginx"), during(Asked::each(200.0, 0.0004), Asked::each(600.0, 0.025)));
        m.task(50, "nginx", 0).task_rate(50, "task.cpu_time", 0.04, cpu);
        let begins = if connects > 0.0 { 0.0 } else { 500.0 };
        m.row("service.connections", APP, begins, 500.0);
        dependency(&mut m, (60, "shop"), APP, during(Asked::each(200.0, 0.0004), Asked::each(200.0, 0.025)));
        dependency(&mut m, (70, "sync"), APP, during(Asked::each(0.0, 0.0), Asked::each(400.0, 0.025)));
        m.task(60, "shop", 0).task(70, "sync", 0);
        m.row("dependency.connects", &format!("60>{APP}"), 0.0, 20.0);
        m.row("dependency.connects", &format!("70>{APP}"), begins, 480.0);
        m.explain()
    };
    let report = of(480.0, 1.6);
    assert_eq!(root(&report), ("query-regression", Some("sync"), Some(70)));
    let incident = one(&report);
    let said = &incident.root_cause.statement;
    assert!(said.contains("500 new connections a second instead of 0, most of them of sync (70)"), "{said}");
    assert!(incident.remedies[0].action.contains("let sync keep its connections"), "{:?}", incident.remedies);
    // As many connections as before.
    assert_eq!(root(&of(0.0, 1.6)), ("query-regression", Some("nginx"), Some(50)));
}

#[test]
fn a_session_that_keeps_an_old_snapshot_makes_requests_dear() {
    let of = |age: f64, state_s: f64, rises: bool| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "postgres"), during(Asked::each(800.0, 0.0004), Asked::each(800.0, 0.005)));
        let cpu = |i: usize| match i.checked_sub(HEALTHY) {
            Some(at) if rises => 0.9 + at as f64 * 0.08,
            Some(_) => 1.5,
            None => 0.2,
        };
        m.values("task.cpu_time", &row(50), 0, (0..HEALTHY + INCIDENT).map(cpu).collect());
        m.task(60, "report", 0);
        for (pid, age) in [("51", age), ("52", 3.0)] {
            m.values("session.pid", pid, HEALTHY, vec![pid.parse().unwrap(); INCIDENT]);
            m.values("session.snapshot_age", pid, HEALTHY, vec![age; INCIDENT]);
            m.values("session.client_pid", pid, HEALTHY, vec![60.0; INCIDENT]);
            let times = (0..INCIDENT).map(|i| if pid == "51" { state_s + i as f64 } else { 0.001 });
            m.values("session.state_time", pid, HEALTHY, times.collect());
            m.text("session.activity", pid, HEALTHY, if pid == "51" { "COPY" } else { "DELETE" });
        }
        m.explain()
    };
    let report = of(7_700.0, 1.0, true);
    assert_eq!(root(&report), ("query-regression", Some("report"), Some(60)));
    let incident = one(&report);
    let said = &incident.root_cause.statement;
    assert!(said.contains("session 51 of PostgreSQL runs COPY for"), "{said}");
    assert!(said.contains("what the 7,700 transactions since have removed"), "{said}");
    assert!(incident.remedies[0].command.contains("pg_terminate_backend(51)"), "{:?}", incident.remedies);
    // Few transactions, one that was there long before, or a cost that came at once.
    for other in [of(300.0, 1.0, true), of(7_700.0, 3600.0, true), of(7_700.0, 1.0, false)] {
        assert_eq!(root(&other), ("query-regression", Some("postgres"), Some(50)));
    }
}

#[test]
fn a_thread_that_computes_beside_the_requests_is_none_of_their_cost() {
    let of = |earlier: f64, workers: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "api"), during(Asked::each(120.0, 0.0004), Asked::each(120.0, 0.01)));
        m.task(50, "api", 0).task_rate(50, "task.cpu_time", 0.03, workers);
        m.thread(50, 51, "refresh", 0).task_rate(51, "task.cpu_time", earlier, 0.96);
        m.sys("tasks.busiest", 0.03, 0.96).sys("sys.cpu_idle", 1.9, 0.9);
        m.explain()
    };
    let report = of(0.0, 0.03);
    assert_eq!(root(&report), ("single-thread-bottleneck", Some("api"), Some(50)));
    let incident = one(&report);
    let said = &incident.root_cause.statement;
    assert!(said.contains("thread refresh of api (50) used 96 % of a CPU"), "{said}");
    assert!(
        incident.remedies[0].action.contains("its thread refresh does elsewhere"),
        "{:?}",
        incident.remedies
    );
    // It answered before, or those that answer take more as well.
    assert_eq!(root(&of(0.03, 0.03)).0, "query-regression");
    assert_eq!(root(&of(0.0, 0.5)).0, "query-regression");
}

#[test]
fn threads_that_compute_in_turns_under_one_lock_keep_those_that_answer_from_it() {
    let of = |second: &dyn Fn(usize) -> f64, waited: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "quotes"), during(Asked::each(60.0, 0.0005), Asked::each(60.0, 0.04)));
        m.task(50, "quotes", 0).task_rate(50, "task.cpu_time", 0.03, 0.04);
        for (tid, used) in [(51, &(|_| 0.46) as &dyn Fn(usize) -> f64), (52, second)] {
            m.thread(50, tid, "quotes", 0).task_rate(tid, "task.run_delay", 0.0, waited);
            m.values("task.cpu_time", &row(tid), 0, each(|i| if is_on(i) { used(i) } else { 0.0 }));
        }
        m.sys("tasks.busiest", 0.03, 0.5).sys("sys.cpu_idle", 1.95, 0.95);
        m.explain()
    };
    let report = of(&|_| 0.48, 0.05);
    assert_eq!(root(&report), ("single-thread-bottleneck", Some("quotes"), Some(50)));
    let incident = one(&report);
    let said = &incident.root_cause.statement;
    assert!(
        said.contains("2 threads of quotes (50) used 98 % of a CPU") && said.contains("by turns"),
        "{said}"
    );
    assert!(incident.remedies[0].action.contains("in another process"), "{:?}", incident.remedies);
    // A load that is one CPU's worth by chance, and what a quota or a single CPU keeps from running.
    assert_ne!(root(&of(&|i| if i % 2 == 0 { 0.3 } else { 0.6 }, 0.05)).0, "single-thread-bottleneck");
    assert_ne!(root(&of(&|_| 0.48, 0.4)).0, "single-thread-bottleneck");
}

#[test]
fn requests_that_cost_several_times_as_much_are_a_regression() {
    let report = dear("postgres", 0.9).explain();
    assert_eq!(root(&report), ("query-regression", Some("postgres"), Some(50)));
    let incident = one(&report);
    let statement = &incident.root_cause.statement;
    assert!(statement.contains("costs 45.0 ms of CPU instead of 200 µs"), "{statement}");
    assert!(incident.remedies[0].command.contains("pg_stat_activity"), "{:?}", incident.remedies);
    // Pages that were in memory before take that time: six hundred faults of each request.
    let mut m = dear("postgres", 0.9);
    m.task_rate(50, "task.majflt", 0.0, 12_000.0);
    assert!(m.explain().incidents.iter().all(|i| i.root_cause.condition != "query-regression"));
    m.task_rate(50, "task.majflt", 0.0, 120.0);
    assert_eq!(one(&m.explain()).root_cause.condition, "query-regression");
    // What it does beside is no cost of requests that sleep.
    let mut m = dear("postgres", 0.2);
    service(&mut m, APP, (50, "postgres"), during(Asked::each(100.0, 0.002), Asked::each(4.0, 3.0)));
    assert_eq!(one(&m.explain()).root_cause.condition, "service-slow");
}

/// A server of one thread that answers a hundred requests a second, and then runs for so long at a stretch.
fn kept(stretch_s: f64, cpu: f64, waiting: f64) -> Machine {
    let mut m = Machine::idle();
    let asked = Asked { rate: 60.0, p50: 0.002, p90: 0.003, waiting };
    service(&mut m, APP, (50, "node"), during(Asked::each(100.0, 0.002), asked));
    m.task_rate(50, "task.cpu_time", 0.02, cpu);
    m.row("service.oncpu_max", APP, 0.004, stretch_s);
    m
}

#[test]
fn a_thread_that_runs_for_long_while_others_wait_for_it_blocks_its_event_loop() {
    // Nine of ten answers are as fast as ever.
    let report = kept(0.3, 0.6, 1.0).explain();
    assert_eq!(root(&report), ("event-loop-blocked", Some("node"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(statement.contains("ran for up to 312 ms at a stretch"), "{statement}");
    // Only who asked for it waits.
    is_silent(&kept(0.3, 0.6, 0.7));
    // Others wait so little that only the 99th percentile shows it: nobody suffers.
    let noticed = kept(0.05, 0.07, 0.29).explain();
    assert_eq!((noticed.incidents.len(), noticed.findings.len()), (0, 1), "{noticed:?}");
    assert_eq!(noticed.findings[0].condition, "event-loop-blocked");
    // It is always so.
    let mut always = kept(0.3, 0.6, 1.0);
    always.row("service.oncpu_max", APP, 0.3, 0.3).task_rate(50, "task.cpu_time", 0.6, 0.6);
    is_silent(&always);
    // Several threads answer.
    let mut threads = kept(0.3, 0.6, 1.0);
    threads.thread(50, 51, "node", 0).task_rate(51, "task.cpu_time", 0.1, 0.6);
    assert!(threads.explain().incidents.iter().all(|i| i.root_cause.condition != "event-loop-blocked"));
}

#[test]
fn more_calls_for_each_request_are_what_it_costs() {
    let told = |rate: f64, calls: f64, took_s: f64| {
        let mut m = Machine::idle();
        service(
            &mut m,
            APP,
            (50, "php-fpm"),
            during(Asked::each(12.0, 0.012), Asked::each(rate, 0.053 * 12.0 / rate)),
        );
        dependency(&mut m, (50, "php-fpm"), DB, during(Asked::each(36.0, 0.003), Asked::each(calls, took_s)));
        m.explain()
    };
    let report = told(12.0, 204.0, 0.003);
    assert_eq!(root(&report), ("query-regression", Some("php-fpm"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(
        statement.contains("makes 17") && statement.contains("calls of 10.0.0.7:5432 instead of 3"),
        "{statement}"
    );
    // As many, each of which is late.
    assert_ne!(root(&told(12.0, 36.0, 0.017)).0, "query-regression");
}

/// A program that asked a cache for each request, and another server for hardly any.
fn behind_a_cache(bytes: f64, db: Asked) -> Machine {
    const CACHE: &str = "127.0.0.1:11211";
    let mut m = Machine::idle();
    let of_cache = during(Asked::each(200.0, 5e-5), Asked::each(145.0, 4e-5));
    service(&mut m, APP, (50, "catalog"), during(Asked::each(200.0, 0.0005), Asked::each(145.0, 0.022)));
    service(&mut m, CACHE, (70, "memcached"), during(Asked::each(200.0, 5e-5), Asked::each(2200.0, 2e-5)));
    dependency(&mut m, (50, "catalog"), CACHE, of_cache);
    m.row("dependency.sent_bytes", &format!("50>{CACHE}"), 6e3, 4e3);
    dependency(&mut m, (80, "import"), CACHE, during(Asked::each(0.0, 1e-5), Asked::each(2055.0, 1e-5)));
    m.task(80, "import", 0).row("dependency.sent_bytes", &format!("80>{CACHE}"), 0.0, bytes);
    dependency(&mut m, (50, "catalog"), DB, during(Asked::each(0.0, 0.02), db));
    m
}

#[test]
fn calls_of_whom_it_did_not_ask_before_are_what_requests_cost() {
    let report = behind_a_cache(2e7, Asked::each(125.0, 0.022)).explain();
    assert_eq!(root(&report), ("query-regression", Some("import"), Some(80)));
    let cause = &one(&report).root_cause;
    assert!(
        cause.statement.contains("calls of 10.0.0.7:5432, which it did not ask before"),
        "{}",
        cause.statement
    );
    assert!(cause.statement.contains("since import (80) fills it"), "{}", cause.statement);
    // It takes a while to be full: who fills it came before the cache was of no use any more.
    let mut m = behind_a_cache(2e7, Asked::each(125.0, 0.022));
    m.values("dependency.sent_bytes", "80>127.0.0.1:11211", HEALTHY - 4, vec![2e7; INCIDENT + 4]);
    assert_eq!(root(&m.explain()), ("query-regression", Some("import"), Some(80)));
    // The server that is asked more has no CPU left: that is the doing of who asks.
    let mut m = behind_a_cache(2e7, Asked::each(125.0, 0.022));
    service(&mut m, DB, (90, "postgres"), during(Asked::each(0.0, 0.02), Asked::each(125.0, 0.022)));
    m.task(90, "postgres", 0).task_rate(90, "task.cpu_time", 0.0, 1.9).task_rate(
        90,
        "task.run_delay",
        0.0,
        4.0,
    );
    m.sys("sys.cpu_idle", 1.95, 0.0).sys("tasks.run_delay", 0.0, 4.5).sys("tasks.cpu_time", 0.05, 1.98);
    let report = m.explain();
    assert_eq!(root(&report), ("query-regression", Some("import"), Some(80)));
    assert!(one(&report).chain.iter().any(|link| link.condition == "runqueue-saturation"), "{report:#?}");
    // Nobody else fills the cache: it is the program.
    let report = behind_a_cache(0.0, Asked::each(125.0, 0.022)).explain();
    assert_eq!(root(&report), ("query-regression", Some("catalog"), Some(50)));
    // What hardly takes any time is not what they wait for.
    let report = behind_a_cache(2e7, Asked::each(125.0, 0.001)).explain();
    assert_ne!(root(&report).0, "query-regression");
}

#[test]
fn requests_that_wait_inside_before_an_idle_server_are_held_back() {
    const BACKEND: &str = "127.0.0.1:9101";
    let proxy_with = |unread: f64, each_s: f64, in_flight: f64| {
        let mut m = Machine::idle();
        m.task(90, "kiosk", HEALTHY).values("wait.threads", "50>unread:90", HEALTHY, vec![unread; INCIDENT]);
        m.values("wait.pid", "50>unread:90", HEALTHY, vec![90.0; INCIDENT]);
        let late = Asked { rate: 48.0, p50: 0.39, p90: 0.43, waiting: 19.0 };
        let asked = Asked { rate: 48.0, p50: each_s, p90: each_s, waiting: in_flight };
        service(&mut m, APP, (50, "haproxy"), during(Asked::each(200.0, 0.0205), late));
        service(&mut m, BACKEND, (60, "orders"), during(Asked::each(200.0, 0.02), asked));
        dependency(&mut m, (50, "haproxy"), BACKEND, during(Asked::each(200.0, 0.02), asked));
        m.explain()
    };
    let proxy = |each_s: f64, in_flight: f64| proxy_with(0.0, each_s, in_flight);
    let report = proxy_with(5.0, 0.0206, 0.99);
    assert_eq!(root(&report), ("connection-limit", Some("kiosk"), Some(90)));
    assert!(one(&report).root_cause.statement.contains("5 answers to kiosk (90) are not read"));
    let report = proxy(0.0206, 0.99);
    assert_eq!(root(&report), ("connection-limit", Some("haproxy"), Some(50)));
    let incident = one(&report);
    let statement = &incident.root_cause.statement;
    assert!(
        statement.contains("asks orders (port 9101) for no more than 1 at a time (up to 4 before)"),
        "{statement}"
    );
    assert!(incident.remedies[0].command.contains("set maxconn server"), "{:?}", incident.remedies);
    // The one that is asked is late itself, or keeps no place taken.
    for (each_s, in_flight) in [(0.3, 14.4), (0.0206, 0.4)] {
        assert_ne!(root(&proxy(each_s, in_flight)).0, "connection-limit");
    }
}

#[test]
fn a_server_that_cannot_reach_whom_it_asked_for_each_request_answers_with_errors() {
    let gateway = |failed: f64, asked: f64, earlier: u32| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "nginx"), during(Asked::each(236.0, 3e-4), Asked::each(236.0, 2e-4)));
        dependency(
            &mut m,
            (earlier, "nginx"),
            DB,
            during(Asked::each(236.0, 1.5e-4), Asked::each(asked, 1.5e-4)),
        );
        if earlier != 50 {
            dependency(&mut m, (50, "nginx"), DB, |_| Asked::each(0.0, 1.5e-4));
        }
        attempts(&mut m, &format!("50>{DB}"), 0.0, failed, (asked, asked));
        m
    };
    // A reload ends the workers that asked before.
    let report = gateway(236.0, 0.0, 49).explain();
    assert!(report.incidents.iter().flat_map(|i| &i.chain).any(|link| link.condition == "failing-fast"));
    let report = gateway(236.0, 0.0, 50).explain();
    let failing =
        report.incidents.iter().flat_map(|i| &i.chain).find(|link| link.condition == "failing-fast");
    let statement = &failing.expect("it answers with errors").statement;
    assert!(statement.contains("cannot connect to 10.0.0.7:5432 any more"), "{statement}");
    // Most of them come about all the same.
    is_silent(&gateway(2.0, 230.0, 50));
}
