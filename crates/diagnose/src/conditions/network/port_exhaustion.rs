//! No local port is left for new connections to one place: connect() fails with EADDRNOTAVAIL.
//!
//! A connection is told apart by the addresses and ports of both ends. To one port of one server there can be only as
//! many as `net.ipv4.ip_local_port_range` has ports, 28,232 unless somebody changed it. The side that closes first keeps
//! its port for another 60 seconds in TIME-WAIT, so that a program that opens a connection for each request can make no
//! more than a sixtieth of them a second for long: 470. Beyond that connect() fails at once, after a search through all
//! of the ports that costs a millisecond or more of CPU each time.
//!
//! The kernel counts no such failure. It is known where the calls that fail were watched; otherwise it is read from the
//! ports: as many connections and TIME-WAITs as there are ports, no more and no less, and fewer connections than before.
//! A call that fails for want of a port is counted as an attempt to connect that failed (`dependency.connect_failed`) and not as one that
//! was begun (`tcp.ActiveOpens`): where the ports are used up and nearly all attempts are such, that is sure.
//!
//! Many TIME-WAITs by themselves are no harm, above all on a server, whose port is always the same: the connections that were
//! begun here within the last minute have to explain them. Where others came in besides, as at a proxy, there may be more
//! than there are ports, and it can only be suspected.

use mitra_model::CaptureRow;
use mitra_model::report::How;

use crate::network::{self, Net};
use crate::prelude::*;
use crate::services::Address;
use crate::settings::PORT_RANGE;

pub const CONDITION: Condition = Condition {
    id: "port-exhaustion",
    title: "local (ephemeral) ports are exhausted",
    area: "network",
    needs: &[
        "sock.tcp_tw",
        "sock.tcp_inuse",
        "tcp.ActiveOpens",
        "sysctl.net.ipv4.ip_local_port_range",
        "netns.sock_tcp_tw",
        "netns.sock_tcp_inuse",
        "netns.tcp_ActiveOpens",
        "netns.sysctl_net_ipv4_ip_local_port_range",
        "netns.pid",
        "netns.comm",
        "task.netns",
        "task.cpu_time",
        FAILED,
        CONNECTS,
        "dependency.requests",
        "dependency.pid",
        "dependency.comm",
    ],
    triggers: &[signals(
        &[
            "sock.tcp_tw",
            "sock.tcp_inuse",
            PORT_RANGE,
            "netns.sock_tcp_tw",
            "netns.sock_tcp_inuse",
            "netns.sysctl_net_ipv4_ip_local_port_range",
        ],
        nearly_all,
    )],
    observe,
    causes: &[explains("dependency-unreachable", "no local port is left for outgoing connections")],
    settings: Settings::new("fewer ports are left", &[lowered(PORT_RANGE, Acts::Now)]),
    remedies: &[
        Advice {
            action: "let {process:the program} reuse its connections: a pool, keep-alive",
            command: "ss -tan state time-wait | awk '{print $4}' | sort | uniq -c | sort -n | tail",
            verify: "ss -s: timewait falls; connect() succeeds",
            risk: "",
        },
        Advice {
            action: "more ports, and reuse those in TIME-WAIT after a second",
            command: "sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\" net.ipv4.tcp_tw_reuse=1",
            verify: "ss -s: timewait falls; connect() succeeds",
            risk: "a port that a service of this machine wants may be taken: net.ipv4.ip_local_reserved_ports",
        },
    ],
    next_of: next,
    source: include_str!("port_exhaustion.rs"),
    ..Condition::ROOT
};

