//! Files and file systems of a stage.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{IoLimit, Stage};
use crate::incident::{Stop, WithPath};
use crate::journal::Undo;
use crate::machine;

/// The file system on a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fs {
    /// ext4 without lazy initialisation, whose kernel thread would be noise.
    Ext4,
    /// XFS, which needs 300 MB.
    Xfs,
    /// Only the device, without a file system.
    None,
}

/// A loop device and its mount.
#[derive(Clone, Debug)]
pub struct LoopFs {
    device: String,
    mount: PathBuf,
    backing: PathBuf,
}

impl LoopFs {
    /// `loop3`
    pub fn device(&self) -> &str {
        &self.device
    }

    /// `/dev/loop3`
    pub fn node(&self) -> String {
        format!("/dev/{}", self.device)
    }

    /// Its mount point; an empty directory if there is no file system.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The backing file.
    pub fn backing(&self) -> &Path {
        &self.backing
    }
}

/// All names of the disk under a path: the partition if there is one, and the devices below a
/// logical volume. `["vda"]`, `["nvme0n1p2", "nvme0n1"]`, `["dm-0", "sda2", "sda"]`.
pub fn device_names(path: &Path) -> Result<Vec<String>, Stop> {
    let mut names = Vec::new();
    add_names(&device_dir(path)?, &mut names);
    Ok(names)
}

/// The directory in `/sys` of the device under a path.
fn device_dir(path: &Path) -> Result<PathBuf, Stop> {
    let dev = fs::metadata(path).at(path)?.st_dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
        .map_err(|e| Stop::Skipped(format!("{} is not on a block device: {e}", path.display())))
}

fn is_partition(device: &Path) -> bool {
    device.join("partition").exists()
}

/// Adds the name of a device, of its whole disk, and of the devices below it.
fn add_names(device: &Path, names: &mut Vec<String>) {
    let Some(name) = device.file_name().map(|n| n.to_string_lossy().into_owned()) else { return };
    // Two volumes may lie on one disk.
    if names.contains(&name) {
        return;
    }
    names.push(name);
    if let Some(disk) = device.parent().filter(|_| is_partition(device)) {
        add_names(disk, names);
    }
    let slaves = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let mut slaves: Vec<PathBuf> = slaves.filter_map(|slave| fs::canonicalize(slave.path()).ok()).collect();
    slaves.sort();
    slaves.iter().for_each(|slave| add_names(slave, names));
}

/// `254:0` of a device's name.
pub(super) fn device_number(device: &str) -> Result<String, Stop> {
    let path = format!("/sys/class/block/{device}/dev");
    let text = fs::read_to_string(&path).at(&path)?;
    Ok(text.trim().to_owned())
}

impl Stage {
    /// Writes a file of zeros in the stage's directory with direct I/O, so that none of it is
    /// cached.
    ///
    /// Unwritten extents or holes would not do: reading them does not reach the device.
    pub fn write_file(&mut self, name: &str, bytes: u64) -> Result<PathBuf, Stop> {
        let path = self.dir.join(name);
        self.write_file_at(&path, bytes)?;
        Ok(path)
    }

    /// The same at any path that belongs to the stage.
    pub fn write_file_at(&mut self, path: &Path, bytes: u64) -> Result<(), Stop> {
        let dir = path.parent().unwrap_or(path);
        if machine::free_disk_bytes(dir) < bytes + bytes / 8 {
            return Err(Stop::Skipped(format!("not enough disk space for {} MB", bytes >> 20)));
        }
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=4M", "iflag=count_bytes", "oflag=direct", "conv=fsync", "status=none"]);
        dd.arg(format!("count={bytes}")).arg(format!("of={}", path.display()));
        self.run_for(&format!("a file of {} MB", bytes >> 20), bytes, &mut dd).map(drop)
    }

    /// The disk under the stage's directory: `["vda"]`.
    pub fn disk(&self) -> Result<Vec<String>, Stop> {
        device_names(&self.dir)
    }

    /// The device of [`Self::disk`] that accepts a limit: the one below the file system, not its
    /// partition.
    pub fn whole_disk(&self) -> Result<String, Stop> {
        let device = device_dir(&self.dir)?;
        let disk = if is_partition(&device) { device.parent() } else { Some(device.as_path()) };
        let name = disk.and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
        name.ok_or_else(|| Stop::Skipped("no disk".into()))
    }

