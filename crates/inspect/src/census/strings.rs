//! Splits runs of possible text into strings, character by character, if they have non-ASCII bytes.
//!
//! A character is printable ASCII or the tab; a valid UTF-8 sequence that is no control character;
//! a Latin-1 letter after an ASCII letter and before any ASCII character, in strings of one byte a
//! character (PEP 393, compact strings of Java). Random bytes have the same form, so four of five
//! characters of such a string must be letters, digits or spaces. In UTF-16 it is a unit at an even
//! address: ASCII, Latin-1, or a letter or digit of U+0100 to U+06FF, of one alphabet per string.
//! Higher scripts are not searched in UTF-16, where any two ASCII letters form one.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::classify::{BLOCK, Classifier, Masks, PLAIN};

/// The encoding of a string in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Printable ASCII only.
    Ascii,
    /// UTF-8 with multibyte characters.
    Utf8,
    /// Latin-1 with letters above ASCII.
    Latin1,
    /// UTF-16, little-endian.
    Utf16,
}

impl Encoding {
    pub(super) const ALL: [Encoding; 4] =
        [Encoding::Ascii, Encoding::Utf8, Encoding::Latin1, Encoding::Utf16];

    /// Its name in text and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::Ascii => "ascii",
            Encoding::Utf8 => "utf8",
            Encoding::Latin1 => "latin1",
            Encoding::Utf16 => "utf16",
        }
    }
}

pub(super) fn is_ascii_text(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) || byte == b'\t'
}

/// Bytes of a multibyte UTF-8 character at the front that is no control character (U+0080 to
/// U+009F). Unicode 15, table 3-7.
fn utf8(bytes: &[u8]) -> Option<usize> {
    let follows = |byte: u8| byte & 0xc0 == 0x80;
    let (length, is_valid) = match *bytes {
        [0xc2, b, ..] => (2, (0xa0..=0xbf).contains(&b)),
        [0xc3..=0xdf, b, ..] => (2, follows(b)),
        [0xe0, b, c, ..] => (3, (0xa0..=0xbf).contains(&b) && follows(c)),
        [0xed, b, c, ..] => (3, (0x80..=0x9f).contains(&b) && follows(c)),
        [0xe1..=0xef, b, c, ..] => (3, follows(b) && follows(c)),
        [0xf0, b, c, d, ..] => (4, (0x90..=0xbf).contains(&b) && follows(c) && follows(d)),
        [0xf1..=0xf3, b, c, d, ..] => (4, follows(b) && follows(c) && follows(d)),
        [0xf4, b, c, d, ..] => (4, (0x80..=0x8f).contains(&b) && follows(c) && follows(d)),
        _ => return None,
    };
    is_valid.then_some(length)
}

fn is_latin(bytes: &[u8], at: usize) -> bool {
    let Some([before, letter, after]) =
        at.checked_sub(1).and_then(|from| bytes.get(from..at + 2)?.first_chunk())
    else {
        return false;
    };
    is_latin_letter(*letter) && before.is_ascii_alphabetic() && is_ascii_text(*after)
}

/// U+00C0 to U+00FE without × and ÷.
const fn is_latin_letter(byte: u8) -> bool {
    matches!(byte, 0xc0..=0xd6 | 0xd8..=0xf6 | 0xf8..=0xfe)
}

/// Whether a Latin-1 string looks like text.
fn is_written(bytes: &[u8]) -> bool {
    let is_of_words = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b' ' || is_latin_letter(**byte);
    5 * bytes.iter().filter(is_of_words).count() >= 4 * bytes.len()
}

/// Weights of bytes in that judgement: one for characters of words, and more for Latin-1 letters.
const WORTH: [u32; 256] = {
    let mut worth = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        worth[byte] = match byte as u8 {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b' ' => 1,
            byte if is_latin_letter(byte) => 1 + LATIN,
            _ => 0,
        };
        byte += 1;
    }
    worth
};
const LATIN: u32 = 1 << 16;

/// Longest run that is judged at once: a block has what its last character needs.
const SHORT: usize = BLOCK - 4;

