//! All workers of a service wait, and what is asked meanwhile queues until one of them is free.
//!
//! Each worker (process or thread) takes one connection at a time. They sleep with a request each, most often because
//! something else does not answer them, so the machine idles; further connections stay in the accept queue. The
//! requests that are open are those in the queue and a number that stays the same: that of the workers. Those that were
//! given up count as open, because the worker and the queue have them still.
//!
//! Where workers are processes of one thread each it is also seen by how many of them have a request.
//!
//! A pool inside of the program is seen by what no longer comes out of it: requests wait, the program sleeps, and it has stopped
//! calling an address that it called for each request before, though nothing that it asked there is open. Its connections to
//! that address are all taken, by requests that do not give them back.
//!
//! Threads of a Java program that all wait for each other are seen by what they do not wait for: nothing outside can end that.
//!
//! Clients may keep the workers too: each reads from a connection on which no whole request comes.
//!
//! A program with a few threads that waits for the events of many connections has no workers, but a limit (`connection-limit`).
//! Where nothing was taken at all the service stands still (`service-silent`); where the workers compute, there are too few of
//! them or of CPUs.

use crate::prelude::*;
use crate::services::{
    self, ASLEEP, Address, Calls, Places, QUEUED, QUEUED_S, Servers, Service, Traffic, Usual,
};
use crate::waits;

