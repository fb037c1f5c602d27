//! One CPU does the interrupts of all, and what should run there waits.
//!
//! A network card with one queue, or receive steering (RPS, the affinity of an interrupt) that names a single CPU, puts all packet
//! work on it. The CPU is busy without a process to show for it; the others idle. It becomes a trouble when the CPU has
//! nothing left: packets are dropped at its backlog, and tasks on it wait although there is room elsewhere. A task that is
//! pinned to it suffers before that: each interrupt comes out of its time, and where the kernel does not tell interrupts
//! from the task that they interrupt (`CONFIG_IRQ_TIME_ACCOUNTING`), it is charged for them.

use crate::network;
use crate::prelude::*;
use crate::stats;

pub const CONDITION: Condition = Condition {
    id: "interrupt-imbalance",
    title: "one CPU handles most interrupts",
    area: "cpu",
    needs: &[
        "cpu.softirq",
        "cpu.irq",
        "cpu.idle",
        "cpu.iowait",
        "cpu.user",
        "cpu.nice",
        "cpu.system",
        "cpu.steal",
        "softnet.dropped",
        "softnet.time_squeeze",
        "softnet.processed",
        "irq.count",
        "irq.busiest_cpu",
        "irq.description",
        "nic.rx_packets",
        "task.cpu",
        "task.run_delay",
        "task.cpu_time",
        "task.cpus_allowed_count",
    ],
    triggers: &[
        // A third of a CPU goes into interrupts; those that come while it idles are not all counted.
        each_above(&["cpu.softirq"], 0.15).lasting(3.0),
    ],
    observe,
    causes: &[
        effect("nic-drops", "one CPU takes all packets and can take no more"),
        effect("runqueue-wait", "what runs on the CPU of the interrupts waits for them"),
        explains("cpu-affinity-misplaced", "the CPU is full of interrupts, not of tasks"),
        explains("cpu-hog", "the CPU goes into packets"),
        explains("single-thread-bottleneck", "the thread shares its CPU with the interrupts"),
    ],
    remedies_of: remedies,
    next: &[measure(
        "which IRQs and which softirq type",
        "cat /proc/interrupts /proc/softirqs; cat /sys/class/net/*/queues/rx-*/rps_cpus",
    )],
    source: include_str!("interrupt_imbalance.rs"),
    ..Condition::ROOT
};

const ADVICE: [Advice; 2] = [
    Advice {
        action: "spread the packets over the CPUs: RPS for a device with one queue, more RX queues where it has them",
        command: "echo ffffffff > /sys/class/net/{nic:DEV}/queues/rx-0/rps_cpus; ethtool -L {nic:DEV} combined N",
        verify: "mpstat -P ALL 1: %soft is spread",
        risk: "packets of one flow stay on one CPU; a single flow is not spread",
    },
    Advice {
        action: "or keep latency-sensitive tasks off that CPU",
        command: "taskset -acp CPULIST PID; systemctl restart irqbalance",
        verify: "pidstat -u 1: %wait falls",
        risk: "the packets themselves still queue there",
    },
];

/// Three tenths of a CPU: what runs there is slowed by half as much again.
const BUSY: f64 = 0.3;
/// Interrupts that are shared out differ by less than this from CPU to CPU. Compared is the median of the others: a card with
/// two queues fills two of many CPUs.
const RATIO: f64 = 3.0;
/// A CPU that idles for less than a tenth of the time has no room for more.
const FULL_IDLE: f64 = 0.1;
/// What drops while a quarter of the CPU is left does not drop for want of CPU.
const ROOM_IDLE: f64 = 0.25;
/// Half of another CPU is free to take a part.
const SPARE: f64 = 0.5;
/// A tenth of a task's time.
const HARM: f64 = 0.1;
/// Each takes some ten microseconds with what follows it: a hundredth of a CPU.
const IRQ_S: f64 = 1000.0;
/// Interrupts and CPUs beyond this are not named.
const NAMED_MAX: usize = 4;
/// Beside so many interrupts, time that is nowhere counted belongs to them.
const SOME: f64 = 0.1;
/// Where the time of tasks is counted, and all the time that there is. Guests are in `user`.
const TASKS: [&str; 3] = ["cpu.user", "cpu.nice", "cpu.system"];
const ALL: [&str; 8] =
    ["cpu.user", "cpu.nice", "cpu.system", "cpu.idle", "cpu.iowait", "cpu.irq", "cpu.softirq", "cpu.steal"];

