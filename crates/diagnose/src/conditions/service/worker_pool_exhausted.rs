//! All workers of a service wait, and what is asked meanwhile queues until one of them is free.
//!
//! Each worker (process or thread) takes one connection at a time. They sleep with a request each, most often because somebody
//! else does not answer them, so the machine idles; further connections stay in the accept queue. The requests that are open are
//! those in the queue and a number that stays the same: that of the workers. Those that were given up count as open, because
//! the worker and the queue have them still.
//!
//! A pool inside of the program is seen by what no longer comes out of it: requests wait, the program sleeps, and it has stopped
//! calling an address that it called for each request before, though nothing that it asked there is open. Its connections to
//! that address are all taken, by whoever does not give them back.
//!
//! Where nothing was taken at all the service stands still (`service-silent`); where the workers compute, there are too few of
//! them or of CPUs.

use crate::network;
use crate::prelude::*;
use crate::services::{self, Address, Servers, Service};
use crate::stats;
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
    ],
    needs_of: &[services::NEEDS, waits::NEEDS],
    observe,
    causes: &[
        explains("timeout-cascade", "what waits for a worker is given up"),
        explains("retry-storm", "what fails or is given up is asked again"),
        within(
            "service-slow",
            "a request waits until a worker is free, and then for what the worker waits for",
        ),
        within("service-silent", "no worker is left that could answer"),
        within("service-failing", "clients give up before a worker is free"),
        asked("listen-overflow", "no worker is left that accepts"),
    ],
    remedies: &[Advice {
        action: "shorten what the workers wait for (time-outs, a circuit breaker), before there are more of them: those wait too",
        command: "mitra capture offcpu --pid {pid}",
        verify: "ss -ltn: Recv-Q of its socket is 0",
        risk: "more workers ask more of whoever does not answer",
    }],
    next_of: next,
    source: include_str!("worker_pool_exhausted.rs"),
    ..Condition::ROOT
};

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.pid();
    let own = services::ask(finding.culprit.process.as_deref(), &pid);
    let stacks = to_measure("what each worker waits for", format!("mitra capture offcpu --pid {pid}"));
    own.into_iter().chain([stacks]).collect()
}

/// Connections that nobody takes: a worker that is free takes each within a millisecond.
const QUEUED: f64 = 3.0;
const NEED_S: f64 = 3.0;
/// Of a CPU, for each worker: they wait, and do not compute.
const ASLEEP: f64 = 0.1;
/// The number of requests outside of the queue that stays the same: within one, or a quarter, in nearly all samples. The
/// queue and the requests are read one after the other.
const SAME: f64 = 0.25;
const NEARLY_ALL: f64 = 0.75;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("service.open") {
        return Observation::needs_as("requests that are open (service.open)", &["service.open"]);
    }
    let mut because = "no accept queue grew while the workers of its service slept".to_owned();
    for (row, _) in view.each("listener.queue") {
        let Some(high) = view.high("listener.queue", row, QUEUED, NEED_S) else { continue };
        match exhausted(view, row, &high) {
            Ok(finding) => return finding.active(),
            Err(reason) => because = reason,
        }
    }
    match view.services().iter().find_map(|service| kept_inside(view, service)) {
        Some(finding) => finding.active(),
        None => Observation::Inactive(because),
    }
}

/// A share of the usual that is as good as nothing: who tries again, and what is asked by others.
const NEXT_TO_NOTHING: f64 = 0.2;
/// As often a second an address was called that a request needs.
const CALLED: f64 = 1.0;

