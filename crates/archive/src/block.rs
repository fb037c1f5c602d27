//! Blocks: the parts of a sealed segment, each with its own checksum.
//!
//! ```text
//! 0  u32 magic "MBLK"      12 u32 bytes after unpacking
//! 4  u8  kind              16 u32 crc32c of the stored bytes
//! 5  u8  entity, or 255    20 u32 crc32c of bytes 0 to 19
//! 6  u8  0 stored, 1 zstd  24 the stored bytes
//! 7  u8  0                 (all little endian)
//! 8  u32 bytes as stored
//! ```

use crate::compress::{self, Compressor};
use crate::varint::{Corrupt, Got};

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The host and the session, as JSON.
    Meta = 1,
    /// The names of the metrics.
    Schema = 2,
    /// When the frames were taken.
    Times = 3,
    /// The texts.
    Texts = 4,
    /// The rows of one entity: keys, and in which frames they were present.
    Rows = 5,
    /// Some columns of one entity.
    Columns = 6,
    /// The events.
    Events = 7,
    /// Where the blocks are.
    Index = 8,
}

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::{Columns, Events, Index, Meta, Rows, Schema, Texts, Times};
        [Meta, Schema, Times, Texts, Rows, Columns, Events, Index]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Meta => "meta",
            Kind::Schema => "schema",
            Kind::Times => "times",
            Kind::Texts => "texts",
            Kind::Rows => "rows",
            Kind::Columns => "columns",
            Kind::Events => "events",
            Kind::Index => "index",
        }
    }
}

pub(crate) const MAGIC: [u8; 4] = *b"MBLK";
pub(crate) const HEADER_BYTES: usize = 24;
/// No entity: the block is of the whole segment.
pub(crate) const NO_ENTITY: u8 = u8::MAX;
/// The largest block that a reader unpacks. A writer stays far below.
pub(crate) const UNPACKED_BYTES_MAX: usize = 256 << 20;

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) entity: u8,
    pub(crate) packed: bool,
    pub(crate) stored_bytes: u32,
    pub(crate) unpacked_bytes: u32,
    pub(crate) crc: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Header {
    pub(crate) fn parse(bytes: &[u8]) -> Got<Header> {
        let head = bytes.get(..HEADER_BYTES).ok_or(Corrupt("a block header"))?;
        if head[..4] != MAGIC || crc32c::crc32c(&head[..20]) != u32_at(head, 20) {
            return Err(Corrupt("a block header"));
        }
        let kind = Kind::from_byte(head[4]).ok_or(Corrupt("a known kind of block"))?;
        if head[6] > 1 {
            return Err(Corrupt("a known way of packing"));
        }
        Ok(Header {
            kind,
            entity: head[5],
            packed: head[6] == 1,
            stored_bytes: u32_at(head, 8),
            unpacked_bytes: u32_at(head, 12),
            crc: u32_at(head, 16),
        })
    }

    fn bytes(self) -> [u8; HEADER_BYTES] {
        let mut head = [0; HEADER_BYTES];
        head[..4].copy_from_slice(&MAGIC);
        head[4] = self.kind as u8;
        head[5] = self.entity;
        head[6] = u8::from(self.packed);
        head[8..12].copy_from_slice(&self.stored_bytes.to_le_bytes());
        head[12..16].copy_from_slice(&self.unpacked_bytes.to_le_bytes());
        head[16..20].copy_from_slice(&self.crc.to_le_bytes());
        let crc = crc32c::crc32c(&head[..20]);
        head[20..24].copy_from_slice(&crc.to_le_bytes());
        head
    }

    pub(crate) fn total_bytes(self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.stored_bytes)
    }
}

/// Appends a block to `out`.
pub(crate) fn put(
    out: &mut Vec<u8>,
    kind: Kind,
    entity: u8,
    payload: &[u8],
    compressor: Option<&mut Compressor>,
) -> Header {
    let packed = compressor
        .filter(|_| payload.len() > 32)
        .and_then(|compressor| compressor.compress(payload).ok())
        .filter(|packed| packed.len() < payload.len());
    let stored: &[u8] = packed.as_deref().unwrap_or(payload);
    let header = Header {
        kind,
        entity,
        packed: packed.is_some(),
        stored_bytes: stored.len() as u32,
        unpacked_bytes: payload.len() as u32,
        crc: crc32c::crc32c(stored),
    };
    out.extend_from_slice(&header.bytes());
    out.extend_from_slice(stored);
    header
}

/// How long the block at the beginning of these bytes is, header included, if its checksums are right.
pub(crate) fn check(bytes: &[u8]) -> Got<u64> {
    stored(bytes).map(|(header, _)| header.total_bytes())
}

fn stored(bytes: &[u8]) -> Got<(Header, &[u8])> {
    let header = Header::parse(bytes)?;
    let stored = bytes
        .get(HEADER_BYTES..HEADER_BYTES + header.stored_bytes as usize)
        .ok_or(Corrupt("a whole block"))?;
    if crc32c::crc32c(stored) != header.crc {
        return Err(Corrupt("a block with the right checksum"));
    }
    Ok((header, stored))
}

/// The payload of a block whose bytes, header included, are given.
pub(crate) fn unpack(bytes: &[u8]) -> Got<(Header, Vec<u8>)> {
    let (header, stored) = stored(bytes)?;
    let unpacked = header.unpacked_bytes as usize;
    if !header.packed {
        return Ok((header, stored.to_vec()));
    }
    if unpacked > UNPACKED_BYTES_MAX {
        return Err(Corrupt("a block of a size that can be unpacked"));
    }
    let payload = compress::decompress(stored, unpacked).map_err(|_| Corrupt("a block that unpacks"))?;
    if payload.len() != unpacked {
        return Err(Corrupt("a block that unpacks to its size"));
    }
    Ok((header, payload))
}

/// The next place at or after `from` where a block header may begin.
pub(crate) fn find(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        let hit = rest.windows(4).position(|window| window == MAGIC)?;
        if Header::parse(&rest[hit..]).is_ok() {
            return Some(at + hit);
        }
        at += hit + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut compressor = Compressor::new(1).unwrap();
        let payload: Vec<u8> = (0..500_u32).map(|i| (i / 9) as u8).collect();
        let mut block = Vec::new();
        put(&mut block, Kind::Columns, 3, &payload, Some(&mut compressor));
        assert!(block.len() < payload.len());
        assert_eq!(unpack(&block).unwrap().1, payload);
        for bit in 0..block.len() * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(unpack(&bad).is_err(), "bit {bit}");
        }
    }
}
