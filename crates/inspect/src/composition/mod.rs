//! What the memory of a process is made of: its mappings by kind and file, and their resident
//! sizes.
//!
//! `/proc/PID/smaps` has all of it, but holds the target's mmap lock while it walks the page tables
//! of a mapping: page faults of a process of tens of gigabytes wait. So it is read only when asked
//! for ([`measure_with_smaps`]), with an estimate of its cost. Otherwise the pages of
//! `/proc/PID/maps` are counted piece by piece ([`pages`]), with the lock held for a fraction of a
//! millisecond. Neither reads a page of the target.
//!
//! Sizes that only smaps has (dirty, shared in proportion) are `None` without it.

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

pub use kind::MappingKind;
pub use pages::CountMethod;
pub use status::ProcessTotals;

use crate::error::Error;
use crate::memory::Memory;
use crate::target::Target;
use kind::Classifier;
use mitra_parse::maps::{Access, Mapping};
use pages::{PageCounter, PageCounts};

/// Groups with a name. Programs map some hundred files; further ones are added up under their kind.
pub(crate) const PARTS_MAX: usize = 1024;

/// How memory is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Largest mappings to list.
    pub biggest: usize,
    /// Time limit of counting; other mappings count as uncounted.
    pub time_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        // Ten seconds suffice for hundreds of gigabytes in small pages.
        Self { biggest: 20, time_max: Duration::from_secs(10) }
    }
}

/// Bytes of one mapping or of several. `None` if not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySizes {
    /// Addresses.
    pub virtual_bytes: u64,
    /// Resident.
    pub resident_bytes: Option<u64>,
    /// Resident without a file: the process wrote them.
    pub anonymous_bytes: Option<u64>,
    /// In swap.
    pub swapped_bytes: Option<u64>,
    /// Resident in huge pages.
    pub huge_bytes: Option<u64>,
    /// Private and dirty, of smaps only.
    pub private_dirty_bytes: Option<u64>,
    /// Resident, shared pages divided by their users, of smaps only.
    pub pss_bytes: Option<u64>,
}

impl MemorySizes {
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

/// All mappings of one kind and, if there is one, of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingGroup {
    /// What kind of mapping it is.
    pub kind: MappingKind,
    /// The file, or the name that the program gave.
    pub name: Option<String>,
    /// Mappings.
    pub mappings: u64,
    /// Mappings that were not counted and are in none of the sizes.
    pub uncounted: u64,
    /// Their sizes together.
    pub sizes: MemorySizes,
}

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeMapping {
    /// First address.
    pub start: u64,
    /// Behind the last address.
    pub end: u64,
    /// As in `/proc/PID/maps`: `rw-p`.
    pub access: String,
    /// What kind of mapping it is.
    pub kind: MappingKind,
    /// The file that is mapped, or the name of the mapping.
    pub name: Option<String>,
    /// How large it is.
    pub sizes: MemorySizes,
}

/// The time that reading smaps would take, or took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SmapsTime {
    /// Estimated seconds for all of it; `None` without a count.
    pub estimated_s: Option<f64>,
    /// Estimated seconds for its largest mapping, while which page faults may wait.
    pub longest_s: Option<f64>,
    /// Seconds that it took, if it was read.
    pub took_s: Option<f64>,
}

/// The memory of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Composition {
    /// How pages were counted.
    pub how: CountMethod,
    /// Counters of the whole process.
    pub totals: ProcessTotals,
    /// How many mappings there are.
    pub mappings: u64,
    /// Groups by kind and name, the largest first.
    pub parts: Vec<MappingGroup>,
    /// The largest mappings.
    pub biggest: Vec<LargeMapping>,
    /// Mappings that were not counted, for lack of time or because they were gone.
    pub uncounted: u64,
    /// What reading `smaps` took.
    pub smaps: SmapsTime,
    /// Seconds that it took.
    pub wall_s: f64,
}

