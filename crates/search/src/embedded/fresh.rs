//! The words and facts of contents that the index on disk does not have yet: what was acknowledged is found at once.
//!
//! The same words at the same positions as on disk, in memory. The writer keeps their number low.

use std::collections::BTreeMap;
use std::ops;

use super::dictionary::{Part, Phrase, Take, Wanted};
use super::store::Content;
use super::terms;
use crate::analysis;
use crate::query::Bound;

/// Contents by word and by fact.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    words: BTreeMap<String, Vec<Place>>,
    facts: BTreeMap<String, Vec<Place>>,
}

/// Where a term occurs: in which content, at which positions.
#[derive(Debug)]
struct Place {
    ordinal: u32,
    positions: Vec<u32>,
}

impl Fresh {
    /// Adds a content. Ordinals come ascending.
    pub(super) fn add(&mut self, ordinal: u32, content: &Content) {
        if let Some(text) = &content.text {
            analysis::words(text, |position, word| add(&mut self.words, word, ordinal, Some(position)));
        }
        terms::each(content, |term| add(&mut self.facts, term, ordinal, None));
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
                for (term, places) in
                    range(map, &Bound::With(format!("{head}{}", matcher.literal())), &Bound::Open)
                {
                    let Some(rest) = term.strip_prefix(head.as_str()) else { break };
                    if !rest.starts_with(matcher.literal()) {
                        break;
                    }
                    if matcher.takes(rest) {
                        give(Some((term, places)), take);
                    }
                }
            }
        }
    }

    /// The contents whose text has a phrase.
    pub(super) fn phrase(&self, phrase: &Phrase<'_>, mut take: impl FnMut(u32)) {
        let mut lists = Vec::with_capacity(phrase.words.len());
        for word in &phrase.words {
            let Some(places) = self.words.get(*word) else { return };
            lists.push(places);
        }
        let Some(rarest) = lists.iter().min_by_key(|places| places.len()) else { return };
        for place in *rarest {
            let positions: Vec<&[u32]> = lists
                .iter()
                .filter_map(|places| {
                    let at = places.binary_search_by_key(&place.ordinal, |p| p.ordinal).ok()?;
                    places.get(at).map(|p| p.positions.as_slice())
                })
                .collect();
            if positions.len() == lists.len() && phrase.fits(&positions) {
                take(place.ordinal);
            }
        }
    }
}

fn add(map: &mut BTreeMap<String, Vec<Place>>, term: &str, ordinal: u32, position: Option<u32>) {
    let places = match map.get_mut(term) {
        Some(places) => places,
        None => map.entry(term.to_owned()).or_default(),
    };
    match places.last_mut() {
        Some(place) if place.ordinal == ordinal => place.positions.extend(position),
        _ => places.push(Place { ordinal, positions: position.into_iter().collect() }),
    }
}

fn give(found: Option<(&String, &Vec<Place>)>, take: &mut impl Take) {
    if let Some((term, places)) = found {
        take.term(term);
        for place in places {
            take.content(place.ordinal);
        }
    }
}

/// The terms between two bounds; none where the lower lies above the upper.
fn range<'a>(
    map: &'a BTreeMap<String, Vec<Place>>,
    low: &Bound<String>,
    high: &'a Bound<String>,
) -> impl Iterator<Item = (&'a String, &'a Vec<Place>)> {
    let start = match low {
        Bound::With(term) => ops::Bound::Included(term.as_str()),
        Bound::Without(term) => ops::Bound::Excluded(term.as_str()),
        Bound::Open => ops::Bound::Unbounded,
    };
    map.range::<str, _>((start, ops::Bound::Unbounded)).take_while(|(term, _)| high.above(term))
}