/// The answer of [`split_text`] for a short run, if it is plain: all of it, or nothing (inner
/// `None`). `block` has what follows too. Most runs are binary or well-formed text.
#[inline(always)]
pub(super) fn whole(block: &[u8; BLOCK], length: usize, chars_min: usize) -> Option<Option<Encoding>> {
    if length > SHORT {
        return None;
    }
    let own = (1 << length) - 1;
    let Masks { ascii, high, .. } = PLAIN.masks(block);
    let (ascii, high) = (ascii & own, high & own);
    let lead = high & PLAIN.above(block, 0xbf);
    let above = |byte| lead & PLAIN.above(block, byte);
    let continuations = high & !lead;
    let chars = length - continuations.count_ones() as usize;
    if chars < chars_min {
        return Some(None);
    }
    if ascii | high != own {
        return None;
    }
    if continuations != 0 {
        // Two and three bytes, except leads that restrict their second byte.
        let three = above(0xdf);
        let odd = three & (!above(0xe0) | above(0xec));
        let is_plain = continuations == lead << 1 | three << 2 && above(0xc2) == lead && odd == 0;
        return is_plain.then_some(Some(Encoding::Utf8));
    }
    if lead & PLAIN.letters(block) << 1 & ascii >> 1 != lead {
        return None;
    }
    let worth: u32 = block[..length].iter().map(|byte| WORTH[usize::from(*byte)]).sum();
    if worth / LATIN != lead.count_ones() {
        return None;
    }
    if 5 * (worth % LATIN) as usize >= 4 * length {
        return Some(Some(Encoding::Latin1));
    }
    // The ASCII parts between may be strings.
    let parts = (1..chars_min).fold(ascii, |parts, _| parts & parts >> 1);
    (parts == 0).then_some(None)
}

pub(super) fn split_text(bytes: &[u8], chars_min: usize, mut take: impl FnMut(Range<usize>, Encoding)) {
    let (mut start, mut chars, mut encoding) = (0, 0, Encoding::Ascii);
    let mut at = 0;
    let mut end = |range: Range<usize>, chars: usize, encoding| {
        if chars < chars_min {
            return;
        }
        if encoding != Encoding::Latin1 || is_written(&bytes[range.clone()]) {
            return take(range, encoding);
        }
        // The ASCII parts remain.
        let mut from = range.start;
        for part in bytes[range].split(|byte| *byte >= 0x80) {
            if part.len() >= chars_min {
                take(from..from + part.len(), Encoding::Ascii);
            }
            from += part.len() + 1;
        }
    };
    while at < bytes.len() {
        let ascii = bytes[at..].iter().position(|byte| !is_ascii_text(*byte)).unwrap_or(bytes.len() - at);
        at += ascii;
        chars += ascii;
        if at == bytes.len() {
            break;
        }
        let (next, length) = if let Some(length) = utf8(&bytes[at..]) {
            (Encoding::Utf8, length)
        } else if is_latin(bytes, at) {
            (Encoding::Latin1, 1)
        } else {
            end(start..at, chars, encoding);
            at += 1;
            (start, chars, encoding) = (at, 0, Encoding::Ascii);
            continue;
        };
        // A string has one encoding.
        if next != encoding && encoding != Encoding::Ascii {
            end(start..at, chars, encoding);
            (start, chars) = (at, 0);
        }
        encoding = next;
        chars += 1;
        at += length;
    }
    end(start..at, chars, encoding);
}

/// The alphabet of a non-ASCII UTF-16 unit; `None` if it is no text.
fn alphabet(unit: u16) -> Option<u8> {
    let letter = || char::from_u32(u32::from(unit)).is_some_and(char::is_alphanumeric);
    match unit >> 8 {
        0 => (unit >= 0xa0).then_some(0),
        1 | 2 => letter().then_some(0),
        upper @ 3..=6 => letter().then_some(upper as u8),
        _ => None,
    }
}

