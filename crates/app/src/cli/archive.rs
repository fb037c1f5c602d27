//! What is in an archive: `mitra dump`, `mitra status` and `mitra export`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

use super::shared::since_default;
use super::{FolderArgs, RangeArgs, SelectArgs, examples};
use crate::values::time::duration;

/// How `mitra dump` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DumpFormat {
    /// Columns for people
    Table,
    /// One line for each value: time,metric,entity,row,value
    Csv,
    /// One JSON object for each value
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("dump", ""))]
#[command(mut_arg("since", |arg| since_default(arg, "a minute before the end")))]
pub struct DumpArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// table, csv (a line for each value) or json (an object on a line for each value)
    #[arg(long, value_enum, default_value = "table", hide_possible_values = true)]
    pub format: DumpFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Print counters as the kernel counts them, not as rates
    #[arg(long)]
    pub raw: bool,
    /// List what the archive holds in place of the values
    #[arg(long)]
    pub list: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("status", ""))]
pub struct StatusArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print nothing, and end with 2 unless a recorder runs and its last sample is younger than 15 seconds or three intervals: for
    /// what watches over services
    #[arg(long, conflicts_with = "json")]
    pub alive: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("export", ""), override_usage = "mitra export [OPTIONS] --<FORMAT> <FILE> [PATH]")]
#[command(mut_arg("since", |arg| since_default(arg, "the beginning of the recording")))]
#[command(group(ArgGroup::new("form").required(true)))]
#[command(mut_args(|arg| match arg.get_id().as_str() {
    "metric" | "entity" | "row" => arg.conflicts_with_all(["sar", "sadf_json", "atop", "trace"]),
    _ => arg,
}))]
pub struct ExportArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Write Parquet to this file, or to a file in this directory; - is standard output
    #[arg(long, value_name = "FILE", group = "form")]
    pub parquet: Option<PathBuf>,
    /// Write a PCP archive, FILE.0, FILE.meta and FILE.index, or with the host's name in this directory; tasks are in it only if
    /// --metric or --entity names them
    #[arg(long, value_name = "FILE", group = "form")]
    pub pcp: Option<PathBuf>,
    /// Write tables as sar prints them (times in UTC) to this file or directory; - is standard output
    #[arg(long, value_name = "FILE", group = "form")]
    pub sar: Option<PathBuf>,
    /// Write JSON as sadf -j prints it to this file or directory; - is standard output
    #[arg(long, value_name = "FILE", group = "form")]
    pub sadf_json: Option<PathBuf>,
    /// Write lines as atop -P prints them to this file or directory; - is standard output
    #[arg(long, value_name = "FILE", group = "form")]
    pub atop: Option<PathBuf>,
    /// Write a trace for Perfetto or chrome://tracing to this file or directory; - is standard output
    #[arg(long, value_name = "FILE", group = "form")]
    pub trace: Option<PathBuf>,
    /// Take the samples of so long together, 1s to 1h [default: 1s]. A PCP archive has the last one of them, or each sample without
    /// this; Parquet always has each value
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "parquet")]
    pub every: Option<Duration>,
}
