//! Finds the arenas.
//!
//! `arenas` is a static variable (a member of the interpreter's state since 3.12) without a symbol
//! in a stripped program. It is found by its target: an array of arena objects, of which each one
//! in use has plausible numbers, and whose pools have the index of their arena. A coincidence is
//! practically impossible, so no symbol is needed. This works for a library, for a program with an
//! embedded Python, and for every version.
//!
//! If that fails (the variable is swapped out), pools are detected in anonymous memory by their
//! headers.

use mitra_parse::maps::Mapping;

use crate::memory::budget::CALL;
use crate::memory::{Memory, PAGE, Word};

use super::pool::{HEADER, Header};

/// Bytes of an arena object.
const OBJECT: usize = 48;
/// Initial number of arena objects; CPython doubles it (`INITIAL_ARENA_OBJECTS`).
const OBJECTS_MIN: usize = 16;
/// More arenas than fit into a terabyte.
const OBJECTS_MAX: usize = 1 << 20;
/// Limit of the searched bytes of a mapping with variables: more than a radix tree of 256 KiB.
const VARIABLES_MAX: u64 = 16 << 20;
/// Limit of the searched bytes of variables in total.
const VARIABLES_TOTAL_MAX: u64 = 256 << 20;
/// Bytes that are read at once.
const CHUNK: u64 = 64 << 10;
/// Arenas whose first pool is checked before a pointer is accepted.
const TRIED: usize = 32;
/// Limit of the pages that are searched for pools, one by one: 32 GiB.
const PAGES_MAX: u64 = 8 << 20;
/// Fewer pools may be a coincidence.
const POOLS_MIN: u64 = 4;
/// Upper bound for addresses of programs, with five levels of page tables too.
const ADDRESS_MAX: u64 = 1 << 56;
/// The possible sizes of arena and pool.
const SIZES: [(u64, u64); 3] = [(256 << 10, 4 << 10), (1 << 20, 16 << 10), (1 << 20, 4 << 10)];

/// An arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arena {
    /// Its start.
    pub address: u64,
    /// Its index in the array.
    pub index: u32,
    /// The end of the pools that were cut so far.
    pub pools_end: u64,
    /// Pools without a block in use.
    pub pools_free: u32,
}

/// All arenas, in the order of their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arenas {
    /// The arenas.
    pub arenas: Vec<Arena>,
    /// Bytes of each.
    pub arena_bytes: u64,
    /// Bytes of a pool.
    pub pool_bytes: u64,
    /// Whether they were detected by their pools.
    pub is_estimate: bool,
}

impl Arena {
    /// The addresses of the pools that were cut so far.
    pub(super) fn pools(&self, pool_bytes: u64) -> impl Iterator<Item = u64> + use<> {
        let first = self.address.next_multiple_of(pool_bytes);
        (first..self.pools_end).step_by(pool_bytes as usize)
    }
}

impl Arenas {
    /// Whether an address is in one of them.
    #[must_use]
    pub fn has(&self, address: u64) -> bool {
        let at = self.arenas.partition_point(|arena| arena.address <= address);
        let arena = at.checked_sub(1).and_then(|at| self.arenas.get(at));
        arena.is_some_and(|arena| address - arena.address < self.arena_bytes)
    }

    /// Groups of adjacent arenas, no group larger than a gigabyte.
    pub(super) fn adjacent(&self) -> impl Iterator<Item = &[Arena]> {
        let bytes = self.arena_bytes;
        self.arenas
            .chunk_by(move |one, next| one.address.saturating_add(bytes) == next.address)
            .flat_map(|group| group.chunks(1024))
    }
}

/// The arenas of a process; `None` if there are none, or they cannot be found.
#[must_use]
pub fn find(memory: &(impl Memory + ?Sized)) -> Option<Arenas> {
    // A 32-bit interpreter has other structures.
    if memory.word() != Word::Eight {
        return None;
    }
    from_variables(memory).or_else(|| from_pools(memory))
}

