//! Blocks of a dictionary: some hundred terms in their order, and the contents of each.
//!
//! ```text
//! block   u32 crc32c of the rest | count of terms, of ones | length of the metas, of the tails, of both frames of zstd
//!         | frame: heads, metas | frame: tails | ones | lists                                     behind it: long lists
//! head    a byte: bytes kept of the term before (15: and more in the tail), bytes added less one (likewise)
//! meta    contents of the term; unless it is one: the length of its list and in the lowest bit whether it lies behind the block
//! tail    what was added
//! ones    contents of the terms that have one, all in the same number of bits
//! ```
//!
//! Most terms of configuration (addresses, numbers, hashes) are in one content: such a term takes a byte of its tail, two at
//! most, and the bits of its content. A long list is read only when it is asked for; it ends with its own checksum.

use super::super::codec::{Corrupt, Got, Input, put};
use super::postings;

/// Bytes of heads, metas and tails that are worth a block. Tests want many blocks.
const RAW_BYTES: usize = if cfg!(test) { 128 } else { 4 << 10 };
/// Bytes of one of these three in a block; a term has far fewer.
const RAW_BYTES_MAX: usize = 4 << 20;
/// A list with more bytes lies behind the block.
const NEAR_BYTES_MAX: usize = 256;
/// Bytes of the checksum behind a long list.
const CRC_BYTES: usize = 4;
/// What of a half of a head says that more follows.
const MORE: usize = 15;

/// Takes terms and makes a block of them.
pub(super) struct Builder {
    range: u32,
    count: usize,
    heads: Vec<u8>,
    metas: Vec<u8>,
    tails: Vec<u8>,
    ones: Vec<u32>,
    near: Vec<u8>,
    far: Vec<u8>,
    last: Vec<u8>,
    list: Vec<u8>,
    packer: zstd::bulk::Compressor<'static>,
}

impl Builder {
    /// For contents below `range`, with this level of zstd.
    pub(super) fn new(range: u32, level: i32) -> std::io::Result<Self> {
        Ok(Self {
            range,
            count: 0,
            heads: Vec::new(),
            metas: Vec::new(),
            tails: Vec::new(),
            ones: Vec::new(),
            near: Vec::new(),
            far: Vec::new(),
            last: Vec::new(),
            list: Vec::new(),
            packer: zstd::bulk::Compressor::new(level)?,
        })
    }

    /// Whether it has enough.
    pub(super) fn is_full(&self) -> bool {
        self.heads.len() + self.metas.len() + self.tails.len() >= RAW_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The last term that it took, in this block or before.
    pub(super) fn last(&self) -> &[u8] {
        &self.last
    }

    /// Takes a term, greater than the one before, and its contents, ascending.
    pub(super) fn add(&mut self, term: &[u8], contents: &[u32]) {
        let same = self.last.iter().zip(term).take_while(|(a, b)| a == b).count();
        let kept = if self.count == 0 { 0 } else { same };
        let added = term.get(kept..).unwrap_or_default();
        let less = added.len().saturating_sub(1);
        self.heads.push((kept.min(MORE) | less.min(MORE) << 4) as u8);
        for part in [kept, less] {
            if let Some(more) = part.checked_sub(MORE) {
                put(&mut self.tails, more as u64);
            }
        }
        self.tails.extend_from_slice(added);
        self.last.truncate(kept);
        self.last.extend_from_slice(added);
        self.count += 1;
        put(&mut self.metas, contents.len() as u64);
        if let [one] = contents {
            self.ones.push(*one);
            return;
        }
        self.list.clear();
        postings::put_list(&mut self.list, contents, self.range);
        let is_far = self.list.len() > NEAR_BYTES_MAX;
        put(&mut self.metas, (self.list.len() as u64) << 1 | u64::from(is_far));
        if is_far {
            self.far.extend_from_slice(&self.list);
            self.far.extend_from_slice(&crc32c::crc32c(&self.list).to_le_bytes());
        } else {
            self.near.extend_from_slice(&self.list);
        }
    }

    /// The block of what it took, appended, and what lies behind it. Gives the length of the block.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> std::io::Result<u32> {
        let from = out.len();
        let (metas, tails) = (self.metas.len(), self.tails.len());
        self.heads.append(&mut self.metas);
        let fronts = self.packer.compress(&self.heads)?;
        let packed = self.packer.compress(&self.tails)?;
        out.extend_from_slice(&[0; CRC_BYTES]);
        for number in [self.count, self.ones.len(), metas, tails, fronts.len(), packed.len()] {
            put(out, number as u64);
        }
        out.extend_from_slice(&fronts);
        out.extend_from_slice(&packed);
        postings::put_all(out, &self.ones, postings::width(self.range));
        out.append(&mut self.near);
        // A block has some kilobytes, but for terms of absurd length.
        let len = (out.len() - from) as u32;
        let crc = crc32c::crc32c(out.get(from + CRC_BYTES..).unwrap_or_default());
        if let Some(head) = out.get_mut(from..from + CRC_BYTES) {
            head.copy_from_slice(&crc.to_le_bytes());
        }
        out.append(&mut self.far);
        self.heads.clear();
        self.tails.clear();
        self.ones.clear();
        self.count = 0;
        Ok(len)
    }
}

