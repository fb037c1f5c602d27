//! Splits a query into tokens, like the token manager of Lucene's classic parser.
//!
//! At each place the longest match wins, and among equally long ones the first in this list:
//!
//! ```text
//! AND &&   OR ||   NOT !   + - followed by white space: a word   + - ( ) : *
//! "…"      a quoted text; a backslash escapes the next character
//! term     a character other than white space + - ! ( ) : ^ [ ] " { } ~ * ? \ /
//!          or an escaped one; after it the same, and + and -
//! ~…       a tilde, followed by characters of terms
//! term*    a prefix       te*m?  a wildcard       /…/  a regular expression
//! ^        must be followed by a number
//! [ {      followed, up to ] or }, by  TO   "…"   or anything without space, ] and }
//! ```
//!
//! So `&&&` and `ANDY` are terms, `foo!bar` is `foo NOT bar`, and `/etc/fstab` is the regular
//! expression `etc` followed by a term.

use std::ops::Range;

use super::path;
use crate::error::QueryError;

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `AND`, `&&`.
    And,
    /// `OR`, `||`.
    Or,
    /// `NOT`, `!`.
    Not,
    /// `+`.
    Plus,
    /// `-`.
    Minus,
    /// `+`, `-` or `!` followed by white space: a word of that one character.
    Lone,
    /// `(`.
    Open,
    /// `)`.
    Close,
    /// `:`.
    Colon,
    /// `*` on its own.
    Star,
    /// `^`.
    Caret,
    /// The number after a `^`.
    Number,
    /// A quoted text.
    Quoted,
    /// A word.
    Term,
    /// A tilde and the term characters directly behind it.
    Tilde,
    /// A word ending in `*`.
    Prefix,
    /// A word with `*` or `?`.
    Wildcard,
    /// A regular expression including its slashes.
    Regex,
    /// `[`.
    From,
    /// `{`.
    After,
    /// `TO` in a range.
    To,
    /// A quoted end of a range.
    QuotedEnd,
    /// An end of a range.
    WordEnd,
    /// `]`.
    Until,
    /// `}`.
    Before,
    /// No token matches here, see [`Tokens::mistake`].
    Mistake,
    /// The end of the query.
    End,
}

/// A token and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Its kind.
    pub kind: Kind,
    /// Its first byte.
    pub start: usize,
    /// The byte after its last one.
    pub end: usize,
}

impl Token {
    /// Its byte range.
    #[must_use]
    pub fn at(self) -> Range<usize> {
        self.start..self.end
    }
}

/// The tokens of a query.
#[derive(Debug)]
pub struct Tokens {
    /// All tokens. The last one is [`Kind::End`], after a [`Kind::Mistake`] if there is one.
    pub list: Vec<Token>,
    /// The error that belongs to [`Kind::Mistake`].
    pub mistake: Option<QueryError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Words,
    Boost,
    Range,
}

/// Splits a query into tokens, up to the first place where none matches.
#[must_use]
pub fn tokens(text: &str) -> Tokens {
    let mut list = Vec::new();
    let mut mode = Mode::Words;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let next = match mode {
            Mode::Words => word(rest),
            Mode::Boost => boost(rest),
            Mode::Range => end_of_range(rest),
        };
        let (kind, length) = match next {
            Next::Token(kind, length) => (kind, length),
            Next::Skip(length) => {
                at += length;
                continue;
            }
            Next::Wrong(wrong) => {
                let mistake = explain(wrong, text, at);
                list.push(Token { kind: Kind::Mistake, start: mistake.at.start, end: mistake.at.end });
                list.push(Token { kind: Kind::End, start: text.len(), end: text.len() });
                return Tokens { list, mistake: Some(mistake) };
            }
        };
        list.push(Token { kind, start: at, end: at + length });
        at += length;
        mode = match kind {
            Kind::Caret => Mode::Boost,
            Kind::From | Kind::After => Mode::Range,
            Kind::Number | Kind::Until | Kind::Before => Mode::Words,
            _ => mode,
        };
    }
    list.push(Token { kind: Kind::End, start: text.len(), end: text.len() });
    Tokens { list, mistake: None }
}