/// A service whose requests wait inside of it, and that no longer calls what it needs for them.
fn kept_inside(view: &View<'_>, service: &Service<'_>) -> Option<Finding> {
    let (row, traffic, usual) = (service.row, &service.traffic, service.usual?);
    let stands = Signal {
        v: (0..traffic.t.len())
            .map(|i| {
                step(
                    traffic.requests[i] < NEXT_TO_NOTHING * usual.rate
                        && traffic.waiting[i] >= usual.crowd(1.0),
                )
            })
            .collect(),
        t: traffic.t.clone(),
        dt: traffic.dt.clone(),
    };
    let run = stands.run(1.0, NEED_S)?;
    let span = run.span();
    let servers = Servers::of(view, row);
    if servers.used(view, span)? >= ASLEEP || servers.blocked(view.set, span)? >= ASLEEP {
        return None;
    }
    let baseline = view.baseline?;
    let mean = |set: &SeriesSet, row: &str, metric: &str, span: Span| {
        set.get(metric, row).and_then(|series| series.mean(span)).unwrap_or(0.0)
    };
    let own: Vec<&str> = services::called_by(view.set, &servers);
    // Somebody elsewhere keeps them waiting.
    let waits = |row: &&str| {
        mean(view.set, row, "dependency.wait_time", span)
            + mean(view.set, row, "dependency.connect_time", span)
    };
    if own.iter().map(waits).fold(0.0, f64::max) >= ASLEEP {
        return None;
    }
    let called = |row: &str, set: &SeriesSet, span: Span| mean(set, row, "dependency.requests", span);
    let before = |row: &str| called(row, view.base_set, baseline);
    let stopped =
        |row: &&&str| before(row) >= CALLED && called(row, view.set, span) < NEXT_TO_NOTHING * before(row);
    let pool = own.iter().filter(stopped).max_by(|a, b| before(a).total_cmp(&before(b)))?;
    let mut finding = view.finding(&run);
    finding.netns = Some(network::device(row).1.id());
    finding.culprit.address = Some(Address::of(row).text.to_owned());
    finding.culprit.process.clone_from(&servers.comm);
    finding.culprit.pid = servers.pid;
    finding.statement = format!(
        "requests wait inside of {}: it called {} {} times a second and has stopped, though nothing that it asked there is \
         open; none of its connections there is free, or its threads wait for each other",
        services::name(&servers, row),
        Address::called(pool).text,
        words::count(before(pool)),
    );
    finding.client_wait_s = view.service(row).and_then(|service| service.beyond_s(span));
    finding.prove(view, &["service.open", "service.requests", "service.wait_time"], row, span);
    finding.prove(view, &["dependency.requests"], pool, span);
    finding.despite = vec!["lock-queue", "dependency-slow", "dependency-unreachable"];
    let is_known = waits::follow(view, &mut finding, &servers, row, span);
    finding.confidence = if is_known { 0.9 } else { 0.7 };
    Some(finding)
}

fn exhausted<'a>(view: &View<'a>, row: &'a str, high: &High) -> Result<Finding, String> {
    let span = high.run.span();
    let servers = Servers::of(view, row);
    let name = services::name(&servers, row);
    let (Some(open), Some(queue)) = (view.of("service.open", row), view.of("listener.queue", row)) else {
        return Err(format!("{name} has a queue, and the requests that are open are not known"));
    };
    let mut busy = queue.within(span).zip(&open.within(span), |queue, open| open - queue);
    // Whoever gives up leaves the requests that are open, and stays in the queue, or with the worker.
    let mut given_up = 0.0;
    let abandoned = view.of("service.abandoned", row).unwrap_or_default();
    for i in 0..busy.t.len() {
        given_up +=
            abandoned.t.binary_search(&busy.t[i]).map_or(0.0, |at| abandoned.v[at] * abandoned.dt[at]);
        busy.v[i] += given_up;
    }
    let mut values = busy.v.clone();
    let workers = stats::median(&mut values).unwrap_or(0.0);
    if workers < 1.0 {
        return Err(format!("{name} has taken none of the requests that wait"));
    }
    let is_same = |n: &&f64| (**n - workers).abs() <= (SAME * workers).max(1.0);
    if (busy.v.iter().filter(is_same).count() as f64) < NEARLY_ALL * busy.v.len() as f64 {
        return Err(format!("the number of requests that {name} works on at a time changes"));
    }
    let used = servers.used(view, span);
    let Some(used) = used else { return Err(format!("what the workers of {name} do is not known")) };
    if used >= ASLEEP * workers {
        return Err(format!("the workers of {name} take {} of a CPU", words::percent(used)));
    }
    let mut finding = view.finding(&high.run);
    finding.netns = Some(network::device(row).1.id());
    finding.culprit.address = Some(Address::of(row).text.to_owned());
    finding.culprit.process.clone_from(&servers.comm);
    finding.culprit.pid = servers.pid;
    let beyond = view.set.get("service.wait_time", row).and_then(|s| s.mean(span)).unwrap_or(workers);
    let walk = services::walk(view, row, span, beyond);
    if let Some(inner) = walk.services.get(1) {
        let inner = services::name(&Servers::of(view, inner), inner);
        return Err(format!("the workers of {name} wait for {inner}, which is late itself"));
    }
    let targets: Vec<&str> = walk.elsewhere.iter().map(|address| address.text).collect();
    let waits = if targets.is_empty() { String::new() } else { format!(" for {}", targets.join(", ")) };
    finding.client_wait_s = view.service(row).and_then(|service| service.beyond_s(span));
    let queued = words::count(high.peak);
    finding.statement = match workers.round() {
        workers if workers > 1.0 => format!(
            "all {} workers of {name} wait{waits}, and up to {queued} connections queue for them",
            words::count(workers)
        ),
        _ => format!("the only worker of {name} waits{waits}, and up to {queued} connections queue for it"),
    };
    finding.prove(
        view,
        &["listener.queue", "listener.backlog", "service.open", "service.requests"],
        row,
        span,
    );
    finding.despite = services::despite(view, &walk, span);
    let is_known = waits::follow(view, &mut finding, &servers, row, span);
    finding.confidence = if targets.is_empty() && !is_known { 0.7 } else { 0.9 };
    Ok(finding)
}
