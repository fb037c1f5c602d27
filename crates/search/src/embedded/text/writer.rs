//! Contents into tantivy.
//!
//! One thread cuts words; a segment is written at each commit, or when its memory is full. Segments are merged here, after a
//! commit and never beside one, so that a pass over a host costs what its contents cost.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tantivy::index::{IndexSettings, SegmentId};
use tantivy::indexer::{IndexWriterOptions, NoMergePolicy};
use tantivy::query::{ConstScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::Field;
use tantivy::schema::document::{ReferenceValue, ReferenceValueLeaf, Value};
use tantivy::{DocSet, IndexWriter, SegmentReader, TERMINATED, TantivyError};

use super::super::bits::Bits;
use super::super::store::Content;
use super::super::terms;
use super::{CONTENT, FACT, ORDINAL, ORDINAL_NAME, committed, failed, payload, schema};
use crate::analysis::Words;
use crate::error::{At, Error};

/// Bytes of memory for a segment before it is written. Only what a pass adds is used of it.
const MEMORY_MAX: usize = 128 << 20;

/// Segments of like size that are merged into one.
const MERGE_FROM: usize = 8;

/// Writes the index of words. There is one at a time; the lock of the store sees to that, and tantivy's own.
pub(crate) struct TextWriter {
    dir: PathBuf,
    index: tantivy::Index,
    /// While there is something to commit.
    writer: Option<IndexWriter<Entry>>,
    committed: u32,
    wanted: u32,
    dead: Vec<u32>,
}

impl TextWriter {
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(dir).at(dir)?;
        let (index, committed) = match usable(dir)? {
            Some(found) => found,
            None => (make(dir)?, 0),
        };
        index.tokenizers().register(Words::NAME, Words::default());
        Ok(Self { dir: dir.to_owned(), index, writer: None, committed, wanted: committed, dead: Vec::new() })
    }

    /// Throws all of it away.
    pub(crate) fn begin_anew(&mut self) -> Result<(), Error> {
        let dir = self.dir.clone();
        self.writer = None;
        make(&dir)?;
        *self = Self::open(&dir)?;
        Ok(())
    }

    /// The first ordinal that is not committed.
    pub(crate) fn committed(&self) -> u32 {
        self.committed
    }

    /// The next ordinal that wants to be added: those from [`TextWriter::committed`] again where a commit failed.
    pub(crate) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Adds a content. One that was added already is left out.
    pub(crate) fn add(&mut self, ordinal: u32, content: &Content) -> Result<(), Error> {
        if ordinal < self.wanted {
            return Ok(());
        }
        let entry = Entry::new(ordinal, content);
        let added = self.writer().and_then(|writer| writer.add_document(entry));
        self.outcome(added.map(|_| ()))?;
        self.wanted = ordinal.saturating_add(1);
        Ok(())
    }

    /// Takes a content out, with the next commit.
    pub(crate) fn delete(&mut self, ordinal: u32) {
        self.dead.push(ordinal);
    }

    /// Makes durable what was added; `next_ordinal` is the first that was not. Then what is small is merged.
    pub(crate) fn commit(&mut self, next_ordinal: u32) -> Result<(), Error> {
        if next_ordinal == self.committed && self.dead.is_empty() {
            return Ok(());
        }
        let done = self.try_commit(next_ordinal);
        self.outcome(done)?;
        self.committed = next_ordinal;
        self.wanted = next_ordinal;
        self.dead.clear();
        let merged = self.merge();
        self.share();
        // A writer holds memory and threads; most indexers have nothing to say for minutes.
        self.writer = None;
        merged.map_err(|e| failed(&self.dir, e))
    }

    /// After a failure nothing that was not committed is there any more.
    fn outcome<T>(&mut self, result: Result<T, TantivyError>) -> Result<T, Error> {
        if result.is_err() {
            self.writer = None;
            self.wanted = self.committed;
        }
        result.map_err(|e| failed(&self.dir, e))
    }

    fn writer(&mut self) -> Result<&mut IndexWriter<Entry>, TantivyError> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            empty => {
                let options = IndexWriterOptions::builder()
                    .num_worker_threads(1)
                    .num_merge_threads(1)
                    .memory_budget_per_thread(MEMORY_MAX)
                    .build();
                let writer = self.index.writer_with_options(options)?;
                writer.set_merge_policy(Box::new(NoMergePolicy));
                Ok(empty.insert(writer))
            }
        }
    }

    fn try_commit(&mut self, next_ordinal: u32) -> Result<(), TantivyError> {
        let mut dead = Bits::none(self.dead.iter().max().map_or(0, |last| last.saturating_add(1)));
        self.dead.iter().for_each(|ordinal| dead.set(*ordinal));
        let some = !self.dead.is_empty();
        let writer = self.writer()?;
        if some {
            writer.delete_query(Box::new(Dead(Arc::new(dead))))?;
        }
        let mut prepared = writer.prepare_commit()?;
        prepared.set_payload(&payload(next_ordinal));
        prepared.commit()?;
        Ok(())
    }

    /// Whoever may read the store may read this: tantivy makes these two files for their owner only.
    fn share(&self) {
        for name in ["meta.json", ".managed.json"] {
            // A reader that may not read them makes words itself.
            let _ = std::fs::set_permissions(self.dir.join(name), Permissions::from_mode(0o640));
        }
    }

    fn merge(&mut self) -> Result<(), TantivyError> {
        let metas = self.index.searchable_segment_metas()?;
        let sizes: Vec<(u32, u32)> = metas.iter().map(|m| (m.num_docs(), m.num_deleted_docs())).collect();
        let ids: Vec<SegmentId> =
            together(&sizes).into_iter().filter_map(|at| Some(metas.get(at)?.id())).collect();
        // The metas hold files from being deleted.
        drop(metas);
        if !ids.is_empty() {
            self.writer()?.merge(&ids).wait()?;
        }
        Ok(())
    }
}

