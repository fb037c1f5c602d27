//! Finds glibc's allocator state. No symbol that is always present names it; it is found by its
//! structure.
//!
//! ```text
//! malloc_state (glibc, malloc/malloc.c), 64-bit                     2.17   2.23   2.27   2.43
//!   mutex, flags            int each                                   0      0      0      0
//!   have_fastchunks         int, padding                               -      -      8      -
//!   fastbinsY[10]                                                      8      8     16      -
//!   top                     the chunk at the end                      88     88     96      8
//!   last_remainder                                                    96     96    104     16
//!   bins[254]               fd and bk of bins 1 to 127               104    104    112     24
//!   binmap[4]               int each                                2136   2136   2144   2056
//!   next                    the next arena; the last: main_arena    2152   2152   2160   2072
//!   next_free                                                       2160   2160   2168   2080
//!   attached_threads                                                   -   2168   2176   2088
//!   system_mem, max_system_mem                                      2168   2176   2184   2096
//! ```
//!
//! All fields have the same distance from `bins`, except those after `next_free` and the start of
//! the structure. An empty bin points to itself (as if it were a chunk, so 16 bytes before). The
//! last bin, 127, is always empty: the search looks for two equal words that are their own address
//! minus 16. The start of the structure is where the list of arenas leads back to.
//!
//! ```text
//! malloc_par mp_: the identifiable fields are before sbrk_base, the first address of the main heap
//!   2.17 to 2.23   int n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn_threshold;
//!                  mmapped_mem, max_mmapped_mem, max_total_mem, sbrk_base
//!   2.24 to 2.34   the same without max_total_mem
//!   since 2.35     the four and hp_flags before them are five ints, followed by padding
//! ```

use super::regions::ADDRESS_MAX;
use crate::memory::{Memory, PAGE};

/// Bins in `bins`; the first is number 1.
const BINS: u64 = 127;
/// Offset of the last bin from the start of `bins`.
const LAST_BIN: u64 = (BINS - 1) * 16;
const NEXT: u64 = BINS * 16 + 16;
const BEHIND_NEXT_FREE: u64 = NEXT + 16;
/// Bytes from the last bin to behind `next_free`.
const BEHIND_LAST_BIN: u64 = 16 + 16 + 8;
/// Offset of `bins` in the structure, in the order of the table: with fastbins and
/// `have_fastchunks`, without the latter, without both.
const BEGINS: [u64; 3] = [112, 104, 24];
/// Distance from `top` to `bins`.
const TOP: u64 = 16;
/// Number of fastbins, which precede `top`.
const FASTBINS: u64 = 10;
/// Bins that may be inconsistent while they are read.
const BINS_TORN_MAX: u64 = 6;
/// Limit of the arenas of a process. By default there are at most eight per CPU.
pub(super) const ARENAS_MAX: usize = 1 << 16;
/// Limits of the searched data, and the size of a piece. Data that is not resident is searched only
/// if nothing else was found, in ranges of up to `READ_ALL_BYTES`.
const READ_ALL_BYTES: u64 = 1 << 20;
const SEARCH_BYTES_MAX: u64 = 256 << 20;
const PIECE: u64 = 1 << 20;
/// Candidates for the last bin: an arena has 127 words that look like it.
const TRIES_MAX: usize = 1 << 16;
/// The default of `n_mmaps_max`.
const MMAPS_MAX_DEFAULT: u32 = 65_536;
/// Largest distance of `sbrk_base` from the start of `[heap]`: a static program allocates memory
/// for its first thread before.
const SBRK_BEFORE_MALLOC_MAX: u64 = 1 << 20;

/// Which part of the data is searched.
#[derive(Clone, Copy)]
enum Extent {
    InMemory,
    All,
}

/// The addresses of a glibc's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glibc {
    /// The address of `main_arena`.
    pub main_arena: u64,
    /// Offset of its `bins`.
    pub bins: u64,
    /// Whether the structure counts the threads of an arena.
    pub counts_threads: bool,
    /// The addresses of the count and bytes of chunks with their own mapping, and of the main
    /// heap's start.
    pub parameters: Option<Parameters>,
}

/// The fields of `mp_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// Address of `n_mmaps`, four bytes.
    pub n_mmaps: u64,
    /// Address of `mmapped_mem`.
    pub mmapped_mem: u64,
    /// Address of `sbrk_base`.
    pub sbrk_base: u64,
}

/// The fields of a `malloc_state`.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) address: u64,
    pub(super) flags: u32,
    pub(super) top: u64,
    pub(super) next: u64,
    pub(super) threads: Option<u64>,
    pub(super) system_bytes: u64,
    pub(super) system_bytes_max: u64,
    /// The first chunk of each list, by the size of its chunks.
    pub(super) fastbins: Vec<(u64, u64)>,
}

