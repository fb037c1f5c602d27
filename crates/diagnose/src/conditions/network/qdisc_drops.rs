//! The queue in front of a network device is full and packets are dropped before they are sent.
//!
//! Every device that sends has a queueing discipline. It drops when more is sent than the device takes or than a rate
//! that somebody has set (`tbf`, `htb`, a shaper of the container or the virtual machine) lets through. These drops are
//! in no column of /proc/net/dev: `tc -s qdisc` alone has them. TCP takes some of them as the sign to slow down, and
//! sends that part again; a program that sends UDP loses it, and the kernel counts it under `SndbufErrors`.
//!
//! A queue that is nearly full drops nothing yet, and everything that is sent has to wait behind it. That is how a long
//! transfer fills a link, and hurts only who else needs it: those who wait for answers ask again when they have them, so
//! that less comes back over the device than before. Where a caller is known it is seen by itself: it waits by about that delay longer for
//! answers that the service gives as fast as ever.
//!
//! Drops on receive are `nic-drops`; those of a socket that nobody reads are `socket-buffer-overflow`.

use crate::network::{self, Net};
use crate::prelude::*;
use crate::services::{self, Address, SERVED};

pub const CONDITION: Condition = Condition {
    id: "qdisc-drops",
    title: "a qdisc drops packets before the device sends them",
    area: "network",
    needs: &[
        "nic.qdisc_dropped",
        "nic.qdisc_overlimits",
        "nic.qdisc_backlog_bytes",
        "nic.qdisc_backlog_packets",
        "nic.tx_packets",
        "nic.tx_bytes",
        "nic.rx_packets",
        "udp.SndbufErrors",
        "netns.udp_SndbufErrors",
    ],
    needs_of: &[CALLS],
    triggers: &[
        // Packets that this machine itself lost. A single burst is short.
        each_above(&["nic.qdisc_dropped"], 1.0),
        signals(&["nic.qdisc_backlog_bytes", "nic.tx_bytes"], late),
    ],
    observe,
    causes: &[
        effect("retransmit-storm", "what the device's own queue drops is sent again").here(),
        effect("resolver-slow", "queries that are dropped before they are sent get no answer").here(),
        effect("session-drop", "heartbeats are dropped with the rest"),
        explains("service-slow", "what it asks for and answers waits in the queue"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("qdisc_drops.rs"),
    ..Condition::ROOT
};

/// A hundredth of what was to be sent: TCP that fills a link loses less than that to find its limit.
const SHARE: f64 = 0.01;
/// One a second: of what hardly sends anything a share says nothing.
const RATE_S: f64 = 1.0;
/// In how many seconds at least.
const NEED_S: f64 = 2.0;
/// Fewer are chance.
const LEAST: f64 = 10.0;

/// Seconds in which a queue stands. It is looked at once a second: one that comes and goes is not met so often.
const STANDS_S: f64 = 3.0;
/// Half as much comes back as before: a round trip takes twice as long.
const FEWER: f64 = 0.5;
/// Of fewer packets a second a share says nothing.
const BACK_S: f64 = 10.0;

/// What callers and services have on either side of a queue.
const CALLS: &[&str] = &[
    "dependency.latency_p50",
    "dependency.requests",
    "dependency.wait_time",
    "dependency.comm",
    "dependency.pid",
    "dependency.sent_bytes",
    "service.latency_p50",
    "service.sent_bytes",
    "service.comm",
    "service.pid",
];
/// A caller behind a queue waits so many times as long as before, and by so much of the delay of the queue longer: answers pass it once, or
/// questions and answers do.
const LONGER: f64 = 3.0;
const OF_DELAY: f64 = 0.5;
const DELAYS: f64 = 3.0;
/// A service that answers as fast as ever does so within a fifth.
const AS_FAST: f64 = 1.2;
/// Who sends most of what goes out fills the queue.
const MOST: f64 = 0.5;
/// All of it, with what the device adds or leaves out; who sends more sends to somebody nearer.
const ALL: f64 = 1.2;

/// A queue in front of a device that others wait behind.
struct Standing<'a> {
    row: &'a str,
    high: High,
    behind: Behind<'a>,
}

impl Standing<'_> {
    /// Whether somebody waits behind it for longer than it drops.
    fn outlasts(&self, dropping: &Dropping<'_>) -> bool {
        let is_waited_behind = matches!(self.behind, Behind::Caller(_));
        is_waited_behind && self.row == dropping.row && self.high.run.high_s > dropping.high.run.high_s
    }
}

