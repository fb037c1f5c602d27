//! Reads opened files within bounds: per file, per unpacked file, and for all files together.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use mitra_parse::text;
use rustix::fs::{SeekFrom, seek};
use rustix::time::{ClockId, clock_gettime};

use super::find::FileHandle;

/// Bytes of one file, packed or not.
const FILE_MAX: u64 = 16 << 30;
/// Bytes of all files together.
const ALL_MAX: u64 = 64 << 30;
/// Bytes of a file of procfs or sysfs, whose size is 0.
const UNSIZED_MAX: u64 = 64 << 20;
/// How much more a packed file may hold. Tool output reaches 10, monotonous output 100, zeros 1000.
const RATIO_MAX: u64 = 300;
/// Below this many bytes the ratio is not checked.
const RATIO_FROM: u64 = 256 << 20;
/// CPU seconds for all files; a day of logs takes far less.
const SECONDS_MAX: i64 = 1800;
/// Bytes that decide what a file is.
pub const HEAD_BYTES: usize = 4096;
/// Memory that zstd may want of who unpacks: what `zstd --ultra` uses.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Where the mark of tar stands.
const TAR_MARK: usize = 257;

/// What a file is, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Gzip,
    Xz,
    Zstd,
    Tar,
    Zip,
    /// Written by sadc.
    Sysstat,
    /// By another packer.
    Packed(&'static str),
    Binary,
    Empty,
}

impl Kind {
    /// Why it is not read.
    pub fn why_not(self) -> String {
        match self {
            Kind::Empty => "empty".to_owned(),
            Kind::Packed(by) => format!("packed by {by}: not read; unpack it"),
            _ => "binary: not read".to_owned(),
        }
    }
}

/// Magic numbers of other packers.
const PACKED: &[(&[u8], &str)] =
    &[(b"BZh", "bzip2"), (b"\x04\x22\x4d\x18", "lz4"), (b"7z\xbc\xaf\x27\x1c", "7-Zip"), (b"Rar!", "rar")];

/// Classifies a file by its first bytes.
pub fn kind(handle: &FileHandle) -> io::Result<Kind> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    Bytes { file: handle.file()?, at: 0, end: HEAD_BYTES as u64 }.read_to_end(&mut head)?;
    Ok(kind_of(&head))
}

/// What something is that begins with these bytes.
pub fn kind_of(head: &[u8]) -> Kind {
    let packed = PACKED.iter().find(|(start, _)| head.starts_with(start));
    if head.is_empty() {
        Kind::Empty
    } else if head.starts_with(&[0x1f, 0x8b]) {
        Kind::Gzip
    } else if head.starts_with(b"\xfd7zXZ\0") {
        Kind::Xz
    } else if head.starts_with(b"\x28\xb5\x2f\xfd") {
        Kind::Zstd
    } else if head.starts_with(b"PK\x03\x04") {
        Kind::Zip
    } else if head.get(TAR_MARK..).is_some_and(|rest| rest.starts_with(b"ustar")) {
        Kind::Tar
    } else if text::sysstat::is_binary_sa(head).is_some() {
        Kind::Sysstat
    } else if let Some((_, by)) = packed.filter(|_| std::str::from_utf8(head).is_err()) {
        Kind::Packed(by)
    } else if head.contains(&0) {
        Kind::Binary
    } else {
        Kind::Text
    }
}

/// The text of a file; `None` if it is neither text nor a packed one.
pub fn text(kind: Kind, handle: &FileHandle) -> io::Result<Option<Box<dyn Read>>> {
    Ok(match kind {
        Kind::Text => Some(bytes(handle)?),
        Kind::Gzip | Kind::Xz | Kind::Zstd => Some(unpacked(kind, bytes(handle)?)?),
        Kind::Tar | Kind::Zip | Kind::Sysstat | Kind::Packed(_) | Kind::Binary | Kind::Empty => None,
    })
}

/// As much of an xz as tells the dictionary of its first block.
const XZ_HEAD_BYTES: usize = 64;

/// Whether the first block of an xz has a dictionary of more than 128 MiB, which is allocated before anything is unpacked.
/// `xz -9` takes 64 MiB.
fn wants_much(head: &[u8]) -> bool {
    /// Of LZMA2: 30 are 128 MiB.
    const SIZE_MAX: u8 = 30;
    const STREAM_HEADER: usize = 12;
    let end = STREAM_HEADER + head.get(STREAM_HEADER).map_or(0, |n| (usize::from(*n) + 1) * 4);
    let block = head.get(STREAM_HEADER..end.min(head.len())).unwrap_or_default();
    block.windows(3).any(|window| matches!(window, [0x21, 1, size] if *size > SIZE_MAX))
}

/// What was packed by gzip, xz or zstd, within bounds.
pub fn unpacked<'a>(kind: Kind, input: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let packed = Packed::new(input);
    let taken = Rc::clone(&packed.taken);
    let inner: Box<dyn Read + 'a> = match kind {
        Kind::Xz => {
            let (mut packed, mut head) = (packed, Vec::with_capacity(XZ_HEAD_BYTES));
            packed.by_ref().take(XZ_HEAD_BYTES as u64).read_to_end(&mut head)?;
            if wants_much(&head) {
                return Err(io::Error::other("packed with a dictionary of more than 128 MiB: not read"));
            }
            Box::new(lzma_rust2::XzReader::new(io::Cursor::new(head).chain(packed), true))
        }
        Kind::Zstd => {
            let mut decoder = zstd::Decoder::new(packed)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
        _ => Box::new(MultiGzDecoder::new(packed)),
    };
    Ok(Box::new(Unpacked { inner, taken, made: 0 }))
}