/// Where the contents of a term are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    /// The number of one.
    One(usize),
    /// Bytes of the block.
    Near(usize, usize),
    /// Bytes behind the block.
    Far(u64, usize),
}

/// A block that is read, term by term. It keeps its memory from block to block.
pub(super) struct Block {
    unpacker: zstd::bulk::Decompressor<'static>,
    /// As on disk.
    pub(super) bytes: Vec<u8>,
    fronts: Vec<u8>,
    tails: Vec<u8>,
    range: u32,
    count: usize,
    ones: usize,
    /// Of the next term.
    at: usize,
    meta_at: usize,
    tail_at: usize,
    one: usize,
    near: usize,
    far: u64,
    /// The term, and what of it was in the one before.
    term: Vec<u8>,
    kept: usize,
    contents: u32,
    list: List,
}

impl Block {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            unpacker: zstd::bulk::Decompressor::new()?,
            bytes: Vec::new(),
            fronts: Vec::new(),
            tails: Vec::new(),
            range: 0,
            count: 0,
            ones: 0,
            at: 0,
            meta_at: 0,
            tail_at: 0,
            one: 0,
            near: 0,
            far: 0,
            term: Vec::new(),
            kept: 0,
            contents: 0,
            list: List::One(0),
        })
    }

    /// Begins with the block in [`Block::bytes`], of a segment with contents below `range`.
    pub(super) fn begin(&mut self, range: u32) -> Got<()> {
        // Should it fail, there is no term.
        self.count = 0;
        self.at = 0;
        let mut input = Input::new(&self.bytes);
        let crc = u32::from_le_bytes(input.array()?);
        let rest = self.bytes.get(CRC_BYTES..).unwrap_or_default();
        if crc32c::crc32c(rest) != crc {
            return Err(Corrupt("words as they were written: their checksum differs"));
        }
        let mut size = || input.u32().map(|size| size as usize);
        let (count, ones, metas, tails) = (size()?, size()?, size()?, size()?);
        let (fronts_packed, tails_packed) = (size()?, size()?);
        if count.max(metas).max(tails) > RAW_BYTES_MAX {
            return Err(Corrupt("words of a size that can be unpacked"));
        }
        let fronts_packed = input.take(fronts_packed)?;
        let tails_packed = input.take(tails_packed)?;
        unpack(&mut self.unpacker, fronts_packed, count + metas, &mut self.fronts)?;
        unpack(&mut self.unpacker, tails_packed, tails, &mut self.tails)?;
        self.ones = self.bytes.len() - input.len();
        self.near = self.ones.saturating_add(postings::bytes_of_all(ones, postings::width(range)));
        self.range = range;
        self.count = count;
        self.meta_at = count;
        self.tail_at = 0;
        self.one = 0;
        self.far = 0;
        self.term.clear();
        Ok(())
    }

    /// Reads bytes as if they had been unpacked: for fuzzing.
    pub(super) fn read_unpacked(bytes: &[u8]) -> std::io::Result<()> {
        let mut block = Self::new()?;
        let count = bytes.len() / 4;
        let (fronts, tails) = bytes.split_at(count * 2);
        block.fronts.extend_from_slice(fronts);
        block.tails.extend_from_slice(tails);
        block.bytes.extend_from_slice(bytes);
        (block.count, block.meta_at, block.near, block.range) = (count, count, count, 1 << 20);
        while let Ok(true) = block.next() {
            let _ = block.contents(bytes, |content| assert!(content < 1 << 20));
        }
        Ok(())
    }

    /// Goes to the next term; says whether there is one.
    pub(super) fn next(&mut self) -> Got<bool> {
        if self.at >= self.count {
            return Ok(false);
        }
        let head = usize::from(*self.fronts.get(self.at).ok_or(Corrupt("a term"))?);
        let rest = self.tails.get(self.tail_at..).unwrap_or_default();
        let mut tail = Input::new(rest);
        let (mut kept, mut less) = (head & MORE, head >> 4);
        if kept == MORE {
            kept += tail.u32()? as usize;
        }
        if less == MORE {
            less += tail.u32()? as usize;
        }
        if kept > self.term.len() {
            return Err(Corrupt("a term that begins like the one before"));
        }
        self.term.truncate(kept);
        self.term.extend_from_slice(tail.take(less + 1)?);
        self.kept = kept;
        self.tail_at += rest.len() - tail.len();

        let rest = self.fronts.get(self.meta_at..).unwrap_or_default();
        let mut meta = Input::new(rest);
        self.contents = meta.u32()?;
        if self.contents == 1 {
            self.list = List::One(self.one);
            self.one += 1;
        } else {
            let size = meta.varint()?;
            let len = (size >> 1) as usize;
            if size & 1 == 0 {
                self.list = List::Near(self.near, len);
                self.near = self.near.saturating_add(len);
            } else {
                self.list = List::Far(self.far, len);
                self.far = self.far.saturating_add(len as u64).saturating_add(CRC_BYTES as u64);
            }
        }
        self.meta_at += rest.len() - meta.len();
        self.at += 1;
        Ok(true)
    }

    /// The term.
    pub(super) fn term(&self) -> &[u8] {
        &self.term
    }

    /// How many bytes of it the term before has too.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// The bytes behind the block that its contents need: where they begin, and how many.
    pub(super) fn far(&self) -> Option<(u64, usize)> {
        match self.list {
            List::Far(at, len) => Some((at, len.saturating_add(CRC_BYTES))),
            List::One(_) | List::Near(..) => None,
        }
    }

    /// Calls `each` for the contents of the term; `far` are the bytes behind the block, where it needs them.
    pub(super) fn contents(&self, far: &[u8], mut each: impl FnMut(u32)) -> Got<()> {
        const WANTED: Corrupt = Corrupt("the contents of a term");
        let list = match self.list {
            List::One(at) => {
                let ones = self.bytes.get(self.ones..).ok_or(WANTED)?;
                let one = postings::one_of_all(ones, at, postings::width(self.range)).ok_or(WANTED)?;
                if one >= self.range {
                    return Err(WANTED);
                }
                each(one);
                return Ok(());
            }
            List::Near(at, len) => self.bytes.get(at..).and_then(|rest| rest.get(..len)).ok_or(WANTED)?,
            List::Far(_, len) => {
                let (list, crc) = far.split_at_checked(len).ok_or(WANTED)?;
                if crc != crc32c::crc32c(list).to_le_bytes() {
                    return Err(Corrupt("contents of a term as they were written: their checksum differs"));
                }
                list
            }
        };
        postings::each(list, self.contents, self.range, each)
    }
}