impl Composition {
    /// The sum of all mappings. Pages of hugetlbfs are excluded, as from the kernel's resident set.
    #[must_use]
    pub fn sum(&self) -> MemorySizes {
        let mut sum = MemorySizes::default();
        for part in self.parts.iter().filter(|part| part.kind != MappingKind::HugeTlb) {
            sum.add(&part.sizes);
        }
        sum
    }

    /// Groups by kind, the largest first.
    #[must_use]
    pub fn kinds(&self) -> Vec<MappingGroup> {
        let mut kinds: BTreeMap<MappingKind, MappingGroup> = BTreeMap::new();
        for part in &self.parts {
            let empty = || MappingGroup {
                kind: part.kind,
                name: None,
                mappings: 0,
                uncounted: 0,
                sizes: MemorySizes::default(),
            };
            let sum = kinds.entry(part.kind).or_insert_with(empty);
            sum.mappings = sum.mappings.saturating_add(part.mappings);
            sum.uncounted = sum.uncounted.saturating_add(part.uncounted);
            sum.sizes.add(&part.sizes);
        }
        let mut list: Vec<MappingGroup> = kinds.into_values().collect();
        list.sort_by_key(|part| Reverse(rank(&part.sizes)));
        list
    }

    /// Anonymous memory, resident and in swap: by the counters of the process (since 4.5),
    /// otherwise of the mappings.
    #[must_use]
    pub fn anonymous_bytes(&self) -> Option<u64> {
        let anonymous = self.totals.rss_anon_bytes.or_else(|| self.sum().anonymous_bytes)?;
        Some(anonymous.saturating_add(self.totals.swap_bytes.unwrap_or(0)))
    }
}

/// Larger ones come first.
fn rank(sizes: &MemorySizes) -> (u64, u64) {
    let held = sizes.resident_bytes.unwrap_or(0).saturating_add(sizes.swapped_bytes.unwrap_or(0));
    (held, sizes.virtual_bytes)
}

/// Counts pages without smaps: the target waits for less than a millisecond at a time.
///
/// # Errors
///
/// The process ended.
pub fn measure(target: &Target, options: &Options) -> Result<Composition, Error> {
    let began = Instant::now();
    let totals = status::read(target.pid())?;
    let mut counter =
        target.pagemap().map(|pagemap| PageCounter::new(target, pagemap, began + options.time_max));
    let mut kinds = Classifier::of(target);
    let mut sum = Summary::new(options.biggest);
    let mut longest = Duration::ZERO;
    for mapping in target.mappings() {
        let (kind, name) = kinds.classify(mapping);
        let before = Instant::now();
        let counted = counter.as_mut().and_then(|counter| counter.count(mapping.start, mapping.end));
        longest = longest.max(before.elapsed());
        sum.add(mapping, kind, name, counted.map_or_else(|| uncounted(mapping), |c| sizes(mapping, &c)));
    }
    let counting = counter.as_ref().map(|counter| counter.spent);
    target.check()?;
    let how = counter.map_or(CountMethod::Nothing, |counter| counter.how());
    let smaps = smaps::estimate(sum.mappings, counting, longest, how);
    Ok(sum.finish(how, totals, smaps, began.elapsed()))
}

/// Reads smaps. [`measure`] estimates how long that takes.
///
/// # Errors
///
/// The process ended, or its smaps cannot be read.
pub fn measure_with_smaps(target: &Target, options: &Options) -> Result<Composition, Error> {
    let began = Instant::now();
    let totals = status::read(target.pid())?;
    let mut kinds = Classifier::of(target);
    let mut sum = Summary::new(options.biggest);
    smaps::each(target.pid(), &mut |mapping, sizes| {
        let (kind, name) = kinds.classify(mapping);
        sum.add(mapping, kind, name, sizes);
    })?;
    target.check()?;
    let took = began.elapsed();
    let smaps = SmapsTime { estimated_s: None, longest_s: None, took_s: Some(took.as_secs_f64()) };
    Ok(sum.finish(CountMethod::Smaps, totals, smaps, took))
}

