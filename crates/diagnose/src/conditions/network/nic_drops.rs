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
//!
//! A ring holds what comes while the CPU is elsewhere: its size divided by the rate is how long that may be. Where each sample
//! with drops has a higher rate than each without, the rate from which on packets are lost is told.

use std::collections::BTreeSet;

use crate::network;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "nic-drops",
    title: "received packets are dropped in the NIC or behind it",
    area: "network",
    needs: &[
        "softnet.dropped",
        "softnet.processed",
        "softnet.time_squeeze",
        "nic.rx_drop",
        "nic.rx_fifo",
        "nic.rx_ring_drops",
        "nic.rx_packets",
        "nic.rx_ring",
        "nic.rx_ring_max",
        "nic.tx_drop",
        "drop.packets",
        "cpu.softirq",
        "cpu.idle",
        "sysctl.net.core.netdev_max_backlog",
    ],
    triggers: &[each_above(&["softnet.dropped", "nic.rx_fifo", "nic.rx_ring_drops", "nic.rx_drop"], 5.0)],
    observe,
    causes: &[
        effect("retransmit-storm", "lost ACKs cause retransmissions"),
        effect("resolver-slow", "answers are lost on arrival"),
        effect("session-drop", "heartbeats are lost on arrival"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("nic_drops.rs"),
    ..Condition::ROOT
};

/// A thousandth of the packets: TCP over 10 ms gets no more than 5 MB/s then, whatever the link can do.
const SHARE: f64 = 0.001;
/// Ten a second: less is what a single burst leaves.
const RATE_S: f64 = 10.0;
/// In how many seconds at least.
const NEED_S: f64 = 2.0;
/// A CPU that takes packets has no time left from here on.
const BUSY: f64 = 0.8;

/// Of the reasons for which packets are dropped, the one that is in the column `drop` of a device and harms nobody: nobody
/// on this machine speaks the protocol. What is not meant for the machine, or refused by a filter, is in no column.
const HARMLESS: &str = "unhandled_proto";

/// What a full backlog is counted under.
const BACKLOG: &[&str] = &["softnet.dropped"];
/// What a full ring is counted under.
const RING: &[&str] = &["nic.rx_ring_drops", "nic.rx_fifo"];
/// The column `drop`.
const COLUMN: &[&str] = &["nic.rx_drop"];

/// Where packets were lost.
#[derive(Clone, Copy)]
enum DropPoint {
    /// In the backlog of the CPUs.
    Backlog,
    /// In the ring of a device.
    Ring,
    /// Nothing but the column `drop`, with no harmless reason for it.
    Column,
}

/// Packets that were lost: in the backlogs, or of one device.
struct Lost<'a> {
    place: DropPoint,
    device: Option<&'a str>,
    high: High,
    lost: f64,
    passed: f64,
}

impl Lost<'_> {
    fn share(&self) -> f64 {
        network::share_of(self.lost, self.passed)
    }

    /// Whether it is a part of what came that hurts.
    fn hurts(&self) -> bool {
        self.share() >= SHARE
    }
}

fn observe(view: &View<'_>) -> Observation {
    let has_any = ["softnet.dropped", "nic.rx_drop"].iter().any(|m| view.has(m));
    if !has_any {
        return Observation::cannot_tell("/proc/net/softnet_stat, /proc/net/dev");
    }
    match backlog(view).or_else(|| ring(view)).map_or_else(|| column(view), Ok) {
        Ok(found) => finding(view, &found).active(),
        Err(observation) => observation,
    }
}

/// A sum of metrics over some of the rows that have them.
fn sum(set: &SeriesSet, metrics: &[&str], rows: &[&str], span: Span) -> Option<Signal> {
    let series = rows.iter().flat_map(|row| metrics.iter().filter_map(move |metric| set.get(metric, row)));
    Signal::sum(series, span)
}

