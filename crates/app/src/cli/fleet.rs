//! Incidents of all hosts, in a cluster: `mitra fleet`.

use clap::{Args, Subcommand};
use mitra_search::opensearch::GroupBy;

use super::{IndexLocationArgs, examples};
use crate::values::time::TimeExpr;

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "fleet",
    "Incidents come to the cluster by mitra notify, with a table [[notify]] that says to = \"opensearch\". The cluster is that of the \
                        table [index.opensearch]: docs/fleet.md."
))]
pub struct FleetArgs {
    #[command(subcommand)]
    pub command: FleetCommand,
}

#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Install the index template and the retention of incidents in the cluster
    Setup(FleetSetupArgs),
    /// List the incidents of all hosts, the latest first
    #[command(after_help = examples::below("fleet incidents", ""))]
    Incidents(FleetListArgs),
    /// Show which findings are on how many hosts
    #[command(after_help = examples::below("fleet findings", ""))]
    Findings(FleetListArgs),
    /// Show which root causes are on how many hosts, how often, and what they cost
    #[command(after_help = examples::below("fleet roots", ""))]
    Roots(FleetListArgs),
    /// Say what hosts with a root cause have in common that others lack: packages, settings, files
    Why(FleetWhyArgs),
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("fleet setup", ""))]
pub struct FleetSetupArgs {
    #[command(flatten)]
    pub location: IndexLocationArgs,
    /// Delete incidents after so many days
    #[arg(long, value_name = "N", default_value_t = mitra_search::opensearch::KEEP_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub keep_days: u32,
    /// Only print what would be installed, as JSON
    #[arg(long)]
    pub dry_run: bool,
}

/// Which time.
#[derive(Debug, Clone, Args)]
pub struct FleetTimeArgs {
    /// From this time on, with what went on then: 7d, '2 hours ago', 14:03, '2026-11-21 14:03', RFC 3339, @SECONDS
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, default_value = "7d")]
    pub since: TimeExpr,
    /// What began before this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, default_value = "now")]
    pub until: TimeExpr,
}

#[derive(Debug, Args)]
pub struct FleetListArgs {
    #[command(flatten)]
    pub time: FleetTimeArgs,
    /// Only with this root cause, or this finding
    #[arg(long, value_name = "CONDITION")]
    pub root: Option<String>,
    /// Only of this host
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Group them by root, culprit, kernel, package:NAME (its version) or change (of the day before), and count hosts
    #[arg(long, value_name = "WHAT", value_parser = group_by)]
    pub by: Option<GroupBy>,
    /// List so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub limit: usize,
    #[command(flatten)]
    pub location: IndexLocationArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("fleet why", ""))]
pub struct FleetWhyArgs {
    /// The root cause, an id of mitra conditions
    #[arg(value_name = "CONDITION")]
    pub root: String,
    #[command(flatten)]
    pub time: FleetTimeArgs,
    #[command(flatten)]
    pub location: IndexLocationArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn group_by(text: &str) -> Result<GroupBy, String> {
    Ok(match text {
        "root" => GroupBy::Root,
        "culprit" => GroupBy::Culprit,
        "kernel" => GroupBy::Kernel,
        "change" => GroupBy::Change,
        _ => match text.strip_prefix("package:") {
            Some(name) if !name.is_empty() && !name.contains(['*', ' ']) => GroupBy::Package(name.to_owned()),
            _ => return Err("wanted root, culprit, kernel, package:NAME or change".to_owned()),
        },
    })
}

/// As many as a cluster returns at once.
fn limit(text: &str) -> Result<usize, String> {
    use mitra_search::opensearch::RECORDS_MAX;
    text.parse()
        .ok()
        .filter(|n| (1..=RECORDS_MAX).contains(n))
        .ok_or_else(|| format!("wanted 1 to {RECORDS_MAX}"))
}
