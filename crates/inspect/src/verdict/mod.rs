//! Is it a leak, and whose? What several looks at a process say together.
//!
//! Resident memory that grows may be a leak of native code, objects that the program itself keeps, free memory that the allocator
//! keeps, or a program that warms up. They are told apart by three questions, in this order:
//!
//! 1. Does the memory that the process made itself (anonymous, in memory and in swap) grow by more than allocators take at once?
//! 2. Does the growth level off while the process goes on working ([`trend`])? Two looks cannot tell; what was recorded between them may.
//! 3. Who accounts for it: the objects that the run time knows, chunks of the C heap that are in use, or chunks that are free?
//!
//! One look says what memory is made of, never that it leaks.

mod culprit;
mod facts;
#[cfg(test)]
mod tests;
mod trend;
mod words;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use culprit::Culprit;
pub use trend::{Level, Trend};

use crate::diff::{Diff, Row, What};
use crate::look::Look;
use facts::Facts;
use trend::Point;
use words::{bytes, percent};

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Native code takes memory and does not give it back, out of sight of the run time.
    NativeLeak,
    /// Objects of the run time become ever more.
    ManagedLeak,
    /// Native memory grows; whether it levels off is not known yet.
    NativeGrowth,
    /// Objects of the run time grow; whether they level off is not known yet.
    ManagedGrowth,
    /// Memory that was freed, and that the allocator keeps.
    Fragmentation,
    /// It grew and levels off while the process works on.
    WarmUp,
    /// One kind of thing grew to a number at which it stays while the process works on.
    BoundedCache,
    /// It does not grow.
    NoGrowth,
    /// What is known does not tell.
    CannotTell,
}

impl Kind {
    /// In a few words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Kind::NativeLeak => "native leak",
            Kind::ManagedLeak => "leak of objects",
            Kind::NativeGrowth => "native memory grows",
            Kind::ManagedGrowth => "objects grow",
            Kind::Fragmentation => "fragmentation",
            Kind::WarmUp => "warm-up",
            Kind::BoundedCache => "bounded cache",
            Kind::NoGrowth => "no growth",
            Kind::CannotTell => "cannot tell",
        }
    }

    /// Whether a leak is claimed.
    #[must_use]
    pub const fn is_leak(self) -> bool {
        matches!(self, Kind::NativeLeak | Kind::ManagedLeak)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// What several looks say together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What it is.
    pub kind: Kind,
    /// The same in sentences, with the numbers.
    pub statement: String,
    /// Whose doing, where something grows.
    pub culprit: Option<Culprit>,
    /// The rows that say so, those that weigh most first.
    pub evidence: Vec<Row>,
    /// How sure, from 0 to 1.
    pub confidence: f64,
    /// Bytes an hour, from the first look to the last.
    pub bytes_per_hour: Option<f64>,
}

/// Allocators take memory from the kernel in pieces: 128 KiB and more of the C heap (`M_TOP_PAD`), 1 MiB of Python's arenas, 2 MiB of
/// huge pages, one for each of some arenas and threads. Less is not growth.
const STEP_BYTES: u64 = 4 << 20;
/// The size of any process that works moves by some hundredths, as what it works on does.
const NOISE_SHARE: f64 = 0.02;
/// Who accounts for more than half of a growth makes it.
const MOST: f64 = 0.5;
/// The shallow sizes of objects leave out what allocators add, a factor of two or three at most. Who knows less than a quarter
/// of a growth cannot be the cause of it.
const LITTLE: f64 = 0.25;
/// Knuth's fifty per cent rule: an allocator in balance has a third of its bytes free. More is left from another time.
const FREE_SHARE: f64 = 1.0 / 3.0;
/// What glibc keeps free on purpose, twice its largest dynamic mmap threshold, is nobody's fragmentation.
const FREE_BYTES: u64 = 64 << 20;
/// Rows of evidence.
const EVIDENCE_MAX: usize = 12;
/// A count stays the same when it moves by less than a hundredth.
const SAME: f64 = 0.01;

