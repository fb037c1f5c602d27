//! `locks`: waiting for locks, of the kernel and of programs.
//!
//! What it answers: who waits for a lock inside the kernel, of which kind and on which way through the kernel
//! (`mmap_lock` of the own address space is named: page faults, `mmap` and `munmap` of all threads of a process meet
//! there); and which futex of a process its threads wait for. Threads that wait for a lock inside the kernel are in
//! state D or S without any I/O, and no counter in `/proc` says what for.
//!
//! A futex is what a program makes of it: a lock, or a place where idle threads wait for work. Two numbers tell. A
//! lock of glibc that others wait for holds the value 2, and a lock that is fought for is often taken just before one
//! waits for it (`again`). Locks that are taken in user space without waiting cost nothing and are not seen.
//!
//! A wait that goes on at the end counts apart ("still"), with its time up to there: a lock that is held for long shows
//! nowhere else. One that began before the capture is not seen.
//!
//! Who wants a semaphore that readers share (as `mmap_lock`) alone first spins for it while its owner runs, and the
//! kernel does not tell of that: a wait begins when it lies down to sleep. Waits below 10 µs have no stack: it would
//! cost more than they do. Needs Linux 5.19 for the locks of the kernel.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a call that has nothing to do with it takes 290 ns longer
//! (`getppid`: 186 to 478 ns of CPU), a wake by futex 420 ns (327 to 746 ns).

use std::collections::HashMap;
use std::hash::Hash;

use aya::include_bytes_aligned;
use mitra_model::capture::{Cell, Raw, RawStack};

use crate::bpf::comm_str;
use crate::bpf::sys::{MapReader, Plain, zeroed};
use crate::capture::calls::{
    COMM, Column, Histogram, LONGEST, PID, Rows, Who, set_classes, table, time_cells,
};
use crate::capture::loader::Loader;
use crate::capture::stacks::Stacks;
use crate::capture::{
    AnyError, BY_TASK_AND_TIME, CaptureReader, Kind, Request, as_all, end_mono_ns, state_now,
};

pub(super) static KIND: Kind = Kind {
    name: "locks",
    help: "waiting for locks of the kernel, by kind and stack, and for futexes, by address",
    cost: "290 ns for each system call of the machine, 420 ns for each of a futex, and as much for each wait inside the kernel",
    since: "5.13; locks of the kernel: 5.19",
    attaches: &["contention_begin", "contention_end", "sys_enter", "sys_exit"],
    columns: KERNEL_COLUMNS,
    options: &[],
    filters: BY_TASK_AND_TIME,
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_locks.bpf.o")),
    source: include_str!("locks.rs"),
    configure: as_all,
    arm,
};

const KERNEL_COLUMNS: &[Column] = &[
    PID,
    COMM,
    ("lock", "", "the kind of the lock, and whether it was to be shared"),
    ("count", "1", "how often somebody waited for it"),
    ("time", "s", "all waits together"),
    ("mean", "s", "of one wait"),
    LONGEST,
    STILL,
    STILL_FOR,
];

const STILL: Column = ("still", "1", "waits that go on at the end, which count nowhere else");
const STILL_FOR: Column = ("still for", "s", "those, up to the end");

const FUTEX_COLUMNS: &[Column] = &[
    PID,
    COMM,
    ("address", "", "of the futex, in the process"),
    ("waits", "1", "how often a thread waited for it"),
    ("time", "s", "all waits together"),
    ("mean", "s", "of one wait"),
    LONGEST,
    ("wakes", "1", "how often threads that wait were to be woken"),
    ("again", "1", "how often the value had changed before the wait began"),
    ("value 2", "1", "waits for the value 2, which a lock of glibc has that others wait for"),
    STILL,
    STILL_FOR,
];

/// As many entries as the kernel's maps hold.
const SUMS_MAX: usize = 4096;
const LOCK_WAITS_MAX: usize = 8192;
const FUTEX_WAITS_MAX: usize = 32768;

/// Classes of bpf/capture_locks.bpf.c.
fn futex_class(call: &str) -> u8 {
    match call {
        "futex" => 1,
        "futex_wait" => 2,
        "futex_wake" => 3,
        _ => 0,
    }
}

