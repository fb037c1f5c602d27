//! Wildcards: `*` is any characters, `?` is one; a backslash makes the next character mean itself.
//!
//! ```text
//! vm.swap*    lin?x    *\**        the last takes what has a star in it
//! ```
//!
//! As in Lucene, a backslash at the very end is a backslash, and no pattern at all takes nothing at all.

use super::matcher::terms::{ALL, ANY, Id, NOTHING, Terms, TooComplex};

/// The term of a pattern.
pub(super) fn term(pattern: &str, terms: &mut Terms) -> Result<Id, TooComplex> {
    if pattern.is_empty() {
        return Ok(NOTHING);
    }
    let mut parts = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        parts.push(match c {
            '*' => ALL,
            '?' => ANY,
            '\\' => terms.char(chars.next().unwrap_or('\\'))?,
            c => terms.char(c)?,
        });
    }
    terms.cat_all(&parts)
}
