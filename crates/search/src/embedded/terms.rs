//! Facts as terms of a dictionary: what kind of value a field has, and the value, so that terms are in the order of values.
//!
//! ```text
//! kind \x01 t file                          a word
//! sysctl.vm.swappiness \x01 n c04e000000000000    a number: the bits of 60.0, turned so that their order is that of numbers
//! incident.onset \x01 d 98a5c41c2f6e0000          a moment: nanoseconds since 1970, turned likewise
//! content \x01 -                            the content has no text
//! hash \x01 t 81fcbebb                      the first digits of the hash of the text
//! ```
//!
//! Whole hashes would be a fifth of the work and of the bytes; who asks for one has the few contents looked at.
//!
//! All terms of a field lie beside each other: a range of values, a prefix, and whether there is any, are each one walk.

use std::fmt::Write;

use super::store::Content;
use crate::document::{Value, Withheld, sha256};
use crate::fields::KEYWORD_MAX;
use crate::query::Bound;

/// What stands between the name of a field and its value: no name has it.
const BETWEEN: char = '\x01';
const WORD: char = 't';
const BEHIND_WORD: char = 'u';
const NUMBER: char = 'n';
const TIME: char = 'd';

/// The field whose values are only begun in the dictionary.
pub(super) const HASH: &str = "hash";

/// The term of contents without text.
pub(super) const NO_TEXT: &str = "content\x01-";

/// Digits of a hash that are in the dictionary.
const HASH_DIGITS: usize = 8;

/// Bytes of a field's name; a longer one is in no index.
const NAME_MAX: usize = 512;

/// The terms of a content, in no order; one may come twice.
pub(super) fn each(content: &Content, mut take: impl FnMut(&str)) {
    let mut terms = Terms { buffer: String::with_capacity(128), take: &mut take };
    terms.word("kind", content.kind.name());
    match &content.text {
        Some(text) => terms.word(HASH, head_of_hash(&sha256(text.as_bytes()))),
        None => (terms.take)(NO_TEXT),
    }
    if let Some(link) = &content.link {
        terms.word("link", link);
    }
    for flag in &content.flags {
        terms.word("flags", flag.name());
    }
    if content.withheld != Withheld::default() {
        terms.value("withheld.count", &Value::Number(f64::from(content.withheld.count)));
    }
    for reason in &content.withheld.reasons {
        terms.word("withheld.reason", reason);
    }
    for key in &content.withheld.keys {
        terms.word("withheld.key", key);
    }
    for (name, values) in &content.facts {
        for value in values {
            terms.value(name, value);
        }
    }
}

/// What of a hash is in the dictionary.
pub(super) fn head_of_hash(hash: &str) -> &str {
    hash.get(..HASH_DIGITS).unwrap_or(hash)
}

struct Terms<'a> {
    buffer: String,
    take: &'a mut dyn FnMut(&str),
}

impl Terms<'_> {
    fn value(&mut self, name: &str, value: &Value) {
        match value {
            Value::Text(word) => self.word(name, word),
            // What cannot be written down is no number.
            Value::Number(number) if !number.is_finite() => {}
            Value::Number(number) => self.digits(name, NUMBER, turn(*number)),
            Value::Time(ns) => self.digits(name, TIME, turn_time(*ns)),
        }
    }

    fn word(&mut self, name: &str, word: &str) {
        if usable(name) && indexed(word) {
            self.buffer.clear();
            self.buffer.extend([name, "\x01t", word]);
            (self.take)(&self.buffer);
        }
    }

    fn digits(&mut self, name: &str, kind: char, digits: u64) {
        if usable(name) {
            self.buffer.clear();
            self.buffer.push_str(name);
            // Writing into a string never fails.
            let _ = write!(self.buffer, "{BETWEEN}{kind}{digits:016x}");
            (self.take)(&self.buffer);
        }
    }
}

fn usable(name: &str) -> bool {
    name.len() <= NAME_MAX && !name.contains(BETWEEN)
}

