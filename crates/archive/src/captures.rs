//! Captures of armed probes: one file each, beside the segments.
//!
//! `captures/20261121T163200.123Z-offcpu.json.zst` is the whole of one, as JSON in a zstd frame; the time is its
//! beginning. A file gets its name when it is complete, so whoever makes captures needs no lock, and `mitra capture`
//! works beside a recorder. The recorder's own captures are events of its frames as well; those of other processes
//! become events when the archive is read.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use mitra_model::capture::{CaptureRow, Ended, Profile, TOPS_MAX};
use mitra_model::{Captured, Event, EventKind, Span};
use rustix::fs::OFlags;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::compress;
use crate::error::Error;
use crate::{dir, lock};

const FOLDER: &str = "captures";
const ENDING: &str = ".json.zst";
const UNFINISHED: &str = ".tmp";
/// JSON of stacks packs ten to one at this level, and a better one takes longer than the capture is worth.
const LEVEL: i32 = 6;
/// No capture unpacks to more; a file that does is damaged. The probes keep 16384 stacks of 127 frames at most, and a frame is
/// the number of a name: 16 MiB of JSON where every stack is as deep as can be. Names and tables get as much again, twice.
const UNPACKED_MAX: u64 = 64 << 20;
/// Captures take this share of the archive at most.
pub(crate) const SHARE: u64 = 8;
/// What may be kept where nobody knows the limit of the archive: the share of its usual size.
const BYTES_MAX: u64 = (2 << 30) / SHARE;
/// Captures of the same kind in the same millisecond.
const SAME_MAX: u32 = 100;
/// No capture is older than this, whatever its clock said: 2020-01-01, before the first version.
const EPOCH_REAL: i64 = 1_577_836_800_000_000_000;
/// What was being written for so long is not finished any more.
const UNFINISHED_AGE: Duration = Duration::from_secs(3600);

/// A capture in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureFile {
    /// The name of the file, as the event has it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// When it began, in nanoseconds since 1970 UTC.
    pub since_real: i64,
    /// The kind.
    pub kind: String,
}

/// Writes a capture into the archive in `dir`, which is made if it is not there, and returns the name of the file. The
/// oldest captures go where there are too many: a recorder sees to that by its own limit, and here nobody else.
pub fn store_capture(dir: &Path, captured: &Captured) -> Result<String, Error> {
    let folder = dir.join(FOLDER);
    dir::make(&folder)?;
    let before = bytes(&captures(dir).unwrap_or_default());
    let packed = pack(captured, &folder)?;
    let stem = stem(captured);
    for attempt in 1..=SAME_MAX {
        let name = if attempt == 1 { format!("{stem}{ENDING}") } else { format!("{stem}.{attempt}{ENDING}") };
        let (temporary, path) = (temporary(&folder, &name), folder.join(&name));
        match write(&temporary, &path, &packed) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io("write", &path)(error)),
            Ok(()) => {
                dir::sync(&folder)?;
                if !lock::is_held(dir) {
                    // A recorder may have been allowed more, and may be again: what it left stays as much as it is.
                    trim(dir, before.max(BYTES_MAX), |_| (i64::MIN, 0));
                }
                return Ok(name);
            }
        }
    }
    Err(Error::io("name a capture in", &folder)(io::ErrorKind::AlreadyExists.into()))
}

/// Where the capture of this name lies in the archive in `dir`.
#[must_use]
pub fn capture_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(FOLDER).join(name)
}

/// Writes what is known of a capture by now in place of what [`store_capture`] wrote under this name. Until it is complete
/// whoever reads it finds what was there before.
pub fn replace_capture(dir: &Path, name: &str, captured: &Captured) -> Result<(), Error> {
    let folder = dir.join(FOLDER);
    let (temporary, path) = (temporary(&folder, name), folder.join(name));
    let packed = pack(captured, &folder)?;
    let mut file = create(&temporary).map_err(Error::io("create", &temporary))?;
    let written = file.write_all(&packed).and_then(|()| file.sync_data());
    let renamed = written.and_then(|()| fs::rename(&temporary, &path));
    if renamed.is_err() {
        _ = fs::remove_file(&temporary);
    }
    renamed.map_err(Error::io("write", &path))?;
    dir::sync(&folder)
}

