//! Fragmentation: memory that the program freed and the process still holds.
//!
//! glibc returns memory to the system from the top of a heap only. After a burst one live chunk at
//! the end holds all free memory below it. Such a process looks like one that leaks, but `in use`
//! shows that it does not.

use serde::{Deserialize, Serialize};

use super::result::{Arena, CHeap};

/// Knuth's fifty per cent rule (The Art of Computer Programming, 2.5): an allocator in balance has
/// half as many free blocks as blocks in use. With equal mean sizes a third of the bytes is then
/// free. A larger share remains from an earlier load.
pub(crate) const SHARE_IN_BALANCE: f64 = 1.0 / 3.0;
/// glibc keeps up to twice the largest dynamic mmap threshold (`DEFAULT_MMAP_THRESHOLD_MAX`, 32
/// MiB) free on purpose, to avoid system calls. Less than that is no problem.
pub(crate) const BYTES_ON_PURPOSE: u64 = 64 << 20;

/// How much of the heap is free, but not returned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fragmentation {
    /// Whether it counts as fragmentation: free resident memory below the tops exceeds both the
    /// share of an allocator in balance and what glibc keeps on purpose.
    pub is_fragmented: bool,
    /// Bytes in use in arenas.
    pub in_use_bytes: u64,
    /// Bytes free below the tops of the arenas. Chunks in use above keep the arenas from shrinking.
    pub free_bytes: u64,
    /// The resident part: it counts as memory of the process, but is unused.
    pub free_resident_bytes: u64,
    /// What `malloc_trim(0)` would return: whole pages inside of free chunks.
    pub trimmable_bytes: u64,
    /// The rest shares its pages with chunks in use.
    pub pinned_bytes: u64,
    /// The share of free resident memory below the tops in the sum of that and memory in use.
    pub share: f64,
}

impl CHeap {
    /// How much is free below the tops; `None` if no arena was walked to its end.
    #[must_use]
    pub fn fragmentation(&self) -> Option<Fragmentation> {
        if self.arenas.is_empty() || self.is_stopped {
            return None;
        }
        let in_use_bytes = self.in_use().bytes;
        let free_bytes = self.free().bytes;
        // The chunks of fastbins and tcaches were touched when they were freed: they hold the next
        // pointer of their list.
        let sum = |of: fn(&Arena) -> u64| self.arenas.iter().map(of).fold(0, u64::saturating_add);
        let small = sum(|arena| arena.free.fastbin.bytes.saturating_add(arena.free.tcache.bytes));
        let binned = sum(|arena| arena.free_resident_bytes);
        let free_resident_bytes = binned.saturating_add(small).min(free_bytes);
        let trimmable_bytes = sum(|arena| arena.trimmable_bytes);
        let all = free_resident_bytes.saturating_add(in_use_bytes);
        let share = if all == 0 { 0.0 } else { free_resident_bytes as f64 / all as f64 };
        Some(Fragmentation {
            is_fragmented: share > SHARE_IN_BALANCE && free_resident_bytes > BYTES_ON_PURPOSE,
            in_use_bytes,
            free_bytes,
            free_resident_bytes,
            trimmable_bytes,
            pinned_bytes: free_resident_bytes.saturating_sub(trimmable_bytes),
            share,
        })
    }
}
