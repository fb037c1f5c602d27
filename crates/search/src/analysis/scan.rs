//! The way through a text, from word to word: blocks of bytes as long as it is ASCII, the whole grammar where it is not.
//!
//! In ASCII the rules come to this. Letters, digits and `_` belong to a word, which has at least one letter or digit. Between
//! two letters `.`, `'` and `:` belong to it, between two digits `.`, `'`, `,` and `;`. Everything else parts words:
//!
//! ```text
//! net.core.somaxconn | 10.0.0.1 : 9200 | a1 . b2 | __init__ | 1,000 | é…      the last goes to the grammar, from its beginning
//! ```
//!
//! A block of bytes is looked at as a whole (see [`super::block`]), which finds nearly all words. One that may go on behind the
//! block, or outside of ASCII, is looked at byte by byte.

use super::block::{self, Block};
use super::{WORD_MAX, grammar};

const OTHER: u8 = 0;
const LETTER: u8 = 1;
const DIGIT: u8 = 2;
const JOINER: u8 = 3;
/// `.` and `'`: between two letters, between two digits.
const DOT: u8 = 4;
/// Between two letters.
const COLON: u8 = 5;
/// `,` and `;`: between two digits.
const COMMA: u8 = 6;
/// `#` and `*`: with what follows they can be a picture of a key.
const KEY: u8 = 7;
/// The first byte of a character outside of ASCII.
const WIDE: u8 = 8;

/// What a byte is to the rules.
static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [OTHER; 256];
    let mut byte = 0u8;
    loop {
        classes[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' => LETTER,
            b'0'..=b'9' => DIGIT,
            b'_' => JOINER,
            b'.' | b'\'' => DOT,
            b':' => COLON,
            b',' | b';' => COMMA,
            b'#' | b'*' => KEY,
            0x80.. => WIDE,
            _ => OTHER,
        };
        if byte == u8::MAX {
            return classes;
        }
        byte += 1;
    }
}

fn class(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).map_or(OTHER, |byte| CLASSES[usize::from(*byte)])
}

fn of_word(class: u8) -> bool {
    matches!(class, LETTER | DIGIT | JOINER)
}

/// A word, as it stands in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// The word.
    pub word: &'a str,
    /// Where it begins, in bytes.
    pub at: usize,
    /// There is nothing but ASCII in it.
    pub ascii: bool,
}

/// The way through a text.
#[derive(Debug, Clone)]
pub struct Scanner<'a> {
    text: &'a str,
    /// Where to go on when the words of the block are used up.
    at: usize,
    /// The block, without the words that were found.
    block: Block,
    /// Where it begins.
    start: usize,
}

/// What begins at a letter, a digit or a `_`.
enum Run {
    /// A word up to there.
    Word(usize),
    /// No word; the next may begin there.
    None(usize),
    /// It may go on outside of ASCII.
    Wide,
}

impl<'a> Scanner<'a> {
    /// From the beginning of a text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0, block: Block::default(), start: usize::MAX }
    }

    fn found(&self, at: usize, end: usize, ascii: bool) -> Option<Found<'a>> {
        self.text.get(at..end).map(|word| Found { word, at, ascii })
    }

    /// Looks at the block that begins here.
    fn look(&mut self) {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        self.block = match rest.first_chunk() {
            Some(bytes) => block::look(bytes),
            None => {
                let mut bytes = [0; block::SIZE];
                for (to, from) in bytes.iter_mut().zip(rest) {
                    *to = *from;
                }
                block::look(&bytes)
            }
        };
        self.start = self.at;
        self.at += self.block.wide.saturating_sub(1);
    }

    /// The next word that the block is sure of. What stands next to its end, or to a byte outside of ASCII with one between,
    /// it is not sure of.
    fn of_block(&mut self) -> Option<Found<'a>> {
        while self.block.words != 0 {
            let from = self.block.words.trailing_zeros() as usize;
            let end = from + (!(self.block.words >> from)).trailing_zeros() as usize;
            if end + 1 >= self.block.wide {
                self.at = self.start + from;
                self.block.words = 0;
                return None;
            }
            self.block.words = self.block.words >> end << end;
            let (at, end) = (self.start + from, self.start + end);
            if !only_joiners(self.text.as_bytes(), at, end) {
                return self.found(at, end, true);
            }
        }
        None
    }

    /// A word that begins here, or past what begins none.
    fn slowly(&mut self) -> Option<Found<'a>> {
        let bytes = self.text.as_bytes();
        let at = self.at;
        match class(bytes, at) {
            LETTER | DIGIT | JOINER => match run(bytes, at) {
                Run::Word(end) => {
                    self.at = end;
                    self.found(at, end, true)
                }
                Run::None(next) => {
                    self.at = next;
                    None
                }
                Run::Wide => self.wide(),
            },
            KEY if class(bytes, at + 1) == WIDE => self.wide(),
            WIDE => self.wide(),
            _ => {
                self.at += 1;
                None
            }
        }
    }

    /// A word outside of ASCII that begins here, or past the character that begins none.
    fn wide(&mut self) -> Option<Found<'a>> {
        let at = self.at;
        let rest = self.text.get(at..)?;
        if let Some(length) = grammar::word(rest) {
            self.at += length;
            return self.found(at, self.at, false);
        }
        self.at += rest.chars().next().map_or(1, char::len_utf8);
        None
    }
}

impl<'a> Iterator for Scanner<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        loop {
            if let Some(found) = self.of_block() {
                return Some(found);
            }
            let first = *self.text.as_bytes().get(self.at)?;
            if self.at != self.start && first.is_ascii() {
                self.look();
            } else if let Some(found) = self.slowly() {
                return Some(found);
            }
        }
    }
}

/// What begins at a letter, a digit or a `_`. No more than [`WORD_MAX`] bytes are looked at.
fn run(bytes: &[u8], start: usize) -> Run {
    let stop = bytes.len().min(start + WORD_MAX);
    let mut at = start;
    while at < stop {
        let now = class(bytes, at);
        if of_word(now) {
            at += 1;
            continue;
        }
        if now == WIDE {
            return Run::Wide;
        }
        if !matches!(now, DOT | COLON | COMMA) || at + 1 >= stop {
            break;
        }
        let next = class(bytes, at + 1);
        if next == WIDE {
            return Run::Wide;
        }
        let joins = match class(bytes, at - 1) {
            LETTER => next == LETTER && now != COMMA,
            DIGIT => next == DIGIT && now != COLON,
            _ => false,
        };
        if !joins {
            break;
        }
        at += 2;
    }
    if only_joiners(bytes, start, at) {
        return Run::None(after_joiners(bytes, start));
    }
    Run::Word(at)
}

fn only_joiners(bytes: &[u8], start: usize, end: usize) -> bool {
    bytes.get(start) == Some(&b'_') && bytes.iter().take(end).skip(start).all(|byte| *byte == b'_')
}

/// Where a word can begin at the earliest, when so many `_` stand here that none does: with the last of them, if a letter
/// follows near enough.
fn after_joiners(bytes: &[u8], start: usize) -> usize {
    let count = bytes.iter().skip(start).take_while(|byte| **byte == b'_').count();
    let end = start + count;
    if of_word(class(bytes, end)) || class(bytes, end) == WIDE {
        (end + 1).saturating_sub(WORD_MAX).max(start + 1)
    } else {
        end
    }
}
