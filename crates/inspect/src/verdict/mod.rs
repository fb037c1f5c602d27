//! Is it a leak, and what is the culprit? The verdict of several snapshots of a process.
//!
//! Growing resident memory may be a leak of native code, objects that the program keeps, free
//! memory that the allocator keeps, or a warm-up. Three questions tell them apart, in this order:
//!
//! 1. Does anonymous memory (resident and in swap) grow by more than allocators take at once?
//! 2. Does the growth level off while the process works ([`trend`])? Two snapshots cannot tell;
//!    recorded sizes between them may.
//! 3. What accounts for it: objects of the runtime, C chunks in use, or free chunks?
//!
//! One snapshot shows the composition of memory, never a leak.

mod culprit;
#[cfg(test)]
mod tests;
mod totals;
mod trend;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use culprit::Culprit;
pub use trend::{RecordedSize, Trend};

use mitra_model::growth::{LITTLE, MOST, NOISE_SHARE};
use mitra_model::words::{self, percent};

use crate::diff::{Diff, DiffRow, RowKind, per_hour};
use crate::malloc::fragmentation::{BYTES_ON_PURPOSE, SHARE_IN_BALANCE};
use crate::snapshot::Snapshot;
use totals::HeapTotals;
use trend::Point;

/// The kind of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// Native code does not free memory, outside of the runtime's heap.
    NativeLeak,
    /// Objects of the runtime accumulate.
    ManagedLeak,
    /// Native memory grows; whether it levels off is unknown.
    NativeGrowth,
    /// Objects of the runtime grow; whether they level off is unknown.
    ManagedGrowth,
    /// Freed memory that the allocator keeps.
    Fragmentation,
    /// It grew, and levels off while the process works.
    WarmUp,
    /// One kind of object grew to a count that stays while the process works.
    BoundedCache,
    /// It does not grow.
    NoGrowth,
    /// The data does not suffice.
    CannotTell,
}

impl VerdictKind {
    /// Its name.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            VerdictKind::NativeLeak => "native leak",
            VerdictKind::ManagedLeak => "leak of objects",
            VerdictKind::NativeGrowth => "native memory grows",
            VerdictKind::ManagedGrowth => "objects grow",
            VerdictKind::Fragmentation => "fragmentation",
            VerdictKind::WarmUp => "warm-up",
            VerdictKind::BoundedCache => "bounded cache",
            VerdictKind::NoGrowth => "no growth",
            VerdictKind::CannotTell => "cannot tell",
        }
    }

    /// Whether a leak is claimed.
    #[must_use]
    pub const fn is_leak(self) -> bool {
        matches!(self, VerdictKind::NativeLeak | VerdictKind::ManagedLeak)
    }
}

impl fmt::Display for VerdictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// The verdict of several snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Its kind.
    pub kind: VerdictKind,
    /// As sentences, with the numbers.
    pub statement: String,
    /// The culprit of the growth.
    pub culprit: Option<Culprit>,
    /// Rows as evidence, the weightiest first.
    pub evidence: Vec<DiffRow>,
    /// From 0 to 1.
    pub confidence: f64,
    /// Bytes per hour from the first snapshot to the last.
    pub bytes_per_hour: Option<f64>,
}

/// Smallest growth that counts. Allocators take memory from the kernel in pieces: 128 KiB and more
/// of the C heap (`M_TOP_PAD`), 1 MiB of Python's arenas, 2 MiB of huge pages, for each of some
/// arenas and threads.
const STEP_BYTES: u64 = 4 << 20;
/// Rows of evidence.
const EVIDENCE_MAX: usize = 12;
/// A count is unchanged if it moves by less than a hundredth.
const SAME: f64 = 0.01;

