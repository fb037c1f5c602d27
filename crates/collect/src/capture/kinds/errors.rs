//! `errors`: system calls that fail, by process, call and error.
//!
//! What it answers: which limit was hit (EMFILE, ENOSPC, EDQUOT, ENOMEM), who polls what is not ready (EAGAIN), which
//! connections are refused. No counter in `/proc` says any of that.
//!
//! Only the exit of calls is probed, and those that succeed cost a count and three comparisons. Calls of 32-bit programs
//! are counted together, without names, and so are numbers that no table of calls has. Errors of io_uring are not seen.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a call that succeeds takes 190 ns longer (`getppid`: 188 to
//! 375 ns of CPU), one that fails 280 ns (`close`: 195 to 472 ns). Without the measuring of the cost itself the first is
//! 90 ns.

use aya::include_bytes_aligned;
use mitra_model::capture::{Cell, Raw};

use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::{COMM, Column, PID, Rows, call_name, error_name, table};
use crate::capture::loader::Loader;
use crate::capture::{AnyError, BY_TASK, CaptureReader, Kind, Request, as_all};

pub(super) static KIND: Kind = Kind {
    name: "errors",
    help: "system calls that fail, by process, call and error",
    cost: "190 ns for each system call of the machine, 280 ns for each that fails: much only where a million calls a second are made",
    since: "5.13",
    attaches: &["sys_exit"],
    columns: COLUMNS,
    options: &[],
    filters: BY_TASK,
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_syscalls.bpf.o")),
    source: include_str!("errors.rs"),
    configure: as_all,
    arm,
};

const COLUMNS: &[Column] = &[
    PID,
    COMM,
    ("call", "", "the system call"),
    ("error", "", "what it returned"),
    ("count", "1", "how often"),
];

/// As many entries as the kernel's map holds.
const SUMS_MAX: usize = 4096;

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    let sums = loader.map("error_sums")?;
    loader.tracepoint("sys_exit", &["call_failed"])?;
    Ok(Box::new(Errors { sums }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    tgid: u32,
    call: u16,
    error: u16,
}
const _: () = assert!(size_of::<Key>() == 8, "twin: struct error_key in bpf/capture_syscalls.bpf.c");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for Key {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sum {
    count: u64,
    comm: [u8; 16],
}
const _: () = assert!(size_of::<Sum>() == 24, "twin: struct error_sum in bpf/capture_syscalls.bpf.c");
// SAFETY: repr(C), a u64 and bytes without a hole.
unsafe impl Plain for Sum {}

struct Errors {
    sums: MapReader<Key, Sum>,
}

impl CaptureReader for Errors {
    fn other(&self) -> Option<&'static str> {
        Some("calls of 32-bit programs that failed, which are not in the table")
    }

    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        let mut rows = Rows::new();
        for (key, sum) in self.sums.entries(SUMS_MAX)? {
            rows.add(key.tgid, &sum.comm, (key.call, key.error), sum.count, |to, from| *to += from);
        }
        let mut cells = Vec::new();
        for (who, (call, error), count) in rows.sorted(|count| *count as f64) {
            let (call, error) = (call_name(u32::from(call)), error_name(u32::from(error)));
            raw.captured.tops.push(who.top(format!("{call} {error}"), count as f64, 0.0));
            cells.push(who.row([Cell::text(call), Cell::text(error), Cell::number(count as f64)]));
        }
        raw.captured.tables.push(table("errors", COLUMNS, cells));
        Ok(())
    }
}
