//! Whose doing it is that requests cost more, where that can be seen from outside.

use super::{CPU, FOR_MOST, Grown, MORE};
use crate::prelude::*;
use crate::services::{self, Servers};
use crate::sessions;

/// How it is said that somebody connects for each request.
pub(super) const ANEW: &str = "new connections a second";
const CONNECTIONS: &str = "service.connections";
/// A key exchange with a signature takes a server a millisecond, a process for each connection as long. To accept a connection alone takes
/// it some ten microseconds.
const CONNECTION_S: f64 = 200e-6;
/// Where it is encrypted the key exchange counts as a request of its own.
const TURNS: f64 = 2.0;
/// From the first half of the time to the second.
const GROWS: f64 = 1.2;

/// A thread that did next to nothing before and takes nearly all that a service takes more, while the others, of which there were some
/// before, take what they took for each request: `thread refresh of api (812)`.
pub(super) fn computes_beside(
    view: &View<'_>,
    servers: &Servers<'_, '_>,
    requests_more: f64,
    span: Span,
) -> Option<String> {
    let baseline = view.baseline?;
    let of = |set: &SeriesSet, row: &str, span: Span| {
        set.get(CPU, row).and_then(|series| series.total(span)).unwrap_or(0.0) / span.seconds().max(1e-9)
    };
    let rows =
        servers.processes.iter().flat_map(|process| process.rows.iter().map(move |row| (*process, *row)));
    let used: Vec<_> = rows
        .map(|(process, row)| (process, row, of(view.set, row, span), of(view.base_set, row, baseline)))
        .collect();
    let (now, before) = used.iter().fold((0.0, 0.0), |sum, (.., now, before)| (sum.0 + now, sum.1 + before));
    let (process, row, most, earlier) = used.iter().max_by(|a, b| (a.2 - a.3).total_cmp(&(b.2 - b.3)))?;
    let is_new = *earlier <= HARDLY * before && most - earlier >= NEARLY_ALL * (now - before);
    let others_are_as_ever = before > 0.0 && now - most < MORE * requests_more * (before - earlier);
    (is_new && others_are_as_ever).then(|| services::thread(view, process, row))
}

/// As good as nothing, and as good as all.
const HARDLY: f64 = 0.1;
const NEARLY_ALL: f64 = 0.8;

/// Where most requests come on connections of their own, which they did not before, and that is dear: a client that does not keep its
/// connections. Whether it is so.
pub(super) fn reconnects(view: &View<'_>, grown: &Grown<'_>, finding: &mut Finding) -> bool {
    let (row, span) = (grown.row, grown.slow.run.span());
    let mean = |set: &SeriesSet, span: Span| set.get(CONNECTIONS, row)?.mean(span);
    let before = view.baseline.and_then(|baseline| mean(view.base_set, baseline)).unwrap_or(0.0);
    let Some(now) = mean(view.set, span) else { return false };
    let super::Cost::Cpu(cost_s, cost_before_s) = grown.cost else { return false };
    let is_for_most = TURNS * now >= FOR_MOST * grown.slow.rate;
    let is_more = now * grown.usual_rate >= MORE * before * grown.slow.rate;
    let each_s = (cost_s - cost_before_s) * grown.slow.rate / (now - before).max(f64::MIN_POSITIVE);
    if !is_for_most || !is_more || each_s < CONNECTION_S {
        return false;
    }
    let most = services::who_does_most(view, row, "dependency.connects", span);
    let whose = most.map_or_else(String::new, |(caller, ..)| {
        format!(", most of them of {}", services::callers(view, [caller]))
    });
    finding.statement.push_str(&format!(
        ", with {} {ANEW} instead of {}{whose}",
        words::count(now),
        words::count(before)
    ));
    finding.remarks.push(format!("a new connection costs it {} of CPU", words::seconds(each_s)));
    finding.prove(view, &[CONNECTIONS], row, span);
    if let Some((caller, ..)) = most {
        finding.prove(view, &["dependency.connects"], caller, span);
        let pid = view.set.get("dependency.pid", caller).and_then(|pid| pid.last(span));
        if let Some(process) = pid.and_then(|pid| view.process(pid as u32)) {
            finding.blame_for_work(process);
        }
    }
    true
}

/// Where requests cost ever more since a session of PostgreSQL took its snapshot: they pass by what cannot be cleaned up meanwhile.
pub(super) fn snapshot(view: &View<'_>, servers: &Servers<'_, '_>, grown: &Grown<'_>, finding: &mut Finding) {
    let span = grown.slow.run.span();
    let middle = span.since.midpoint(span.until);
    let (first, second) = (Span { until: middle, ..span }, Span { since: middle, ..span });
    let cost = |half: Span| servers.per_request(view, &[grown.row], CPU, half).map(|(now, _)| now);
    let grows = cost(first).zip(cost(second)).is_some_and(|(first, second)| second >= GROWS * first);
    let since = view.baseline.map_or(i64::MIN, |baseline| baseline.since);
    if servers.comm.as_deref() != Some("postgres") || !grows {
        return;
    }
    let Some((session, client)) = sessions::oldest_snapshot(view, since, span) else { return };
    finding.statement.push_str(&format!("; {session}"));
    if let Some(client) = client.and_then(|pid| view.process(pid)) {
        finding.blame_for_work(client);
    }
    finding.infer_culprit();
}