/// Who waits behind a queue.
enum Behind<'a> {
    /// Packets that came back each second, before and during.
    Fewer(f64, f64),
    Caller(Caller<'a>),
}

/// A caller of which the answers take longer than the service takes for them.
struct Caller<'a> {
    row: &'a str,
    before_s: f64,
    during_s: f64,
    /// Seconds in each second that it waits more than before.
    beyond: f64,
}

/// The drops of one device.
struct Dropping<'a> {
    row: &'a str,
    high: High,
    dropped: f64,
    share: f64,
}

fn observe(view: &View<'_>) -> Observation {
    let mut any = false;
    let mut peak: f64 = 0.0;
    let mut all: Vec<Dropping<'_>> = Vec::new();
    for (row, series) in view.each("nic.qdisc_dropped") {
        any = true;
        peak = peak.max(series.max(view.window).unwrap_or(0.0));
        all.extend(dropping(view, row));
    }
    let most = |a: &&Dropping<'_>, b: &&Dropping<'_>| a.dropped.total_cmp(&b.dropped);
    let hurts = |one: &&Dropping<'_>| one.share >= SHARE && one.dropped >= LEAST;
    let worst = all.iter().filter(hurts).max_by(most);
    let queues = view.each("nic.qdisc_backlog_bytes").filter_map(|(row, _)| standing(view, row));
    let queues = queues.filter(|queue| worst.is_none_or(|worst| queue.outlasts(worst)));
    if let Some(longest) = queues.max_by(|a, b| a.high.during.total_cmp(&b.high.during)) {
        return of_standing(view, &longest, worst).active();
    }
    let Some(worst) = worst else {
        return match all.iter().max_by(most) {
            Some(most) => Observation::Inactive(format!(
                "{} dropped {} of its packets ({}), which is how TCP finds the limit of a link",
                most.row,
                words::percent(most.share),
                words::count(most.dropped)
            )),
            None if any => {
                Observation::Inactive(format!("qdiscs dropped at most {} packets/s", words::count(peak)))
            }
            None => Observation::cannot_tell("qdisc drops: tc -s qdisc"),
        };
    };
    finding(view, worst).active()
}

fn dropping<'a>(view: &View<'_>, row: &'a str) -> Option<Dropping<'a>> {
    let high = view.high("nic.qdisc_dropped", row, RATE_S, NEED_S)?;
    let span = high.run.span();
    let total = |metric: &str| view.set.get(metric, row).and_then(|s| s.total(span));
    let dropped = total("nic.qdisc_dropped")?;
    let share = network::share_of(dropped, total("nic.tx_packets").unwrap_or(0.0));
    Some(Dropping { row, high, dropped, share })
}

/// A queue that stands, and behind which somebody waits.
fn standing<'a>(view: &View<'a>, row: &'a str) -> Option<Standing<'a>> {
    let delay = queue_delay(view.set, row, view.window)?;
    let before = queue_delay(view.base_set, row, view.baseline?)?;
    let mut high =
        view.high_signal(&delay, view.threshold(QUEUE_TARGET_S, &before.v), STANDS_S, before.mean())?;
    high.during = delay.within(high.run.span()).mean()?;
    let span = high.run.span();
    let fewer = || {
        let before = view.before("nic.rx_packets", row)?;
        let during = view.set.get("nic.rx_packets", row)?.mean(span)?;
        (before >= BACK_S && during <= FEWER * before).then_some(Behind::Fewer(before, during))
    };
    let behind = callers_behind(view, row, high.during, span).map(Behind::Caller).or_else(fewer)?;
    Some(Standing { row, high, behind })
}

