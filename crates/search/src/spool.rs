//! Undelivered batches on disk: a bounded queue, in order. A frame counts as stored after it was
//! synced.
//!
//! ```text
//! DIR/lock                         flock of the single writer
//! DIR/00000000000000000001.spool   frames, see the module `frame`; a file ends at about 8 MiB
//! DIR/00000000000000000002.spool
//! DIR/cursor                       "1 4711": file and offset of the oldest undelivered frame
//! ```
//!
//! The cursor is written without a sync, or not at all on a full disk. So it may be outdated, and
//! delivered frames may be read again. The consumer recognizes them by their run and number. A file
//! is deleted, with a sync, after all of its frames were delivered. Each run begins a new file, so
//! that nothing follows a frame torn by a crash.

mod frame;

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{At, Error};
use crate::lock::{self, Lock};

use frame::FrameRead;

/// A new file begins when the last one has reached this size in bytes.
const FILE_MAX: u64 = 8 << 20;
/// Maximum number of directory entries read.
const FILES_MAX: usize = 100_000;
const SUFFIX: &str = ".spool";
const CURSOR: &str = "cursor";

/// A first-in, first-out queue of frames on disk.
pub struct Spool {
    dir: PathBuf,
    _lock: Lock,
    max: u64,
    /// The files, oldest first.
    files: VecDeque<SpoolFile>,
    /// The offset of the oldest frame in the first file.
    offset: u64,
    /// The length of the oldest frame, after it was read.
    front: Option<u64>,
    /// The last file, while it is open for writing.
    tail: Option<File>,
    next: u64,
    skipped: u64,
}

/// A file of frames.
struct SpoolFile {
    number: u64,
    len: u64,
}

impl Spool {
    /// Opens the spool in a directory, and creates a missing one. It holds at most `max` bytes.
    pub fn open(dir: &Path, max: u64) -> Result<Self, Error> {
        let lock = Lock::take(dir)?;
        let mut files: Vec<SpoolFile> = Vec::new();
        for entry in fs::read_dir(dir).at(dir)?.take(FILES_MAX) {
            let entry = entry.at(dir)?;
            if let Some(number) = entry.file_name().to_str().and_then(number_of) {
                files.push(SpoolFile { number, len: entry.metadata().at(entry.path())?.len() });
            }
        }
        files.sort_by_key(|part| part.number);
        let next = files.last().map_or(1, |part| part.number.saturating_add(1));
        let files = VecDeque::from(files);
        let mut spool = Self {
            dir: dir.to_owned(),
            _lock: lock,
            max,
            files,
            offset: 0,
            front: None,
            tail: None,
            next,
            skipped: 0,
        };
        spool.read_cursor()?;
        Ok(spool)
    }