/// Whether a keyword is in an index: its length is counted as a cluster does it, in units of UTF-16.
pub(super) fn indexed(word: &str) -> bool {
    word.len() <= KEYWORD_MAX || (word.len() <= 4 * KEYWORD_MAX && word.encode_utf16().count() <= KEYWORD_MAX)
}

/// The bits of a number, turned so that they are in the order of numbers. There is one zero.
fn turn(number: f64) -> u64 {
    let bits = (number + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn turn_back(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

fn turn_time(ns: i64) -> u64 {
    ns.cast_unsigned() ^ 1 << 63
}

/// The name of the field of a term.
pub(super) fn name(term: &str) -> Option<&str> {
    term.split_once(BETWEEN).map(|(name, _)| name)
}

/// The value of a term; nothing where it is none.
pub(super) fn value(term: &str) -> Option<Value> {
    let (_, value) = term.split_once(BETWEEN)?;
    let mut rest = value.chars();
    let kind = rest.next()?;
    let rest = rest.as_str();
    match kind {
        WORD => Some(Value::Text(rest.to_owned())),
        NUMBER => Some(Value::Number(turn_back(u64::from_str_radix(rest, 16).ok()?))),
        TIME => Some(Value::Time((u64::from_str_radix(rest, 16).ok()? ^ 1 << 63).cast_signed())),
        _ => None,
    }
}

/// What the terms of the words of a field begin with.
pub(super) fn words(field: &str) -> String {
    format!("{field}{BETWEEN}{WORD}")
}

/// The first and the last bound of all terms of a field.
pub(super) fn all(field: &str) -> (Bound<String>, Bound<String>) {
    (Bound::With(format!("{field}{BETWEEN}")), Bound::Without(format!("{field}\x02")))
}

/// The bounds of the words of a field between two.
pub(super) fn words_between(
    field: &str,
    low: &Bound<String>,
    high: &Bound<String>,
) -> (Bound<String>, Bound<String>) {
    let term = |word: &String| format!("{field}{BETWEEN}{WORD}{word}");
    let low = match low {
        Bound::With(word) => Bound::With(term(word)),
        Bound::Without(word) => Bound::Without(term(word)),
        Bound::Open => Bound::With(words(field)),
    };
    let high = match high {
        Bound::With(word) => Bound::With(term(word)),
        Bound::Without(word) => Bound::Without(term(word)),
        Bound::Open => Bound::Without(format!("{field}{BETWEEN}{BEHIND_WORD}")),
    };
    (low, high)
}

/// The bounds of the numbers of a field between two; nothing where none lies between them.
pub(super) fn numbers_between(
    field: &str,
    low: &Bound<f64>,
    high: &Bound<f64>,
) -> Option<(Bound<String>, Bound<String>)> {
    let term =
        |number: &f64| (!number.is_nan()).then(|| format!("{field}{BETWEEN}{NUMBER}{:016x}", turn(*number)));
    let low = match low {
        Bound::With(number) => Bound::With(term(number)?),
        Bound::Without(number) => Bound::Without(term(number)?),
        Bound::Open => Bound::With(format!("{field}{BETWEEN}{NUMBER}")),
    };
    let high = match high {
        Bound::With(number) => Bound::With(term(number)?),
        Bound::Without(number) => Bound::Without(term(number)?),
        Bound::Open => Bound::With(format!("{field}{BETWEEN}{NUMBER}ffffffffffffffff")),
    };
    Some((low, high))
}

/// The bounds of the moments of a field between two milliseconds, both of which belong to it.
pub(super) fn times_between(field: &str, low_ms: i64, high_ms: i64) -> (Bound<String>, Bound<String>) {
    let term = |ns: i64| Bound::With(format!("{field}{BETWEEN}{TIME}{:016x}", turn_time(ns)));
    let last = high_ms.saturating_mul(1_000_000).saturating_add(999_999);
    (term(low_ms.saturating_mul(1_000_000)), term(last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::{Facts, Flag, Kind};

    fn one(name: &str, value: Value) -> String {
        let mut found = String::new();
        Terms { buffer: String::new(), take: &mut |term| term.clone_into(&mut found) }.value(name, &value);
        found
    }

    proptest! {
        #[test]
        fn terms_are_read_back_and_in_the_order_of_values(a in any::<f64>(), b in any::<f64>(), s in any::<i64>(), t in any::<i64>(), w in ".*") {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(value(&one("f", Value::Number(a))), Some(Value::Number(a)));
            prop_assert_eq!(value(&one("f", Value::Time(s))), Some(Value::Time(s)));
            prop_assert_eq!(value(&one("f", Value::Text(w.clone()))), Some(Value::Text(w)));
            let (ta, tb) = (one("f", Value::Number(a)), one("f", Value::Number(b)));
            prop_assert_eq!(ta.partial_cmp(&tb), a.partial_cmp(&b));
            prop_assert_eq!(one("f", Value::Time(s)).cmp(&one("f", Value::Time(t))), s.cmp(&t));
            let (low, high) = numbers_between("f", &Bound::With(a), &Bound::Open).unwrap();
            prop_assert_eq!(low.below(&tb) && high.above(&tb), b >= a);
            let (low, high) = numbers_between("f", &Bound::Open, &Bound::Without(a)).unwrap();
            prop_assert_eq!(low.below(&tb) && high.above(&tb), b < a);
            let (low, high) = times_between("f", s.div_euclid(1_000_000), s.div_euclid(1_000_000));
            let other = one("f", Value::Time(t));
            prop_assert_eq!(low.below(&other) && high.above(&other), s.div_euclid(1_000_000) == t.div_euclid(1_000_000));
        }
    }

    #[test]
    fn there_is_one_zero_and_no_number_that_is_none() {
        assert_eq!(one("f", Value::Number(-0.0)), one("f", Value::Number(0.0)));
        assert_eq!(one("f", Value::Number(f64::NAN)), "");
        assert!(numbers_between("f", &Bound::With(f64::NAN), &Bound::Open).is_none());
    }

    #[test]
    fn a_content_has_its_terms() {
        let mut facts = Facts::new();
        facts.insert("package.zsh".to_owned(), vec![Value::Text("5.9".to_owned())]);
        facts.insert("bad\x01name".to_owned(), vec![Value::Text("x".to_owned())]);
        facts.insert(
            "long".to_owned(),
            vec![Value::Text("é".repeat(KEYWORD_MAX + 1)), Value::Text("é".repeat(KEYWORD_MAX))],
        );
        let content = Content {
            kind: Kind::Package,
            text: None,
            facts,
            flags: vec![Flag::Redacted],
            link: Some("/x".to_owned()),
            withheld: Withheld {
                count: 2,
                reasons: vec!["password".to_owned()],
                keys: vec!["pw".to_owned()],
            },
        };
        let mut terms = Vec::new();
        each(&content, |term| terms.push(term.to_owned()));
        let long = terms.iter().position(|t| t.starts_with("long\x01t")).map(|at| terms.remove(at));
        assert_eq!(long.map(|t| t.chars().count()), Some("long\x01t".len() + KEYWORD_MAX));
        assert_eq!(
            terms,
            [
                "kind\x01tpackage",
                "content\x01-",
                "link\x01t/x",
                "flags\x01tredacted",
                "withheld.count\x01nc000000000000000",
                "withheld.reason\x01tpassword",
                "withheld.key\x01tpw",
                "package.zsh\x01t5.9",
            ]
        );
        assert!(terms.iter().all(|t| !t.starts_with("long")));
    }

    #[test]
    fn words_lie_between_words() {
        let term = "f\x01tm".to_owned();
        let within = |low: &Bound<String>, high: &Bound<String>| {
            let (low, high) = words_between("f", low, high);
            low.below(&term) && high.above(&term)
        };
        let at = |word: &str| Bound::With(word.to_owned());
        assert!(within(&Bound::Open, &Bound::Open));
        assert!(within(&at("m"), &at("m")));
        assert!(!within(&Bound::Without("m".to_owned()), &Bound::Open));
        assert!(!within(&at("n"), &Bound::Open) && !within(&Bound::Open, &at("l")));
        let (low, high) = all("f");
        assert!(low.below(&term) && high.above(&term) && !high.above(&"g\x01ta".to_owned()));
    }
}
