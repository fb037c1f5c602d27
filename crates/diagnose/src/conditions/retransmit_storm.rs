//! TCP has to send a part of its data again: packets get lost on the way.
//!
//! A lost packet costs its connection a round trip where others follow it, and at least 0.2 s where it was the last one
//! of a request or an answer, which then waits for the time-out. The rate of what goes through falls with the root of
//! the share that is lost: at one per cent and a round trip of 10 ms a connection gets no more than 1.8 MB/s, whatever
//! the link can do.
//!
//! Counted are data. A connection attempt that is repeated says as much about a server that does not accept
//! (`listen-overflow`) as about the way to it. Losses that this machine brings about itself are known by their own
//! counters and are the root then: `qdisc-drops`, `nic-drops`, `conntrack-full`, `tcp-memory-pressure`. What is sent
//! again in vain, because it had only been late, is answered with a D-SACK by the peer and is said to be so.

use mitra_model::Span;
use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::network::{self, Net, RETRANSMITS_S, RETRANSMITS_SHARE, RTO_MIN_S, TIMEOUTS_FELT};
use crate::view::{High, View};
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "retransmit-storm",
    title: "packets get lost on the way and TCP sends them again",
    role: Role::Root,
    area: "network",
    needs: &[
        "tcp.RetransSegs",
        "tcp.OutSegs",
        "tcpext.TCPSynRetrans",
        "tcpext.TCPTimeouts",
        "tcpext.TCPLostRetransmit",
        "tcpext.TCPDSACKRecv",
        "netns.tcp_RetransSegs",
        "netns.tcp_OutSegs",
        "netns.tcpext_TCPSynRetrans",
        "netns.tcpext_TCPTimeouts",
        "netns.tcpext_TCPLostRetransmit",
        "peer.retransmits",
    ],
    observe,
    remedies,
    next,
    source: include_str!("retransmit_storm.rs"),
};

/// In how many seconds at least.
const NEED_S: f64 = 3.0;
/// The share has to be this many times that of the baseline: losses that are always there are not what changed.
const GROWTH: f64 = 3.0;
/// Fewer are chance.
const LEAST: f64 = 10.0;
/// Of time-outs, each of which is a fifth of a second at least, five are not.
const TIMEOUTS_LEAST: f64 = 5.0;

/// The losses of one namespace.
struct Losses<'a> {
    net: Net<'a>,
    high: High,
    again: f64,
    timeouts: f64,
    sent: f64,
    share_before: Option<f64>,
}

fn observe(view: &View<'_>) -> Observation {
    let nets = network::nets(view.set, "tcp.RetransSegs");
    if nets.is_empty() {
        return Observation::CannotTell("TcpRetransSegs and TcpOutSegs (nstat)".to_owned());
    }
    let all: Vec<Losses<'_>> = nets.iter().filter_map(|net| losses(view, *net)).collect();
    let Some(worst) = all.iter().max_by(|a, b| a.again.total_cmp(&b.again)) else {
        let peak = nets.iter().filter_map(|net| network::retransmits(view.set, *net, view.window)?.max());
        return Observation::Inactive(format!(
            "data that were sent again: at most {} segments/s",
            words::count(peak.fold(0.0, f64::max))
        ));
    };
    let share = worst.share();
    if (share < RETRANSMITS_SHARE || worst.again < LEAST) && !worst.is_felt() {
        return Observation::Inactive(format!(
            "{} of the segments were sent again ({})",
            words::percent(share),
            words::count(worst.again)
        ));
    }
    if let Some(before) = worst.share_before.filter(|before| share < GROWTH * before) {
        return Observation::Inactive(format!(
            "{} of the segments were sent again, and {} before",
            words::percent(share),
            words::percent(before)
        ));
    }
    Observation::Active(Box::new(finding(view, worst)))
}

impl Losses<'_> {
    /// Of the segments that were sent. `OutSegs` leaves out what is sent again.
    fn share(&self) -> f64 {
        network::share_of(self.again, self.sent)
    }

    /// Whether time-outs alone take a part of somebody's time that is felt: of small requests and answers a few that are
    /// lost are enough.
    fn is_felt(&self) -> bool {
        let late_s = self.timeouts * RTO_MIN_S / self.high.run.span().seconds().max(1.0);
        self.timeouts >= TIMEOUTS_LEAST && late_s >= TIMEOUTS_FELT
    }
}

