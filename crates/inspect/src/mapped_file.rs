//! Opens the files that a process has mapped, without side effects.
//!
//! Any user decides what is at a path: a pipe, on which `open` blocks for ever; a device that acts
//! when it is opened (`/dev/watchdog` resets the machine); a link to a file that only root may
//! read; another file. So a file is first opened as a handle (`O_PATH`), then checked, and then
//! read through that handle.
//!
//! `/proc/PID/maps` has the device and the inode of the file. It is opened by
//! `/proc/PID/map_files`, which has no names that a user could change, as long as the process lives
//! and we may (`CAP_CHECKPOINT_RESTORE`). Otherwise it is opened by its path below the root
//! directory of the process, of which no part may be a link: the kernel writes paths without links.
//!
//! On overlayfs and btrfs the device in `maps` is that of a layer, or of the whole file system, and
//! `stat` has another. Only the inode can be compared there: a file with the same inode at the same
//! path could give wrong names to its own owner. On all other file systems a different device is a
//! different file, which gets no names.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mitra_parse::maps::Mapping;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};

use crate::trusted::{self, Sticky};

/// File systems whose devices cannot be compared (`linux/magic.h`).
const OVERLAYFS: u64 = 0x794c_7630;
const BTRFS: u64 = 0x9123_683e;

/// A readable file that is the mapped one.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub(crate) file: File,
    pub(crate) key: FileId,
    /// Whether we see the same file at that path, and only root can change it and its directory.
    pub(crate) is_roots: bool,
}

/// Device, inode, size and time of change: a file that differs in any has other content.
pub(crate) type FileId = (u64, u64, u64, i64, i64);

/// A path below a directory as a handle. No part of the path may be a link.
pub(crate) fn handle(root: impl AsFd, path: &str) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let relative = path.trim_start_matches('/');
    rustix::fs::openat2(root, relative, flags, Mode::empty(), resolve).ok()
}

/// Reopens a handle for reading, if it is of a regular file.
pub(crate) fn plain(handle: &OwnedFd) -> Option<(File, Stat)> {
    let stat = rustix::fs::fstat(handle).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    // This link leads to the file of the handle, which is regular, and to nothing else.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    Some((File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?), stat))
}

impl MappedFile {
    /// Checks that a handle is of the mapped file. `sees_ours`: the process has our root directory.
    pub(crate) fn of(handle: &OwnedFd, mapping: &Mapping, sees_ours: bool) -> Option<Self> {
        let (file, stat) = plain(handle)?;
        if stat.st_ino != mapping.inode || !is_on(handle, &stat, mapping.device) {
            return None;
        }
        let is_same = |other: &Stat| (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino);
        // A file of root's is also safe in a directory of root's below /tmp.
        let is_roots = sees_ours
            && !mapping.is_deleted
            && trusted::open(Path::new(&mapping.path), Sticky::Allowed)
                .is_ok_and(|(_, other)| is_same(&other));
        let meta = file.metadata().ok()?;
        let key = (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
        Some(Self { file, key, is_roots })
    }
}

fn is_on(handle: &OwnedFd, stat: &Stat, device: u64) -> bool {
    stat.st_dev == device || {
        let kind = rustix::fs::fstatfs(handle).map(|system| system.f_type.cast_unsigned());
        kind.is_ok_and(|kind| kind == OVERLAYFS || kind == BTRFS)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use rustix::fs::CWD;

    use mitra_parse::maps::Access;

    use super::*;

    fn mapping(path: &Path) -> Mapping {
        let meta = std::fs::symlink_metadata(path).unwrap();
        Mapping {
            start: 0x1000,
            end: 0x2000,
            access: Access { read: true, write: false, execute: true, shared: false },
            offset: 0,
            device: meta.dev(),
            inode: meta.ino(),
            path: path.to_str().unwrap().to_owned(),
            is_deleted: false,
        }
    }

    /// As for a process that ended and had the directory as `/`.
    fn open(dir: &Path, mapping: &Mapping) -> Option<MappedFile> {
        let root = File::open(dir).unwrap();
        MappedFile::of(&handle(&root, mapping.path.strip_prefix(dir.to_str().unwrap())?)?, mapping, true)
    }

    #[test]
    fn the_file_that_was_mapped_is_opened_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(dir.path()).unwrap();
        let path = top.join("lib.so");
        std::fs::write(&path, "content").unwrap();
        let mapped = mapping(&path);
        let mapped_file = open(&top, &mapped).unwrap();
        assert_eq!(mapped_file.key.2, 7);
        assert!(mapped_file.is_roots);
        assert!(open(&top, &Mapping { inode: mapped.inode + 1, ..mapped.clone() }).is_none());
        // The same inode on another device.
        let kind = rustix::fs::statfs(&top).unwrap().f_type.cast_unsigned();
        let is_layered = [OVERLAYFS, BTRFS].contains(&kind);
        assert_eq!(
            open(&top, &Mapping { device: mapped.device + 1, ..mapped.clone() }).is_some(),
            is_layered
        );
        assert!(!open(&top, &Mapping { is_deleted: true, ..mapped.clone() }).unwrap().is_roots);
        // Through a link, although it leads to the same file.
        std::fs::rename(&path, top.join("moved.so")).unwrap();
        symlink("moved.so", &path).unwrap();
        assert!(open(&top, &mapped).is_none());
        let inner = top.join("inner");
        symlink(".", &inner).unwrap();
        let by_link = inner.join("moved.so").to_str().unwrap().to_owned();
        assert!(open(&top, &Mapping { path: by_link, ..mapped }).is_none());
    }

    #[test]
    fn pipes_devices_sockets_and_directories_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(dir.path()).unwrap();
        let path = top.join("it");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        // Opening it for reading would block, because nothing writes to it.
        assert!(open(&top, &mapping(&path)).is_none());
        std::fs::remove_file(&path).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(open(&top, &mapping(&path)).is_none());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(open(&top, &mapping(&path)).is_none());
        std::fs::remove_dir(&path).unwrap();
        // A device number without a driver. Opening it would fail, which is not what this test is
        // about.
        let null = rustix::fs::makedev(1, 3);
        if rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, Mode::RWXU, null).is_err() {
            println!("skipped: only root makes devices");
            return;
        }
        assert!(open(&top, &mapping(&path)).is_none());
    }

    /// Two files with the same inode on two file systems, which any user can arrange.
    #[test]
    fn the_same_inode_of_another_file_system_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(dir.path()).unwrap();
        let other = top.join("other");
        std::fs::create_dir(&other).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&other).status();
        if !mount.is_ok_and(|status| status.success()) {
            println!("skipped: no file system can be mounted");
            return;
        }
        let path = other.join("lib.so");
        std::fs::write(&path, "").unwrap();
        let mapped = mapping(&path);
        let own = std::fs::metadata(&top).unwrap().dev();
        let found = open(&top, &mapped).is_some();
        let believed = open(&top, &Mapping { device: own, ..mapped }).is_some();
        assert!(Command::new("umount").arg(&other).status().unwrap().success());
        assert!(found && !believed);
    }
}
