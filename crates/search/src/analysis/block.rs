//! Sixty-four bytes at once: which of them are in words, as a bit for each.
//!
//! ```text
//! bytes    net.core.somaxconn = 4096, x…
//! words    111111111111111111   1111  1      a . joins two letters: its bit is set
//! ```

/// Bytes of a block.
pub const SIZE: usize = 64;

const LETTER: u32 = 0;
const DIGIT: u32 = 1;
/// A letter, a digit or a `_`.
const WORD: u32 = 2;
/// `.`, `'` and `:`: between two letters.
const MID_LETTER: u32 = 3;
/// `.`, `'`, `,` and `;`: between two digits.
const MID_DIGIT: u32 = 4;
/// Not ASCII.
const WIDE: u32 = 5;

/// What is known of a block.
#[derive(Debug, Clone, Copy, Default)]
pub struct Block {
    /// The bytes that are in words, up to the first that is not ASCII. What joins two bytes of which one lies outside of the
    /// block is not.
    pub words: u64,
    /// The first byte that is not ASCII, or [`SIZE`].
    pub wide: usize,
}

/// Looks at a block.
pub fn look(bytes: &[u8; SIZE]) -> Block {
    let mut flags = [0u8; SIZE];
    for (flag, byte) in flags.iter_mut().zip(bytes) {
        *flag = flags_of(*byte);
    }
    let letters = gather(&flags, LETTER);
    let digits = gather(&flags, DIGIT);
    let between_letters = gather(&flags, MID_LETTER) & (letters << 1) & (letters >> 1);
    let between_digits = gather(&flags, MID_DIGIT) & (digits << 1) & (digits >> 1);
    let words = gather(&flags, WORD) | between_letters | between_digits;
    let wide = gather(&flags, WIDE);
    // The bits below the lowest one.
    let before = !wide & wide.wrapping_sub(1);
    Block { words: words & before, wide: wide.trailing_zeros() as usize }
}

/// What a byte is. Comparisons and no table, so that the compiler can look at many bytes at once.
fn flags_of(byte: u8) -> u8 {
    let is = |yes: bool, flag: u32| u8::from(yes) << flag;
    let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    let digit = byte.wrapping_sub(b'0') < 10;
    let dot = (byte == b'.') | (byte == b'\'');
    is(letter, LETTER)
        | is(digit, DIGIT)
        | is(letter | digit | (byte == b'_'), WORD)
        | is(dot | (byte == b':'), MID_LETTER)
        | is(dot | (byte == b',') | (byte == b';'), MID_DIGIT)
        | is(byte >= 0x80, WIDE)
}

/// The bits of one flag, that of the first byte lowest.
fn gather(flags: &[u8; SIZE], flag: u32) -> u64 {
    let mut bits = 0;
    for (i, eight) in flags.as_chunks::<8>().0.iter().enumerate() {
        let ones = (u64::from_le_bytes(*eight) >> flag) & 0x0101_0101_0101_0101;
        // The product has the lowest bits of the eight bytes in its highest byte.
        bits |= (ones.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(text: &str) -> (String, usize) {
        let mut bytes = [b' '; SIZE];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let block = look(&bytes);
        ((0..text.len()).map(|i| if block.words >> i & 1 == 1 { '#' } else { '-' }).collect(), block.wide)
    }

    #[test]
    fn bits_of_words() {
        for (text, is, wide) in [
            ("net.core.x = 1,0", "##########---###", SIZE),
            ("a:1 1:a a,b .a a.", "#-#-#-#-#-#--#-#-", SIZE),
            ("it's 1'0 _ ab", "####-###-#-##", SIZE),
            ("A.Z 0;9 [`{@/^", "###-###-------", SIZE),
            ("ab c\u{e9}d", "##-#---", 4),
        ] {
            assert_eq!(bits(text), (is.to_owned(), wide), "{text}");
        }
        assert_eq!(look(&[b'a'; SIZE]).words, u64::MAX);
        assert_eq!(look(&[0xC3; SIZE]).words, 0);
    }
}
