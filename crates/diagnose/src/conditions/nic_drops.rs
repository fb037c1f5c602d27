//! Packets that arrive are lost before the network stack sees them: the ring of a device or the queue behind it is full.
//!
//! A device puts packets into a ring in memory; when nobody takes them out in time the next ones are lost
//! (`rx_missed`, `rx_fifo`). Virtual devices and packet steering put them into the backlog of a CPU, which holds
//! `net.core.netdev_max_backlog` (`softnet.dropped`). Either way the CPU that serves them had something else to do or has
//! more to do than it can.
//!
//! The column `drop` of /proc/net/dev does not tell: it also counts packets of a protocol that nobody on the machine
//! speaks, which harms nobody. The kernel's reason for each drop tells, where it is recorded: `unhandled_proto` is
//! harmless. Drops on send are `qdisc-drops`; those of a socket that nobody reads are `socket-buffer-overflow`.

use mitra_model::Span;
use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::network;
use crate::signal::Signal;
use crate::view::{High, View};
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "nic-drops",
    title: "arriving packets are lost in a device or behind it",
    role: Role::Root,
    area: "network",
    needs: &[
        "softnet.dropped",
        "softnet.processed",
        "softnet.time_squeeze",
        "nic.rx_drop",
        "nic.rx_fifo",
        "nic.rx_ring_drops",
        "nic.rx_packets",
        "nic.tx_drop",
        "drop.packets",
        "cpu.softirq",
        "cpu.idle",
        "sysctl.net.core.netdev_max_backlog",
    ],
    observe,
    remedies,
    next,
    source: include_str!("nic_drops.rs"),
};

/// A thousandth of the packets: TCP over 10 ms gets no more than 5 MB/s then, whatever the link can do.
const SHARE: f64 = 0.001;
/// Ten a second: less is what a single burst leaves.
const RATE_S: f64 = 10.0;
/// In how many seconds at least.
const NEED_S: f64 = 2.0;
/// A CPU that takes packets has no time left from here on.
const BUSY: f64 = 0.8;

/// Reasons for which a packet is dropped that was not meant for this machine or that nobody on it wants.
const HARMLESS: &[&str] = &[
    "unhandled_proto",
    "otherhost",
    "ip_noproto",
    "packet_sock_error",
    "tc_ingress",
    "vlan_filter",
    "mac_invalid_source",
    "ipv6disabled",
];

/// Where packets were lost.
enum Place {
    /// In the backlog of the CPUs.
    Backlog,
    /// In the ring of a device.
    Ring,
    /// Nothing but the column `drop`, with no harmless reason for it.
    Column,
}

/// Packets that were lost.
struct Lost {
    place: Place,
    high: High,
    lost: f64,
    passed: f64,
}

fn observe(view: &View<'_>) -> Observation {
    let has_any = ["softnet.dropped", "nic.rx_drop"].iter().any(|m| view.each(m).next().is_some());
    if !has_any {
        return Observation::CannotTell("/proc/net/softnet_stat, /proc/net/dev".to_owned());
    }
    let found = backlog(view).or_else(|| ring(view));
    let found = match found {
        Some(found) => found,
        None => match column(view) {
            Ok(found) => found,
            Err(observation) => return observation,
        },
    };
    let share = network::share_of(found.lost, found.passed);
    if share < SHARE {
        return Observation::Inactive(format!(
            "{} packets were lost on arrival, {} of all",
            words::count(found.lost),
            words::percent(share)
        ));
    }
    Observation::Active(Box::new(finding(view, &found, share)))
}

/// A sum of a metric over everything that has it.
fn sum(view: &View<'_>, metrics: &[&str], span: Span) -> Option<Signal> {
    Signal::sum(metrics.iter().flat_map(|m| view.set.each(m)).map(|(_, series)| series), span)
}

/// The stretch in which a sum over everything that has some metrics was high.
fn high(view: &View<'_>, metrics: &[&str]) -> Option<High> {
    let base = view.baseline.and_then(|b| {
        Signal::sum(metrics.iter().flat_map(|m| view.base_set.each(m)).map(|(_, series)| series), b)
    });
    let base = base.unwrap_or_default();
    let threshold = view.threshold(RATE_S, &base.v);
    view.high_signal(&sum(view, metrics, view.window)?, threshold, NEED_S, base.mean())
}

