use proptest::prelude::*;

use super::{WORD_MAX, grammar, lower, words};

/// Texts and their tokens from Lucene 9.12: `text<TAB>word<TAB>word…`, with `\u{…}` for invisible
/// characters.
const LUCENE: &str = include_str!("lucene.txt");

fn of(text: &str) -> Vec<String> {
    let mut list = Vec::new();
    words(text, |position, word| {
        assert_eq!(position as usize, list.len());
        list.push(word.to_owned());
    });
    list
}

/// The tokens that the grammar alone finds, without [`grammar::skip`].
fn by_grammar(text: &str) -> Vec<String> {
    let mut list = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = grammar::word(rest).map(|(length, _)| length);
        if let Some(length) = length {
            list.push(lower(&rest[..length]));
        }
        rest = &rest[length.unwrap_or(first.len_utf8())..];
    }
    list
}

fn unescape(text: &str) -> String {
    let mut parts = text.split("\\u{");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_once('}').unwrap();
        out.push(u32::from_str_radix(code, 16).ok().and_then(char::from_u32).unwrap());
        out.push_str(rest);
    }
    out
}

#[test]
fn rules_of_ascii() {
    for (text, is) in [
        ("", ""),
        ("vm.swappiness = 60", "vm.swappiness 60"),
        ("/etc/hosts", "etc hosts"),
        ("Foo_Bar __init__ ___ _ a_", "foo_bar __init__ a_"),
        ("10.0.0.1:9200", "10.0.0.1 9200"),
        ("a:b a:1 1:2 ::1 fe80::1", "a:b a 1 1 2 1 fe80 1"),
        ("aa:bb:cc:0d:ee:ff", "aa:bb:cc 0d:ee:ff"),
        ("it's 'quoted' rock'n'roll 1'000", "it's quoted rock'n'roll 1'000"),
        ("1,000;2 a,b a;b 1, 2", "1,000;2 a b a b 1 2"),
        ("a.b. .c d..e f.1 1.f v1.2", "a.b c d e f 1 1 f v1.2"),
        ("x=1;y=2", "x 1 y 2"),
        ("a1b2 3d 0x1F", "a1b2 3d 0x1f"),
        ("_.a _1.2_.3 1_.2", "a _1.2_ 3 1_ 2"),
        ("user@host.example.com", "user host.example.com"),
        ("net.ipv4.tcp_rmem=4096\t131072\t6291456\n", "net.ipv4 tcp_rmem 4096 131072 6291456"),
        ("#!/bin/sh -e\r\n*/5 * * * * root", "bin sh e 5 root"),
        ("a-b--c d+e \"f\" (g) <h>", "a b c d e f g h"),
    ] {
        let is: Vec<&str> = is.split_whitespace().collect();
        assert_eq!(of(text), is, "{text}");
    }
}

#[test]
fn as_lucene() {
    for (i, line) in LUCENE.lines().enumerate() {
        let mut parts = line.split('\t').map(unescape);
        let text = parts.next().unwrap();
        assert_eq!(of(&text), parts.collect::<Vec<_>>(), "lucene.txt:{}: {line}", i + 1);
    }
}

#[test]
fn long_words_are_cut() {
    let lengths = |text: &str| of(text).iter().map(|w| w.encode_utf16().count()).collect::<Vec<_>>();
    assert_eq!(lengths(&"a".repeat(255)), [255]);
    assert_eq!(lengths(&"a".repeat(600)), [255, 255, 90]);
    assert_eq!(lengths(&("a".repeat(254) + ".bc")), [254, 2]);
    assert_eq!(lengths(&("a".repeat(253) + ".bc")), [255, 1]);
    assert_eq!(lengths(&"é".repeat(300)), [255, 45]);
    assert_eq!(lengths(&"\u{10400}".repeat(200)), [254, 146]);
    assert_eq!(lengths(&"_".repeat(600)), [0; 0]);
    assert_eq!(lengths(&("_".repeat(600) + "abc")), [255, 2]);
    assert_eq!(lengths(&("_".repeat(300) + "é")), [255]);
    assert_eq!(lengths(&("a".repeat(255) + "é")), [255, 1]);
}

#[test]
fn lower_case_is_that_of_java() {
    for (text, is) in [("ABCÄÖ", "abcäö"), ("İI", "ii"), ("ΣΑΣ", "σασ"), ("K", "k"), ("ẞ", "ß"), ("Ǆ", "ǆ")]
    {
        assert_eq!(lower(text), is);
        assert_eq!(lower(text).chars().count(), text.chars().count());
    }
}

#[test]
fn no_text_takes_long() {
    for text in ["_".repeat(1 << 20), "_é".repeat(1 << 17), "#\u{301}".repeat(1 << 17), "a".repeat(1 << 20)]
    {
        of(&text);
    }
}

proptest! {
    #[test]
    fn the_short_cut_finds_what_the_grammar_finds(
        ascii in "[aZ_1.:,;'\"#* /-]{0,40}", mixed in "[aZ_1.:,'é\u{301}אק한カ中ก😀\u{200d}\u{fe0f}# _-]{0,40}",
        long in "[a_1.]{200,600}", any in "\\PC{0,40}",
    ) {
        for text in [ascii, mixed, long, any] {
            prop_assert_eq!(of(&text), by_grammar(&text));
        }
    }

    #[test]
    fn words_are_short_and_lower(text in "\\PC{0,300}") {
        for word in of(&text) {
            prop_assert!(!word.is_empty() && word.encode_utf16().count() <= WORD_MAX);
            prop_assert_eq!(&lower(&word), &word);
        }
    }
}
