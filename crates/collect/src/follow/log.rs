//! One log, by its path, wherever its lines are: in the file that has the name now, and in those that had it before.

mod resume;
mod scan;

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open};

use super::known::{Begin, Likeness};
use super::open_log::{Id, OpenLog, Progress, id_of, mtime_ns, size_of};
use super::rotated::{self, Rotated, look_at};
use super::state::{FileState, LogState};
use crate::file::regular;

/// Fewer files that had the name before are open: with as many the oldest is closed once it is read.
const OLD_MAX: usize = 16;
/// A file that was renamed is closed when nobody has written to it for so long: a daemon goes on writing to it until it is
/// told to open its log anew.
const OLD_IDLE_S: u64 = 60;
/// Beginnings of files that are done.
const SEEN_MAX: usize = 128;
/// Bytes that may wait to be read. Of more the oldest are passed over.
pub const BEHIND_BYTES_MAX: u64 = 256 << 20;
/// A copy that is being made is looked at again for so long.
const UNCLEAR_S: u64 = 120;

/// Where the lines begin that count.
#[derive(Debug)]
enum Start {
    /// What is there when the log is first seen does not count.
    AtEnd,
    /// Where an earlier recorder stopped.
    Resume(LogState),
    /// All that comes counts.
    Begun,
}

/// A file that had the name before.
struct Old {
    file: OpenLog,
    /// When something was last read of it.
    read_s: u64,
    /// A copy is complete, and nobody writes to it.
    is_copy: bool,
    /// Whether its end was reached.
    is_read: bool,
}

/// The log.
pub struct Log {
    dir: PathBuf,
    name: CString,
    start: Start,
    current: Option<OpenLog>,
    old: Vec<Old>,
    seen: VecDeque<Begin>,
    /// Those that were closed last.
    closed: VecDeque<FileState>,
    /// When the file with the name was last written to. What was rotated since was written to later.
    horizon_ns: i64,
    /// The file that had the name at first and could not be read, and its size then.
    unreadable: Option<(Id, u64)>,
    /// The directory, and when its names changed, as of the last scan.
    scanned: Option<(Id, i64)>,
    is_scan_due: bool,
    unclear_until_s: u64,
    /// Files beside the log that are no news.
    known: HashSet<(Id, u64, i64)>,
    /// Bytes that were read of files beside the log and are not taken from what may be read yet.
    first_bytes_read: Cell<u64>,
    /// Those that were, since somebody asked for them.
    pub beside_bytes: u64,
    /// All lines.
    pub lines: u64,
    /// Bytes that were not looked at.
    pub skipped: u64,
    /// As much may wait to be read.
    pub behind_bytes_max: u64,
    /// What is not to be found any more, for a message.
    pub lost: Vec<String>,
}

/// What reading needs, and who gets the lines.
pub struct Work<'a> {
    pub now_s: u64,
    /// Bytes that may still be read.
    pub left: &'a mut u64,
    pub buffer: &'a mut Vec<u8>,
    pub each: &'a mut dyn FnMut(&[u8]),
}

/// A directory, open for looking.
struct Dir {
    fd: OwnedFd,
    mark: (Id, i64),
}

impl Log {
    /// `None` for a path without a name.
    pub fn new(path: &Path, state: Option<LogState>) -> Option<Log> {
        let name = CString::new(path.file_name()?.as_bytes()).ok()?;
        let (lines, skipped) = state.as_ref().map_or((0, 0), |state| (state.lines, state.skipped));
        Some(Log {
            dir: path.parent()?.to_owned(),
            name,
            start: state.map_or(Start::AtEnd, Start::Resume),
            current: None,
            old: Vec::new(),
            seen: VecDeque::new(),
            closed: VecDeque::new(),
            horizon_ns: i64::MIN,
            unreadable: None,
            scanned: None,
            is_scan_due: false,
            unclear_until_s: 0,
            known: HashSet::new(),
            first_bytes_read: Cell::new(0),
            beside_bytes: 0,
            lines,
            skipped,
            behind_bytes_max: BEHIND_BYTES_MAX,
            lost: Vec::new(),
        })
    }

