//! Blocks: contents that are compressed together.
//!
//! ```text
//! index:  count | for each: signed difference of its ordinal to the last one, length, 20 bytes of key
//!         | length of the block | u32 crc32c of the block
//! block:  one zstd frame over the contents, one after the other
//! ```
//!
//! The index is read when a store is opened, the block when one of its contents is asked for.

use std::io;

use super::codec::{Corrupt, Got, Input, put, put_signed};
use super::content::{CONTENT_BYTES_MAX, Key};
use super::table::CONTENTS_MAX;

/// The kind of the frame of an index in a pack; the block follows the frame.
pub(super) const INDEX: u8 = 5;

/// Bytes of a block before compression: it is closed when it has more than it was meant to have, and one content may be large.
pub(super) const RAW_BYTES_MAX: usize = 2 * CONTENT_BYTES_MAX;
/// Bytes that a content takes in an index at least.
const ENTRY_BYTES_MIN: usize = 22;

/// One content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) ordinal: u32,
    /// Bytes before compression.
    pub(super) len: u32,
    pub(super) key: Key,
}

/// What a block holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) entries: Vec<Entry>,
    /// Bytes of the block on disk.
    pub(super) packed: u32,
    pub(super) crc: u32,
}

impl Index {
    /// Bytes of the block before compression.
    pub(super) fn raw_bytes(&self) -> usize {
        self.entries.iter().map(|e| e.len as usize).sum()
    }

    /// Appends it.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put(out, self.entries.len() as u64);
        let mut last = 0;
        for entry in &self.entries {
            put_signed(out, i64::from(entry.ordinal) - last);
            last = i64::from(entry.ordinal);
            put(out, u64::from(entry.len));
            out.extend_from_slice(&entry.key);
        }
        put(out, u64::from(self.packed));
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    /// Reads it.
    pub(super) fn read(input: &mut Input<'_>) -> Got<Self> {
        let count = input.count(ENTRY_BYTES_MIN)?;
        let mut entries = Vec::with_capacity(count);
        let (mut last, mut raw) = (0i64, 0usize);
        for _ in 0..count {
            last = last.wrapping_add(input.signed()?);
            let ordinal = u32::try_from(last).ok().filter(|o| *o < CONTENTS_MAX);
            let ordinal = ordinal.ok_or(Corrupt("the ordinal of a content"))?;
            let len = input.u32()?;
            raw = raw.saturating_add(len as usize);
            entries.push(Entry { ordinal, len, key: input.array()? });
        }
        if raw > RAW_BYTES_MAX {
            return Err(Corrupt("a block of a size that can be unpacked"));
        }
        Ok(Self { entries, packed: input.u32()?, crc: u32::from_le_bytes(input.array()?) })
    }
}

/// Takes contents and makes a block of them.
pub(super) struct Builder {
    entries: Vec<Entry>,
    raw: Vec<u8>,
    packer: zstd::bulk::Compressor<'static>,
}

impl Builder {
    /// One for blocks of this level of zstd.
    pub(super) fn new(level: i32) -> io::Result<Self> {
        Ok(Self { entries: Vec::new(), raw: Vec::new(), packer: zstd::bulk::Compressor::new(level)? })
    }

    /// Bytes that it has taken for this block.
    pub(super) fn bytes(&self) -> usize {
        self.raw.len()
    }

    /// Takes a content of at most [`CONTENT_BYTES_MAX`] bytes.
    pub(super) fn add(&mut self, ordinal: u32, key: Key, content: &[u8]) {
        debug_assert!(content.len() <= CONTENT_BYTES_MAX);
        self.entries.push(Entry { ordinal, len: content.len() as u32, key });
        self.raw.extend_from_slice(content);
    }

    /// The block of what it has taken since the last one; nothing where it has taken nothing.
    pub(super) fn finish(&mut self) -> io::Result<Option<(Index, Vec<u8>)>> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        let block = self.packer.compress(&self.raw)?;
        self.raw.clear();
        let index = Index {
            entries: std::mem::take(&mut self.entries),
            // At most a little more than RAW_BYTES_MAX.
            packed: block.len() as u32,
            crc: crc32c::crc32c(&block),
        };
        Ok(Some((index, block)))
    }
}

/// The contents of a block.
pub(super) fn unpack(block: &[u8], crc: u32, raw_bytes: usize) -> Got<Vec<u8>> {
    if crc32c::crc32c(block) != crc {
        return Err(Corrupt("contents as they were written: their checksum differs"));
    }
    let raw = zstd::bulk::decompress(block, raw_bytes).map_err(|_| Corrupt("contents that unpack"))?;
    if raw.len() == raw_bytes { Ok(raw) } else { Err(Corrupt("contents of the length that was announced")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::embedded::content::key;

    proptest! {
        #[test]
        fn whatever_was_packed_is_unpacked(
            contents in proptest::collection::vec((0u32..CONTENTS_MAX, any::<Vec<u8>>()), 1..20)
        ) {
            let mut builder = Builder::new(1).unwrap();
            for (ordinal, content) in &contents {
                builder.add(*ordinal, key(content), content);
            }
            let (index, block) = builder.finish().unwrap().unwrap();
            prop_assert!(builder.finish().unwrap().is_none());
            let mut out = Vec::new();
            index.put(&mut out);
            prop_assert_eq!(Index::read(&mut Input::new(&out)), Ok(index.clone()));
            for (entry, (ordinal, content)) in index.entries.iter().zip(&contents) {
                prop_assert_eq!((entry.ordinal, entry.len as usize, entry.key), (*ordinal, content.len(), key(content)));
            }
            let raw = unpack(&block, index.crc, index.raw_bytes()).unwrap();
            prop_assert_eq!(raw, contents.iter().flat_map(|(_, c)| c.clone()).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Index::read(&mut Input::new(&bytes));
            let _ = unpack(&bytes, crc32c::crc32c(&bytes), 100);
        }
    }

    #[test]
    fn a_block_that_was_changed_is_refused() {
        let mut builder = Builder::new(1).unwrap();
        builder.add(3, key(b"vm.swappiness = 60"), b"vm.swappiness = 60");
        let (index, mut block) = builder.finish().unwrap().unwrap();
        assert!(unpack(&block, index.crc, index.raw_bytes() + 1).is_err());
        block[4] ^= 1;
        assert!(unpack(&block, index.crc, index.raw_bytes()).is_err());
    }
}
