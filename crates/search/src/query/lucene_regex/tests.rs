use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::query::matcher::Matcher;

fn regex(pattern: &str) -> Matcher {
    match Matcher::regex(pattern) {
        Ok(matcher) => matcher,
        Err(mistake) => panic!("{pattern}: {mistake:?}"),
    }
}

#[test]
fn what_each_operator_takes() {
    for (pattern, takes, refuses) in [
        ("", "|", "a"),
        ("ab", "ab", "|a|abc|xab"),
        ("a|bc", "a|bc", "|ac|b|abc"),
        ("a.c", "abc|a\nc|aäc|a😀c", "ac|abbc"),
        ("ab?c", "ac|abc", "abbc"),
        ("ab*c", "ac|abc|abbbc", "ab"),
        ("ab+c", "abc|abbc", "ac"),
        ("a{3}", "aaa", "aa|aaaa"),
        ("a{2,}", "aa|aaaaaa", "a|"),
        ("a{1,3}", "a|aaa", "|aaaa"),
        ("a{0}", "", "a"),
        ("(ab){2}", "abab", "ab|ababab"),
        ("(a?){3}b", "b|ab|aaab", "aaaab"),
        ("a()b", "ab", "a b"),
        ("[a-c]+", "abc|c", "d|"),
        ("[^a-c]", "d|ä|😀|\n", "a|dd|"),
        ("[a-cx_]", "b|x|_", "d|-"),
        ("[\\]a]", "]|a", "\\"),
        ("[\\d.]+", "1.2|..", "1,2"),
        ("[^\\d]", "a", "1"),
        ("\\d\\d", "42", "4|4a"),
        ("\\D", "a|.", "4"),
        ("\\w+", "aZ_9", "a-b|ä"),
        ("\\W", "-|ä", "_|a"),
        ("a\\sb", "a b|a\tb|a\rb", "ab|a\u{a0}b"),
        ("\\S+", "ab", "a b"),
        ("vm\\.swap.*", "vm.swap|vm.swappiness", "vmxswap"),
        ("\"a.b*\"", "a.b*", "axb"),
        ("\"\"", "", "a"),
        ("@", "|anything", ""),
        ("a@b", "ab|axxb", "a|b"),
        ("<8-12>", "8|9|12|08|0012", "7|13|013||112"),
        ("<12-8>", "8|12", "7|13"),
        ("<08-12>", "08|12", "8|012|13"),
        ("<0-255>", "0|7|99|200|255|000", "256|300|1000|-1|"),
        ("<5-1234>", "5|10|99|100|999|1000|1234|0005", "4|1235|9999"),
        ("<7-7>", "7", "8|07|77"),
        ("<190-210>", "190|199|200|210", "189|211|20"),
        ("a~b", "a|ac|abb|aa", "ab"),
        ("~(.*ab.*)", "|a|ba|xx", "ab|xabx"),
        ("~~a", "a", "b"),
        (".*a.*&.*b.*", "ab|ba|xaxb", "a|b"),
        ("a.*&.*b|c", "ab|axb|c", "a|b|ac"),
        ("a.*&~(.*b)", "a|ac", "ab|c"),
        ("[a-z]+&~(root|daemon)", "user|rootx", "root|daemon"),
        ("^a$", "^a$", "a"),
        ("ä+", "ää", "a"),
        ("\\😀", "😀", "a"),
        ("(a|b)*c", "c|abac", "ab"),
        ("4\\.(4|9)\\.<0-99>", "4.4.7|4.9.12", "4.19.7|4.4.100"),
    ] {
        let matcher = regex(pattern);
        for term in takes.split('|') {
            assert!(matcher.takes(term), "/{pattern}/ {term:?}");
        }
        for term in refuses.split('|').filter(|r| !(r.is_empty() && refuses.is_empty())) {
            assert!(!matcher.takes(term), "/{pattern}/ {term:?}");
        }
    }
}

