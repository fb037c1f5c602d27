//! Ascending numbers in few bits: which contents have a term.
//!
//! ```text
//! numbers    3, 4, 9, 30 of 0..64
//! gaps       3, 0, 4, 20               how many are left out before each
//! bits       11 1 | 00 1 | 00 01 | 00 000001     the low two bits of the gap, after as many zeros as it has fours, and a one
//! ```
//!
//! How many low bits are written as they are follows from the count and the range, so it is not stored; where every second
//! number is there it is none, and the bits are those of a set. This is the code of Golomb and Rice. Bits fill bytes from the
//! lowest.

use super::super::codec::{Corrupt, Got};

const END: Corrupt = Corrupt("as many contents as announced");

/// Low bits of a gap that are written as they are, for so many of a range.
fn low_bits(count: u32, range: u32) -> u32 {
    let left_out = u64::from(range.saturating_sub(count));
    let mut low = 0;
    // One bit more for each costs less than the zeros that it saves.
    while left_out > u64::from(count.max(1)) << (low + 1) {
        low += 1;
    }
    low
}

/// Writes bits.
#[derive(Default)]
struct Out {
    bits: u64,
    count: u32,
}

impl Out {
    /// At most 32 bits.
    fn put(&mut self, to: &mut Vec<u8>, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            to.push(self.bits as u8);
            self.bits >>= 8;
            self.count -= 8;
        }
    }

    fn end(&mut self, to: &mut Vec<u8>) {
        if self.count > 0 {
            to.push(self.bits as u8);
        }
        *self = Self::default();
    }
}

/// Appends ascending numbers that lie below `range`.
pub(super) fn put_list(to: &mut Vec<u8>, numbers: &[u32], range: u32) {
    let low = low_bits(numbers.len() as u32, range);
    let mask = (1_u64 << low) - 1;
    let mut out = Out::default();
    let mut next = 0;
    for number in numbers {
        let gap = u64::from(number - next);
        let mut zeros = gap >> low;
        while zeros >= 32 {
            out.put(to, 0, 32);
            zeros -= 32;
        }
        out.put(to, 1 << zeros, zeros as u32 + 1);
        out.put(to, gap & mask, low);
        next = number + 1;
    }
    out.end(to);
}

/// Reads bits.
struct Bits<'a> {
    rest: &'a [u8],
    bits: u64,
    count: u32,
}

impl Bits<'_> {
    fn fill(&mut self) {
        while self.count <= 56
            && let Some((byte, rest)) = self.rest.split_first()
        {
            self.bits |= u64::from(*byte) << self.count;
            self.count += 8;
            self.rest = rest;
        }
    }

    /// The zeros before the next one, and that one.
    fn zeros(&mut self) -> Got<u64> {
        let mut zeros = 0;
        loop {
            if self.bits != 0 {
                let more = self.bits.trailing_zeros();
                // In two steps: a word has no 64 bits to shift by.
                self.bits = self.bits >> more >> 1;
                self.count -= more + 1;
                return Ok(zeros + u64::from(more));
            }
            zeros += u64::from(self.count);
            self.count = 0;
            self.fill();
            if self.count == 0 {
                return Err(END);
            }
        }
    }

    fn low(&mut self, count: u32) -> Got<u64> {
        if self.count < count {
            self.fill();
            if self.count < count {
                return Err(END);
            }
        }
        let low = self.bits & ((1 << count) - 1);
        self.bits >>= count;
        self.count -= count;
        Ok(low)
    }
}

/// Calls `each` for so many numbers below `range`.
pub(super) fn each(bytes: &[u8], count: u32, range: u32, mut each: impl FnMut(u32)) -> Got<()> {
    let low = low_bits(count, range);
    let mut bits = Bits { rest: bytes, bits: 0, count: 0 };
    let mut next = 0_u64;
    for _ in 0..count {
        let zeros = bits.zeros()?;
        let gap = zeros << low | bits.low(low)?;
        // Of zeros there are no more than eight times the bytes.
        let number = next + gap;
        if number >= u64::from(range) {
            return Err(Corrupt("a content of this segment"));
        }
        each(number as u32);
        next = number + 1;
    }
    Ok(())
}

/// Bits that any number below `range` fits in.
pub(super) fn width(range: u32) -> u32 {
    32 - range.saturating_sub(1).leading_zeros()
}

/// Appends numbers of so many bits each.
pub(super) fn put_all(to: &mut Vec<u8>, numbers: &[u32], width: u32) {
    let mut out = Out::default();
    numbers.iter().for_each(|number| out.put(to, u64::from(*number), width));
    out.end(to);
}

/// Bytes of so many numbers.
pub(super) fn bytes_of_all(count: usize, width: u32) -> usize {
    count.saturating_mul(width as usize).div_ceil(8)
}

/// One of numbers of so many bits each.
pub(super) fn one_of_all(bytes: &[u8], at: usize, width: u32) -> Option<u32> {
    let from = at.checked_mul(width as usize)?;
    let needed = bytes.get(from / 8..(from + width as usize).div_ceil(8))?;
    let mut word = [0; 8];
    for (to, byte) in word.iter_mut().zip(needed) {
        *to = *byte;
    }
    let mask = (1_u64 << width) - 1;
    Some((u64::from_le_bytes(word) >> (from % 8) & mask) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8], count: usize, range: u32) -> Got<Vec<u32>> {
        let mut numbers = Vec::new();
        each(bytes, count as u32, range, |number| numbers.push(number)).map(|()| numbers)
    }

    proptest! {
        #[test]
        fn whatever_was_written_is_read(
            numbers in prop::collection::btree_set(0_u32..5_000, 0..300), more in 0_u32..100_000, far in any::<u32>(),
        ) {
            for more in [0, more, u32::MAX - 10_000] {
                let mut numbers: Vec<u32> = numbers.iter().copied().collect();
                if more > 10_000 && far > 5_000 {
                    numbers.push(far.min(more));
                }
                let range = numbers.last().map_or(0, |last| last + 1).max(more);
                let mut bytes = Vec::new();
                put_list(&mut bytes, &numbers, range);
                prop_assert_eq!(read(&bytes, numbers.len(), range), Ok(numbers.clone()));
                let width = width(range);
                let mut bytes = Vec::new();
                put_all(&mut bytes, &numbers, width);
                prop_assert_eq!(bytes.len(), bytes_of_all(numbers.len(), width));
                for (at, number) in numbers.iter().enumerate() {
                    prop_assert_eq!(one_of_all(&bytes, at, width), Some(*number));
                }
                prop_assert_eq!(one_of_all(&bytes, numbers.len() + 8, width).filter(|_| width > 0), None);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, count in 0_u32..1_000, range: u32) {
            let _ = read(&bytes, count as usize, range);
            let _ = one_of_all(&bytes, count as usize, width(range));
        }
    }

    #[test]
    fn few_bits_are_enough() {
        let bytes = |numbers: &[u32], range| {
            let mut bytes = Vec::new();
            put_list(&mut bytes, numbers, range);
            bytes.len()
        };
        let all: Vec<u32> = (0..8_000).collect();
        assert_eq!(bytes(&all, 8_000), 1_000);
        let second: Vec<u32> = (0..8_000).step_by(2).collect();
        assert_eq!(bytes(&second, 8_000), 1_000);
        let tenth: Vec<u32> = (0..8_000).step_by(10).collect();
        assert_eq!(bytes(&tenth, 8_000), 500);
        assert_eq!(
            (width(0), width(1), width(2), width(256), width(257), width(u32::MAX)),
            (0, 0, 1, 8, 9, 32)
        );
    }
}
