//! The queue in front of a network device is full and packets are dropped before they are sent.
//!
//! Every device that sends has a queueing discipline. It drops when more is sent than the device takes or than a rate
//! that somebody has set (`tbf`, `htb`, a shaper of the container or the virtual machine) lets through. These drops are
//! in no column of /proc/net/dev: `tc -s qdisc` alone has them. TCP takes some of them as the sign to slow down, and
//! sends that part again; a program that sends UDP loses it, and the kernel counts it under `SndbufErrors`.
//!
//! Drops on receive are `nic-drops`; those of a socket that nobody reads are `socket-buffer-overflow`.

use mitra_model::Span;
use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::network;
use crate::view::{High, View};
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "qdisc-drops",
    title: "packets are dropped before a device sends them",
    role: Role::Root,
    area: "network",
    needs: &[
        "nic.qdisc_dropped",
        "nic.qdisc_overlimits",
        "nic.qdisc_backlog_bytes",
        "nic.qdisc_backlog_packets",
        "nic.tx_packets",
        "nic.tx_bytes",
        "udp.SndbufErrors",
        "netns.udp_SndbufErrors",
    ],
    observe,
    remedies,
    next,
    source: include_str!("qdisc_drops.rs"),
};

/// A hundredth of what was to be sent: TCP that fills a link loses less than that to find its limit.
const SHARE: f64 = 0.01;
/// One a second: of what hardly sends anything a share says nothing.
const RATE_S: f64 = 1.0;
/// In how many seconds at least.
const NEED_S: f64 = 2.0;
/// Fewer are chance.
const LEAST: f64 = 10.0;

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
        return match all.iter().max_by(most) {
            Some(most) => Observation::Inactive(format!(
                "{} dropped {} of its packets ({}), which is how TCP finds the limit of a link",
                most.row,
                words::percent(most.share),
                words::count(most.dropped)
            )),
            None if any => Observation::Inactive(format!(
                "queueing disciplines dropped at most {} packets/s",
                words::count(peak)
            )),
            None => Observation::CannotTell("drops of the queueing disciplines: tc -s qdisc".to_owned()),
        };
    };
    Observation::Active(Box::new(finding(view, worst)))
}

fn dropping<'a>(view: &View<'_>, row: &'a str) -> Option<Dropping<'a>> {
    let high = view.high("nic.qdisc_dropped", row, RATE_S, NEED_S)?;
    let span = high.run.span();
    let total = |metric: &str| view.set.get(metric, row).and_then(|s| s.total(span));
    let dropped = total("nic.qdisc_dropped")?;
    let share = network::share_of(dropped, total("nic.tx_packets").unwrap_or(0.0));
    Some(Dropping { row, high, dropped, share })
}

fn finding(view: &View<'_>, worst: &Dropping<'_>) -> Finding {
    let (row, span) = (worst.row, worst.high.run.span());
    let (device, net) = network::device(row);
    let mut finding = view.finding(&worst.high.run);
    finding.netns = Some(net.id());
    finding.culprit.nic = Some(row.to_owned());
    finding.statement = format!(
        "the queueing discipline of {device}{} dropped {} of the packets that were to be sent, {} in all ({}/s)",
        net.place(),
        words::percent(worst.share),
        words::count(worst.dropped),
        words::count(worst.high.during)
    );
    for metric in [
        "nic.qdisc_dropped",
        "nic.qdisc_overlimits",
        "nic.qdisc_backlog_bytes",
        "nic.tx_packets",
        "nic.tx_bytes",
    ] {
        finding.evidence.extend(view.evidence(metric, row, span).filter(|e| e.during > 0.0));
    }
    let mean = |metric: &str| view.set.get(metric, row).and_then(|s| s.mean(span)).filter(|v| *v > 0.0);
    if let Some((backlog, rate)) = mean("nic.qdisc_backlog_bytes").zip(mean("nic.tx_bytes")) {
        finding.remarks.push(format!(
            "{} wait in its queue while {}/s go out: whatever is sent over it comes {} later",
            words::bytes(backlog),
            words::bytes(rate),
            words::seconds(backlog / rate)
        ));
    }
    let overlimits = mean("nic.qdisc_overlimits");
    if let (Some(_), Some(rate)) = (overlimits, mean("nic.tx_bytes")) {
        finding.remarks.push(format!(
            "packets were held back because of a rate that is set for the device, and not because it is slow: {}/s go out",
            words::bytes(rate)
        ));
    }
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
        "{} of it were datagrams (UDP SndbufErrors), which nobody sends again",
        words::percent((udp / worst.dropped).min(1.0))
    ));
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let (device, net) = network::device(finding.culprit.nic.as_deref().unwrap_or("DEVICE"));
    let enter = net.enter();
    vec![
        Remedy {
            action: "raise the rate that is set for the device, or send less over it".to_owned(),
            command: format!("{enter}tc -s -d qdisc show dev {device}; {enter}tc -s class show dev {device}"),
            verify: format!("{enter}tc -s qdisc show dev {device}: dropped stops growing"),
            risk: "the rate may be there to protect the link behind it".to_owned(),
        },
        Remedy {
            action: "if it is the device itself that is full, let flows share it fairly".to_owned(),
            command: format!("{enter}tc qdisc replace dev {device} root fq_codel"),
            verify: format!("{enter}tc -s qdisc show dev {device}: the backlog stays short"),
            risk: "it replaces a rate that was set".to_owned(),
        },
    ]
}

fn next(finding: &Finding) -> Vec<Next> {
    let (_, net) = network::device(finding.culprit.nic.as_deref().unwrap_or_default());
    vec![Next {
        measure: "which sockets have most waiting to be sent".to_owned(),
        command: format!("{}ss -tunp | sort -k4 -n | tail", net.enter()),
    }]
}
