//! Memory of which only resident pages are read, through a cache: following pointers must neither
//! pull a heap from swap, nor make a system call each time.
//!
//! Files are always read: their pages are mostly in the page cache, and only few matter (names of
//! types).

use std::cell::{Cell, RefCell};
use std::ops::Range;

use mitra_parse::maps::Mapping;

use crate::memory::{Memory, PAGE, Word};

/// Bytes that one query for new pages covers.
const STEP: u64 = 64 * PAGE;
/// Pages of a block of the cache.
const PAGES: usize = 4;
const BLOCK: usize = PAGES * PAGE as usize;
/// Number of cached blocks: 16 MiB.
const SLOTS: usize = 1024;
const NONE: u64 = u64::MAX;

/// Memory, with its resident ranges.
pub(super) struct ResidentMemory<'m, M: Memory + ?Sized> {
    under: &'m M,
    /// Resident ranges, in order, none overlapping.
    stretches: RefCell<Vec<(u64, u64)>>,
    cache: RefCell<Cache>,
    /// A range that may be read although it was not mapped at first.
    admitted: Cell<(u64, u64)>,
}

struct Cache {
    /// For each slot: its block, and a mask of its pages that were read completely.
    blocks: Vec<(u64, u8)>,
    bytes: Vec<u8>,
}

impl<'m, M: Memory + ?Sized> ResidentMemory<'m, M> {
    /// Queries all pages once.
    pub fn new(under: &'m M) -> Self {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for mapping in under.mappings().iter().filter(|mapping| is_anonymous(mapping)) {
            under.resident(mapping.start, mapping.end, &mut |from, to| {
                match stretches.last_mut() {
                    Some(last) if last.1 == from => last.1 = to,
                    _ => stretches.push((from, to)),
                }
                true
            });
        }
        let cache = Cache { blocks: vec![(NONE, 0); SLOTS], bytes: vec![0; BLOCK * SLOTS] };
        let (stretches, cache) = (RefCell::new(stretches), RefCell::new(cache));
        Self { under, stretches, cache, admitted: Cell::default() }
    }

    /// Resident bytes of memory without a file.
    pub fn bytes(&self) -> u64 {
        self.stretches.borrow().iter().map(|(from, to)| to - from).sum()
    }

    /// Drops the cache, so that the next read sees current data.
    pub fn forget(&self) {
        self.cache.borrow_mut().blocks.fill((NONE, 0));
    }

    /// The current value of a number, bypassing the cache.
    pub fn now(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.direct(address, &mut bytes) == bytes.len()).then_some(u64::from_le_bytes(bytes))
    }

    /// Allows a range that the process has just moved data to: it is resident, although the
    /// mappings are older.
    pub fn admit(&self, range: Range<u64>) {
        self.admitted.set((range.start, range.end));
    }

    /// The end of the resident range that contains `at`.
    fn until(&self, at: u64) -> Option<u64> {
        let stretches = self.stretches.borrow();
        let next = stretches.partition_point(|(_, to)| *to <= at);
        stretches.get(next).filter(|(from, _)| *from <= at).map(|(_, to)| *to)
    }

    /// Queries pages again that were not resident before.
    fn ask(&self, at: u64, mapping: &Mapping) {
        let mut found = Vec::new();
        let start = at - at % PAGE;
        self.under.resident(start, start.saturating_add(STEP).min(mapping.end), &mut |from, to| {
            found.push((from, to));
            true
        });
        let mut stretches = self.stretches.borrow_mut();
        for (from, to) in found {
            let next = stretches.partition_point(|(start, _)| *start < from);
            let before = next.checked_sub(1).and_then(|i| stretches.get(i));
            let from = before.map_or(from, |before| from.max(before.1));
            let to = stretches.get(next).map_or(to, |after| to.min(after.0));
            if from < to {
                stretches.insert(next, (from, to));
            }
        }
    }

    /// The end of the readable range from `at` on; `None` if nothing may be read.
    fn readable(&self, at: u64) -> Option<u64> {
        let Some(mapping) = self.under.mapping(at) else {
            let (from, to) = self.admitted.get();
            return (from..to).contains(&at).then_some(to);
        };
        if !mapping.access.read {
            return None;
        }
        if !is_anonymous(mapping) {
            return (!mapping.path.starts_with("[v")).then_some(mapping.end);
        }
        if self.until(at).is_none() {
            self.ask(at, mapping);
        }
        Some(self.until(at)?.min(mapping.end))
    }

    fn direct(&self, address: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let Some(end) = self.readable(at) else { break };
            let wanted = (into.len() - done).min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let read = self.under.read(at, &mut into[done..done + wanted]);
            done += read;
            if read < wanted {
                break;
            }
        }
        done
    }

    /// Reads a block as far as that is allowed.
    fn load(&self, number: u64, bytes: &mut [u8]) -> u8 {
        let start = number * BLOCK as u64;
        let read = self.direct(start, bytes);
        if read == BLOCK {
            return (1 << PAGES) - 1;
        }
        let mut known = 0;
        for (page, bytes) in bytes.chunks_exact_mut(PAGE as usize).enumerate() {
            let is_read = read >= (page + 1) * PAGE as usize;
            if is_read || self.direct(start + page as u64 * PAGE, bytes) == PAGE as usize {
                known |= 1 << page;
            }
        }
        known
    }

    /// Copies from the block of `address`, up to the end of the block or of its known pages.
    fn cached(&self, address: u64, into: &mut [u8]) -> usize {
        let number = address / BLOCK as u64;
        let offset = (address % BLOCK as u64) as usize;
        // Neighbouring blocks have neighbouring slots; regions at a distance of a power of two use
        // different ones.
        let slot = ((number ^ (number >> 10) ^ (number >> 20)) % SLOTS as u64) as usize;
        let mut cache = self.cache.borrow_mut();
        let Cache { blocks, bytes } = &mut *cache;
        let bytes = &mut bytes[slot * BLOCK..][..BLOCK];
        if blocks[slot].0 != number {
            blocks[slot] = (number, self.load(number, bytes));
        }
        let known = blocks[slot].1;
        let mut end = offset;
        while end < BLOCK && known & (1 << (end / PAGE as usize)) != 0 {
            end = (end / PAGE as usize + 1) * PAGE as usize;
        }
        let count = into.len().min(end - offset);
        into[..count].copy_from_slice(&bytes[offset..offset + count]);
        count
    }
}

