//! A program does not read its socket as fast as data arrive: the receive buffer is full and packets are dropped.
//!
//! The packets came through the device and the kernel; what drops them is the socket itself. For UDP each one is lost
//! (`RcvbufErrors`); TCP has a window so that it does not come to this, and drops only where the peer sent before it knew
//! of the small window or where the kernel may not grow the buffer (`TCPRcvQDrop`, `TCPBacklogDrop`).
//!
//! Where all UDP sockets together have reached `net.ipv4.udp_mem`, datagrams that find no memory are counted apart
//! (`MemErrors`). Then the socket that drops need not be the one that is not read.
//!
//! Where many times as much comes as before and the program reads as much as ever, it is not the program: whoever sends so much is named,
//! where that is a network namespace of this machine.
//!
//! /proc/net/dev shows none of it, so it is no `nic-drops`; drops on send are `qdisc-drops`. Where the kernel's limit for
//! all sockets together was reached the root is `tcp-memory-pressure`.

use std::collections::BTreeSet;

use mitra_model::report::How;

use crate::network::{self, Net};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "socket-buffer-overflow",
    title: "a program does not read its socket fast enough",
    area: "network",
    needs: &[
        "udp.RcvbufErrors",
        "udp.InDatagrams",
        "udp.MemErrors",
        "tcpext.TCPBacklogDrop",
        "tcpext.TCPRcvQDrop",
        "tcp.InSegs",
        "netns.udp_RcvbufErrors",
        "udp.OutDatagrams",
        "netns.udp_OutDatagrams",
        "netns.pid",
        "netns.comm",
        "netns.udp_InDatagrams",
        "netns.udp_MemErrors",
        "netns.tcpext_TCPBacklogDrop",
        "netns.tcpext_TCPRcvQDrop",
        "netns.tcp_InSegs",
        "listener.drops",
        "listener.pid",
        "listener.comm",
        "sysctl.net.core.rmem_max",
        "sysctl.net.ipv4.udp_mem",
    ],
    triggers: &[
        // Packets that this machine itself lost. A single burst is short.
        each_above(
            &["udp.RcvbufErrors", "udp.MemErrors", "tcpext.TCPBacklogDrop", "tcpext.TCPRcvQDrop"],
            RATE_S,
        ),
    ],
    observe,
    causes: &[
        effect("resolver-slow", "the answer was dropped at the socket that waited for it"),
        effect("session-drop", "heartbeats are dropped at the socket"),
    ],
    remedies_of: remedies,
    next: &[measure("whose socket it is and how much it dropped", "ss -uanmp")],
    source: include_str!("socket_buffer_overflow.rs"),
    ..Condition::ROOT
};

/// Datagrams. The kernel counts each under one of the two (`__udp_enqueue_schedule_skb`).
const UDP: &[&str] = &["udp.RcvbufErrors", NO_MEMORY];
/// Those for which all UDP sockets together had no memory left.
const NO_MEMORY: &str = "udp.MemErrors";
/// Segments.
const TCP: &[&str] = &["tcpext.TCPBacklogDrop", "tcpext.TCPRcvQDrop"];
/// A hundredth: below that voice and video hide it, and a resolver asks again.
const SHARE: f64 = 0.01;
/// One a second: of what hardly receives anything a share says nothing.
const RATE_S: f64 = 1.0;
/// In how many seconds at least.
const NEED_S: f64 = 2.0;
/// Fewer are chance.
const LEAST: f64 = 10.0;

/// Times as much as before: no program is made for that.
const FLOOD: f64 = 10.0;
/// A program that reads as much as ever.
const AS_MUCH: f64 = 0.8;
/// Who sends half of what comes.
const MOST: f64 = 0.5;

/// The setting for the memory of all UDP sockets together.
const UDP_MEM: &str = "net.ipv4.udp_mem";

/// Drops of one protocol in one namespace.
struct Overflow<'a> {
    net: Net<'a>,
    high: High,
    protocol: &'static str,
    metrics: &'static [&'static str],
    dropped: f64,
    share: f64,
}

impl Overflow<'_> {
    /// What its packets are called.
    fn what(&self) -> &'static str {
        if self.protocol == "UDP" { "UDP datagrams" } else { "TCP segments" }
    }
}

