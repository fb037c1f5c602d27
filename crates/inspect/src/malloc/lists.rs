//! Free lists. In a heap walk some of their chunks look in use, and their size does not tell which
//! list others are in.
//!
//! ```text
//! fastbinsY[i]   chunks of 16 * (i + 2), linked by fd; PREV_INUSE of the following chunk stays
//!                set, as if they were in use
//! bin 1          the unsorted list, doubly linked, of any size: freed, not yet sorted by a malloc
//! ```
//!
//! Since 2.32 the fd of a fastbin is XORed with its own address shifted by 12 (`PROTECT_PTR`). Each
//! step shows which form applies, because only one leads to a chunk of that size.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use super::regions::Regions;
use super::result::{Arena, Count, Doubts};
use super::sizes::Sizes;
use super::stream::{ALIGN, HEADER, Header};
use super::walk::LARGE_MIN;
use crate::memory::{Memory, PAGE};

/// Steps along lists per snapshot: a second or two if each leads to another page.
const STEPS_MAX: u64 = 4 << 20;
/// Chunks in tcaches: some thousand threads with full caches.
const CACHED_MAX: usize = 1 << 20;
/// Cached pages: a mebibyte.
const PAGES: usize = 256;

/// The chunks of the heaps, by address.
pub(super) struct Chunks<'a, M: Memory + ?Sized> {
    memory: &'a M,
    regions: &'a Regions,
    pages: Vec<u64>,
    bytes: Vec<u8>,
}

impl<'a, M: Memory + ?Sized> Chunks<'a, M> {
    pub(super) fn new(memory: &'a M, regions: &'a Regions) -> Self {
        let bytes = vec![0; PAGES * PAGE as usize];
        Self { memory, regions, pages: vec![u64::MAX; PAGES], bytes }
    }

    /// Whether one more step is allowed.
    pub(super) fn should_continue(&self) -> bool {
        self.memory.should_continue(1)
    }

