//! The neighbour table is full, and packets to addresses of the same link that are not in it are dropped.
//!
//! The kernel keeps the hardware address of each host of the same link to which something was sent (ARP, and neighbour discovery of IPv6). All
//! network namespaces share the table and its limits (`net.ipv4.neigh.default.gc_thresh3`, 1,024 entries by default). An entry that nobody
//! answers for stays for seconds, too: whoever sends to each address of a large network fills the table with hosts that do not exist, and
//! others, in other namespaces as well, cannot reach those that do. Entries that are there go on to work, so that some connections are as
//! quick as ever and others fail or come a second later.
//!
//! The kernel names the reason of each packet that it drops (`neigh_createfail`, since 5.19), and says "neighbor table overflow" in its log.

use crate::network;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "neighbour-table-full",
    title: "the neighbour table (ARP) is full",
    area: "network",
    needs: &[DROPS, "ip.OutDiscards", "netns.ip_OutDiscards", "netns.pid", "netns.comm"],
    triggers: &[Trigger::Signals(Signals {
        metrics: &[DROPS],
        find: |set, window| {
            let refused = set.get(DROPS, REFUSED).map(|series| Signal::of(series, window));
            refused.into_iter().map(|signal| signal.map(|drops| step(drops >= DROPS_S))).collect()
        },
        need_s: NEED_S,
        can_be_steady: true,
    })],
    observe,
    causes: &[
        effect(
            "retransmit-storm",
            "a packet to an address that is not in the table is dropped and sent again",
        ),
        effect("dependency-unreachable", "a host that is not in the table cannot be reached"),
        effect("resolver-slow", "questions to a name server that is not in the table are dropped"),
        effect("session-drop", "a peer that falls out of the table cannot be reached"),
    ],
    remedies: &[
        Advice {
            action: "stop who sends to each address of a network: a scan, a discovery, a wrong netmask",
            command: "ip -s -s neigh show nud incomplete,failed | head; ip netns exec NAME ip neigh show | wc -l, for each namespace",
            verify: "ip neigh show | wc -l stays below gc_thresh2, and the kernel's log no longer says neighbor table overflow",
            risk: "",
        },
        Advice {
            action: "let the table hold as many hosts as the link has",
            command: "sysctl -w net.ipv4.neigh.default.gc_thresh3=8192 net.ipv4.neigh.default.gc_thresh2=4096 \
                      net.ipv4.neigh.default.gc_thresh1=1024",
            verify: "the kernel's log no longer says neighbor table overflow",
            risk: "an entry takes some 400 bytes of kernel memory",
        },
    ],
    next: &[measure(
        "how often the table was full",
        "cat /proc/net/stat/arp_cache: the last column (table_fulls)",
    )],
    source: include_str!("neighbour_table_full.rs"),
    ..Condition::ROOT
};

const DROPS: &str = "drop.packets";
/// The reason, as the kernel names it (`include/net/dropreason-core.h`).
const REFUSED: &str = "neigh_createfail";
/// One in two seconds, each of which is a packet that somebody waits for.
const DROPS_S: f64 = 0.5;
const NEED_S: f64 = 2.0;
/// Whose packets most of these are.
const MOST: f64 = 0.5;

fn observe(view: &View<'_>) -> Observation {
    if !view.has(DROPS) {
        return Observation::cannot_tell("dropped packets by reason: dropwatch; the kernel's log");
    }
    let Some(high) = view.high(DROPS, REFUSED, DROPS_S, NEED_S) else {
        return Observation::inactive("no packet was dropped because the neighbour table was full");
    };
    let span = high.run.span();
    let mut finding = view.finding(&high.run);
    finding.culprit.sysctl = Some("net.ipv4.neigh.default.gc_thresh3".to_owned());
    finding.statement = format!(
        "the neighbour table is full, which all network namespaces share: {} packets/s to hosts that are not in it were dropped",
        words::count(high.during)
    );
    finding.prove(view, &[DROPS], REFUSED, span);
    let sender = network::worst(view, &["ip.OutDiscards"], DROPS_S, NEED_S);
    if let Some((net, out)) = sender.filter(|(_, out)| out.during >= MOST * high.during) {
        finding.evidence.extend(net.evidence(view, "ip.OutDiscards", span));
        let name = net.name.unwrap_or_default();
        let one = view.set.text("netns.comm", name).and_then(|text| text.last());
        let pid = view.set.get("netns.pid", name).and_then(|pid| pid.last(span)).map(|pid| pid as u32);
        match one.zip(pid) {
            Some((comm, pid)) => {
                finding.remarks.push(format!(
                    "{} of them were sent in the network namespace {name}, which {comm} ({pid}) is in",
                    words::percent((out.during / high.during).min(1.0))
                ));
                finding.blame_pid(comm, pid);
                finding.infer_culprit();
            }
            None => finding.remarks.push(format!(
                "{} of them were sent{}",
                words::percent((out.during / high.during).min(1.0)),
                net.place()
            )),
        }
    }
    // An entry is refused for lack of memory, too, and where a device is being taken down.
    let said = |event: &&Event| matches!(&event.kind, EventKind::KernelLog { text, .. } if text.contains("table overflow"));
    let mut said = view.set.events.iter().filter(|event| span.contains(event.real)).filter(said);
    finding.confidence = 0.75;
    if let Some(first) = said.next() {
        let count = 1.0 + said.count() as f64;
        finding.evidence.push(view.event_evidence(
            "event.kernel-log",
            "neighbor table overflow",
            count,
            "",
            first,
        ));
        finding.confidence = 0.95;
    }
    finding.active()
}
