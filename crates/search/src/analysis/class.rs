//! What a character is to the rules of words.
//!
//! The ranges are in `classes.txt`, a line for some of a class, in hexadecimal. They are those of Unicode 12.1,
//! which is what Lucene 9 knows; a character that came later is [`Class::Other`], as it is there.
//!
//! ```text
//! Hebrew 5D0-5EA 5F0-5F2 FB1D
//! ```

use std::sync::LazyLock;

/// The ranges of all classes.
const TABLE: &str = include_str!("classes.txt");

/// What a character is to the rules of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It is in no word.
    Other,
    /// A letter.
    Letter,
    /// A letter that is a picture too.
    PictureLetter,
    /// A letter of Hebrew.
    Hebrew,
    /// A digit.
    Digit,
    /// A letter of Katakana.
    Katakana,
    /// `_` and its like.
    Joiner,
    /// `:` and its like: between letters.
    MidLetter,
    /// `,` and its like: between digits.
    MidDigit,
    /// `.` and its like: between letters, between digits.
    MidBoth,
    /// `'`
    Quote,
    /// `"`
    DoubleQuote,
    /// It belongs to what stands before it.
    Mark,
    /// A mark that joins two pictures.
    ZeroWidthJoiner,
    /// A mark after which a picture has colours.
    ColourMark,
    /// A mark after which a picture has none.
    TextMark,
    /// A mark: the frame of a key.
    KeyCap,
    /// A character of a script without spaces.
    Complex,
    /// Such a character that is a mark.
    ComplexMark,
    /// A character for a word, or a syllable of Hiragana.
    Ideograph,
    /// A letter of a flag.
    Flag,
    /// `#` and `*`.
    Key,
    /// A picture.
    Picture,
    /// A mark: a colour of skin, and a picture where nothing stands before it.
    Modifier,
    /// A mark of a sequence of tags.
    Tag,
    /// A mark: the end of such a sequence.
    TagEnd,
}

/// The classes by the names that they have in the table.
const NAMES: &[(&str, Class)] = &[
    ("Letter", Class::Letter),
    ("PictureLetter", Class::PictureLetter),
    ("Hebrew", Class::Hebrew),
    ("Digit", Class::Digit),
    ("Katakana", Class::Katakana),
    ("Joiner", Class::Joiner),
    ("MidLetter", Class::MidLetter),
    ("MidDigit", Class::MidDigit),
    ("MidBoth", Class::MidBoth),
    ("Quote", Class::Quote),
    ("DoubleQuote", Class::DoubleQuote),
    ("Mark", Class::Mark),
    ("ZeroWidthJoiner", Class::ZeroWidthJoiner),
    ("ColourMark", Class::ColourMark),
    ("TextMark", Class::TextMark),
    ("KeyCap", Class::KeyCap),
    ("Complex", Class::Complex),
    ("ComplexMark", Class::ComplexMark),
    ("Ideograph", Class::Ideograph),
    ("Flag", Class::Flag),
    ("Key", Class::Key),
    ("Picture", Class::Picture),
    ("Modifier", Class::Modifier),
    ("Tag", Class::Tag),
    ("TagEnd", Class::TagEnd),
];

impl Class {
    /// Whether it belongs to what stands before it.
    #[must_use]
    pub fn is_mark(self) -> bool {
        matches!(
            self,
            Self::Mark
                | Self::ZeroWidthJoiner
                | Self::ColourMark
                | Self::TextMark
                | Self::KeyCap
                | Self::ComplexMark
                | Self::Modifier
                | Self::Tag
                | Self::TagEnd
        )
    }
}

/// First and last character of each range, in order.
static RANGES: LazyLock<Vec<(u32, u32, Class)>> = LazyLock::new(|| {
    let mut ranges: Vec<_> = TABLE.lines().filter_map(line).flatten().collect();
    ranges.sort_unstable_by_key(|(first, ..)| *first);
    ranges
});

/// The ranges of a line.
fn line(line: &str) -> Option<Vec<(u32, u32, Class)>> {
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
static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
    let mut classes = vec![Class::Other; NEAR];
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
pub fn class(c: char) -> Class {
    let c = u32::from(c);
    if let Some(class) = CLASSES.get(c as usize) {
        return *class;
    }
    let after = RANGES.partition_point(|(first, ..)| *first <= c);
    let range = after.checked_sub(1).and_then(|at| RANGES.get(at));
    range.filter(|(_, last, _)| *last >= c).map_or(Class::Other, |(.., class)| *class)
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
            ('a', Class::Letter),
            ('Ж', Class::Letter),
            ('한', Class::Letter),
            ('ℹ', Class::PictureLetter),
            ('א', Class::Hebrew),
            ('7', Class::Digit),
            ('٣', Class::Digit),
            ('７', Class::Digit),
            ('カ', Class::Katakana),
            ('ひ', Class::Ideograph),
            ('中', Class::Ideograph),
            ('ก', Class::Complex),
            ('\u{E31}', Class::ComplexMark),
            ('\u{301}', Class::Mark),
            ('😀', Class::Picture),
            ('🏽', Class::Modifier),
            ('🇩', Class::Flag),
            ('·', Class::MidLetter),
            ('‘', Class::MidBoth),
            (' ', Class::Other),
            ('/', Class::Other),
            ('\u{10D50}', Class::Other),
        ] {
            assert_eq!(class(c), is, "{c}");
        }
    }
}
