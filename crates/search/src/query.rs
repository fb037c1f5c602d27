//! The query language: Lucene's classic syntax, parsed once for both back ends.
//!
//! [`Query::parse`] builds a tree of sets for the embedded index, and keeps the text for
//! OpenSearch. [`crate::fields`] defines the field names and how values are compared.
//!
//! ```text
//! text ─ lexer ─► tokens ─ parser ─► ast ─ rewrite ─► ast and the cluster's text
//!                                                       │
//!                                                       └─ fold, leaves ─► set
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

/// Maximum length of a query in bytes.
pub const QUERY_MAX: usize = 10_000;
/// Maximum nesting of groups.
pub const DEPTH_MAX: usize = 100;
/// Maximum number of clauses, as in Lucene (`indices.query.bool.max_clause_count`).
pub const CLAUSES_MAX: usize = 1_024;

/// Maximum number of warnings per query.
const WARNINGS_MAX: usize = 32;

/// A parsed query.
#[derive(Debug, Clone)]
pub struct Query {
    /// The text for OpenSearch's `query_string`: the original, except for names and numbers that
    /// only Mitra understands (`4k`, the dots in `package.python3.11`).
    pub text: String,
    /// The set of matching documents.
    pub set: Set,
    /// Probable mistakes that are valid queries: an unknown field, an unquoted path.
    pub warnings: Vec<QueryError>,
    /// The fields that the query names, without duplicates, in the order of the text.
    pub fields: Vec<String>,
    /// The default operator is AND, for OpenSearch as well.
    pub all_words: bool,
}

/// How to parse a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// The time of `now` in date expressions, in nanoseconds since 1970.
    pub now_ns: i64,
    /// The default operator is AND. Otherwise it is OR, as in Lucene.
    pub all_words: bool,
}

impl Query {
    /// Parses a query. An empty one matches all documents.
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

    /// A query that matches all documents.
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
