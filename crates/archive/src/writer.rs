//! Writing, and the format.
//!
//! # The directory
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked by the one writer, and readable only for whoever records |
//! | `state` | the process id of the writer, and what is wrong, for readers |
//! | `NNNNNNNNNN.log` | the open segment: one record for each frame, appended |
//! | `NNNNNNNNNN.seg` | a sealed segment: the same frames, by column |
//! | `NNNNNNNNNN.tmp` | a segment while it is being sealed |
//! | `captures/` | what armed probes saw, see `captures.rs`; no lock is needed to add one |
//!
//! Numbers only go up, and their order is the order of recording, whatever the clocks said. A log is removed after
//! the segment of its number has its name and the directory is on disk; where both exist the segment counts.
//!
//! All integers of fixed size are little endian. *varint*, *cell* and *difference* are those of `varint.rs`. A
//! *text* or *bytes* is a varint length and the bytes. A *list of numbers* is their count and, for each, how many
//! numbers lie between it and the one before.
//!
//! # What is stored
//!
//! A frame has times, events and tables of rows. Times are kept in microseconds: boot time, the offsets of the
//! monotonic and the real clock against it, the interval meant, and flags (1: frames before this one were lost).
//! Columns go by the names of the metrics, so a file outlives the table that it was written from. Texts are
//! numbered for each segment in the order of first use; a text cell is that number, and so is the key of a row that
//! goes by name.
//!
//! # The log
//!
//! `MITRALOG`, u32 version, u32 crc32c of the 12 bytes before; then records: `MLR`, u8 kind (1 header, 2 frame, plus
//! 128 if packed), u32 length, u32 crc32c of kind, length and payload, payload. A packed payload is the varint of
//! its length and a zstd frame. A record is written by one call. After a damaged one the next that is whole is
//! searched for.
//!
//! - *Header*, written twice: bytes of JSON (host and session), the schema.
//! - *Frame*: varint number, varint number of the base that it is written against (0: none), u8 flags (1: is a
//!   base), times against those of the base, texts that the base does not know (count; number since the one before,
//!   text), tables, events (count; bytes of JSON).
//! - *Table*: u8 entity + 1, the slots of the base that are gone, then the number of rows; a row is the varint of
//!   twice the slots passed over (plus 1 if it is new), for a new one the two differences of its key to the last new
//!   one's, then the number of cells that differ and for each the columns passed over and the cell against the base,
//!   or for a new row against the new row before it. 0 ends the tables.
//!
//! Every frame says which base it needs, and bases are written twice, the second copy in front of the frame that
//! follows. So a damaged record costs its own frame and no other.
//!
//! # The segment
//!
//! `MITRASEG`, u32 version, u32 crc32c; then blocks as `block.rs` frames them; then the trailer: u64 offset and u32
//! size of the index block, u32 crc32c of both, `MITRAEND`. What other blocks cannot be read without is there
//! twice, at the front and at the end: meta (JSON), times, texts, and for each entity its rows. The schema is there
//! once, as all files of one version have the same; meta has its crc32c, by which it is found again. A block of
//! columns is read by itself; the columns of one area are in one block, see `schema.rs`. If the index is damaged the
//! blocks are found by their headers. `segment/encode.rs` describes the payloads where it writes them.

use std::path::Path;
use std::time::Duration;

use mitra_model::{Frame, HostInfo, Strings};

use crate::dir;
use crate::disk::Disk;
use crate::error::{Error, Skipped};
use crate::lock::Lock;
use crate::log::decode::SLOTS_MAX;
use crate::log::encode::LogEncoder;
use crate::open::{Meta, OpenSegment, Times};
use crate::write_queue::WriteQueue;

/// The first bytes of a sealed segment.
pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"MITRASEG";
/// The version that is written, of log and segment alike.
pub(crate) const VERSION: u32 = 1;
/// A log is sealed early when it takes more than this share of the space allowed.
const LOG_SHARE: u64 = 8;
/// ... but not below this size.
const LOG_BYTES_MIN: u64 = 1 << 20;
/// More frames than a segment ever has.
const SEGMENT_FRAMES_MAX: u32 = 1 << 16;

