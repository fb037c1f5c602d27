//! Regular expressions in Lucene's dialect with all optional operators, as in OpenSearch's
//! `query_string`.
//!
//! A pattern matches a whole term. So there are no anchors, and `^` and `$` are literal. From
//! lowest to highest precedence:
//!
//! ```text
//! a|b   a&b                  union, intersection
//! ab                         concatenation
//! a?  a*  a+  a{2}  a{2,}  a{2,5}
//! ~a                         everything that a does not match (of any length)
//! .  @  #                    any character, any text, nothing at all
//! (a|b)  ()                  group, empty text
//! "a.b"                      literal text
//! [a-f_]  [^0-9]             character class, negated class
//! <8-12>  <08-12>            a number with any leading zeros; with a fixed number of digits
//!                            if both ends have the same number of digits
//! \d \D \w \W \s \S          ASCII classes
//! \.                         an escaped character; a letter cannot be escaped
//! ```
//!
//! Its peculiarities are kept. An operator in place of an operand is literal: `*a`, `|a`, `)`. In
//! brackets only `\`, a `-` between two characters and a closing `]` that is not the first
//! character are special, and an escaped backslash cannot begin a range. `#*` matches nothing, `#?`
//! matches the empty text.

use regex_syntax::hir::ClassUnicode;

use super::matcher::automaton::{Expr, set};

/// Maximum length of a pattern, as in OpenSearch (`index.max_regex_length`).
pub const PATTERN_MAX: usize = 1_000;
/// Maximum nesting of groups.
const DEPTH_MAX: usize = 100;
/// The largest number in a pattern: Lucene reads a Java `int`.
const NUMBER_MAX: u32 = i32::MAX as u32;

/// The byte position of an error, and the message.
pub(super) type Mistake = (usize, String);

