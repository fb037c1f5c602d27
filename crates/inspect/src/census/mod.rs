//! A census of the strings in the memory of a process: how often each occurs, and how many bytes it
//! takes.
//!
//! One pass over the resident pages in fixed memory: at most 35 MiB, however large the process. It
//! finds strings of ASCII, UTF-8, Latin-1 among ASCII, and UTF-16 (see [`Encoding`]), also across
//! pages. Equal strings are counted by a hash of 64 bits over all of their bytes. A count is exact
//! if its error is zero, else too large by at most that (see `sketch.rs`). A leak of millions of
//! equal strings is exact among any number of others.
//!
//! Memory that changes is counted as it is when it is read. A freed string keeps its bytes until
//! they are overwritten, so freed strings count too.
//!
//! Strings that contain a number each occur once. [`Census::patterns`] has what remains without the
//! numbers, of strings sampled by a hash of their address.

mod classify;
mod count;
mod distinct;
mod groups;
mod hash;
mod pattern;
mod report;
mod runs;
mod scan;
mod sketch;
mod strings;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use report::{Entry, Group, Length, Member, Pattern, Share};
use serde::{Deserialize, Serialize};
pub use strings::Encoding;

use crate::memory::Memory;
use mitra_parse::maps::Mapping;

/// Fewer than four characters occur by chance everywhere.
const CHARS_MIN: usize = 4;
const CHARS_MAX: usize = 4096;
/// Bytes of a text that are kept.
const TEXT_MAX: usize = 128;
/// Bounds of the counters; 2²⁰ take about 200 MiB.
const COUNTERS: Range<usize> = 1 << 10..1 << 20;
const ENTRIES_MAX: usize = 100_000;

/// Options of a census.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Characters of the shortest string, at least four.
    pub min_chars: usize,
    /// Bytes of a text that are kept, at most 128. With zero, entries are told apart by their ids.
    pub text_max: usize,
    /// Counters, a power of two. Each takes about 130 bytes.
    pub counters: usize,
    /// The longest list of entries, the largest ones.
    pub entries_max: usize,
    /// Sampling rate of patterns: one string in this many; zero for none.
    pub patterns_one_in: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { min_chars: 6, text_max: 64, counters: 1 << 17, entries_max: 1000, patterns_one_in: 16 }
    }
}

impl Options {
    fn bounded(&self) -> Self {
        Self {
            min_chars: self.min_chars.clamp(CHARS_MIN, CHARS_MAX),
            text_max: self.text_max.min(TEXT_MAX),
            counters: self.counters.clamp(COUNTERS.start, COUNTERS.end).next_power_of_two(),
            entries_max: self.entries_max.min(ENTRIES_MAX),
            patterns_one_in: self.patterns_one_in,
        }
    }
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Census {
    /// Bytes of the address ranges.
    pub bytes_mapped: u64,
    /// Of these, resident.
    pub bytes_resident: u64,
    /// Of these, read.
    pub bytes_scanned: u64,
    /// Resident, but gone when it was read.
    pub bytes_unread: u64,
    /// The caller ended it early: the result is partial.
    pub is_stopped: bool,
    /// The process ended, or executed another program.
    pub has_ended: bool,
    /// Characters of the shortest string.
    pub min_chars: u64,
    /// Strings, with repetitions.
    pub strings: u64,
    /// Their bytes, without overhead of the allocator.
    pub string_bytes: u64,
    /// Estimate of distinct strings, with a standard error of 1.6 %.
    pub distinct_estimate: u64,
    /// Counters.
    pub counters: u64,
    /// Upper bound of the count of any string without a counter.
    pub error_bound: u64,
    /// Repeated strings that are not listed because their error is above a tenth of the count.
    pub uncertain: u64,
    /// Repeated strings with a certain count. `entries` has the largest of them.
    pub repeated: u64,
    /// Their bytes.
    pub repeated_bytes: u64,
    /// Repeated strings, the largest in bytes first.
    pub entries: Vec<Entry>,
    /// Groups of strings with the same count, the largest in bytes first.
    pub groups: Vec<Group>,
    /// Families of strings that differ in numbers, the largest in bytes first.
    pub patterns: Vec<Pattern>,
    /// Sampling rate of patterns; zero for none.
    pub patterns_one_in: u64,
    /// All strings by length.
    pub by_length: Vec<Length>,
    /// All strings by encoding.
    pub by_encoding: Vec<Share>,
}

impl Census {
    /// Where leaked strings are: private memory that the process filled. Named stacks are left out;
    /// thread stacks have no name on most systems and are small.
    #[must_use]
    pub fn default_regions<M: Memory + ?Sized>(memory: &M) -> Vec<Range<u64>> {
        let is_heap = |mapping: &&Mapping| {
            let is_anonymous =
                mapping.path.is_empty() || mapping.path == "[heap]" || mapping.path.starts_with("[anon:");
            let is_stack = mapping.path.contains("stack");
            mapping.access.read && mapping.access.write && !mapping.access.shared && is_anonymous && !is_stack
        };
        memory.mappings().iter().filter(is_heap).map(|mapping| mapping.start..mapping.end).collect()
    }
}

/// Counts the strings in regions. `progress` gets the bytes done and in all after each 128 KiB, and
/// ends the census with `false`.
#[must_use]
pub fn take<M: Memory + ?Sized>(
    memory: &M,
    regions: &[Range<u64>],
    options: &Options,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Census {
    let options = options.bounded();
    let regions = joined(regions);
    let total: u64 = regions.iter().map(|region| region.end - region.start).sum();
    let mut scanner = scan::Scanner::new(&options);
    let (mut done, mut resident, mut should_continue) = (0, 0, true);
    for region in &regions {
        memory.resident(region.start, region.end, &mut |from, to| {
            let (from, to) = (from.max(region.start), to.min(region.end));
            if from >= to {
                return true;
            }
            resident += to - from;
            should_continue =
                scanner.stretch(memory, from, to, &mut |at| progress(done + (at - region.start), total));
            should_continue
        });
        should_continue &= memory.should_continue(0);
        if !should_continue {
            break;
        }
        done += region.end - region.start;
    }
    scanner.close();
    let has_ended = scanner.has_ended(memory);
    Census {
        bytes_mapped: total,
        bytes_resident: resident,
        bytes_scanned: scanner.scanned,
        bytes_unread: scanner.unread,
        is_stopped: !should_continue,
        has_ended,
        ..report::make(&scanner.counter, &options)
    }
}

/// Sorted and merged.
fn joined(regions: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> =
        regions.iter().filter(|region| region.start < region.end).cloned().collect();
    sorted.sort_by_key(|region| region.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for region in sorted {
        match joined.last_mut() {
            Some(last) if region.start <= last.end => last.end = last.end.max(region.end),
            _ => joined.push(region),
        }
    }
    joined
}
