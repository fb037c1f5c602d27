//! The syntax tree of a query: groups of adjacent clauses, without their meaning.
//!
//! `a OR +host:(b c) NOT "d e"~2` is a group of three clauses: `a`; joined by `OR` and with a plus,
//! a group for the field `host`, which has one run of words; without a joint but with a `NOT`, a
//! quoted text.

use std::ops::Range;

/// The contents of a bracket, or the whole query.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Never empty.
    pub clauses: Vec<Clause>,
}

/// One clause of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// The operator between this clause and the one before.
    pub joint: Joint,
    /// The modifier before the clause.
    pub sign: Sign,
    /// The clause itself.
    pub node: Node,
}

/// The operator between two clauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joint {
    /// None, or this is the first clause.
    Beside,
    /// `AND`.
    And,
    /// `OR`.
    Or,
}

/// The modifier before a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// None.
    Plain,
    /// `+`.
    Must,
    /// `-` or `NOT`.
    Not,
}

/// An optional field and the test on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The field directly before this part. Parts of a group without a field inherit that of the
    /// group.
    pub field: Option<Name>,
    /// The test.
    pub part: Part,
    /// The bytes of the whole node, without `^2` and `~2`.
    pub at: Range<usize>,
    /// The bytes without the field.
    pub part_at: Range<usize>,
    /// The field that the query names, if the rewrite replaced it by another one.
    pub asked: Option<String>,
}

/// The name of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Without backslashes. A `*` matches any characters.
    pub text: String,
    /// Its bytes.
    pub at: Range<usize>,
}

/// A test on a field. Texts are without backslashes unless stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Two or more adjacent words, separated by single spaces. They are analysed as one text.
    Words(String),
    /// One word.
    Term(String),
    /// A quoted text.
    Quoted {
        /// The text.
        text: String,
        /// How many moves are allowed.
        slop: i32,
    },
    /// A word with `*` and `?`, including backslashes.
    Wildcard(String),
    /// A prefix.
    Prefix(String),
    /// A regular expression without its slashes, but with its backslashes.
    Regex(String),
    /// A word and the text behind its tilde.
    Fuzzy {
        /// The word.
        text: String,
        /// A number, `AUTO`, or empty.
        like: String,
        /// The bytes of the tilde.
        like_at: Range<usize>,
    },
    /// A range of values.
    Range {
        /// The lower end.
        low: End,
        /// The upper end.
        high: End,
    },
    /// A group in brackets.
    Group(Group),
}

/// One end of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The value; `None` for an open end.
    pub value: Option<String>,
    /// Whether the end is inclusive.
    pub with: bool,
    /// Its bytes.
    pub at: Range<usize>,
}