/// Parses a pattern.
pub(super) fn parse(pattern: &str) -> Result<Expr, Mistake> {
    let length = pattern.encode_utf16().count();
    if length > PATTERN_MAX {
        return Err((0, format!("{length} characters: a regular expression has at most {PATTERN_MAX}")));
    }
    if pattern.is_empty() {
        return Ok(Expr::Empty);
    }
    let mut parser = Parser { text: pattern, at: 0, depth: 0 };
    let all = parser.either()?;
    match parser.peek() {
        None => Ok(all),
        Some(_) => Err((parser.at, "this bracket was never opened".to_owned())),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// The byte position of the next character.
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn peeks(&self, any_of: &str) -> bool {
        self.peek().is_some_and(|c| any_of.contains(c))
    }

    fn eats(&mut self, c: char) -> bool {
        let there = self.peek() == Some(c);
        if there {
            self.at += c.len_utf8();
        }
        there
    }

    fn next(&mut self, wanted: &str) -> Result<char, Mistake> {
        let c = self.peek().ok_or_else(|| (self.at, format!("it ends here, and {wanted} should follow")))?;
        self.at += c.len_utf8();
        Ok(c)
    }

    fn deeper(&mut self, place: usize) -> Result<(), Mistake> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err((place, format!("more than {DEPTH_MAX} groups within groups")));
        }
        Ok(())
    }

    fn either(&mut self) -> Result<Expr, Mistake> {
        let mut list = vec![self.both()?];
        while self.eats('|') {
            list.push(self.both()?);
        }
        Ok(Expr::or(list))
    }

    fn both(&mut self) -> Result<Expr, Mistake> {
        let mut list = vec![self.sequence()?];
        while self.eats('&') {
            list.push(self.sequence()?);
        }
        Ok(Expr::and(list))
    }

    fn sequence(&mut self) -> Result<Expr, Mistake> {
        let mut list = vec![self.repeated()?];
        while self.peek().is_some() && !self.peeks(")|&") {
            list.push(self.repeated()?);
        }
        Ok(Expr::concat(list))
    }

    fn repeated(&mut self) -> Result<Expr, Mistake> {
        let mut one = self.complement()?;
        while self.peeks("?*+{") {
            let (min, max) = match self.next("an operator")? {
                '?' => (0, Some(1)),
                '*' => (0, None),
                '+' => (1, None),
                _ => self.counts()?,
            };
            one = one.repeat(min, max);
        }
        Ok(one)
    }

    /// Parses what follows the `{` of a repetition: `2}`, `2,}`, `2,5}`.
    fn counts(&mut self) -> Result<(u32, Option<u32>), Mistake> {
        let Some(min) = self.number()? else {
            return Err((
                self.at,
                "a number should follow the brace; write \\{ for the character".to_owned(),
            ));
        };
        let max = if self.eats(',') { self.number()? } else { Some(min) };
        if !self.eats('}') {
            return Err((self.at, "} should follow".to_owned()));
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Result<Option<u32>, Mistake> {
        let start = self.at;
        while self.peeks("0123456789") {
            self.at += 1;
        }
        let digits = self.text.get(start..self.at).unwrap_or_default();
        if digits.is_empty() {
            return Ok(None);
        }
        number(digits)
            .map(Some)
            .ok_or_else(|| (start, format!("{digits}: at most {NUMBER_MAX} can be counted")))
    }

    fn complement(&mut self) -> Result<Expr, Mistake> {
        let place = self.at;
        if !self.eats('~') {
            return self.operand();
        }
        self.deeper(place)?;
        let inner = self.complement()?;
        self.depth -= 1;
        Ok(inner.complement())
    }

    fn operand(&mut self) -> Result<Expr, Mistake> {
        let place = self.at;
        match self.peek() {
            Some('[') => self.class(place),
            Some('(') => self.group(place),
            Some('"') => self.quoted(place),
            Some('<') => self.interval(place),
            Some('.') => self.simple(Expr::any()),
            Some('#') => self.simple(Expr::Nothing),
            Some('@') => self.simple(Expr::all()),
            _ => match self.class_of_escape()? {
                Some(set) => Ok(Expr::chars(set)),
                None => Ok(Expr::char(self.character()?)),
            },
        }
    }

    /// Skips a one-character operator, and returns its expression.
    fn simple(&mut self, expr: Expr) -> Result<Expr, Mistake> {
        self.at += 1;
        Ok(expr)
    }

    fn group(&mut self, place: usize) -> Result<Expr, Mistake> {
        self.at += 1;
        if self.eats(')') {
            return Ok(Expr::Empty);
        }
        self.deeper(place)?;
        let inner = self.either()?;
        self.depth -= 1;
        if !self.eats(')') {
            return Err((place, "this bracket is never closed".to_owned()));
        }
        Ok(inner)
    }

    fn quoted(&mut self, place: usize) -> Result<Expr, Mistake> {
        let inside = self.text.get(self.at + 1..).unwrap_or_default();
        let Some((inside, _)) = inside.split_once('"') else {
            return Err((place, "this quote is never closed".to_owned()));
        };
        self.at += inside.len() + 2;
        Ok(Expr::concat(inside.chars().map(Expr::char).collect()))
    }

    fn class(&mut self, place: usize) -> Result<Expr, Mistake> {
        self.at += 1;
        let negated = self.eats('^');
        let mut set = self.class_item()?;
        while self.peek().is_some_and(|c| c != ']') {
            set.union(&self.class_item()?);
        }
        if !self.eats(']') {
            return Err((place, "this bracket is never closed".to_owned()));
        }
        if negated {
            set.negate();
        }
        Ok(Expr::chars(set))
    }

    fn class_item(&mut self) -> Result<ClassUnicode, Mistake> {
        if let Some(set) = self.class_of_escape()? {
            return Ok(set);
        }
        let place = self.at;
        let from = self.character()?;
        if !self.eats('-') {
            return Ok(set(&[(from, from)]));
        }
        let to = self.character()?;
        if from > to {
            return Err((place, format!("{from}-{to}: a range goes upwards; write \\- for the character")));
        }
        Ok(set(&[(from, to)]))
    }

    /// Parses a class (`\d`), or an escaped backslash. Before any other escaped character it takes
    /// only the backslash.
    fn class_of_escape(&mut self) -> Result<Option<ClassUnicode>, Mistake> {
        let place = self.at;
        if !self.eats('\\') {
            return Ok(None);
        }
        let Some(c) = self.peek() else {
            return Err((place, "a backslash at the end; write \\\\ for the character".to_owned()));
        };
        let mut class = match c {
            'd' | 'D' => set(&[('0', '9')]),
            'w' | 'W' => set(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
            's' | 'S' => set(&[('\t', '\n'), ('\r', '\r'), (' ', ' ')]),
            '\\' => set(&[(c, c)]),
            'a'..='z' | 'A'..='Z' => return Err((place, format!("\\{c} is no class; \\d, \\w and \\s are"))),
            _ => return Ok(None),
        };
        self.at += 1;
        if c.is_ascii_uppercase() {
            class.negate();
        }
        Ok(Some(class))
    }

    /// Takes the next character, and a backslash before it.
    fn character(&mut self) -> Result<char, Mistake> {
        self.eats('\\');
        self.next("a character")
    }

    fn interval(&mut self, place: usize) -> Result<Expr, Mistake> {
        self.at += 1;
        let inside = self.text.get(self.at..).unwrap_or_default();
        let Some((inside, _)) = inside.split_once('>') else {
            return Err((place, "> should follow; write \\< for the character".to_owned()));
        };
        self.at += inside.len() + 1;
        let ends = inside.split_once('-').and_then(|(a, b)| Some((a, number(a)?, b, number(b)?)));
        let Some((first, a, second, b)) = ends else {
            return Err((place, format!("<{inside}> is no range of numbers; write \\< for the character")));
        };
        let digits = if first.len() == second.len() { Some(first.len()) } else { None };
        Ok(interval(a.min(b), a.max(b), digits))
    }
}

/// Parses digits into a number of at most 31 bits.
fn number(digits: &str) -> Option<u32> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|n| *n <= NUMBER_MAX)
}

