//! Services all workers of which wait for each other.

use crate::prelude::*;
use crate::services::{self, Address, Servers, Service, mean};

/// Of the requests that are worked on.
const NEARLY_ALL: f64 = 0.9;
/// Longer chains of services nobody has.
const LONGEST: usize = 8;
/// As a finding says it.
const CIRCLE: &str = "wait for each other in a circle";

pub fn is_of_services(finding: &Finding) -> bool {
    finding.statement.contains(CIRCLE)
}

/// A service that is late, and those that it waits for in turn, the last of which waits for it.
pub fn of_services(view: &View<'_>) -> Option<Finding> {
    view.services().iter().find_map(|service| {
        let slow = service.slow()?.ok()?;
        let circle = circle(view, service, slow.run.span())?;
        Some(finding(view, &circle, &slow.run))
    })
}

/// Requests that a service works on, and those that wait before it to be accepted.
fn requests(view: &View<'_>, service: &Service<'_>, span: Span) -> (f64, f64) {
    let sum = |metric: &str| service.rows.iter().map(|row| mean(view.set, metric, row, span)).sum::<f64>();
    let queued = sum("listener.queue");
    (sum("service.open") - queued, queued)
}

/// The one service of which nearly all that a service works on waits for answers.
fn next<'v, 'a>(view: &'v View<'a>, service: &Service<'a>, span: Span) -> Option<&'v Service<'a>> {
    let worked_on = requests(view, service, span).0;
    let called = services::called_by(view, view.set, &Servers::of(view, service.row));
    let waits = |other: &Service<'_>| {
        let reaches =
            |row: &&&str| other.rows.iter().any(|own| Address::called(row).reaches(&Address::of(own)));
        called
            .iter()
            .filter(reaches)
            .map(|row| mean(view.set, "dependency.wait_time", row, span))
            .sum::<f64>()
    };
    view.services().iter().find(|other| worked_on >= 1.0 && waits(other) >= NEARLY_ALL * worked_on)
}

/// The services of a circle, beginning with one. Before one of them requests wait to be accepted: else somebody has a place free.
fn circle<'v, 'a>(view: &'v View<'a>, first: &'v Service<'a>, span: Span) -> Option<Vec<&'v Service<'a>>> {
    let mut all = vec![first];
    loop {
        let then = next(view, all.last()?, span)?;
        if then.row == first.row {
            break;
        }
        if all.len() >= LONGEST || all.iter().any(|other| other.row == then.row) {
            return None;
        }
        all.push(then);
    }
    let is_full = |service: &&Service<'_>| requests(view, service, span).1 >= 1.0;
    all.iter().any(is_full).then_some(all)
}

fn finding(view: &View<'_>, circle: &[&Service<'_>], run: &Run) -> Finding {
    let span = run.span();
    let queued = circle.iter().map(|service| (requests(view, service, span).1, *service));
    let (queued, full) = queued.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, circle[0]));
    let name = |service: &Service<'_>| services::name(&Servers::of(view, service.row), service.row);
    let mut finding = view.finding(run);
    Servers::of(view, full.row).blame(&mut finding, full.row);
    let names: Vec<String> = circle.iter().map(|service| name(service)).collect();
    let whom = match names.as_slice() {
        [only] => format!("the workers of {only} {CIRCLE}: each asks the same service for an answer"),
        _ => format!(
            "{} {CIRCLE}: nearly all requests that each works on wait for the next one",
            names.join(", ")
        ),
    };
    finding.statement = format!(
        "{whom}, and before {} {} connections wait to be accepted: a deadlock",
        name(full),
        words::count(queued)
    );
    let rows: Vec<&str> = circle.iter().map(|service| service.row).collect();
    finding.remarks.extend(services::newcomers(view, &rows, run.onset));
    finding.prove(view, &["service.open", "listener.queue"], full.row, span);
    let waited_s = circle.iter().filter_map(|service| service.beyond_s(span)).fold(0.0, f64::max);
    finding.client_wait_s = Some(waited_s);
    finding.confidence = 0.9;
    finding
}

pub fn remedies(finding: &Finding) -> Vec<Remedy> {
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    let verify = "ss -ltn: Recv-Q of its socket is 0";
    vec![
        Remedy {
            action: "take back what made one of them call the other (a release, a flag), and restart the workers of one".to_owned(),
            command: format!("ss -tnp state established '( dport = :{} )'", services::port(address).unwrap_or("PORT")),
            verify: verify.to_owned(),
            risk: "requests that are open fail".to_owned(),
        },
        Remedy {
            action: "give the calls that come back a time limit far below that of the clients, or workers of their own".to_owned(),
            command: "a second pool, port or queue for internal calls; a timeout in the client library".to_owned(),
            verify: verify.to_owned(),
            risk: "more workers alone put the deadlock off to a higher load".to_owned(),
        },
    ]
}
