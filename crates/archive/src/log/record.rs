//! Records: the frames of the log around their payloads.

use crate::compress::{self, Compressor};
use crate::varint::{Corrupt, Got, Input, put};

/// The first bytes of a log; after them the version and a checksum of both.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"MITRALOG";
/// Bytes of the file header.
pub(crate) const FILE_HEADER_BYTES: usize = 16;
pub(crate) const MAGIC: [u8; 3] = *b"MLR";
pub(crate) const HEADER_BYTES: usize = 12;
/// The largest record that is read.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// Shorter payloads do not get smaller.
const PACK_FROM_BYTES: usize = 96;
const PACKED: u8 = 0x80;

/// The host and the columns.
pub(crate) const HEADER: u8 = 1;
/// A frame.
pub(crate) const FRAME: u8 = 2;

/// The header of a file: magic, version, crc32c of both.
pub(crate) fn file_header(magic: [u8; 8], version: u32) -> [u8; FILE_HEADER_BYTES] {
    let mut head = [0; FILE_HEADER_BYTES];
    head[..8].copy_from_slice(&magic);
    head[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc32c::crc32c(&head[..12]);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The version in the header of a file, if the header is intact.
pub(crate) fn file_version(bytes: &[u8], magic: [u8; 8]) -> Option<u32> {
    let head = bytes.get(..FILE_HEADER_BYTES)?;
    let version = u32::from_le_bytes(head[8..12].try_into().ok()?);
    (head == file_header(magic, version)).then_some(version)
}

/// Appends a record.
pub(crate) fn put_record(out: &mut Vec<u8>, kind: u8, payload: &[u8], compressor: &mut Compressor) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let packed = (payload.len() >= PACK_FROM_BYTES).then(|| compressor.compress(payload).ok()).flatten();
    let mut kind = kind;
    match packed {
        Some(packed) if packed.len() + 3 < payload.len() => {
            kind |= PACKED;
            put(out, payload.len() as u64);
            out.extend_from_slice(&packed);
        }
        _ => out.extend_from_slice(payload),
    }
    let len = (out.len() - start - HEADER_BYTES) as u32;
    let head = &mut out[start..];
    head[..3].copy_from_slice(&MAGIC);
    head[3] = kind;
    head[4..8].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[3..8]), &head[HEADER_BYTES..]);
    head[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// What stands at a place of a log.
pub(crate) enum Found<'a> {
    /// A whole record: kind, payload, and where the next one begins.
    Record(u8, std::borrow::Cow<'a, [u8]>, usize),
    /// The beginning of a record whose end is missing.
    Cut,
    /// No record.
    Nothing,
}

/// Reads the record at `at`.
pub(crate) fn record_at(bytes: &[u8], at: usize) -> Found<'_> {
    let rest = bytes.get(at..).unwrap_or_default();
    if rest.len() < HEADER_BYTES {
        return if MAGIC.starts_with(&rest[..rest.len().min(3)]) || rest.starts_with(&MAGIC) {
            Found::Cut
        } else {
            Found::Nothing
        };
    }
    let word = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
    let len = word(4) as usize;
    if rest[..3] != MAGIC || len > RECORD_BYTES_MAX {
        return Found::Nothing;
    }
    let Some(stored) = rest.get(HEADER_BYTES..HEADER_BYTES + len) else { return Found::Cut };
    if crc32c::crc32c_append(crc32c::crc32c(&rest[3..8]), stored) != word(8) {
        return Found::Nothing;
    }
    match unpack(rest[3], stored) {
        Ok((kind, payload)) => Found::Record(kind, payload, at + HEADER_BYTES + len),
        Err(_) => Found::Nothing,
    }
}

fn unpack(kind: u8, stored: &[u8]) -> Got<(u8, std::borrow::Cow<'_, [u8]>)> {
    if kind & PACKED == 0 {
        return Ok((kind, stored.into()));
    }
    let mut input = Input::new(stored);
    let len = input.varint()? as usize;
    if len > RECORD_BYTES_MAX {
        return Err(Corrupt("a record of a size that can be unpacked"));
    }
    let packed = input.take(input.len())?;
    let payload = compress::decompress(packed, len).map_err(|_| Corrupt("a record that unpacks"))?;
    Ok((kind & !PACKED, payload.into()))
}

/// The next place at or after `from` where a whole record begins.
pub(crate) fn find(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        let hit = rest.windows(3).position(|window| window == MAGIC)?;
        if matches!(record_at(bytes, at + hit), Found::Record(..)) {
            return Some(at + hit);
        }
        at += hit + 1;
    }
}
