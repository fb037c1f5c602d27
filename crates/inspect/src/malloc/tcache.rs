//! The thread caches (tcache): they tell which chunks are free although they look in use.
//!
//! ```text
//! tcache_perthread_struct (glibc, malloc/malloc.c), itself a chunk of the thread's arena
//!   2.26 to 2.29   char     counts[64],    then tcache_entry *entries[64]   chunk of 0x250
//!   2.30 to 2.41   uint16_t counts[64],    then tcache_entry *entries[64]   chunk of 0x290
//!   since 2.42     uint16_t num_slots[76], then tcache_entry *entries[76]   chunk of 0x300
//! ```
//!
//! `counts` is the length of each list. `num_slots` is how much longer a list may become, and tells
//! nothing about its length. List `i` below 64 has chunks of `16 * (i + 2)`; lists from 64 on have
//! chunks up to the next power of two (2.42). An entry points to the content of a chunk, whose
//! first word is the next entry: since 2.32 XORed with its own address shifted by 12
//! (`PROTECT_PTR`). Distributions backported some of this to older versions, so the size of the
//! chunk and the lists decide, not the version.
//!
//! Without the registers of the threads there is no way to the structures. Any chunk of such a size
//! may be one. Each list is checked separately: every entry must be a chunk in a known heap with
//! exactly the size of its list, which other content has only by an unlikely coincidence.

use std::ops::RangeInclusive;

use super::lists::{Chunks, Lists};
use super::stream::HEADER;
use crate::memory::Memory;

/// Bytes of the longest structure.
pub(super) const BYTES_MAX: usize = 760;
/// Lists of chunks of one size each.
const EXACT: usize = 64;
/// The maximum length of a list (`MAX_TCACHE_COUNT`).
const COUNT_MAX: u64 = 65_535;

/// The layout of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of each counter.
    counter: usize,
    lists: usize,
    /// Whether the counter is the length of the list.
    is_length: bool,
}

impl Layout {
    /// The layout by the size of the chunk.
    pub(super) fn of(size: u64) -> Option<Self> {
        match size {
            0x250 => Some(Self { counter: 1, lists: EXACT, is_length: true }),
            0x290 => Some(Self { counter: 2, lists: EXACT, is_length: true }),
            0x300 => Some(Self { counter: 2, lists: EXACT + 12, is_length: false }),
            _ => None,
        }
    }

    fn count(self, content: &[u8], list: usize) -> Option<u64> {
        let bytes = content.get(list * self.counter..)?.get(..self.counter)?;
        Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn entry(self, content: &[u8], list: usize) -> Option<u64> {
        let at = self.lists * self.counter + list * 8;
        content.get(at..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// The chunk sizes of a list.
fn sizes(list: usize) -> RangeInclusive<u64> {
    if list < EXACT {
        let size = 16 * (list as u64 + 2);
        return size..=size;
    }
    let from = 1024 << (list - EXACT);
    from..=2 * from - 16
}

/// Whether a chunk with this content can be a tcache: lists with entries have a count, and vice
/// versa.
pub(super) fn may_be(size: u64, content: &[u8]) -> bool {
    let Some(layout) = Layout::of(size) else { return false };
    let mut entries = 0;
    for list in 0..layout.lists {
        let (Some(count), Some(entry)) = (layout.count(content, list), layout.entry(content, list)) else {
            return false;
        };
        let is_sane = entry % 16 == 0 && (!layout.is_length || (count == 0) == (entry == 0));
        if !is_sane {
            return false;
        }
        entries += usize::from(entry != 0);
    }
    entries > 0
}

/// Follows the lists of a tcache, and records their chunks.
pub(super) fn follow<M: Memory + ?Sized>(chunks: &mut Chunks<M>, at: u64, lists: &mut Lists) {
    let Some((_, size)) = chunks.chunk(at) else { return };
    let Some(layout) = Layout::of(size) else { return };
    let mut content = [0; BYTES_MAX];
    let content = &mut content[..layout.lists * (layout.counter + 8)];
    // The chunk may have been freed and reused since.
    if chunks.bytes(at + HEADER, content).is_none() || !may_be(size, content) {
        return;
    }
    for list in 0..layout.lists {
        let Some(first) = layout.entry(content, list).filter(|entry| *entry != 0) else { continue };
        let length = if layout.is_length { layout.count(content, list) } else { Some(COUNT_MAX) };
        list_of(chunks, first, length.unwrap_or(0), &sizes(list), lists);
    }
}

fn list_of<M: Memory + ?Sized>(
    chunks: &mut Chunks<M>,
    first: u64,
    length: u64,
    sizes: &RangeInclusive<u64>,
    lists: &mut Lists,
) {
    let mut entry = first;
    for step in 0..length {
        if !chunks.should_continue() {
            return;
        }
        let at = entry.wrapping_sub(HEADER);
        let Some((arena, size)) = chunks.chunk(at).filter(|(_, size)| sizes.contains(size)) else {
            // If even the first entry does not fit, this is not a list.
            lists.torn += u64::from(step > 0);
            return;
        };
        if !lists.cached(at, arena, size) || step + 1 == length {
            return;
        }
        match chunks.next(entry, HEADER, sizes) {
            Some(0) => return,
            Some(next) => entry = next,
            None => {
                lists.torn += 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_cache_is_taken_for_one() {
        let mut content = [0; 640];
        assert!(!may_be(0x290, &content), "it holds nothing");
        content[2] = 3;
        assert!(!may_be(0x290, &content), "a count without an entry");
        content[128 + 8..][..8].copy_from_slice(&0x5555_0000_1230_u64.to_le_bytes());
        assert!(may_be(0x290, &content));
        assert!(!may_be(0x280, &content), "not of that size");
        content[128 + 16..][..8].copy_from_slice(&0x5555_0000_1230_u64.to_le_bytes());
        assert!(!may_be(0x290, &content), "an entry without a count");
        assert!(!may_be(0x290, &content[..600]));
    }

    #[test]
    fn lists_have_their_sizes() {
        assert_eq!(sizes(0), 32..=32);
        assert_eq!(sizes(63), 1040..=1040);
        assert_eq!(sizes(64), 1024..=2032);
        assert_eq!(sizes(75), 2 << 20..=(4 << 20) - 16);
    }
}
