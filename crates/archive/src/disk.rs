//! The files of an archive: the half of the writer that touches the disk.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::captures;
use crate::dir::{self, Role};
use crate::error::{Error, Skipped};
use crate::lock::Lock;
use crate::open::{OpenSegment, Times};
use crate::retention::{Clocks, Hour, Kept, Recorded, Shelf};
use crate::seal::{seal, seal_log};
use crate::segment::file::Segment;
use crate::writer::Options;

struct OpenLog {
    number: u64,
    path: PathBuf,
    file: File,
    /// Of whole records.
    bytes: u64,
    /// The disk has said that it has these, and they sum to that.
    synced_bytes: u64,
    synced_crc: u32,
    /// The disk has the name too.
    is_named: bool,
    state: LogState,
}

/// What the system says when it cannot write back what it took, it says once, and lets go of the pages: asking again
/// says that all is well, and reading back says what memory holds. So what has not been synced stays here until it has, and
/// after an error it is written again, to another file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogState {
    Sound,
    /// An error was reported: the file is not to be trusted, and another one takes its place.
    Doubtful,
    /// That cannot be done. It was told, and the front has all frames to seal.
    Abandoned,
}

/// A log is synced early when the disk has not confirmed so much: it is kept in memory until then.
const UNSYNCED_BYTES_MAX: usize = 2 << 20;
/// Buffers of this size are kept in any case.
const KEPT_BYTES: usize = 256 << 10;
/// A log is copied in steps of this size.
const COPY_BYTES: usize = 64 << 10;

impl OpenLog {
    /// The disk has all of it.
    fn confirm(&mut self, unsynced: &mut Vec<u8>) {
        self.synced_bytes = self.bytes;
        self.synced_crc = crc32c::crc32c_append(self.synced_crc, unsynced);
        forget(unsynced);
    }
}

/// Empties the buffer, and gives back what a large base took.
fn forget(unsynced: &mut Vec<u8>) {
    unsynced.clear();
    if unsynced.capacity() > KEPT_BYTES {
        unsynced.shrink_to(KEPT_BYTES);
    }
}

/// Names that somebody else took are passed over up to this many at a time.
const TAKEN_MAX: u64 = 100;

/// What the archive has taken so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Bytes written since the writer was opened, log and segments.
    pub(crate) written_bytes: u64,
    /// Bytes that the archive takes on disk.
    pub(crate) disk_bytes: u64,
    /// Errors of the disk.
    pub(crate) errors: u64,
    /// Logs to which nothing more should be added.
    pub(crate) abandoned: u64,
}

/// The directory, its closed files and the open log.
pub(crate) struct Disk {
    dir: PathBuf,
    boot_id: String,
    max_bytes: u64,
    max_age: Duration,
    level: i32,
    log: Option<OpenLog>,
    /// What of the log the disk has not confirmed.
    unsynced: Vec<u8>,
    /// A log whose header could not be written, and that could not be removed either: the next one.
    begun: Option<OpenLog>,
    shelf: Shelf,
    clocks: Clocks,
    shelf_hour: Hour,
    captures_hour: Hour,
    /// What captures took when a segment was closed last.
    capture_bytes: u64,
    /// Logs that could not be sealed yet.
    waiting: Vec<Kept>,
    next_number: u64,
    written_bytes: u64,
    errors: u64,
    abandoned: u64,
    /// Why a segment could not be sealed.
    trouble: Option<Error>,
    /// Why the log could not be synced.
    unsynced_why: Option<String>,
    news: Vec<String>,
    /// Held until the last job is done, in whichever thread.
    lock: Lock,
    said: Option<String>,
}

impl Disk {
    /// Takes stock of the directory and closes what an earlier writer left open; says what of that was lost.
    pub(crate) fn open(
        dir: &Path,
        options: &Options,
        boot_id: &str,
        lock: Lock,
    ) -> Result<(Disk, Vec<Skipped>), Error> {
        let mut disk = Disk {
            dir: dir.to_path_buf(),
            boot_id: boot_id.to_owned(),
            max_bytes: options.max_bytes,
            max_age: options.max_age,
            level: options.level,
            log: None,
            unsynced: Vec::new(),
            begun: None,
            shelf: Shelf::default(),
            clocks: Clocks::default(),
            shelf_hour: Hour::default(),
            captures_hour: Hour::default(),
            capture_bytes: 0,
            waiting: Vec::new(),
            next_number: 1,
            written_bytes: 0,
            errors: 0,
            abandoned: 0,
            trouble: None,
            unsynced_why: None,
            news: Vec::new(),
            lock,
            said: None,
        };
        let mut repaired = Vec::new();
        disk.take_stock()?;
        disk.seal_waiting(&mut repaired);
        disk.retain();
        Ok((disk, repaired))
    }

