//! What the memory of a process is made of: its mappings by kind and file, and how much of each is in memory.
//!
//! `/proc/PID/smaps` has all of it, but holds the lock of the target's mappings while it walks the page tables of each one: on a
//! process of tens of gigabytes its page faults wait. Therefore it is only read when asked for ([`with_smaps`]), and what it
//! would take is estimated before. Otherwise `/proc/PID/maps` says what is mapped, and its pages are counted piece by piece
//! ([`pages`]), with the lock held for a fraction of a millisecond at a time. No page of the target is read either way.
//!
//! What only smaps knows (dirty, shared in proportion) is `None` without it.

mod kind;
mod mounts;
mod pages;
mod smaps;
mod stacks;
mod status;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use kind::Kind;
pub use pages::How;
pub use status::Totals;

use crate::error::Error;
use crate::maps::{Access, Mapping};
use crate::memory::Memory;
use crate::target::Target;
use kind::Kinds;
use pages::{Counted, Counter};

/// Parts with a name of their own that are kept. Programs map some hundred files; the rest is added up under its kind.
pub(crate) const PARTS_MAX: usize = 1024;

/// How much a look may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// How many of the largest mappings are listed.
    pub biggest: usize,
    /// For how long pages are counted; mappings that were not reached are said to be uncounted.
    pub time_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        // Ten seconds are hundreds of gigabytes of small pages.
        Self { biggest: 20, time_max: Duration::from_secs(10) }
    }
}

/// Bytes of one mapping or of several. What was not measured is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Addresses.
    pub virtual_bytes: u64,
    /// Of these in memory.
    pub resident_bytes: Option<u64>,
    /// Of the resident ones those that belong to no file: the process wrote them.
    pub anonymous_bytes: Option<u64>,
    /// In swap.
    pub swapped_bytes: Option<u64>,
    /// Of the resident ones those that are mapped by huge pages.
    pub huge_bytes: Option<u64>,
    /// Written and nobody else's. Only smaps says.
    pub private_dirty_bytes: Option<u64>,
    /// The resident ones, shared ones divided by the number of users. Only smaps says.
    pub pss_bytes: Option<u64>,
}

impl Sizes {
    fn add(&mut self, other: &Self) {
        let sum = |a: &mut Option<u64>, b: Option<u64>| {
            if let Some(b) = b {
                *a = Some(a.unwrap_or(0).saturating_add(b));
            }
        };
        self.virtual_bytes = self.virtual_bytes.saturating_add(other.virtual_bytes);
        sum(&mut self.resident_bytes, other.resident_bytes);
        sum(&mut self.anonymous_bytes, other.anonymous_bytes);
        sum(&mut self.swapped_bytes, other.swapped_bytes);
        sum(&mut self.huge_bytes, other.huge_bytes);
        sum(&mut self.private_dirty_bytes, other.private_dirty_bytes);
        sum(&mut self.pss_bytes, other.pss_bytes);
    }
}

/// All mappings of one kind, and of one file where there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What they are.
    pub kind: Kind,
    /// The file, or the name that the program gave them; `None` where there is none.
    pub name: Option<String>,
    /// How many there are.
    pub mappings: u64,
    /// How many of them were not counted: their pages are in none of the sizes.
    pub uncounted: u64,
    /// What they hold together.
    pub sizes: Sizes,
}

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// As in `/proc/PID/maps`: `rw-p`.
    pub access: String,
    /// What it is.
    pub kind: Kind,
    /// The file or the name.
    pub name: Option<String>,
    /// What it holds.
    pub sizes: Sizes,
}

/// What smaps would take, or took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SmapsTime {
    /// Estimated seconds for all of it; `None` where nothing could be counted to estimate it by.
    pub estimated_s: Option<f64>,
    /// Estimated seconds for its largest mapping, while which page faults that change mappings wait.
    pub longest_s: Option<f64>,
    /// Seconds that it took, where it was read.
    pub took_s: Option<f64>,
}

