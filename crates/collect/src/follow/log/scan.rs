//! Files beside the log that had its name between two looks.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd};

use super::super::known::{BEGIN_BYTES_MAX, Likeness};
use super::super::open_log::{OpenLog, is_of_now};
use super::super::rotated::{self, Rotated};
use super::{Dir, Log, OLD_MAX, Old, Start, UNCLEAR_S, Work, key, seconds};

impl Log {
    /// The first bytes of a file beside the log. What is read for them is part of what may be read.
    pub(super) fn first_bytes(&self, one: &Rotated, dir: BorrowedFd<'_>) -> Option<Vec<u8>> {
        let (bytes, read) = one.first_bytes(dir)?;
        self.first_bytes_read.set(self.first_bytes_read.get().saturating_add(read));
        Some(bytes)
    }

    /// Takes what was read of files beside the log from what may be read.
    pub(super) fn charge(&mut self, work: &mut Work<'_>) {
        let read = self.first_bytes_read.take();
        *work.left = work.left.saturating_sub(read);
        self.beside_bytes = self.beside_bytes.saturating_add(read);
    }

    /// Looks for files that had the name between two looks. Whether there are any.
    pub(super) fn scan(&mut self, dir: &Dir, now_s: u64) -> bool {
        let is_young = self.scanned.is_none_or(|mark| mark != dir.mark);
        if is_young {
            self.unclear_until_s = now_s + UNCLEAR_S;
        }
        if !is_young && !self.is_scan_due {
            if let Some(file) = &self.current {
                self.horizon_ns = file.mtime_ns;
            }
            return false;
        }
        // A copy of what was not begun yet would be taken for another file.
        let is_unknown = |file: &OpenLog| file.begin.len == 0 && file.unread() > 0;
        let mut open = self.old.iter().map(|old| &old.file).chain(&self.current);
        if !matches!(self.start, Start::Begun) || open.any(is_unknown) {
            return false;
        }
        let count = self.old.len();
        let files = rotated::list(dir.fd.as_fd(), &self.name);
        let keys: HashSet<_> = files.iter().map(key).collect();
        self.known.retain(|known| keys.contains(known));
        let mut is_unclear = false;
        for one in &files {
            let is_open = |old: &Old| old.file.id == one.id;
            let is_older = seconds(one.mtime_ns) < seconds(self.horizon_ns);
            let is_current = self.current.as_ref().is_some_and(|file| file.id == one.id);
            if is_older || is_current || self.old.iter().any(is_open) || self.known.contains(&key(one)) {
                continue;
            }
            let Some(first) = self.first_bytes(one, dir.fd.as_fd()) else { continue };
            match self.like(&first) {
                Likeness::Same => _ = self.known.insert(key(one)),
                Likeness::Unclear => is_unclear = true,
                Likeness::Other if self.old.len() >= OLD_MAX => is_unclear = true,
                Likeness::Other => {
                    if let Some(mut file) = one.open_log(dir.fd.as_fd())
                        && self.pass_unreadable(&mut file).is_ok()
                    {
                        if let Some(was) = self.left_at(one.id, &first) {
                            _ = file.resume(was.offset, was.is_in_rest, &was.begin);
                        }
                        self.old.push(Old { file, read_s: now_s, is_copy: false, is_read: false });
                    }
                }
            }
        }
        self.scanned = Some(dir.mark);
        // Within one tick of the kernel's clock names may have changed once more.
        self.is_scan_due = is_unclear && now_s < self.unclear_until_s || is_of_now(dir.mark.1);
        if let Some(file) = self.current.as_ref().filter(|_| !self.is_scan_due) {
            self.horizon_ns = file.mtime_ns;
        }
        self.old.len() > count
    }

    /// Whether a file holds what was read already.
    fn like(&self, first: &[u8]) -> Likeness {
        let open = self.old.iter().map(|old| &old.file).chain(&self.current).map(|file| &file.begin);
        let mut likeness = if first.is_empty() { Likeness::Unclear } else { Likeness::Other };
        for (begin, is_open) in
            open.map(|begin| (begin, true)).chain(self.seen.iter().map(|seen| (seen, false)))
        {
            // Of a file that is read little is known at first, and many begin with the same line.
            let is_little = is_open && begin.len < BEGIN_BYTES_MAX && first.len() > begin.len;
            match begin.like(first) {
                Likeness::Same if !is_little => return Likeness::Same,
                Likeness::Same | Likeness::Unclear => likeness = Likeness::Unclear,
                Likeness::Other => {}
            }
        }
        likeness
    }
}
