//! What 64 bytes are, as bits: the lowest bit is the first byte.
//!
//! Most of a heap is pointers and numbers, so what costs is to see quickly that 64 bytes hold no text. SSE2, which every x86-64
//! has, makes the masks; elsewhere words of eight bytes do. Both are held to the plain definition by tests.

/// Bytes that are looked at together.
pub(super) const BLOCK: usize = 64;
/// Bytes on even places.
const EVEN: u64 = 0x5555_5555_5555_5555;
/// The last byte of a block: what follows it is not known yet.
const LAST: u64 = 1 << 63;

/// Which bytes of a block belong where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Masks {
    /// Printable ASCII and the tab, as `strings` counts them: 0x20 to 0x7e, and 9.
    pub(super) ascii: u64,
    /// 0x80 and above.
    pub(super) high: u64,
    /// 0.
    pub(super) zero: u64,
    /// 0 to 6: as upper half of a UTF-16 unit, the alphabets from Latin to Arabic.
    pub(super) small: u64,
}

/// What has to be known of the block before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Carry {
    /// Bytes at the front that a sequence of UTF-8 asks for.
    expected: u64,
    /// Whether the last byte was printable ASCII: bit 0.
    ascii: u64,
}

/// Bytes that may belong to a text of one byte a character, or of UTF-8. Of UTF-8 those count that follow a lead byte, and lead
/// bytes that are followed; of Latin-1 the letters between two of ASCII. That is a little more than is right (whoever cuts out
/// strings looks again), and never less.
#[inline(always)]
pub(super) fn text(block: &[u8; BLOCK], masks: Masks, carry: &mut Carry) -> u64 {
    if masks.high == 0 {
        *carry = Carry { expected: 0, ascii: masks.ascii >> 63 };
        return masks.ascii;
    }
    let leads = leads(block);
    let high = masks.high;
    // Counted from the signed order: continuations lie below all leads.
    let continuation = high & !leads.from_c0;
    let two = high & leads.from_c2 & !leads.from_e0;
    let three = high & leads.from_e0 & !leads.from_f0;
    let four = high & leads.from_f0 & !leads.from_f5;
    let lead = two | three | four;
    let expected = carry.expected | lead << 1 | (three | four) << 2 | four << 3;
    let followed = continuation >> 1 | LAST;
    let between = (masks.ascii << 1 | carry.ascii) & (masks.ascii >> 1 | LAST);
    let latin = high & leads.from_c0 & between;
    *carry = Carry { expected: lead >> 63 | (three | four) >> 62 | four >> 61, ascii: masks.ascii >> 63 };
    masks.ascii | continuation & expected | lead & followed | latin
}

/// Bytes that may belong to a text of UTF-16 in little-endian order at even addresses: both bytes of each unit that is printable
/// ASCII, Latin-1, or has an upper half of 1 to 6.
#[inline(always)]
pub(super) fn wide(masks: Masks) -> u64 {
    let latin = masks.zero >> 1 & (masks.ascii | masks.high);
    let other = (masks.small & !masks.zero) >> 1;
    let units = (latin | other) & EVEN;
    units | units << 1
}

/// Bytes of a block from certain values on, in the order of signed numbers: of those below 0x80 the bits mean nothing.
struct Leads {
    from_c0: u64,
    from_c2: u64,
    from_e0: u64,
    from_f0: u64,
    from_f5: u64,
}

/// What the bytes of a block are.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn masks(block: &[u8; BLOCK]) -> Masks {
    // SAFETY: SSE2 is part of every x86-64.
    unsafe { by_vectors::masks(block) }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn leads(block: &[u8; BLOCK]) -> Leads {
    // SAFETY: SSE2 is part of every x86-64.
    unsafe { by_vectors::leads(block) }
}

