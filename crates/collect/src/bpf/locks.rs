//! The time that processes slept for locks inside the kernel (`bpf/events.bpf.c`).

use std::io;

use aya::maps::MapData;

use super::sys::{MapReader, Plain};

/// As many entries as the kernel's map holds.
const OWNERS_MAX: usize = 256;

/// A process by its id and the birth of its first thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// Process id.
    pub tgid: u64,
    /// When it started, since boot.
    pub start_boottime_ns: u64,
}
const _: () = assert!(size_of::<LockOwner>() == 16, "twin: struct lock_owner in bpf/record.h");
// SAFETY: only u64 fields.
unsafe impl Plain for LockOwner {}

/// The processes that waited, as long as they are among the last 256.
pub struct LockWaits {
    owners: MapReader<LockOwner, u64>,
}

impl LockWaits {
    pub(super) fn new(owners: &MapData) -> io::Result<Self> {
        Ok(Self { owners: MapReader::new(owners, 1)? })
    }

    /// Calls `f` with everyone who waited and how long since the start, in nanoseconds: worth it only when the sum over
    /// all has moved.
    pub fn owners(&mut self, mut f: impl FnMut(LockOwner, u64)) -> io::Result<()> {
        self.owners.each(OWNERS_MAX, |owner, totals_ns| totals_ns.iter().for_each(|ns| f(*owner, *ns)))
    }
}
