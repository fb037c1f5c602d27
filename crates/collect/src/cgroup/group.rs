//! One group: which files it has, and when each is worth reading.
//!
//! Nothing can change in a group of which no task ran and whose memory is the same, except limits and what the
//! kernel does to its cache behind its back. So two cheap files are read on each tick, the CPU time and the
//! memory; the others when one of the two moved, when tasks were stalled at the last look (a stall begins with a
//! task that runs, and lasts without one), and on slow ticks.

use std::io;

use mitra_model::{Entity, NA, StrId, columns};

use super::files::{Columns, FILES, FileKind, Pace};
use crate::file::{Buffer, KeptFile, Root};
use crate::mounts::Hierarchy;

/// After so many slow ticks a file that was not there is tried again: a controller may have been enabled.
const RETRY_SLOW_TICKS: u32 = 6;

/// One group in all hierarchies that have it.
#[derive(Debug)]
pub struct Group {
    pub path: String,
    pub name: StrId,
    /// Its inode number in each hierarchy.
    pub inodes: Vec<Option<u64>>,
    /// The row, as it was read last.
    pub cells: Vec<i64>,
    files: Vec<GroupFile>,
    /// For which hierarchies `files` was made.
    files_for: Vec<bool>,
    was_stalled: bool,
    slow_ticks: u32,
}

#[derive(Debug)]
struct GroupFile {
    kind: &'static FileKind,
    file: KeptFile,
    is_absent: bool,
}

impl Group {
    pub fn new(path: &str, hierarchies: usize) -> Self {
        Group {
            path: path.to_owned(),
            name: 0,
            inodes: vec![None; hierarchies],
            cells: vec![NA; columns(Entity::Cgroup).len()],
            files: Vec::new(),
            files_for: Vec::new(),
            was_stalled: true,
            slow_ticks: 0,
        }
    }

    /// Makes the list of files after a walk, if the group is in other hierarchies than before.
    pub fn set_files(&mut self, hierarchies: &[Hierarchy]) {
        let now: Vec<bool> = self.inodes.iter().map(Option::is_some).collect();
        if now == self.files_for {
            return;
        }
        self.files.clear();
        self.cells.fill(NA);
        self.was_stalled = true;
        for kind in FILES {
            let of = |h: &&Hierarchy| match kind.controller {
                None => h.is_unified(),
                Some(controller) => h.has(controller),
            };
            let in_it = hierarchies.iter().zip(&now).filter(|(_, is_in)| **is_in).map(|(h, _)| h);
            if let Some(hierarchy) = in_it.into_iter().find(of) {
                let below = format!("{}{}/{}", hierarchy.mount, self.path.trim_end_matches('/'), kind.name);
                self.files.push(GroupFile { kind, file: KeptFile::new(&below), is_absent: false });
            }
        }
        self.files_for = now;
    }

    /// How many of its files are open.
    pub fn open_files(&self) -> usize {
        self.files.iter().filter(|f| f.file.is_open()).count()
    }

    /// Reads what is worth it. False if the group has gone.
    pub fn read(
        &mut self,
        root: &Root,
        buffer: &mut Buffer,
        columns: &Columns,
        is_slow: bool,
        fds_left: &mut usize,
    ) -> bool {
        let is_retry = is_slow && self.slow_ticks.is_multiple_of(RETRY_SLOW_TICKS);
        self.slow_ticks = self.slow_ticks.wrapping_add(u32::from(is_slow));
        let before = columns.activity(&self.cells);
        let stall_before = columns.stall(&self.cells);
        let mut is_active = is_slow || self.was_stalled;
        for pace in [Pace::Always, Pace::Active, Pace::Slow] {
            match pace {
                Pace::Always => {}
                Pace::Active => {
                    is_active |= columns.activity(&self.cells) != before;
                    if !is_active {
                        break;
                    }
                }
                Pace::Slow if !is_slow => break,
                Pace::Slow => {}
            }
            for file in self.files.iter_mut().filter(|f| f.kind.pace == pace) {
                if file.is_absent && !is_retry {
                    continue;
                }
                if !read_file(file, root, buffer, columns, &mut self.cells, fds_left) {
                    return false;
                }
            }
        }
        if is_active {
            self.was_stalled = columns.stall(&self.cells) != stall_before;
        }
        true
    }
}

/// Reads one file into the row; false if the group has gone.
fn read_file(
    file: &mut GroupFile,
    root: &Root,
    buffer: &mut Buffer,
    columns: &Columns,
    cells: &mut [i64],
    fds_left: &mut usize,
) -> bool {
    let was_open = file.file.is_open();
    let is_kept = file.kind.pace != Pace::Slow && (was_open || *fds_left > 0);
    let read = if is_kept { file.file.read(root, buffer) } else { file.file.read_once(root, buffer) };
    file.is_absent = false;
    let is_there = match read {
        Ok(bytes) => {
            file.kind.fill(bytes, columns, cells);
            true
        }
        Err(error) => {
            file.kind.clear(columns, cells);
            // Root groups lack files, kernels too, and PSI may be off (EOPNOTSUPP).
            file.is_absent = true;
            !(was_open && error.kind() == io::ErrorKind::NotFound)
        }
    };
    if !was_open && file.file.is_open() {
        *fds_left = fds_left.saturating_sub(1);
    }
    is_there
}
