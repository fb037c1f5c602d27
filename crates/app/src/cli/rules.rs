//! `mitra rules`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::shared::since_default;
use super::{ArchiveArgs, RangeArgs, examples};

#[derive(Debug, Args)]
#[command(after_help = examples::below("rules", "The language of rules: docs/rules.md."))]
pub struct RulesArgs {
    #[command(subcommand)]
    pub command: RulesCommand,
}

#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Say whether the configuration file is valid
    Check(RulesCheckArgs),
    /// Show the rules, one's own and the built-in ones
    List(RulesListArgs),
    /// Say when rules would have held, and what they would have done; does nothing
    Test(RulesTestArgs),
}

/// Which rules.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// Read rules from this file [default: /etc/mitra/mitra.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("rules check", ""))]
pub struct RulesCheckArgs {
    /// Check this file [default: /etc/mitra/mitra.toml, if it is there]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("rules list", ""))]
pub struct RulesListArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Show only this rule, with all that is known of it
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("rules test", ""))]
#[command(mut_arg("since", |arg| since_default(arg, "the beginning of the recording")))]
pub struct RulesTestArgs {
    #[command(flatten)]
    pub archive: ArchiveArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Test only this rule
    #[arg(long, value_name = "NAME")]
    pub rule: Option<String>,
    /// Test this expression in place of the rules: "sys.forks > 500/s for 3s"
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "rule")]
    pub when: Option<String>,
    /// Print JSON, schema mitra.rules-test/1
    #[arg(long)]
    pub json: bool,
    /// Read files and folders of other tools' output in place of the archive
    #[arg(value_name = "PATH", conflicts_with_all = ["archive", "since", "until"])]
    pub paths: Vec<PathBuf>,
}
