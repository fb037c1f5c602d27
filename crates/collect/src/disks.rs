//! What a disk is: whether it turns, who orders its requests, the file behind a loop device, and the mirror that it
//! is a member of. Read on slow ticks.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

use mitra_model::{Entity, Frame, Key};
use mitra_parse::sysctl::{number, selected};

use crate::cells::{col, row, set};
use crate::file::{Root, each_entry};
use crate::io::Io;

/// No more disks are looked at.
const DISKS_MAX: usize = 1_024;

/// The columns.
#[derive(Debug)]
pub struct DiskFacts {
    rotational: usize,
    scheduler: usize,
    backing: usize,
    mirror: usize,
    present: Option<BTreeSet<String>>,
}

impl DiskFacts {
    pub fn new() -> Self {
        DiskFacts {
            rotational: col("disk.rotational"),
            scheduler: col("disk.queue_scheduler"),
            backing: col("disk.backing"),
            mirror: col("disk.mirror"),
            present: None,
        }
    }

    /// The disks that there were when it was read last, and of loop devices those with a file. `None` where they could not be
    /// listed, or not all of them.
    pub fn present(&self) -> Option<&BTreeSet<String>> {
        self.present.as_ref()
    }

    /// Fills a row for each disk of `/sys/block`. In names sysfs writes a slash as an exclamation mark.
    pub fn read(&mut self, io: &mut Io, frame: &mut Frame) {
        let listed = entries(io, "sys/block");
        let is_whole = listed.as_ref().is_some_and(|names| names.len() < DISKS_MAX);
        let names = listed.unwrap_or_default();
        let mut present = BTreeSet::new();
        for name in &names {
            let device = name.replace('!', "/");
            let key = Key::named(io.strings.intern(&device));
            let row = row(frame.table_mut(Entity::Disk), key);
            if let Ok(bytes) = io.root.read(&format!("sys/block/{name}/queue/rotational"), &mut io.buffer)
                && let Some(value) = number(bytes)
            {
                set(row, self.rotational, value);
            }
            if let Ok(bytes) = io.root.read(&format!("sys/block/{name}/queue/scheduler"), &mut io.buffer) {
                let line = bytes.trim_ascii();
                if let Ok(text) = std::str::from_utf8(selected(line).unwrap_or(line)) {
                    set(row, self.scheduler, i64::from(io.strings.intern(text)));
                }
            }
            if name.starts_with("loop") {
                let Some(file) = io.root.text(&format!("sys/block/{name}/loop/backing_file")) else {
                    continue;
                };
                set(row, self.backing, i64::from(io.strings.intern(&file)));
            }
            present.insert(device);
        }
        self.present = is_whole.then_some(present);
        for (member, mirror) in mirrors(io, &names) {
            let key = Key::named(io.strings.intern(&member.replace('!', "/")));
            let mirror = i64::from(io.strings.intern(&mirror));
            set(row(frame.table_mut(Entity::Disk), key), self.mirror, mirror);
        }
    }
}

/// The name of a disk by its numbers: where their link in `/sys/dev/block` leads, with the slash that sysfs writes as
/// an exclamation mark.
pub fn disk_of(root: &Root, (major, minor): (u32, u32)) -> Option<String> {
    let link =
        rustix::fs::readlinkat(root.fd(), format!("sys/dev/block/{major}:{minor}"), Vec::new()).ok()?;
    Some(link.to_str().ok()?.rsplit('/').next()?.replace('!', "/"))
}

/// The entries of a directory in order.
fn entries(io: &Io, below: &str) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    let dir = io.root.open_file(below).ok()?;
    let listed = each_entry(dir.as_fd(), |name| {
        names.extend(name.to_str().ok().filter(|_| names.len() < DISKS_MAX).map(str::to_owned));
    });
    names.sort_unstable();
    listed.ok().map(|()| names)
}

/// Members of mirrors, devices or partitions, and the mirrors: md devices that keep each block more than once, and
/// btrfs filesystems that do so with their data. Device-mapper does not tell.
fn mirrors(io: &Io, disks: &[String]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for disk in disks.iter().filter(|name| name.starts_with("md")) {
        let level = io.root.text(&format!("sys/block/{disk}/md/level")).unwrap_or_default();
        if matches!(level.as_str(), "raid1" | "raid10") {
            let members = entries(io, &format!("sys/block/{disk}/slaves")).unwrap_or_default();
            found.extend(members.into_iter().map(|member| (member, disk.clone())));
        }
    }
    for id in entries(io, "sys/fs/btrfs").unwrap_or_default().iter().filter(|name| name.contains('-')) {
        let profiles = entries(io, &format!("sys/fs/btrfs/{id}/allocation/data")).unwrap_or_default();
        if profiles.iter().any(|profile| profile.starts_with("raid1")) {
            let members = entries(io, &format!("sys/fs/btrfs/{id}/devices")).unwrap_or_default();
            found.extend(members.into_iter().map(|member| (member, format!("btrfs:{id}"))));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use mitra_model::{NA, column};

    #[test]
    fn members_of_mirrors_and_files_behind_loops_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file("sys/block/md0/md/level", "raid1\n");
        file("sys/block/md0/slaves/sda1/x", "");
        file("sys/block/md0/slaves/sdb1/x", "");
        file("sys/block/md1/md/level", "raid0\n");
        file("sys/block/md1/slaves/sdc/x", "");
        file("sys/block/loop0/loop/backing_file", "/var/images/a b.img\n");
        file("sys/block/loop1/queue/rotational", "0\n");
        let id = "12345678-1234-1234-1234-123456789abc";
        file(&format!("sys/fs/btrfs/{id}/allocation/data/raid1c3/total_bytes"), "1\n");
        file(&format!("sys/fs/btrfs/{id}/devices/loop1/x"), "");
        let other = "22345678-1234-1234-1234-123456789abc";
        file(&format!("sys/fs/btrfs/{other}/allocation/data/single/total_bytes"), "1\n");
        file(&format!("sys/fs/btrfs/{other}/devices/sdc/x"), "");
        let mut io = Io::new(Root::open(dir.path()).unwrap());
        let mut frame = Frame::new();
        let mut facts = DiskFacts::new();
        facts.read(&mut io, &mut frame);
        let present: Vec<&str> = facts.present().unwrap().iter().map(String::as_str).collect();
        assert_eq!(present, ["loop0", "md0", "md1"], "a loop device without a file is no disk");
        let text = |name: &str, metric: &str| {
            let table = frame.table(Entity::Disk);
            let at = table
                .keys()
                .iter()
                .position(|key| u32::try_from(key.id).ok().and_then(|id| io.strings.get(id)) == Some(name))?;
            let cell = table.row(at)[column(metric).unwrap()];
            (cell != NA).then(|| io.strings.cell(cell).unwrap().to_owned())
        };
        assert_eq!(text("sda1", "disk.mirror").as_deref(), Some("md0"));
        assert_eq!(text("sdb1", "disk.mirror").as_deref(), Some("md0"));
        assert_eq!(text("sdc", "disk.mirror"), None);
        assert_eq!(text("loop1", "disk.mirror").unwrap(), format!("btrfs:{id}"));
        assert_eq!(text("loop0", "disk.backing").as_deref(), Some("/var/images/a b.img"));
        assert_eq!(text("loop1", "disk.backing"), None);
    }
}
