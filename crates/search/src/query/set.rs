//! The meaning of a query: sets of documents.

pub use std::ops::Bound;

use super::matcher::Matcher;

/// A set of documents.
#[derive(Debug, Clone)]
pub enum Set {
    /// All documents.
    All,
    /// No documents.
    Nothing,
    /// The intersection.
    And(Vec<Set>),
    /// The union.
    Or(Vec<Set>),
    /// The complement.
    Not(Box<Set>),
    /// The documents whose field passes a test.
    Leaf {
        /// The field's current name. A `*` stands for any characters, and means all facts with
        /// matching names in the families that only the documents define (`package.*`).
        field: String,
        /// The test.
        leaf: Leaf,
    },
}

/// A test of one field. The field's type decides which tests occur: terms and phrases for text and
/// keywords, `Number` for numbers, `Time` for dates and days.
#[derive(Debug, Clone)]
pub enum Leaf {
    /// Equals a term: a lower-case token of a text, or a whole keyword.
    Term(String),
    /// Has these tokens at these relative positions, give or take some moves.
    Phrase {
        /// Position and token, ordered by position.
        words: Vec<(u32, String)>,
        /// How many moves are allowed.
        slop: u32,
    },
    /// A pattern accepts the term: prefix, wildcard, regular expression, fuzzy.
    Terms(Matcher),
    /// The term lies in a range, compared by bytes.
    Between {
        /// The lower end.
        low: Bound<String>,
        /// The upper end.
        high: Bound<String>,
    },
    /// The number lies in a range.
    Number {
        /// The lower end.
        low: Bound<f64>,
        /// The upper end.
        high: Bound<f64>,
    },
    /// The time lies in a range, in milliseconds since 1970, both ends inclusive.
    Time {
        /// The lower end.
        low_ms: i64,
        /// The upper end.
        high_ms: i64,
    },
    /// The field has a value.
    Exists,
}
