//! Classifies 64 bytes into masks, the lowest bit for the first byte.
//!
//! Most of a heap is pointers and numbers, so the cost is to see quickly that 64 bytes have no
//! text. Masks are made with AVX2 if the processor has it, with SSE2 on every other x86-64, and in
//! words of eight bytes elsewhere. Tests hold all to the plain definition.

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;
/// Bytes on even places.
const EVEN: u64 = 0x5555_5555_5555_5555;
/// The last byte of a block, whose successor is unknown.
const LAST: u64 = 1 << 63;

/// The classes of the bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Masks {
    /// Printable ASCII and the tab, as `strings` counts them: 0x20 to 0x7e, and 9.
    pub(super) ascii: u64,
    /// 0x80 and above.
    pub(super) high: u64,
    /// 0.
    pub(super) zero: u64,
    /// 0 to 6: upper bytes of UTF-16 units from Latin to Arabic.
    pub(super) small: u64,
}

/// Of the last byte of the previous block, in bit 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Carry {
    /// Printable ASCII.
    ascii: u64,
    /// 0x80 or above.
    high: u64,
}

/// Makes masks.
pub(super) trait Classifier: Copy {
    fn masks(self, block: &[u8; BLOCK]) -> Masks;

    /// Bytes above a non-ASCII byte. Bits of ASCII bytes are undefined.
    fn above(self, block: &[u8; BLOCK], byte: u8) -> u64;

    /// ASCII letters.
    fn letters(self, block: &[u8; BLOCK]) -> u64;
}

/// Bytes that may belong to text of one byte a character, or of UTF-8: UTF-8 bytes that continue or
/// are continued, and Latin-1 letters between two ASCII characters. It may include too much, which
/// [`super::strings`] sorts out, and never misses any. `is_worth` decides by such a mask whether to
/// refine it.
#[inline(always)]
pub(super) fn text(
    classifier: impl Classifier,
    block: &[u8; BLOCK],
    masks: Masks,
    carry: &mut Carry,
    is_worth: impl FnOnce(u64) -> bool,
) -> u64 {
    let Masks { ascii, high, .. } = masks;
    let before = std::mem::replace(carry, Carry { ascii: ascii >> 63, high: high >> 63 });
    if high == 0 {
        return ascii;
    }
    // Nearly every block has pointers with such bytes: one more mask has to do for them.
    let leads = high & classifier.above(block, 0xbf);
    let continuations = high & !leads;
    let continued = leads & (continuations >> 1 | LAST);
    let latin = leads & (ascii << 1 | before.ascii) & (ascii >> 1 | LAST);
    let rough = ascii | continuations & (high << 1 | before.high) | continued | latin;
    if !is_worth(rough) {
        return rough;
    }
    let two = continued & classifier.above(block, 0xc1);
    let three = two & classifier.above(block, 0xdf);
    let four = three & classifier.above(block, 0xef);
    // The previous block may need up to three continuations.
    let expected = two << 1 | three << 2 | four << 3 | 7;
    let latin = latin & (classifier.letters(block) << 1 | 1);
    ascii | rough & (two | latin | continuations & expected)
}

/// Bytes that may belong to UTF-16, little-endian at even addresses: units of printable ASCII, of
/// Latin-1, or with an upper byte of 1 to 6.
#[inline(always)]
pub(super) fn wide(masks: Masks) -> u64 {
    let latin = masks.zero >> 1 & (masks.ascii | masks.high);
    let other = (masks.small & !masks.zero) >> 1;
    let units = (latin | other) & EVEN;
    units | units << 1
}

/// The masks without checking the processor.
#[cfg(target_arch = "x86_64")]
pub(super) const PLAIN: Sse2 = Sse2;
#[cfg(not(target_arch = "x86_64"))]
pub(super) const PLAIN: Words = Words;

/// In vectors of 16 bytes.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Sse2;

#[cfg(target_arch = "x86_64")]
impl Classifier for Sse2 {
    #[inline(always)]
    fn masks(self, block: &[u8; BLOCK]) -> Masks {
        // SAFETY: SSE2 is part of every x86-64.
        unsafe { sse2::masks(block) }
    }

    #[inline(always)]
    fn above(self, block: &[u8; BLOCK], byte: u8) -> u64 {
        // SAFETY: SSE2 is part of every x86-64.
        unsafe { sse2::above(block, byte) }
    }

    #[inline(always)]
    fn letters(self, block: &[u8; BLOCK]) -> u64 {
        // SAFETY: as above.
        unsafe { sse2::letters(block) }
    }
}