    /// A word of a heap, if it is in memory.
    fn word(&mut self, at: u64) -> Option<u64> {
        let page = at / PAGE;
        let slot = (page % PAGES as u64) as usize;
        let bytes = self.bytes.get_mut(slot * PAGE as usize..)?.get_mut(..PAGE as usize)?;
        if self.pages[slot] != page {
            if !self.regions.is_resident(at) {
                return None;
            }
            self.pages[slot] = u64::MAX;
            self.memory.exact(page * PAGE, bytes)?;
            self.pages[slot] = page;
        }
        let offset = (at % PAGE) as usize;
        bytes.get(offset..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Current bytes of a heap, if all of them are in memory.
    pub(super) fn bytes(&self, at: u64, into: &mut [u8]) -> Option<()> {
        let last = at.checked_add(into.len() as u64)?.checked_sub(1)?;
        let is_there = self.regions.is_resident(at) && self.regions.is_resident(last);
        is_there.then(|| self.memory.exact(at, into))?
    }

    /// The arena and size of a chunk, if there can be one.
    pub(super) fn chunk(&mut self, at: u64) -> Option<(usize, u64)> {
        let region = self.regions.find(at).filter(|_| at.is_multiple_of(ALIGN))?;
        let header = Header { prev_size: 0, field: self.word(at + 8)? };
        let is_sane = header.is_plausible(false) && header.size() <= region.end - at;
        is_sane.then(|| (region.arena, header.size()))
    }

    /// What a link at an address points to: zero, or a chunk of such a size that lies `before` the
    /// pointer.
    pub(super) fn next(&mut self, at: u64, before: u64, sizes: &RangeInclusive<u64>) -> Option<u64> {
        let link = self.word(at)?;
        let mut leads = |to: u64| {
            to == 0 || self.chunk(to.wrapping_sub(before)).is_some_and(|(_, size)| sizes.contains(&size))
        };
        [link ^ (at >> 12), link].into_iter().find(|to| leads(*to))
    }
}

/// What was found in the lists.
pub(super) struct Lists {
    pub(super) torn: u64,
    cut: u64,
    steps: u64,
    /// Chunks in tcaches.
    seen: HashSet<u64>,
    /// Their number per arena and size.
    tcache: HashMap<(usize, u64), u64>,
    fastbins: HashMap<(usize, u64), u64>,
    /// Small and large ones of each arena.
    unsorted: HashMap<usize, [Count; 2]>,
}

/// Finds cycles (Brent's algorithm).
#[derive(Default)]
struct Brent {
    at: u64,
    steps: u64,
    power: u64,
}

impl Brent {
    fn is_again(&mut self, at: u64) -> bool {
        if at == self.at {
            return true;
        }
        self.steps += 1;
        if self.steps >= self.power {
            *self = Self { at, steps: 0, power: (self.power * 2).max(1) };
        }
        false
    }
}

impl Lists {
    pub(super) fn new() -> Self {
        Self {
            torn: 0,
            cut: 0,
            steps: STEPS_MAX,
            seen: HashSet::new(),
            tcache: HashMap::new(),
            fastbins: HashMap::new(),
            unsorted: HashMap::new(),
        }
    }

    /// Records a chunk of a tcache. Returns whether the list can be followed further.
    pub(super) fn cached(&mut self, at: u64, arena: usize, size: u64) -> bool {
        if self.seen.len() >= CACHED_MAX {
            self.cut += 1;
            return false;
        }
        if !self.seen.insert(at) {
            self.torn += 1;
            return false;
        }
        *self.tcache.entry((arena, size)).or_default() += 1;
        true
    }

    /// Follows a fastbin of an arena from its first chunk.
    pub(super) fn fastbin<M: Memory + ?Sized>(
        &mut self,
        chunks: &mut Chunks<M>,
        arena: usize,
        first: u64,
        size: u64,
    ) {
        let (mut at, mut count, mut brent) = (first, 0, Brent::default());
        let sizes = size..=size;
        while at != 0 && chunks.should_continue() {
            if chunks.chunk(at).is_none_or(|(_, found)| found != size) {
                self.torn += 1;
                break;
            }
            if brent.is_again(at) {
                // The number of chunks counted twice is unknown.
                self.torn += 1;
                return;
            }
            let Some(left) = self.steps.checked_sub(1) else {
                self.cut += 1;
                break;
            };
            self.steps = left;
            count += 1;
            at = match chunks.next(at + HEADER, 0, &sizes) {
                Some(next) => next,
                None => {
                    self.torn += 1;
                    break;
                }
            };
        }
        if count > 0 {
            *self.fastbins.entry((arena, size)).or_default() += count;
        }
    }

    /// Follows the unsorted list of an arena. `bin` is the address of its head as a chunk.
    pub(super) fn unsorted<M: Memory + ?Sized>(&mut self, chunks: &mut Chunks<M>, arena: usize, bin: u64) {
        let Some(mut at) = chunks.memory.u64(bin.wrapping_add(HEADER)) else { return };
        let (mut counts, mut brent) = ([Count::default(); 2], Brent::default());
        while at != bin && chunks.should_continue() {
            let Some((_, size)) = chunks.chunk(at) else {
                self.torn += 1;
                break;
            };
            if brent.is_again(at) {
                self.torn += 1;
                return;
            }
            let Some(left) = self.steps.checked_sub(1) else {
                self.cut += 1;
                break;
            };
            self.steps = left;
            counts[usize::from(size >= LARGE_MIN)].add(size);
            at = match chunks.word(at + HEADER) {
                Some(next) => next,
                None => {
                    self.torn += 1;
                    break;
                }
            };
        }
        self.unsorted.insert(arena, counts);
    }

    /// Adds the chunks to their heaps, and returns those in tcaches.
    pub(super) fn apply(self, arenas: &mut [Arena], sizes: &mut Sizes, doubts: &mut Doubts) -> HashSet<u64> {
        doubts.torn_lists += self.torn;
        doubts.cut_lists += self.cut;
        for ((arena, size), chunks) in self.tcache {
            let Some(arena) = arenas.get_mut(arena) else { continue };
            let moved = moved(arena, sizes, size, chunks);
            arena.free.tcache.plus(moved);
        }
        for ((arena, size), chunks) in self.fastbins {
            let Some(arena) = arenas.get_mut(arena) else { continue };
            let moved = moved(arena, sizes, size, chunks);
            arena.free.fastbin.plus(moved);
        }
        for (arena, [small, large]) in self.unsorted {
            let Some(Arena { free, .. }) = arenas.get_mut(arena) else { continue };
            for (bin, listed) in [(&mut free.small, small), (&mut free.large, large)] {
                let count =
                    Count { chunks: listed.chunks.min(bin.chunks), bytes: listed.bytes.min(bin.bytes) };
                bin.minus(count);
                free.unsorted.plus(count);
            }
        }
        self.seen
    }
}

/// Moves chunks from in use to free.
fn moved(arena: &mut Arena, sizes: &mut Sizes, size: u64, chunks: u64) -> Count {
    let chunks = sizes.freed(size, chunks.min(arena.in_use.chunks));
    let count = Count { chunks, bytes: chunks.saturating_mul(size).min(arena.in_use.bytes) };
    arena.in_use.minus(count);
    count
}
