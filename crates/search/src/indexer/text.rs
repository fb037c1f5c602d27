//! Reads the text of a file, whatever the file contains.
//!
//! Binary files have no text. UTF-16 is decoded, invalid UTF-8 becomes U+FFFD, and holes are
//! skipped. A file that is too large, or becomes so during the read, is refused. A file that
//! changes during the read is read again.
//!
//! The order matters: read, withhold secrets, then cut long lines. Half a secret would not be
//! recognized.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::open::Stamp;
use crate::document::{Document, Flag};

/// Of a larger file only the beginning is kept.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// Of a longer line only the beginning is kept.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// The part of the file that decides whether it is text.
const HEAD_BYTES: usize = 8 << 10;
/// Smaller holes are ignored.
const HOLE_BYTES_MIN: u64 = 1 << 20;
/// Maximum number of attempts for a file that changes during the read.
const TRIES_MAX: usize = 3;
/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;
/// A larger buffer is freed after the file.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// The result of reading a file.
#[derive(Debug, PartialEq, Eq)]
pub struct FileText {
    /// The text; `None` if the file is not text.
    pub text: Option<String>,
    /// Special properties.
    pub flags: Vec<Flag>,
    /// The status after the read.
    pub stamp: Stamp,
}

/// The reason for not reading a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has at least this many bytes.
    TooLarge(u64),
    /// The error of the system.
    System(Errno),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

/// Reads files one after the other, into the same buffer.
#[derive(Debug)]
pub struct Reader {
    max: Option<u64>,
    buffer: Vec<u8>,
}

impl Reader {
    /// A reader that refuses files larger than `max`.
    #[must_use]
    pub fn new(max: Option<u64>) -> Self {
        Self { max, buffer: Vec::new() }
    }

    /// Reads an open file from the beginning. Ignores size and times of a generated file, because
    /// they mean nothing.
    pub fn read(&mut self, fd: &OwnedFd, is_made_up: bool) -> Result<FileText, Refusal> {
        let mut before = Stamp::of_open(fd)?;
        let mut flags = Vec::new();
        for attempt in 1..=TRIES_MAX {
            if let Some(max) = self.max
                && !is_made_up
                && before.size > max
            {
                return Err(Refusal::TooLarge(before.size));
            }
            self.fill(fd, &before, is_made_up, &mut flags)?;
            let after = Stamp::of_open(fd)?;
            let is_same = is_made_up || before.is_same_content(&after);
            before = after;
            if is_same {
                break;
            }
            if attempt == TRIES_MAX {
                flags.push(Flag::Moving);
                break;
            }
            flags.clear();
            rustix::fs::seek(fd, SeekFrom::Start(0))?;
        }
        let text = decode(&self.buffer);
        if text.is_none() {
            flags.push(Flag::Binary);
        }
        self.buffer.clear();
        if self.buffer.capacity() > BUFFER_BYTES_MAX {
            self.buffer = Vec::new();
        }
        Ok(FileText { text, flags, stamp: before })
    }

    fn fill(
        &mut self,
        fd: &OwnedFd,
        stamp: &Stamp,
        is_made_up: bool,
        flags: &mut Vec<Flag>,
    ) -> Result<(), Refusal> {
        self.buffer.clear();
        let has_holes = !is_made_up && stamp.size > stamp.used.saturating_add(HOLE_BYTES_MIN);
        if !(has_holes && self.fill_around_holes(fd, stamp.size, flags)?) {
            let room = usize::try_from(stamp.size).unwrap_or(TEXT_BYTES_MAX).min(TEXT_BYTES_MAX);
            self.buffer.reserve(room + 1);
            while self.buffer.len() <= TEXT_BYTES_MAX && self.chunk(fd)? > 0 {}
        }
        if let Some(max) = self.max
            && self.buffer.len() as u64 > max
        {
            return Err(Refusal::TooLarge(self.buffer.len() as u64));
        }
        if self.buffer.len() > TEXT_BYTES_MAX {
            flags.push(Flag::Truncated);
            cut(&mut self.buffer);
        }
        Ok(())
    }

