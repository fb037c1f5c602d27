//! Free space of filesystems, by `statfs`. A small one fills up in seconds.

use std::path::PathBuf;

use mitra_model::{Entity, Frame, Key, StrId};

use crate::cells::{cell, col, set};
use crate::io::Io;
use crate::mounts::{Mount, filesystems, machines_tree};

/// As many filesystems are watched.
const FILESYSTEMS_MAX: usize = 256;
/// Of so many the free space is asked for on each tick, at a microsecond or two; of the others on slow ticks.
pub const FAST_MAX: usize = 16;

#[derive(Debug)]
struct Filesystem {
    path: PathBuf,
    point: String,
    kind: String,
    device: String,
}

/// The filesystems that are watched.
#[derive(Debug)]
pub struct Filesystems {
    all: Vec<Filesystem>,
    columns: [usize; 5],
    kind: usize,
    device: usize,
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
        }
    }

    /// Takes a new list of mounts.
    pub fn set_mounts(&mut self, io: &Io, mounts: &[Mount]) {
        let watched = filesystems(mounts).into_iter().take(FILESYSTEMS_MAX);
        let tree = machines_tree(&io.root);
        let path = |point: &str| match tree {
            Some(tree) => PathBuf::from(format!("{tree}{point}")),
            None => io.root.path(point),
        };
        self.all = watched
            .map(|mount| Filesystem {
                path: path(&mount.point),
                point: mount.point.clone(),
                kind: mount.kind.clone(),
                device: mount.device.clone(),
            })
            .collect();
    }

    /// Fills a row for each of those that are read on each tick.
    pub fn read_fast(&self, io: &mut Io, frame: &mut Frame) {
        self.read(self.all.get(..FAST_MAX.min(self.all.len())).unwrap_or_default(), io, frame);
    }

    /// Fills a row for each of the others.
    pub fn read_slow(&self, io: &mut Io, frame: &mut Frame) {
        self.read(self.all.get(FAST_MAX..).unwrap_or_default(), io, frame);
    }

    fn read(&self, some: &[Filesystem], io: &mut Io, frame: &mut Frame) {
        let table = frame.table_mut(Entity::Filesystem);
        for fs in some {
            let Ok(stat) = rustix::fs::statvfs(&fs.path) else { continue };
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
            set(row, self.device, i64::from(io.strings.intern(&fs.device)));
        }
    }
}