fn observe(view: &View<'_>) -> Observation {
    if !view.has("cpu.softirq") {
        return Observation::cannot_tell("softirq time of each CPU: mpstat -P ALL 1 (%soft, %irq)");
    }
    let cpus: Vec<&str> = view.each("cpu.softirq").map(|(cpu, _)| cpu).collect();
    if cpus.len() < 2 {
        return Observation::inactive("the machine has one CPU");
    }
    let mut because = "no CPU had much more interrupt work than the others".to_owned();
    for cpu in &cpus {
        let Some(own) = interrupts(cpu, view.set, view.window) else { continue };
        let base = view.baseline.and_then(|b| interrupts(cpu, view.base_set, b)).unwrap_or_default();
        let threshold = view.threshold(BUSY, &base.v);
        let before = base.mean();
        let Some(high) = view.high_signal(&own, threshold, 3.0, before) else { continue };
        let span = high.run.span();
        let mut others: Vec<f64> =
            cpus.iter().filter(|c| *c != cpu).filter_map(|c| interrupts(c, view.set, span)?.mean()).collect();
        let usual = stats::median(&mut others).unwrap_or(0.0);
        if high.during < RATIO * usual {
            because = "the interrupt work is shared by the CPUs".to_owned();
            continue;
        }
        let idle = |c: &str| {
            Signal::sum(["cpu.idle", "cpu.iowait"].iter().filter_map(|m| view.set.get(m, c)), span)
                .and_then(|s| s.mean())
        };
        let spare = cpus.iter().filter(|c| *c != cpu).filter_map(|c| idle(c)).fold(0.0, f64::max);
        if spare < SPARE {
            because = "no other CPU had room for some of the interrupts".to_owned();
            continue;
        }
        match harm(view, cpu, span, idle(cpu)) {
            Some((harm, loss)) => {
                let mut finding = view.finding(&high.run);
                finding.statement = format!(
                    "CPU {cpu} spends {} of its time in interrupts ({} before), the others {} in the median while {} of one is idle; {harm}",
                    words::percent(high.during),
                    words::percent(high.before.unwrap_or(0.0)),
                    words::percent(usual),
                    words::percent(spare)
                );
                finding.evidence.extend(view.evidence("cpu.softirq", cpu, span));
                finding.evidence.extend(view.evidence("cpu.irq", cpu, span).filter(|e| e.during > 0.0));
                let mut shown = cpus.clone();
                let room = |c: &str| if c == *cpu { f64::INFINITY } else { idle(c).unwrap_or(0.0) };
                shown.sort_by(|a, b| room(b).total_cmp(&room(a)));
                let shown = shown.iter().filter_map(|c| view.evidence("cpu.idle", c, span));
                finding.evidence.extend(shown.take(NAMED_MAX));
                finding.loss_s = loss;
                finding.confidence = 0.8;
                name_the_source(view, &mut finding, cpu, span);
                return finding.active();
            }
            None => {
                because =
                    format!("CPU {cpu} has most of the interrupts and still has room for what runs there")
            }
        }
    }
    Observation::Inactive(because)
}

/// The time of a CPU in interrupts.
///
/// They are counted at the tick where the kernel does not look at the clock for each, and an idle CPU has no tick. What is
/// missing to a whole second beside them is theirs.
fn interrupts(cpu: &str, set: &SeriesSet, span: Span) -> Option<Signal> {
    let sum = |metrics: &[&str]| Signal::sum(metrics.iter().filter_map(|m| set.get(m, cpu)), span);
    let counted = sum(&["cpu.softirq", "cpu.irq"])?;
    // What stands still is left out of a recording; these two never do.
    if ["cpu.user", "cpu.idle"].iter().any(|m| set.get(m, cpu).is_none()) {
        return Some(counted);
    }
    let all = sum(&ALL)?;
    Some(
        counted
            .zip(&all, |counted, all| if counted >= SOME { counted + (1.0 - all).max(0.0) } else { counted }),
    )
}

