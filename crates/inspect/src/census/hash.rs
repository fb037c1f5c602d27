//! A hash of 64 bits for a string. Strings with equal hashes count as equal: of a hundred million
//! different ones, more than fit into a few gigabytes, two collide with a probability of 1 in 3,700
//! (n² / 2⁶⁵).
//!
//! Folded 128-bit products mix fast enough. Words overlap at the ends, so that no loop over bytes
//! is needed. The keys are fixed, because saved snapshots are compared by these hashes: the first
//! digits of the square roots of 2, 3, 5 and 7. A library would change the ids of saved snapshots.

const KEYS: [u64; 4] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// Readable bytes behind a string, which do not change its hash.
pub(super) const ROOM: usize = 8;

/// A hash, never zero, and the OR of all words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash {
    pub(super) hash: u64,
    pub(super) bits: u64,
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a number.
#[inline(always)]
pub(super) fn of_number(number: u64) -> u64 {
    fold(fold(number ^ KEYS[0], KEYS[1]) ^ KEYS[2], KEYS[3])
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// The hash of `bytes[start..end]`, different for each `kind`.
#[inline(always)]
pub(super) fn of(bytes: &[u8], start: usize, end: usize, kind: u64) -> Hash {
    let length = end - start;
    let (sum, bits) = if length > 32 {
        of_long(bytes, start, end)
    } else {
        // Without a branch on the length, which is unpredictable: words overlap, and a string
        // shorter than a word is masked.
        let last = end.saturating_sub(8).max(start);
        let cut = u64::MAX.checked_shr((64 - 8 * length.min(8)) as u32).unwrap_or(0);
        let first = word(bytes, start) & cut;
        let second = word(bytes, (start + 8).min(last)) & cut;
        let third = word(bytes, end.saturating_sub(16).max(start)) & cut;
        let last = word(bytes, last) & cut;
        let front = fold(first ^ KEYS[0], second ^ KEYS[1]);
        let back = fold(third ^ KEYS[2], last ^ KEYS[3]);
        (front.wrapping_add(back.rotate_left(29)), first | second | third | last)
    };
    let hash = fold(sum ^ KEYS[2], (length as u64 ^ kind << 56) ^ KEYS[3]);
    Hash { hash: hash.max(1), bits }
}

#[inline(never)]
fn of_long(bytes: &[u8], start: usize, end: usize) -> (u64, u64) {
    // Not the keys that are used first: they would cancel, and repetitive text would mix badly.
    let mut sums = [KEYS[3], KEYS[0]];
    let mut bits = 0;
    // The last 32 bytes are separate and may overlap the loop.
    for block in bytes[start..end - 1].as_chunks::<32>().0 {
        let words = block.as_chunks::<8>().0;
        let [a, b, c, d] = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
        sums[0] = fold(a ^ KEYS[0] ^ sums[0], b ^ KEYS[1]).wrapping_add(sums[0]);
        sums[1] = fold(c ^ KEYS[2] ^ sums[1], d ^ KEYS[3]).wrapping_add(sums[1]);
        bits |= a | b | c | d;
    }
    let [a, b, c, d] = std::array::from_fn(|i| word(bytes, end - 32 + 8 * i));
    let front = fold(a ^ KEYS[0] ^ sums[0], b ^ KEYS[1]);
    let back = fold(c ^ KEYS[2] ^ sums[1], d ^ KEYS[3]);
    (front.wrapping_add(back.rotate_left(29)), bits | a | b | c | d)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn hash(text: &[u8], before: usize, after: u8) -> Hash {
        let mut bytes = vec![after; before];
        bytes.extend(text);
        bytes.extend([after; ROOM]);
        of(&bytes, before, before + text.len(), 0)
    }

    #[test]
    fn what_lies_around_a_string_does_not_matter() {
        let text: Vec<u8> = (0..200).map(|i| (i * 37) as u8).collect();
        for length in 0..200 {
            assert_eq!(hash(&text[..length], 0, 0), hash(&text[..length], 3, 0xff), "{length}");
        }
    }

    #[test]
    fn every_bit_and_the_length_matter() {
        let mut seen = HashSet::new();
        let mut count = 0;
        for length in 1..150 {
            let text = vec![b'a'; length];
            count += 1;
            seen.insert(hash(&text, 0, 0).hash);
            for bit in 0..8 * length {
                let mut other = text.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                seen.insert(hash(&other, 0, 0).hash);
                count += 1;
            }
        }
        assert_eq!(seen.len(), count);
        assert_ne!(of(&[b'a'; 40], 0, 20, 0).hash, of(&[b'a'; 40], 0, 20, 1).hash);
    }

    #[test]
    fn bytes_above_ascii_show_in_the_bits() {
        for length in 4..100 {
            for place in 0..length {
                let mut text = vec![b'a'; length];
                text[place] = 0xc3;
                assert_ne!(hash(&text, 0, 0).bits & 0x8080_8080_8080_8080, 0, "{length} {place}");
            }
            assert_eq!(hash(&vec![b'a'; length], 0, 0xff).bits & 0x8080_8080_8080_8080, 0);
        }
    }

    #[test]
    fn places_in_a_table_are_taken_evenly() {
        // Names as programs make them, which differ in few places: into 1024 slots, 64 each, by both ends of the hash.
        for shift in [0, 54] {
            let mut slots = vec![0_i64; 1024];
            for i in 0..65_536 {
                let text = format!("session-{i:06}");
                slots[(hash(text.as_bytes(), 0, 0).hash >> shift & 1023) as usize] += 1;
            }
            // Chi square with 1023 degrees of freedom has mean 1023 and deviation 45; five of them.
            let chi: i64 = slots.iter().map(|found| (found - 64) * (found - 64)).sum::<i64>() / 64;
            assert!((798..1248).contains(&chi), "{chi}");
        }
    }
}
