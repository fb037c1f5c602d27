//! `runqlat`: how long tasks that could run waited for a CPU, by process.
//!
//! What it answers: who pays for CPUs that are busy, and whether many wait a little or few wait long. It tells waits
//! after a wake-up from those of a task that was taken off its CPU. What it does not tell is why there was no CPU: a
//! quota, a pinning or sheer load look the same here.
//!
//! The scheduler measures each wait itself (the second number of `/proc/PID/schedstat`); this looks at it whenever a
//! task leaves its CPU. A wait is therefore counted when the run after it ends, and one that has not ended is not.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a byte through a pipe and back, which is two wake-ups, takes
//! 620 ns longer (5.3 to 5.9 µs of CPU).

use aya::include_bytes_aligned;
use mitra_model::capture::{CaptureRow, Cell, Raw};

use crate::bpf::comm_str;
use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::{Histogram, Rows, Who, cells, sort_by_weight, table};
use crate::capture::loader::Loader;
use crate::capture::{AnyError, Gather, Kind, Request, as_all};

pub(super) const KIND: Kind = Kind {
    name: "runqlat",
    help: "how long tasks that could run waited for a CPU, by process",
    cost: "about 300 ns for each context switch: much from 50,000 switches a second on",
    since: "5.18",
    attaches: &["sched_switch"],
    columns: COLUMNS,
    options: &[],
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_runqlat.bpf.o")),
    source: include_str!("runqlat.rs"),
    configure: as_all,
    arm,
};

const COLUMNS: &[(&str, &str, &str)] = &[
    ("pid", "", "the process, while it lives; those that ended are summed by name"),
    ("comm", "", "its name"),
    ("count", "1", "how often a thread of it got a CPU"),
    ("time", "s", "its threads waited for one, all together"),
    ("mean", "s", "of one wait"),
    ("median", "s", "half of them took no longer; the bound of its bucket"),
    ("99 %", "s", "99 of a hundred took no longer; the bound of its bucket"),
    ("longest", "s", "the longest one"),
    ("preempted", "1", "waits of threads that were taken off their CPU"),
    ("preempted for", "s", "the time of those"),
];

/// As many entries as the kernel's map holds.
const SUMS_MAX: usize = 4096;
const BUCKETS: usize = 25;
const FIRST_NS: u64 = 1024;
/// As many processes have their distribution kept.
const HISTOGRAMS_MAX: usize = 12;

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn Gather>, AnyError> {
    let sums = loader.map("run_sums")?;
    loader.tracepoint("sched_switch", &["switched"])?;
    Ok(Box::new(Waits { sums }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sum {
    count: u64,
    total_ns: u64,
    preempted: u64,
    preempted_ns: u64,
    longest_ns: u64,
    comm: [u8; 16],
    latency: [u64; BUCKETS],
}
const _: () = assert!(size_of::<Sum>() == 256, "twin: struct run_sum in bpf/capture_runqlat.bpf.c");
// SAFETY: repr(C), u64 fields and bytes without a hole.
unsafe impl Plain for Sum {}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.preempted += other.preempted;
        self.preempted_ns += other.preempted_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.latency.iter_mut().zip(other.latency).for_each(|(to, from)| *to += from);
    }

    fn histogram(&self) -> Histogram<BUCKETS> {
        Histogram { counts: self.latency, first_ns: FIRST_NS }
    }
}

struct Waits {
    sums: MapReader<u32, Sum>,
}

impl Gather for Waits {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        let mut rows = Rows::new();
        for (tgid, sum) in self.sums.entries(SUMS_MAX)? {
            let who = rows.who(tgid, comm_str(&sum.comm));
            rows.add(who, (), sum, Sum::add);
        }
        let mut rows = rows.into_rows();
        sort_by_weight(&mut rows, |row| row.2.total_ns as f64, |row| row.0.comm.clone());
        raw.captured.tops = rows.iter().map(|(who, (), sum)| top(who, sum)).collect();
        let mut all = Histogram::<BUCKETS>::new(FIRST_NS);
        rows.iter().for_each(|row| all.add(&row.2.latency));
        raw.captured.histograms.push(all.named("waiting for a CPU"));
        for (who, (), sum) in rows.iter().take(HISTOGRAMS_MAX) {
            raw.captured.histograms.push(sum.histogram().named(who.comm.clone()));
        }
        let rows = rows.into_iter().map(|(who, (), sum)| row(who, &sum));
        raw.captured.tables.push(table("runqlat", COLUMNS, rows.collect()));
        Ok(())
    }
}

fn top(who: &Who, sum: &Sum) -> CaptureRow {
    CaptureRow {
        pid: who.pid,
        comm: who.comm.clone(),
        what: "waiting for a CPU".to_owned(),
        count: sum.count as f64,
        amount: sum.total_ns as f64 * 1e-9,
        ..CaptureRow::default()
    }
}

fn row(who: Who, sum: &Sum) -> Vec<Cell> {
    let histogram = sum.histogram();
    let quantile = |share| histogram.quantile_s(share).map_or(Cell::Unknown(()), Cell::number);
    let total = sum.total_ns as f64 * 1e-9;
    cells([
        who.pid_cell(),
        Cell::text(who.comm),
        Cell::number(sum.count as f64),
        Cell::number(total),
        Cell::number(total / sum.count as f64),
        quantile(0.5),
        quantile(0.99),
        Cell::number(sum.longest_ns as f64 * 1e-9),
        Cell::number(sum.preempted as f64),
        Cell::number(sum.preempted_ns as f64 * 1e-9),
    ])
}