fn backlog(view: &View<'_>) -> Option<Lost> {
    let high = high(view, &["softnet.dropped"])?;
    let span = high.run.span();
    let total = |metric: &str| sum(view, &[metric], span).map_or(0.0, |s| s.total());
    Some(Lost {
        lost: total("softnet.dropped"),
        passed: total("softnet.processed"),
        place: Place::Backlog,
        high,
    })
}

fn ring(view: &View<'_>) -> Option<Lost> {
    let high = high(view, &["nic.rx_ring_drops", "nic.rx_fifo"])?;
    let span = high.run.span();
    let total = |metrics: &[&str]| sum(view, metrics, span).map_or(0.0, |s| s.total());
    Some(Lost {
        lost: total(&["nic.rx_ring_drops", "nic.rx_fifo"]),
        passed: total(&["nic.rx_packets"]),
        place: Place::Ring,
        high,
    })
}

/// What the column `drop` says of received packets, without those that were dropped for a harmless reason.
fn column(view: &View<'_>) -> Result<Lost, Observation> {
    let Some(high) = high(view, &["nic.rx_drop"]) else {
        let peak = sum(view, &["softnet.dropped", "nic.rx_drop"], view.window).and_then(|s| s.max());
        return Err(Observation::Inactive(format!(
            "devices and their queues lost at most {} packets/s",
            words::count(peak.unwrap_or(0.0))
        )));
    };
    let span = high.run.span();
    let lost = sum(view, &["nic.rx_drop"], span).map_or(0.0, |s| s.total());
    let reasons: Vec<(&str, f64)> =
        view.each("drop.packets").filter_map(|(row, s)| Some((row, s.total(span)?))).collect();
    if reasons.is_empty() {
        return Err(Observation::Suspected(format!(
            "the reason for {} packets in the column drop of /proc/net/dev, which may be harmless: perf trace -e \
             skb:kfree_skb, or dropwatch",
            words::count(lost)
        )));
    }
    let harmless: f64 = reasons.iter().filter(|(reason, _)| HARMLESS.contains(reason)).map(|(_, n)| n).sum();
    let rest = lost - harmless;
    if rest < RATE_S * high.run.high_s || rest < lost / 2.0 {
        let most = reasons.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("?", |(reason, _)| reason);
        return Err(Observation::Inactive(format!(
            "{} packets in the column drop of /proc/net/dev were of no use to this machine ({most})",
            words::count(lost)
        )));
    }
    let passed = sum(view, &["nic.rx_packets"], span).map_or(0.0, |s| s.total());
    Ok(Lost { place: Place::Column, high, lost: rest, passed })
}

fn finding(view: &View<'_>, found: &Lost, share: f64) -> Finding {
    let span = found.high.run.span();
    let mut finding = view.finding(&found.high.run);
    let place = match found.place {
        Place::Backlog => "the queue between device and network stack (softnet backlog) was full",
        Place::Ring => "the ring of a device was full",
        Place::Column => "a device or its driver dropped packets on receive",
    };
    let nic = worst_nic(view, span);
    let at = nic.as_ref().map(|(row, _)| format!(" for {row}")).unwrap_or_default();
    finding.statement = format!(
        "{place}{at}: {} packets were lost, {} of those that came ({}/s)",
        words::count(found.lost),
        words::percent(share),
        words::count(found.high.during)
    );
    if let Some((row, metric)) = nic {
        finding.culprit.nic = Some(row.to_owned());
        finding.evidence.extend(view.evidence(metric, row, span));
        finding.evidence.extend(view.evidence("nic.rx_packets", row, span));
    }
    add_cpus(view, &mut finding, span);
    for (reason, _) in view.each("drop.packets").filter(|(reason, _)| *reason == "cpu_backlog") {
        finding.evidence.extend(view.evidence("drop.packets", reason, span).filter(|e| e.during > 0.0));
    }
    if matches!(found.place, Place::Backlog)
        && let Some(limit) = view.reading_evidence("sysctl.net.core.netdev_max_backlog", "")
    {
        finding.evidence.push(limit);
    }
    finding.confidence = if matches!(found.place, Place::Column) { 0.7 } else { 0.9 };
    finding
}

