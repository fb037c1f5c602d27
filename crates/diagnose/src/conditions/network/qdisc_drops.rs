//! The queue in front of a network device is full and packets are dropped before they are sent.
//!
//! Every device that sends has a queueing discipline. It drops when more is sent than the device takes or than a rate
//! that somebody has set (`tbf`, `htb`, a shaper of the container or the virtual machine) lets through. These drops are
//! in no column of /proc/net/dev: `tc -s qdisc` alone has them. TCP takes some of them as the sign to slow down, and
//! sends that part again; a program that sends UDP loses it, and the kernel counts it under `SndbufErrors`.
//!
//! A queue that is nearly full drops nothing yet, and everything that is sent has to wait behind it. That is how a long
//! transfer fills a link, and hurts only who else needs it: those who wait for answers ask again when they have them, so
//! that less comes back over the device than before.
//!
//! Drops on receive are `nic-drops`; those of a socket that nobody reads are `socket-buffer-overflow`.

use crate::network;
use crate::prelude::*;

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

/// A queue in front of a device that others wait behind.
struct Standing<'a> {
    row: &'a str,
    high: High,
    /// Packets that came back each second, before and during.
    back: (f64, f64),
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
    let Some(worst) = all.iter().filter(hurts).max_by(most) else {
        let queues = view.each("nic.qdisc_backlog_bytes").filter_map(|(row, _)| standing(view, row));
        if let Some(longest) = queues.max_by(|a, b| a.high.during.total_cmp(&b.high.during)) {
            return of_standing(view, &longest).active();
        }
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
fn standing<'a>(view: &View<'_>, row: &'a str) -> Option<Standing<'a>> {
    let delay = queue_delay(view.set, row, view.window)?;
    let before = queue_delay(view.base_set, row, view.baseline?)?;
    let mut high =
        view.high_signal(&delay, view.threshold(QUEUE_TARGET_S, &before.v), STANDS_S, before.mean())?;
    high.during = delay.within(high.run.span()).mean()?;
    let back =
        (view.before("nic.rx_packets", row)?, view.set.get("nic.rx_packets", row)?.mean(high.run.span())?);
    (back.0 >= BACK_S && back.1 <= FEWER * back.0).then_some(Standing { row, high, back })
}

fn of_standing(view: &View<'_>, queue: &Standing<'_>) -> Finding {
    let (row, span) = (queue.row, queue.high.run.span());
    let (device, net) = network::device(row);
    let mut finding = view.finding(&queue.high.run);
    finding.netns = Some(net.id());
    finding.culprit.nic = Some(row.to_owned());
    let backlog = view.set.get("nic.qdisc_backlog_bytes", row).and_then(|s| s.mean(span)).unwrap_or(0.0);
    finding.statement = format!(
        "a queue of {} stands before {device}{}: what is sent is delayed by {} ({} before), and {} packets/s come back \
         instead of {}; little or nothing is dropped yet",
        words::bytes(backlog),
        net.place(),
        words::seconds(queue.high.during),
        words::seconds(queue.high.before.unwrap_or(0.0)),
        words::count(queue.back.1),
        words::count(queue.back.0)
    );
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
