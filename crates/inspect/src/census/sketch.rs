//! Counts frequent strings among very many in fixed memory: Filtered Space-Saving, in buckets.
//!
//! Space-Saving (Metwally, Agrawal, El Abbadi 2005) has k counters. A string without a counter
//! takes over the smallest one, whose value becomes its possible error. The filter (Homem, Carvalho
//! 2010) is a row of small cells: a string without a counter is counted in the cell of its hash,
//! and takes over a counter only when it might have occurred more often. Millions of unique strings
//! stay in the filter. Both are divided into buckets of [`WAYS`] counters by the hash, so that an
//! occurrence touches one bucket and one cell, whatever the size.
//!
//! **Bound.** For a bucket b let m(b) be its smallest counter, zero while it has free ones. It
//! never becomes smaller.
//!
//! 1. *A string without a counter occurred at most as often as its cell says, and at most m(b)
//!    times.* The cell goes up with each of its occurrences while it has no counter, and is set to
//!    at least the counter that is taken from it. If it stays without a counter after an
//!    occurrence, its cell was below m(b) before. A string that loses its counter had m(b), and
//!    m(b) only grows.
//! 2. *A counter is never too small, and too large by at most its error.* It begins with m(b) + 1
//!    and the error m(b), by 1.
//! 3. *The error is at most N(b) / [`WAYS`]*, N(b) being the occurrences of all strings of the
//!    bucket: each of them raises the sum of its counters by one or not at all, and m(b) is at most
//!    their mean. With K counters in all, N(b) is around N × WAYS / K, and so the error around N /
//!    K at worst; the filter usually makes it far smaller.
//!
//! **Collisions.** A counter is identified by its bucket and 32 more bits of the hash. Of n strings
//! that were never counted before, n × WAYS / 2³² are expected to collide with a counter: of fifty
//! million one in ten.
//!
//! Cells are bytes. A full one filters nothing.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

use super::strings::Encoding;

/// Counters of a bucket.
pub(super) const WAYS: usize = 8;
const BITS: [u32; WAYS] = [1, 2, 4, 8, 16, 32, 64, 128];
const FULL: u8 = u8::MAX;
/// Addresses that are kept of each string.
pub(super) const PLACES: usize = 3;

/// One bucket: one cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
struct Bucket {
    /// Other bits of the hashes; undefined if the count is zero.
    tags: [u32; WAYS],
    counts: [u32; WAYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

fn tag_of(hash: u64) -> u32 {
    (hash >> 16) as u32
}

/// Prefetches a cache line.
#[inline(always)]
fn fetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of every x86-64, and nothing is read or written.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: a reference may be read; a copy of one byte is made and dropped.
    std::hint::black_box(unsafe { std::ptr::from_ref(place).cast::<u8>().read_volatile() });
}

/// A huge page of x86-64.
const HUGE: usize = 2 << 20;

/// A table in huge pages if possible: it is accessed at random, and TLB misses take a tenth of the
/// time.
fn table<T: Clone>(value: T, count: usize) -> Vec<T> {
    let mut table = Vec::with_capacity(count);
    let room = table.spare_capacity_mut();
    let (start, bytes) = (room.as_mut_ptr(), size_of_val(room));
    let skipped = start.cast::<u8>().align_offset(rustix::param::page_size());
    if let Some(bytes) = bytes.checked_sub(skipped).filter(|bytes| *bytes >= HUGE) {
        // SAFETY: within the room of the table, from the beginning of a page; the advice does not
        // change what is in memory.
        let start = unsafe { start.cast::<u8>().add(skipped) };
        // SAFETY: as above. If the kernel ignores the advice, pages are small.
        _ = unsafe { rustix::mm::madvise(start.cast(), bytes, rustix::mm::Advice::LinuxHugepage) };
    }
    table.resize(count, value);
    table
}

/// Read only when a counter starts, and for the result.
#[derive(Debug, Clone, Copy)]
struct About {
    hash: u64,
    addresses: [u64; PLACES],
    error: u32,
    length: u32,
    text_bytes: u16,
    encoding: Encoding,
}

/// An occurrence of a string.
#[derive(Debug, Clone, Copy)]
pub(super) struct Occurrence {
    /// Never zero.
    pub(super) hash: u64,
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) encoding: Encoding,
}

/// A string and its count.
#[derive(Debug, Clone)]
pub(super) struct CountedString<'a> {
    pub(super) hash: u64,
    pub(super) count: u64,
    pub(super) error: u64,
    /// Of the first occurrence.
    pub(super) length: u64,
    /// Of all occurrences with a counter; zero if not summed.
    pub(super) bytes: u64,
    pub(super) encoding: Encoding,
    /// Addresses, zero for none.
    pub(super) addresses: [u64; PLACES],
    pub(super) text: &'a [u8],
}

/// The counters.
pub(super) struct Sketch {
    buckets: Vec<Bucket>,
    /// Shift of a hash to its bucket.
    shift: u32,
    cells: Vec<u8>,
    about: Vec<About>,
    /// Empty if all occurrences of a counter have one length.
    bytes: Vec<u64>,
    texts: Vec<u8>,
    text_max: usize,
}

