//! Tests on one field, by the type of the field.
//!
//! | test | text | keyword | number | date |
//! |---|---|---|---|---|
//! | word, quoted text | its tokens, as a phrase if quoted | whole value | equal | the time span |
//! | prefix, wildcard, regular expression, fuzzy | one token, lower case | whole value | - | - |
//! | range | tokens, lower case, by bytes | by bytes | by size | by time, ends filled up |
//!
//! A test that does not fit the type matches nothing and gives a warning, as in OpenSearch with
//! `lenient`.

use std::ops::Range;

use super::ast::{End, Part};
use super::dates::{self, Reading};
use super::fold::or;
use super::matcher::Matcher;
use super::names::{self, Target};
use super::rewrite::{EXISTS, comparison};
use super::set::{Bound, Leaf, Set};
use super::{CLAUSES_MAX, Settings, numbers};
use crate::analysis;
use crate::error::QueryError;
use crate::fields::Type;

/// Maximum length of a regular expression in UTF-16 units (`index.max_regex_length`).
const REGEX_MAX: usize = 1_000;
/// Maximum number of edits of a fuzzy word.
const EDITS_MAX: i32 = 2;
/// From these lengths on, a fuzzy word may have one edit and two.
const AUTO_LENGTHS: [usize; 2] = [3, 6];
const NS_PER_MS: i64 = 1_000_000;
/// Metadata fields that a cluster adds to every document. Some of them cannot even be searched.
const OWN: &[&str] = &[
    "_doc_count",
    "_feature",
    "_field_names",
    "_id",
    "_ignored",
    "_index",
    "_nested_path",
    "_routing",
    "_seq_no",
    "_source",
    "_version",
];