/// Task-seconds in a second that tasks which may not leave a CPU were charged with and did not run: they were interrupted.
fn charged(cpu: &str, number: f64, set: &SeriesSet, span: Span) -> Option<f64> {
    let last = |metric: &str, row: &str| set.get(metric, row).and_then(|s| s.last(span));
    let pinned = set.each("task.cpu_time").filter(|(row, _)| {
        last("task.cpus_allowed_count", row) == Some(1.0)
            && last("task.cpu", row) == Some(number)
            && last("task.kthread", row) != Some(1.0)
    });
    let of_pinned: f64 = pinned.filter_map(|(_, s)| s.total(span)).sum();
    let ran = Signal::sum(TASKS.iter().filter_map(|m| set.get(m, cpu)), span)?.total();
    Some(((of_pinned - ran) / span.seconds().max(1e-9)).max(0.0))
}

/// Who suffers, in words, and the task-seconds lost.
fn harm(view: &View<'_>, cpu: &str, span: Span, idle: Option<f64>) -> Option<(String, Option<f64>)> {
    let softnet = |metric: &str| view.set.get(metric, cpu).and_then(|s| s.mean(span)).unwrap_or(0.0);
    let dropped = softnet("softnet.dropped");
    // A CPU that still idles drops because a burst was longer than its queue: that is `nic-drops`.
    if dropped >= 1.0 && idle.is_none_or(|idle| idle < ROOM_IDLE) {
        return Some((format!("{} packets/s are dropped at its backlog", words::count(dropped)), None));
    }
    let number: f64 = cpu.parse().ok()?;
    let delay = |set: &SeriesSet, span: Span| -> f64 {
        let rows = set
            .each("task.cpu")
            .filter(|(row, _)| set.get("task.kthread", row).and_then(|s| s.last(span)) != Some(1.0));
        let waits = rows.filter_map(|(row, on)| {
            let (on, delay) = (Signal::of(on, span), Signal::of(set.get("task.run_delay", row)?, span));
            Some(delay.zip(&on, |delay, on| if on == number { delay } else { 0.0 }).total())
        });
        waits.sum::<f64>() / span.seconds().max(1e-9)
    };
    let waited = delay(view.set, span) - view.baseline.map_or(0.0, |b| delay(view.base_set, b));
    if waited >= HARM {
        let text = format!("tasks on it wait {} of a task's time", words::percent(waited));
        return Some((text, Some(waited * span.seconds())));
    }
    let charged = |set: &SeriesSet, span: Span| charged(cpu, number, set, span).unwrap_or(0.0);
    let interrupted = charged(view.set, span) - view.baseline.map_or(0.0, |b| charged(view.base_set, b));
    if interrupted >= HARM {
        let text = format!(
            "tasks that may run nowhere else lose {} of a task's time to them",
            words::percent(interrupted)
        );
        return Some((text, Some(interrupted * span.seconds())));
    }
    idle.filter(|idle| *idle < FULL_IDLE).map(|_| ("it has no time left".to_owned(), None))
}

/// The interrupt and the network device that the work comes from, where one stands out.
fn name_the_source(view: &View<'_>, finding: &mut Finding, cpu: &str, span: Span) {
    let packets = view.set.get("softnet.processed", cpu).and_then(|s| s.mean(span)).unwrap_or(0.0);
    let here = irqs_here(view, cpu, span);
    // Of devices on top of each other all count a packet, and the one whose interrupt is here is where it came in. Virtual
    // ones have no interrupt: they are named where nothing else brings as many, and the loopback last.
    let rank = |row: &str| {
        let has_irq = here.iter().any(|(_, what, _)| names_device(what, row));
        (has_irq, network::device(row).0 != LOOPBACK)
    };
    let nic = view
        .each("nic.rx_packets")
        .filter_map(|(row, s)| Some((row, s.mean(span)?)))
        .filter(|(_, rate)| *rate >= 0.5 * packets && *rate >= 1000.0)
        .max_by(|a, b| rank(a.0).cmp(&rank(b.0)).then(a.1.total_cmp(&b.1)));
    if let Some((row, rate)) = nic {
        finding.culprit.nic = Some(network::device(row).0.to_owned());
        // Packets are counted for each CPU and each device, and not for both.
        finding.infer_culprit();
        finding.statement = format!("{}; {row} brings {} packets/s", finding.statement, words::count(rate));
        finding.evidence.extend(view.evidence("nic.rx_packets", row, span));
        finding.confidence = 0.9;
    }
    for (row, what, rate) in here.iter().filter(|(.., rate)| *rate >= IRQ_S).take(NAMED_MAX) {
        finding.remarks.push(format!(
            "interrupt {row} ({what}) came {} times a second, on CPU {cpu}",
            words::count(*rate)
        ));
        finding.evidence.extend(view.evidence("irq.count", row, span));
    }
    finding.prove_nonzero(view, &["softnet.processed", "softnet.time_squeeze", "softnet.dropped"], cpu, span);
}