pub const CONDITION: Condition = Condition {
    id: "worker-pool-exhausted",
    title: "all workers of a service wait",
    area: "service",
    needs: &[
        "listener.queue",
        "listener.backlog",
        "service.open",
        "service.wait_time",
        "service.requests",
        "service.abandoned",
        "dependency.requests",
        "dependency.wait_time",
        "dependency.connect_time",
        "task.cpu_time",
        "jvm.old_max",
    ],
    needs_of: &[services::NEEDS, services::POOLS, waits::NEEDS],
    observe,
    causes: &[
        explains("timeout-cascade", "what waits for a worker times out"),
        explains("retry-storm", "what fails or times out is retried"),
        within(
            "service-slow",
            "a request waits until a worker is free, and then for what the worker waits for",
        ),
        within("service-silent", "no worker is left that could answer"),
        within("service-failing", "clients give up before a worker is free"),
        explains("connection-limit", "each worker that it may have waits"),
        asked("listen-overflow", "no worker is left that accepts"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("worker_pool_exhausted.rs"),
    ..Condition::ROOT
};

/// As [`services::pinned`] says it.
const IDLE: &str = "are idle in a transaction";

fn remedies(finding: &Finding) -> Vec<Remedy> {
    if waits::are_clients_slow(finding) {
        return vec![Remedy {
            action: "give clients a time limit for a request and between two, or put a proxy before the service that takes requests whole \
                     before it passes them on"
                .to_owned(),
            command: "Apache: RequestReadTimeout, KeepAliveTimeout; nginx: client_header_timeout, client_body_timeout, \
                      proxy_request_buffering on; haproxy: timeout http-request, option http-buffer-request"
                .to_owned(),
            verify: "ss -ltn: Recv-Q of its socket is 0".to_owned(),
            risk: "clients on slow lines are cut off".to_owned(),
        }];
    }
    if finding.statement.contains(IDLE) {
        return vec![
            Remedy {
                action: "let whoever keeps these transactions end them, or restart it; sessions that idle in a transaction can be \
                         ended at the server"
                    .to_owned(),
                command: "psql -c \"SELECT pid, client_addr, client_port, state_change, left(query, 60) FROM pg_stat_activity WHERE \
                          state LIKE 'idle in transaction%' ORDER BY state_change\"; then SELECT pg_terminate_backend(PID)"
                    .to_owned(),
                verify: "no session stays idle in a transaction; in pgbouncer SHOW POOLS: cl_waiting is 0".to_owned(),
                risk: "what the transaction had changed and not committed is lost".to_owned(),
            },
            Remedy {
                action: "let server and pool end transactions that are left open".to_owned(),
                command: "ALTER SYSTEM SET idle_in_transaction_session_timeout = '30s'; SELECT pg_reload_conf(); in pgbouncer.ini \
                          idle_transaction_timeout = 30"
                    .to_owned(),
                verify: "no session stays idle in a transaction for longer".to_owned(),
                risk: "a client that thinks for longer inside a transaction gets an error".to_owned(),
            },
        ];
    }
    let shorten = Remedy {
        action: "shorten what the workers wait for (timeouts, a circuit breaker), before there are more of them: those wait too"
            .to_owned(),
        command: format!("mitra capture offcpu --pid {}", finding.pid()),
        verify: "ss -ltn: Recv-Q of its socket is 0".to_owned(),
        risk: "more workers put more load on what does not answer".to_owned(),
    };
    if let Some(remedy) = waits::go_on(finding) {
        return vec![remedy, shorten];
    }
    if !finding.culprit.process.as_deref().is_some_and(|comm| comm.starts_with("php-fpm")) {
        return vec![shorten];
    }
    vec![
        shorten,
        Remedy {
            action: "let the pool log what its slow requests wait for, and end those that never come back".to_owned(),
            command: "request_slowlog_timeout = 2s, slowlog = /var/log/php-fpm.slow.log, request_terminate_timeout = 30s in \
                      the pool (php-fpm.d/www.conf); then reload it"
                .to_owned(),
            verify: "the slow log has a stack for each request that took longer".to_owned(),
            risk: "request_terminate_timeout ends requests that are slow on purpose".to_owned(),
        },
        Remedy {
            action: "raise pm.max_children, if what the workers wait for can take more and memory is left for them".to_owned(),
            command: "pm.max_children = N in the pool; then reload it".to_owned(),
            verify: "its status page (pm.status_path): listen queue is 0".to_owned(),
            risk: "each worker takes memory, and puts more load on what does not answer".to_owned(),
        },
    ]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.pid();
    // Its culprit is the Java program itself.
    if finding.statement.contains(EACH_OTHER) {
        return vec![to_measure("what each of its threads waits for", format!("jstack {pid}"))];
    }
    let own = services::ask(finding.culprit.process.as_deref(), &pid);
    let stacks = to_measure("what each worker waits for", format!("mitra capture offcpu --pid {pid}"));
    own.into_iter().chain([stacks]).collect()
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("service.open") {
        return Observation::needs_as("requests that are open (service.open)", &["service.open"]);
    }
    let mut because = "no accept queue grew while the workers of its service slept".to_owned();
    for (row, _) in view.each("listener.queue") {
        let Some(high) = view.high("listener.queue", row, QUEUED, QUEUED_S) else { continue };
        if view.service(row).is_some_and(|service| answers_more(view, service, high.run.span())) {
            because = "the workers of the service that has a queue answer more than before".to_owned();
            continue;
        }
        match exhausted(view, row, &high.run, high.peak) {
            Ok(finding) => return finding.active(),
            Err(reason) => because = reason,
        }
        if let Some(finding) = kept_by_clients(view, row, &high.run, high.peak) {
            return finding.active();
        }
    }
    let services = view.services();
    if let Some(finding) = services.iter().find_map(|service| barely_exhausted(view, service)) {
        return finding.active();
    }
    let of_pool = || services.iter().find_map(|service| kept_inside(view, service));
    let of_itself = || services.iter().find_map(|service| waits_for_itself(view, service));
    match services.iter().find_map(|service| are_busy(view, service)).or_else(of_pool).or_else(of_itself) {
        Some(finding) => finding.active(),
        None => Observation::Inactive(because),
    }
}

/// Whether more is answered than before, by as much as is load (`load-increase`): workers that wait for something answer less.
fn answers_more(view: &View<'_>, service: &Service<'_>, span: Span) -> bool {
    let rate = view.set.get("service.requests", service.row).and_then(|requests| requests.mean(span));
    service.usual.zip(rate).is_some_and(|(usual, rate)| usual.rate > 0.0 && rate >= MORE * usual.rate)
}

/// Times as many answers.
const MORE: f64 = 1.5;

/// Of the worker processes as many have a request on average: the next one finds none free most of the time.
const BUSY: f64 = 0.85;
/// Of a pool that was half as busy before a little more is no trouble.
const WAS_BUSY: f64 = 0.5 * BUSY;
/// Of so few workers one that is free is a large part.
const WORKERS_MIN: f64 = 4.0;

/// Worker processes of one thread each, as many as ever, of which nearly all have had a request for some time, and sleep.
fn are_busy<'a>(view: &View<'a>, service: &Service<'a>) -> Option<Finding> {
    let (row, usual) = (service.row, service.usual?);
    let servers = Servers::of(view, row);
    // Each session of PostgreSQL is a process of its own: there are as many as its clients want.
    if servers.comm.as_deref() == Some("postgres") {
        return None;
    }
    let is_master = |pid: u32| servers.processes.iter().any(|p| p.ppid == Some(pid));
    let (masters, workers): (Vec<&Process<'_>>, Vec<&Process<'_>>) =
        servers.processes.iter().copied().partition(|p| is_master(p.pid));
    let many = workers.len() as f64;
    if masters.len() != 1 || many < WORKERS_MIN || workers.iter().any(|p| p.rows.len() != 1) {
        return None;
    }
    // In the mean of each second: clients that ask once a second are all open, or none, whenever it is looked at.
    let traffic = &service.traffic;
    let waiting = Signal { t: traffic.t.clone(), dt: traffic.dt.clone(), v: traffic.waiting.clone() };
    let high = view.high_signal(&waiting, BUSY * many, QUEUED_S, Some(usual.waiting))?;
    let span = high.run.span();
    // More of them come as long as there may be more.
    let came = workers.iter().filter(|p| p.first_seen(view.set).is_some_and(|t| t > span.since)).count();
    let [delayed, blocked] =
        [servers.rate(view.set, "task.run_delay", span), servers.blocked(view.set, span)]
            .map(|of| of.unwrap_or(0.0));
    let works = servers.used(view, span)? + delayed + blocked;
    let is_usual = usual.waiting > WAS_BUSY * many;
    if is_usual || came > 0 || works >= ASLEEP * many || servers.are_often_stopped(view.set, span) {
        return None;
    }
    let walk = services::walk(view, row, span, high.during);
    if walk.services.len() > 1 {
        return None;
    }
    let mut finding = view.finding(&high.run);
    servers.blame(&mut finding, row);
    finding.client_wait_s = service.beyond_s(span);
    finding.statement = format!(
        "{} of the {} workers of {} have a request and wait: the next one finds none free most of the time",
        words::count(high.during.min(many).round()),
        words::count(many),
        services::name(&servers, row)
    );
    finding.prove(view, &["service.open", "service.requests", "service.wait_time"], row, span);
    finding.despite = services::despite(view, &walk, span);
    finding.remarks.extend(services::full(view, &servers, span));
    let is_known = follow(view, &mut finding, &servers, row, span).ok()?;
    finding.confidence = if is_known || !walk.elsewhere.is_empty() { 0.85 } else { 0.7 };
    Some(finding)
}

/// A share of the usual that is as good as nothing: who tries again, and what is asked by others.
const NEXT_TO_NOTHING: f64 = 0.2;
/// As often a second an address was called that a request needs.
const CALLED: f64 = 1.0;

/// One where next to nothing is answered and more requests wait than usual.
fn standing(traffic: &Traffic, usual: &Usual) -> Signal {
    let stands = |i: usize| {
        step(traffic.requests[i] < NEXT_TO_NOTHING * usual.rate && traffic.waiting[i] >= usual.crowd(1.0))
    };
    let v = (0..traffic.t.len()).map(stands).collect();
    Signal { t: traffic.t.clone(), dt: traffic.dt.clone(), v }
}

const EACH_OTHER: &str = "so that they wait for each other or for the time";

/// Whether a process is a Java program: each of its threads does one thing at a time, and those of its machine wait for each other, too.
/// The only thread of an event loop waits for connections while it waits for everything else.
fn is_java(view: &View<'_>, pid: u32) -> bool {
    view.each("jvm.old_max").any(|(row, _)| row.parse() == Ok(pid))
}

/// A program of many threads whose requests wait inside of it, and of which each thread waits for another one or to be asked.
fn waits_for_itself<'a>(view: &View<'a>, service: &Service<'a>) -> Option<Finding> {
    let (row, usual) = (service.row, service.usual?);
    let run = standing(&service.traffic, &usual).run(1.0, QUEUED_S)?;
    let span = run.span();
    let servers = Servers::of(view, row);
    let pid = servers.pid.filter(|pid| is_java(view, *pid))?;
    if servers.used(view, span)? >= ASLEEP || servers.blocked(view.set, span)? >= ASLEEP {
        return None;
    }
    let waits = waits::of_own(view, &servers, span)?;
    let waited_s = service.beyond_s(span)?;
    let walk = services::walk(view, row, span, waited_s / run.seconds().max(1.0));
    if walk.services.len() > 1 || !walk.elsewhere.is_empty() {
        return None;
    }
    let mut finding = view.finding(&run);
    servers.blame(&mut finding, row);
    finding.culprit.pid = Some(pid);
    finding.statement = format!(
        "requests wait inside of {}: none of its {} threads runs, or waits for anything outside, {EACH_OTHER}: tasks of a \
         pool for tasks of the same pool, a lock that is not given back, a pause",
        services::name(&servers, row),
        words::count(waits.round())
    );
    finding.client_wait_s = Some(waited_s);
    finding.prove(view, &["service.open", "service.requests", "service.wait_time"], row, span);
    finding.prove(view, &[waits::WAITS], &format!("{pid}>futex"), span);
    finding.infer_culprit();
    finding.confidence = 0.65;
    Some(finding)
}

