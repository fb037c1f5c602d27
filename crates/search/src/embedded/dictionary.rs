//! What is asked of a dictionary of terms: the one on disk ([`super::text`]) and the one in memory ([`super::fresh`]) answer
//! alike.

use tantivy_fst::Automaton;

use super::bits::Bits;
use crate::query::Bound;
use crate::query::matcher::Matcher;

/// Which dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Words of texts, lowercased, with their positions.
    Words,
    /// Facts, as [`super::terms`] writes them.
    Facts,
}

/// Which terms.
#[derive(Debug, Clone)]
pub(super) enum Wanted<'a> {
    /// This one.
    One(String),
    /// Those between two, by bytes.
    Between(Bound<String>, Bound<String>),
    /// Those that begin with a head and whose rest a pattern takes.
    Pattern {
        /// What the term begins with, before what the pattern is about.
        head: String,
        /// The pattern.
        matcher: &'a Matcher,
    },
}

/// Takes what is found: a term, then the contents that have it, then the next term.
pub(super) trait Take {
    /// The next term.
    fn term(&mut self, term: &str);
    /// A content that has it.
    fn content(&mut self, ordinal: u32);
}

/// The contents that have any of the terms.
impl Take for Bits {
    fn term(&mut self, _term: &str) {}

    fn content(&mut self, ordinal: u32) {
        self.set(ordinal);
    }
}

/// A phrase: words and their places, each word once.
#[derive(Debug, Clone)]
pub(super) struct Phrase<'a> {
    /// Every word once.
    pub words: Vec<&'a str>,
    /// Place and number of the word, ordered as [`super::phrase::fits`] wants it.
    pub slots: Vec<(u32, usize)>,
    /// Moves that are allowed.
    pub slop: u32,
}

impl<'a> Phrase<'a> {
    pub(super) fn new(words: &'a [(u32, String)], slop: u32) -> Self {
        let mut each: Vec<&str> = Vec::with_capacity(words.len());
        let mut slots = Vec::with_capacity(words.len());
        for (place, word) in words {
            let number = each.iter().position(|w| w == word).unwrap_or_else(|| {
                each.push(word);
                each.len() - 1
            });
            slots.push((*place, number));
        }
        slots.sort_unstable_by_key(|(place, word)| (*word, *place));
        Self { words: each, slots, slop }
    }

    /// Whether a text has it in which the words stand at these positions.
    pub(super) fn fits<P: AsRef<[u32]>>(&self, positions: &[P]) -> bool {
        let mut slots = Vec::with_capacity(self.slots.len());
        for (place, word) in &self.slots {
            let Some(positions) = positions.get(*word) else { return false };
            slots.push(super::phrase::Slot { place: *place, word: *word, positions: positions.as_ref() });
        }
        super::phrase::fits(&slots, self.slop)
    }
}

/// A pattern behind a head, as a dictionary is walked with it.
pub(super) struct Behind<'a> {
    head: &'a [u8],
    matcher: &'a Matcher,
}

/// How far a term was read.
#[derive(Debug, Clone)]
pub(super) enum Read<S> {
    Head(usize),
    Rest(S),
    Wrong,
}

impl<'a> Behind<'a> {
    pub(super) fn new(head: &'a str, matcher: &'a Matcher) -> Self {
        Self { head: head.as_bytes(), matcher }
    }

    fn at(&self, read: usize) -> Read<<Matcher as Automaton>::State> {
        if read == self.head.len() { Read::Rest(self.matcher.start()) } else { Read::Head(read) }
    }
}

impl Automaton for Behind<'_> {
    type State = Read<<Matcher as Automaton>::State>;

    fn start(&self) -> Self::State {
        self.at(0)
    }

    fn is_match(&self, state: &Self::State) -> bool {
        matches!(state, Read::Rest(rest) if self.matcher.is_match(rest))
    }

    fn can_match(&self, state: &Self::State) -> bool {
        match state {
            Read::Head(_) => true,
            Read::Rest(rest) => self.matcher.can_match(rest),
            Read::Wrong => false,
        }
    }

    fn accept(&self, state: &Self::State, byte: u8) -> Self::State {
        match state {
            Read::Head(read) if self.head.get(*read) == Some(&byte) => self.at(read + 1),
            Read::Head(_) | Read::Wrong => Read::Wrong,
            Read::Rest(rest) => Read::Rest(self.matcher.accept(rest, byte)),
        }
    }
}

/// The first bytes that are greater than everything that begins with a text; nothing where there are none.
pub(super) fn behind(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.as_bytes().to_vec();
    // No byte of UTF-8 is 255.
    *bytes.last_mut()? += 1;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_behind_its_head() {
        let matcher = Matcher::prefix("4.4");
        let behind = Behind::new("kernel.release\x01t", &matcher);
        let takes = |term: &str| {
            let end = term.bytes().fold(behind.start(), |state, byte| behind.accept(&state, byte));
            behind.is_match(&end)
        };
        assert!(takes("kernel.release\x01t4.4.0-210"));
        assert!(!takes("kernel.release\x01t5.4") && !takes("kernel.version\x01t4.4") && !takes("4.4"));
    }

    #[test]
    fn words_of_a_phrase_are_counted_once() {
        let words: Vec<(u32, String)> =
            [(0, "to"), (1, "be"), (5, "be"), (4, "to")].map(|(p, w)| (p, w.to_owned())).to_vec();
        let phrase = Phrase::new(&words, 0);
        assert_eq!(phrase.words, ["to", "be"]);
        assert_eq!(phrase.slots, [(0, 0), (4, 0), (1, 1), (5, 1)]);
        assert!(phrase.fits(&[vec![7, 11], vec![8, 12]]));
        assert!(!phrase.fits(&[vec![7, 11], vec![8, 13]]));
        assert!(!phrase.fits::<Vec<u32>>(&[]));
    }

    #[test]
    fn the_end_of_a_prefix_lies_behind_it() {
        let end = behind("a\u{10ffff}").unwrap();
        assert!(end.as_slice() > "a\u{10ffff}\u{10ffff}".as_bytes());
        assert_eq!(behind(""), None);
    }
}