#[test]
fn peculiarities() {
    for (pattern, takes, refuses) in [
        ("|a", vec!["|a"], vec!["a", ""]),
        ("a||b", vec!["a", "|b"], vec!["b"]),
        ("*a", vec!["*a"], vec!["a"]),
        (")a", vec![")a"], vec!["a"]),
        ("&a", vec!["&a"], vec!["a"]),
        ("{2}", vec!["{2}"], vec![""]),
        ("]", vec!["]"], vec![]),
        ("a}", vec!["a}"], vec![]),
        ("[]]", vec!["]"], vec!["[]"]),
        ("[a^]", vec!["^", "a"], vec!["b"]),
        ("[\\\\-z]", vec!["\\", "-", "z"], vec!["a", "_"]),
        ("[a-\\z]", vec!["q"], vec!["-"]),
        ("[-a]", vec!["-", "a"], vec!["b"]),
        ("[.*|(]", vec![".", "*", "|", "("], vec!["a"]),
        ("a{3,2}", vec![], vec!["", "aa", "aaa"]),
        ("#", vec![], vec!["", "#"]),
        ("a#?", vec!["a"], vec!["a#"]),
        ("a#*", vec![], vec!["a", "a#"]),
        ("\\#", vec!["#"], vec![]),
        ("a-b", vec!["a-b"], vec![]),
    ] {
        let matcher = regex(pattern);
        for term in takes {
            assert!(matcher.takes(term), "/{pattern}/ {term:?}");
        }
        for term in refuses {
            assert!(!matcher.takes(term), "/{pattern}/ {term:?}");
        }
    }
}

#[test]
fn mistakes_have_a_place() {
    for (pattern, place) in [
        ("a)", 1),
        ("ä(b", 2),
        ("a|", 2),
        ("(a|)", 0),
        ("a&", 2),
        ("~", 1),
        ("[a", 0),
        ("[]", 0),
        ("[", 1),
        ("x[z-a]", 2),
        ("[a-]", 1),
        ("\"a", 0),
        ("a{", 2),
        ("a{x}", 2),
        ("a{,3}", 2),
        ("a{2", 3),
        ("a{99999999999}", 2),
        ("a\\", 1),
        ("a\\n", 1),
        ("[\\q]", 1),
        ("<1-2", 0),
        ("<name>", 0),
        ("<-2>", 0),
        ("<1-2-3>", 0),
        ("<1-99999999999>", 0),
    ] {
        let mistake = Matcher::regex(pattern).err();
        assert_eq!(mistake.as_ref().map(|m| m.0), Some(place), "/{pattern}/ {mistake:?}");
    }
}

#[test]
fn what_is_too_much_is_refused() {
    for pattern in [
        "a".repeat(1_001),
        "(".repeat(101) + "a" + &")".repeat(101),
        "~".repeat(101) + "a",
        "a{20000}".to_owned(),
        "(a|b)*a(a|b){14}".to_owned(),
        "a{2000000000}".to_owned(),
        "(((((a{9}){9}){9}){9}){9})".to_owned(),
        "((a{1,50}){1,50}b?){1,50}c&(.{1,60}){3,70}".to_owned(),
    ] {
        assert!(Matcher::regex(&pattern).is_err(), "/{pattern}/");
    }
    for pattern in [
        "a".repeat(1_000),
        "(a|b)*a(a|b){11}".to_owned(),
        "[a-z]{1,2000}".to_owned(),
        "(".repeat(99) + "a" + &")".repeat(99),
    ] {
        assert!(Matcher::regex(&pattern).is_ok(), "/{pattern}/");
    }
}

/// A pattern as a tree, with a naive matcher.
#[derive(Debug, Clone)]
enum Tree {
    Char(char),
    Any,
    Class(bool, Vec<char>),
    All,
    Nothing,
    Empty,
    Number(u32, u32),
    Cat(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
    And(Box<Tree>, Box<Tree>),
    Not(Box<Tree>),
    Repeat(Box<Tree>, usize, Option<usize>),
}

impl Tree {
    fn pattern(&self) -> String {
        match self {
            Tree::Char(c) => c.to_string(),
            Tree::Any => ".".to_owned(),
            Tree::Class(negated, chars) => {
                let chars: String = chars.iter().collect();
                format!("[{}{chars}]", if *negated { "^" } else { "" })
            }
            Tree::All => "@".to_owned(),
            Tree::Nothing => "#".to_owned(),
            Tree::Empty => "()".to_owned(),
            Tree::Number(a, b) => format!("<{a}-{b}>"),
            Tree::Cat(a, b) => format!("({}{})", a.pattern(), b.pattern()),
            Tree::Or(a, b) => format!("({}|{})", a.pattern(), b.pattern()),
            Tree::And(a, b) => format!("({}&{})", a.pattern(), b.pattern()),
            Tree::Not(a) => format!("(~({}))", a.pattern()),
            Tree::Repeat(a, 0, None) => format!("{}*", a.pattern()),
            Tree::Repeat(a, 1, None) => format!("{}+", a.pattern()),
            Tree::Repeat(a, 0, Some(1)) => format!("{}?", a.pattern()),
            Tree::Repeat(a, min, None) => format!("{}{{{min},}}", a.pattern()),
            Tree::Repeat(a, min, Some(max)) => format!("{}{{{min},{max}}}", a.pattern()),
        }
    }

