//! `mitra capture`, and `mitra armed`, which recorders start.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{ArchiveArgs, examples};
use crate::values::size::share;
use crate::values::time::duration;

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "capture",
    "It needs root, or CAP_BPF and CAP_PERFMON; sockets of one's own network namespace need neither. It needs no \
                        recorder, and runs beside one."
))]
pub struct CaptureArgs {
    /// The probe: offcpu, oncpu, faults, …; --list shows all
    #[arg(value_name = "KIND", required_unless_present_any = ["list", "show"])]
    pub kind: Option<String>,
    /// Only this process, as --pid
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["pid", "list", "show"])]
    pub process: Option<u32>,
    /// List the probes, with what they cost
    #[arg(long, conflicts_with = "show")]
    pub list: bool,
    /// Show a capture that was made before: its file, the beginning of its name in the archive, or latest
    #[arg(long, value_name = "FILE|latest")]
    pub show: Option<String>,
    /// Only this process, with all its threads
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Only threads of this name
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Only this cgroup (v2), with those below it: /system.slice/nginx.service
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// Run for so long; Ctrl-C ends it early
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub seconds: f64,
    /// End after so many events
    #[arg(long, value_name = "COUNT")]
    pub events: Option<u64>,
    /// End when it has taken this share of one CPU, on average
    #[arg(long, value_name = "SHARE", default_value = "2%", value_parser = share)]
    pub budget: f64,
    /// Only what lasts at least so long; of probes that measure it
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub min: Option<Duration>,
    /// With offcpu: only uninterruptible waits (state D)
    #[arg(long)]
    pub d_only: bool,
    /// An option of the probe; --list shows them
    #[arg(long, value_name = "NAME=VALUE")]
    pub option: Vec<String>,
    /// Keep this reason with the capture
    #[arg(long, value_name = "TEXT", default_value = "by hand", hide_default_value = true)]
    pub why: String,
    /// Print so many rows of each table
    #[arg(long, alias = "rows", value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Print JSON, schema mitra.capture/1
    #[arg(long)]
    pub json: bool,
    /// Write folded stacks (frames and a weight on each line) to this file; - is standard output, and then only they
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write a flame graph, one page for a browser, to this file; - is standard output, and then only the page
    #[arg(long, value_name = "FILE")]
    pub flame: Option<PathBuf>,
    /// Write the stacks for pprof (profile.proto, gzip) to this file; - is standard output, and then only they
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Do not keep the capture
    #[arg(long, conflicts_with = "archive")]
    pub no_archive: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ArmedArgs {
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Who or what wants it
    #[arg(long, value_name = "TEXT")]
    pub why: String,
    /// For how long
    #[arg(long, value_name = "SECONDS")]
    pub seconds: f64,
    /// Only this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// When that process began, as field 22 of /proc/PID/stat has it: another one that has its number by now is not meant
    #[arg(long, value_name = "TICKS", requires = "pid")]
    pub pid_began: Option<u64>,
    /// Kinds with their options, each one argument: "offcpu d-only min=1ms"
    #[arg(value_name = "PROBE", required = true)]
    pub probes: Vec<String>,
}
