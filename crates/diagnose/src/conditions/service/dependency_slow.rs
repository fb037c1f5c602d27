//! An address that processes call answers much later than it did, and they wait.
//!
//! The processes sleep meanwhile, and the machine looks idle. Answers are compared with those of the same address before, of
//! all processes together: what is always far away, a report that takes a minute, and a poll that comes back after half a
//! minute are as they were.
//!
//! An address at which a service of this machine answers is no root: that service is slow itself (`service-slow`), and what
//! makes it slow is the cause; unless it gives its answers as fast as ever, and they come late: then the path between the two
//! is slow, as the queue of a shaper between network namespaces is. Nor is one whose segments are lost on the way (`retransmit-storm`).

use std::collections::BTreeSet;

use crate::prelude::*;
use crate::services::{
    self, Address, DEPENDENCY, Servers, Service, Slow, Traffic, local_service, rows_by_address,
};

pub const CONDITION: Condition = Condition {
    id: "dependency-slow",
    title: "a dependency answers late",
    area: "service",
    needs: &[
        "dependency.requests",
        "dependency.wait_time",
        "dependency.latency_p50",
        "dependency.latency_p90",
        "dependency.open",
        "dependency.pid",
        "listener.queue",
    ],
    needs_of: &[services::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: services::DEPENDENCY_SCAN,
        find: are_late,
        need_s: services::NEED_S,
        can_be_steady: true,
    })],
    observe_after: Some(observe),
    causes: &[
        explains("timeout-cascade", "the caller times out waiting for the answer"),
        explains("retry-storm", "what fails or times out is retried"),
        effect("worker-pool-exhausted", "each worker waits for the answer"),
        explains("service-slow", "a request waits while its worker waits for the answer"),
        explains("service-silent", "all threads that could answer wait for it"),
        explains("service-failing", "requests that are not answered in time are abandoned"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("dependency_slow.rs"),
    ..Condition::ROOT
};

/// Processes wait for a fifth of a task's time longer than usual, and for so long: with less nobody lost anything, and
/// what is far away strays for a moment.
const WAITED: f64 = 0.2;
const LASTED_S: f64 = 5.0;

/// An address that answers late.
struct Found<'a> {
    address: Address<'a>,
    rows: Vec<&'a str>,
    slow: Slow,
    /// What serves there on this machine, and is not late itself.
    server: Option<String>,
}

fn observe(view: &View<'_>, others: &Others<'_>) -> Observation {
    if !view.has("dependency.requests") {
        return Observation::needs_as(
            "response times of what processes call (dependency.*)",
            &["dependency.requests"],
        );
    }
    let mut because = "what processes called answered as before".to_owned();
    let mut best: Option<Found<'_>> = None;
    for (address, rows) in rows_by_address(view.set, "dependency.requests") {
        let Some(traffic) = Traffic::of(view.set, &DEPENDENCY, &rows, view.window) else { continue };
        let Some(usual) = services::usual_of_address(view, &address) else { continue };
        let slow = match traffic.slow(&usual) {
            Ok(slow) => slow,
            Err(reason) => {
                if best.is_none() {
                    because = format!("{} {reason}", address.text);
                }
                continue;
            }
        };
        if slow.run.seconds() < LASTED_S || slow.beyond_s < WAITED * slow.run.seconds() {
            because = format!(
                "{} answered late for {}, and processes waited {} longer than usual",
                address.text,
                words::seconds(slow.run.seconds()),
                words::seconds(slow.beyond_s)
            );
        } else {
            match served_by(view, others, &address, &rows, &slow) {
                Err(reason) => because = reason,
                Ok(server) if best.as_ref().is_none_or(|b| slow.beyond_s > b.slow.beyond_s) => {
                    best = Some(Found { address, rows, slow, server });
                }
                Ok(_) => {}
            }
        }
    }
    match best {
        Some(found) => finding(view, &found).active(),
        None => Observation::Inactive(because),
    }
}

/// Whether the address itself is to blame, or the path to what serves there on this machine; an error says who is.
fn served_by(
    view: &View<'_>,
    others: &Others<'_>,
    address: &Address<'_>,
    rows: &[&str],
    slow: &Slow,
) -> Result<Option<String>, String> {
    let lost = others.active.get("retransmit-storm").and_then(|storm| storm.culprit.address.as_deref());
    if lost == Some(address.text) {
        return Err(format!("what is sent to {} is lost on the path", address.text));
    }
    let Some(row) = local_service(view.set, address) else { return Ok(None) };
    let span = slow.run.span();
    let name = services::name(&Servers::of(view, row), row);
    let Some(service) = view.service(row).filter(|service| is_prompt(view, service, slow, span)) else {
        return Err(format!("{} is served on this machine by {name}, which is slow itself", address.text));
    };
    let callers = rows.iter().filter_map(|row| view.set.get("dependency.pid", row)?.last(span));
    let callers: BTreeSet<u32> = callers.map(|pid| pid as u32).collect();
    let busy_s = |pid: &u32| view.process(*pid).map_or(0.0, |process| kept_s(view, process, span));
    if callers.iter().map(busy_s).sum::<f64>() > NOT_THERE * slow.beyond_s {
        return Err(format!("the callers of {} were kept from taking its answers", address.text));
    }
    let p50 =
        service.traffic.median_s(span).map_or_else(String::new, |p50| format!(" in {}", words::seconds(p50)));
    Ok(Some(format!("{name} serves there on this machine and answered{p50}: {BETWEEN}")))
}

