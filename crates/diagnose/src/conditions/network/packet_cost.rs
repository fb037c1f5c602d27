//! Each packet takes the kernel several times as long as before.
//!
//! A packet that is received passes the hooks of the packet filter, traffic control and whatever else is attached. A list of tens of
//! thousands of rules, one for each banned address, is walked for each packet; a set is looked up once. The time goes into soft
//! interrupts: no process shows it, as many packets come as ever, and each answer is late by what its packets take. Compared are the
//! time of all soft interrupts and the packets that passed the backlog or a driver's poll (`/proc/net/softnet_stat`).
//!
//! Soft interrupts of block devices, tasklets (encryption), timers, the scheduler and RCU are no packets: where there are as many of
//! these, and more than before, nothing is said. Segments of one connection that came together count as one packet (GRO).

use crate::deaths;
use crate::prelude::*;
use crate::services::best_tenth;

pub const CONDITION: Condition = Condition {
    id: "packet-cost",
    title: "each packet takes the kernel several times as long as before",
    area: "network",
    needs: &["sys.cpu_idle", "exited.count", "tasks.run_delay"],
    needs_of: &[METRICS],
    triggers: &[Trigger::Signals(Signals {
        metrics: METRICS,
        find: are_dear,
        need_s: NEED_S,
        can_be_steady: false,
    })],
    observe,
    causes: &[
        explains("interrupt-imbalance", "the interrupts are the packets of which each takes so long"),
        explains("cpu-saturated", "the CPUs work on packets"),
        explains("runqueue-wait", "tasks wait while the CPU works on packets"),
        explains("nic-drops", "packets come faster than they are worked on"),
        explains("service-slow", "each answer waits for its packets"),
    ],
    remedies: &[Advice {
        action: "put addresses into a set that is looked up once, in place of a rule for each; take out what was added when it began",
        command: "nft list ruleset | wc -l; iptables-save | wc -l; ip netns exec NAME iptables-save | wc -l; tc filter show dev DEV",
        verify: "mpstat -P ALL 1: %soft is as before with as many packets",
        risk: "what the rules kept out comes in while they are changed",
    }],
    next: &[measure("which function of the kernel takes the time", "perf top -e cycles:k --no-children")],
    source: include_str!("packet_cost.rs"),
    ..Condition::ROOT
};

const TIME: &str = "sys.cpu_softirq";
const PACKETS: &str = "softnet.processed";
const METRICS: &[&str] = &[
    TIME,
    PACKETS,
    "softirq.block",
    "softirq.irq_poll",
    "softirq.tasklet",
    "softirq.hi",
    "softirq.timer",
    "softirq.hrtimer",
    "softirq.sched",
    "softirq.rcu",
];
/// Soft interrupts that are for something else.
const OTHERS: &[&str] = METRICS.split_at(2).1;
/// A fifth of a CPU is felt, where there are few.
const BUSY: f64 = 0.2;
/// Larger packets, another protocol and a state that is new take up to twice as long; five times is something else.
const DEARER: f64 = 5.0;
/// A packet of which each takes so long is felt by whoever sends a few and waits for each, however few there are in all.
const FELT_S: f64 = 0.5e-3;
/// A packet takes some microseconds from the driver to the socket, also with a hundred rules; one of 64 KiB that was put together of
/// segments some thirty.
const LEAST_S: f64 = 50e-6;
/// Soft interrupts for something else that are as many as before.
const AS_MANY: f64 = 1.5;
/// Of fewer in a second a mean says little.
const MANY: f64 = 100.0;
const NEED_S: f64 = 3.0;
/// Whoever loads rules was started shortly before, and takes some seconds.
const BEFORE_NS: i64 = 10 * SECOND;
/// What loads rules, as the kernel keeps names: 15 bytes.
const LOADERS: &[&str] = &[
    "iptables",
    "ip6tables",
    "iptables-restor",
    "ip6tables-resto",
    "xtables-nft-mul",
    "nft",
    "tc",
    "ipset",
    "ebtables",
    "firewall-cmd",
    "ufw",
    "bpftool",
];

fn sum(set: &SeriesSet, metric: &str, span: Span) -> Option<Signal> {
    Signal::sum(set.each(metric).map(|(_, series)| series), span)
}

/// Soft interrupts for something else.
fn others(set: &SeriesSet, span: Span) -> Signal {
    let all = OTHERS.iter().filter_map(|metric| sum(set, metric, span));
    all.reduce(|a, b| a.zip(&b, |a, b| a + b)).unwrap_or_default()
}