/// The verdict of snapshots in the order of their times, with recorded sizes between them.
#[must_use]
pub fn of(snapshots: &[Snapshot], recorded: &[RecordedSize]) -> Verdict {
    let (Some(first), Some(last)) = (snapshots.first(), snapshots.last()) else {
        return cannot_tell("there is no look");
    };
    if snapshots.len() < 2 {
        return one_snapshot(last);
    }
    let diff = Diff::between(first, last);
    if !snapshots.iter().all(|snapshot| snapshot.is_same_process(first)) {
        let mut verdict = cannot_tell(
            "the snapshots are of different processes: what differs is listed, and only snapshots of one process can tell whether it grows",
        );
        verdict.culprit = Culprit::of(&diff, None, last);
        verdict.evidence = evidence(&diff, verdict.culprit.as_ref());
        return verdict;
    }
    let verdict = of_one_process(snapshots, recorded, &diff);
    // A slow leak may follow a warm-up, and a new one may follow a standstill. The later half of
    // the snapshots shows it.
    if !verdict.kind.is_leak() && snapshots.len() >= 2 * SNAPSHOTS_OF_A_TREND {
        let later = &snapshots[snapshots.len() / 2..];
        let points: Vec<Point> =
            later.iter().filter_map(|snapshot| Point::of(snapshot, &HeapTotals::of(snapshot))).collect();
        let tail = of(later, &[]);
        if tail.kind.is_leak() && trend::should_continue(&points) {
            return tail;
        }
    }
    verdict
}

/// Minimum number of snapshots that can show levelling off.
const SNAPSHOTS_OF_A_TREND: usize = 3;

impl Verdict {
    fn new(kind: VerdictKind, statement: String, confidence: f64) -> Self {
        Self { kind, statement, culprit: None, evidence: Vec::new(), confidence, bytes_per_hour: None }
    }
}

fn bytes(bytes: u64) -> String {
    words::bytes(bytes as f64)
}

fn cannot_tell(why: &str) -> Verdict {
    Verdict::new(VerdictKind::CannotTell, why.to_owned(), 0.0)
}

fn one_snapshot(snapshot: &Snapshot) -> Verdict {
    let totals = HeapTotals::of(snapshot);
    let mut parts = Vec::new();
    if let Some(anonymous) = totals.anonymous {
        parts.push(format!("the process made {} itself", bytes(anonymous)));
    }
    if let Some((name, managed)) = totals.managed_name.as_ref().zip(totals.managed) {
        let share = totals.anonymous.filter(|a| *a > 0).map(|a| managed as f64 / a as f64);
        let share = share.map_or(String::new(), |share| format!(", {} of it", percent(share)));
        parts.push(format!("{name} accounts for {}{share}", bytes(managed)));
    }
    if let Some(in_use) = totals.c_in_use {
        parts.push(format!("the C heap has {} in use", bytes(in_use)));
    }
    if let Some(free) = totals.free.filter(|_| is_fragmented(&totals)) {
        parts.push(format!("{} are free inside of the allocators", bytes(free)));
    }
    parts.push("whether it grows a second look tells".to_owned());
    cannot_tell(&parts.join("; "))
}

fn is_fragmented(totals: &HeapTotals) -> bool {
    totals.free.zip(totals.anonymous).is_some_and(|(free, anonymous)| {
        free > BYTES_ON_PURPOSE && free as f64 > SHARE_IN_BALANCE * anonymous as f64
    })
}

fn of_one_process(snapshots: &[Snapshot], recorded: &[RecordedSize], diff: &Diff) -> Verdict {
    let totals: Vec<HeapTotals> = snapshots.iter().map(HeapTotals::of).collect();
    let (first, last) = (&totals[0], &totals[totals.len() - 1]);
    let Some((from, to)) = first.anonymous.zip(last.anonymous) else {
        return cannot_tell("how large its memory was both times is not known");
    };
    let growth = to as f64 - from as f64;
    let rate = diff.seconds.and_then(|seconds| per_hour(growth, seconds));
    let sizes = format!("{} to {}", bytes(from), bytes(to));
    let mut verdict = if growth < grown_from(from) {
        not_grown(&totals, &sizes, diff)
    } else if let Some(verdict) = freed(first, last, growth, &sizes) {
        verdict
    } else {
        grown(snapshots, recorded, diff, &totals, growth, &sizes)
    };
    verdict.bytes_per_hour = rate;
    if verdict.evidence.is_empty() {
        verdict.evidence = evidence(diff, verdict.culprit.as_ref());
    }
    verdict
}

/// The smallest growth that counts.
fn grown_from(from: u64) -> f64 {
    (STEP_BYTES as f64).max(NOISE_SHARE * from as f64)
}

