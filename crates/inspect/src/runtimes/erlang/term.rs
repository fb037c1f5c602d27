//! Erlang terms as `erl_call` prints them: `{ok, [{blocks, 89, 89, 127}, "text", 'An atom']}`.
//!
//! The answer is untrusted: unknown terms become [`Term::Other`], and deep nesting is cut off.

/// Deeper than any answer about an allocator.
const DEPTH_MAX: usize = 32;
/// Limit of the terms of one answer: a hundred instances with a hundred numbers each are 40,000.
const TERMS_MAX: usize = 4 << 20;

/// A term.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    Number(i64),
    Atom(String),
    Text(String),
    List(Vec<Term>),
    Tuple(Vec<Term>),
    /// A float, a process id, a reference, a binary.
    Other,
}

impl Term {
    /// Parses a term; `None` if it is not one.
    pub(super) fn parse(text: &str) -> Option<Term> {
        let mut reader = Reader { bytes: text.as_bytes(), at: 0, left: TERMS_MAX };
        reader.term(0)
    }

    pub(super) fn list(&self) -> &[Term] {
        match self {
            Term::List(all) => all,
            _ => &[],
        }
    }

    pub(super) fn tuple(&self) -> &[Term] {
        match self {
            Term::Tuple(all) => all,
            _ => &[],
        }
    }

    /// A nonnegative number.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Term::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// An atom or a text. `erl_call` prints a list of numbers as text, and an empty text as an
    /// empty list.
    pub(super) fn word(&self) -> Option<&str> {
        match self {
            Term::Atom(word) | Term::Text(word) => Some(word),
            _ => None,
        }
    }

    /// The values of a key in a list of tuples: for `[{carriers, 3, 3, 4}]` the three numbers.
    pub(super) fn get(&self, key: &str) -> Option<&[Term]> {
        self.list().iter().find_map(|term| match term.tuple().split_first()? {
            (Term::Atom(name), rest) if name == key => Some(rest),
            _ => None,
        })
    }

    /// The first value of a key.
    pub(super) fn value(&self, key: &str) -> Option<&Term> {
        self.get(key)?.first()
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn term(&mut self, depth: usize) -> Option<Term> {
        self.left = self.left.checked_sub(1)?;
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            b'[' => Some(Term::List(self.several(b']', depth)?)),
            b'{' => Some(Term::Tuple(self.several(b'}', depth)?)),
            b'\'' => Some(Term::Atom(self.quoted(b'\'')?)),
            b'"' => Some(Term::Text(self.quoted(b'"')?)),
            b'<' => self.skip_to(b'>'),
            b'#' => self.other(),
            byte if byte.is_ascii_digit() || byte == b'-' => self.number(),
            byte if byte.is_ascii_alphabetic() || byte == b'_' => Some(Term::Atom(self.bare())),
            _ => None,
        }
    }

    fn several(&mut self, close: u8, depth: usize) -> Option<Vec<Term>> {
        self.at += 1;
        let mut all = Vec::new();
        loop {
            match self.peek()? {
                byte if byte == close => {
                    self.at += 1;
                    return Some(all);
                }
                // The tail of an improper list is behind a bar.
                b',' | b'|' => self.at += 1,
                _ => all.push(self.term(depth + 1)?),
            }
        }
    }

    fn quoted(&mut self, quote: u8) -> Option<String> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            match byte {
                byte if byte == quote => return Some(String::from_utf8_lossy(&text).into_owned()),
                b'\\' => {
                    text.push(*self.bytes.get(self.at)?);
                    self.at += 1;
                }
                byte => text.push(byte),
            }
        }
    }

    fn bare(&mut self) -> String {
        let start = self.at;
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'@' | b'.' | b'-');
        while self.bytes.get(self.at).is_some_and(is_part) {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned()
    }

    fn number(&mut self) -> Option<Term> {
        let start = self.at;
        self.at += 1;
        let is_part =
            |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-' | b'#');
        while self.bytes.get(self.at).is_some_and(is_part) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).ok()?;
        Some(text.parse().map_or(Term::Other, Term::Number))
    }

    fn skip_to(&mut self, close: u8) -> Option<Term> {
        while self.bytes.get(self.at).is_some_and(|byte| *byte != close) {
            self.at += 1;
        }
        // A binary ends with two brackets.
        while self.bytes.get(self.at) == Some(&close) {
            self.at += 1;
        }
        Some(Term::Other)
    }

    /// `#Ref<0.1.2>`, `#Bin<5>`.
    fn other(&mut self) -> Option<Term> {
        self.skip_to(b'>')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_as_they_are_printed() {
        let text = "{ok, [{instance, 0, [{blocks, 89, -1}, {v,\"0.9\"}, {'An atom', <a@b.1.2>, #Ref<0.1>, 1.5e3}, []]}]}\n";
        let term = Term::parse(text).unwrap();
        let instance = term.tuple()[1].list()[0].tuple();
        assert_eq!(instance[1].count(), Some(0));
        assert_eq!(instance[2].get("blocks"), Some([Term::Number(89), Term::Number(-1)].as_slice()));
        assert_eq!(instance[2].value("v").and_then(Term::word), Some("0.9"));
        assert_eq!(instance[2].get("An atom"), Some([Term::Other, Term::Other, Term::Other].as_slice()));
        assert_eq!(instance[2].get("nothing"), None);
        assert_eq!(instance[2].list()[3], Term::List(Vec::new()));
    }

    #[test]
    fn what_is_no_term_is_refused() {
        for text in ["", "[", "{a, ", "'a", "\"\\", "}", "\u{e9}", &"[".repeat(100_000)] {
            assert_eq!(Term::parse(text), None, "{}", &text[..text.len().min(20)]);
        }
    }
}