fn is_anonymous(mapping: &Mapping) -> bool {
    !mapping.is_file() && !mapping.path.starts_with("[v")
}

impl<M: Memory + ?Sized> Memory for ResidentMemory<'_, M> {
    fn mappings(&self) -> &[Mapping] {
        self.under.mappings()
    }

    fn word(&self) -> Word {
        self.under.word()
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        // Large reads bypass the cache, because they would replace all of it.
        if into.len() > BLOCK {
            return self.direct(address, into);
        }
        let mut done = 0;
        while done < into.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let mut read = self.cached(at, &mut into[done..]);
            if read == 0 {
                // A mapping of an image may begin or end within a page; pages may appear meanwhile.
                let rest = (PAGE - at % PAGE) as usize;
                let wanted = rest.min(into.len() - done);
                read = self.direct(at, &mut into[done..done + wanted]);
                if read == 0 {
                    break;
                }
            }
            done += read;
        }
        done
    }

    fn resident(&self, start: u64, end: u64, take: &mut dyn FnMut(u64, u64) -> bool) {
        self.under.resident(start, end, take);
    }

    fn should_continue(&self, steps: u64) -> bool {
        self.under.should_continue(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Image;

    #[test]
    fn what_is_resident_is_read_and_nothing_else() {
        let mut image = Image::new(Word::Eight);
        image.add(0x10000, &[7; 8192], "");
        image.add(0x12000, &[8; 4100], "[heap]");
        image.add(0x20000, &[9; 4096], "[vvar]");
        let resident = ResidentMemory::new(&image);
        assert_eq!(resident.bytes(), 12292);
        for _ in 0..2 {
            let mut into = [0; 10000];
            assert_eq!(resident.read(0x10000, &mut into), 10000);
            assert_eq!((into[8191], into[8192]), (7, 8));
            let mut into = [0; 20];
            assert_eq!(resident.read(0x12ffa, &mut into), 10, "to the end of what is mapped");
            assert_eq!(resident.read(0x20000, &mut into), 0);
            assert_eq!(resident.read(0xfff0, &mut into), 0);
            assert_eq!(resident.read(u64::MAX - 2, &mut into), 0);
            assert_eq!(resident.read(u64::MAX, &mut into), 0);
        }
        image.write(0x10000, &[1]);
        let resident = ResidentMemory::new(&image);
        assert_eq!(resident.u8(0x10000), Some(1));
    }

    #[test]
    fn what_moved_is_read_where_it_is_now() {
        let mut image = Image::new(Word::Eight);
        image.add(0x10000, &[7; 4096], "");
        let hidden = Hidden(&image);
        let resident = ResidentMemory::new(&hidden);
        assert_eq!((resident.u64(0x10000), resident.now(0x10000)), (None, None));
        resident.admit(0x10008..0x10018);
        assert_eq!((resident.now(0x10000), resident.now(0x10008)), (None, Some(0x0707_0707_0707_0707)));
    }

    /// Memory that was mapped after the mappings were read.
    struct Hidden<'m>(&'m Image);

    impl Memory for Hidden<'_> {
        fn mappings(&self) -> &[Mapping] {
            &[]
        }

        fn word(&self) -> Word {
            Word::Eight
        }

        fn read(&self, address: u64, into: &mut [u8]) -> usize {
            self.0.read(address, into)
        }

        fn resident(&self, _: u64, _: u64, _: &mut dyn FnMut(u64, u64) -> bool) {}
    }
}
