//! The counters of an allocator instance, read from its memory.
//!
//! At the end of `Allctr_t` (`erts/emulator/beam/erl_alloc_util.h`), all words of 64 bits:
//!
//! ```text
//! calls  alloc, free, realloc, mseg_alloc, mseg_dealloc, mseg_realloc, sys_alloc, sys_free,
//!        sys_realloc
//! sbcs   carriers from mseg {number, bytes}, from sys_alloc {…}, since OTP 23 one more {…} that
//!        stays zero, most {…}, most ever {…}; for each of n kinds of blocks: now {number, bytes},
//!        most {…}, most ever {…}
//! mbcs   the same
//! ```
//!
//! Before them are a mutex, lists and functions, whose sizes differ between versions; n is 1 up to
//! OTP 22, and the number of allocators since OTP 23. So the offset is searched: it is where these
//! numbers are consistent in all instances at once. The carriers that were made minus those that
//! were freed are the existing ones, except for the few in the pool.

use crate::memory::Memory;

use super::instances::Instance;

/// Bytes of an instance that are searched.
const WITHIN: usize = 8 << 10;
/// Limit of the kinds of blocks: OTP 27 has eleven allocators.
const KINDS_MAX: usize = 16;
/// Words before the kinds of blocks, of which the last four are the maxima.
const HEADS: [usize; 2] = [8, 10];
const CALLS: usize = 9;
/// Instances that must agree: by chance, one word in many has any small number.
const AGREE: usize = 3;

/// Their offsets in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountersLayout {
    sbcs: usize,
    head: usize,
    kinds: usize,
}

/// The counters of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Carriers that were made, from mmap or malloc.
    pub(super) made: u64,
    /// Carriers that were freed.
    pub(super) freed: u64,
    /// Carriers that were resized.
    pub(super) resized: u64,
    pub(super) sbcs: Numbers,
    pub(super) mbcs: Numbers,
}

/// Carriers of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) carriers: u64,
    pub(super) carriers_bytes: u64,
    pub(super) blocks: u64,
    pub(super) blocks_bytes: u64,
}

impl CountersLayout {
    /// Zeros if it cannot be read any more.
    pub(super) fn read(self, memory: &(impl Memory + ?Sized), address: u64) -> Counters {
        self.of(&words(memory, address)).unwrap_or_default()
    }

    fn of(self, words: &[u64]) -> Option<Counters> {
        let calls: &[u64; CALLS] = words.get(self.sbcs.checked_sub(CALLS)?..)?.first_chunk()?;
        let [_, _, _, mseg_alloc, mseg_dealloc, mseg_realloc, sys_alloc, sys_free, sys_realloc] = *calls;
        let sbcs = self.numbers(words, self.sbcs)?;
        Some(Counters {
            made: mseg_alloc.checked_add(sys_alloc)?,
            freed: mseg_dealloc.checked_add(sys_free)?,
            resized: mseg_realloc.checked_add(sys_realloc)?,
            // The VM has no counter for these blocks, since each carrier has one.
            sbcs: Numbers { blocks: sbcs.carriers, ..sbcs },
            mbcs: self.numbers(words, self.sbcs + self.head + 6 * self.kinds)?,
        })
    }

    fn numbers(self, words: &[u64], at: usize) -> Option<Numbers> {
        let (head, kinds) = words.get(at..at + self.head + 6 * self.kinds)?.split_at(self.head);
        let (from, most) = head.split_at(self.head - 4);
        let (mut carriers, mut carriers_bytes) = (0_u64, 0_u64);
        for pair in from.chunks_exact(2) {
            // A carrier has at least a page, and none is larger than all memory.
            if (pair[0] == 0) != (pair[1] == 0) || pair[1] / 4096 < pair[0] || pair[1] >= 1 << 47 {
                return None;
            }
            carriers += pair[0];
            carriers_bytes += pair[1];
        }
        let (mut blocks, mut blocks_bytes) = (0_u64, 0_u64);
        for kind in kinds.chunks_exact(6) {
            blocks = blocks.checked_add(kind[0])?;
            blocks_bytes = blocks_bytes.checked_add(kind[1])?;
        }
        // A maximum is never below the current value.
        (most[0] >= carriers && most[1] >= carriers_bytes && blocks_bytes <= carriers_bytes)
            .then_some(Numbers { carriers, carriers_bytes, blocks, blocks_bytes })
    }
}

fn words(memory: &(impl Memory + ?Sized), address: u64) -> Vec<u64> {
    let mut bytes = vec![0; WITHIN];
    let read = memory.read(address, &mut bytes);
    bytes[..read].as_chunks::<8>().0.iter().map(|eight| u64::from_le_bytes(*eight)).collect()
}

/// The layout that most instances agree on. `behind` is a lower bound of the offset in bytes.
pub(super) fn find(
    memory: &(impl Memory + ?Sized),
    instances: &[Instance],
    behind: usize,
) -> Option<CountersLayout> {
    // Busy instances change during the read, but the others suffice.
    let all: Vec<Vec<u64>> =
        instances.iter().take(256).map(|instance| words(memory, instance.address)).collect();
    let mut best: Option<(usize, CountersLayout)> = None;
    for sbcs in behind / 8 + CALLS..WITHIN / 8 {
        for (head, kinds) in
            HEADS.into_iter().flat_map(|head| (1..=KINDS_MAX).map(move |kinds| (head, kinds)))
        {
            let layout = CountersLayout { sbcs, head, kinds };
            let Some(agree) = agreeing(layout, &all).filter(|agree| *agree >= AGREE) else { continue };
            match best {
                Some((most, _)) if most >= agree => {}
                _ => best = Some((agree, layout)),
            }
        }
    }
    best.map(|(_, layout)| layout)
}

/// Number of instances whose carriers add up; `None` if the numbers of too many make no sense.
fn agreeing(layout: CountersLayout, all: &[Vec<u64>]) -> Option<usize> {
    let mut agree = 0;
    let mut strange = 0;
    for words in all {
        let Some(counters) = layout.of(words) else {
            // Torn during the read.
            strange += 1;
            if strange > all.len() / 8 {
                return None;
            }
            continue;
        };
        let there = counters.sbcs.carriers + counters.mbcs.carriers;
        let is_used = there > 0 && counters.mbcs.blocks > 0;
        agree += usize::from(is_used && counters.made.checked_sub(counters.freed) == Some(there));
    }
    Some(agree)
}