    /// Appends frames in this order. After a success they are on disk, after a failure none of them
    /// is.
    pub fn push(&mut self, frames: &[Vec<u8>]) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for payload in frames {
            frame::write(payload, &mut bytes)
                .map_err(|what| Error::Broken { path: self.dir.clone(), what })?;
        }
        let more = bytes.len() as u64;
        if self.bytes().saturating_add(more) > self.max {
            return Err(Error::Away(format!(
                "{}: the spool is full ({} of {} bytes) and takes nothing until some of it is delivered",
                self.dir.display(),
                self.bytes(),
                self.max
            )));
        }
        if self.tail.is_none() || self.files.back().is_none_or(|part| part.len >= FILE_MAX) {
            self.begin()?;
        }
        let (Some(file), Some(part)) = (&self.tail, self.files.back_mut()) else { return Ok(()) };
        let path = path_of(&self.dir, part.number);
        if let Err(error) = file.write_all_at(&bytes, part.len).and_then(|()| file.sync_data()) {
            // Removes a partial write. If that fails too, the next frames go to a new file.
            let back = file.set_len(part.len);
            if back.is_err() {
                self.tail = None;
            }
            return Err(error).at(path);
        }
        part.len += more;
        Ok(())
    }

    /// Returns the oldest frame.
    pub fn front(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let Some(part) = self.files.front() else { return Ok(None) };
            let path = path_of(&self.dir, part.number);
            let file = lock::open_with(OpenOptions::new().read(true), &path).at(&path)?;
            match frame::read(&file, self.offset, part.len).at(&path)? {
                FrameRead::Frame(payload, len) => {
                    self.front = Some(len);
                    return Ok(Some(payload));
                }
                // The payload was corrupted on disk. Only this frame is lost.
                FrameRead::Damaged(len) => {
                    self.skipped += 1;
                    self.offset += len;
                }
                FrameRead::End { torn } => {
                    self.skipped += u64::from(torn);
                    self.drop_first()?;
                }
            }
        }
    }

    /// Removes the oldest frame, which [`Spool::front`] returned before.
    pub fn pop(&mut self) -> Result<(), Error> {
        let Some(len) = self.front.take() else { return Ok(()) };
        self.offset += len;
        if self.files.front().is_some_and(|part| self.offset >= part.len) {
            return self.drop_first();
        }
        self.write_cursor();
        Ok(())
    }

    /// Whether there are no frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The size on disk in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|part| part.len).sum()
    }

    /// How many frames and file ends could not be read.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Begins a new file at the end of the queue.
    fn begin(&mut self) -> Result<(), Error> {
        let number = self.next;
        let path = path_of(&self.dir, number);
        let file = lock::open_with(OpenOptions::new().write(true).create_new(true), &path).at(&path)?;
        self.sync_dir()?;
        self.next = number.saturating_add(1);
        if self.files.is_empty() {
            self.offset = 0;
        }
        self.files.push_back(SpoolFile { number, len: 0 });
        self.tail = Some(file);
        Ok(())
    }

    /// Deletes the oldest file.
    fn drop_first(&mut self) -> Result<(), Error> {
        let Some(part) = self.files.front() else { return Ok(()) };
        let path = path_of(&self.dir, part.number);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).at(path),
            _ => {}
        }
        self.files.pop_front();
        (self.offset, self.front) = (0, None);
        if self.files.is_empty() {
            self.tail = None;
        }
        // Syncs, because a file that reappears after a crash would deliver old states after newer
        // ones.
        self.sync_dir()?;
        self.write_cursor();
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), Error> {
        File::open(&self.dir).and_then(|dir| dir.sync_all()).at(&self.dir)
    }

    fn read_cursor(&mut self) -> Result<(), Error> {
        let Ok(text) = fs::read_to_string(self.dir.join(CURSOR)) else { return Ok(()) };
        let mut words = text.split_whitespace();
        let mut word = || words.next().and_then(|w| w.parse::<u64>().ok());
        let (Some(number), Some(offset)) = (word(), word()) else { return Ok(()) };
        while self.files.front().is_some_and(|part| part.number < number) {
            self.drop_first()?;
        }
        if self.files.front().is_some_and(|part| part.number == number && offset <= part.len) {
            self.offset = offset;
        }
        Ok(())
    }

    /// On a full disk the cursor stays unchanged. Deliveries free space, and repeated frames are
    /// recognized.
    fn write_cursor(&self) {
        let number = self.files.front().map_or(self.next, |part| part.number);
        let new = self.dir.join("cursor.new");
        let text = format!("{number} {}\n", self.offset);
        let written = lock::open_with(OpenOptions::new().write(true).create(true).truncate(true), &new)
            .is_ok_and(|file| file.write_all_at(text.as_bytes(), 0).is_ok());
        if written {
            let _ = fs::rename(&new, self.dir.join(CURSOR));
        }
    }
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:020}{SUFFIX}"))
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    if digits.len() == 20 { digits.parse().ok() } else { None }
}

