//! A census of the strings in the memory of a process: which are there how often, and how much they hold.
//!
//! One pass over the resident pages, in a fixed amount of memory: at most 35 MiB, however large the process. Found are strings of ASCII,
//! UTF-8, Latin-1 among ASCII, and UTF-16 (see [`Encoding`]), whole wherever they lie. Equal ones are counted, by a hash of 64 bits
//! over all of their bytes. The count of a string is exact if its error is zero, else too large by at most that; how that is
//! known is in `sketch.rs`. A leak of millions of equal strings is exact among any number of others.
//!
//! Memory that changes meanwhile is counted as it is when the look comes by. A string that is freed keeps its bytes until somebody
//! writes over them, so what was freed is counted too.
//!
//! Strings that carry a number each occur once each. [`Census::patterns`] has what remains when the numbers are taken out, from
//! a part of the strings that is drawn by a hash of their address.

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

use crate::maps::Mapping;
use crate::memory::Memory;

/// Fewer characters than four occur by chance everywhere.
const CHARS_MIN: usize = 4;
/// More than anybody looks for.
const CHARS_MAX: usize = 4096;
/// Bytes of a text at most: what is shown of somebody's memory is short.
const TEXT_MAX: usize = 128;
/// Counters at least and at most; 2²⁰ take about 200 MiB.
const COUNTERS: Range<usize> = 1 << 10..1 << 20;
/// Entries at most.
const ENTRIES_MAX: usize = 100_000;

/// How to look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Characters of the shortest string, at least four.
    pub min_chars: usize,
    /// Bytes that are kept of the text of a string, at most 128. Zero keeps none: entries are then told apart by their ids.
    pub text_max: usize,
    /// Strings that are counted at the same time, as a power of two. Each takes about 130 bytes.
    pub counters: usize,
    /// The longest list of entries; those that hold most bytes are in it.
    pub entries_max: usize,
    /// One of so many strings is looked at for patterns; zero for none.
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

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Census {
    /// Addresses that were asked for, in bytes.
    pub bytes_mapped: u64,
    /// Of these, what was in memory.
    pub bytes_resident: u64,
    /// Of these, what was read.
    pub bytes_scanned: u64,
    /// What was in memory, and gone when it was to be read.
    pub bytes_unread: u64,
    /// The caller ended it early: what is here is of the first part only.
    pub is_stopped: bool,
    /// The process ended meanwhile, or began another program.
    pub has_ended: bool,
    /// Characters of the shortest string.
    pub min_chars: u64,
    /// Strings that were found, equal ones counted each time.
    pub strings: u64,
    /// The bytes of all of them, without what an allocator adds.
    pub string_bytes: u64,
    /// About how many different ones: with a standard error of 1.6 %.
    pub distinct_estimate: u64,
    /// Strings that are counted at the same time.
    pub counters: u64,
    /// No string that has no counter occurs more often than this.
    pub error_bound: u64,
    /// Strings that occur twice or more, whose count is too uncertain to be listed: the error is above a tenth of it.
    pub uncertain: u64,
    /// Strings that occur twice or more and are certain, of which `entries` has those that hold most bytes.
    pub repeated: u64,
    /// The bytes of all of these.
    pub repeated_bytes: u64,
    /// Strings that occur at least twice, those first that hold most bytes.
    pub entries: Vec<Entry>,
    /// Strings with counts that go together, those first that hold most bytes together.
    pub groups: Vec<Group>,
    /// Families of strings that differ in numbers, those first that hold most bytes.
    pub patterns: Vec<Pattern>,
    /// One of so many strings was looked at for patterns; zero if none was.
    pub patterns_one_in: u64,
    /// All strings by length.
    pub by_length: Vec<Length>,
    /// All strings by encoding.
    pub by_encoding: Vec<Share>,
}

impl Census {
    /// Where strings that leak lie: memory that the process filled itself and shares with nobody. Stacks are left out where the
    /// kernel names them; those of threads have no name on most systems and are small.
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

/// Counts the strings in some regions. `progress` hears how many of the addresses are done, and of how many, after each 128
/// KiB; the look ends when it says `false`.
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
    let (mut done, mut resident, mut goes_on) = (0, 0, true);
    for region in &regions {
        memory.resident(region.start, region.end, &mut |from, to| {
            let (from, to) = (from.max(region.start), to.min(region.end));
            if from >= to {
                return true;
            }
            resident += to - from;
            goes_on =
                scanner.stretch(memory, from, to, &mut |at| progress(done + (at - region.start), total));
            goes_on
        });
        goes_on &= memory.goes_on(0);
        if !goes_on {
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
        is_stopped: !goes_on,
        has_ended,
        ..report::make(&scanner.counter, &options)
    }
}

/// In order, and none twice.
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
