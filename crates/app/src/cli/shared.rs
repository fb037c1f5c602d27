//! Flags that several commands have.

use std::path::{Path, PathBuf};

use clap::{Arg, Args, ValueEnum};

use crate::values::time::TimeExpr;

/// Which archive.
#[derive(Debug, Clone, Args)]
pub struct ArchiveArgs {
    /// The archive, a directory; of commands that take a time also https://HOST:PORT, where mitra serve runs, or
    /// s3://BUCKET/PREFIX/HOST [env: MITRA_ARCHIVE] [default: /var/lib/mitra; not as root ~/.local/state/mitra, if it is
    /// there]
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,
}

/// Which archive, that may just be named.
#[derive(Debug, Clone, Args)]
pub struct FolderArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// The folder of a recording, in place of --archive
    #[arg(value_name = "PATH", conflicts_with = "archive")]
    path: Option<PathBuf>,
}

impl FolderArgs {
    /// As if it had been given by `--archive`.
    pub fn chosen(&self) -> ArchiveArgs {
        ArchiveArgs { archive: self.path.clone().or_else(|| self.archive.archive.clone()) }
    }
}

/// Which part of it.
#[derive(Debug, Clone, Args)]
pub struct RangeArgs {
    /// Begin here: 2h, '2 hours ago', 14:03, yesterday, 2026-11-21, '2026-11-21 14:03', RFC 3339 or @SECONDS
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<TimeExpr>,
    /// End here, in the same forms [default: the end of the recording]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<TimeExpr>,
}

/// Which metrics, of which things.
#[derive(Debug, Clone, Args)]
pub struct SelectArgs {
    /// Names with * and ?, separated by commas: mem.*,vm.pgscan_*
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metric: Vec<String>,
    /// Only metrics of this kind of thing: system, cpu, disk, task, …
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub entity: Vec<String>,
    /// Only things whose name matches, with * and ?: vda, /system.slice/*; of a task its thread id
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub row: Vec<String>,
}

/// Says in the help of `--since` what a command takes without it.
pub fn since_default(arg: Arg, default: &str) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    arg.help(format!("{help} [default: {default}]"))
}

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    Text,
    Json,
    Html,
}

/// How a report is written, and where to.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// text, json, or html (one page with drawings, for a browser) [default: text, or what the name of --output ends with]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true, conflicts_with = "json")]
    pub format: Option<ReportFormat>,
    /// Write to this file, without colours; - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The same as --format json
    #[arg(long)]
    pub json: bool,
    /// Also write the page for a browser to this file; - is standard output, and then only the page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl ReportArgs {
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

    /// The file, if it is not standard output.
    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.as_os_str() != "-")
    }
}
