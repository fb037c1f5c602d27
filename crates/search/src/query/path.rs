//! Paths without quotes: `/etc/fstab` is a regular expression followed by a word.

use std::ops::Range;

use super::lexer::is_space;

/// The word around some bytes of a query, delimited by white space, colons, brackets or quotes.
#[must_use]
pub fn around(text: &str, at: Range<usize>) -> Range<usize> {
    let ends = |c: char| is_space(c) || matches!(c, ':' | '(' | ')' | '"');
    let head = text.get(..at.start).unwrap_or_default();
    let tail = text.get(at.end..).unwrap_or_default();
    let start = head.char_indices().rev().find(|(_, c)| ends(*c)).map_or(0, |(i, c)| i + c.len_utf8());
    let end = tail.find(ends).map_or(text.len(), |i| at.end + i);
    let signs = head.get(start..).unwrap_or_default().bytes().take_while(|b| b"+-!".contains(b)).count();
    start + signs..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found() {
        for (text, at, word) in [
            ("a filename:/etc/fstab b", 11..16, "/etc/fstab"),
            ("-/etc x", 1..2, "/etc"),
            ("(/etc/x-y)", 1..6, "/etc/x-y"),
            ("ü\u{3000}/é/", 5..6, "/é/"),
            ("", 0..0, ""),
        ] {
            assert_eq!(text.get(around(text, at)), Some(word), "{text}");
        }
    }
}
