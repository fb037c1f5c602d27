//! TCP has to send a part of its data again: packets get lost on the way.
//!
//! A lost packet costs its connection a round trip where others follow it, and up to 0.2 s where it was the last one of a
//! request or an answer, which then waits for the timeout or for the probe that is sent in its place. Who asks and
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
//! again needlessly, because it had only been late, is answered with a D-SACK by the peer and was not lost.
//!
//! Chance takes what is sent again as often as everything else. Where nearly all of it is lost again while other packets pass, it is not
//! chance: packets of one size do not pass, as where the MTU of the path is smaller than the hosts believe and the message that says so
//! (ICMP, fragmentation needed) is dropped, or of one kind.

use crate::network::{self, Net};
use crate::prelude::*;
use crate::services::Address;

pub const CONDITION: Condition = Condition {
    id: "retransmit-storm",
    title: "packets are lost on the path and TCP retransmits them",
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
        REQUESTS,
        ANSWERS,
    ],
    triggers: &[signals(
        &[
            "tcp.RetransSegs",
            "tcp.OutSegs",
            "tcpext.TCPSynRetrans",
            "tcpext.TCPTimeouts",
            "tcpext.TCPLossProbeRecovery",
            "tcpext.TCPDSACKRecv",
            "tcpext.TCPDSACKRecvSegs",
            "netns.tcp_RetransSegs",
            "netns.tcp_OutSegs",
            "netns.tcpext_TCPSynRetrans",
            "netns.tcpext_TCPTimeouts",
            "netns.tcpext_TCPLossProbeRecovery",
            "netns.tcpext_TCPDSACKRecv",
            "netns.tcpext_TCPDSACKRecvSegs",
        ],
        hurts,
    )],
    observe,
    causes: &[
        effect("resolver-slow", "queries and answers are lost on the same path"),
        effect("session-drop", "heartbeats are lost on the path"),
        effect("service-slow", "the server's own requests are lost on the path"),
    ],
    remedies_of: remedies,
    next: &[measure("RTT, window and losses of each connection", "ss -tinp dst {address:PEER}")],
    next_of: next,
    suspicions: &[Suspicion {
        rank: 180,
        name: "retransmissions",
        when: "tcp.RetransSegs > 20/s and tcp.RetransSegs / tcp.OutSegs > 1% for 3s",
        arm: &["sockets"],
        seconds: 5.0,
        cool_down_s: 120.0,
        why: "One lost segment in a hundred halves the throughput of a connection over a long path, and each costs 200 \
              ms or more where it is the last one.",
        ..Suspicion::NONE
    }],
    source: include_str!("retransmit_storm.rs"),
    ..Condition::ROOT
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
    /// Segments that were lost again when they were sent again.
    lost_again: f64,
    /// Open connections, one at least.
    connections: f64,
    share_before: Option<f64>,
}

fn observe(view: &View<'_>) -> Observation {
    let nets = network::nets(view.set, "tcp.RetransSegs");
    if nets.is_empty() {
        return Observation::cannot_tell("TcpRetransSegs and TcpOutSegs (nstat)");
    }
    let mut all: Vec<Losses<'_>> = nets.iter().filter_map(|net| losses(view, *net)).collect();
    all.sort_by(|a, b| b.lost.total_cmp(&a.lost));
    let mut because = None;
    let mut active: Vec<&Losses<'_>> = Vec::new();
    for one in &all {
        match one.harmless().or_else(|| stays_here(view, one)) {
            None => active.push(one),
            Some(why) => because = because.or(Some(why)),
        }
    }
    if let Some(worst) = active.first() {
        let span = worst.high.run.span();
        let again = |net: &&Net<'_>| retransmits(view.set, **net, span).is_some_and(|s| s.total() >= 1.0);
        let is_seen_twice = nets.iter().filter(again).count() > 1;
        return finding(view, worst, is_seen_twice).active();
    }
    Observation::Inactive(because.unwrap_or_else(|| {
        let peak = nets.iter().filter_map(|net| lost(view.set, *net, view.window)?.max());
        format!("retransmissions: at most {} segments/s", words::count(peak.fold(0.0, f64::max)))
    }))
}

/// The share of what is sent again, as far as its peers are known, that went to this machine itself.
const HERE: f64 = 0.5;

/// Why nothing was lost on the way, if most of it never left the machine: loopback loses nothing by itself. A receiver that was
/// late, or does not accept, lets its peer send again.
fn stays_here(view: &View<'_>, losses: &Losses<'_>) -> Option<String> {
    let span = losses.high.run.span();
    let (mut here, mut all) = (0.0, 0.0);
    for (row, again) in view.each("peer.retransmits") {
        let peer = Address::of(row);
        let again = again.total(span).filter(|_| peer.net == losses.net).unwrap_or(0.0);
        all += again;
        if peer.is_loopback() {
            here += again;
        }
    }
    (here > 0.0 && here >= HERE * all).then(|| {
        format!(
            "{} segments were retransmitted, and {} of them to this machine itself, where nothing is lost on the path",
            words::count(losses.again),
            words::percent(here / all)
        )
    })
}

