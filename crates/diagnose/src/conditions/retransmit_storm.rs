//! TCP has to send a part of its data again: packets get lost on the way.
//!
//! A lost packet costs its connection a round trip where others follow it, and up to 0.2 s where it was the last one of a
//! request or an answer, which then waits for the time-out or for the probe that is sent in its place. Who asks and
//! waits for the answer is hurt by few losses: its share of the segments is small because it sends little.
//! The rate of what goes through falls with the root of the share that is lost: at one per cent and a round trip of
//! 10 ms a connection gets no more than 1.8 MB/s, whatever the link can do.
//!
//! That formula also tells a full link from a bad one. TCP sends faster until something is lost; those losses come
//! together, when a queue is full, and the connection is as fast as the link. A connection that gets more through than
//! chance losses of that share would let it on the shortest way there is, is not held up by them.
//!
//! Counted are data. A connection attempt that is repeated says as much about a server that does not accept
//! (`listen-overflow`) as about the way to it. Losses that this machine brings about itself are known by their own
//! counters and are the root then: `qdisc-drops`, `nic-drops`, `conntrack-full`, `tcp-memory-pressure`. What is sent
//! again in vain, because it had only been late, is answered with a D-SACK by the peer and was not lost.

use mitra_model::report::{Next, Remedy};
use mitra_model::{SeriesSet, Span};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::network::{self, Net, RETRANSMITS_S, RETRANSMITS_SHARE, RTO_MIN_S, TAILS_SHARE, TIMEOUTS_FELT};
use crate::signal::Signal;
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
        "tcpext.TCPLossProbeRecovery",
        "tcpext.TCPLostRetransmit",
        "tcpext.TCPDSACKRecv",
        "tcpext.TCPDSACKRecvSegs",
        "tcp.CurrEstab",
        "netns.tcp_RetransSegs",
        "netns.tcp_OutSegs",
        "netns.tcpext_TCPSynRetrans",
        "netns.tcpext_TCPTimeouts",
        "netns.tcpext_TCPLossProbeRecovery",
        "netns.tcpext_TCPLostRetransmit",
        "netns.tcpext_TCPDSACKRecv",
        "netns.tcpext_TCPDSACKRecvSegs",
        "netns.tcp_CurrEstab",
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
/// Of ends that are lost, each of which is a fifth of a second, five are not.
const TAILS_LEAST: f64 = 5.0;
/// What one connection gets through at a share `p` of chance losses: `1.22 / √p` segments in a round trip (Mathis, Semke,
/// Mahdavi and Ott 1997).
const SEGMENTS_AT_ALL_LOST: f64 = 1.22;
/// No round trip between two machines, or two namespaces under load, is shorter: two interrupts and two wake-ups.
const ROUND_TRIP_LEAST_S: f64 = 50e-6;

/// How the row of a peer ends that stands for the many ports of clients.
const ANY_PORT: &str = ":*";

/// The losses of one namespace.
struct Losses<'a> {
    net: Net<'a>,
    high: High,
    /// Segments that were sent again and had been lost.
    lost: f64,
    /// Those that were sent again in all.
    again: f64,
    /// Ends of requests and answers that were lost.
    tails: f64,
    sent: f64,
    /// Open connections, one at least.
    connections: f64,
    share_before: Option<f64>,
}

fn observe(view: &View<'_>) -> Observation {
    let nets = network::nets(view.set, "tcp.RetransSegs");
    if nets.is_empty() {
        return Observation::CannotTell("TcpRetransSegs and TcpOutSegs (nstat)".to_owned());
    }
    let mut all: Vec<Losses<'_>> = nets.iter().filter_map(|net| losses(view, *net)).collect();
    all.sort_by(|a, b| b.lost.total_cmp(&a.lost));
    let mut because = None;
    let mut active: Vec<&Losses<'_>> = Vec::new();
    for one in &all {
        match one.harmless() {
            None => active.push(one),
            Some(why) => because = because.or(Some(why)),
        }
    }
    if let Some(worst) = active.first() {
        let span = worst.high.run.span();
        let again =
            |net: &&Net<'_>| network::retransmits(view.set, **net, span).is_some_and(|s| s.total() >= 1.0);
        let is_seen_twice = nets.iter().filter(again).count() > 1;
        return Observation::Active(Box::new(finding(view, worst, is_seen_twice)));
    }
    Observation::Inactive(because.unwrap_or_else(|| {
        let peak = nets.iter().filter_map(|net| network::lost(view.set, *net, view.window)?.max());
        format!("data that were sent again: at most {} segments/s", words::count(peak.fold(0.0, f64::max)))
    }))
}