    fn take_stock(&mut self) -> Result<(), Error> {
        let mut sealed = None;
        for (number, role, path) in dir::list(&self.dir)? {
            self.next_number = self.next_number.max(number + 1);
            match role {
                Role::Unfinished => fs::remove_file(&path).map_err(Error::io("remove", &path))?,
                Role::Log if sealed == Some(number) => {
                    fs::remove_file(&path).map_err(Error::io("remove", &path))?;
                }
                Role::Log => {
                    let bytes = fs::metadata(&path).map_or(0, |meta| meta.len());
                    self.waiting.push(Kept { number, path, bytes, last: None });
                }
                Role::Sealed => {
                    sealed = Some(number);
                    let bytes = fs::metadata(&path).map_err(Error::io("stat", &path))?.len();
                    let segment = Segment::open(&path, None, &mut Vec::new()).ok().flatten();
                    let last = segment.map(|s| self.recorded(s.index.last, &s.index.meta.host.boot_id));
                    self.shelf.add(Kept { number, path, bytes, last });
                }
            }
        }
        Ok(())
    }

    fn recorded(&self, times: Times, boot_id: &str) -> Recorded {
        Recorded { times, this_boot: !boot_id.is_empty() && boot_id == self.boot_id }
    }

    pub(crate) fn totals(&self) -> Totals {
        let disk_bytes = self.shelf.bytes() + self.open_bytes() + self.capture_bytes;
        let Disk { written_bytes, errors, abandoned, .. } = *self;
        Totals { written_bytes, disk_bytes, errors, abandoned }
    }

