//! `mitra explain`, `mitra compare` and `mitra import`.

use std::path::PathBuf;

use clap::Args;
use jiff::civil;

use super::shared::{ReportArgs, since_default};
use super::{ArchiveArgs, RangeArgs, examples};
use crate::values::time::TimeRange;

#[derive(Debug, Args)]
#[command(after_help = examples::below("explain", "The schema of --json is mitra.report/1: docs/report.md."))]
#[command(mut_arg("since", |arg| since_default(arg, "an hour before the end")))]
pub struct ExplainArgs {
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Ask this host: what stands for {host} in the url of a table [[remote]] of mitra.toml
    #[arg(long, value_name = "NAME", conflicts_with_all = ["archive", "paths"])]
    pub host: Option<String>,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Compare with this: a time as SINCE..UNTIL, or a file or folder of other tools' output [default: the quiet time beside
    /// each incident; of files a folder called baseline, good, healthy, normal, before, reference or fixed, at-start or
    /// after-fix]
    #[arg(long, value_name = "RANGE|PATH", allow_hyphen_values = true)]
    pub baseline: Option<Baseline>,
    /// Only incidents that concern this service: a process, systemd unit, socket or port. Without an incident, how the service
    /// was
    #[arg(long, value_name = "NAME|PORT")]
    pub service: Option<String>,
    #[command(flatten)]
    pub report: ReportArgs,
    /// Tell this one of several incidents: its number in the list
    #[arg(long, value_name = "N", conflicts_with = "json")]
    pub incident: Option<usize>,
    /// Show all numbers of each step, where time was lost, and everything that was ruled out
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
    /// Explain these in place of the archive: the folder of a recording, or files and folders of other tools' output (sar,
    /// iostat, vmstat, pidstat, top, strace, kernel logs, /proc files, heaps, benchmarks, …; all of them: docs/formats.md)
    #[arg(value_name = "PATH", conflicts_with = "archive")]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("compare", "The schema of --json is mitra.compare/1."))]
pub struct CompareArgs {
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Compare these, the usual or earlier side first: times of the archive as SINCE..UNTIL, or files and folders of other
    /// tools' output. Several runs of a benchmark in one folder are repetitions
    #[arg(value_name = "RANGE|PATH", required = true)]
    pub sides: Vec<Baseline>,
    /// Also list differences that are not sure, or too small to matter
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub report: ReportArgs,
    /// The date of files that have times but no date, as 2026-11-21
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub date: Option<i64>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("import", ""))]
pub struct ImportArgs {
    /// Write to this archive, a directory of its own: one with a recording is refused [env: MITRA_ARCHIVE]
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

/// Days since 1970.
fn date(text: &str) -> Result<i64, String> {
    let date: civil::Date = text.parse().map_err(|_| "not a date; want 2026-11-21".to_owned())?;
    let days = civil::date(1970, 1, 1).until(date);
    days.map(|span| i64::from(span.get_days())).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_that_there_are() {
        assert_eq!(date("1970-01-01"), Ok(0));
        assert_eq!(date("2026-11-21"), Ok(20_778));
        assert_eq!(date("1969-12-31"), Ok(-1));
        for wrong in ["2026-02-30", "2026-13-01", "21.11.2026", "yesterday", ""] {
            assert!(date(wrong).is_err(), "{wrong}");
        }
    }
}
