//! The query language: Lucene's classic syntax, read once for both back ends.
//!
//! [`Query::parse`] makes a tree of sets of it for the embedded index and keeps the text, which is what OpenSearch gets. Names
//! of fields and how their values are compared are those of [`crate::fields`].
//!
//! ```text
//! text ─ lexer ─► tokens ─ parser ─► ast ─ rewrite ─► ast and the text for a cluster ─ fold, leaves ─► set
//! ```

pub mod ast;
pub mod dates;
pub mod escape;
pub mod fold;
mod leaves;
pub mod lexer;
pub mod lucene_regex;
pub mod matcher;
pub mod names;
pub mod numbers;
pub mod parser;
mod path;
mod render;
pub mod rewrite;
pub mod set;

use crate::error::QueryError;
pub use set::{Bound, Leaf, Set};

/// Bytes of a query.
pub const QUERY_MAX: usize = 10_000;
/// Groups within groups.
pub const DEPTH_MAX: usize = 100;
/// Words and other tests of a query, as Lucene has it (`indices.query.bool.max_clause_count`).
pub const CLAUSES_MAX: usize = 1_024;

/// Warnings of a query; more than these nobody reads.
const WARNINGS_MAX: usize = 32;

/// A query that was read.
#[derive(Debug, Clone)]
pub struct Query {
    /// What OpenSearch's `query_string` gets: the text as it was given, but for names and numbers that only Mitra reads (`4k`,
    /// the dots of `package.python3.11`).
    pub text: String,
    /// What it means.
    pub set: Set,
    /// What is no mistake and probably not meant: a field that nobody has, an unquoted path.
    pub warnings: Vec<QueryError>,
    /// The fields that it names, each once, in order.
    pub fields: Vec<String>,
    /// Words beside each other all have to be there: the operator that OpenSearch is told.
    pub all_words: bool,
}

/// How a query is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// What `now` is in dates, in nanoseconds since 1970.
    pub now_ns: i64,
    /// Words beside each other all have to be there; otherwise one is enough, as in Lucene.
    pub all_words: bool,
}

impl Query {
    /// Reads a query. An empty one is all documents.
    pub fn parse(text: &str, settings: Settings) -> Result<Self, QueryError> {
        if text.len() > QUERY_MAX {
            return Err(QueryError::new(0..text.len(), format!("a query has at most {QUERY_MAX} bytes")));
        }
        if text.chars().all(|c| c <= ' ' || lexer::is_space(c)) {
            return Ok(Self { all_words: settings.all_words, ..Self::all() });
        }
        let (mut group, mut warnings) = parser::parse(text)?;
        let text = rewrite::rewrite(text, &mut group);
        let folded = fold::fold(&group, settings)?;
        warnings.extend(folded.warnings);
        warnings.sort_by_key(|warning| (warning.at.start, warning.at.end));
        warnings.truncate(WARNINGS_MAX);
        Ok(Self { text, set: folded.set, warnings, fields: folded.fields, all_words: settings.all_words })
    }

    /// All documents.
    #[must_use]
    pub fn all() -> Self {
        Self {
            text: "*:*".to_owned(),
            set: Set::All,
            warnings: Vec::new(),
            fields: Vec::new(),
            all_words: false,
        }
    }
}

#[cfg(test)]
mod tests;
