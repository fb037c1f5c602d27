//! The index of a segment, and how it is rebuilt when it is damaged.

use std::sync::Arc;

use super::encode::put_members;
use crate::block::{self, Kind};
use crate::open::{Meta, Times};
use crate::varint::{Corrupt, Got, Input, put, put_bytes};
use crate::writer::VERSION;

/// The last bytes of a segment: offset and size of the index block, crc32c of both, and this.
const END_MAGIC: [u8; 8] = *b"MITRAEND";
pub(crate) const TRAILER_BYTES: usize = 24;

/// Where a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockRef {
    pub(crate) kind: Kind,
    /// The number of the entity in the schema of the file.
    pub(crate) entity: u8,
    pub(crate) offset: u64,
    /// Header included.
    pub(crate) bytes: u64,
    /// The numbers of the columns in the schema of the file.
    pub(crate) columns: Arc<[u32]>,
}

/// What is known of a segment without reading it.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub(crate) blocks: Vec<BlockRef>,
    pub(crate) meta: Arc<Meta>,
    pub(crate) frames: u32,
    pub(crate) first: Times,
    pub(crate) last: Times,
}

pub(crate) fn trailer(offset: u64, bytes: u64) -> [u8; TRAILER_BYTES] {
    let mut out = [0; TRAILER_BYTES];
    out[..8].copy_from_slice(&offset.to_le_bytes());
    out[8..12].copy_from_slice(&(bytes as u32).to_le_bytes());
    let crc = crc32c::crc32c(&out[..12]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out[16..].copy_from_slice(&END_MAGIC);
    out
}

/// Offset and size of the index block.
pub(crate) fn parse_trailer(bytes: &[u8]) -> Got<(u64, u64)> {
    let head: [u8; 8] = bytes.get(..8).and_then(|b| b.try_into().ok()).ok_or(Corrupt("a trailer"))?;
    let size: [u8; 4] = bytes.get(8..12).and_then(|b| b.try_into().ok()).ok_or(Corrupt("a trailer"))?;
    let (offset, size) = (u64::from_le_bytes(head), u64::from(u32::from_le_bytes(size)));
    if bytes == trailer(offset, size) { Ok((offset, size)) } else { Err(Corrupt("a trailer")) }
}

/// The payload of the index block: the format version, the number of frames, the first and the last times, the meta JSON, then for
/// each block kind, entity, bytes since the end of the one before, bytes, columns.
pub(crate) fn payload(blocks: &[BlockRef], times: &[Times], meta: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, u64::from(VERSION));
    put(&mut out, times.len() as u64);
    let first = times.first().copied().unwrap_or_default();
    first.put(&mut out, Times::default());
    times.last().copied().unwrap_or_default().put(&mut out, first);
    put_bytes(&mut out, meta);
    put(&mut out, blocks.len() as u64);
    let mut end = 0;
    for block in blocks {
        out.push(block.kind as u8);
        out.push(block.entity);
        put(&mut out, block.offset - end);
        put(&mut out, block.bytes);
        end = block.offset + block.bytes;
        put_members(&mut out, &block.columns);
    }
    out
}

pub(crate) fn members(input: &mut Input<'_>) -> Got<Vec<u32>> {
    let count = input.count(1)?;
    let mut members = Vec::with_capacity(count);
    let mut next = 0_u32;
    for _ in 0..count {
        let member = next.checked_add(input.u32()?).ok_or(Corrupt("a column number"))?;
        next = member.checked_add(1).ok_or(Corrupt("a column number"))?;
        members.push(member);
    }
    Ok(members)
}

