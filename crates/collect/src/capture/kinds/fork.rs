//! `fork`: who starts processes and threads, how long that takes, and which programs they are.
//!
//! What it answers: what a process with much memory pays for each `fork` (its page tables are copied: look at the
//! time against the page tables), who is behind a storm of short-lived processes that no list of processes shows, how
//! long they live, and how many of them fail.
//!
//! The time of a call that shares the address space (`vfork`, `posix_spawn`) includes the wait until the child has
//! executed its program. Calls are told by the process that makes them, programs by the process that started them,
//! which is the one that is their parent then.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a call of another kind takes 310 ns longer (`getppid`: 187 to
//! 502 ns of CPU); of 100 µs for a `fork` with its exit and its wait 3 are added.

use aya::include_bytes_aligned;
use mitra_model::capture::{CaptureRow, Cell, Raw};

use crate::bpf::sys::{MapReader, Plain};
use crate::bpf::{comm_str, known};
use crate::capture::calls::{
    COMM, Column, Histogram, LONGEST, P99, PID, Rows, Times, Who, set_classes, sort_by_weight, table, text,
};
use crate::capture::loader::Loader;
use crate::capture::{AnyError, BY_TASK_AND_TIME, CaptureReader, Kind, Request, as_all};

pub(super) static KIND: Kind = Kind {
    name: "fork",
    help: "which programs start processes, how long that takes against their memory, what they start, and how long that lives",
    cost: "310 ns for each system call of the machine, and 3 µs for each process from its beginning to its end",
    since: "5.13",
    attaches: &["sys_enter", "sys_exit", "sched_process_exec", "sched_process_exit"],
    columns: CALL_COLUMNS,
    options: &[],
    filters: BY_TASK_AND_TIME,
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_fork.bpf.o")),
    source: include_str!("fork.rs"),
    configure: as_all,
    arm,
};

const CALL_COLUMNS: &[Column] = &[
    PID,
    COMM,
    ("what", "", "fork copies the address space, vfork shares it, thread begins one"),
    ("count", "1", "how often"),
    ("failed", "1", "how often that failed"),
    ("time", "s", "inside the call, all together"),
    ("mean", "s", "of one call"),
    P99,
    LONGEST,
    ("resident", "B", "memory of the caller at the last call"),
    ("page tables", "B", "what of it a fork has to copy"),
    ("mappings", "1", "of the caller"),
];

const PROGRAM_COLUMNS: &[Column] = &[
    ("parent pid", "", "who started it, while it lives; those that ended are summed by name"),
    ("parent", "", "its name"),
    ("program", "", "the name of the process that was started"),
    ("file", "", "what the first of them executed"),
    ("started", "1", "programs executed"),
    ("ended", "1", "processes that ended"),
    ("failed", "1", "those that ended by a signal or with a status other than 0"),
    ("mean life", "s", "of those that ended"),
    ("longest life", "s", "of those that ended"),
    ("CPU", "s", "of those that ended"),
];

/// As many entries as the kernel's maps hold.
const FORKS_MAX: usize = 2048;
const PROGRAMS_MAX: usize = 4096;
const FILE_BYTES: usize = 72;

