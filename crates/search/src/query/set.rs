//! What a query means: sets of documents.

pub use std::ops::Bound;

use super::matcher::Matcher;

/// A set of documents.
#[derive(Debug, Clone)]
pub enum Set {
    /// All.
    All,
    /// None.
    Nothing,
    /// Those in all of these.
    And(Vec<Set>),
    /// Those in one of these.
    Or(Vec<Set>),
    /// All others.
    Not(Box<Set>),
    /// Those whose field passes a test.
    Leaf {
        /// The field, by its present name. With a `*`, which stands for any characters: all facts whose names fit, of the
        /// families whose names only the documents know (`package.*`).
        field: String,
        /// The test.
        leaf: Leaf,
    },
}

/// A test of one field. Which ones occur depends on the type of the field: words and terms on text and keywords, `Number` on
/// numbers, `Time` on dates and days.
#[derive(Debug, Clone)]
pub enum Leaf {
    /// This term: a word of a text, lowercased; the whole of a keyword.
    Term(String),
    /// These words of a text, at these positions relative to each other, with so many moves.
    Phrase {
        /// Position and word, by position.
        words: Vec<(u32, String)>,
        /// Moves that are allowed.
        slop: u32,
    },
    /// Any term that a pattern takes: prefix, wildcard, regular expression, fuzzy.
    Terms(Matcher),
    /// Any term between two, by bytes.
    Between {
        /// From.
        low: Bound<String>,
        /// To.
        high: Bound<String>,
    },
    /// Any number between two.
    Number {
        /// From.
        low: Bound<f64>,
        /// To.
        high: Bound<f64>,
    },
    /// Any moment between two, in milliseconds since 1970, both of which belong to it.
    Time {
        /// From.
        low_ms: i64,
        /// To.
        high_ms: i64,
    },
    /// Any value.
    Exists,
}