fn observe(view: &View<'_>) -> Observation {
    let kinds = [("UDP", UDP, "udp.InDatagrams"), ("TCP", TCP, "tcp.InSegs")];
    let mut all: Vec<Overflow<'_>> = Vec::new();
    for (protocol, metrics, received) in kinds {
        let nets: BTreeSet<Net<'_>> = metrics.iter().flat_map(|m| network::nets(view.set, m)).collect();
        for net in nets {
            let Some(high) = net.high(view, metrics, RATE_S, NEED_S) else { continue };
            let span = high.run.span();
            let dropped = net.total(view, metrics, span).unwrap_or(0.0);
            // `InDatagrams` are those that a program took; `InSegs` are all that came.
            let rest = net.total(view, &[received], span).unwrap_or(0.0);
            let rest = if protocol == "TCP" { (rest - dropped).max(0.0) } else { rest };
            let share = network::share_of(dropped, rest);
            all.push(Overflow { net, high, protocol, metrics, dropped, share });
        }
    }
    let most = |a: &&Overflow<'_>, b: &&Overflow<'_>| a.dropped.total_cmp(&b.dropped);
    let hurts = |one: &&Overflow<'_>| one.share >= SHARE && one.dropped >= LEAST;
    if let Some(worst) = all.iter().filter(hurts).max_by(most) {
        return finding(view, worst).active();
    }
    if let Some(most) = all.iter().max_by(most) {
        return Observation::Inactive(format!(
            "sockets dropped {} of the {}{} ({} packets)",
            words::percent(most.share),
            most.what(),
            most.net.place(),
            words::count(most.dropped)
        ));
    }
    match network::peak(
        view,
        &["udp.RcvbufErrors", "udp.MemErrors", "tcpext.TCPBacklogDrop", "tcpext.TCPRcvQDrop"],
    ) {
        Some(peak) => {
            Observation::Inactive(format!("sockets dropped at most {} packets/s", words::count(peak)))
        }
        None => Observation::cannot_tell("UdpRcvbufErrors, TcpExtTCPRcvQDrop (nstat)"),
    }
}

fn finding(view: &View<'_>, worst: &Overflow<'_>) -> Finding {
    let (net, span) = (worst.net, worst.high.run.span());
    let mut finding = view.finding(&worst.high.run);
    let no_memory = match worst.protocol {
        "UDP" => net.total(view, &[NO_MEMORY], span).filter(|n| *n >= 1.0).unwrap_or(0.0),
        _ => 0.0,
    };
    let is_limit = no_memory > worst.dropped / 2.0;
    let cause = if is_limit {
        "all UDP sockets together had reached net.ipv4.udp_mem".to_owned()
    } else {
        format!("the receive buffer of a {} socket was full", worst.protocol)
    };
    // What came for a single socket is not counted, so the share is one of the namespace.
    finding.statement = format!(
        "{cause}: {} of the {}{} were dropped, {} in all ({}/s)",
        words::percent(worst.share),
        worst.what(),
        net.place(),
        words::count(worst.dropped),
        words::count(worst.high.during)
    );
    let others: &[&'static str] =
        if worst.protocol == "UDP" { &["udp.InDatagrams"] } else { &["tcp.InSegs"] };
    for metric in worst.metrics.iter().chain(others) {
        finding.evidence.extend(net.evidence(view, metric, span).filter(|e| e.during > 0.0));
    }
    if is_limit {
        finding.culprit.sysctl = Some(UDP_MEM.to_owned());
    } else if no_memory > 0.0 {
        finding.remarks.push(format!(
            "{} more were dropped because all UDP sockets together had reached net.ipv4.udp_mem",
            words::count(no_memory)
        ));
    }
    finding.confidence = 0.8;
    // Where it is the limit of all, the socket that finds no memory need not be the one that has it.
    if worst.protocol == "UDP" && !is_limit {
        name_socket(view, &mut finding, net, span);
        name_sender(view, &mut finding, net, span);
    }
    finding
}

/// Whoever sends so much that no reader could keep up.
fn name_sender(view: &View<'_>, finding: &mut Finding, net: Net<'_>, span: Span) {
    const READ: &str = "udp.InDatagrams";
    let of = |metrics: &[&'static str]| {
        let rate = |set: &SeriesSet, span: Span| net.sum(set, metrics, span).and_then(|signal| signal.mean());
        Some((rate(view.base_set, view.baseline?)?, rate(view.set, span)?))
    };
    let (Some((came_before, came)), Some((read_before, read))) =
        (of(&[READ, UDP[0], NO_MEMORY]), of(&[READ]))
    else {
        return;
    };
    // What never read anything is known for nothing.
    let was_read = view.baseline.is_some_and(|baseline| read_before * baseline.seconds() >= LEAST);
    if !was_read || came < FLOOD * came_before || read < AS_MUCH * read_before {
        return;
    }
    // Whoever answers what it reads sends as much.
    let sent = |from: &Net<'_>| {
        let sent = from.sum(view.set, &["udp.OutDatagrams"], span).and_then(|signal| signal.mean())?;
        Some(if *from == net { sent - read } else { sent })
    };
    let senders = network::nets(view.set, "udp.OutDatagrams").into_iter();
    let most = senders.filter_map(|from| Some((from, sent(&from)?))).max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((from, sends)) = most.filter(|(_, sends)| *sends >= MOST * came) else { return };
    let name = from.name.unwrap_or_default();
    let comm = view.set.text("netns.comm", name).and_then(|text| text.last());
    let pid = view.set.get("netns.pid", name).and_then(|pid| pid.last(span)).map(|pid| pid as u32);
    let reader = finding.culprit.process.take().map(|comm| format!("{comm} reads"));
    finding.culprit.pid = None;
    let who = match comm.zip(pid) {
        Some((comm, pid)) => {
            finding.blame_pid(comm, pid);
            format!("{comm} ({pid}) in the network namespace {name}")
        }
        None => format!("somebody{}", from.place()),
    };
    finding.infer_culprit();
    finding.evidence.extend(from.evidence(view, "udp.OutDatagrams", span));
    finding.statement = format!(
        "{who} sends {} datagrams/s, and {} as much as before ({}/s): {} of them were dropped at the socket",
        words::count(sends),
        reader.unwrap_or_else(|| "their reader reads".to_owned()),
        words::count(read),
        words::percent(network::share_of(came - read, read))
    );
    finding.remarks.push(format!("{}/s came before", words::count(came_before)));
    finding.confidence = 0.85;
}

