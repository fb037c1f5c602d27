//! The recorder beside an experiment: the machine's own, or one that is started for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mitra_archive::Reader;

use crate::cli::SamplingArgs;
use crate::errors::usage;
use crate::live::{Child, Shared, Start};
use crate::recording;

/// Of a recording of minutes.
const BYTES_MAX: u64 = 2 << 30;
const AGE_MAX: Duration = Duration::from_secs(365 * 86_400);
/// The usual budget of a recorder.
const CPU_BUDGET: f64 = 0.05;
const MEMORY_BUDGET: u64 = 64 << 20;

/// The archive that a running recorder writes; `None` if the experiment needs one of its own.
pub fn running(flag: Option<&Path>) -> Result<Option<PathBuf>> {
    let is_recording = |dir: &Path| {
        Reader::open(dir).and_then(|reader| reader.status()).is_ok_and(|s| s.recording.is_some())
    };
    match recording::named_archive(flag) {
        Some(dir) if is_recording(&dir) => {
            let dir = std::path::absolute(&dir)
                .with_context(|| format!("cannot tell where {} is", dir.display()))?;
            Ok(Some(dir))
        }
        Some(dir) => Err(usage(format!(
            "{}: no recorder writes it; start one with: mitra record, or use --no-record",
            dir.display()
        ))),
        None => Ok(recording::usual_readable_dir().ok().filter(|dir| is_recording(dir))),
    }
}

/// Starts a recorder that arms no probe: a probe would be part of what is measured.
pub fn start(dir: &Path, interval: Duration) -> Result<Child> {
    let sampling = SamplingArgs {
        interval,
        max_bytes: BYTES_MAX,
        max_age: AGE_MAX,
        no_bpf: false,
        config: None,
        no_arm: true,
        cpu_budget: CPU_BUDGET,
        memory_budget: MEMORY_BUDGET,
    };
    match Child::start(dir, &sampling, &Shared::default())? {
        Start::Recording(child, _) => Ok(child),
        Start::Refused(why) => bail!("the recorder cannot be started: {why}; without one: --no-record"),
    }
}
