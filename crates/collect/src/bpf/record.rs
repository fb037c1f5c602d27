//! What the records of all programs have in common.

use super::sys::Plain;

/// What a field holds that this kernel does not keep, or not for this task.
pub const NA: u64 = u64::MAX;

/// A value, unless the kernel does not keep it.
pub const fn known(value: u64) -> Option<u64> {
    if value == NA { None } else { Some(value) }
}

/// A name of at most 15 bytes. What is not UTF-8 is cut off.
pub fn comm_str(comm: &[u8; 16]) -> &str {
    let name = comm.split(|&byte| byte == 0).next().unwrap_or_default();
    match std::str::from_utf8(name) {
        Ok(name) => name,
        Err(error) => {
            std::str::from_utf8(name.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
        }
    }
}

/// Kernel time spent waiting, by taskstats' delay accounting (`kernel/delayacct.c`).
/// Every field is [`NA`] for a task that was born while `kernel.task_delayacct` was 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Waiting for block I/O, in nanoseconds.
    pub blkio_ns: u64,
    /// Waiting for pages from swap.
    pub swapin_ns: u64,
    /// In direct reclaim; the kernel calls it freepages.
    pub reclaim_ns: u64,
    /// Waiting for pages that had been evicted a moment before.
    pub thrashing_ns: u64,
    /// In direct compaction; since 5.17.
    pub compaction_ns: u64,
    /// Copying pages on write; since 5.19.
    pub wpcopy_ns: u64,
    /// In interrupts that hit this task; since 6.4, with `CONFIG_IRQ_TIME_ACCOUNTING`.
    pub irq_ns: u64,
}

/// The cgroups of a task, as inode numbers of their directories. [`NA`]: no such controller.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupIds {
    /// In the cgroup v2 tree, also where controllers are still on v1.
    pub unified: u64,
    /// Of the cpu controller, wherever it is mounted.
    pub cpu: u64,
    /// Of the memory controller, wherever it is mounted.
    pub memory: u64,
}

/// The task is a kernel thread.
pub const FLAG_KTHREAD: u32 = 1 << 0;
/// The task is the first thread of its process.
pub const FLAG_LEADER: u32 = 1 << 1;
/// Delay accounting is kept for this task.
pub const FLAG_HAS_DELAYS: u32 = 1 << 2;
/// The process has an address space: the rss fields mean something.
pub const FLAG_HAS_MM: u32 = 1 << 3;
/// A kernel stack follows the record.
pub const FLAG_HAS_STACK: u32 = 1 << 4;
/// The wait counts as iowait.
pub const FLAG_IN_IOWAIT: u32 = 1 << 5;
/// Exit records: the whole process ended, and the sums are those of all its threads.
pub const FLAG_GROUP_DEAD: u32 = 1 << 6;

/// The descriptors, their limit and the network namespace were looked at in this pass.
pub const FLAG_HAS_FILES: u32 = 1 << 8;

/// The task did not run since the last pass; what came was a [`StillRec`](super::StillRec).
pub(super) const FLAG_STILL: u32 = 1 << 7;

/// Bucket `i` of a latency histogram counts up to `16 << i` microseconds, the last one the rest.
pub const LATENCY_BUCKETS: usize = 21;
/// Bucket `i` of a size histogram counts up to `4096 << i` bytes, the last one the rest.
pub const SIZE_BUCKETS: usize = 10;

/// The upper edge of a latency bucket in microseconds; none for the last one.
pub const fn latency_bucket_us_max(bucket: usize) -> Option<u64> {
    if bucket + 1 < LATENCY_BUCKETS { Some(16 << bucket) } else { None }
}

/// The upper edge of a size bucket in bytes; none for the last one.
pub const fn size_bucket_bytes_max(bucket: usize) -> Option<u64> {
    if bucket + 1 < SIZE_BUCKETS { Some(4096 << bucket) } else { None }
}

// SAFETY: only u64 fields.
unsafe impl Plain for Delays {}
// SAFETY: only u64 fields.
unsafe impl Plain for CgroupIds {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_the_first_zero_or_at_what_is_not_utf8() {
        assert_eq!(comm_str(b"kworker/0:1\0abc\0"), "kworker/0:1");
        assert_eq!(comm_str(b"0123456789abcde\0"), "0123456789abcde");
        assert_eq!(comm_str(b"ab\xff\xfe\0\0\0\0\0\0\0\0\0\0\0\0"), "ab");
    }

    #[test]
    fn bucket_edges_double_and_the_last_has_none() {
        assert_eq!(latency_bucket_us_max(0), Some(16));
        assert_eq!(latency_bucket_us_max(19), Some(8_388_608));
        assert_eq!(latency_bucket_us_max(20), None);
        assert_eq!(size_bucket_bytes_max(8), Some(1 << 20));
        assert_eq!(size_bucket_bytes_max(9), None);
    }
}