/// A service whose requests wait inside of it, and that no longer calls what it needs for them.
fn kept_inside(view: &View<'_>, service: &Service<'_>) -> Option<Finding> {
    let (row, traffic, usual) = (service.row, &service.traffic, service.usual?);
    let run = standing(traffic, &usual).run(1.0, QUEUED_S)?;
    let span = run.span();
    let servers = Servers::of(view, row);
    if servers.used(view, span)? >= ASLEEP || servers.blocked(view.set, span)? >= ASLEEP {
        return None;
    }
    // What calls the service under its own name is a client of it: a standby, a health check.
    let is_own = |address: &Address<'_>| service.rows.iter().any(|row| address.reaches(&Address::of(row)));
    let mut own = services::calls_of(view, &servers, span);
    own.retain(|calls| !is_own(&calls.address));
    // Somebody elsewhere keeps them waiting.
    let mut rows = services::called_by(view, view.set, &servers);
    rows.retain(|row| !is_own(&Address::called(row)));
    let mean = |row: &str, metric: &str| view.set.get(metric, row).and_then(|s| s.mean(span)).unwrap_or(0.0);
    let waits = |row: &&str| mean(row, "dependency.wait_time") + mean(row, "dependency.connect_time");
    if rows.iter().map(waits).fold(0.0, f64::max) >= ASLEEP {
        return None;
    }
    let stopped =
        |calls: &&Calls<'_>| calls.rate.1 >= CALLED && calls.rate.0 < NEXT_TO_NOTHING * calls.rate.1;
    let pool = own.iter().filter(stopped).max_by(|a, b| a.rate.1.total_cmp(&b.rate.1))?;
    let mut finding = view.finding(&run);
    servers.blame(&mut finding, row);
    finding.statement = format!(
        "requests wait inside of {}: it called {} {} times a second and has stopped, though nothing that it asked there is \
         open; none of its connections there is free, or its threads wait for each other",
        services::name(&servers, row),
        pool.address.text,
        words::count(pool.rate.1),
    );
    let pinned = services::pinned(view, &servers, row, span);
    if let Some(pinned) = &pinned {
        finding.statement =
            format!("requests wait inside of {}: {}", services::name(&servers, row), pinned.words);
    }
    finding.client_wait_s = view.service(row).and_then(|service| service.beyond_s(span));
    finding.prove(view, &["service.open", "service.requests", "service.wait_time"], row, span);
    for row in rows.iter().filter(|row| Address::called(row) == pool.address) {
        finding.prove(view, &["dependency.requests"], row, span);
    }
    finding.despite = vec!["lock-queue", "dependency-slow", "dependency-unreachable"];
    let is_known = follow(view, &mut finding, &servers, row, span).ok()?;
    if !is_known {
        finding.remarks.extend(services::overlapping(view, &servers, row, span));
    }
    finding.confidence = if is_known { 0.9 } else { 0.7 };
    if let Some(pinned) = pinned {
        pinned.blame(view, &mut finding);
    }
    Some(finding)
}

