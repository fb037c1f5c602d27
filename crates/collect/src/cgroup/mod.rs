//! Control groups of version 1 and 2: found by walking the mounted hierarchies, merged by path into one row.

mod files;
mod group;
mod paths;
mod walk;

use std::collections::HashMap;
use std::time::Duration;

use mitra_model::{Entity, Frame, Key, NA};

use self::group::{Group, Reader};
pub use self::paths::CgroupPaths;
use self::walk::{FoundGroup, Watcher};
use crate::cells::{col, set};
use crate::clock::Clock;
use crate::containers::{Labelled, Namer};
use crate::disks::disk_of;
use crate::file::Root;
use crate::io::Io;
use crate::mounts::{Hierarchy, Mount, hierarchies};

/// As many groups get a row. What is found beyond is left out and said to be.
pub const GROUPS_MAX: usize = 2_000;
/// As many files are kept open: each pins a page of the kernel's memory. Groups beyond are opened each time.
const KEPT_FDS_MAX: usize = 1_024;
/// Without a watch, or if one event went missing, a walk finds new groups after this long.
const WALK_EVERY: Duration = Duration::from_secs(5);
const WALK_EVERY_WATCHED: Duration = Duration::from_secs(60);
/// Walks may take this part of the time.
const WALK_SHARE: i64 = 200;
/// Walks come at least this far apart.
const WALK_APART_NS: i64 = 900_000_000;

/// All groups.
pub struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    groups: Vec<Group>,
    by_path: HashMap<String, usize>,
    paths: CgroupPaths,
    watcher: Option<Watcher>,
    reader: Reader,
    namer: Namer,
    tasks_fullest: usize,
    fds_max: usize,
    is_dirty: bool,
    was_cut: bool,
    generation: Option<u32>,
    walked_mono: i64,
    next_walk_mono: i64,
}

impl Cgroups {
    /// Finds the hierarchies. `fds_max` descriptors may be used for files that are kept open.
    #[must_use]
    pub fn new(root: &Root, mounts: &[Mount], fds_max: usize) -> Self {
        let hierarchies = hierarchies(mounts);
        let watcher = if root.is_host() && !hierarchies.is_empty() { Watcher::new().ok() } else { None };
        Cgroups {
            paths: CgroupPaths::new(&hierarchies),
            hierarchies,
            groups: Vec::new(),
            by_path: HashMap::new(),
            watcher,
            reader: Reader::new(),
            namer: Namer::new(),
            tasks_fullest: col("tasks.pids_fullest"),
            fds_max: fds_max.min(KEPT_FDS_MAX),
            is_dirty: true,
            was_cut: false,
            generation: None,
            walked_mono: 0,
            next_walk_mono: i64::MIN,
        }
    }

    /// Paths by inode number.
    #[must_use]
    pub fn paths(&self) -> &CgroupPaths {
        &self.paths
    }

    /// Lines of files that could not be read as expected, since the start.
    #[must_use]
    pub fn bad_lines(&self) -> i64 {
        self.reader.bad_lines
    }