/// The socket of the namespace that dropped most, and whose it is.
fn name_socket(view: &View<'_>, finding: &mut Finding, net: Net<'_>, span: Span) {
    let sockets = view.each("listener.drops").filter(|(row, _)| network::device(row).1 == net);
    let dropped = sockets.filter_map(|(row, series)| Some((row, series.total(span)?)));
    let most = dropped.filter(|(_, drops)| *drops >= 1.0).max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((row, drops)) = most else { return };
    let (socket, _) = network::device(row);
    let address = socket.strip_suffix("/udp").unwrap_or(socket);
    finding.culprit.address = Some(address.to_owned());
    finding.evidence.extend(view.evidence("listener.drops", row, span));
    let pid = view.set.get("listener.pid", row).and_then(|s| s.last(Span::ALL)).filter(|p| *p >= 1.0);
    let comm = view.set.text("listener.comm", row).and_then(|t| t.last());
    if let (Some(comm), Some(pid)) = (comm, pid) {
        finding.culprit.process = Some(comm.to_owned());
        finding.culprit.pid = Some(pid as u32);
        finding.statement = format!(
            "{comm} ({pid:.0}) does not read {address} fast enough, which dropped {}: {}",
            words::count(drops),
            finding.statement
        );
        finding.confidence = 0.95;
    } else {
        finding.statement.push_str(&format!(", {} of them at {address}", words::count(drops)));
    }
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let verify = "nstat -az UdpRcvbufErrors TcpExtTCPRcvQDrop: stop growing".to_owned();
    let who = finding.culprit.process.as_deref().unwrap_or("the program");
    if finding.culprit.sysctl.as_deref() == Some(UDP_MEM) {
        return vec![Remedy {
            action:
                "find the sockets that hold so much and let their programs read; or let UDP have more memory"
                    .to_owned(),
            command: "ss -uanmp | grep -B1 skmem; sysctl -w net.ipv4.udp_mem='LOW PRESSURE MAX' (in pages)"
                .to_owned(),
            verify: "nstat -az UdpMemErrors: stops growing".to_owned(),
            risk: "this memory cannot be swapped".to_owned(),
        }];
    }
    // It is who sends, and no reader keeps up with that.
    if finding.culprit.how == Some(How::Inferred) {
        return vec![Remedy {
            action: format!("let {who} send less, or stop it"),
            command: "ss -uanp; nft add rule … limit rate over 10000/second drop, in front of the socket"
                .to_owned(),
            verify,
            risk: "what is dropped is lost, as it is now".to_owned(),
        }];
    }
    vec![
        Remedy {
            action: format!(
                "let {who} read faster: more threads, several sockets with SO_REUSEPORT, several datagrams a call"
            ),
            command: "ss -uanmp: d in skmem is what each socket dropped".to_owned(),
            verify: verify.clone(),
            risk: String::new(),
        },
        Remedy {
            action: "a larger buffer, which helps against bursts and not against a reader that is too slow"
                .to_owned(),
            command: "sysctl -w net.core.rmem_max=8388608, and SO_RCVBUF in the program".to_owned(),
            verify,
            risk: "what waits in a large buffer is old when it is read".to_owned(),
        },
    ]
}
