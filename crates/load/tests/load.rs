//! Load on a server in this process, over loopback.

#[path = "load/server.rs"]
mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mitra_load::{
    BodySource, HeaderMap, HeaderValue, Method, Outcome, Plan, Protocol, Schedule, Search, Targets, Work,
};

use crate::server::{Keys, Server, raw_server};

fn plan(server: &Server, path: &str, rate: &str, length: Duration) -> Plan {
    let mut targets = Targets::new();
    targets.add(&format!("http://{}{path}", server.address)).unwrap();
    Plan {
        load: rate.to_owned(),
        targets,
        work: Work::Timed(Schedule { shape: rate.parse().unwrap(), length }),
        method: Method::GET,
        headers: HeaderMap::new(),
        body: BodySource::default(),
        protocol: Protocol::Http1,
        connections: 50,
        streams: 20,
        keeps_alive: true,
        timeout: Duration::from_secs(30),
        tls: None,
        at: None,
    }
}

fn run(plan: &Plan) -> Outcome {
    mitra_load::run(plan, std::future::pending(), || ()).unwrap()
}

fn run_until(plan: &Plan, stop: impl Future<Output = ()>) -> Outcome {
    mitra_load::run(plan, stop, || ()).unwrap()
}

/// Returns when the server has seen a request.
async fn requested(server: &Server) {
    while server.requests() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn all_answered(outcome: &Outcome, n: u64) {
    assert_eq!(
        (outcome.requests, outcome.answered, outcome.statuses.get(&200)),
        (n, n, Some(&n)),
        "{outcome:?}"
    );
    assert_eq!((outcome.latency.count(), outcome.service.count(), outcome.lateness.count()), (n, n, n));
    assert!(outcome.errors.is_empty() && outcome.unfinished == 0, "{outcome:?}");
}

#[test]
fn the_rate_is_kept() {
    let server = Server::start();
    let outcome = run(&plan(&server, "/", "200/s", Duration::from_secs(2)));
    all_answered(&outcome, 400);
    assert_eq!(outcome.received_bytes, 800);
    let offered = outcome.offered_rate().unwrap();
    assert!((offered / 200.0 - 1.0).abs() < 1e-6, "{offered}");
    // Half a second between two requests: no machine is as busy as that.
    let outcome = run(&plan(&server, "/", "2/s", Duration::from_secs(3)));
    all_answered(&outcome, 6);
    assert!(outcome.is_kept() && outcome.cpu_share < 0.9, "{outcome:?}");
}

/// Only the last of four requests is due while the server stalls.
#[test]
fn a_slow_last_answer_is_no_lost_rate() {
    let server = Server::start();
    server.stall(Duration::from_millis(1300), Duration::from_secs(1));
    let outcome = run(&plan(&server, "/", "2/s", Duration::from_secs(2)));
    all_answered(&outcome, 4);
    assert!(outcome.latency.max().unwrap() > 0.5 && outcome.is_kept(), "{outcome:?}");
    // Answers came more slowly than requests.
    assert!(outcome.achieved_rate() < outcome.offered_rate(), "{outcome:?}");
}

/// The server answers nothing: two requests are under way, and the others wait for a connection.
#[test]
fn a_stall_is_in_the_latency_of_a_run_that_was_stopped() {
    let server = Server::start();
    server.stall(Duration::ZERO, Duration::from_secs(3600));
    let mut plan = plan(&server, "/", "100/s", Duration::from_secs(3600));
    plan.connections = 2;
    let outcome = run_until(&plan, async {
        requested(&server).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    assert!(outcome.is_interrupted && !outcome.is_kept(), "{outcome:?}");
    assert_eq!((outcome.answered, outcome.unfinished), (0, outcome.requests), "{outcome:?}");
    assert_eq!(outcome.latency.count(), outcome.requests);
    assert!(outcome.latency.max().unwrap() >= 1.0, "{outcome:?}");
}

/// A server that stalls for a second is seen by each request that is due meanwhile, although four connections have only four requests
/// under way: no coordinated omission.
#[test]
fn a_stall_is_in_the_latency_of_all_requests_that_were_due() {
    let server = Server::start();
    server.stall(Duration::from_secs(1), Duration::from_secs(1));
    let mut plan = plan(&server, "/", "100/s", Duration::from_secs(4));
    plan.connections = 4;
    let outcome = run(&plan);
    all_answered(&outcome, 400);
    assert!(outcome.queued >= 90 && outcome.queued_max >= 90, "{outcome:?}");
    // A hundred of four hundred wait for 0 to 1 s, evenly: 60 of them for 0.4 s and more, 20 for 0.8 s and more.
    let latency = |q: f64| outcome.latency.quantile(q).unwrap();
    assert!(latency(0.85) >= 0.35 && latency(0.95) >= 0.75, "{outcome:?}");
    assert!(outcome.latency.max().unwrap() >= 0.95);
    assert!(latency(0.5) < latency(0.85) / 2.0, "{outcome:?}");
    // What a closed loop would tell: four slow requests, one in a hundred.
    assert!(outcome.service.quantile(0.95).unwrap() < 0.5 * latency(0.95), "{outcome:?}");
}

#[test]
fn http2_has_many_requests_on_a_connection() {
    let server = Server::start();
    let mut plan = plan(&server, "/slow", "200/s", Duration::from_secs(1));
    plan.protocol = Protocol::Http2;
    plan.connections = 2;
    plan.streams = 100;
    let outcome = run(&plan);
    all_answered(&outcome, 200);
    assert_eq!((outcome.connections, server.connections()), (2, 2));
    assert_eq!(outcome.protocol, "HTTP/2");
    // Each answer takes 50 ms: ten of them are under way at a time. One at a time on each, most would wait for seconds.
    assert!(outcome.latency.quantile(0.9).unwrap() < 1.0, "{outcome:?}");
}

/// With one stream on each connection, the requests of a host can only be on different ones.
#[test]
fn http2_uses_all_connections_of_each_host_and_no_more_streams() {
    let (one, other) = (Server::start(), Server::start());
    let mut plan = plan(&one, "/slow", "100/s", Duration::from_secs(1));
    plan.targets.add(&format!("http://{}/slow", other.address)).unwrap();
    plan.protocol = Protocol::Http2;
    plan.connections = 4;
    plan.streams = 1;
    let outcome = run(&plan);
    all_answered(&outcome, 100);
    // At 50 ms each, two at a time answer forty a second of the fifty that are due.
    assert!(outcome.queued > 0 && outcome.service.quantile(0.5).unwrap() >= 0.05, "{outcome:?}");
    assert_eq!((one.connections(), other.connections()), (2, 2));
}

#[test]
fn a_header_host_is_the_authority() {
    let server = Server::start();
    let mut plan = plan(&server, "/", "10/s", Duration::from_millis(500));
    plan.headers.insert("host", HeaderValue::from_static("shop.example:8080"));
    all_answered(&run(&plan), 5);
    assert_eq!(server.authority(), r#"None Some("shop.example:8080")"#);
    plan.protocol = Protocol::Http2;
    all_answered(&run(&plan), 5);
    assert_eq!(server.authority(), r#"Some("shop.example:8080") None"#);
    plan.headers.insert("host", HeaderValue::from_static("no host"));
    assert!(mitra_load::run(&plan, std::future::pending(), || ()).is_err());
}

#[test]
fn connections_are_kept_or_opened_for_each_request() {
    let server = Server::start();
    let mut plan = plan(&server, "/", "100/s", Duration::from_secs(1));
    plan.connections = 3;
    let outcome = run(&plan);
    all_answered(&outcome, 100);
    assert!(outcome.connections <= 3 && server.connections() <= 3, "{outcome:?}");
    plan.keeps_alive = false;
    let outcome = run(&plan);
    all_answered(&outcome, 100);
    assert_eq!(outcome.connections, 100);
}

#[test]
fn a_connection_that_the_server_has_closed_is_opened_again() {
    let server = Server::start();
    let mut plan = plan(&server, "/last", "50/s", Duration::from_secs(1));
    plan.connections = 2;
    let outcome = run(&plan);
    all_answered(&outcome, 50);
    assert_eq!(outcome.connections, 50);
}

#[test]
fn tls_is_checked_and_speaks_both() {
    let Some(keys) = Keys::make() else { return };
    let server = Server::start_tls(&keys);
    let trusted = Arc::new(mitra_http::client_tls(Some(&keys.path("ca.pem"))).unwrap());
    let stranger = Arc::new(mitra_http::client_tls(Some(&keys.path("other.pem"))).unwrap());
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut plan = plan(&server, "/", "50/s", Duration::from_secs(1));
        plan.targets = Targets::new();
        plan.targets.add(&format!("https://{}/", server.address)).unwrap();
        plan.protocol = protocol;
        assert!(mitra_load::run(&plan, std::future::pending(), || ()).is_err(), "https without certificates");
        plan.tls = Some(Arc::clone(&trusted));
        all_answered(&run(&plan), 50);
        plan.tls = Some(Arc::clone(&stranger));
        let outcome = run(&plan);
        assert_eq!((outcome.answered, outcome.errors["tls"].count), (0, 50), "{outcome:?}");
        assert!(outcome.errors["tls"].first.contains("certificate"), "{outcome:?}");
    }
}

#[test]
fn bodies_are_sent_from_files() {
    let server = Server::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    for bytes in [0_u64, 5, 1 << 20] {
        file.as_file().set_len(bytes).unwrap();
        let mut plan = plan(&server, "/length", "20/s", Duration::from_secs(1));
        plan.method = Method::POST;
        plan.body = BodySource::of_file(file.path()).unwrap();
        for protocol in [Protocol::Http1, Protocol::Http2] {
            plan.protocol = protocol;
            let outcome = run(&plan);
            all_answered(&outcome, 20);
            assert_eq!(outcome.sent_bytes, 20 * bytes);
            assert_eq!(outcome.received_bytes, 20 * bytes.to_string().len() as u64);
        }
    }
    assert!(BodySource::of_file(Path::new("/dev/zero")).is_err());
}

/// Only the pieces that are under way are in memory.
#[test]
fn a_large_body_is_not_held_in_memory() {
    let server = Server::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    // A hole, which takes no room on the disk.
    let bytes = 1 << 30;
    file.as_file().set_len(bytes).unwrap();
    let mut plan = plan(&server, "/length", "1/s", Duration::from_millis(500));
    plan.method = Method::POST;
    plan.timeout = Duration::from_secs(600);
    plan.body = BodySource::of_file(file.path()).unwrap();
    let before = peak_kb();
    let outcome = run(&plan);
    all_answered(&outcome, 1);
    assert_eq!(outcome.sent_bytes, bytes);
    let grown = peak_kb() - before;
    assert!(grown < 256_000, "{grown} kB");
}

/// The largest size of this process so far.
fn peak_kb() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_body_that_shrinks_fails_its_request_and_no_other() {
    let server = Server::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let mut plan = plan(&server, "/length", "10/s", Duration::from_secs(1));
    plan.method = Method::POST;
    plan.body = BodySource::of_file(file.path()).unwrap();
    file.as_file().set_len(1000).unwrap();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        plan.protocol = protocol;
        let outcome = run(&plan);
        assert_eq!((outcome.answered, outcome.failed()), (0, 10), "{outcome:?}");
        assert_eq!(outcome.errors["body"].count, 10, "{outcome:?}");
    }
}

#[test]
fn what_is_not_answered_in_time_is_given_up() {
    let server = Server::start();
    let mut plan = plan(&server, "/never", "20/s", Duration::from_secs(1));
    plan.timeout = Duration::from_millis(300);
    let outcome = run(&plan);
    assert_eq!(
        (outcome.requests, outcome.answered, outcome.errors["timeout"].count),
        (20, 0, 20),
        "{outcome:?}"
    );
    // It took so long at the least.
    assert!(outcome.service.quantile(0.5).unwrap() >= 0.299, "{outcome:?}");
    // One connection, so that all but the first wait; what was not sent is counted, and none is lost.
    plan.connections = 1;
    let outcome = run(&plan);
    let (timeout, unsent) = (outcome.errors["timeout"].count, outcome.errors["unsent"].count);
    assert_eq!(timeout + unsent, 20, "{outcome:?}");
    assert!(unsent >= 10 && outcome.latency.count() == 20, "{outcome:?}");
}

#[test]
fn errors_have_their_kind() {
    let server = Server::start();
    let outcome = run(&plan(&server, "/status/503", "20/s", Duration::from_secs(1)));
    assert_eq!((outcome.statuses[&503], outcome.overloaded(), outcome.is_kept()), (20, 20, false));
    let outcome = run(&plan(&server, "/broken", "20/s", Duration::from_secs(1)));
    let known = outcome.errors.get("closed").map_or(0, |e| e.count)
        + outcome.errors.get("reset").map_or(0, |e| e.count);
    assert_eq!((outcome.answered, known), (0, 20), "{outcome:?}");
    let mut plan = plan(&server, "/broken", "20/s", Duration::from_secs(1));
    plan.protocol = Protocol::Http2;
    let outcome = run(&plan);
    assert_eq!((outcome.answered, outcome.errors["reset"].count), (0, 20), "{outcome:?}");
    plan.protocol = Protocol::Http1;
    // Nobody listens there any more.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    plan.targets = Targets::new();
    plan.targets.add(&format!("http://{nobody}/")).unwrap();
    let outcome = run(&plan);
    assert_eq!((outcome.answered, outcome.errors["refused"].count), (0, 20), "{outcome:?}");
    // A refusal is no latency.
    assert_eq!(outcome.latency.count(), 0);
}

#[test]
fn hostile_answers_have_their_kind() {
    let server = Server::start();
    let mut plan = plan(&server, "/", "10/s", Duration::from_secs(1));
    let head = "HTTP/1.1 200 OK\r\n";
    let long = format!("{head}X: {}\r\n\r\n", "x".repeat(1 << 20));
    for (answer, kind) in [
        ("HTTP/9.9 perhaps\r\n\r\n".to_owned(), "protocol"),
        (format!("{head}Content-Length: many\r\n\r\n"), "protocol"),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\nok"), "protocol"),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nok"), "protocol"),
        (long, "protocol"),
        (format!("{head}Content-Length: 100\r\n\r\nok"), "closed"),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nok"), "closed"),
        (String::new(), "closed"),
    ] {
        plan.targets = Targets::new();
        plan.targets.add(&format!("http://{}/", raw_server(answer.clone().into_bytes()))).unwrap();
        let outcome = run(&plan);
        let kinds: Vec<&str> = outcome.errors.keys().map(String::as_str).collect();
        let shown = answer.get(..answer.len().min(100)).unwrap_or_default();
        assert_eq!((outcome.answered, outcome.failed(), kinds), (0, 10, vec![kind]), "{shown}: {outcome:?}");
    }
}

#[test]
fn targets_take_turns() {
    let (one, other) = (Server::start(), Server::start());
    let mut plan = plan(&one, "/status/201", "100/s", Duration::from_secs(1));
    plan.targets.add(&format!("POST http://{}/status/202", other.address)).unwrap();
    plan.connections = 2;
    let outcome = run(&plan);
    assert_eq!((outcome.statuses[&201], outcome.statuses[&202]), (50, 50), "{outcome:?}");
    plan.connections = 1;
    assert!(mitra_load::run(&plan, std::future::pending(), || ()).is_err());
}

#[test]
fn a_log_is_asked_again() {
    let server = Server::start();
    let mut log = String::new();
    for (second, path) in [(0, "/status/201"), (1, "/status/202"), (1, "/status/203"), (2, "/status/204")] {
        log += &format!("::1 - - [27/Nov/2026:10:00:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 1\n");
    }
    log += "::1 - - [27/Nov/2026:10:00:09 +0000] \"POST /x HTTP/1.1\" 200 1\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), log).unwrap();
    let mut plan = plan(&server, "/", "1/s", Duration::from_secs(1));
    plan.work = Work::Logged { log: file.path().to_owned(), speed: 2.0, length: None };
    let start = Instant::now();
    let outcome = run(&plan);
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(outcome.statuses.keys().copied().collect::<Vec<u16>>(), [201, 202, 203, 204]);
    assert_eq!((outcome.requests, outcome.left_out), (4, 1));
    let due = outcome.due.unwrap();
    assert!((due.last - due.first - 1.0).abs() < 1e-4, "{due:?}");
}

#[test]
fn a_run_begins_at_its_time_and_stops_when_it_is_told() {
    let server = Server::start();
    let mut plan = plan(&server, "/never", "100/s", Duration::from_secs(60));
    plan.at = Some(SystemTime::now() + Duration::from_millis(500));
    let start = Instant::now();
    let outcome = run_until(&plan, requested(&server));
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(outcome.is_interrupted);
    assert_eq!((outcome.unfinished, outcome.answered), (outcome.requests, 0), "{outcome:?}");
    let wanted = plan.at.unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(outcome.due.unwrap().first >= wanted, "{outcome:?}");
}

/// A server that answers one request at a time, each after ten milliseconds: a hundred a second, and no more.
#[test]
fn the_knee_is_where_the_server_is_full() {
    let server = Server::start();
    let mut plan = plan(&server, "/one-at-a-time", "1/s", Duration::from_secs(1));
    plan.connections = 1000;
    let rate = |text: &str| text.parse().unwrap();
    let search = |from, to, step| Search { from: rate(from), to: rate(to), step: Duration::from_secs(step) };
    let never = async || std::future::pending::<()>().await;
    let few = mitra_load::find_knee(&plan, &search("100/s", "200/s", 1), never, || ());
    assert!(few.unwrap_err().to_string().contains("1000"));
    let falling = mitra_load::find_knee(&plan, &search("4000/s", "500/s", 2), never, || ());
    assert!(falling.unwrap_err().to_string().contains("lower one first"));
    let knee = mitra_load::find_knee(&plan, &search("500/s", "4000/s", 2), never, || ()).unwrap();
    assert_eq!((knee.rate, knee.is_open, knee.steps.len()), (None, false, 1), "{}", knee.why);
    assert!(knee.why.contains("500/s"), "{}", knee.why);
}
