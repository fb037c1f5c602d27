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
//! Who wants a semaphore that readers share (as `mmap_lock`) alone first spins for it while its owner runs, and the
//! kernel does not tell of that: a wait begins when it lies down to sleep. Waits below 10 µs have no stack: it would
//! cost more than they do. Needs Linux 5.19 for the locks of the kernel.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a call that has nothing to do with it takes 290 ns longer
//! (`getppid`: 186 to 478 ns of CPU), a wake by futex 420 ns (327 to 746 ns).

use aya::include_bytes_aligned;
use mitra_model::capture::{Cell, Raw, RawStack};

use crate::bpf::comm_str;
use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::{
    COMM, Column, Histogram, LONGEST, PID, Rows, Who, set_classes, table, time_cells,
};
use crate::capture::loader::Loader;
use crate::capture::stacks::Stacks;
use crate::capture::{AnyError, BY_TASK_AND_TIME, Gather, Kind, Request, as_all};

pub(super) const KIND: Kind = Kind {
    name: "locks",
    help: "waiting for locks of the kernel, by kind and stack, and for futexes, by address",
    cost: "290 ns for each system call of the machine, 420 ns for each of a futex, and as much for each wait inside the kernel",
    since: "5.13; locks of the kernel: 5.19",
    attaches: &["contention_begin", "contention_end", "sys_enter", "sys_exit"],
    columns: KERNEL_COLUMNS,
    options: &[],
    filters: BY_TASK_AND_TIME,
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
];

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
];

/// As many entries as the kernel's maps hold.
const SUMS_MAX: usize = 4096;

/// Classes of bpf/capture_locks.bpf.c.
fn futex_class(call: &str) -> u8 {
    match call {
        "futex" => 1,
        "futex_wait" => 2,
        "futex_wake" => 3,
        _ => 0,
    }
}

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn Gather>, AnyError> {
    set_classes(loader, futex_class)?;
    let stacks = Stacks::new(loader)?;
    let (locks, futexes) = (loader.map("lock_sums")?, loader.map("futex_sums")?);
    let latency = loader.percpu_map("lock_latency")?;
    // The ends first: a beginning without an end would be paired with a later one.
    let ends = loader.optional_tracepoint("contention_end", &["lock_end"]);
    if ends {
        loader.optional_tracepoint("contention_begin", &["lock_begin"]);
    }
    loader.tracepoint("sys_exit", &["futex_left"])?;
    loader.tracepoint("sys_enter", &["futex_entered"])?;
    Ok(Box::new(Locks { locks, futexes, latency, stacks }))
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

struct Locks {
    locks: MapReader<LockKey, LockSum>,
    futexes: MapReader<FutexKey, FutexSum>,
    latency: MapReader<u32, u64>,
    stacks: Stacks,
}

impl Gather for Locks {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        raw.weight = Some(("time waiting for locks", "s"));
        self.kernel_locks(raw)?;
        self.futexes(raw)?;
        let mut waits = Histogram::default();
        for (bucket, count) in (0..).zip(&mut waits.0) {
            *count = self.latency.lookup(&bucket)?.unwrap_or_default().iter().sum();
        }
        raw.captured.histograms.push(waits.named("waiting for locks of the kernel"));
        Ok(())
    }
}

impl Locks {
    fn kernel_locks(&mut self, raw: &mut Raw) -> Result<(), AnyError> {
        let mut rows: Rows<&str, LockSum> = Rows::new();
        for (key, sum) in self.locks.entries(SUMS_MAX)? {
            rows.add(key.tgid, &sum.comm, lock_name(key.flags), sum, |to, from| {
                to.count += from.count;
                to.total_ns += from.total_ns;
                to.longest_ns = to.longest_ns.max(from.longest_ns);
            });
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
        let rows = rows.sorted(|sum| sum.total_ns as f64);
        let rows = rows.iter().map(|(who, lock, sum)| {
            let [time, mean] = time_cells(sum.total_ns, sum.count);
            let longest = Cell::number(sum.longest_ns as f64 * 1e-9);
            who.row([Cell::text(*lock), Cell::number(sum.count as f64), time, mean, longest])
        });
        raw.captured.tables.push(table("kernel locks", KERNEL_COLUMNS, rows.collect()));
        Ok(())
    }

    fn futexes(&mut self, raw: &mut Raw) -> Result<(), AnyError> {
        let mut rows: Rows<u64, FutexSum> = Rows::new();
        for (key, sum) in self.futexes.entries(SUMS_MAX)? {
            rows.add(key.tgid, &sum.comm, key.address, sum, FutexSum::add);
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
        let rows = rows.sorted(|sum| sum.total_ns as f64);
        let rows = rows.iter().map(|(who, address, sum)| futex_row(who, *address, sum));
        raw.captured.tables.push(table("futexes", FUTEX_COLUMNS, rows.collect()));
        Ok(())
    }
}

fn futex_row(who: &Who, address: u64, sum: &FutexSum) -> Vec<Cell> {
    let [time, mean] = time_cells(sum.total_ns, sum.waits);
    who.row([
        Cell::text(format!("{address:#x}")),
        Cell::number(sum.waits as f64),
        time,
        mean,
        Cell::number(sum.longest_ns as f64 * 1e-9),
        Cell::number(sum.wakes as f64),
        Cell::number(sum.again as f64),
        Cell::number(sum.value_2 as f64),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

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
