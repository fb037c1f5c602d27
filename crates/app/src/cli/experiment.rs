//! `mitra experiment`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::examples;
use super::shared::ReportArgs;
use crate::values::time::duration;

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "experiment",
    "Each run begins with what its variant changes, and ends with the old values put back. What a killed experiment has \
     left changed is put back when the next one starts. docs/experiments.md has the keys of the file."
))]
pub struct ExperimentArgs {
    /// The experiment: variants, the workload, what is measured
    #[arg(value_name = "FILE", required_unless_present_any = ["resume", "again"])]
    pub file: Option<PathBuf>,
    /// Keep the output of the runs and the recording in this new or empty folder [default: experiment-DATE-TIME, here]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "again"])]
    pub dir: Option<PathBuf>,
    /// Go on with an experiment that was interrupted
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "again"])]
    pub resume: Option<PathBuf>,
    /// Only report on the runs that a folder has, again
    #[arg(long = "report", value_name = "DIR", conflicts_with = "file")]
    pub again: Option<PathBuf>,
    /// Runs of each variant at each step, in place of the file's
    #[arg(long, value_name = "N", conflicts_with_all = ["resume", "again"], value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// The order of the runs, in place of the file's [default: another one each time]
    #[arg(long, value_name = "N", conflicts_with_all = ["resume", "again"])]
    pub seed: Option<u64>,
    /// Use the recorder that writes this archive [default: that of the machine, if one is running; else one of its own]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "again", "no_record"])]
    pub archive: Option<PathBuf>,
    /// Record nothing, and only compare what the workload says
    #[arg(long, conflicts_with_all = ["resume", "again"])]
    pub no_record: bool,
    /// The interval of a recorder of its own [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<Duration>,
    #[command(flatten)]
    pub report: ReportArgs,
    /// In place of /, for tests
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}
