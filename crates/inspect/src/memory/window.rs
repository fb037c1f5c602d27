//! A cache of blocks, for whoever follows pointers: a system call for each would take longer than all the rest.

use std::cell::RefCell;

use super::{Memory, Word};
use crate::maps::Mapping;

/// Bytes of a block.
const BLOCK: usize = 16 << 10;
/// Blocks that are kept: 16 MiB.
const SLOTS: usize = 1024;
/// No block.
const NONE: u64 = u64::MAX;

/// Memory through a cache. What it says may be as old as the cache; make one per look.
pub struct Window<'a, M: Memory + ?Sized> {
    under: &'a M,
    cache: RefCell<Cache>,
}

struct Cache {
    /// Of each slot: which block it holds, and how many bytes of it from the front there are.
    blocks: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl<'a, M: Memory + ?Sized> Window<'a, M> {
    /// An empty one.
    pub fn new(under: &'a M) -> Self {
        let cache = Cache { blocks: vec![(NONE, 0); SLOTS], bytes: vec![0; BLOCK * SLOTS] };
        Self { under, cache: RefCell::new(cache) }
    }

    /// Forgets what was read, so that the next read sees the memory as it is then.
    pub fn forget(&self) {
        self.cache.borrow_mut().blocks.fill((NONE, 0));
    }
}

impl Cache {
    /// Copies from one block, and says how much.
    fn copy<M: Memory + ?Sized>(&mut self, under: &M, address: u64, into: &mut [u8]) -> usize {
        let number = address / BLOCK as u64;
        let offset = (address % BLOCK as u64) as usize;
        // Neighbouring blocks lie in neighbouring slots; regions that are a power of two apart do not share theirs.
        let slot = ((number ^ (number >> 10) ^ (number >> 20)) % SLOTS as u64) as usize;
        let bytes = &mut self.bytes[slot * BLOCK..][..BLOCK];
        if self.blocks[slot].0 != number {
            let start = number * BLOCK as u64;
            let mut read = under.read(start, bytes);
            if read <= offset {
                // A mapping may begin, or a hole end, within the block: such a block is not kept.
                self.blocks[slot] = (NONE, 0);
                let wanted = into.len().min(BLOCK - offset);
                return under.read(address, &mut into[..wanted]);
            }
            read = read.min(BLOCK);
            self.blocks[slot] = (number, read);
        }
        let known = self.blocks[slot].1;
        if known <= offset {
            let wanted = into.len().min(BLOCK - offset);
            return under.read(address, &mut into[..wanted]);
        }
        let count = into.len().min(known - offset);
        into[..count].copy_from_slice(&bytes[offset..offset + count]);
        count
    }
}

impl<M: Memory + ?Sized> Memory for Window<'_, M> {
    fn mappings(&self) -> &[Mapping] {
        self.under.mappings()
    }

    fn word(&self) -> Word {
        self.under.word()
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut cache = self.cache.borrow_mut();
        let mut done = 0;
        while done < into.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let read = cache.copy(self.under, at, &mut into[done..]);
            if read == 0 {
                break;
            }
            done += read;
        }
        done
    }

    fn resident(&self, start: u64, end: u64, take: &mut dyn FnMut(u64, u64) -> bool) {
        self.under.resident(start, end, take);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Image;
    use super::*;

    #[test]
    fn what_is_cached_is_what_is_there() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i * 31 % 251) as u8).collect();
        // It begins and ends within a block.
        let start = 3 * BLOCK as u64 + 4096;
        let mut image = Image::new(Word::Eight);
        image.add(start, &bytes, "");
        let window = Window::new(&image);
        for (offset, len) in [(0, 10), (5, 40_000), (16_380, 8), (99_990, 10), (12_288, 1), (0, 100_000)] {
            for _ in 0..2 {
                let mut read = vec![0; len];
                assert_eq!(window.read(start + offset as u64, &mut read), len);
                assert_eq!(read, &bytes[offset..offset + len]);
            }
        }
        let mut read = [0; 20];
        assert_eq!(window.read(start + 99_990, &mut read), 10, "cut off at the end");
        assert_eq!(window.read(start - 1, &mut read), 0, "nothing before the beginning");
        assert_eq!(window.read(u64::MAX - 3, &mut read), 0);
    }
}