    /// Why something could not be made last, or sealed, if so.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.unsynced_why.clone().or_else(|| self.trouble.as_ref().map(ToString::to_string))
    }

    pub(crate) fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }

    /// What happened that whoever reads the recording has to know.
    pub(crate) fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// Tells those who ask for the state of the recorder.
    pub(crate) fn say(&mut self, trouble: Option<&str>) {
        if self.said.as_deref() != trouble {
            self.lock.say(trouble.unwrap_or_default());
            self.said = trouble.map(ToOwned::to_owned);
        }
    }

    fn open_bytes(&self) -> u64 {
        self.waiting.iter().map(|kept| kept.bytes).sum::<u64>() + self.log.as_ref().map_or(0, |log| log.bytes)
    }

    /// Begins a log with its header.
    pub(crate) fn create(&mut self, header: &[u8]) -> Result<(), Error> {
        let mut log = match self.begun.take() {
            Some(begun) => begun,
            None => self.next_log()?,
        };
        if let Err(error) = write_whole(&mut log, header) {
            self.errors += 1;
            let is_left = fs::remove_file(&log.path).is_err();
            self.begun = is_left.then_some(log);
            return Err(error);
        }
        forget(&mut self.unsynced);
        self.unsynced.extend_from_slice(header);
        self.written_bytes += header.len() as u64;
        self.next_number = log.number + 1;
        self.log = Some(log);
        Ok(())
    }

    /// An empty log with the next number that nobody has taken.
    fn next_log(&mut self) -> Result<OpenLog, Error> {
        let mut number = self.next_number;
        loop {
            let path = dir::path(&self.dir, number, Role::Log);
            match dir::create(&path) {
                Ok(file) => {
                    let (bytes, synced_bytes, synced_crc) = (0, 0, 0);
                    let (is_named, state) = (false, LogState::Sound);
                    return Ok(OpenLog {
                        number,
                        path,
                        file,
                        bytes,
                        synced_bytes,
                        synced_crc,
                        is_named,
                        state,
                    });
                }
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists
                        && number - self.next_number < TAKEN_MAX =>
                {
                    number += 1;
                }
                Err(error) => {
                    self.errors += 1;
                    return Err(Error::io("create", &path)(error));
                }
            }
        }
    }

    /// Appends a record to the log, and lets go of files that are too many.
    pub(crate) fn append(&mut self, bytes: &[u8], times: Times) -> Result<(), Error> {
        if !self.unsynced.is_empty() && self.unsynced.len() + bytes.len() > UNSYNCED_BYTES_MAX {
            self.sync()?;
        }
        let Some(log) = &mut self.log else { return Ok(()) };
        if let Err(error) = write_whole(log, bytes) {
            self.errors += 1;
            if error.is_full() || log.state == LogState::Abandoned {
                return Err(error);
            }
            // What the file has taken before may be as bad as this.
            self.doubt(&error);
            self.write_anew()?;
            let Some(log) = &mut self.log else { return Ok(()) };
            write_whole(log, bytes)?;
        }
        self.unsynced.extend_from_slice(bytes);
        self.written_bytes += bytes.len() as u64;
        self.clocks.observe(times);
        let beside_bytes = self.open_bytes() + self.capture_bytes;
        self.shelf.trim(beside_bytes, self.max_bytes);
        Ok(())
    }

    /// Makes the log last.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        let synced = self.try_sync();
        self.unsynced_why = synced.as_ref().err().map(ToString::to_string);
        synced
    }

    fn try_sync(&mut self) -> Result<(), Error> {
        let Some(log) = &mut self.log else { return Ok(()) };
        match log.state {
            LogState::Abandoned => return Ok(()),
            LogState::Doubtful => return self.write_anew(),
            LogState::Sound => {}
        }
        if let Err(source) = log.file.sync_data() {
            self.errors += 1;
            let error = Error::io("sync", &log.path)(source);
            self.doubt(&error);
            return self.write_anew();
        }
        log.confirm(&mut self.unsynced);
        if !log.is_named {
            if let Err(error) = dir::sync(&self.dir) {
                self.errors += 1;
                self.doubt(&error);
                return self.write_anew();
            }
            log.is_named = true;
        }
        Ok(())
    }

    fn doubt(&mut self, error: &Error) {
        let Some(log) = &mut self.log else { return };
        log.state = LogState::Doubtful;
        let bytes = self.unsynced.len();
        self.news.push(format!(
            "{error}; the last {bytes} bytes of recording may not be on the disk, are kept in memory and written again"
        ));
    }

    /// Writes the log anew: what the disk has confirmed from there, the rest from memory, to another file that takes the
    /// place of this one when the disk has confirmed all of it.
    fn write_anew(&mut self) -> Result<(), Error> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let path = dir::path(&self.dir, log.number, Role::Unfinished);
        let file = match copy(log, &self.unsynced, &path) {
            Ok(Ok(file)) => file,
            Ok(Err(why)) => {
                // Frames are written against those before them, so memory alone does not do.
                _ = fs::remove_file(&path);
                log.state = LogState::Abandoned;
                self.errors += 1;
                self.abandoned += 1;
                self.news.push(format!(
                    "{}: cannot be read back ({why}); up to {} bytes of recording are lost should the recorder end \
                     before their segment is sealed from memory",
                    log.path.display(),
                    self.unsynced.len()
                ));
                forget(&mut self.unsynced);
                return Ok(());
            }
            Err(error) => {
                _ = fs::remove_file(&path);
                self.errors += 1;
                return Err(error);
            }
        };
        if let Err(error) = fs::rename(&path, &log.path) {
            _ = fs::remove_file(&path);
            self.errors += 1;
            return Err(Error::io("rename", &path)(error));
        }
        log.file = file;
        if let Err(error) = dir::sync(&self.dir) {
            self.errors += 1;
            return Err(error);
        }
        log.confirm(&mut self.unsynced);
        log.is_named = true;
        log.state = LogState::Sound;
        self.written_bytes += log.bytes;
        self.news.push(format!(
            "{}: was written anew, and the disk has confirmed all of it; nothing of it was lost",
            log.path.display()
        ));
        Ok(())
    }

    /// Makes a segment of what the log holds. Where that fails the log stays, and waits; and where the disk does not
    /// confirm the log either, that is an error, and what the segment holds has to be kept.
    pub(crate) fn seal(&mut self, segment: &OpenSegment) -> Result<(), Error> {
        let Some(log) = &self.log else { return Ok(()) };
        let (number, level) = (log.number, self.level);
        let last = segment.times.last().map(|times| self.recorded(*times, &segment.meta.host.boot_id));
        match seal(&self.dir, number, segment, level) {
            Ok(bytes) => {
                let path = dir::path(&self.dir, number, Role::Sealed);
                self.shelf.add(Kept { number, path, bytes, last });
                self.written_bytes += bytes;
                self.trouble = None;
                self.unsynced_why = None;
                forget(&mut self.unsynced);
                if let Some(log) = self.log.take() {
                    // Where both exist the segment counts, so a log that stays does no harm.
                    let _ = fs::remove_file(&log.path);
                }
            }
            Err(error) => {
                self.errors += 1;
                // What was given up can only be sealed from here.
                if self.log.as_ref().is_some_and(|log| log.state == LogState::Abandoned) {
                    return Err(error);
                }
                self.sync()?;
                self.set_aside(last);
                self.trouble = Some(error);
            }
        }
        if self.trouble.is_none() {
            self.seal_waiting(&mut Vec::new());
        }
        self.retain();
        Ok(())
    }

    /// Makes a segment of the log as the disk has it: what it holds is not in memory any more.
    pub(crate) fn close(&mut self, last: Option<Times>) -> Result<(), Error> {
        // What is read back has to be what the disk has.
        self.sync()?;
        let boot_id = self.boot_id.clone();
        self.set_aside(last.map(|times| self.recorded(times, &boot_id)));
        self.seal_waiting(&mut Vec::new());
        self.retain();
        Ok(())
    }

    /// Closes a log that is neither sealed nor confirmed, because nobody can wait for it, and says so.
    pub(crate) fn let_go(&mut self, error: &Error) {
        let bytes = self.unsynced.len();
        self.news
            .push(format!("{error}; the last {bytes} bytes of recording before it may not be on the disk"));
        self.set_aside(None);
        forget(&mut self.unsynced);
    }

    fn set_aside(&mut self, last: Option<Recorded>) {
        if let Some(OpenLog { number, path, bytes, .. }) = self.log.take() {
            self.waiting.push(Kept { number, path, bytes, last });
        }
    }

    /// Lets go of captures that are too many, and of segments and captures that are too old. Once for each segment is
    /// often enough.
    fn retain(&mut self) {
        let proven = self.clocks.proven();
        let mut old = None;
        if let Some(now) = proven {
            let allowed = self.shelf_hour.left(now, self.shelf.len(), self.max_age);
            self.shelf_hour.took(self.shelf.trim_old(now, self.max_age, allowed));
            let age_ns = i64::try_from(self.max_age.as_nanos()).unwrap_or(i64::MAX);
            old = Some((now, now.real_us().saturating_mul(1000).saturating_sub(age_ns)));
        }
        let bytes_max = self.max_bytes / captures::SHARE;
        let (hour, max_age) = (&mut self.captures_hour, self.max_age);
        let trimmed = captures::trim(&self.dir, bytes_max, |files| {
            old.map_or((i64::MIN, 0), |(now, oldest)| (oldest, hour.left(now, files, max_age)))
        });
        self.captures_hour.took(trimmed.old);
        self.capture_bytes = trimmed.bytes;
    }

    fn seal_waiting(&mut self, repaired: &mut Vec<Skipped>) {
        while let Some(kept) = self.waiting.pop() {
            match seal_log(&self.dir, kept.number, &kept.path, self.level) {
                Ok(sealed) => {
                    // What went wrong with a log of an earlier recorder is told by whoever opened the archive.
                    repaired.extend(sealed.skipped);
                    if let Some((bytes, times, boot_id)) = sealed.segment {
                        let path = dir::path(&self.dir, kept.number, Role::Sealed);
                        self.written_bytes += bytes;
                        let last = Some(self.recorded(times, &boot_id));
                        self.shelf.add(Kept { number: kept.number, path, bytes, last });
                    }
                    self.trouble = None;
                }
                // It will not be readable the next time either; the others wait for nothing.
                Err(error @ Error::Io { what: "read", .. }) => {
                    self.errors += 1;
                    self.news.push(format!("{error}; it stays as it is, unsealed"));
                    self.shelf.add(kept);
                }
                Err(error) => {
                    self.errors += 1;
                    self.trouble = Some(error);
                    self.waiting.push(kept);
                    return;
                }
            }
        }
    }
}

