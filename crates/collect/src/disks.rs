//! What a disk is: whether it turns, and who orders its requests. Read on slow ticks.

use std::os::fd::AsFd as _;

use mitra_model::{Entity, Frame, Key};
use mitra_parse::sysctl::{number, selected};

use crate::cells::{col, row, set};
use crate::file::each_entry;
use crate::io::Io;

/// No more disks are looked at.
const DISKS_MAX: usize = 1_024;

/// The columns.
#[derive(Debug)]
pub struct DiskFacts {
    rotational: usize,
    scheduler: usize,
}

impl DiskFacts {
    pub fn new() -> Self {
        DiskFacts { rotational: col("disk.rotational"), scheduler: col("disk.queue_scheduler") }
    }

    /// Fills a row for each disk of `/sys/block`. In names sysfs writes a slash as an exclamation mark.
    pub fn read(&self, io: &mut Io, frame: &mut Frame) {
        let mut names: Vec<String> = Vec::new();
        if let Ok(dir) = io.root.open_file("sys/block") {
            // A directory that cannot be listed has no disks to read.
            let _listed = each_entry(dir.as_fd(), |name| {
                names.extend(name.to_str().ok().filter(|_| names.len() < DISKS_MAX).map(str::to_owned));
            });
        }
        names.sort_unstable();
        for name in names {
            let key = Key::named(io.strings.intern(&name.replace('!', "/")));
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
        }
    }
}
