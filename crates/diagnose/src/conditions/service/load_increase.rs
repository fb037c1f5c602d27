//! A service is asked much more than before, and each request costs as much as ever: it is the load.
//!
//! Nothing is broken. What is asked, divided by what it took: where a request costs several times the CPU of before it is
//! the requests that changed, or the program, and not their number. Where less is answered than before something holds the
//! service back, and the requests that pile up are an effect: unless it works on datagrams meanwhile, of which several times as many
//! come as before.
//!
//! Load that rises and is answered as fast as ever is no incident, unless those who connect wait in the accept queue, of which the answers
//! tell nothing.

use crate::network;
use crate::prelude::*;
use crate::services::{self, Address, Datagrams, QUEUED, QUEUED_S, Servers, Service, Slow, Usual};

pub const CONDITION: Condition = Condition {
    id: "load-increase",
    title: "a service gets far more requests than before",
    area: "service",
    needs: &[
        "service.requests",
        "service.unanswered",
        "service.abandoned",
        "service.connections",
        "service.latency_p50",
        "service.wait_time",
        "service.open",
        "dependency.requests",
        "dependency.connect_time",
        "listener.queue",
        "task.cpu_time",
        "task.run_delay",
    ],
    needs_of: &[services::NEEDS, services::DATAGRAMS],
    observe_after: Some(observe),
    causes: &[
        explains("service-slow", "more requests come than are answered"),
        explains("service-failing", "more requests come than are answered"),
        within("single-thread-bottleneck", "the thread is busy with the requests"),
        within("cpu-hog", "the CPU goes into the requests"),
        within("runqueue-saturation", "the tasks are those that work on the requests"),
        asked("listen-overflow", "more connections come than are accepted"),
        explains("cpu-saturated", "the requests take the CPUs"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("load_increase.rs"),
    ..Condition::ROOT
};

/// Times as many requests as before: at half of its capacity a server is then three quarters busy, and its queue twice as long.
const MORE: f64 = 1.5;
/// A request costs the same within this factor: caches, and idle CPUs that clock higher, make less.
const SAME_COST: f64 = 1.5;
/// CPU of a request that can be told from the process's own housekeeping.
const COST_S: f64 = 20e-6;
const NEED_S: f64 = 3.0;
/// A thread that works, or has its turn next, for half of the time.
const AT_WORK: f64 = 0.5;
/// Of what a service is asked less than that at an address is next to nothing.
const RARE: f64 = 0.1;

/// A service that is asked more.
struct Loaded<'a> {
    row: &'a str,
    run: Run,
    beyond_s: f64,
    usual: Usual,
    offered: f64,
    cost: Option<(f64, f64)>,
    datagrams: Option<Datagrams>,
}

fn observe(view: &View<'_>, others: &Others<'_>) -> Observation {
    if !view.has("service.requests") {
        return Observation::needs_as("requests of services (service.requests)", &["service.requests"]);
    }
    let mut because = "no service that got more requests than before answered late".to_owned();
    let mut best: Option<Loaded<'_>> = None;
    for service in view.services() {
        match loaded(view, others, service) {
            Ok(Some(one)) if best.as_ref().is_none_or(|b| one.beyond_s > b.beyond_s) => best = Some(one),
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(loaded) => finding(view, &loaded).active(),
        None => Observation::Inactive(because),
    }
}

/// Whether a service is slow because it is asked more; an error is the reason why not.
fn loaded<'a>(
    view: &View<'a>,
    others: &Others<'_>,
    service: &Service<'a>,
) -> Result<Option<Loaded<'a>>, String> {
    let row = service.row;
    let Some(usual) = service.usual else { return Ok(None) };
    let slow = service.slow().and_then(Result::ok);
    let Some(late) = slow.as_ref().map(Late::of).or_else(|| queued(view, service, &usual)) else {
        return Ok(None);
    };
    let servers = Servers::of(view, row);
    let name = services::name(&servers, row);
    // What is held on purpose, such as a question for the next message, takes no CPU.
    let waiting = late.beyond_s / late.run.seconds().max(1.0);
    let of = |metric: &str| servers.rate(view.set, metric, late.run.span()).unwrap_or(0.0);
    let is_at_work = of("task.cpu_time") + of("task.run_delay") >= AT_WORK * waiting.min(1.0);
    if !is_at_work && services::only_newcomers_wait(view, service, late.run.span(), waiting) {
        return Err(format!("only those wait for {name} who did not ask it before"));
    }
    let offered = offered(view, service);
    let beyond_s = late.beyond_s;
    if let Some(datagrams) = slow.and_then(|slow| Datagrams::of(view, &servers, row, &slow, &usual)) {
        let asked = offered.within(late.run.span()).mean().unwrap_or(0.0);
        let (run, datagrams) = (late.run, Some(datagrams));
        return Ok(Some(Loaded { row, run, beyond_s, usual, offered: asked, cost: None, datagrams }));
    }
    let threshold = view.threshold(MORE * usual.rate, &service.base_rates(view));
    let Some(high) = view.high_signal(&offered, threshold, NEED_S, Some(usual.rate)) else {
        let inside = offered.within(late.run.span()).mean().unwrap_or(0.0);
        return Err(format!(
            "{name} got {} requests/s ({} before)",
            words::count(inside),
            words::count(usual.rate)
        ));
    };
    // Answers that come in bursts, because something holds them back in between, are no more of them.
    if high.during < threshold {
        return Err(format!("{name} got {} requests/s on average", words::count(high.during)));
    }
    if late.run.end <= high.run.onset || high.run.end <= late.run.onset || late.rate < 0.8 * usual.rate {
        return Err(format!("{name} was late when it got no more requests than before"));
    }
    if let Some(limit) = services::limit_reached(view, &servers, late.run.span()) {
        return Err(format!("{name} has reached {limit}, its own limit, before the load could"));
    }
    let full = others.active.get("fd-exhaustion").and_then(|full| full.culprit.pid);
    if full.is_some_and(|pid| servers.processes.iter().any(|p| p.pid == pid)) {
        return Err(format!("{name} has no file descriptors left, and cannot accept more"));
    }
    // Requests of another kind cost what they cost.
    let cost = (!is_of_another_kind(view, service, &usual, &high))
        .then(|| servers.per_request(view, &service.rows, "task.cpu_time", late.run.span()))
        .flatten();
    // One thread that does all the work took no more for a request than it took to answer. Its housekeeping, which is most of the CPU of a
    // service that is hardly asked, is not the requests'.
    let one_thread = others.active.get("single-thread-bottleneck").and_then(|full| full.culprit.pid);
    let is_one_thread = one_thread.is_some_and(|pid| servers.processes.iter().any(|p| p.pid == pid));
    if let Some((now, before)) = cost.filter(|(now, _)| *now >= COST_S) {
        if now > SAME_COST * before {
            return Err(format!(
                "each request to {name} cost {} of CPU ({} before)",
                words::seconds(now),
                words::seconds(before)
            ));
        }
        if is_one_thread && now > SAME_COST * usual.each_s {
            return Err(format!(
                "each request to {name} cost {} of CPU, and before it was answered in {}",
                words::seconds(now),
                words::seconds(usual.each_s)
            ));
        }
    }
    Ok(Some(Loaded { row, run: high.run, beyond_s, usual, offered: high.during, cost, datagrams: None }))
}

