//! Chunks by size, with samples.

use std::collections::{HashMap, HashSet};

use super::Options;
use super::regions::Regions;
use super::result::{Count, OtherSizes, Sample, SizeClass};
use super::stream::{ALIGN, HEADER, Header};
use crate::memory::Memory;

/// Smaller sizes have their own slot: the dense part of what programs allocate.
const DENSE_BYTES: u64 = 64 << 10;
/// Distinct larger sizes that are counted. A heap has at most one for each 64 KiB.
const LARGE_MAX: usize = 64 << 10;
/// Reservoir of chunks per size.
pub(super) const SAMPLES_MAX: usize = 16;
/// Bytes of a chunk that are read for a sample.
const SAMPLE_BYTES: usize = 256;
/// Words of a sample.
const SAMPLE_WORDS: usize = 4;
/// Characters of a sample's text: the limit of what may be displayed.
const TEXT_CHARS_MAX: usize = 64;
/// Minimum length of a text: three printable bytes in a row occur by chance in every twentieth
/// word.
const TEXT_CHARS_MIN: usize = 4;

/// Counts of one size.
#[derive(Debug, Default, Clone)]
struct Tally {
    in_use: u64,
    free: u64,
    mmapped: u64,
    some: Vec<u64>,
}

/// Counts of all sizes.
pub(super) struct Sizes {
    dense: Vec<Tally>,
    large: HashMap<u64, Tally>,
    other: OtherSizes,
    samples: usize,
    random: u64,
}

impl Sizes {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            dense: vec![Tally::default(); (DENSE_BYTES / ALIGN) as usize],
            large: HashMap::new(),
            other: OtherSizes::default(),
            samples: options.samples.min(SAMPLES_MAX),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn tally(&mut self, size: u64) -> Option<&mut Tally> {
        if size < DENSE_BYTES {
            return self.dense.get_mut((size / ALIGN) as usize);
        }
        if self.large.len() >= LARGE_MAX && !self.large.contains_key(&size) {
            return None;
        }
        Some(self.large.entry(size).or_default())
    }

    /// Adds a chunk in use.
    pub(super) fn in_use(&mut self, size: u64, at: u64) {
        let (samples, random) = (self.samples, self.random);
        let Some(tally) = self.tally(size) else { return self.other.in_use.add(size) };
        tally.in_use += 1;
        if samples == 0 {
            return;
        }
        // Each chunk has the same chance to be kept (Vitter's algorithm R).
        if tally.some.len() < samples {
            tally.some.push(at);
        } else {
            let place = ((u128::from(random) * u128::from(tally.in_use)) >> 64) as usize;
            if let Some(kept) = tally.some.get_mut(place) {
                *kept = at;
            }
        }
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
    }

    /// Adds a free chunk.
    pub(super) fn free(&mut self, size: u64) {
        match self.tally(size) {
            Some(tally) => tally.free += 1,
            None => self.other.free.add(size),
        }
    }

    /// Adds a chunk with its own mapping.
    pub(super) fn mmapped(&mut self, size: u64) {
        match self.tally(size) {
            Some(tally) => tally.mmapped += 1,
            None => self.other.mmapped.add(size),
        }
    }

    /// Moves chunks from in use to free, because they were found in a free list. Returns how many.
    pub(super) fn freed(&mut self, size: u64, chunks: u64) -> u64 {
        let Some(tally) = self.tally(size) else { return 0 };
        let moved = chunks.min(tally.in_use);
        tally.in_use -= moved;
        tally.free += moved;
        moved
    }

