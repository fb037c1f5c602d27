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
use mitra_model::capture::{Cell, Raw};

use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::{COMM, Column, LONGEST, MEDIAN, P99, PID, Rows, Times, Who, histograms, table};
use crate::capture::loader::Loader;
use crate::capture::{AnyError, BY_TASK_AND_TIME, CaptureReader, Kind, Request, as_all};

pub(super) static KIND: Kind = Kind {
    name: "runqlat",
    help: "how long tasks that could run waited for a CPU, by process",
    cost: "about 300 ns for each context switch: much from 50,000 switches a second on",
    since: "5.18",
    attaches: &["sched_switch"],
    columns: COLUMNS,
    options: &[],
    filters: BY_TASK_AND_TIME,
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_runqlat.bpf.o")),
    source: include_str!("runqlat.rs"),
    configure: as_all,
    arm,
};

const COLUMNS: &[Column] = &[
    PID,
    COMM,
    ("count", "1", "how often a thread of it got a CPU"),
    ("time", "s", "its threads waited for one, all together"),
    ("mean", "s", "of one wait"),
    MEDIAN,
    P99,
    LONGEST,
    ("preempted", "1", "waits of threads that were taken off their CPU"),
    ("preempted for", "s", "the time of those"),
];

const WAITING: &str = "waiting for a CPU";
/// As many entries as the kernel's map holds.
const SUMS_MAX: usize = 4096;

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    let sums = loader.map("run_sums")?;
    loader.tracepoint("sched_switch", &["switched"])?;
    Ok(Box::new(Waits { sums }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sum {
    times: Times,
    preempted: u64,
    preempted_ns: u64,
}
const _: () = assert!(size_of::<Sum>() == 280, "twin: struct run_sum in bpf/capture_runqlat.bpf.c");
// SAFETY: repr(C), a struct without holes and u64 fields.
unsafe impl Plain for Sum {}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.times.add(&other.times);
        self.preempted += other.preempted;
        self.preempted_ns += other.preempted_ns;
    }
}

struct Waits {
    sums: MapReader<u32, Sum>,
}

impl CaptureReader for Waits {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        let mut rows = Rows::new();
        for (tgid, sum) in self.sums.entries(SUMS_MAX)? {
            rows.add(tgid, &sum.times.comm, (), sum, Sum::add);
        }
        let rows = rows.sorted(|sum| sum.times.total_s());
        raw.captured.tops = rows.iter().map(|(who, (), sum)| sum.times.top(who, WAITING)).collect();
        let named = rows.iter().map(|(who, (), sum)| (who.comm.clone(), &sum.times));
        raw.captured.histograms = histograms(WAITING, named);
        let rows = rows.iter().map(|(who, (), sum)| row(who, sum));
        raw.captured.tables.push(table("runqlat", COLUMNS, rows.collect()));
        Ok(())
    }
}

fn row(who: &Who, sum: &Sum) -> Vec<Cell> {
    let times = &sum.times;
    let [time, mean] = times.time_cells();
    who.row([
        Cell::number(times.count as f64),
        time,
        mean,
        times.quantile(0.5),
        times.quantile(0.99),
        times.longest(),
        Cell::number(sum.preempted as f64),
        Cell::number(sum.preempted_ns as f64 * 1e-9),
    ])
}