/// Classes of bpf/capture_fork.bpf.c.
fn fork_class(call: &str) -> u8 {
    match call {
        "fork" => 1,
        "vfork" => 2,
        "clone" => 3,
        "clone3" => 4,
        _ => 0,
    }
}

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    set_classes(loader, fork_class)?;
    let (forks, programs) = (loader.map("fork_sums")?, loader.map("programs")?);
    loader.tracepoint("sched_process_exit", &["program_ended", "program_ended_old"])?;
    loader.tracepoint("sched_process_exec", &["program_started"])?;
    loader.tracepoint("sys_exit", &["fork_left"])?;
    loader.tracepoint("sys_enter", &["fork_entered"])?;
    Ok(Box::new(Forks { forks, programs }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ForkKey {
    tgid: u32,
    kind: u32,
}
const _: () = assert!(size_of::<ForkKey>() == 8, "twin: struct fork_key in bpf/capture_fork.bpf.c");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for ForkKey {}

#[repr(C)]
#[derive(Clone, Copy)]
struct ForkSum {
    times: Times,
    failed: u64,
    rss_pages: u64,
    pgtables_bytes: u64,
    maps: u64,
}
const _: () = assert!(size_of::<ForkSum>() == 296, "twin: struct fork_sum in bpf/capture_fork.bpf.c");
// SAFETY: repr(C), a struct without holes and u64 fields.
unsafe impl Plain for ForkSum {}

impl ForkSum {
    fn add(&mut self, other: ForkSum) {
        self.times.add(&other.times);
        self.failed += other.failed;
        self.rss_pages = self.rss_pages.max(other.rss_pages);
        self.pgtables_bytes = self.pgtables_bytes.max(other.pgtables_bytes);
        self.maps = self.maps.max(other.maps);
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramKey {
    parent: u32,
    comm: [u8; 16],
}
const _: () = assert!(size_of::<ProgramKey>() == 20, "twin: struct program_key in bpf/capture_fork.bpf.c");
// SAFETY: repr(C), an integer and bytes without a hole.
unsafe impl Plain for ProgramKey {}

#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramSum {
    started: u64,
    ended: u64,
    failed: u64,
    life_ns: u64,
    longest_life_ns: u64,
    cpu_ns: u64,
    last_pid: u32,
    pad: u32,
    parent_comm: [u8; 16],
    file: [u8; FILE_BYTES],
}
const _: () = assert!(size_of::<ProgramSum>() == 144, "twin: struct program_sum in bpf/capture_fork.bpf.c");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for ProgramSum {}

impl ProgramSum {
    fn add(&mut self, other: ProgramSum) {
        self.started += other.started;
        self.ended += other.ended;
        self.failed += other.failed;
        self.life_ns += other.life_ns;
        self.longest_life_ns = self.longest_life_ns.max(other.longest_life_ns);
        self.cpu_ns += other.cpu_ns;
        if self.file[0] == 0 {
            self.file = other.file;
        }
    }
}

struct Forks {
    forks: MapReader<ForkKey, ForkSum>,
    programs: MapReader<ProgramKey, ProgramSum>,
}

impl CaptureReader for Forks {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        let mut tops = self.calls(raw)?;
        tops.extend(self.started(raw)?);
        sort_by_weight(&mut tops, |row| row.count, |row| row.what.clone());
        raw.captured.tops = tops;
        Ok(())
    }
}

impl Forks {
    fn calls(&mut self, raw: &mut Raw) -> Result<Vec<CaptureRow>, AnyError> {
        let mut rows = Rows::new();
        for (key, sum) in self.forks.entries(FORKS_MAX)? {
            let what = match key.kind {
                0 => "fork",
                1 => "vfork",
                _ => "thread",
            };
            rows.add(key.tgid, &sum.times.comm, what, sum, ForkSum::add);
        }
        let rows = rows.sorted(|sum| sum.times.total_s());
        let mut all = Histogram::default();
        rows.iter().filter(|row| row.1 == "fork").for_each(|row| all.add(&row.2.times));
        raw.captured.histograms.push(all.named("inside fork"));
        let tops = rows.iter().map(|(who, what, sum)| sum.times.top(who, *what)).collect();
        let rows = rows.iter().map(|(who, what, sum)| call_row(who, what, sum));
        raw.captured.tables.push(table("calls", CALL_COLUMNS, rows.collect()));
        Ok(tops)
    }

    fn started(&mut self, raw: &mut Raw) -> Result<Vec<CaptureRow>, AnyError> {
        let mut rows = Rows::new();
        for (key, sum) in self.programs.entries(PROGRAMS_MAX)? {
            rows.add(key.parent, &sum.parent_comm, comm_str(&key.comm).to_owned(), sum, ProgramSum::add);
        }
        let rows = rows.sorted(|sum| sum.started.max(sum.ended) as f64);
        let tops = rows.iter().map(|(who, program, sum)| program_top(who, program, sum)).collect();
        let rows = rows.iter().map(|(who, program, sum)| program_row(who, program, sum));
        raw.captured.tables.push(table("programs", PROGRAM_COLUMNS, rows.collect()));
        Ok(tops)
    }
}

fn program_top(who: &Who, program: &str, sum: &ProgramSum) -> CaptureRow {
    let file = text(&sum.file);
    let what = format!("starts {}", if file.is_empty() { program } else { &file });
    who.top(what, sum.started.max(sum.ended) as f64, sum.cpu_ns as f64 * 1e-9)
}

fn call_row(who: &Who, what: &str, sum: &ForkSum) -> Vec<Cell> {
    let [time, mean] = sum.times.time_cells();
    who.row([
        Cell::text(what),
        Cell::number(sum.times.count as f64),
        Cell::number(sum.failed as f64),
        time,
        mean,
        sum.times.quantile(0.99),
        sum.times.longest(),
        Cell::number(sum.rss_pages as f64 * rustix::param::page_size() as f64),
        known(sum.pgtables_bytes).map_or(Cell::Unknown(()), |bytes| Cell::number(bytes as f64)),
        Cell::number(sum.maps as f64),
    ])
}

fn program_row(who: &Who, program: &str, sum: &ProgramSum) -> Vec<Cell> {
    let ended = sum.ended as f64;
    let of_ended = |ns: u64| if sum.ended > 0 { Cell::number(ns as f64 * 1e-9) } else { Cell::Unknown(()) };
    who.row([
        Cell::text(program),
        Cell::text(text(&sum.file)),
        Cell::number(sum.started as f64),
        Cell::number(ended),
        Cell::number(sum.failed as f64),
        Cell::number(sum.life_ns as f64 * 1e-9 / ended),
        of_ended(sum.longest_life_ns),
        of_ended(sum.cpu_ns),
    ])
}