fn not_grown(totals: &[HeapTotals], sizes: &str, diff: &Diff) -> Verdict {
    let last = &totals[totals.len() - 1];
    let used =
        totals.iter().filter(|totals| totals.is_alike(last)).filter_map(|totals| totals.in_use()).max();
    if is_fragmented(last) {
        let (free, in_use) = (last.free.unwrap_or(0), last.in_use());
        let fell = used.zip(in_use).filter(|(most, now)| *now as f64 <= 0.75 * *most as f64);
        let fell = fell.map_or(String::new(), |(most, now)| {
            format!("; in use were {}, and are {}", bytes(most), bytes(now))
        });
        return Verdict::new(
            VerdictKind::Fragmentation,
            format!(
                "its own memory went from {sizes} and does not grow; {} of it are free inside of the allocators, which keep it{fell}",
                bytes(free)
            ),
            0.8,
        );
    }
    Verdict::new(
        VerdictKind::NoGrowth,
        format!(
            "its own memory went from {sizes}: less than allocators take at once, or than work moves it by{}",
            elsewhere(diff)
        ),
        if totals.len() >= SNAPSHOTS_OF_A_TREND { 0.8 } else { 0.6 },
    )
}

/// Growth of shared memory and files.
fn elsewhere(diff: &Diff) -> String {
    let grew = ["resident, shared memory", "resident, of files"].into_iter().filter_map(|name| {
        let row = diff.row(RowKind::Total, name)?;
        let growth = u64::try_from(row.growth_bytes?).ok().filter(|growth| *growth >= STEP_BYTES)?;
        Some(format!(
            "; {} grew by {}, which is no heap",
            name.trim_start_matches("resident, "),
            bytes(growth)
        ))
    });
    grew.collect()
}

/// The verdict if the growth is free memory.
fn freed(first: &HeapTotals, last: &HeapTotals, growth: f64, sizes: &str) -> Option<Verdict> {
    let more_free = last.free? as f64 - first.free? as f64;
    let more_used = last.in_use()? as f64 - first.in_use()? as f64;
    if !first.is_alike(last) || more_free < MOST * growth || more_used > LITTLE * growth {
        return None;
    }
    Some(Verdict::new(
        VerdictKind::Fragmentation,
        format!(
            "its own memory grew from {sizes}, but what is in use went from {} to {}; {} are free inside of the allocators, which keep them",
            bytes(first.in_use()?),
            bytes(last.in_use()?),
            bytes(last.free?)
        ),
        0.85,
    ))
}

