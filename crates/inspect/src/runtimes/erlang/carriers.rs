//! The carriers of Erlang's allocators, read from the VM's memory.
//!
//! Each allocator has an instance for each scheduler (`Allctr_t`), which links its carriers: those
//! that many blocks share (mbcs) and those with a single block (sbcs).
//! `erts/emulator/beam/erl_alloc_util.{h,c}`, 64 bits, as in OTP 19 and in OTP 25 (the latter
//! tested):
//!
//! ```text
//! Carrier_t  0  chdr      size, a multiple of the page; bit 0: from mseg_alloc (mmap),
//!                         bit 1: single block
//!            8  next      in the list of its kind; zero in the last
//!           16  prev      zero in the first
//!           24  allctr    the instance; bit 0: in the pool, from which any instance may take it;
//!                         bit 1: just being taken
//!           32  bhdr      of a single block (40 if units have 16 bytes): its size with the
//!                         lowest three bits set
//! Allctr_t   p  name      -> "eheap_" and the like; p is 120, behind the queue of blocks freed
//!                         by others
//!          p+8  number, (strategy,) index: i32 each, then three atoms
//!            v  version   -> "3.0"; v is p+40, or p+48 with a strategy (newer)
//!          v+8  type, ramv, (atags:) i32 each
//!            o  sbct, 5 others, lmbcs, smbcs, growth stages: words; o is v+16, or v+24 with
//!                         atags (newer)
//!            l  mbc_list, sbc_list: first and last carrier of each
//! ```
//!
//! Shared carriers from mseg_alloc begin at multiples of 256 KiB, and are consecutive within a
//! mapping. Their `allctr` leads to the instances, which are identified by their names. The fields
//! in between (`mseg_opt`, sizes) differ between versions, so `l` is unknown at first: it is the
//! offset of the first and the last carrier of a list that was walked. A sample is then a walk
//! along the lists, with a read for each carrier.

use std::collections::{BTreeMap, BTreeSet};

use super::instances::{Finder, Instance, word_at};
use crate::memory::budget::CALL;
use crate::memory::{Memory, PAGE, Word};

/// Limit of the carriers per sample. A VM of 100 GB in carriers of half a megabyte has 200,000, and
/// each takes a read.
pub(super) const CARRIERS_MAX: usize = 1 << 17;
/// Bytes of an instance that are searched for its name, lists and counters: OTP 25 has 4,544.
const INSTANCE_BYTES: usize = 8 << 10;
/// Offsets of the single block's header, behind the carrier's.
const BLOCK_AT: [usize; 2] = [32, 40];
const HEADER: usize = 48;

/// A carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carrier {
    pub(super) bytes: u64,
    pub(super) is_single: bool,
    next: u64,
    prev: u64,
    pub(super) allctr: u64,
    /// Whether it is neither in the pool nor just being taken from it.
    pub(super) is_owned: bool,
    /// The size of its single block.
    block: Option<u64>,
}

/// The addresses of the instances, and the layout of their lists.
#[derive(Debug, Clone)]
pub(super) struct Vm {
    pub(super) instances: Vec<Instance>,
    /// Offset of the two lists in an instance.
    lists: usize,
    /// The layout of the counters, if it was found.
    counters: Option<super::counters::CountersLayout>,
}

/// A sample of one instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InstanceCarriers {
    pub(super) mbcs: u64,
    pub(super) mbcs_bytes: u64,
    pub(super) sbcs: u64,
    pub(super) sbcs_bytes: u64,
    /// Address of the carrier and size of the block, for each single-block carrier.
    pub(super) blocks: Vec<(u64, u64)>,
}

/// One pass along all lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CarrierSample {
    /// As many as there are instances.
    pub(super) lists: Vec<InstanceCarriers>,
    /// Lists that changed during the walk, so that their end was not reached.
    pub(super) torn: u64,
}

impl Vm {
    /// Finds the instances of a VM. `None` if there are none, or their layout is not known.
    pub(super) fn find(memory: &(impl Memory + ?Sized)) -> Option<Vm> {
        if memory.word() != Word::Eight {
            return None;
        }
        let mut finder = Finder::find(memory);
        let shared = std::mem::take(&mut finder.shared);
        let instances = finder.instances();
        let lists = lists_at(memory, &shared)?;
        let counters = super::counters::find(memory, &instances, lists + 32);
        Some(Vm { instances, lists, counters })
    }

    /// Walks along the lists of all instances.
    pub(super) fn sample(&self, memory: &(impl Memory + ?Sized)) -> CarrierSample {
        let mut sample = CarrierSample::default();
        let mut left = CARRIERS_MAX;
        for instance in &self.instances {
            let mut lists = InstanceCarriers::default();
            for (is_single, at) in [(false, self.lists), (true, self.lists + 16)] {
                let first = memory.u64(instance.address.wrapping_add(at as u64));
                let mut address = first.unwrap_or(0);
                let mut before = 0;
                while address != 0 && memory.should_continue(CALL) {
                    let carrier = carrier(memory, address).filter(|carrier| {
                        carrier.allctr == instance.address
                            && carrier.is_single == is_single
                            && carrier.prev == before
                    });
                    let Some(carrier) = carrier.filter(|_| left > 0) else {
                        sample.torn += 1;
                        break;
                    };
                    left -= 1;
                    lists.add(address, &carrier);
                    before = address;
                    address = carrier.next;
                }
            }
            sample.lists.push(lists);
        }
        sample
    }

