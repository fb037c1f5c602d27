//! The C heap of a process: what `malloc` handed out and what it keeps.
//!
//! `detect` finds the allocator by the mapped files of a process, and the addresses of its state;
//! `walk_heap` continues from there. glibc since 2.17 is walked chunk by chunk, in 64-bit programs;
//! other allocators are only named.
//!
//! The process is not stopped, so the heap may change during the walk: see `walk` for how that is
//! handled, and [`Doubts`] for what remains.

mod arenas;
pub(crate) mod detect;
pub(crate) mod fragmentation;
mod layout;
mod lists;
mod mmapped;
mod regions;
mod resident;
mod result;
mod sizes;
mod stream;
mod tcache;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::HashMap;
use std::time::Instant;

pub use detect::{Detection, find};
pub use fragmentation::Fragmentation;
pub use layout::{Glibc, Parameters};
pub use result::{
    Allocator, Arena, CHeap, Count, DetectedAllocator, Doubts, Free, OtherSizes, Sample, SizeClass,
};

use crate::memory::budget::CALL;
use crate::memory::{Memory, Word};
use lists::{Chunks, Lists};
use regions::Regions;
use sizes::Sizes;
use walk::{TRIES_MAX, Walked};

/// Heaps that appeared during the walk are walked too, at most this often.
const ROUNDS_MAX: usize = 4;

/// What to read of the heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Sizes that are listed.
    pub sizes_max: usize,
    /// Samples for each of the sizes with the most bytes. They have contents of the process'
    /// memory. None by default.
    pub samples: usize,
    /// Number of sizes with samples.
    pub sampled_sizes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { sizes_max: 4096, samples: 0, sampled_sizes: 32 }
    }
}

/// Walks a detected heap.
pub fn walk_heap<M: Memory + ?Sized>(memory: &M, detection: &Detection, options: &Options) -> CHeap {
    let begun = Instant::now();
    let mut heap = CHeap {
        allocator: detection.allocator,
        version: detection.version.clone(),
        others: detection.others.clone(),
        ..CHeap::default()
    };
    match &detection.glibc {
        _ if memory.word() == Word::Four => {
            heap.why_not = Some("it is a 32-bit program, whose heap has another layout".to_owned());
        }
        None => heap.why_not = Some(detection.why_not()),
        Some(glibc) => walk_all(memory, glibc, options, &mut heap),
    }
    heap.is_stopped = !memory.should_continue(0);
    heap.took_us = begun.elapsed().as_micros() as u64;
    heap
}

fn walk_all<M: Memory + ?Sized>(memory: &M, glibc: &Glibc, options: &Options, heap: &mut CHeap) {
    let mut doubts = Doubts::default();
    let mut all: Vec<Arena> = Vec::new();
    let mut indices: HashMap<u64, usize> = HashMap::new();
    let mut regions = Regions::default();
    let mut sizes = Sizes::new(options);
    let mut caches = Vec::new();
    let mut tries = TRIES_MAX;
    for round in 0..ROUNDS_MAX {
        // Lost heaps are counted in the first round only.
        let lost: Vec<u64> = all.iter().map(|arena| arena.doubts.lost_heaps).collect();
        let mut again = Doubts::default();
        let states = arenas::list(memory, glibc, if round == 0 { &mut doubts } else { &mut again });
        for state in &states {
            let index = *indices.entry(state.address).or_insert_with(|| {
                all.push(arenas::arena(state, glibc));
                all.len() - 1
            });
            let Some(arena) = all.get_mut(index) else { continue };
            arenas::add_regions(memory, glibc, state, index, arena, &mut regions);
        }
        for (arena, lost) in all.iter_mut().zip(lost) {
            arena.doubts.lost_heaps = lost;
        }
        let mut is_new = false;
        for region in regions.all.iter_mut().filter(|region| !region.is_walked) {
            let Some(arena) = all.get_mut(region.arena) else { continue };
            is_new = true;
            let top_at = glibc.top_at(arena.address);
            let walked = Walked { arena, sizes: &mut sizes, caches: &mut caches, tries: &mut tries };
            walk::walk(memory, region, top_at, walked);
        }
        if !is_new || !memory.should_continue(0) {
            break;
        }
    }
    let mut lists = Lists::new();
    let mut chunks = Chunks::new(memory, &regions);
    for at in caches.into_iter().take_while(|_| memory.should_continue(CALL)) {
        tcache::follow(&mut chunks, at, &mut lists);
    }
    for (i, arena) in all.iter_mut().enumerate() {
        // The lists as they are after the walk.
        let Some(now) = glibc.state(memory, arena.address) else { continue };
        (arena.system_bytes, arena.system_bytes_max) = (now.system_bytes, now.system_bytes_max);
        for (size, first) in now.fastbins {
            lists.fastbin(&mut chunks, i, first, size);
        }
        lists.unsorted(&mut chunks, i, glibc.unsorted(arena.address));
    }
    let cached = lists.apply(&mut all, &mut sizes, &mut doubts);
    let account = glibc.parameters.as_ref().and_then(|parameters| {
        let chunks = u64::from(memory.u32(parameters.n_mmaps)?);
        Some(Count { chunks, bytes: memory.u64(parameters.mmapped_mem)? })
    });
    let mmapped = mmapped::find(memory, &regions, account, &mut sizes);
    for arena in &mut all {
        let free = arena.free.all().bytes;
        let below = free.saturating_add(arena.in_use.bytes);
        arena.fragmentation = (below > 0).then(|| free as f64 / below as f64);
        arena.doubts.unseen_bytes = arena.system_bytes.saturating_sub(arena.seen_bytes());
        doubts.plus(&arena.doubts);
    }
    (heap.sizes, heap.other_sizes) = sizes.list(memory, &regions, &cached, options);
    heap.arenas = all;
    heap.mmapped = mmapped.count;
    heap.mmapped_resident_bytes = mmapped.resident_bytes;
    heap.mmapped_by_its_account = account;
    heap.doubts = doubts;
}
