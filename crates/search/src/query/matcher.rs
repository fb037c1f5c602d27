//! Patterns over terms: prefix, wildcard, regular expression, fuzzy, as automata.
//!
//! ```text
//! prefix     vm.swap
//! wildcard   vm.*ness   lin?x   \*        * any characters, ? one, \ before a character that means itself
//! regex      4\.(4|9)\..*                 the whole term, in the dialect of Lucene (see lucene_regex)
//! fuzzy      swapiness~1                  edits: insert, delete, replace, or swap two neighbours
//! ```

pub(super) mod automaton;

use std::sync::Arc;

use self::automaton::{Automaton, Expr, STATES_MAX};
use super::lucene_regex;

/// Edits that can be asked for, as in Lucene.
const EDITS_MAX: u8 = 2;

/// A pattern that takes some terms and not others.
#[derive(Debug, Clone)]
pub struct Matcher {
    how: Arc<How>,
}

#[derive(Debug)]
enum How {
    Prefix(String),
    Pattern(Box<Automaton>),
    /// At most so many edits from a text.
    Near(String, usize),
}

impl Matcher {
    /// Terms that begin with a text.
    #[must_use]
    pub fn prefix(text: &str) -> Self {
        Self { how: Arc::new(How::Prefix(text.to_owned())) }
    }

    /// Terms that a pattern with `*` and `?` takes as a whole; a backslash makes the next character mean itself. As in Lucene, a
    /// backslash at the very end is a backslash, and no pattern at all takes nothing at all.
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

    /// Terms that a regular expression takes as a whole, in Lucene's dialect. An error has its place in bytes.
    pub fn regex(pattern: &str) -> Result<Self, (usize, String)> {
        Self::pattern(&lucene_regex::parse(pattern)?).map_err(|why| (0, why))
    }

    /// Terms that a text becomes with at most so many edits (2 at most): a character inserted, deleted or replaced, or two
    /// neighbours swapped.
    pub fn fuzzy(text: &str, distance: u8) -> Result<Self, String> {
        if distance > EDITS_MAX {
            return Err(format!("{distance} edits: a fuzzy term has at most {EDITS_MAX}"));
        }
        // Near the empty text is, as in Lucene, only itself.
        let distance = if text.is_empty() { 0 } else { distance };
        Ok(Self { how: Arc::new(How::Near(text.to_owned(), usize::from(distance))) })
    }

    fn pattern(expr: &Expr) -> Result<Self, String> {
        let automaton = Automaton::new(expr)
            .map_err(|_| format!("too complex: it would need more than {STATES_MAX} states"))?;
        Ok(Self { how: Arc::new(How::Pattern(Box::new(automaton))) })
    }

    /// Whether it takes a term.
    #[must_use]
    pub fn takes(&self, term: &str) -> bool {
        match &*self.how {
            How::Prefix(text) => term.starts_with(text),
            How::Pattern(automaton) => automaton.takes(term),
            How::Near(text, edits) => {
                // A character has at most four bytes. Most terms are too short or too long, or have too many other bytes.
                let most = if text.is_ascii() && term.is_ascii() { *edits } else { 4 * edits };
                let (ours, theirs) = (kinds(text), kinds(term));
                text.len().abs_diff(term.len()) <= most
                    && (ours & !theirs).count_ones() as usize <= most
                    && (theirs & !ours).count_ones() as usize <= most
                    && strsim::osa_distance(text, term) <= *edits
            }
        }
    }

    /// The beginning, where that is all that is asked.
    #[must_use]
    pub fn prefix_only(&self) -> Option<&str> {
        if let How::Prefix(text) = &*self.how { Some(text) } else { None }
    }

    /// What every term that it takes begins with, so that only a range of a dictionary has to be walked.
    #[must_use]
    pub fn literal(&self) -> &str {
        match &*self.how {
            How::Prefix(text) | How::Near(text, 0) => text,
            How::Pattern(automaton) => automaton.literal(),
            How::Near(..) => "",
        }
    }
}

/// A bit for each kind of bytes that a text has. An edit of a byte adds one at most, and takes one away.
fn kinds(text: &str) -> u128 {
    text.bytes().fold(0, |kinds, byte| kinds | 1 << (byte & 127))
}

#[cfg(test)]
mod tests;