    /// The positions at which a match from `at` can end.
    fn ends(&self, text: &[char], at: usize) -> BTreeSet<usize> {
        let all = at..=text.len();
        let one = |takes: bool| if takes { BTreeSet::from([at + 1]) } else { BTreeSet::new() };
        match self {
            Tree::Char(c) => one(text.get(at) == Some(c)),
            Tree::Any => one(at < text.len()),
            Tree::Class(negated, chars) => one(text.get(at).is_some_and(|c| chars.contains(c) != *negated)),
            Tree::All => all.collect(),
            Tree::Nothing => BTreeSet::new(),
            Tree::Empty => BTreeSet::from([at]),
            Tree::Number(a, b) => {
                let wide = a.to_string().len() == b.to_string().len();
                all.filter(|end| {
                    let part: String = text[at..*end].iter().collect();
                    let fits = !wide || part.len() == a.to_string().len();
                    fits && part.parse().is_ok_and(|n: u32| n >= *a.min(b) && n <= *a.max(b))
                })
                .collect()
            }
            Tree::Cat(a, b) => a.ends(text, at).into_iter().flat_map(|mid| b.ends(text, mid)).collect(),
            Tree::Or(a, b) => a.ends(text, at).union(&b.ends(text, at)).copied().collect(),
            Tree::And(a, b) => a.ends(text, at).intersection(&b.ends(text, at)).copied().collect(),
            Tree::Not(a) => {
                let ends = a.ends(text, at);
                all.filter(|end| !ends.contains(end)).collect()
            }
            Tree::Repeat(a, min, max) => {
                let mut now = BTreeSet::from([at]);
                let mut found = if *min == 0 { now.clone() } else { BTreeSet::new() };
                for count in 1..=max.unwrap_or(min + text.len() + 1) {
                    now = now.into_iter().flat_map(|mid| a.ends(text, mid)).collect();
                    if count >= *min {
                        found.extend(&now);
                    }
                }
                found
            }
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let chars = prop::collection::vec(prop::sample::select(vec!['a', 'b', '1', 'ä']), 1..3);
    let leaf = prop_oneof![
        6 => prop::sample::select(vec!['a', 'b', '1', '2', 'ä']).prop_map(Tree::Char),
        2 => Just(Tree::Any),
        2 => (any::<bool>(), chars).prop_map(|(negated, chars)| Tree::Class(negated, chars)),
        1 => Just(Tree::All),
        1 => Just(Tree::Nothing),
        1 => Just(Tree::Empty),
        1 => (0u32..30, 0u32..30).prop_map(|(a, b)| Tree::Number(a, b)),
    ];
    leaf.prop_recursive(4, 20, 2, |inner| {
        let repeat = (inner.clone(), 0usize..3, prop::option::of(0usize..3));
        let two = || (inner.clone(), inner.clone());
        prop_oneof![
            4 => two().prop_map(|(a, b)| Tree::Cat(a.into(), b.into())),
            2 => two().prop_map(|(a, b)| Tree::Or(a.into(), b.into())),
            1 => two().prop_map(|(a, b)| Tree::And(a.into(), b.into())),
            1 => inner.clone().prop_map(|a| Tree::Not(a.into())),
            2 => repeat.prop_map(|(a, min, more)| {
                // `#` repeated without limit matches nothing, as tested above. The naive matcher
                // cannot handle that in general.
                let more = if a.pattern().contains(['#', '~']) { more.or(Some(2)) } else { more };
                Tree::Repeat(a.into(), min, more.map(|m| min + m))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn takes_what_the_naive_matcher_takes(tree in tree(), terms in prop::collection::vec("[ab12ä]{0,6}", 12)) {
        let matcher = Matcher::regex(&tree.pattern()).map_err(|m| TestCaseError::fail(format!("{m:?}")))?;
        for term in terms {
            let text: Vec<char> = term.chars().collect();
            let naive = tree.ends(&text, 0).contains(&text.len());
            prop_assert_eq!(matcher.takes(&term), naive, "/{}/ {:?}", tree.pattern(), term);
        }
    }

    #[test]
    fn no_text_makes_it_panic(pattern in "\\PC{0,40}", special in "[ab0-9(){}\\[\\]|&~<>.*+?@#\\\\\"^,-]{0,30}", term in "\\PC{0,9}") {
        for pattern in [pattern, special] {
            if let Ok(matcher) = Matcher::regex(&pattern) {
                prop_assert!(!matcher.takes(&term) || term.starts_with(matcher.literal()));
            }
        }
    }
}
