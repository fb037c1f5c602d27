//! What Mitra says of this machine, of itself, and of XFS: `mitra doctor`, `conditions`, `metrics`, `xfs-geometry`,
//! `completions`, `man` and `docs`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;
use mitra_diagnose::geometry::Level;

use super::examples;
use crate::values::size::{MkfsSize, mkfs_bytes, mkfs_size};

#[derive(Debug, Args)]
#[command(after_help = examples::below("doctor", ""))]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print only what is missing, with the commands for this distribution that change it. Nothing is changed
    #[arg(long, conflicts_with = "json")]
    pub fix_hints: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("conditions", ""))]
pub struct ConditionsArgs {
    /// Show the manual page of this condition
    #[arg(value_name = "ID", conflicts_with = "graph")]
    pub id: Option<String>,
    /// Show which condition can cause which
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "text", require_equals = true, value_name = "FORMAT")]
    pub graph: Option<GraphFormat>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// Lines: what each condition can cause
    Text,
    /// The language of Graphviz
    Dot,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("xfs-geometry", ""))]
pub struct XfsGeometryArgs {
    /// Level of the array: raid0, raid1, raid5, raid6 or raid10
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub level: Level,
    /// Number of disks, without spares
    #[arg(long, value_name = "N")]
    pub disks: u64,
    /// Chunk size: bytes on one disk before the next; k, m, g are powers of 1024. Not needed for raid1
    #[arg(long, value_name = "SIZE", value_parser = mkfs_bytes)]
    pub stripe_unit: Option<u64>,
    /// Size of the device, as 12t or in blocks as 2925527040b; says the size of the allocation groups
    #[arg(long, value_name = "SIZE", value_parser = mkfs_size)]
    pub size: Option<MkfsSize>,
    /// Number of allocation groups [default: what mkfs.xfs chooses]
    #[arg(long, value_name = "N", requires = "size")]
    pub ag_count: Option<u64>,
    /// Block size of the file system
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = mkfs_bytes)]
    pub block_size: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("metrics", ""))]
pub struct MetricsArgs {
    /// Only metrics of these names, with * and ?
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print docs/metrics.md
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("completions", ""))]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("man", ""))]
pub struct ManArgs {
    /// Write mitra.1 and a page for each command to this directory [default: mitra.1 to standard output]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DocsArgs {
    /// The directory
    #[arg(value_name = "DIR", default_value = "docs")]
    pub dir: PathBuf,
    /// Write nothing; fail if a file would change
    #[arg(long)]
    pub check: bool,
}

/// A level of RAID: `raid10` or `10`.
fn level(text: &str) -> Result<Level, String> {
    let text = text.to_ascii_lowercase();
    Ok(match text.strip_prefix("raid").unwrap_or(&text).trim_start_matches('-') {
        "0" => Level::Raid0,
        "1" => Level::Raid1,
        "5" => Level::Raid5,
        "6" => Level::Raid6,
        "10" | "1+0" => Level::Raid10,
        _ => return Err("not a level that is known; want raid0, raid1, raid5, raid6 or raid10".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        assert_eq!(level("RAID10"), Ok(Level::Raid10));
        assert_eq!(level("6"), Ok(Level::Raid6));
        assert!(level("raid4").is_err() && level("").is_err());
    }
}
