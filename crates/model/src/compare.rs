//! What `mitra compare` says, schema `mitra.compare/1`.
//!
//! Numbers are in base units, as in the report. A side that has too little to say something leaves it out.

use serde::Serialize;

use crate::report::{Comparison, FileRead, Window};

/// The name of the schema of [`Compared`].
pub const SCHEMA: &str = "mitra.compare/1";

/// Two or more sides against each other.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Compared {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What was compared, in the order in which it was named.
    pub sides: Vec<Side>,
    /// Single runs of benchmarks against each other, the best first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Comparison>,
    /// The first side against each of the others.
    pub pairs: Vec<Pair>,
}

/// One side.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Side {
    /// The path, or the range as it was typed.
    pub name: String,
    /// `archive` or `files`.
    pub source: String,
    /// The stretch of an archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The files that were read and what was made of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRead>,
}

/// The first side against another.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Pair {
    /// The name of the first side.
    pub a: String,
    /// The name of the other.
    pub b: String,
    /// What differs, the largest effect first. Differences that are not sure or too small to matter are here only where
    /// they were asked for.
    pub differences: Vec<Difference>,
    /// How many differ, but not surely.
    pub unsure: usize,
    /// How many differ surely, but hardly.
    pub small: usize,
    /// How many are the same on both sides.
    pub same: usize,
    /// What only the first side has, as metrics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only_a: Vec<String>,
    /// What only the other side has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only_b: Vec<String>,
}

/// One metric of one thing on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The metric of the table.
    pub metric: String,
    /// Of what; empty for the whole machine. Tasks go by their name, added up; repeated runs by their benchmark.
    pub entity: String,
    /// The unit of the values.
    pub unit: String,
    /// The first side.
    pub a: Level,
    /// The other.
    pub b: Level,
    /// How far the other side lies from the first: the median of all differences between a value of the one and a value
    /// of the other (Hodges and Lehmann).
    pub shift: f64,
    /// Between what the shift lies, and how sure that is, where the samples suffice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// The median of the other side as a multiple of that of the first; absent where that is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// In what share of all pairs the other side's value is the larger; a half where there is no difference.
    pub superiority: f64,
    /// How probable it is that two sides that do not differ look at least as different (Mann and Whitney; samples that
    /// follow one another are alike, and count accordingly). Absent where there is one sample on a side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Whether it is sure: of everything that is called sure here, one in twenty is expected not to be (Benjamini and
    /// Hochberg).
    pub sure: bool,
    /// What must be known beside it: one run each, which nothing tells from chance; few samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where the values of a side lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Level {
    /// How many there are.
    pub samples: usize,
    /// The median.
    pub median: f64,
    /// The median absolute deviation times 1.4826: the standard deviation, if the values were normal.
    pub spread: f64,
    /// The least.
    pub min: f64,
    /// The lower quartile.
    pub q1: f64,
    /// The upper quartile.
    pub q3: f64,
    /// The greatest.
    pub max: f64,
}

/// Between what a number lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Range {
    /// From.
    pub low: f64,
    /// To.
    pub high: f64,
    /// How sure, from 0 to 1.
    pub confidence: f64,
}
