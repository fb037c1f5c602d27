//! One writer for each folder: a file that it locks, with its process id.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::error::{At, Error};

const LOCK: &str = "lock";
/// The owner and the group may read it: it is as secret as what was indexed.
const DIR_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
/// A writer tries this often to get the lock: the one before may be about to end.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Held as long as it lives; the kernel frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Makes the folder where it is missing, and locks it for writers.
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
        // On a full disk nobody can say who it is; that is no reason not to write.
        let _ = file.set_len(0);
        let _ = file.write_all_at(std::process::id().to_string().as_bytes(), 0);
        Ok(Self { _file: file })
    }
}

/// Opens a file for reading and writing, and makes it if it is missing.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    open_with(OpenOptions::new().read(true).write(true).create(true).truncate(false), path)
}

/// Opens a file as asked. Links are not followed.
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