/// The address ranges of variables of programs and libraries, Python's first.
fn variables(mappings: &[Mapping]) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let program = mappings.first().map_or("", |mapping| &mapping.path);
    let mut of_file: Option<(u64, bool)> = None;
    for mapping in mappings {
        let is_file = mapping.path.starts_with('/') && !mapping.access.shared;
        // The `.bss` is behind the file's data, in a mapping without a name.
        let follows = mapping.path.is_empty() && of_file.is_some_and(|(end, _)| end == mapping.start);
        if !mapping.access.write || !(is_file || follows) {
            of_file = None;
            continue;
        }
        let is_pythons = match of_file.filter(|_| follows) {
            Some((_, is_pythons)) => is_pythons,
            None => mapping.path == program || mapping.module().contains("python"),
        };
        of_file = is_file.then_some((mapping.end, is_pythons));
        let end = mapping.end.min(mapping.start.saturating_add(VARIABLES_MAX));
        found.push((!is_pythons, mapping.start, end));
    }
    found.sort_by_key(|(is_others, start, _)| (*is_others, *start));
    found.into_iter().map(|(_, start, end)| (start, end)).collect()
}

fn from_variables(memory: &(impl Memory + ?Sized)) -> Option<Arenas> {
    let mut left = VARIABLES_TOTAL_MAX;
    let mut found = None;
    let mut bytes = vec![0; CHUNK as usize];
    for (start, end) in variables(memory.mappings()) {
        memory.resident(start, end, &mut |from, to| {
            let mut at = from;
            while at < to && left > 0 && found.is_none() && memory.should_continue(CHUNK / 8) {
                let wanted = CHUNK.min(to - at) as usize;
                let read = memory.read(at, &mut bytes[..wanted]);
                left = left.saturating_sub(wanted as u64);
                let words = bytes[..read].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
                found = words.filter(|word| is_pointer(memory, *word)).find_map(|word| array(memory, word));
                at += wanted as u64;
            }
            left > 0 && found.is_none() && memory.should_continue(0)
        });
        if found.is_some() || left == 0 {
            break;
        }
    }
    found
}

/// Whether it may point to memory from malloc.
fn is_pointer(memory: &(impl Memory + ?Sized), word: u64) -> bool {
    let may = |mapping: &Mapping| mapping.access.write && !mapping.path.starts_with('/');
    word.is_multiple_of(16) && word >= 4096 && memory.mapping(word).is_some_and(may)
}

/// The raw fields of an arena object.
struct Object {
    address: u64,
    pools_end: u64,
    pools_free: u32,
    next: u64,
}

impl Object {
    /// `None` if the values are not those of an object of the array that begins at `base`.
    fn parse(bytes: &[u8; OBJECT], base: u64) -> Option<Self> {
        let words = bytes.as_chunks::<8>().0;
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let (pools_free, pools) = (word(2) as u32, (word(2) >> 32) as u32);
        let object = Self { address: word(0), pools_end: word(1), pools_free, next: word(4) };
        let is_sound = if object.address == 0 {
            let distance = object.next.wrapping_sub(base);
            object.next == 0
                || (distance < (OBJECTS_MAX * OBJECT) as u64 && distance.is_multiple_of(OBJECT as u64))
        } else {
            // An arena that is not aligned to its size has one pool less.
            let is_count = SIZES.iter().any(|(arena, pool)| {
                let fit = (arena / pool) as u32;
                (pools == fit || pools == fit - 1) && object.pools_end.wrapping_sub(object.address) <= *arena
            });
            let is_address = object.address.is_multiple_of(PAGE) && object.address < ADDRESS_MAX;
            is_count && is_address && pools_free <= pools
        };
        is_sound.then_some(object)
    }
}

/// The arenas of the array that begins at `base`, if it is one.
fn array(memory: &(impl Memory + ?Sized), base: u64) -> Option<Arenas> {
    let mut objects = half(memory, base, 0, OBJECTS_MIN)?;
    let mut slots = OBJECTS_MIN;
    let (arena_bytes, pool_bytes) = sizes(memory, &objects)?;
    // CPython doubles the array if it is full, and its length is unknown here. So the walk
    // continues as long as the following memory looks like more of the array.
    while slots < OBJECTS_MAX
        && let Some(more) = half(memory, base, slots, slots)
        && (more.is_empty() || sizes(memory, &more) == Some((arena_bytes, pool_bytes)))
    {
        objects.extend(more);
        slots *= 2;
    }
    let mut arenas: Vec<Arena> = Vec::new();
    for (index, object) in objects {
        let pools_end = object.pools_end.min(object.address.saturating_add(arena_bytes));
        arenas.push(Arena { address: object.address, index, pools_end, pools_free: object.pools_free });
    }
    arenas.sort_by_key(|arena| arena.address);
    // Only a torn read shows overlapping arenas.
    arenas.dedup_by(|next, one| next.address < one.address.saturating_add(arena_bytes));
    Some(Arenas { arenas, arena_bytes, pool_bytes, is_estimate: false })
}