    /// The counters of the instances, if their layout was found.
    pub(super) fn counters(&self, memory: &(impl Memory + ?Sized)) -> Option<Vec<super::counters::Counters>> {
        let layout = self.counters?;
        Some(self.instances.iter().map(|instance| layout.read(memory, instance.address)).collect())
    }
}

impl InstanceCarriers {
    fn add(&mut self, address: u64, carrier: &Carrier) {
        if !carrier.is_single {
            self.mbcs += 1;
            self.mbcs_bytes = self.mbcs_bytes.saturating_add(carrier.bytes);
            return;
        }
        self.sbcs += 1;
        self.sbcs_bytes = self.sbcs_bytes.saturating_add(carrier.bytes);
        if let Some(block) = carrier.block {
            self.blocks.push((address, block));
        }
    }
}

/// The carrier at an address, if it is plausible.
pub(super) fn carrier(memory: &(impl Memory + ?Sized), address: u64) -> Option<Carrier> {
    let mut bytes = [0; HEADER];
    memory.exact(address, &mut bytes)?;
    let word = |at: usize| bytes.get(at..)?.first_chunk::<8>().map(|eight| u64::from_le_bytes(*eight));
    let (chdr, allctr) = (word(0)?, word(24)?);
    let size = chdr & !7;
    let is_single = chdr & 2 != 0;
    let is_it = chdr & 4 == 0 && (PAGE..1 << 47).contains(&size) && allctr & !7 != 0 && allctr & 4 == 0;
    if !is_it {
        return None;
    }
    let block = is_single.then(|| {
        // The header is tagged in its highest bit.
        let header =
            |at: usize| word(at).filter(|header| header & 7 == 7).map(|header| header & !7 & !(1 << 63));
        BLOCK_AT.iter().find_map(|at| header(*at).filter(|block| *block > 0 && *block <= size - *at as u64))
    });
    if matches!(block, Some(None)) {
        return None;
    }
    Some(Carrier {
        bytes: size,
        is_single,
        next: word(8)?,
        prev: word(16)?,
        allctr: allctr & !7,
        is_owned: allctr & 7 == 0,
        block: block.flatten(),
    })
}
/// Offset of the list of shared carriers in an instance: where the first and the last carrier of a
/// walked list are adjacent.
fn lists_at(memory: &(impl Memory + ?Sized), shared: &[u64]) -> Option<usize> {
    let mut votes: BTreeMap<usize, u64> = BTreeMap::new();
    let (mut left, mut seen) = (2 * CARRIERS_MAX, BTreeSet::new());
    for address in shared {
        let Some(found) = carrier(memory, *address) else { continue };
        if !seen.insert(found.allctr) {
            continue;
        }
        let mut end = |step| end(memory, *address, &mut left, step);
        let ends = (end(|carrier| carrier.prev), end(|carrier| carrier.next));
        let (Some(first), Some(last)) = ends else { continue };
        let mut bytes = vec![0; INSTANCE_BYTES];
        let read = memory.read(found.allctr, &mut bytes);
        bytes.truncate(read);
        let at = (0..bytes.len()).step_by(8);
        for at in
            at.filter(|at| word_at(&bytes, *at) == Some(first) && word_at(&bytes, *at + 8) == Some(last))
        {
            *votes.entry(at).or_default() += 1;
        }
    }
    votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(at, _)| at)
}

/// The end of a list in one direction, if it is reached within the limit of steps.
fn end(
    memory: &(impl Memory + ?Sized),
    start: u64,
    left: &mut usize,
    step: fn(&Carrier) -> u64,
) -> Option<u64> {
    let mut address = start;
    let whose = carrier(memory, start)?.allctr;
    loop {
        *left = left.checked_sub(1)?;
        let next = step(&carrier(memory, address).filter(|carrier| carrier.allctr == whose)?);
        if next == 0 {
            return Some(address);
        }
        address = next;
    }
}

#[cfg(test)]
mod tests {
    use super::super::counters::Counters;
    use super::*;
    use crate::memory::Image;

    const TEXTS: u64 = 0x55_0000;
    const INSTANCES: u64 = 0x60_0000;
    const CARRIERS: u64 = 0x7000_0000;
    const MIB: u64 = 1 << 20;

