//! The header of a pool.

use crate::memory::Memory;

/// Bytes of the header.
pub(super) const HEADER: usize = 48;
/// Bytes of the largest block.
const BLOCK_MAX: u64 = 512;

/// The fields of a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The index of its arena.
    pub arena: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks in use.
    pub blocks_in_use: u64,
}

impl Header {
    /// Reads the header at the start of a pool; `None` if its values are invalid.
    pub(super) fn read(memory: &(impl Memory + ?Sized), pool: u64, pool_bytes: u64) -> Option<Self> {
        let mut bytes = [0; HEADER];
        memory.exact(pool, &mut bytes)?;
        Self::parse(&bytes, pool, pool_bytes)
    }

    pub(super) fn parse(bytes: &[u8; HEADER], pool: u64, pool_bytes: u64) -> Option<Self> {
        let words = bytes.as_chunks::<8>().0;
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let low = |at: usize| word(at) & 0xffff_ffff;
        let high = |at: usize| word(at) >> 32;
        let (class, next, next_max) = (high(4), low(5), high(5));
        let block_bytes = pool_bytes.checked_sub(next_max)?;
        let header = Self { arena: low(4) as u32, block_bytes, blocks_in_use: low(0) };
        // Classes have steps of 8 or of 16 bytes.
        let is_class = [8, 16].into_iter().any(|step| (class + 1) * step == block_bytes);
        if !is_class || block_bytes > BLOCK_MAX {
            return None;
        }
        // The offset of the next block that was never used: at least two blocks in, and a whole
        // number of them.
        let cut = next.checked_sub(HEADER as u64)?;
        let is_cut = cut.is_multiple_of(block_bytes) && cut / block_bytes >= 2 && next <= pool_bytes;
        let in_use = header.blocks_in_use;
        let free = word(1);
        let is_free = free == 0 || free.wrapping_sub(pool) < pool_bytes;
        (is_cut && is_free && in_use <= cut / block_bytes).then_some(header)
    }

    /// Blocks that fit into a pool.
    pub(super) fn capacity(&self, pool_bytes: u64) -> u64 {
        (pool_bytes - HEADER as u64) / self.block_bytes
    }
}
