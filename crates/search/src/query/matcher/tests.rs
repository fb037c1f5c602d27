use proptest::prelude::*;

use super::Matcher;

fn wildcard(pattern: &str) -> Matcher {
    match Matcher::wildcard(pattern) {
        Ok(matcher) => matcher,
        Err(mistake) => panic!("{pattern}: {mistake}"),
    }
}

#[test]
fn wildcards() {
    for (pattern, takes, refuses) in [
        ("", vec![], vec!["", "a"]),
        ("*", vec!["", "anything", "ä"], vec![]),
        ("vm.*", vec!["vm.", "vm.swappiness"], vec!["vm", "xvm."]),
        ("*ness", vec!["ness", "swappiness", "nessness"], vec!["nes"]),
        ("lin?x", vec!["linux", "linäx", "lin😀x"], vec!["linx", "linuux"]),
        ("a*b*c", vec!["abc", "axbxc", "abcbc"], vec!["acb", "abcd"]),
        ("\\*a\\?", vec!["*a?"], vec!["xa?", "*ab"]),
        ("a\\\\*", vec!["a\\", "a\\b"], vec!["ab"]),
        ("a\\", vec!["a\\"], vec!["a"]),
        ("\\ä", vec!["ä"], vec!["\\ä"]),
        ("a**?", vec!["ab", "abc"], vec!["a"]),
    ] {
        let matcher = wildcard(pattern);
        for term in takes {
            assert!(matcher.takes(term), "{pattern} {term}");
        }
        for term in refuses {
            assert!(!matcher.takes(term), "{pattern} {term}");
        }
    }
}

#[test]
fn literals_are_as_long_as_can_be() {
    for (pattern, literal) in
        [("vm.*", "vm."), ("*", ""), ("lin?x", "lin"), ("linux", "linux"), ("ä\\**", "ä*"), ("", "")]
    {
        assert_eq!(wildcard(pattern).literal(), literal, "{pattern}");
    }
    for (pattern, literal) in [
        ("4\\.(4|9).*", "4."),
        ("(abc|abd)x", "ab"),
        ("a?b", ""),
        ("ab*", "a"),
        ("abc&.*", "abc"),
        ("(ab){2}c", "ababc"),
        ("#", ""),
    ] {
        assert_eq!(
            Matcher::regex(pattern).map(|m| m.literal().to_owned()),
            Ok(literal.to_owned()),
            "{pattern}"
        );
    }
    assert_eq!(Matcher::prefix("vm.").literal(), "vm.");
    assert_eq!(Matcher::fuzzy("linux", 0).map(|m| m.literal().to_owned()), Ok("linux".to_owned()));
    assert_eq!(Matcher::fuzzy("linux", 1).map(|m| m.literal().to_owned()), Ok(String::new()));
}

#[test]
fn near_terms_are_taken() {
    for (text, term, edits) in [
        ("swappiness", "swappiness", 0),
        ("swappiness", "swapiness", 1),
        ("swappiness", "wsappiness", 1),
        ("swappiness", "wsapipness", 2),
        ("linux", "lunix", 2),
        ("linux", "linuxes", 2),
        ("ab", "ba", 1),
        ("", "a", 3),
        ("", "", 0),
        ("ab", "", 2),
        ("größe", "grosse", 3),
        ("größe", "grösse", 2),
        ("a", "a😀😀", 2),
        ("ca", "abc", 3),
    ] {
        for allowed in 0..=2 {
            let near = Matcher::fuzzy(text, allowed).unwrap();
            assert_eq!(near.takes(term), allowed >= edits, "{text} {term} {allowed}");
        }
    }
}

#[test]
fn too_many_states_are_refused() {
    assert!(Matcher::wildcard(&format!("*a{}", "?".repeat(14))).is_err());
    assert!(Matcher::wildcard(&format!("*a{}", "?".repeat(11))).is_ok());
    assert!(Matcher::wildcard(&"a".repeat(10_001)).is_err());
    assert!(Matcher::wildcard(&"*".repeat(10_000)).is_ok());
    assert!(Matcher::fuzzy("a", 3).is_err());
}

/// A naive wildcard match.
fn naive(pattern: &[char], term: &[char]) -> bool {
    match (pattern, term) {
        ([], []) => true,
        (['*', rest @ ..], _) => (0..=term.len()).any(|skip| naive(rest, &term[skip..])),
        (['?', rest @ ..], [_, more @ ..]) => naive(rest, more),
        (['\\', c, rest @ ..], [t, more @ ..]) => c == t && naive(rest, more),
        (['\\', _, ..], []) => false,
        ([c, rest @ ..], [t, more @ ..]) => c == t && naive(rest, more),
        _ => false,
    }
}

fn matchers() -> impl Strategy<Value = Matcher> {
    let regex = "([ab.ä]|\\[a-b\\]|\\[\\^a\\]|<1-12>|~a){0,5}([*+?]|\\{1,3\\}|&[ab.]\\*|\\|b)?";
    prop_oneof![
        "[abä]{0,3}".prop_map(|text| Matcher::prefix(&text)),
        "[abä*?]{0,6}".prop_map(|pattern| wildcard(&pattern)),
        ("[abä]{0,5}", 0u8..3).prop_filter_map("distance", |(text, edits)| Matcher::fuzzy(&text, edits).ok()),
        regex.prop_filter_map("no pattern", |pattern| Matcher::regex(&pattern).ok()),
    ]
}

proptest! {
    #[test]
    fn whatever_is_taken_begins_with_the_literal(matcher in matchers(), terms in prop::collection::vec("[abä€😀12]{0,6}", 12)) {
        for term in terms.iter().filter(|term| matcher.takes(term)) {
            prop_assert!(term.starts_with(matcher.literal()), "{:?} {:?}", &matcher, &term);
        }
    }

    #[test]
    fn wildcards_take_what_trying_takes(pattern in "[abä*?\\\\]{0,7}", terms in prop::collection::vec("[abä?*\\\\]{0,6}", 12)) {
        let chars: Vec<char> = pattern.chars().collect();
        let matcher = wildcard(&pattern);
        for term in terms {
            let text: Vec<char> = term.chars().collect();
            let tried = !chars.is_empty() && naive(&chars, &text);
            prop_assert_eq!(matcher.takes(&term), tried, "{} {}", &pattern, &term);
        }
    }
}
