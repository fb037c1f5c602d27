//! One writer per directory: a lock file that contains the writer's process id.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::error::{At, Error};

const LOCK: &str = "lock";
/// Readable by owner and group only, because an index is as secret as the files in it.
const DIR_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
/// How often a writer tries to get the lock, because the one before may be about to exit.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// A held lock. The kernel releases it when the process ends for any reason.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Creates the directory if it is missing, and takes the lock.
    pub(crate) fn take(dir: &Path) -> Result<Self, Error> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).at(dir)?;
        let path = dir.join(LOCK);
        let mut file = open(&path).at(&path)?;
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
        // A full disk prevents storing the process id, which is no reason to fail.
        let _ = file.set_len(0);
        let _ = file.write_all_at(std::process::id().to_string().as_bytes(), 0);
        Ok(Self { _file: file })
    }
}

/// Opens a file for reading and writing, and creates it if it is missing.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    open_with(OpenOptions::new().read(true).write(true).create(true).truncate(false), path)
}

/// Opens a file without following a symbolic link.
pub(crate) fn open_with(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    options.mode(FILE_MODE).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

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
