//! Patterns over terms: prefix, wildcard, regular expression, fuzzy, as automata.
//!
//! ```text
//! prefix     vm.swap
//! wildcard   vm.*ness   lin?x   \*        * any characters, ? one, \ before a character that means itself
//! regex      4\.(4|9)\..*                 the whole term, in the dialect of Lucene (see lucene_regex)
//! fuzzy      swapiness~1                  edits: insert, delete, replace, or swap two neighbours
//! ```

pub(super) mod table;
pub(super) mod terms;

use std::sync::Arc;

use self::table::{STATES_MAX, Table};
use self::terms::{Terms, TooComplex};
use super::{lucene_regex, wildcard};

/// Edits that can be asked for, as in Lucene.
const EDITS_MAX: u8 = 2;

/// A pattern that takes some terms and not others.
#[derive(Debug, Clone)]
pub struct Matcher {
    how: Arc<How>,
    literal: String,
}

#[derive(Debug)]
enum How {
    /// The literal, and then anything.
    Prefix,
    Table(Box<Table>),
    /// So many edits from a text.
    Near(String, usize),
}

impl Matcher {
    /// Terms that begin with a text.
    #[must_use]
    pub fn prefix(text: &str) -> Self {
        Self { how: Arc::new(How::Prefix), literal: text.to_owned() }
    }

    /// Terms that a pattern with `*` and `?` takes as a whole; a backslash makes the next character mean itself.
    pub fn wildcard(pattern: &str) -> Result<Self, String> {
        let mut terms = Terms::new();
        let root = wildcard::term(pattern, &mut terms).map_err(|_| too_complex())?;
        Self::of_table(terms, root).map_err(|_| too_complex())
    }

    /// Terms that a regular expression takes as a whole, in Lucene's dialect. An error has its place in bytes.
    pub fn regex(pattern: &str) -> Result<Self, (usize, String)> {
        let mut terms = Terms::new();
        let root = lucene_regex::term(pattern, &mut terms)?;
        Self::of_table(terms, root).map_err(|_| (0, too_complex()))
    }

    /// Terms that a text becomes with at most so many edits (2 at most): a character inserted, deleted or replaced, or two
    /// neighbours swapped.
    pub fn fuzzy(text: &str, distance: u8) -> Result<Self, String> {
        if distance > EDITS_MAX {
            return Err(format!("{distance} edits: a fuzzy term has at most {EDITS_MAX}"));
        }
        // Near the empty text is, as in Lucene, only itself.
        let distance = if text.is_empty() { 0 } else { distance };
        let literal = if distance == 0 { text.to_owned() } else { String::new() };
        Ok(Self { how: Arc::new(How::Near(text.to_owned(), usize::from(distance))), literal })
    }

    fn of_table(terms: Terms, root: terms::Id) -> Result<Self, TooComplex> {
        let table = Table::new(terms, root)?;
        Ok(Self { literal: table.literal().to_owned(), how: Arc::new(How::Table(Box::new(table))) })
    }

    /// Whether it takes a term.
    #[must_use]
    pub fn takes(&self, term: &str) -> bool {
        match &*self.how {
            How::Prefix => term.starts_with(&self.literal),
            How::Table(table) => table.takes(term),
            How::Near(text, edits) => {
                // A character has at most four bytes, and most terms are too short or too long.
                let apart = text.len().abs_diff(term.len());
                apart <= 4 * edits && strsim::osa_distance(text, term) <= *edits
            }
        }
    }

    /// The beginning, where that is all that is asked.
    #[must_use]
    pub fn prefix_only(&self) -> Option<&str> {
        matches!(*self.how, How::Prefix).then_some(&self.literal)
    }

    /// What every term that it takes begins with, so that only a range of a dictionary has to be walked.
    #[must_use]
    pub fn literal(&self) -> &str {
        &self.literal
    }
}

fn too_complex() -> String {
    format!("too complex: it would need more than {STATES_MAX} states")
}

#[cfg(test)]
mod tests;
