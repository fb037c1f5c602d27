//! The set of visited objects: a bit for each sixteen bytes of the ranges with objects.
//!
//! Objects are at least sixteen bytes long, so no two share a bit, wherever they begin. Before 3.8,
//! and for compiled-in objects, they may begin at an odd multiple of eight: that is a second bit,
//! which only regions with such objects have. It takes 16 KiB per megabyte with objects.

use std::cell::Cell;
use std::collections::HashMap;

/// Bytes of a region, as a power of two.
const REGION_LOG2: u32 = 20;
/// Words of a bitmap.
const WORDS: usize = 1 << (REGION_LOG2 - 4 - 6);

type Bits = Box<[u64; WORDS]>;

struct Region {
    base: u64,
    seen: Bits,
    /// Visited, but not yet followed.
    pending: Bits,
    pending_count: u32,
    is_queued: bool,
    /// Objects that begin eight bytes later.
    odd: Option<Bits>,
}

/// The visited objects.
#[derive(Default)]
pub(super) struct Visited {
    regions: Vec<Region>,
    by_number: HashMap<u64, u32>,
    /// The region of the last lookup: neighbours are looked up together.
    last: Cell<Option<(u64, u32)>>,
    queue: Vec<u32>,
}

fn zeroes() -> Bits {
    Box::new([0; WORDS])
}

impl Visited {
    fn region(&mut self, address: u64) -> usize {
        if let Some(index) = self.find(address) {
            return index;
        }
        let number = address >> REGION_LOG2;
        let next = self.regions.len() as u32;
        self.by_number.insert(number, next);
        self.regions.push(Region {
            base: number << REGION_LOG2,
            seen: zeroes(),
            pending: zeroes(),
            pending_count: 0,
            is_queued: false,
            odd: None,
        });
        self.last.set(Some((number, next)));
        next as usize
    }

    fn find(&self, address: u64) -> Option<usize> {
        let number = address >> REGION_LOG2;
        if let Some((known, index)) = self.last.get()
            && known == number
        {
            return Some(index as usize);
        }
        let index = *self.by_number.get(&number)?;
        self.last.set(Some((number, index)));
        Some(index as usize)
    }

    /// Marks an object, and returns whether it is new.
    pub fn add(&mut self, address: u64) -> bool {
        let index = self.region(address);
        let region = &mut self.regions[index];
        let (word, bit) = place(address);
        if region.seen[word] & bit != 0 {
            return false;
        }
        region.seen[word] |= bit;
        if address & 8 != 0 {
            region.odd.get_or_insert_with(zeroes)[word] |= bit;
        }
        true
    }

    /// Whether it was visited.
    pub fn has(&self, address: u64) -> bool {
        let (word, bit) = place(address);
        let region = self.find(address).and_then(|index| self.regions.get(index));
        region.is_some_and(|region| region.seen[word] & bit != 0)
    }

    /// Marks an object whose references still have to be followed.
    pub fn push(&mut self, address: u64) {
        let index = self.region(address);
        let region = &mut self.regions[index];
        let (word, bit) = place(address);
        if region.pending[word] & bit == 0 {
            region.pending[word] |= bit;
            region.pending_count += 1;
            if !region.is_queued {
                region.is_queued = true;
                self.queue.push(index as u32);
            }
        }
    }

    /// Takes up to `into`'s capacity of the pending objects, neighbours together; false if there
    /// are none left.
    pub fn pop(&mut self, into: &mut Vec<u64>) -> bool {
        into.clear();
        while let Some(index) = self.queue.last().copied() {
            let region = &mut self.regions[index as usize];
            if region.pending_count == 0 {
                region.is_queued = false;
                self.queue.pop();
                continue;
            }
            for word in 0..WORDS {
                while region.pending[word] != 0 {
                    if into.len() == into.capacity() {
                        return true;
                    }
                    let bit = region.pending[word] & region.pending[word].wrapping_neg();
                    region.pending[word] ^= bit;
                    region.pending_count -= 1;
                    into.push(region.address(word, bit));
                }
            }
            return true;
        }
        false
    }

    /// Sorts the regions by address: neighbours are read together.
    pub fn sort_queue(&mut self) {
        let regions = &self.regions;
        self.queue.sort_unstable_by_key(|index| std::cmp::Reverse(regions[*index as usize].base));
    }

    /// All visited objects by address.
    pub fn for_each(&self, take: &mut dyn FnMut(u64)) {
        let mut order: Vec<usize> = (0..self.regions.len()).collect();
        order.sort_unstable_by_key(|index| self.regions[*index].base);
        for index in order {
            let region = &self.regions[index];
            for word in 0..WORDS {
                let mut left = region.seen[word];
                while left != 0 {
                    let bit = left & left.wrapping_neg();
                    left ^= bit;
                    take(region.address(word, bit));
                }
            }
        }
    }
}

impl Region {
    fn address(&self, word: usize, bit: u64) -> u64 {
        let is_odd = self.odd.as_ref().is_some_and(|odd| odd[word] & bit != 0);
        self.base + 16 * (64 * word as u64 + u64::from(bit.trailing_zeros())) + 8 * u64::from(is_odd)
    }
}

fn place(address: u64) -> (usize, u64) {
    let index = (address & ((1 << REGION_LOG2) - 1)) >> 4;
    ((index / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_in_order_and_once() {
        let mut visited = Visited::default();
        let addresses =
            [0x7f00_0000_1008, 0x7f00_0000_1020, 0x5500_0000_0000, 0x7f00_000f_fff0, u64::MAX - 15];
        for address in addresses {
            assert!(visited.add(address) && !visited.add(address), "{address:x}");
            visited.push(address);
        }
        let mut all = Vec::new();
        visited.for_each(&mut |address| all.push(address));
        let mut sorted = addresses.to_vec();
        sorted.sort_unstable();
        assert_eq!(all, sorted);
        assert!(visited.has(0x7f00_0000_1020) && !visited.has(0x7f00_0000_1030) && !visited.has(0));
        let mut some = Vec::with_capacity(2);
        let mut popped = Vec::new();
        visited.sort_queue();
        while visited.pop(&mut some) {
            popped.extend_from_slice(&some);
        }
        assert_eq!(popped, sorted);
    }
}
