//! The values of one series.
//!
//! Most of what a machine counts stands still most of the time: a stretch of equal values takes sixteen bytes, so that a
//! day of a series in which nothing happens takes a hundredth of what its numbers would.

use std::fmt;
use std::ops::{Index, Range};

/// So many values are kept together: as one value where they are equal, or each. A burst in a quiet series takes a kilobyte.
const CHUNK: usize = 128;

#[derive(Clone)]
enum Chunk {
    Same(f64),
    Each(Box<[f64; CHUNK]>),
}

/// Numbers in order; `NaN` is unavailable.
#[derive(Clone, Default)]
pub struct Values {
    chunks: Vec<Chunk>,
    len: usize,
}

impl Values {
    /// No values.
    #[must_use]
    pub const fn new() -> Self {
        Values { chunks: Vec::new(), len: 0 }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at an index.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&f64> {
        (i < self.len).then(|| &self[i])
    }

    /// All of them.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { values: self, range: 0..self.len }
    }

    /// All of them, one beside the other.
    #[must_use]
    pub fn to_vec(&self) -> Vec<f64> {
        self.iter().copied().collect()
    }

    /// Adds one.
    pub fn push(&mut self, value: f64) {
        let at = self.len % CHUNK;
        self.len += 1;
        match self.chunks.last_mut().filter(|_| at > 0) {
            None => self.chunks.push(Chunk::Same(value)),
            Some(Chunk::Each(each)) => each[at] = value,
            // `NaN` is the same as itself here.
            Some(Chunk::Same(same)) if same.to_bits() == value.to_bits() => {}
            Some(last @ Chunk::Same(_)) => {
                let Chunk::Same(same) = *last else { return };
                let mut each = Box::new([same; CHUNK]);
                each[at] = value;
                *last = Chunk::Each(each);
            }
        }
    }

    /// Adds the same value several times.
    pub fn push_same(&mut self, value: f64, count: usize) {
        let end = self.len + count;
        while self.len < end {
            if self.len.is_multiple_of(CHUNK) && end - self.len >= CHUNK {
                self.chunks.push(Chunk::Same(value));
                self.len += CHUNK;
            } else {
                self.push(value);
            }
        }
    }
}

impl Index<usize> for Values {
    type Output = f64;

    fn index(&self, i: usize) -> &f64 {
        assert!(i < self.len, "value {i} of {}", self.len);
        match &self.chunks[i / CHUNK] {
            Chunk::Same(value) => value,
            Chunk::Each(values) => &values[i % CHUNK],
        }
    }
}

/// The values in order.
#[derive(Clone)]
pub struct Iter<'a> {
    values: &'a Values,
    range: Range<usize>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a f64;

    fn next(&mut self) -> Option<&'a f64> {
        self.range.next().map(|i| &self.values[i])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_back().map(|i| &self.values[i])
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a Values {
    type Item = &'a f64;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl Extend<f64> for Values {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

impl FromIterator<f64> for Values {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut all = Values::new();
        all.extend(values);
        all
    }
}

impl From<&[f64]> for Values {
    fn from(values: &[f64]) -> Self {
        values.iter().copied().collect()
    }
}

impl From<Vec<f64>> for Values {
    fn from(values: Vec<f64>) -> Self {
        values.into_iter().collect()
    }
}

impl<const N: usize> PartialEq<[f64; N]> for Values {
    fn eq(&self, other: &[f64; N]) -> bool {
        self.iter().eq(other)
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts in long quiet stretches, at the borders of chunks and inside of them.
    fn bursts() -> Vec<f64> {
        (0..5 * CHUNK).map(|i| if [0, 127, 128, 300, 639].contains(&i) { i as f64 } else { 0.5 }).collect()
    }

    #[test]
    fn the_values_are_those_that_went_in() {
        let all = bursts();
        let mut values = Values::from(all.as_slice());
        assert_eq!((values.len(), values.to_vec()), (all.len(), all.clone()));
        assert!(all.iter().enumerate().all(|(i, value)| values.get(i) == Some(value) && values[i] == *value));
        assert_eq!(values.get(all.len()), None);
        assert!(values.iter().rev().eq(all.iter().rev()));
        values.push_same(7.0, 1000);
        values.push(8.0);
        let more = [all, vec![7.0; 1000], vec![8.0]].concat();
        assert_eq!(values.to_vec(), more);
        assert_eq!(more.into_iter().collect::<Values>().len(), values.len());
    }

    #[test]
    fn what_stands_still_takes_no_memory() {
        let each = |values: &Values| values.chunks.iter().filter(|c| matches!(c, Chunk::Each(_))).count();
        let mut still = Values::new();
        still.push_same(f64::NAN, 1000);
        still.extend(std::iter::repeat_n(f64::NAN, 1000));
        assert_eq!((still.len(), still.chunks.len(), each(&still)), (2000, 2000_usize.div_ceil(CHUNK), 0));
        assert_eq!(each(&Values::from(bursts())), 4);
        // Zero and minus zero are told apart, as they went in.
        let zeros: Values = [0.0, -0.0].into_iter().collect();
        assert!(zeros[1].is_sign_negative());
    }
}