fn losses<'a>(view: &View<'_>, net: Net<'a>) -> Option<Losses<'a>> {
    let signal = network::retransmits(view.set, net, view.window)?;
    let base = view.baseline.and_then(|b| network::retransmits(view.base_set, net, b)).unwrap_or_default();
    let threshold = view.threshold(RETRANSMITS_S, &base.v);
    let high = view.high_signal(&signal, threshold, NEED_S, base.mean())?;
    let span = high.run.span();
    let sent = net.total(view, &["tcp.OutSegs"], span)?;
    let sent_before = view
        .baseline
        .and_then(|b| net.sum(view.base_set, &["tcp.OutSegs"], b))
        .map(|s| s.total())
        .filter(|sent| *sent > 0.0);
    Some(Losses {
        net,
        again: signal.within(span).total(),
        timeouts: network::timeouts(view.set, net, span).map_or(0.0, |late| late.total()),
        sent,
        share_before: sent_before.map(|sent| network::share_of(base.total(), sent)),
        high,
    })
}

fn finding(view: &View<'_>, losses: &Losses<'_>) -> Finding {
    let (net, span) = (losses.net, losses.high.run.span());
    let mut finding = view.finding(&losses.high.run);
    let before = losses.share_before.map(|s| format!(" ({} before)", words::percent(s))).unwrap_or_default();
    finding.statement = format!(
        "TCP sent {} of its segments again{before}, {} in all{}",
        words::percent(losses.share()),
        words::count(losses.again),
        net.place()
    );
    for metric in ["tcp.RetransSegs", "tcp.OutSegs", "tcpext.TCPSynRetrans", "tcpext.TCPTimeouts"] {
        finding.evidence.extend(net.evidence(view, metric, span).filter(|e| e.during > 0.0));
    }
    let total = |metric| net.total(view, &[metric], span);
    if let Some(timeouts) = total("tcpext.TCPTimeouts") {
        let of_data = (timeouts - total("tcpext.TCPSynRetrans").unwrap_or(0.0)).max(0.0);
        finding.loss_s = Some(of_data * RTO_MIN_S);
        if of_data >= 1.0 {
            finding.remarks.push(format!(
                "{} times the end of a request or an answer was lost and nothing but the time-out noticed: each of them \
                 waited for {} at least",
                words::count(of_data),
                words::seconds(RTO_MIN_S)
            ));
        }
    }
    let in_vain = total("tcpext.TCPDSACKRecv").unwrap_or(0.0) / losses.again.max(1.0);
    finding.confidence = 0.9;
    if in_vain >= 0.5 {
        finding.confidence = 0.6;
        finding.remarks.push(format!(
            "{} of it had arrived the first time (D-SACK): the packets are late or out of order and not lost",
            words::percent(in_vain.min(1.0))
        ));
    }
    name_peer(view, &mut finding, span);
    finding
}

/// The peer to which most was sent again, and whether it is the only one.
fn name_peer(view: &View<'_>, finding: &mut Finding, span: Span) {
    let mut peers: Vec<(&str, f64)> = view
        .each("peer.retransmits")
        .filter_map(|(row, series)| Some((row, series.total(span)?)))
        .filter(|(_, total)| *total >= 1.0)
        .collect();
    peers.sort_by(|a, b| b.1.total_cmp(&a.1));
    let Some(&(first, most)) = peers.first() else { return };
    let all: f64 = peers.iter().map(|(_, total)| total).sum();
    finding.evidence.extend(view.evidence("peer.retransmits", first, span));
    if 2.0 * most < all {
        finding.remarks.push(format!(
            "{} peers are concerned, {first} with {} of it: they share something near this machine rather than far away",
            peers.len(),
            words::percent(most / all)
        ));
        return;
    }
    finding.culprit.address = Some(network::device(first).0.to_owned());
    finding.statement.push_str(&format!(", {} of it to {first}", words::percent(most / all)));
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let host =
        finding.culprit.address.as_deref().and_then(|a| a.rsplit_once(':')).map_or("PEER", |(host, _)| host);
    vec![Remedy {
        action: format!(
            "find where on the way to {host} packets are lost: cable, duplex, a policer, a full link, a firewall"
        ),
        command: format!("mtr -T -w -c 100 {host}; ip -s -s link; tc -s qdisc"),
        verify: "nstat -az TcpRetransSegs TcpOutSegs: below one in a thousand".to_owned(),
        risk: String::new(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let peer = finding.culprit.address.as_deref().unwrap_or("PEER");
    vec![Next {
        measure: "round trip, window and losses of each connection".to_owned(),
        command: format!("ss -tinp dst {peer}"),
    }]
}