/// When clients wait.
struct Late {
    run: Run,
    /// Answers per second.
    rate: f64,
    /// Seconds that clients waited longer than usual.
    beyond_s: f64,
}

impl Late {
    fn of(slow: &Slow) -> Late {
        Late { run: slow.run, rate: slow.rate, beyond_s: slow.beyond_s }
    }
}

/// Connections that wait to be accepted while more is answered than ever: the answers are as fast, and whoever connects waits.
fn queued(view: &View<'_>, service: &Service<'_>, usual: &Usual) -> Option<Late> {
    let high = view.high("listener.queue", service.row, QUEUED, QUEUED_S)?;
    let span = high.run.span();
    let rate = view.set.get("service.requests", service.row)?.mean(span)?;
    let own = Address::of(service.row);
    let callers = view.each("dependency.connect_time").filter(|(row, _)| Address::called(row).reaches(&own));
    let connecting = callers.filter_map(|(_, series)| series.total(span)).fold(0.0, |a, b| a + b);
    let beyond_s = connecting.max(service.beyond_s(span).unwrap_or(0.0));
    (rate >= MORE * usual.rate).then_some(Late { run: high.run, rate, beyond_s })
}

/// Whether most of what is asked more is asked at addresses that hardly anybody had asked before.
fn is_of_another_kind(view: &View<'_>, service: &Service<'_>, usual: &Usual, high: &High) -> bool {
    let mean = |row: &str, set: &SeriesSet, span: Span| set.get("service.requests", row)?.mean(span);
    let earlier = Span { since: i64::MIN, until: high.run.onset };
    let before = |row: &str| view.before("service.requests", row).or_else(|| mean(row, view.around, earlier));
    let was_asked = |row: &&&str| before(row).is_some_and(|rate| rate >= RARE * usual.rate);
    let new = service.rows.iter().filter(|row| !was_asked(row));
    let new: f64 = new.filter_map(|row| mean(row, view.set, high.run.span())).sum();
    new >= 0.5 * (high.during - usual.rate)
}