fn grown(
    snapshots: &[Snapshot],
    recorded: &[RecordedSize],
    diff: &Diff,
    totals: &[HeapTotals],
    growth: f64,
    sizes: &str,
) -> Verdict {
    let (first, last) = (&totals[0], &totals[totals.len() - 1]);
    let points: Vec<Point> =
        snapshots.iter().zip(totals).filter_map(|(snapshot, totals)| Point::of(snapshot, totals)).collect();
    let trend = trend::of(&points, recorded);
    let steps = snapshots.len() >= SNAPSHOTS_OF_A_TREND || recorded.len() >= trend::RECORDED_MIN;
    let mut said = vec![format!("its own memory grew from {sizes}")];
    if let Trend::LevelsOff { last_share } = trend {
        return levelled(snapshots, diff, &mut said, last_share);
    }
    let managed = managed_growth(first, last).map(|grown| grown / growth);
    let used = first.c_in_use.zip(last.c_in_use).map(|(from, to)| (to as f64 - from as f64) / growth);
    let name = last.managed_name.as_deref().unwrap_or("the runtime");
    let share = |share: f64| percent(share.clamp(0.0, 1.0));
    let mut is_managed = None;
    match managed {
        Some(part) if part >= MOST && !first.managed_is_least => {
            is_managed = Some(true);
            said.push(format!("objects that {name} knows are {} of the growth", share(part)));
        }
        Some(part) if part <= LITTLE && !last.managed_is_least => {
            is_managed = is_beside(first, last, growth).then_some(false);
            said.push(format!("{name} knows {} of the growth", share(part)));
            if is_managed.is_none() {
                said.push("it may have touched more of the heap that it has".to_owned());
            }
        }
        Some(_) if first.managed_is_least || last.managed_is_least => {
            said.push(format!(
                "not all objects of {name} were seen, so how much of it is theirs is not known"
            ));
        }
        Some(part) => {
            said.push(format!("{name} knows {} of the growth: objects and native memory", share(part)))
        }
        // Without a runtime the heap is the program's own.
        None if last.managed_name.is_none() => is_managed = Some(false),
        // Runtimes other than Python keep their objects outside of the C heap.
        None if used.is_some_and(|part| part >= MOST) && !name.contains("Python") => {
            is_managed = Some(false);
            said.push(format!("it is in the C heap, where {name} keeps no objects"));
        }
        None => said.push(format!("how much {name} knows of it is not known")),
    }
    match used {
        Some(part) if part > LITTLE => {
            said.push(format!("chunks in use in the C heap are {} of it", share(part)))
        }
        // Pools of a library, memory of threads.
        Some(part) if is_managed == Some(false) => {
            let most = diff.of(RowKind::Memory).find(|row| row.growth_bytes.unwrap_or(0) > 0);
            let most = most.map_or(String::new(), |row| format!("; of the mappings most grew: {}", row.name));
            said.push(format!("chunks in use in the C heap are only {} of it{most}", share(part)));
        }
        _ => {}
    }
    let mut culprit = Culprit::of(diff, is_managed, snapshots.last().unwrap_or(&snapshots[0]));
    // Native memory that objects own: both counts grew alike.
    if is_managed == Some(false)
        && let Some(owner) = culprit.as_ref().and_then(|culprit| culprit.owner.clone())
    {
        is_managed = Some(true);
        said.push(format!("as many more {owner} objects are there as native chunks: they hold them"));
        if let Some(culprit) = &mut culprit {
            culprit.what = RowKind::Type;
        }
    }
    if let Some(culprit) = &culprit {
        said.push(culprit.statement.clone());
    }
    let (kind, sure) = match (is_managed, trend) {
        (None, _) => (VerdictKind::CannotTell, 0.3),
        // Garbage accumulates until it is collected.
        (Some(true), Trend::Steady) if last.has_garbage => (VerdictKind::ManagedGrowth, 0.5),
        (Some(true), Trend::Steady) => (VerdictKind::ManagedLeak, 0.7),
        (Some(false), Trend::Steady) => (VerdictKind::NativeLeak, 0.7),
        (Some(true), _) => (VerdictKind::ManagedGrowth, 0.5),
        (Some(false), _) => (VerdictKind::NativeGrowth, 0.5),
    };
    match trend {
        Trend::Steady if steps => said.push("it does not level off".to_owned()),
        Trend::Steady => said.push("it has grown at such a pace since the process began".to_owned()),
        Trend::Idle => {
            said.push("the process hardly worked meanwhile, so whether it levels off is not known".to_owned())
        }
        _ => said.push("whether it levels off a later look tells".to_owned()),
    }
    let known = f64::from(u8::from(culprit.is_some())) * 0.15 + f64::from(u8::from(used.is_some())) * 0.1;
    Verdict {
        kind,
        statement: said.join("; "),
        culprit,
        evidence: Vec::new(),
        confidence: if kind == VerdictKind::CannotTell { sure } else { f64::min(sure + known, 0.95) },
        bytes_per_hour: None,
    }
}

/// Growth of the runtime's objects. Numbers from different sources are not comparable.
fn managed_growth(first: &HeapTotals, last: &HeapTotals) -> Option<f64> {
    let (from, to) = first.managed.zip(last.managed)?;
    (first.managed_source == last.managed_source).then_some(to as f64 - from as f64)
}

/// Whether most of a growth is outside of the runtime's heap, which may be reserved long before it
/// is touched. At first everything except the objects may have been outside; at the end at least
/// the part that exceeds the heap's room.
fn is_beside(first: &HeapTotals, last: &HeapTotals, growth: f64) -> bool {
    let Some(room) = last.room else { return true };
    let outside = last.anonymous.unwrap_or(0).saturating_sub(room) as f64;
    let before = first.anonymous.unwrap_or(0).saturating_sub(first.managed.unwrap_or(0)) as f64;
    let chunks = first.c_in_use.zip(last.c_in_use).map_or(0.0, |(from, to)| to as f64 - from as f64);
    outside - before >= MOST * growth || chunks >= MOST * growth
}