impl Losses<'_> {
    /// Of the segments that were sent. `OutSegs` leaves out what is sent again.
    fn share(&self) -> f64 {
        network::share_of(self.lost, self.sent)
    }

    /// Whether what is lost once is lost again, which chance does as often as it takes anything.
    fn is_of_one_kind(&self) -> bool {
        let again = network::share_of(self.lost_again, self.again - self.lost_again);
        self.lost >= LEAST && again >= MOSTLY && again >= BEYOND_CHANCE * self.share()
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
                "{} of the segments were lost and retransmitted ({}){why}",
                words::percent(share),
                words::count(self.lost)
            ));
        }
        let before = self.share_before.filter(|before| share < GROWTH * before)?;
        Some(format!(
            "{} of the segments were lost and retransmitted, and {} before",
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
    let lost = lost(set, net, span)?;
    match tails(set, net, span) {
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
        lost: total(lost(view.set, net, span)),
        again: total(retransmits(view.set, net, span)),
        tails: total(tails(view.set, net, span)),
        sent,
        lost_again: net.total(view, &["tcpext.TCPLostRetransmit"], span).unwrap_or(0.0),
        connections: net.level(view, "tcp.CurrEstab", span).unwrap_or(1.0).max(1.0),
        share_before: sent_before.map(|sent| network::share_of(of_base(lost).unwrap_or(0.0), sent)),
        high,
    })
}

fn finding(view: &View<'_>, losses: &Losses<'_>, is_seen_twice: bool) -> Finding {
    let (net, span) = (losses.net, losses.high.run.span());
    let mut finding = view.finding(&losses.high.run);
    finding.netns = Some(net.id());
    let before = losses.share_before.map(|s| format!(" ({} before)", words::percent(s))).unwrap_or_default();
    finding.statement = format!(
        "TCP lost {} of its segments{before} and retransmitted them, {} in all{}",
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
            "{} times the end of a request or an answer was lost, and only the retransmission timeout or a tail loss \
             probe noticed: each of them waited for about {}",
            words::count(losses.tails),
            words::seconds(RTO_MIN_S)
        ));
    }
    let in_vain = (losses.again - losses.lost) / losses.again.max(1.0);
    finding.confidence = 0.9;
    if in_vain >= 0.5 {
        finding.confidence = 0.6;
        finding.remarks.push(format!(
            "{} of the retransmitted segments had arrived the first time (D-SACK): packets or ACKs are also late or \
             out of order",
            words::percent(in_vain.min(1.0))
        ));
    }
    name_peer(view, &mut finding, span, is_seen_twice);
    if losses.is_of_one_kind() && is_reached(view, &finding, span) {
        let again = losses.lost_again / losses.again.max(1.0);
        finding.remarks.insert(
            0,
            format!(
                "{} of what was sent again was lost again, and answers pass",
                words::percent(again.min(1.0))
            ),
        );
        finding.statement.push_str(&format!(
            ": {ONE_SIZE} do not pass, as where the MTU of the path is smaller than the hosts believe"
        ));
    }
    finding
}

/// Whether the address that is named answers, or is asked, meanwhile: to one that is gone everything is lost.
fn is_reached(view: &View<'_>, finding: &Finding, span: Span) -> bool {
    let Some(address) = finding.culprit.address.as_deref() else { return false };
    let of = |metric: &'static str| {
        let rows = view.each(metric);
        let own = rows.filter(|(row, _)| {
            let called = if metric == REQUESTS { Address::of(row) } else { Address::called(row) };
            called.text == address
        });
        own.filter_map(|(_, series)| series.total(span)).fold(0.0, |a, b| a + b)
    };
    of(REQUESTS) + of(ANSWERS) >= LEAST
}

const REQUESTS: &str = "service.requests";
const ANSWERS: &str = "dependency.requests";

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
            "{} peers are affected, {first} with {} of it: the cause is near this machine rather than far away",
            peers.len(),
            words::percent(most / all)
        ));
        return;
    }
    finding.culprit.address = Some(network::device(first).0.to_owned());
    finding.statement.push_str(&format!(", {} of it to {first}", words::percent(most / all)));
}

/// The host of the peer, without its port.
fn host(finding: &Finding) -> &str {
    finding.culprit.address.as_deref().and_then(|a| a.rsplit_once(':')).map_or("PEER", |(host, _)| host)
}

/// How it is said that it is no chance.
const ONE_SIZE: &str = "packets of one size or kind";
/// Of what was sent again.
const MOSTLY: f64 = 0.5;
/// Times the share that is lost of everything.
const BEYOND_CHANCE: f64 = 2.0;