/// To other CPUs with the interrupts that are named: one after the other to the idlest of those that are shown and have room. A
/// single one only takes its load along: first its packets are spread.
fn remedies(finding: &Finding) -> Vec<Remedy> {
    let of = |metric: &'static str| finding.evidence.iter().filter(move |e| e.metric == metric);
    let busy = of("cpu.softirq").next().map(|e| e.entity.as_str());
    let to = of("cpu.idle").filter(|e| e.during >= SPARE).map(|e| e.entity.as_str());
    let to: Vec<&str> = to.filter(|cpu| Some(*cpu) != busy).collect();
    let moves: Vec<(&str, &str)> =
        of("irq.count").map(|e| e.entity.as_str()).zip(to.iter().copied().cycle()).collect();
    let mut remedies: Vec<Remedy> = Vec::new();
    if !moves.is_empty() {
        let all = |each: &dyn Fn(&str, &str) -> String, between: &str| {
            moves.iter().map(|(irq, cpu)| each(irq, cpu)).collect::<Vec<_>>().join(between)
        };
        remedies.push(Remedy {
            action: format!(
                "let other CPUs serve the interrupts that come here: {}",
                all(&|irq, cpu| format!("{irq} on CPU {cpu}"), ", ")
            ),
            command: all(
                &|irq, cpu| format!("echo {} > /proc/irq/{irq}/smp_affinity_list", words::shell(cpu)),
                "; ",
            ),
            verify: format!(
                "cat {}; mpstat -P ALL 1: %soft is spread",
                all(&|irq, _| format!("/proc/irq/{irq}/effective_affinity_list"), " ")
            ),
            risk: "irqbalance may move them back (--banirq=IRQ); managed interrupts (NVMe) refuse it; a single interrupt only takes \
                   its load to another CPU"
                .to_owned(),
        });
    }
    let [spread, keep_off] = ADVICE.map(|advice| advice.of(&finding.culprit));
    let at = if moves.len() == 1 { 0 } else { remedies.len() };
    remedies.insert(at, spread);
    remedies.push(keep_off);
    remedies
}

/// The loopback has no interrupt, and what it carries is this machine's own.
const LOOPBACK: &str = "lo";

/// The numbered interrupts that come to a CPU, what they are and how often they come, the most frequent first.
fn irqs_here<'a>(view: &'a View<'_>, cpu: &str, span: Span) -> Vec<(&'a str, &'a str, f64)> {
    let number: Option<f64> = cpu.parse().ok();
    let is_here = |row: &str| {
        let busiest = view.set.get("irq.busiest_cpu", row).and_then(|s| s.last(span));
        number.is_some() && busiest == number && row.parse::<u32>().is_ok()
    };
    let mut list: Vec<(&str, &str, f64)> = view
        .each("irq.count")
        .filter(|(row, _)| is_here(row))
        .filter_map(|(row, s)| Some((row, s.mean(span)?)))
        .map(|(row, rate)| {
            (row, view.set.text("irq.description", row).and_then(|t| t.last()).unwrap_or(""), rate)
        })
        .collect();
    list.sort_by(|a, b| b.2.total_cmp(&a.2));
    list
}

/// Whether what an interrupt is called names a device: `eth0-TxRx-3`, `i40e-eth0-TxRx-3`, `eth0`. Devices of other network
/// namespaces, which are virtual mostly, are never named.
fn names_device(what: &str, row: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    what.split(|c: char| !is_inside(c)).any(|word| !word.is_empty() && word == row)
}
