//! The result of `mitra experiment`, schema `mitra.experiment/1`. Numbers are in base units.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::{Pair, Range};
use crate::report::Moment;

/// The name of the schema of [`Outcome`].
pub const SCHEMA: &str = "mitra.experiment/1";

/// What an experiment showed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The title of the experiment.
    pub title: String,
    /// What it was to answer.
    pub question: String,
    /// The answer in sentences, the most important first.
    pub verdicts: Vec<String>,
    /// What limits the answer: failed runs, few runs, many comparisons.
    pub remarks: Vec<String>,
    /// The host it ran on.
    pub host: String,
    /// The kernel of the host.
    pub kernel: String,
    /// When the first run began.
    pub began: Option<Moment>,
    /// The seed of the order of the runs and of the resamples.
    pub seed: u64,
    /// Wanted runs of each variant and step.
    pub repetitions: u32,
    /// Rounds before those, whose results are not used.
    pub warm_up: u32,
    /// What was measured, the primary metric first.
    pub metrics: Vec<MetricInfo>,
    /// The names of the variants. The others are compared with the first one.
    pub variants: Vec<String>,
    /// The steps of the workload; empty if it has none.
    pub steps: Vec<String>,
    /// Each variant at each step.
    pub cells: Vec<Cell>,
}

/// A measured metric.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MetricInfo {
    /// Its name in the experiment.
    pub name: String,
    /// The unit of its values.
    pub unit: String,
    /// Whether higher values are better.
    pub higher_is_better: bool,
}

/// A variant at a step.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Cell {
    /// The variant.
    pub variant: String,
    /// The step, if the workload has steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Runs that succeeded.
    pub runs: usize,
    /// Runs that failed.
    pub failed_runs: usize,
    /// Why they failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// The metrics, in the order of [`Outcome::metrics`].
    pub measured: Vec<Measured>,
    /// Medians of what the workload's output says beside that, where Mitra knows its format.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, f64>,
    /// Lost task-seconds a second of its runs; absent if not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Measured>,
    /// In how many of the recorded runs a condition was active, by its id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, usize>,
    /// Runs whose span was recorded.
    pub recorded: usize,
    /// What differs on the machine from the first variant at the same step. One value for each run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Pair>,
}

/// One metric of a variant at a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Measured {
    /// The value of each run that has one, in the order of the runs.
    pub values: Vec<f64>,
    /// The mean; absent without a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// The bootstrap interval of the mean; absent with too few runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_range: Option<Range>,
    /// The median; absent without a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// The bootstrap interval of the median; absent with too few runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_range: Option<Range>,
    /// The difference to the first variant at the same step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_first: Option<Against>,
}

/// The mean of a variant against that of the first one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Against {
    /// The difference of the means in per cent of the first one's.
    pub percent: f64,
    /// Its bootstrap interval; absent with too few runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// The difference in per cent that would have been seen in four of five such experiments, if it were the only one;
    /// absent where so few runs cannot make a single difference sure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detectable_percent: Option<f64>,
    /// The p-value of the Mann-Whitney test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Whether the interval excludes zero, and among several comparisons also the rank test holds at a false discovery
    /// rate of 5 % (Benjamini-Hochberg).
    pub sure: bool,
}
