//! Matches phrases: tokens that follow one another in a text.
//!
//! A phrase has slots: `"to be or not to be"~2` has six, two of which want the token `to`. Each
//! slot takes one position of its token. Minus the slot's place in the phrase, these positions must
//! lie within `slop` of each other. Two slots of one token take two different positions. Lucene
//! matches phrases in the same way.

use std::cell::RefCell;

use crate::analysis;

/// A phrase: its distinct tokens and their places.
#[derive(Debug)]
pub(super) struct Phrase {
    words: Vec<String>,
    /// The place, and the index of the token, ordered by token and then by place.
    slots: Vec<(u32, usize)>,
    slop: u32,
    /// Two ASCII tokens that follow each other directly.
    beside: Option<(String, String)>,
    /// The positions of each token in a text. Reused between texts.
    positions: RefCell<Vec<Vec<u32>>>,
}

impl Phrase {
    pub(super) fn new(words: &[(u32, String)], slop: u32) -> Self {
        let mut each: Vec<String> = Vec::with_capacity(words.len());
        let mut slots = Vec::with_capacity(words.len());
        for (place, word) in words {
            let number = each.iter().position(|w| w == word).unwrap_or_else(|| {
                each.push(word.clone());
                each.len() - 1
            });
            slots.push((*place, number));
        }
        slots.sort_unstable_by_key(|(place, word)| (*word, *place));
        let beside = if slop == 0 { beside(words) } else { None };
        Self { positions: RefCell::new(vec![Vec::new(); each.len()]), words: each, slots, slop, beside }
    }

    /// The distinct tokens.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Whether a text has the phrase. Lowercases the text in place.
    pub(super) fn is_in(&self, text: &mut str) -> bool {
        text.make_ascii_lowercase();
        // Rules out most texts that lack the adjacent pair, without tokenizing them.
        if let Some((first, second)) = &self.beside
            && text.is_ascii()
        {
            let mut from = 0;
            loop {
                let Some((at, next)) = beside_from(text, first, second, from) else { return false };
                if self.slots.len() > 2 {
                    break;
                }
                // Whether the pair is here depends only on the text between the surrounding blanks.
                let is_blank = |c: char| c.is_ascii_whitespace();
                let start = text.get(..at).and_then(|before| before.rfind(is_blank)).unwrap_or(0);
                let end = text
                    .get(next..)
                    .and_then(|rest| rest.find(is_blank))
                    .map_or(text.len(), |end| next + end);
                if text.get(start..end).is_some_and(|text| self.stands_in(text)) {
                    return true;
                }
                from = at + 1;
            }
        }
        self.stands_in(text)
    }

    /// Like [`Phrase::is_in`], for a text in lower case. Tokenizes all of it.
    fn stands_in(&self, text: &str) -> bool {
        let mut positions = self.positions.borrow_mut();
        positions.iter_mut().for_each(Vec::clear);
        analysis::words_of_lower(text, |position, word| {
            for (wanted, positions) in self.words.iter().zip(positions.iter_mut()) {
                if *wanted == word {
                    positions.push(position);
                }
            }
        });
        self.fits(&positions)
    }

    /// Whether a text with these token positions has the phrase.
    fn fits(&self, positions: &[Vec<u32>]) -> bool {
        let mut slots = Vec::with_capacity(self.slots.len());
        for (place, word) in &self.slots {
            let Some(positions) = positions.get(*word) else { return false };
            slots.push(Slot { place: *place, word: *word, positions });
        }
        fits(&slots, self.slop)
    }
}

/// The longest pair of tokens that follow each other directly.
fn beside(words: &[(u32, String)]) -> Option<(String, String)> {
    let mut longest: Option<(&str, &str)> = None;
    for (place, first) in words {
        for (_, second) in words.iter().filter(|(next, _)| *next == place.saturating_add(1)) {
            let longer = longest.is_none_or(|(a, b)| first.len() + second.len() > a.len() + b.len());
            if first.is_ascii() && second.is_ascii() && longer {
                longest = Some((first, second));
            }
        }
    }
    longest.map(|(first, second)| (first.to_owned(), second.to_owned()))
}

/// The first place from `from` on in an ASCII text where the pair may be, with no letter and no
/// digit between. Returns where the first and the second token begin.
fn beside_from(text: &str, first: &str, second: &str, mut from: usize) -> Option<(usize, usize)> {
    let second = second.trim_start_matches('_').as_bytes();
    loop {
        let at = from + text.get(from..)?.find(first)?;
        let behind = text.as_bytes().get(at + first.len()..).unwrap_or_default();
        let gap = behind.iter().take_while(|byte| !byte.is_ascii_alphanumeric()).count();
        if behind.get(gap..).is_some_and(|next| next.starts_with(second)) {
            return Some((at, at + first.len() + gap));
        }
        from = at + 1;
    }
}

/// One slot of a phrase.
#[derive(Debug, Clone, Copy)]
struct Slot<'a> {
    /// The place in the phrase.
    place: u32,
    /// The index of the token; equal for slots of the same token.
    word: usize,
    /// The positions of the token in a text, ascending.
    positions: &'a [u32],
}

