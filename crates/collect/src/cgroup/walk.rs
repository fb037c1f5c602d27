//! Finding groups: a walk over the directories of a hierarchy, and a watch that says when one is worth it.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::GROUPS_MAX;
use crate::file::Root;
use crate::inotify::{Inotify, WatchFlags};

/// No hierarchy is nested deeper.
const DEPTH_MAX: usize = 32;
/// As many directories are watched; each watch costs the kernel about a kilobyte.
const WATCHES_MAX: usize = 4_096;

/// A directory of a hierarchy.
#[derive(Debug)]
pub struct FoundGroup {
    /// Its path below the mount, `/` for the root.
    pub path: String,
    /// Its inode number, which the kernel calls the group's id.
    pub inode: u64,
}

/// Says whether groups were made or removed. Groups that only hold processes cause nothing.
#[derive(Debug)]
pub struct Watcher {
    inotify: Inotify,
    watches: usize,
    is_full: bool,
}

impl Watcher {
    /// Watches nothing yet.
    pub fn new() -> io::Result<Self> {
        Ok(Watcher { inotify: Inotify::new()?, watches: 0, is_full: false })
    }

    /// Whether some directory could not be watched.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Begins a walk, which asks for every watch again: those that there are cost nothing more.
    pub fn begin(&mut self) {
        self.watches = 0;
    }

    fn watch(&mut self, dir: &OwnedFd) {
        if self.watches >= WATCHES_MAX {
            self.is_full = true;
            return;
        }
        let events = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(dir));
        match self.inotify.watch(path, events) {
            Ok(()) => self.watches += 1,
            Err(_) => self.is_full = true,
        }
    }

    /// Whether a directory came or went since the last call.
    pub fn has_changed(&self) -> bool {
        self.inotify.has_changed()
    }
}

/// Finds all groups of a hierarchy, the root first. True if there were too many.
pub fn walk(
    root: &Root,
    mount: &str,
    mut watcher: Option<&mut Watcher>,
    found: &mut Vec<FoundGroup>,
) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::openat(root.fd(), mount, flags, Mode::empty()) else { return false };
    let Ok(stat) = rustix::fs::fstat(&dir) else { return false };
    found.push(FoundGroup { path: "/".to_owned(), inode: stat.st_ino });
    let mut path = String::new();
    descend(&dir, &mut path, 0, &mut watcher, found)
}

fn descend(
    dir: &OwnedFd,
    path: &mut String,
    depth: usize,
    watcher: &mut Option<&mut Watcher>,
    found: &mut Vec<FoundGroup>,
) -> bool {
    if depth >= DEPTH_MAX {
        return true;
    }
    if let Some(watcher) = watcher.as_deref_mut() {
        watcher.watch(dir);
    }
    let mut children = Vec::new();
    // A directory that is removed meanwhile lists what it still has.
    let _gone = each_dir(dir, |name, inode| {
        if let Ok(name) = name.to_str() {
            children.push((name.to_owned(), inode));
        }
    });
    children.sort_unstable();
    let mut was_cut = false;
    for (name, inode) in children {
        if found.len() >= GROUPS_MAX {
            return true;
        }
        let length = path.len();
        path.push('/');
        path.push_str(&name);
        found.push(FoundGroup { path: path.clone(), inode });
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if let Ok(child) = rustix::fs::openat(dir, name.as_str(), flags, Mode::empty()) {
            was_cut |= descend(&child, path, depth + 1, watcher, found);
        }
        path.truncate(length);
    }
    was_cut
}

fn each_dir(dir: &OwnedFd, mut f: impl FnMut(&CStr, u64)) -> io::Result<()> {
    let mut space = [MaybeUninit::<u8>::uninit(); 8192];
    let mut entries = rustix::fs::RawDir::new(dir.as_fd(), &mut space);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let is_dir = entry.file_type() == rustix::fs::FileType::Directory;
        if is_dir && !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            f(entry.file_name(), entry.ino());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_finds_every_directory_with_its_inode_and_the_watch_sees_new_ones() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("cg/a/b")).unwrap();
        std::fs::create_dir_all(dir.path().join("cg/c")).unwrap();
        std::fs::write(dir.path().join("cg/cpu.stat"), "").unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut watcher = Watcher::new().unwrap();
        let mut found = Vec::new();
        assert!(!walk(&root, "cg", Some(&mut watcher), &mut found));
        let paths: Vec<_> = found.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(paths, ["/", "/a", "/a/b", "/c"]);
        assert_eq!(found[2].inode, std::fs::metadata(dir.path().join("cg/a/b")).unwrap().ino());

        assert!(!watcher.has_changed());
        std::fs::create_dir(dir.path().join("cg/a/b/new")).unwrap();
        assert!(watcher.has_changed());
        assert!(!watcher.has_changed());
        std::fs::remove_dir(dir.path().join("cg/c")).unwrap();
        assert!(watcher.has_changed());
    }
}