/// The numbers from `min` to `max`, with exactly this many digits or with any leading zeros.
fn interval(min: u32, max: u32, digits: Option<usize>) -> Expr {
    if let Some(width) = digits {
        return between(format!("{min:0width$}").as_bytes(), format!("{max:0width$}").as_bytes());
    }
    let (min, max) = (min.to_string(), max.to_string());
    let lengths = (min.len()..=max.len()).map(|length| {
        let low = if length == min.len() { min.clone() } else { format!("1{}", "0".repeat(length - 1)) };
        let high = if length == max.len() { max.clone() } else { "9".repeat(length) };
        between(low.as_bytes(), high.as_bytes())
    });
    Expr::concat(vec![Expr::char('0').repeat(0, None), Expr::or(lengths.collect())])
}

/// The digit strings between two of the same length.
fn between(low: &[u8], high: &[u8]) -> Expr {
    let (Some((l, low_rest)), Some((h, high_rest))) = (low.split_first(), high.split_first()) else {
        return Expr::Empty;
    };
    let digit_then = |from: u8, to: u8, rest: Expr| {
        if from > to { Expr::Nothing } else { Expr::concat(vec![Expr::range(from.into(), to.into()), rest]) }
    };
    if l == h {
        return digit_then(*l, *l, between(low_rest, high_rest));
    }
    let (zeros, nines) = (vec![b'0'; low_rest.len()], vec![b'9'; low_rest.len()]);
    let any = || Expr::concat(vec![Expr::range('0', '9'); low_rest.len()]);
    if (*l, low_rest, *h, high_rest) == (b'0', &zeros, b'9', &nines) {
        return digit_then(*l, *h, any());
    }
    Expr::or(vec![
        digit_then(*l, *l, between(low_rest, &nines)),
        digit_then(l + 1, h - 1, any()),
        digit_then(*h, *h, between(&zeros, high_rest)),
    ])
}

#[cfg(test)]
mod tests;
