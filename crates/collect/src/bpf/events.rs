//! Rare events, and the time lost in reclaim, in compaction and for locks (`bpf/events.bpf.c`).

use std::io;

use aya::maps::{MapData, RingBuf};

use super::record::{CgroupIds, LATENCY_BUCKETS, comm_str};
use super::sys::{MapReader, Plain, read_plain, zeroed};

/// As many entries as the kernel's map holds.
const OWNERS_MAX: usize = 512;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The out-of-memory killer chose this task.
    Oom,
    /// A signal was sent that ends the process: SIGKILL, or one of SIGSEGV, SIGBUS, SIGABRT,
    /// SIGILL and SIGFPE for which the process has no handler.
    Signal,
}

/// One event. Fields that do not apply are 0 or [`NA`](super::NA).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRec {
    kind: u32,
    /// The thread that it happened to.
    pub pid: u32,
    /// Its process. 0 for OOM kills up to 6.7, which name the pid alone.
    pub tgid: u32,
    /// OOM: the victim's user. `u32::MAX`: not known.
    pub uid: u32,
    /// When, since boot.
    pub boottime_ns: u64,
    /// Name of the victim.
    pub comm: [u8; 16],
    /// The process that was running: the sender, or who asked for memory. Of a fault the
    /// victim itself.
    pub by_tgid: u32,
    /// The signal.
    pub signal: u32,
    /// Name of the thread that was running.
    pub by_comm: [u8; 16],
    /// Signal: `si_code`. OOM: `oom_score_adj`.
    pub code: i32,
    /// Signal: 0 delivered, 1 ignored, 2 pending already (`trace/events/signal.h`).
    pub result: u32,
    /// Signal by a fault: the address.
    pub addr: u64,
    /// OOM: size of the address space in pages.
    pub total_vm_pages: u64,
    /// OOM: anonymous pages.
    pub rss_anon_pages: u64,
    /// OOM: pages of files.
    pub rss_file_pages: u64,
    /// OOM: shared memory pages.
    pub rss_shmem_pages: u64,
    /// OOM: pages in swap.
    pub swap_pages: u64,
    /// OOM: bytes of page tables.
    pub pgtables_bytes: u64,
    /// The victim's cgroups.
    pub cgroups: CgroupIds,
}

const _: () = assert!(size_of::<EventRec>() == 152, "twin: struct event_rec in bpf/record.h");
// SAFETY: repr(C), integers and arrays of them; no hole, by the sum of the field sizes.
unsafe impl Plain for EventRec {}

impl EventRec {
    /// What happened.
    pub fn kind(&self) -> EventKind {
        if self.kind == 1 { EventKind::Oom } else { EventKind::Signal }
    }

    /// Name of the victim.
    pub fn comm(&self) -> &str {
        comm_str(&self.comm)
    }

    /// Name of the thread that was running.
    pub fn by_comm(&self) -> &str {
        comm_str(&self.by_comm)
    }
}

/// The events since the last time somebody asked.
pub struct Events {
    ring: RingBuf<MapData>,
    lost: MapReader<u32, u64>,
}

impl Events {
    pub(super) fn new(ring: RingBuf<MapData>, globals: &MapData) -> io::Result<Self> {
        Ok(Self { ring, lost: MapReader::new(globals, 1)? })
    }

    /// Calls `f` for every event that the ring holds, oldest first. Does not allocate.
    pub fn drain(&mut self, mut f: impl FnMut(&EventRec)) {
        for _ in 0..super::EVENT_RING_RECORDS_MAX {
            let Some(item) = self.ring.next() else { break };
            if let Some(record) = read_plain::<EventRec>(&item) {
                f(&record);
            }
        }
    }

    /// Events since the start that the ring had no room for.
    pub fn lost(&mut self) -> io::Result<u64> {
        Ok(self.lost.lookup(&0)?.and_then(<[_]>::first).copied().unwrap_or(0))
    }
}