    /// The list, the largest sums first, and the sum of the rest.
    pub(super) fn list<M: Memory + ?Sized>(
        self,
        memory: &M,
        regions: &Regions,
        cached: &HashSet<u64>,
        options: &Options,
    ) -> (Vec<SizeClass>, OtherSizes) {
        let dense = self.dense.into_iter().enumerate().map(|(i, tally)| (i as u64 * ALIGN, tally));
        let mut all: Vec<(u64, Tally)> = dense
            .chain(self.large)
            .filter(|(_, tally)| tally.in_use > 0 || tally.free > 0 || tally.mmapped > 0)
            .collect();
        let bytes =
            |size: u64, tally: &Tally| (tally.in_use + tally.free + tally.mmapped).saturating_mul(size);
        all.sort_by_key(|(size, tally)| (std::cmp::Reverse(bytes(*size, tally)), *size));
        let mut other = self.other;
        let count = |chunks: u64, size: u64| Count { chunks, bytes: chunks.saturating_mul(size) };
        for (size, tally) in all.iter().skip(options.sizes_max) {
            other.in_use.plus(count(tally.in_use, *size));
            other.free.plus(count(tally.free, *size));
            other.mmapped.plus(count(tally.mmapped, *size));
        }
        all.truncate(options.sizes_max);
        let mut with_samples = options.sampled_sizes;
        let list = all.into_iter().map(|(size, tally)| {
            let mut samples = Vec::new();
            if with_samples > 0 && !tally.some.is_empty() {
                with_samples -= 1;
                let is_held = |at: &u64| !cached.contains(at);
                let held = tally.some.iter().copied().filter(is_held);
                samples = held.filter_map(|at| sample(memory, regions, at, size)).collect();
            }
            SizeClass {
                chunk_bytes: size,
                in_use_chunks: tally.in_use,
                in_use_bytes: tally.in_use.saturating_mul(size),
                free_chunks: tally.free,
                free_bytes: tally.free.saturating_mul(size),
                mmapped_chunks: tally.mmapped,
                samples,
            }
        });
        (list.collect(), other)
    }
}

/// The beginning of a chunk's content, if it is still in use.
fn sample<M: Memory + ?Sized>(memory: &M, regions: &Regions, at: u64, size: u64) -> Option<Sample> {
    let header = |at: u64| {
        let mut bytes = [0; HEADER as usize];
        regions.is_resident(at).then(|| memory.exact(at, &mut bytes))??;
        Some(Header::of(bytes))
    };
    let is_same = header(at)?.size() == size && header(at.checked_add(size)?)?.is_prev_in_use();
    if !is_same {
        return None;
    }
    let address = at.checked_add(HEADER)?;
    // The last word of a chunk's content is in the next header.
    let mut bytes = [0; SAMPLE_BYTES];
    let count = SAMPLE_BYTES.min(size.checked_sub(8)? as usize);
    let bytes = bytes.get_mut(..count)?;
    if !regions.is_resident(address) || !regions.is_resident(address.checked_add(count as u64 - 1)?) {
        return None;
    }
    memory.exact(address, bytes)?;
    let words = bytes.as_chunks::<8>().0.iter().take(SAMPLE_WORDS).map(|word| u64::from_le_bytes(*word));
    Some(Sample { address, words: words.collect(), text: text(bytes) })
}

/// The first run of printable characters.
fn text(bytes: &[u8]) -> Option<String> {
    let all = String::from_utf8_lossy(bytes);
    let is_printable = |c: char| !c.is_control() && c != char::REPLACEMENT_CHARACTER;
    let mut runs = all.split(|c| !is_printable(c));
    let run = runs.find(|run| run.chars().nth(TEXT_CHARS_MIN - 1).is_some())?;
    Some(run.chars().take(TEXT_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_short_and_printable() {
        assert_eq!(text(b"\x01\x02abc\0GET /index\x01zzzz"), Some("GET /index".to_owned()));
        assert_eq!(text("\0\0grün und blau\0".as_bytes()), Some("grün und blau".to_owned()));
        assert_eq!(text(b"\0\x01abc\xff\xfe\0"), None);
        assert_eq!(text(&[b'x'; 300]).unwrap().len(), TEXT_CHARS_MAX);
        assert_eq!(text(b""), None);
    }
}
