//! The result of the counters, for display and saving.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::count::{Counter, LENGTHS, StringSum};
use super::groups::{self, Count};
use super::sketch::CountedString;
use super::strings::Encoding;
use super::{Census, Options};

/// A count is listed if its error is at most a tenth: then its first digit is right.
const CERTAIN: u64 = 10;
const GROUPS_MAX: usize = 100;
const MEMBERS_MAX: usize = 16;
/// Strings with the highest counts, which are searched for groups.
const GROUPED_MAX: usize = 10_000;
const PATTERNS_MAX: usize = 200;
/// Standard deviations of 99 % certainty.
const DEVIATIONS: f64 = 2.58;

/// A repeated string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its id on every machine: the hash of its bytes as 16 hexadecimal digits.
    pub id: String,
    /// How it begins; empty if no texts are kept.
    pub text: String,
    /// Whether it is longer than that.
    pub is_cut: bool,
    /// How it is kept in memory.
    pub encoding: Encoding,
    /// Its length. Strings over 32 KiB are counted in pieces.
    pub length_bytes: u64,
    /// How many copies there are, at most.
    pub count: u64,
    /// The count may be too large by this.
    pub error: u64,
    /// Bytes of all copies, without overhead of the allocator.
    pub bytes: u64,
    /// Addresses of up to three copies: the first and later ones.
    pub addresses: Vec<u64>,
}

/// Strings with the same count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// How often it occurs.
    pub count: u64,
    /// Strings of the group.
    pub strings: u64,
    /// Bytes of all copies.
    pub bytes: u64,
    /// The probability of a coincidence.
    pub chance: f64,
    /// Up to sixteen strings, the largest in bytes first.
    pub members: Vec<Member>,
}

/// A string of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id.
    pub id: String,
    /// How it begins; empty if no texts are kept.
    pub text: String,
    /// How it is kept in memory.
    pub encoding: Encoding,
    /// How many copies there are, at most.
    pub count: u64,
}

/// Strings that differ in numbers only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// Its id on every machine.
    pub id: String,
    /// The common text of the first 128 bytes, `#` for each number; empty without texts.
    pub text: String,
    /// Sampled strings with this pattern, at most.
    pub sampled: u64,
    /// Estimated count.
    pub count: u64,
    /// Error of the count in either direction, with 99 % certainty.
    pub count_error: u64,
    /// Estimated bytes.
    pub bytes: u64,
    /// Addresses of some of them.
    pub addresses: Vec<u64>,
}

/// Strings of a length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Length {
    /// At least this length, and less than twice as long.
    pub from_bytes: u64,
    /// How many there are, equal ones counted each time.
    pub strings: u64,
    /// What they take.
    pub bytes: u64,
}

/// Strings of an encoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The encoding.
    pub encoding: Encoding,
    /// How many there are, equal ones counted each time.
    pub strings: u64,
    /// What they take.
    pub bytes: u64,
}

