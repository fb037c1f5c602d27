//! The character classes of the token grammar.
//!
//! `classes.txt` lists the ranges in hexadecimal, a class may take several lines. The ranges are
//! those of Unicode 12.1, as in Lucene 9. A character added to Unicode later belongs to no token,
//! as in Lucene.
//!
//! ```text
//! Hebrew 5D0-5EA 5F0-5F2 FB1D
//! ```

use std::sync::LazyLock;

/// The ranges of all classes.
const TABLE: &str = include_str!("classes.txt");

/// The class of characters that belong to no token.
pub const OTHER: u8 = b' ';

/// The class names in `classes.txt`, and the letter that the grammar uses for each.
#[rustfmt::skip]
const NAMES: &[(&str, u8)] = &[
    ("Letter", b'L'),
    ("PictureLetter", b'P'), // A letter that is also a pictograph.
    ("Hebrew", b'H'),
    ("Digit", b'D'),
    ("Katakana", b'K'),
    ("Joiner", b'J'), // `_` and similar.
    ("MidLetter", b':'), // `:` and similar: joins letters.
    ("MidDigit", b','), // `,` and similar: joins digits.
    ("MidBoth", b'.'), // `.` and similar: joins letters, joins digits.
    ("Quote", b'\''),
    ("DoubleQuote", b'q'),
    ("Mark", b'x'), // Belongs to the character before it, like every mark.
    ("ZeroWidthJoiner", b'z'), // Joins two pictographs.
    ("ColourMark", b'v'), // Variation selector 16: shows the pictograph before it in colour.
    ("TextMark", b't'), // Variation selector 15: shows the pictograph before it as text.
    ("KeyCap", b'k'), // U+20E3, the enclosing keycap.
    ("Complex", b'C'), // A letter of a script written without spaces.
    ("ComplexMark", b'c'), // A mark of such a script.
    ("Ideograph", b'I'), // An ideograph or a Hiragana syllable.
    ("Flag", b'F'), // A regional indicator; two of them are a flag.
    ("Key", b'#'), // `#` and `*`.
    ("Picture", b'E'),
    ("Modifier", b'M'), // A skin colour: a mark, or a pictograph if nothing precedes it.
    ("Tag", b'g'), // A character of an emoji tag sequence: a mark.
    ("TagEnd", b'e'), // Ends an emoji tag sequence.
];

/// First and last character of each range, in order.
static RANGES: LazyLock<Vec<(u32, u32, u8)>> = LazyLock::new(|| {
    let mut ranges: Vec<_> = TABLE.lines().filter_map(line).flatten().collect();
    ranges.sort_unstable_by_key(|(first, ..)| *first);
    ranges
});

fn line(line: &str) -> Option<Vec<(u32, u32, u8)>> {
    let (name, ranges) = line.split_once(' ')?;
    let (_, class) = NAMES.iter().find(|(known, _)| *known == name)?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((number(first)?, number(last)?, *class))
    };
    ranges.split(' ').map(range).collect()
}

/// Characters below this limit (the Basic Multilingual Plane) are looked up in an array.
const NEAR: usize = 0x1_0000;

/// The classes of the characters below [`NEAR`].
static CLASSES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut classes = vec![OTHER; NEAR];
    for (first, last, class) in RANGES.iter() {
        let length = last - first + 1;
        for to in classes.iter_mut().skip(*first as usize).take(length as usize) {
            *to = *class;
        }
    }
    classes
});

/// The class of a character; [`OTHER`] if `classes.txt` does not list it.
#[must_use]
pub fn class(c: char) -> u8 {
    let c = u32::from(c);
    if let Some(class) = CLASSES.get(c as usize) {
        return *class;
    }
    let after = RANGES.partition_point(|(first, ..)| *first <= c);
    let range = after.checked_sub(1).and_then(|at| RANGES.get(at));
    range.filter(|(_, last, _)| *last >= c).map_or(OTHER, |(.., class)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_and_no_ranges_overlap() {
        for (i, text) in TABLE.lines().enumerate() {
            assert!(line(text).is_some(), "classes.txt:{}: {text}", i + 1);
        }
        for pair in RANGES.windows(2) {
            assert!(pair[0].0 <= pair[0].1 && pair[0].1 < pair[1].0, "{pair:X?}");
        }
    }

    #[test]
    fn every_class_has_characters() {
        for (name, class) in NAMES {
            assert!(RANGES.iter().any(|(.., of)| of == class), "{name}");
        }
    }

    #[test]
    fn classes_of_some_characters() {
        for (c, is) in [
            ('a', "Letter"),
            ('Ж', "Letter"),
            ('한', "Letter"),
            ('ℹ', "PictureLetter"),
            ('א', "Hebrew"),
            ('7', "Digit"),
            ('٣', "Digit"),
            ('７', "Digit"),
            ('カ', "Katakana"),
            ('ひ', "Ideograph"),
            ('中', "Ideograph"),
            ('ก', "Complex"),
            ('\u{E31}', "ComplexMark"),
            ('\u{301}', "Mark"),
            ('😀', "Picture"),
            ('🏽', "Modifier"),
            ('🇩', "Flag"),
            ('·', "MidLetter"),
            ('‘', "MidBoth"),
            (' ', "Other"),
            ('/', "Other"),
            ('\u{10D50}', "Other"),
        ] {
            let name = NAMES.iter().find(|(_, letter)| *letter == class(c)).map_or("Other", |(name, _)| name);
            assert_eq!(name, is, "{c}");
        }
    }
}