/// The index in a folder with what is committed; nothing where there is none, or one of another format.
fn usable(dir: &Path) -> Result<Option<(tantivy::Index, u32)>, Error> {
    if !dir.join("meta.json").exists() {
        return Ok(None);
    }
    let opened = tantivy::Index::open_in_dir(dir).and_then(|index| Ok((index.load_metas()?, index)));
    match opened {
        Ok((metas, index)) if index.schema() == schema() => {
            Ok(committed(metas.payload.as_deref()).map(|committed| (index, committed)))
        }
        Ok(_) => Ok(None),
        // What the system refuses now it may allow later; what is broken stays so.
        Err(e) => match failed(dir, e) {
            e @ (Error::Io { .. } | Error::Locked { .. }) => Err(e),
            _ => Ok(None),
        },
    }
}

/// Empties a folder and makes an index in it.
fn make(dir: &Path) -> Result<tantivy::Index, Error> {
    for entry in std::fs::read_dir(dir).at(dir)? {
        let path = entry.at(dir)?.path();
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e).at(path),
            _ => {}
        }
    }
    let settings = IndexSettings { docstore_compress_dedicated_thread: false, ..IndexSettings::default() };
    tantivy::Index::builder()
        .schema(schema())
        .settings(settings)
        .create_in_dir(dir)
        .map_err(|e| failed(dir, e))
}

/// Which segments to merge into one, of their living and deleted documents: small ones of like size when there are many, so
/// that a document is merged a few times in its life, else one of which a third is deleted.
fn together(sizes: &[(u32, u32)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let living = |at: &usize| sizes.get(*at).map_or(0, |(living, _)| u64::from(*living));
    order.sort_by_key(living);
    let mut sum = 0;
    let alike = order.iter().take_while(|at| {
        let fits = sum == 0 || living(at) <= 2 * sum;
        sum += living(at).max(1);
        fits
    });
    let alike = alike.count();
    if alike >= MERGE_FROM {
        order.truncate(alike);
        return order;
    }
    order.retain(|at| sizes.get(*at).is_some_and(|(living, dead)| u64::from(*dead) * 2 > u64::from(*living)));
    order.truncate(1);
    order
}

/// A content as tantivy takes it.
struct Entry {
    ordinal: u32,
    text: Option<String>,
    /// Terms, one behind the other.
    facts: String,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Entry {
    fn new(ordinal: u32, content: &Content) -> Self {
        let mut facts = String::with_capacity(256);
        let mut ends = Vec::with_capacity(8);
        terms::each(content, |term| {
            facts.push_str(term);
            ends.push(facts.len());
        });
        Self { ordinal, text: content.text.clone(), facts, ends }
    }
}

impl tantivy::Document for Entry {
    type Value<'a> = Item<'a>;
    type FieldsValuesIter<'a> = Box<dyn Iterator<Item = (Field, Item<'a>)> + 'a>;

    fn iter_fields_and_values(&self) -> Self::FieldsValuesIter<'_> {
        let text = self.text.as_deref().map(|text| (CONTENT, Item::Text(text)));
        let mut from = 0;
        let facts = self.ends.iter().map(move |end| {
            let term = self.facts.get(from..*end).unwrap_or_default();
            from = *end;
            (FACT, Item::Text(term))
        });
        Box::new(text.into_iter().chain(facts).chain([(ORDINAL, Item::Number(u64::from(self.ordinal)))]))
    }
}

