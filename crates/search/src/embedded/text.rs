//! The words and facts of distinct contents on disk, in tantivy's files below `DIR/text`.
//!
//! ```text
//! field    what                                                         how
//! content  words of the text, lowercased: see crate::analysis           postings with positions
//! fact     everything else that is asked of a content: see terms.rs     postings
//! ordinal  which content it is                                          a column
//! ```
//!
//! One document of tantivy is one content, however many hosts have it on however many days. All of it is derived: what a
//! commit says is the first ordinal that is not in it, the rest is read from the store ([`super::fresh`]) until the next
//! commit, and an index of another format is thrown away and made again. Nothing is ranked, so nothing is kept for that.

mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tantivy::columnar::Column;
use tantivy::directory::error::{LockError, OpenReadError, OpenWriteError};
use tantivy::index::{InvertedIndexReader, SegmentId};
use tantivy::postings::{BlockSegmentPostings, Postings, SegmentPostings, TermInfo};
use tantivy::schema::{Field, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing, TextOptions};
use tantivy::termdict::TermStreamer;
use tantivy::{DocSet, SegmentReader, TERMINATED, TantivyError};
use tantivy_fst::Automaton;

use super::dictionary::{Behind, Part, Phrase, Take, Wanted, behind};
use crate::analysis::Words;
use crate::error::Error;
use crate::query::Bound;

pub(crate) use writer::TextWriter;

/// The folder within that of the store.
pub(crate) const FOLDER: &str = "text";

/// Of the schema, the terms and the analysis of words. Another one is made again.
const FORMAT: u32 = 1;

/// Times that opening is tried again when files went away meanwhile, because a writer merged them, or cannot be read yet.
const REOPEN_MAX: u32 = 5;
/// The time between.
const REOPEN_PAUSE: Duration = Duration::from_millis(2);

const CONTENT: Field = Field::from_field_id(0);
const FACT: Field = Field::from_field_id(1);
const ORDINAL: Field = Field::from_field_id(2);
const ORDINAL_NAME: &str = "ordinal";

fn schema() -> Schema {
    let indexed = |tokenizer: &str, record| {
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(tokenizer)
            .set_index_option(record)
            .set_fieldnorms(false);
        TextOptions::default().set_indexing_options(indexing)
    };
    let mut schema = Schema::builder();
    schema.add_text_field("content", indexed(Words::NAME, IndexRecordOption::WithFreqsAndPositions));
    schema.add_text_field("fact", indexed("raw", IndexRecordOption::Basic));
    schema.add_u64_field(ORDINAL_NAME, NumericOptions::default().set_fast());
    schema.build()
}

/// What a commit says: the format and the first ordinal that is not in it.
fn payload(next: u32) -> String {
    format!("{FORMAT} {next}")
}

fn committed(payload: Option<&str>) -> Option<u32> {
    let (format, next) = payload?.split_once(' ')?;
    (format.parse() == Ok(FORMAT)).then(|| next.parse().ok())?
}

/// The index of words, to be asked.
pub(crate) struct Text {
    dir: PathBuf,
    index: Option<tantivy::Index>,
    segments: Vec<Segment>,
    committed: u32,
}

struct Segment {
    id: SegmentId,
    words: Arc<InvertedIndexReader>,
    facts: Arc<InvertedIndexReader>,
    ordinals: Column<u64>,
}

impl Text {
    /// Opens the index for writing, in a folder of its own; makes it where there is none or one that cannot be used.
    pub(crate) fn open_writer(dir: &Path) -> Result<TextWriter, Error> {
        TextWriter::open(dir)
    }

    /// Opens the index for questions. Where there is none, nothing is committed.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let mut text = Self { dir: dir.to_owned(), index: None, segments: Vec::new(), committed: 0 };
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
                    // The writer may have begun anew.
                    self.index = None;
                }
                Err(e) => {
                    self.clear();
                    return match failed(&self.dir, e) {
                        // All of it is derived: without it contents are read from the store.
                        Error::Broken { .. } => Ok(()),
                        Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                            Ok(())
                        }
                        e => Err(e),
                    };
                }
            }
        }
    }

    fn try_refresh(&mut self) -> Result<(), TantivyError> {
        if self.index.is_none() {
            self.clear();
            if !self.dir.join("meta.json").exists() {
                return Ok(());
            }
            self.index = Some(tantivy::Index::open_in_dir(&self.dir)?);
        }
        let Some(index) = &self.index else { return Ok(()) };
        // Segments are read after the payload, so they hold what it says, or more.
        let metas = index.load_metas()?;
        let Some(committed) = committed(metas.payload.as_deref()) else {
            self.clear();
            return Ok(());
        };
        let wanted = index.searchable_segments()?;
        let mut segments = Vec::with_capacity(wanted.len());
        for segment in wanted {
            let id = segment.id();
            match self.segments.iter().position(|open| open.id == id) {
                Some(at) => segments.push(self.segments.swap_remove(at)),
                None => segments.push(Segment::open(id, &SegmentReader::open(&segment)?)?),
            }
        }
        self.segments = segments;
        self.committed = committed;
        Ok(())
    }

    /// The contents that have any of the wanted terms. Those that were deleted may be among them.
    pub(super) fn walk(&self, part: Part, wanted: &Wanted<'_>, take: &mut impl Take) -> Result<(), Error> {
        self.segments
            .iter()
            .try_for_each(|segment| segment.walk(part, wanted, take))
            .map_err(|e| failed(&self.dir, e))
    }

    /// The contents whose text has a phrase.
    pub(super) fn phrase(&self, phrase: &Phrase<'_>, mut take: impl FnMut(u32)) -> Result<(), Error> {
        self.segments
            .iter()
            .try_for_each(|segment| segment.phrase(phrase, &mut take))
            .map_err(|e| failed(&self.dir, e))
    }
}

