//! What grew between two snapshots, ranked by bytes per hour.
//!
//! Everything that a snapshot counts becomes rows of one form ([`amounts`]): mappings by kind,
//! sizes of C chunks, strings, types and classes of objects, allocators. Rows that grew by the same
//! count form a group: parts of the same object.
//!
//! An item that is missing from a truncated list was smaller than the last listed one. So its
//! growth is a bound, and its ratio is unknown.

pub(crate) mod amounts;
mod groups;
mod sources;
#[cfg(test)]
pub(crate) mod tests;

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use groups::{Group, Member};

use crate::snapshot::Snapshot;
use amounts::{List, Measured};

/// What a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowKind {
    /// A counter of the process.
    Total,
    /// Mappings of a kind and a file. Bytes are resident and in swap.
    Memory,
    /// A part of the C heap: in use, free, top.
    CHeap,
    /// C chunks of one size in use.
    Chunk,
    /// A string in anonymous memory.
    String,
    /// Strings that differ in numbers only.
    Pattern,
    /// Objects of a type of the interpreter. Bytes are shallow.
    Type,
    /// A part of Python's allocator.
    Pymalloc,
    /// Objects of a class of a virtual machine.
    Class,
    /// A part of a runtime's heap.
    Runtime,
}

impl RowKind {
    /// Its name.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            RowKind::Total => "total",
            RowKind::Memory => "memory",
            RowKind::CHeap => "C heap",
            RowKind::Chunk => "C chunks",
            RowKind::String => "string",
            RowKind::Pattern => "strings like",
            RowKind::Type => "Python type",
            RowKind::Pymalloc => "pymalloc",
            RowKind::Class => "class",
            RowKind::Runtime => "runtime",
        }
    }

    /// Whether its rows count pieces, rather than being sums of others.
    #[must_use]
    pub const fn is_piece(self) -> bool {
        matches!(self, RowKind::Chunk | RowKind::String | RowKind::Pattern | RowKind::Type | RowKind::Class)
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Pieces and bytes. `None` if not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Pieces.
    pub count: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
}

/// One item in both snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiffRow {
    /// What the row counts.
    pub what: RowKind,
    /// Its id in every snapshot: its name, or the hash of a withheld string.
    pub key: String,
    /// Its name: a kind and a file, a size, a string, a type.
    pub name: String,
    /// Before; `None` if missing from a truncated list.
    pub before: Option<Amount>,
    /// After.
    pub after: Option<Amount>,
    /// Growth in pieces.
    pub growth_count: Option<i64>,
    /// Growth in bytes.
    pub growth_bytes: Option<i64>,
    /// The growth is a bound: before or after, it was missing from a truncated list.
    pub is_bound: bool,
    /// After divided by before: of bytes, or of pieces without bytes.
    pub ratio: Option<f64>,
    /// Growth in bytes per hour; `None` for different processes.
    pub bytes_per_hour: Option<f64>,
    /// Error of the growth in pieces, because they were estimated.
    pub error_count: u64,
}

impl DiffRow {
    /// Sort key: bytes, if they are counted.
    fn rank(&self) -> f64 {
        self.bytes_per_hour.or(self.growth_bytes.map(|b| b as f64)).unwrap_or(0.0)
    }
}

/// One of the two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Nanoseconds since 1970 UTC.
    pub time_ns: i64,
    /// Its age in seconds.
    pub age_s: Option<f64>,
    /// The parts that were read.
    pub looked_at: Vec<String>,
}

impl SnapshotInfo {
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            host: snapshot.host.clone(),
            pid: snapshot.pid,
            comm: snapshot.comm.clone(),
            time_ns: snapshot.time_ns,
            age_s: snapshot.age_s,
            looked_at: snapshot.looked_at.clone(),
        }
    }
}

/// The growth between two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// The earlier one.
    pub before: SnapshotInfo,
    /// The later one.
    pub after: SnapshotInfo,
    /// Whether both are of one process.
    pub is_same_process: bool,
    /// Seconds between them; `None` for different processes, whose times say nothing of growth.
    pub seconds: Option<f64>,
    /// CPU seconds of the process in between.
    pub worked_s: Option<f64>,
    /// Sorted by growth; what shrank comes last.
    pub rows: Vec<DiffRow>,
    /// Rows that grew by the same count, the most bytes first.
    pub groups: Vec<Group>,
    /// What cannot be compared, as sentences.
    pub doubts: Vec<String>,
}

/// Rows that are kept. Unchanged ones are dropped before.
const ROWS_MAX: usize = 2000;
/// What is this near to each other says nothing of an hour: one allocation would be many gigabytes.
const RATE_S_MIN: f64 = 60.0;

/// How many bytes an hour that is.
pub(crate) fn per_hour(bytes: f64, seconds: f64) -> Option<f64> {
    (seconds >= RATE_S_MIN).then(|| bytes * 3600.0 / seconds)
}

