//! One open file of a log, read line by line.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{SeekFrom, Stat, fstat, seek};
use rustix::io::Errno;

use super::known::{BEGIN_BYTES_MAX, Begin, TAIL_BYTES_MAX, Tail, fnv};
use super::packed::{self, Filled, Packed, Packer};
use crate::file::read_at;

/// A longer line is looked at up to here, and counts once.
pub const LINE_BYTES_MAX: usize = 16 * 1024;
/// Bytes of one read: more than a line.
const CHUNK_BYTES: usize = 128 * 1024;
/// As many zero bytes at the end of a file are looked at for what is written before them, and as many parts between holes.
const BLANK_BYTES_MAX: u64 = 256 << 20;
const PARTS_MAX: usize = 4096;

/// Device and inode.
pub type Id = (u64, u64);

/// What a file holds.
enum Content {
    Plain(OwnedFd),
    Packed(Box<Packed>),
}

/// How far a read came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The allowance is used up.
    More,
    /// Nothing is left but a line that has no end yet.
    End,
    /// The file was cut off, or is another one. No line of the new content was counted.
    Truncated,
}

/// An open file and how far its lines were counted.
pub struct OpenLog {
    content: Content,
    pub id: Id,
    pub begin: Begin,
    /// Where the next line begins, or somewhere inside of one whose rest is not looked at.
    pub offset: u64,
    /// Whether a line was counted, or passed over, whose end is still to come.
    pub is_in_rest: bool,
    /// The bytes just before the offset, as far as they are known.
    tail: Vec<u8>,
    /// Size and modification time when nothing was left.
    settled: Option<(u64, i64)>,
    /// Zero bytes behind what is written, as far as they were looked at: the file was made longer before.
    blank: Range<u64>,
    pub size: u64,
    pub mtime_ns: i64,
}

pub fn id_of(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}

pub fn mtime_ns(stat: &Stat) -> i64 {
    let ns = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(ns)
}

pub fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

impl OpenLog {
    /// A file that is read from its beginning.
    pub fn new(fd: OwnedFd, stat: &Stat, packer: Option<Packer>) -> OpenLog {
        let content = match packer {
            Some(packer) => Content::Packed(Box::new(Packed::new(File::from(fd), packer))),
            None => Content::Plain(fd),
        };
        let blank = content.blank(size_of(stat));
        OpenLog {
            content,
            id: id_of(stat),
            begin: Begin::default(),
            offset: 0,
            is_in_rest: false,
            tail: Vec::new(),
            settled: None,
            blank,
            size: size_of(stat),
            mtime_ns: mtime_ns(stat),
        }
    }

    pub fn is_packed(&self) -> bool {
        matches!(self.content, Content::Packed(_))
    }

    /// Goes on where it was left, here or in a copy.
    pub fn resume(&mut self, offset: u64, is_in_rest: bool, begin: &Begin) -> io::Result<()> {
        (self.offset, self.is_in_rest) = (offset, is_in_rest);
        self.begin = begin.clone();
        self.load_known()
    }

