//! What a segment finds against looking at every term.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::query::matcher::Matcher;

type Found = Vec<(String, Vec<u32>)>;

#[derive(Default)]
struct Taken(Found);

impl Take for Taken {
    fn term(&mut self, term: &str) {
        self.0.push((term.to_owned(), Vec::new()));
    }

    fn content(&mut self, ordinal: u32) {
        if let Some((_, contents)) = self.0.last_mut() {
            contents.push(ordinal);
        }
    }
}

fn write(dir: &Path, terms: &BTreeMap<String, BTreeSet<u32>>) -> Segment {
    let mut writing = Writing::create(dir, 7, 100..6_100, 3).unwrap();
    for part in [Part::Words, Part::Facts] {
        for (term, contents) in terms {
            let contents: Vec<u32> = contents.iter().map(|content| content + 100).collect();
            writing.add(part, term.as_bytes(), &contents).unwrap();
        }
    }
    writing.finish(6_000).unwrap();
    Segment::open(dir, 7).unwrap()
}

fn bound() -> impl Strategy<Value = Bound<String>> {
    prop_oneof![Just(Bound::Open), "[a-c]{0,4}".prop_map(Bound::With), "[a-c]{0,4}".prop_map(Bound::Without),]
}

fn matchers() -> impl Strategy<Value = Matcher> {
    prop_oneof![
        "[a-c]{0,4}".prop_map(|text| Matcher::prefix(&text)),
        "[a-c?*]{0,5}".prop_map(|text| Matcher::wildcard(&text).unwrap()),
        ("[a-c]{0,5}", 0_u8..3).prop_map(|(text, distance)| Matcher::fuzzy(&text, distance).unwrap()),
        prop::sample::select(vec!["a.*", "[ab]+c", "(ab|c)[bc]*", "a?b.c", ".*b", "東?.", "a+b+"])
            .prop_map(|text| Matcher::regex(text).unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_finds_what_looking_at_every_term_finds(
        terms in prop::collection::btree_map(
            "[a-c]{1,7}|[ab]{1,20}|[a-cé東]{1,4}",
            prop_oneof![
                prop::collection::btree_set(0_u32..6_000, 1..4),
                (0_u32..9).prop_map(|from| (from..6_000).step_by(1 + from as usize % 2).collect()),
            ],
            0..300,
        ),
        one in "[a-c]{1,4}", low in bound(), high in bound(), matchers in prop::collection::vec(matchers(), 6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let segment = write(dir.path(), &terms);
        let mut block = Block::new().unwrap();
        let mut check = |wanted: &Wanted<'_>, takes: &dyn Fn(&str) -> bool| -> Result<(), TestCaseError> {
            let expected: Found = terms.iter()
                .filter(|(term, _)| takes(term))
                .map(|(term, contents)| (term.clone(), contents.iter().map(|content| content + 100).collect()))
                .collect();
            for part in [Part::Words, Part::Facts] {
                let mut taken = Taken::default();
                segment.walk(part, wanted, &mut block, &mut taken).unwrap();
                prop_assert_eq!(&taken.0, &expected, "{:?} {:?}", part, wanted);
            }
            Ok(())
        };
        let some: Vec<&String> = terms.keys().step_by(17).chain([&one]).collect();
        for one in some {
            check(&Wanted::One(one.clone()), &|term| term == one)?;
        }
        check(&Wanted::Between(low.clone(), high.clone()), &|term| {
            let term = term.to_owned();
            low.below(&term) && high.above(&term)
        })?;
        for matcher in &matchers {
            for head in ["", "a", "cab"] {
                let takes = |term: &str| term.strip_prefix(head).is_some_and(|rest| matcher.takes(rest));
                check(&Wanted::Pattern { head: head.to_owned(), matcher }, &takes)?;
            }
        }
        let mut all = segment.terms(Part::Facts).unwrap();
        let mut count = 0;
        while all.next().unwrap() {
            prop_assert!(terms.contains_key(text(all.term())));
            count += 1;
        }
        prop_assert_eq!(count, terms.len());
    }
}

#[test]
fn one_that_was_cut_or_changed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let terms = [("swap".to_owned(), BTreeSet::from([1])), ("zebra".to_owned(), (0..6_000).collect())];
    write(dir.path(), &BTreeMap::from(terms));
    let path = path(dir.path(), 7);
    let good = std::fs::read(&path).unwrap();
    for len in 0..good.len() {
        std::fs::write(&path, &good[..len]).unwrap();
        assert!(matches!(Segment::open(dir.path(), 7), Err(Error::Broken { .. })), "{len}");
    }
    let mut block = Block::new().unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let Ok(segment) = Segment::open(dir.path(), 7) else { continue };
        let asked = [Part::Words, Part::Facts].map(|part| {
            let all = Wanted::Between(Bound::Open, Bound::Open);
            segment.walk(part, &all, &mut block, &mut Taken::default())
        });
        assert!(asked.iter().any(|asked| matches!(asked, Err(Error::Broken { .. }))), "{at}");
    }
}