    /// Appends the next chunk. Returns 0 at the end of the file.
    fn chunk(&mut self, fd: &OwnedFd) -> Result<usize, Refusal> {
        self.buffer.reserve(CHUNK_BYTES);
        loop {
            match rustix::io::read(fd, spare_capacity(&mut self.buffer)) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Reads the data between holes. Returns false if there are no holes or the file system does
    /// not report them.
    fn fill_around_holes(&mut self, fd: &OwnedFd, size: u64, flags: &mut Vec<Flag>) -> Result<bool, Refusal> {
        let mut at = 0;
        let mut is_sparse = false;
        while at < size && self.buffer.len() <= TEXT_BYTES_MAX {
            let data = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
                Ok(data) => data,
                // The rest of the file is a hole.
                Err(Errno::NXIO) => size,
                Err(_) => break,
            };
            is_sparse |= data.saturating_sub(at) >= HOLE_BYTES_MIN;
            if data >= size {
                break;
            }
            let hole = rustix::fs::seek(fd, SeekFrom::Hole(data))?;
            rustix::fs::seek(fd, SeekFrom::Start(data))?;
            let begin = self.buffer.len();
            let length = usize::try_from(hole.saturating_sub(data)).unwrap_or(usize::MAX);
            while self.buffer.len() - begin < length && self.buffer.len() <= TEXT_BYTES_MAX {
                if self.chunk(fd)? == 0 {
                    break;
                }
            }
            // The last read may extend into the hole.
            self.buffer.truncate(begin.saturating_add(length));
            strip_zeros(&mut self.buffer, begin);
            at = hole.max(data + 1);
        }
        rustix::fs::seek(fd, SeekFrom::Start(0))?;
        if is_sparse {
            flags.push(Flag::Sparse);
        } else {
            self.buffer.clear();
        }
        Ok(is_sparse)
    }
}

/// Removes the zeros that fill up blocks next to a hole.
fn strip_zeros(buffer: &mut Vec<u8>, begin: usize) {
    while buffer.len() > begin && buffer.last() == Some(&0) {
        buffer.pop();
    }
    let zeros = buffer.iter().skip(begin).take_while(|b| **b == 0).count();
    buffer.drain(begin..begin + zeros);
}

/// Cuts at the end of a line, because half a secret would not be recognized.
fn cut(buffer: &mut Vec<u8>) {
    buffer.truncate(TEXT_BYTES_MAX);
    let from = buffer.len().saturating_sub(LINE_BYTES_MAX);
    let end = buffer.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    buffer.truncate(end.max(from));
}

/// The text of a file's bytes; `None` if they are not text.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<String> {
    match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => return Some(String::from_utf8_lossy(rest).into_owned()),
        [0xff, 0xfe, rest @ ..] if rest.len() % 2 == 0 => return utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] if rest.len() % 2 == 0 => return utf16(rest, u16::from_be_bytes),
        _ => {}
    }
    let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
    let is_odd = |b: &&u8| **b < 0x20 && !matches!(**b, b'\t' | b'\n' | b'\r' | 0x08 | 0x0b | 0x0c | 0x1b);
    if head.contains(&0) || head.iter().filter(is_odd).count() * 10 > head.len() {
        return None;
    }
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let units = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    let text: String = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    // A NUL character means that this is not text.
    (!text.contains('\0')).then_some(text)
}

