//! What a character is to the rules of words.
//!
//! The ranges are in `classes.txt`, a line for some of a class, in hexadecimal. They are those of Unicode 12.1,
//! which is what Lucene 9 knows; a character that came later is in no word, as it is there.
//!
//! ```text
//! Hebrew 5D0-5EA 5F0-5F2 FB1D
//! ```

use std::sync::LazyLock;

/// The ranges of all classes.
const TABLE: &str = include_str!("classes.txt");

/// It is in no word.
pub const OTHER: u8 = b' ';

/// The classes by the names that they have in the table, with their letters in the grammar.
#[rustfmt::skip]
const NAMES: &[(&str, u8)] = &[
    ("Letter", b'L'),
    ("PictureLetter", b'P'), // A letter that is a picture too.
    ("Hebrew", b'H'),
    ("Digit", b'D'),
    ("Katakana", b'K'),
    ("Joiner", b'J'), // `_` and its like.
    ("MidLetter", b':'), // `:` and its like: between letters.
    ("MidDigit", b','), // `,` and its like: between digits.
    ("MidBoth", b'.'), // `.` and its like: between letters, between digits.
    ("Quote", b'\''),
    ("DoubleQuote", b'q'),
    ("Mark", b'x'), // It belongs to the character before it, as all that follow.
    ("ZeroWidthJoiner", b'z'), // Joins two pictures.
    ("ColourMark", b'v'), // After it a picture has colours.
    ("TextMark", b't'), // After it a picture has none.
    ("KeyCap", b'k'), // The frame of a key.
    ("Complex", b'C'), // A character of a script without spaces.
    ("ComplexMark", b'c'), // Such a character that is a mark.
    ("Ideograph", b'I'), // A character for a word, or a syllable of Hiragana.
    ("Flag", b'F'), // A letter of a flag.
    ("Key", b'#'), // `#` and `*`.
    ("Picture", b'E'),
    ("Modifier", b'M'), // A colour of skin: a mark, and a picture where nothing stands before it.
    ("Tag", b'g'), // A sequence of tags: marks.
    ("TagEnd", b'e'), // The end of such a sequence.
];

/// First and last character of each range, in order.
static RANGES: LazyLock<Vec<(u32, u32, u8)>> = LazyLock::new(|| {
    let mut ranges: Vec<_> = TABLE.lines().filter_map(line).flatten().collect();
    ranges.sort_unstable_by_key(|(first, ..)| *first);
    ranges
});

/// The ranges of a line.
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

/// Characters whose class is looked up at once: those of the first plane.
const NEAR: usize = 0x1_0000;

/// Their classes.
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

/// The class of a character.
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