const FAILED: &str = "dependency.connect_failed";
const CONNECTS: &str = "dependency.connects";
/// Who keeps its connections opens one for several requests.
const REUSED_NO_MORE: f64 = 0.5;
/// Of the attempts that failed so many are begun at most.
const BEGUN: f64 = 0.1;
/// More than there are ports for one place means that they go to several places, each of which has all of the ports.
const MORE: f64 = 1.15;
/// In how many seconds at least.
const NEED_S: f64 = 3.0;
/// Connections per second have to fall to this part of what they were while the ports were used up.
const FEWER: f64 = 0.7;
/// From half of the ports on they are being used up.
const FILLING: f64 = 0.5;
/// How long a TIME-WAIT lasts (`TCP_TIMEWAIT_LEN`).
const TIME_WAIT_NS: i64 = 60 * SECOND;
/// The rate before is the mean of as many seconds at least.
const LEAD_NS: i64 = 5 * SECOND;
/// Half of the TIME-WAITs at least are of connections that were begun here.
const EXPLAINS: f64 = 0.5;
/// Fewer connections per second leave their ports in time whatever the range.
const OPENS_S: f64 = 0.5;
/// A few failures may be a program that tries out an address.
const FAILURES: f64 = 3.0;

/// The ports of one namespace and what became of them.
struct Ports<'a> {
    net: Net<'a>,
    range: (f64, f64),
    used: Signal,
}

impl Ports<'_> {
    fn count(&self) -> f64 {
        self.range.1 - self.range.0 + 1.0
    }
}

fn observe(view: &View<'_>) -> Observation {
    let failed = failures(view);
    let nets = network::nets(view.set, "sock.tcp_tw");
    let all: Vec<Ports<'_>> = nets.into_iter().filter_map(|net| ports(view, net)).collect();
    if let Some((event, row)) = failed.first() {
        return by_failures(view, &all, event, row).active();
    }
    if all.is_empty() {
        return Observation::cannot_tell(
            "ss -s, sysctl net.ipv4.ip_local_port_range; or calls that fail: strace -fe connect",
        );
    }
    let mut suspicion = None;
    for ports in &all {
        match exhausted(view, ports) {
            Some(Exhausted::Sure(finding)) => return Observation::Active(finding),
            Some(Exhausted::Suspected(needs)) => suspicion = Some(needs),
            None => {}
        }
    }
    match suspicion {
        Some(needs) => Observation::suspected(needs),
        None => {
            let part = |ports: &Ports<'_>| ports.used.max().unwrap_or(0.0) / ports.count();
            let most = all.iter().map(part).fold(0.0, f64::max);
            Observation::Inactive(format!(
                "as many connections as {} of the local ports",
                words::percent(most)
            ))
        }
    }
}

/// The local ports of a namespace.
fn ports<'a>(view: &View<'_>, net: Net<'a>) -> Option<Ports<'a>> {
    let range = port_range(view.set, net)?;
    let used = net.sum(view.set, &["sock.tcp_tw", "sock.tcp_inuse"], view.window)?;
    Some(Ports { net, range, used })
}

/// Calls of connect() or bind() that failed for want of a port, where they were watched.
fn failures<'a>(view: &'a View<'_>) -> Vec<(&'a Event, &'a CaptureRow)> {
    let mut rows = Vec::new();
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        if let EventKind::Capture { capture, tops, .. } = &event.kind
            && capture == "errors"
        {
            let is_it = |row: &&CaptureRow| row.what.contains("EADDRNOTAVAIL") && row.count >= FAILURES;
            rows.extend(tops.iter().filter(is_it).map(|row| (event, row)));
        }
    }
    rows.sort_by(|a, b| b.1.count.total_cmp(&a.1.count));
    rows
}

/// What the ports of a namespace say.
enum Exhausted {
    Sure(Box<Finding>),
    /// It may be; what would tell.
    Suspected(String),
}

