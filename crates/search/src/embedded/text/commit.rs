//! What a commit says: which segments count.
//!
//! ```text
//! DIR/text/commit   "MITRAICM" | u32 format | u64 of chance | first ordinal that is in no segment | count | numbers of the
//!                   segments, in the order of their ordinals | u32 crc32c of all that
//! ```
//!
//! It is written under another name and renamed; that makes it valid, and what it no longer names may go.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::Path;

use super::super::codec::{Corrupt, Got, Input, put};
use super::super::files;
use super::FORMAT;
use crate::error::{At, Error};

const MAGIC: [u8; 8] = *b"MITRAICM";
pub(super) const NAME: &str = "commit";
/// While it is written.
pub(super) const UNFINISHED: &str = "commit.tmp";

/// What a commit says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Commit {
    /// Made when the index was begun: in one that was begun anew the numbers mean other segments.
    pub(super) epoch: u64,
    /// The first ordinal that is in no segment.
    pub(super) next: u32,
    /// The numbers of the segments, in the order of their ordinals.
    pub(super) segments: Vec<u64>,
}

impl Commit {
    /// Of an index that has nothing yet.
    pub(super) fn anew() -> Self {
        Self { epoch: RandomState::new().hash_one(0), ..Self::default() }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        put(&mut out, u64::from(self.next));
        put(&mut out, self.segments.len() as u64);
        self.segments.iter().for_each(|number| put(&mut out, *number));
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Got<Self> {
        let (checked, crc) =
            bytes.split_at_checked(bytes.len().saturating_sub(4)).ok_or(Corrupt("commit"))?;
        let mut input = Input::new(checked);
        if input.array()? != MAGIC
            || u32::from_le_bytes(input.array()?) != FORMAT
            || crc != crc32c::crc32c(checked).to_le_bytes()
        {
            return Err(Corrupt("commit of this format"));
        }
        let epoch = u64::from_le_bytes(input.array()?);
        let next = input.u32()?;
        let count = input.count(1)?;
        let mut segments = Vec::with_capacity(count);
        for _ in 0..count {
            segments.push(input.varint()?);
        }
        input.end()?;
        Ok(Self { epoch, next, segments })
    }

    /// The commit of a folder; nothing where there is none, or one that cannot be used.
    pub(super) fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(NAME);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Self::decode(&bytes).ok()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).at(path),
        }
    }

    /// Makes it the one that counts.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Error> {
        let (path, unfinished) = (dir.join(NAME), dir.join(UNFINISHED));
        match std::fs::remove_file(&unfinished) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e).at(unfinished),
            _ => {}
        }
        let mut file = files::create(&unfinished).at(&unfinished)?;
        file.write_all(&self.encode()).and_then(|()| file.sync_all()).at(&unfinished)?;
        // The segments that it names have their names before it has its.
        files::sync_dir(dir)?;
        std::fs::rename(&unfinished, &path).at(&path)?;
        files::sync_dir(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Commit::read(dir.path()).unwrap(), None);
        for commit in [Commit::anew(), Commit { epoch: 5, next: u32::MAX, segments: vec![7, 3, u64::MAX] }] {
            commit.write(dir.path()).unwrap();
            assert_eq!(Commit::read(dir.path()).unwrap(), Some(commit.clone()));
            let bytes = commit.encode();
            for at in 0..bytes.len() {
                assert!(Commit::decode(&bytes[..at]).is_err());
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert!(Commit::decode(&changed).is_err());
            }
        }
    }

    #[test]
    fn one_of_another_format_is_none() {
        let mut bytes = Commit { epoch: 5, next: 17, segments: vec![1] }.encode();
        bytes[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        let end = bytes.len() - 4;
        let crc = crc32c::crc32c(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&crc);
        assert_eq!(Commit::decode(&bytes), Err(Corrupt("commit of this format")));
    }
}
