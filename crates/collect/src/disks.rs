//! What a disk is: whether it turns, who orders its requests, the file behind a loop device, the array and the mirror that
//! it is a member of, and what an array does beside its work. Read on slow ticks.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

use mitra_model::{Entity, Frame, Key, NA};
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
    array: usize,
    stripe: [usize; 2],
    sync: [usize; 3],
    present: Option<BTreeSet<String>>,
}

impl DiskFacts {
    pub fn new() -> Self {
        DiskFacts {
            rotational: col("disk.rotational"),
            scheduler: col("disk.queue_scheduler"),
            backing: col("disk.backing"),
            mirror: col("disk.mirror"),
            array: col("disk.array"),
            stripe: ["disk.stripe_unit", "disk.stripe_width"].map(col),
            sync: ["disk.sync_action", "disk.sync_speed", "disk.sync_left"].map(col),
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
        for md in names.iter().filter(|name| name.starts_with("md")) {
            self.read_array(md, io, frame);
        }
        for (member, mirror) in btrfs_mirrors(io) {
            let key = Key::named(io.strings.intern(&member.replace('!', "/")));
            let mirror = i64::from(io.strings.intern(&mirror));
            set(row(frame.table_mut(Entity::Disk), key), self.mirror, mirror);
        }
    }

    /// Fills the cells of an md device and of its members; see Documentation/admin-guide/md.rst. An md device keeps each block
    /// more than once if its level is that of a mirror.
    fn read_array(&self, md: &str, io: &mut Io, frame: &mut Frame) {
        let text = |io: &Io, file: &str| io.root.text(&format!("sys/block/{md}/{file}"));
        let Some(level) = text(io, "md/level") else { return };
        let is_mirror = matches!(level.as_str(), "raid1" | "raid10");
        let array = io.strings.intern(&md.replace('!', "/"));
        for member in entries(io, &format!("sys/block/{md}/slaves")).unwrap_or_default() {
            let key = Key::named(io.strings.intern(&member.replace('!', "/")));
            let row = row(frame.table_mut(Entity::Disk), key);
            set(row, self.array, i64::from(array));
            if is_mirror {
                set(row, self.mirror, i64::from(array));
            }
        }
        let number = |file: &str| text(io, file).and_then(|text| text.parse::<i64>().ok());
        let stripe = number("md/chunk_size").zip(number("md/raid_disks")).and_then(|(chunk, disks)| {
            Some([chunk, chunk.checked_mul(data_disks(&level, disks, number("md/layout"))?)?])
        });
        if let Some(stripe) = stripe.filter(|[chunk, _]| *chunk > 0) {
            let row = row(frame.table_mut(Entity::Disk), Key::named(array));
            for (column, bytes) in self.stripe.into_iter().zip(stripe) {
                set(row, column, bytes);
            }
        }
        let Some(action) = text(io, "md/sync_action") else { return };
        let is_idle = action == "idle";
        let action = i64::from(io.strings.intern(&action));
        let (mut speed, mut left) = (None, None);
        if !is_idle {
            speed = text(io, "md/sync_speed").and_then(|kib| kib.parse().ok());
            left = text(io, "md/sync_completed").and_then(|completed| sectors_left(&completed));
        }
        let row = row(frame.table_mut(Entity::Disk), Key::named(array));
        for (column, value) in self.sync.into_iter().zip([Some(action), speed, left]) {
            set(row, column, value.unwrap_or(NA));
        }
    }
}

/// How many disks of a stripe have data of their own; `None` of levels without stripes. Copies of raid10 that are near each other
/// stand in the low byte of the layout (`raid10_nr_stripes` in drivers/md/raid10.c, which leaves out those that are far).
fn data_disks(level: &str, disks: i64, layout: Option<i64>) -> Option<i64> {
    let data = match level {
        "raid0" => disks,
        "raid4" | "raid5" => disks - 1,
        "raid6" => disks - 2,
        "raid10" => match (layout? & 0xff).max(1) {
            near if disks % near == 0 => disks / near,
            _ => disks,
        },
        _ => return None,
    };
    (data > 0).then_some(data)
}

/// `264192 / 2093056`, `none`, `delayed`.
fn sectors_left(completed: &str) -> Option<i64> {
    let (done, all) = completed.split_once(" / ")?;
    all.parse::<i64>().ok()?.checked_sub(done.parse().ok()?).filter(|left| *left >= 0)
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

/// Members of btrfs filesystems that keep their data more than once, devices or partitions, and the filesystems. Device-mapper
/// does not tell of its mirrors.
fn btrfs_mirrors(io: &Io) -> Vec<(String, String)> {
    let mut found = Vec::new();
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
    use mitra_model::column;

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
        file("sys/block/md0/md/sync_action", "check\n");
        file("sys/block/md0/md/sync_speed", "118000\n");
        file("sys/block/md0/md/sync_completed", "264192 / 2093056\n");
        file("sys/block/md1/md/level", "raid0\n");
        file("sys/block/md1/md/chunk_size", "524288\n");
        file("sys/block/md1/md/raid_disks", "2\n");
        file("sys/block/md0/md/chunk_size", "0\n");
        file("sys/block/md0/md/raid_disks", "2\n");
        file("sys/block/md0/queue/minimum_io_size", "4096\n");
        file("sys/block/md0/queue/optimal_io_size", "33553920\n");
        file("sys/block/md1/slaves/sdc/x", "");
        file("sys/block/md2/md/level", "raid6\n");
        file("sys/block/md2/slaves/sdd/x", "");
        file("sys/block/md2/md/sync_action", "idle\n");
        file("sys/block/md2/md/sync_speed", "none\n");
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
        assert_eq!(present, ["loop0", "md0", "md1", "md2"], "a loop device without a file is no disk");
        let cell = |name: &str, metric: &str| {
            let table = frame.table(Entity::Disk);
            let at = table
                .keys()
                .iter()
                .position(|key| u32::try_from(key.id).ok().and_then(|id| io.strings.get(id)) == Some(name))?;
            Some(table.row(at)[column(metric).unwrap()]).filter(|cell| *cell != NA)
        };
        let text = |name: &str, metric: &str| {
            cell(name, metric).map(|cell| io.strings.cell(cell).unwrap().to_owned())
        };
        assert_eq!(text("sda1", "disk.mirror").as_deref(), Some("md0"));
        assert_eq!(text("sdb1", "disk.mirror").as_deref(), Some("md0"));
        assert_eq!(text("sdc", "disk.mirror"), None);
        assert_eq!((text("sdc", "disk.array").as_deref(), text("sdd", "disk.mirror")), (Some("md1"), None));
        assert_eq!(text("sda1", "disk.array").as_deref(), Some("md0"));
        assert_eq!(text("md0", "disk.sync_action").as_deref(), Some("check"));
        assert_eq!(
            cell("md1", "disk.stripe_width").zip(cell("md1", "disk.stripe_unit")),
            Some((1 << 20, 1 << 19))
        );
        assert_eq!((cell("md0", "disk.stripe_width"), cell("md0", "disk.stripe_unit")), (None, None));
        assert_eq!(cell("md0", "disk.sync_speed"), Some(118_000));
        assert_eq!(cell("md0", "disk.sync_left"), Some(2_093_056 - 264_192));
        assert_eq!(text("md1", "disk.sync_action"), None, "nothing to keep alike");
        assert_eq!(text("md2", "disk.sync_action").as_deref(), Some("idle"));
        assert_eq!((cell("md2", "disk.sync_speed"), cell("md2", "disk.sync_left")), (None, None));
        assert_eq!(text("loop1", "disk.mirror").unwrap(), format!("btrfs:{id}"));
        assert_eq!(text("loop0", "disk.backing").as_deref(), Some("/var/images/a b.img"));
        assert_eq!(text("loop1", "disk.backing"), None);
    }

    #[test]
    fn what_is_parity_or_a_copy_is_no_data() {
        for (level, disks, layout, data) in [
            ("raid0", 4, None, Some(4)),
            ("raid5", 4, Some(2), Some(3)),
            ("raid6", 6, Some(2), Some(4)),
            ("raid6", 2, Some(2), None),
            ("raid10", 4, Some(0x102), Some(2)),
            ("raid10", 5, Some(0x102), Some(5)),
            ("raid10", 4, Some(0x201), Some(4)),
            ("raid10", 4, None, None),
            ("raid1", 2, Some(0), None),
            ("linear", 2, None, None),
        ] {
            assert_eq!(data_disks(level, disks, layout), data, "{level} {disks} {layout:?}");
        }
    }
}
