//! `mitra notify`.

use std::path::PathBuf;

use clap::Args;

use super::{FolderArgs, examples};

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "notify",
    "The tables [[notify]] of /etc/mitra/mitra.toml name who is told, and how: webhook, slack, teams, alertmanager, pagerduty, \
                        opensearch, journal, desktop or command. There is one message for an incident, another when its verdict changes and one \
                        when it is over. What cannot be delivered waits on the disk and is tried again; a receiver gets 30 messages \
                        an hour unless its table says otherwise, and hears how many it missed. A message as JSON is \
                        mitra.notify/1: docs/notify.md."
))]
pub struct NotifyArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    /// Read the receivers from this file [default: /etc/mitra/mitra.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where what was told and what waits is kept [default: the folder notify beside the usual archive]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Send one message to each receiver, say which arrived, and end
    #[arg(long, conflicts_with_all = ["once", "dry_run"])]
    pub test: bool,
    /// Tell what there is to tell of the last ten minutes, and end when it is delivered or half a minute is over
    #[arg(long)]
    pub once: bool,
    /// Print the messages as JSON lines, and send none
    #[arg(long)]
    pub dry_run: bool,
}
