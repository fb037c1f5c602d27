//! Where a log goes on that an earlier recorder read, or whose file was written anew.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::super::known::{BEGIN_BYTES_MAX, Likeness};
use super::super::open_log::OpenLog;
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
        let is_there = |was: &FileState| before.iter().any(|one| one.id == was.id);
        let last = state.files.len();
        let files = state.files.iter().enumerate();
        let mut files: Vec<(&FileState, bool)> =
            files.map(|(nth, was)| (was, state.has_current && nth + 1 == last)).collect();
        // A file that was empty is known by its inode alone, which another one may have by now: those that are known by what is in
        // them come first. Of two that begin alike the one that is still there is no copy of the other, and the one that had the name
        // is in the file that has it now.
        files.sort_by_key(|(was, is_current)| (was.begin.len == 0, !is_there(was), !is_current));
        for (was, is_current) in files {
            // A device may have another number after a restart of the machine.
            let is_it = |file: &OpenLog| file.id == was.id || is_current && file.id.1 == was.id.1;
            if let Some(mut file) = own.take_if(|file| is_it(file) && is_like(file, was)) {
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
            let found = self.find(&before, was, since_ns, dir.fd.as_fd());
            if found.is_none()
                && is_current
                && let Some(mut file) = own.take_if(|file| goes_on(file, was))
            {
                file.resume(was.offset, was.is_in_rest, &was.begin)?;
                self.current = Some(file);
                continue;
            }
            match found {
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

    /// A file that was written anew and put in the place of the one that is read, by rsync, `sed -i` or an editor, goes on where that
    /// one is.
    ///
    /// To take it for another one counts all of its lines a second time: a burst that never was. To take another one for it leaves out
    /// the lines up to the offset. So three things have to be so: both begin alike, the same bytes stand just before the offset, and
    /// nothing beside the log holds what was read. A log that begins with the same banner after each rotation differs before the
    /// offset; one whose lines are all the same has its old file beside it.
    pub(super) fn take_over(&mut self, file: &mut OpenLog, dir: &Dir) -> io::Result<()> {
        let Some(current) = &self.current else { return Ok(()) };
        let was = FileState::of(current);
        if !goes_on(file, &was) {
            return Ok(());
        }
        let beside = rotated::list(dir.fd.as_fd(), &self.name);
        if self.find(&beside, &was, self.horizon_ns, dir.fd.as_fd()).is_some() {
            return Ok(());
        }
        if file.size > current.size_now()? {
            // What was not read of the old one is in the new one, and is read there.
            file.resume(was.offset, was.is_in_rest, &was.begin)?;
            self.current = None;
            return Ok(());
        }
        // All of the new one is in the old one, which is read to its end: a program that did not hear of it goes on writing there. A line
        // without an end counts there as well.
        file.begin_at(file.size)?;
        file.is_in_rest |= file.unread() > 0;
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
            let first = self.first_bytes(one, dir);
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

/// Whether a file that was written anew holds what was read of another one.
fn goes_on(file: &OpenLog, was: &FileState) -> bool {
    was.begin.len == BEGIN_BYTES_MAX && file.has_before(was.offset, was.tail) && is_like(file, was)
}
