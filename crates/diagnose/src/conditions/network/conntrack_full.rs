//! The table of tracked connections is full, and the kernel drops the first packets of new ones.
//!
//! A firewall or address translation with state keeps one entry for each connection, also for a while after its end.
//! `net.netfilter.nf_conntrack_max` limits their number, for all network namespaces alike, while each namespace counts
//! its own. At the limit the kernel first gives up entries that it may (`early_drop`), then drops the packet (`drop`) and
//! says "nf_conntrack: table full, dropping packet" in its log. Connections that exist go on as if nothing were wrong:
//! only new ones fail, or take a second longer.
//!
//! `insert_failed` alone means that two packets of one connection raced, which costs a datagram now and then and is not a
//! full table.

use crate::network::{self, Net, SYN_WAIT_S};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "conntrack-full",
    title: "the conntrack table is full",
    area: "network",
    needs: &[
        "conntrack.drop",
        "conntrack.early_drop",
        "conntrack.insert_failed",
        "conntrack.count",
        "conntrack.max",
        "tcpext.TCPSynRetrans",
        "netns.conntrack_drop",
        "netns.conntrack_early_drop",
        "netns.conntrack_insert_failed",
        "netns.conntrack_count",
        "netns.conntrack_max",
        "netns.tcpext_TCPSynRetrans",
        "sysctl.net.netfilter.nf_conntrack_count",
        "sysctl.net.netfilter.nf_conntrack_max",
    ],
    triggers: &[each_above(&["conntrack.drop", "conntrack.early_drop"], DROPS_S)],
    observe,
    causes: &[
        effect("retransmit-storm", "what cannot be tracked is dropped and sent again"),
        effect("resolver-slow", "a DNS query is a new connection to conntrack, and dropped"),
        effect("session-drop", "a session that reconnects gets no entry"),
        effect("dependency-unreachable", "a connection that cannot be tracked is dropped"),
    ],
    settings: Settings::new(
        "the limit was lowered",
        &[lowered("sysctl.net.netfilter.nf_conntrack_max", Acts::AtLevel("conntrack.count"))],
    ),
    remedies_of: remedies,
    next: &[measure("connections by state", "conntrack -L -p tcp | awk '{print $4}' | sort | uniq -c")],
    source: include_str!("conntrack_full.rs"),
    ..Condition::ROOT
};

/// Both happen only at the limit.
const AT_LIMIT: &[&str] = &["conntrack.drop", "conntrack.early_drop"];
/// One in two seconds, each of which is a connection that fails or comes a second later.
const DROPS_S: f64 = 0.5;
/// In how many seconds at least.
const NEED_S: f64 = 2.0;
/// Near the limit. `drop` also counts packets for which there was no memory.
const FULL: f64 = 0.9;

fn observe(view: &View<'_>) -> Observation {
    let found = network::worst(view, AT_LIMIT, DROPS_S, NEED_S);
    let said = table_full(view);
    let Some((net, high)) = found else {
        return match said.first() {
            Some(first) => by_messages(view, first, &said).active(),
            None => not_seen(view),
        };
    };
    let span = high.run.span();
    let (count, max) = fill(view, net, span);
    if said.is_empty()
        && let (Some(count), Some(max)) = (count, max)
        && count < FULL * max
    {
        return Observation::Inactive(format!(
            "{} connections tracked of {} allowed",
            words::count(count),
            words::count(max)
        ));
    }
    let mut finding = finding(view, net, &high, count, max);
    if let Some(first) = said.first() {
        finding.evidence.push(view.event_evidence(
            "event.kernel-log",
            "nf_conntrack: table full",
            said.len() as f64,
            "",
            first,
        ));
    }
    finding.active()
}

/// The kernel's words for it.
fn table_full<'a>(view: &'a View<'_>) -> Vec<&'a Event> {
    let is_it = |e: &&Event| match &e.kind {
        EventKind::KernelLog { text, .. } => text.contains("nf_conntrack") && text.contains("table full"),
        _ => false,
    };
    view.set.events.iter().filter(|e| view.window.contains(e.real)).filter(is_it).collect()
}

fn not_seen(view: &View<'_>) -> Observation {
    let own = Net { name: None };
    let (count, max) = fill(view, own, view.window);
    if let (Some(count), Some(max)) = (count, max) {
        return Observation::Inactive(format!(
            "{} connections tracked of {} allowed, none evicted",
            words::count(count),
            words::count(max)
        ));
    }
    match network::peak(view, AT_LIMIT) {
        Some(_) => Observation::inactive("no tracked connection was evicted or refused"),
        None => Observation::cannot_tell(
            "conntrack -S; sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max",
        ),
    }
}

