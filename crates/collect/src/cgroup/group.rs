//! One group: which files it has, and when each is worth reading.
//!
//! Nothing can change in a group of which no task ran and whose memory is the same, except limits and what the
//! kernel does to its cache behind its back. So two cheap files are read on each tick, the CPU time and the
//! memory; the others when one of the two moved, when tasks were stalled at the last look (a stall begins with a
//! task that runs, and lasts without one), and on slow ticks. A group that has a limit of CPU or tasks and none of the two is read on
//! each tick. Limits of I/O matter to a group that sends some.

use std::io;

use mitra_model::{Entity, NA, StrId, columns};
use mitra_parse::cgroup::{Cgroup, FILES, File};
use mitra_parse::cgroup_limits::LimitedDevices;

use super::files::{Pace, SignsOfLife};
use crate::containers::Label;
use crate::file::{Buffer, KeptFile, Root};
use crate::mounts::Hierarchy;

/// After so many slow ticks a file that was not there is tried again: a controller may have been enabled.
const RETRY_SLOW_TICKS: u32 = 6;
/// So many ticks apart the limits of a group that sends I/O are read.
const LIMITS_EVERY: u32 = 4;

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
    /// No file of the list has been tried yet.
    is_unread: bool,
    slow_ticks: u32,
    /// What the limits of I/O are for.
    limited: LimitedDevices,
    /// The I/O that had been sent when they were last read, and how many ticks ago that was.
    limits_at: [i64; 2],
    limits_age: u32,
    /// Whether `limited` is another than the text of the row says.
    pub has_new_devices: bool,
    /// Its name, if it is a container or a pod.
    pub label: Option<Box<Label>>,
}

#[derive(Debug)]
struct GroupFile {
    kind: &'static File,
    pace: Pace,
    file: KeptFile,
    is_absent: bool,
    was_tried: bool,
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
            is_unread: true,
            slow_ticks: 0,
            limited: LimitedDevices::default(),
            limits_at: [NA; 2],
            limits_age: LIMITS_EVERY,
            has_new_devices: false,
            label: Label::of(path),
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
        self.is_unread = true;
        self.limits_at = [NA; 2];
        self.limits_age = LIMITS_EVERY;
        for kind in FILES {
            let of = |h: &&Hierarchy| match kind.hierarchy {
                mitra_parse::cgroup::Hierarchy::V2 => h.is_unified(),
                mitra_parse::cgroup::Hierarchy::V1(controller) => h.has(controller),
            };
            let in_it = hierarchies.iter().zip(&now).filter(|(_, is_in)| **is_in).map(|(h, _)| h);
            if let Some(hierarchy) = in_it.into_iter().find(of) {
                let below = format!("{}{}/{}", hierarchy.mount, self.path.trim_end_matches('/'), kind.name);
                let file = KeptFile::new(&below);
                self.files.push(GroupFile {
                    kind,
                    pace: Pace::of(kind),
                    file,
                    is_absent: true,
                    was_tried: false,
                });
            }
        }
        self.files_for = now;
    }

    /// How many of its files are open.
    pub fn open_files(&self) -> usize {
        self.files.iter().filter(|f| f.file.is_open()).count()
    }

    /// Reads what is worth it. False if the group has gone.
    pub fn read(&mut self, root: &Root, buffer: &mut Buffer, reader: &mut Reader, is_slow: bool) -> bool {
        let is_retry = is_slow && self.slow_ticks.is_multiple_of(RETRY_SLOW_TICKS);
        self.slow_ticks = self.slow_ticks.wrapping_add(u32::from(is_slow));
        let is_first = std::mem::replace(&mut self.is_unread, false);
        let before = reader.signs.activity(&self.cells);
        let stall_before = reader.signs.stall(&self.cells);
        let is_slow = is_slow || is_first;
        let mut is_active = is_slow || self.was_stalled;
        for pace in [Pace::Always, Pace::Active, Pace::Slow] {
            if pace == Pace::Active {
                is_active |= reader.signs.activity(&self.cells) != before
                    || reader.signs.is_limited_blindly(&self.cells);
            }
            if pace == Pace::Active && !is_active || pace == Pace::Slow && !is_slow {
                break;
            }
            for file in self.files.iter_mut().filter(|f| f.pace == pace) {
                if file.is_absent && !is_retry && !is_first {
                    continue;
                }
                if !reader.read(file, root, buffer, &mut self.cells) {
                    return false;
                }
            }
        }
        if !self.read_limits(root, buffer, reader, is_retry || is_first) {
            return false;
        }
        if is_active {
            self.was_stalled = reader.signs.stall(&self.cells) != stall_before;
        }
        true
    }
}

impl Group {
    /// The limits of I/O, if the group has sent some since they were last read; a limit changes nothing before.
    fn read_limits(&mut self, root: &Root, buffer: &mut Buffer, reader: &mut Reader, is_retry: bool) -> bool {
        self.limits_age = self.limits_age.saturating_add(1);
        let sent = reader.signs.io(&self.cells);
        if sent == [NA; 2] || sent == self.limits_at || self.limits_age < LIMITS_EVERY {
            return true;
        }
        self.limits_at = sent;
        self.limits_age = 0;
        for file in self.files.iter_mut().filter(|f| f.pace == Pace::IoLimit) {
            if file.is_absent && !is_retry && file.was_tried {
                continue;
            }
            file.was_tried = true;
            if !reader.read(file, root, buffer, &mut self.cells) {
                return false;
            }
        }
        let limited = reader.parser.take_limited_devices();
        self.has_new_devices |= limited != self.limited;
        self.limited = limited;
        true
    }

    /// Major and minor numbers of the devices that the group's I/O is limited on.
    pub fn limited_devices(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.limited.iter()
    }
}

/// What the groups share: the parser, and how many more files may be kept open.
#[derive(Debug)]
pub struct Reader {
    pub signs: SignsOfLife,
    pub fds_left: usize,
    pub bad_lines: i64,
    parser: Cgroup,
}

impl Reader {
    pub fn new() -> Self {
        Reader { signs: SignsOfLife::new(), fds_left: 0, bad_lines: 0, parser: Cgroup::default() }
    }

    /// Reads one file into the row; false if the group has gone.
    fn read(&mut self, file: &mut GroupFile, root: &Root, buffer: &mut Buffer, cells: &mut [i64]) -> bool {
        let was_open = file.file.is_open();
        let is_kept = !matches!(file.pace, Pace::Slow | Pace::IoLimit) && (was_open || self.fds_left > 0);
        let read = if is_kept { file.file.read(root, buffer) } else { file.file.read_once(root, buffer) };
        // Root groups lack files, kernels too, and PSI may be off (EOPNOTSUPP).
        let was_absent = std::mem::replace(&mut file.is_absent, read.is_err());
        let is_there = match read {
            Ok(bytes) => {
                self.bad_lines += i64::from((file.kind.parse)(&mut self.parser, bytes, cells).bad_lines);
                true
            }
            Err(error) => {
                // A file that was there said something: nothing of the row is trusted until it is read anew.
                if !was_absent {
                    cells.fill(NA);
                }
                !(was_open && error.kind() == io::ErrorKind::NotFound)
            }
        };
        if !was_open && file.file.is_open() {
            self.fds_left = self.fds_left.saturating_sub(1);
        }
        is_there
    }
}