/// What looks at one process say, in the order of their times, with sizes that were recorded between them.
#[must_use]
pub fn of(looks: &[Look], levels: &[Level]) -> Verdict {
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
        return cannot("there is no look", None);
    };
    if looks.len() < 2 {
        return one_look(last);
    }
    let diff = Diff::between(first, last);
    if !looks.iter().all(|look| look.is_same_process(first)) {
        let mut verdict = cannot(
            "the looks are of different processes: what differs is listed, and whether it grows only looks at one process can tell",
            None,
        );
        verdict.culprit = Culprit::of(&diff, None, last);
        verdict.evidence = evidence(&diff, verdict.culprit.as_ref());
        return verdict;
    }
    let verdict = of_one_process(looks, levels, &diff);
    // What warmed up may leak all the same, slowly, and what stood still may have begun to: the later half of the looks shows it.
    if !verdict.kind.is_leak() && looks.len() >= 2 * LOOKS_OF_A_TREND {
        let later = &looks[looks.len() / 2..];
        let points: Vec<Point> = later.iter().filter_map(|look| Point::of(look, &Facts::of(look))).collect();
        let tail = of(later, &[]);
        if tail.kind.is_leak() && trend::goes_on(&points) {
            return tail;
        }
    }
    verdict
}

/// So many looks show whether something levels off.
const LOOKS_OF_A_TREND: usize = 3;

fn cannot(why: &str, last: Option<&Look>) -> Verdict {
    Verdict {
        kind: Kind::CannotTell,
        statement: why.to_owned(),
        culprit: None,
        evidence: Vec::new(),
        confidence: if last.is_some() { 1.0 } else { 0.0 },
        bytes_per_hour: None,
    }
}

/// What memory is made of.
fn one_look(look: &Look) -> Verdict {
    let facts = Facts::of(look);
    let mut parts = Vec::new();
    if let Some(anonymous) = facts.anonymous {
        parts.push(format!("the process made {} itself", bytes(anonymous)));
    }
    if let Some((name, managed)) = facts.managed_name.as_ref().zip(facts.managed) {
        let share = facts.anonymous.filter(|a| *a > 0).map(|a| managed as f64 / a as f64);
        let share = share.map_or(String::new(), |share| format!(", {} of it", percent(share)));
        parts.push(format!("{name} accounts for {}{share}", bytes(managed)));
    }
    if let Some(in_use) = facts.c_in_use {
        parts.push(format!("the C heap has {} in use", bytes(in_use)));
    }
    if let Some(free) = facts.free.filter(|_| is_fragmented(&facts)) {
        parts.push(format!("{} are free inside of the allocators", bytes(free)));
    }
    parts.push("whether it grows a second look tells".to_owned());
    cannot(&parts.join("; "), None)
}

fn is_fragmented(facts: &Facts) -> bool {
    facts
        .free
        .zip(facts.anonymous)
        .is_some_and(|(free, anonymous)| free > FREE_BYTES && free as f64 > FREE_SHARE * anonymous as f64)
}

fn of_one_process(looks: &[Look], levels: &[Level], diff: &Diff) -> Verdict {
    let facts: Vec<Facts> = looks.iter().map(Facts::of).collect();
    let (first, last) = (&facts[0], &facts[facts.len() - 1]);
    let Some((from, to)) = first.anonymous.zip(last.anonymous) else {
        return cannot("how large its memory was both times is not known", None);
    };
    let growth = to as f64 - from as f64;
    let per_hour = diff.seconds.map(|seconds| growth * 3600.0 / seconds);
    let sizes = format!("{} to {}", bytes(from), bytes(to));
    let mut verdict = if growth < grown_from(from) {
        not_grown(&facts, &sizes, diff)
    } else if let Some(verdict) = freed(first, last, growth, &sizes) {
        verdict
    } else {
        grown(looks, levels, diff, &facts, growth, &sizes)
    };
    verdict.bytes_per_hour = per_hour;
    if verdict.evidence.is_empty() {
        verdict.evidence = evidence(diff, verdict.culprit.as_ref());
    }
    verdict
}

/// The growth that is one.
fn grown_from(from: u64) -> f64 {
    (STEP_BYTES as f64).max(NOISE_SHARE * from as f64)
}

fn not_grown(facts: &[Facts], sizes: &str, diff: &Diff) -> Verdict {
    let last = &facts[facts.len() - 1];
    let used = facts.iter().filter(|facts| facts.is_alike(last)).filter_map(|facts| facts.in_use()).max();
    if is_fragmented(last) {
        let (free, in_use) = (last.free.unwrap_or(0), last.in_use());
        let fell = used.zip(in_use).filter(|(most, now)| *now as f64 <= 0.75 * *most as f64);
        let fell = fell.map_or(String::new(), |(most, now)| {
            format!("; in use were {}, and are {}", bytes(most), bytes(now))
        });
        return Verdict {
            kind: Kind::Fragmentation,
            statement: format!(
                "its own memory went from {sizes} and does not grow; {} of it are free inside of the allocators, which keep it{fell}",
                bytes(free)
            ),
            culprit: None,
            evidence: Vec::new(),
            confidence: 0.8,
            bytes_per_hour: None,
        };
    }
    Verdict {
        kind: Kind::NoGrowth,
        statement: format!(
            "its own memory went from {sizes}: less than allocators take at once, or than work moves it by{}",
            elsewhere(diff)
        ),
        culprit: None,
        evidence: Vec::new(),
        confidence: if facts.len() >= LOOKS_OF_A_TREND { 0.8 } else { 0.6 },
        bytes_per_hour: None,
    }
}