impl Losses<'_> {
    /// Of the segments that were sent. `OutSegs` leaves out what is sent again.
    fn share(&self) -> f64 {
        network::share_of(self.lost, self.sent)
    }

    /// Why nobody has to suffer from it, if so.
    fn harmless(&self) -> Option<String> {
        let share = self.share();
        let few = share < RETRANSMITS_SHARE || self.lost < LEAST;
        if (few || self.fills_its_link()) && !self.is_felt() {
            let why = if few {
                ""
            } else {
                ", by connections that are faster than chance losses would let them be"
            };
            return Some(format!(
                "{} of the segments were lost and sent again ({}){why}",
                words::percent(share),
                words::count(self.lost)
            ));
        }
        let before = self.share_before.filter(|before| share < GROWTH * before)?;
        Some(format!(
            "{} of the segments were lost and sent again, and {} before",
            words::percent(share),
            words::percent(before)
        ))
    }

    /// Whether the ends that are lost alone take a part of somebody's time that is felt: of small requests and answers a
    /// few that are lost are enough.
    fn is_felt(&self) -> bool {
        let late_s = self.tails * RTO_MIN_S / self.high.run.span().seconds().max(1.0);
        self.tails >= TAILS_LEAST
            && late_s >= TIMEOUTS_FELT
            && network::share_of(self.tails, self.sent) >= TAILS_SHARE
    }

    /// Whether more gets through than chance losses of this share would let through on the shortest way: then it is the
    /// link that holds it up.
    fn fills_its_link(&self) -> bool {
        let each_s = self.sent / self.high.run.span().seconds().max(1.0) / self.connections;
        each_s * self.share().sqrt() >= SEGMENTS_AT_ALL_LOST / ROUND_TRIP_LEAST_S
    }
}

/// Segments that were lost each second, and ends that were late although the segment came in the end.
fn lost_or_late(set: &SeriesSet, net: Net<'_>, span: Span) -> Option<Signal> {
    let lost = network::lost(set, net, span)?;
    match network::tails(set, net, span) {
        Some(tails) => Some(lost.zip(&tails, f64::max)),
        None => Some(lost),
    }
}

fn losses<'a>(view: &View<'_>, net: Net<'a>) -> Option<Losses<'a>> {
    let signal = lost_or_late(view.set, net, view.window)?;
    let base = view.baseline.and_then(|b| lost_or_late(view.base_set, net, b)).unwrap_or_default();
    let threshold = view.threshold(RETRANSMITS_S, &base.v);
    let high = view.high_signal(&signal, threshold, NEED_S, base.mean())?;
    let span = high.run.span();
    let sent = net.total(view, &["tcp.OutSegs"], span)?;
    let of_base = |f: fn(&SeriesSet, Net<'_>, Span) -> Option<Signal>| {
        view.baseline.and_then(|b| f(view.base_set, net, b)).map(|s| s.total())
    };
    let sent_before = of_base(|set, net, span| net.sum(set, &["tcp.OutSegs"], span)).filter(|n| *n > 0.0);
    let total = |signal: Option<Signal>| signal.map_or(0.0, |s| s.total());
    Some(Losses {
        net,
        lost: total(network::lost(view.set, net, span)),
        again: total(network::retransmits(view.set, net, span)),
        tails: total(network::tails(view.set, net, span)),
        sent,
        connections: net.level(view, "tcp.CurrEstab", span).unwrap_or(1.0).max(1.0),
        share_before: sent_before.map(|sent| network::share_of(of_base(network::lost).unwrap_or(0.0), sent)),
        high,
    })
}

fn finding(view: &View<'_>, losses: &Losses<'_>, is_seen_twice: bool) -> Finding {
    let (net, span) = (losses.net, losses.high.run.span());
    let mut finding = view.finding(&losses.high.run);
    finding.netns = Some(net.id());
    let before = losses.share_before.map(|s| format!(" ({} before)", words::percent(s))).unwrap_or_default();
    finding.statement = format!(
        "TCP lost {} of its segments{before} and sent them again, {} in all{}",
        words::percent(losses.share()),
        words::count(losses.lost),
        net.place()
    );
    for metric in [
        "tcp.RetransSegs",
        "tcp.OutSegs",
        "tcpext.TCPSynRetrans",
        "tcpext.TCPTimeouts",
        "tcpext.TCPLossProbeRecovery",
        "tcpext.TCPDSACKRecvSegs",
    ] {
        finding.evidence.extend(net.evidence(view, metric, span).filter(|e| e.during > 0.0));
    }
    if losses.tails >= 1.0 {
        finding.loss_s = Some(losses.tails * RTO_MIN_S);
        finding.remarks.push(format!(
            "{} times the end of a request or an answer was lost, and nothing but the time-out or a probe in its place \
             noticed: each of them waited for about {}",
            words::count(losses.tails),
            words::seconds(RTO_MIN_S)
        ));
    }
    let in_vain = (losses.again - losses.lost) / losses.again.max(1.0);
    finding.confidence = 0.9;
    if in_vain >= 0.5 {
        finding.confidence = 0.6;
        finding.remarks.push(format!(
            "{} of what was sent again had arrived the first time (D-SACK): packets or their confirmations are late or out \
             of order too",
            words::percent(in_vain.min(1.0))
        ));
    }
    name_peer(view, &mut finding, span, is_seen_twice);
    finding
}

/// The peer to which most was sent again, and whether it is the only one.
///
/// Where several namespaces of this machine send again, each may be the other's peer. The end that listens is named
/// then, which has a port, and not the many from which its clients come.
fn name_peer(view: &View<'_>, finding: &mut Finding, span: Span, is_seen_twice: bool) {
    let mut peers: Vec<(&str, f64)> = view
        .each("peer.retransmits")
        .filter_map(|(row, series)| Some((row, series.total(span)?)))
        .filter(|(_, total)| *total >= 1.0)
        .collect();
    peers.sort_by(|a, b| b.1.total_cmp(&a.1));
    if is_seen_twice && peers.iter().any(|(row, _)| !row.ends_with(ANY_PORT)) {
        peers.retain(|(row, _)| !row.ends_with(ANY_PORT));
    }
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