/// How an archive is written.
#[derive(Debug, Clone)]
pub struct Options {
    /// Frames in a segment.
    pub segment_frames: u32,
    /// A segment is sealed earlier when it takes more memory than this, apart from what the rows that are there need
    /// anyway: rows that have gone, and changes.
    pub segment_memory_bytes: usize,
    /// How much recording a power failure may cost.
    pub sync_every: Duration,
    /// The oldest segments are removed when the archive is larger.
    pub max_bytes: u64,
    /// Segments that are older are removed, as far as clocks can be believed: see `retention.rs`.
    pub max_age: Duration,
    /// The zstd level of sealed blocks.
    pub level: i32,
    /// Writes in a thread of its own, and keeps so many bytes of frames in memory while the disk takes none, beside one
    /// segment that is being sealed: a disk that stalls for seconds is what a recorder has to tell of, not what stops it. 0
    /// writes in the caller's thread, who then gets every error at once.
    pub behind_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_frames: 600,
            segment_memory_bytes: 6 << 20,
            sync_every: Duration::from_secs(10),
            max_bytes: 2 << 30,
            max_age: Duration::from_secs(30 * 24 * 3600),
            level: 3,
            behind_bytes: 0,
        }
    }
}

/// What of the open log the front needs to know.
struct OpenLog {
    bytes: u64,
    synced_boot_us: i64,
}

/// The one writer of an archive.
pub struct Writer {
    options: Options,
    segment: OpenSegment,
    encoder: LogEncoder,
    log: Option<OpenLog>,
    repaired: Vec<Skipped>,
    queue: WriteQueue,
    /// The size of the last frame, if there was no room for it.
    refused_bytes: usize,
    /// How many logs could not be gone on with.
    abandoned: u64,
}

impl Writer {
    /// Opens the archive in `dir`, which is created if need be, for appending. What a crash left is repaired.
    pub fn open(dir: &Path, host: &HostInfo, options: Options) -> Result<Writer, Error> {
        dir::make(dir)?;
        let lock = Lock::take(dir)?;
        let session = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let session = session.map_or(0, |now| now.as_nanos() as u64) ^ u64::from(std::process::id()) << 48;
        let meta = Meta { host: host.clone(), session, ..Meta::default() };
        let encoder = LogEncoder::new().map_err(Error::io("begin packing for", dir))?;
        let (disk, repaired) = Disk::open(dir, &options, &host.boot_id, lock)?;
        let queue = WriteQueue::new(disk, options.behind_bytes)
            .map_err(Error::io("start the thread that writes", dir))?;
        let segment = OpenSegment::new(meta);
        let (log, refused_bytes, abandoned) = (None, 0, 0);
        Ok(Writer { options, segment, encoder, log, repaired, queue, refused_bytes, abandoned })
    }

    /// What of earlier recordings could not be saved when the archive was opened.
    #[must_use]
    pub fn repaired(&self) -> &[Skipped] {
        &self.repaired
    }

