//! The words of Unicode, as the grammar of Lucene's standard tokenizer has them: UAX #29 with these additions.
//!
//! ```text
//! letters    [_]* (katakana | (letter | digit)…)… [_]*   joined by . ' : between letters, . ' , ; between digits, and by _
//! hebrew     ' after a letter, " between two
//! thai, lao, khmer, myanmar …                            a whole run: there are no spaces to part it
//! ideograph, hiragana                                    each alone
//! pictures   sequences of emoji, flags of two letters, keys (#, * and U+20E3)
//! ```
//!
//! Marks, formats and joiners belong to the character before them; before anything they are no word. Where several of these
//! begin, the longest counts. A word is looked for in the next [`WORD_MAX`] units of UTF-16 and ends there at the latest.

use std::sync::LazyLock;

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, MatchKind};

use super::WORD_MAX;
use super::class::class;

/// What a text may begin with, over the letters of [`super::class`]. `m` stands for any mark, `n` for one that does not say
/// whether a picture has colours, `p` for a picture; blanks are there for people.
const WORDS: [&str; 6] = [
    // Letters and digits. `G` is one group of them between joiners.
    "(Jm*)* G ((Jm*)+ G)* (Jm*)*",
    // A run of a script without spaces; an ideograph; a flag; a key.
    "[Cc] (C|m)*",
    "I m*",
    "F m* F m*",
    "# n* (v?k n* | k n* v k n*)",
    // Pictures, joined to sequences; `S` is one that is shown.
    "M n* | S (v (z M n*)?)? | z* p n* v g+ e",
];
const GROUP: &str =
    "((D m* ([.',] m* D m*)* | [LP] m* B* | H m* (' m* | q m* H m* | [.:] m* [LPH] m* B*)?)+ | (K m*)+)";
const BETWEEN_LETTERS: &str = "([.':] m* [LPH] m*)";
const SHOWN: &str = "((z* p | M n* z p) n* (z p n* | v z+ p n* | v z M n* z p n*)*)";

/// The expressions, and the state before a text.
struct Grammar {
    dfa: dense::DFA<Vec<u32>>,
    start: StateID,
}

/// A test builds it; without it no text has a word.
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

/// The bytes of the word that a text begins with, and whether all of it is ASCII.
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

/// Where the next word can begin at the earliest, when none begins here.
#[must_use]
pub fn skip(text: &str) -> usize {
    let Some(first) = text.chars().next() else { return 0 };
    if first != '_' {
        return first.len_utf8();
    }
    // So many `_` that a letter behind them is too far away: with the last of them that is near enough.
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