fn uncounted(mapping: &Mapping) -> MemorySizes {
    MemorySizes { virtual_bytes: mapping.bytes(), ..MemorySizes::default() }
}

fn sizes(mapping: &Mapping, counted: &PageCounts) -> MemorySizes {
    MemorySizes {
        virtual_bytes: mapping.bytes(),
        resident_bytes: Some(counted.resident),
        anonymous_bytes: Some(counted.anonymous),
        swapped_bytes: Some(counted.swapped),
        huge_bytes: counted.huge,
        ..MemorySizes::default()
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

/// Adds mappings up, with limits on what is kept.
struct Summary {
    parts: BTreeMap<(MappingKind, Option<String>), MappingGroup>,
    /// The largest mappings, the smallest of them on top.
    biggest: BinaryHeap<Reverse<BySize>>,
    biggest_max: usize,
    mappings: u64,
    uncounted: u64,
}

#[derive(PartialEq, Eq)]
struct BySize(LargeMapping);

impl Ord for BySize {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |piece: &LargeMapping| (rank(&piece.sizes), Reverse(piece.start));
        key(&self.0).cmp(&key(&other.0))
    }
}

impl PartialOrd for BySize {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Summary {
    fn new(biggest_max: usize) -> Self {
        Self { parts: BTreeMap::new(), biggest: BinaryHeap::new(), biggest_max, mappings: 0, uncounted: 0 }
    }

    fn add(&mut self, mapping: &Mapping, kind: MappingKind, name: Option<String>, sizes: MemorySizes) {
        let is_uncounted = u64::from(sizes.resident_bytes.is_none());
        self.mappings += 1;
        self.uncounted += is_uncounted;
        let is_full = self.parts.len() >= PARTS_MAX && !self.parts.contains_key(&(kind, name.clone()));
        let key = (kind, if is_full { None } else { name.clone() });
        let empty = || MappingGroup {
            kind,
            name: key.1.clone(),
            mappings: 0,
            uncounted: 0,
            sizes: MemorySizes::default(),
        };
        let part = self.parts.entry(key.clone()).or_insert_with(empty);
        part.mappings += 1;
        part.uncounted += is_uncounted;
        part.sizes.add(&sizes);
        let piece = LargeMapping {
            start: mapping.start,
            end: mapping.end,
            access: access(mapping.access),
            kind,
            name,
            sizes,
        };
        self.biggest.push(Reverse(BySize(piece)));
        if self.biggest.len() > self.biggest_max {
            self.biggest.pop();
        }
    }

    fn finish(
        self,
        how: CountMethod,
        totals: ProcessTotals,
        smaps: SmapsTime,
        took: Duration,
    ) -> Composition {
        let mut parts: Vec<MappingGroup> = self.parts.into_values().collect();
        parts.sort_by_key(|part| Reverse(rank(&part.sizes)));
        let mut biggest: Vec<BySize> = self.biggest.into_iter().map(|Reverse(ranked)| ranked).collect();
        biggest.sort_by(|a, b| b.cmp(a));
        Composition {
            how,
            totals,
            mappings: self.mappings,
            parts,
            biggest: biggest.into_iter().map(|BySize(piece)| piece).collect(),
            uncounted: self.uncounted,
            smaps,
            wall_s: took.as_secs_f64(),
        }
    }
}

/// For [`crate::fuzzing`]: maps, smaps, status and mounts.
pub(crate) fn fuzz(which: u8, text: &str) {
    let mut kinds = Classifier::new(mounts::Mounts::parse(text.as_bytes()), vec![0x7f00_0000_1000]);
    let mut classify = |mapping: &Mapping| {
        assert!(mapping.start < mapping.end, "{mapping:?}");
        std::hint::black_box((kinds.classify(mapping), mapping.module().len(), mapping.is_memory()));
    };
    match which {
        0 => mitra_parse::maps::mappings(text.as_bytes()).iter().for_each(classify),
        1 => _ = smaps::parse(&mut text.as_bytes(), &mut |mapping, _| classify(mapping)),
        _ => _ = status::parse(text),
    }
}