    /// What could not be written or sealed, if so. Of a segment that could not be sealed the log is kept, read as usual,
    /// and sealed later; with [`Options::behind_bytes`] frames wait in memory meanwhile.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.queue.trouble()
    }

    /// What happened to the disk since this was asked last, and what it cost: for the log, and for whoever reads the
    /// recording later.
    pub fn take_news(&mut self) -> Vec<String> {
        self.queue.take_news()
    }

    /// Errors of the disk since this writer was opened.
    #[must_use]
    pub fn disk_errors(&self) -> u64 {
        self.queue.totals().errors
    }

    /// Bytes that wait for the disk.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.queue.waiting_bytes()
    }

    /// Bytes written since this writer was opened, log and segments.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.queue.totals().written_bytes
    }

    /// Bytes that the archive takes on disk.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.queue.totals().disk_bytes
    }

    /// Roughly the memory that the open segment takes, and what waits for the disk, sealed or not.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.segment.bytes() + self.queue.waiting_bytes()
    }

    /// Appends a frame. After an error the frame is not in the archive and the archive is as it was; when the disk
    /// was full ([`Error::is_full`]) a later frame is taken as soon as there is space.
    pub fn append(&mut self, frame: &Frame, strings: &Strings) -> Result<(), Error> {
        let mut times = Times::of(frame, self.segment.times.last().copied());
        let follows = self.segment.times.last().is_none_or(|before| times.follows(*before));
        let abandoned = self.queue.totals().abandoned;
        let is_abandoned = std::mem::replace(&mut self.abandoned, abandoned) != abandoned;
        if !follows || is_abandoned || self.is_segment_full() {
            self.close_segment();
            times = Times::of(frame, None);
        }
        if self.log.is_none() {
            self.create_log(times)?;
        }
        for table in &frame.tables {
            if table.len() >= SLOTS_MAX as usize {
                return Err(Error::TooLarge { what: format!("{} {} rows", table.len(), table.entity()) });
            }
        }
        // What a frame brings along is remembered although it is refused, so one that has no chance is not looked at. Half of
        // the room has to do for the largest: a frame may be larger than all of it.
        self.queue.check_room(self.refused_bytes.min(self.options.behind_bytes / 2))?;
        self.segment.observe(frame, strings);
        let Some(log) = &mut self.log else { return Ok(()) };
        let bytes = self.encoder.encode(&self.segment, frame, times);
        if let Err(error) = self.queue.append(bytes, times) {
            self.refused_bytes = bytes.len();
            // A segment without frames is never full, and would grow for as long as its first one is refused.
            if self.segment.frames() == 0 {
                self.segment.clear();
            }
            return Err(error);
        }
        self.refused_bytes = 0;
        log.bytes += bytes.len() as u64;
        let is_base = self.encoder.is_base();
        self.segment.commit(frame, times);
        self.encoder.written(&self.segment, times);
        if is_base {
            let frame = self.segment.frames() - 1;
            self.segment.tables.iter_mut().for_each(|table| table.rebase(frame));
        }
        let due = i64::try_from(self.options.sync_every.as_micros()).unwrap_or(i64::MAX);
        if let Some(log) = &self.log
            && times.boot_us.saturating_sub(log.synced_boot_us) >= due
        {
            // The frame is in the archive. That it may not be on the disk is trouble, and is tried again.
            _ = self.sync_at(times.boot_us);
        }
        Ok(())
    }

    fn is_segment_full(&self) -> bool {
        let log_bytes_max = (self.options.max_bytes / LOG_SHARE).max(LOG_BYTES_MIN);
        let memory_bytes_max = self.options.segment_memory_bytes + self.segment.present_bytes();
        let frames_max = self.options.segment_frames.clamp(1, SEGMENT_FRAMES_MAX);
        self.segment.frames() > 0
            && (self.segment.frames() >= frames_max
                || self.segment.bytes() > memory_bytes_max
                || self.log.as_ref().is_some_and(|log| log.bytes > log_bytes_max))
    }

    fn create_log(&mut self, times: Times) -> Result<(), Error> {
        self.encoder.clear();
        let header = self.encoder.file_header(&self.segment, VERSION);
        let bytes = header.len() as u64;
        self.queue.create(header)?;
        self.log = Some(OpenLog { bytes, synced_boot_us: times.boot_us });
        Ok(())
    }

    /// Makes everything that was appended last, whatever happens to the machine.
    pub fn sync(&mut self) -> Result<(), Error> {
        let now = self.segment.times.last().map_or(0, |times| times.boot_us);
        self.sync_at(now)
    }

    fn sync_at(&mut self, boot_us: i64) -> Result<(), Error> {
        let Some(log) = &mut self.log else { return Ok(()) };
        log.synced_boot_us = boot_us;
        self.queue.sync()
    }

    /// Seals the open segment. Where that fails its log stays, and waits.
    fn close_segment(&mut self) {
        let had_log = self.log.take().is_some();
        if had_log && self.segment.frames() > 0 {
            self.queue.seal(&mut self.segment);
        }
        self.segment.clear();
    }

    /// Seals what is open and ends the recording. Where sealing fails the log stays, and the next writer seals it.
    pub fn finish(mut self) -> Result<(), Error> {
        self.sync()?;
        self.close_segment();
        self.queue.finish()
    }
}
