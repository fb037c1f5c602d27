//! Where contents lie on disk, and the way to them.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::block::{Index, unpack};
use super::content::{Content, Key};
use super::files::Role;
use super::frame::read_at;
use crate::error::{At, Error};

/// Bytes of unpacked blocks that are remembered, and how many.
const CACHE_BYTES_MAX: usize = 16 << 20;
const CACHE_BLOCKS_MAX: usize = 1_024;

/// A file that has contents.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) role: Role,
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    source: u32,
    at: u64,
    packed: u32,
    crc: u32,
    raw: u32,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    block: u32,
    start: u32,
    len: u32,
}

/// Where contents lie.
pub(super) struct Contents {
    dir: PathBuf,
    sources: Vec<Source>,
    blocks: Vec<Block>,
    places: HashMap<u32, Place>,
    /// Ordinals by key, for a writer.
    keys: Option<HashMap<Key, u32>>,
    cache: Mutex<Cache>,
}

/// The bytes of one content.
pub(super) struct Bytes {
    block: Arc<Vec<u8>>,
    start: usize,
    len: usize,
}

impl Bytes {
    pub(super) fn get(&self) -> &[u8] {
        self.block.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

/// What a file with contents holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Bytes on disk.
    pub(super) packed: u64,
    /// Bytes of all contents.
    pub(super) all: u64,
    /// Bytes of those that are wanted.
    pub(super) wanted: u64,
}

impl Contents {
    pub(super) fn new(dir: PathBuf, with_keys: bool) -> Self {
        Self {
            dir,
            sources: Vec::new(),
            blocks: Vec::new(),
            places: HashMap::new(),
            keys: with_keys.then(HashMap::new),
            cache: Mutex::new(Cache::new(CACHE_BYTES_MAX)),
        }
    }

    /// Remembers more, or less, of what was unpacked.
    pub(super) fn remember(&self, bytes: usize) {
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = Cache::new(bytes);
    }

    pub(super) fn sources(&self) -> &[Source] {
        &self.sources
    }

    pub(super) fn add_source(&mut self, source: Source) -> u32 {
        self.sources.push(source);
        // There are no more of them than open files.
        self.sources.len() as u32 - 1
    }

    /// Adds a block of a file, and where in it that begins. What nobody has is not found by its key: its words may be gone.
    pub(super) fn add_block(&mut self, source: u32, at: u64, index: &Index, live: impl Fn(u32) -> bool) {
        // Blocks are in memory; a block has at most RAW_BYTES_MAX bytes.
        let (block, raw) = (self.blocks.len() as u32, index.raw_bytes() as u32);
        self.blocks.push(Block { source, at, packed: index.packed, crc: index.crc, raw });
        let mut start = 0;
        for entry in &index.entries {
            self.places.insert(entry.ordinal, Place { block, start, len: entry.len });
            start += entry.len;
            if let Some(keys) = self.keys.as_mut().filter(|_| live(entry.ordinal)) {
                keys.insert(entry.key, entry.ordinal);
            }
        }
    }

    /// The ordinal of the content with a key.
    pub(super) fn ordinal(&self, key: &Key) -> Option<u32> {
        self.keys.as_ref()?.get(key).copied()
    }

    /// What each file holds, by source, of the contents that are wanted.
    pub(super) fn held(&self, wanted: impl Fn(u32) -> bool) -> Vec<Held> {
        let mut held = vec![Held::default(); self.sources.len()];
        for block in &self.blocks {
            if let Some(held) = held.get_mut(block.source as usize) {
                held.packed += u64::from(block.packed);
            }
        }
        for (ordinal, place) in &self.places {
            if let Some(held) = self.source_of(place).and_then(|source| held.get_mut(source)) {
                held.all += u64::from(place.len);
                held.wanted += if wanted(*ordinal) { u64::from(place.len) } else { 0 };
            }
        }
        held
    }

    fn source_of(&self, place: &Place) -> Option<usize> {
        self.blocks.get(place.block as usize).map(|block| block.source as usize)
    }

    /// The file that a content is in, by its place among the sources.
    pub(super) fn source(&self, ordinal: u32) -> Option<usize> {
        self.source_of(self.places.get(&ordinal)?)
    }

    /// The contents that are there.
    pub(super) fn ordinals(&self) -> impl Iterator<Item = u32> {
        self.places.keys().copied()
    }

    /// Puts ordinals into the order in which they lie on disk, so that each block is unpacked once.
    pub(super) fn sort(&self, ordinals: &mut [u32]) {
        ordinals.sort_by_cached_key(|ordinal| {
            self.places.get(ordinal).map_or((u32::MAX, 0), |place| (place.block, place.start))
        });
    }