impl Segment {
    fn open(id: SegmentId, reader: &SegmentReader) -> Result<Self, TantivyError> {
        Ok(Self {
            id,
            words: reader.inverted_index(CONTENT)?,
            facts: reader.inverted_index(FACT)?,
            ordinals: reader.fast_fields().u64(ORDINAL_NAME)?,
        })
    }

    fn walk(&self, part: Part, wanted: &Wanted<'_>, take: &mut impl Take) -> Result<(), TantivyError> {
        let index = match part {
            Part::Words => &*self.words,
            Part::Facts => &*self.facts,
        };
        let terms = index.terms();
        match wanted {
            Wanted::One(term) => {
                if let Some(info) = terms.get(term.as_bytes())? {
                    take.term(term);
                    self.contents(index, &info, &mut None, take)?;
                }
                Ok(())
            }
            Wanted::Between(low, high) => {
                let range = terms.range();
                let range = match low {
                    Bound::With(term) => range.ge(term),
                    Bound::Without(term) => range.gt(term),
                    Bound::Open => range,
                };
                let range = match high {
                    Bound::With(term) => range.le(term),
                    Bound::Without(term) => range.lt(term),
                    Bound::Open => range,
                };
                self.each(index, range.into_stream()?, take)
            }
            Wanted::Pattern { head, matcher } => {
                let literal = format!("{head}{}", matcher.literal());
                let found = terms.search(Behind::new(head, matcher)).ge(&literal);
                let found = match behind(&literal) {
                    Some(end) => found.lt(end),
                    None => found,
                };
                self.each(index, found.into_stream()?, take)
            }
        }
    }

    fn each<A: Automaton>(
        &self,
        index: &InvertedIndexReader,
        mut stream: TermStreamer<'_, A>,
        take: &mut impl Take,
    ) -> Result<(), TantivyError> {
        let mut block = None;
        while let Some((term, info)) = stream.next() {
            // Only texts become terms.
            take.term(std::str::from_utf8(term).unwrap_or_default());
            self.contents(index, info, &mut block, take)?;
        }
        Ok(())
    }

    /// The contents of a term. `block` is kept from term to term, so that nothing is allocated for each.
    fn contents(
        &self,
        index: &InvertedIndexReader,
        info: &TermInfo,
        block: &mut Option<BlockSegmentPostings>,
        take: &mut impl Take,
    ) -> Result<(), TantivyError> {
        let postings = match block {
            Some(block) => {
                index.reset_block_postings_from_terminfo(info, block)?;
                block
            }
            None => block.insert(index.read_block_postings_from_terminfo(info, IndexRecordOption::Basic)?),
        };
        while !postings.docs().is_empty() {
            for doc in postings.docs() {
                if let Some(ordinal) = self.ordinal(*doc) {
                    take.content(ordinal);
                }
            }
            postings.advance();
        }
        Ok(())
    }

    fn ordinal(&self, doc: u32) -> Option<u32> {
        u32::try_from(self.ordinals.first(doc)?).ok()
    }

    fn phrase(&self, phrase: &Phrase<'_>, take: &mut impl FnMut(u32)) -> Result<(), TantivyError> {
        let mut lists: Vec<SegmentPostings> = Vec::with_capacity(phrase.words.len());
        for word in &phrase.words {
            let Some(info) = self.words.terms().get(word.as_bytes())? else { return Ok(()) };
            lists.push(
                self.words.read_postings_from_terminfo(&info, IndexRecordOption::WithFreqsAndPositions)?,
            );
        }
        let mut positions = vec![Vec::new(); lists.len()];
        let mut doc = 0;
        while let Some(both) = in_all(&mut lists, doc) {
            for (list, positions) in lists.iter_mut().zip(&mut positions) {
                list.positions(positions);
            }
            if phrase.fits(&positions)
                && let Some(ordinal) = self.ordinal(both)
            {
                take(ordinal);
            }
            doc = both + 1;
        }
        Ok(())
    }
}

/// The first document from `doc` on that all lists have.
fn in_all(lists: &mut [SegmentPostings], mut doc: u32) -> Option<u32> {
    if lists.is_empty() {
        return None;
    }
    loop {
        let mut furthest = doc;
        for list in lists.iter_mut() {
            let at = if list.doc() < furthest { list.seek(furthest) } else { list.doc() };
            if at == TERMINATED {
                return None;
            }
            furthest = at;
        }
        if lists.iter().all(|list| list.doc() == furthest) {
            return Some(furthest);
        }
        doc = furthest;
    }
}

/// What tantivy says, with the folder.
fn failed(dir: &Path, error: TantivyError) -> Error {
    let io = match &error {
        TantivyError::IoError(io) => Some(io),
        TantivyError::OpenReadError(OpenReadError::IoError { io_error, .. })
        | TantivyError::OpenWriteError(OpenWriteError::IoError { io_error, .. }) => Some(io_error),
        TantivyError::LockFailure(LockError::IoError(io), _) => Some(io),
        TantivyError::LockFailure(LockError::LockBusy, _) => {
            return Error::Locked { path: dir.to_owned(), pid: None };
        }
        _ => None,
    };
    match io {
        Some(io) => {
            let source = match io.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(io.kind(), io.to_string()),
            };
            Error::Io { path: dir.to_owned(), source }
        }
        None => Error::Broken { path: dir.to_owned(), what: error.to_string() },
    }
}

#[cfg(test)]
mod tests;