/// The caller on either side of a device that waits longest behind its queue.
fn callers_behind<'a>(view: &View<'a>, row: &str, delay_s: f64, span: Span) -> Option<Caller<'a>> {
    let (_, net) = network::device(row);
    let baseline = view.baseline?;
    let callers = view.each("dependency.latency_p50").filter_map(|(caller, latency)| {
        let address = Address::called(caller);
        let service = services::local_service(view.set, &address);
        // A device of the namespace that is called from, or that is called, or of any on the way from one to the other.
        let is_on_the_way = |to: Net<'_>| address.net == net || to == net || address.net != to;
        let is_near =
            !is_local(&address) && service.is_some_and(|service| is_on_the_way(Address::of(service).net));
        let before = |metric: &str| view.base_set.get(metric, caller);
        let asked = before("dependency.requests")?.total(baseline)?;
        let (before_s, during_s) = (before("dependency.latency_p50")?.mean(baseline)?, latency.mean(span)?);
        let (more, few_delays) = (during_s - before_s, OF_DELAY * delay_s..=DELAYS * delay_s);
        let is_longer = during_s >= LONGER * before_s && few_delays.contains(&more);
        let service_s = |set: &SeriesSet, span: Span| set.get("service.latency_p50", service?)?.mean(span);
        // How fast one of another machine is, nobody knows.
        let is_fast = service_s(view.base_set, baseline)
            .zip(service_s(view.set, span))
            .is_some_and(|(before, now)| now <= AS_FAST * before);
        let waits = |set: &SeriesSet, span: Span| set.get("dependency.wait_time", caller)?.mean(span);
        let beyond = waits(view.set, span)? - waits(view.base_set, baseline)?;
        (is_near && asked >= SERVED && is_longer && is_fast).then_some(Caller {
            row: caller,
            before_s,
            during_s,
            beyond,
        })
    });
    callers.max_by(|a, b| a.beyond.total_cmp(&b.beyond))
}

/// Whoever of a namespace sends most of what goes out over a device, or else of another one.
fn sender<'a>(view: &View<'a>, net: Net<'_>, out: f64, span: Span) -> Option<(&'a str, Option<u32>, f64)> {
    let set: &'a SeriesSet = view.set;
    let of = |side: &str, metric: &'static str, row: &'a str| {
        let sent = set.get(metric, row)?.mean(span)?;
        let comm = set.text(&format!("{side}.comm"), row)?.last()?;
        let pid = set.get(&format!("{side}.pid"), row).and_then(|pid| pid.last(span)).map(|pid| pid as u32);
        Some((comm, pid, sent / out))
    };
    let most = |is_meant: &dyn Fn(&Address<'_>) -> bool| {
        let is_out = |address: Address<'_>| !is_local(&address) && is_meant(&address);
        let services = set.each("service.sent_bytes").filter(|(row, _)| is_out(Address::of(row)));
        let callers = set.each("dependency.sent_bytes").filter(|(row, _)| is_out(Address::called(row)));
        let services = services.filter_map(|(row, _)| of("service", "service.sent_bytes", row));
        let callers = callers.filter_map(|(row, _)| of("dependency", "dependency.sent_bytes", row));
        let of_most = |one: &(&str, Option<u32>, f64)| (MOST..=ALL).contains(&one.2);
        services.chain(callers).filter(of_most).max_by(|a, b| a.2.total_cmp(&b.2))
    };
    // Of a router what others send goes out.
    most(&|address| address.net == net).or_else(|| most(&|address| address.net != net))
}