enum Next {
    Token(Kind, usize),
    Skip(usize),
    Wrong(Wrong),
}

#[derive(Clone, Copy)]
enum Wrong {
    Quote,
    Slash,
    Backslash,
    Bracket,
    Boost,
}

fn word(rest: &str) -> Next {
    let Some(first) = rest.chars().next() else { return Next::Skip(0) };
    let behind = rest.chars().nth(1);
    match first {
        c if is_space(c) => Next::Skip(c.len_utf8()),
        '+' | '-' | '!' => match behind {
            Some(space) if is_space(space) => Next::Token(Kind::Lone, 1 + space.len_utf8()),
            _ if first == '+' => Next::Token(Kind::Plus, 1),
            _ if first == '-' => Next::Token(Kind::Minus, 1),
            _ => Next::Token(Kind::Not, 1),
        },
        '(' => Next::Token(Kind::Open, 1),
        ')' => Next::Token(Kind::Close, 1),
        ':' => Next::Token(Kind::Colon, 1),
        '^' => Next::Token(Kind::Caret, 1),
        '[' => Next::Token(Kind::From, 1),
        '{' => Next::Token(Kind::After, 1),
        ']' | '}' => Next::Wrong(Wrong::Bracket),
        '"' => quoted(rest).map_or(Next::Wrong(Wrong::Quote), |length| Next::Token(Kind::Quoted, length)),
        '/' => {
            delimited(rest, b'/').map_or(Next::Wrong(Wrong::Slash), |length| Next::Token(Kind::Regex, length))
        }
        '~' => Next::Token(Kind::Tilde, 1 + run(rest.get(1..).unwrap_or_default(), in_term)),
        '\\' if behind.is_none() => Next::Wrong(Wrong::Backslash),
        _ => {
            let length = run(rest, |c| in_term(c) || is_wild(c));
            Next::Token(kind_of(rest.get(..length).unwrap_or_default()), length)
        }
    }
}

/// The kind of a run of term characters, stars and question marks.
fn kind_of(image: &str) -> Kind {
    match image {
        "AND" | "&&" => return Kind::And,
        "OR" | "||" => return Kind::Or,
        "NOT" => return Kind::Not,
        "*" => return Kind::Star,
        _ => {}
    }
    let mut chars = image.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '*' if i > 0 && i + 1 == image.len() => return Kind::Prefix,
            '*' | '?' => return Kind::Wildcard,
            _ => {}
        }
    }
    Kind::Term
}

fn boost(rest: &str) -> Next {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(rest);
    if whole == 0 {
        return Next::Wrong(Wrong::Boost);
    }
    let fraction = rest.get(whole..).and_then(|r| r.strip_prefix('.')).map_or(0, digits);
    Next::Token(Kind::Number, if fraction == 0 { whole } else { whole + 1 + fraction })
}

fn end_of_range(rest: &str) -> Next {
    let Some(first) = rest.chars().next() else { return Next::Skip(0) };
    let goop = rest.find([' ', ']', '}']).unwrap_or(rest.len());
    match first {
        ']' => Next::Token(Kind::Until, 1),
        '}' => Next::Token(Kind::Before, 1),
        // A tab may begin a longer end of a range. Only a space never belongs to one.
        c if is_space(c) && goop <= c.len_utf8() => Next::Skip(c.len_utf8()),
        '"' if rest.as_bytes().get(1) != Some(&b'"') => match delimited(rest, b'"') {
            Some(length) if length >= goop => Next::Token(Kind::QuotedEnd, length),
            _ => Next::Token(Kind::WordEnd, goop),
        },
        _ if rest.get(..goop) == Some("TO") => Next::Token(Kind::To, goop),
        _ => Next::Token(Kind::WordEnd, goop),
    }
}

