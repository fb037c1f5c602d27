//! Services and what they ask of others, by request: how long answers usually take, when they are late, who serves, and what
//! a service waits for.
//!
//! A service that is slow may wait for another one of the same machine, that one for a third, and only the last one for
//! somebody else. [`walk`] goes along the addresses that their processes call.

mod address;
mod ask;
mod callers;
mod commands;
mod consumers;
mod datagrams;
mod held_back;
mod leads;
mod pinned;
mod places;
mod pools;
mod servers;
mod service;
mod serving;
mod traffic;

pub use address::{Address, port};
pub use ask::ask;
pub use callers::{
    Calls, SENT, Walk, asks, called_by, called_service, caller_name, callers, callers_before, calls_of,
    local_service, only_newcomers_wait, overlapping, rows_by_address, sends_more, waited_for, waits_beyond,
    waits_for_answers, walk, who_does_most, who_has_most, who_sends_most,
};
pub use commands::{COMMAND_TIME, COMMANDS, costly};
pub use datagrams::{DATAGRAMS, Datagrams};
pub use held_back::{HeldBack, held_back};
pub use leads::{LIKELY, blame_sender, is_stuck, lead_on, newcomers, newcomers_of, wait_together};
pub use pinned::pinned;
pub use places::{ASLEEP, Places, QUEUED, QUEUED_S};
pub use pools::{POOLS, full};
pub use servers::{Servers, says_stopped, stopped_meanwhile, thread};
pub use service::{Service, is_interpreter};
pub use serving::Serving;
pub use traffic::{
    CLOSES, CROWD, KEPT_OPEN, LATE_S, Late, NEED_S, QUICK, SERVED, Slow, Traffic, Usual, best_tenth,
};

use mitra_model::limits::text_of;
use mitra_model::{Series, SeriesSet, Span};

use crate::network;
use crate::view::View;
use crate::waits;

/// How often a second something of a service or of its callers happens; nothing is counted of what nobody did.
#[must_use]
pub fn mean(set: &SeriesSet, metric: &str, row: &str, span: Span) -> f64 {
    set.get(metric, row).and_then(|series| series.mean(span)).unwrap_or(0.0)
}

/// What the functions of this module read. The rest of a condition's metrics stand in its own list.
pub const NEEDS: &[&str] = &[
    "service.requests",
    "service.response_time",
    "service.wait_time",
    "service.sent_bytes",
    "service.connections",
    "service.latency_p50",
    "service.latency_p90",
    "service.latency_p99",
    "service.pid",
    "service.comm",
    "listener.pid",
    "listener.comm",
    "dependency.requests",
    "dependency.response_time",
    "dependency.wait_time",
    "dependency.latency_p50",
    "dependency.latency_p90",
    "dependency.latency_p99",
    "dependency.connects",
    "dependency.connect_time",
    "dependency.pid",
    "dependency.comm",
    "dependency.established",
    "dependency.connecting",
    "dependency.sent_bytes",
    "task.cpu_time",
    "task.run_delay",
    "task.blkio_delay",
    "task.state",
    "lock.pid",
    "lock.waiter_pids",
    "service.open",
    "wait.comm",
    "wait.file",
    "wait.pid",
    "wait.threads",
    "wait.tids",
    "session.pid",
    "session.activity",
    "limit.lines",
];

/// What a trigger reads of services.
pub const SERVICE_SCAN: &[&str] = &[
    "service.requests",
    "service.response_time",
    "service.wait_time",
    "service.latency_p50",
    "service.latency_p90",
    "service.latency_p99",
    "service.connections",
];

/// What a trigger reads of what processes call.
pub const DEPENDENCY_SCAN: &[&str] = &[
    "dependency.requests",
    "dependency.response_time",
    "dependency.wait_time",
    "dependency.latency_p50",
    "dependency.latency_p90",
    "dependency.latency_p99",
    "dependency.connects",
];

/// The metrics of one side of conversations.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    requests: &'static str,
    response_time: &'static str,
    wait_time: &'static str,
    p50: &'static str,
    p90: &'static str,
    p99: &'static str,
    connections: &'static str,
}

