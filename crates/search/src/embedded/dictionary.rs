//! What is asked of a dictionary of terms: the one on disk ([`super::text`]) and the one in memory ([`super::fresh`]) answer
//! alike.

use super::bits::Bits;
use crate::analysis;
use crate::query::Bound;
use crate::query::matcher::{Automaton, Matcher};

/// Which dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Words of texts, lowercased.
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
    /// Two words of ASCII with nothing but what parts words between them.
    beside: Option<(&'a str, &'a str)>,
    row: Option<Row>,
}

/// A phrase without moves, of at most 64 places: which places want each word, as bits.
#[derive(Debug, Clone)]
struct Row {
    /// By the number of the word.
    places: Vec<u64>,
    /// Any word may stand there.
    gaps: u64,
    last: u32,
}

impl Row {
    fn new(slots: &[(u32, usize)], words: usize) -> Option<Self> {
        let first = slots.iter().map(|(place, _)| *place).min()?;
        let last = slots.iter().map(|(place, _)| *place).max()? - first;
        let mut row = Self { places: vec![0; words], gaps: u64::MAX, last: (last < 64).then_some(last)? };
        for (place, word) in slots {
            let bit = 1 << (place - first);
            if row.gaps & bit == 0 {
                // Two words at one place.
                return None;
            }
            row.gaps &= !bit;
            *row.places.get_mut(*word)? |= bit;
        }
        Some(row)
    }

    fn is_in(&self, text: &str, words: &[&str]) -> bool {
        // Bit n says that the last words are those of the places up to n.
        let mut read = 0_u64;
        analysis::words_until(text, |_, word| {
            let fits = words.iter().position(|w| *w == word).and_then(|number| self.places.get(number));
            read = (read << 1 | 1) & (fits.copied().unwrap_or_default() | self.gaps);
            read >> self.last & 1 == 1
        })
    }
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
        let row = if slop == 0 { Row::new(&slots, each.len()) } else { None };
        Self { words: each, slots, slop, beside: if slop == 0 { beside(words) } else { None }, row }
    }

    /// Whether a text has it, which is put into lower case. `positions` is memory that is used again.
    pub(super) fn is_in(&self, text: &mut str, positions: &mut Vec<Vec<u32>>) -> bool {
        text.make_ascii_lowercase();
        // Most texts in which the words stand apart are seen to be none without cutting them into words.
        if let Some((first, second)) = self.beside
            && text.is_ascii()
            && !stand_beside(text, first, second)
        {
            return false;
        }
        if let Some(row) = &self.row {
            return row.is_in(text, &self.words);
        }
        positions.resize_with(self.words.len(), Vec::new);
        positions.iter_mut().for_each(Vec::clear);
        analysis::words_of_lower(text, |position, word| {
            for (wanted, positions) in self.words.iter().zip(&mut *positions) {
                if *wanted == word {
                    positions.push(position);
                }
            }
        });
        self.fits(positions)
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

/// The longest two words of which one follows the other at once.
fn beside(words: &[(u32, String)]) -> Option<(&str, &str)> {
    let mut longest: Option<(usize, &str, &str)> = None;
    for (place, first) in words {
        for (_, second) in words.iter().filter(|(next, _)| *next == place.saturating_add(1)) {
            let len = first.len() + second.len();
            if first.is_ascii() && second.is_ascii() && longest.is_none_or(|(most, _, _)| len > most) {
                longest = Some((len, first.as_str(), second.as_str()));
            }
        }
    }
    longest.map(|(_, first, second)| (first, second))
}

/// Whether a text of ASCII may have two words beside each other: between them there is no letter and no digit.
fn stand_beside(text: &str, first: &str, second: &str) -> bool {
    let second = second.trim_start_matches('_').as_bytes();
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(first)) {
        let behind = text.as_bytes().get(from + at + first.len()..).unwrap_or_default();
        let gap = behind.iter().take_while(|byte| !byte.is_ascii_alphanumeric()).count();
        if behind.get(gap..).is_some_and(|next| next.starts_with(second)) {
            return true;
        }
        from += at + 1;
    }
    false
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

    fn will_always_match(&self, state: &Self::State) -> bool {
        matches!(state, Read::Rest(rest) if self.matcher.will_always_match(rest))
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_phrase_is_found_where_it_stands(
            text in "[aB_ .,1-]{0,30}|[ab ]{240,300}|[aB _é東]{0,20}", from in 0_usize..12, len in 1_usize..4, slop in 0_u32..2,
            other in "[ab1_]{1,3}", at in 0_usize..4, without in 0_usize..5,
        ) {
            let mut all = Vec::new();
            analysis::words(&text, |position, word| all.push((position, word.to_owned())));
            let mut words: Vec<(u32, String)> = all.iter().skip(from).take(len).cloned().collect();
            if without < words.len() {
                words.remove(without);
            }
            let stands = !words.is_empty();
            let mut positions = Vec::new();
            prop_assert_eq!(Phrase::new(&words, slop).is_in(&mut text.clone(), &mut positions), stands);
            // And with another word in it, what the positions say.
            if let Some((_, word)) = words.get_mut(at) {
                *word = other;
            }
            let phrase = Phrase::new(&words, slop);
            let of = |wanted: &&str| all.iter().filter(|(_, w)| w == wanted).map(|(p, _)| *p).collect::<Vec<u32>>();
            let fits = phrase.fits(&phrase.words.iter().map(of).collect::<Vec<_>>());
            prop_assert_eq!(phrase.is_in(&mut text.clone(), &mut positions), fits);
        }
    }

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
        let mut positions = Vec::new();
        assert!(phrase.is_in(&mut "Or TO be\nnot 東 to, be".to_owned(), &mut positions));
        assert!(!phrase.is_in(&mut "to be not 東京 to be".to_owned(), &mut positions));
    }

    #[test]
    fn the_end_of_a_prefix_lies_behind_it() {
        let end = behind("a\u{10ffff}").unwrap();
        assert!(end.as_slice() > "a\u{10ffff}\u{10ffff}".as_bytes());
        assert_eq!(behind(""), None);
    }
}