/// What was lost of some rows while it was high against a floor and against what it was before, and what passed.
fn lost<'a>(view: &View<'_>, place: DropPoint, rows: &[&'a str]) -> Option<Lost<'a>> {
    let (metrics, passed, is_device): (&[&str], &str, bool) = match place {
        DropPoint::Backlog => (BACKLOG, "softnet.processed", false),
        DropPoint::Ring => (RING, "nic.rx_packets", true),
        DropPoint::Column => (COLUMN, "nic.rx_packets", true),
    };
    let base = view.baseline.and_then(|b| sum(view.base_set, metrics, rows, b)).unwrap_or_default();
    let signal = sum(view.set, metrics, rows, view.window)?;
    let high = view.high_signal(&signal, view.threshold(RATE_S, &base.v), NEED_S, base.mean())?;
    let total = |metrics: &[&str]| sum(view.set, metrics, rows, high.run.span()).map_or(0.0, |s| s.total());
    Some(Lost {
        place,
        device: rows.first().copied().filter(|_| is_device),
        lost: total(metrics),
        passed: total(&[passed]),
        high,
    })
}

/// The rows that have one of some metrics.
fn rows<'a>(view: &View<'a>, metrics: &[&str]) -> Vec<&'a str> {
    let set: &'a SeriesSet = view.set;
    let all: BTreeSet<&'a str> = metrics.iter().flat_map(|m| set.each(m).map(|(row, _)| row)).collect();
    all.into_iter().collect()
}

/// The one that lost most.
fn worst<'a>(all: impl Iterator<Item = Lost<'a>>) -> Option<Lost<'a>> {
    all.max_by(|a, b| a.lost.total_cmp(&b.lost))
}

/// What the backlogs of all CPUs lost; or one of them, which may be few beside what the others took.
fn backlog<'a>(view: &View<'a>) -> Option<Lost<'a>> {
    let cpus = rows(view, BACKLOG);
    let of = |cpus: &[&'a str]| lost(view, DropPoint::Backlog, cpus).filter(Lost::hurts);
    of(&cpus).or_else(|| worst(cpus.iter().filter_map(|cpu| of(&[*cpu]))))
}

/// What the ring of a device lost: of several devices the one that lost most of those that lost a part that hurts.
fn ring<'a>(view: &View<'a>) -> Option<Lost<'a>> {
    let devices = rows(view, RING);
    let of_each = devices.iter().filter_map(|row| lost(view, DropPoint::Ring, &[*row]));
    worst(of_each.filter(Lost::hurts))
}

/// What the column `drop` says of received packets of a device, without those that were dropped for a harmless reason.
fn column<'a>(view: &View<'a>) -> Result<Lost<'a>, Observation> {
    let devices = rows(view, COLUMN);
    let mut all: Vec<Lost<'a>> =
        devices.iter().filter_map(|row| lost(view, DropPoint::Column, &[*row])).filter(Lost::hurts).collect();
    if all.is_empty() {
        let peak = |metric: &str| {
            sum(view.set, &[metric], &rows(view, &[metric]), view.window).and_then(|s| s.max()).unwrap_or(0.0)
        };
        return Err(Observation::Inactive(format!(
            "no device and no queue behind one lost a thousandth of what came for it for long; at most {} packets/s in all",
            words::count(peak("softnet.dropped") + peak("nic.rx_drop"))
        )));
    }
    let together: f64 = all.iter().map(|one| one.lost).sum();
    if !view.has("drop.packets") {
        return Err(Observation::suspected(format!(
            "the reason for {} packets in the column drop of /proc/net/dev, which may be harmless: perf trace -e \
             skb:kfree_skb, or dropwatch",
            words::count(together)
        )));
    }
    // The kernel counts the reasons for all devices together: each may have had all of the harmless ones.
    let mut harmless: f64 = 0.0;
    for one in &mut all {
        let span = one.high.run.span();
        let of_span = sum(view.set, &["drop.packets"], &[HARMLESS], span).map_or(0.0, |s| s.total());
        harmless = harmless.max(of_span);
        let rest = one.lost - of_span;
        one.lost = if rest >= one.lost / 2.0 { rest } else { 0.0 };
    }
    let is_left = |one: &Lost<'_>| one.lost >= RATE_S * one.high.run.high_s && one.hurts();
    if let Some(mut found) = worst(all.into_iter().filter(is_left)) {
        let span = found.high.run.span();
        let cpus = rows(view, BACKLOG);
        let queued = sum(view.set, BACKLOG, &cpus, span).map_or(0.0, |s| s.total());
        if queued >= found.lost / 2.0 {
            found.place = DropPoint::Backlog;
        }
        return Ok(found);
    }
    if harmless < together / 2.0 {
        return Err(Observation::suspected(format!(
            "which of several devices lost {} packets for a reason that harms: ip -s link, ethtool -S DEVICE",
            words::count(together - harmless)
        )));
    }
    Err(Observation::Inactive(format!(
        "{} packets in the column drop of /proc/net/dev were of no use to this machine ({HARMLESS})",
        words::count(together)
    )))
}