    /// A loop device over a new file, with a file system. Removed at the end.
    pub fn loop_fs(&mut self, bytes: u64, kind: Fs) -> Result<LoopFs, Stop> {
        let name = self.draw.name();
        let backing = self.write_file(&format!("{name}.img"), bytes)?;
        self.loop_over(&backing, kind, &name)
    }

    /// The same over an existing file, for instance one on another loop device's file system.
    pub fn loop_over(&mut self, backing: &Path, kind: Fs, name: &str) -> Result<LoopFs, Stop> {
        // The device is known only after it is bound. The undo finds it by its file, even if the
        // run is killed in between.
        let find = format!(
            "losetup --associated '{}' --output NAME --noheadings | xargs -r losetup --detach",
            backing.display()
        );
        self.journal.note(Undo::Command(vec!["sh".into(), "-c".into(), find]))?;
        let found =
            self.run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(backing));
        let node = found.map_err(|e| Stop::Skipped(format!("no loop device: {e}")))?.trim().to_owned();
        self.journal.note(Undo::Detach(node.clone()))?;
        let mount = self.dir.join(format!("mnt-{name}"));
        fs::create_dir_all(&mount).at(&mount)?;
        let device = node.trim_start_matches("/dev/").to_owned();
        let (maker, fs_type): (&[&str], &str) = match kind {
            Fs::Ext4 => (&["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"], "ext4"),
            Fs::Xfs => (&["mkfs.xfs", "-q", "-f"], "xfs"),
            Fs::None => return Ok(LoopFs { device, mount, backing: backing.to_owned() }),
        };
        let Some((program, flags)) = maker.split_first() else { return Err(Stop::Failed("no mkfs".into())) };
        let program =
            machine::which(program).ok_or_else(|| Stop::Skipped(format!("{program} is not installed")))?;
        self.run(Command::new(program).args(flags).arg(&node))?;
        self.mount(&node, &mount, fs_type, "")?;
        Ok(LoopFs { device, mount, backing: backing.to_owned() })
    }

    /// Mounts a file system. Unmounted at the end.
    pub fn mount(&mut self, what: &str, at: &Path, fs_type: &str, options: &str) -> Result<(), Stop> {
        fs::create_dir_all(at).at(at)?;
        self.journal.note(Undo::Unmount(at.to_owned()))?;
        let mut command = Command::new("mount");
        command.args(["-t", fs_type]);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        self.run(command.arg(what).arg(at)).map(drop)
    }

    /// Limits I/O on a device for the whole machine: a QoS rule above the device's queue. Lifted
    /// first at the end.
    pub fn throttle(&mut self, device: &str, limit: IoLimit) -> Result<(), Stop> {
        let root = Path::new("/sys/fs/cgroup/blkio");
        if !root.join("blkio.throttle.read_iops_device").exists() {
            return Err(Stop::Skipped("only cgroup v1 has a rule for everybody".into()));
        }
        self.throttle_v1(root, device, limit)
    }

    pub(super) fn throttle_v1(&mut self, dir: &Path, device: &str, limit: IoLimit) -> Result<(), Stop> {
        let number = device_number(device)?;
        for (file, value) in limit.v1() {
            let path = dir.join(file);
            self.journal.note(Undo::Lift(path.clone(), format!("{number} 0")))?;
            fs::write(&path, format!("{number} {value}")).at(&path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::add_names;

    #[test]
    fn a_volume_is_known_by_what_it_is_made_of() {
        let sys = tempfile::tempdir().unwrap();
        let (disk, volume, crypt) =
            (sys.path().join("vda"), sys.path().join("dm-0"), sys.path().join("dm-1"));
        let part = disk.join("vda2");
        for dir in [&part, &volume.join("slaves"), &crypt.join("slaves")] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(part.join("partition"), "2\n").unwrap();
        symlink(&part, volume.join("slaves/vda2")).unwrap();
        symlink(&volume, crypt.join("slaves/dm-0")).unwrap();
        let names = |device: &Path| {
            let mut names = Vec::new();
            add_names(device, &mut names);
            names
        };
        assert_eq!(names(&disk), ["vda"]);
        assert_eq!(names(&part), ["vda2", "vda"]);
        assert_eq!(names(&crypt), ["dm-1", "dm-0", "vda2", "vda"]);
    }
}