    /// Passes over what is there up to a size, but for a line that has no end there yet.
    pub fn begin_at(&mut self, size: u64) -> io::Result<()> {
        let Content::Plain(fd) = &self.content else { return Ok(()) };
        let (end, _) = written_end(fd, size)?;
        let from = end.saturating_sub(LINE_BYTES_MAX as u64);
        let mut tail = vec![0; usize::try_from(end - from).unwrap_or(0)];
        let filled = read_at(fd, &mut tail, from)?;
        tail.truncate(filled);
        match tail.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => self.offset = from + at as u64 + 1,
            None if from == 0 => self.offset = 0,
            None => (self.offset, self.is_in_rest) = (from + filled as u64, true),
        }
        self.load_known()
    }

    /// Reads again what the file is known by: as much as was consumed of it.
    fn load_known(&mut self) -> io::Result<()> {
        self.tail.clear();
        let Content::Plain(fd) = &self.content else { return Ok(()) };
        let from = self.offset.saturating_sub(TAIL_BYTES_MAX as u64);
        self.tail.resize(usize::try_from(self.offset - from).unwrap_or(0), 0);
        let filled = read_at(fd, &mut self.tail, from)?;
        self.tail.truncate(filled);
        let mut bytes = vec![0; BEGIN_BYTES_MAX.min(usize::try_from(self.offset).unwrap_or(usize::MAX))];
        let filled = read_at(fd, &mut bytes, 0)?;
        bytes.truncate(filled);
        self.begin = Begin::of(&bytes);
        Ok(())
    }

    /// The first bytes of a file that is not compressed: one more than those by which it is known.
    pub fn first_bytes(&self) -> io::Result<Vec<u8>> {
        let Content::Plain(fd) = &self.content else { return Ok(Vec::new()) };
        let mut bytes = vec![0; BEGIN_BYTES_MAX + 1];
        let filled = read_at(fd, &mut bytes, 0)?;
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// The bytes just before the offset.
    pub fn tail(&self) -> Tail {
        Tail::of(&self.tail)
    }

    /// Whether such bytes stand just before an offset. Of none nobody knows.
    pub fn has_before(&self, offset: u64, tail: Tail) -> bool {
        let Content::Plain(fd) = &self.content else { return false };
        let mut space = [0; TAIL_BYTES_MAX];
        let Some(space) = space.get_mut(..tail.len).filter(|space| !space.is_empty()) else { return false };
        let Some(from) = offset.checked_sub(tail.len as u64) else { return false };
        read_at(fd, space, from).is_ok_and(|filled| filled == tail.len) && fnv(space) == tail.hash
    }

    /// How long the file is now.
    pub fn size_now(&self) -> io::Result<u64> {
        match &self.content {
            Content::Plain(fd) => Ok(size_of(&fstat(fd)?)),
            Content::Packed(_) => Ok(self.size),
        }
    }

    /// The same file, from its beginning.
    pub fn emptied(self) -> OpenLog {
        let (blank, tail) = (self.content.blank(self.size), Vec::new());
        OpenLog { begin: Begin::default(), offset: 0, is_in_rest: false, tail, settled: None, blank, ..self }
    }

    /// Whether the file still begins as what was read of it.
    fn is_same(&self) -> io::Result<bool> {
        let Content::Plain(fd) = &self.content else { return Ok(true) };
        let mut space = [0; BEGIN_BYTES_MAX];
        let space = space.get_mut(..self.begin.bytes.len()).unwrap_or_default();
        let filled = read_at(fd, space, 0)?;
        Ok(space.get(..filled) == Some(&self.begin.bytes[..]))
    }

    /// Passes on the lines that are complete, as long as there is something left of the allowance.
    pub fn read(
        &mut self,
        left: &mut u64,
        buffer: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Progress> {
        if let Content::Plain(fd) = &self.content {
            let stat = fstat(fd)?;
            (self.size, self.mtime_ns) = (size_of(&stat), mtime_ns(&stat));
            self.blank.end = self.blank.end.min(self.size);
        }
        let now = (self.size, self.mtime_ns);
        if self.settled == Some(now) {
            return Ok(Progress::End);
        }
        if !self.is_packed() && self.size < self.offset {
            return Ok(Progress::Truncated);
        }
        buffer.resize(CHUNK_BYTES, 0);
        loop {
            if *left == 0 {
                return Ok(Progress::More);
            }
            let filled = self.content.fill(self.offset, buffer)?;
            // Asked after the bytes were read: they are of the file that was read before, if that still is there now.
            if !self.is_same()? {
                return Ok(Progress::Truncated);
            }
            let mut text = buffer.get(..filled.bytes).unwrap_or_default();
            if !self.is_packed() {
                let end = self.offset + text.len() as u64;
                text = written(text);
                let from = self.offset + text.len() as u64;
                // Before those that were looked at something is written.
                let known = if from >= self.blank.start { self.blank.end } else { 0 };
                self.blank = from..known.max(end);
            }
            let (taken, pending) = (self.take(text, each), text.len());
            *left = left.saturating_sub(filled.passed.saturating_add(taken as u64).max(1));
            let is_end = filled.is_end
                || taken == 0 && !self.is_packed() && self.pass_blank(pending, left, buffer, each)?;
            if is_end {
                // In the time that a tick of the kernel's clock takes it may be written to again and look the same.
                self.settled = Some(now).filter(|_| !is_of_now(self.mtime_ns));
                return Ok(Progress::End);
            }
        }
    }

    /// Goes on behind zero bytes, if anything is written there: where the file was cut off and whoever writes does not append. Whether
    /// there is nothing: the file was made longer before it is written to. `pending` bytes of a line stand before them.
    fn pass_blank(
        &mut self,
        pending: usize,
        left: &mut u64,
        buffer: &mut [u8],
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<bool> {
        let Content::Plain(fd) = &self.content else { return Ok(false) };
        let from = match seek(fd, SeekFrom::Data(self.blank.end)) {
            Ok(at) => at.max(self.blank.end),
            Err(Errno::NXIO) => {
                self.blank.end = self.size.max(self.blank.end);
                return Ok(true);
            }
            Err(_) => self.blank.end,
        };
        let bytes = read_at(fd, buffer, from)?;
        *left = left.saturating_sub(bytes as u64);
        let Some(at) = buffer.iter().take(bytes).position(|byte| *byte != 0) else {
            self.blank.end = from + bytes as u64;
            return Ok(bytes < buffer.len());
        };
        // Who writes in order has written before that by now, if anything.
        let bytes = read_at(fd, buffer, self.offset)?;
        let text = written(buffer.get(..bytes).unwrap_or_default());
        if text.len() != pending {
            return Ok(false);
        }
        if pending > 0 && !self.is_in_rest {
            each(line(text));
        }
        self.offset = from + at as u64;
        self.blank = self.offset..self.offset;
        self.load_known()?;
        Ok(false)
    }

    /// Passes on the lines of a text and returns how much of it was consumed. A line without an end is left to be read again
    /// with it, unless it is too long for that. Zero bytes before a line are none of it.
    fn take(&mut self, text: &[u8], each: &mut dyn FnMut(&[u8])) -> usize {
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let zeros = if self.is_in_rest { 0 } else { rest.iter().take_while(|byte| **byte == 0).count() };
            if zeros > 0 {
                at += zeros;
                continue;
            }
            match rest.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    if !std::mem::take(&mut self.is_in_rest) {
                        each(line(rest.get(..end).unwrap_or_default()));
                    }
                    at += end + 1;
                }
                None if self.is_in_rest => at = text.len(),
                None if rest.len() > LINE_BYTES_MAX => {
                    each(line(rest));
                    self.is_in_rest = true;
                    at = text.len();
                }
                None => break,
            }
        }
        let taken = text.get(..at).unwrap_or_default();
        if self.begin.bytes.len() as u64 == self.offset {
            self.begin.extend(taken);
        }
        let last = taken.get(taken.len().saturating_sub(TAIL_BYTES_MAX)..).unwrap_or_default();
        self.tail.extend_from_slice(last);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES_MAX));
        self.offset += at as u64;
        at
    }

    /// Passes on a last line without an end, of a file that nobody writes to any more.
    pub fn finish(&mut self, buffer: &mut Vec<u8>, each: &mut dyn FnMut(&[u8])) {
        buffer.resize(CHUNK_BYTES, 0);
        let Ok(filled) = self.content.fill(self.offset, buffer) else { return };
        let rest = written(buffer.get(..filled.bytes).unwrap_or_default());
        if !rest.is_empty() && !self.is_in_rest && self.is_same().unwrap_or(false) {
            each(line(rest));
        }
        let is_all_of_it = self.begin.bytes.len() as u64 == self.offset;
        self.begin.is_whole = is_all_of_it && self.begin.len < BEGIN_BYTES_MAX && filled.bytes == 0;
    }

    /// Bytes that are still to be read, up to where zero bytes begin. Of a compressed file nobody knows.
    pub fn unread(&self) -> u64 {
        let end = if self.blank.is_empty() { self.size } else { self.blank.start };
        if self.is_packed() { 0 } else { end.saturating_sub(self.offset) }
    }

    /// The same, for a log of which no more than so many bytes may wait: as zero bytes may have been written to since they were looked at,
    /// their beginning is searched again if there is text behind as many bytes. 0 if it is unknown.
    pub fn waiting(&mut self, behind_bytes_max: u64) -> u64 {
        let Content::Plain(fd) = &self.content else { return 0 };
        if self.size.saturating_sub(self.offset) <= behind_bytes_max {
            return self.unread();
        }
        let mut beyond = [0; 4096];
        let filled = read_at(fd, &mut beyond, self.offset.saturating_add(behind_bytes_max)).unwrap_or(0);
        if written(beyond.get(..filled).unwrap_or_default()).is_empty() {
            return if self.blank.is_empty() { 0 } else { self.unread() };
        }
        match written_end(fd, self.size) {
            Ok((end, true)) => {
                self.blank = end..self.size;
                self.unread()
            }
            _ => 0,
        }
    }

    /// Passes over at least so many bytes, up to the end of a line. Returns how many.
    pub fn skip(&mut self, bytes: u64, buffer: &mut Vec<u8>) -> io::Result<u64> {
        let before = self.offset;
        self.offset += bytes;
        buffer.resize(CHUNK_BYTES, 0);
        let filled = self.content.fill(self.offset, buffer)?;
        let text = buffer.get(..filled.bytes).unwrap_or_default();
        match text.iter().position(|byte| *byte == b'\n') {
            Some(end) => (self.offset, self.is_in_rest) = (self.offset + end as u64 + 1, false),
            None => self.is_in_rest = true,
        }
        self.load_known()?;
        Ok(self.offset - before)
    }
}