/// Entry point for fuzzing: reads the frames of a file. The first byte decides whether the headers'
/// checksums are corrected.
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((fits, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if fits % 2 == 0 {
        frame::fit(&mut bytes);
    }
    let Ok(fd) = rustix::fs::memfd_create("fuzzed", rustix::fs::MemfdFlags::CLOEXEC) else { return };
    let (file, end) = (File::from(fd), bytes.len() as u64);
    if file.write_all_at(&bytes, 0).is_err() {
        return;
    }
    let mut offset = 0;
    while let Ok(FrameRead::Frame(_, len) | FrameRead::Damaged(len)) = frame::read(&file, offset, end) {
        offset += len;
        assert!(len > 0 && offset <= end, "{offset} of {end}");
    }
    std::hint::black_box(std::str::from_utf8(&bytes).ok().and_then(number_of));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(spool: &mut Spool) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        while let Some(payload) = spool.front().unwrap() {
            got.push(payload);
            spool.pop().unwrap();
        }
        got
    }

    #[test]
    fn what_was_pushed_comes_once_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
        assert!(spool.is_empty() && spool.front().unwrap().is_none());
        spool.push(&[b"one".to_vec(), b"two".to_vec()]).unwrap();
        spool.push(&[b"three".to_vec()]).unwrap();
        assert_eq!(spool.front().unwrap().unwrap(), b"one");
        assert_eq!(spool.front().unwrap().unwrap(), b"one", "looking at it does not take it");
        spool.pop().unwrap();
        drop(spool);
        let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
        spool.push(&[b"four".to_vec()]).unwrap();
        assert_eq!(all(&mut spool), [b"two".to_vec(), b"three".to_vec(), b"four".to_vec()]);
        assert!(spool.is_empty() && spool.bytes() == 0 && spool.skipped() == 0);
    }

    #[test]
    fn one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path(), 1 << 20).unwrap();
        assert!(
            matches!(Spool::open(dir.path(), 1 << 20), Err(Error::Locked { pid: Some(pid), .. }) if pid == std::process::id())
        );
        drop(spool);
        assert!(Spool::open(dir.path(), 1 << 20).is_ok());
    }

    #[test]
    fn a_full_spool_takes_nothing_and_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path(), 100).unwrap();
        spool.push(&[vec![1; 50]]).unwrap();
        assert!(matches!(spool.push(&[vec![2; 50]]), Err(Error::Away(_))));
        assert_eq!(spool.front().unwrap().unwrap(), vec![1; 50]);
        spool.pop().unwrap();
        spool.push(&[vec![2; 50]]).unwrap();
        assert_eq!(all(&mut spool), [vec![2; 50]]);
    }

    #[test]
    fn files_end_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path(), 1 << 30).unwrap();
        let large = vec![7; (FILE_MAX / 2) as usize];
        for _ in 0..5 {
            spool.push(std::slice::from_ref(&large)).unwrap();
        }
        let files = || {
            fs::read_dir(dir.path())
                .unwrap()
                .filter(|e| e.as_ref().unwrap().file_name().to_str().unwrap().ends_with(SUFFIX))
                .count()
        };
        assert_eq!(files(), 3);
        assert_eq!(all(&mut spool).len(), 5);
        assert_eq!(files(), 0);
    }

    #[test]
    fn a_lost_cursor_costs_a_second_delivery() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
        spool.push(&[b"one".to_vec(), b"two".to_vec()]).unwrap();
        spool.front().unwrap();
        spool.pop().unwrap();
        drop(spool);
        for damage in ["", "x", "1", "1 99999", "99 0"] {
            fs::write(dir.path().join(CURSOR), damage).unwrap();
            let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
            if damage == "99 0" {
                // The cursor names a later file, so everything before it was delivered.
                assert!(spool.is_empty());
            } else {
                assert_eq!(spool.front().unwrap().unwrap(), b"one");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_torn_end_costs_what_was_torn(lens in prop::collection::vec(0_usize..40, 1..6), cut in 0_usize..200) {
            let dir = tempfile::tempdir().unwrap();
            let frames: Vec<Vec<u8>> = lens.iter().enumerate().map(|(n, len)| vec![n as u8; *len]).collect();
            let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
            spool.push(&frames).unwrap();
            drop(spool);
            let path = path_of(dir.path(), 1);
            let len = fs::metadata(&path).unwrap().len();
            let keep = len.saturating_sub(cut as u64);
            OpenOptions::new().write(true).open(&path).unwrap().set_len(keep).unwrap();
            let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
            spool.push(&[b"next".to_vec()]).unwrap();
            let mut whole = 0_u64;
            let mut wanted: Vec<Vec<u8>> = Vec::new();
            for f in frames {
                whole += frame::HEADER as u64 + f.len() as u64;
                if whole <= keep { wanted.push(f); }
            }
            wanted.push(b"next".to_vec());
            prop_assert_eq!(all(&mut spool), wanted);
        }

        #[test]
        fn a_flipped_bit_costs_its_frame_or_what_follows_in_its_file(at in 0_usize..60, bit in 0_u32..8) {
            let dir = tempfile::tempdir().unwrap();
            let frames = [vec![1; 8], vec![2; 8], vec![3; 8]];
            let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
            spool.push(&frames).unwrap();
            drop(spool);
            let path = path_of(dir.path(), 1);
            let mut bytes = fs::read(&path).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
            let got = all(&mut spool);
            prop_assert!(got.iter().all(|f| frames.contains(f)), "what comes is what was pushed");
            prop_assert!(got.len() < 3 && spool.skipped() > 0);
        }
    }
}
