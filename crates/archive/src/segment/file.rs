//! One segment, on disk or in memory.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::index::{BlockRef, Index, TRAILER_BYTES, parse_trailer};
use crate::block::{self, Kind};
use crate::elsewhere::{Elsewhere, Stretch, stretches};
use crate::error::{Error, Skipped};
use crate::log::record::{FILE_HEADER_BYTES, file_version};
use crate::schema::{self, Schema};
use crate::varint::{Corrupt, Got};
use crate::writer::{SEGMENT_MAGIC, VERSION};

/// The index of an ordinary segment is read together with the trailer.
const TAIL_BYTES: u64 = 8 << 10;
/// No segment is larger; a scan reads it whole.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

enum Source {
    Disk(PathBuf),
    Memory(Vec<u8>),
}

/// What tells a file from another one that has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(meta: &Metadata) -> Identity {
        Identity { inode: meta.ino(), bytes: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) }
    }
}

/// A segment whose index has been read.
pub(crate) struct Segment {
    source: Source,
    /// The name of the file, or of the log that it was read from.
    pub(crate) name: String,
    pub(crate) index: Index,
    pub(crate) bytes: u64,
    /// Of a file whose index was whole.
    identity: Option<Identity>,
    /// Where blocks are that are not here.
    elsewhere: Option<Arc<dyn Elsewhere>>,
}

/// The schemas that were read before, by checksum: hardly ever more than one.
#[derive(Default)]
pub(crate) struct SchemaCache(Mutex<Vec<(u32, Arc<Schema>)>>);

impl SchemaCache {
    fn get(&self, crc: u32) -> Option<Arc<Schema>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(of, _)| *of == crc).map(|(_, schema)| Arc::clone(schema))
    }

    fn parse(&self, bytes: &[u8]) -> Got<Arc<Schema>> {
        let crc = crc32c::crc32c(bytes);
        if let Some(schema) = self.get(crc) {
            return Ok(schema);
        }
        let schema = Arc::new(Schema::parse(bytes)?);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((crc, Arc::clone(&schema)));
        Ok(schema)
    }
}

/// A segment that is open for reading, so that retention cannot take it away in the middle.
pub(crate) struct Opened<'a> {
    segment: &'a Segment,
    file: Option<File>,
    name: PathBuf,
    /// What turned out to be damaged.
    pub(crate) skipped: Vec<Skipped>,
    /// Why blocks that lie elsewhere could not be had.
    failed: Option<io::Error>,
}

impl Segment {
    /// Reads the index of a file, or rebuilds it.
    pub(crate) fn open(
        path: &Path,
        elsewhere: Option<Arc<dyn Elsewhere>>,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Option<Segment>, Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let identity = Identity::of(&file.metadata().map_err(Error::io("stat", path))?);
        let bytes = identity.bytes;
        let mut is_whole = true;
        let mut skip = |why: String| skipped.push(Skipped { file: path.to_path_buf(), offset: 0, why });
        let index = match indexed(&file, bytes).map_err(Error::io("read", path))? {
            Ok(index) => index,
            Err(Corrupt(wanted)) => {
                is_whole = false;
                if bytes > SEGMENT_BYTES_MAX {
                    skip(format!("the whole file: no {wanted}, and too large to search"));
                    return Ok(None);
                }
                let mut whole = vec![0; bytes as usize];
                file.read_exact_at(&mut whole, 0).map_err(Error::io("read", path))?;
                if let Some(version) = file_version(&whole, SEGMENT_MAGIC).filter(|v| *v > VERSION) {
                    let path = path.to_path_buf();
                    skip(Error::Version { path, found: version, known: VERSION }.to_string());
                    return Ok(None);
                }
                match Index::scan(&whole) {
                    Ok(index) => {
                        skip(format!("the index: no {wanted}; {} blocks were found", index.blocks.len()));
                        index
                    }
                    Err(Corrupt(wanted)) => {
                        skip(format!("the whole file: no {wanted}"));
                        return Ok(None);
                    }
                }
            }
        };
        let identity = is_whole.then_some(identity);
        let source = Source::Disk(path.to_path_buf());
        Ok(Some(Segment { source, name: file_name(path), index, bytes, identity, elsewhere }))
    }

    /// Whether it is of this file, which has not changed since. A sealed segment never does.
    pub(crate) fn is_of(&self, path: &Path, meta: &Metadata) -> bool {
        matches!(&self.source, Source::Disk(own) if own == path) && self.identity == Some(Identity::of(meta))
    }