/// What passes no device but the loopback.
fn is_local(address: &Address<'_>) -> bool {
    ["unix:", "127.", "[::1]", "::1"].iter().any(|start| address.text.starts_with(start))
}

fn of_standing(view: &View<'_>, queue: &Standing<'_>, dropping: Option<&Dropping<'_>>) -> Finding {
    let (row, span) = (queue.row, queue.high.run.span());
    let (device, net) = network::device(row);
    let mut finding = view.finding(&queue.high.run);
    finding.netns = Some(net.id());
    finding.culprit.nic = Some(row.to_owned());
    let backlog = view.set.get("nic.qdisc_backlog_bytes", row).and_then(|s| s.mean(span)).unwrap_or(0.0);
    let felt = match &queue.behind {
        Behind::Fewer(before, during) => {
            format!("and {} packets/s come back instead of {}", words::count(*during), words::count(*before))
        }
        Behind::Caller(caller) => {
            finding.client_wait_s = Some((caller.beyond * queue.high.run.high_s).max(0.0));
            finding.prove(view, &["dependency.latency_p50", "dependency.wait_time"], caller.row, span);
            format!(
                "and {} has answers of {} in {} instead of {}",
                services::callers(view, [caller.row]),
                Address::called(caller.row).text,
                words::seconds(caller.during_s),
                words::seconds(caller.before_s)
            )
        }
    };
    let dropped = match dropping {
        Some(dropping) => {
            finding.prove(view, &["nic.qdisc_dropped"], row, span);
            format!("{} packets were dropped", words::count(dropping.dropped))
        }
        None => "little or nothing is dropped yet".to_owned(),
    };
    finding.statement = format!(
        "a queue of {} stands before {device}{}: what is sent is delayed by {} ({} before), {felt}; {dropped}",
        words::bytes(backlog),
        net.place(),
        words::seconds(queue.high.during),
        words::seconds(queue.high.before.unwrap_or(0.0)),
    );
    let out = view.set.get("nic.tx_bytes", row).and_then(|s| s.mean(span)).filter(|out| *out > 0.0);
    if let Some((comm, pid, share)) = out.and_then(|out| sender(view, net, out, span)) {
        finding.remarks.push(format!("{comm} sends {} of what goes out", words::percent(share.min(1.0))));
        finding.culprit.process = Some(comm.to_owned());
        finding.culprit.pid = pid;
    }
    let metrics = [
        "nic.qdisc_backlog_bytes",
        "nic.qdisc_backlog_packets",
        "nic.qdisc_overlimits",
        "nic.tx_bytes",
        "nic.rx_packets",
    ];
    for metric in metrics {
        finding.evidence.extend(view.evidence(metric, row, span).filter(|e| e.during > 0.0));
    }
    finding.remarks.extend(held_back(view, row, span));
    finding.confidence = 0.8;
    finding
}

/// Whether a rate is what the queue waits for.
fn held_back(view: &View<'_>, row: &str, span: Span) -> Option<String> {
    let mean = |metric: &str| view.set.get(metric, row).and_then(|s| s.mean(span)).filter(|v| *v > 0.0);
    mean("nic.qdisc_overlimits")?;
    Some(format!(
        "packets were delayed by a rate limit set for the device, not because it is slow: {}/s go out",
        words::bytes(mean("nic.tx_bytes")?)
    ))
}