/// The side that answers.
pub const SERVICE: Side = Side {
    requests: "service.requests",
    response_time: "service.response_time",
    wait_time: "service.wait_time",
    p50: "service.latency_p50",
    p90: "service.latency_p90",
    p99: "service.latency_p99",
    connections: "service.connections",
};

/// The side that asks.
pub const DEPENDENCY: Side = Side {
    requests: "dependency.requests",
    response_time: "dependency.response_time",
    wait_time: "dependency.wait_time",
    p50: "dependency.latency_p50",
    p90: "dependency.latency_p90",
    p99: "dependency.latency_p99",
    connections: "dependency.connects",
};

impl Side {
    /// Whether anybody may have been late at all, of some rows: most never are, and need no closer look.
    #[must_use]
    pub fn may_be_late(&self, set: &SeriesSet, rows: &[&str], window: Span) -> bool {
        let reaches = |metric: &str, least: f64| {
            let mut most = rows.iter().filter_map(|row| set.get(metric, row)?.max(window));
            most.any(|most| most >= least)
        };
        let waits = if rows.iter().any(|row| set.get(self.wait_time, row).is_some()) {
            self.wait_time
        } else {
            self.response_time
        };
        // Of several rows none need have a whole client that waits.
        let several = rows.len().max(1) as f64;
        reaches(self.p50, LATE_S / traffic::OF_A_PAGE) || reaches(waits, traffic::TOGETHER / several)
    }
}

/// What was usual at one address of a service.
#[must_use]
pub fn usual<'a>(view: &View<'a>, row: &'a str) -> Option<Usual> {
    usual_of(view, &SERVICE, |_| vec![row])
}

/// What was usual of all that call an address. Other processes may have called it before.
#[must_use]
pub fn usual_of_address(view: &View<'_>, address: &Address<'_>) -> Option<Usual> {
    usual_of(view, &DEPENDENCY, |set| {
        set.each("dependency.requests")
            .map(|(row, _)| row)
            .filter(|row| Address::called(row) == *address)
            .collect()
    })
}

/// What was usual: in the baseline, or where hardly anything was asked then, in all that is known before the view, or before it
/// got late. What was so for a tenth of a longer time before is usual too.
fn usual_of<'a>(view: &View<'a>, side: &Side, rows: impl Fn(&'a SeriesSet) -> Vec<&'a str>) -> Option<Usual> {
    let (set, around): (&'a SeriesSet, &'a SeriesSet) = (view.base_set, view.around);
    let of_baseline = view.baseline.and_then(|span| Traffic::of(set, side, &rows(set), span));
    let before = Span { since: i64::MIN, until: view.window.since };
    let earlier = Traffic::of(around, side, &rows(around), before);
    let usual = of_baseline.and_then(|traffic| traffic.usual());
    match (usual, earlier) {
        (Some(usual), Some(earlier)) => Some(usual.or_as_often(&earlier)),
        (Some(usual), None) => Some(usual),
        // A machine that is always busy with something has no quiet time to compare with, and the service has a past.
        (None, earlier) => earlier.and_then(|earlier| earlier.usual()).or_else(|| {
            Traffic::of(around, side, &rows(around), Span::ALL)?.before_late(view.window)?.usual()
        }),
    }
}

/// Whether one of some processes waits for the lock of a file.
fn is_in_a_queue(view: &View<'_>, span: Span, is_meant: impl Fn(u32) -> bool + Copy) -> bool {
    let names_one = |text: &str| text.split(',').filter_map(|pid| pid.trim().parse().ok()).any(is_meant);
    let mut waiters = view.set.each_text("lock.waiter_pids").flat_map(|(_, text)| &text.changes);
    waiters.any(|(t, pids)| *t < span.until && pids.as_deref().is_some_and(names_one))
}

/// What makes a service slow or silent only if it waits for somebody elsewhere.
const ELSEWHERE: &[&str] = &["dependency-slow", "dependency-unreachable", "retransmit-storm"];