impl Diff {
    /// The growth from one snapshot to another.
    #[must_use]
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let is_same_process = before.is_same_process(after);
        let seconds = Some(before.seconds_until(after)).filter(|s| is_same_process && *s > 0.0);
        let mut rows = Vec::new();
        let mut doubts = Vec::new();
        let (lists, others) = (amounts::of(before), amounts::of(after));
        for list in &lists {
            match others.iter().find(|other| other.what == list.what) {
                Some(other) => join(list, other, seconds, &mut rows),
                None => doubts.push(format!("{}: only looked at before", list.what)),
            }
        }
        let only_after = others.iter().filter(|other| !lists.iter().any(|list| list.what == other.what));
        doubts.extend(only_after.map(|other| format!("{}: only looked at after", other.what)));
        if !is_same_process && (before.comm != after.comm || before.exe != after.exe) {
            doubts.push(format!("two programs are compared: {} and {}", before.comm, after.comm));
        }
        if is_same_process && seconds.is_none() {
            doubts.push("both looks are of the same moment, or the later one stands first".to_owned());
        }
        rows.retain(|row| row.growth_bytes.unwrap_or(0) != 0 || row.growth_count.unwrap_or(0) != 0);
        rows.sort_by(order);
        let reading = before.cost.wall_s.max(after.cost.wall_s);
        let groups = groups::of(&rows, seconds.map_or(0.0, |seconds| reading / seconds));
        rows.truncate(ROWS_MAX);
        let worked = before.work.cpu_s.zip(after.work.cpu_s).map(|(from, to)| to - from);
        Self {
            before: SnapshotInfo::of(before),
            after: SnapshotInfo::of(after),
            is_same_process,
            seconds,
            worked_s: worked.filter(|s| is_same_process && *s >= 0.0),
            rows,
            groups,
            doubts,
        }
    }

    /// The rows of one kind.
    pub fn of(&self, what: RowKind) -> impl Iterator<Item = &DiffRow> {
        self.rows.iter().filter(move |row| row.what == what)
    }

    /// One row, by its kind and key.
    #[must_use]
    pub fn row(&self, what: RowKind, key: &str) -> Option<&DiffRow> {
        self.of(what).find(|row| row.key == key)
    }
}

/// By growth in bytes, then in pieces, then by name, so that the order is stable.
fn order(a: &DiffRow, b: &DiffRow) -> Ordering {
    b.rank()
        .total_cmp(&a.rank())
        .then_with(|| b.growth_count.unwrap_or(0).cmp(&a.growth_count.unwrap_or(0)))
        .then_with(|| (a.what, &a.key).cmp(&(b.what, &b.key)))
}

/// Joins the rows of two lists.
fn join(before: &List, after: &List, seconds: Option<f64>, rows: &mut Vec<DiffRow>) {
    for (key, now) in &after.rows {
        let then = before.rows.get(key);
        rows.push(row(before.what, key, (then, before.missing), (Some(now), after.missing), seconds));
    }
    for (key, then) in &before.rows {
        if !after.rows.contains_key(key) {
            rows.push(row(before.what, key, (Some(then), before.missing), (None, after.missing), seconds));
        }
    }
}

fn row(
    what: RowKind,
    key: &str,
    (before, missing_before): (Option<&Measured>, Missing),
    (after, missing_after): (Option<&Measured>, Missing),
    seconds: Option<f64>,
) -> DiffRow {
    let amount = |listed: Option<&Measured>, missing: Missing| match (listed, missing) {
        (Some(listed), _) => Some(listed.amount),
        (None, Missing::Zero) => Some(Amount { count: Some(0), bytes: Some(0) }),
        (None, Missing::AtMost(_)) => None,
    };
    // Bytes of a piece, from the side that is known.
    let each = [before, after].into_iter().flatten().find_map(|listed| {
        let (count, bytes) = listed.amount.count.zip(listed.amount.bytes)?;
        (count > 0).then(|| (bytes / count).max(1))
    });
    // The maximum of an item that is missing from the list.
    let bound = |listed: Option<&Measured>, missing: Missing| match (listed, missing) {
        (Some(listed), _) => listed.amount,
        (None, Missing::Zero) => Amount { count: Some(0), bytes: Some(0) },
        (None, Missing::AtMost(most)) => {
            let least = |a: Option<u64>, b: Option<u64>| match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, other) => one.or(other),
            };
            let by_bytes = most.bytes.zip(each).map(|(bytes, each)| bytes / each);
            let count = least(most.count, by_bytes);
            let by_count = most.count.zip(each).map(|(count, each)| count.saturating_mul(each));
            Amount { count, bytes: least(most.bytes, by_count) }
        }
    };
    let (from, to) = (bound(before, missing_before), bound(after, missing_after));
    let difference = |from: Option<u64>, to: Option<u64>| {
        let (from, to) = (i64::try_from(from?).ok()?, i64::try_from(to?).ok()?);
        to.checked_sub(from)
    };
    let (before_amount, after_amount) = (amount(before, missing_before), amount(after, missing_after));
    let is_bound = before_amount.is_none() || after_amount.is_none();
    // A smaller value before means more growth. A bound of the other sign says nothing.
    let known = |growth: &i64| match (before_amount, after_amount) {
        (Some(_), Some(_)) => true,
        (None, Some(_)) => *growth > 0,
        (Some(_), None) => *growth < 0,
        (None, None) => false,
    };
    let growth_bytes = difference(from.bytes, to.bytes).filter(known);
    let growth_count = difference(from.count, to.count).filter(known);
    let ratio = |from: Option<u64>, to: Option<u64>| {
        let (from, to) = (from.filter(|from| *from > 0)?, to?);
        Some(to as f64 / from as f64)
    };
    let name = after.and_then(|l| l.name.clone()).or_else(|| before.and_then(|l| l.name.clone()));
    DiffRow {
        what,
        key: key.to_owned(),
        name: name.unwrap_or_else(|| key.to_owned()),
        before: before_amount,
        after: after_amount,
        growth_count,
        growth_bytes,
        is_bound,
        ratio: if is_bound {
            None
        } else {
            ratio(from.bytes, to.bytes).or_else(|| ratio(from.count, to.count))
        },
        bytes_per_hour: growth_bytes
            .zip(seconds)
            .and_then(|(bytes, seconds)| per_hour(bytes as f64, seconds)),
        error_count: before.map_or(0, |l| l.error_count).saturating_add(after.map_or(0, |l| l.error_count)),
    }
}

/// What a missing item means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The list is complete: there is none.
    Zero,
    /// The list was truncated: there is less than this.
    AtMost(Amount),
}
