//! One writer for each archive, and what it says of itself.
//!
//! A lock needs no permission to write: whoever can open a file can lock it, and who may read a recording could keep the
//! recorder from it. So the file that decides, `lock`, can be opened by whoever records and nobody else. Readers have
//! `state`, which is locked too, so that they see whether it is of a process that lives; a reader who locks that deceives
//! other readers for as long, and nobody else.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::dir::FILE_MODE;
use crate::error::Error;

const LOCK: &str = "lock";
const STATE: &str = "state";
const LOCK_MODE: u32 = 0o600;
/// Readers take a lock for a moment to learn whether there is a writer; a writer tries this often.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);
/// The state always has this size: what is written over needs no space, on a full disk neither.
const STATE_BYTES: usize = 512;

/// Held as long as it lives; the kernel frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _lock: File,
    /// `None` on a full disk, say: that is no reason not to record.
    state: Option<File>,
}

/// What a writer says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recording {
    /// Its process.
    pub pid: Option<u32>,
    /// What is wrong, in words.
    pub trouble: Option<String>,
}

impl Lock {
    pub(crate) fn take(dir: &Path) -> Result<Lock, Error> {
        let path = dir.join(LOCK);
        let file = open(&path, LOCK_MODE).map_err(Error::io("open", &path))?;
        // Of a version that let readers open it. Who has it open already, has it.
        _ = file.set_permissions(Permissions::from_mode(LOCK_MODE));
        match lock(&file) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = said(dir).pid.or_else(|| read(&path).ok()?.trim().parse().ok());
                let holder = pid.map_or_else(|| "unknown".into(), |pid: u32| format!("process {pid}"));
                return Err(Error::Locked { path, holder });
            }
            Err(errno) => return Err(Error::io("lock", &path)(errno.into())),
        }
        // Versions without `state` look for the holder here.
        _ = file.set_len(0);
        _ = file.write_all_at(std::process::id().to_string().as_bytes(), 0);
        let state = open(&dir.join(STATE), FILE_MODE).ok();
        if let Some(state) = &state {
            _ = lock(state);
        }
        let lock = Lock { _lock: file, state };
        lock.say("");
        Ok(lock)
    }

    /// Says what is wrong, or that nothing is, to whoever asks.
    pub(crate) fn say(&self, trouble: &str) {
        let Some(state) = &self.state else { return };
        let line: String = trouble.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut bytes = format!("{}\n{line}", std::process::id()).into_bytes();
        bytes.resize(STATE_BYTES, b' ');
        _ = state.write_all_at(&bytes, 0);
    }
}

fn open(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(mode);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

fn lock(file: &File) -> Result<(), Errno> {
    for _ in 1..ATTEMPTS {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Whether a writer holds the lock of this archive.
pub(crate) fn is_held(dir: &Path) -> bool {
    let is_locked = |name: &str| {
        let file = File::open(dir.join(name)).ok()?;
        Some(flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    };
    // Who can open it knows for sure.
    is_locked(LOCK).or_else(|| is_locked(STATE)).unwrap_or(false)
}

/// The writer of this archive and what it says, if there is one.
#[must_use]
pub fn recording(dir: &Path) -> Option<Recording> {
    is_held(dir).then(|| said(dir))
}

fn said(dir: &Path) -> Recording {
    let text = read(&dir.join(STATE)).unwrap_or_default();
    let (pid, trouble) = text.split_once('\n').unwrap_or((&text, ""));
    let trouble = Some(trouble.trim().to_owned()).filter(|trouble| !trouble.is_empty());
    Recording { pid: pid.trim().parse().ok(), trouble }
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(STATE_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_says_who_it_is_and_what_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(recording(dir.path()), None);
        let lock = Lock::take(dir.path()).unwrap();
        let pid = Some(std::process::id());
        assert_eq!(recording(dir.path()), Some(Recording { pid, trouble: None }));
        lock.say(&format!("the disk\n\u{1b}[31m is full {}", "é".repeat(600)));
        let said = recording(dir.path()).unwrap();
        assert!(said.trouble.unwrap().starts_with("the disk  [31m is full"));
        lock.say("");
        assert_eq!(recording(dir.path()), Some(Recording { pid, trouble: None }));
        let refused = Lock::take(dir.path()).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(lock);
        assert_eq!(recording(dir.path()), None);
    }

    #[test]
    fn who_may_only_read_cannot_keep_the_recorder_out() {
        let dir = tempfile::tempdir().unwrap();
        drop(Lock::take(dir.path()).unwrap());
        let mode = |name| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(LOCK), mode(STATE) & 0o077),
            (0o600, 0o040),
            "the group reads one and not the other"
        );
        // All that a reader can do.
        let state = File::open(dir.path().join(STATE)).unwrap();
        flock(&state, FlockOperation::LockExclusive).unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        drop(state);
        assert!(is_held(dir.path()));
        drop(lock);
        // A lock of a version that let the group read it is closed to them.
        std::fs::set_permissions(dir.path().join(LOCK), Permissions::from_mode(0o640)).unwrap();
        drop(Lock::take(dir.path()).unwrap());
        assert_eq!(mode(LOCK), 0o600);
    }

    #[test]
    fn a_version_that_knows_one_file_is_kept_out_and_keeps_out() {
        let dir = tempfile::tempdir().unwrap();
        let old = || {
            let file = open(&dir.path().join(LOCK), FILE_MODE).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| file)
        };
        let new = Lock::take(dir.path()).unwrap();
        assert!(old().is_err());
        drop(new);
        let held = old().unwrap();
        held.set_len(0).unwrap();
        held.write_all_at(b"4711", 0).unwrap();
        std::fs::remove_file(dir.path().join(STATE)).unwrap();
        assert!(is_held(dir.path()));
        assert!(Lock::take(dir.path()).unwrap_err().to_string().contains("process 4711"));
    }
}
