//! Values that are secret by their shape, in any context: tokens of well-known services, password
//! hashes. `kinds.txt` has one line per shape.

use std::sync::LazyLock;

use regex_automata::meta::{Config, Regex};
use regex_automata::util::{primitives::PatternID, syntax};
use regex_automata::{Anchored, Input};
use regex_syntax::hir::literal::Extractor;

use super::random;
use super::report::{Reason, Span};
use super::values;

const KINDS: &str = include_str!("kinds.txt");
/// Maximum size of the lazily built search tables in bytes.
const CACHE_BYTES: usize = 1 << 20;
/// Maximum size of a character class that is expanded into separate beginnings: `xox[abprs]-`.
const CLASS_MAX: usize = 10;

/// One line of `kinds.txt`.
struct Kind {
    reason: Reason,
    /// An additional test of the value: the word behind `+`.
    test: &'static str,
    pattern: &'static str,
}

/// All kinds, with their patterns in one automaton.
struct Kinds {
    kinds: Vec<Kind>,
    /// `None` if the patterns do not compile, and then nothing is found. A test makes sure that
    /// they do.
    patterns: Option<Regex>,
    beginnings: Vec<(String, usize)>,
}

fn kind(line: &'static str) -> Option<Kind> {
    let mut columns = line.split('\t').skip(1);
    let (what, pattern) = (columns.next()?, columns.next()?);
    let (reason, test) = what.split_once('+').unwrap_or((what, ""));
    Some(Kind { reason: Reason::named(reason)?, test, pattern })
}

fn lines() -> impl Iterator<Item = &'static str> {
    KINDS.lines().filter(|line| !line.starts_with('#'))
}

static ALL: LazyLock<Kinds> = LazyLock::new(|| {
    let kinds: Vec<Kind> = lines().filter_map(kind).collect();
    let patterns: Vec<&str> = kinds.iter().map(|kind| kind.pattern).collect();
    let patterns = Regex::builder()
        .configure(Config::new().hybrid_cache_capacity(CACHE_BYTES).utf8_empty(false))
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .build_many(&patterns);
    let beginnings = kinds
        .iter()
        .enumerate()
        .flat_map(|(i, kind)| beginnings_of(kind.pattern).into_iter().map(move |word| (word, i)));
    Kinds { beginnings: beginnings.collect(), kinds, patterns: patterns.ok() }
});

/// The possible beginnings of a pattern, in lower case.
fn beginnings_of(pattern: &str) -> Vec<String> {
    let plain = pattern.strip_prefix("(?i)").unwrap_or(pattern).to_ascii_lowercase();
    let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(&plain);
    let found = parsed.map(|hir| Extractor::new().limit_class(CLASS_MAX).extract(&hir)).ok();
    let literals = found.iter().filter_map(|found| found.literals()).flatten();
    literals.map(|literal| String::from_utf8_lossy(literal.as_bytes()).into_owned()).collect()
}

/// The beginnings of all kinds, in lower case, with the index of the kind.
pub(super) fn beginnings() -> &'static [(String, usize)] {
    &ALL.beginnings
}

/// Checks for a value of a kind, of whose beginning `length` bytes end at `end`.
pub(super) fn at(line: &[u8], which: usize, length: usize, end: usize, spans: &mut Vec<Span>) {
    let all = &*ALL;
    let (Some(kind), Some(patterns), Some(start)) =
        (all.kinds.get(which), &all.patterns, end.checked_sub(length))
    else {
        return;
    };
    let is_word = |at: usize| line.get(at).is_some_and(u8::is_ascii_alphanumeric);
    if is_word(start) && start.checked_sub(1).is_some_and(is_word) {
        return;
    }
    let anchored = Anchored::Pattern(PatternID::must(which));
    let input = Input::new(line).range(start..).anchored(anchored);
    if patterns.search_half(&input).is_none() {
        return;
    }
    let mut groups = patterns.create_captures();
    patterns.search_captures(&input, &mut groups);
    let Some(found) = groups.get_group(1).or_else(|| groups.get_match().map(|all| all.span())) else {
        return;
    };
    let body = line.get(end..found.end).unwrap_or_default();
    let passes = match kind.test {
        "digit" => body.iter().any(u8::is_ascii_digit),
        "random" => random::is_mixed(body) || random::is_hex(body),
        _ => true,
    };
    if passes {
        spans.push(Span { start: found.start, end: found.end, reason: kind.reason, key: (0, 0) });
    }
}