#[cfg(target_arch = "x86_64")]
mod by_vectors {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_min_epu8,
        _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8, _mm_setzero_si128,
    };

    use super::{BLOCK, Leads, Masks};

    #[inline]
    #[target_feature(enable = "sse2")]
    fn vector(bytes: &[u8; 16]) -> __m128i {
        let number = u128::from_le_bytes(*bytes);
        _mm_set_epi64x((number >> 64) as i64, number as i64)
    }

    /// One bit for each byte of which `test` sets the highest.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn bits(block: &[u8; BLOCK], test: impl Fn(__m128i) -> __m128i) -> u64 {
        let mut bits = 0;
        for (i, quarter) in block.as_chunks::<16>().0.iter().enumerate() {
            bits |= u64::from(_mm_movemask_epi8(test(vector(quarter))) as u32) << (16 * i);
        }
        bits
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn masks(block: &[u8; BLOCK]) -> Masks {
        Masks {
            ascii: bits(block, |v| {
                // Signed: bytes from 0x80 on lie below.
                let above = _mm_cmpgt_epi8(v, _mm_set1_epi8(0x1f));
                let delete = _mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f));
                let tab = _mm_cmpeq_epi8(v, _mm_set1_epi8(9));
                _mm_or_si128(_mm_andnot_si128(delete, above), tab)
            }),
            high: bits(block, |v| v),
            zero: bits(block, |v| _mm_cmpeq_epi8(v, _mm_setzero_si128())),
            small: bits(block, |v| _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(6)), v)),
        }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn leads(block: &[u8; BLOCK]) -> Leads {
        Leads {
            from_c0: from(block, 0xc0),
            from_c2: from(block, 0xc2),
            from_e0: from(block, 0xe0),
            from_f0: from(block, 0xf0),
            from_f5: from(block, 0xf5),
        }
    }

    /// Bytes from one of 0x80 and above on.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn from(block: &[u8; BLOCK], byte: u8) -> u64 {
        bits(block, |v| _mm_and_si128(_mm_cmpgt_epi8(v, _mm_set1_epi8((byte - 1) as i8)), v))
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod by_words {
    use super::{BLOCK, Leads, Masks};

    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f * ONES;
    const HIGH: u64 = 0x80 * ONES;

    /// The highest bit of each byte of the words that `test` makes.
    #[inline(always)]
    fn bits(block: &[u8; BLOCK], test: impl Fn(u64) -> u64) -> u64 {
        let mut bits = 0;
        for (i, word) in block.as_chunks::<8>().0.iter().enumerate() {
            // The bit of byte n goes to place 56 + n; no two sums meet.
            let found = (test(u64::from_le_bytes(*word)) & HIGH) >> 7;
            bits |= (found.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i);
        }
        bits
    }

    /// Bytes whose lower seven bits are `from` or more.
    #[inline(always)]
    fn at_least(word: u64, from: u64) -> u64 {
        (word & LOW) + (0x80 - from) * ONES
    }

    #[inline(always)]
    fn zeros(word: u64) -> u64 {
        !(((word & LOW) + LOW) | word)
    }

    #[inline(always)]
    pub(super) fn masks(block: &[u8; BLOCK]) -> Masks {
        Masks {
            ascii: bits(block, |w| (at_least(w, 0x20) & !at_least(w, 0x7f) & !w) | zeros(w ^ (9 * ONES))),
            high: bits(block, |w| w),
            zero: bits(block, zeros),
            small: bits(block, |w| !at_least(w, 7) & !w),
        }
    }

    #[inline(always)]
    pub(super) fn leads(block: &[u8; BLOCK]) -> Leads {
        let from = |byte: u64| bits(block, |w| at_least(w, byte - 0x80) & w);
        Leads {
            from_c0: from(0xc0),
            from_c2: from(0xc2),
            from_e0: from(0xe0),
            from_f0: from(0xf0),
            from_f5: from(0xf5),
        }
    }
}

/// What the bytes of a block are.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn masks(block: &[u8; BLOCK]) -> Masks {
    by_words::masks(block)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn leads(block: &[u8; BLOCK]) -> Leads {
    by_words::leads(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plainly(block: &[u8; BLOCK], test: impl Fn(u8) -> bool) -> u64 {
        block.iter().enumerate().map(|(i, byte)| u64::from(test(*byte)) << i).sum()
    }

    /// Every value at every place.
    fn blocks() -> impl Iterator<Item = [u8; BLOCK]> {
        (0..256_usize).map(|n| std::array::from_fn(|i| (n + i * 7 + (i >> 3) * 13) as u8))
    }

    #[test]
    fn both_ways_to_the_masks_follow_their_definition() {
        for block in blocks() {
            let plain = Masks {
                ascii: plainly(&block, |b| (0x20..0x7f).contains(&b) || b == 9),
                high: plainly(&block, |b| b >= 0x80),
                zero: plainly(&block, |b| b == 0),
                small: plainly(&block, |b| b <= 6),
            };
            assert_eq!(masks(&block), plain);
            assert_eq!(by_words::masks(&block), plain);
            for found in [leads(&block), by_words::leads(&block)] {
                let all = [
                    (found.from_c0, 0xc0),
                    (found.from_c2, 0xc2),
                    (found.from_e0, 0xe0),
                    (found.from_f0, 0xf0),
                    (found.from_f5, 0xf5),
                ];
                for (bits, from) in all {
                    assert_eq!(bits & plain.high, plainly(&block, |b| b >= from), "{from:#x}");
                }
            }
        }
    }

    fn text_of(bytes: &[u8]) -> String {
        let mut block = [0; BLOCK];
        block[..bytes.len()].copy_from_slice(bytes);
        let bits = text(&block, masks(&block), &mut Carry::default());
        (0..bytes.len()).map(|i| if bits >> i & 1 == 1 { '1' } else { '0' }).collect()
    }

    #[test]
    fn text_is_told_from_bytes_that_only_look_like_it() {
        assert_eq!(text_of(b"a\tb\nc\x7f~"), "1110101");
        assert_eq!(text_of("é€😀".as_bytes()), "111111111");
        assert_eq!(text_of(b"\x80\xe9\xff"), "000", "a continuation, and leads that nothing follows");
        assert_eq!(text_of(b"caf\xe9 noir"), "111111111", "latin-1");
        assert_eq!(text_of(b"\xe9ab\xe9\xe9"), "01100");
    }

    #[test]
    fn a_sequence_may_cross_blocks() {
        let mut bytes = [b'a'; 2 * BLOCK];
        bytes[BLOCK - 1..BLOCK + 2].copy_from_slice("€".as_bytes());
        let blocks = bytes.as_chunks::<BLOCK>().0;
        let mut carry = Carry::default();
        for block in blocks {
            assert_eq!(text(block, masks(block), &mut carry), u64::MAX);
        }
    }

    #[test]
    fn units_of_two_bytes_are_found_in_pairs() {
        let mut block = [0xff; BLOCK];
        block[..12].copy_from_slice(&[b'a', 0, 0xe9, 0, 0x1f, 0, 0x16, 4, 7, 7, 0, 0]);
        assert_eq!(wide(masks(&block)), 0b0000_1100_1111);
    }
}