/// Causes that may be there and are not those of a service, by what its processes and those that it asks wait for.
#[must_use]
pub fn despite<'a>(view: &View<'a>, walk: &Walk<'a>, span: Span) -> Vec<&'static str> {
    let passed: Vec<Servers<'_, '_>> = walk.services.iter().map(|row| Servers::of(view, row)).collect();
    let through_others = || {
        let mut each = passed.iter().zip(&walk.services);
        each.any(|(servers, row)| waits::wait_for_a_lock(view, servers, row, span))
    };
    let mut despite = Vec::new();
    if walk.elsewhere.is_empty() && consumers::wait_elsewhere(view, &walk.services, span).is_empty() {
        despite.extend(ELSEWHERE);
    }
    let consumers = consumers::away(view, &walk.services, span);
    let fetchers = || is_in_a_queue(view, span, |pid| consumers.contains(&pid));
    if !passed.iter().any(|servers| servers.wait_for_a_lock(view, span)) && !through_others() && !fetchers() {
        despite.push("lock-queue");
    }
    let limited = || view.each("limit.lines").filter_map(|(row, _)| Some(row.rsplit_once(':')?.0));
    let is_held_back = |row| view.service(row).is_some_and(|service| held_back(view, service).is_some());
    let is_full = |row| Places::full(view, row, span).is_ok_and(|places| places.are_of_events);
    if !limited().any(|comm| passed.iter().any(|servers| callers::is_or_asks(view, servers, comm)))
        && !walk.services.iter().any(|row| is_full(row) || is_held_back(row))
    {
        despite.push("connection-limit");
    }
    despite
}

/// The limit of connections that a program says to have reached in nearly half of the samples of a span or more: then not what
/// is asked makes it slow, but that.
#[must_use]
pub fn limit_reached<'a>(view: &View<'a>, servers: &Servers<'_, '_>, span: Span) -> Option<&'a str> {
    let own = view.each("limit.lines").filter_map(|(row, lines)| {
        let (comm, kind) = row.rsplit_once(':')?;
        let is_own = servers.comm.as_deref() == Some(comm);
        let is_of_connections = text_of(comm, kind).is_some_and(|text| text.is_of_connections);
        (is_own && is_of_connections).then_some((kind, lines))
    });
    let is_said = |lines: &Series| {
        let said: Vec<bool> = lines.samples(span).map(|(_, _, lines)| lines > 0.0).collect();
        let often = said.iter().filter(|said| **said).count();
        often >= 3 && often as f64 >= SAID * said.len() as f64
    };
    own.filter(|(_, lines)| is_said(lines)).map(|(kind, _)| kind).next()
}

/// Two samples of five: the log is read from the second after the first sign on.
const SAID: f64 = 0.4;

/// Who answers at an address, in words: a service of this machine by its name.
#[must_use]
pub fn whom(view: &View<'_>, address: &Address<'_>) -> String {
    local_service(view.set, address)
        .map_or_else(|| address.text.to_owned(), |service| name(&Servers::of(view, service), service))
}

/// More addresses in a sentence nobody reads.
const ADDRESSES_MAX: usize = 3;