fn id(hash: u64) -> String {
    format!("{hash:016x}")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn places(addresses: &[u64]) -> Vec<u64> {
    addresses.iter().copied().filter(|address| *address != 0).collect()
}

/// Whether the kept text is shorter than the string.
fn is_cut(counted: &CountedString) -> bool {
    let of_length = match counted.encoding {
        Encoding::Ascii | Encoding::Utf8 => counted.text.len() as u64,
        Encoding::Latin1 => text(counted.text).chars().count() as u64,
        Encoding::Utf16 => 2 * text(counted.text).encode_utf16().count() as u64,
    };
    of_length < counted.length
}

fn entry(counted: &CountedString) -> Entry {
    Entry {
        id: id(counted.hash),
        text: text(counted.text),
        is_cut: is_cut(counted),
        encoding: counted.encoding,
        length_bytes: counted.length,
        count: counted.count,
        error: counted.error,
        bytes: counted.count * counted.length,
        addresses: places(&counted.addresses),
    }
}

/// Everything but the counts of pages.
pub(super) fn make(counter: &Counter, options: &Options) -> Census {
    let mut certain = Vec::new();
    let mut uncertain = 0;
    for counted in counter.strings.counted().filter(|counted| counted.count - counted.error >= 2) {
        if counted.error * CERTAIN <= counted.count {
            certain.push(counted);
        } else {
            uncertain += 1;
        }
    }
    let repeated_bytes = certain.iter().map(|counted| counted.count * counted.length).sum();
    let repeated = certain.len() as u64;
    certain.sort_by_key(|counted| (Reverse(counted.count), counted.hash));
    let groups = make_groups(&certain[..certain.len().min(GROUPED_MAX)]);
    certain.sort_by_key(|counted| (Reverse(counted.count * counted.length), counted.hash));
    certain.truncate(options.entries_max);
    let all = counter.sums.iter().flatten();
    Census {
        min_chars: options.min_chars as u64,
        strings: all.clone().map(|sum| sum.strings).sum(),
        string_bytes: all.map(|sum| sum.bytes).sum(),
        distinct_estimate: counter.distinct.estimate(),
        counters: counter.strings.counters() as u64,
        error_bound: counter.strings.bound(),
        uncertain,
        repeated,
        repeated_bytes,
        entries: certain.iter().map(entry).collect(),
        groups,
        patterns: make_patterns(counter, options),
        patterns_one_in: u64::from(options.patterns_one_in),
        by_length: by_length(&counter.sums),
        by_encoding: by_encoding(&counter.sums),
        ..Census::default()
    }
}

fn make_groups(certain: &[CountedString]) -> Vec<Group> {
    let counts: Vec<Count> =
        certain.iter().map(|counted| Count { count: counted.count, error: counted.error }).collect();
    let mut groups = Vec::new();
    for found in groups::find(&counts) {
        let mut members: Vec<&CountedString> = certain[found.start..found.end].iter().collect();
        let bytes = members.iter().map(|counted| counted.count * counted.length).sum();
        members.sort_by_key(|counted| (Reverse(counted.count * counted.length), counted.hash));
        let member = |counted: &&CountedString| Member {
            id: id(counted.hash),
            text: text(counted.text),
            encoding: counted.encoding,
            count: counted.count,
        };
        groups.push(Group {
            count: certain[found.start].count,
            strings: members.len() as u64,
            bytes,
            chance: found.chance,
            members: members.iter().take(MEMBERS_MAX).map(member).collect(),
        });
    }
    groups.sort_by_key(|group| Reverse(group.bytes));
    groups.truncate(GROUPS_MAX);
    groups
}

fn make_patterns(counter: &Counter, options: &Options) -> Vec<Pattern> {
    let Some(patterns) = &counter.patterns else { return Vec::new() };
    let one_in = u64::from(options.patterns_one_in);
    let is_certain = |counted: &CountedString| {
        counted.count - counted.error >= 2 && counted.error * CERTAIN <= counted.count
    };
    let mut found: Vec<CountedString> = patterns.counted().filter(is_certain).collect();
    found.sort_by_key(|counted| (Reverse(counted.bytes), counted.hash));
    found.truncate(PATTERNS_MAX);
    let pattern = |counted: CountedString| {
        // Strings were sampled independently.
        let deviation = one_in as f64 * (counted.count as f64 * (1.0 - 1.0 / one_in as f64)).sqrt();
        Pattern {
            id: id(counted.hash),
            text: text(counted.text),
            sampled: counted.count,
            count: counted.count * one_in,
            count_error: counted.error * one_in + (DEVIATIONS * deviation).ceil() as u64,
            bytes: counted.bytes * one_in,
            addresses: places(&counted.addresses),
        }
    };
    found.into_iter().map(pattern).collect()
}

fn by_length(sums: &[[StringSum; LENGTHS]]) -> Vec<Length> {
    let of_length = |i: usize| Length {
        from_bytes: 1 << i,
        strings: sums.iter().map(|sums| sums[i].strings).sum(),
        bytes: sums.iter().map(|sums| sums[i].bytes).sum(),
    };
    (0..LENGTHS).map(of_length).filter(|length| length.strings > 0).collect()
}

fn by_encoding(sums: &[[StringSum; LENGTHS]]) -> Vec<Share> {
    let of_encoding = |(encoding, sums): (Encoding, &[StringSum; LENGTHS])| Share {
        encoding,
        strings: sums.iter().map(|sum| sum.strings).sum(),
        bytes: sums.iter().map(|sum| sum.bytes).sum(),
    };
    Encoding::ALL.into_iter().zip(sums).map(of_encoding).filter(|share| share.strings > 0).collect()
}