    /// Whether there are more groups than [`GROUPS_MAX`].
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.was_cut
    }

    /// Looks for groups that came or went, if there is reason to. Comes before the tasks, which need the paths.
    pub fn discover(&mut self, io: &mut Io, clock: &Clock) {
        let now = clock.now().mono;
        if self.watcher.as_ref().is_some_and(Watcher::has_changed) {
            self.is_dirty = true;
        }
        let every = if self.watcher.is_some() { WALK_EVERY_WATCHED } else { WALK_EVERY };
        let every_ns = i64::try_from(every.as_nanos()).unwrap_or(i64::MAX);
        let is_due = self.is_dirty || now - self.walked_mono >= every_ns;
        if is_due && now >= self.next_walk_mono && !self.hierarchies.is_empty() {
            self.walk(&io.root);
            self.walked_mono = now;
            let took = clock.now().mono - now;
            self.next_walk_mono = now + (took * WALK_SHARE).max(WALK_APART_NS);
            self.is_dirty = false;
            self.generation = None;
        }
        if self.generation != Some(io.strings.generation()) {
            self.generation = Some(io.strings.generation());
            for group in &mut self.groups {
                group.name = io.strings.intern(&group.path);
                group.has_new_devices = true;
                if let Some(label) = &mut group.label {
                    label.forget_texts();
                }
            }
            self.paths.rename(self.groups.iter().map(|group| (group.name, group.inodes.as_slice())));
        }
    }

    fn walk(&mut self, root: &Root) {
        // Without room for watches the walks come more often instead.
        self.watcher = self.watcher.take().filter(|watcher| !watcher.is_full());
        if let Some(watcher) = &mut self.watcher {
            watcher.begin();
        }
        for group in &mut self.groups {
            group.inodes.iter_mut().for_each(|inode| *inode = None);
        }
        self.was_cut = false;
        for index in 0..self.hierarchies.len() {
            let Some(hierarchy) = self.hierarchies.get(index) else { continue };
            let mount = hierarchy.mount.clone();
            let mut found = Vec::new();
            self.was_cut |= walk::walk(root, &mount, self.watcher.as_mut(), &mut found);
            for FoundGroup { path, inode } in found {
                self.was_cut |= !self.put(&path, index, inode);
            }
        }
        self.groups.retain(|group| group.inodes.iter().any(Option::is_some));
        self.by_path.clear();
        for (at, group) in self.groups.iter_mut().enumerate() {
            group.set_files(&self.hierarchies);
            self.by_path.insert(group.path.clone(), at);
        }
    }

    /// Notes that a group is in a hierarchy; false when there is no room for it.
    fn put(&mut self, path: &str, hierarchy: usize, inode: u64) -> bool {
        let at = match self.by_path.get(path) {
            Some(at) => *at,
            None if self.groups.len() >= GROUPS_MAX => return false,
            None => {
                self.groups.push(Group::new(path, self.hierarchies.len()));
                self.by_path.insert(path.to_owned(), self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        if let Some(slot) = self.groups.get_mut(at).and_then(|group| group.inodes.get_mut(hierarchy)) {
            *slot = Some(inode);
        }
        true
    }

    /// Reads the groups and fills their rows. `is_slow` on the ticks that read limits, and everything of groups
    /// in which nothing seems to happen.
    pub fn sample(&mut self, io: &mut Io, frame: &mut Frame, is_slow: bool) {
        self.name(io, frame.time.mono);
        let Io { root, buffer, strings, .. } = io;
        self.reader.fds_left = self.fds_max.saturating_sub(self.groups.iter().map(Group::open_files).sum());
        let table = frame.table_mut(Entity::Cgroup);
        let mut fullest = None;
        for group in &mut self.groups {
            if group.read(root, buffer, &mut self.reader, is_slow) {
                if std::mem::take(&mut group.has_new_devices) {
                    let text = limited_devices(root, group);
                    let cell = text.map_or(NA, |text| i64::from(strings.intern(&text)));
                    set(&mut group.cells, self.reader.signs.limit_device, cell);
                }
                if let Some(label) = &mut group.label {
                    label.fill(strings, &self.namer.columns, &mut group.cells);
                }
                table.push(Key::named(group.name)).copy_from_slice(&group.cells);
                fullest = fullest.max(self.reader.signs.tasks_ppm(&group.cells));
            } else {
                self.is_dirty = true;
            }
        }
        set(frame.system_mut(), self.tasks_fullest, fullest.unwrap_or(NA));
    }
}

impl Cgroups {
    /// Has containers and pods named.
    fn name(&mut self, io: &mut Io, now_ns: i64) {
        let (groups, hierarchies) = (&mut self.groups, &self.hierarchies);
        self.namer.turn(&io.root, &mut io.missing, now_ns, |f| {
            for group in groups.iter_mut() {
                let (path, inodes) = (group.path.as_str(), &group.inodes);
                let Some(label) = group.label.as_deref_mut() else { continue };
                let dir = || {
                    let (hierarchy, _) = hierarchies.iter().zip(inodes).find(|(_, inode)| inode.is_some())?;
                    Some(format!("{}{path}", hierarchy.mount))
                };
                f(Labelled { path, label, dir: &dir });
            }
        });
    }
}

/// The names of the devices that limits of I/O are for, joined by commas.
fn limited_devices(root: &Root, group: &Group) -> Option<String> {
    let names: Vec<String> = group.limited_devices().filter_map(|device| disk_of(root, device)).collect();
    if names.is_empty() { None } else { Some(names.join(",")) }
}