/// Seconds of soft interrupts for each packet, while packets are what they are for: there are fewer others, or as many as are usual.
fn cost(set: &SeriesSet, usual_others: f64, span: Span) -> Option<(Signal, Signal)> {
    let (time, packets) = (Signal::sum(set.system(TIME), span)?, sum(set, PACKETS, span)?);
    let others = others(set, span);
    let others = if others.t.is_empty() { packets.clone().map(|_| 0.0) } else { others };
    let is_for_packets = |packets: f64, others: f64| others < packets || others <= AS_MANY * usual_others;
    let packets =
        packets.zip(&others, |packets, others| if is_for_packets(packets, others) { packets } else { 0.0 });
    let cost = time.zip(&packets, |time, packets| if packets >= MANY { time / packets } else { f64::NAN });
    Some((cost, time))
}

/// One where a packet takes so much longer than it should that a part of a CPU goes into it, or that each is felt.
fn dear(cost: &Signal, time: &Signal, usual: f64) -> Signal {
    let least = LEAST_S.max(DEARER * usual);
    cost.zip(time, |cost, time| step(cost >= least && (time >= BUSY || cost >= FELT_S)))
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has(PACKETS) || !view.has(TIME) {
        return Observation::needs_as(
            "packets and soft interrupts: cat /proc/net/softnet_stat; mpstat -P ALL 1",
            &[PACKETS],
        );
    }
    let usual_others =
        view.baseline.and_then(|baseline| others(view.base_set, baseline).mean()).unwrap_or(0.0);
    let before = view.baseline.and_then(|baseline| cost(view.base_set, usual_others, baseline));
    let before = before.map(|(cost, _)| cost);
    let Some(usual) = before.as_ref().and_then(mean) else {
        return Observation::inactive("what a packet took before is not known");
    };
    let Some((cost, time)) = cost(view.set, usual_others, view.window) else {
        return Observation::inactive("no packets were counted");
    };
    let Some(run) = dear(&cost, &time, usual).run(1.0, NEED_S) else {
        return Observation::inactive("packets took about as long as before");
    };
    let span = run.span();
    let mut finding = view.finding(&run);
    finding.statement = format!(
        "each packet takes {} in soft interrupts instead of {}: {} of a CPU in all",
        words::seconds(mean(&cost.within(span)).unwrap_or(0.0)),
        words::seconds(usual),
        words::percent(time.within(span).mean().unwrap_or(0.0))
    );
    if let Some((comm, parent)) = loader(view, run.onset) {
        finding.remarks.push(format!(
            "{comm}, which changes what is done with packets, ran when it began; {} ({}) started it",
            parent.comm, parent.pid
        ));
        finding.blame_pid(parent.comm, parent.pid);
        finding.infer_culprit();
    }
    finding.prove(view, &[TIME, "sys.cpu_idle"], "", span);
    finding.loss_s = view.excess(&["tasks.run_delay"], span);
    finding.confidence = 0.85;
    finding.active()
}

fn mean(cost: &Signal) -> Option<f64> {
    let known: Vec<f64> = cost.v.iter().copied().filter(|v| v.is_finite()).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// A program that loads rules and ended when it began, and who started it.
fn loader<'v, 'a>(view: &'v View<'a>, onset: i64) -> Option<(&'a str, &'v Process<'a>)> {
    let near = Span { since: onset.saturating_sub(BEFORE_NS), until: onset.saturating_add(3 * SECOND) };
    // Who changes rules all the time, as a proxy for containers does, changed them before as well.
    let is_usual = |parent: &Process<'_>, comm: &str| {
        let ended = |row: &str| view.base_set.get("exited.count", row)?.total(view.baseline?);
        view.base_set.each("exited.count").any(|(row, _)| {
            deaths::family(row) == Some((parent.pid, comm)) && ended(row).is_some_and(|ended| ended > 0.0)
        })
    };
    let of = |(row, series): (&'a str, &Series)| {
        let (parent, comm) = deaths::family(row)?;
        let ended = series.total(near).filter(|ended| *ended > 0.0)?;
        let parent = view.process(parent).filter(|parent| !is_usual(parent, comm))?;
        LOADERS.contains(&comm).then_some((ended, comm, parent))
    };
    let all = view.each("exited.count").filter_map(of);
    all.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, comm, parent)| (comm, parent))
}

fn are_dear(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let usual_others = best_tenth(&others(set, window).v).unwrap_or(0.0);
    let found = cost(set, usual_others, window).and_then(|(cost, time)| {
        let usual = best_tenth(&cost.v)?;
        Some(dear(&cost, &time, usual))
    });
    found.into_iter().collect()
}
