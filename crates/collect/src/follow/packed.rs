//! A log that was compressed, by gzip or zstd, which nobody changes any more.
//!
//! xz is not read: each of its blocks says how large its dictionary is, which is allocated before anything is unpacked.

use std::fs::File;
use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;

/// No honest packer takes as many bytes for nothing.
const PACKED_BYTES_MAX: u64 = 1 << 20;
/// Decompressed bytes that are passed over in one step.
const PASSED_BYTES_MAX: u64 = 1 << 20;
/// Memory that zstd may want: 8 MiB, as `zstd -19` does.
const WINDOW_LOG_MAX: u32 = 23;

/// Who compressed a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packer {
    Gzip,
    Zstd,
}

/// The name without the ending of a packer, and the packer.
pub fn unpacked_name(name: &[u8]) -> Option<(&[u8], Packer)> {
    let with = |ending: &[u8], packer| Some((name.strip_suffix(ending)?, packer));
    with(b".gz", Packer::Gzip).or_else(|| with(b".zst", Packer::Zstd))
}

/// The packed bytes of one read.
struct Metered {
    file: File,
    left: u64,
}

impl Read for Metered {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other("unpacks to nothing"));
        }
        let most = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read(out.get_mut(..most).unwrap_or_default())?;
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

enum Decoder {
    Gzip(Box<MultiGzDecoder<Metered>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<Metered>>>),
    /// There is no memory for it.
    None,
}

impl Decoder {
    fn new(file: File, packer: Packer) -> Decoder {
        let metered = Metered { file, left: PACKED_BYTES_MAX };
        match packer {
            Packer::Gzip => Decoder::Gzip(Box::new(MultiGzDecoder::new(metered))),
            Packer::Zstd => {
                let Ok(mut decoder) = zstd::Decoder::new(metered) else { return Decoder::None };
                match decoder.window_log_max(WINDOW_LOG_MAX) {
                    Ok(()) => Decoder::Zstd(Box::new(decoder)),
                    Err(_) => Decoder::None,
                }
            }
        }
    }

    /// Lets the next read take packed bytes again.
    fn refill(&mut self) {
        match self {
            Decoder::Gzip(decoder) => decoder.get_mut().left = PACKED_BYTES_MAX,
            Decoder::Zstd(decoder) => decoder.get_mut().get_mut().left = PACKED_BYTES_MAX,
            Decoder::None => {}
        }
    }

    /// Packed bytes that it may still take.
    fn left(&self) -> u64 {
        match self {
            Decoder::Gzip(decoder) => decoder.get_ref().left,
            Decoder::Zstd(decoder) => decoder.get_ref().get_ref().left,
            Decoder::None => PACKED_BYTES_MAX,
        }
    }
}

impl Read for Decoder {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Gzip(decoder) => decoder.read(out),
            Decoder::Zstd(decoder) => decoder.read(out),
            Decoder::None => Ok(0),
        }
    }
}

/// The first unpacked bytes, and how many packed ones were read for them. What is damaged, or not complete yet, has the bytes before that.
pub fn first_bytes(file: File, packer: Packer, most: u64) -> (Vec<u8>, u64) {
    let (mut bytes, mut decoder) = (Vec::new(), Decoder::new(file, packer));
    _ = decoder.by_ref().take(most).read_to_end(&mut bytes);
    (bytes, PACKED_BYTES_MAX - decoder.left())
}

/// A compressed file, and what was unpacked of it.
pub struct Packed {
    decoder: Decoder,
    /// Decompressed and not consumed; it ends at `at`.
    rest: Vec<u8>,
    at: u64,
    is_end: bool,
}

/// What a read brought.
pub struct Filled {
    pub bytes: usize,
    /// Bytes that were passed over to get there.
    pub passed: u64,
    /// Whether the file ends behind.
    pub is_end: bool,
}

impl Packed {
    pub fn new(file: File, packer: Packer) -> Packed {
        Packed { decoder: Decoder::new(file, packer), rest: Vec::new(), at: 0, is_end: false }
    }

    /// Decompresses up to an offset and beyond. What is damaged ends there.
    pub fn fill(&mut self, offset: u64, buffer: &mut [u8]) -> Filled {
        let first = self.at - self.rest.len() as u64;
        let consumed = usize::try_from(offset.saturating_sub(first)).unwrap_or(usize::MAX);
        self.rest.drain(..consumed.min(self.rest.len()));
        let mut passed = 0;
        while self.at < offset && !self.is_end && passed < PASSED_BYTES_MAX {
            let wanted = (offset - self.at).min(buffer.len() as u64) as usize;
            let read = self.decode(wanted);
            self.rest.clear();
            passed += read;
        }
        while self.at >= offset && self.rest.len() < buffer.len() && !self.is_end {
            self.decode(buffer.len() - self.rest.len());
        }
        let bytes = self.rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..bytes), self.rest.get(..bytes)) {
            to.copy_from_slice(from);
        }
        Filled { bytes, passed, is_end: self.is_end && bytes < buffer.len() }
    }

    fn decode(&mut self, wanted: usize) -> u64 {
        let before = self.rest.len();
        self.rest.resize(before + wanted, 0);
        let room = self.rest.get_mut(before..).unwrap_or_default();
        self.decoder.refill();
        let read = loop {
            match self.decoder.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.unwrap_or(0),
            }
        };
        self.is_end |= read == 0;
        self.rest.truncate(before + read);
        self.at += read as u64;
        read as u64
    }
}