fn pack(captured: &Captured, folder: &Path) -> Result<Vec<u8>, Error> {
    let json = serde_json::to_vec(captured).map_err(|error| Error::io("pack", folder)(error.into()))?;
    compress::compress(&json, LEVEL).map_err(Error::io("pack", folder))
}

fn temporary(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.{}{UNFINISHED}", std::process::id()))
}

/// Gives a file its name when it is complete. Whatever has the temporary name already is another's.
fn write(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create(temporary)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    let linked = written.and_then(|()| fs::hard_link(temporary, path));
    _ = fs::remove_file(temporary);
    linked
}

/// The captures of an archive, the oldest first. An archive without any is none the worse.
pub fn captures(dir: &Path) -> Result<Vec<CaptureFile>, Error> {
    let folder = dir.join(FOLDER);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", &folder)(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", &folder))?;
        let name = entry.file_name();
        let Some((name, (since_real, kind))) = name.to_str().and_then(|name| Some((name, parse(name)?)))
        else {
            continue;
        };
        // It may have been removed since.
        let Ok(meta) = entry.metadata() else { continue };
        let (name, kind) = (name.to_owned(), kind.to_owned());
        files.push(CaptureFile { name, path: entry.path(), bytes: meta.len(), since_real, kind });
    }
    files.sort_unstable_by(|a, b| (a.since_real, &a.name).cmp(&(b.since_real, &b.name)));
    Ok(files)
}

/// Reads a capture.
pub fn read_capture(path: &Path) -> Result<Captured, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    unpack(file).map_err(Error::io("read", path))
}

pub(crate) fn unpack(packed: impl Read) -> io::Result<Captured> {
    let mut json = Vec::new();
    zstd::stream::read::Decoder::new(packed)?.take(UNPACKED_MAX + 1).read_to_end(&mut json)?;
    if json.len() as u64 > UNPACKED_MAX {
        let what = format!("more than {UNPACKED_MAX} bytes, which no capture has");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(serde_json::from_slice(&json)?)
}

/// Reads what a list has of a capture: neither tables nor stacks, but the names of its weights if it has stacks. The rest,
/// which is nearly all of it, goes by as it is unpacked.
pub fn read_capture_head(path: &Path) -> Result<Captured, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let reader = zstd::stream::read::Decoder::new(file).map_err(Error::io("unpack", path))?;
    head_of(reader.take(UNPACKED_MAX)).map_err(|error| Error::io("read", path)(error.into()))
}

pub(crate) fn head_of(json: impl Read) -> serde_json::Result<Captured> {
    let head: Head = serde_json::from_reader(BufReader::new(json))?;
    let Head { kind, why, filter, since_real, since_mono, seconds, .. } = head;
    let Head { events, lost, ended, cost_ns, tops, profile, .. } = head;
    let named = |head: ProfileHead| Profile {
        weight: head.weight,
        unit: head.unit,
        beside: head.beside,
        ..Profile::default()
    };
    Ok(Captured {
        kind,
        why,
        filter,
        since_real,
        since_mono,
        seconds,
        events,
        lost,
        ended,
        cost_ns,
        tops: tops.0,
        profile: profile.map(named),
        ..Captured::default()
    })
}

/// The fields of [`Captured`] that an event or a list is made of.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    kind: String,
    why: String,
    filter: BTreeMap<String, String>,
    since_real: i64,
    since_mono: i64,
    seconds: f64,
    events: u64,
    lost: u64,
    ended: Ended,
    cost_ns: Option<u64>,
    tops: Tops,
    profile: Option<ProfileHead>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProfileHead {
    weight: String,
    unit: String,
    beside: String,
}

/// No more rows than an event has, however many the file lists.
#[derive(Default)]
struct Tops(Vec<CaptureRow>);

impl<'de> Deserialize<'de> for Tops {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Few;
        impl<'de> Visitor<'de> for Few {
            type Value = Tops;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of rows")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Tops, A::Error> {
                let mut tops = Vec::new();
                while tops.len() < TOPS_MAX {
                    match rows.next_element()? {
                        Some(row) => tops.push(row),
                        None => return Ok(Tops(tops)),
                    }
                }
                while rows.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Tops(tops))
            }
        }
        deserializer.deserialize_seq(Few)
    }
}

