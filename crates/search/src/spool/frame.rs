//! One frame: a payload with its length and checksums.
//!
//! ```text
//! [len u32][crc32c of the payload u32][crc32c of these 8 bytes u32][payload]      little endian
//! ```
//!
//! The header has its own checksum, so that a corrupt payload does not hide the frames behind it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Size of the header in bytes.
pub(super) const HEADER: usize = 12;
/// Maximum size of a payload in bytes.
pub(super) const PAYLOAD_MAX: usize = 64 << 20;

/// The result of reading a file at an offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameRead {
    /// A payload, and the size of its frame.
    Frame(Vec<u8>, u64),
    /// A corrupt payload, and the size of its frame.
    Damaged(u64),
    /// The end of the frames; `torn` if undecodable bytes follow.
    End {
        /// Whether undecodable bytes follow.
        torn: bool,
    },
}

/// Appends a frame.
pub(super) fn write(payload: &[u8], to: &mut Vec<u8>) -> Result<(), String> {
    if payload.len() > PAYLOAD_MAX {
        return Err(format!("{} bytes at once are more than the {PAYLOAD_MAX} that are kept", payload.len()));
    }
    let start = to.len();
    // [`PAYLOAD_MAX`] is below 4 GiB.
    to.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    to.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let check = crc32c::crc32c(to.get(start..).unwrap_or_default());
    to.extend_from_slice(&check.to_le_bytes());
    to.extend_from_slice(payload);
    Ok(())
}

/// Reads the frame at an offset of a file with `end` bytes.
pub(super) fn read(file: &File, offset: u64, end: u64) -> io::Result<FrameRead> {
    let left = end.saturating_sub(offset);
    if left < HEADER as u64 {
        return Ok(FrameRead::End { torn: left > 0 });
    }
    let mut header = [0; HEADER];
    if !whole(file, &mut header, offset)? {
        return Ok(FrameRead::End { torn: true });
    }
    let word = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|b| <[u8; 4]>::try_from(b).ok());
        bytes.map_or(0, u32::from_le_bytes)
    };
    let len = word(0) as usize;
    let known = crc32c::crc32c(header.get(..8).unwrap_or_default()) == word(8);
    let total = (HEADER + len) as u64;
    if !known || len > PAYLOAD_MAX || total > left {
        return Ok(FrameRead::End { torn: true });
    }
    let mut payload = vec![0; len];
    if !whole(file, &mut payload, offset + HEADER as u64)? {
        return Ok(FrameRead::End { torn: true });
    }
    if crc32c::crc32c(&payload) != word(4) {
        return Ok(FrameRead::Damaged(total));
    }
    Ok(FrameRead::Frame(payload, total))
}

/// Fills a buffer. Returns false if the file ends before.
fn whole(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(buffer, offset) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

/// Entry point for fuzzing: corrects the checksums of headers, so that random bytes are read as
/// frames.
pub(super) fn fit(bytes: &mut [u8]) {
    let mut rest = bytes;
    while let Some((header, behind)) = rest.split_at_mut_checked(HEADER) {
        let Some((known, sum)) = header.split_at_mut_checked(8) else { return };
        sum.copy_from_slice(&crc32c::crc32c(known).to_le_bytes());
        let len = known.first_chunk().map_or(0, |len| u32::from_le_bytes(*len)) as usize;
        rest = behind.get_mut(len..).unwrap_or_default();
    }
}
