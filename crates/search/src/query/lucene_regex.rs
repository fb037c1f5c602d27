//! Regular expressions in the dialect of Lucene, with all that it can switch on, as OpenSearch's `query_string` does.
//!
//! A pattern takes the whole of a term, so there are no anchors: `^` and `$` are characters. From loose to tight:
//!
//! ```text
//! a|b   a&b                  either, both
//! ab                         one after the other
//! a?  a*  a+  a{2}  a{2,}  a{2,5}
//! ~a                         whatever a does not take (of any length)
//! .  @  #                    any character, any text, nothing at all
//! (a|b)  ()                  group, the empty text
//! "a.b"                      these characters
//! [a-f_]  [^0-9]             one of these, one of the others
//! <8-12>  <08-12>            a number, with any zeros before it; of just so many digits if both ends have as many
//! \d \D \w \W \s \S          classes, of ASCII
//! \.                         the character itself; a letter cannot be escaped
//! ```
//!
//! Its peculiarities are kept. An operator where an operand has to stand is a character: `*a`, `|a`, `)`. In brackets only
//! `\`, a `-` between two and a closing `]` that is not the first mean something, and an escaped backslash begins no range.
//! `#*` takes nothing, `#?` the empty text.

use super::matcher::terms::{ALL, ANY, EMPTY, Id, NOTHING, OPEN, Ranges, Terms, TooComplex, others};

/// Characters of a pattern, as OpenSearch has it (`index.max_regex_length`).
pub const PATTERN_MAX: usize = 1_000;
/// Groups within groups.
const DEPTH_MAX: usize = 100;
/// Digits of an end of a number range: Lucene reads 32 bits.
const NUMBER_MAX: u32 = i32::MAX as u32;

/// What is wrong, and where, in bytes.
pub(super) type Mistake = (usize, String);

/// The term of a pattern.
pub(super) fn term(pattern: &str, terms: &mut Terms) -> Result<Id, Mistake> {
    let length = pattern.encode_utf16().count();
    if length > PATTERN_MAX {
        return Err((0, format!("{length} characters: a regular expression has at most {PATTERN_MAX}")));
    }
    if pattern.is_empty() {
        return Ok(EMPTY);
    }
    let mut parser = Parser { text: pattern, at: 0, depth: 0, terms };
    let all = parser.either()?;
    match parser.peek() {
        None => Ok(all),
        Some(_) => Err((parser.at, "this bracket was never opened".to_owned())),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// The place of what is read next, in bytes.
    at: usize,
    depth: usize,
    terms: &'a mut Terms,
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

    fn made(&self, made: Result<Id, TooComplex>) -> Result<Id, Mistake> {
        made.map_err(|TooComplex| (self.at, "too complex".to_owned()))
    }

    fn deeper(&mut self, place: usize) -> Result<(), Mistake> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err((place, format!("more than {DEPTH_MAX} groups within groups")));
        }
        Ok(())
    }

    fn either(&mut self) -> Result<Id, Mistake> {
        let mut list = vec![self.both()?];
        while self.eats('|') {
            list.push(self.both()?);
        }
        let made = self.terms.or(&list);
        self.made(made)
    }

    fn both(&mut self) -> Result<Id, Mistake> {
        let mut list = vec![self.sequence()?];
        while self.eats('&') {
            list.push(self.sequence()?);
        }
        let made = self.terms.and(&list);
        self.made(made)
    }

    fn sequence(&mut self) -> Result<Id, Mistake> {
        let mut list = vec![self.repeated()?];
        while self.peek().is_some() && !self.peeks(")|&") {
            list.push(self.repeated()?);
        }
        let made = self.terms.cat_all(&list);
        self.made(made)
    }

    fn repeated(&mut self) -> Result<Id, Mistake> {
        let mut one = self.complement()?;
        while self.peeks("?*+{") {
            let (min, max) = match self.next("an operator")? {
                '?' => (0, 1),
                '*' => (0, OPEN),
                '+' => (1, OPEN),
                _ => self.counts()?,
            };
            let made = self.terms.repeat(one, min, max);
            one = self.made(made)?;
        }
        Ok(one)
    }

    /// What follows the brace of a repetition: `2}`, `2,}`, `2,5}`.
    fn counts(&mut self) -> Result<(u32, u32), Mistake> {
        let Some(min) = self.number()? else {
            return Err((
                self.at,
                "a number should follow the brace; write \\{ for the character".to_owned(),
            ));
        };
        let max = if self.eats(',') { self.number()?.unwrap_or(OPEN) } else { min };
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

    fn complement(&mut self) -> Result<Id, Mistake> {
        let place = self.at;
        if !self.eats('~') {
            return self.operand();
        }
        self.deeper(place)?;
        let inner = self.complement()?;
        self.depth -= 1;
        let made = self.terms.not(inner);
        self.made(made)
    }

    fn operand(&mut self) -> Result<Id, Mistake> {
        let place = self.at;
        match self.peek() {
            Some('[') => self.class(place),
            Some('(') => self.group(place),
            Some('"') => self.quoted(place),
            Some('<') => self.interval(place),
            Some('.') => self.simple(ANY),
            Some('#') => self.simple(NOTHING),
            Some('@') => self.simple(ALL),
            _ => {
                let set = match self.class_of_escape()? {
                    Some(set) => set,
                    None => one(self.character()?),
                };
                let made = self.terms.chars(set);
                self.made(made)
            }
        }
    }

    /// A character that stands for a term.
    fn simple(&mut self, id: Id) -> Result<Id, Mistake> {
        self.at += 1;
        Ok(id)
    }

    fn group(&mut self, place: usize) -> Result<Id, Mistake> {
        self.at += 1;
        if self.eats(')') {
            return Ok(EMPTY);
        }
        self.deeper(place)?;
        let inner = self.either()?;
        self.depth -= 1;
        if !self.eats(')') {
            return Err((place, "this bracket is never closed".to_owned()));
        }
        Ok(inner)
    }

    fn quoted(&mut self, place: usize) -> Result<Id, Mistake> {
        self.at += 1;
        let mut list = Vec::new();
        loop {
            match self.peek() {
                None => return Err((place, "this quote is never closed".to_owned())),
                Some('"') => break,
                Some(c) => {
                    self.at += c.len_utf8();
                    let made = self.terms.char(c);
                    list.push(self.made(made)?);
                }
            }
        }
        self.at += 1;
        let made = self.terms.cat_all(&list);
        self.made(made)
    }

    fn class(&mut self, place: usize) -> Result<Id, Mistake> {
        self.at += 1;
        let negated = self.eats('^');
        let mut set = self.class_item()?;
        while self.peek().is_some_and(|c| c != ']') {
            set.extend(self.class_item()?);
        }
        if !self.eats(']') {
            return Err((place, "this bracket is never closed".to_owned()));
        }
        let made = self.terms.chars(if negated { others(set) } else { set });
        self.made(made)
    }

    fn class_item(&mut self) -> Result<Ranges, Mistake> {
        if let Some(set) = self.class_of_escape()? {
            return Ok(set);
        }
        let place = self.at;
        let from = self.character()?;
        if !self.eats('-') {
            return Ok(one(from));
        }
        let to = self.character()?;
        if from > to {
            return Err((place, format!("{from}-{to}: a range goes upwards; write \\- for the character")));
        }
        Ok(vec![(u32::from(from), u32::from(to))])
    }

    /// What a backslash and a letter, or two backslashes, stand for. Of any other escape only the backslash is read.
    fn class_of_escape(&mut self) -> Result<Option<Ranges>, Mistake> {
        let place = self.at;
        if !self.eats('\\') {
            return Ok(None);
        }
        let Some(c) = self.peek() else {
            return Err((place, "a backslash at the end; write \\\\ for the character".to_owned()));
        };
        let class = match c {
            'd' | 'D' => vec![(0x30, 0x39)],
            'w' | 'W' => vec![(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
            's' | 'S' => vec![(0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)],
            '\\' => one(c),
            'a'..='z' | 'A'..='Z' => return Err((place, format!("\\{c} is no class; \\d, \\w and \\s are"))),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(if c.is_ascii_uppercase() { others(class) } else { class }))
    }

    /// A character, or one after a backslash.
    fn character(&mut self) -> Result<char, Mistake> {
        self.eats('\\');
        self.next("a character")
    }

    fn interval(&mut self, place: usize) -> Result<Id, Mistake> {
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
        let made = interval(self.terms, a.min(b), a.max(b), digits);
        self.made(made)
    }
}

fn one(c: char) -> Ranges {
    vec![(u32::from(c), u32::from(c))]
}

/// Digits as a number that fits into 31 bits.
fn number(digits: &str) -> Option<u32> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|n| *n <= NUMBER_MAX)
}

