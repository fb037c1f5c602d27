//! Several segments become one, without what nobody has any more.

use std::ops::Range;
use std::path::Path;

use super::super::bits::Bits;
use super::super::dictionary::Part;
use super::segment::{Segment, Terms, Writing};
use crate::error::Error;

/// Segments of like size that are merged into one.
const MERGE_FROM: usize = 8;
/// Where the index is made dense, a segment is merged with those after it unless it has more than so many times their contents.
const DENSE_RATIO: u64 = 8;
/// Of zstd. Terms are compressed by their frequent letters; to look longer for repetitions gains a hundredth.
pub(super) const LEVEL: i32 = 3;

/// What a segment has, and what of that nobody has any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) living: u64,
    pub(super) dead: u64,
}

impl Size {
    pub(super) fn of(segment: &Segment, dead: &Bits) -> Self {
        let range = segment.range.clone();
        let without = range.clone().filter(|ordinal| dead.has(*ordinal)).count() as u64;
        let contents = u64::from(segment.contents);
        // Those that are not in it any more are among them.
        let gone = (range.len() as u64).saturating_sub(contents);
        let dead = without.saturating_sub(gone).min(contents);
        Self { living: contents - dead, dead }
    }
}

/// Which neighbours to merge into one: small ones of like size when there are many, so that a content is merged a few times in
/// its life, else one of which a third is dead. Where it is to be dense, the last ones down to one that is much larger.
pub(super) fn together(sizes: &[Size], dense: bool) -> Range<usize> {
    let run = |ratio: u64| {
        let mut sum = 0;
        let alike = sizes.iter().rev().take_while(|size| {
            let fits = sum == 0 || size.living <= ratio * sum;
            sum += size.living.max(1);
            fits
        });
        sizes.len() - alike.count()..sizes.len()
    };
    let alike = run(2);
    if alike.len() >= MERGE_FROM {
        return alike;
    }
    let all = run(DENSE_RATIO);
    if dense && all.len() > 1 {
        return all;
    }
    match sizes.iter().position(|size| size.dead * 2 > size.living) {
        Some(at) => at..at + 1,
        None => 0..0,
    }
}

/// Writes neighbours as one segment. Says whether anything was left to write.
pub(super) fn merge(dir: &Path, number: u64, segments: &[Segment], dead: &Bits) -> Result<bool, Error> {
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return Ok(false) };
    let range = first.range.start..last.range.end;
    let mut writing = Writing::create(dir, number, range.clone(), LEVEL)?;
    let mut there = Bits::none(range.end.saturating_sub(range.start));
    let mut contents = Vec::new();
    for part in [Part::Words, Part::Facts] {
        let mut inputs: Vec<Terms<'_>> = Vec::with_capacity(segments.len());
        for segment in segments {
            let mut terms = segment.terms(part)?;
            if terms.next()? {
                inputs.push(terms);
            }
        }
        while let Some(least) = inputs.iter().map(Terms::term).min() {
            let least = least.to_vec();
            contents.clear();
            let mut at = 0;
            while let Some(input) = inputs.get_mut(at) {
                if input.term() != least {
                    at += 1;
                    continue;
                }
                input.contents(|content| {
                    if !dead.has(content) {
                        contents.push(content);
                    }
                })?;
                if input.next()? {
                    at += 1;
                } else {
                    // The others stay in the order of their contents.
                    inputs.remove(at);
                }
            }
            if contents.is_empty() {
                continue;
            }
            contents.iter().for_each(|content| there.set(content - range.start));
            writing.add(part, &least, &contents)?;
        }
    }
    let count = there.iter().count() as u32;
    writing.finish(count)?;
    Ok(count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(sizes: &[(u64, u64)]) -> Vec<Size> {
        sizes.iter().map(|(living, dead)| Size { living: *living, dead: *dead }).collect()
    }

    #[test]
    fn small_segments_of_like_size_are_merged() {
        assert_eq!(together(&[], true), 0..0);
        assert_eq!(together(&sizes(&[(5, 0); 7]), false), 0..0);
        assert_eq!(together(&sizes(&[(5, 0); 8]), false), 0..8);
        // A large one stays until the small ones together are half of it.
        let mut some = vec![(1, 0); 9];
        some[0] = (1000, 0);
        assert_eq!(together(&sizes(&some), false), 1..9);
        assert_eq!(together(&sizes(&[(10, 0), (10, 6), (1000, 1)]), false), 1..2);
        assert_eq!(together(&sizes(&[(0, 0), (10, 4)]), false), 0..0);
    }

    #[test]
    fn where_it_is_to_be_dense_few_are_left() {
        assert_eq!(together(&sizes(&[(5, 0)]), true), 0..0);
        assert_eq!(together(&sizes(&[(5, 0), (5, 0)]), true), 0..2);
        assert_eq!(together(&sizes(&[(2000, 0), (100, 0), (20, 0)]), true), 1..3);
        assert_eq!(together(&sizes(&[(900, 0), (100, 0), (20, 0)]), true), 0..3);
        assert_eq!(together(&sizes(&[(2000, 1500), (20, 0)]), true), 0..1);
    }

    #[test]
    fn each_content_is_merged_a_few_times_in_its_life() {
        for dense in [false, true] {
            let (mut segments, mut merged, added) = (Vec::new(), 0, 20_000_u64);
            for _ in 0..added / 10 {
                segments.push(Size { living: 10, dead: 0 });
                let which = together(&segments, dense);
                if !which.is_empty() {
                    let living = segments[which.clone()].iter().map(|size| size.living).sum();
                    segments.splice(which, [Size { living, dead: 0 }]);
                    merged += living;
                }
                assert!(segments.len() < 24, "{}", segments.len());
            }
            assert!(merged < added * 40, "{merged}");
        }
    }
}