/// What of a line is looked at.
fn line(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    text.get(..LINE_BYTES_MAX).unwrap_or(text)
}

/// What is written of some bytes: the zero bytes at the end may be written later.
fn written(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    bytes.get(..end).unwrap_or_default()
}

/// Where what is written of a file ends that may have been made longer, and whether that is known: with too many zero bytes it may
/// end earlier.
fn written_end(fd: &OwnedFd, size: u64) -> io::Result<(u64, bool)> {
    let (mut end, mut at) = (size, 0);
    for _ in 0..PARTS_MAX {
        match seek(fd, SeekFrom::Data(at)) {
            Ok(data) => at = seek(fd, SeekFrom::Hole(data))?,
            Err(Errno::NXIO) => {
                end = at.min(size);
                break;
            }
            Err(_) => break,
        }
    }
    let least = end.saturating_sub(BLANK_BYTES_MAX);
    let mut room = vec![0; CHUNK_BYTES];
    while end > least {
        let from = end.saturating_sub(CHUNK_BYTES as u64);
        let room = room.get_mut(..usize::try_from(end - from).unwrap_or(0)).unwrap_or_default();
        let filled = read_at(fd, room, from)?;
        let text = written(room.get(..filled).unwrap_or_default());
        if !text.is_empty() {
            return Ok((from + text.len() as u64, true));
        }
        end = from;
    }
    Ok((end, end == 0))
}

