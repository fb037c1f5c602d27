//! Requests to a service end without an answer: it closes or resets their connections, or their clients give up. Or they are
//! answered with an error of the server: that is known where the configuration of the recorder lets it read how answers begin
//! (`[services] read-answers`). An error of the client, as HTTP 404, is no failure of the service.
//!
//! A limit was reached (workers, descriptors, connections of a proxy), what it needs is gone, or answers take longer than
//! clients are willing to wait. Some clients always break off, and some always end a connection by a reset after the answer:
//! it is the share of the requests that counts, and what it was before: errors that were always there are none. A reset counts only as far as there were more
//! connections than answers.

use crate::prelude::*;
use crate::services::{self, Servers};
use crate::waits;

pub const CONDITION: Condition = Condition {
    id: "service-failing",
    title: "requests to a service end without an answer or with an error",
    area: "service",
    stands_alone: true,
    needs: &[
        "service.requests",
        "service.unanswered",
        "service.abandoned",
        "service.resets",
        "service.connections",
        "service.server_errors",
        PROTOCOL,
        "service.open",
    ],
    needs_of: &[services::NEEDS, waits::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: METRICS,
        find: are_failing,
        need_s: NEED_S,
        can_be_steady: true,
    })],
    observe,
    remedies_of: remedies,
    next_of: next,
    source: include_str!("service_failing.rs"),
    ..Condition::SYMPTOM
};

const METRICS: &[&str] = &[
    "service.requests",
    "service.unanswered",
    "service.abandoned",
    "service.resets",
    "service.connections",
    "service.server_errors",
];
/// What the answers are whose status is known.
const PROTOCOL: &str = "service.protocol";

/// One request in twenty: whoever makes several at a time sees it now.
const FAILING: f64 = 0.05;
/// Times the usual share.
const GROWTH: f64 = 3.0;
/// In all: fewer are what a client or two break off.
const LEAST: f64 = 5.0;
/// Of fewer requests a share says nothing.
const ASKED: f64 = 20.0;
const NEED_S: f64 = 2.0;

/// How requests can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Unanswered,
    Abandoned,
    Reset,
    Error,
}

const ENDS: [End; 4] = [End::Unanswered, End::Abandoned, End::Reset, End::Error];

impl End {
    fn metric(self) -> &'static str {
        match self {
            End::Unanswered => "service.unanswered",
            End::Abandoned => "service.abandoned",
            End::Reset => "service.resets",
            End::Error => "service.server_errors",
        }
    }

    /// How many requests a second ended so, in each sample with the number of those that were answered well. An answer whose
    /// status is not known is taken for one, so that the share of errors is the least that it can be.
    fn of(self, set: &SeriesSet, row: &str, span: Span) -> Option<(Signal, Signal)> {
        let answered = Signal::of(set.get("service.requests", row)?, span);
        let mut ended = Signal::of(set.get(self.metric(), row)?, span);
        if self == End::Reset {
            let connections = Signal::of(set.get("service.connections", row)?, span);
            let unheard =
                connections.zip(&answered, |connections, answered| (connections - answered).max(0.0));
            ended = ended.zip(&unheard, f64::min);
        }
        if self == End::Error {
            // Only where it was read: before, nothing is known.
            let well = ended.zip(&answered, |errors, answered| (answered - errors).max(0.0));
            return Some((ended, well));
        }
        Some((ended, answered))
    }
}

/// A service whose requests fail.
struct Failing<'a> {
    row: &'a str,
    end: End,
    run: Run,
    failed: f64,
    asked: f64,
    before: f64,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("service.requests") {
        return Observation::needs_as(
            "requests without an answer (service.unanswered)",
            &["service.unanswered"],
        );
    }
    let mut because = "almost no request ended without an answer, or with an error that was read".to_owned();
    let mut best: Option<Failing<'_>> = None;
    for (row, _) in view.each("service.requests") {
        for end in ENDS {
            match failing(view, row, end) {
                Ok(Some(one)) if best.as_ref().is_none_or(|b| one.failed > b.failed) => best = Some(one),
                Ok(_) => {}
                Err(reason) => because = reason,
            }
        }
    }
    match best {
        Some(failing) => finding(view, &failing).active(),
        None => Observation::Inactive(because),
    }
}

/// Whether more requests than usual end so; an error says that some did and why they do not count.
fn failing<'a>(view: &View<'a>, row: &'a str, end: End) -> Result<Option<Failing<'a>>, String> {
    let Some((ended, answered)) = end.of(view.set, row, view.window) else { return Ok(None) };
    let usual = match view.baseline {
        Some(baseline) => end.of(view.base_set, row, baseline),
        // Where the machine had no quiet time: what was before more failed than at best.
        None => more_than_at_best(&ended, &answered)
            .run(1.0, NEED_S)
            .and_then(|run| end.of(view.around, row, Span { since: i64::MIN, until: run.onset + 1 })),
    };
    let (failed_before, asked_before) =
        usual.map_or((0.0, 0.0), |(ended, answered)| (ended.total(), ended.total() + answered.total()));
    // Of one that nobody asked before it is not known what is usual.
    if asked_before < ASKED {
        return Ok(None);
    }
    let before = failed_before / asked_before;
    let least = FAILING.max(GROWTH * before);
    let bad =
        ended.zip(&answered, |ended, answered| step(ended > 0.0 && ended >= least * (ended + answered)));
    let Some(run) = bad.run(1.0, NEED_S) else { return Ok(None) };
    // Who sends and is never answered, in a protocol without answers, closes one day: those requests have always been open.
    let open = if end == End::Abandoned { view.before("service.open", row).unwrap_or(0.0) } else { 0.0 };
    let failed = (ended.within(run.span()).total() - open).max(0.0);
    let asked = failed + answered.within(run.span()).total();
    if failed < LEAST || failed < least * asked {
        let what = if end == End::Error { "an error for an answer" } else { "no answer" };
        return Err(format!(
            "{} of {} requests to {row} had {what} ({} before)",
            words::count(failed),
            words::count(asked),
            words::percent(before)
        ));
    }
    Ok(Some(Failing { row, end, run, failed, asked, before }))
}