/// What grew that is not the process' own: shared memory, files.
fn elsewhere(diff: &Diff) -> String {
    let grew = ["resident, shared memory", "resident, of files"].into_iter().filter_map(|name| {
        let row = diff.row(What::Total, name)?;
        let growth = u64::try_from(row.growth_bytes?).ok().filter(|growth| *growth >= STEP_BYTES)?;
        Some(format!(
            "; {} grew by {}, which is no heap",
            name.trim_start_matches("resident, "),
            bytes(growth)
        ))
    });
    grew.collect()
}

/// The process grew, and what grew is free.
fn freed(first: &Facts, last: &Facts, growth: f64, sizes: &str) -> Option<Verdict> {
    let more_free = last.free? as f64 - first.free? as f64;
    let more_used = last.in_use()? as f64 - first.in_use()? as f64;
    if !first.is_alike(last) || more_free < MOST * growth || more_used > LITTLE * growth {
        return None;
    }
    Some(Verdict {
        kind: Kind::Fragmentation,
        statement: format!(
            "its own memory grew from {sizes}, but what is in use went from {} to {}; {} are free inside of the allocators, which keep them",
            bytes(first.in_use()?),
            bytes(last.in_use()?),
            bytes(last.free?)
        ),
        culprit: None,
        evidence: Vec::new(),
        confidence: 0.85,
        bytes_per_hour: None,
    })
}

fn grown(
    looks: &[Look],
    levels: &[Level],
    diff: &Diff,
    facts: &[Facts],
    growth: f64,
    sizes: &str,
) -> Verdict {
    let (first, last) = (&facts[0], &facts[facts.len() - 1]);
    let points: Vec<Point> =
        looks.iter().zip(facts).filter_map(|(look, facts)| Point::of(look, facts)).collect();
    let trend = trend::of(&points, levels);
    let steps = looks.len() >= LOOKS_OF_A_TREND || levels.len() >= trend::LEVELS_MIN;
    let mut said = vec![format!("its own memory grew from {sizes}")];
    if let Trend::LevelsOff { last_share } = trend {
        return levelled(looks, diff, &mut said, last_share);
    }
    let managed = managed_growth(first, last).map(|grown| grown / growth);
    let used = first.c_in_use.zip(last.c_in_use).map(|(from, to)| (to as f64 - from as f64) / growth);
    let name = last.managed_name.as_deref().unwrap_or("the run time");
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
        // The heap of a program without a run time is its own.
        None if last.managed_name.is_none() => is_managed = Some(false),
        // Other run times than Python have their objects elsewhere than in the C heap.
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
        // Pools of a library's own, memory of threads.
        Some(part) if is_managed == Some(false) => {
            let most = diff.of(What::Memory).find(|row| row.growth_bytes.unwrap_or(0) > 0);
            let most = most.map_or(String::new(), |row| format!("; of the mappings most grew: {}", row.name));
            said.push(format!("chunks in use in the C heap are only {} of it{most}", share(part)));
        }
        _ => {}
    }
    let mut culprit = Culprit::of(diff, is_managed, looks.last().unwrap_or(&looks[0]));
    // Native memory that objects of the run time own: as many more of the one as of the other.
    if is_managed == Some(false)
        && let Some(owner) = culprit.as_ref().and_then(|culprit| culprit.owner.clone())
    {
        is_managed = Some(true);
        said.push(format!("as many more {owner} objects are there as native chunks: they hold them"));
        if let Some(culprit) = &mut culprit {
            culprit.what = What::Type;
        }
    }
    if let Some(culprit) = &culprit {
        said.push(culprit.statement.clone());
    }
    let (kind, sure) = match (is_managed, trend) {
        (None, _) => (Kind::CannotTell, 0.3),
        // A collector lets garbage pile up before it works.
        (Some(true), Trend::Steady) if last.has_garbage => (Kind::ManagedGrowth, 0.5),
        (Some(true), Trend::Steady) => (Kind::ManagedLeak, 0.7),
        (Some(false), Trend::Steady) => (Kind::NativeLeak, 0.7),
        (Some(true), _) => (Kind::ManagedGrowth, 0.5),
        (Some(false), _) => (Kind::NativeGrowth, 0.5),
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
        confidence: if kind == Kind::CannotTell { sure } else { f64::min(sure + known, 0.95) },
        bytes_per_hour: None,
    }
}