/// The white space of the grammar. Other Unicode white space belongs to words.
pub fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{3000}')
}

fn is_wild(c: char) -> bool {
    matches!(c, '*' | '?')
}

fn in_term(c: char) -> bool {
    let special =
        matches!(c, '!' | '(' | ')' | ':' | '^' | '[' | ']' | '"' | '{' | '}' | '~' | '*' | '?' | '\\' | '/');
    !special && !is_space(c)
}

/// Length in bytes of the leading characters that `takes` accepts, and of escaped ones.
fn run(text: &str, takes: fn(char) -> bool) -> usize {
    let mut length = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let more = match (c, takes(c)) {
            ('\\', _) => match chars.next() {
                Some(escaped) => 1 + escaped.len_utf8(),
                None => break,
            },
            (_, true) => c.len_utf8(),
            (_, false) => break,
        };
        length += more;
    }
    length
}

/// Length in bytes of a quoted text.
fn quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (i, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(i + 1),
            _ => {}
        }
    }
    None
}

/// Length in bytes of a delimited text. A delimiter behind a backslash ends it only if no later one
/// does, even if the backslash itself is escaped.
fn delimited(text: &str, delimiter: u8) -> Option<usize> {
    let mut end = None;
    let mut before = 0;
    for (i, byte) in text.bytes().enumerate().skip(1) {
        if byte == delimiter {
            end = Some(i + 1);
            if before != b'\\' {
                break;
            }
        }
        before = byte;
    }
    end
}

