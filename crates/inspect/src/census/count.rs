//! Puts strings into the counters as they are found.

use super::distinct::Distinct;
use super::hash::{self, Hash};
use super::sketch::{Occurrence, Size, Sketch};
use super::strings::{Encoding, decode, split_text, split_wide, whole};
use super::{Options, pattern};

/// Strings that are looked up together, so that their cache lines are fetched in parallel.
const BATCH: usize = 256;
/// Bits of non-ASCII bytes in a word.
const NOT_ASCII: u64 = 0x8080_8080_8080_8080;
/// The same of UTF-16.
const NOT_ASCII_WIDE: u64 = 0xff80_ff80_ff80_ff80;
/// Kinds of hashes: UTF-16 differs from equal bytes, and patterns from strings.
const BYTES: u64 = 0;
const WIDE: u64 = 1;
const PATTERN: u64 = 2;
/// Filter cells for each counter: 4 MiB with the usual 131,072 counters, one for each of four
/// million strings.
const CELLS_PER_COUNTER: usize = 32;
/// Patterns are fewer than strings.
const PATTERN_COUNTERS_SHARE: usize = 8;
pub(super) const PATTERN_BYTES_MAX: usize = 128;

/// Strings and their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StringSum {
    pub(super) strings: u64,
    pub(super) bytes: u64,
}

/// Classes of lengths by powers of two.
pub(super) const LENGTHS: usize = 32;

/// A string in the buffer.
#[derive(Debug, Clone, Copy)]
struct PendingString {
    hash: u64,
    start: u32,
    length: u32,
    encoding: Encoding,
}

/// The counters.
pub(super) struct Counter {
    chars_min: usize,
    pub(super) strings: Sketch,
    pub(super) patterns: Option<Sketch>,
    /// Addresses with a hash up to this are sampled for patterns.
    sample_max: u64,
    pub(super) distinct: Distinct,
    pub(super) sums: [[StringSum; LENGTHS]; Encoding::ALL.len()],
    batch: Vec<PendingString>,
    plain: Vec<u8>,
    pattern: Vec<u8>,
}

impl Counter {
    pub(super) fn new(options: &Options) -> Self {
        let size = Size {
            counters: options.counters,
            cells_per_counter: CELLS_PER_COUNTER,
            text_max: options.text_max,
            has_lengths: false,
        };
        let counters = options.counters / PATTERN_COUNTERS_SHARE;
        let share = options.patterns_one_in;
        Self {
            chars_min: options.min_chars,
            strings: Sketch::new(size),
            patterns: (share > 0).then(|| Sketch::new(Size { counters, has_lengths: true, ..size })),
            sample_max: u64::MAX / u64::from(share.max(1)),
            distinct: Distinct::new(),
            sums: Default::default(),
            batch: Vec::with_capacity(BATCH),
            plain: vec![0; PATTERN_BYTES_MAX],
            pattern: Vec::with_capacity(PATTERN_BYTES_MAX + hash::ROOM),
        }
    }

    /// Adds a run that may be text of one byte a character or UTF-8. `bytes` extend [`hash::ROOM`]
    /// beyond it.
    #[inline(always)]
    pub(super) fn text(&mut self, bytes: &[u8], base: u64, start: usize, end: usize) {
        let hash = hash::of(bytes, start, end, BYTES);
        if hash.bits & NOT_ASCII == 0 {
            self.push(bytes, base, start, end, hash, Encoding::Ascii);
        } else {
            self.mixed(bytes, base, start, end, hash);
        }
    }

    /// Adds a run that may be UTF-16.
    #[inline(always)]
    pub(super) fn wide(&mut self, bytes: &[u8], base: u64, start: usize, end: usize) {
        let hash = hash::of(bytes, start, end, WIDE);
        // Hashed words start at whole units: offsets and lengths are even.
        if hash.bits & NOT_ASCII_WIDE == 0 {
            self.push(bytes, base, start, end, hash, Encoding::Utf16);
        } else {
            self.mixed_wide(bytes, base, start, end);
        }
    }

    #[inline(never)]
    fn mixed(&mut self, bytes: &[u8], base: u64, start: usize, end: usize, hash: Hash) {
        let block = bytes.get(start..).and_then(|rest| rest.first_chunk());
        if let Some(found) = block.and_then(|block| whole(block, end - start, self.chars_min)) {
            if let Some(encoding) = found {
                self.push(bytes, base, start, end, hash, encoding);
            }
            return;
        }
        let Some(run) = bytes.get(start..end) else { return };
        split_text(run, self.chars_min, |range, encoding| {
            let (start, end) = (start + range.start, start + range.end);
            self.push(bytes, base, start, end, hash::of(bytes, start, end, BYTES), encoding);
        });
    }

    #[inline(never)]
    fn mixed_wide(&mut self, bytes: &[u8], base: u64, start: usize, end: usize) {
        let Some(run) = bytes.get(start..end) else { return };
        split_wide(run, self.chars_min, |range| {
            let (start, end) = (start + range.start, start + range.end);
            self.push(bytes, base, start, end, hash::of(bytes, start, end, WIDE), Encoding::Utf16);
        });
    }

    #[inline(always)]
    fn push(&mut self, bytes: &[u8], base: u64, start: usize, end: usize, hash: Hash, encoding: Encoding) {
        let length = end - start;
        let sum = &mut self.sums[encoding as usize][length.max(1).ilog2() as usize % LENGTHS];
        sum.strings += 1;
        sum.bytes += length as u64;
        self.distinct.add(hash.hash);
        self.batch.push(PendingString {
            hash: hash.hash,
            start: start as u32,
            length: length as u32,
            encoding,
        });
        if self.batch.len() == BATCH {
            self.flush(bytes, base);
        }
    }

    /// Counts the batch while its bytes are in the buffer.
    #[inline(never)]
    pub(super) fn flush(&mut self, bytes: &[u8], base: u64) {
        self.batch.iter().for_each(|item| self.strings.fetch(item.hash));
        let batch = std::mem::take(&mut self.batch);
        for item in &batch {
            let start = item.start as usize;
            let text = || bytes.get(start..start + item.length as usize).unwrap_or_default();
            let address = base.wrapping_add(u64::from(item.start));
            let PendingString { hash, length, encoding, .. } = *item;
            self.strings
                .add(Occurrence { hash, address, length, encoding }, |into| decode(text(), encoding, into));
            if self.patterns.is_some() && hash::of_number(address) <= self.sample_max {
                self.pattern(text(), address, encoding);
            }
        }
        self.batch = batch;
        self.batch.clear();
    }

    #[inline(never)]
    fn pattern(&mut self, text: &[u8], address: u64, encoding: Encoding) {
        let Some(patterns) = &mut self.patterns else { return };
        let plain = if encoding == Encoding::Ascii {
            &text[..text.len().min(PATTERN_BYTES_MAX)]
        } else {
            let length = decode(text, encoding, &mut self.plain);
            &self.plain[..length]
        };
        if !pattern::of(plain, &mut self.pattern) {
            return;
        }
        let length = self.pattern.len();
        self.pattern.extend([0; hash::ROOM]);
        let hash = hash::of(&self.pattern, 0, length, PATTERN).hash;
        let found = Occurrence { hash, address, length: text.len() as u32, encoding };
        patterns.add(found, |into| decode(&self.pattern[..length], Encoding::Utf8, into));
    }
}
