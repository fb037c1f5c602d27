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

use self::table::{DEAD, STATES_MAX, Table};
use self::terms::{Terms, TooComplex};
use super::fuzzy::{Near, Row};
use super::{lucene_regex, wildcard};

/// A walk over the bytes of a term that can tell early that nothing which begins like this is taken, so that a dictionary is
/// walked without looking at every term.
pub trait Automaton {
    /// Where the walk is.
    type State: Clone;

    /// Before the first byte.
    fn start(&self) -> Self::State;

    /// Whether a term that ends here is taken.
    fn is_match(&self, state: &Self::State) -> bool;

    /// Whether a term that goes on from here may be taken.
    fn can_match(&self, state: &Self::State) -> bool;

    /// Whether everything that goes on from here is taken.
    fn will_always_match(&self, _state: &Self::State) -> bool {
        false
    }

    /// After one more byte.
    fn accept(&self, state: &Self::State, byte: u8) -> Self::State;
}

/// A pattern that takes some terms and not others. It walks over the bytes of UTF-8.
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
    Near(Near),
}

/// Where a pattern is after some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    at: At,
    /// The bits so far of a character of several bytes.
    code: u32,
    /// Its bytes that are still to come.
    left: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Nothing that begins like this is taken.
    Dead,
    /// So many bytes of the literal were there.
    Literal(usize),
    /// A state of the table.
    State(u32),
    /// Edits so far.
    Row(Row),
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
        let near = Near::new(text, distance)?;
        let literal = if distance == 0 { text.to_owned() } else { String::new() };
        Ok(Self { how: Arc::new(How::Near(near)), literal })
    }

    fn of_table(terms: Terms, root: terms::Id) -> Result<Self, TooComplex> {
        let table = Table::new(terms, root)?;
        Ok(Self { literal: table.literal().to_owned(), how: Arc::new(How::Table(Box::new(table))) })
    }

    /// Whether it takes a term.
    #[must_use]
    pub fn takes(&self, term: &str) -> bool {
        if matches!(*self.how, How::Prefix) {
            return term.starts_with(&self.literal);
        }
        let mut at = self.first();
        for c in term.chars() {
            at = self.step(at, u32::from(c));
            if at == At::Dead {
                return false;
            }
        }
        self.takes_here(at)
    }

    /// What every term that it takes begins with, so that only a range of a dictionary has to be walked.
    #[must_use]
    pub fn literal(&self) -> &str {
        &self.literal
    }

    fn first(&self) -> At {
        match &*self.how {
            How::Prefix => At::Literal(0),
            How::Table(table) => alive(table.start()),
            How::Near(near) => At::Row(near.first()),
        }
    }

    /// After one more character.
    fn step(&self, at: At, c: u32) -> At {
        match (&*self.how, at) {
            (How::Table(table), At::State(state)) => alive(table.step(state, c)),
            (How::Near(near), At::Row(row)) => near.step(&row, c).map_or(At::Dead, At::Row),
            _ => At::Dead,
        }
    }

    fn takes_here(&self, at: At) -> bool {
        match (&*self.how, at) {
            (How::Prefix, At::Literal(at)) => at >= self.literal.len(),
            (How::Table(table), At::State(state)) => table.takes(state),
            (How::Near(near), At::Row(row)) => near.takes(&row),
            _ => false,
        }
    }

    /// Whether a character outside of ASCII may follow.
    fn wide(&self, at: At) -> bool {
        match (&*self.how, at) {
            (How::Table(table), At::State(state)) => table.wide(state),
            (_, at) => at != At::Dead,
        }
    }
}

fn alive(state: u32) -> At {
    if state == DEAD { At::Dead } else { At::State(state) }
}

fn too_complex() -> String {
    format!("too complex: it would need more than {STATES_MAX} states")
}

const DEAD_END: State = State { at: At::Dead, code: 0, left: 0 };

impl Automaton for Matcher {
    type State = State;

    fn start(&self) -> State {
        State { at: self.first(), code: 0, left: 0 }
    }

    fn is_match(&self, state: &State) -> bool {
        state.left == 0 && self.takes_here(state.at)
    }

    fn can_match(&self, state: &State) -> bool {
        state.at != At::Dead
    }

    fn will_always_match(&self, state: &State) -> bool {
        match (&*self.how, state.at) {
            (How::Prefix, At::Literal(at)) => at >= self.literal.len(),
            (How::Table(table), At::State(at)) => state.left == 0 && table.always(at),
            _ => false,
        }
    }

    fn accept(&self, state: &State, byte: u8) -> State {
        if let At::Literal(at) = state.at {
            return match self.literal.as_bytes().get(at) {
                None => *state,
                Some(b) if *b == byte => State { at: At::Literal(at + 1), code: 0, left: 0 },
                Some(_) => DEAD_END,
            };
        }
        let bits = u32::from(byte);
        let (code, left) = match (state.left, byte) {
            (0, 0..0x80) => (bits, 0),
            (0, 0xC2..0xE0) => (bits & 0x1F, 1),
            (0, 0xE0..0xF0) => (bits & 0x0F, 2),
            (0, 0xF0..0xF5) => (bits & 0x07, 3),
            (1..=3, 0x80..0xC0) => ((state.code << 6) | (bits & 0x3F), state.left - 1),
            _ => return DEAD_END,
        };
        if left == 0 {
            return State { at: self.step(state.at, code), code: 0, left: 0 };
        }
        if state.left == 0 && !self.wide(state.at) {
            return DEAD_END;
        }
        State { at: state.at, code, left }
    }
}

#[cfg(test)]
mod tests;
