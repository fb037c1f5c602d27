//! Queries and their meaning, as one table. The default field is not shown.

mod meaning;
mod wrong;

use proptest::prelude::*;

use super::*;

/// 2026-11-22T08:30:15.250Z.
const NOW_NS: i64 = 1_795_336_215_250_000_000;

fn settings(all_words: bool) -> Settings {
    Settings { now_ns: NOW_NS, all_words }
}

fn read(text: &str) -> Query {
    Query::parse(text, settings(false)).unwrap_or_else(|e| panic!("{text}: {e} at {:?}", e.at))
}

fn shown(set: &Set) -> String {
    set.to_string().replace("content:", "")
}

/// Whether a byte range lies in a text, at character boundaries.
fn lies_in(at: &std::ops::Range<usize>, text: &str) -> bool {
    text.get(at.clone()).is_some()
}

/// Fragments of queries, so that some of the random queries are meaningful.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b c",
        "AND",
        "OR",
        "NOT",
        "+",
        "-",
        "!",
        "(",
        ")",
        ":",
        "host:",
        "size:",
        "time:",
        "hostname:",
        "package.a.b:",
        "_exists_:",
        "package",
        "*",
        "?",
        "\"",
        "\"x y\"",
        "~",
        "~1",
        "^2",
        "^",
        "/x.*/",
        "/",
        "[",
        "{",
        "]",
        "}",
        " TO ",
        "4k",
        ">4k",
        "<=1M",
        "2026-11-21",
        "now-1d/d",
        "\\",
        "\\u0041",
        "\\*",
        " ",
        "\t",
        "\u{3000}",
        "é",
        "...",
        "sysctl:*",
    ]);
    prop::collection::vec((piece, prop::bool::ANY), 0..16).prop_map(|parts| {
        let mut text = String::new();
        for (part, space) in parts {
            text.push_str(part);
            text.push_str(if space { " " } else { "" });
        }
        text
    })
}

fn check(text: &str, all_words: bool) {
    match Query::parse(text, settings(all_words)) {
        Err(wrong) => assert!(lies_in(&wrong.at, text), "{text}: {wrong} at {:?}", wrong.at),
        Ok(query) => {
            for warning in &query.warnings {
                assert!(lies_in(&warning.at, text), "{text}: {warning} at {:?}", warning.at);
            }
            let again = Query::parse(&query.text, settings(all_words)).unwrap();
            assert_eq!(again.set.to_string(), query.set.to_string(), "{text} and {}", query.text);
            assert_eq!(again.text, query.text, "rewritten twice");
        }
    }
}

proptest! {
    #[test]
    fn random_queries_have_a_meaning_or_a_place_where_they_are_wrong(text in pieces(), all_words: bool) {
        check(&text, all_words);
    }

    #[test]
    fn nothing_panics(text in "\\PC{0,40}", all_words: bool) {
        check(&text, all_words);
    }

    #[test]
    fn no_special_characters_panic(text in "[-+!():^\"~*?\\\\/\\[\\]{}&| ab1\t\u{3000}]{0,24}", all_words: bool) {
        check(&text, all_words);
    }

    #[test]
    fn what_is_escaped_is_one_value(text in "\\PC{1,20}") {
        let query = read(&format!("host:{}", escape::escape(&text)));
        prop_assert!(
            matches!(&query.set, Set::Leaf { leaf: Leaf::Term(term), .. } if *term == text)
                || text.starts_with(['<', '>']) && text.len() > 1,
            "{}", query.set
        );
    }
}