/// The objects in use of `from..from + count` of the array, with their indices; `None` if one is
/// invalid.
fn half(memory: &(impl Memory + ?Sized), base: u64, from: usize, count: usize) -> Option<Vec<(u32, Object)>> {
    let mut found = Vec::new();
    let mut bytes = vec![0; OBJECT * count.min(1024)];
    // The list of objects without an arena has one end. A second one may be visible while one is
    // taken.
    let mut ends = 0;
    let mut done = 0;
    while done < count {
        let now = (count - done).min(1024);
        let start = base.checked_add(((from + done) * OBJECT) as u64)?;
        memory.exact(start, &mut bytes[..now * OBJECT])?;
        for (i, bytes) in bytes[..now * OBJECT].as_chunks::<OBJECT>().0.iter().enumerate() {
            let object = Object::parse(bytes, base)?;
            if object.address != 0 {
                found.push(((from + done + i) as u32, object));
            } else if object.next == 0 {
                ends += 1;
            }
        }
        if ends > 2 {
            return None;
        }
        done += now;
    }
    Some(found)
}

/// The sizes of arenas and pools; `None` if these are not arenas. The first pool of an arena tells,
/// because it contains the index of the arena.
fn sizes(memory: &(impl Memory + ?Sized), objects: &[(u32, Object)]) -> Option<(u64, u64)> {
    for (arena_bytes, pool_bytes) in SIZES {
        let (mut tried, mut sound) = (0, 0);
        for (index, object) in objects.iter().take(TRIED) {
            let pool = object.address.checked_next_multiple_of(pool_bytes)?;
            if pool >= object.pools_end {
                continue;
            }
            tried += 1;
            let header = Header::read(memory, pool, pool_bytes);
            sound += usize::from(header.is_some_and(|header| header.arena == *index));
        }
        // Some pools may be in swap, or just changing.
        if sound > 0 && 2 * sound > tried {
            return Some((arena_bytes, pool_bytes));
        }
    }
    None
}

/// Groups pools that are detected in anonymous memory into arenas: pools of one index within the
/// size of an arena.
fn from_pools(memory: &(impl Memory + ?Sized)) -> Option<Arenas> {
    let mut found = SIZES.map(|(arena_bytes, pool_bytes)| {
        (0_u64, Arenas { arenas: Vec::new(), arena_bytes, pool_bytes, is_estimate: true })
    });
    let mut pages_left = PAGES_MAX;
    let mut bytes = [0; HEADER];
    for mapping in memory.mappings() {
        if !mapping.access.write || !mapping.path.is_empty() {
            continue;
        }
        memory.resident(mapping.start, mapping.end, &mut |from, to| {
            let mut page = from.div_ceil(PAGE).saturating_mul(PAGE);
            while page < to && pages_left > 0 && memory.should_continue(CALL) {
                pages_left -= 1;
                if memory.exact(page, &mut bytes).is_some() {
                    for (pools, arenas) in &mut found {
                        *pools += u64::from(arenas.add(&bytes, page));
                    }
                }
                page = page.saturating_add(PAGE);
            }
            pages_left > 0 && memory.should_continue(0)
        });
    }
    // With a wrong pool size `maxnextoffset` does not match and pools look invalid, so the size
    // with the most pools is right; of two equal ones, the first.
    let most = found.into_iter().rev().max_by_key(|(pools, _)| *pools)?;
    (most.0 >= POOLS_MIN).then_some(most.1)
}

impl Arenas {
    /// Adds a page as a pool; `false` if it is not one.
    fn add(&mut self, bytes: &[u8; HEADER], page: u64) -> bool {
        if !page.is_multiple_of(self.pool_bytes) || page >= ADDRESS_MAX {
            return false;
        }
        let Some(header) = Header::parse(bytes, page, self.pool_bytes) else { return false };
        let pools_end = page + self.pool_bytes;
        let has_room = self.arenas.len() < OBJECTS_MAX;
        match self.arenas.last_mut() {
            Some(arena) if arena.index == header.arena && pools_end - arena.address <= self.arena_bytes => {
                arena.pools_end = pools_end;
            }
            _ if has_room => {
                self.arenas.push(Arena { address: page, index: header.arena, pools_end, pools_free: 0 });
            }
            _ => return false,
        }
        true
    }
}
