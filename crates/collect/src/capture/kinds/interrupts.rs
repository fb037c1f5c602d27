//! `interrupts`: what interrupt handlers and softirqs take of the CPUs, by handler.
//!
//! What it answers: which device or softirq takes a CPU's time, whether interrupts pile up on one CPU, and which
//! handler runs so long that its CPU is late for everything else. It is of the whole machine: an interrupt belongs
//! to no process.
//!
//! A handler (hard) that interrupts a softirq (soft) counts apart: the softirq's time does not include it. What the
//! kernel does before and after a handler counts nowhere, or in the softirq that it interrupts. A handler or softirq
//! counts when it ends, if it began during the capture.
//!
//! Interrupts that no driver handles have no tracepoint here: on x86-64 the local timer and those between CPUs,
//! everywhere NMIs. They are not seen, and lengthen the softirq that they interrupt. Threads of threaded handlers
//! are tasks and are not seen either. With PREEMPT_RT a softirq's time includes the tasks that preempt it.
//!
//! The share of a CPU is not known where the number of events ended the capture: each CPU stops counting by itself.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a softirq takes 510 ns longer (a datagram from a socket to
//! itself: 2.71 to 3.22 µs of CPU). The programs take 255 ns of that, which is what the capture counts as its cost.

use std::collections::HashMap;

use aya::include_bytes_aligned;
use mitra_model::capture::{CaptureRow, Captured, Cell, Ended, Raw};

use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::{Column, LONGEST, sort_by_weight, table, text};
use crate::capture::loader::Loader;
use crate::capture::{AnyError, CaptureReader, Kind, Request, as_all};

pub(super) static KIND: Kind = Kind {
    name: "interrupts",
    help: "what interrupt handlers and softirqs take of the CPUs, by handler",
    cost: "510 ns for each handler and softirq: 2 % of a CPU at 40,000 per second",
    since: "5.8",
    attaches: &["irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit"],
    columns: COLUMNS,
    options: &[],
    filters: &[],
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_interrupts.bpf.o")),
    source: include_str!("interrupts.rs"),
    configure: as_all,
    arm,
};

const COLUMNS: &[Column] = &[
    ("kind", "", "hard: a handler of a driver; soft: a softirq"),
    ("number", "", "of the interrupt, as in /proc/interrupts, or of the softirq"),
    ("name", "", "of the handler, its first 39 bytes; of a softirq as in /proc/softirqs"),
    ("CPU", "", "where it ran"),
    ("count", "1", "how often it ran"),
    ("time", "s", "all together; of a softirq without the handlers that interrupted it"),
    ("share", "1", "of the time of that CPU; not known where the number of events ended the capture"),
    LONGEST,
];

/// As many entries as the kernel's map holds.
const SUMS_MAX: usize = 8192;
const NAME_BYTES: usize = 40;

/// By number (include/linux/interrupt.h). Each is shown as in `/proc/softirqs`.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