/// Cuts lines that are too long to read and to index. Must run after secrets were withheld.
pub fn bound(document: &mut Document) {
    let Some(text) = &document.content else { return };
    if !text.split('\n').any(|line| line.len() > LINE_BYTES_MAX) {
        return;
    }
    let mut short = String::with_capacity(text.len().min(TEXT_BYTES_MAX));
    for line in text.split_inclusive('\n') {
        let body = line.strip_suffix('\n').unwrap_or(line);
        if body.len() <= LINE_BYTES_MAX {
            short.push_str(line);
            continue;
        }
        let end = body.floor_char_boundary(LINE_BYTES_MAX);
        short.push_str(&body[..end]);
        short.push_str(&format!(" [{} more bytes]", body.len() - end));
        if body.len() < line.len() {
            short.push('\n');
        }
    }
    document.content = Some(short);
    document.flag(Flag::Truncated);
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{Seek, Write};
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn read(path: &Path, max: Option<u64>) -> Result<FileText, Refusal> {
        Reader::new(max).read(&OwnedFd::from(File::open(path).unwrap()), false)
    }

    fn taken(bytes: &[u8]) -> FileText {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        read(file.path(), Some(1 << 20)).unwrap()
    }

    #[test]
    fn text_is_read_in_whatever_it_is_written() {
        assert_eq!(taken(b"a\nb\n").text.as_deref(), Some("a\nb\n"));
        assert_eq!(taken(b"").text.as_deref(), Some(""));
        assert_eq!(taken(b"\xef\xbb\xbfa").text.as_deref(), Some("a"));
        assert_eq!(taken(b"\xff\xfea\0\xac\x20").text.as_deref(), Some("a\u{20ac}"));
        assert_eq!(taken(b"\xfe\xff\0a\x20\xac").text.as_deref(), Some("a\u{20ac}"));
        assert_eq!(taken(b"caf\xe9\n").text.as_deref(), Some("caf\u{fffd}\n"));
        let color = taken(b"\x1b[31mred\x1b[0m\n");
        assert!(color.text.is_some() && color.flags.is_empty());
    }

    #[test]
    fn what_is_no_text_has_none() {
        for bytes in
            [&b"\x7fELF\x02\x01\x01\0\0"[..], b"abc\0def", b"\x01\x02\x03\x04\x05", b"\xff\xfea\0\0\0"]
        {
            let t = taken(bytes);
            assert_eq!((t.text, t.flags), (None, vec![Flag::Binary]), "{bytes:?}");
        }
    }

    #[test]
    fn larger_files_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![b'a'; 1000]).unwrap();
        assert_eq!(read(file.path(), Some(999)), Err(Refusal::TooLarge(1000)));
        assert!(read(file.path(), Some(1000)).is_ok());
        assert!(read(file.path(), None).is_ok());
        // Generated files report size 0, so the limit applies to the bytes read.
        let fd = OwnedFd::from(File::open("/proc/cpuinfo").unwrap());
        assert!(matches!(Reader::new(Some(10)).read(&fd, true), Err(Refusal::TooLarge(11..))));
        let fd = OwnedFd::from(File::open("/proc/meminfo").unwrap());
        assert!(Reader::new(Some(1 << 20)).read(&fd, true).unwrap().text.unwrap().starts_with("MemTotal"));
    }

    #[test]
    fn without_a_limit_the_beginning_is_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut line = vec![b'x'; 99];
        line.push(b'\n');
        fs::write(file.path(), line.repeat(TEXT_BYTES_MAX / 100 + 10)).unwrap();
        let t = read(file.path(), None).unwrap();
        let text = t.text.unwrap();
        assert_eq!(t.flags, [Flag::Truncated]);
        assert!(text.len() <= TEXT_BYTES_MAX && text.len() > TEXT_BYTES_MAX - 200 && text.ends_with("x\n"));
    }

    #[test]
    fn holes_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut file = File::create(&path).unwrap();
        // A log that was truncated while its writer kept its offset.
        file.seek(std::io::SeekFrom::Start(8 << 20)).unwrap();
        file.write_all(b"first line\nsecond line\n").unwrap();
        file.sync_all().unwrap();
        let t = read(&path, Some(10 << 20)).unwrap();
        if t.flags.contains(&Flag::Binary) {
            println!("skipped: this file system keeps no holes");
            return;
        }
        assert_eq!((t.text.as_deref(), t.flags), (Some("first line\nsecond line\n"), vec![Flag::Sparse]));
        let empty = dir.path().join("empty");
        File::create(&empty).unwrap().set_len(1 << 30).unwrap();
        assert!(matches!(read(&empty, Some(10 << 20)), Err(Refusal::TooLarge(_))));
        assert_eq!(read(&empty, None).unwrap().text.as_deref(), Some(""));
    }

    #[test]
    fn a_file_that_moves_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("busy");
        fs::write(&path, "0\n").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut n = 0_u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    n += 1;
                    fs::write(&path, format!("{n}\n").repeat(1 + n as usize % 500)).unwrap();
                }
            });
            for _ in 0..200 {
                let t = read(&path, Some(1 << 20)).unwrap();
                let text = t.text.unwrap();
                // Without the flag `moving`, the text has to be consistent.
                if t.flags.is_empty() {
                    let first = text.lines().next().unwrap_or_default();
                    assert!(text.lines().all(|line| line == first), "{text}");
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn huge_lines_are_cut_and_say_so() {
        let mut document = Document::new("h", "/x", crate::document::Kind::File);
        document.content = Some(format!("short\n{}\nend", "\u{20ac}".repeat(LINE_BYTES_MAX)));
        bound(&mut document);
        let text = document.content.clone().unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!((lines[0], lines[2], lines.len()), ("short", "end", 3));
        assert!(lines[1].len() < LINE_BYTES_MAX + 40 && lines[1].ends_with(" more bytes]"));
        assert!(document.is(Flag::Truncated));
        let before = document.clone();
        bound(&mut document);
        assert!(document.content.unwrap().len() <= before.content.unwrap().len() + 30);
    }

    proptest! {
        #[test]
        fn any_bytes_are_text_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = decode(&bytes);
            if let Ok(good) = std::str::from_utf8(&bytes)
                && !good.contains(|c: char| c < ' ')
                && !good.starts_with('\u{feff}')
            {
                prop_assert_eq!(text.as_deref(), Some(good));
            }
        }
    }
}