/// A test on a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Test<'a> {
    /// A text.
    Text(&'a str),
    /// A quoted text, and how many moves are allowed.
    Phrase(&'a str, i32),
    /// A prefix.
    Prefix(&'a str),
    /// A pattern with `*` and `?`.
    Wildcard(&'a str),
    /// A regular expression.
    Regex(&'a str),
    /// A word, and how many edits are allowed.
    Fuzzy(&'a str, i32),
    /// A range of values.
    Range(Bound<&'a str>, Bound<&'a str>),
}

/// The test of a part that is at these bytes, for any field.
pub fn ask<'a>(part: &'a Part, at: &Range<usize>) -> Result<Test<'a>, QueryError> {
    Ok(match part {
        Part::Words(text) | Part::Term(text) => {
            let (operator, value) = comparison(text);
            match operator {
                ">" => Test::Range(bound(value, false), Bound::Unbounded),
                ">=" => Test::Range(bound(value, true), Bound::Unbounded),
                "<" => Test::Range(Bound::Unbounded, bound(value, false)),
                "<=" => Test::Range(Bound::Unbounded, bound(value, true)),
                _ => Test::Text(text),
            }
        }
        Part::Quoted { text, slop } => Test::Phrase(text, *slop),
        Part::Wildcard(pattern) => Test::Wildcard(pattern),
        Part::Prefix(text) => Test::Prefix(text),
        Part::Regex(pattern) if pattern.encode_utf16().count() > REGEX_MAX => {
            let message = format!("a regular expression has at most {REGEX_MAX} characters");
            return Err(QueryError::new(at.clone(), message));
        }
        Part::Regex(pattern) => Test::Regex(pattern),
        Part::Fuzzy { text, like, like_at } => {
            let wanted = || QueryError::new(like_at.clone(), "wanted 0, 1, 2 or nothing after ~");
            Test::Fuzzy(text, edits(text, like).ok_or_else(wanted)?)
        }
        Part::Range { low, high } => Test::Range(end(low), end(high)),
        // Groups were handled by the caller.
        Part::Group(_) => Test::Text(""),
    })
}

fn end(end: &End) -> Bound<&str> {
    end.value.as_deref().map_or(Bound::Unbounded, |value| bound(value, end.with))
}

/// As in OpenSearch, `*` is an open end even if it is quoted or escaped.
fn bound(value: &str, with: bool) -> Bound<&str> {
    match (value, with) {
        ("*", _) => Bound::Unbounded,
        (value, true) => Bound::Included(value),
        (value, false) => Bound::Excluded(value),
    }
}

/// The number of edits in `~like`.
fn edits(text: &str, like: &str) -> Option<i32> {
    if like.is_empty() || like.eq_ignore_ascii_case("AUTO") {
        let length = text.chars().count();
        return i32::try_from(AUTO_LENGTHS.iter().filter(|from| length >= **from).count()).ok();
    }
    // OpenSearch converts the text to upper case first, so these two are not numbers.
    let number = numbers::double(like).filter(|_| !like.contains("NaN") && !like.contains("Infinity"))?;
    Some((number as i32).min(EDITS_MAX))
}

/// Creates the tests of a query, and collects warnings.
#[derive(Debug)]
pub struct Leaves {
    /// Probable mistakes that are valid queries.
    pub warnings: Vec<QueryError>,
    now_ms: i64,
    count: usize,
}

/// The place of a test. A test on several fields is `quiet` and gives no warnings.
#[derive(Clone, Copy)]
struct QuerySpan<'a> {
    at: &'a Range<usize>,
    quiet: bool,
}

impl Leaves {
    /// No tests yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { warnings: Vec::new(), now_ms: settings.now_ns.div_euclid(NS_PER_MS), count: 0 }
    }

    /// The sets of a test on a field: one, or one per token of a text, or none if the text has no
    /// token.
    pub fn of(
        &mut self,
        target: &Target,
        ask: &Test<'_>,
        at: &Range<usize>,
        quiet: bool,
    ) -> Result<Vec<Set>, QueryError> {
        let place = QuerySpan { at, quiet };
        match target.kind {
            Type::Text => self.text(&target.name, ask, place),
            Type::Keyword => self.keyword(&target.name, ask, place),
            Type::Long | Type::Double => self.number(target, ask, place),
            Type::Date | Type::Day => self.time(target, ask, place),
        }
    }

    /// Documents in which a field, or any field of a family, has a value.
    pub fn exists(&mut self, name: &str, at: &Range<usize>) -> Result<Vec<Set>, QueryError> {
        if let Some(own) = OWN.iter().find(|own| name.contains('*') && names::fits(name, own)) {
            let wrong = QueryError::new(
                at.clone(),
                format!("among '{name}' is {own}, a field of a cluster, which every document has"),
            );
            return Err(wrong.hint("Write *:* for all documents, or the beginning of the names: fs.\\*:*."));
        }
        let mut fields: Vec<String> = names::targets(name).into_iter().map(|t| t.name).collect();
        fields.dedup();
        if fields.is_empty() {
            fields = names::below(name).into_iter().map(str::to_owned).collect();
        } else if name.starts_with("sysctl.") && !name.contains('*') {
            // The name may be that of a setting or of a directory of settings.
            fields.push(format!("{name}.*"));
        }
        if fields.is_empty() {
            return self.unknown(name, at);
        }
        let mut sets = Vec::new();
        for field in fields {
            sets.push(self.leaf(&field, Leaf::Exists, at)?);
        }
        Ok(vec![or(sets)])
    }

    /// The empty set, because no document has the field. If the cluster has a metadata field of
    /// that name, or rejects the name, it is an error, so that both back ends agree.
    pub fn unknown(&mut self, name: &str, at: &Range<usize>) -> Result<Vec<Set>, QueryError> {
        if name.starts_with('_') && name != EXISTS {
            let wrong =
                QueryError::new(at.clone(), format!("'{name}' is a field of a cluster, not of documents"));
            return Err(wrong.hint("One document is fetched by its names: mitra search --id HOST FILE."));
        }
        if !name.is_empty() && name.bytes().all(|b| b == b'.') {
            return Err(QueryError::new(at.clone(), format!("'{name}' is no name of a field")));
        }
        let warning = QueryError::new(at.clone(), format!("there is no field '{name}', so nothing matches"));
        self.warnings.push(QueryError { hint: names::suggestion(name), ..warning });
        Ok(vec![Set::Nothing])
    }

    fn text(&mut self, field: &str, ask: &Test<'_>, place: QuerySpan<'_>) -> Result<Vec<Set>, QueryError> {
        match ask {
            Test::Text(text) => {
                let mut sets = Vec::new();
                for (_, word) in words(text) {
                    sets.push(self.leaf(field, Leaf::Term(word), place.at)?);
                }
                Ok(sets)
            }
            Test::Phrase(text, slop) => {
                let mut words = words(text);
                let leaf = match (words.len(), u32::try_from(*slop)) {
                    (0, _) => return Ok(Vec::new()),
                    (1, _) => words.pop().map_or(Leaf::Exists, |(_, word)| Leaf::Term(word)),
                    (_, Ok(slop)) => Leaf::Phrase { words, slop },
                    (_, Err(_)) => {
                        return Ok(self.nothing(place, "words cannot be moved by less than nothing"));
                    }
                };
                self.one(field, leaf, place)
            }
            _ => self.pattern(field, ask, place, analysis::lower, lower_wildcard),
        }
    }

    fn keyword(&mut self, field: &str, ask: &Test<'_>, place: QuerySpan<'_>) -> Result<Vec<Set>, QueryError> {
        match ask {
            Test::Text(text) | Test::Phrase(text, _) => {
                if matches!(ask, Test::Text(_)) && text.contains(' ') {
                    self.warn(
                        place,
                        &format!("'{text}' is looked for as one value"),
                        Some("Write OR or AND between several."),
                    );
                }
                self.one(field, Leaf::Term((*text).to_owned()), place)
            }
            _ => self.pattern(field, ask, place, str::to_owned, str::to_owned),
        }
    }

    /// Tests that are the same for text and keywords, except for the case.
    fn pattern(
        &mut self,
        field: &str,
        ask: &Test<'_>,
        place: QuerySpan<'_>,
        cased: impl Fn(&str) -> String,
        cased_wildcard: impl Fn(&str) -> String,
    ) -> Result<Vec<Set>, QueryError> {
        let leaf = match ask {
            Test::Text(text) | Test::Phrase(text, _) => Leaf::Term(cased(text)),
            Test::Prefix(text) => Leaf::Terms(Matcher::prefix(&cased(text))),
            Test::Wildcard(pattern) => match Matcher::wildcard(&cased_wildcard(pattern)) {
                Ok(matcher) => Leaf::Terms(matcher),
                Err(why) => return Ok(self.nothing(place, &why)),
            },
            Test::Regex(pattern) => return self.regex(field, &cased(pattern), pattern, place),
            Test::Fuzzy(text, edits) => return self.fuzzy(field, &cased(text), *edits, place),
            Test::Range(low, high) => Leaf::Between { low: low.map(&cased), high: high.map(&cased) },
        };
        self.one(field, leaf, place)
    }

    fn number(
        &mut self,
        target: &Target,
        ask: &Test<'_>,
        place: QuerySpan<'_>,
    ) -> Result<Vec<Set>, QueryError> {
        let Some((low, high)) = ends(ask) else {
            let why = format!("{} has numbers, which have no such patterns", target.name);
            return Ok(self.nothing(place, &why));
        };
        let is_long = target.kind == Type::Long;
        let read = |text: &str| {
            let number =
                if is_long { numbers::long(text) } else { numbers::double(text).filter(|n| n.is_finite()) };
            number.ok_or_else(|| format!("'{text}' is no number such as {} has", target.name))
        };
        let (low, high) = match (try_map(low, read), try_map(high, read)) {
            (Ok(low), Ok(high)) => (low, high),
            (Err(why), _) | (_, Err(why)) => return Ok(self.nothing(place, &why)),
        };
        match &low {
            Bound::Included(number)
                if is_long && !matches!(ask, Test::Range(..)) && number.fract() != 0.0 =>
            {
                Ok(self.nothing(place, &format!("{} has whole numbers only", target.name)))
            }
            _ => self.one(&target.name, Leaf::Number { low, high }, place),
        }
    }

    fn time(
        &mut self,
        target: &Target,
        ask: &Test<'_>,
        place: QuerySpan<'_>,
    ) -> Result<Vec<Set>, QueryError> {
        let Some((low, high)) = ends(ask) else {
            let why = format!("{} has dates, which have no such patterns", target.name);
            return Ok(self.nothing(place, &why));
        };
        for text in [&low, &high] {
            if let Bound::Included(text) | Bound::Excluded(text) = text
                && dates::is_partial(text)
            {
                let message = format!("{text} without a day is its first day");
                self.warn(place, &message, Some("Write a range: [2026-11-01 TO 2026-11-30]."));
                break;
            }
        }
        let now_ms = self.now_ms;
        let read = |text: &str, up: bool| dates::parse(text, Reading { now_ms, up });
        let low_ms = match low {
            Bound::Unbounded => Ok(i64::MIN),
            Bound::Included(text) => read(text, false),
            Bound::Excluded(text) => read(text, true).map(|ms| ms.saturating_add(1)),
        };
        let high_ms = match high {
            Bound::Unbounded => Ok(i64::MAX),
            Bound::Included(text) => read(text, true),
            Bound::Excluded(text) => read(text, false).map(|ms| ms.saturating_sub(1)),
        };
        match (low_ms, high_ms) {
            (Ok(low_ms), Ok(high_ms)) if low_ms > high_ms => Ok(vec![Set::Nothing]),
            (Ok(low_ms), Ok(high_ms)) => self.one(&target.name, Leaf::Time { low_ms, high_ms }, place),
            (Err(why), _) | (_, Err(why)) => Ok(self.nothing(place, &why)),
        }
    }

    /// `written` is the pattern in the query, without its slashes.
    fn regex(
        &mut self,
        field: &str,
        pattern: &str,
        written: &str,
        place: QuerySpan<'_>,
    ) -> Result<Vec<Set>, QueryError> {
        let (offset, why) = match Matcher::regex(pattern) {
            Ok(matcher) => return self.one(field, Leaf::Terms(matcher), place),
            Err(wrong) => wrong,
        };
        // Lowercasing may change the number of bytes, so the position is converted through
        // characters.
        let nth = pattern.get(..offset).map_or(0, |head| head.chars().count());
        let (skipped, length) =
            written.char_indices().nth(nth).map_or((written.len(), 1), |(i, c)| (i, c.len_utf8()));
        let start = place.at.start + 1 + skipped;
        let at = start..start + length;
        Ok(self.nothing(QuerySpan { at: &at, ..place }, &format!("no regular expression: {why}")))
    }

    fn fuzzy(
        &mut self,
        field: &str,
        text: &str,
        edits: i32,
        place: QuerySpan<'_>,
    ) -> Result<Vec<Set>, QueryError> {
        let leaf = match u8::try_from(edits) {
            Ok(0) => Leaf::Term(text.to_owned()),
            Ok(edits) => match Matcher::fuzzy(text, edits) {
                Ok(matcher) => Leaf::Terms(matcher),
                Err(why) => return Ok(self.nothing(place, &why)),
            },
            Err(_) => return Ok(self.nothing(place, "fewer than no edits are not possible")),
        };
        self.one(field, leaf, place)
    }

    fn one(&mut self, field: &str, leaf: Leaf, place: QuerySpan<'_>) -> Result<Vec<Set>, QueryError> {
        Ok(vec![self.leaf(field, leaf, place.at)?])
    }

    fn leaf(&mut self, field: &str, leaf: Leaf, at: &Range<usize>) -> Result<Set, QueryError> {
        self.count += 1;
        if self.count > CLAUSES_MAX {
            return Err(QueryError::new(
                at.clone(),
                format!("a query has at most {CLAUSES_MAX} words and other tests"),
            ));
        }
        Ok(Set::Leaf { field: field.to_owned(), leaf })
    }

    fn nothing(&mut self, place: QuerySpan<'_>, why: &str) -> Vec<Set> {
        self.warn(place, &format!("{why}; nothing matches"), None);
        vec![Set::Nothing]
    }

    fn warn(&mut self, place: QuerySpan<'_>, message: &str, hint: Option<&str>) {
        if !place.quiet {
            let hint = hint.map(str::to_owned);
            self.warnings.push(QueryError { hint, ..QueryError::new(place.at.clone(), message) });
        }
    }
}

fn words(text: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    analysis::words(text, |position, word| found.push((position, word.to_owned())));
    found
}

/// Lowercases a pattern, except escaped characters.
fn lower_wildcard(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut escaped = false;
    for c in pattern.chars() {
        if escaped || c == '\\' {
            out.push(c);
            escaped = !escaped;
        } else {
            out.push_str(&analysis::lower(c.encode_utf8(&mut [0; 4])));
        }
    }
    out
}

/// The ends of a range, or of a single value; `None` for other tests.
fn ends<'a>(ask: &Test<'a>) -> Option<(Bound<&'a str>, Bound<&'a str>)> {
    match ask {
        Test::Text(text) | Test::Phrase(text, _) => Some((Bound::Included(*text), Bound::Included(*text))),
        Test::Range(low, high) => Some((*low, *high)),
        _ => None,
    }
}

fn try_map(bound: Bound<&str>, read: impl Fn(&str) -> Result<f64, String>) -> Result<Bound<f64>, String> {
    Ok(match bound {
        Bound::Included(text) => Bound::Included(read(text)?),
        Bound::Excluded(text) => Bound::Excluded(read(text)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted_as_there() {
        for (text, like, wanted) in [
            ("ab", "", Some(0)),
            ("abc", "", Some(1)),
            ("abcdé", "auto", Some(1)),
            ("abcdef", "", Some(2)),
            ("abcdef", "1", Some(1)),
            ("a", "2", Some(2)),
            ("a", "7", Some(2)),
            ("abcdef", "0.8", Some(0)),
            ("abcdef", "1.9f", Some(1)),
            ("a", "-1", Some(-1)),
            ("a", "x", None),
            ("a", "NaN", None),
        ] {
            assert_eq!(edits(text, like), wanted, "{text}~{like}");
        }
    }

    #[test]
    fn patterns_are_lowered_but_for_escapes() {
        assert_eq!(lower_wildcard(r"AB*\Cd?É\\X"), r"ab*\Cd?é\\x");
    }
}
