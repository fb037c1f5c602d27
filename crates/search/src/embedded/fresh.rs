//! The words and facts of contents that the index on disk does not have yet: what was acknowledged is found at once.
//!
//! The same words as on disk, in memory. The writer keeps their number low.

use std::collections::BTreeMap;
use std::ops;

use super::dictionary::{Part, Take, Wanted};
use super::store::Content;
use super::terms;
use crate::analysis;
use crate::query::Bound;

/// Contents by word and by fact.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    words: BTreeMap<String, Vec<u32>>,
    facts: BTreeMap<String, Vec<u32>>,
}

impl Fresh {
    /// Adds a content. Ordinals come ascending.
    pub(super) fn add(&mut self, ordinal: u32, content: &Content) {
        if let Some(text) = &content.text {
            analysis::words(text, |_, word| add(&mut self.words, word, ordinal));
        }
        terms::each(content, |term| add(&mut self.facts, term, ordinal));
    }

    /// The contents that have any of the wanted terms.
    pub(super) fn walk(&self, part: Part, wanted: &Wanted<'_>, take: &mut impl Take) {
        let map = match part {
            Part::Words => &self.words,
            Part::Facts => &self.facts,
        };
        match wanted {
            Wanted::One(term) => give(map.get_key_value(term.as_str()), take),
            Wanted::Between(low, high) => {
                for found in range(map, low, high) {
                    give(Some(found), take);
                }
            }
            Wanted::Pattern { head, matcher } => {
                for (term, contents) in
                    range(map, &Bound::With(format!("{head}{}", matcher.literal())), &Bound::Open)
                {
                    let Some(rest) = term.strip_prefix(head.as_str()) else { break };
                    if !rest.starts_with(matcher.literal()) {
                        break;
                    }
                    if matcher.takes(rest) {
                        give(Some((term, contents)), take);
                    }
                }
            }
        }
    }
}

fn add(map: &mut BTreeMap<String, Vec<u32>>, term: &str, ordinal: u32) {
    let contents = match map.get_mut(term) {
        Some(contents) => contents,
        None => map.entry(term.to_owned()).or_default(),
    };
    if contents.last() != Some(&ordinal) {
        contents.push(ordinal);
    }
}

fn give(found: Option<(&String, &Vec<u32>)>, take: &mut impl Take) {
    if let Some((term, contents)) = found {
        take.term(term);
        contents.iter().for_each(|content| take.content(*content));
    }
}

/// The terms between two bounds; none where the lower lies above the upper.
fn range<'a>(
    map: &'a BTreeMap<String, Vec<u32>>,
    low: &Bound<String>,
    high: &'a Bound<String>,
) -> impl Iterator<Item = (&'a String, &'a Vec<u32>)> {
    let start = match low {
        Bound::With(term) => ops::Bound::Included(term.as_str()),
        Bound::Without(term) => ops::Bound::Excluded(term.as_str()),
        Bound::Open => ops::Bound::Unbounded,
    };
    map.range::<str, _>((start, ops::Bound::Unbounded)).take_while(|(term, _)| high.above(term))
}
