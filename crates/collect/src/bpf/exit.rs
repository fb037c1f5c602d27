//! Processes and threads that ended (`bpf/tasks.bpf.c`), so that one that lives for a
//! millisecond is counted, with who started it and what it cost.

use std::io;

use aya::maps::{MapData, RingBuf};

use super::record::{CgroupIds, Delays, FLAG_GROUP_DEAD, FLAG_LEADER, comm_str};
use super::sys::{MapReader, Plain, read_plain};

/// As many keys as the kernel's map holds.
const SUMS_MAX: usize = 1024;
/// How many ended processes are remembered to drop a second report of the same one.
const RECENT: usize = 64;

/// One end. With [`FLAG_GROUP_DEAD`] the whole process ended and the sums are those of all
/// the threads it ever had; without, of one thread, whose sums the process' record will
/// hold again. Times are in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitRec {
    /// The thread that ended, of a process the last one.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// The process that would have to wait for it.
    pub ppid: u32,
    /// `FLAG_*`.
    pub flags: u32,
    /// Start of the thread since boot.
    pub start_boottime_ns: u64,
    /// Start of its process since boot.
    pub leader_start_boottime_ns: u64,
    /// The moment of the end, on the same clock.
    pub end_boottime_ns: u64,
    /// Name of the thread.
    pub comm: [u8; 16],
    /// Name of the process.
    pub leader_comm: [u8; 16],
    /// Name of the parent.
    pub parent_comm: [u8; 16],
    /// As `wait(2)` will report it: signal in the low byte, exit code in the second.
    pub exit_code: i32,
    pad: u32,
    /// Time on a CPU until the exit began, also what no tick has charged yet. Since 6.16 the
    /// address space is torn down after that: a quarter of what `/bin/true` costs.
    pub cpu_ns: u64,
    /// User time in ticks; a sample, and usually 0 for a process of a millisecond.
    pub utime_ns: u64,
    /// System time in ticks.
    pub stime_ns: u64,
    /// Time ready to run without a CPU, of the last thread only; [`NA`](super::NA) if not kept.
    pub run_delay_ns: u64,
    /// Voluntary switches.
    pub nvcsw: u64,
    /// Involuntary switches.
    pub nivcsw: u64,
    /// Page faults without I/O.
    pub min_flt: u64,
    /// Page faults with I/O.
    pub maj_flt: u64,
    /// Bytes fetched from devices; [`NA`](super::NA) if not kept.
    pub read_bytes: u64,
    /// Bytes of pages made dirty; [`NA`](super::NA) if not kept.
    pub write_bytes: u64,
    /// Delay accounting of the last thread only.
    pub delays: Delays,
    /// Where it was charged.
    pub cgroups: CgroupIds,
}

const _: () = assert!(size_of::<ExitRec>() == 256, "twin: struct exit_rec in bpf/record.h");
// SAFETY: repr(C), integers and arrays of them; no hole, by the sum of the field sizes.
unsafe impl Plain for ExitRec {}

impl ExitRec {
    /// Whether the whole process ended.
    pub fn is_process(&self) -> bool {
        self.flags & FLAG_GROUP_DEAD != 0
    }

    /// Whether the thread was the first of its process.
    pub fn is_leader(&self) -> bool {
        self.flags & FLAG_LEADER != 0
    }

    /// Name of the thread.
    pub fn comm(&self) -> &str {
        comm_str(&self.comm)
    }

    /// Name of the process.
    pub fn leader_comm(&self) -> &str {
        comm_str(&self.leader_comm)
    }

    /// Name of the parent process.
    pub fn parent_comm(&self) -> &str {
        comm_str(&self.parent_comm)
    }
}

/// Who ended, where there was no room for a record of each.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitKey {
    /// The parent.
    pub ppid: u32,
    pad: u32,
    /// Name of the tasks that ended.
    pub comm: [u8; 16],
    /// Name of their parent.
    pub parent_comm: [u8; 16],
}