/// The size of a sketch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Counters; the next power of two.
    pub(super) counters: usize,
    /// Cells of the filter for each counter: a power of two.
    pub(super) cells_per_counter: usize,
    /// Bytes of a text that are kept.
    pub(super) text_max: usize,
    /// Whether occurrences of one counter differ in length.
    pub(super) has_lengths: bool,
}

impl Sketch {
    pub(super) fn new(size: Size) -> Self {
        let buckets = (size.counters / WAYS).next_power_of_two().max(2);
        let counters = buckets * WAYS;
        let about = About {
            hash: 0,
            addresses: [0; PLACES],
            error: 0,
            length: 0,
            text_bytes: 0,
            encoding: Encoding::Ascii,
        };
        Self {
            buckets: table(Bucket::default(), buckets),
            shift: u64::BITS - buckets.trailing_zeros(),
            cells: table(0, counters * size.cells_per_counter.next_power_of_two()),
            about: table(about, counters),
            bytes: vec![0; if size.has_lengths { counters } else { 0 }],
            texts: table(0, counters * size.text_max),
            text_max: size.text_max,
        }
    }

    /// How many counters there are.
    pub(super) fn counters(&self) -> usize {
        self.about.len()
    }

    fn cell(&self, hash: u64) -> usize {
        hash as usize & (self.cells.len() - 1)
    }

    /// Prefetches for [`Self::add`]. The processor then waits once for many hashes.
    #[inline(always)]
    pub(super) fn fetch(&self, hash: u64) {
        fetch(&self.buckets[(hash >> self.shift) as usize]);
        fetch(&self.cells[self.cell(hash)]);
    }

    /// Counts an occurrence. `write` writes its text and returns the length.
    #[inline(always)]
    pub(super) fn add(&mut self, found: Occurrence, write: impl FnOnce(&mut [u8]) -> usize) {
        let number = (found.hash >> self.shift) as usize;
        let bucket = &mut self.buckets[number];
        let tag = tag_of(found.hash);
        // Selected constants instead of shifts, so that the compiler vectorises.
        let mut hits = 0_u32;
        for (own, bit) in bucket.tags.iter().zip(BITS) {
            hits |= if *own == tag { bit } else { 0 };
        }
        let way = hits.trailing_zeros() as usize & (WAYS - 1);
        let at = number * WAYS + way;
        if hits == 0 || bucket.counts[way] == 0 {
            let Some(at) = self.miss(number, found) else { return };
            self.about[at].text_bytes = write(&mut self.texts[at * self.text_max..][..self.text_max]) as u16;
            return;
        }
        let count = bucket.counts[way].saturating_add(1);
        bucket.counts[way] = count;
        if let Some(bytes) = self.bytes.get_mut(at) {
            *bytes += u64::from(found.length);
        }
        // Addresses spread over the census, without touching a cache line each time.
        if count.is_power_of_two() {
            let addresses = &mut self.about[at].addresses;
            addresses[1 + (count.trailing_zeros() as usize + 1) % (PLACES - 1)] = found.address;
        }
    }

    /// Counts a string without a counter. Returns the counter that it gets, if any.
    #[inline(never)]
    fn miss(&mut self, number: usize, found: Occurrence) -> Option<usize> {
        let own = self.cell(found.hash);
        let bucket = &mut self.buckets[number];
        let (mut way, mut min) = (0, u32::MAX);
        for (i, count) in bucket.counts.iter().enumerate() {
            if *count < min {
                (way, min) = (i, *count);
            }
        }
        let at = number * WAYS + way;
        if min > 0 {
            let cell = &mut self.cells[own];
            if *cell != FULL && u32::from(*cell) < min {
                *cell += 1;
                return None;
            }
            let before = self.about[at].hash as usize & (self.cells.len() - 1);
            let cell = &mut self.cells[before];
            *cell = (*cell).max(u8::try_from(min).unwrap_or(FULL));
        }
        bucket.tags[way] = tag_of(found.hash);
        bucket.counts[way] = min.saturating_add(1);
        let Occurrence { hash, address, length, encoding } = found;
        let addresses = [address, 0, 0];
        self.about[at] = About { hash, addresses, error: min, length, text_bytes: 0, encoding };
        if let Some(bytes) = self.bytes.get_mut(at) {
            *bytes = u64::from(length);
        }
        Some(at)
    }

