//! `mitra demo`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::examples;
use super::shared::ReportArgs;

#[derive(Debug, Args)]
#[command(after_help = examples::below("demo", ""))]
pub struct DemoArgs {
    /// Explain this incident
    #[arg(value_enum, value_name = "NAME", default_value_t = DemoIncident::PageCacheFlood)]
    pub incident: DemoIncident,
    /// List the incidents, and what each shows
    #[arg(long, conflicts_with_all = ["incident", "ReportArgs", "keep"])]
    pub list: bool,
    #[command(flatten)]
    pub report: ReportArgs,
    /// Only write the recording to a new or empty directory, to try other commands on it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["ReportArgs"])]
    pub keep: Option<PathBuf>,
}

/// The recordings in the binary. The comments are what `--list` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoIncident {
    /// dd reads a large file once, and pages that a service needs are evicted for it
    PageCacheFlood,
    /// One program fills the queue of a disk, and another one waits for each request
    DiskHog,
    /// A program does not fit under the memory limit of its cgroup, and swaps
    SwapThrash,
    /// A service stands still because its CPU quota is used up, beside CPUs that idle
    CpuQuota,
    /// A name server answers half of the questions, and programs wait for the others
    NameServer,
}
