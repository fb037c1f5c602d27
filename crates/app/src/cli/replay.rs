//! `mitra replay`.

use clap::Args;

use super::shared::since_default;
use super::{FolderArgs, RangeArgs, examples};
use crate::values::time::TimeExpr;

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "replay",
    "It opens at the first incident, or at the end where there is none. Keys are those of top, atop and htop; ? shows all of them: \
                         i the root cause, n and p the next and previous incident, t and T the next and previous sample, b a time."
))]
#[command(mut_arg("since", |arg| since_default(arg, "a day before the end")))]
pub struct ReplayArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    /// Ask this host: what stands for {host} in the url of a table [[remote]] of mitra.toml
    #[arg(long, value_name = "NAME", conflicts_with_all = ["archive", "path"])]
    pub host: Option<String>,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Open at this time, in the same forms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<TimeExpr>,
}
