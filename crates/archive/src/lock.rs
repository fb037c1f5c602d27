//! One writer for each archive.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::dir::FILE_MODE;
use crate::error::Error;

const FILE: &str = "lock";
/// Readers take the lock for a moment to learn whether there is a writer; a writer tries this often.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Held as long as it lives; the kernel frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn take(dir: &Path) -> Result<Lock, Error> {
        let path = dir.join(FILE);
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .map_err(Error::io("open", &path))?;
        for attempt in 1.. {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if attempt < ATTEMPTS => std::thread::sleep(PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let mut text = String::new();
                    let _ = file.read_to_string(&mut text);
                    let pid = text.trim();
                    let holder = if pid.is_empty() { "unknown".into() } else { format!("process {pid}") };
                    return Err(Error::Locked { path, holder });
                }
                Err(errno) => return Err(Error::io("lock", &path)(errno.into())),
            }
        }
        // On a full disk the holder cannot be named; that is no reason not to record.
        let _ = file.set_len(0);
        let _ = file.write_all_at(std::process::id().to_string().as_bytes(), 0);
        Ok(Lock { _file: file })
    }
}

/// Whether a writer holds the lock of this archive.
pub(crate) fn is_held(dir: &Path) -> bool {
    let Ok(file) = File::open(dir.join(FILE)) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}