fn finding(view: &View<'_>, found: &Lost<'_>) -> Finding {
    let span = found.high.run.span();
    let mut finding = view.finding(&found.high.run);
    let place = match found.place {
        DropPoint::Backlog => "the queue between device and network stack (softnet backlog) was full",
        DropPoint::Ring => "the RX ring of a device was full",
        DropPoint::Column => "a device or its driver dropped packets on receive",
    };
    let nic = match found.device {
        Some(row) => {
            most_lost(view, &[RING, COLUMN].concat(), Some(row), span).or(Some((row, "nic.rx_drop")))
        }
        None => worst_nic(view, span),
    };
    let at = nic.as_ref().map(|(row, _)| format!(" for {row}")).unwrap_or_default();
    finding.statement = format!(
        "{place}{at}: {} packets were lost, {} of those that came ({}/s)",
        words::count(found.lost),
        words::percent(found.share()),
        words::count(found.high.during)
    );
    if let Some((row, metric)) = nic {
        finding.culprit.nic = Some(row.to_owned());
        finding.evidence.extend(view.evidence(metric, row, span));
        finding.evidence.extend(view.evidence("nic.rx_packets", row, span));
        if !matches!(found.place, DropPoint::Backlog) {
            add_ring(view, &mut finding, row, span);
        }
        // What else stands in the column `drop` does not depend on the rate.
        if matches!(found.place, DropPoint::Ring) {
            finding.remarks.extend(knee(view, metric, row));
        }
    }
    if !matches!(found.place, DropPoint::Ring) {
        add_cpus(view, &mut finding, span);
    }
    for (reason, _) in view.each("drop.packets").filter(|(reason, _)| *reason == "cpu_backlog") {
        finding.evidence.extend(view.evidence("drop.packets", reason, span).filter(|e| e.during > 0.0));
    }
    if matches!(found.place, DropPoint::Backlog)
        && let Some(limit) = view.reading_evidence("sysctl.net.core.netdev_max_backlog", "")
    {
        finding.evidence.push(limit);
    }
    finding.confidence = if matches!(found.place, DropPoint::Column) { 0.7 } else { 0.9 };
    finding
}

/// The device that lost most. What the backlog refuses counts as dropped on receive of the device that it came from, and
/// on the other end of a pair of virtual devices as dropped on send.
fn worst_nic<'a>(view: &View<'a>, span: Span) -> Option<(&'a str, &'static str)> {
    let received = [RING, COLUMN].concat();
    most_lost(view, &received, None, span).or_else(|| most_lost(view, &["nic.tx_drop"], None, span))
}

/// Of a device, or of all, the row and the metric that counts most.
fn most_lost<'a>(
    view: &View<'a>,
    metrics: &[&'static str],
    only: Option<&str>,
    span: Span,
) -> Option<(&'a str, &'static str)> {
    let set: &'a SeriesSet = view.set;
    let rows = metrics.iter().flat_map(|m| set.each(m).map(move |(row, series)| (row, *m, series)));
    rows.filter(|(row, ..)| only.is_none_or(|only| only == *row))
        .filter_map(|(row, metric, series)| Some((row, metric, series.total(span)?)))
        .filter(|(_, _, total)| *total >= 1.0)
        .max_by(|a, b| a.2.total_cmp(&b.2))
        .map(|(row, metric, _)| (row, metric))
}

/// How much the ring of a device holds, and how much the largest would.
fn add_ring(view: &View<'_>, finding: &mut Finding, row: &str, span: Span) {
    let rate = view.set.get("nic.rx_packets", row).and_then(|s| s.mean(span)).filter(|rate| *rate > 0.0);
    let Some((size, rate)) = view.reading("nic.rx_ring", row).zip(rate) else { return };
    let rings = ["nic.rx_ring", "nic.rx_ring_max"];
    finding.evidence.extend(rings.iter().filter_map(|metric| view.reading_evidence(metric, row)));
    let holds = |packets: f64| words::seconds(packets / rate);
    let most = match view.reading("nic.rx_ring_max", row) {
        Some(most) if most > size => {
            format!("; the largest, of {}, what comes in {}", words::count(most), holds(most))
        }
        Some(_) => "; the driver makes no larger one".to_owned(),
        None => String::new(),
    };
    finding.remarks.push(format!(
        "a ring of {} packets holds what comes in {}, if all of it comes over one queue{most}",
        words::count(size),
        holds(size)
    ));
}

