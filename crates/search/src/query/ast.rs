//! A query as it is written: groups of clauses beside each other, without a word of what they mean.
//!
//! `a OR +host:(b c) NOT "d e"~2` is a group of three: `a`; joined by `OR`, with a plus, a group for the field `host`, which
//! has one run of words in it; without a joint, with a `NOT`, a text in quotes.

use std::ops::Range;

/// What stands in brackets, and the whole query.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// At least one.
    pub clauses: Vec<Clause>,
}

/// One part of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// What stands between it and the one before.
    pub joint: Joint,
    /// What stands before it.
    pub sign: Sign,
    /// The part itself.
    pub node: Node,
}

/// What stands between two clauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joint {
    /// Nothing, or it is the first.
    Beside,
    /// `AND`.
    And,
    /// `OR`.
    Or,
}

/// What stands before a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Nothing.
    Plain,
    /// `+`.
    Must,
    /// `-` or `NOT`.
    Not,
}

/// A field, where one is named, and what is asked of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The field that is named right before it. A group hands its own down to parts that name none.
    pub field: Option<Name>,
    /// What is asked.
    pub part: Part,
    /// All of it, without `^2` and `~2`.
    pub at: Range<usize>,
    /// Without the field.
    pub part_at: Range<usize>,
    /// The name that was asked for, where another field answers.
    pub asked: Option<String>,
}

/// The name of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Without backslashes; a `*` stands for any characters.
    pub text: String,
    /// Where it is.
    pub at: Range<usize>,
}

/// What is asked of a field. Texts have no backslashes any more where nothing says otherwise.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Two or more words beside each other, with one space between them. They go through analysis as one text.
    Words(String),
    /// One word.
    Term(String),
    /// A text in quotes.
    Quoted {
        /// The text.
        text: String,
        /// Moves that are allowed.
        slop: i32,
    },
    /// A word with `*` and `?`, with its backslashes.
    Wildcard(String),
    /// What words begin with.
    Prefix(String),
    /// A regular expression, without its slashes and with its backslashes.
    Regex(String),
    /// A word and what is written behind its tilde.
    Fuzzy {
        /// The word.
        text: String,
        /// A number, `AUTO` or nothing.
        like: String,
        /// Where the tilde is.
        like_at: Range<usize>,
    },
    /// From one value to another.
    Range {
        /// The lower end.
        low: End,
        /// The upper end.
        high: End,
    },
    /// Brackets.
    Group(Group),
}

/// One end of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The value; nothing for an open end.
    pub value: Option<String>,
    /// Whether the value belongs to the range.
    pub with: bool,
    /// Where it is.
    pub at: Range<usize>,
}