/// What was asked, whether or not it was answered, per second.
fn offered(view: &View<'_>, service: &Service<'_>) -> Signal {
    let rows = || service.rows.iter();
    let metrics = ["service.requests", "service.unanswered", "service.abandoned"];
    let all = metrics.iter().flat_map(|metric| rows().filter_map(|row| view.set.get(metric, row)));
    Signal::sum(all, view.window).unwrap_or_default()
}

fn finding(view: &View<'_>, loaded: &Loaded<'_>) -> Finding {
    let (row, span) = (loaded.row, loaded.run.span());
    let servers = Servers::of(view, row);
    let mut finding = view.finding(&loaded.run);
    servers.blame(&mut finding, row);
    if let Some(datagrams) = &loaded.datagrams {
        say_datagrams(view, &mut finding, &services::name(&servers, row), datagrams, row, span);
        return finding;
    }
    let who = who_asks(view, row, span);
    finding.statement = format!(
        "{} got {} requests/s instead of {}/s{}",
        services::name(&servers, row),
        words::count(loaded.offered),
        words::count(loaded.usual.rate),
        who.as_ref().map(|who| format!(", most of it more by {who}")).unwrap_or_default()
    );
    match loaded.cost {
        Some((now, before)) => finding.remarks.push(format!(
            "each request cost {} of CPU, as before ({})",
            words::seconds(now),
            words::seconds(before)
        )),
        None => finding.remarks.push("what a request cost before is not known".to_owned()),
    }
    finding.prove_nonzero(
        view,
        &[
            "service.requests",
            "service.connections",
            "service.unanswered",
            "service.abandoned",
            "service.latency_p50",
        ],
        row,
        span,
    );
    finding.confidence = if loaded.cost.is_some() { 0.9 } else { 0.7 };
    finding
}

/// It takes what else is known of a program to be sure of whose the datagrams are.
const WHOSE: f64 = 0.75;

fn say_datagrams(
    view: &View<'_>,
    finding: &mut Finding,
    name: &str,
    datagrams: &Datagrams,
    row: &str,
    span: Span,
) {
    let (used, used_before) = datagrams.used;
    let sender = datagrams.sender.as_ref();
    finding.statement = format!(
        "{name} {}{}, as far as can be told: it took {} of a CPU when they began to come ({} before)",
        datagrams.words(),
        sender.map(|who| format!(", most likely of {who}, which was started then")).unwrap_or_default(),
        words::percent(used),
        words::percent(used_before)
    );
    finding
        .remarks
        .push("whose datagrams they are is not counted: no other program took as much more CPU".to_owned());
    finding.evidence.extend(network::device(row).1.evidence(view, "udp.InDatagrams", span));
    finding.prove(view, &["service.requests", "service.wait_time", "service.open"], row, span);
    finding.confidence = WHOSE;
}

/// The process of this machine that asks most more than before, where it is half of the growth.
fn who_asks(view: &View<'_>, row: &str, span: Span) -> Option<String> {
    let service = Address::of(row);
    let grown = |caller: &str| {
        let now = view.set.get("dependency.requests", caller)?.mean(span)?;
        let before = view.baseline.and_then(|b| view.base_set.get("dependency.requests", caller)?.mean(b));
        Some(now - before.unwrap_or(0.0))
    };
    let of_service = view.each("dependency.requests").map(|(row, _)| row);
    let callers = of_service.filter(|row| Address::called(row).reaches(&service));
    let (caller, more) =
        callers.filter_map(|row| Some((row, grown(row)?))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let all = view.set.get("service.requests", row)?.mean(span)? - view.before("service.requests", row)?;
    (more > 0.0 && more >= 0.5 * all).then(|| services::callers(view, [caller]))
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let who = finding.culprit.process.as_deref().unwrap_or("the service");
    vec![Remedy {
        action: format!(
            "scale out {who}, or rate-limit the client that asks so much; a request is as cheap as it was"
        ),
        command:
            "a rate limit at the proxy in front of it (limit_req, stick-table), more workers or machines"
                .to_owned(),
        verify: "its response time is as before".to_owned(),
        risk: "requests over the limit are rejected".to_owned(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    let port = services::port(address).unwrap_or("PORT");
    vec![to_measure(
        "clients by connections",
        format!(
            "ss -Htn state established '( sport = :{port} )' | awk '{{print $4}}' | sed 's/:[0-9]*$//' | sort | uniq -c | sort -rn | head"
        ),
    )]
}