/// Withholds credentials in a URL; `at` is the position behind `://`. In
/// `https://user:password@host/` that is the password, in `https://0123456789abcdef0123@host/` the
/// user.
pub(super) fn url(line: &[u8], at: usize, comment: bool, spans: &mut Vec<Span>) {
    let rest = line.get(at..).unwrap_or_default();
    let end = |b: &u8| *b <= b' ' || matches!(b, b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\');
    let all = rest.iter().position(end).unwrap_or(rest.len());
    let all = rest.get(..all).unwrap_or_default();
    let authority = all.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(all.len());
    // A password may contain an unescaped slash. If the text before the slash has a colon, the `@`
    // behind the slash ends the password.
    let inside = all.get(..authority).unwrap_or_default();
    let Some(sign) = inside.iter().rposition(|b| *b == b'@').or_else(|| unescaped(all, inside)) else {
        return;
    };
    let user = all.get(..sign).unwrap_or_default();
    let (from, value) = match user.iter().position(|b| *b == b':') {
        Some(colon) => (colon + 1, user.get(colon + 1..).unwrap_or_default()),
        None => (0, user),
    };
    let whole = from == 0;
    if values::is_none(value) || whole && !(value.len() >= 16 && random::is_random(value)) {
        return;
    }
    if comment
        && matches!(
            value,
            b"pass" | b"password" | b"passwd" | b"pwd" | b"PASSWORD" | b"PASS" | b"Password" | b"secret"
        )
    {
        return;
    }
    let reason = if whole { Reason::Token } else { Reason::Password };
    spans.push(Span { start: at + from, end: at + from + value.len(), reason, key: (0, 0) });
}

/// The position of the `@` in `amqp://user:pa/ss@host`, if the text before the slash has a colon
/// that is not followed by a port.
fn unescaped(all: &[u8], inside: &[u8]) -> Option<usize> {
    let colon = inside.iter().position(|b| *b == b':')?;
    let port = inside.get(colon + 1..)?;
    if inside.first() == Some(&b'[') || port.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let first = all.iter().position(|b| *b == b'@')?;
    // The password may contain an `@` too. The host follows the last one before the path.
    let rest = all.get(first..)?;
    let path = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    Some(first + rest.get(..path)?.iter().rposition(|b| *b == b'@')?)
}

/// Withholds the password in `user:password@tcp(host:3306)/db`; `end` is the position behind
/// `@tcp(`.
pub(super) fn dsn(line: &[u8], end: usize, spans: &mut Vec<Span>) {
    let before = line.get(..end).unwrap_or_default();
    let Some(sign) = before.iter().rposition(|b| *b == b'@') else { return };
    let start = before
        .get(..sign)
        .unwrap_or_default()
        .iter()
        .rposition(|b| *b <= b' ' || matches!(b, b'"' | b'\'' | b'=' | b'`'));
    let start = start.map_or(0, |i| i + 1);
    let Some(colon) = before.get(start..sign).unwrap_or_default().iter().position(|b| *b == b':') else {
        return;
    };
    let from = start + colon + 1;
    if !values::is_none(before.get(from..sign).unwrap_or_default()) {
        spans.push(Span { start: from, end: sign, reason: Reason::Password, key: (0, 0) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<&str> {
        let mut spans = Vec::new();
        let lower = line.to_ascii_lowercase();
        for (word, which) in beginnings() {
            for (i, _) in lower.match_indices(word.as_str()) {
                at(line.as_bytes(), *which, word.len(), i + word.len(), &mut spans);
            }
        }
        for (i, _) in line.match_indices("://") {
            url(line.as_bytes(), i + 3, false, &mut spans);
        }
        if let Some(i) = line.find("@tcp(") {
            dsn(line.as_bytes(), i + 5, &mut spans);
        }
        let mut found: Vec<_> = spans.iter().map(|s| &line[s.start..s.end]).collect();
        found.dedup();
        found
    }

    #[test]
    fn each_kind_takes_its_example_and_not_what_looks_like_it() {
        assert!(ALL.patterns.is_some());
        assert_eq!(ALL.kinds.len(), lines().count());
        for (i, line) in lines().enumerate() {
            let columns: Vec<&str> = line.split('\t').collect();
            let [name, _, pattern, example, other] = columns[..] else {
                panic!("{line}: wanted five columns")
            };
            let words = beginnings().iter().filter(|(_, which)| *which == i).count();
            assert!(
                words > 0 && beginnings_of(pattern).iter().all(|word| word.len() >= 3),
                "{name} {:?}",
                beginnings_of(pattern)
            );
            let text = format!("{example} x");
            assert!(found(&text).iter().any(|value| example.contains(value)), "{name} {example}");
            let (shown, withheld) = crate::secrets::Policy::default().clean_text(&text);
            assert!(withheld.count > 0 && !shown.contains(example), "{name} {shown}");
            assert_eq!(found(other), Vec::<&str>::new(), "{name} {other}");
        }
    }

    #[test]
    fn hashes_and_urls_are_found() {
        let hash = format!("$6${}${}", "a1B2c3D4", "x9Y8z7".repeat(14));
        assert_eq!(found(&format!("root:{hash}")), [format!("root:{hash}").strip_prefix("root:").unwrap()]);
        assert_eq!(found("a http://me:geheim1@host:80/x b"), ["geheim1"]);
        assert_eq!(found("redis://:geheim@h/0"), ["geheim"]);
        assert_eq!(found("amqp://me:ge/heim@h/0"), ["ge/heim"]);
        assert_eq!(found("amqp://me:ge/he@im@h/0?to=a@b"), ["ge/he@im"]);
        assert_eq!(
            found("https://d41d8cd98f00b204e9800998ecf8427e@o1.example.org/5"),
            ["d41d8cd98f00b204e9800998ecf8427e"]
        );
        assert_eq!(found("dsn = me:geheim@tcp(db:3306)/x"), ["geheim"]);
    }

    #[test]
    fn ordinary_text_is_not() {
        for line in [
            "http://host:8080/a@b",
            "https://example.org/@user/post:1",
            "git+ssh://git@github.com/a/b",
            "http://me:${PW}@host",
            "http://[::1]:80/x@y",
            "task-force-sk-learn",
            "sig=ed25519",
            "ASIAN FOOD",
            "$1 $2 $5",
            "usermod -p '$6$'",
            "msg.format",
        ] {
            assert_eq!(found(line), Vec::<&str>::new(), "{line}");
        }
    }
}