/// How many there were and what they cost; of each only its last thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitSum {
    /// Processes that ended.
    pub processes: u64,
    /// Threads that ended and left others of their process behind.
    pub threads: u64,
    /// Time on a CPU.
    pub cpu_ns: u64,
    /// Time ready to run without a CPU.
    pub run_delay_ns: u64,
    /// Page faults without I/O.
    pub min_flt: u64,
    /// Page faults with I/O.
    pub maj_flt: u64,
    /// Bytes fetched from devices.
    pub read_bytes: u64,
    /// Bytes of pages made dirty.
    pub write_bytes: u64,
}

const _: () = assert!(size_of::<ExitKey>() == 40, "twin: struct exit_key in bpf/record.h");
const _: () = assert!(size_of::<ExitSum>() == 64, "twin: struct exit_sum in bpf/record.h");
// SAFETY: repr(C), integers and arrays of them; no hole, by the sum of the field sizes.
unsafe impl Plain for ExitKey {}
// SAFETY: only u64 fields.
unsafe impl Plain for ExitSum {}

/// `globals` of bpf/tasks.bpf.c.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct TaskGlobals {
    exits_lost: u64,
    gap_ns: u64,
    gap_seen_ns: u64,
    pass_ns: u64,
    last_pass_ns: u64,
    pass: u32,
    pad: u32,
}
const _: () = assert!(size_of::<TaskGlobals>() == 48, "twin: globals of bpf/tasks.bpf.c");
// SAFETY: only integers, without a hole.
unsafe impl Plain for TaskGlobals {}

/// The ended tasks since the last time somebody asked.
pub struct Exits {
    ring: RingBuf<MapData>,
    sums: MapReader<ExitKey, ExitSum>,
    globals: MapReader<u32, TaskGlobals>,
    /// Only where the kernel does not say which thread was the last (up to 6.15).
    recent: Option<Recent>,
}

struct Recent {
    ended: [(u32, u64); RECENT],
    next: usize,
}

impl Recent {
    /// Whether this process was reported before; remembers it.
    fn repeats(&mut self, record: &ExitRec) -> bool {
        let process = (record.tgid, record.leader_start_boottime_ns);
        if self.ended.contains(&process) {
            return true;
        }
        if let Some(slot) = self.ended.get_mut(self.next % RECENT) {
            *slot = process;
        }
        self.next = (self.next + 1) % RECENT;
        false
    }
}

impl Exits {
    pub(super) fn new(
        ring: RingBuf<MapData>,
        sums: &MapData,
        globals: &MapData,
        may_repeat: bool,
    ) -> io::Result<Self> {
        Ok(Self {
            ring,
            sums: MapReader::new(sums, 1)?,
            globals: MapReader::new(globals, 1)?,
            recent: may_repeat.then_some(Recent { ended: [(0, 0); RECENT], next: 0 }),
        })
    }

    /// Calls `f` for every end that the ring holds, oldest first. Does not allocate.
    pub fn drain(&mut self, mut f: impl FnMut(&ExitRec)) {
        // One round through a full ring: what comes in meanwhile waits for the next tick.
        for _ in 0..super::EXIT_RING_RECORDS_MAX {
            let Some(item) = self.ring.next() else { break };
            let Some(mut record) = read_plain::<ExitRec>(&item) else { continue };
            if record.is_process() && self.recent.as_mut().is_some_and(|recent| recent.repeats(&record)) {
                record.flags &= !FLAG_GROUP_DEAD;
            }
            f(&record);
        }
    }

    /// Calls `f` for what the ring had no room for, and forgets it.
    pub fn drain_sums(&mut self, mut f: impl FnMut(&ExitKey, &ExitSum)) -> io::Result<()> {
        for _ in 0..SUMS_MAX {
            let Some(key) = self.sums.next_key(None)? else { break };
            if let Some([sum]) = self.sums.take(&key)? {
                f(&key, sum);
            }
        }
        Ok(())
    }

    /// Ends since the start that left no trace at all: ring and sums were both full.
    pub fn lost(&mut self) -> io::Result<u64> {
        Ok(self.globals.lookup(&0)?.and_then(<[_]>::first).map_or(0, |globals| globals.exits_lost))
    }
}
