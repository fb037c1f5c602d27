//! The token grammar of Lucene's standard tokenizer: UAX #29 with these additions.
//!
//! ```text
//! letters    [_]* (katakana | (letter | digit)…)… [_]*
//!                joined by . ' : between letters, by . ' , ; between digits, and by _
//! hebrew     ' after a letter, " between two
//! thai, lao, khmer, myanmar …   a whole run, because these scripts have no spaces
//! ideograph, hiragana           each alone
//! pictures   sequences of emoji, flags of two letters, keys (#, * and U+20E3)
//! ```
//!
//! Marks, format characters and joiners belong to the character before them. Without one before
//! them they are no token. The longest match wins. A match covers at most [`WORD_MAX`] UTF-16
//! units.

use std::sync::LazyLock;

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, MatchKind};

use super::WORD_MAX;
use super::class::class;

/// The alternatives for one token, over the letters of [`super::class`]. `m` is any mark, `n` a
/// mark that is no variation selector, `p` a pictograph. Blanks are for readability only.
const WORDS: [&str; 6] = [
    // Letters and digits. `G` is one group of them between joiners.
    "(Jm*)* G ((Jm*)+ G)* (Jm*)*",
    // A run of a script without spaces; an ideograph; a flag; a key.
    "[Cc] (C|m)*",
    "I m*",
    "F m* F m*",
    "# n* (v?k n* | k n* v k n*)",
    // Emoji sequences. `S` is one displayed emoji.
    "M n* | S (v (z M n*)?)? | z* p n* v g+ e",
];
const GROUP: &str =
    "((D m* ([.',] m* D m*)* | [LP] m* B* | H m* (' m* | q m* H m* | [.:] m* [LPH] m* B*)?)+ | (K m*)+)";
const BETWEEN_LETTERS: &str = "([.':] m* [LPH] m*)";
const SHOWN: &str = "((z* p | M n* z p) n* (z p n* | v z+ p n* | v z M n* z p n*)*)";

/// The automaton, and its start state.
struct Grammar {
    dfa: dense::DFA<Vec<u32>>,
    start: StateID,
}

/// `None` if the automaton cannot be built, and then no text has tokens. A test checks that it can.
static GRAMMAR: LazyLock<Option<Grammar>> = LazyLock::new(|| {
    let config =
        dense::Config::new().start_kind(StartKind::Anchored).match_kind(MatchKind::All).accelerate(false);
    let spelled = WORDS.map(|words| {
        let words = words.replace('G', GROUP).replace('B', BETWEEN_LETTERS).replace('S', SHOWN);
        words.replace(' ', "").replace('m', "[xzvtkcMge]").replace('n', "[xzkcMge]").replace('p', "[EP]")
    });
    let dfa = dense::Builder::new().configure(config).build_many(&spelled).ok()?;
    let start = dfa.universal_start_state(Anchored::Yes)?;
    Some(Grammar { dfa, start })
});

/// The length in bytes of the token at the start of a text, and whether it is all ASCII.
#[must_use]
pub fn word(text: &str) -> Option<(usize, bool)> {
    let Grammar { dfa, start } = GRAMMAR.as_ref()?;
    let (mut at, mut units, mut word) = (*start, 0, None);
    let mut is_ascii = true;
    for (i, c) in text.char_indices() {
        units += c.len_utf16();
        at = dfa.next_state(at, class(c));
        if units > WORD_MAX || dfa.is_dead_state(at) {
            break;
        }
        is_ascii &= c.is_ascii();
        if dfa.is_match_state(dfa.next_eoi_state(at)) {
            word = Some((i + c.len_utf8(), is_ascii));
        }
    }
    word
}

/// The distance in bytes to the earliest place where a token can begin, if none begins here.
#[must_use]
pub fn skip(text: &str) -> usize {
    let Some(first) = text.chars().next() else { return 0 };
    if first != '_' {
        return first.len_utf8();
    }
    // If the run of `_` is too long to reach the letter behind it, the token begins at the first
    // `_` from which that letter is within [`WORD_MAX`].
    let count = text.bytes().take_while(|byte| *byte == b'_').count();
    let goes_on = text
        .get(count..)
        .and_then(|rest| rest.chars().next())
        .is_some_and(|c| c.is_alphanumeric() || !c.is_ascii());
    if goes_on { (count + 1).saturating_sub(WORD_MAX).max(1) } else { count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_one() {
        assert!(GRAMMAR.is_some());
        assert_eq!(class('_'), b'J');
        assert_eq!((word("a_1 b"), word("é."), word("-a")), (Some((3, true)), Some((2, false)), None));
        assert_eq!((skip("é"), skip("___ a"), skip(&("_".repeat(600) + "a"))), (2, 3, 346));
    }
}
