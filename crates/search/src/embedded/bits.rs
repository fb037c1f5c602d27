//! Sets of small numbers, one bit each: contents by ordinal, rows by place.

/// A set of numbers below a bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bits {
    words: Vec<u64>,
    len: u32,
}

impl Bits {
    /// No number below `len`.
    pub(super) fn none(len: u32) -> Self {
        Self { words: vec![0; words_for(len)], len }
    }

    /// Every number below `len`.
    pub(super) fn all(len: u32) -> Self {
        let mut bits = Self { words: vec![u64::MAX; words_for(len)], len };
        bits.trim();
        bits
    }

    /// The numbers below `len` that pass a test.
    pub(super) fn of(len: u32, mut test: impl FnMut(u32) -> bool) -> Self {
        let mut bits = Self::none(len);
        for (word, first) in bits.words.iter_mut().zip((0..len).step_by(64)) {
            for at in first..first.saturating_add(64).min(len) {
                *word |= u64::from(test(at)) << (at - first);
            }
        }
        bits
    }

    /// Adds a number; one beyond the bound is left out.
    pub(super) fn set(&mut self, at: u32) {
        if at < self.len
            && let Some(word) = self.words.get_mut((at / 64) as usize)
        {
            *word |= 1 << (at % 64);
        }
    }

    /// Whether a number is in it.
    pub(super) fn has(&self, at: u32) -> bool {
        self.words.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Keeps what is in both.
    pub(super) fn and(&mut self, other: &Self) {
        for (word, with) in self.words.iter_mut().zip(&other.words) {
            *word &= with;
        }
    }

    /// Adds what is in the other.
    pub(super) fn or(&mut self, other: &Self) {
        for (word, with) in self.words.iter_mut().zip(&other.words) {
            *word |= with;
        }
        self.trim();
    }

    /// Keeps what is not in it.
    pub(super) fn invert(&mut self) {
        for word in &mut self.words {
            *word = !*word;
        }
        self.trim();
    }

    /// The numbers, from the least.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).step_by(64).zip(&self.words).flat_map(|(first, word)| Ones { first, word: *word })
    }

    /// Clears what lies beyond the bound in the last word.
    fn trim(&mut self) {
        if !self.len.is_multiple_of(64)
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1 << (self.len % 64)) - 1;
        }
    }
}

fn words_for(len: u32) -> usize {
    len.div_ceil(64) as usize
}

struct Ones {
    first: u32,
    word: u64,
}

impl Iterator for Ones {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.word == 0 {
            return None;
        }
        let at = self.word.trailing_zeros();
        self.word &= self.word - 1;
        Some(self.first + at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(len in 0_u32..300, a in prop::collection::btree_set(0_u32..300, 0..60),
                       b in prop::collection::btree_set(0_u32..300, 0..60)) {
            let within = |s: &BTreeSet<u32>| s.iter().copied().filter(|n| *n < len).collect::<BTreeSet<_>>();
            let bits = |s: &BTreeSet<u32>| { let mut bits = Bits::none(len); s.iter().for_each(|n| bits.set(*n)); bits };
            let (sa, sb) = (within(&a), within(&b));
            let read = |bits: &Bits| bits.iter().collect::<Vec<_>>();
            let mut and = bits(&a);
            and.and(&bits(&b));
            prop_assert_eq!(read(&and), sa.intersection(&sb).copied().collect::<Vec<_>>());
            let mut or = bits(&a);
            or.or(&bits(&b));
            prop_assert_eq!(read(&or), sa.union(&sb).copied().collect::<Vec<_>>());
            let mut not = bits(&a);
            not.invert();
            prop_assert_eq!(read(&not), (0..len).filter(|n| !sa.contains(n)).collect::<Vec<_>>());
            prop_assert_eq!(&not, &Bits::of(len, |n| !sa.contains(&n)));
            prop_assert!((0..310).all(|n| bits(&a).has(n) == sa.contains(&n)));
            prop_assert_eq!(Bits::all(len).iter().count(), len as usize);
        }
    }
}
