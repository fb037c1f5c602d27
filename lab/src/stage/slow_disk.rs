//! Disks whose speed the stage sets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Fs, Isolation, LoopFs, ProcessHandle, Stage};
use crate::incident::{Stop, WithPath};
use crate::journal::Undo;
use crate::roles::IMAGE;

/// The speed of a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    /// Microseconds per request, whatever its size.
    pub micros: u64,
    /// Bytes a second; 0 is unlimited.
    pub bytes_per_s: u64,
}

/// A simulated disk in memory, as the backing file of a loop device.
#[derive(Clone, Debug)]
pub struct SlowDisk {
    image: PathBuf,
    control: PathBuf,
    daemon: ProcessHandle,
}

impl SlowDisk {
    /// The file of the disk.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The FUSE daemon of the disk.
    pub fn daemon(&self) -> ProcessHandle {
        self.daemon
    }

    /// Sets the speed from the next request on.
    pub fn set(&self, speed: Speed) -> Result<(), Stop> {
        write_speed(&self.control, speed)
    }
}

fn write_speed(control: &Path, speed: Speed) -> Result<(), Stop> {
    // Padded to overwrite a longer text completely. The file is not replaced, because the disk has
    // it open.
    let text = format!("{:<20} {:<20}\n", speed.micros, speed.bytes_per_s);
    fs::write(control, text).at(control)
}

impl Stage {
    /// A disk of this size and speed. Its memory is allocated at once.
    pub fn slow_disk(&mut self, bytes: u64, speed: Speed) -> Result<SlowDisk, Stop> {
        if !Path::new("/dev/fuse").exists() {
            return Err(Stop::Skipped("no /dev/fuse".into()));
        }
        self.show_connections()?;
        let name = self.draw.name();
        let (dir, control) = (self.dir.join(format!("fuse-{name}")), self.dir.join(format!("{name}.speed")));
        fs::create_dir_all(&dir).at(&dir)?;
        let image = dir.join(IMAGE);
        write_speed(&control, speed)?;
        self.journal.note(Undo::Unmount(dir.clone()))?;
        let argument = format!("{} {bytes} {}", dir.display(), control.display());
        let daemon = self.role(&name, "slow-disk", argument, &Isolation::default())?.handle();
        self.wait_for("the disk", 10, |stage| image.exists() || stage.ended(daemon).is_some())?;
        self.must_run(daemon, "the disk")?;
        Ok(SlowDisk { image, control, daemon })
    }

    /// Mounts fusectl if nothing has. systemd does.
    fn show_connections(&mut self) -> Result<(), Stop> {
        let dir = Path::new("/sys/fs/fuse/connections");
        let mounts = fs::read_to_string("/proc/self/mounts").at("/proc/self/mounts")?;
        if dir.is_dir() && !mounts.contains(" fusectl ") {
            self.journal.note(Undo::Unmount(dir.to_owned()))?;
            self.run(Command::new("mount").args(["-t", "fusectl", "none"]).arg(dir))?;
        }
        Ok(())
    }

    /// The same with a loop device and a file system on it.
    pub fn slow_fs(&mut self, bytes: u64, kind: Fs, speed: Speed) -> Result<(SlowDisk, LoopFs), Stop> {
        let disk = self.slow_disk(bytes, Speed::default())?;
        let name = self.draw.name();
        let upper = self.loop_over(disk.image(), kind, &name)?;
        disk.set(speed)?;
        Ok((disk, upper))
    }
}