fn arm(request: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    let sums = loader.map("irq_sums")?;
    let hard = loader.optional_tracepoint("irq_handler_exit", &["hard_ended"])
        && loader.optional_tracepoint("irq_handler_entry", &["hard_began"]);
    let soft = loader.optional_tracepoint("softirq_exit", &["soft_ended"])
        && loader.optional_tracepoint("softirq_entry", &["soft_began"]);
    if !hard && !soft {
        return Err(loader.take_notes().join("; ").into());
    }
    Ok(Box::new(Interrupts { sums, events_max: request.max_events }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    action: u64,
    number: u32,
    cpu: u32,
}
const _: () = assert!(size_of::<Key>() == 16, "twin: struct irq_key in bpf/capture_interrupts.bpf.c");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for Key {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sum {
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    name: [u8; NAME_BYTES],
}
const _: () = assert!(size_of::<Sum>() == 64, "twin: struct irq_sum in bpf/capture_interrupts.bpf.c");
// SAFETY: repr(C), u64 fields and bytes without a hole.
unsafe impl Plain for Sum {}

impl Sum {
    fn add(&mut self, other: &Sum) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    fn time_s(&self) -> f64 {
        self.total_ns as f64 * 1e-9
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Handler {
    kind: &'static str,
    number: u32,
    name: String,
    cpu: u32,
}

impl Handler {
    fn of(key: &Key, sum: &Sum) -> Self {
        let (kind, name) = match key.action {
            0 => ("soft", softirq_name(key.number)),
            _ => ("hard", text(&sum.name)),
        };
        Self { kind, number: key.number, name, cpu: key.cpu }
    }
}

fn softirq_name(number: u32) -> String {
    let name = usize::try_from(number).ok().and_then(|at| SOFTIRQS.get(at));
    name.map_or_else(|| format!("softirq {number}"), |name| (*name).to_owned())
}

struct Interrupts {
    sums: MapReader<Key, Sum>,
    events_max: u64,
}

impl CaptureReader for Interrupts {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        // A driver that is loaded again has another `irqaction` of the same name.
        let mut by_handler: HashMap<Handler, Sum> = HashMap::new();
        for (key, sum) in self.sums.entries(SUMS_MAX)? {
            by_handler.entry(Handler::of(&key, &sum)).and_modify(|to| to.add(&sum)).or_insert(sum);
        }
        let mut rows: Vec<(Handler, Sum)> = by_handler.into_iter().collect();
        sort_by_weight(&mut rows, |row| row.1.time_s(), |row| row.0.clone());
        let counted_s = counted_s(&raw.captured, self.events_max);
        raw.captured.tops = rows.iter().map(|(handler, sum)| top(handler, sum)).collect();
        let rows = rows.iter().map(|(handler, sum)| row(handler, sum, counted_s));
        raw.captured.tables.push(table("interrupts", COLUMNS, rows.collect()));
        Ok(())
    }
}

/// For how long each CPU counted. Not known once there were enough events: each CPU stops at the limit by itself.
fn counted_s(captured: &Captured, events_max: u64) -> Option<f64> {
    // Where the cost is not measured, its limit is one of events.
    let is_cut = captured.ended == Ended::Cost && captured.cost_kernel_ns.is_none();
    (captured.events < events_max && !is_cut).then_some(captured.seconds)
}

fn top(handler: &Handler, sum: &Sum) -> CaptureRow {
    let Handler { kind, number, name, cpu } = handler;
    CaptureRow {
        what: format!("{kind} {name} ({number}) on CPU {cpu}"),
        count: sum.count as f64,
        amount: sum.time_s(),
        ..CaptureRow::default()
    }
}

fn row(handler: &Handler, sum: &Sum, counted_s: Option<f64>) -> Vec<Cell> {
    vec![
        Cell::text(handler.kind),
        Cell::number(f64::from(handler.number)),
        Cell::text(handler.name.as_str()),
        Cell::number(f64::from(handler.cpu)),
        Cell::number(sum.count as f64),
        Cell::number(sum.time_s()),
        counted_s.map_or(Cell::Unknown(()), |seconds| Cell::number(sum.time_s() / seconds)),
        Cell::number(sum.longest_ns as f64 * 1e-9),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_known_where_every_event_was_counted() {
        let counted = |events, ended, cost_kernel_ns| {
            let captured = Captured { seconds: 2.0, events, ended, cost_kernel_ns, ..Captured::default() };
            counted_s(&captured, 100)
        };
        assert_eq!(counted(99, Ended::Time, None), Some(2.0));
        assert_eq!(counted(100, Ended::Events, Some(7)), None);
        // There were enough between the last look and the end.
        assert_eq!(counted(100, Ended::Stopped, Some(7)), None);
        assert_eq!(counted(99, Ended::Cost, Some(7)), Some(2.0));
        assert_eq!(counted(99, Ended::Cost, None), None);
    }

    #[test]
    fn a_softirq_that_is_new_has_its_number() {
        assert_eq!((softirq_name(3), softirq_name(10)), ("NET_RX".to_owned(), "softirq 10".to_owned()));
    }
}
