//! The files of an index.
//!
//! ```text
//! DIR/lock             locked by the one writer, holds its process id
//! DIR/0000000007.table every state of every document up to the log that it names (sealed.rs)
//! DIR/0000000007.pack  contents, in blocks of like ones (block.rs)
//! DIR/0000000008.log   batches since, appended (batch.rs)
//! DIR/text/            words of the contents; made again when they are missing
//! ```
//!
//! Numbers only go up and are used once. What lies there is as secret as what was indexed: folders are made with mode 0750,
//! files with 0640, and no link is followed when one is made.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::error::{At, Error};

/// The name of the file that the one writer locks.
pub(super) const LOCK: &str = "lock";

const DIR_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
/// A writer tries this often to get the lock: the one before may be about to end.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Table,
    Pack,
    Log,
    /// A table that is being written, or was when the writer ended.
    Unfinished,
}

impl Role {
    const ALL: [Self; 4] = [Self::Table, Self::Pack, Self::Log, Self::Unfinished];

    fn ending(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Pack => "pack",
            Self::Log => "log",
            Self::Unfinished => "tmp",
        }
    }

    /// The first bytes of such a file.
    pub(super) fn magic(self) -> [u8; 8] {
        match self {
            Self::Table | Self::Unfinished => *b"MITRAITB",
            Self::Pack => *b"MITRAIPK",
            Self::Log => *b"MITRAILG",
        }
    }
}

/// The path of a file.
pub(super) fn path(dir: &Path, role: Role, number: u64) -> PathBuf {
    dir.join(format!("{number:010}.{}", role.ending()))
}

/// The numbered files of an index, by role and number.
pub(super) fn list(dir: &Path) -> Result<Vec<(Role, u64)>, Error> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).at(dir)? {
        let name = entry.at(dir)?.file_name();
        files.extend(name.to_str().and_then(parse));
    }
    files.sort_unstable();
    Ok(files)
}

fn parse(name: &str) -> Option<(Role, u64)> {
    let (number, ending) = name.split_once('.')?;
    let role = Role::ALL.into_iter().find(|role| role.ending() == ending)?;
    // Only names that this version would write.
    let number: u64 = number.parse().ok()?;
    (format!("{number:010}.{ending}") == name).then_some((role, number))
}

/// Makes a folder, and what is missing above it.
pub(super) fn make_dir(dir: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).at(dir)
}

/// Makes a file. Where the name is taken, if only by a link, that is an error.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Opens a file to append to it.
pub(super) fn open_to_write(path: &Path) -> io::Result<File> {
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().read(true).write(true).custom_flags(nofollow).open(path)
}

/// Makes names that were created, renamed or removed last.
pub(super) fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).at(dir)
}

/// Held as long as it lives; the kernel frees it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(LOCK);
        let mut options = OpenOptions::new();
        let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).custom_flags(nofollow);
        let mut file = options.open(&path).at(&path)?;
        for tried in 1.. {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if tried < LOCK_TRIES => std::thread::sleep(LOCK_PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let mut pid = String::new();
                    let _ = file.read_to_string(&mut pid);
                    return Err(Error::Locked { path: dir.to_owned(), pid: pid.trim().parse().ok() });
                }
                Err(errno) => return Err(errno).at(path),
            }
        }
        // On a full disk nobody can say who it is; that is no reason not to write.
        let _ = file.set_len(0);
        let _ = file.write_all_at(std::process::id().to_string().as_bytes(), 0);
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_files_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "0000000002.log",
            "0000000001.pack",
            "2.log",
            "0000000003.seg",
            "x.log",
            "lock",
            "00000000001.log",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(list(dir.path()).unwrap(), [(Role::Pack, 1), (Role::Log, 2)]);
        assert_eq!(path(Path::new("/x"), Role::Table, 7), Path::new("/x/0000000007.table"));
    }

    #[test]
    fn there_is_one_writer() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        let refused = Lock::take(dir.path()).unwrap_err().to_string();
        assert!(
            refused.ends_with(&format!("another indexer writes here (pid {})", std::process::id())),
            "{refused}"
        );
        drop(lock);
        Lock::take(dir.path()).unwrap();
    }
}
