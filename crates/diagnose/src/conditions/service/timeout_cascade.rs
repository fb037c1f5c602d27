//! A service gives up waiting for another one, and its own clients give up waiting for it: timeouts along the way.
//!
//! What the service did for a request by then is lost at every step, and the service at the far end that takes longest
//! works for nobody. Which of them is late to begin with is another condition (`dependency-slow`, `lock-queue`, …):
//! this says how far it reached.

use crate::network;
use crate::prelude::*;
use crate::services::{self, Address, Servers, called_by};

pub const CONDITION: Condition = Condition {
    id: "timeout-cascade",
    title: "a service and then its clients time out",
    area: "service",
    needs: &[
        "service.requests",
        "service.abandoned",
        "service.unanswered",
        "dependency.requests",
        "dependency.abandoned",
        "dependency.unanswered",
    ],
    needs_of: &[services::NEEDS],
    observe,
    causes: &[explains(
        "service-failing",
        "clients time out after the service itself has timed out, or before",
    )],
    remedies: &[Advice {
        action: "make timeouts shorter from the client inwards: a server must time out before its caller does, and \
                 return an error",
        command: "",
        verify: "requests fail at the innermost service, at once, and are not given up before it",
        risk: "a timeout below the usual response time fails what would have been answered",
    }],
    next: &[measure("who waits for whom", "mitra services --map")],
    source: include_str!("timeout_cascade.rs"),
    ..Condition::MECHANISM
};

/// A fifth of the requests: with less most of what is asked is still answered.
const GIVEN_UP: f64 = 0.2;
/// One in two seconds: fewer are clients that break off.
const GIVEN_UP_S: f64 = 0.5;
const NEED_S: f64 = 3.0;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("service.abandoned") || !view.has("dependency.abandoned") {
        return Observation::needs_as(
            "requests that are given up (service.abandoned, dependency.abandoned)",
            &["service.abandoned", "dependency.abandoned"],
        );
    }
    let mut because = "no service whose clients gave up had given up itself".to_owned();
    for (row, _) in view.each("service.abandoned") {
        let Some(high) = view.high("service.abandoned", row, GIVEN_UP_S, NEED_S) else { continue };
        let span = high.run.span();
        if share(view, "service", row, span) < GIVEN_UP {
            continue;
        }
        let servers = Servers::of(view, row);
        let own = called_by(view, view.set, &servers);
        let given_up =
            |row: &str| view.set.get("dependency.abandoned", row).and_then(|s| s.mean(span)).unwrap_or(0.0);
        let Some(call) = own.iter().max_by(|a, b| given_up(a).total_cmp(&given_up(b))) else { continue };
        if given_up(call) < GIVEN_UP_S || share(view, "dependency", call, span) < GIVEN_UP {
            because = format!("{} had given up nobody itself", services::name(&servers, row));
            continue;
        }
        let mut finding = view.finding(&high.run);
        finding.netns = Some(network::device(row).1.id());
        finding.culprit.process.clone_from(&servers.comm);
        finding.culprit.pid = servers.pid;
        finding.culprit.address = Some(Address::of(row).text.to_owned());
        finding.statement = format!(
            "{} gave up {} of its calls to {}, and its own clients gave up {} of their requests",
            services::name(&servers, row),
            words::percent(share(view, "dependency", call, span)),
            Address::called(call).text,
            words::percent(share(view, "service", row, span))
        );
        finding.prove(view, &["service.abandoned", "service.requests"], row, span);
        finding.prove(view, &["dependency.abandoned", "dependency.requests"], call, span);
        finding.confidence = 0.9;
        return finding.active();
    }
    Observation::Inactive(because)
}

/// The share of the requests that were given up.
fn share(view: &View<'_>, side: &str, row: &str, span: Span) -> f64 {
    let mean = |metric: &str| {
        view.set.get(&format!("{side}.{metric}"), row).and_then(|s| s.mean(span)).unwrap_or(0.0)
    };
    let given_up = mean("abandoned");
    given_up / (given_up + mean("unanswered") + mean("requests")).max(1e-9)
}