/// Who has a place free takes each connection within a millisecond: by chance one is not taken yet in one look of many.
const OFTEN: f64 = 0.5;

/// A late service of which one or two connections mostly wait to be taken: about as much is asked as it has places.
fn barely_exhausted<'a>(view: &View<'a>, service: &Service<'a>) -> Option<Finding> {
    let slow = service.slow()?.ok()?;
    let span = slow.run.span();
    service.rows.iter().find_map(|row| {
        let queue = view.of("listener.queue", row)?.within(span);
        let queued = queue.v.iter().filter(|queued| **queued >= 1.0).count();
        if (queued as f64) < OFTEN * queue.v.len() as f64 {
            return None;
        }
        let peak = queue.v.iter().copied().fold(0.0, f64::max);
        exhausted(view, row, &slow.run, peak).ok()
    })
}

fn exhausted<'a>(view: &View<'a>, row: &'a str, run: &Run, peak: f64) -> Result<Finding, String> {
    let span = run.span();
    let Places { servers, taken: workers, are_of_events, walk } = Places::full(view, row, span)?;
    let name = services::name(&servers, row);
    if are_of_events {
        return Err(format!("{name} has no workers: each of its threads waits for many connections"));
    }
    let mut finding = view.finding(run);
    servers.blame(&mut finding, row);
    let targets = &walk.elsewhere;
    let waits =
        if targets.is_empty() { String::new() } else { format!(" for {}", services::addresses(targets)) };
    finding.client_wait_s = view.service(row).and_then(|service| service.beyond_s(span));
    let queue = match words::count(peak) {
        one if one == "1" => "a connection queues".to_owned(),
        many => format!("up to {many} connections queue"),
    };
    finding.statement = match workers.round() {
        workers if workers > 1.0 => {
            format!("all {} workers of {name} wait{waits}, and {queue} for them", words::count(workers))
        }
        _ => format!("the only worker of {name} waits{waits}, and {queue} for it"),
    };
    finding.prove(
        view,
        &["listener.queue", "listener.backlog", "service.open", "service.requests"],
        row,
        span,
    );
    finding.despite = services::despite(view, &walk, span);
    finding.remarks.extend(services::full(view, &servers, span));
    let is_known = follow(view, &mut finding, &servers, row, span)?;
    if targets.is_empty() && !is_known {
        finding.remarks.extend(services::overlapping(view, &servers, row, span));
    }
    finding.confidence = if targets.is_empty() && !is_known { 0.7 } else { 0.9 };
    Ok(finding)
}