/// The numbers between two, with so many digits, or with any zeros before them.
fn interval(terms: &mut Terms, min: u32, max: u32, digits: Option<usize>) -> Result<Id, TooComplex> {
    if let Some(width) = digits {
        return between(terms, format!("{min:0width$}").as_bytes(), format!("{max:0width$}").as_bytes());
    }
    let (min, max) = (min.to_string(), max.to_string());
    let mut lengths = Vec::new();
    for length in min.len()..=max.len() {
        let low = if length == min.len() { min.clone() } else { format!("1{}", "0".repeat(length - 1)) };
        let high = if length == max.len() { max.clone() } else { "9".repeat(length) };
        lengths.push(between(terms, low.as_bytes(), high.as_bytes())?);
    }
    let numbers = terms.or(&lengths)?;
    let zero = terms.char('0')?;
    let zeros = terms.repeat(zero, 0, OPEN)?;
    terms.cat(zeros, numbers)
}

/// The texts of digits between two of the same length.
fn between(terms: &mut Terms, low: &[u8], high: &[u8]) -> Result<Id, TooComplex> {
    let (Some((l, low_rest)), Some((h, high_rest))) = (low.split_first(), high.split_first()) else {
        return Ok(EMPTY);
    };
    if l == h {
        let rest = between(terms, low_rest, high_rest)?;
        return digit_then(terms, *l, *l, rest);
    }
    let digits = u32::try_from(low_rest.len()).map_err(|_| TooComplex)?;
    let digit = terms.chars(vec![(0x30, 0x39)])?;
    let any = terms.repeat(digit, digits, digits)?;
    let (zeros, nines) = (vec![b'0'; low_rest.len()], vec![b'9'; low_rest.len()]);
    let lowest = if low_rest == zeros { any } else { between(terms, low_rest, &nines)? };
    let highest = if high_rest == nines { any } else { between(terms, &zeros, high_rest)? };
    let list = [
        digit_then(terms, *l, *l, lowest)?,
        digit_then(terms, l + 1, h - 1, any)?,
        digit_then(terms, *h, *h, highest)?,
    ];
    terms.or(&list)
}

/// One of the digits between two, and then the rest.
fn digit_then(terms: &mut Terms, from: u8, to: u8, rest: Id) -> Result<Id, TooComplex> {
    if from > to {
        return Ok(NOTHING);
    }
    let digit = terms.chars(vec![(u32::from(from), u32::from(to))])?;
    terms.cat(digit, rest)
}

#[cfg(test)]
mod tests;