/// What comes out of `packed` bytes, within the same bounds.
pub fn bounded<'a>(inner: Box<dyn Read + 'a>, packed: u64) -> Box<dyn Read + 'a> {
    Box::new(Unpacked { inner, taken: Rc::new(Cell::new(packed)), made: 0 })
}

/// The file as long as it was when it was opened. Cutting it ends in an error.
pub fn bytes(handle: &FileHandle) -> io::Result<Box<dyn Read>> {
    let file = handle.file()?;
    let hole = seek(&file, SeekFrom::Hole(0)).ok().filter(|hole| *hole < handle.size);
    let (end, why) = match hole {
        _ if handle.size == 0 => (UNSIZED_MAX, "more than 64 MiB"),
        Some(hole) if hole < FILE_MAX => (hole, "a hole, where nothing was ever written"),
        _ if handle.size > FILE_MAX => (FILE_MAX, "more than 16 GiB"),
        _ => return Ok(Box::new(Bytes { file, at: 0, end: handle.size })),
    };
    Ok(Box::new(Cut { inner: Bytes { file, at: 0, end: u64::MAX }, left: end, why }))
}

/// Reads by position, so that a shared descriptor is read from its beginning.
pub struct Bytes {
    pub file: Arc<File>,
    pub at: u64,
    pub end: u64,
}

impl Read for Bytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX).min(out.len());
        let length = self.file.read_at(out.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at = self.at.saturating_add(length as u64);
        Ok(length)
    }
}

/// Ends in an error if there is more than `left`.
pub struct Cut<R> {
    pub inner: R,
    pub left: u64,
    pub why: &'static str,
}

impl<R: Read> Read for Cut<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        if most > 0 {
            let length = self.inner.read(out.get_mut(..most).unwrap_or_default())?;
            self.left = self.left.saturating_sub(length as u64);
            return Ok(length);
        }
        match self.inner.read(&mut [0])? {
            0 => Ok(0),
            _ => Err(io::Error::other(format!("{}: the rest was not read", self.why))),
        }
    }
}

/// What may still be read of all files together.
pub struct ReadBudget {
    bytes: u64,
    until: i64,
}

impl ReadBudget {
    pub fn start() -> Self {
        ReadBudget { bytes: ALL_MAX, until: cpu_seconds() + SECONDS_MAX }
    }
}

/// Charges what is read to the budget.
pub struct Counted<'a> {
    pub inner: &'a mut dyn Read,
    pub budget: &'a mut ReadBudget,
}

impl Read for Counted<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if cpu_seconds() > self.budget.until {
            return Err(io::Error::other(
                "all files together take longer than half an hour: the rest was not read",
            ));
        }
        let why = "all files together have more than 64 GiB";
        let mut cut = Cut { inner: &mut *self.inner, left: self.budget.bytes, why };
        let length = cut.read(out);
        self.budget.bytes = cut.left;
        length
    }
}

/// The packed side. Data that unpack to nothing take their time here.
pub struct Packed<R> {
    inner: R,
    taken: Rc<Cell<u64>>,
    until: i64,
}

impl<R> Packed<R> {
    pub fn new(inner: R) -> Self {
        Packed { inner, taken: Rc::default(), until: cpu_seconds() + SECONDS_MAX }
    }
}

impl<R: Seek> Seek for Packed<R> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

impl<R: Read> Read for Packed<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if cpu_seconds() > self.until {
            return Err(io::Error::other("unpacking it takes too long: the rest was not read"));
        }
        let length = self.inner.read(out)?;
        self.taken.set(self.taken.get().saturating_add(length as u64));
        Ok(length)
    }
}

/// The unpacked side.
struct Unpacked<'a> {
    inner: Box<dyn Read + 'a>,
    taken: Rc<Cell<u64>>,
    made: u64,
}

impl Read for Unpacked<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let taken = self.taken.get();
        if self.made > RATIO_FROM && self.made / RATIO_MAX > taken {
            return Err(io::Error::other(format!(
                "it unpacks to more than {RATIO_MAX} times its size: the rest was not read"
            )));
        }
        if self.made > FILE_MAX {
            return Err(io::Error::other("more than 16 GiB unpacked: the rest was not read"));
        }
        let length = self.inner.read(out)?;
        self.made = self.made.saturating_add(length as u64);
        Ok(length)
    }
}

/// Of this thread, so that other load does not count.
fn cpu_seconds() -> i64 {
    clock_gettime(ClockId::ThreadCPUTime).tv_sec
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use super::*;

    #[test]
    fn members_of_a_zip_are_unpacked_within_the_time_of_its_packed_side() {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let stored =
            zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        zip.start_file("a", stored).unwrap();
        zip.write_all(b"MemTotal: 5 kB\n").unwrap();
        let bytes = zip.finish().unwrap().into_inner();
        let read = |until: i64| {
            let packed = Packed { until, ..Packed::new(Cursor::new(bytes.clone())) };
            let mut archive = zip::ZipArchive::new(packed).map_err(io::Error::other)?;
            let mut text = String::new();
            archive.by_index(0).map_err(io::Error::other)?.read_to_string(&mut text)?;
            Ok::<String, io::Error>(text)
        };
        assert_eq!(read(cpu_seconds() + 60).unwrap(), "MemTotal: 5 kB\n");
        assert!(read(-1).is_err());
    }
}