/// In vectors of 32 bytes.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// `None` without AVX2 or the bit instructions that came with it.
    pub(super) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt");
        has.then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Classifier for Avx2 {
    #[inline(always)]
    fn masks(self, block: &[u8; BLOCK]) -> Masks {
        // SAFETY: `Avx2` exists only if the processor has AVX2.
        unsafe { avx2::masks(block) }
    }

    #[inline(always)]
    fn above(self, block: &[u8; BLOCK], byte: u8) -> u64 {
        // SAFETY: `Avx2` exists only if the processor has AVX2.
        unsafe { avx2::above(block, byte) }
    }

    #[inline(always)]
    fn letters(self, block: &[u8; BLOCK]) -> u64 {
        // SAFETY: as above.
        unsafe { avx2::letters(block) }
    }
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi8, _mm_and_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_min_epu8,
        _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8, _mm_setzero_si128,
    };

    use super::{BLOCK, Masks};

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
                // Signed: 0x7f becomes the smallest, and bytes from 0x80 on are negative.
                let next = _mm_add_epi8(v, _mm_set1_epi8(1));
                let tab = _mm_cmpeq_epi8(v, _mm_set1_epi8(9));
                _mm_or_si128(_mm_cmpgt_epi8(next, _mm_set1_epi8(0x20)), tab)
            }),
            high: bits(block, |v| v),
            zero: bits(block, |v| _mm_cmpeq_epi8(v, _mm_setzero_si128())),
            small: bits(block, |v| _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(6)), v)),
        }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn above(block: &[u8; BLOCK], byte: u8) -> u64 {
        bits(block, |v| _mm_cmpgt_epi8(v, _mm_set1_epi8(byte as i8)))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn letters(block: &[u8; BLOCK]) -> u64 {
        bits(block, |v| {
            let small = _mm_or_si128(v, _mm_set1_epi8(0x20));
            let from_a = _mm_cmpgt_epi8(small, _mm_set1_epi8(b'a' as i8 - 1));
            _mm_and_si128(from_a, _mm_cmpgt_epi8(_mm_set1_epi8(b'z' as i8 + 1), small))
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi8, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_min_epu8,
        _mm256_movemask_epi8, _mm256_or_si256, _mm256_set_epi64x, _mm256_set1_epi8, _mm256_setzero_si256,
    };

    use super::{BLOCK, Masks};

    #[inline]
    #[target_feature(enable = "avx2")]
    fn vector(bytes: &[u8; 32]) -> __m256i {
        let words = bytes.as_chunks::<8>().0;
        let [a, b, c, d] = std::array::from_fn(|i| i64::from_le_bytes(words[i]));
        _mm256_set_epi64x(d, c, b, a)
    }

    /// One bit for each byte of which `test` sets the highest.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn bits(block: &[u8; BLOCK], test: impl Fn(__m256i) -> __m256i) -> u64 {
        let mut bits = 0;
        for (i, half) in block.as_chunks::<32>().0.iter().enumerate() {
            bits |= u64::from(_mm256_movemask_epi8(test(vector(half))) as u32) << (32 * i);
        }
        bits
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn masks(block: &[u8; BLOCK]) -> Masks {
        Masks {
            ascii: bits(block, |v| {
                let next = _mm256_add_epi8(v, _mm256_set1_epi8(1));
                let tab = _mm256_cmpeq_epi8(v, _mm256_set1_epi8(9));
                _mm256_or_si256(_mm256_cmpgt_epi8(next, _mm256_set1_epi8(0x20)), tab)
            }),
            high: bits(block, |v| v),
            zero: bits(block, |v| _mm256_cmpeq_epi8(v, _mm256_setzero_si256())),
            small: bits(block, |v| _mm256_cmpeq_epi8(_mm256_min_epu8(v, _mm256_set1_epi8(6)), v)),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn above(block: &[u8; BLOCK], byte: u8) -> u64 {
        bits(block, |v| _mm256_cmpgt_epi8(v, _mm256_set1_epi8(byte as i8)))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn letters(block: &[u8; BLOCK]) -> u64 {
        bits(block, |v| {
            let small = _mm256_or_si256(v, _mm256_set1_epi8(0x20));
            let from_a = _mm256_cmpgt_epi8(small, _mm256_set1_epi8(b'a' as i8 - 1));
            _mm256_and_si256(from_a, _mm256_cmpgt_epi8(_mm256_set1_epi8(b'z' as i8 + 1), small))
        })
    }
}

/// In words of eight bytes.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[derive(Clone, Copy)]
pub(super) struct Words;

#[cfg(any(test, not(target_arch = "x86_64")))]
impl Words {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f * Self::ONES;
    const HIGH: u64 = 0x80 * Self::ONES;

    /// The highest bit of each byte of `test`.
    #[inline(always)]
    fn bits(block: &[u8; BLOCK], test: impl Fn(u64) -> u64) -> u64 {
        let mut bits = 0;
        for (i, word) in block.as_chunks::<8>().0.iter().enumerate() {
            // The bit of byte n goes to bit 56 + n; no sums overlap.
            let found = (test(u64::from_le_bytes(*word)) & Self::HIGH) >> 7;
            bits |= (found.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i);
        }
        bits
    }

    #[inline(always)]
    fn at_least(word: u64, from: u64) -> u64 {
        (word & Self::LOW) + (0x80 - from) * Self::ONES
    }

    #[inline(always)]
    fn zeros(word: u64) -> u64 {
        !(((word & Self::LOW) + Self::LOW) | word)
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
impl Classifier for Words {
    #[inline(always)]
    fn masks(self, block: &[u8; BLOCK]) -> Masks {
        let printable = |w| Self::at_least(w, 0x20) & !Self::at_least(w, 0x7f) & !w;
        Masks {
            ascii: Self::bits(block, |w| printable(w) | Self::zeros(w ^ (9 * Self::ONES))),
            high: Self::bits(block, |w| w),
            zero: Self::bits(block, Self::zeros),
            small: Self::bits(block, |w| !Self::at_least(w, 7) & !w),
        }
    }

    #[inline(always)]
    fn above(self, block: &[u8; BLOCK], byte: u8) -> u64 {
        Self::bits(block, |w| Self::at_least(w, u64::from(byte & 0x7f) + 1))
    }

    #[inline(always)]
    fn letters(self, block: &[u8; BLOCK]) -> u64 {
        Self::bits(block, |w| {
            let small = w | (0x20 * Self::ONES);
            Self::at_least(small, 0x61) & !Self::at_least(small, 0x7b) & !w
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plainly(block: &[u8; BLOCK], test: impl Fn(u8) -> bool) -> u64 {
        block.iter().enumerate().map(|(i, byte)| u64::from(test(*byte)) << i).sum()
    }

    /// Every value at every offset; under Miri, which is slow, every value at some offsets.
    fn blocks() -> impl Iterator<Item = [u8; BLOCK]> {
        (0..256_usize)
            .step_by(if cfg!(miri) { 64 } else { 1 })
            .map(|n| std::array::from_fn(|i| (n + i * 7 + (i >> 3) * 13) as u8))
    }

    #[test]
    fn all_ways_to_the_masks_follow_their_definition() {
        for block in blocks() {
            let plain = Masks {
                ascii: plainly(&block, |b| (0x20..0x7f).contains(&b) || b == 9),
                high: plainly(&block, |b| b >= 0x80),
                zero: plainly(&block, |b| b == 0),
                small: plainly(&block, |b| b <= 6),
            };
            check(Words, &block, plain);
            #[cfg(target_arch = "x86_64")]
            check(Sse2, &block, plain);
            #[cfg(target_arch = "x86_64")]
            if let Some(avx2) = Avx2::new() {
                check(avx2, &block, plain);
            }
        }
    }

    fn check(classifier: impl Classifier, block: &[u8; BLOCK], plain: Masks) {
        assert_eq!(classifier.masks(block), plain);
        assert_eq!(classifier.letters(block), plainly(block, |b| b.is_ascii_alphabetic()));
        for byte in 0x80..0xff {
            assert_eq!(classifier.above(block, byte) & plain.high, plainly(block, |b| b > byte), "{byte:#x}");
        }
    }

    fn text_of(bytes: &[u8]) -> String {
        let mut block = [0; BLOCK];
        block[..bytes.len()].copy_from_slice(bytes);
        let bits = text(Words, &block, Words.masks(&block), &mut Carry::default(), |_| true);
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
            assert_eq!(text(Words, block, Words.masks(block), &mut carry, |_| true), u64::MAX);
        }
    }

    #[test]
    fn units_of_two_bytes_are_found_in_pairs() {
        let mut block = [0xff; BLOCK];
        block[..12].copy_from_slice(&[b'a', 0, 0xe9, 0, 0x1f, 0, 0x16, 4, 7, 7, 0, 0]);
        assert_eq!(wide(Words.masks(&block)), 0b0000_1100_1111);
    }
}
