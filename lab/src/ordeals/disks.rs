//! The disk that the archive is on takes nothing, or next to nothing.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use super::{Home, Ordeal};
use crate::incident::{Need, Stop};
use crate::journal::Undo;
use crate::stage::{IoLimit, Stage, device_names};

const DISK_BYTES: u64 = 64 << 20;
/// The trouble ends a little before the recording does.
const TROUBLE_SHARE: f64 = 0.7;

/// The ordeals of this file.
pub const ORDEALS: &[Ordeal] = &[
    Ordeal {
        name: "full-disk",
        what: "the archive's disk is full for most of the time",
        needs: &[Need::Tool("mkfs.ext4")],
        home: Home::SmallDisk(DISK_BYTES),
        make: full,
    },
    Ordeal {
        name: "frozen-disk",
        what: "the archive's file system is frozen, as for a snapshot that never ends",
        needs: &[Need::Tool("mkfs.ext4"), Need::Tool("fsfreeze")],
        home: Home::SmallDisk(DISK_BYTES),
        make: frozen,
    },
    Ordeal {
        name: "choked-disk",
        what: "the archive's disk takes 1 MB/s, and somebody else writes 200 MB",
        needs: &[Need::Tool("mkfs.ext4"), Need::Tool("dd")],
        home: Home::SmallDisk(400 << 20),
        make: choked,
    },
];

/// Takes what is left of the disk, in small steps.
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
            // The last block that is set free elsewhere is taken too.
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
    until_late(stage, &thaw)
}

fn choked(stage: &mut Stage, home: &Path) -> Result<(), Stop> {
    let devices = device_names(home)?;
    let device = devices.first().ok_or_else(|| Stop::Failed("the archive is on no device".into()))?;
    stage.healthy()?;
    stage.trouble_starts();
    stage.throttle(device, IoLimit { wbps: Some(1 << 20), ..IoLimit::default() })?;
    let written = format!("of={}", home.join("written").display());
    stage.spawn(Command::new("dd").args(["if=/dev/zero", "bs=1M", "count=200"]).arg(written))?;
    let number = fs::read_to_string(format!("/sys/block/{device}/dev"))?;
    let rule = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
    until_late(stage, &Undo::Lift(rule.into(), format!("{} 0", number.trim())))
}

/// Ends the trouble before the recorder is stopped: what it holds then has to reach the disk.
fn until_late(stage: &mut Stage, end: &Undo) -> Result<(), Stop> {
    let end_s = stage.length().as_secs_f64() * TROUBLE_SHARE;
    let mut is_over = false;
    stage.trouble_with(|seconds| {
        if !is_over && seconds >= end_s {
            is_over = true;
            end.perform()?;
        }
        Ok(())
    })
}
