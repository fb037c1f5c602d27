//! A service answers several times slower than before, and still fast.
//!
//! Nobody notices that a store answers in two milliseconds instead of half a one; whoever asks it all day gets a quarter as much
//! done. It is a finding and no incident (`service-slow` is one), and told only where no incident goes on at the same time, which may
//! be why. Requests are compared with those of the same service before, and it is asked no more than then.

use crate::prelude::*;
use crate::services::{self, SERVED, SERVICE, Servers, Service, Slow, Traffic};
use crate::waits;

pub const CONDITION: Condition = Condition {
    id: "service-slower",
    title: "a service answers several times slower than before",
    role: Role::Finding,
    area: "service",
    needs: &["service.requests", "service.wait_time", "service.latency_p50"],
    needs_of: &[services::NEEDS, waits::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: services::SERVICE_SCAN,
        find: are_slower,
        need_s: services::NEED_S,
        can_be_steady: true,
    })],
    observe_after: Some(observe),
    remedies_of: remedies,
    next_of: next,
    source: include_str!("service_slower.rs"),
    ..Condition::ROOT
};

/// When something ends is known to a sample or two.
const SAME_NS: i64 = 2 * SECOND;

fn observe(view: &View<'_>, others: &Others<'_>) -> Observation {
    if !view.has("service.requests") {
        return Observation::needs_as("response times of services (service.*)", &["service.requests"]);
    }
    let slower = |service: &Service<'_>| {
        let slow = service.traffic.slower(service.usual.as_ref()?)?;
        (slow.rate * slow.run.high_s >= SERVED && !is_told(others, slow.run.span())).then_some(slow)
    };
    let all = view.services().iter().filter_map(|service| Some((service, slower(service)?)));
    match all.max_by(|(_, a), (_, b)| a.beyond_s.total_cmp(&b.beyond_s)) {
        Some((service, slow)) => finding(view, service.row, &slow).active(),
        None => Observation::inactive("no service answered several times slower beside what else is told"),
    }
}

/// Whether anything acts meanwhile that is an incident.
fn is_told(others: &Others<'_>, span: Span) -> bool {
    others.incidents.iter().any(|other| {
        let until = other.end.unwrap_or(i64::MAX).saturating_add(SAME_NS);
        other.onset <= span.until && until >= span.since
    })
}

fn finding(view: &View<'_>, row: &str, slow: &Slow) -> Finding {
    let (servers, span) = (Servers::of(view, row), slow.run.span());
    let mut finding = view.finding(&slow.run);
    finding.statement = format!("{} {}", services::name(&servers, row), slow.words());
    finding.culprit.address = Some(services::Address::of(row).text.to_owned());
    finding.culprit.process.clone_from(&servers.comm);
    finding.culprit.pid = servers.pid;
    finding.confidence = services::LIKELY;
    finding.prove(view, &["service.latency_p50", "service.requests", "service.wait_time"], row, span);
    finding.remarks.push(slow.waits());
    waits::follow(view, &mut finding, &servers, row, span);
    finding
}

/// Of each service: one where half of its answers take several times as long.
fn are_slower(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let slower = |(row, _): (&str, &Series)| {
        let traffic = Traffic::of(set, &SERVICE, &[row], window)?;
        Some(traffic.is_slower_at(&traffic.at_best()?))
    };
    set.each("service.requests").filter_map(slower).collect()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let address = finding.culprit.address.as_deref().unwrap_or("NAME");
    let service = services::port(address).map_or_else(|| words::shell(address), Into::into);
    vec![Remedy {
        action: "compare what it is asked, and what it runs with, with before: a release, a setting, data that grew".to_owned(),
        command: format!("mitra explain --service {service} --since -10m"),
        verify: "its response time is as before".to_owned(),
        risk: String::new(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    vec![to_measure(
        "where its threads spend their time",
        format!("mitra capture oncpu --pid {}", finding.pid()),
    )]
}
