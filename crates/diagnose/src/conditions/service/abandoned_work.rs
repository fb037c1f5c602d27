//! A server works for clients that have given up: it answers as fast as ever, and hardly anybody is left to take the answers.
//!
//! More is asked than it can answer. Requests wait in its queue for longer than their clients do, and each one that was given up
//! is worked on all the same when its turn comes. Clients that try again at once keep it so, long after what began it is over: a
//! pause, a restart, a burst. Nothing is broken, and no CPU need be busy. It ends when less is asked for a while.
//!
//! That the server works is seen by the bytes that it sends: as many as for the requests that it usually answers, while few are
//! answered. A server that stands still (`service-silent`, `lock-queue`, `dependency-slow`) sends none, and one whose requests
//! cost more (`query-regression`) sends fewer than it used to. More requests from clients that wait for their answers are
//! `load-increase`.

use crate::network;
use crate::prelude::*;
use crate::services::{self, Address, SERVED, Servers, mean};

pub const CONDITION: Condition = Condition {
    id: "abandoned-work",
    title: "a server works for clients that have given up",
    area: "service",
    needs: &[
        "service.requests",
        "service.abandoned",
        "service.unanswered",
        "service.sent_bytes",
        "service.resets",
        "dependency.requests",
        "dependency.abandoned",
        "dependency.unanswered",
        "dependency.connect_failed",
        "dependency.comm",
    ],
    needs_of: &[services::NEEDS],
    observe,
    causes: &[
        explains("service-slow", "a request waits behind those that nobody waits for any more").here(),
        explains("service-silent", "its answers go to connections that are closed").here(),
        explains("service-failing", "a request is given up before its turn comes").here(),
        explains("listen-overflow", "connections of clients that have given up fill the queue").here(),
    ],
    remedies_of: remedies,
    next: &[
        measure("which caller asks it how often, and how much of that fails", "mitra services --map"),
        measure(
            "answers to connections that are closed, each second",
            "nstat -z TcpExtTCPAbortOnData TcpEstabResets; sleep 1; nstat",
        ),
    ],
    source: include_str!("abandoned_work.rs"),
    ..Condition::ROOT
};

/// Half of what is asked: fewer are clients that break off, and the others get their answers.
const GIVEN_UP: f64 = 0.5;
/// One a second: fewer are somebody who always breaks off.
const GIVEN_UP_S: f64 = 1.0;
/// Longer than the queue of a short pause takes to drain.
const NEED_S: f64 = 5.0;
/// Times as much is asked as before: with less its queue drains by itself, because it has answered as much.
const MORE: f64 = 1.5;
/// Of the answers that it usually gives it works on as many, or on more. Answers differ in size.
const WORKS: f64 = 0.8;
/// Of what it works on half finds nobody.
const IN_VAIN: f64 = 0.5;

/// A server that works in vain; all rates are per second.
struct Vain<'a> {
    row: &'a str,
    run: Run,
    given_up: f64,
    asked: f64,
    asked_before: f64,
    worked: f64,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("service.abandoned") || !view.has("service.sent_bytes") {
        return Observation::needs_as(
            "requests that are given up and the bytes that services send (service.*)",
            &["service.abandoned", "service.sent_bytes"],
        );
    }
    let mut because = "no service had most of its requests given up".to_owned();
    let mut best: Option<Vain<'_>> = None;
    for (row, _) in view.each("service.abandoned") {
        match in_vain(view, row) {
            Ok(Some(one)) if best.as_ref().is_none_or(|b| one.given_up > b.given_up) => best = Some(one),
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(vain) => finding(view, &vain).active(),
        None => Observation::Inactive(because),
    }
}

/// Whether a service works for clients that have given up; an error is the reason why it does not, though they give up.
fn in_vain<'a>(view: &View<'a>, row: &'a str) -> Result<Option<Vain<'a>>, String> {
    let (Some(given_up), Some(answered), Some(baseline)) =
        (view.of("service.abandoned", row), view.of("service.requests", row), view.baseline)
    else {
        return Ok(None);
    };
    let gives_up = |given_up: f64, answered: f64| {
        step(given_up >= GIVEN_UP_S && given_up >= GIVEN_UP * (given_up + answered))
    };
    let Some(run) = given_up.zip(&answered, gives_up).run(1.0, NEED_S) else { return Ok(None) };
    let span = run.span();
    let now = |metric: &str| mean(view.set, metric, row, span);
    let before = |metric: &str| mean(view.base_set, metric, row, baseline);
    let usual = before("service.requests");
    // Of one that nobody asked before it is not known what is usual.
    if usual * baseline.seconds() < SERVED {
        return Ok(None);
    }
    let asked = now("service.requests") + now("service.abandoned") + now("service.unanswered");
    let asked_before = usual + before("service.abandoned") + before("service.unanswered");
    let name = || services::name(&Servers::of(view, row), row);
    if asked < MORE * asked_before {
        return Err(format!(
            "clients of {} gave up, and it was asked {} times a second ({} before)",
            name(),
            words::count(asked),
            words::count(asked_before)
        ));
    }
    let each_bytes = before("service.sent_bytes") / usual;
    let worked = if each_bytes > 0.0 { now("service.sent_bytes") / each_bytes } else { 0.0 };
    if worked < WORKS * usual || now("service.requests") > (1.0 - IN_VAIN) * worked {
        return Err(format!(
            "clients of {} gave up, and it sent the bytes of {} answers a second ({} before)",
            name(),
            words::count(worked),
            words::count(usual)
        ));
    }
    Ok(Some(Vain { row, run, given_up: now("service.abandoned"), asked, asked_before, worked }))
}