/// The UTF-16 strings of a run of whole units.
pub(super) fn split_wide(bytes: &[u8], chars_min: usize, mut take: impl FnMut(Range<usize>)) {
    let units = bytes.as_chunks::<2>().0;
    let (mut start, mut tiny, mut script) = (0, 0, None);
    let mut end = |range: Range<usize>, tiny: usize| {
        // Arrays of small numbers look like letters with a low byte below 7, which text rarely has.
        if range.len() >= chars_min && 2 * tiny <= range.len() {
            take(2 * range.start..2 * range.end);
        }
    };
    for (at, unit) in units.iter().enumerate() {
        let unit = u16::from_le_bytes(*unit);
        let is_ascii = u8::try_from(unit).is_ok_and(is_ascii_text);
        let found = if is_ascii { None } else { alphabet(unit) };
        if !is_ascii && found.is_none() {
            end(start..at, tiny);
            (start, tiny, script) = (at + 1, 0, None);
            continue;
        }
        if found.is_some() && script.is_some() && script != found {
            end(start..at, tiny);
            (start, tiny, script) = (at, 0, None);
        }
        script = script.or(found);
        tiny += usize::from(unit & 0xff <= 6);
    }
    end(start..units.len(), tiny);
}

/// Writes whole characters as UTF-8 as far as there is room, and returns their bytes.
pub(super) fn decode(bytes: &[u8], encoding: Encoding, into: &mut [u8]) -> usize {
    // Most are ASCII.
    let front = &bytes[..bytes.len().min(into.len())];
    if encoding != Encoding::Utf16 && front.is_ascii() {
        into[..front.len()].copy_from_slice(front);
        return front.len();
    }
    let mut done = 0;
    let mut put = |char: char| {
        let length = char.len_utf8();
        let fits = done + length <= into.len();
        if fits {
            char.encode_utf8(&mut into[done..]);
            done += length;
        }
        fits
    };
    match encoding {
        Encoding::Ascii | Encoding::Latin1 => {
            _ = bytes.iter().all(|byte| put(char::from(*byte)));
        }
        Encoding::Utf8 => {
            // A cut string may end within a character.
            for chunk in bytes.utf8_chunks() {
                if !chunk.valid().chars().all(&mut put) {
                    break;
                }
            }
        }
        Encoding::Utf16 => {
            let units = bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
            _ = char::decode_utf16(units).all(|char| put(char.unwrap_or(char::REPLACEMENT_CHARACTER)));
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(bytes: &[u8]) -> Vec<(&[u8], Encoding)> {
        let mut found = Vec::new();
        split_text(bytes, 4, |range, encoding| found.push((&bytes[range], encoding)));
        found
    }

    #[test]
    fn characters_of_several_bytes_are_those_of_the_standard_library() {
        let edges = [0, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xff];
        for first in 0..=255 {
            for (b, c, d) in
                edges.iter().flat_map(|b| edges.iter().flat_map(move |c| edges.map(|d| (*b, *c, d))))
            {
                let bytes = [first, b, c, d];
                let expected = (2..=4).find(|length| {
                    let text = str::from_utf8(&bytes[..*length]).ok();
                    text.is_some_and(|text| text.chars().count() == 1 && !text.contains(char::is_control))
                });
                assert_eq!(utf8(&bytes), expected, "{bytes:x?}");
                assert!((0..4).all(|length| utf8(&bytes[..length]).is_none_or(|found| found <= length)));
            }
        }
    }

    /// Bytes that occur in text of any encoding, and some that do not.
    const ALPHABET: [&[u8]; 16] = [
        b"a",
        b"Z",
        b" ",
        b"7",
        b"-",
        b"~",
        b"\xfc",
        b"\xd7",
        b"\xc2",
        b"\x85",
        b"\xe0",
        b"\xed",
        "ö".as_bytes(),
        "€".as_bytes(),
        "😀".as_bytes(),
        b"words",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn what_is_judged_at_once_is_what_is_found_in_parts(
            parts in prop::collection::vec(prop::sample::select(ALPHABET.to_vec()), 1..16),
            usual in prop::sample::select(vec!["ö", "€", "é", "a"]),
            behind in any::<u8>(),
            chars_min in 4_usize..9,
        ) {
            for run in [parts.concat(), [b"some", usual.as_bytes(), parts[0], b"where"].concat()] {
                let mut block = [behind; BLOCK];
                let length = run.len().min(BLOCK);
                block[..length].copy_from_slice(&run[..length]);
                let mut found = Vec::new();
                split_text(&block[..length], chars_min, |range, encoding| found.push((range, encoding)));
                if let Some(whole) = whole(&block, length, chars_min)
                    && block[..length].iter().any(|byte| *byte >= 0x80)
                {
                    prop_assert_eq!(found, Vec::from_iter(whole.map(|encoding| (0..length, encoding))));
                }
            }
        }
    }

    #[test]
    fn what_is_usual_is_judged_at_once() {
        let judged = |text: &[u8]| {
            let mut block = [b'x'; BLOCK];
            block[..text.len()].copy_from_slice(text);
            whole(&block, text.len(), 6)
        };
        assert_eq!(judged("Größe für 12 €".as_bytes()), Some(Some(Encoding::Utf8)));
        assert_eq!(judged(b"M\xfcller GmbH"), Some(Some(Encoding::Latin1)));
        assert_eq!(judged(b"<=\x22?a\xfc*()-"), Some(None));
        assert_eq!(judged("€€".as_bytes()), Some(None));
    }

    #[test]
    fn characters_count_not_bytes() {
        assert_eq!(split("größe".as_bytes()), [("größe".as_bytes(), Encoding::Utf8)]);
        assert_eq!(split("€€€".as_bytes()), []);
        assert_eq!(split("日本語版".as_bytes()).len(), 1);
    }

    #[test]
    fn what_is_no_character_ends_a_string() {
        let mut bytes = b"first".to_vec();
        bytes.extend(b"\xc3second\xff\xfethird\xc2\x85fourth");
        let texts: Vec<&[u8]> = split(&bytes).iter().map(|(text, _)| *text).collect();
        // The first string is taken for Latin-1: an Ã between letters.
        assert_eq!(texts, [&b"first\xc3second"[..], b"third", b"fourth"]);
        assert_eq!(split(b"x\xed\xa0\x80abcd\xf5").len(), 1, "a surrogate is none");
    }

    #[test]
    fn latin_1_stands_among_letters_and_not_beside_utf_8() {
        assert_eq!(split(b"M\xfcller GmbH"), [(&b"M\xfcller GmbH"[..], Encoding::Latin1)]);
        assert_eq!(split(b"12\xfc34"), []);
        assert_eq!(
            split(b"<=\x22?a\xfc*()-"),
            [(&b"<=\"?a"[..], Encoding::Ascii), (b"*()-", Encoding::Ascii)]
        );
        let mixed = [&b"M\xfcller "[..], "größe".as_bytes()].concat();
        let found = split(&mixed);
        assert_eq!(found[0], (&b"M\xfcller gr"[..], Encoding::Latin1));
        assert_eq!(found.len(), 1, "what is left is too short");
    }

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn utf_16_is_of_one_alphabet() {
        let found = |bytes: &[u8]| {
            let mut found = Vec::new();
            split_wide(bytes, 4, |range| {
                let mut text = [0; 64];
                let length = decode(&bytes[range], Encoding::Utf16, &mut text);
                found.push(String::from_utf8(text[..length].to_vec()).unwrap());
            });
            found
        };
        assert_eq!(found(&wide("Привет, мир 1")), ["Привет, мир 1"]);
        assert_eq!(found(&wide("größeПривет")), ["größe", "Привет"]);
        assert_eq!(found(&wide("abc\u{1}defg")), ["defg"]);
        let numbers: Vec<u8> = (0..32).map(|i| i % 3 + 1).collect();
        assert_eq!(found(&numbers), Vec::<String>::new());
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        let mut into = [0; 6];
        assert_eq!(decode("aé€😀".as_bytes(), Encoding::Utf8, &mut into), 6);
        assert_eq!(&into, "aé€".as_bytes());
        assert_eq!(decode(&"€€€".as_bytes()[..8], Encoding::Utf8, &mut into), 6);
        assert_eq!(decode(b"\xe9\xe9\xe9\xe9", Encoding::Latin1, &mut into), 6);
        assert_eq!(decode(b"abc", Encoding::Ascii, &mut []), 0);
    }
}