fn finding<'a>(view: &View<'a>, failing: &Failing<'a>) -> Finding {
    let (row, span) = (failing.row, failing.run.span());
    let servers = Servers::of(view, row);
    let name = services::name(&servers, row);
    let mut finding = view.finding(&failing.run);
    servers.blame(&mut finding, row);
    let of = format!("{} of {} requests", words::count(failing.failed), words::count(failing.asked));
    let what = match failing.end {
        End::Unanswered => format!("{name} closed the connections of {of} without an answer"),
        End::Abandoned => format!("clients of {name} gave up {of} before the answer came"),
        End::Reset => format!("the connections of {of} to {name} were reset without an answer"),
        End::Error => format!(
            "{name} answered {} of its requests with errors ({}): {of}",
            words::percent(failing.failed / failing.asked),
            errors(view, row, span)
        ),
    };
    finding.client_wait_s = view.service(row).and_then(|service| service.beyond_s(span));
    finding.statement = format!("{what} ({} before)", words::percent(failing.before));
    finding.prove_nonzero(view, METRICS, row, span);
    let walk = services::walk(view, row, span, 1.0);
    finding.despite = services::despite(view, &walk, span);
    finding.confidence = 0.9;
    // Who gives up has waited: for whoever is asked meanwhile.
    if failing.end == End::Abandoned
        && let Some(inner) = innermost(view, row, &walk.services, span)
    {
        let inner_servers = Servers::of(view, inner);
        let name = services::name(&inner_servers, inner);
        finding.waits_for = Some(format!("it waits for {name}, and why that one is slow was not found"));
        finding.remarks.push(format!("it waits for {name}"));
        inner_servers.blame(&mut finding, inner);
        waits::follow(view, &mut finding, &inner_servers, inner, span);
    }
    finding
}

/// The last of the services that one waits for: where it waits for several, one that is late in the same seconds.
fn innermost<'a>(view: &View<'a>, row: &str, walk: &[&'a str], span: Span) -> Option<&'a str> {
    let inner = walk.get(1..)?;
    let is_meant = |inner: &&&str| {
        services::wait_together(view, row, inner, span) || services::is_stuck(view, inner, span)
    };
    inner.iter().rev().find(is_meant).or(inner.last()).copied()
}

/// What its errors are called.
fn errors(view: &View<'_>, row: &str, span: Span) -> String {
    match view.set.text(PROTOCOL, row).and_then(|text| text.at(span.until)) {
        Some("HTTP") => "HTTP 5xx".to_owned(),
        Some(protocol) => protocol.to_owned(),
        None => "of the server".to_owned(),
    }
}

/// One where more requests fail than in the best tenth of the samples.
fn more_than_at_best(ended: &Signal, answered: &Signal) -> Signal {
    let share = ended.zip(answered, |ended, answered| ended / (ended + answered));
    let least = FAILING.max(GROWTH * services::best_tenth(&share.v).unwrap_or(0.0));
    ended.zip(answered, |ended, answered| step(ended > 0.0 && ended >= least * (ended + answered)))
}

/// Of each service and each way to fail: one where more requests end so than nearly always.
fn are_failing(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let of_row = |row: &str, end: End| {
        let (ended, answered) = end.of(set, row, window)?;
        Some(more_than_at_best(&ended, &answered))
    };
    let rows = set.each("service.requests").map(|(row, _)| row);
    rows.flat_map(|row| ENDS.into_iter().filter_map(move |end| of_row(row, end))).collect()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let who = finding.culprit.process.as_deref().unwrap_or("the service");
    vec![Remedy {
        action: format!(
            "read what {who} says of these requests: a limit that is reached is in its log with its name"
        ),
        command: format!("journalctl -n 100 -t {}; tail its error log", words::shell(who)),
        verify: "requests without an answer, and those answered with an error, are as few as before"
            .to_owned(),
        risk: "a higher limit lets in more than it can serve if it is slow for another reason".to_owned(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.pid();
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    let port = services::port(address).unwrap_or("PORT");
    vec![
        to_measure(
            "its calls that fail, with the error",
            format!("mitra capture errors --pid {pid} --seconds 10"),
        ),
        to_measure(
            "which side closes first: FIN and RST of its connections",
            format!("tcpdump -ni any 'port {port} and tcp[tcpflags] & (tcp-fin|tcp-rst) != 0'"),
        ),
    ]
}