fn exhausted<'a>(view: &View<'a>, ports: &Ports<'_>) -> Option<Exhausted> {
    let count = ports.count();
    let run = ports.used.run(PORTS_NEARLY_ALL * count, NEED_S)?;
    let span = run.span();
    let opens = |span: Span| ports.net.sum(view.set, &["tcp.ActiveOpens"], span);
    let during = opens(span)?.mean()?;
    let before = rate_before(view, ports, span, &opens)?;
    let unbegun = unbegun(view, ports, span).filter(|(failed, _)| during <= BEGUN * failed);
    if before < OPENS_S || during > FEWER * before || !are_begun_here(view, ports, span, &opens) {
        return None;
    }
    if unbegun.is_none() && ports.used.within(span).max()? > MORE * count {
        return Some(Exhausted::Suspected(format!(
            "whether connect() fails{}: more connections than ports, of which others came in, and {} new ones a second \
             instead of {}: mitra capture errors; nstat -az TcpActiveOpens, ss -tan state time-wait",
            ports.net.place(),
            words::count(during),
            words::count(before)
        )));
    }
    let mut finding = view.finding(&run);
    describe(view, &mut finding, ports, span);
    finding.statement = format!(
        "{} connections and TIME-WAITs use up the {} local ports {:.0} to {:.0}{}: {} new ones a second instead \
         of {}",
        words::count(ports.used.within(span).max()?),
        words::count(count),
        ports.range.0,
        ports.range.1,
        ports.net.place(),
        words::count(during),
        words::count(before)
    );
    if let Some((failed, row)) = unbegun {
        finding.statement.push_str(&format!(
            ", and {} attempts a second to connect fail before anything is sent",
            words::count(failed)
        ));
        finding.prove(view, &[FAILED], row, span);
        finding.confidence = 0.95;
        if let Some(taker) = taker(view, ports, span).map(|(taker, _)| taker).or(Some(row)) {
            blame_caller(view, &mut finding, taker, span);
        }
        return Some(Exhausted::Sure(Box::new(finding)));
    }
    finding.confidence = 0.75;
    let used = ports.used.within(span).max()?;
    if let Some((taker, _)) = taker(view, ports, span).filter(|(_, opened)| *opened >= EXPLAINS * used) {
        blame_caller(view, &mut finding, taker, span);
    } else if let Some((comm, pid)) = busiest(view, ports.net, span) {
        finding.remarks.push(format!("{comm} ({pid}) took most CPU of the processes of that namespace"));
        finding.culprit.process = Some(comm);
        finding.culprit.pid = Some(pid);
        finding.culprit.how = Some(How::Near);
    }
    Some(Exhausted::Sure(Box::new(finding)))
}

/// The caller that opened most connections of a namespace in the minute before, and how many: it has most of the ports.
fn taker<'a>(view: &View<'a>, ports: &Ports<'_>, span: Span) -> Option<(&'a str, f64)> {
    let past = past(span);
    let opened = |(row, connects): (&'a str, &Series)| {
        let is_own = Address::called(row).net == ports.net;
        Some((row, connects.total(past)?)).filter(|(_, opened)| is_own && *opened >= 1.0)
    };
    view.each(CONNECTS).filter_map(opened).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The time of which the TIME-WAITs are left.
fn past(span: Span) -> Span {
    Span { since: span.since.saturating_sub(TIME_WAIT_NS), until: span.until }
}

/// Blames the process of a caller, and says whether it opens more connections for what it asks than before.
fn blame_caller(view: &View<'_>, finding: &mut Finding, row: &str, span: Span) {
    let pid = view.set.get("dependency.pid", row).and_then(|pid| pid.last(past(span))).map(|pid| pid as u32);
    let Some(process) = pid.and_then(|pid| view.process(pid)) else { return };
    finding.blame(process);
    finding.culprit.sysctl = Some("net.ipv4.ip_local_port_range".to_owned());
    finding.infer_culprit();
    // A program that was loaded anew has other processes.
    let address = Address::called(row);
    let each = |set: &SeriesSet, span: Span| {
        let comm = |row: &str| set.text("dependency.comm", row).and_then(|comm| comm.last());
        let is_own =
            |row: &str| Address::called(row) == address && comm(row).is_none_or(|comm| comm == process.comm);
        let own = |metric: &'static str| set.each(metric).filter(|(row, _)| is_own(row));
        let total = |metric| own(metric).filter_map(|(_, series)| series.total(span)).sum::<f64>();
        Some(total("dependency.requests"))
            .filter(|asked| *asked >= FAILURES)
            .map(|asked| total(CONNECTS) / asked)
    };
    let before = view.baseline.and_then(|baseline| each(view.base_set, baseline));
    let now = each(view.set, Span { since: view.baseline.map_or(i64::MIN, |b| b.until), ..past(span) });
    if let Some((before, now)) = before.zip(now)
        && now >= REUSED_NO_MORE.max(2.0 * before)
    {
        finding.remarks.push(format!(
            "{} connects to {} {now:.1} times for each request ({before:.1} before): it no longer keeps its connections",
            process.comm,
            address.text,
        ));
        finding.prove(view, &[CONNECTS], row, span);
    }
}

/// Attempts to connect that fail each second in a namespace, where there are many, and the caller of which most are.
fn unbegun<'a>(view: &View<'a>, ports: &Ports<'_>, span: Span) -> Option<(f64, &'a str)> {
    let own = view.each(FAILED).filter(|(row, _)| Address::called(row).net == ports.net);
    let rate = |failed: &Series| Some(failed.total(span)? / span.seconds().max(1.0));
    let rates: Vec<(&str, f64)> = own.filter_map(|(row, failed)| Some((row, rate(failed)?))).collect();
    let all = rates.iter().map(|(_, rate)| rate).sum::<f64>();
    let most = rates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| all >= FAILURES)?;
    Some((all, most.0))
}

