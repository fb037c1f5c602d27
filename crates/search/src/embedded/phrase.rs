//! Whether words stand beside each other: the positions of a phrase.
//!
//! A phrase has slots: `"to be or not to be"~2` has six, two of which want the word `to`. Each slot takes one position of its
//! word; shifted by the slot's place in the phrase they must lie within `slop` of each other. Two slots of one word take two
//! positions. This is what Lucene's phrases mean.

/// One word of a phrase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot<'a> {
    /// Its place in the phrase.
    pub place: u32,
    /// Which word: equal for slots of the same one.
    pub word: usize,
    /// Where the word stands in a text, ascending.
    pub positions: &'a [u32],
}

/// Whether a text has the phrase. The slots are sorted by word and then by place.
pub(super) fn fits(slots: &[Slot<'_>], slop: u32) -> bool {
    if slop == 0 {
        // Whatever fits begins where the rarest word says.
        let Some(rarest) = slots.iter().min_by_key(|s| s.positions.len()) else { return false };
        return starts(rarest).any(|start| within(slots, start, 0));
    }
    slots.iter().any(|slot| starts(slot).any(|start| within(slots, start, slop)))
}

/// Where the phrase would begin, were this slot where its word is.
fn starts<'a>(slot: &Slot<'a>) -> impl Iterator<Item = i64> + 'a {
    let place = i64::from(slot.place);
    slot.positions.iter().map(move |p| i64::from(*p) - place)
}

/// Whether every slot finds a position between its place after `start` and `slop` behind that. Slots of one word take the
/// first that is free, in the order of their places: as their stretches are equally long, no other choice does better.
fn within(slots: &[Slot<'_>], start: i64, slop: u32) -> bool {
    let mut taken: Option<(usize, i64)> = None;
    for slot in slots {
        let first = start + i64::from(slot.place);
        let from = match taken {
            Some((word, last)) if word == slot.word => first.max(last + 1),
            _ => first,
        };
        let at = slot.positions.partition_point(|p| i64::from(*p) < from);
        match slot.positions.get(at) {
            Some(p) if i64::from(*p) <= first + i64::from(slop) => taken = Some((slot.word, i64::from(*p))),
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sort(slots: &mut [Slot<'_>]) {
        slots.sort_by_key(|s| (s.word, s.place));
    }

    fn has(text: &str, phrase: &str, slop: u32) -> bool {
        let text: Vec<&str> = text.split(' ').collect();
        let phrase: Vec<&str> = phrase.split(' ').collect();
        let positions = |word: &str| -> Vec<u32> {
            (0..).zip(&text).filter(|(_, w)| **w == word).map(|(at, _)| at).collect()
        };
        let lists: Vec<Vec<u32>> = phrase.iter().map(|w| positions(w)).collect();
        let mut slots: Vec<Slot<'_>> = (0..)
            .zip(phrase.iter().zip(&lists))
            .map(|(place, (word, positions))| Slot {
                place,
                word: phrase.iter().position(|w| w == word).unwrap(),
                positions,
            })
            .collect();
        sort(&mut slots);
        fits(&slots, slop)
    }

    #[test]
    fn phrases_are_found_where_they_stand() {
        for (text, phrase, slop, found) in [
            ("a b c", "a b", 0, true),
            ("a b c", "b a", 0, false),
            ("a b c", "b a", 1, false),
            // Turning two words round takes two moves.
            ("a b c", "b a", 2, true),
            ("a x b", "a b", 0, false),
            ("a x b", "a b", 1, true),
            ("a x y b", "a b", 1, false),
            ("a", "a a", 5, false),
            ("a a", "a a", 0, true),
            ("a x a", "a a", 0, false),
            ("a x a", "a a", 1, true),
            ("b a b", "b a b", 0, true),
            ("b a", "b a b", 9, false),
            ("x", "a", 0, false),
        ] {
            assert_eq!(has(text, phrase, slop), found, "{text:?} {phrase:?}~{slop}");
        }
    }

    /// Every way to give each slot a position.
    fn any_way(
        slots: &[Slot<'_>],
        slop: u32,
        taken: &mut Vec<(usize, u32)>,
        span: Option<(i64, i64)>,
    ) -> bool {
        let Some((slot, rest)) = slots.split_first() else { return true };
        for p in slot.positions {
            let start = i64::from(*p) - i64::from(slot.place);
            let (low, high) = span.map_or((start, start), |(l, h)| (l.min(start), h.max(start)));
            if high - low > i64::from(slop) || taken.contains(&(slot.word, *p)) {
                continue;
            }
            taken.push((slot.word, *p));
            let found = any_way(rest, slop, taken, Some((low, high)));
            taken.pop();
            if found {
                return true;
            }
        }
        false
    }

    proptest! {
        #[test]
        fn it_finds_what_trying_everything_finds(text in prop::collection::vec(0_usize..3, 0..9),
                                                 phrase in prop::collection::vec(0_usize..3, 1..5), slop in 0_u32..4) {
            let lists: Vec<Vec<u32>> = phrase.iter()
                .map(|word| (0..).zip(&text).filter(|(_, w)| *w == word).map(|(at, _)| at).collect())
                .collect();
            let mut slots: Vec<Slot<'_>> = (0..).zip(phrase.iter().zip(&lists))
                .map(|(place, (word, positions))| Slot { place, word: *word, positions })
                .collect();
            sort(&mut slots);
            prop_assert_eq!(fits(&slots, slop), any_way(&slots, slop, &mut Vec::new(), None));
        }
    }
}
