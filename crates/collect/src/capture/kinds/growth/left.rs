//! What is still there of what came.

use std::collections::HashMap;

/// Pages that came to an address, and how many of them are there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Left {
    pub(super) start: u64,
    pub(super) at_ns: u64,
    pub(super) came: u64,
    pub(super) span: u64,
    pub(super) there: u64,
}

/// Where something came later than what surrounds it, what surrounds it has so much less there, and the other way round.
/// They come by their addresses, of those at the same one the larger first. Each lies inside of another one or apart: large
/// pages lie at multiples of their size.
pub(super) fn without_what_came_later(lefts: &mut [Left], page_bytes: u64) {
    let mut open: Vec<usize> = Vec::new();
    for i in 0..lefts.len() {
        let Some(inner) = lefts.get(i).copied() else { break };
        let ends = |left: &Left| left.start.saturating_add(left.span.saturating_mul(page_bytes));
        while open.last().and_then(|outer| lefts.get(*outer)).is_some_and(|outer| ends(outer) <= inner.start)
        {
            open.pop();
        }
        let came_later = |outer: &&usize| lefts.get(**outer).is_some_and(|outer| outer.at_ns > inner.at_ns);
        if open.iter().any(|outer| came_later(&outer)) {
            lefts.get_mut(i).into_iter().for_each(|inner| inner.there = 0);
        } else if let Some(outer) = open.last().and_then(|outer| lefts.get_mut(*outer)) {
            // What surrounds this one has it from the one around it.
            outer.there = outer.there.saturating_sub(inner.there);
        }
        if inner.span > 1 {
            open.push(i);
        }
    }
}

/// Pages that are there, by what brought them. Of what came together but lies apart one page was looked at, and stands for
/// the others.
pub(super) fn sum_up<K: std::hash::Hash + Eq>(lefts: impl Iterator<Item = (K, Left)>) -> HashMap<K, f64> {
    let mut sums = HashMap::new();
    for (key, left) in lefts {
        *sums.entry(key).or_insert(0.0) += left.pages();
    }
    sums
}

impl Left {
    pub(super) fn pages(&self) -> f64 {
        self.there as f64 * self.came as f64 / self.span.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn left(page: u64, span: u64, at_ns: u64, there: u64) -> Left {
        Left { start: page * PAGE, at_ns, came: span, span, there }
    }

    fn there_of(mut lefts: Vec<Left>) -> Vec<u64> {
        without_what_came_later(&mut lefts, PAGE);
        lefts.iter().map(|left| left.there).collect()
    }

    #[test]
    fn a_page_counts_for_whoever_brought_it_last() {
        // A huge page, given back in part and touched again page by page.
        let again = vec![left(512, 512, 1, 100), left(512, 1, 2, 1), left(600, 1, 3, 1), left(1024, 1, 2, 1)];
        assert_eq!(there_of(again), [98, 1, 1, 1]);
        // Pages, unmapped, and a huge one in their place.
        assert_eq!(there_of(vec![left(512, 512, 9, 512), left(513, 1, 2, 1)]), [512, 0]);
        // One in another in another.
        let nested = vec![left(512, 512, 1, 512), left(528, 16, 2, 16), left(530, 1, 3, 1)];
        assert_eq!(there_of(nested), [496, 15, 1]);
        assert_eq!(there_of(Vec::new()), [0_u64; 0]);
    }

    #[test]
    fn pages_that_lie_apart_stand_for_each_other() {
        let one_of_64 = Left { came: 64, span: 1, ..left(5, 1, 1, 1) };
        assert_eq!(one_of_64.pages(), 64.0);
        assert_eq!(left(512, 512, 1, 128).pages(), 128.0);
        let sums = sum_up([("a", one_of_64), ("b", left(9, 1, 1, 0)), ("a", left(7, 1, 1, 1))].into_iter());
        assert_eq!((sums["a"], sums["b"]), (65.0, 0.0));
    }
}
