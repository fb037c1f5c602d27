//! Errors, and where they occurred.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// A mistake in a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryError {
    /// The byte range in the query.
    pub at: Range<usize>,
    /// What is wrong, and what was expected.
    pub message: String,
    /// The probable intention, as a whole sentence.
    pub hint: Option<String>,
}

impl QueryError {
    /// A mistake at this byte range.
    #[must_use]
    pub fn new(at: Range<usize>, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), hint: None }
    }

    /// Adds a hint at the probable intention.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl QueryError {
    /// The message, the line of the query with carets under the mistake, and the hint:
    ///
    /// ```text
    /// at character 10: a quote is not closed
    ///   filename:"/etc/fstab
    ///            ^
    ///   close it, or write \" for a quote
    /// ```
    #[must_use]
    pub fn shown(&self, query: &str) -> String {
        let before = floor(query, self.at.start);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = query.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or("");
        let pad: String = before
            .get(line_start..)
            .unwrap_or("")
            .chars()
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        let end = floor(query, self.at.end.max(self.at.start)).len().min(line_start + line.len());
        let wide = query.get(before.len()..end).map_or(0, |part| part.chars().count()).max(1);
        let at = before.chars().count() + 1;
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("\n  {hint}"));
        format!("at character {at}: {}\n  {line}\n  {pad}{}{hint}", self.message, "^".repeat(wide))
    }
}

/// The text before a byte. `byte` may lie inside a character or beyond the end.
fn floor(text: &str, byte: usize) -> &str {
    let mut end = byte.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)
    }
}

impl std::error::Error for QueryError {}

/// An error of an index.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A mistake in a query.
    #[error("{0}")]
    Query(#[from] QueryError),
    /// A file or directory failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file is damaged.
    #[error("{}: {what}", path.display())]
    Broken {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Another indexer writes to this index.
    #[error("{}: another indexer writes here{}", path.display(), pid.map_or(String::new(), |p| format!(" (pid {p})")))]
    Locked {
        /// The index directory.
        path: PathBuf,
        /// The process id of the other indexer, if known.
        pid: Option<u32>,
    },
    /// No node of the cluster could be reached, or none can answer now. A retry may help.
    #[error("{0}")]
    Away(String),
    /// The cluster refused the request.
    #[error("{0}")]
    Refused(String),
    /// The configuration is invalid.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Config {
        /// The path of the file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// The query asks for days that are not kept any more, or for what the back end cannot do.
    #[error("{0}")]
    Cannot(String),
}

impl From<mitra_http::Error> for Error {
    fn from(error: mitra_http::Error) -> Self {
        match error {
            mitra_http::Error::Io { path, source } => Error::Io { path, source },
            mitra_http::Error::Broken { path, what } => Error::Broken { path, what },
            mitra_http::Error::Cannot(what) => Error::Cannot(what),
        }
    }
}

/// Adds the path to an I/O error.
pub trait At<T> {
    /// Adds the path.
    fn at(self, path: impl Into<PathBuf>) -> Result<T, Error>;
}

impl<T, E: Into<std::io::Error>> At<T> for Result<T, E> {
    fn at(self, path: impl Into<PathBuf>) -> Result<T, Error> {
        self.map_err(|e| Error::Io { path: path.into(), source: e.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_shown_where_it_is() {
        let error = QueryError::new(3..5, "it is not so").hint("say otherwise");
        assert_eq!(error.shown("ä bcd"), "at character 3: it is not so\n  ä bcd\n    ^^\n  say otherwise");
        let behind = QueryError::new(99..100, "more was wanted");
        assert_eq!(behind.shown("ab\ncd"), "at character 6: more was wanted\n  cd\n    ^");
    }
}
