//! `mitra explain`, `mitra compare` and `mitra import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ArchiveArgs, RangeArgs, examples};
use crate::values::time::TimeRange;

/// How `mitra explain` writes a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    Text,
    Json,
    Html,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("explain", ""))]
pub struct ExplainArgs {
    #[command(flatten)]
    pub archive: ArchiveArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    /// The good side to compare with: a time as SINCE..UNTIL, or a file or folder of other tools' output [default: the
    /// quiet time beside each incident; folders whose name begins with the word baseline, good, healthy, normal, before,
    /// reference or fixed, or with at-start or after-fix]
    #[arg(long, value_name = "RANGE|PATH", allow_hyphen_values = true)]
    pub baseline: Option<Baseline>,
    /// Only incidents that concern this service: the name of a process, systemd unit or socket, or a port; without one, how
    /// the service was
    #[arg(long, value_name = "NAME|PORT")]
    pub service: Option<String>,
    /// What to write: text, json (schema mitra.report/1) or html (one page with drawings, for a browser) [default: text, or
    /// what the name of --output ends with]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true, conflicts_with = "json")]
    pub format: Option<ReportFormat>,
    /// Write it to this file, without colours; - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The same as --format json
    #[arg(long)]
    pub json: bool,
    /// Also write the report with drawings as one page for a browser; - is standard output, and then only the page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Of several incidents, tell this one: its number in the list
    #[arg(long, value_name = "N", conflicts_with = "json")]
    pub incident: Option<usize>,
    /// All numbers of each step, where time was lost, and everything that was ruled out
    #[arg(long, short)]
    pub verbose: bool,
    /// Quote the lines of files and logs that the numbers come from
    #[arg(long)]
    pub evidence: bool,
    /// The date of files that have times but no date, as 2026-11-21
    #[arg(long, value_name = "DATE", value_parser = date, requires = "paths")]
    pub date: Option<i64>,
    /// Exit with 1 if an incident was found, and with 0 if none was
    #[arg(long)]
    pub exit_code: bool,
    /// Files and folders of other tools' output to explain, whole, in place of an archive: sar, iostat, vmstat, pidstat,
    /// top, strace, kernel logs, /proc files, heaps, benchmarks, … (all of them: docs/formats.md); or the folder of a
    /// recording, or one with a recording in its folder archive, as with --archive
    #[arg(value_name = "PATH", conflicts_with = "archive")]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("compare", ""))]
pub struct CompareArgs {
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// What to compare, the usual or earlier side first: times of the archive as SINCE..UNTIL, or files and folders of
    /// other tools' output; several runs of a benchmark in a folder are repetitions
    #[arg(value_name = "RANGE|PATH", required = true)]
    pub sides: Vec<Baseline>,
    /// List also what is not sure, or too small to matter
    #[arg(long)]
    pub all: bool,
    /// Print JSON, schema mitra.compare/1
    #[arg(long)]
    pub json: bool,
    /// Also write one page with drawings for a browser; - is standard output, and then only the page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The date of files that have times but no date, as 2026-11-21
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub date: Option<i64>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("import", ""))]
pub struct ImportArgs {
    /// The archive to write, in a directory of its own: what holds a recording is refused [env: MITRA_ARCHIVE]
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,
    /// The date of files that have times but no date, as 2026-11-21
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub date: Option<i64>,
    /// Files and folders of other tools' output
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

/// The good side: a time of the archive, or a file or folder.
#[derive(Debug, Clone)]
pub enum Baseline {
    Range(TimeRange),
    Path(PathBuf),
}

impl std::str::FromStr for Baseline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<TimeRange>() {
            Ok(range) => Ok(Baseline::Range(range)),
            Err(_) if std::path::Path::new(text).exists() => Ok(Baseline::Path(text.into())),
            Err(error) => Err(format!("there is no file or folder of that name, and it is {error}")),
        }
    }
}

impl ExplainArgs {
    /// What is asked for, by a flag or by the name of the file.
    pub fn report_format(&self) -> ReportFormat {
        if self.json {
            return ReportFormat::Json;
        }
        let ending = self.output.as_deref().and_then(|path| path.extension()?.to_str());
        self.format.unwrap_or(match ending {
            Some("json") => ReportFormat::Json,
            Some("html" | "htm") => ReportFormat::Html,
            _ => ReportFormat::Text,
        })
    }
}

/// Days since 1970.
fn date(text: &str) -> Result<i64, String> {
    mitra_parse::text::clock::date(text.as_bytes()).ok_or_else(|| "not a date; want 2026-11-21".to_owned())
}