/// Entries of a namespace at the most, and how many there may be.
fn fill(view: &View<'_>, net: Net<'_>, span: Span) -> (Option<f64>, Option<f64>) {
    let setting = |metric: &str| view.reading(metric, "");
    let count = net.level(view, "conntrack.count", span).or_else(|| match net.name {
        None => setting("sysctl.net.netfilter.nf_conntrack_count"),
        Some(_) => None,
    });
    let max = net
        .level(view, "conntrack.max", span)
        .or_else(|| setting("conntrack.max"))
        .or_else(|| setting("sysctl.net.netfilter.nf_conntrack_max"));
    (count, max.filter(|max| *max > 0.0))
}

fn finding(view: &View<'_>, net: Net<'_>, high: &High, count: Option<f64>, max: Option<f64>) -> Finding {
    let span = high.run.span();
    let total = |metric| net.total(view, &[metric], span).unwrap_or(0.0);
    let (dropped, given_up) = (total("conntrack.drop"), total("conntrack.early_drop"));
    let mut finding = view.finding(&high.run);
    finding.culprit.sysctl = Some("net.netfilter.nf_conntrack_max".to_owned());
    let fill = match (count, max) {
        (Some(count), Some(max)) => format!("{count:.0} connections tracked of {max:.0} allowed; "),
        _ => String::new(),
    };
    finding.statement = format!(
        "{fill}{} packets of new connections were dropped{} and {} entries evicted to make room",
        words::count(dropped),
        net.place(),
        words::count(given_up)
    );
    for metric in [
        "conntrack.drop",
        "conntrack.early_drop",
        "conntrack.insert_failed",
        "conntrack.count",
        "conntrack.max",
    ] {
        finding.evidence.extend(net.evidence(view, metric, span).filter(|e| e.during > 0.0));
    }
    // A SYN that was dropped is sent again, by whoever sent it: on a router or a host of containers from another
    // namespace. A datagram is not, and nobody counts what its sender lost.
    let nets = network::nets(view.set, "tcpext.TCPSynRetrans").into_iter();
    let syn: f64 = nets.filter_map(|net| net.total(view, &["tcpext.TCPSynRetrans"], span)).sum();
    finding.loss_s = (syn > 0.0 && dropped > 0.0).then(|| dropped.min(syn) * SYN_WAIT_S);
    finding.confidence = if count.is_some() && max.is_some() { 0.95 } else { 0.8 };
    finding
}

fn by_messages(view: &View<'_>, first: &Event, said: &[&Event]) -> Finding {
    let mut finding = view.finding_at(first.real);
    finding.end = said.last().map(|e| e.real);
    finding.culprit.sysctl = Some("net.netfilter.nf_conntrack_max".to_owned());
    finding.statement = "the kernel drops packets because its conntrack table is full".to_owned();
    finding.evidence.push(view.event_evidence(
        "event.kernel-log",
        "nf_conntrack: table full",
        said.len() as f64,
        "",
        first,
    ));
    if let (Some(count), Some(max)) = fill(view, Net { name: None }, view.window) {
        finding
            .remarks
            .push(format!("{count:.0} connections tracked of {max:.0} allowed, in this namespace"));
    }
    finding.confidence = 0.85;
    finding
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let max =
        finding.evidence.iter().find(|e| e.metric.ends_with("conntrack_max") || e.metric == "conntrack.max");
    let wanted = max.map_or_else(|| "N".to_owned(), |e| format!("{:.0}", 2.0 * e.during));
    let verify = "conntrack -S: drop and early_drop stop growing; the kernel log stays silent".to_owned();
    vec![
        Remedy {
            action: "find whose connections fill it".to_owned(),
            command: "conntrack -L | awk '{print $5}' | sort | uniq -c | sort -n | tail".to_owned(),
            verify: verify.clone(),
            risk: String::new(),
        },
        Remedy {
            action: "a larger table".to_owned(),
            command: format!("sysctl -w net.netfilter.nf_conntrack_max={wanted}"),
            verify: verify.clone(),
            risk: "an entry takes about 320 bytes that cannot be swapped; nf_conntrack_buckets has to grow with it"
                .to_owned(),
        },
        Remedy {
            action: "do not track what needs no state, or expire it sooner".to_owned(),
            command: "nft add rule inet raw prerouting udp dport 53 notrack; sysctl -w \
                      net.netfilter.nf_conntrack_tcp_timeout_established=86400"
                .to_owned(),
            verify,
            risk: "stateful rules do not match untracked packets".to_owned(),
        },
    ]
}
