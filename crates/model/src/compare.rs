//! The result of `mitra compare`, schema `mitra.compare/1`. Numbers are in base units.

use serde::Serialize;

use crate::report::{Comparison, FileRead, Window};

/// The name of the schema of [`Compared`].
pub const SCHEMA: &str = "mitra.compare/1";

/// Two or more sides compared.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Compared {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The sides, in the order of the arguments.
    pub sides: Vec<Side>,
    /// Single benchmark runs, the best first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Comparison>,
    /// The first side compared with each of the others.
    pub pairs: Vec<Pair>,
}

/// One side.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Side {
    /// The path, or the range as it was typed.
    pub name: String,
    /// `archive` or `files`.
    pub source: String,
    /// The time range of an archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The files that were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRead>,
}

/// The first side compared with another.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Pair {
    /// The name of the first side.
    pub a: String,
    /// The name of the other.
    pub b: String,
    /// The differences, largest effect first. Insignificant and small ones only on request.
    pub differences: Vec<Difference>,
    /// The number of differences that are not significant.
    pub unsure: usize,
    /// The number of significant differences that are too small to matter.
    pub small: usize,
    /// The number of metrics without a difference.
    pub same: usize,
    /// Metrics that only the first side has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only_a: Vec<String>,
    /// Metrics that only the other side has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only_b: Vec<String>,
}

/// One metric of one row on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The metric of the table.
    pub metric: String,
    /// The row; empty for the whole machine. Tasks are summed by name, repeated runs by benchmark.
    pub entity: String,
    /// The unit of the values.
    pub unit: String,
    /// The first side.
    pub a: Level,
    /// The other.
    pub b: Level,
    /// The Hodges-Lehmann shift: the median of all differences between a value of the other side and one of the first.
    pub shift: f64,
    /// The confidence interval of the shift, if there are enough samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// The median of the other side divided by that of the first; absent if that is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The share of all pairs in which the other side's value is larger; 0.5 without a difference.
    pub superiority: f64,
    /// The p-value of the Mann-Whitney test, corrected for autocorrelation. Absent with one sample on a side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Whether it is significant, at a false discovery rate of 5 % (Benjamini-Hochberg).
    pub sure: bool,
    /// A caveat: one run on each side, few samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The distribution of one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Level {
    /// The number of samples.
    pub samples: usize,
    /// The median.
    pub median: f64,
    /// The median absolute deviation times 1.4826, the standard deviation of a normal distribution.
    pub spread: f64,
    /// The minimum.
    pub min: f64,
    /// The lower quartile.
    pub q1: f64,
    /// The upper quartile.
    pub q3: f64,
    /// The maximum.
    pub max: f64,
}

/// A confidence interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Range {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// The confidence level, from 0 to 1.
    pub confidence: f64,
}