    /// All strings with a counter.
    pub(super) fn counted(&self) -> impl Iterator<Item = CountedString<'_>> {
        let slots = self.buckets.iter().flat_map(|bucket| (0..WAYS).map(move |way| (bucket, way)));
        slots.enumerate().filter(|(_, (bucket, way))| bucket.counts[*way] > 0).map(|(at, (bucket, way))| {
            let about = &self.about[at];
            CountedString {
                hash: about.hash,
                count: u64::from(bucket.counts[way]),
                error: u64::from(about.error),
                length: u64::from(about.length),
                bytes: self.bytes.get(at).copied().unwrap_or(0),
                encoding: about.encoding,
                addresses: about.addresses,
                text: &self.texts[at * self.text_max..][..usize::from(about.text_bytes)],
            }
        })
    }

    /// Upper bound of the count of any string without a counter.
    pub(super) fn bound(&self) -> u64 {
        let smallest = |bucket: &Bucket| bucket.counts.iter().copied().min().unwrap_or(0);
        let buckets = self.buckets.iter().map(smallest).max().unwrap_or(0);
        // Strings that came before their bucket was full got a counter.
        let cells = self.cells.iter().copied().max().unwrap_or(0);
        if cells == FULL { u64::from(buckets) } else { u64::from(buckets.min(u32::from(cells))) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::hash::of_number;
    use super::*;

    fn sketch(counters: usize, cells_per_counter: usize) -> Sketch {
        Sketch::new(Size { counters, cells_per_counter, text_max: 8, has_lengths: true })
    }

    fn add(sketch: &mut Sketch, hash: u64) {
        let found = Occurrence { hash, address: 7, length: 10, encoding: Encoding::Ascii };
        sketch.add(found, |text| {
            text.copy_from_slice(&hash.to_le_bytes());
            8
        });
    }

    /// Counts against the truth; gives the largest error.
    fn check(sketch: &Sketch, stream: &[u64]) -> u64 {
        let mut truth: HashMap<u64, u64> = HashMap::new();
        for hash in stream {
            *truth.entry(*hash).or_default() += 1;
        }
        let mut in_bucket: HashMap<u64, u64> = HashMap::new();
        for hash in stream {
            *in_bucket.entry(hash >> sketch.shift).or_default() += 1;
        }
        let mut largest = 0;
        for counted in sketch.counted() {
            let real = truth.remove(&counted.hash).unwrap_or(0);
            assert!(counted.count - counted.error <= real && real <= counted.count, "{counted:?} is {real}");
            assert!(counted.error <= in_bucket[&(counted.hash >> sketch.shift)] / WAYS as u64);
            assert_eq!(counted.bytes, 10 * (counted.count - counted.error));
            assert_eq!(counted.text, counted.hash.to_le_bytes());
            largest = largest.max(counted.error);
        }
        let missing = truth.values().copied().max().unwrap_or(0);
        assert!(missing <= sketch.bound(), "{missing} <= {}", sketch.bound());
        largest
    }

    proptest! {
        #[test]
        fn the_bounds_hold_for_any_stream(
            stream in prop::collection::vec((0_u64..60).prop_map(|n| of_number(n * n / 40)), 0..3000),
            // One cell is next to no filter.
            cells in prop::sample::select(vec![8_usize, 1]),
        ) {
            let mut small = sketch(16, cells);
            for hash in &stream {
                add(&mut small, *hash);
            }
            check(&small, &stream);
        }

        #[test]
        fn they_hold_when_cells_are_full(
            stream in prop::collection::vec((0_u64..300).prop_map(of_number), 5000..9000),
        ) {
            let mut small = sketch(16, 1);
            for hash in &stream {
                add(&mut small, *hash);
            }
            check(&small, &stream);
        }
    }

    #[test]
    fn the_frequent_are_exact_among_a_million_that_occur_once() {
        let mut stream = Vec::new();
        for i in 0..1_000_000_u64 {
            stream.push(of_number(i + 1000));
            // From the beginning, and late.
            if i % 50 == 0 || i > 900_000 && i % 10 == 0 {
                stream.push(of_number(1 + u64::from(i > 900_000)));
            }
        }
        let mut sketch = sketch(4096, 64);
        for hash in &stream {
            add(&mut sketch, *hash);
        }
        // N / K is 250; the filter has a cell for every four strings.
        let largest = check(&sketch, &stream);
        assert!(largest < 20, "{largest}");
        let found: HashMap<u64, (u64, u64)> =
            sketch.counted().map(|c| (c.hash, (c.count, c.error))).collect();
        assert_eq!(found[&of_number(1)], (18_001, 0));
    }

    #[test]
    fn counts_follow_zipf() {
        // Of 20,000 different strings the n-th occurs 200,000 / n times, in mixed order.
        let mut stream = Vec::new();
        for n in 1..=20_000_u64 {
            for copy in 0..200_000 / n {
                stream.push((of_number(n << 32 | copy), of_number(n)));
            }
        }
        stream.sort_unstable();
        let stream: Vec<u64> = stream.into_iter().map(|(_, hash)| hash).collect();
        let mut sketch = sketch(1024, 64);
        for hash in &stream {
            add(&mut sketch, *hash);
        }
        check(&sketch, &stream);
        let found: HashMap<u64, (u64, u64)> =
            sketch.counted().map(|c| (c.hash, (c.count, c.error))).collect();
        for n in 1..=100 {
            let (count, error) = found[&of_number(n)];
            assert!(error * 20 <= count, "{n}: {count} with an error of {error}");
        }
    }
}
