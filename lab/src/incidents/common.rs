//! Helpers of several incidents.

use std::path::Path;
use std::process::Command;

use crate::counters::resident_bytes;
use crate::incident::Stop;
use crate::machine;
use crate::stage::{Stage, Victim};

/// `fio` with one job under a drawn name, on an existing file, without an end.
pub fn fio(stage: &mut Stage, file: &Path) -> Command {
    let mut command = Command::new("fio");
    command
        .arg(format!("--name={}", stage.draw().name()))
        .args(["--thread", "--time_based", "--runtime=60", "--allow_file_create=0", "--output-format=terse"])
        .arg(format!("--filename={}", file.display()));
    command
}

/// The same with direct I/O and a constant queue depth.
pub fn fio_queue(stage: &mut Stage, file: &Path, rw: &str, block_kb: u64, depth: u32, jobs: u32) -> Command {
    let mut command = fio(stage, file);
    command
        .args(["--ioengine=libaio", "--direct=1"])
        .arg(format!("--rw={rw}"))
        .arg(format!("--bs={block_kb}k"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--numjobs={jobs}"));
    command
}

/// Waits until the victim has its file in memory.
pub fn wait_for_pages(stage: &mut Stage, victim: &Victim, bytes: u64) -> Result<(), Stop> {
    let pid = victim.pid();
    stage.wait_for("the victim's file in memory", 60, |_| resident_bytes(pid) >= bytes)
}

/// The trouble of an incident that first uses up a reserve. The true onset is the moment at which
/// the reserve is used up, because nothing is hurt before. If that never happens, the incident was
/// not made.
pub fn trouble_from_full(
    stage: &mut Stage,
    reserve: &str,
    mut is_full: impl FnMut() -> Result<bool, Stop>,
) -> Result<(), Stop> {
    let mut was_full = false;
    stage.trouble_on(|stage, _| {
        if !was_full && is_full()? {
            was_full = true;
            stage.onset_is_now();
        }
        Ok(())
    })?;
    if was_full { Ok(()) } else { Err(Stop::NotMade(format!("{reserve} never ran out"))) }
}

/// Scales a count for two CPUs to the CPUs of this machine.
pub fn by_cpus(count: u64) -> u64 {
    count * (machine::cpus() as u64 / 2).max(1)
}