/// What a task was made to do before it got its memory; in the order of `enum stall_kind` in bpf/record.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallKind {
    /// Direct reclaim: the machine had no free pages.
    DirectReclaim,
    /// Reclaim inside a cgroup that is at its limit.
    MemcgReclaim,
    /// Direct compaction: there was no free block of the order asked for.
    Compaction,
    /// A sleep that reclaim ordered; its time is in that of reclaim too.
    Throttled,
    /// A sleep for a lock inside the kernel that took longer than 1 ms. Has no owners here, see
    /// [`LockWaits`](super::LockWaits).
    Lock,
}

const STALL_KINDS: [StallKind; 5] = [
    StallKind::DirectReclaim,
    StallKind::MemcgReclaim,
    StallKind::Compaction,
    StallKind::Throttled,
    StallKind::Lock,
];

/// Stalls of one kind since the programs were attached, over all tasks. kcompactd is left
/// out: nobody waits for it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallHist {
    /// Stalls that ended.
    pub count: u64,
    /// Task time that they took.
    pub total_ns: u64,
    /// Pages that reclaim brought.
    pub reclaimed_pages: u64,
    /// Lengths, by [`latency_bucket_us_max`](super::latency_bucket_us_max).
    pub latency: [u64; LATENCY_BUCKETS],
}
const _: () = assert!(size_of::<StallHist>() == 192, "twin: struct stall_hist in bpf/record.h");
// SAFETY: only u64 fields and arrays of them.
unsafe impl Plain for StallHist {}

/// The stalls of one process since the start, as long as it is among the last 512.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallSum {
    /// Stalls that ended.
    pub count: u64,
    /// Time that they took.
    pub total_ns: u64,
    /// Name of the thread that stalled first.
    pub comm: [u8; 16],
}
const _: () = assert!(size_of::<StallSum>() == 32, "twin: struct stall_sum in bpf/record.h");
// SAFETY: repr(C), u64 fields and bytes that fill a multiple of 8.
unsafe impl Plain for StallSum {}

#[repr(C)]
#[derive(Clone, Copy)]
struct StallOwner {
    tgid: u32,
    kind: u32,
}
// SAFETY: only u32 fields.
unsafe impl Plain for StallOwner {}

/// Time lost in reclaim and compaction.
pub struct Stalls {
    hists: MapReader<u32, StallHist>,
    owners: MapReader<StallOwner, StallSum>,
}

impl Stalls {
    pub(super) fn new(hists: &MapData, owners: &MapData, cpus: usize) -> io::Result<Self> {
        Ok(Self { hists: MapReader::new(hists, cpus)?, owners: MapReader::new(owners, 1)? })
    }

    /// Calls `f` once for each kind, with the counts over all CPUs. Does not allocate.
    pub fn read(&mut self, mut f: impl FnMut(StallKind, &StallHist)) -> io::Result<()> {
        for kind in STALL_KINDS {
            f(kind, &self.read_kind(kind)?);
        }
        Ok(())
    }

    /// The counts of one kind over all CPUs.
    pub fn read_kind(&mut self, kind: StallKind) -> io::Result<StallHist> {
        let mut total = zeroed::<StallHist>();
        for hist in self.hists.lookup(&(kind as u32))?.unwrap_or_default() {
            total.count += hist.count;
            total.total_ns += hist.total_ns;
            total.reclaimed_pages += hist.reclaimed_pages;
            for (to, from) in total.latency.iter_mut().zip(hist.latency) {
                *to += from;
            }
        }
        Ok(total)
    }

    /// Calls `f` with the process id of everyone who stalled: worth it only when [`Stalls::read`] has shown that something
    /// moved.
    pub fn owners(&mut self, mut f: impl FnMut(u32, StallKind, &StallSum)) -> io::Result<()> {
        self.owners.each(OWNERS_MAX, |owner, sums| {
            let kind = usize::try_from(owner.kind).ok().and_then(|kind| STALL_KINDS.get(kind)).copied();
            if let (Some(sum), Some(kind)) = (sums.first(), kind) {
                f(owner.tgid, kind, sum);
            }
        })
    }
}
