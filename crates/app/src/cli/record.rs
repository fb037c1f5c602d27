//! `mitra record` and `mitra live`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::serve::Listen;
use super::{ArchiveArgs, examples};
use crate::values::size::{share, size};
use crate::values::time::duration;

/// How to record.
#[derive(Debug, Clone, Args)]
pub struct SamplingArgs {
    /// Take a sample each time after so long, 100ms to 10m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub interval: Duration,
    /// Delete the oldest data when the archive is larger than this
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = size)]
    pub max_bytes: u64,
    /// Delete data older than this, a few at a time, while the clock can be believed
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration)]
    pub max_age: Duration,
    /// Read /proc only, load no BPF program
    #[arg(long)]
    pub no_bpf: bool,
    /// Read rules from this file too [default: /etc/mitra/mitra.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Start no probe and run no command, whatever looks wrong
    #[arg(long)]
    pub no_arm: bool,
    /// Leave out detail above this share of one CPU
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share)]
    pub cpu_budget: f64,
    /// Leave out detail above so much memory of its own
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub memory_budget: u64,
}

/// Beside the recorder.
#[derive(Debug, Args)]
pub struct AlsoServe {
    /// Also show the recording in a browser, as mitra serve does [default: 127.0.0.1:6174]
    #[arg(long, value_name = "ADDR:PORT|unix:PATH", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:6174", value_parser = closed)]
    pub serve: Option<Listen>,
}

/// Encryption has more to say than fits beside a recorder.
fn closed(text: &str) -> Result<Listen, String> {
    let listen: Listen = text.parse()?;
    if listen.is_open() {
        return Err(
            "other machines reach it; run mitra serve beside the recorder, with --tls-cert and --token-file"
                .to_owned(),
        );
    }
    Ok(listen)
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("record", ""))]
pub struct RecordArgs {
    #[command(flatten)]
    pub archive: ArchiveArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub serve: AlsoServe,
    /// Also answer on the system bus, as mitra dbus does, and arm probes for who may have them
    #[arg(long)]
    pub dbus: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("live", ""))]
pub struct LiveArgs {
    #[command(flatten)]
    pub archive: ArchiveArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub serve: AlsoServe,
    /// Print incidents as plain lines even on a terminal
    #[arg(long)]
    pub plain: bool,
}
