//! Callers try again what fails or is given up, so that an address is asked several times as often as there is need for.
//!
//! Tries again make a server that is slow slower. They are told from load that has grown (`load-increase`) by what the callers
//! are asked themselves: each of their own requests makes more calls than before, and a good part of the calls fails.
//! Callers that nobody asks, as far as is seen, are not judged.

use crate::prelude::*;
use crate::services::{self, Servers, called_by, rows_by_address};

pub const CONDITION: Condition = Condition {
    id: "retry-storm",
    title: "callers retry what fails, again and again",
    area: "service",
    needs: &[
        "dependency.requests",
        "dependency.unanswered",
        "dependency.abandoned",
        "dependency.connect_failed",
        "service.requests",
        "service.unanswered",
        "service.abandoned",
    ],
    needs_of: &[services::NEEDS],
    observe,
    causes: &[
        explains("load-increase", "failed requests are retried"),
        explains(
            "abandoned-work",
            "failed requests are retried while the server still works on those before",
        ),
        explains("service-slow", "failed requests are retried, and all of them wait"),
        explains("service-failing", "failed requests are retried, and fail again"),
    ],
    remedies: &[Advice {
        action: "retry less: once, with exponential backoff and jitter, and only a tenth of all requests (a retry \
                 budget); and not in several layers",
        command: "the retry settings of the client library and of the proxy in front of it (proxy_next_upstream_tries, \
                  retries)",
        verify: "calls for each request are as few as before: mitra services --map",
        risk: "a request that fails once fails for its client",
    }],
    next: &[measure("which caller calls it how often", "mitra services --map")],
    source: include_str!("retry_storm.rs"),
    ..Condition::MECHANISM
};

/// A fifth of the calls: a proxy that tries a second server makes less.
const FAILS: f64 = 0.2;
/// One a second: fewer are somebody who always tries.
const FAILS_S: f64 = 1.0;
/// Times as many calls for each request as before: one in two is tried again.
const MORE: f64 = 1.5;
const NEED_S: f64 = 3.0;

const CALLS: Ends = Ends {
    answered: "dependency.requests",
    failed: &["dependency.unanswered", "dependency.abandoned", "dependency.connect_failed"],
};
const ASKED: Ends =
    Ends { answered: "service.requests", failed: &["service.unanswered", "service.abandoned"] };

/// The metrics of how requests end.
struct Ends {
    answered: &'static str,
    failed: &'static [&'static str],
}

impl Ends {
    /// Those that failed and all of them, of some rows, per second.
    fn mean(&self, set: &SeriesSet, rows: &[&str], span: Span) -> (f64, f64) {
        let of = |metric: &str| {
            rows.iter().filter_map(|row| set.get(metric, row)?.mean(span)).fold(0.0, |a, b| a + b)
        };
        let failed: f64 = self.failed.iter().map(|metric| of(metric)).fold(0.0, |a, b| a + b);
        (failed, failed + of(self.answered))
    }
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has(CALLS.answered) {
        return Observation::needs_as("what processes call (dependency.*)", &[CALLS.answered]);
    }
    let mut because = "no address failed a fifth of its requests".to_owned();
    let mut best: Option<(f64, Finding)> = None;
    for (address, rows) in rows_by_address(view.set, CALLS.answered) {
        let failing =
            CALLS.failed.iter().flat_map(|metric| rows.iter().filter_map(|row| view.set.get(metric, row)));
        let Some(failing) = Signal::sum(failing, view.window) else { continue };
        let Some(high) = view.high_signal(&failing, FAILS_S, NEED_S, None) else { continue };
        let span = high.run.span();
        let (failed, calls) = CALLS.mean(view.set, &rows, span);
        if failed < FAILS * calls {
            continue;
        }
        let Some((now, before, callers)) = for_each(view, &rows, span) else {
            because = format!("the callers of {} get no requests that are seen", address.text);
            continue;
        };
        if now < MORE * before {
            because = format!(
                "{} was called {now:.1} times for each request of its callers ({before:.1} before)",
                address.text
            );
            continue;
        }
        if best.as_ref().is_some_and(|(most, _)| *most >= calls) {
            continue;
        }
        let mut finding = view.finding(&high.run);
        finding.netns = Some(address.net.id());
        finding.culprit.process = callers.comm;
        finding.culprit.pid = callers.pid;
        finding.statement = format!(
            "{} was called {now:.1} times for each request of its callers instead of {before:.1}, and {} of the {} \
             calls a second failed or timed out",
            address.text,
            words::percent(failed / calls),
            words::count(calls)
        );
        if let Some(row) = rows.iter().max_by(|a, b| {
            let calls = |row: &str| CALLS.mean(view.set, &[row], span).1;
            calls(a).total_cmp(&calls(b))
        }) {
            finding.prove_nonzero(
                view,
                &[
                    "dependency.requests",
                    "dependency.abandoned",
                    "dependency.unanswered",
                    "dependency.connect_failed",
                ],
                row,
                span,
            );
        }
        finding.confidence = 0.85;
        best = Some((calls, finding));
    }
    match best {
        Some((_, finding)) => finding.active(),
        None => Observation::Inactive(because),
    }
}

/// Who calls.
struct Callers {
    comm: Option<String>,
    pid: Option<u32>,
}

/// How many calls each request of the services that call makes, now and before.
fn for_each(view: &View<'_>, rows: &[&str], span: Span) -> Option<(f64, f64, Callers)> {
    let baseline = view.baseline?;
    let (mut calls, mut calls_before, mut asked, mut asked_before) = (0.0, 0.0, 0.0, 0.0);
    let mut callers = None;
    for (service, _) in view.each(ASKED.answered) {
        let servers = Servers::of(view, service);
        let own: Vec<&str> =
            called_by(view, view.set, &servers).into_iter().filter(|row| rows.contains(row)).collect();
        if own.is_empty() {
            continue;
        }
        calls += CALLS.mean(view.set, &own, span).1;
        calls_before += CALLS.mean(view.base_set, &own, baseline).1;
        asked += ASKED.mean(view.set, &[service], span).1;
        asked_before += ASKED.mean(view.base_set, &[service], baseline).1;
        callers = Some(Callers { comm: servers.comm, pid: servers.pid });
    }
    (asked > 0.0 && asked_before > 0.0 && calls_before > 0.0).then_some((
        calls / asked,
        calls_before / asked_before,
        callers?,
    ))
}