fn unpack(
    unpacker: &mut zstd::bulk::Decompressor<'_>,
    packed: &[u8],
    len: usize,
    to: &mut Vec<u8>,
) -> Got<()> {
    to.clear();
    to.reserve(len);
    match unpacker.decompress_to_buffer(packed, to) {
        Ok(got) if got == len => Ok(()),
        _ => Err(Corrupt("words that unpack")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    type Terms = BTreeMap<Vec<u8>, BTreeSet<u32>>;

    fn terms() -> impl Strategy<Value = Terms> {
        let term = prop_oneof![
            "[a-c]{1,6}".prop_map(String::into_bytes),
            "[ab]{14,40}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 1..4),
        ];
        let contents = prop_oneof![
            proptest::collection::btree_set(0_u32..10_000, 1),
            proptest::collection::btree_set(0_u32..10_000, 1..40),
            (0_u32..3_000).prop_map(|from| (from..from + 2_500).step_by(1 + from as usize % 2).collect()),
        ];
        proptest::collection::btree_map(term, contents, 1..40)
    }

    fn build(terms: &Terms, range: u32) -> (Vec<u8>, usize) {
        let mut builder = Builder::new(range, 3).unwrap();
        for (term, contents) in terms {
            builder.add(term, &contents.iter().copied().collect::<Vec<_>>());
        }
        let mut out = Vec::new();
        let len = builder.finish(&mut out).unwrap() as usize;
        assert!(builder.is_empty());
        (out, len)
    }

    fn read(bytes: &[u8], len: usize, range: u32) -> Got<Terms> {
        let (block, behind) = bytes.split_at(len);
        let mut read = Block::new().unwrap();
        read.bytes.extend_from_slice(block);
        read.begin(range)?;
        let mut terms = Terms::new();
        while read.next()? {
            let far =
                read.far().map_or(Some(&[][..]), |(at, len)| behind.get(at as usize..at as usize + len));
            let mut contents = BTreeSet::new();
            read.contents(far.unwrap_or_default(), |content| assert!(contents.insert(content)))?;
            assert!(terms.last_key_value().is_none_or(|(last, _)| last.as_slice() < read.term()));
            terms.insert(read.term().to_vec(), contents);
        }
        Ok(terms)
    }

    proptest! {
        #[test]
        fn whatever_was_written_is_read(terms in terms(), range in 10_000_u32..5_000_000) {
            let (bytes, len) = build(&terms, range);
            prop_assert_eq!(read(&bytes, len, range), Ok(terms));
        }

        #[test]
        fn bytes_that_were_changed_are_refused(terms in terms(), at: proptest::sample::Index, to: u8) {
            let (mut bytes, len) = build(&terms, 10_000);
            let at = at.index(bytes.len());
            let was = std::mem::replace(&mut bytes[at], to);
            prop_assert_eq!(read(&bytes, len, 10_000).is_ok(), was == to);
        }
    }

    #[test]
    fn no_payload_makes_it_panic() {
        let terms: Terms = [("vm.swappiness", 3), ("vm.dirty_ratio", 3)]
            .map(|(term, content)| (term.as_bytes().to_vec(), BTreeSet::from([content, 9])))
            .into();
        let (bytes, len) = build(&terms, 10);
        for at in CRC_BYTES..len {
            for to in 0..=255 {
                let mut bytes = bytes.clone();
                bytes[at] = to;
                let crc = crc32c::crc32c(&bytes[CRC_BYTES..len]).to_le_bytes();
                bytes[..CRC_BYTES].copy_from_slice(&crc);
                let mut block = Block::new().unwrap();
                block.bytes = bytes;
                if block.begin(10).is_ok() {
                    while let Ok(true) = block.next() {
                        let _ = block.contents(&[], |_| ());
                    }
                }
            }
        }
    }
}