impl Glibc {
    /// The address of an arena's `top`.
    pub(super) fn top_at(&self, arena: u64) -> u64 {
        arena.wrapping_add(self.bins).wrapping_sub(TOP)
    }

    /// The unsorted list of an arena as a chunk.
    pub(super) fn unsorted(&self, arena: u64) -> u64 {
        self.top_at(arena)
    }

    /// Bytes of a `malloc_state`.
    pub(super) fn state_bytes(&self) -> u64 {
        self.bins + BEHIND_NEXT_FREE + 16 + if self.counts_threads { 8 } else { 0 }
    }

    /// Reads an arena. `None` if there is none at the address.
    pub(super) fn state<M: Memory + ?Sized>(&self, memory: &M, arena: u64) -> Option<State> {
        let mut bytes = [0; 2400];
        let bytes = bytes.get_mut(..self.state_bytes() as usize)?;
        is_written(memory, arena).then(|| memory.exact(arena, bytes))??;
        let word =
            |at: u64| bytes.get(at as usize..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
        let own = arena.wrapping_add(self.bins);
        let last = own.wrapping_add(LAST_BIN);
        let is_one = word(self.bins + LAST_BIN)? == last.wrapping_sub(16) && last.is_multiple_of(8);
        if !is_one {
            return None;
        }
        let mut at = self.bins + BEHIND_NEXT_FREE;
        let mut threads = None;
        if self.counts_threads {
            threads = word(at);
            at += 8;
        }
        let mut fastbins = Vec::new();
        if self.bins > 8 * FASTBINS {
            for i in 0..FASTBINS {
                let first = word(self.bins - TOP - 8 * (FASTBINS - i))?;
                if first != 0 {
                    fastbins.push((16 * (i + 2), first));
                }
            }
        }
        Some(State {
            address: arena,
            flags: (word(0)? >> 32) as u32,
            top: word(self.bins - TOP)?,
            next: word(self.bins + NEXT)?,
            threads,
            system_bytes: word(at)?,
            system_bytes_max: word(at + 8)?,
            fastbins,
        })
    }
}

/// Searches data for the main arena of a glibc. A program that loads a second library with its own
/// dependencies can have several; the one with the most memory counts.
pub(super) fn find<M: Memory + ?Sized>(
    memory: &M,
    data: &[(u64, u64)],
    version: Option<(u32, u32)>,
) -> Option<Glibc> {
    search(memory, data, version, Extent::InMemory).or_else(|| search(memory, data, version, Extent::All))
}

fn search<M: Memory + ?Sized>(
    memory: &M,
    data: &[(u64, u64)],
    version: Option<(u32, u32)>,
    extent: Extent,
) -> Option<Glibc> {
    let mut found: Option<(u64, Glibc)> = None;
    let mut tries = 0;
    each_pair(memory, data, extent, |at, pair, stretch| {
        if pair != [at.wrapping_sub(16); 2] {
            return;
        }
        // Assumes that this is the last bin. If it is not, the pages of the supposed other bins
        // were still not touched by this search.
        let bins = at.wrapping_sub(LAST_BIN);
        let is_within =
            bins >= stretch.0.saturating_add(TOP) && at < stretch.1.saturating_sub(BEHIND_LAST_BIN);
        tries += usize::from(is_within);
        if !is_within || tries > TRIES_MAX {
            return;
        }
        let Some(glibc) = main_arena(memory, bins, version) else { return };
        let bytes = glibc.state(memory, glibc.main_arena).map_or(0, |state| state.system_bytes);
        if found.as_ref().is_none_or(|(before, _)| bytes > *before) {
            found = Some((bytes, glibc));
        }
    });
    let (_, mut glibc) = found?;
    glibc.parameters = parameters(memory, data, extent);
    Some(glibc)
}

fn main_arena<M: Memory + ?Sized>(memory: &M, bins: u64, version: Option<(u32, u32)>) -> Option<Glibc> {
    let is_arena = bins.is_multiple_of(8) && bins < ADDRESS_MAX && are_bins(memory, bins);
    if !is_arena {
        return None;
    }
    let counts_threads = match version {
        Some(version) if version >= (2, 23) => true,
        // Distributions backported the field to older versions.
        _ => {
            let word = |i: u64| memory.u64(bins + BEHIND_NEXT_FREE + 8 * i).unwrap_or(0);
            let (first, second) = (word(0), word(1));
            let is_memory = first > 0 && first % PAGE == 0 && second % PAGE == 0 && first <= second;
            !is_memory
        }
    };
    for begin in BEGINS {
        let glibc =
            Glibc { main_arena: bins.wrapping_sub(begin), bins: begin, counts_threads, parameters: None };
        let mut next = memory.u64(bins + NEXT)?;
        for _ in 0..ARENAS_MAX {
            if next == glibc.main_arena {
                return Some(glibc);
            }
            let Some(state) = glibc.state(memory, next) else { break };
            next = state.next;
        }
    }
    None
}

/// Whether an address is in writable memory. Chunks and arenas can only be there; following any
/// number that looks like an address would fault in pages of files.
fn is_written<M: Memory + ?Sized>(memory: &M, address: u64) -> bool {
    memory.mapping(address).is_some_and(|mapping| mapping.access.write)
}

/// Whether nearly all bins are empty, or lists of chunks that lead back to the bin.
fn are_bins<M: Memory + ?Sized>(memory: &M, bins: u64) -> bool {
    let mut bytes = [0; (BINS * 16) as usize];
    if memory.exact(bins, &mut bytes).is_none() {
        return false;
    }
    let mut torn = 0;
    for (i, words) in bytes.as_chunks::<16>().0.iter().enumerate() {
        let both = u128::from_le_bytes(*words);
        let (fd, bk) = (both as u64, (both >> 64) as u64);
        let bin = bins.wrapping_add(16 * i as u64).wrapping_sub(16);
        let is_empty = fd == bin && bk == bin;
        // The bk of the first chunk and the fd of the last lead back.
        let leads_back = |chunk: u64, offset: u64| {
            let can_be = chunk.is_multiple_of(16) && is_written(memory, chunk);
            can_be && memory.u64(chunk.wrapping_add(offset)) == Some(bin)
        };
        let is_list = || leads_back(fd, 24) && leads_back(bk, 16);
        if !is_empty && !is_list() {
            torn += 1;
            if torn > BINS_TORN_MAX {
                return false;
            }
        }
    }
    true
}

/// Searches for the parameters: a word that points to the start of the main heap, behind counters
/// that agree with each other.
fn parameters<M: Memory + ?Sized>(memory: &M, data: &[(u64, u64)], extent: Extent) -> Option<Parameters> {
    let heap = memory.mappings().iter().find(|mapping| mapping.path == "[heap]")?.start;
    let mut found = None;
    each_pair(memory, data, extent, |at, pair, _| {
        let distance = pair[0].wrapping_sub(heap);
        if found.is_none() && distance < SBRK_BEFORE_MALLOC_MAX {
            found = parameters_before(memory, at);
        }
    });
    found
}

fn parameters_before<M: Memory + ?Sized>(memory: &M, sbrk_base: u64) -> Option<Parameters> {
    // Distances of mmapped_mem and n_mmaps before it.
    let layouts = [(16, 36), (16, 32), (24, 40)];
    layouts.into_iter().find_map(|(bytes, ints)| {
        let (mmapped_mem, n_mmaps) = (sbrk_base.checked_sub(bytes)?, sbrk_base.checked_sub(ints)?);
        let now = memory.u64(mmapped_mem)?;
        let most = memory.u64(mmapped_mem + 8)?;
        let int = |i: u64| memory.u32(n_mmaps + 4 * i);
        let (count, allowed, count_most) = (int(0)?, int(1)?, int(2)?);
        let agrees = now % PAGE == 0
            && most % PAGE == 0
            && now <= most
            && count <= count_most
            && (count == 0) == (now == 0)
            && (count_most == 0) == (most == 0)
            && (allowed == MMAPS_MAX_DEFAULT || (count_most > 0 && allowed >= count_most));
        agrees.then_some(Parameters { n_mmaps, mmapped_mem, sbrk_base })
    })
}

/// Visits each pair of words that begins at a multiple of eight, with its range.
fn each_pair<M: Memory + ?Sized>(
    memory: &M,
    data: &[(u64, u64)],
    extent: Extent,
    mut take: impl FnMut(u64, [u64; 2], (u64, u64)),
) {
    let mut left = SEARCH_BYTES_MAX;
    let mut buffer = vec![0; PIECE as usize + 8];
    let mut search = |start: u64, end: u64| {
        let mut at = start.next_multiple_of(8);
        while at < end && left > 0 && memory.should_continue(PIECE / 256) {
            let count = (end - at).min(PIECE + 8).min(left) as usize;
            let read = memory.read(at, &mut buffer[..count]);
            let words = buffer[..read.min(count)].as_chunks::<8>().0;
            for (i, pair) in words.windows(2).enumerate() {
                let pair = [u64::from_le_bytes(pair[0]), u64::from_le_bytes(pair[1])];
                take(at + 8 * i as u64, pair, (start, end));
            }
            // The last word is the first of the next pair.
            let seen = (count as u64).saturating_sub(8).max(8);
            at += seen;
            left = left.saturating_sub(seen);
        }
        left > 0 && memory.should_continue(0)
    };
    for &(start, end) in data {
        let end = end.min(ADDRESS_MAX);
        if start >= end {
            continue;
        }
        match extent {
            Extent::InMemory => memory.resident(start, end, &mut |from, to| search(from, to)),
            Extent::All if end - start <= READ_ALL_BYTES => _ = search(start, end),
            Extent::All => {}
        }
    }
}
