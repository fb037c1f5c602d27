//! Sockets that no process has any more are near their limit, and the kernel resets connections.
//!
//! A socket that is closed with data still to send, or whose peer does not finish the close, stays behind as an orphan.
//! `net.ipv4.tcp_max_orphans` limits their number. The kernel counts a socket that misbehaves more than once: it compares
//! the number shifted left by up to two bits with the limit (`tcp_too_many_orphans`, called with the shift of
//! `tcp_out_of_resources`: one bit when the peer has been silent for long, one more when the socket was closed before its
//! data were sent). So the limit can be hit with a quarter of it in use, and the limit that is safe is four times the
//! number of orphans at the peak. Old kernels log "Out of socket memory" for this and for a real shortage alike.

use crate::network;
use crate::prelude::*;
use crate::tcp_limits::{self, Orphans};

pub const CONDITION: Condition = Condition {
    id: "tcp-orphan-pressure",
    title: "orphaned sockets reach their limit",
    area: "network",
    needs: &[
        "sock.tcp_orphan",
        "sock.tcp_mem",
        "sysctl.net.ipv4.tcp_max_orphans",
        "sysctl.net.ipv4.tcp_mem",
        "tcpext.TCPAbortOnMemory",
        "netns.tcpext_TCPAbortOnMemory",
    ],
    triggers: &[
        // Each is a connection that was reset.
        each_above(&["tcpext.TCPAbortOnMemory"], ABORTS_S),
        Trigger::Event(|kind| matches!(kind, EventKind::TcpPressure { .. })),
    ],
    observe,
    causes: &[effect("session-drop", "connections are reset")],
    settings: Settings::new(
        "the limit was lowered",
        &[lowered("sysctl.net.ipv4.tcp_max_orphans", Acts::AtLevel("sock.tcp_orphan"))],
    ),
    remedies_of: remedies,
    next: &[measure("what the orphans wait for", "ss -tan state fin-wait-1 state last-ack state closing")],
    source: include_str!("tcp_orphan_pressure.rs"),
    ..Condition::ROOT
};

/// The largest shift that the kernel applies: two bits.
const WORST: f64 = 4.0;
/// Any abort for this reason is a connection that was reset; less than one in ten seconds is not worth a report.
const ABORTS_S: f64 = 0.1;

fn observe(view: &View<'_>) -> Observation {
    let messages: Vec<_> = tcp_limits::messages(view).filter(|(_, what, _)| *what != "memory").collect();
    // Orphans are counted for the whole machine, the connections that are reset for them in each namespace.
    let aborts = network::worst(view, &["tcpext.TCPAbortOnMemory"], ABORTS_S, 2.0);
    if messages.is_empty() && aborts.is_none() {
        return match network::peak(view, &["tcpext.TCPAbortOnMemory"]) {
            Some(_) => Observation::inactive("no connection was aborted for lack of room"),
            None => Observation::cannot_tell("TcpExtTCPAbortOnMemory (nstat), or the kernel log"),
        };
    }
    let Some(orphans) = tcp_limits::orphans(view) else {
        return Observation::suspected(
            "orphans and their limit: /proc/net/sockstat, sysctl net.ipv4.tcp_max_orphans",
        );
    };
    let named = messages.iter().any(|(_, what, _)| *what == "orphans");
    if !named && WORST * orphans.most <= orphans.limit {
        return Observation::Inactive(format!(
            "{} orphans of {} allowed, {} at the kernel's worst count",
            words::count(orphans.most),
            words::count(orphans.limit),
            words::percent(WORST * orphans.most / orphans.limit)
        ));
    }
    if let Some(memory) = tcp_limits::memory(view)
        && memory.used >= memory.limits[2]
    {
        return Observation::Inactive(format!(
            "TCP had used all of its memory: {:.0} pages of {:.0}",
            memory.used, memory.limits[2]
        ));
    }
    let mut finding = match (&aborts, messages.first()) {
        (Some((_, high)), _) => view.finding(&high.run),
        (None, Some((event, ..))) => Finding {
            // Of what is known by messages only, the last one is all that is known of its end.
            end: messages.iter().map(|(event, ..)| event.real).max(),
            ..view.finding_at(event.real)
        },
        (None, None) => return Observation::inactive("nothing was aborted"),
    };
    describe(view, &mut finding, &orphans);
    if let Some((event, what, _)) = messages.first() {
        finding.evidence.push(tcp_limits::message_evidence(view, event, what, messages.len()));
    }
    if let Some((net, high)) = &aborts {
        finding.evidence.extend(net.evidence(view, "tcpext.TCPAbortOnMemory", high.run.span()));
        if net.name.is_some() {
            finding.remarks.push(format!("the connections were reset{}", net.place()));
        }
    }
    finding.active()
}

fn describe(view: &View<'_>, finding: &mut Finding, orphans: &Orphans) {
    let share = |shift: f64| format!("{:.1} %", 100.0 * shift * orphans.most / orphans.limit);
    finding.culprit.sysctl = Some("net.ipv4.tcp_max_orphans".to_owned());
    finding.statement = format!(
        "{:.0} orphaned sockets of {:.0} allowed: {:.0} % used as counted, {} after the kernel's one-bit penalty, {} \
         after its two-bit penalty{}",
        orphans.most,
        orphans.limit,
        100.0 * orphans.most / orphans.limit,
        share(2.0),
        share(WORST),
        if WORST * orphans.most > orphans.limit { ", which is over the limit" } else { "" }
    );
    finding.evidence.extend(orphans.evidence.iter().cloned());
    finding.remarks.push(
        "a socket can be penalised by a shift of up to two bits, so the limit that is safe is four times the number of \
         orphans at the peak"
            .to_owned(),
    );
    if let Some(memory) = tcp_limits::memory(view) {
        finding.remarks.push(format!(
            "a message that names memory is wrong about it: TCP uses {:.0} pages of {:.0} allowed",
            memory.used, memory.limits[2]
        ));
        finding.evidence.extend(memory.evidence);
    }
    finding.remarks.push(format!(
        "four times {:.0} is {:.0}; rounded up: net.ipv4.tcp_max_orphans = {:.0}",
        orphans.most,
        WORST * orphans.most,
        safe(orphans.most)
    ));
    finding.confidence = 0.9;
    if orphans.is_guess {
        finding.confidence = 0.7;
        finding.remarks.push(format!(
            "no file names net.ipv4.tcp_max_orphans; {:.0} stands alone in a file of its own and was taken for it",
            orphans.limit
        ));
    }
}

/// Four times the peak, rounded up to the next power of two, as the kernel's own default is one.
fn safe(most: f64) -> f64 {
    let mut limit = 1.0;
    while limit < WORST * most {
        limit *= 2.0;
    }
    limit
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let most = finding.evidence.iter().find(|e| e.metric == "sock.tcp_orphan").map_or(0.0, |e| e.during);
    vec![
        Remedy {
            action: "allow four times as many orphans as there are at the peak".to_owned(),
            command: format!("sysctl -w net.ipv4.tcp_max_orphans={:.0}", safe(most)),
            verify: "nstat -az TcpExtTCPAbortOnMemory: stops growing; the kernel log stays silent".to_owned(),
            risk: "an orphan holds up to 64 kB that cannot be swapped".to_owned(),
        },
        Remedy {
            action: "let orphans give up sooner".to_owned(),
            command: "sysctl -w net.ipv4.tcp_orphan_retries=2 net.ipv4.tcp_fin_timeout=20".to_owned(),
            verify: "grep orphan /proc/net/sockstat: fewer".to_owned(),
            risk: "slow clients may lose the end of an answer".to_owned(),
        },
    ]
}
