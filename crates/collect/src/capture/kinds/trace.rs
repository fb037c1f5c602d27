//! `trace`: the first calls of one process, one by one, as strace would show them.
//!
//! What it answers: what a process does, in which order, and where its time goes between two calls. It does not stop
//! the process as `ptrace` does, which slows a busy one down a hundredfold; it takes a bounded number of calls and
//! then no more. Arguments are shown as numbers, paths are read.
//!
//! Needs `--pid`. `--option calls=N` says how many, and `--min` that only long ones are meant. Calls that have not
//! returned in the end are shown as such.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a call that is taken takes 820 ns longer (`getppid`: 182 to
//! 1,003 ns of CPU), and afterwards, until the capture ends, 400 ns. A call of another process takes 330 ns longer
//! all the while.

use std::collections::HashMap;
use std::path::Path;

use aya::include_bytes_aligned;
use aya::maps::{MapData, RingBuf};
use mitra_model::capture::{CaptureRow, Cell, Raw};

use crate::bpf::comm_str;
use crate::bpf::sys::{MapReader, Plain, read_plain};
use crate::capture::calls::{
    PATH_FIRST, PATH_MASK, argument_count, call_name, error_name, path_class, set_classes, sort_by_weight,
    table, text,
};
use crate::capture::loader::{Config, Loader};
use crate::capture::{AnyError, BY_TASK_AND_TIME, CaptureReader, Kind, Request, end_mono_ns};

pub(super) static KIND: Kind = Kind {
    name: "trace",
    help: "the first calls of one process, one by one, without stopping it",
    cost: "820 ns for each call that is taken, which are few; 330 ns for each call of other processes meanwhile",
    since: "5.12",
    attaches: &["sys_enter", "sys_exit"],
    columns: COLUMNS,
    options: &[("calls", "how many calls to take, 1000 unless said, at most 20000")],
    filters: BY_TASK_AND_TIME,
    one_process: true,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_trace.bpf.o")),
    source: include_str!("trace.rs"),
    configure,
    arm,
};

const COLUMNS: &[(&str, &str, &str)] = &[
    ("time", "s", "when it began, since the first of them"),
    ("tid", "", "the thread"),
    ("comm", "", "its name"),
    ("call", "", "the call with its arguments; numbers as they are, paths read"),
    ("result", "", "what it returned"),
    ("duration", "s", "from entry to exit; of one that had not returned up to the end"),
];

const CALLS: u32 = 1000;
const CALLS_MAX: u32 = 20_000;
const THREADS_MAX: usize = 1024;
/// The ring's bytes by the size of a record and its 8 bytes of header.
const RING_RECORDS_MAX: usize = 1024 * 1024 / (size_of::<Rec>() + 8);

fn configure(request: &Request, config: &mut Config) -> Result<(), String> {
    config.number = calls_wanted(request)?;
    Ok(())
}

fn calls_wanted(request: &Request) -> Result<u32, String> {
    match request.option("calls") {
        None => Ok(CALLS),
        Some(text) => match text.parse() {
            Ok(calls) if (1..=CALLS_MAX).contains(&calls) => Ok(calls),
            _ => Err(format!("calls is a number from 1 to {CALLS_MAX}, not {text:?}")),
        },
    }
}

fn arm(request: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    let pid = request.pid.ok_or("a trace without a process")?;
    set_classes(loader, class)?;
    loader.tracepoint("sys_exit", &["trace_left"])?;
    loader.tracepoint("sys_enter", &["trace_entered"])?;
    let (ring, begun) = (loader.ring("trace_ring")?, loader.map("calls_begun")?);
    let wanted = usize::try_from(calls_wanted(request)?)?;
    let min_ns = u64::try_from(request.min.as_nanos()).unwrap_or(u64::MAX);
    Ok(Box::new(Trace { pid, ring, begun, calls: Vec::new(), wanted, min_ns }))
}

/// Classes of bpf/capture_trace.bpf.c, beside those of paths.
const CALL_ENDS: u8 = 0x20;
const CALL_EXECS: u8 = 0x40;
/// `NEVER` of bpf/capture_trace.bpf.c: how long a call takes that does not return.
const NEVER: u64 = u64::MAX;

