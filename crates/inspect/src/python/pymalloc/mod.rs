//! CPython's small objects: arenas, pools and blocks of `Objects/obmalloc.c`.
//!
//! Allocations of at most 512 bytes come from a pool of blocks of one size; pools are cut from
//! arenas. Sizes on 64 bits:
//!
//! | since | arena | pool | block sizes |
//! |---|---|---|---|
//! | 3.6 | 256 KiB | 4 KiB | 8, 16, … 512 (64 classes); late releases of 3.7 and all after it 16, 32, … 512 (32 classes) |
//! | 3.10 | 1 MiB | 16 KiB | the same; 4 KiB pools where built without the radix tree |
//!
//! ```text
//! struct arena_object, 48 bytes         struct pool_header, 48 bytes, at the start of each pool
//!   0  address (0: not in use)            0  count of blocks in use (32 bits)
//!   8  pool_address: end of the pools     8  freeblock
//!  16  nfreepools, 20 ntotalpools        16  nextpool, 24 prevpool
//!  24  freepools                         32  arenaindex, 36 szidx
//!  32  nextarena, 40 prevarena           40  nextoffset, 44 maxnextoffset
//! ```
//!
//! The headers are the same from 3.6 to 3.14 (`Include/internal/pycore_obmalloc.h` since 3.12,
//! before it in `obmalloc.c`). The sizes follow from `maxnextoffset`, which is the size of the pool
//! minus that of a block. So no version and no symbol is needed: see [`find`]. An interpreter with
//! another allocator (`PYTHONMALLOC=malloc`, a free-threaded build) has no arenas. Further
//! interpreters with their own state (since 3.12, with their own lock) are not seen.

mod find;
mod pool;

use serde::{Deserialize, Serialize};

use crate::memory::Memory;
use crate::memory::budget::CALL;
pub use find::{Arena, Arenas, find};
use pool::{HEADER, Header};

/// Limit of the classes: 512 bytes in steps of 8.
const CLASSES_MAX: usize = 64;

/// The memory of the small objects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pymalloc {
    /// Number of arenas.
    pub arenas: u64,
    /// Bytes of their address space.
    pub arena_bytes: u64,
    /// Their resident bytes.
    pub resident_bytes: u64,
    /// Bytes of one pool.
    pub pool_bytes: u64,
    /// Pools with at least one block in use.
    pub pools_used: u64,
    /// Pools without one, and those that were never cut.
    pub pools_free: u64,
    /// By size of the blocks, the smallest first.
    pub classes: Vec<SizeClass>,
    /// Bytes of the blocks in use, rounded up to their class as the allocator does.
    pub bytes_in_use: u64,
    /// Bytes of the free blocks in pools that are in use. Only this pool's size class can use them.
    pub bytes_free_in_pools: u64,
    /// The arenas were detected by their pools only: memory between them may belong to them too.
    pub is_estimate: bool,
    /// Data that was inconsistent or not resident.
    pub doubts: Doubts,
}

/// The pools of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Bytes of a block.
    pub class_bytes: u64,
    /// Number of pools.
    pub pools: u64,
    /// Blocks in use.
    pub blocks_in_use: u64,
    /// Free blocks.
    pub blocks_free: u64,
}

/// Data that could not be counted.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubts {
    /// Pools with an invalid header: the arena was freed, or is just changing.
    pub pools_torn: u64,
    /// Pools whose header is not resident.
    pub pools_not_resident: u64,
    /// Arenas that are no longer mapped.
    pub arenas_unmapped: u64,
}

impl Pymalloc {
    /// Walks the small objects; `None` if there are none, or the budget ended before all of them
    /// were counted.
    #[must_use]
    pub fn read(memory: &(impl Memory + ?Sized)) -> Option<Self> {
        let found = find(memory).map(|arenas| walk(memory, &arenas));
        found.filter(|_| memory.should_continue(0))
    }
}

/// Counts by class while pools are walked.
#[derive(Default, Clone, Copy)]
struct Count {
    pools: u64,
    in_use: u64,
    free: u64,
}

