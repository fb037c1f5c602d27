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
use mitra_model::capture::{Cell, Raw};

use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::{
    COMM, Column, LONGEST, MEDIAN, P99, PID, Rows, Times, Who, call_name, histograms, table, waits_by_nature,
};
use crate::capture::loader::Loader;
use crate::capture::{AnyError, BY_TASK_AND_TIME, CaptureReader, Kind, Request, as_all};

pub(super) static KIND: Kind = Kind {
    name: "syscalls",
    help: "system calls by process: how many, how long, how many fail",
    cost: "530 ns for each system call: much from 50,000 calls a second on; a process alone makes it cheaper for the others",
    since: "5.13",
    attaches: &["sys_enter", "sys_exit"],
    columns: COLUMNS,
    options: &[],
    filters: BY_TASK_AND_TIME,
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_syscalls.bpf.o")),
    source: include_str!("syscalls.rs"),
    configure: as_all,
    arm,
};

const COLUMNS: &[Column] = &[
    PID,
    COMM,
    ("call", "", "the system call"),
    ("count", "1", "how often"),
    ("errors", "1", "how often it failed"),
    ("time", "s", "from entry to exit, all together"),
    ("mean", "s", "of one call"),
    MEDIAN,
    P99,
    LONGEST,
];

/// As many entries as the kernel's map holds.
const SUMS_MAX: usize = 4096;

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
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
    times: Times,
    errors: u64,
}
const _: () = assert!(size_of::<Sum>() == 272, "twin: struct call_sum in bpf/capture_syscalls.bpf.c");
// SAFETY: repr(C), a struct without holes and a u64.
unsafe impl Plain for Sum {}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.times.add(&other.times);
        self.errors += other.errors;
    }
}

struct Calls {
    sums: MapReader<Key, Sum>,
}

impl CaptureReader for Calls {
    fn other(&self) -> Option<&'static str> {
        Some("calls of 32-bit programs, which are left out")
    }

    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        let mut rows = Rows::new();
        for (key, sum) in self.sums.entries(SUMS_MAX)? {
            rows.add(key.tgid, &sum.times.comm, call_name(key.call), sum, Sum::add);
        }
        let rows = rows.sorted(|sum| sum.times.total_s());
        let (mut rows, waits): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|(_, call, _)| !waits_by_nature(call));
        raw.captured.tops = rows.iter().map(|(who, call, sum)| sum.times.top(who, &**call)).collect();
        let named = rows.iter().map(|(who, call, sum)| (format!("{} {call}", who.comm), &sum.times));
        raw.captured.histograms = histograms("calls that do not wait by their nature", named);
        rows.extend(waits);
        let rows = rows.iter().map(|(who, call, sum)| row(who, call, sum));
        raw.captured.tables.push(table("syscalls", COLUMNS, rows.collect()));
        Ok(())
    }
}

fn row(who: &Who, call: &str, sum: &Sum) -> Vec<Cell> {
    let times = &sum.times;
    let [time, mean] = times.time_cells();
    who.row([
        Cell::text(call),
        Cell::number(times.count as f64),
        Cell::number(sum.errors as f64),
        time,
        mean,
        times.quantile(0.5),
        times.quantile(0.99),
        times.longest(),
    ])
}