/// How calls end in vain.
const FAILED: &[&str] = &["dependency.abandoned", "dependency.unanswered", "dependency.connect_failed"];

/// A process of this machine that gives up most of what is given up: its row, and how many of its calls fail in a second.
fn who_gives_up<'a>(view: &View<'a>, vain: &Vain<'_>) -> Option<(&'a str, f64)> {
    let (service, span) = (Address::of(vain.row), vain.run.span());
    let of = |caller: &str, metric: &str| mean(view.set, metric, caller, span);
    let (caller, given_up) = view
        .each("dependency.abandoned")
        .filter(|(caller, _)| Address::called(caller).reaches(&service))
        .map(|(caller, _)| (caller, of(caller, "dependency.abandoned")))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let failed = FAILED.iter().map(|metric| of(caller, metric)).fold(0.0, |a, b| a + b);
    (given_up >= GIVEN_UP * vain.given_up).then_some((caller, failed))
}

fn finding(view: &View<'_>, vain: &Vain<'_>) -> Finding {
    let (row, span) = (vain.row, vain.run.span());
    let servers = Servers::of(view, row);
    let mut finding = view.finding(&vain.run);
    servers.blame(&mut finding, row);
    finding.netns = Some(network::device(row).1.id());
    finding.client_wait_s = view.service(row).and_then(|service| service.beyond_s(span));
    finding.statement = format!(
        "{} works for clients that have given up: {} of the {} requests a second that it gets ({} before) are given up before \
         their turn comes, and it sends the bytes of {} answers a second all the same",
        services::name(&servers, row),
        words::count(vain.given_up),
        words::count(vain.asked),
        words::count(vain.asked_before),
        words::count(vain.worked)
    );
    finding.confidence = 0.75;
    finding.prove_nonzero(
        view,
        &[
            "service.requests",
            "service.abandoned",
            "service.unanswered",
            "service.resets",
            "service.sent_bytes",
        ],
        row,
        span,
    );
    if let Some((caller, failed)) = who_gives_up(view, vain) {
        let who = services::callers(view, [caller]);
        finding.statement.push_str(&format!(
            "; {who} goes on asking, and {} of its calls a second fail or are given up",
            words::count(failed)
        ));
        let pid = caller.split_once('>').and_then(|(pid, _)| pid.parse::<u32>().ok());
        let thread = view.set.text("dependency.comm", caller).and_then(|text| text.last());
        let comm = pid.and_then(|pid| view.process(pid)).map(|process| process.comm).or(thread);
        finding.culprit.pid = pid;
        finding.culprit.process = comm.map(str::to_owned);
        finding.prove_nonzero(view, &["dependency.requests"], caller, span);
        finding.prove_nonzero(view, FAILED, caller, span);
        finding.confidence = 0.9;
    }
    finding
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let who = finding.culprit.process.as_deref().unwrap_or("its clients");
    let address = finding.culprit.address.as_deref().unwrap_or("the server");
    vec![
        Remedy {
            action: format!(
                "let less be asked until the queue is empty: stop {who} for some seconds, or turn its requests away before {address}"
            ),
            command: String::new(),
            verify: "its clients get their answers: mitra services".to_owned(),
            risk: "what is turned away fails at once instead of late".to_owned(),
        },
        Remedy {
            action: "try again less: once, with exponential backoff and jitter, and only a tenth of all requests (a retry budget)"
                .to_owned(),
            command: "the retry settings of the client library and of the proxy in front of the server".to_owned(),
            verify: "a pause of the server is followed by no more requests than before".to_owned(),
            risk: "a request that fails once fails for its client".to_owned(),
        },
        Remedy {
            action: "let the server drop what waited for longer than its clients do: a shorter queue, or a limit of the time in it"
                .to_owned(),
            command: "a smaller backlog in listen(), timeout queue (HAProxy), a deadline that the client sends along".to_owned(),
            verify: "it answers requests while their clients wait, whatever is asked".to_owned(),
            risk: "bursts that it could have answered a little late are turned away".to_owned(),
        },
    ]
}