/// The counts of a walk.
#[derive(Default)]
struct Tally {
    arenas: u64,
    resident_bytes: u64,
    /// By the arenas' own counts.
    pools_free: u64,
    /// By the pools' headers.
    pools_empty: u64,
    counts: Vec<Count>,
    doubts: Doubts,
}

/// Walks the pools of arenas that were found.
#[must_use]
pub fn walk(memory: &(impl Memory + ?Sized), arenas: &Arenas) -> Pymalloc {
    let mut tally = Tally { counts: vec![Count::default(); CLASSES_MAX], ..Tally::default() };
    for group in arenas.adjacent() {
        let resident = resident(memory, arenas, group);
        tally.resident_bytes += resident.iter().map(|(from, to)| to - from).sum::<u64>();
        for arena in group {
            if memory.mapping(arena.address).is_none() {
                tally.doubts.arenas_unmapped += 1;
                continue;
            }
            tally.arenas += 1;
            tally.pools_free += u64::from(arena.pools_free);
            for pool in arena.pools(arenas.pool_bytes) {
                if !memory.should_continue(CALL) {
                    break;
                }
                if !covers(&resident, pool) {
                    tally.doubts.pools_not_resident += 1;
                } else if let Some(header) = Header::read(memory, pool, arenas.pool_bytes)
                    && header.arena == arena.index
                {
                    tally.count(&header, arenas.pool_bytes);
                } else {
                    tally.doubts.pools_torn += 1;
                }
            }
        }
    }
    tally.summary(arenas)
}

impl Tally {
    fn count(&mut self, header: &Header, pool_bytes: u64) {
        if header.blocks_in_use == 0 {
            self.pools_empty += 1;
            return;
        }
        let at = (header.block_bytes / 8).wrapping_sub(1) as usize;
        if let Some(count) = self.counts.get_mut(at) {
            count.pools += 1;
            count.in_use += header.blocks_in_use;
            count.free += header.capacity(pool_bytes).saturating_sub(header.blocks_in_use);
        }
    }

    fn summary(self, arenas: &Arenas) -> Pymalloc {
        let mut classes = Vec::new();
        for (count, class_bytes) in self.counts.iter().zip((8..).step_by(8)) {
            if count.pools > 0 {
                let Count { pools, in_use, free } = *count;
                classes.push(SizeClass { class_bytes, pools, blocks_in_use: in_use, blocks_free: free });
            }
        }
        Pymalloc {
            arenas: self.arenas,
            arena_bytes: self.arenas * arenas.arena_bytes,
            resident_bytes: self.resident_bytes,
            pool_bytes: arenas.pool_bytes,
            pools_used: classes.iter().map(|class| class.pools).sum(),
            pools_free: if arenas.is_estimate { self.pools_empty } else { self.pools_free },
            bytes_in_use: classes.iter().map(|class| class.blocks_in_use * class.class_bytes).sum(),
            bytes_free_in_pools: classes.iter().map(|class| class.blocks_free * class.class_bytes).sum(),
            classes,
            is_estimate: arenas.is_estimate,
            doubts: self.doubts,
        }
    }
}

/// Whether the header of a pool is resident.
fn covers(resident: &[(u64, u64)], pool: u64) -> bool {
    let at = resident.partition_point(|(_, to)| *to <= pool);
    let behind = pool.saturating_add(HEADER as u64);
    resident.get(at).is_some_and(|(from, to)| *from <= pool && behind <= *to)
}

/// The resident ranges of adjacent arenas.
fn resident(memory: &(impl Memory + ?Sized), arenas: &Arenas, group: &[Arena]) -> Vec<(u64, u64)> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return Vec::new() };
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    memory.resident(first.address, last.address.saturating_add(arenas.arena_bytes), &mut |from, to| {
        match stretches.last_mut() {
            // A pool may begin in one mapping and end in the next.
            Some((_, behind)) if *behind == from => *behind = to,
            _ => stretches.push((from, to)),
        }
        true
    });
    stretches
}

#[cfg(test)]
mod tests;