/// The events of the captures that ended in `span` and that are not among `known`, in the order of their time. Files
/// that cannot be read are passed over: listing them says so.
pub(crate) fn events(
    dir: &Path,
    span: Span,
    known: &[Event],
    cache: &mut Vec<(String, Event)>,
) -> Vec<Event> {
    let Ok(files) = captures(dir) else { return Vec::new() };
    let named = known.iter().filter_map(|event| match &event.kind {
        EventKind::Capture { file, .. } => file.as_deref(),
        _ => None,
    });
    let named: HashSet<&str> = named.collect();
    cache.retain(|(name, _)| files.iter().any(|file| file.name == *name));
    let mut events = Vec::new();
    for file in files {
        if named.contains(file.name.as_str()) || file.since_real >= span.until {
            continue;
        }
        let found = cache.iter().find(|(name, _)| *name == file.name).map(|(_, event)| event.clone());
        let event = match found {
            Some(event) => event,
            None => {
                let Ok(head) = read_capture_head(&file.path) else { continue };
                let event = head.event(Some(file.name.clone()));
                cache.push((file.name, event.clone()));
                event
            }
        };
        if span.contains(event.real) {
            events.push(event);
        }
    }
    events
}

fn bytes(files: &[CaptureFile]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

/// What came of [`trim`].
pub(crate) struct Trimmed {
    /// What the rest takes.
    pub(crate) bytes: u64,
    /// How many went by age alone.
    pub(crate) old: usize,
}

/// Removes the oldest captures until the rest takes no more than `bytes_max`; and of those that began before the time
/// that `old` names, of so many captures, as many as it allows.
pub(crate) fn trim(dir: &Path, bytes_max: u64, old: impl FnOnce(usize) -> (i64, usize)) -> Trimmed {
    remove_unfinished(&dir.join(FOLDER));
    let files = captures(dir).unwrap_or_default();
    let mut trimmed = Trimmed { bytes: bytes(&files), old: 0 };
    let (oldest_real, allowed) = old(files.len());
    for file in files {
        if trimmed.bytes <= bytes_max {
            // A clock that stood at the beginning of time makes no capture old.
            if file.since_real < EPOCH_REAL {
                continue;
            }
            if file.since_real >= oldest_real || trimmed.old >= allowed {
                break;
            }
            trimmed.old += 1;
        }
        // One that cannot be removed is tried again the next time.
        _ = fs::remove_file(&file.path);
        trimmed.bytes = trimmed.bytes.saturating_sub(file.bytes);
    }
    trimmed
}

/// What somebody was writing who ended before it was complete. Whoever writes holds a lock on it: what the clocks say of its
/// age protects only what versions write that take none.
fn remove_unfinished(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.ends_with(UNFINISHED)) else { continue };
        let changed = entry.metadata().and_then(|meta| meta.modified());
        let age = changed.ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
        if name.contains(ENDING) && age.is_some_and(|age| age > UNFINISHED_AGE) && !is_written(&entry.path())
        {
            _ = fs::remove_file(entry.path());
        }
    }
}

fn is_written(path: &Path) -> bool {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Makes the file that a capture is written to, and holds it.
fn create(temporary: &Path) -> io::Result<File> {
    let file = dir::create(temporary)?;
    // A file system without locks is no reason to write nothing.
    _ = file.try_lock();
    Ok(file)
}

/// The time in a name, in UTC.
const TIME: &str = "%Y%m%dT%H%M%S.%3f";
const TIME_LENGTH: usize = "20261121T163200.123".len();

/// `20261121T163200.123Z-offcpu`.
pub(crate) fn stem(captured: &Captured) -> String {
    let ms = captured.since_real.div_euclid(1_000_000);
    let time = Timestamp::from_millisecond(ms).unwrap_or_default().strftime(TIME);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let kind: String = captured.kind.chars().filter(|c| plain(*c)).collect();
    format!("{time}Z-{kind}")
}

/// The time and the kind in a name.
pub(crate) fn parse(name: &str) -> Option<(i64, &str)> {
    let (time, rest) = name.strip_suffix(ENDING)?.split_once("Z-")?;
    let kind = rest.split('.').next()?;
    if time.len() != TIME_LENGTH {
        return None;
    }
    let time = DateTime::strptime(TIME, time).ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some((i64::try_from(time.timestamp().as_nanosecond()).ok()?, kind))
}

#[cfg(test)]
mod tests;