/// Whether a text has the phrase. The slots are sorted by token and then by place.
fn fits(slots: &[Slot<'_>], slop: u32) -> bool {
    if slop == 0 {
        // Every match has to include the rarest token.
        let Some(rarest) = slots.iter().min_by_key(|s| s.positions.len()) else { return false };
        return starts(rarest).any(|start| within(slots, start, 0));
    }
    slots.iter().any(|slot| starts(slot).any(|start| within(slots, start, slop)))
}

/// The possible starts of the phrase, from the positions of one slot.
fn starts<'a>(slot: &Slot<'a>) -> impl Iterator<Item = i64> + 'a {
    let place = i64::from(slot.place);
    slot.positions.iter().map(move |p| i64::from(*p) - place)
}

/// Whether every slot finds a position between `start` plus its place and `slop` positions behind
/// that. Slots of one token take the first free position, in the order of their places. All
/// intervals have the same length, so no other assignment does better.
fn within(slots: &[Slot<'_>], start: i64, slop: u32) -> bool {
    let mut taken: Option<(usize, i64)> = None;
    for slot in slots {
        let first = start + i64::from(slot.place);
        let from = match taken {
            Some((word, last)) if word == slot.word => first.max(last + 1),
            _ => first,
        };
        let at = slot.positions.partition_point(|p| i64::from(*p) < from);
        match slot.positions.get(at) {
            Some(p) if i64::from(*p) <= first + i64::from(slop) => taken = Some((slot.word, i64::from(*p))),
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sort(slots: &mut [Slot<'_>]) {
        slots.sort_by_key(|s| (s.word, s.place));
    }

    fn has(text: &str, phrase: &str, slop: u32) -> bool {
        let text: Vec<&str> = text.split(' ').collect();
        let phrase: Vec<&str> = phrase.split(' ').collect();
        let positions = |word: &str| -> Vec<u32> {
            (0..).zip(&text).filter(|(_, w)| **w == word).map(|(at, _)| at).collect()
        };
        let lists: Vec<Vec<u32>> = phrase.iter().map(|w| positions(w)).collect();
        let mut slots: Vec<Slot<'_>> = (0..)
            .zip(phrase.iter().zip(&lists))
            .map(|(place, (word, positions))| Slot {
                place,
                word: phrase.iter().position(|w| w == word).unwrap(),
                positions,
            })
            .collect();
        sort(&mut slots);
        fits(&slots, slop)
    }

    #[test]
    fn phrases_are_found_where_they_stand() {
        for (text, phrase, slop, found) in [
            ("a b c", "a b", 0, true),
            ("a b c", "b a", 0, false),
            ("a b c", "b a", 1, false),
            // Swapping two tokens takes two moves.
            ("a b c", "b a", 2, true),
            ("a x b", "a b", 0, false),
            ("a x b", "a b", 1, true),
            ("a x y b", "a b", 1, false),
            ("a", "a a", 5, false),
            ("a a", "a a", 0, true),
            ("a x a", "a a", 0, false),
            ("a x a", "a a", 1, true),
            ("b a b", "b a b", 0, true),
            ("b a", "b a b", 9, false),
            ("x", "a", 0, false),
        ] {
            assert_eq!(has(text, phrase, slop), found, "{text:?} {phrase:?}~{slop}");
        }
    }

    /// Tries every assignment of positions to slots.
    fn any_way(
        slots: &[Slot<'_>],
        slop: u32,
        taken: &mut Vec<(usize, u32)>,
        span: Option<(i64, i64)>,
    ) -> bool {
        let Some((slot, rest)) = slots.split_first() else { return true };
        for p in slot.positions {
            let start = i64::from(*p) - i64::from(slot.place);
            let (low, high) = span.map_or((start, start), |(l, h)| (l.min(start), h.max(start)));
            if high - low > i64::from(slop) || taken.contains(&(slot.word, *p)) {
                continue;
            }
            taken.push((slot.word, *p));
            let found = any_way(rest, slop, taken, Some((low, high)));
            taken.pop();
            if found {
                return true;
            }
        }
        false
    }

    proptest! {
        #[test]
        fn it_finds_what_trying_everything_finds(text in prop::collection::vec(0_usize..3, 0..9),
                                                 phrase in prop::collection::vec(0_usize..3, 1..5), slop in 0_u32..4) {
            let lists: Vec<Vec<u32>> = phrase.iter()
                .map(|word| (0..).zip(&text).filter(|(_, w)| *w == word).map(|(at, _)| at).collect())
                .collect();
            let mut slots: Vec<Slot<'_>> = (0..).zip(phrase.iter().zip(&lists))
                .map(|(place, (word, positions))| Slot { place, word: *word, positions })
                .collect();
            sort(&mut slots);
            prop_assert_eq!(fits(&slots, slop), any_way(&slots, slop, &mut Vec::new(), None));
        }
    }

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
            prop_assert_eq!(Phrase::new(&words, slop).is_in(&mut text.clone()), stands);
            // With another token in the phrase, the result must agree with the positions.
            if let Some((_, word)) = words.get_mut(at) {
                *word = other;
            }
            let phrase = Phrase::new(&words, slop);
            let of = |wanted: &str| all.iter().filter(|(_, w)| w == wanted).map(|(p, _)| *p).collect::<Vec<u32>>();
            let fits = phrase.fits(&phrase.words().map(of).collect::<Vec<_>>());
            prop_assert_eq!(phrase.is_in(&mut text.clone()), fits);
        }
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
        assert!(!phrase.fits(&[]));
        assert!(phrase.is_in(&mut "Or TO be\nnot 東 to, be".to_owned()));
        assert!(!phrase.is_in(&mut "to be not 東京 to be".to_owned()));
    }
}
