//! `mitra rules`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ArchiveArgs, RangeArgs, examples};

#[derive(Debug, Args)]
pub struct RulesArgs {
    #[command(subcommand)]
    pub command: RulesCommand,
}

#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Say whether the configuration file makes sense
    Check(RulesCheckArgs),
    /// Show the rules, one's own and the built-in ones
    List(RulesListArgs),
    /// Say when rules would have held in a recording or other tools' output, and what they would have done; does nothing
    Test(RulesTestArgs),
}

/// Which rules.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// The configuration file [default: /etc/mitra/mitra.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RulesCheckArgs {
    /// The file [default: /etc/mitra/mitra.toml, if it is there]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RulesListArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Show only this one, with all that is known of it
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("rules test", ""))]
pub struct RulesTestArgs {
    #[command(flatten)]
    pub archive: ArchiveArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Only this rule
    #[arg(long, value_name = "NAME")]
    pub rule: Option<String>,
    /// In place of the rules, this condition: "sys.forks > 500/s for 3s"
    #[arg(long, value_name = "CONDITION", conflicts_with = "rule")]
    pub when: Option<String>,
    /// Print JSON, schema mitra.rules-test/1
    #[arg(long)]
    pub json: bool,
    /// Files and folders of other tools' output in place of an archive
    #[arg(value_name = "PATH", conflicts_with_all = ["archive", "since", "until"])]
    pub paths: Vec<PathBuf>,
}
