//! What is new of a batch, on its way into frames of the log.

use std::collections::HashMap;

use super::super::batch::{BATCH, Batch as Frame};
use super::super::block::{Builder, Index};
use super::super::content::Key;
use super::super::frame;
use super::super::table::{CONTENTS_MAX, State};
use crate::backend::Batch;

/// Bytes of a block before compression, and zstd's level.
const BLOCK_BYTES: usize = 64 << 10;
const LEVEL: i32 = 1;
/// Bytes of contents and number of rows after which a batch goes on in another frame.
const FRAME_BYTES: usize = 16 << 20;
const FRAME_ROWS: usize = 16_384;

/// What is new, on its way into frames.
pub(super) struct News {
    frame: Frame,
    builder: Builder,
    blocks: Vec<(Index, Vec<u8>)>,
    /// Bytes of the contents of this frame.
    bytes: usize,
    /// The ordinals of contents that are new.
    fresh: HashMap<Key, u32>,
    next: u32,
    /// Rows of all frames.
    pub(super) rows: usize,
    out: Vec<u8>,
}

impl News {
    pub(super) fn new(batch: &Batch<'_>, known_before_ns: Option<i64>, next: u32) -> std::io::Result<Self> {
        let frame =
            Frame { host: batch.host.to_owned(), at_ns: batch.at_ns, known_before_ns, rows: Vec::new() };
        Ok(Self {
            frame,
            builder: Builder::new(LEVEL)?,
            blocks: Vec::new(),
            bytes: 0,
            fresh: HashMap::new(),
            next,
            rows: 0,
            out: Vec::new(),
        })
    }

    /// The ordinal of a content, which is added where it is new.
    pub(super) fn content(&mut self, known: Option<u32>, key: Key, bytes: &[u8]) -> std::io::Result<u32> {
        if let Some(ordinal) = known.or_else(|| self.fresh.get(&key).copied()) {
            return Ok(ordinal);
        }
        if self.next >= CONTENTS_MAX {
            return Err(std::io::Error::other("an index has no room for more contents; begin a new one"));
        }
        let ordinal = self.next;
        self.next += 1;
        self.fresh.insert(key, ordinal);
        self.bytes += bytes.len();
        self.builder.add(ordinal, key, bytes);
        if self.builder.bytes() >= BLOCK_BYTES {
            self.blocks.extend(self.builder.finish()?);
        }
        Ok(ordinal)
    }

    pub(super) fn row(&mut self, file: &str, state: State) -> std::io::Result<()> {
        self.rows += 1;
        self.frame.rows.push((file.to_owned(), state));
        if self.bytes >= FRAME_BYTES || self.frame.rows.len() >= FRAME_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.blocks.extend(self.builder.finish()?);
        let payload = self.frame.encode(&self.blocks, LEVEL)?;
        if payload.len() > frame::PAYLOAD_BYTES_MAX {
            return Err(std::io::Error::other("a document is too large to be kept"));
        }
        frame::put(&mut self.out, BATCH, &payload);
        self.blocks.clear();
        self.frame.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    /// The frames; one without rows says that the host was looked at.
    pub(super) fn finish(mut self) -> std::io::Result<Vec<u8>> {
        if !self.frame.rows.is_empty() || self.out.is_empty() {
            self.flush()?;
        }
        Ok(self.out)
    }
}
