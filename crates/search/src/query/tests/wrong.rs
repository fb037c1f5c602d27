//! Queries that are errors, with the position, and those that give warnings.

use super::*;

#[test]
fn mistakes_have_a_place() {
    let table = [
        ("AND a", "AND", "nothing stands before 'AND'"),
        ("OR", "OR", "nothing stands before 'OR'"),
        ("a AND", "AND", "nothing follows 'AND'"),
        ("a OR", "OR", "nothing follows 'OR'"),
        ("a AND OR b", "OR", "nothing stands before 'OR'"),
        ("NOT", "NOT", "nothing follows 'NOT'"),
        ("a +", "+", "nothing follows '+'"),
        ("a NOT NOT b", "NOT b", "wanted a word, found 'NOT'"),
        ("a +-b", "-b", "wanted a word, found '-'"),
        ("(a", "(a", "the bracket is never closed"),
        ("a (b (c)", "(b (c)", "the bracket is never closed"),
        ("(a AND", "AND", "nothing follows 'AND'"),
        ("a)", ")", "the bracket was never opened"),
        ("a (b)) c", ") c", "the bracket was never opened"),
        ("()", "()", "wanted a word before ')'"),
        ("(a OR )", "OR )", "wanted a word before ')'"),
        ("a:b:c", ":c", "found ':'"),
        ("\"a\":b", ":b", "found ':'"),
        ("a*:b", ":b", "found ':'"),
        ("time:2026-11-21T10:30", ":30", "found ':'"),
        ("host:", ":", "nothing follows ':'"),
        ("size:-1", "-1", "wanted a word after ':', found '-'"),
        ("host:NOT a", "NOT a", "wanted a word after ':', found 'NOT'"),
        ("host:AND", "AND", "nothing stands before 'AND'"),
        ("~a", "~a", "wanted a word, found '~a'"),
        ("(a)~2", "~2", "wanted a word or the end"),
        ("((a)~2)", "~2)", "wanted a word or ')'"),
        ("time:>now-1d/d", ">now-1d/d", "a slash begins a regular expression"),
        ("a^2^3", "^3", "wanted a word or the end, found '^'"),
        ("a^b", "^b", "wanted a number right after ^"),
        ("a^", "^", "wanted a number right after ^"),
        ("(a)^ 2", "^ 2", "wanted a number right after ^"),
        ("a~x", "~x", "wanted 0, 1, 2 or nothing after ~"),
        ("nothing:a~x", "~x", "wanted 0, 1, 2 or nothing after ~"),
        ("\"a b", "\"a b", "the quote is never closed"),
        ("a \"b\\\"", "\"b\\\"", "the quote is never closed"),
        ("/etc", "/etc", "a slash begins a regular expression"),
        ("filename:/etc/fstab/x", "/etc/fstab/x", "a slash begins a regular expression"),
        ("a\\", "\\", "the backslash at the end"),
        ("\\u00", "\\u00", "wanted four hexadecimal digits"),
        ("\"\\u00zz\"", "\\u00zz", "wanted four hexadecimal digits"),
        ("a\\u00*b", "\\u00*b", "wanted four hexadecimal digits"),
        ("/\\udigit/", "\\udigit/", "wanted four hexadecimal digits"),
        ("[a b]", "b]", "wanted TO, found b"),
        ("[a TO b", "[a TO b", "the range is never closed"),
        ("[a TO ]", "]", "wanted an end of the range, found ]"),
        ("[TO b]", "b]", "wanted TO, found b"),
        ("[a TO b c]", "c]", "wanted ']' or '}', found c"),
        ("[]", "]", "wanted an end of the range, found ]"),
        ("[a\\ TO b]", "\\ TO b]", "the backslash at the end"),
        ("a]", "]", "ends a range that never began"),
        ("_id:1", "_id:1", "is a field of a cluster"),
        ("_exists_:_source", "_exists_:_source", "is a field of a cluster"),
        (r"a _exists_:\*d", r"_exists_:\*d", "a field of a cluster"),
        (r"\*d:*", r"\*d:*", "a field of a cluster"),
        ("...:a", "...:a", "is no name of a field"),
        ("_exists_:..", "_exists_:..", "is no name of a field"),
        ("é AND", "AND", "nothing follows 'AND'"),
    ];
    let mut wrong = Vec::new();
    for (text, from, message) in table {
        match Query::parse(text, settings(false)) {
            Ok(query) => wrong.push(format!("{text} means {}", query.set)),
            Err(e) => {
                let right = text.get(e.at.start..).is_some_and(|rest| rest.starts_with(from))
                    && e.to_string().contains(message);
                // If the text occurs twice, the last occurrence is meant.
                let last = text.rfind(from) == Some(e.at.start);
                if !right || !last || e.at.is_empty() {
                    wrong.push(format!("{text}: {e} at {:?}", e.at));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn limits_are_kept() {
    let depth = |n: usize| format!("{}a{}", "(".repeat(n), ")".repeat(n));
    assert!(Query::parse(&depth(DEPTH_MAX), settings(false)).is_ok());
    let wrong = Query::parse(&depth(DEPTH_MAX + 1), settings(false)).unwrap_err();
    assert_eq!(wrong.at, DEPTH_MAX..DEPTH_MAX + 1);

    let words = |n: usize| vec!["a"; n].join(" ");
    assert!(Query::parse(&words(CLAUSES_MAX), settings(false)).is_ok());
    assert!(Query::parse(&words(CLAUSES_MAX + 1), settings(false)).is_err());

    let regex = |n: usize| format!("/{}/", "a".repeat(n));
    assert!(Query::parse(&regex(1000), settings(false)).is_ok());
    assert!(Query::parse(&regex(1001), settings(false)).is_err());

    assert!(Query::parse(&"a".repeat(QUERY_MAX), settings(false)).is_ok());
    assert!(Query::parse(&"a".repeat(QUERY_MAX + 1), settings(false)).is_err());
    assert!(Query::parse(&format!("a^{}", "9".repeat(50)), settings(false)).is_err());
    assert!(Query::parse(&"(".repeat(QUERY_MAX), settings(false)).is_err());
    assert!(Query::parse(&"-a ".repeat(3000), settings(false)).is_err());
}

#[test]
fn what_was_probably_not_meant_is_named() {
    for (text, at, message, hint) in [
        ("filname:a", "filname:a", "there is no field 'filname'", "There is filename."),
        ("a kernel:4", "kernel:4", "there is no field 'kernel'", "There is kernel.release"),
        (
            "filename:/etc/fstab",
            "/etc/fstab",
            "/etc/ is a regular expression and not a path",
            "\"/etc/fstab\"",
        ),
        ("a and b", "and", "'and' is a word to look for", "AND"),
        ("host:a not host:b", "not", "'not' is a word to look for", "NOT"),
        ("a OR b AND c", "OR b AND", "AND and OR side by side", "a OR (b AND c)"),
        ("host:(a b)", "a b", "'a b' is looked for as one value", "OR"),
        ("size:abc", "abc", "'abc' is no number", ""),
        ("size:1.5", "1.5", "whole numbers", ""),
        ("size:4*", "4*", "numbers", ""),
        ("time:yesterday", "yesterday", "is not a date", ""),
        ("time:2026-11", "2026-11", "is its first day", "[2026-11-01 TO 2026-11-30]"),
        ("\"...\"", "\"...\"", "there is no word", ""),
        ("host:/a(b/", "", "no regular expression", ""),
        ("\"a b\"~-1", "\"a b\"", "moved", ""),
    ] {
        let query = read(text);
        let [warning] = query.warnings.as_slice() else { panic!("{text}: {:?}", query.warnings) };
        assert!(warning.message.contains(message), "{text}: {warning}");
        if !at.is_empty() {
            assert_eq!(text.get(warning.at.clone()), Some(at), "{text}");
        }
        assert!(warning.hint.as_deref().unwrap_or_default().contains(hint), "{text}: {:?}", warning.hint);
    }
    for text in [
        "a AND b",
        "host:web1",
        "/a.*/ b",
        "/a/~2 /b/^2",
        "(/a/)",
        "*:*",
        "\"and\"",
        "host:and",
        "fs.type:ext4 -size:>4k",
    ] {
        assert_eq!(read(text).warnings, [], "{text}");
    }
}
