//! Backslash escapes in queries: removed on parsing, added on rewriting.
//!
//! A backslash removes the special meaning of the next character: `\*`, `\:`, `\ `. `\u0041` is the
//! UTF-16 unit with that hexadecimal number.

use std::str::CharIndices;

use crate::error::QueryError;

/// Number of hexadecimal digits after `\u`.
const DIGITS: u32 = 4;

/// Removes the backslashes from a text that begins at byte `at` of the query.
pub fn unescape(image: &str, at: usize) -> Result<String, QueryError> {
    if !image.contains('\\') {
        return Ok(image.to_owned());
    }
    // UTF-16 units, because a pair like `\uD83D\uDE00` is one character.
    let mut units: Vec<u16> = Vec::with_capacity(image.len());
    let mut chars = image.char_indices();
    while let Some((i, c)) = chars.next() {
        let meant = match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', None) => {
                let why = QueryError::new(at + i..at + i + 1, "the backslash at the end escapes nothing");
                return Err(why.hint("Write \\\\ for a backslash."));
            }
            ('\\', Some((_, 'u'))) => {
                let wanted = || {
                    QueryError::new(at + i..at + i + 2, "wanted four hexadecimal digits after \\u")
                        .hint("\\u0041 is the letter A; write \\\\u for a backslash and a u.")
                };
                units.push(number(&mut chars).ok_or_else(wanted)?);
                continue;
            }
            ('\\', Some((_, escaped))) => escaped,
            (plain, _) => plain,
        };
        units.extend_from_slice(meant.encode_utf16(&mut [0; 2]));
    }
    Ok(String::from_utf16_lossy(&units))
}

fn number(chars: &mut CharIndices<'_>) -> Option<u16> {
    let mut value: u16 = 0;
    for _ in 0..DIGITS {
        let (_, c) = chars.next()?;
        value = value << 4 | u16::try_from(c.to_digit(16)?).ok()?;
    }
    Some(value)
}

/// Escapes every character that has a meaning in queries.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, c) in text.char_indices() {
        let special = matches!(
            c,
            '!' | '('
                | ')'
                | ':'
                | '^'
                | '['
                | ']'
                | '"'
                | '{'
                | '}'
                | '~'
                | '*'
                | '?'
                | '\\'
                | '/'
                | '&'
                | '|'
        );
        // Inside a word these two have no meaning.
        let sign = i == 0 && matches!(c, '+' | '-');
        if special || sign || c.is_whitespace() {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslashes_are_taken_away() {
        for (image, meant) in [
            ("plain", "plain"),
            (r"a\*b", "a*b"),
            (r"\\", r"\"),
            (r"\\\\", r"\\"),
            (r"a\ b", "a b"),
            (r"\u0041\u00e9x", "Aéx"),
            (r"\uD83D\uDE00", "😀"),
            (r"\uD83Dx", "\u{fffd}x"),
            (r"\ü", "ü"),
            (r"\n", "n"),
        ] {
            assert_eq!(unescape(image, 0).as_deref(), Ok(meant), "{image}");
        }
    }

    #[test]
    fn what_is_no_escape_is_refused_with_its_place() {
        for (image, at) in
            [(r"a\", 6..7), (r"\u", 5..7), (r"ab\u12", 7..9), (r"\u12g4", 5..7), (r"\u00\u", 5..7)]
        {
            assert_eq!(unescape(image, 5).map_err(|e| e.at), Err(at), "{image}");
        }
    }

    #[test]
    fn what_is_escaped_is_read_back() {
        for text in ["", "+a-b", "a b", r#"x:(y)"/*?~^[]{}\!&&||"#, "ü\u{3000}"] {
            assert_eq!(unescape(&escape(text), 0).as_deref(), Ok(text));
        }
        assert_eq!(escape("package.libstdc++6"), "package.libstdc++6");
    }
}
