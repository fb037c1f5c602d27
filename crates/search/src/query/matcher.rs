//! Term patterns as automata: prefix, wildcard, regular expression, fuzzy.
//!
//! ```text
//! prefix     vm.swap
//! wildcard   vm.*ness   lin?x   \*        * any characters, ? one character, \ escapes
//! regex      4\.(4|9)\..*                 the whole term, in Lucene's dialect (see lucene_regex)
//! fuzzy      swapiness~1                  edits: insert, delete, replace, or swap two neighbours
//! ```

pub(super) mod automaton;

use std::sync::Arc;

use self::automaton::{Automaton, Expr, STATES_MAX};
use super::lucene_regex;

/// Maximum number of edits, as in Lucene.
const EDITS_MAX: u8 = 2;

/// A pattern that accepts terms.
#[derive(Debug, Clone)]
pub struct Matcher {
    how: Arc<How>,
}

#[derive(Debug)]
enum How {
    Prefix(String),
    Pattern(Box<Automaton>),
    /// A text, and the maximum number of edits from it.
    Near(String, usize),
}

impl Matcher {
    /// Matches terms that begin with a text.
    #[must_use]
    pub fn prefix(text: &str) -> Self {
        Self { how: Arc::new(How::Prefix(text.to_owned())) }
    }

    /// Matches whole terms by a pattern with `*`, `?` and escapes. As in Lucene, a trailing
    /// backslash is literal, and an empty pattern matches nothing.
    pub fn wildcard(pattern: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' => Expr::all(),
                '?' => Expr::any(),
                '\\' => Expr::char(chars.next().unwrap_or('\\')),
                c => Expr::char(c),
            });
        }
        Self::pattern(&if pattern.is_empty() { Expr::Nothing } else { Expr::concat(parts) })
    }

    /// Matches whole terms by a regular expression in Lucene's dialect. An error has its byte
    /// position.
    pub fn regex(pattern: &str) -> Result<Self, (usize, String)> {
        Self::pattern(&lucene_regex::parse(pattern)?).map_err(|why| (0, why))
    }

    /// Matches terms at most `distance` edits (at most 2) from a text. An edit inserts, deletes or
    /// replaces a character, or swaps two adjacent ones.
    pub fn fuzzy(text: &str, distance: u8) -> Result<Self, String> {
        if distance > EDITS_MAX {
            return Err(format!("{distance} edits: a fuzzy term has at most {EDITS_MAX}"));
        }
        // As in Lucene, only the empty term is near the empty text.
        let distance = if text.is_empty() { 0 } else { distance };
        Ok(Self { how: Arc::new(How::Near(text.to_owned(), usize::from(distance))) })
    }

    fn pattern(expr: &Expr) -> Result<Self, String> {
        let automaton = Automaton::new(expr)
            .map_err(|_| format!("too complex: it would need more than {STATES_MAX} states"))?;
        Ok(Self { how: Arc::new(How::Pattern(Box::new(automaton))) })
    }

    /// Whether the pattern accepts a term.
    #[must_use]
    pub fn takes(&self, term: &str) -> bool {
        match &*self.how {
            How::Prefix(text) => term.starts_with(text),
            How::Pattern(automaton) => automaton.takes(term),
            How::Near(text, edits) => {
                // A character has at most four bytes. Most terms differ too much in length or in
                // their set of bytes, and need no distance.
                let most = if text.is_ascii() && term.is_ascii() { *edits } else { 4 * edits };
                let (ours, theirs) = (kinds(text), kinds(term));
                text.len().abs_diff(term.len()) <= most
                    && (ours & !theirs).count_ones() as usize <= most
                    && (theirs & !ours).count_ones() as usize <= most
                    && strsim::osa_distance(text, term) <= *edits
            }
        }
    }

    /// A prefix of all accepted terms, so that only a range of the dictionary needs to be scanned.
    #[must_use]
    pub fn literal(&self) -> &str {
        match &*self.how {
            How::Prefix(text) | How::Near(text, 0) => text,
            How::Pattern(automaton) => automaton.literal(),
            How::Near(..) => "",
        }
    }
}

/// The set of byte values (modulo 128) in a text. Editing one byte adds at most one value and
/// removes at most one.
fn kinds(text: &str) -> u128 {
    text.bytes().fold(0, |kinds, byte| kinds | 1 << (byte & 127))
}

#[cfg(test)]
mod tests;