/// Connections a second that were begun while the ports were used up, which was faster than they come back: the mean of the
/// time from half of the ports on, or of the seconds before. The first sample of the run holds the last of them.
fn rate_before(
    view: &View<'_>,
    ports: &Ports<'_>,
    span: Span,
    opens: &dyn Fn(Span) -> Option<Signal>,
) -> Option<f64> {
    let first = opens(span)?.t.first().copied()?;
    let past = Span { since: span.since.saturating_sub(TIME_WAIT_NS), until: span.since };
    let used = ports.net.sum(view.set, &["sock.tcp_tw", "sock.tcp_inuse"], past).unwrap_or_default();
    let empty = used.t.iter().zip(&used.v).rev().find(|(_, used)| **used < FILLING * ports.count());
    let since = empty.map_or(past.since, |(t, _)| t + 1);
    let means = [(since, first + 1), (span.since.saturating_sub(LEAD_NS), span.since)]
        .into_iter()
        .filter_map(|(since, until)| opens(Span { since, until })?.mean());
    means.max_by(f64::total_cmp)
}

/// Whether the connections that were begun here in the minute before the ports were used up explain the TIME-WAITs. Of less
/// than a minute that is known the rate counts.
fn are_begun_here(
    view: &View<'_>,
    ports: &Ports<'_>,
    span: Span,
    opens: &dyn Fn(Span) -> Option<Signal>,
) -> bool {
    let first = opens(span).and_then(|s| s.t.first().copied()).unwrap_or(span.since);
    let minute = Span { since: first.saturating_sub(TIME_WAIT_NS), until: first + 1 };
    let Some(begun) = opens(minute) else { return false };
    let known_s: f64 = begun.dt.iter().sum();
    let in_minute = begun.total() * (TIME_WAIT_NS as f64 / SECOND as f64 / known_s.max(1.0)).max(1.0);
    let waiting = ports.net.sum(view.set, &["sock.tcp_tw"], Span { since: first, until: first + 1 });
    in_minute >= EXPLAINS * waiting.and_then(|s| s.max()).unwrap_or(0.0)
}