/// Whether a time lies so near that the next one may look the same.
pub fn is_of_now(ns: i64) -> bool {
    const NEAR_NS: u128 = 100_000_000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    now.abs_diff(u128::try_from(ns).unwrap_or(0)) < NEAR_NS
}

/// The first bytes of a file: one more than those by which it is known. And how many had to be read for them.
pub fn first_bytes(fd: OwnedFd, packer: Option<Packer>) -> (Vec<u8>, u64) {
    const MOST: u64 = BEGIN_BYTES_MAX as u64 + 1;
    let file = File::from(fd);
    let Some(packer) = packer else {
        let mut bytes = Vec::new();
        _ = file.take(MOST).read_to_end(&mut bytes);
        let read = bytes.len() as u64;
        return (bytes, read);
    };
    packed::first_bytes(file, packer, MOST)
}

impl Content {
    /// The zero bytes at the end of a file of this size. Empty if their beginning is unknown.
    fn blank(&self, size: u64) -> Range<u64> {
        let Content::Plain(fd) = self else { return 0..0 };
        match written_end(fd, size) {
            Ok((end, true)) => end..size,
            _ => 0..0,
        }
    }

    fn fill(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<Filled> {
        match self {
            Content::Plain(fd) => {
                let bytes = read_at(fd, buffer, offset)?;
                Ok(Filled { bytes, passed: 0, is_end: bytes < buffer.len() })
            }
            Content::Packed(packed) => Ok(packed.fill(offset, buffer)),
        }
    }
}