/// The verdict if it grew, and levelled off while the process keeps working.
fn levelled(snapshots: &[Snapshot], diff: &Diff, said: &mut Vec<String>, last_share: f64) -> Verdict {
    said.push(format!(
        "in the last third it grew at {} of its mean pace while the process worked on",
        percent(last_share.max(0.0))
    ));
    let lately = lately(snapshots);
    let still = lately.filter(|(from, growth)| *growth >= grown_from(*from)).map(|(_, growth)| growth);
    if let Some(growth) = still {
        said.push(format!(
            "it still grew by {} since the snapshot before the last; later ones tell",
            bytes(growth as u64)
        ));
    }
    let stays = snapshots.len().checked_sub(2).and_then(|i| same_now(diff, &snapshots[i], &snapshots[i + 1]));
    let (kind, culprit) = match stays {
        Some(row) => {
            let count = row.after.and_then(|after| after.count).unwrap_or(0);
            said.push(format!("{} grew to {count} and stays there", Culprit::name_of(row)));
            (VerdictKind::BoundedCache, Some(Culprit::of_row(row)))
        }
        None => (VerdictKind::WarmUp, None),
    };
    Verdict {
        kind,
        statement: said.join("; "),
        culprit,
        evidence: Vec::new(),
        confidence: if still.is_some() { 0.5 } else { 0.75 },
        bytes_per_hour: None,
    }
}

/// The size at the second last snapshot, and the growth since.
fn lately(snapshots: &[Snapshot]) -> Option<(u64, f64)> {
    let [.., before, last] = snapshots else { return None };
    let (from, to) = HeapTotals::of(before).anonymous.zip(HeapTotals::of(last).anonymous)?;
    Some((from, to as f64 - from as f64))
}

/// Whether a snapshot has the complete list of a kind of pieces.
fn has_list(snapshot: &Snapshot, what: RowKind) -> bool {
    match what {
        RowKind::Type => snapshot.python.as_ref().is_some_and(|heap| !heap.is_stopped),
        RowKind::Chunk => snapshot.c_heap.as_ref().is_some_and(|heap| !heap.is_stopped),
        RowKind::String | RowKind::Pattern => {
            snapshot.strings.as_ref().is_some_and(|census| !census.is_stopped)
        }
        _ => snapshot.runtime.is_some(),
    }
}

/// The row with most of the growth, if its count has not changed lately.
fn same_now<'a>(all: &'a Diff, before: &Snapshot, last: &Snapshot) -> Option<&'a DiffRow> {
    let grown = |row: &&DiffRow| {
        row.what.is_piece() && row.growth_bytes.unwrap_or(0) > 0 && row.growth_count.unwrap_or(0) > 0
    };
    let row = all.rows.iter().find(grown)?;
    let growth = row.growth_count?;
    let total = all.row(RowKind::Total, "resident, anonymous").and_then(|row| row.growth_bytes)?;
    let is_most = row.growth_bytes? as f64 >= MOST * total as f64;
    // Unchanged rows are not listed, and neither are parts that were not read.
    if row.is_bound || ![before, last].iter().all(|snapshot| has_list(snapshot, row.what)) {
        return None;
    }
    let lately = Diff::between(before, last);
    let moved = lately.row(row.what, &row.key).and_then(|row| row.growth_count).unwrap_or(0);
    (is_most && moved.unsigned_abs() as f64 <= SAME * growth as f64).then_some(row)
}

fn evidence(diff: &Diff, culprit: Option<&Culprit>) -> Vec<DiffRow> {
    let of_culprit = |row: &&DiffRow| culprit.is_some_and(|culprit| culprit.has(row));
    let mut list: Vec<DiffRow> = diff.rows.iter().filter(of_culprit).cloned().collect();
    let kinds = [
        RowKind::Total,
        RowKind::Memory,
        RowKind::CHeap,
        RowKind::Type,
        RowKind::Class,
        RowKind::Chunk,
        RowKind::String,
        RowKind::Pattern,
    ];
    for what in kinds {
        let most = diff.of(what).find(|row| row.growth_bytes.unwrap_or(0) > 0);
        if let Some(row) = most.filter(|row| !list.contains(row)) {
            list.push(row.clone());
        }
    }
    list.truncate(EVIDENCE_MAX);
    list
}