/// By how many bytes the objects of the run time grew; numbers from different sources do not compare.
fn managed_growth(first: &Facts, last: &Facts) -> Option<f64> {
    let (from, to) = first.managed.zip(last.managed)?;
    (first.managed_source == last.managed_source).then_some(to as f64 - from as f64)
}

/// Whether most of a growth lies outside of the heap that a run time has for its objects, which may be large long before it is
/// touched. At first all but the objects may have been outside, in the end at least what the heap has no room for.
fn is_beside(first: &Facts, last: &Facts, growth: f64) -> bool {
    let Some(room) = last.room else { return true };
    let outside = last.anonymous.unwrap_or(0).saturating_sub(room) as f64;
    let before = first.anonymous.unwrap_or(0).saturating_sub(first.managed.unwrap_or(0)) as f64;
    let chunks = first.c_in_use.zip(last.c_in_use).map_or(0.0, |(from, to)| to as f64 - from as f64);
    outside - before >= MOST * growth || chunks >= MOST * growth
}

/// It grew, and grows no more though the process works on.
fn levelled(looks: &[Look], diff: &Diff, said: &mut Vec<String>, last_share: f64) -> Verdict {
    said.push(format!(
        "in the last third it grew at {} of its mean pace while the process worked on",
        percent(last_share.max(0.0))
    ));
    let lately = lately(looks);
    let still = lately.filter(|(from, growth)| *growth >= grown_from(*from)).map(|(_, growth)| growth);
    if let Some(growth) = still {
        said.push(format!(
            "it still grew by {} since the look before the last; later looks tell",
            bytes(growth as u64)
        ));
    }
    let stays = looks.len().checked_sub(2).and_then(|i| same_now(diff, &looks[i], &looks[i + 1]));
    let (kind, culprit) = match stays {
        Some(row) => {
            let count = row.after.and_then(|after| after.count).unwrap_or(0);
            said.push(format!("{} grew to {count} and stays there", Culprit::name_of(row)));
            (Kind::BoundedCache, Some(Culprit::of_row(row)))
        }
        None => (Kind::WarmUp, None),
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

/// The size at the look before the last, and the growth since.
fn lately(looks: &[Look]) -> Option<(u64, f64)> {
    let [.., before, last] = looks else { return None };
    let (from, to) = Facts::of(before).anonymous.zip(Facts::of(last).anonymous)?;
    Some((from, to as f64 - from as f64))
}

/// Whether a look has the list that pieces of a kind are on.
fn has_list(look: &Look, what: What) -> bool {
    match what {
        What::Type => look.python.as_ref().is_some_and(|heap| !heap.is_stopped),
        What::Chunk => look.c_heap.as_ref().is_some_and(|heap| !heap.is_stopped),
        What::String | What::Pattern => look.strings.as_ref().is_some_and(|census| !census.is_stopped),
        _ => look.runtime.is_some(),
    }
}

/// The row that made most of the growth of pieces, if its number has been the same lately.
fn same_now<'a>(all: &'a Diff, before: &Look, last: &Look) -> Option<&'a Row> {
    let grown = |row: &&Row| {
        row.what.is_piece() && row.growth_bytes.unwrap_or(0) > 0 && row.growth_count.unwrap_or(0) > 0
    };
    let row = all.rows.iter().find(grown)?;
    let growth = row.growth_count?;
    let total = all.row(What::Total, "resident, anonymous").and_then(|row| row.growth_bytes)?;
    let is_most = row.growth_bytes? as f64 >= MOST * total as f64;
    // What did not move at all is on no list; neither is what was not looked at.
    if row.is_bound || ![before, last].iter().all(|look| has_list(look, row.what)) {
        return None;
    }
    let lately = Diff::between(before, last);
    let moved = lately.row(row.what, &row.key).and_then(|row| row.growth_count).unwrap_or(0);
    (is_most && moved.unsigned_abs() as f64 <= SAME * growth as f64).then_some(row)
}

/// The rows of the culprit, then those that grew most.
fn evidence(diff: &Diff, culprit: Option<&Culprit>) -> Vec<Row> {
    let of_culprit = |row: &&Row| culprit.is_some_and(|culprit| culprit.has(row));
    let mut list: Vec<Row> = diff.rows.iter().filter(of_culprit).cloned().collect();
    let kinds = [
        What::Total,
        What::Memory,
        What::CHeap,
        What::Type,
        What::Class,
        What::Chunk,
        What::String,
        What::Pattern,
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
