//! Free space of filesystems, by `statfs`. A small one fills up in seconds. Of XFS its layout too, as it was mounted: a thread of
//! its own opens each once, because that may wait for a disk.

use std::path::PathBuf;

use mitra_model::{Entity, Frame, Key, NA, StrId};

use crate::aside::Aside;
use crate::cells::{cell, col, set};
use crate::io::Io;
use crate::mounts::{Mount, filesystems, machines_tree};
use crate::xfs;

/// As many filesystems are watched.
const FILESYSTEMS_MAX: usize = 256;
/// Of so many the free space is asked for on each tick, at a microsecond or two; of the others on slow ticks.
pub const FAST_MAX: usize = 16;

/// Longer options name layers of a container's image, and nobody changes these.
const OPTIONS_MAX: usize = 512;

/// Blocks and groups of an XFS, as `xfs::layout` has them.
type Layout = [u32; 5];

/// What is mounted where: with another of these the layout may be another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    path: PathBuf,
    device: String,
    options: String,
}

#[derive(Debug)]
struct Filesystem {
    place: Place,
    point: String,
    kind: String,
    /// `None` as long as it is not known whether there is one.
    layout: Option<Option<Layout>>,
}

/// The thread that opens file systems, and says their layouts.
type Opener = Aside<Vec<Place>, Vec<(Place, Option<Layout>)>>;

/// The filesystems that are watched.
#[derive(Debug)]
pub struct Filesystems {
    all: Vec<Filesystem>,
    columns: [usize; 5],
    kind: usize,
    device: usize,
    options: usize,
    layout: [usize; 5],
    opener: Option<Opener>,
}

impl Filesystems {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Filesystems {
            all: Vec::new(),
            columns: ["fs.total_bytes", "fs.free_bytes", "fs.avail_bytes", "fs.inodes", "fs.inodes_free"]
                .map(col),
            kind: col("fs.type"),
            device: col("fs.device"),
            options: col("fs.options"),
            layout: ["fs.xfs_block", "fs.xfs_ag_blocks", "fs.xfs_ag_count", "fs.xfs_sunit", "fs.xfs_swidth"]
                .map(col),
            opener: None,
        }
    }

    /// Takes a new list of mounts. Of what is mounted as before the layout stays known.
    pub fn set_mounts(&mut self, io: &Io, mounts: &[Mount]) {
        let watched = filesystems(mounts).into_iter().take(FILESYSTEMS_MAX);
        let tree = machines_tree(&io.root);
        let path = |point: &str| match tree {
            Some(tree) => PathBuf::from(format!("{tree}{point}")),
            None => io.root.path(point),
        };
        let before = std::mem::take(&mut self.all);
        let new = watched.map(|mount| {
            let (device, options) = (mount.device.clone(), mount.options.clone());
            let place = Place { path: path(&mount.point), device, options };
            let layout = match before.iter().find(|fs| fs.place == place && fs.kind == mount.kind) {
                Some(known) => known.layout,
                None => (mount.kind != "xfs").then_some(None),
            };
            Filesystem { place, point: mount.point.clone(), kind: mount.kind.clone(), layout }
        });
        self.all = new.collect();
    }

    /// Takes the layouts that were found, and has those found that are not known. One whose disk is stuck holds up the others.
    fn find_layouts(&mut self) {
        self.take_layouts();
        let unknown = self.all.iter().filter(|fs| fs.layout.is_none()).map(|fs| fs.place.clone());
        let unknown: Vec<Place> = unknown.collect();
        if unknown.is_empty() {
            return;
        }
        if self.opener.is_none() {
            let open = |places: Vec<Place>| -> Vec<(Place, Option<Layout>)> {
                let found = places.into_iter().map(|place| {
                    let layout = xfs::layout(&place.path);
                    (place, layout)
                });
                found.collect()
            };
            self.opener = Aside::start("mitra-xfs", open).ok();
        }
        if let Some(opener) = &self.opener {
            // While it waits for an earlier one it is not asked.
            opener.ask(unknown);
        }
    }

    fn take_layouts(&mut self) {
        let Some(opener) = &self.opener else { return };
        for (place, layout) in opener.answers().flatten() {
            if let Some(fs) = self.all.iter_mut().find(|fs| fs.place == place) {
                fs.layout = Some(layout);
            }
        }
    }

    /// Fills a row for each of those that are read on each tick.
    pub fn read_fast(&mut self, io: &mut Io, frame: &mut Frame) {
        self.take_layouts();
        self.read(self.all.get(..FAST_MAX.min(self.all.len())).unwrap_or_default(), io, frame);
    }

    /// Fills a row for each of the others.
    pub fn read_slow(&mut self, io: &mut Io, frame: &mut Frame) {
        self.find_layouts();
        self.read(self.all.get(FAST_MAX..).unwrap_or_default(), io, frame);
    }

    fn read(&self, some: &[Filesystem], io: &mut Io, frame: &mut Frame) {
        let table = frame.table_mut(Entity::Filesystem);
        for fs in some {
            let Ok(stat) = rustix::fs::statvfs(&fs.place.path) else { continue };
            let bytes = |blocks: u64| cell(blocks.saturating_mul(stat.f_frsize));
            let name: StrId = io.strings.intern(&fs.point);
            let row = crate::cells::row(table, Key::named(name));
            let values = [
                bytes(stat.f_blocks),
                bytes(stat.f_bfree),
                bytes(stat.f_bavail),
                cell(stat.f_files),
                cell(stat.f_ffree),
            ];
            for (column, value) in self.columns.iter().zip(values) {
                set(row, *column, value);
            }
            set(row, self.kind, i64::from(io.strings.intern(&fs.kind)));
            set(row, self.device, i64::from(io.strings.intern(&fs.place.device)));
            let options = &fs.place.options;
            let is_short = options.len() <= OPTIONS_MAX;
            set(row, self.options, if is_short { i64::from(io.strings.intern(options)) } else { NA });
            for (column, value) in self.layout.iter().zip(fs.layout.iter().flatten().flatten()) {
                set(row, *column, i64::from(*value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Root;
    use crate::mounts::read_mounts;

    #[test]
    fn what_is_mounted_as_before_keeps_its_layout() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/1")).unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        let mut io = Io::new(Root::open(dir.path()).unwrap());
        let mut mounts = |options: &str| {
            let text = format!("/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /data xfs {options} 0 0\n");
            for file in ["proc/mounts", "proc/1/mounts", "proc/self/mounts"] {
                std::fs::write(dir.path().join(file), &text).unwrap();
            }
            read_mounts(&io.root, &mut io.buffer)
        };
        let (as_before, other) = (mounts("rw"), mounts("rw,sunit=128"));
        let mut filesystems = Filesystems::new();
        let layout = |filesystems: &Filesystems, point: &str| {
            filesystems.all.iter().find(|fs| fs.point == point).unwrap().layout
        };
        filesystems.set_mounts(&io, &as_before);
        assert_eq!((layout(&filesystems, "/"), layout(&filesystems, "/data")), (Some(None), None));
        let known = Some(Some([4096, 1000, 4, 0, 0]));
        filesystems.all.iter_mut().find(|fs| fs.point == "/data").unwrap().layout = known;
        filesystems.set_mounts(&io, &as_before);
        assert_eq!(layout(&filesystems, "/data"), known);
        filesystems.set_mounts(&io, &other);
        assert_eq!(layout(&filesystems, "/data"), None);
    }
}