    /// The bytes of a content.
    pub(super) fn bytes(&self, ordinal: u32) -> Result<Bytes, Error> {
        let lost = || Error::Broken { path: self.dir.clone(), what: format!("content {ordinal} is lost") };
        let place = *self.places.get(&ordinal).ok_or_else(lost)?;
        let block = self.blocks.get(place.block as usize).ok_or_else(lost)?;
        let unpacked = self.block(place.block, block)?;
        Ok(Bytes { block: unpacked, start: place.start as usize, len: place.len as usize })
    }

    fn block(&self, number: u32, block: &Block) -> Result<Arc<Vec<u8>>, Error> {
        let found = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(number);
        if let Some(found) = found {
            return Ok(found);
        }
        let Some(source) = self.sources.get(block.source as usize) else {
            return Err(Error::Broken { path: self.dir.clone(), what: "contents of no file".to_owned() });
        };
        let broken = |what: &str| Error::Broken {
            path: source.path.clone(),
            what: format!("no {what}, at byte {}", block.at),
        };
        let packed = packed(source, block)?;
        let unpacked = unpack(&packed, block.crc, block.raw as usize).map_err(|e| broken(e.0))?;
        let unpacked = Arc::new(unpacked);
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).put(number, &unpacked);
        Ok(unpacked)
    }

    /// Whether all blocks of a file are as they were written.
    pub(super) fn is_whole(&self, at: usize) -> bool {
        let Some(source) = self.sources.get(at) else { return true };
        let mut blocks = self.blocks.iter().filter(|block| block.source as usize == at);
        blocks.all(|block| packed(source, block).is_ok_and(|bytes| crc32c::crc32c(&bytes) == block.crc))
    }

    /// The text of a content; says whether it has one.
    pub(super) fn text(&self, ordinal: u32, into: &mut String) -> Result<bool, Error> {
        let bytes = self.bytes(ordinal)?;
        let text = Content::text_of(bytes.get()).map_err(|e| Error::Broken {
            path: self.dir.clone(),
            what: format!("content {ordinal} has no {}", e.0),
        })?;
        text.unwrap_or_default().clone_into(into);
        Ok(text.is_some())
    }

    /// A content.
    pub(super) fn content(&self, ordinal: u32) -> Result<Content, Error> {
        let bytes = self.bytes(ordinal)?;
        Content::decode(bytes.get()).map_err(|e| Error::Broken {
            path: self.dir.clone(),
            what: format!("content {ordinal} has no {}", e.0),
        })
    }
}

/// A block as it is on disk; shorter where the file ends before it.
fn packed(source: &Source, block: &Block) -> Result<Vec<u8>, Error> {
    let mut packed = vec![0; block.packed as usize];
    let got = read_at(&source.file, &mut packed, block.at).at(&source.path)?;
    packed.truncate(got);
    Ok(packed)
}

/// The blocks that were unpacked last, the newest first.
struct Cache {
    blocks: VecDeque<(u32, Arc<Vec<u8>>)>,
    bytes: usize,
    bytes_max: usize,
}

impl Cache {
    fn new(bytes_max: usize) -> Self {
        Self { blocks: VecDeque::new(), bytes: 0, bytes_max }
    }

    fn get(&mut self, number: u32) -> Option<Arc<Vec<u8>>> {
        let at = self.blocks.iter().position(|(n, _)| *n == number)?;
        if at > 0 {
            let found = self.blocks.remove(at)?;
            self.blocks.push_front(found);
        }
        self.blocks.front().map(|(_, block)| Arc::clone(block))
    }

    fn put(&mut self, number: u32, block: &Arc<Vec<u8>>) {
        self.bytes += block.len();
        self.blocks.push_front((number, Arc::clone(block)));
        while self.blocks.len() > 1 && (self.bytes > self.bytes_max || self.blocks.len() > CACHE_BLOCKS_MAX) {
            if let Some((_, old)) = self.blocks.pop_back() {
                self.bytes -= old.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_is_remembered() {
        let mut cache = Cache::new(25);
        for number in 0..3 {
            cache.put(number, &Arc::new(vec![number as u8; 10]));
            assert!(cache.get(0).is_some(), "{number}");
        }
        assert_eq!((cache.get(1), cache.bytes), (None, 20));
        assert_eq!(cache.get(2).map(|b| b.len()), Some(10));
        cache.put(3, &Arc::new(vec![0; 100]));
        assert_eq!(
            (cache.blocks.len(), cache.bytes),
            (1, 100),
            "a block that is larger than all is kept while it is used"
        );
    }
}