fn by_failures(view: &View<'_>, all: &[Ports<'_>], event: &Event, row: &CaptureRow) -> Finding {
    let fullest = all.iter().max_by(|a, b| {
        let part = |ports: &Ports<'_>| ports.used.max().unwrap_or(0.0) / ports.count();
        part(a).total_cmp(&part(b))
    });
    let run = fullest.and_then(|ports| ports.used.run(PORTS_NEARLY_ALL * ports.count(), 0.0));
    let mut finding = run.as_ref().map_or_else(|| view.finding_at(event.real), |run| view.finding(run));
    if let (Some(ports), Some(run)) = (fullest, run) {
        describe(view, &mut finding, ports, run.span());
    }
    finding.culprit.process = Some(row.comm.clone()).filter(|c| !c.is_empty());
    finding.culprit.pid = row.pid;
    finding.culprit.sysctl = Some("net.ipv4.ip_local_port_range".to_owned());
    finding.statement = format!(
        "connect() of {} failed {} times because no local port was left ({})",
        if row.comm.is_empty() { "a program" } else { &row.comm },
        words::count(row.count),
        row.what
    );
    finding.evidence.insert(
        0,
        view.event_evidence("event.capture", &format!("{} {}", row.comm, row.what), row.count, "", event),
    );
    finding.confidence = 0.95;
    finding
}

fn describe(view: &View<'_>, finding: &mut Finding, ports: &Ports<'_>, span: Span) {
    finding.culprit.sysctl = Some("net.ipv4.ip_local_port_range".to_owned());
    for metric in ["sock.tcp_tw", "sock.tcp_inuse", "tcp.ActiveOpens"] {
        finding.evidence.extend(ports.net.evidence(view, metric, span));
    }
    if let Some((metric, row)) = ports.net.cell("sysctl.net.ipv4.ip_local_port_range") {
        let mut range = view.evidence_of(metric, row, None, ports.count());
        "ports".clone_into(&mut range.unit);
        range.quotes.extend(view.text_quote(metric, row));
        finding.evidence.push(range);
    }
    finding.remarks.push(format!(
        "a port that was used comes back after 60 s: {} connections a second to one place are the most that {} ports allow",
        words::count((ports.count() / 60.0).max(1.0).round()),
        words::count(ports.count())
    ));
}

/// The process of another namespace that took most CPU, if it took most of what all of them took: a search for a port
/// costs time. In the recorder's own namespace that says nothing.
fn busiest(view: &View<'_>, net: Net<'_>, span: Span) -> Option<(String, u32)> {
    let pid = view.set.get("netns.pid", net.name?)?.last(Span::ALL)? as u32;
    let netns =
        |p: &Process<'_>| p.rows.iter().find_map(|row| view.set.get("task.netns", row)?.last(Span::ALL));
    let inode = view.processes().iter().find(|p| p.pid == pid).and_then(netns)?;
    let inside: Vec<_> = view.processes().iter().filter(|p| netns(p) == Some(inode)).cloned().collect();
    let tops = process::ranking(&inside, span, |p| p.total(view.set, "task.cpu_time", span));
    let top = tops.first().filter(|top| top.share >= 0.5)?;
    Some((top.comm.to_owned(), top.pid()))
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.culprit.pid.map_or_else(String::new, |pid| format!(" --pid {pid}"));
    vec![to_measure("which calls fail and why".to_owned(), format!("mitra capture errors{pid}"))]
}

/// Of the local ports: the kernel tries every second one first, and a few belong to something else.
const PORTS_NEARLY_ALL: f64 = 0.9;

/// The first and the last of the ports from which connections of a namespace begin.
fn port_range(set: &SeriesSet, net: Net<'_>) -> Option<(f64, f64)> {
    let (metric, row) = net.cell("sysctl.net.ipv4.ip_local_port_range")?;
    let mut numbers = set.text(metric, row)?.last()?.split_ascii_whitespace().map(str::parse::<f64>);
    let (Some(Ok(low)), Some(Ok(high))) = (numbers.next(), numbers.next()) else { return None };
    (1.0 <= low && low <= high && high <= 65_535.0).then_some((low, high))
}

/// Of each network namespace: one where nearly all of its ports are used.
fn nearly_all(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let used_of = |net: Net<'_>| {
        let (low, high) = port_range(set, net)?;
        let used = net.sum(set, &["sock.tcp_tw", "sock.tcp_inuse"], window)?;
        Some(used.map(|used| step(used >= PORTS_NEARLY_ALL * (high - low + 1.0))))
    };
    network::nets(set, "sock.tcp_tw").into_iter().filter_map(used_of).collect()
}
