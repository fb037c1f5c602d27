//! Files that only root can change.

use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, Stat};

/// Whether a directory such as `/tmp` is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sticky {
    /// No: other users can create a file there first.
    Refused,
    /// Yes: the sticky bit keeps others from replacing a file of root's.
    Allowed,
}

/// Opens a path as a handle. No part of it may be a link. Each directory on the path, and the file,
/// must belong to root or to us and be writable only by its owner: so no other user has put the
/// file there or can change it. The error says in words why not.
pub(crate) fn open(path: &Path, sticky: Sticky) -> Result<(OwnedFd, Stat), String> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |error| format!("{}: {error}", path.display());
    let mut at = rustix::fs::open("/", flags, Mode::empty()).map_err(failed)?;
    let mut stat = rustix::fs::fstat(&at).map_err(failed)?;
    let mut components = path.components();
    if components.next() != Some(Component::RootDir) {
        return Err(format!("{}: not a whole path", path.display()));
    }
    for component in components {
        let Component::Normal(name) = component else {
            return Err(format!("{}: not a whole path", path.display()));
        };
        check(path, &stat, sticky)?;
        at = rustix::fs::openat(&at, name, flags, Mode::empty()).map_err(failed)?;
        stat = rustix::fs::fstat(&at).map_err(failed)?;
    }
    check(path, &stat, Sticky::Refused)?;
    Ok((at, stat))
}

/// Whether only root and this user can change a program, or what its path leads to. No part of the path may be a link.
#[must_use]
pub fn is_trusted_program(path: &Path) -> bool {
    open(path, Sticky::Refused)
        .is_ok_and(|(_, stat)| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Why others than root and this user could change a file or a directory, in words. The sticky bit of a directory such
/// as `/tmp` keeps them from it. No part of the path may be a link.
#[must_use]
pub fn untrusted(path: &Path) -> Option<String> {
    open(path, Sticky::Allowed).err()
}

/// An ACL with write access for others shows in the group bits.
fn check(path: &Path, stat: &Stat, sticky: Sticky) -> Result<(), String> {
    let us = rustix::process::geteuid().as_raw();
    let mode = Mode::from_raw_mode(stat.st_mode);
    let others = mode.intersects(Mode::WGRP | Mode::WOTH);
    let is_kept = sticky == Sticky::Allowed && mode.contains(Mode::SVTX);
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    if is_link || (stat.st_uid != 0 && stat.st_uid != us) || (others && !is_kept) {
        return Err(format!("{} can be changed by others than root", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn is_trusted(path: &Path, sticky: Sticky) -> bool {
        open(path, sticky).is_ok()
    }

    #[test]
    fn what_belongs_to_the_machine_is_trusted() {
        let shell = fs::canonicalize("/bin/sh").unwrap();
        let (_, stat) = open(&shell, Sticky::Refused).unwrap();
        assert_eq!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile);
        assert!(!is_trusted(Path::new("/nonexistent"), Sticky::Refused));
        assert!(!is_trusted(Path::new("usr"), Sticky::Refused));
        assert!(!is_trusted(Path::new("/bin/../bin/sh"), Sticky::Refused));
    }

    #[test]
    fn what_others_can_change_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let inner = top.join("inner");
        fs::create_dir(&inner).unwrap();
        let file = inner.join("tool");
        fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&inner, 0o755);
        mode(&file, 0o755);
        // The directory for temporary files is writable for all.
        let is_shared = top.starts_with("/tmp");
        assert_eq!(is_trusted(&file, Sticky::Refused), !is_shared);
        assert!(is_trusted(&file, Sticky::Allowed));
        for (path, bits) in [(&file, 0o775), (&file, 0o757), (&inner, 0o775), (&inner, 0o757)] {
            mode(path, bits);
            assert!(!is_trusted(&file, Sticky::Allowed), "{bits:o} of {}", path.display());
            mode(path, 0o755);
        }
        let link = top.join("link");
        symlink(&inner, &link).unwrap();
        assert!(!is_trusted(&link.join("tool"), Sticky::Allowed));
        for path in [&file, &inner] {
            if chown(path, Some(65_534), None).is_err() {
                println!("skipped: only root gives files away");
                return;
            }
            assert!(!is_trusted(&file, Sticky::Allowed), "{}", path.display());
            chown(path, Some(0), None).unwrap();
        }
        assert!(is_trusted(&file, Sticky::Allowed));
    }
}
