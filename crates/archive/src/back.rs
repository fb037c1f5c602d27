//! The files of an archive: the half of the writer that touches the disk.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::captures;
use crate::dir::{self, Role};
use crate::error::{Error, Skipped};
use crate::lock::Lock;
use crate::open::OpenSegment;
use crate::retention::{Kept, Shelf};
use crate::seal::{seal, seal_log};
use crate::segment::file::Segment;
use crate::writer::Options;

struct OpenLog {
    number: u64,
    path: PathBuf,
    file: File,
    bytes: u64,
    is_synced: bool,
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
}

/// The directory, its closed files and the open log.
pub(crate) struct Back {
    dir: PathBuf,
    max_bytes: u64,
    max_age: Duration,
    level: i32,
    log: Option<OpenLog>,
    /// A log whose header could not be written, and that could not be removed either: the next one.
    begun: Option<OpenLog>,
    shelf: Shelf,
    /// What captures took when a segment was closed last.
    capture_bytes: u64,
    /// Logs that could not be sealed yet.
    waiting: Vec<Kept>,
    next_number: u64,
    written_bytes: u64,
    trouble: Option<Error>,
    /// Held until the last job is done, in whichever thread.
    _lock: Lock,
}

impl Back {
    /// Takes stock of the directory and closes what an earlier writer left open; says what of that was lost.
    pub(crate) fn open(dir: &Path, options: &Options, lock: Lock) -> Result<(Back, Vec<Skipped>), Error> {
        let mut back = Back {
            dir: dir.to_path_buf(),
            max_bytes: options.max_bytes,
            max_age: options.max_age,
            level: options.level,
            log: None,
            begun: None,
            shelf: Shelf::default(),
            capture_bytes: 0,
            waiting: Vec::new(),
            next_number: 1,
            written_bytes: 0,
            trouble: None,
            _lock: lock,
        };
        let mut repaired = Vec::new();
        back.take_stock()?;
        back.seal_waiting(&mut repaired);
        back.trim_captures(None);
        Ok((back, repaired))
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
                    self.waiting.push(Kept { number, path, bytes, last_real_us: i64::MAX });
                }
                Role::Sealed => {
                    sealed = Some(number);
                    let meta = fs::metadata(&path).map_err(Error::io("stat", &path))?;
                    let segment = Segment::open(&path, &mut Vec::new()).ok().flatten();
                    // One that cannot be read is as old as its file.
                    let last_real_us = segment
                        .map_or_else(|| meta.mtime().saturating_mul(1_000_000), |s| s.index.last.real_us());
                    self.shelf.add(Kept { number, path, bytes: meta.len(), last_real_us });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn totals(&self) -> Totals {
        let disk_bytes = self.shelf.bytes() + self.open_bytes() + self.capture_bytes;
        Totals { written_bytes: self.written_bytes, disk_bytes }
    }

    /// Why a segment could not be sealed, if so.
    pub(crate) fn trouble(&self) -> Option<&Error> {
        self.trouble.as_ref()
    }

    pub(crate) fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
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
            let is_left = fs::remove_file(&log.path).is_err();
            self.begun = is_left.then_some(log);
            return Err(error);
        }
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
                Ok(file) => return Ok(OpenLog { number, path, file, bytes: 0, is_synced: false }),
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists
                        && number - self.next_number < TAKEN_MAX =>
                {
                    number += 1;
                }
                Err(error) => return Err(Error::io("create", &path)(error)),
            }
        }
    }

    /// Appends a record to the log, and lets go of files that are too many, or whose last frame is before `oldest_us`.
    pub(crate) fn append(&mut self, bytes: &[u8], oldest_us: i64) -> Result<(), Error> {
        let Some(log) = &mut self.log else { return Ok(()) };
        write_whole(log, bytes)?;
        self.written_bytes += bytes.len() as u64;
        let beside_bytes = self.open_bytes() + self.capture_bytes;
        self.shelf.trim(beside_bytes, self.max_bytes, oldest_us);
        Ok(())
    }

    /// Makes the log last.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        let Some(log) = &mut self.log else { return Ok(()) };
        log.file.sync_data().map_err(Error::io("sync", &log.path))?;
        if !log.is_synced {
            dir::sync(&self.dir)?;
            log.is_synced = true;
        }
        Ok(())
    }

    /// Makes a segment of what the log holds. Where that fails the log stays, and waits.
    pub(crate) fn seal(&mut self, segment: &OpenSegment) {
        self.trim_captures(segment.times.last().map(|times| times.real_us()));
        if let Some(log) = self.log.take() {
            let last_real_us = segment.times.last().map_or(i64::MAX, |times| times.real_us());
            match seal(&self.dir, log.number, segment, self.level) {
                Ok(bytes) => {
                    let path = dir::path(&self.dir, log.number, Role::Sealed);
                    self.shelf.add(Kept { number: log.number, path, bytes, last_real_us });
                    self.written_bytes += bytes;
                    self.trouble = None;
                    // Where both exist the segment counts, so a log that stays does no harm.
                    let _ = fs::remove_file(&log.path);
                }
                Err(error) => {
                    self.trouble = Some(error);
                    self.waiting.push(Kept {
                        number: log.number,
                        path: log.path,
                        bytes: log.bytes,
                        last_real_us,
                    });
                }
            }
        }
        if self.trouble.is_none() {
            self.seal_waiting(&mut Vec::new());
        }
    }

    /// Makes a segment of the log as the disk has it: what it holds is not in memory any more.
    pub(crate) fn close(&mut self, last_real_us: Option<i64>) {
        self.trim_captures(last_real_us);
        if let Some(OpenLog { number, path, bytes, .. }) = self.log.take() {
            self.waiting.push(Kept { number, path, bytes, last_real_us: last_real_us.unwrap_or(i64::MAX) });
        }
        self.seal_waiting(&mut Vec::new());
    }

    /// Lets go of captures that are too many, and at `now_us` of those that are too old. Once for each segment is often
    /// enough: captures are few.
    fn trim_captures(&mut self, now_us: Option<i64>) {
        let age_ns = i64::try_from(self.max_age.as_nanos()).unwrap_or(i64::MAX);
        let oldest = now_us.map_or(i64::MIN, |now| now.saturating_mul(1000).saturating_sub(age_ns));
        self.capture_bytes = captures::trim(&self.dir, self.max_bytes / captures::SHARE, oldest);
    }

    fn seal_waiting(&mut self, repaired: &mut Vec<Skipped>) {
        while let Some(kept) = self.waiting.pop() {
            match seal_log(&self.dir, kept.number, &kept.path, self.level) {
                Ok(sealed) => {
                    repaired.extend(sealed.skipped);
                    if let Some((bytes, last_real_us)) = sealed.segment {
                        let path = dir::path(&self.dir, kept.number, Role::Sealed);
                        self.written_bytes += bytes;
                        self.shelf.add(Kept { number: kept.number, path, bytes, last_real_us });
                    }
                    self.trouble = None;
                }
                Err(error) => {
                    self.trouble = Some(error);
                    self.waiting.push(kept);
                    return;
                }
            }
        }
    }
}

/// Writes at the end of the log by one call. A part that was written is taken back.
fn write_whole(log: &mut OpenLog, bytes: &[u8]) -> Result<(), Error> {
    let written = loop {
        match log.file.write_at(bytes, log.bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(written) if written < bytes.len() => {
                break Err(io::Error::new(io::ErrorKind::StorageFull, "only a part fitted on the disk"));
            }
            other => break other,
        }
    };
    match written {
        Ok(_) => {
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