fn explain(wrong: Wrong, text: &str, at: usize) -> QueryError {
    let one = at..at + text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    match wrong {
        Wrong::Quote => {
            QueryError::new(one, "the quote is never closed").hint("Write \\\" for a quote that is meant.")
        }
        Wrong::Slash => {
            let around = path::around(text, at..at + 1);
            let word = text.get(around.clone()).unwrap_or_default();
            QueryError::new(around, "a slash begins a regular expression, and none ends it")
                .hint(format!("Write it in quotes, \"{word}\", or \\/ for the slash."))
        }
        Wrong::Backslash => QueryError::new(one, "the backslash at the end escapes nothing")
            .hint("Write \\\\ for a backslash."),
        Wrong::Bracket => {
            let bracket = text.get(one.clone()).unwrap_or_default();
            QueryError::new(one, format!("'{bracket}' ends a range that never began"))
                .hint(format!("Write \\{bracket} for the character itself."))
        }
        Wrong::Boost => {
            let caret = at.saturating_sub(1)..at;
            QueryError::new(caret, "wanted a number right after ^")
                .hint("Write \\^ for the character itself.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds and texts of all tokens in one line.
    fn cut(text: &str) -> String {
        let read = tokens(text);
        let mut out: Vec<String> = Vec::new();
        for token in &read.list {
            match token.kind {
                Kind::End => {}
                kind => out.push(format!("{kind:?} {}", &text[token.at()])),
            }
        }
        out.join(" | ")
    }

    #[test]
    fn the_longest_token_is_taken() {
        for (text, wanted) in [
            ("a AND b", "Term a | And AND | Term b"),
            ("a ANDb ANDY and", "Term a | Term ANDb | Term ANDY | Term and"),
            ("a && b || !c", "Term a | And && | Term b | Or || | Not ! | Term c"),
            ("&&& a&&b | ||x", "Term &&& | Term a&&b | Term | | Term ||x"),
            ("+a -b ! c", "Plus + | Term a | Minus - | Term b | Lone !  | Term c"),
            ("a - b +", "Term a | Lone -  | Term b | Plus +"),
            ("a-b+c a!b", "Term a-b+c | Term a | Not ! | Term b"),
            ("-\u{3000}x", "Lone -\u{3000} | Term x"),
            ("host:web1", "Term host | Colon : | Term web1"),
            (
                "* ** a* *a a*b ? a?* a** \\**",
                "Star * | Wildcard ** | Prefix a* | Wildcard *a | Wildcard a*b | Wildcard ? | Wildcard a?* | Wildcard a** | Prefix \\**",
            ),
            (r"a\ b \AND \*", r"Term a\ b | Term \AND | Term \*"),
            (r#""a \" b" "" "\\""#, r#"Quoted "a \" b" | Quoted "" | Quoted "\\""#),
            (
                "a~ b~0.8 c~-1 ~ d ~x\\ y",
                "Term a | Tilde ~ | Term b | Tilde ~0.8 | Term c | Tilde ~-1 | Tilde ~ | Term d | Tilde ~x\\ y",
            ),
            (
                "a^2 b^2.5c d^2.",
                "Term a | Caret ^ | Number 2 | Term b | Caret ^ | Number 2.5 | Term c | Term d | Caret ^ | Number 2 | Term .",
            ),
            ("/etc/fstab", "Regex /etc/ | Term fstab"),
            (r"/a\/b/ /c/", r"Regex /a\/b/ | Regex /c/"),
            (r"/a\/ b", r"Regex /a\/ | Term b"),
            (r"/a\\/ b/", r"Regex /a\\/ b/"),
            ("a\u{a0}b\u{b}c", "Term a\u{a0}b\u{b}c"),
            ("ü:é", "Term ü | Colon : | Term é"),
        ] {
            assert_eq!(cut(text), wanted, "{text}");
        }
    }

    #[test]
    fn ranges_have_words_of_their_own() {
        for (text, wanted) in [
            ("[a TO b]", "From [ | WordEnd a | To TO | WordEnd b | Until ]"),
            ("{a TO *} c", "After { | WordEnd a | To TO | WordEnd * | Before } | Term c"),
            ("[TO TO TO]", "From [ | To TO | To TO | To TO | Until ]"),
            ("[TOM TO to]", "From [ | WordEnd TOM | To TO | WordEnd to | Until ]"),
            (r#"["a b" TO "c]"]"#, r#"From [ | QuotedEnd "a b" | To TO | QuotedEnd "c]" | Until ]"#),
            (r#"["" TO "a"b]"#, r#"From [ | WordEnd "" | To TO | WordEnd "a"b | Until ]"#),
            (r#"["a TO b]"#, r#"From [ | WordEnd "a | To TO | WordEnd b | Until ]"#),
            ("[1\tTO 2]", "From [ | WordEnd 1\tTO | WordEnd 2 | Until ]"),
            ("[\t 1 TO 2 ]", "From [ | WordEnd 1 | To TO | WordEnd 2 | Until ]"),
            (
                "[2026-11-01T10:00:00 TO now-1d/d]",
                "From [ | WordEnd 2026-11-01T10:00:00 | To TO | WordEnd now-1d/d | Until ]",
            ),
            ("[a\u{3000} TO b]", "From [ | WordEnd a\u{3000} | To TO | WordEnd b | Until ]"),
        ] {
            assert_eq!(cut(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_token_has_a_place_and_a_hint() {
        for (text, at) in [
            ("a \"b c", 2..3),
            ("filename:/etc", 9..13),
            ("etc/fstab x", 0..9),
            ("-/etc x", 1..5),
            ("a\\", 1..2),
            ("a ] b", 2..3),
            ("a}", 1..2),
            ("a^b", 1..2),
            ("a^ 2", 1..2),
        ] {
            let read = tokens(text);
            assert_eq!(read.list.iter().rev().nth(1).map(|t| t.kind), Some(Kind::Mistake), "{text}");
            let mistake = read.mistake.unwrap();
            assert_eq!(mistake.at, at, "{text}");
            assert!(mistake.hint.is_some(), "{text}");
        }
    }
}
