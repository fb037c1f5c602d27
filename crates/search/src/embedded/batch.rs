//! One batch of the log: what was new of a host when it was looked at.
//!
//! ```text
//! payload:  count of blocks | for each: index, block      (block.rs)
//!           | length of the rows, the rows in a zstd frame
//! rows:     host | signed time in ns | maybe the time of the look before | count
//!           | for each: file, ordinal of its content, traits (1 gone, 2 volatile, 4 event, 8 stat follows),
//!             signed difference of its time to that of the batch
//!             | stat: size, mode, uid, gid, maybe user, maybe group, inode, signed mtime to time, signed ctime to mtime
//! ```
//!
//! It names everything by itself but for contents that are there already, so that the loss of one batch costs no other.

use std::io;

use super::block::Index;
use super::codec::{Corrupt, Got, Input, put, put_maybe_near, put_maybe_text, put_signed, put_text};
use super::table::{CONTENTS_MAX, State};
use crate::document::Stat;

/// The kind of its frame.
pub(super) const BATCH: u8 = 4;

/// Bytes of the rows of a batch before compression.
const ROWS_BYTES_MAX: usize = 128 << 20;
/// Bytes that a row takes at least.
const ROW_BYTES_MIN: usize = 4;

const GONE: u8 = 1;
const VOLATILE: u8 = 2;
const EVENT: u8 = 4;
const STAT: u8 = 8;

/// The traits of a state as one byte.
pub(super) fn traits_of(gone: bool, volatile: bool, event: bool, stat: bool) -> u8 {
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    bit(gone, GONE) | bit(volatile, VOLATILE) | bit(event, EVENT) | bit(stat, STAT)
}

/// Gone, volatile, event, and whether a stat follows.
pub(super) fn read_traits(traits: u8) -> Got<(bool, bool, bool, bool)> {
    if traits > GONE | VOLATILE | EVENT | STAT {
        return Err(Corrupt("traits of a row that are known"));
    }
    Ok((traits & GONE != 0, traits & VOLATILE != 0, traits & EVENT != 0, traits & STAT != 0))
}

/// What was new of a host when it was looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Batch {
    pub(super) host: String,
    pub(super) at_ns: i64,
    pub(super) known_before_ns: Option<i64>,
    /// File names and their states, all since the time of the batch or a little later.
    pub(super) rows: Vec<(String, State)>,
}

impl Batch {
    /// The payload with blocks of new contents.
    pub(super) fn encode(&self, blocks: &[(Index, Vec<u8>)], level: i32) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        put(&mut out, blocks.len() as u64);
        for (index, block) in blocks {
            index.put(&mut out);
            out.extend_from_slice(block);
        }
        let rows = self.encode_rows();
        if rows.len() > ROWS_BYTES_MAX {
            return Err(io::Error::other("a batch of so many documents cannot be written at once"));
        }
        put(&mut out, rows.len() as u64);
        out.extend_from_slice(&zstd::bulk::compress(&rows, level)?);
        Ok(out)
    }

    fn encode_rows(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.host);
        put_signed(&mut out, self.at_ns);
        put_maybe_near(&mut out, self.known_before_ns, self.at_ns);
        put(&mut out, self.rows.len() as u64);
        for (file, state) in &self.rows {
            put_text(&mut out, file);
            put(&mut out, u64::from(state.content));
            out.push(traits_of(state.gone, state.volatile, state.event, state.stat.is_some()));
            put_signed(&mut out, state.since_ns.wrapping_sub(self.at_ns));
            if let Some(stat) = &state.stat {
                put_stat(&mut out, stat, self.at_ns);
            }
        }
        out
    }

    /// Reads a payload: the batch, and its blocks with where each begins in the payload.
    pub(super) fn decode(payload: &[u8]) -> Got<(Self, Vec<(Index, usize)>)> {
        let mut input = Input::new(payload);
        let count = input.count(6)?;
        let mut blocks = Vec::with_capacity(count);
        for _ in 0..count {
            let index = Index::read(&mut input)?;
            let at = payload.len() - input.len();
            input.take(index.packed as usize)?;
            blocks.push((index, at));
        }
        let bytes = usize::try_from(input.varint()?).unwrap_or(usize::MAX);
        if bytes > ROWS_BYTES_MAX {
            return Err(Corrupt("rows of a size that can be unpacked"));
        }
        let packed = input.take(input.len())?;
        let rows = zstd::bulk::decompress(packed, bytes).map_err(|_| Corrupt("rows that unpack"))?;
        Ok((Self::decode_rows(&rows)?, blocks))
    }

    /// The rows, unpacked.
    pub(super) fn decode_rows(bytes: &[u8]) -> Got<Self> {
        let mut input = Input::new(bytes);
        let host = input.text()?.to_owned();
        let at_ns = input.signed()?;
        let known_before_ns = input.maybe_near(at_ns)?;
        let count = input.count(ROW_BYTES_MIN)?;
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let file = input.text()?.to_owned();
            let content = input.u32()?;
            if content >= CONTENTS_MAX {
                return Err(Corrupt("the ordinal of a content"));
            }
            let (gone, volatile, event, has_stat) = read_traits(input.byte()?)?;
            let since_ns = at_ns.wrapping_add(input.signed()?);
            let stat = if has_stat { Some(read_stat(&mut input, at_ns)?) } else { None };
            let until_ns = None;
            rows.push((
                file,
                State { content, stat, since_ns, until_ns, known_before_ns, gone, volatile, event },
            ));
        }
        input.end()?;
        Ok(Self { host, at_ns, known_before_ns, rows })
    }
}

