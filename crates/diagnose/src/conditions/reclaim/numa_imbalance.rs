//! Tasks get memory from another node than the one they run on, while the nodes are unequally full.
//!
//! The counters of numastat mean: `numa_hit`, pages that came from the node that was wanted, counted there; `numa_miss`, pages
//! that came from this node although another one was wanted; `numa_foreign`, pages that were wanted here and had to come from
//! another one: it is counted on the node that was *preferred* and could not serve; `local_node` and `other_node`, whether the
//! task ran on the node that it came from; `interleave_hit`, pages that were spread on purpose. So the node with `numa_foreign`
//! is the one that is full, and the node with `numa_miss` is the one that helps out.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "numa-imbalance",
    title: "memory is allocated from a remote NUMA node",
    area: "reclaim",
    needs: &[
        "node.numa_hit",
        "node.numa_miss",
        "node.numa_foreign",
        "node.local_node",
        "node.other_node",
        "node.mem_free",
        "node.mem_total",
    ],
    observe,
    causes: &[effect("kswapd-scanning", "the full node reclaims while the other has room")],
    remedies: &[Advice {
        action: "spread the memory of the large process over the nodes, or bind it to one that has room",
        command: "numactl --interleave=all COMMAND; numactl --cpunodebind=1 --membind=1 COMMAND",
        verify: "numastat -s: numa_foreign stops growing",
        risk: "interleaving makes every second access remote",
    }],
    next: &[measure("which process fills the node", "numastat -p PROCESS; numastat -m")],
    source: include_str!("numa_imbalance.rs"),
    ..Condition::ROOT
};

/// One page in ten from the wrong node.
const MISS_SHARE: f64 = 0.1;
/// Four megabytes a second: below, a node trims and borrows in passing.
const MISS_PAGES_S: f64 = 1000.0;

struct Node {
    name: String,
    foreign: f64,
    hit: f64,
    free: Option<f64>,
    is_rate: bool,
}

fn observe(view: &View<'_>) -> Observation {
    let mut nodes: Vec<Node> = view
        .each("node.numa_foreign")
        .filter_map(|(name, s)| {
            Some(Node {
                name: name.to_owned(),
                foreign: s.mean(view.window)?,
                hit: view.set.get("node.numa_hit", name)?.mean(view.window)?,
                free: view.set.get("node.mem_free", name).and_then(|s| s.mean(view.window)),
                is_rate: true,
            })
        })
        .collect();
    if nodes.is_empty() {
        nodes = totals(view);
    }
    if nodes.len() < 2 {
        return match nodes.len() {
            0 => Observation::cannot_tell("counters of each NUMA node: numastat"),
            _ => Observation::inactive("the machine has one node"),
        };
    }
    nodes.sort_by(|a, b| b.foreign.total_cmp(&a.foreign));
    let full = &nodes[0];
    let share = full.foreign / (full.foreign + full.hit).max(1.0);
    let enough = !full.is_rate || full.foreign >= MISS_PAGES_S;
    if share < MISS_SHARE || !enough {
        return Observation::Inactive(format!(
            "{} of the pages wanted on node {} came from another one",
            words::percent(share),
            full.name
        ));
    }
    let other = nodes[1..].iter().filter_map(|n| n.free).reduce(f64::max);
    if full.free.zip(other).is_some_and(|(here, there)| there < 2.0 * here) {
        return Observation::inactive("the nodes are about equally full");
    }
    let at = if full.is_rate { view.window.since } else { mitra_model::Era::Fact.zero() };
    let mut finding = view.finding_at(at.max(mitra_model::Era::Boot.zero()));
    finding.statement = format!(
        "node {} is full: {} of the pages that were wanted there came from another node{}",
        full.name,
        words::percent(share),
        other.map(|free| format!(", where {} are free", words::bytes(free))).unwrap_or_default()
    );
    for metric in ["node.numa_foreign", "node.numa_hit", "node.mem_free"] {
        finding.evidence.extend(view.reading_evidence(metric, &full.name));
    }
    for helper in &nodes[1..] {
        finding.evidence.extend(view.reading_evidence("node.numa_miss", &helper.name));
    }
    finding.remarks.push(
        "numa_foreign is counted on the node that was preferred and could not serve; the same pages are numa_miss of the \
         node that helped out"
            .to_owned(),
    );
    if !full.is_rate {
        finding.remarks.push("counted since boot: when it happened is not known".to_owned());
    }
    finding.confidence = if full.is_rate { 0.8 } else { 0.5 };
    finding.active()
}

/// A single numastat: what the counters had come to since boot.
fn totals(view: &View<'_>) -> Vec<Node> {
    view.set
        .each_total("node.numa_foreign")
        .filter_map(|(name, s)| {
            Some(Node {
                name: name.to_owned(),
                foreign: s.last(Span::ALL)?,
                hit: view.reading("node.numa_hit", name)?,
                free: view.reading("node.mem_free", name),
                is_rate: false,
            })
        })
        .collect()
}
