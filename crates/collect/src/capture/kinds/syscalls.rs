//! `syscalls`: system calls by process, with their times.
//!
//! What it answers: what a process asks the kernel for, how often, how long that takes, and what takes long only now
//! and then. Calls that wait for others by their nature (`epoll_wait`, `futex`, `nanosleep`) come last: a long time in
//! them is no trouble by itself. A call that has not returned when the capture ends is not counted.
//!
//! Entry and exit of every call are probed, so that this is the dearest kind on a load of many short calls; a process
//! given by `--pid` makes it cheap for the others. Calls of 32-bit programs are left out.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): each call takes 530 ns longer (`getppid`: 187 to 722 ns of
//! CPU, `pread` of a cached page: 534 to 1,065 ns). Without the measuring of the cost itself it is 355 ns.

use aya::include_bytes_aligned;
use mitra_model::capture::{CaptureRow, Cell, Raw};

use crate::bpf::comm_str;
use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::{Histogram, Rows, Who, call_name, cells, sort_by_weight, table, waits_by_nature};
use crate::capture::loader::Loader;
use crate::capture::{AnyError, Gather, Kind, Request, as_all};

pub(super) const KIND: Kind = Kind {
    name: "syscalls",
    help: "system calls by process: how many, how long, how many fail",
    cost: "530 ns for each system call: much from 50,000 calls a second on; a process alone makes it cheaper for the others",
    since: "5.11",
    attaches: &["sys_enter", "sys_exit"],
    columns: COLUMNS,
    options: &[],
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_syscalls.bpf.o")),
    source: include_str!("syscalls.rs"),
    configure: as_all,
    arm,
};

const COLUMNS: &[(&str, &str, &str)] = &[
    ("pid", "", "the process, while it lives; those that ended are summed by name"),
    ("comm", "", "its name"),
    ("call", "", "the system call"),
    ("count", "1", "how often"),
    ("errors", "1", "how often it failed"),
    ("time", "s", "from entry to exit, all together"),
    ("mean", "s", "of one call"),
    ("median", "s", "half of them took no longer; the bound of its bucket"),
    ("99 %", "s", "99 of a hundred took no longer; the bound of its bucket"),
    ("longest", "s", "the longest one"),
];

/// As many entries as the kernel's map holds.
const SUMS_MAX: usize = 4096;
const BUCKETS: usize = 28;
const FIRST_NS: u64 = 256;
/// As many calls have their distribution kept.
const HISTOGRAMS_MAX: usize = 12;

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn Gather>, AnyError> {
    let sums = loader.map("call_sums")?;
    // The exit first: an entry without an exit would be paired with a later one.
    loader.tracepoint("sys_exit", &["call_left"])?;
    loader.tracepoint("sys_enter", &["call_entered"])?;
    Ok(Box::new(Calls { sums }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    tgid: u32,
    call: u32,
}
const _: () = assert!(size_of::<Key>() == 8, "twin: struct call_key in bpf/capture_syscalls.bpf.c");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for Key {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sum {
    count: u64,
    errors: u64,
    total_ns: u64,
    longest_ns: u64,
    comm: [u8; 16],
    latency: [u64; BUCKETS],
}
const _: () = assert!(size_of::<Sum>() == 272, "twin: struct call_sum in bpf/capture_syscalls.bpf.c");
// SAFETY: repr(C), u64 fields and bytes without a hole.
unsafe impl Plain for Sum {}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.count += other.count;
        self.errors += other.errors;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.latency.iter_mut().zip(other.latency).for_each(|(to, from)| *to += from);
    }

    fn histogram(&self) -> Histogram<BUCKETS> {
        Histogram { counts: self.latency, first_ns: FIRST_NS }
    }
}

struct Calls {
    sums: MapReader<Key, Sum>,
}

impl Gather for Calls {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        let mut rows = Rows::new();
        for (key, sum) in self.sums.entries(SUMS_MAX)? {
            let who = rows.who(key.tgid, comm_str(&sum.comm));
            rows.add(who, call_name(key.call), sum, Sum::add);
        }
        let mut rows = rows.into_rows();
        sort_by_weight(&mut rows, |row| row.2.total_ns as f64, |row| (row.0.comm.clone(), row.1.clone()));
        let (mut rows, waits): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|(_, call, _)| !waits_by_nature(call));
        raw.captured.tops = rows.iter().map(|(who, call, sum)| top(who, call, sum)).collect();
        let mut all = Histogram::<BUCKETS>::new(FIRST_NS);
        rows.iter().for_each(|row| all.add(&row.2.latency));
        raw.captured.histograms.push(all.named("calls that do not wait by their nature"));
        for (who, call, sum) in rows.iter().take(HISTOGRAMS_MAX) {
            raw.captured.histograms.push(sum.histogram().named(format!("{} {call}", who.comm)));
        }
        rows.extend(waits);
        let rows = rows.into_iter().map(|(who, call, sum)| row(who, call.into_owned(), &sum));
        raw.captured.tables.push(table("syscalls", COLUMNS, rows.collect()));
        Ok(())
    }
}

fn top(who: &Who, call: &str, sum: &Sum) -> CaptureRow {
    CaptureRow {
        pid: who.pid,
        comm: who.comm.clone(),
        what: call.to_owned(),
        count: sum.count as f64,
        amount: sum.total_ns as f64 * 1e-9,
        ..CaptureRow::default()
    }
}

fn row(who: Who, call: String, sum: &Sum) -> Vec<Cell> {
    let histogram = sum.histogram();
    let quantile = |share| histogram.quantile_s(share).map_or(Cell::Unknown(()), Cell::number);
    let total = sum.total_ns as f64 * 1e-9;
    cells([
        who.pid_cell(),
        Cell::text(who.comm),
        Cell::text(call),
        Cell::number(sum.count as f64),
        Cell::number(sum.errors as f64),
        Cell::number(total),
        Cell::number(total / sum.count as f64),
        quantile(0.5),
        quantile(0.99),
        Cell::number(sum.longest_ns as f64 * 1e-9),
    ])
}