    fn put(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Four instances as in OTP 25, each with a shared carrier and the first with two single-block
    /// ones.
    fn vm() -> Image {
        let mut image = Image::new(Word::Eight);
        let mut texts = vec![0; 4096];
        texts[..6].copy_from_slice(b"eheap_");
        texts[16..19].copy_from_slice(b"3.0");
        image.add(TEXTS, &texts, "/usr/lib/erlang/erts-13.1.5/bin/beam.smp");
        let mut instances = vec![0; 16 << 12];
        let mut carriers = vec![0; 8 << 20];
        for i in 0..4_u64 {
            let at = (i << 14) as usize;
            let (shared, single) = (CARRIERS + i * MIB / 2, CARRIERS + 2 * MIB);
            let has = i == 0;
            put(&mut instances, at + 120, TEXTS);
            put(&mut instances, at + 136, i);
            put(&mut instances, at + 168, TEXTS + 16);
            for (number, value) in
                [512 << 10, 80, 50, 0, 256, u64::MAX, 5 << 20, 512 << 10, 10].iter().enumerate()
            {
                put(&mut instances, at + 192 + 8 * number, *value);
            }
            for (number, value) in
                [shared, shared, single * u64::from(has), (single + MIB) * u64::from(has)].iter().enumerate()
            {
                put(&mut instances, at + 320 + 8 * number, *value);
            }
            // The counters are 300 words behind.
            let counts = at + 2400;
            for (number, value) in [9, 8, 7, 10 + 2 * u64::from(has), 9, 1, 0, 0, 0].iter().enumerate() {
                put(&mut instances, counts + 8 * number, *value);
            }
            let sbcs =
                [2, 2 * MIB, 0, 0, 0, 0, 5, 5 * MIB, 0, 0, 0, 1_500_000].map(|value| value * u64::from(has));
            let mbcs = [1, MIB / 2, 0, 0, 0, 0, 3, 3 * MIB, 0, 0, 40, 1000];
            for (number, value) in sbcs.iter().enumerate() {
                put(&mut instances, counts + 72 + 8 * number, *value);
            }
            for (number, value) in mbcs.iter().enumerate() {
                put(&mut instances, counts + 72 + 80 + 11 * 48 + 8 * number, *value);
            }
            let carrier = (i * MIB / 2) as usize;
            put(&mut carriers, carrier, (MIB / 2) | 1);
            put(&mut carriers, carrier + 24, INSTANCES + (i << 14));
        }
        for (i, (next, prev)) in [(CARRIERS + 3 * MIB, 0), (0, CARRIERS + 2 * MIB)].into_iter().enumerate() {
            let at = (2 + i) << 20;
            for (number, value) in [MIB | 3, next, prev, INSTANCES, 750_000 | 7].iter().enumerate() {
                put(&mut carriers, at + 8 * number, *value);
            }
        }
        image.add(INSTANCES, &instances, "[heap]");
        image.add(CARRIERS, &carriers, "");
        image
    }

    #[test]
    fn instances_and_their_carriers_are_found() {
        let image = vm();
        let vm = Vm::find(&image).unwrap();
        assert_eq!(vm.instances.len(), 4);
        let first = &vm.instances[0];
        assert_eq!((first.name.as_str(), first.index, first.sbct), ("eheap_alloc", 0, 512 << 10));
        assert_eq!((first.smbcs, first.lmbcs), (512 << 10, 5 << 20));
        let sample = vm.sample(&image);
        assert_eq!(sample.torn, 0);
        assert_eq!((sample.lists[0].sbcs, sample.lists[0].sbcs_bytes), (2, 2 * MIB));
        assert_eq!(sample.lists[0].blocks, [(CARRIERS + 2 * MIB, 750_000), (CARRIERS + 3 * MIB, 750_000)]);
        assert_eq!((sample.lists[3].mbcs, sample.lists[3].mbcs_bytes, sample.lists[3].sbcs), (1, MIB / 2, 0));
        let counters: Vec<Counters> = vm.counters(&image).unwrap();
        assert_eq!((counters[0].made, counters[0].freed, counters[0].resized), (12, 9, 1));
        assert_eq!((counters[0].sbcs.blocks_bytes, counters[3].mbcs.blocks), (1_500_000, 40));
    }

    #[test]
    fn lists_that_change_or_run_in_a_circle_come_to_an_end() {
        let mut image = vm();
        let found = Vm::find(&image).unwrap();
        image.write(CARRIERS + 3 * MIB + 8, &(CARRIERS + 2 * MIB).to_le_bytes());
        let sample = found.sample(&image);
        assert_eq!((sample.torn, sample.lists[0].sbcs), (1, 2));
        image.write(INSTANCES + 336, &12_345_678_u64.to_le_bytes());
        assert_eq!(found.sample(&image).torn, 1);
        assert!(Vm::find(&Image::new(Word::Eight)).is_none());
        assert!(Vm::find(&Image::new(Word::Four)).is_none());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let image = vm();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..200 {
            let mut image = image.clone();
            for _ in 0..40 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let places = [
                    INSTANCES + (seed >> 40) % 4096,
                    CARRIERS + ((seed >> 33) % 16) * (MIB / 2) + (seed >> 50) % 48,
                    TEXTS,
                ];
                let value = [0, u64::MAX, seed, CARRIERS + MIB, 1 << 47, 4096 | 3];
                image.write(
                    places[(seed >> 20) as usize % 3],
                    &value[(seed >> 10) as usize % 6].to_le_bytes(),
                );
            }
            if let Some(vm) = Vm::find(&image) {
                _ = vm.sample(&image);
                _ = vm.counters(&image);
            }
        }
    }
}