/// A service each of whose threads reads from a client that sends nothing, while others queue for it. A connection on which nothing was
/// asked is no request.
fn kept_by_clients(view: &View<'_>, row: &str, run: &Run, peak: f64) -> Option<Finding> {
    let span = run.span();
    let servers = Servers::of(view, row);
    let clients = waits::clients(view, &servers, span)?;
    let able = clients.threads.max(1.0);
    if servers.used(view, span)? >= ASLEEP * able || servers.are_often_stopped(view.set, span) {
        return None;
    }
    let mut finding = view.finding(run);
    servers.blame(&mut finding, row);
    finding.client_wait_s = view.service(row).and_then(|service| service.beyond_s(span));
    finding.statement = format!(
        "{} takes no connection, and up to {} queue for it: {}",
        services::name(&servers, row),
        words::count(peak),
        clients.words
    );
    finding.prove(
        view,
        &["listener.queue", "listener.backlog", "service.open", "service.requests"],
        row,
        span,
    );
    clients.blame(view, &mut finding, span);
    finding.confidence = 0.85;
    Some(finding)
}

/// Says what the threads wait for. An error where they wait for answers of another service: that one is the trouble.
fn follow(
    view: &View<'_>,
    finding: &mut Finding,
    servers: &Servers<'_, '_>,
    row: &str,
    span: Span,
) -> Result<bool, String> {
    let is_known = waits::follow(view, finding, servers, row, span)
        || waits::clients(view, servers, span).is_some_and(|clients| clients.tell(view, finding, span));
    let end = finding.culprit.pid.filter(|pid| is_known && Some(*pid) != servers.pid);
    match end.and_then(|pid| services::called_service(view, servers, pid)) {
        Some(inner) => {
            let [outer, inner] =
                [services::name(servers, row), services::name(&Servers::of(view, inner), inner)];
            Err(format!("the workers of {outer} wait for answers of {inner}"))
        }
        None => Ok(is_known),
    }
}