/// `10.0.0.7:5432, 10.0.0.8:5432, 10.0.0.9:5432 and 12 other addresses`.
#[must_use]
pub fn addresses(all: &[Address<'_>]) -> String {
    let list: Vec<&str> = all.iter().take(ADDRESSES_MAX).map(|address| address.text).collect();
    match all.len().saturating_sub(ADDRESSES_MAX) {
        0 => list.join(", "),
        1 => format!("{} and another address", list.join(", ")),
        more => format!("{} and {more} other addresses", list.join(", ")),
    }
}

/// `python3 (port 8080)`.
#[must_use]
pub fn name(servers: &Servers<'_, '_>, row: &str) -> String {
    let (_, net) = network::device(row);
    let who = servers.comm.as_deref().unwrap_or("a service");
    format!("{who} ({}){}", Address::of(row).words(), net.place())
}

#[cfg(test)]
mod tests {
    use mitra_model::time::SECOND;

    use super::*;
    use crate::locks::tests::{series, text};

    /// A server that answers ten times a second for a tenth of a CPU, and in the last four of eight seconds twice for four.
    fn served() -> SeriesSet {
        let mut set = SeriesSet::default();
        series(&mut set, "service.requests", "127.0.0.1:80", [vec![10.0; 4], vec![2.0; 4]].concat());
        series(&mut set, "service.pid", "127.0.0.1:80", vec![50.0; 8]);
        text(&mut set, "service.comm", "127.0.0.1:80", "python3");
        series(&mut set, "task.tgid", "50@1", vec![50.0; 8]);
        text(&mut set, "task.comm", "50@1", "python3");
        series(&mut set, "task.cpu_time", "50@1", [vec![0.1; 4], vec![0.4; 4]].concat());
        series(&mut set, "dependency.requests", "python3>127.0.0.1:81", vec![1.0; 8]);
        set
    }

    #[test]
    fn what_a_request_costs_is_compared_with_before_where_there_was_no_quiet_time() {
        let (set, none) = (served(), SeriesSet::default());
        let view = View::new(&set, Span::ALL, &none, None);
        let servers = Servers::of(&view, "127.0.0.1:80");
        let late = Span { since: 4 * SECOND + 1, until: 9 * SECOND };
        let (now, before) = servers.per_request(&view, &["127.0.0.1:80"], "task.cpu_time", late).unwrap();
        assert!((now - 0.2).abs() < 1e-9 && (before - 0.01).abs() < 1e-9, "{now} {before}");
        let all = Span::ALL;
        assert!(
            servers.per_request(&view, &["127.0.0.1:80"], "task.cpu_time", all).is_none(),
            "nothing was before"
        );
    }

    #[test]
    fn what_young_processes_call_is_called_by_a_server_of_their_name_only_if_it_is_young() {
        let set = served();
        let none = SeriesSet::default();
        let view = View::new(&set, Span::ALL, &none, None);
        assert!(called_by(&view, &set, &Servers::of(&view, "127.0.0.1:80")).is_empty());
        let mut young = served();
        series(&mut young, "task.tgid", "50@1", [vec![f64::NAN; 4], vec![50.0; 4]].concat());
        let view = View::new(&young, Span::ALL, &none, None);
        assert_eq!(called_by(&view, &young, &Servers::of(&view, "127.0.0.1:80")), ["python3>127.0.0.1:81"]);
        // Of a program that is known whose it is.
        series(&mut young, "task.tgid", "51@1", vec![51.0; 8]);
        series(&mut young, "dependency.pid", "python3>127.0.0.1:81", vec![51.0; 8]);
        let view = View::new(&young, Span::ALL, &none, None);
        assert!(called_by(&view, &young, &Servers::of(&view, "127.0.0.1:80")).is_empty());
        // Or who called last is known to be one of its processes.
        for (pid, calls) in [(50.0, 1), (51.0, 0)] {
            let mut last = served();
            series(&mut last, "dependency.pid", "python3>127.0.0.1:81", vec![pid; 8]);
            let view = View::new(&last, Span::ALL, &none, None);
            assert_eq!(called_by(&view, &last, &Servers::of(&view, "127.0.0.1:80")).len(), calls);
        }
    }

    /// A server that asks another one, fewer and longer in the second half; on a connection of many requests at a time.
    #[test]
    fn answers_are_compared_with_those_before_where_there_was_no_quiet_time() {
        let waits = |longer: f64| {
            let (mut set, none) = (served(), SeriesSet::default());
            series(&mut set, "task.tgid", "60@1", vec![60.0; 8]);
            text(&mut set, "task.comm", "60@1", "shopd");
            series(&mut set, "service.requests", "127.0.0.1:90", [vec![46.0; 4], vec![19.0; 4]].concat());
            series(&mut set, "service.pid", "127.0.0.1:90", vec![60.0; 8]);
            text(&mut set, "service.comm", "127.0.0.1:90", "shopd");
            let row = "50>127.0.0.1:90";
            series(&mut set, "dependency.requests", row, [vec![46.0; 4], vec![19.0; 4]].concat());
            series(&mut set, "dependency.wait_time", row, [vec![0.068; 4], vec![longer; 4]].concat());
            for metric in ["dependency.latency_p50", "dependency.latency_p90", "dependency.latency_p99"] {
                series(&mut set, metric, row, vec![0.0015; 8]);
            }
            let view = View::new(&set, Span::ALL, &none, None);
            waits_for_answers(&view, 50, Some(60), Span { since: 4 * SECOND + 1, until: 9 * SECOND })
        };
        assert!(waits(0.122));
        assert!(!waits(0.06), "not three times as long for each");
    }
}