    /// Reads the index of a segment in memory, which was made of this log.
    pub(crate) fn from_memory(bytes: Vec<u8>, log: &Path) -> Got<Segment> {
        let tail = bytes.len().checked_sub(TRAILER_BYTES).ok_or(Corrupt("a trailer"))?;
        let index = parse_trailer(&bytes[tail..]).and_then(|(offset, _)| {
            let block = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
            let (header, payload) = block::unpack(block.ok_or(Corrupt("an index"))?)?;
            if header.kind == Kind::Index { Index::parse(&payload) } else { Err(Corrupt("an index")) }
        });
        let index = index.or_else(|_| Index::scan(&bytes))?;
        let name = file_name(log);
        let (identity, elsewhere) = (None, None);
        Ok(Segment {
            bytes: bytes.len() as u64,
            source: Source::Memory(bytes),
            name,
            index,
            identity,
            elsewhere,
        })
    }

    /// Of a file on disk.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Disk(path) => Some(path),
            Source::Memory(_) => None,
        }
    }

    /// Whether it is a log that was read into memory.
    pub(crate) fn is_log(&self) -> bool {
        matches!(self.source, Source::Memory(_))
    }

    /// Opens the file.
    pub(crate) fn reading(&self) -> Result<Opened<'_>, Error> {
        let (file, name) = match &self.source {
            Source::Memory(_) => (None, PathBuf::from("log")),
            Source::Disk(path) => (Some(File::open(path).map_err(Error::io("open", path))?), path.clone()),
        };
        Ok(Opened { segment: self, file, name, skipped: Vec::new(), failed: None })
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Whether the index of a sealed segment is here, by which its blocks are found.
pub fn is_indexed(path: &Path) -> Result<bool, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let bytes = file.metadata().map_err(Error::io("stat", path))?.len();
    Ok(indexed(&file, bytes).map_err(Error::io("read", path))?.is_ok())
}

/// Whether every byte of a sealed segment is as it was written, by its own checksums.
pub fn is_intact(path: &Path) -> Result<bool, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let bytes = file.metadata().map_err(Error::io("stat", path))?.len();
    if bytes > SEGMENT_BYTES_MAX {
        return Ok(false);
    }
    let Ok(index) = indexed(&file, bytes).map_err(Error::io("read", path))? else { return Ok(false) };
    let mut whole = vec![0; bytes as usize];
    file.read_exact_at(&mut whole, 0).map_err(Error::io("read", path))?;
    let mut end = FILE_HEADER_BYTES as u64;
    for block in &index.blocks {
        let stored = usize::try_from(block.offset).ok().and_then(|offset| whole.get(offset..));
        // Blocks of later versions lie between those that are known.
        let is_next = block.offset >= end;
        end = block.offset.saturating_add(block.bytes);
        if !is_next || stored.is_none_or(|stored| block::check(stored) != Ok(block.bytes)) {
            return Ok(false);
        }
    }
    Ok(file_version(&whole, SEGMENT_MAGIC).is_some())
}

fn indexed(file: &File, bytes: u64) -> io::Result<Got<Index>> {
    let start = bytes.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; (bytes - start) as usize];
    file.read_exact_at(&mut tail, start)?;
    let Some(end) = tail.len().checked_sub(TRAILER_BYTES) else { return Ok(Err(Corrupt("trailer"))) };
    let (offset, size) = match parse_trailer(&tail[end..]) {
        Ok(place) => place,
        Err(corrupt) => return Ok(Err(corrupt)),
    };
    if offset.checked_add(size) != Some(bytes - TRAILER_BYTES as u64) {
        return Ok(Err(Corrupt("index in front of the trailer")));
    }
    let block = if offset >= start {
        tail[(offset - start) as usize..end].to_vec()
    } else {
        let mut block = vec![0; size as usize];
        file.read_exact_at(&mut block, offset)?;
        block
    };
    Ok(block::unpack(&block).and_then(|(header, payload)| {
        if header.kind == Kind::Index { Index::parse(&payload) } else { Err(Corrupt("index")) }
    }))
}