fn finding(view: &View<'_>, worst: &Dropping<'_>) -> Finding {
    let (row, span) = (worst.row, worst.high.run.span());
    let (device, net) = network::device(row);
    let mut finding = view.finding(&worst.high.run);
    finding.netns = Some(net.id());
    finding.culprit.nic = Some(row.to_owned());
    finding.statement = format!(
        "the qdisc of {device}{} dropped {} of the outgoing packets, {} in all ({}/s)",
        net.place(),
        words::percent(worst.share),
        words::count(worst.dropped),
        words::count(worst.high.during)
    );
    finding.prove_nonzero(
        view,
        &[
            "nic.qdisc_dropped",
            "nic.qdisc_overlimits",
            "nic.qdisc_backlog_bytes",
            "nic.tx_packets",
            "nic.tx_bytes",
        ],
        row,
        span,
    );
    let mean = |metric: &str| view.set.get(metric, row).and_then(|s| s.mean(span)).filter(|v| *v > 0.0);
    if let Some((backlog, rate)) = mean("nic.qdisc_backlog_bytes").zip(mean("nic.tx_bytes")) {
        finding.remarks.push(format!(
            "{} wait in its queue while {}/s go out: everything sent over it is delayed by {}",
            words::bytes(backlog),
            words::bytes(rate),
            words::seconds(backlog / rate)
        ));
    }
    finding.remarks.extend(held_back(view, row, span));
    name_senders(view, &mut finding, worst, span);
    finding.confidence = 0.9;
    finding
}

/// What of it was UDP: the kernel counts each datagram that its own device refused.
fn name_senders(view: &View<'_>, finding: &mut Finding, worst: &Dropping<'_>, span: Span) {
    let (_, net) = network::device(worst.row);
    let Some(udp) = net.total(view, &["udp.SndbufErrors"], span).filter(|n| *n >= 1.0) else { return };
    finding.evidence.extend(net.evidence(view, "udp.SndbufErrors", span));
    finding.remarks.push(format!(
        "{} of it were datagrams (UDP SndbufErrors), which are not retransmitted",
        words::percent((udp / worst.dropped).min(1.0))
    ));
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let (device, net) = network::device(finding.culprit.nic.as_deref().unwrap_or("DEVICE"));
    let device = words::shell(device);
    let enter = net.enter();
    vec![
        Remedy {
            action: "raise the rate limit of the device, or send less over it".to_owned(),
            command: format!("{enter}tc -s -d qdisc show dev {device}; {enter}tc -s class show dev {device}"),
            verify: format!(
                "{enter}tc -s qdisc show dev {device}: dropped stops growing and the backlog stays short"
            ),
            risk: "the rate limit may protect the link behind it".to_owned(),
        },
        Remedy {
            action: "if the device itself is saturated, let flows share it fairly".to_owned(),
            command: format!("{enter}tc qdisc replace dev {device} root fq_codel"),
            verify: format!("{enter}tc -s qdisc show dev {device}: the backlog stays short"),
            risk: "it replaces a configured rate limit".to_owned(),
        },
    ]
}

fn next(finding: &Finding) -> Vec<Next> {
    let (_, net) = network::device(finding.culprit.nic.as_deref().unwrap_or_default());
    vec![to_measure(
        "which sockets have most waiting to be sent".to_owned(),
        format!("{}ss -tunp | sort -k4 -n | tail", net.enter()),
    )]
}

/// What a queue may hold all the time: a link needs no more to be full, and what is beyond is only waited for (`TARGET` of
/// CoDel, RFC 8289, section 4.3).
const QUEUE_TARGET_S: f64 = 0.005;

/// How long what waits in front of a device takes to go out at the rate at which it sends.
fn queue_delay(set: &SeriesSet, row: &str, span: Span) -> Option<Signal> {
    let waiting = Signal::of(set.get("nic.qdisc_backlog_bytes", row)?, span);
    let sent = Signal::of(set.get("nic.tx_bytes", row)?, span);
    // Of a device that sends nothing it is not known.
    Some(waiting.zip(&sent, |waiting, sent| if waiting > 0.0 { waiting / sent } else { 0.0 }))
}

/// Of each device: one where what waits in front of it waits for longer than a queue needs.
fn late(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let delays = set.each("nic.qdisc_backlog_bytes").filter_map(|(row, _)| queue_delay(set, row, window));
    delays.map(|delay| delay.map(|seconds| step(seconds >= QUEUE_TARGET_S))).collect()
}
