//! The arenas and their regions of memory.
//!
//! ```text
//! heap_info (glibc, malloc/arena.c), at the start of each heap of an arena other than the main one
//!    0  ar_ptr          its arena
//!    8  prev            the previous heap; the first heap has none, and the arena's malloc_state
//!                       behind the heap_info
//!   16  size            bytes in use, from the start of the heap_info
//!   24  mprotect_size
//!   32  pagesize, padding   since 2.35, for a size of 48 bytes; 32 before
//! ```
//!
//! Heaps are aligned to their largest size: 64 MiB, or four huge pages with the tunable
//! `glibc.malloc.hugetlb`. The last one has the arena's top. The main arena grows by `brk` instead;
//! if that fails, it continues in mappings whose bounds are not recorded.

use std::collections::HashSet;

use mitra_parse::maps::Mapping;

use super::layout::{ARENAS_MAX, Glibc, State};
use super::mmapped;
use super::regions::{ADDRESS_MAX, Kind, Region, Regions};
use super::resident::Resident;
use super::result::{Arena, Doubts};
use super::stream::{ALIGN, Header, SIZE_MIN};
use crate::memory::Memory;
use crate::memory::budget::CALL;

/// The largest sizes of heaps: the default, and four huge pages of 2 MiB, 512 MiB, 1 GiB, 32 MiB
/// and 16 GiB.
const HEAP_SIZES: [u64; 6] = [64 << 20, 8 << 20, 2 << 30, 4 << 30, 128 << 20, 64 << 30];
/// Bytes of a `heap_info`, now and before 2.35.
const HEAP_INFOS: [u64; 2] = [48, 32];
/// Upper bound for heaps of an arena: more than four terabytes.
const HEAPS_MAX: usize = 1 << 16;
/// Flag of a main arena that does not grow by `brk` alone (`NONCONTIGUOUS_BIT`).
const IS_NONCONTIGUOUS: u32 = 2;
/// If `brk` fails, it maps at least this much (`MMAP_AS_MORECORE_SIZE`).
const MAPPED_MIN: u64 = 1 << 20;
/// Consecutive chunks at its start that identify a mapping as the main arena's.
const MAPPED_CHUNKS: usize = 8;

/// The arenas in the order of their list, the main one first.
pub(super) fn list<M: Memory + ?Sized>(memory: &M, glibc: &Glibc, doubts: &mut Doubts) -> Vec<State> {
    let mut seen = HashSet::new();
    let mut states = Vec::new();
    let mut at = glibc.main_arena;
    while seen.insert(at) && states.len() < ARENAS_MAX && memory.should_continue(CALL) {
        let Some(state) = glibc.state(memory, at) else {
            doubts.lost_heaps += 1;
            break;
        };
        at = state.next;
        states.push(state);
    }
    states
}

/// The fields of an arena.
pub(super) fn arena(state: &State, glibc: &Glibc) -> Arena {
    Arena {
        address: state.address,
        is_main: state.address == glibc.main_arena,
        threads: state.threads,
        system_bytes: state.system_bytes,
        system_bytes_max: state.system_bytes_max,
        ..Arena::default()
    }
}

/// Adds the regions of an arena that are not known yet.
pub(super) fn add_regions<M: Memory + ?Sized>(
    memory: &M,
    glibc: &Glibc,
    state: &State,
    index: usize,
    arena: &mut Arena,
    regions: &mut Regions,
) {
    if arena.is_main {
        add_main(memory, glibc, state, index, arena, regions);
        return;
    }
    let heaps = heaps(memory, glibc, state);
    arena.doubts.lost_heaps += u64::from(heaps.is_empty());
    for heap in heaps.into_iter().filter(|heap| !regions.has(heap.start)).collect::<Vec<_>>() {
        let resident = Resident::of(memory, heap.start, heap.limit);
        let region = Region::new(index, Kind::Heap, (heap.start, heap.end), Some(heap.first), resident);
        if regions.add(Region { limit: heap.limit, ..region }) {
            arena.heaps += 1;
        } else {
            arena.doubts.lost_heaps += 1;
        }
    }
}

struct Heap {
    start: u64,
    first: u64,
    end: u64,
    limit: u64,
}

/// The heaps of an arena, from the last to the first, as far as they could be followed.
fn heaps<M: Memory + ?Sized>(memory: &M, glibc: &Glibc, state: &State) -> Vec<Heap> {
    let mut best = Vec::new();
    for heap_info in HEAP_INFOS {
        // The first heap begins right before the arena.
        let begin = state.address.wrapping_sub(heap_info);
        if memory.u64(begin) != Some(state.address) || memory.u64(begin.wrapping_add(8)) != Some(0) {
            continue;
        }
        for size_max in HEAP_SIZES.into_iter().filter(|size| begin % size == 0) {
            let (heaps, is_whole) = follow(memory, glibc, state, heap_info, size_max);
            if is_whole {
                return heaps;
            }
            if heaps.len() > best.len() {
                best = heaps;
            }
        }
    }
    best
}

