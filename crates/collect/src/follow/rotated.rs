//! The files beside a log that were it before: renamed, copied or compressed.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};

use super::open_log::{Id, OpenLog, first_bytes, id_of, mtime_ns, size_of};
use super::packed::{Packer, unpacked_name};
use crate::file::{each_entry_while, regular};

/// As many names of a directory are looked at.
const NAMES_MAX: usize = 65_536;
/// As many of the files that were written to last.
const FILES_MAX: usize = 64;
/// Compressed by what is not read here.
const FOREIGN: [&[u8]; 6] = [b".xz", b".bz2", b".lz4", b".lz", b".zip", b".Z"];

/// A file that may have been the log.
#[derive(Debug, Clone)]
pub struct Rotated {
    pub name: CString,
    pub id: Id,
    pub size: u64,
    pub mtime_ns: i64,
}

/// What is at a name, without opening it or following a link.
pub fn look_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<(OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = openat(dir, name, flags, Mode::empty())?;
    let stat = fstat(&path)?;
    Ok((path, stat))
}

impl Rotated {
    fn packer(&self) -> Option<Packer> {
        unpacked_name(self.name.to_bytes()).map(|(_, packer)| packer)
    }

    /// What was looked at, if it still has that name.
    fn open(&self, dir: BorrowedFd<'_>) -> Option<(OwnedFd, Stat)> {
        let (path, _) = look_at(dir, &self.name).ok()?;
        regular(path).filter(|(_, stat)| id_of(stat) == self.id)
    }

    pub fn open_log(&self, dir: BorrowedFd<'_>) -> Option<OpenLog> {
        let (fd, stat) = self.open(dir)?;
        Some(OpenLog::new(fd, &stat, self.packer()))
    }

    /// And how many had to be read for them.
    pub fn first_bytes(&self, dir: BorrowedFd<'_>) -> Option<(Vec<u8>, u64)> {
        let (fd, _) = self.open(dir)?;
        Some(first_bytes(fd, self.packer()))
    }
}

/// The files that may have been a log, oldest first.
pub fn list(dir: BorrowedFd<'_>, log: &CStr) -> Vec<Rotated> {
    let mut names: HashSet<CString> = HashSet::new();
    let mut seen = 0_usize;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listed) = openat(dir, c".", flags, Mode::empty()) else { return Vec::new() };
    // A directory that is gone has no names.
    _ = each_entry_while(listed.as_fd(), |name| {
        seen += 1;
        if was(log.to_bytes(), name.to_bytes()) {
            names.insert(name.to_owned());
        }
        seen < NAMES_MAX
    });
    // While `x.gz` is made `x` is still there, and has all of it.
    let is_made = |name: &CString| {
        let before = unpacked_name(name.to_bytes()).and_then(|(name, _)| CString::new(name).ok());
        before.is_some_and(|before| names.contains(&before))
    };
    let mut files: Vec<Rotated> = names
        .iter()
        .filter(|name| !is_made(name))
        .filter_map(|name| {
            let (_, stat) = look_at(dir, name).ok()?;
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            let file = || Rotated {
                name: name.clone(),
                id: id_of(&stat),
                size: size_of(&stat),
                mtime_ns: mtime_ns(&stat),
            };
            is_file.then(file)
        })
        .collect();
    files.sort_by(|a, b| (a.mtime_ns, &a.name).cmp(&(b.mtime_ns, &b.name)));
    files.drain(..files.len().saturating_sub(FILES_MAX));
    files
}

/// Whether a file was a log by its name: `app.log.1`, `app.log-20261127.gz`, `app.log.old`, `app-2026-11-27.log`.
fn was(log: &[u8], name: &[u8]) -> bool {
    if FOREIGN.iter().any(|ending| name.ends_with(ending)) {
        return false;
    }
    let is_between = |byte: &u8| b".-_".contains(byte);
    if let Some(rest) = name.strip_prefix(log) {
        let Some((first, rest)) = rest.split_first() else { return false };
        let is_told = rest.first().is_some_and(u8::is_ascii_digit)
            || [&b"old"[..], b"bak", b"prev", b"gz", b"zst"].iter().any(|word| rest.starts_with(word));
        return is_between(first) && is_told;
    }
    let Some(dot) = log.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0) else { return false };
    let (stem, ending) = log.split_at(dot);
    let name = unpacked_name(name).map_or(name, |(name, _)| name);
    let Some(middle) = name.strip_prefix(stem).and_then(|name| name.strip_suffix(ending)) else {
        return false;
    };
    let is_date = |byte: &u8| byte.is_ascii_digit() || b".-_:T".contains(byte);
    middle.first().is_some_and(is_between)
        && middle.iter().any(u8::is_ascii_digit)
        && middle.iter().all(is_date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_was_the_log() {
        let names = [
            "app.log.1",
            "app.log.10.gz",
            "app.log-20261127",
            "app.log-20261127.gz",
            "app.log.old",
            "app.log.0",
            "app.1.log",
            "app-2026-11-27.log",
            "app-2026-11-27.log.gz",
            "app.log_1",
            "app.log.gz",
            "app.log.1.zst",
            "app-2026-11-27.log.zst",
        ];
        for name in names {
            assert!(was(b"app.log", name.as_bytes()), "{name}");
        }
        for name in [
            "app.log",
            "app.log.lock",
            "app.error.log",
            "app-error.log",
            "app.log1",
            "apps.log.1",
            "app.log.1.xz",
            "other.log.1",
            "app",
            "",
        ] {
            assert!(!was(b"app.log", name.as_bytes()), "{name}");
        }
        assert!(was(b"syslog", b"syslog.1") && !was(b"syslog", b"syslog-ng.1") && !was(b".log", b"x.log"));
    }
}
