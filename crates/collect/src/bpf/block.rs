//! Latency and size of block I/O by device and operation (`bpf/block.bpf.c`).

use std::io;

use aya::maps::MapData;

use super::record::{LATENCY_BUCKETS, SIZE_BUCKETS};
use super::sys::{MapReader, Plain, zeroed};

/// What a request does, grouped as `/proc/diskstats` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOp {
    /// `REQ_OP_READ`.
    Read,
    /// `REQ_OP_WRITE`.
    Write,
    /// `REQ_OP_FLUSH`: of the device's cache.
    Flush,
    /// `REQ_OP_DISCARD`.
    Discard,
    /// Zone management, secure erase, commands from user space.
    Other,
}

/// Completed requests since the program was attached. Latency runs from the allocation of
/// the request to its completion, as in diskstats: the I/O scheduler's queue is in it, a
/// throttle above the request queue is not.
///
/// For how many requests there were, diskstats is the authority: on 6.18 in a virtual machine
/// now and then a completion reached none of the attached programs (1 in 100,000 when quiet, 4
/// in 100 at worst), while diskstats had it. The shape of the histogram does not suffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHist {
    /// Requests. One that completes in parts counts once.
    pub count: u64,
    /// Bytes; of a request that completes in parts, those of the last part.
    pub bytes: u64,
    /// Sum of the latencies.
    pub latency_ns_sum: u64,
    /// Requests without a time stamp (`queue/iostats` is 0), which are in no latency.
    pub untimed: u64,
    /// Sum of the time from the driver's start to completion.
    pub device_ns_sum: u64,
    /// Requests in `device_ns_sum`. 0 where nobody asked the kernel for that time stamp.
    pub device_timed: u64,
    /// Latencies, by [`latency_bucket_us_max`](super::latency_bucket_us_max).
    pub latency: [u64; LATENCY_BUCKETS],
    /// Sizes, by [`size_bucket_bytes_max`](super::size_bucket_bytes_max).
    pub size: [u64; SIZE_BUCKETS],
}

const _: () = assert!(size_of::<BlockHist>() == 296, "twin: struct block_hist in bpf/record.h");
// SAFETY: only u64 fields and arrays of them.
unsafe impl Plain for BlockHist {}

impl BlockHist {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.latency_ns_sum += other.latency_ns_sum;
        self.untimed += other.untimed;
        self.device_ns_sum += other.device_ns_sum;
        self.device_timed += other.device_timed;
        for (to, from) in self.latency.iter_mut().zip(other.latency) {
            *to += from;
        }
        for (to, from) in self.size.iter_mut().zip(other.size) {
            *to += from;
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct BlockKey {
    major: u32,
    minor: u32,
    op: u32,
    pad: u32,
}
const _: () = assert!(size_of::<BlockKey>() == 16, "twin: struct block_key in bpf/record.h");
// SAFETY: only u32 fields.
unsafe impl Plain for BlockKey {}

/// The histograms of all devices.
pub struct BlockHists {
    hists: MapReader<BlockKey, BlockHist>,
    lost: MapReader<u32, u64>,
    entries_max: u32,
}

impl BlockHists {
    pub(super) fn new(hists: &MapData, globals: &MapData, cpus: usize, entries_max: u32) -> io::Result<Self> {
        Ok(Self { hists: MapReader::new(hists, cpus)?, lost: MapReader::new(globals, 1)?, entries_max })
    }

    /// Calls `f` with major and minor number of every whole disk that completed requests,
    /// the operation, and the counts over all CPUs since the start. Does not allocate.
    pub fn read(&mut self, mut f: impl FnMut(u32, u32, BlockOp, &BlockHist)) -> io::Result<()> {
        let entries_max = usize::try_from(self.entries_max).unwrap_or(usize::MAX);
        self.hists.each(entries_max, |key, hists| {
            let mut total = zeroed::<BlockHist>();
            hists.iter().for_each(|hist| total.add(hist));
            f(key.major, key.minor, op(key.op), &total);
        })
    }

    /// Requests of devices that came after the table was full.
    pub fn lost(&mut self) -> io::Result<u64> {
        Ok(self.lost.lookup(&0)?.and_then(<[_]>::first).copied().unwrap_or(0))
    }
}

/// `enum block_op` of bpf/record.h.
fn op(number: u32) -> BlockOp {
    match number {
        0 => BlockOp::Read,
        1 => BlockOp::Write,
        2 => BlockOp::Flush,
        3 => BlockOp::Discard,
        _ => BlockOp::Other,
    }
}
