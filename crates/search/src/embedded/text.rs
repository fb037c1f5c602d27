//! The words and facts of distinct contents on disk, in files below `DIR/text`.
//!
//! ```text
//! DIR/text/commit            which segments count, and the first ordinal that is in none (commit.rs)
//! DIR/text/0000000007.words  a segment: the terms of the contents between two ordinals (segment.rs), in blocks (block.rs)
//!
//! words    words of the text, lowercased: see crate::analysis           the contents that have each (postings.rs)
//! facts    everything else that is asked of a content: see terms.rs     likewise
//! ```
//!
//! However many hosts have a content on however many days, its terms are here once. All of it is derived: what a commit says is
//! the first ordinal that is not in it, the rest is read from the store ([`super::fresh`]) until the next commit, and an index
//! of another format is thrown away and made again. Nothing is ranked, so nothing is kept for that; and where in a text a word
//! stands is not kept either: for a phrase the texts that have its words are read (`leaves.rs`).
//!
//! A term that one content has takes three or four bytes, and of terms in configuration most are in one: addresses, numbers,
//! hashes. A dictionary that is a graph, beside lists with their places, took four times as much in all.

mod block;
mod commit;
mod gather;
mod merge;
mod postings;
mod segment;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use self::block::Block;
use self::commit::Commit;
use self::segment::Segment;
use super::dictionary::{Part, Take, Wanted};
use crate::error::{At, Error};

pub(crate) use writer::TextWriter;

/// The folder within that of the store.
pub(crate) const FOLDER: &str = "text";

/// Of the files, the terms and the analysis of words. Another one is made again; 1 was an index of tantivy.
const FORMAT: u32 = 2;

/// Times that opening is tried again when files went away meanwhile, because a writer merged them, or cannot be read yet.
const REOPEN_MAX: u32 = 5;
/// The time between.
const REOPEN_PAUSE: Duration = Duration::from_millis(2);

/// The index of words, to be asked.
pub(crate) struct Text {
    dir: PathBuf,
    epoch: u64,
    segments: Vec<Segment>,
    committed: u32,
    /// To read blocks with: whoever asks takes one and puts it back.
    blocks: Mutex<Vec<Block>>,
}

impl Text {
    /// Opens the index for writing, in a folder of its own; makes it where there is none or one that cannot be used.
    pub(crate) fn open_writer(dir: &Path) -> Result<TextWriter, Error> {
        TextWriter::open(dir)
    }

    /// Opens the index for questions. Where there is none, nothing is committed.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let mut text = Self {
            dir: dir.to_owned(),
            epoch: 0,
            segments: Vec::new(),
            committed: 0,
            blocks: Mutex::default(),
        };
        text.refresh()?;
        Ok(text)
    }

    /// Has nothing, until it is refreshed.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.committed = 0;
    }

    /// The first ordinal that is not in it.
    pub(crate) fn committed(&self) -> u32 {
        self.committed
    }

    /// Sees what was committed since.
    pub(crate) fn refresh(&mut self) -> Result<(), Error> {
        let mut tried = 0;
        loop {
            match self.try_refresh() {
                Ok(()) => return Ok(()),
                Err(_) if tried < REOPEN_MAX => {
                    tried += 1;
                    std::thread::sleep(REOPEN_PAUSE);
                }
                Err(e) => {
                    self.clear();
                    return match e {
                        // All of it is derived: without it contents are read from the store.
                        Error::Broken { .. } => Ok(()),
                        Error::Io { source, .. }
                            if matches!(
                                source.kind(),
                                io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
                            ) =>
                        {
                            Ok(())
                        }
                        e => Err(e),
                    };
                }
            }
        }
    }

    fn try_refresh(&mut self) -> Result<(), Error> {
        let Some(commit) = Commit::read(&self.dir)? else {
            self.clear();
            return Ok(());
        };
        if commit.epoch != self.epoch {
            self.clear();
            self.epoch = commit.epoch;
        }
        let mut segments = Vec::with_capacity(commit.segments.len());
        for number in commit.segments {
            match self.segments.iter().position(|open| open.number == number) {
                Some(at) => segments.push(self.segments.swap_remove(at)),
                None => segments.push(Segment::open(&self.dir, number)?),
            }
        }
        self.segments = segments;
        self.committed = commit.next;
        Ok(())
    }

    /// The contents that have any of the wanted terms. Those that were deleted may be among them.
    pub(super) fn walk(&self, part: Part, wanted: &Wanted<'_>, take: &mut impl Take) -> Result<(), Error> {
        let block = self.blocks.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut block = match block {
            Some(block) => block,
            None => Block::new().at(&self.dir)?,
        };
        let walked =
            self.segments.iter().try_for_each(|segment| segment.walk(part, wanted, &mut block, take));
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        walked
    }
}

/// Calls `take` for every word and every fact of an index on disk, as bytes: for tests of what must not be there.
pub fn each_term(dir: &Path, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
    let text = Text::open(&dir.join(FOLDER))?;
    for segment in &text.segments {
        for part in [Part::Words, Part::Facts] {
            let mut terms = segment.terms(part)?;
            while terms.next()? {
                take(terms.term());
            }
        }
    }
    Ok(())
}

/// Reads bytes as a block and as a commit: for fuzzing.
pub(super) fn read_anything(bytes: &[u8]) {
    let _ = Block::read_unpacked(bytes);
    let _ = Commit::decode(bytes);
}

#[cfg(test)]
mod tests;