const BETWEEN: &str = "what is between them holds the answers up";
/// A tenth of what its callers wait: the rest is on the way.
const NOT_THERE: f64 = 0.1;

/// Whether a service has nobody wait for it that its callers wait for.
fn is_prompt(view: &View<'_>, service: &Service<'_>, slow: &Slow, span: Span) -> bool {
    let Traffic { t, dt, .. } = &service.traffic;
    // Of one that was never late nobody knows a time before.
    let Some(usual) = service.usual.or_else(|| service.traffic.at_best()) else { return false };
    let beyond = service.traffic.beyond_all(&usual);
    let inside = (0..t.len()).filter(|i| span.contains(t[*i]));
    let own_s: f64 = inside.map(|i| beyond[i] * dt[i]).sum();
    let queued =
        |row: &&str| view.set.get("listener.queue", row).and_then(|s| s.max(span)).unwrap_or(0.0) >= 1.0;
    services::port(service.row).is_some()
        && service.traffic.slow(&usual).is_err()
        && own_s <= NOT_THERE * slow.beyond_s
        && !service.rows.iter().any(queued)
}

/// Seconds for which a process could not take an answer: it waited for a CPU, in the kernel, or was stopped.
fn kept_s(view: &View<'_>, process: &Process<'_>, span: Span) -> f64 {
    let stopped = |row: &&&str| {
        let states = view.set.get("task.state", row).map(|s| s.values(span)).unwrap_or_default();
        states.iter().any(|state| *state == f64::from(b'T') || *state == f64::from(b't'))
    };
    let stopped_s = if process.rows.iter().any(|row| stopped(&row)) { span.seconds() } else { 0.0 };
    stopped_s + process.total(view.set, "task.run_delay", span) + process.uninterruptible_s(view.set, span)
}

fn finding(view: &View<'_>, found: &Found<'_>) -> Finding {
    let (slow, address) = (&found.slow, found.address);
    let span = slow.run.span();
    let mut finding = view.finding(&slow.run);
    finding.netns = Some(address.net.id());
    finding.culprit.address = Some(address.text.to_owned());
    let waited = |row: &&str| {
        view.set
            .get("dependency.wait_time", row)
            .or_else(|| view.set.get("dependency.response_time", row))
            .and_then(|s| s.total(span))
            .unwrap_or(0.0)
    };
    let waiting = found.rows.iter().filter(|row| waited(row) > 0.0).copied().collect::<BTreeSet<&str>>();
    let callers = services::callers(view, waiting);
    finding.statement = format!(
        "{}{} {}; {callers} waited {} longer than usual for it",
        address.text,
        address.net.place(),
        slow.words(),
        words::seconds(slow.beyond_s)
    );
    finding.remarks.push(format!("its callers are victims: {callers}"));
    if let Some(server) = &found.server {
        finding.statement.push_str(&format!("; {server}"));
    }
    if let Some(row) = found.rows.iter().max_by(|a, b| waited(a).total_cmp(&waited(b))) {
        finding.prove(
            view,
            &["dependency.latency_p50", "dependency.latency_p90", "dependency.requests"],
            row,
            span,
        );
        finding.prove(view, &["dependency.wait_time", "dependency.open"], row, span);
    }
    finding.confidence = 0.9;
    finding
}

/// Of each address: one where its answers are late.
fn are_late(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let late = |rows: Vec<&str>| {
        if !DEPENDENCY.may_be_late(set, &rows, window) {
            return None;
        }
        let traffic = Traffic::of(set, &DEPENDENCY, &rows, window)?;
        Some(traffic.is_late(&traffic.at_best()?))
    };
    rows_by_address(set, "dependency.requests").into_values().filter_map(late).collect()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    if finding.statement.contains(BETWEEN) {
        return vec![Remedy {
            action: format!("see the queues between the callers and {address}: a shaper, a filter that puts it into a slow class, a \
                     delay that somebody set"),
            command: "tc -s qdisc; tc -s class show dev DEV; tc filter show dev DEV   (in each of the two network namespaces: ip netns \
                      exec NAME …)"
                .to_owned(),
            verify: format!("{} answers as before", words::shell(address)),
            risk: String::new(),
        }];
    }
    vec![
        Remedy {
            action: format!("see what {address} waits for, on its own machine; nothing on this one makes it faster"),
            command: "mitra explain --since -10m   (there)".to_owned(),
            verify: format!("{} answers as before", words::shell(address)),
            risk: String::new(),
        },
        Remedy {
            action: "until then: a timeout for its answers and a circuit breaker, so that workers do not wait for \
                     it".to_owned(),
            command: "timeout of the client library: a few times the usual response time; after some failures fail \
                      fast".to_owned(),
            verify: "requests that need it fail fast, and all others are answered as before".to_owned(),
            risk: "what needs it fails instead of waiting; retries without backoff add to its load".to_owned(),
        },
    ]
}

fn next(finding: &Finding) -> Vec<Next> {
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    let Some(port) = services::port(address) else {
        let path = address.trim_start_matches("unix:");
        return vec![to_measure(
            "which process serves there",
            format!("ss -xlp | grep -F {}", words::shell(path)),
        )];
    };
    let host = words::shell(address.trim_end_matches(port).trim_end_matches(':'));
    vec![
        to_measure(
            "whether it is the network or the remote side: rtt and retransmits of the connections",
            format!("ss -tnip dst {host} dport = :{port}"),
        ),
        to_measure(
            "requests and answers with their times",
            format!("tcpdump -ttt -ni any host {host} and port {port}"),
        ),
    ]
}