fn follow<M: Memory + ?Sized>(
    memory: &M,
    glibc: &Glibc,
    state: &State,
    heap_info: u64,
    size_max: u64,
) -> (Vec<Heap>, bool) {
    let first_heap = state.address.wrapping_sub(heap_info);
    let mut heaps = Vec::new();
    let mut seen = HashSet::new();
    let mut at = state.top - state.top % size_max;
    while at != 0 && seen.insert(at) && heaps.len() < HEAPS_MAX && memory.should_continue(CALL) {
        let word = |offset: u64| memory.u64(at.wrapping_add(offset));
        let (Some(owner), Some(prev), Some(size)) = (word(0), word(8), word(16)) else { break };
        let is_sane = owner == state.address && size > heap_info && size <= size_max && at < ADDRESS_MAX;
        if !is_sane {
            break;
        }
        // The first one visited is the last heap, with the top.
        if heaps.is_empty() && state.top > at + size {
            break;
        }
        let is_first = at == first_heap;
        let own = heap_info + if is_first { glibc.state_bytes() } else { 0 };
        let limit = mapped_end(memory, at).min(at + size_max);
        let end = limit.min(at + size);
        let first = (at + own).next_multiple_of(ALIGN);
        if first < end {
            heaps.push(Heap { start: at, first, end, limit });
        }
        if is_first {
            return (heaps, prev == 0);
        }
        at = prev;
    }
    (heaps, false)
}

fn add_main<M: Memory + ?Sized>(
    memory: &M,
    glibc: &Glibc,
    state: &State,
    index: usize,
    arena: &mut Arena,
    regions: &mut Regions,
) {
    let mappings = memory.mappings();
    let brk = mappings.iter().find(|mapping| mapping.path == "[heap]").map(|mapping| mapping.start);
    let base = glibc.parameters.as_ref().and_then(|parameters| memory.u64(parameters.sbrk_base));
    let start = match (brk, base) {
        (Some(brk), Some(base)) if base >= brk && base < heap_end(memory, brk) => Some((base, true)),
        (Some(brk), _) => Some((brk, false)),
        _ => None,
    };
    if let Some((start, is_known)) = start.filter(|(start, _)| !regions.has(*start)) {
        let end = heap_end(memory, start);
        let first = is_known.then(|| start.next_multiple_of(ALIGN));
        let resident = Resident::of(memory, start, end);
        arena.heaps += u64::from(regions.add(Region::new(index, Kind::Brk, (start, end), first, resident)));
    }
    let has_top = regions.find(state.top).is_some();
    if has_top && state.flags & IS_NONCONTIGUOUS == 0 {
        return;
    }
    for mapping in mappings.iter().filter(|mapping| may_be_main(mapping)) {
        if !memory.should_continue(CALL) {
            break;
        }
        if regions.find(mapping.start).is_some() {
            continue;
        }
        let end = mapping.end;
        let resident = Resident::of(memory, mapping.start, end);
        // Chunks with their own mapping may come first.
        let start = mmapped::behind(memory, &resident, mapping.start, end);
        if !begins_main(memory, glibc, start, end, &resident, state.top) {
            continue;
        }
        let region = Region::new(index, Kind::Mapped, (start, end), Some(start), resident);
        arena.heaps += u64::from(regions.add(region));
    }
    arena.doubts.lost_heaps += u64::from(regions.find(state.top).is_none());
}

fn may_be_main(mapping: &Mapping) -> bool {
    let access = mapping.access;
    access.read && access.write && !access.shared && mapping.is_memory() && mapping.bytes() >= MAPPED_MIN
}

/// Whether a mapping begins with chunks of the main arena.
fn begins_main<M: Memory + ?Sized>(
    memory: &M,
    glibc: &Glibc,
    start: u64,
    end: u64,
    resident: &Resident,
    top: u64,
) -> bool {
    let mut at = start;
    for agreeing in 0..MAPPED_CHUNKS {
        if at == top {
            return true;
        }
        let mut bytes = [0; 16];
        if !resident.is(at) || memory.exact(at, &mut bytes).is_none() {
            return false;
        }
        let header = Header::of(bytes);
        if header.is_fence() && agreeing > 0 {
            return true;
        }
        // The first chunk has no predecessor, and its flag marks the predecessor as in use.
        let is_good = header.is_plausible(true) && (agreeing > 0 || header.is_prev_in_use());
        let next = at.checked_add(header.size().max(SIZE_MIN)).filter(|next| *next < end);
        // The main arena's structure may itself lie in a mapping; it is not a chunk.
        let Some(next) = next.filter(|next| is_good && !(at..*next).contains(&glibc.main_arena)) else {
            return false;
        };
        at = next;
    }
    true
}

/// The end of the memory from `brk`.
fn heap_end<M: Memory + ?Sized>(memory: &M, start: u64) -> u64 {
    let mut mappings = memory.mappings().iter();
    let last = mappings.rfind(|mapping| mapping.path == "[heap]" && mapping.end > start);
    last.map_or(start, |mapping| mapping.end)
}

/// The end of the contiguous mappings from an address. The unused rest of a heap is not readable.
fn mapped_end<M: Memory + ?Sized>(memory: &M, start: u64) -> u64 {
    let mappings = memory.mappings();
    let first = mappings.partition_point(|mapping| mapping.end <= start);
    let mut end = start;
    for mapping in mappings.iter().skip(first) {
        if mapping.start > end {
            break;
        }
        end = mapping.end;
    }
    end
}