impl Opened<'_> {
    pub(crate) fn index(&self) -> &Index {
        &self.segment.index
    }

    /// The payload of the block with this number in the index; noted as skipped if it is damaged.
    pub(crate) fn block(&mut self, number: usize) -> Option<Vec<u8>> {
        let block = self.segment.index.blocks.get(number)?;
        let unpacked = self.unpacked(block).or_else(|corrupt| match &self.segment.elsewhere {
            Some(elsewhere) => {
                let wanted = stretches(&self.segment.name, std::iter::once(block), self.segment.bytes);
                match elsewhere.bring(&wanted) {
                    Ok(()) => self.unpacked(block),
                    Err(error) => {
                        self.failed.get_or_insert(error);
                        Err(corrupt)
                    }
                }
            }
            None => Err(corrupt),
        });
        match unpacked {
            Ok(payload) => Some(payload),
            Err(corrupt) => {
                self.skip(number, corrupt);
                None
            }
        }
    }

    fn unpacked(&self, block: &BlockRef) -> Got<Vec<u8>> {
        let (header, payload) = match (&self.file, &self.segment.source) {
            (Some(_), _) => block::unpack(&self.stored(block)?)?,
            (None, Source::Memory(bytes)) => {
                block::unpack(bytes.get(block.offset as usize..).unwrap_or_default())?
            }
            (None, Source::Disk(_)) => return Err(Corrupt("an open file")),
        };
        if header.kind == block.kind && header.entity == block.entity {
            Ok(payload)
        } else {
            Err(Corrupt("the block that the index announces"))
        }
    }

    /// A block of a file as it stands there.
    fn stored(&self, block: &BlockRef) -> Got<Vec<u8>> {
        let file = self.file.as_ref().ok_or(Corrupt("an open file"))?;
        // The size is bounded by the file, so a damaged index cannot ask for more memory than that.
        let size = block.bytes.min(self.segment.bytes.saturating_sub(block.offset)) as usize;
        let mut bytes = vec![0; size];
        let read = file.read_exact_at(&mut bytes, block.offset);
        read.map(|()| bytes).map_err(|_| Corrupt("a block that can be read"))
    }

    /// Where those of these blocks lie that are not here; of a kind that is there twice, the first.
    pub(crate) fn missing(&self, is_wanted: impl Fn(&BlockRef) -> bool) -> Vec<Stretch> {
        if self.segment.elsewhere.is_none() {
            return Vec::new();
        }
        let is_here = |block: &BlockRef| self.stored(block).is_ok_and(|stored| block::check(&stored).is_ok());
        let mut singles = Vec::new();
        let mut is_first = |block: &BlockRef| {
            let single = (block.kind, block.entity);
            let is_known =
                block.kind != Kind::Columns && block.kind != Kind::Events && singles.contains(&single);
            singles.push(single);
            !is_known
        };
        let wanted = self.segment.index.blocks.iter().filter(|block| is_wanted(block) && is_first(block));
        stretches(&self.segment.name, wanted.filter(|block| !is_here(block)), self.segment.bytes)
    }

    /// Why something that lies elsewhere could not be had.
    pub(crate) fn failed(&mut self) -> Option<Error> {
        self.failed.take().map(Error::io("fetch", &self.name))
    }

    /// Notes that a block could not be used.
    pub(crate) fn skip(&mut self, number: usize, Corrupt(wanted): Corrupt) {
        let Some(block) = self.segment.index.blocks.get(number) else { return };
        let why = format!("block {} of entity {}: no {wanted}", block.kind.name(), block.entity);
        self.skipped.push(Skipped { file: self.name.clone(), offset: block.offset, why });
    }

    /// Reads a block that is there twice; what `parse` refuses counts as damaged.
    pub(crate) fn either<T>(
        &mut self,
        kind: Kind,
        entity: u8,
        mut parse: impl FnMut(Vec<u8>) -> Got<T>,
    ) -> Option<T> {
        for number in 0..self.segment.index.blocks.len() {
            let block = &self.segment.index.blocks[number];
            if block.kind != kind || block.entity != entity {
                continue;
            }
            let Some(payload) = self.block(number) else { continue };
            match parse(payload) {
                Ok(parsed) => return Some(parsed),
                Err(corrupt) => self.skip(number, corrupt),
            }
        }
        None
    }

    /// The schema, shared with other segments where it is the same. Where it is damaged any other of the same
    /// checksum does, that of this version included.
    pub(crate) fn schema(&mut self, cache: &SchemaCache) -> Option<Arc<Schema>> {
        let crc = self.segment.index.meta.schema_crc;
        if let Some(schema) = cache.get(crc) {
            return Some(schema);
        }
        let stored = self.either(Kind::Schema, block::NO_ENTITY, |payload| cache.parse(&payload));
        stored.or_else(|| {
            let current = schema::current();
            (crc32c::crc32c(current) == crc).then(|| cache.parse(current).ok()).flatten()
        })
    }
}