/// Copies a log: so much as the disk has confirmed from there, after it what memory holds. `Ok(Err)`: what the disk has
/// confirmed it does not give back.
fn copy(log: &OpenLog, unsynced: &[u8], path: &Path) -> Result<Result<File, String>, Error> {
    // Of an attempt before.
    _ = fs::remove_file(path);
    let file = dir::create(path).map_err(Error::io("create", path))?;
    let mut buffer = vec![0; COPY_BYTES];
    let (mut at, mut crc) = (0, 0);
    while at < log.synced_bytes {
        let wanted = usize::try_from(log.synced_bytes - at).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        let Some(part) = buffer.get_mut(..wanted) else { break };
        if let Err(error) = log.file.read_exact_at(part, at) {
            return Ok(Err(error.to_string()));
        }
        crc = crc32c::crc32c_append(crc, part);
        file.write_all_at(part, at).map_err(Error::io("write", path))?;
        at += wanted as u64;
    }
    if crc != log.synced_crc {
        return Ok(Err("it is not what was written".to_owned()));
    }
    file.write_all_at(unsynced, at).map_err(Error::io("write", path))?;
    file.sync_all().map_err(Error::io("sync", path))?;
    Ok(Ok(file))
}

/// Writes at the end of the log. A part that was written is taken back when the rest cannot be.
fn write_whole(log: &mut OpenLog, bytes: &[u8]) -> Result<(), Error> {
    match log.file.write_all_at(bytes, log.bytes) {
        Ok(()) => {
            log.bytes += bytes.len() as u64;
            Ok(())
        }
        Err(source) => {
            // If this fails as well, the next record is written over the rest, and readers pass over what remains.
            let _ = log.file.set_len(log.bytes);
            Err(Error::Io { what: "write", path: log.path.clone(), source })
        }
    }
}
