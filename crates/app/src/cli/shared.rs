//! Flags that several commands have.

use std::path::PathBuf;

use clap::Args;

use crate::values::time::TimeExpr;

/// Which archive.
#[derive(Debug, Clone, Args)]
pub struct ArchiveArgs {
    /// The archive's directory [env: MITRA_ARCHIVE] [default: as root /var/lib/mitra, else $XDG_STATE_HOME/mitra or ~/.local/state/mitra; where
    /// that is not there, /var/lib/mitra is read]
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,
}

/// Which part of it.
#[derive(Debug, Clone, Args)]
pub struct RangeArgs {
    /// From when on: 2h, '2 hours ago', 14:03, yesterday, today, 2026-11-21, '2026-11-21 14:03', RFC 3339 or @epoch
    /// [default: explain the last hour, dump and services the last minute, otherwise everything]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<TimeExpr>,
    /// Until when, in the same forms [default: the end of the recording]
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