/// The rate from which on a device loses a part that hurts, by the samples, and the highest at which it lost nothing.
fn knee(view: &View<'_>, metric: &str, row: &str) -> Option<String> {
    let of = |set: &SeriesSet, span: Span| {
        let lost = Signal::of(set.get(metric, row)?, span);
        let came = lost.zip(&Signal::of(set.get("nic.rx_packets", row)?, span), |lost, came| lost + came);
        Some((came, lost))
    };
    let unless = |is_so: bool, value: f64| if is_so { value } else { f64::NAN };
    let free = |(came, lost): &(Signal, Signal)| came.zip(lost, |came, lost| unless(lost < 1.0, came)).max();
    let now = of(view.set, view.window)?;
    let hurts = |came: f64, lost: f64| unless(lost >= 1.0 && lost >= SHARE * came, came);
    let begins = now.0.zip(&now.1, hurts).min()?;
    let before = view.baseline.and_then(|baseline| of(view.base_set, baseline));
    let most = free(&now).into_iter().chain(before.as_ref().and_then(free)).max_by(f64::total_cmp)?;
    let (begins_at, most_at) = (words::count(begins), words::count(most));
    Some(if most < begins {
        format!("it loses packets from about {begins_at}/s on, and lost none at up to {most_at}/s")
    } else {
        format!(
            "the rate does not tell when it loses packets: it lost some at {begins_at}/s and none at {most_at}/s, so that \
             bursts shorter than a sample fill the ring"
        )
    })
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
    finding.prove(view, &["softnet.dropped", "softnet.processed"], cpu, span);
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
    let device = words::shell(device);
    let is_backlog = finding.evidence.iter().any(|e| e.metric == "softnet.dropped");
    let verify = "awk '{print $2}' /proc/net/softnet_stat; ip -s -s link: stop growing".to_owned();
    let limit = finding.evidence.iter().find(|e| e.metric == "sysctl.net.core.netdev_max_backlog");
    let wanted = limit.map_or(4096.0, |e| (4.0 * e.during).max(1000.0));
    let mut remedies = Vec::new();
    if is_backlog {
        remedies.push(Remedy {
            action: "a longer backlog queue for each CPU".to_owned(),
            command: format!("sysctl -w net.core.netdev_max_backlog={wanted:.0}"),
            verify: verify.clone(),
            risk: "packets wait longer, and take memory that cannot be swapped".to_owned(),
        });
    } else {
        let of = |metric: &str| finding.evidence.iter().find(|e| e.metric == metric).map(|e| e.during);
        let (size, most) = (of("nic.rx_ring"), of("nic.rx_ring_max"));
        let wanted = size.map_or(4096.0, |size| 4.0 * size).min(most.unwrap_or(f64::INFINITY));
        // A ring that is as large as can be cannot help.
        if size.is_none_or(|size| wanted > size) {
            remedies.push(Remedy {
                action: "a larger RX ring".to_owned(),
                command: format!("ethtool -g {device}; ethtool -G {device} rx {wanted:.0}"),
                verify: verify.clone(),
                risk: "the link is down for a moment with many drivers".to_owned(),
            });
        }
    }
    remedies.push(Remedy {
        action: "let several CPUs take the packets".to_owned(),
        command: format!(
            "echo f > /sys/class/net/{device}/queues/rx-0/rps_cpus; ethtool -L {device} combined N"
        ),
        verify,
        risk: "packets of one connection may be reordered during the change".to_owned(),
    });
    remedies
}

fn next(finding: &Finding) -> Vec<Next> {
    let (device, _) = network::device(finding.culprit.nic.as_deref().unwrap_or("DEVICE"));
    let device = words::shell(device);
    vec![to_measure(
        "the driver's own drop counters".to_owned(),
        format!("ethtool -S {device} | grep -i -e drop -e miss -e fifo"),
    )]
}