#[derive(Debug, Clone, Copy)]
enum Item<'a> {
    Text(&'a str),
    Number(u64),
}

impl<'a> Value<'a> for Item<'a> {
    type ArrayIter = std::iter::Empty<Self>;
    type ObjectIter = std::iter::Empty<(&'a str, Self)>;

    fn as_value(&self) -> ReferenceValue<'a, Self> {
        ReferenceValue::Leaf(match self {
            Self::Text(text) => ReferenceValueLeaf::Str(text),
            Self::Number(number) => ReferenceValueLeaf::U64(*number),
        })
    }
}

/// Contents that go, as tantivy asks for them: by one look at the column of each segment.
#[derive(Debug, Clone)]
struct Dead(Arc<Bits>);

impl Query for Dead {
    fn weight(&self, _scoring: EnableScoring<'_>) -> Result<Box<dyn Weight>, TantivyError> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for Dead {
    fn scorer(&self, reader: &SegmentReader, boost: f32) -> Result<Box<dyn Scorer>, TantivyError> {
        let ordinals = reader.fast_fields().u64(ORDINAL_NAME)?;
        let dead = |doc: &u32| {
            let ordinal = ordinals.first(*doc).and_then(|ordinal| u32::try_from(ordinal).ok());
            ordinal.is_some_and(|ordinal| self.0.has(ordinal))
        };
        let docs = Docs { list: (0..reader.max_doc()).filter(dead).collect(), at: 0 };
        Ok(Box::new(ConstScorer::new(docs, boost)))
    }

    fn explain(&self, _reader: &SegmentReader, _doc: u32) -> Result<Explanation, TantivyError> {
        Ok(Explanation::new("it goes", 1.0))
    }
}

/// Documents of a segment, ascending.
struct Docs {
    list: Vec<u32>,
    at: usize,
}

impl DocSet for Docs {
    fn advance(&mut self) -> u32 {
        self.at = self.at.saturating_add(1);
        self.doc()
    }

    fn doc(&self) -> u32 {
        self.list.get(self.at).copied().unwrap_or(TERMINATED)
    }

    fn size_hint(&self) -> u32 {
        self.list.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_segments_of_like_size_are_merged() {
        assert!(together(&[]).is_empty());
        assert!(together(&[(5, 0); 7]).is_empty());
        assert_eq!(together(&[(5, 0); 8]).len(), 8);
        // A large one stays until the small ones together are half of it.
        let mut sizes = vec![(1, 0); 8];
        sizes.insert(0, (1000, 0));
        assert_eq!(together(&sizes), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(together(&[(10, 0), (10, 6), (1000, 1)]), [1]);
        assert!(together(&[(0, 0), (10, 4)]).is_empty());
    }

    #[test]
    fn each_document_is_merged_a_few_times_in_its_life() {
        let (mut segments, mut merged, added) = (Vec::new(), 0_u64, 20_000_u64);
        for _ in 0..added / 10 {
            segments.push((10_u32, 0_u32));
            let ids = together(&segments);
            if !ids.is_empty() {
                let sum = ids.iter().map(|at| segments[*at].0).sum();
                let mut at = 0;
                segments.retain(|_| {
                    at += 1;
                    !ids.contains(&(at - 1))
                });
                segments.push((sum, 0));
                merged += u64::from(sum);
            }
            assert!(segments.len() < 24, "{}", segments.len());
        }
        assert!(merged < added * 12, "{merged}");
    }
}
