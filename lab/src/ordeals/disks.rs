//! The disk of the archive takes no data, or next to none.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use super::{ArchiveDisk, Ordeal};
use crate::incident::{Need, Stop};
use crate::journal::Undo;
use crate::stage::{IoLimit, ProcessHandle, Stage, device_names};

const DISK_BYTES: u64 = 64 << 20;
/// Write rate of the choked disk, and how much is written to it: enough for three minutes.
const CHOKED_BYTES_PER_S: u64 = 1 << 20;
const CHOKED_MB: u32 = 200;
/// The trouble ends a little before the recording.
const TROUBLE_SHARE: f64 = 0.7;

/// The ordeals of this file.
pub const ORDEALS: &[Ordeal] = &[
    Ordeal {
        name: "full-disk",
        what: "the archive's disk is full for most of the time",
        needs: &[Need::Tool("mkfs.ext4")],
        home: ArchiveDisk::SmallDisk(DISK_BYTES),
        make: full,
    },
    Ordeal {
        name: "frozen-disk",
        what: "the archive's file system is frozen, as for a snapshot that never ends",
        needs: &[Need::Tool("mkfs.ext4"), Need::Tool("fsfreeze")],
        home: ArchiveDisk::SmallDisk(DISK_BYTES),
        make: frozen,
    },
    Ordeal {
        name: "choked-disk",
        what: "the archive's disk takes 1 MB/s, and somebody else writes 200 MB",
        needs: &[Need::Tool("mkfs.ext4"), Need::Tool("dd")],
        home: ArchiveDisk::SmallDisk(400 << 20),
        make: choked,
    },
];

/// Fills the disk in small steps.
fn fill(home: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(home.join("filler"))?;
    while file.write_all(&[1; 4096]).is_ok() {}
    Ok(())
}

fn full(stage: &mut Stage, home: &Path) -> Result<(), Stop> {
    stage.healthy()?;
    stage.trouble_starts();
    let end_s = stage.length().as_secs_f64() * TROUBLE_SHARE;
    let mut is_full = false;
    stage.trouble_with(|seconds| {
        let filler = home.join("filler");
        if seconds < end_s {
            // Also takes blocks that are freed elsewhere meanwhile.
            fill(home)?;
            is_full = true;
        } else if filler.exists() {
            fs::remove_file(filler)?;
        }
        Ok(())
    })?;
    if is_full { Ok(()) } else { Err(Stop::NotMade("the disk was never full".into())) }
}

fn frozen(stage: &mut Stage, home: &Path) -> Result<(), Stop> {
    stage.healthy()?;
    stage.trouble_starts();
    let thaw = Undo::Thaw(home.to_path_buf());
    stage.on_cleanup(thaw.clone())?;
    stage.run(Command::new("fsfreeze").arg("-f").arg(home))?;
    let mark = format!("echo >'{}'", home.join("written").display());
    let writer = stage.spawn(Command::new("sh").args(["-c", &mark]))?;
    until_late(stage, &thaw, |stage| stuck(stage, writer, "the file system took a write while it was frozen"))
}

fn choked(stage: &mut Stage, home: &Path) -> Result<(), Stop> {
    let devices = device_names(home)?;
    let device = devices.first().ok_or_else(|| Stop::Failed("the archive is on no device".into()))?;
    stage.healthy()?;
    stage.trouble_starts();
    stage.throttle(device, IoLimit { wbps: Some(CHOKED_BYTES_PER_S), ..IoLimit::default() })?;
    let written = format!("of={}", home.join("written").display());
    let count = format!("count={CHOKED_MB}");
    let mut dd = Command::new("dd");
    let writer = stage.spawn(dd.args(["if=/dev/zero", "bs=1M", "conv=fsync", &count]).arg(written))?;
    let number = fs::read_to_string(format!("/sys/block/{device}/dev"))?;
    let rule = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
    let lift = Undo::Lift(rule.into(), format!("{} 0", number.trim()));
    until_late(stage, &lift, |stage| stuck(stage, writer, "the disk took everything although it was choked"))
}

/// An error if the writer has ended.
fn stuck(stage: &mut Stage, writer: ProcessHandle, else_said: &str) -> Result<(), Stop> {
    match stage.ended(writer) {
        None => Ok(()),
        Some(_) => Err(Stop::NotMade(else_said.into())),
    }
}

/// Ends the trouble before the recorder is stopped, so that its buffered data can reach the disk.
/// Before that, `made` checks that there was a trouble.
fn until_late(
    stage: &mut Stage,
    end: &Undo,
    made: impl Fn(&mut Stage) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let end_s = stage.length().as_secs_f64() * TROUBLE_SHARE;
    let mut is_over = false;
    stage.trouble_on(|stage, seconds| {
        if !is_over && seconds >= end_s {
            is_over = true;
            made(stage)?;
            end.perform()?;
        }
        Ok(())
    })
}
