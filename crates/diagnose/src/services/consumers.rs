//! Clients that fetch work from a service: a broker answers nobody while none of them takes any.

use mitra_model::Span;

use super::leads;
use crate::condition::Finding;
use crate::services::{self, Address, LIKELY};
use crate::view::View;
use crate::waits;

/// Who fetches work waits for it for half of the time or longer, and gets some each second.
const FETCHES: f64 = 0.5;
const OFTEN: f64 = 1.0;
/// As good as nothing of it.
const GONE: f64 = 0.2;

/// Addresses elsewhere that a process waits for, or tries to connect to, for half of the time or longer and more than before.
fn elsewhere<'a>(view: &View<'a>, pid: u32, services: &[&str], span: Span) -> Vec<Address<'a>> {
    let is_its = |row: &&str| {
        let asks = view.set.get("dependency.pid", row).and_then(|other| other.last(span));
        asks == Some(f64::from(pid)) && !reaches(row, services)
    };
    let waits = |row: &str| {
        let connecting = services::mean(view.set, "dependency.connecting", row, span);
        connecting.max(services::waits_beyond(view, &[row], span)) >= FETCHES
    };
    let rows = view.each("dependency.requests").map(|(row, _)| row);
    rows.filter(is_its).filter(|row| waits(row)).map(Address::called).collect()
}

fn reaches(row: &str, services: &[&str]) -> bool {
    services.iter().any(|service| leads::reaches(row, service))
}

/// What processes wait for that fetched work from some services before and take none any more.
#[must_use]
pub fn wait_elsewhere<'a>(view: &View<'a>, services: &[&str], span: Span) -> Vec<Address<'a>> {
    away(view, services, span).into_iter().flat_map(|pid| elsewhere(view, pid, services, span)).collect()
}

/// Processes that fetched work from some services before and get none in a span, though they are still connected: they do not wait there,
/// or, where work is pushed to them, they wait elsewhere.
#[must_use]
pub fn away(view: &View<'_>, services: &[&str], span: Span) -> Vec<u32> {
    let pid = |row: &str| view.set.get("dependency.pid", row)?.last(span).filter(|pid| *pid >= 1.0);
    let is_away = |row: &str| {
        let before = |metric: &str| {
            // A process that is young has no row of its own yet.
            let earlier = || view.around.get(metric, row)?.mean(Span { since: i64::MIN, until: span.since });
            view.before(metric, row).or_else(earlier).unwrap_or(0.0)
        };
        let now = |metric: &str| view.set.get(metric, row).and_then(|s| s.mean(span)).unwrap_or(0.0);
        let (fetched, waited) = (before("dependency.requests"), before("dependency.wait_time"));
        let is_elsewhere =
            || pid(row).is_some_and(|pid| !elsewhere(view, pid as u32, services, span).is_empty());
        fetched >= OFTEN
            && waited >= FETCHES * before("dependency.established").max(1.0)
            && now("dependency.established") >= FETCHES
            && now("dependency.requests") < GONE * fetched
            && (now("dependency.wait_time") < GONE * waited || is_elsewhere())
    };
    let of_these = view.each("dependency.requests").map(|(row, _)| row).filter(|row| reaches(row, services));
    let mut pids: Vec<u32> =
        of_these.filter(|row| is_away(row)).filter_map(pid).map(|pid| pid as u32).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Says in a finding about a service who takes no work from it any more, and what they wait for: true where that leads to somebody.
pub fn lead_on(view: &View<'_>, finding: &mut Finding, row: &str, span: Span) -> bool {
    let away = away(view, &[row], span);
    let Some(first) = away.first().and_then(|pid| view.process(*pid)) else { return false };
    let others = match away.len() - 1 {
        0 => String::new(),
        1 => " and another one".to_owned(),
        many => format!(" and {many} others"),
    };
    let words =
        format!("{} ({}){others}, which fetched work from it, take none any more", first.comm, first.pid);
    let walk = waits::of_holder(view, first.pid, None, span);
    let led = walk.as_ref().and_then(|walk| Some((walk, walk.culprit()?)));
    let Some((walk, (pid, comm))) = led else {
        let waits = elsewhere(view, first.pid, &[row], span);
        let whom = if waits.is_empty() {
            String::new()
        } else {
            format!(": it waits for {}", services::addresses(&waits))
        };
        finding.remarks.push(format!("{words}{whom}"));
        return false;
    };
    finding.waits_for = Some(format!("{words}: {}", walk.words()));
    finding.waits_for_lock |= walk.passes_a_lock();
    waits::blame(view, finding, pid, comm);
    // The address is that of the service.
    finding.culprit.address = None;
    finding.infer_culprit();
    finding.confidence = finding.confidence.min(LIKELY);
    true
}
