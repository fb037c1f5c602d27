//! What grew between two looks, ranked by bytes per hour.
//!
//! Everything that a look counts becomes rows of one form ([`amounts`]): mappings by kind, sizes of C chunks, strings, types and
//! classes of objects, allocators. What grew by the same number of pieces is put into a group: parts of the same object.
//!
//! A list that was cut off at its end says nothing of what is not on it but that it is smaller than the last one that is. Growth of
//! such a row is at least so much, and its ratio is not known.

pub(crate) mod amounts;
mod groups;
mod sources;
#[cfg(test)]
pub(crate) mod tests;

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use groups::{Group, Member};

use crate::look::Look;
use amounts::{List, Listed};

/// What a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A total of the process.
    Total,
    /// Mappings of a kind, and of a file where there is one. Bytes are those in memory and in swap.
    Memory,
    /// A part of the C heap: in use, free, the tops.
    CHeap,
    /// Chunks of the C heap of one size that are in use.
    Chunk,
    /// A string in anonymous memory.
    String,
    /// Strings that differ in numbers only.
    Pattern,
    /// Objects of a type of the interpreter. Bytes are shallow.
    Type,
    /// A part of the interpreter's own allocator.
    Pymalloc,
    /// Objects of a class of a virtual machine.
    Class,
    /// A part of a run time's heap.
    Runtime,
}

impl What {
    /// In a word or two.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            What::Total => "total",
            What::Memory => "memory",
            What::CHeap => "C heap",
            What::Chunk => "C chunks",
            What::String => "string",
            What::Pattern => "strings like",
            What::Type => "Python type",
            What::Pymalloc => "pymalloc",
            What::Class => "class",
            What::Runtime => "run time",
        }
    }

    /// Whether its rows are single things, of which each piece is one, rather than sums of others.
    #[must_use]
    pub const fn is_piece(self) -> bool {
        matches!(self, What::Chunk | What::String | What::Pattern | What::Type | What::Class)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// How much of something there is. What was not counted is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Pieces.
    pub count: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
}

/// One thing in both looks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is.
    pub what: What,
    /// What it is known by, in every look: its name, or the hash of a string whose text is not to be seen.
    pub key: String,
    /// Its name: a kind and a file, a size, a string, a type.
    pub name: String,
    /// Before; `None` where it was not on a list that had no room for all.
    pub before: Option<Amount>,
    /// After.
    pub after: Option<Amount>,
    /// By how many pieces it grew.
    pub growth_count: Option<i64>,
    /// By how many bytes.
    pub growth_bytes: Option<i64>,
    /// The growth is at least so much: before, or after, it was somewhere below the end of a list.
    pub is_bound: bool,
    /// After, in parts of before: of bytes, or of pieces where bytes are not counted.
    pub ratio: Option<f64>,
    /// Bytes that it grew by in an hour; `None` where the looks are not of one process.
    pub bytes_per_hour: Option<f64>,
    /// By how many pieces the growth may be wrong, because they were estimated.
    pub error_count: u64,
}

impl Row {
    /// How it is ranked: by bytes where they are counted, by pieces otherwise.
    fn rank(&self) -> f64 {
        self.bytes_per_hour.or(self.growth_bytes.map(|b| b as f64)).unwrap_or(0.0)
    }
}

/// One of the two looks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// When, in nanoseconds since 1970 UTC.
    pub time_ns: i64,
    /// For how many seconds it had been running.
    pub age_s: Option<f64>,
    /// What was looked at.
    pub looked_at: Vec<String>,
}

impl Side {
    fn of(look: &Look) -> Self {
        Self {
            host: look.host.clone(),
            pid: look.pid,
            comm: look.comm.clone(),
            time_ns: look.time_ns,
            age_s: look.age_s,
            looked_at: look.looked_at.clone(),
        }
    }
}

/// The growth between two looks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// The earlier one.
    pub before: Side,
    /// The later one.
    pub after: Side,
    /// Whether both are of one process.
    pub is_same_process: bool,
    /// Seconds between them; `None` where they are of two processes, whose times say nothing of growth.
    pub seconds: Option<f64>,
    /// CPU seconds that the process worked in between.
    pub worked_s: Option<f64>,
    /// What grew first, what shrank last.
    pub rows: Vec<Row>,
    /// Rows that grew by the same number of pieces, the most bytes first.
    pub groups: Vec<Group>,
    /// What cannot be compared, in sentences.
    pub doubts: Vec<String>,
}

