//! Where an earlier recorder stopped, found again.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::super::open_log::{Likeness, OpenLog};
use super::super::rotated::{self, Rotated};
use super::super::state::{FileState, LogState};
use super::{Dir, Log, Old, Start, seconds};
use crate::file::regular;

impl Log {
    /// Goes on where an earlier recorder stopped, in the same files or in copies of them.
    pub(super) fn resume(
        &mut self,
        state: &LogState,
        dir: &Dir,
        found: Option<OwnedFd>,
        now_s: u64,
    ) -> io::Result<()> {
        let mut own = match found {
            // What cannot be read yet is not lost: it is tried again.
            Some(path) => {
                let (fd, stat) = regular(path).ok_or(io::ErrorKind::PermissionDenied)?;
                Some(OpenLog::new(fd, &stat, None))
            }
            None => None,
        };
        self.start = Start::Begun;
        self.horizon_ns = state.horizon_ns;
        self.is_scan_due = true;
        let before = rotated::list(dir.fd.as_fd(), &self.name);
        // A file that was empty is known by its inode alone, which another one may have by now: those that are known by what is in
        // them come first.
        let mut files: Vec<(usize, &FileState)> = state.files.iter().enumerate().collect();
        files.sort_by_key(|(_, was)| was.begin.len == 0);
        for (nth, was) in files {
            let is_current = state.has_current && nth + 1 == state.files.len();
            if let Some(mut file) = own.take_if(|file| file.id == was.id && is_like(file, was)) {
                file.resume(was.offset, was.is_in_rest, &was.begin)?;
                self.current = Some(file);
                continue;
            }
            // Nothing was read of it: whoever has its inode now is looked at as any other file beside the log, and may hold what was
            // counted elsewhere.
            if was.begin.len == 0 && was.offset == 0 {
                continue;
            }
            let since_ns = if is_current { state.horizon_ns } else { i64::MIN };
            match self.find(&before, was, since_ns, dir.fd.as_fd()) {
                Some((mut file, is_copy)) => {
                    file.resume(was.offset, was.is_in_rest, &was.begin)?;
                    self.old.push(Old { file, read_s: now_s, is_copy, is_read: false });
                }
                None => {
                    if is_current && was.offset > 0 {
                        let why = format!("the file that was read up to byte {} is gone", was.offset);
                        self.lost.push(why);
                    }
                    self.see(was.begin.clone());
                }
            }
        }
        if let Some(file) = own {
            self.current = Some(file);
        }
        state.seen.iter().for_each(|begin| self.see(begin.clone()));
        Ok(())
    }

    /// A file beside the log that is, or holds, what was read: the same one under another name, or a copy that was written
    /// to since then.
    pub(super) fn find(
        &self,
        among: &[Rotated],
        was: &FileState,
        since_ns: i64,
        dir: BorrowedFd<'_>,
    ) -> Option<(OpenLog, bool)> {
        let is_open = |one: &&Rotated| self.old.iter().any(|old| old.file.id == one.id);
        let same =
            among.iter().find(|one| one.id == was.id && !is_open(one)).and_then(|one| one.open_log(dir));
        if let Some(file) = same.filter(|file| is_like(file, was)) {
            return Some((file, false));
        }
        if was.begin.len == 0 {
            return None;
        }
        let is_copy = |one: &&Rotated| {
            let first = one.first_bytes(dir);
            first.is_some_and(|first| was.begin.like(&first) == Likeness::Same)
        };
        let is_new = |one: &&Rotated| seconds(one.mtime_ns) >= seconds(since_ns);
        let copy = among.iter().rev().filter(|one| is_new(one) && !is_open(one)).find(is_copy)?;
        Some((copy.open_log(dir)?, true))
    }
}

/// Whether a file begins as the one that was read.
fn is_like(file: &OpenLog, was: &FileState) -> bool {
    was.begin.len == 0 || file.first_bytes().is_ok_and(|first| was.begin.like(&first) == Likeness::Same)
}
