//! The open segment, or the log of one, to a sealed segment.

use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use crate::dir::{self, Role};
use crate::error::{Error, Skipped};
use crate::log::{decode, record};
use crate::open::{OpenSegment, Times};
use crate::segment::encode;
use crate::writer::VERSION;

/// A log is sealed long before: when its segment takes [`crate::Options::segment_memory_bytes`].
const LOG_BYTES_MAX: u64 = 1 << 30;

/// Writes the segment beside its final name, makes it last, and gives it the name. Returns its size.
pub(crate) fn seal(dir: &Path, number: u64, segment: &OpenSegment, level: i32) -> Result<u64, Error> {
    let unfinished = dir::path(dir, number, Role::Unfinished);
    let sealed = dir::path(dir, number, Role::Sealed);
    let written = write(&unfinished, segment, level).and_then(|bytes| {
        fs::rename(&unfinished, &sealed).map_err(Error::io("rename", &unfinished))?;
        dir::sync(dir)?;
        Ok(bytes)
    });
    if written.is_err() {
        // The name may be gone already, and a leftover is removed on the next start.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn write(path: &Path, segment: &OpenSegment, level: i32) -> Result<u64, Error> {
    // Of an attempt before, which could not be removed then.
    let _ = fs::remove_file(path);
    let file = dir::create(path).map_err(Error::io("create", path))?;
    let mut out = BufWriter::with_capacity(32 << 10, file);
    let bytes = encode::write(segment, Some(level), &mut |bytes| out.write_all(bytes))
        .map_err(Error::io("write", path))?;
    let file = out.into_inner().map_err(|err| Error::io("write", path)(err.into_error()))?;
    file.sync_all().map_err(Error::io("sync", path))?;
    Ok(bytes)
}

/// The bytes of a log.
pub(crate) fn read_log(path: &Path) -> Result<Vec<u8>, Error> {
    let file = fs::File::open(path).map_err(Error::io("read", path))?;
    let len = file.metadata().map_err(Error::io("read", path))?.len();
    if len > LOG_BYTES_MAX {
        return Err(Error::io("read", path)(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{len} bytes are more than any log has"),
        )));
    }
    let mut bytes = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    Ok(bytes)
}

/// What came out of reading a log.
pub(crate) struct Replayed {
    /// `None`: it holds no frame that can be read.
    pub(crate) segment: Option<OpenSegment>,
    pub(crate) skipped: Vec<Skipped>,
    /// Whether a record at the end was cut off.
    pub(crate) cut: bool,
    pub(crate) whole_bytes: usize,
}

/// Reads a log into an open segment.
pub(crate) fn replay(bytes: &[u8], path: &Path) -> Result<Replayed, Error> {
    if let Some(version) = record::file_version(bytes, record::FILE_MAGIC).filter(|v| *v > VERSION) {
        return Err(Error::Version { path: path.to_path_buf(), found: version, known: VERSION });
    }
    let mut segment: Option<OpenSegment> = None;
    let mut refused = 0_u32;
    let mut summary = decode::read(bytes, path, &mut |meta, frame, times, strings| {
        let segment = segment.get_or_insert_with(|| OpenSegment::new(meta.clone()));
        if segment.times.last().is_some_and(|before| !times.follows(*before)) {
            refused += 1;
            return;
        }
        segment.observe(frame, strings);
        segment.commit(frame, times);
    });
    if refused > 0 {
        let why = format!("{refused} frames whose time does not follow the one before");
        summary.skipped.push(Skipped { file: path.to_path_buf(), offset: 0, why });
    }
    Ok(Replayed { segment, skipped: summary.skipped, cut: summary.cut, whole_bytes: summary.whole_bytes })
}

/// What came out of sealing a log.
pub(crate) struct SealedLog {
    /// The size of the segment, the times of its last frame and the boot that it is of; `None` if there was nothing in the
    /// log.
    pub(crate) segment: Option<(u64, Times, String)>,
    /// What was lost.
    pub(crate) skipped: Vec<Skipped>,
}

/// Seals what a log holds and removes the log.
pub(crate) fn seal_log(dir: &Path, number: u64, path: &Path, level: i32) -> Result<SealedLog, Error> {
    let bytes = read_log(path)?;
    let mut replayed = replay(&bytes, path)?;
    if replayed.cut {
        replayed.skipped.push(Skipped {
            file: path.to_path_buf(),
            offset: replayed.whole_bytes as u64,
            why: format!("{} bytes of a record whose end is missing", bytes.len() - replayed.whole_bytes),
        });
    }
    let sealed = match &replayed.segment {
        Some(segment) => {
            let last = segment.times.last().copied().unwrap_or_default();
            Some((seal(dir, number, segment, level)?, last, segment.meta.host.boot_id.clone()))
        }
        None => None,
    };
    fs::remove_file(path).map_err(Error::io("remove", path))?;
    Ok(SealedLog { segment: sealed, skipped: replayed.skipped })
}