impl Index {
    /// Reads the payload of the index block.
    pub(crate) fn parse(payload: &[u8]) -> Got<Index> {
        let mut input = Input::new(payload);
        if input.u32()? > VERSION {
            return Err(Corrupt("index of a known version"));
        }
        let frames = input.u32()?;
        let first = Times::get(&mut input, Times::default())?;
        let last = Times::get(&mut input, first)?;
        let meta = Arc::new(meta(input.bytes()?)?);
        let mut blocks = Vec::new();
        let mut end = 0_u64;
        for _ in 0..input.count(5)? {
            // Kinds of later versions are passed over.
            let kind = input.byte()?;
            let entity = input.byte()?;
            let offset = end.checked_add(input.varint()?).ok_or(Corrupt("an offset"))?;
            let bytes = input.varint()?;
            end = offset.checked_add(bytes).ok_or(Corrupt("an offset"))?;
            let columns = members(&mut input)?.into();
            if let Some(kind) = Kind::from_byte(kind) {
                blocks.push(BlockRef { kind, entity, offset, bytes, columns });
            }
        }
        Ok(Index { blocks, meta, frames, first, last })
    }

    /// Finds the blocks in the bytes of a segment whose index is damaged.
    pub(crate) fn scan(bytes: &[u8]) -> Got<Index> {
        let mut blocks = Vec::new();
        let mut found_meta = None;
        let mut found_times: Option<Vec<Times>> = None;
        let mut at = 0;
        while let Some(offset) = block::find(bytes, at) {
            let rest = bytes.get(offset..).unwrap_or_default();
            at = offset + 1;
            let Ok(header) = block::Header::parse(rest) else { continue };
            // A block whose payload is damaged is left out; its header may be payload of something else, so the
            // search goes on right behind it.
            let Ok((_, payload)) = block::unpack(rest) else { continue };
            at = offset + header.total_bytes() as usize;
            let mut columns = Arc::default();
            match header.kind {
                Kind::Meta => found_meta = found_meta.or_else(|| meta(&payload).ok()),
                Kind::Times => found_times = found_times.or_else(|| parse_times(&payload).ok()),
                Kind::Columns => {
                    let mut input = Input::new(&payload);
                    let Ok(members) = input.varint().and_then(|_| members(&mut input)) else { continue };
                    columns = members.into();
                }
                _ => {}
            }
            blocks.push(BlockRef {
                kind: header.kind,
                entity: header.entity,
                offset: offset as u64,
                bytes: header.total_bytes(),
                columns,
            });
        }
        let meta = Arc::new(found_meta.ok_or(Corrupt("undamaged description of the host"))?);
        let times = found_times.ok_or(Corrupt("undamaged times"))?;
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Err(Corrupt("at least one frame"));
        };
        Ok(Index { blocks, meta, frames: times.len() as u32, first: *first, last: *last })
    }

    /// Takes from another index what is the same there. A month has thousands of segments, which hardly differ in it.
    pub(crate) fn share(&mut self, other: &Index) {
        if self.meta == other.meta {
            self.meta = Arc::clone(&other.meta);
        }
        for (own, theirs) in self.blocks.iter_mut().zip(&other.blocks) {
            if own.columns == theirs.columns {
                own.columns = Arc::clone(&theirs.columns);
            }
        }
        self.blocks.shrink_to_fit();
    }
}

pub(crate) fn meta(json: &[u8]) -> Got<Meta> {
    serde_json::from_slice(json).map_err(|_| Corrupt("a description of the host"))
}

/// Reads the payload of the times block. Times go strictly up.
pub(crate) fn parse_times(payload: &[u8]) -> Got<Vec<Times>> {
    let mut input = Input::new(payload);
    let count = input.count(5)?;
    let mut times: Vec<Times> = Vec::with_capacity(count);
    let mut expected = Times::default();
    let mut before = Times::default();
    for _ in 0..count {
        let now = Times::get(&mut input, expected)?;
        if !times.is_empty() && !now.follows(before) {
            return Err(Corrupt("times that go up"));
        }
        let step = now.boot_us.wrapping_sub(before.boot_us);
        expected = Times { boot_us: now.boot_us.wrapping_add(step), flags: 0, ..now };
        before = now;
        times.push(now);
    }
    Ok(times)
}