fn arm(request: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    set_classes(loader, futex_class)?;
    let stacks = Stacks::new(loader)?;
    let (locks, futexes) = (loader.map("lock_sums")?, loader.map("futex_sums")?);
    let (lock_waits, futex_waits) = (loader.map("lock_waits")?, loader.map("futex_waits")?);
    let latency = loader.percpu_map("lock_latency")?;
    let min_ns = u64::try_from(request.min.as_nanos()).unwrap_or(u64::MAX);
    // The ends first: a beginning without an end would be paired with a later one.
    let ends = loader.optional_tracepoint("contention_end", &["lock_end"]);
    if ends {
        loader.optional_tracepoint("contention_begin", &["lock_begin"]);
    }
    loader.tracepoint("sys_exit", &["futex_left"])?;
    loader.tracepoint("sys_enter", &["futex_entered"])?;
    Ok(Box::new(Locks { locks, lock_waits, futexes, futex_waits, latency, stacks, min_ns }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct LockKey {
    tgid: u32,
    flags: u32,
    stack: i32,
    pad: u32,
}
const _: () = assert!(size_of::<LockKey>() == 16, "twin: struct contended_key in bpf/capture_locks.bpf.c");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for LockKey {}

#[repr(C)]
#[derive(Clone, Copy)]
struct LockSum {
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    comm: [u8; 16],
}
const _: () = assert!(size_of::<LockSum>() == 40, "twin: struct contended_sum in bpf/capture_locks.bpf.c");
// SAFETY: repr(C), u64 fields and bytes without a hole.
unsafe impl Plain for LockSum {}

#[repr(C)]
#[derive(Clone, Copy)]
struct FutexKey {
    address: u64,
    tgid: u32,
    pad: u32,
}
const _: () = assert!(size_of::<FutexKey>() == 16, "twin: struct futex_key in bpf/capture_locks.bpf.c");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for FutexKey {}

#[repr(C)]
#[derive(Clone, Copy)]
struct FutexSum {
    waits: u64,
    total_ns: u64,
    longest_ns: u64,
    wakes: u64,
    again: u64,
    value_2: u64,
    comm: [u8; 16],
}
const _: () = assert!(size_of::<FutexSum>() == 64, "twin: struct futex_sum in bpf/capture_locks.bpf.c");
// SAFETY: repr(C), u64 fields and bytes without a hole.
unsafe impl Plain for FutexSum {}

#[repr(C)]
#[derive(Clone, Copy)]
struct LockWait {
    since_ns: u64,
    lock: u64,
    flags: u64,
    tid: u32,
    tgid: u32,
}
const _: () = assert!(size_of::<LockWait>() == 32, "twin: struct lock_wait in bpf/capture_locks.bpf.c");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for LockWait {}

#[repr(C)]
#[derive(Clone, Copy)]
struct FutexWait {
    since_ns: u64,
    address: u64,
    value: u32,
    tgid: u32,
}
const _: () = assert!(size_of::<FutexWait>() == 24, "twin: struct futex_wait in bpf/capture_locks.bpf.c");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for FutexWait {}

impl LockSum {
    fn add(&mut self, other: LockSum) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

impl FutexSum {
    fn add(&mut self, other: FutexSum) {
        self.waits += other.waits;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.wakes += other.wakes;
        self.again += other.again;
        self.value_2 += other.value_2;
    }
}

/// `include/trace/events/lock.h`, and our own mark of the lock of an address space.
const SPIN: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;
const RT: u32 = 8;
const PERCPU: u32 = 16;
const MUTEX: u32 = 32;
const MMAP: u32 = 1 << 31;

fn lock_name(flags: u32) -> &'static str {
    match flags & (SPIN | READ | WRITE | RT | PERCPU | MUTEX | MMAP) {
        f if f & MMAP != 0 && f & READ != 0 => "mmap_lock, shared",
        f if f & MMAP != 0 => "mmap_lock, alone",
        f if f & MUTEX != 0 => "mutex",
        f if f & PERCPU != 0 && f & READ != 0 => "percpu rwsem, shared",
        f if f & PERCPU != 0 => "percpu rwsem, alone",
        f if f & RT != 0 && f & READ != 0 => "rt lock, shared",
        f if f & RT != 0 => "rt lock",
        f if f & SPIN != 0 && f & READ != 0 => "rwlock, shared",
        f if f & SPIN != 0 && f & WRITE != 0 => "rwlock, alone",
        f if f & SPIN != 0 => "spinlock",
        f if f & READ != 0 => "rwsem, shared",
        f if f & WRITE != 0 => "rwsem, alone",
        _ => "semaphore",
    }
}

/// A thread that waits at the end.
struct Wait<K> {
    pid: u32,
    tid: u32,
    since_ns: u64,
    what: K,
}

/// Waits that had not ended when the capture did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Still {
    count: u64,
    total_ns: u64,
}

impl Still {
    fn add(&mut self, other: Still) {
        self.count += other.count;
        self.total_ns += other.total_ns;
    }

    fn cells(self) -> [Cell; 2] {
        [Cell::number(self.count as f64), Cell::number(self.total_ns as f64 * 1e-9)]
    }
}

/// How long a wait has lasted at the end; none if it was too short, or its thread is in another state now than one that
/// waits: it has gone on without being seen, or has ended.
fn lasted_ns(since_ns: u64, end_ns: u64, min_ns: u64, is_waiting: impl FnOnce() -> bool) -> Option<u64> {
    let ns = end_ns.saturating_sub(since_ns);
    (ns > 0 && ns >= min_ns && is_waiting()).then_some(ns)
}

struct Locks {
    locks: MapReader<LockKey, LockSum>,
    lock_waits: MapReader<u32, LockWait>,
    futexes: MapReader<FutexKey, FutexSum>,
    futex_waits: MapReader<u32, FutexWait>,
    latency: MapReader<u32, u64>,
    stacks: Stacks,
    min_ns: u64,
}

impl CaptureReader for Locks {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        raw.weight = Some(("time waiting for locks", "s"));
        let still = self.kernel_locks(raw)? + self.futexes(raw)?;
        if still > 0 {
            raw.captured.notes.push(format!(
                "waits that had not ended: {still}; they count up to the end of the capture, and apart"
            ));
        }
        let mut waits = Histogram::default();
        for (bucket, count) in (0..).zip(&mut waits.0) {
            *count = self.latency.lookup(&bucket)?.unwrap_or_default().iter().sum();
        }
        raw.captured.histograms.push(waits.named("waiting for locks of the kernel"));
        Ok(())
    }
}

impl Locks {
    /// Says how many waits had not ended.
    fn kernel_locks(&mut self, raw: &mut Raw) -> Result<u64, AnyError> {
        let mut rows: Rows<&str, (LockSum, Still)> = Rows::new();
        let add = |to: &mut (LockSum, Still), from: (LockSum, Still)| {
            to.0.add(from.0);
            to.1.add(from.1);
        };
        for (key, sum) in self.locks.entries(SUMS_MAX)? {
            rows.add(key.tgid, &sum.comm, lock_name(key.flags), (sum, Still::default()), add);
            raw.stacks.push(RawStack {
                pid: key.tgid,
                comm: comm_str(&sum.comm).to_owned(),
                tag: lock_name(key.flags).to_owned(),
                kernel: self.stacks.get(key.stack)?,
                weight: sum.total_ns as f64 * 1e-9,
                count: sum.count,
                ..RawStack::default()
            });
        }
        let waits = self.lock_waits.entries(LOCK_WAITS_MAX)?.into_iter().map(|(tid, wait)| Wait {
            pid: wait.tgid,
            tid,
            since_ns: wait.since_ns,
            what: lock_name(wait.flags as u32),
        });
        // In the kernel hardly anybody waits for a lock so that a signal would end it.
        let mut count = 0;
        for (pid, comm, lock, still) in self.still(waits, 'D', end_mono_ns(&raw.captured)) {
            raw.stacks.push(still_stack(pid, &comm, lock, still));
            rows.add(pid, &comm, lock, (zeroed(), still), add);
            count += still.count;
        }
        let rows = rows.sorted(|(sum, still)| (sum.total_ns + still.total_ns) as f64);
        let rows = rows.iter().map(|(who, lock, (sum, still))| {
            let [time, mean] = time_cells(sum.total_ns, sum.count);
            let longest = Cell::number(sum.longest_ns as f64 * 1e-9);
            let [waiting, waiting_for] = still.cells();
            let number = Cell::number(sum.count as f64);
            who.row([Cell::text(*lock), number, time, mean, longest, waiting, waiting_for])
        });
        raw.captured.tables.push(table("kernel locks", KERNEL_COLUMNS, rows.collect()));
        Ok(count)
    }

    /// Says how many waits had not ended.
    fn futexes(&mut self, raw: &mut Raw) -> Result<u64, AnyError> {
        let mut rows: Rows<u64, (FutexSum, Still)> = Rows::new();
        let add = |to: &mut (FutexSum, Still), from: (FutexSum, Still)| {
            to.0.add(from.0);
            to.1.add(from.1);
        };
        for (key, sum) in self.futexes.entries(SUMS_MAX)? {
            rows.add(key.tgid, &sum.comm, key.address, (sum, Still::default()), add);
            if sum.waits > 0 {
                // A stack of no frames: the address is all there is to see.
                raw.stacks.push(RawStack {
                    pid: key.tgid,
                    comm: comm_str(&sum.comm).to_owned(),
                    tag: format!("futex {:#x}", key.address),
                    weight: sum.total_ns as f64 * 1e-9,
                    count: sum.waits,
                    ..RawStack::default()
                });
            }
        }
        let waits = self.futex_waits.entries(FUTEX_WAITS_MAX)?.into_iter().map(|(tid, wait)| Wait {
            pid: wait.tgid,
            tid,
            since_ns: wait.since_ns,
            what: wait.address,
        });
        let mut count = 0;
        for (pid, comm, address, still) in self.still(waits, 'S', end_mono_ns(&raw.captured)) {
            raw.stacks.push(still_stack(pid, &comm, &format!("futex {address:#x}"), still));
            rows.add(pid, &comm, address, (zeroed(), still), add);
            count += still.count;
        }
        let rows = rows.sorted(|(sum, still)| (sum.total_ns + still.total_ns) as f64);
        let rows = rows.iter().map(|(who, address, (sum, still))| futex_row(who, *address, sum, *still));
        raw.captured.tables.push(table("futexes", FUTEX_COLUMNS, rows.collect()));
        Ok(count)
    }

    /// Waits that had not ended, by process and by what is waited for, of threads that are in the state of those that wait.
    fn still<K: Eq + Hash>(
        &self,
        waits: impl Iterator<Item = Wait<K>>,
        state: char,
        end_ns: u64,
    ) -> Vec<(u32, [u8; 16], K, Still)> {
        let mut sums: HashMap<(u32, K), Still> = HashMap::new();
        for Wait { pid, tid, since_ns, what } in waits {
            let is_waiting = || state_now(pid, tid) == Some(state);
            if let Some(total_ns) = lasted_ns(since_ns, end_ns, self.min_ns, is_waiting) {
                sums.entry((pid, what)).or_default().add(Still { count: 1, total_ns });
            }
        }
        sums.into_iter().map(|((pid, what), still)| (pid, comm_now(pid), what, still)).collect()
    }
}

/// The name of a process, as the programs have it.
fn comm_now(pid: u32) -> [u8; 16] {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut comm = [0; 16];
    // Of threads of the kernel more is told there than their names hold.
    for (to, from) in comm.iter_mut().take(15).zip(name.strip_suffix(b"\n").unwrap_or_default()) {
        *to = *from;
    }
    comm
}

fn still_stack(pid: u32, comm: &[u8; 16], what: &str, still: Still) -> RawStack {
    RawStack {
        pid,
        comm: comm_str(comm).to_owned(),
        tag: format!("{what}, at the end still"),
        weight: still.total_ns as f64 * 1e-9,
        count: still.count,
        ..RawStack::default()
    }
}

fn futex_row(who: &Who, address: u64, sum: &FutexSum, still: Still) -> Vec<Cell> {
    let [time, mean] = time_cells(sum.total_ns, sum.waits);
    let [waiting, waiting_for] = still.cells();
    who.row([
        Cell::text(format!("{address:#x}")),
        Cell::number(sum.waits as f64),
        time,
        mean,
        Cell::number(sum.longest_ns as f64 * 1e-9),
        Cell::number(sum.wakes as f64),
        Cell::number(sum.again as f64),
        Cell::number(sum.value_2 as f64),
        waiting,
        waiting_for,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_goes_on_is_one_of_who_waits() {
        assert_eq!(lasted_ns(10, 30, 20, || true), Some(20));
        assert_eq!(lasted_ns(10, 30, 21, || true), None, "shorter than was asked for");
        assert_eq!(lasted_ns(10, 30, 0, || false), None, "its thread does something else");
        assert_eq!(lasted_ns(30, 30, 0, || true), None, "it began when the capture had ended");
    }

    #[test]
    fn kinds_of_locks_have_names() {
        assert_eq!(lock_name(MMAP | READ), "mmap_lock, shared");
        assert_eq!(lock_name(MMAP | WRITE), "mmap_lock, alone");
        assert_eq!(lock_name(MUTEX | SPIN), "mutex");
        assert_eq!(lock_name(WRITE), "rwsem, alone");
        assert_eq!(lock_name(SPIN | READ), "rwlock, shared");
        assert_eq!(lock_name(SPIN), "spinlock");
        assert_eq!(lock_name(0), "semaphore");
    }
}