fn class(call: &str) -> u8 {
    match call {
        "exit" | "exit_group" => CALL_ENDS,
        "execve" | "execveat" => CALL_EXECS | path_class(call),
        _ => path_class(call),
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Rec {
    at_ns: u64,
    ns: u64,
    result: i64,
    tid: u32,
    call: u32,
    args: [u64; 6],
    comm: [u8; 16],
    path: [u8; 128],
}
const _: () = assert!(size_of::<Rec>() == 224, "twin: struct call_rec in bpf/capture_trace.bpf.c");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for Rec {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Begun {
    at_ns: u64,
    call: u64,
    args: [u64; 6],
    comm: [u8; 16],
    path: [u8; 128],
}
const _: () = assert!(size_of::<Begun>() == 208, "twin: struct call_begun in bpf/capture_trace.bpf.c");
// SAFETY: repr(C), u64 fields and bytes without a hole.
unsafe impl Plain for Begun {}

struct Trace {
    pid: u32,
    ring: RingBuf<MapData>,
    begun: MapReader<u32, Begun>,
    calls: Vec<Rec>,
    wanted: usize,
    min_ns: u64,
}

impl CaptureReader for Trace {
    fn poll(&mut self) -> Result<(), AnyError> {
        for _ in 0..RING_RECORDS_MAX {
            let Some(item) = self.ring.next() else { break };
            self.calls.extend(read_plain::<Rec>(&item));
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.calls.len() >= self.wanted
    }

    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        self.poll()?;
        self.calls.sort_by_key(|rec| rec.at_ns);
        let begun = self.begun.entries(THREADS_MAX)?;
        let first = self.calls.iter().map(|rec| rec.at_ns).chain(begun.iter().map(|(_, b)| b.at_ns)).min();
        let first = first.unwrap_or(0);
        let mut rows: Vec<Vec<Cell>> = self.calls.iter().map(|rec| row(rec, first)).collect();
        let end_ns = end_mono_ns(&raw.captured);
        for (tid, begun) in begun {
            let lasted_ns = end_ns.saturating_sub(begun.at_ns);
            if lasted_ns >= self.min_ns {
                // A thread that was killed in a call leaves it without returning.
                let lives = Path::new(&format!("/proc/{}/task/{tid}", self.pid)).exists();
                rows.push(unfinished(tid, &begun, first, lives.then_some(lasted_ns)));
            }
        }
        raw.captured.tops = tops(&self.calls);
        // Each call is wanted: the bound is that of the capture.
        let mut calls = table("calls", COLUMNS, Vec::new());
        calls.rows = rows;
        raw.captured.tables.push(calls);
        Ok(())
    }
}

fn row(rec: &Rec, first_ns: u64) -> Vec<Cell> {
    let seconds = |ns: u64| Cell::number(ns as f64 * 1e-9);
    let returns = rec.ns != NEVER;
    vec![
        seconds(rec.at_ns.saturating_sub(first_ns)),
        Cell::number(f64::from(rec.tid)),
        Cell::text(comm_str(&rec.comm)),
        Cell::text(call_text(rec.call, &rec.args, &text(&rec.path))),
        Cell::text(if returns { result_text(rec.result) } else { "does not return".to_owned() }),
        if returns { seconds(rec.ns) } else { Cell::Unknown(()) },
    ]
}

/// A call that had not returned in the end, after so long; none where its thread has ended in it.
fn unfinished(tid: u32, begun: &Begun, first_ns: u64, lasted_ns: Option<u64>) -> Vec<Cell> {
    let call = u32::try_from(begun.call).unwrap_or(u32::MAX);
    vec![
        Cell::number(begun.at_ns.saturating_sub(first_ns) as f64 * 1e-9),
        Cell::number(f64::from(tid)),
        Cell::text(comm_str(&begun.comm)),
        Cell::text(call_text(call, &begun.args, &text(&begun.path))),
        Cell::text(if lasted_ns.is_some() { "has not returned" } else { "its thread ended in it" }),
        lasted_ns.map_or(Cell::Unknown(()), |ns| Cell::number(ns as f64 * 1e-9)),
    ]
}

fn call_text(call: u32, args: &[u64; 6], path: &str) -> String {
    let name = call_name(call);
    let class = path_class(&name);
    let mut parts = Vec::new();
    for (i, arg) in args.iter().take(argument_count(&name)).enumerate() {
        let is_path = class & PATH_MASK == i as u8 + PATH_FIRST;
        parts.push(match arg {
            _ if is_path && !path.is_empty() => format!("{path:?}"),
            arg if i == 0 && *arg as i32 == libc::AT_FDCWD => "AT_FDCWD".to_owned(),
            arg if *arg < 10_000 => arg.to_string(),
            arg => format!("{arg:#x}"),
        });
    }
    format!("{name}({})", parts.join(", "))
}

fn result_text(result: i64) -> String {
    match u32::try_from(-result) {
        Ok(error) if (1..=4095).contains(&error) => format!("-1 {}", error_name(error)),
        _ if !(-4095..1 << 20).contains(&result) => format!("{result:#x}"),
        _ => result.to_string(),
    }
}

fn tops(calls: &[Rec]) -> Vec<CaptureRow> {
    let mut sums: HashMap<u32, (f64, f64)> = HashMap::new();
    for rec in calls {
        let sum = sums.entry(rec.call).or_default();
        let ns = if rec.ns == NEVER { 0 } else { rec.ns };
        *sum = (sum.0 + 1.0, sum.1 + ns as f64 * 1e-9);
    }
    let comm = calls.first().map_or("", |rec| comm_str(&rec.comm));
    let mut tops: Vec<CaptureRow> = sums
        .into_iter()
        .map(|(call, (count, amount))| CaptureRow {
            comm: comm.to_owned(),
            what: call_name(call).into_owned(),
            count,
            amount,
            ..CaptureRow::default()
        })
        .collect();
    sort_by_weight(&mut tops, |row| row.amount, |row| row.what.clone());
    tops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_as_strace_would() {
        let number = |name: &str| libc_number(name);
        let openat = [libc::AT_FDCWD as u32 as u64, 0x7f00_0000_0000, 0x8_0000, 0, 1, 2];
        assert_eq!(
            call_text(number("openat"), &openat, "/a \"b"),
            r#"openat(AT_FDCWD, "/a \"b", 0x80000, 0)"#
        );
        assert_eq!(call_text(number("read"), &[3, 0x7f00, 4096, 9, 9, 9], ""), "read(3, 0x7f00, 4096)");
        assert_eq!(result_text(-2), "-1 ENOENT");
        assert_eq!(result_text(17), "17");
        assert_eq!(result_text(-5000), "0xffffffffffffec78");
    }

    fn libc_number(name: &str) -> u32 {
        let numbers = [("openat", libc::SYS_openat), ("read", libc::SYS_read)];
        numbers.iter().find(|(n, _)| *n == name).map(|(_, number)| *number as u32).unwrap()
    }
}