fn next(finding: &Finding) -> Vec<Next> {
    vec![to_measure(
        "whether the path takes packets as large as the hosts believe (MTU): then small answers pass and large ones never do",
        format!("tracepath -n {}", words::shell(host(finding))),
    )]
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let host = host(finding);
    let of_size = finding.statement.contains(ONE_SIZE).then(|| Remedy {
        action: format!(
            "find the device on the path to {host} with the smaller MTU, and let its ICMP messages pass; until then let TCP find the size \
             itself, or send smaller segments"
        ),
        command: format!(
            "tracepath -n {host}; ip link show; nft list ruleset | grep -i icmp; sysctl -w net.ipv4.tcp_mtu_probing=1 (0 before); ip route \
             change {host} … advmss 1300"
        ),
        verify: "nstat -az TcpExtTCPLostRetransmit no longer grows, and large answers arrive".to_owned(),
        risk: "smaller segments take a little more CPU".to_owned(),
    });
    let of_chance = Remedy {
        action: format!(
            "find where on the path to {host} packets are lost: cable, duplex, a policer, a full link, a firewall"
        ),
        command: format!("mtr -T -w -c 100 {host}; ip -s -s link; tc -s qdisc"),
        verify: "nstat -az TcpRetransSegs TcpOutSegs: below one in a thousand".to_owned(),
        risk: String::new(),
    };
    of_size.into_iter().chain([of_chance]).collect()
}

/// Of what hardly sends anything a share says nothing: one segment in two seconds that is sent again.
const RETRANSMITS_S: f64 = 0.5;
/// A hundredth of the segments. The Internet loses a tenth of that on an ordinary day, and TCP's own search for the
/// limit of a link about as much.
const RETRANSMITS_SHARE: f64 = 0.01;
/// The shortest timeout of an open connection (`TCP_RTO_MIN`); a route can set another one and hardly ever does.
const RTO_MIN_S: f64 = 0.2;
/// Waiting for timeouts that is felt: a tenth of a task's time, one in two seconds.
const TIMEOUTS_FELT: f64 = 0.1;
/// Ends of what was sent that get lost, of all segments: what a connection with a window of a hundred segments, which
/// fills a link of 1 Gbit/s over a millisecond, loses to find the limit (1.5 / 100²), were it all ends. Of what sends that
/// much, less is nobody's time.
const TAILS_SHARE: f64 = 1.5e-4;

/// Data that TCP sent again each second. What belongs to the setting up of connections is left out: whoever does not
/// answer a SYN may be there and not accept.
fn retransmits(set: &SeriesSet, net: Net<'_>, span: Span) -> Option<Signal> {
    let all = net.sum(set, &["tcp.RetransSegs"], span)?;
    let Some(syn) = net.sum(set, &["tcpext.TCPSynRetrans"], span) else { return Some(all) };
    Some(all.zip(&syn, |all, syn| (all - syn).max(0.0)))
}

/// Of the data that were sent again, what was lost: without what the peer says had arrived the first time (D-SACK). Those
/// were late or out of order.
fn lost(set: &SeriesSet, net: Net<'_>, span: Span) -> Option<Signal> {
    let again = retransmits(set, net, span)?;
    let Some(in_vain) = in_vain(set, net, span) else { return Some(again) };
    Some(again.zip(&in_vain, |again, in_vain| (again - in_vain).max(0.0)))
}

/// Segments that the peers said to have twice. Kernels before 5.9 count such answers and not the segments.
fn in_vain(set: &SeriesSet, net: Net<'_>, span: Span) -> Option<Signal> {
    let of = |metric| net.sum(set, &[metric], span);
    of("tcpext.TCPDSACKRecvSegs").or_else(|| of("tcpext.TCPDSACKRecv"))
}

/// Ends of requests and answers of open connections that were lost, so that nothing came after them that would have told:
/// timeouts, and losses that a probe repaired, which is sent in place of the timeout (RFC 8985). For what fits into one
/// segment it is as late as the timeout. Those of connections that are being set up are left out.
fn tails(set: &SeriesSet, net: Net<'_>, span: Span) -> Option<Signal> {
    let probed = net.sum(set, &["tcpext.TCPLossProbeRecovery"], span);
    let Some(all) = net.sum(set, &["tcpext.TCPTimeouts"], span) else { return probed };
    let late = match net.sum(set, &["tcpext.TCPSynRetrans"], span) {
        Some(syn) => all.zip(&syn, |all, syn| (all - syn).max(0.0)),
        None => all,
    };
    Some(match probed {
        Some(probed) => late.zip(&probed, |late, probed| late + probed),
        None => late,
    })
}

/// Of each network namespace: one where segments are lost in a share that hurts, and where ends of what was sent are.
fn hurts(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let mut list = Vec::new();
    for net in network::nets(set, "tcp.RetransSegs") {
        let Some(sent) = net.sum(set, &["tcp.OutSegs"], window) else { continue };
        list.extend(lost(set, net, window).map(|lost| {
            lost.zip(&sent, |lost, sent| {
                step(lost >= RETRANSMITS_S && network::share_of(lost, sent) >= RETRANSMITS_SHARE)
            })
        }));
        list.extend(tails(set, net, window).map(|tails| {
            tails.zip(&sent, |n, sent| {
                step(n * RTO_MIN_S >= TIMEOUTS_FELT && network::share_of(n, sent) >= TAILS_SHARE)
            })
        }));
    }
    list
}