/// The device that lost most. What the backlog refuses counts as dropped on receive of the device that it came from, and
/// on the other end of a pair of virtual devices as dropped on send.
fn worst_nic<'a>(view: &View<'a>, span: Span) -> Option<(&'a str, &'static str)> {
    let set: &'a mitra_model::SeriesSet = view.set;
    let most = |metrics: &[&'static str]| {
        let rows = metrics.iter().flat_map(|m| set.each(m).map(move |(row, series)| (row, *m, series)));
        rows.filter_map(|(row, metric, series)| Some((row, metric, series.total(span)?)))
            .filter(|(_, _, total)| *total >= 1.0)
            .max_by(|a, b| a.2.total_cmp(&b.2))
            .map(|(row, metric, _)| (row, metric))
    };
    most(&["nic.rx_ring_drops", "nic.rx_fifo", "nic.rx_drop"]).or_else(|| most(&["nic.tx_drop"]))
}

/// Which CPUs dropped, and whether they had any time left.
fn add_cpus(view: &View<'_>, finding: &mut Finding, span: Span) {
    let mut cpus: Vec<(&str, f64)> = view
        .each("softnet.dropped")
        .filter_map(|(cpu, series)| Some((cpu, series.total(span)?)))
        .filter(|(_, total)| *total >= 1.0)
        .collect();
    cpus.sort_by(|a, b| b.1.total_cmp(&a.1));
    let Some(&(cpu, most)) = cpus.first() else { return };
    let all: f64 = cpus.iter().map(|(_, total)| total).sum();
    finding.evidence.extend(view.evidence("softnet.dropped", cpu, span));
    finding.evidence.extend(view.evidence("softnet.processed", cpu, span));
    let softirq = view.set.get("cpu.softirq", cpu).and_then(|s| s.mean(span));
    let Some(softirq) = softirq else { return };
    finding.evidence.extend(view.evidence("cpu.softirq", cpu, span));
    let share = words::percent(most / all);
    finding.remarks.push(if softirq >= BUSY {
        format!("CPU {cpu} lost {share} of it and takes packets all the time: it can do no more")
    } else {
        format!(
            "CPU {cpu} lost {share} of it and took packets for {} of the time: bursts are longer than the queue",
            words::percent(softirq)
        )
    });
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let (device, _) = network::device(finding.culprit.nic.as_deref().unwrap_or("DEVICE"));
    let is_backlog = finding.evidence.iter().any(|e| e.metric == "softnet.dropped");
    let verify = "awk '{print $2}' /proc/net/softnet_stat; ip -s -s link: stop growing".to_owned();
    let limit = finding.evidence.iter().find(|e| e.metric == "sysctl.net.core.netdev_max_backlog");
    let wanted = limit.map_or(4096.0, |e| (4.0 * e.during).max(1000.0));
    let mut remedies = Vec::new();
    if is_backlog {
        remedies.push(Remedy {
            action: "a longer queue for each CPU".to_owned(),
            command: format!("sysctl -w net.core.netdev_max_backlog={wanted:.0}"),
            verify: verify.clone(),
            risk: "packets wait longer, and take memory that cannot be swapped".to_owned(),
        });
    } else {
        remedies.push(Remedy {
            action: "a longer ring".to_owned(),
            command: format!("ethtool -g {device}; ethtool -G {device} rx 4096"),
            verify: verify.clone(),
            risk: "the link is down for a moment with many drivers".to_owned(),
        });
    }
    remedies.push(Remedy {
        action: "let several CPUs take the packets".to_owned(),
        command: format!(
            "echo f > /sys/class/net/{device}/queues/rx-0/rps_cpus; ethtool -L {device} combined N"
        ),
        verify,
        risk: "packets of one connection may be taken out of order while it changes".to_owned(),
    });
    remedies
}

fn next(finding: &Finding) -> Vec<Next> {
    let (device, _) = network::device(finding.culprit.nic.as_deref().unwrap_or("DEVICE"));
    vec![Next {
        measure: "the driver's own names for what it lost".to_owned(),
        command: format!("ethtool -S {device} | grep -i -e drop -e miss -e fifo"),
    }]
}
