//! The resident pages of a range when it was first read: a bit for each, 32 KiB per gigabyte.
//!
//! Free lists lead anywhere in a heap. Querying the kernel at every step would take longer than
//! everything else.

use crate::memory::{Memory, PAGE};

/// Only this much of a longer range is covered: its bits would take more than 64 MiB.
const BYTES_MAX: u64 = 2 << 40;

/// The pages of a range.
#[derive(Debug, Default)]
pub(super) struct Resident {
    /// The address of the first page.
    start: u64,
    /// Behind the last page that is covered.
    end: u64,
    bits: Vec<u64>,
}

impl Resident {
    /// Of the pages that `start..end` touches.
    pub(super) fn of<M: Memory + ?Sized>(memory: &M, start: u64, end: u64) -> Self {
        let start = start - start % PAGE;
        let end = end.min(start.saturating_add(BYTES_MAX)).min(u64::MAX - PAGE).max(start);
        let pages = (end - start).div_ceil(PAGE);
        let mut resident =
            Self { start, end: start + pages * PAGE, bits: vec![0; pages.div_ceil(64) as usize] };
        resident.refresh(memory, start, end);
        resident
    }

    /// Adds pages that became resident since.
    pub(super) fn refresh<M: Memory + ?Sized>(&mut self, memory: &M, start: u64, end: u64) {
        let (start, end) = (start.max(self.start), end.min(self.end));
        if start >= end {
            return;
        }
        let (base, last) = (self.start, self.end);
        let bits = &mut self.bits;
        memory.resident(start, end, &mut |from, to| {
            let from = from.clamp(base, last);
            let to = to.clamp(from, last);
            for page in (from - base) / PAGE..(to - base).div_ceil(PAGE) {
                if let Some(word) = bits.get_mut((page / 64) as usize) {
                    *word |= 1 << (page % 64);
                }
            }
            true
        });
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether the page of an address is in memory.
    pub(super) fn is(&self, address: u64) -> bool {
        self.contains(address) && self.bit((address - self.start) / PAGE)
    }

    fn bit(&self, page: u64) -> bool {
        self.bits.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// The end of the pages in memory that follow on from the one of `address`, as far as `limit`.
    pub(super) fn until(&self, address: u64, limit: u64) -> Option<u64> {
        if !self.is(address) {
            return None;
        }
        let mut end = address - address % PAGE + PAGE;
        while end < limit && self.is(end) {
            end += PAGE;
        }
        Some(end)
    }

    /// The first address from `address` on, below `limit`, whose page is in memory.
    pub(super) fn next(&self, address: u64, limit: u64) -> Option<u64> {
        let limit = limit.min(self.end);
        if address < self.start || address >= limit {
            return None;
        }
        if self.is(address) {
            return Some(address);
        }
        let mut page = (address - self.start) / PAGE + 1;
        while self.start + page * PAGE < limit {
            // Skips whole words of pages that are not resident.
            if page.is_multiple_of(64) && self.bits.get((page / 64) as usize) == Some(&0) {
                page += 64;
            } else if self.bit(page) {
                return Some(self.start + page * PAGE);
            } else {
                page += 1;
            }
        }
        None
    }

    /// How many bytes of a range are in memory.
    pub(super) fn bytes(&self, start: u64, end: u64) -> u64 {
        let (start, end) = (start.max(self.start), end.min(self.end));
        let mut bytes = 0;
        let mut at = start;
        while at < end {
            let page = (at - self.start) / PAGE;
            let word = self.bits.get((page / 64) as usize).copied().unwrap_or(0);
            let whole = page.is_multiple_of(64) && at % PAGE == 0 && end - at >= 64 * PAGE;
            if whole {
                bytes += u64::from(word.count_ones()) * PAGE;
                at += 64 * PAGE;
                continue;
            }
            let next = (at - at % PAGE + PAGE).min(end);
            if word >> (page % 64) & 1 == 1 {
                bytes += next - at;
            }
            at = next;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Image, Word};

    #[test]
    fn pages_are_found_and_counted() {
        let mut image = Image::new(Word::Eight);
        image.add(0x10000, &[1; 2 * PAGE as usize], "");
        image.add(0x10000 + 300 * PAGE, &[1; PAGE as usize], "");
        let end = 0x10000 + 400 * PAGE;
        let pages = Resident::of(&image, 0x10010, end);
        assert!(pages.is(0x10000) && pages.is(0x11fff) && !pages.is(0x12000) && !pages.is(0xffff));
        assert_eq!(pages.until(0x10008, end), Some(0x12000));
        assert_eq!(pages.until(0x12008, end), None);
        assert_eq!(pages.next(0x10008, end), Some(0x10008));
        assert_eq!(pages.next(0x12008, end), Some(0x10000 + 300 * PAGE));
        assert_eq!(pages.next(0x12008, 0x10000 + 300 * PAGE), None);
        assert_eq!(pages.next(0x10000 + 301 * PAGE, end), None);
        assert_eq!(pages.bytes(0, u64::MAX), 3 * PAGE);
        assert_eq!(pages.bytes(0x10ff0, 0x11010), 0x20);
        assert_eq!(pages.bytes(0x11ff0, 0x12010), 0x10);
        assert_eq!(pages.bytes(0x12000, 0x10000 + 300 * PAGE), 0);
    }

    #[test]
    fn impossible_stretches_are_harmless() {
        let image = Image::new(Word::Eight);
        for (start, end) in [(u64::MAX, u64::MAX), (0, 0), (10, 5), (u64::MAX - 5000, u64::MAX)] {
            let pages = Resident::of(&image, start, end);
            assert_eq!(pages.bytes(0, u64::MAX), 0);
            assert_eq!(pages.next(start, u64::MAX), None);
            assert_eq!(pages.until(start, u64::MAX), None);
        }
    }
}