    /// The directory, for those who watch it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Counts what was written since the last look. What is open is read even where the name cannot be looked at.
    pub fn look(&mut self, work: &mut Work<'_>) -> io::Result<()> {
        let dir = Dir::open(&self.dir);
        let placed = match &dir {
            Ok(dir) => self.place(dir, work.now_s),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.nothing_there();
                Ok(())
            }
            Err(error) => Err(io::Error::from(error.kind())),
        };
        self.charge(work);
        let dir = dir.ok();
        let dir = dir.as_ref();
        let read = self.read_current(dir, work);
        // Copies of what is open are known by what was read of it.
        self.read_old(dir, work);
        if let Some(dir) = dir {
            let is_any_new = self.scan(dir, work.now_s);
            self.charge(work);
            if is_any_new {
                self.read_old(Some(dir), work);
            }
        }
        self.pass_over(work);
        self.close_old(work);
        placed.and(read)
    }

    /// Bytes that are still to be read.
    pub fn behind(&self) -> u64 {
        let files = self.old.iter().map(|old| &old.file).chain(&self.current);
        files.map(OpenLog::unread).fold(0, u64::saturating_add)
    }

    /// Where it goes on. `None` as long as it has not begun.
    pub fn state(&self) -> Option<LogState> {
        let later = self.unreadable.map(|(id, offset)| FileState { id, offset, ..FileState::default() });
        let files = self.old.iter().map(|old| &old.file).chain(&self.current).map(FileState::of);
        let state = || LogState {
            lines: self.lines,
            skipped: self.skipped,
            horizon_ns: self.horizon_ns,
            has_current: self.current.is_some(),
            files: later.into_iter().chain(files).collect(),
            seen: self.seen.iter().cloned().collect(),
        };
        match &self.start {
            Start::Begun => Some(state()),
            Start::Resume(state) => Some(state.clone()),
            _ => None,
        }
    }

    /// There is no file: the next one counts from its beginning.
    fn nothing_there(&mut self) {
        if matches!(self.start, Start::AtEnd) {
            self.start = Start::Begun;
            self.horizon_ns = now_ns();
        }
    }

    /// Sees to it that the file that has the name now is the one that is read.
    fn place(&mut self, dir: &Dir, now_s: u64) -> io::Result<()> {
        let found = match look_at(dir.fd.as_fd(), &self.name) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if matches!(self.start, Start::AtEnd) {
            self.know_what_is_there(dir);
        }
        if let Some((_, stat)) = &found
            && let Err(error) = is_regular(stat)
        {
            self.nothing_there();
            return Err(error);
        }
        if let Start::Resume(state) = &self.start {
            let state = state.clone();
            return self.resume(&state, dir, found.map(|(path, _)| path), now_s);
        }
        let Some((path, stat)) = found else {
            self.nothing_there();
            return Ok(());
        };
        if self.current.as_ref().is_some_and(|file| file.id == id_of(&stat)) {
            return Ok(());
        }
        // It has its name again.
        if let Some(at) = self.old.iter().position(|old| old.file.id == id_of(&stat) && !old.is_copy) {
            let back = self.old.remove(at).file;
            self.retire(now_s);
            self.current = Some(back);
            return Ok(());
        }
        self.start_with(path, &stat, dir, now_s)
    }

    /// A file that was not read before.
    fn start_with(&mut self, path: OwnedFd, stat: &Stat, dir: &Dir, now_s: u64) -> io::Result<()> {
        let Some((fd, now)) = regular(path) else {
            if matches!(self.start, Start::AtEnd) {
                self.nothing_there();
                self.unreadable = Some((id_of(stat), size_of(stat)));
            }
            return Err(io::ErrorKind::PermissionDenied.into());
        };
        let mut file = OpenLog::new(fd, &now, None);
        if matches!(self.start, Start::AtEnd) {
            file.begin_at(file.size)?;
            self.start = Start::Begun;
        }
        self.pass_unreadable(&mut file)?;
        self.is_scan_due = true;
        self.take_over(&mut file, dir)?;
        self.retire(now_s);
        self.current = Some(file);
        Ok(())
    }

    /// What was rotated before the log is followed does not count.
    fn know_what_is_there(&mut self, dir: &Dir) {
        let first = |one: &Rotated| self.first_bytes(one, dir.fd.as_fd());
        let files = rotated::list(dir.fd.as_fd(), &self.name);
        self.seen = files.iter().filter_map(first).map(|bytes| Begin::of(&bytes)).collect();
        self.known = files.iter().map(key).collect();
        self.horizon_ns = now_ns();
    }

    /// What was in the file when it could not be read yet does not count.
    fn pass_unreadable(&mut self, file: &mut OpenLog) -> io::Result<()> {
        match self.unreadable.take_if(|(id, _)| *id == file.id) {
            Some((_, size)) if size <= file.size => file.begin_at(size),
            _ => Ok(()),
        }
    }

    /// The file that had the name is read to its end.
    fn retire(&mut self, now_s: u64) {
        if let Some(file) = self.current.take() {
            self.old.push(Old { file, read_s: now_s, is_copy: false, is_read: false });
        }
    }

    fn read_current(&mut self, dir: Option<&Dir>, work: &mut Work<'_>) -> io::Result<()> {
        // Cut off, and then read from its beginning.
        for _ in 0..2 {
            let Some(file) = &mut self.current else { return Ok(()) };
            let end_before = file.offset + file.unread();
            if read(file, &mut self.lines, work)? != Progress::Truncated {
                return Ok(());
            }
            if let Some(file) = self.current.take() {
                self.current = Some(self.cut_off(file, end_before, dir, work.now_s));
            }
        }
        Ok(())
    }

    /// The file was cut off: whoever did that may have copied it before. What was not read of it is in the copy, and the
    /// file goes on from its beginning.
    fn cut_off(&mut self, file: OpenLog, end_before: u64, dir: Option<&Dir>, now_s: u64) -> OpenLog {
        let was = FileState::of(&file);
        let copy = dir.filter(|_| was.begin.len > 0).and_then(|dir| {
            // A copy may be compressed, and lose its name, while it is looked for.
            let list = || rotated::list(dir.fd.as_fd(), &self.name);
            (0..2).find_map(|_| self.find(&list(), &was, self.horizon_ns, dir.fd.as_fd()))
        });
        let copy = copy.and_then(|(mut copy, _)| {
            copy.resume(was.offset, was.is_in_rest, &was.begin).ok()?;
            Some(copy)
        });
        if let Some(copy) = copy {
            self.old.push(Old { file: copy, read_s: now_s, is_copy: true, is_read: false });
        } else {
            self.skipped = self.skipped.saturating_add(end_before.saturating_sub(was.offset));
            self.see(was.begin);
        }
        self.is_scan_due = true;
        file.emptied()
    }

    fn read_old(&mut self, dir: Option<&Dir>, work: &mut Work<'_>) {
        let mut at = 0;
        while let Some(old) = self.old.get_mut(at) {
            let before = old.file.offset;
            let end_before = before + old.file.unread();
            let progress = read(&mut old.file, &mut self.lines, work);
            if old.file.offset != before {
                old.read_s = work.now_s;
            }
            if matches!(progress, Ok(Progress::Truncated)) && !old.is_copy {
                // It was cut off before it was renamed. Its copy comes behind, and is read in its turn.
                let old = self.old.remove(at);
                let file = self.cut_off(old.file, end_before, dir, work.now_s);
                self.old.insert(at, Old { file, ..old });
                continue;
            }
            old.is_read = !matches!(progress, Ok(Progress::More));
            if progress.is_err() {
                // Nobody has to keep what had the name before.
                old.is_copy = true;
                self.skipped = self.skipped.saturating_add(old.file.unread());
            }
            at += 1;
        }
    }

    /// A log that grows faster than it may be read.
    fn pass_over(&mut self, work: &mut Work<'_>) {
        let most = self.behind_bytes_max;
        let files = self.old.iter_mut().map(|old| &mut old.file).chain(&mut self.current);
        let files: Vec<(u64, &mut OpenLog)> = files.map(|file| (file.waiting(most), file)).collect();
        let waiting = files.iter().map(|(waiting, _)| *waiting).fold(0, u64::saturating_add);
        let mut excess = waiting.saturating_sub(most);
        for (waiting, file) in files {
            let bytes = excess.min(waiting);
            if bytes > 0
                && let Ok(passed) = file.skip(bytes, work.buffer)
            {
                self.skipped = self.skipped.saturating_add(passed);
                excess = excess.saturating_sub(passed);
            }
        }
    }

    fn close_old(&mut self, work: &mut Work<'_>) {
        while let Some(at) = self.old.iter().position(|old| {
            let is_idle = work.now_s.saturating_sub(old.read_s) >= OLD_IDLE_S;
            old.is_read && (old.is_copy || old.file.is_packed() || is_idle || self.old.len() >= OLD_MAX)
        }) {
            let mut old = self.old.remove(at);
            let lines = &mut self.lines;
            // With its last line, should it have no end.
            old.file.finish(work.buffer, &mut |line| {
                *lines += 1;
                (work.each)(line);
            });
            // Its writer may still have it open, and go on.
            self.closed.push_back(FileState::of(&old.file));
            while self.closed.len() > OLD_MAX {
                self.closed.pop_front();
            }
            self.see(old.file.begin);
        }
    }

    /// Where a file was left that was closed and has grown since.
    fn left_at(&mut self, id: Id, first: &[u8]) -> Option<FileState> {
        let is_it = |was: &FileState| {
            was.id == id
                && was.begin.len > 0
                && Begin::kept(was.begin.len, was.begin.hash, false).like(first) == Likeness::Same
        };
        let at = self.closed.iter().position(is_it)?;
        self.closed.remove(at)
    }

    fn see(&mut self, begin: Begin) {
        if begin.len > 0 {
            self.seen.push_back(begin);
        }
        while self.seen.len() > SEEN_MAX {
            self.seen.pop_front();
        }
    }
}

/// Reads what there is of a file.
fn read(file: &mut OpenLog, lines: &mut u64, work: &mut Work<'_>) -> io::Result<Progress> {
    file.read(work.left, work.buffer, &mut |line| {
        *lines += 1;
        (work.each)(line);
    })
}

impl Dir {
    /// Links in the path are followed: whoever wrote the rule chose it. One in place of the log itself is not.
    fn open(path: &Path) -> io::Result<Dir> {
        let path = if path.as_os_str().is_empty() { OsStr::new("/") } else { path.as_os_str() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        Ok(Dir { fd, mark: (id_of(&stat), mtime_ns(&stat)) })
    }
}

/// Whole seconds: programs that compress may keep no more of a time.
fn seconds(ns: i64) -> i64 {
    ns.div_euclid(1_000_000_000)
}

/// A moment before now: files have the time of the kernel's last tick.
fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    i64::try_from(now).unwrap_or(i64::MAX) - 1_000_000_000
}

fn key(one: &Rotated) -> (Id, u64, i64) {
    (one.id, one.size, one.mtime_ns)
}

fn is_regular(stat: &Stat) -> io::Result<()> {
    let why = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => "it is a symbolic link; name the file that it leads to",
        _ => "it is no regular file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}