/// Rows that are kept; what did not move is left out before.
const ROWS_MAX: usize = 2000;

impl Diff {
    /// The growth from one look to another.
    #[must_use]
    pub fn between(before: &Look, after: &Look) -> Self {
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
        let groups = groups::of(&rows);
        rows.truncate(ROWS_MAX);
        let worked = before.work.cpu_s.zip(after.work.cpu_s).map(|(from, to)| to - from);
        Self {
            before: Side::of(before),
            after: Side::of(after),
            is_same_process,
            seconds,
            worked_s: worked.filter(|s| is_same_process && *s >= 0.0),
            rows,
            groups,
            doubts,
        }
    }

    /// The rows of a kind, in order.
    pub fn of(&self, what: What) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.what == what)
    }

    /// The row that is known by that key.
    #[must_use]
    pub fn row(&self, what: What, key: &str) -> Option<&Row> {
        self.of(what).find(|row| row.key == key)
    }
}

/// What grows most stands first; then by pieces, and by name, so that the order is always the same.
fn order(a: &Row, b: &Row) -> Ordering {
    b.rank()
        .total_cmp(&a.rank())
        .then_with(|| b.growth_count.unwrap_or(0).cmp(&a.growth_count.unwrap_or(0)))
        .then_with(|| (a.what, &a.key).cmp(&(b.what, &b.key)))
}

/// Puts the rows of two lists next to each other.
fn join(before: &List, after: &List, seconds: Option<f64>, rows: &mut Vec<Row>) {
    for (key, now) in &after.rows {
        let then = before.rows.get(key);
        rows.push(row(before.what, key, (then, before.absent), (Some(now), after.absent), seconds));
    }
    for (key, then) in &before.rows {
        if !after.rows.contains_key(key) {
            rows.push(row(before.what, key, (Some(then), before.absent), (None, after.absent), seconds));
        }
    }
}

fn row(
    what: What,
    key: &str,
    (before, absent_before): (Option<&Listed>, Absent),
    (after, absent_after): (Option<&Listed>, Absent),
    seconds: Option<f64>,
) -> Row {
    let amount = |listed: Option<&Listed>, absent: Absent| match (listed, absent) {
        (Some(listed), _) => Some(listed.amount),
        (None, Absent::Zero) => Some(Amount { count: Some(0), bytes: Some(0) }),
        (None, Absent::AtMost(_)) => None,
    };
    // Bytes of a piece, of whichever side is known.
    let each = [before, after].into_iter().flatten().find_map(|listed| {
        let (count, bytes) = listed.amount.count.zip(listed.amount.bytes)?;
        (count > 0).then(|| (bytes / count).max(1))
    });
    // The most that it can have been where it is not on the list.
    let bound = |listed: Option<&Listed>, absent: Absent| match (listed, absent) {
        (Some(listed), _) => listed.amount,
        (None, Absent::Zero) => Amount { count: Some(0), bytes: Some(0) },
        (None, Absent::AtMost(most)) => {
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
    let (from, to) = (bound(before, absent_before), bound(after, absent_after));
    let difference = |from: Option<u64>, to: Option<u64>| {
        let (from, to) = (i64::try_from(from?).ok()?, i64::try_from(to?).ok()?);
        to.checked_sub(from)
    };
    let (before_amount, after_amount) = (amount(before, absent_before), amount(after, absent_after));
    let is_bound = before_amount.is_none() || after_amount.is_none();
    // With less before than that it grew by more; whatever is less than nothing may be anything.
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
    Row {
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
        bytes_per_hour: growth_bytes.zip(seconds).map(|(bytes, seconds)| bytes as f64 * 3600.0 / seconds),
        error_count: before.map_or(0, |l| l.error_count).saturating_add(after.map_or(0, |l| l.error_count)),
    }
}

/// What it means that something is not on a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// There is none: the list has all.
    Zero,
    /// There is less than this: the list was cut off.
    AtMost(Amount),
}
