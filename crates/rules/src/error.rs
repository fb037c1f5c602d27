//! What is wrong with an expression, and where.

use std::fmt;
use std::ops::Range;

/// A mistake in an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The bytes of the expression that it is about.
    pub at: Range<usize>,
    /// What is wrong and what was wanted.
    pub message: String,
}

impl Mistake {
    /// A mistake at these bytes.
    #[must_use]
    pub fn new(at: Range<usize>, message: impl Into<String>) -> Self {
        Mistake { at, message: message.into() }
    }

    /// The column of its first character, from 1.
    #[must_use]
    pub fn column(&self, source: &str) -> usize {
        before(source, self.at.start).chars().count() + 1
    }

    /// The line of the expression that holds the mistake, and carets under it:
    ///
    /// ```text
    /// sys.fork > 500/s
    /// ^^^^^^^^
    /// ```
    #[must_use]
    pub fn caret(&self, source: &str) -> String {
        let head = before(source, self.at.start);
        let line_start = head.rfind('\n').map_or(0, |i| i + 1);
        let line = source[line_start..].lines().next().unwrap_or("");
        // A tab stays a tab, so that the caret stands where the eye looks.
        let pad: String = head[line_start..].chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let end = before(source, self.at.end.max(self.at.start)).len().min(line_start + line.len());
        let wide = source.get(head.len()..end).map_or(0, |part| part.chars().count()).max(1);
        format!("{line}\n{pad}{}", "^".repeat(wide))
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

/// The text before a byte, which may lie inside a character or behind the end.
fn before(source: &str, byte: usize) -> &str {
    let mut end = byte.min(source.len());
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    &source[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_mistake() {
        let source = "a\tü > x";
        let at = source.find('x').unwrap();
        let mistake = Mistake::new(at..at + 1, "no");
        assert_eq!(mistake.caret(source), "a\tü > x\n \t    ^");
        assert_eq!(mistake.column(source), 7);
        // Behind the end, inside a character, on a later line.
        assert_eq!(Mistake::new(99..99, "").caret("ab"), "ab\n  ^");
        assert_eq!(Mistake::new(3..4, "").caret(source), "a\tü > x\n \t^");
        assert_eq!(Mistake::new(3..6, "").caret("a\nb xyz"), "b xyz\n ^^^");
    }
}
