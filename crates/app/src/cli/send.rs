//! `mitra send`.

use std::path::PathBuf;

use clap::Args;

use super::{FolderArgs, examples};

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "send",
    "The tables [[output]] of /etc/mitra/mitra.toml name the stores: prometheus (remote write), otlp, otlp-logs and clickhouse (incidents), \
                        influx, opentsdb, graphite, kafka, kafka-logs (incidents) or parquet. What is sent are the metrics of /metrics of mitra serve, or those of each table, \
                        every ten seconds. A store that is away gets what it missed from the archive, up to six hours back. See \
                        docs/outputs.md."
))]
pub struct SendArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    /// Read the outputs from this file [default: /etc/mitra/mitra.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where each output's position is kept [default: the folder send beside the usual archive]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Send one sample or log record to each output, say what it answered, and end
    #[arg(long, conflicts_with_all = ["once", "dry_run", "schema"])]
    pub test: bool,
    /// Send what there is, and end when it is sent or a store has taken nothing for two minutes
    #[arg(long)]
    pub once: bool,
    /// Print the last samples, or the log records of the last hour, as they would be sent, and send none
    #[arg(long)]
    pub dry_run: bool,
    /// Print the tables and views that a store needs for incidents, as SQL, and end
    #[arg(long, value_name = "STORE", value_parser = ["clickhouse"], conflicts_with_all = ["once", "dry_run"])]
    pub schema: Option<String>,
}