fn put_stat(out: &mut Vec<u8>, stat: &Stat, at_ns: i64) {
    put(out, stat.size);
    put(out, u64::from(stat.mode));
    put(out, u64::from(stat.uid));
    put(out, u64::from(stat.gid));
    put_maybe_text(out, stat.user.as_deref());
    put_maybe_text(out, stat.group.as_deref());
    put(out, stat.inode);
    put_signed(out, stat.mtime_ns.wrapping_sub(at_ns));
    put_signed(out, stat.ctime_ns.wrapping_sub(stat.mtime_ns));
}

fn read_stat(input: &mut Input<'_>, at_ns: i64) -> Got<Stat> {
    let mut stat = Stat {
        size: input.varint()?,
        mode: input.u32()?,
        uid: input.u32()?,
        gid: input.u32()?,
        user: input.maybe_text()?.map(str::to_owned),
        group: input.maybe_text()?.map(str::to_owned),
        inode: input.varint()?,
        mtime_ns: at_ns.wrapping_add(input.signed()?),
        ctime_ns: 0,
    };
    stat.ctime_ns = stat.mtime_ns.wrapping_add(input.signed()?);
    Ok(stat)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::embedded::block::Builder;
    use crate::embedded::content::key;

    pub(in super::super) fn stat() -> impl Strategy<Value = Stat> {
        let numbers = (any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>());
        let names = (any::<Option<String>>(), any::<Option<String>>());
        (numbers, names, any::<i64>(), any::<i64>()).prop_map(
            |((size, mode, uid, gid, inode), (user, group), mtime_ns, ctime_ns)| Stat {
                size,
                mode,
                uid,
                gid,
                user,
                group,
                inode,
                mtime_ns,
                ctime_ns,
            },
        )
    }

    fn state(known_before_ns: Option<i64>) -> impl Strategy<Value = State> {
        (0..CONTENTS_MAX, proptest::option::of(stat()), any::<i64>(), any::<[bool; 3]>()).prop_map(
            move |(content, stat, since_ns, [gone, volatile, event])| State {
                content,
                stat,
                since_ns,
                until_ns: None,
                known_before_ns,
                gone,
                volatile,
                event,
            },
        )
    }

    fn batch() -> impl Strategy<Value = Batch> {
        (any::<String>(), any::<i64>(), any::<Option<i64>>()).prop_flat_map(
            |(host, at_ns, known_before_ns)| {
                let rows = proptest::collection::vec((any::<String>(), state(known_before_ns)), 0..8);
                rows.prop_map(move |rows| Batch { host: host.clone(), at_ns, known_before_ns, rows })
            },
        )
    }

    proptest! {
        #[test]
        fn whatever_was_written_is_read(batch in batch(), contents in proptest::collection::vec(any::<Vec<u8>>(), 0..4)) {
            let mut builder = Builder::new(1).unwrap();
            let mut blocks = Vec::new();
            for (ordinal, content) in (0..).zip(&contents) {
                builder.add(ordinal, key(content), content);
                blocks.extend(builder.finish().unwrap());
            }
            let payload = batch.encode(&blocks, 1).unwrap();
            let (read, places) = Batch::decode(&payload).unwrap();
            prop_assert_eq!(read, batch);
            prop_assert_eq!(places.len(), blocks.len());
            for ((index, at), (written, block)) in places.iter().zip(&blocks) {
                prop_assert_eq!(index, written);
                prop_assert_eq!(&payload[*at..*at + index.packed as usize], &**block);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Batch::decode(&bytes);
            let _ = Batch::decode_rows(&bytes);
        }

        #[test]
        fn rows_that_were_changed_do_not_make_it_panic(
            batch in batch(),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut rows = batch.encode_rows();
            for (at, byte) in changes {
                let at = at.index(rows.len());
                rows[at] = byte;
            }
            let _ = Batch::decode_rows(&rows);
        }

        #[test]
        fn rows_that_were_cut_are_refused(batch in batch(), at in any::<proptest::sample::Index>()) {
            let rows = batch.encode_rows();
            prop_assert!(Batch::decode_rows(&rows[..at.index(rows.len())]).is_err());
        }
    }
}