/// What a process' memory is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Composition {
    /// How pages were counted.
    pub how: How,
    /// What the kernel says of the whole process.
    pub totals: Totals,
    /// How many mappings there are.
    pub mappings: u64,
    /// By kind and name, the largest first.
    pub parts: Vec<Part>,
    /// The largest mappings, the largest first.
    pub biggest: Vec<Piece>,
    /// Mappings that were not counted for lack of time, or because they were gone.
    pub uncounted: u64,
    /// What smaps would take.
    pub smaps: SmapsTime,
    /// Seconds that the look took.
    pub wall_s: f64,
}

impl Composition {
    /// What the mappings hold together; `None` where none was counted. Pages of hugetlbfs are not part of it, as they are no
    /// part of the kernel's resident set either.
    #[must_use]
    pub fn sum(&self) -> Sizes {
        let mut sum = Sizes::default();
        for part in self.parts.iter().filter(|part| part.kind != Kind::HugeTlb) {
            sum.add(&part.sizes);
        }
        sum
    }

    /// By kind alone, the largest first.
    #[must_use]
    pub fn kinds(&self) -> Vec<Part> {
        let mut kinds: BTreeMap<Kind, Part> = BTreeMap::new();
        for part in &self.parts {
            let empty =
                || Part { kind: part.kind, name: None, mappings: 0, uncounted: 0, sizes: Sizes::default() };
            let sum = kinds.entry(part.kind).or_insert_with(empty);
            sum.mappings = sum.mappings.saturating_add(part.mappings);
            sum.uncounted = sum.uncounted.saturating_add(part.uncounted);
            sum.sizes.add(&part.sizes);
        }
        let mut list: Vec<Part> = kinds.into_values().collect();
        list.sort_by_key(|part| Reverse(rank(&part.sizes)));
        list
    }

    /// The memory that the process made itself and still has: its anonymous pages, in memory and in swap. Of the totals where
    /// the kernel says so (since 4.5), otherwise of the mappings.
    #[must_use]
    pub fn anonymous_bytes(&self) -> Option<u64> {
        let anonymous = self.totals.rss_anon_bytes.or_else(|| self.sum().anonymous_bytes)?;
        Some(anonymous.saturating_add(self.totals.swap_bytes.unwrap_or(0)))
    }
}

/// What is larger is listed first.
fn rank(sizes: &Sizes) -> (u64, u64) {
    let held = sizes.resident_bytes.unwrap_or(0).saturating_add(sizes.swapped_bytes.unwrap_or(0));
    (held, sizes.virtual_bytes)
}

/// Looks without smaps: the target is held up for less than a millisecond at a time.
///
/// # Errors
///
/// The process ended.
pub fn look(target: &Target, options: &Options) -> Result<Composition, Error> {
    let began = Instant::now();
    let totals = status::read(target.pid())?;
    let mut counter = Counter::open(target, began + options.time_max);
    let mut kinds = Kinds::of(target);
    let mut sum = Sum::new(options.biggest);
    let mut longest = Duration::ZERO;
    for mapping in target.mappings() {
        let (kind, name) = kinds.tell(mapping);
        let before = Instant::now();
        let counted = counter.as_mut().and_then(|counter| counter.count(mapping.start, mapping.end));
        longest = longest.max(before.elapsed());
        sum.add(mapping, kind, name, counted.map_or_else(|| uncounted(mapping), |c| sizes(mapping, &c)));
    }
    let counting = counter.as_ref().map(|counter| counter.spent);
    target.check()?;
    let how = counter.map_or(How::Nothing, |counter| counter.how());
    let smaps = smaps::estimate(sum.mappings, counting, longest, how);
    Ok(sum.finish(how, totals, smaps, began.elapsed()))
}

/// Looks with smaps. [`look`] says before how long that takes.
///
/// # Errors
///
/// The process ended, or its smaps cannot be read.
pub fn with_smaps(target: &Target, options: &Options) -> Result<Composition, Error> {
    let began = Instant::now();
    let totals = status::read(target.pid())?;
    let mut kinds = Kinds::of(target);
    let mut sum = Sum::new(options.biggest);
    smaps::each(target.pid(), &mut |mapping, sizes| {
        let (kind, name) = kinds.tell(mapping);
        sum.add(mapping, kind, name, sizes);
    })?;
    target.check()?;
    let took = began.elapsed();
    let smaps = SmapsTime { estimated_s: None, longest_s: None, took_s: Some(took.as_secs_f64()) };
    Ok(sum.finish(How::Smaps, totals, smaps, took))
}

fn uncounted(mapping: &Mapping) -> Sizes {
    Sizes { virtual_bytes: mapping.bytes(), ..Sizes::default() }
}

fn sizes(mapping: &Mapping, counted: &Counted) -> Sizes {
    Sizes {
        virtual_bytes: mapping.bytes(),
        resident_bytes: Some(counted.resident),
        anonymous_bytes: Some(counted.anonymous),
        swapped_bytes: Some(counted.swapped),
        huge_bytes: counted.huge,
        ..Sizes::default()
    }
}

/// `rw-p`.
fn access(access: Access) -> String {
    let mut text = String::with_capacity(4);
    text.push(if access.read { 'r' } else { '-' });
    text.push(if access.write { 'w' } else { '-' });
    text.push(if access.execute { 'x' } else { '-' });
    text.push(if access.shared { 's' } else { 'p' });
    text
}

/// Mappings added up. However many there are, only so many parts and pieces are kept.
struct Sum {
    parts: BTreeMap<(Kind, Option<String>), Part>,
    /// The largest ones, of which the smallest is on top.
    biggest: BinaryHeap<Reverse<Ranked>>,
    biggest_max: usize,
    mappings: u64,
    uncounted: u64,
}

/// A mapping by its size.
#[derive(PartialEq, Eq)]
struct Ranked(Piece);

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |piece: &Piece| (rank(&piece.sizes), Reverse(piece.start));
        key(&self.0).cmp(&key(&other.0))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Sum {
    fn new(biggest_max: usize) -> Self {
        Self { parts: BTreeMap::new(), biggest: BinaryHeap::new(), biggest_max, mappings: 0, uncounted: 0 }
    }

    fn add(&mut self, mapping: &Mapping, kind: Kind, name: Option<String>, sizes: Sizes) {
        let is_uncounted = u64::from(sizes.resident_bytes.is_none());
        self.mappings += 1;
        self.uncounted += is_uncounted;
        let is_full = self.parts.len() >= PARTS_MAX && !self.parts.contains_key(&(kind, name.clone()));
        let key = (kind, if is_full { None } else { name.clone() });
        let empty = || Part { kind, name: key.1.clone(), mappings: 0, uncounted: 0, sizes: Sizes::default() };
        let part = self.parts.entry(key.clone()).or_insert_with(empty);
        part.mappings += 1;
        part.uncounted += is_uncounted;
        part.sizes.add(&sizes);
        let piece = Piece {
            start: mapping.start,
            end: mapping.end,
            access: access(mapping.access),
            kind,
            name,
            sizes,
        };
        self.biggest.push(Reverse(Ranked(piece)));
        if self.biggest.len() > self.biggest_max {
            self.biggest.pop();
        }
    }

    fn finish(self, how: How, totals: Totals, smaps: SmapsTime, took: Duration) -> Composition {
        let mut parts: Vec<Part> = self.parts.into_values().collect();
        parts.sort_by_key(|part| Reverse(rank(&part.sizes)));
        let mut biggest: Vec<Ranked> = self.biggest.into_iter().map(|Reverse(ranked)| ranked).collect();
        biggest.sort_by(|a, b| b.cmp(a));
        Composition {
            how,
            totals,
            mappings: self.mappings,
            parts,
            biggest: biggest.into_iter().map(|Ranked(piece)| piece).collect(),
            uncounted: self.uncounted,
            smaps,
            wall_s: took.as_secs_f64(),
        }
    }
}

/// For [`crate::fuzzing`]: maps, smaps, status and mounts.
pub(crate) fn fuzz(which: u8, text: &str) {
    let mut kinds = Kinds::new(mounts::Mounts::parse(text.as_bytes()), vec![0x7f00_0000_1000]);
    let mut tell = |mapping: &Mapping| {
        assert!(mapping.start < mapping.end, "{mapping:?}");
        std::hint::black_box((kinds.tell(mapping), mapping.module().len(), mapping.is_memory()));
    };
    match which {
        0 => crate::maps::parse_all(text).iter().for_each(tell),
        1 => _ = smaps::parse(&mut text.as_bytes(), &mut |mapping, _| tell(mapping)),
        _ => _ = status::parse(text),
    }
}
