//! Contents into segments.
//!
//! What is added is gathered in memory and becomes a segment at the next commit, or when it is large. Segments are merged after
//! a commit and never beside one, so that a pass over a host costs what its contents cost.

use std::io;
use std::path::{Path, PathBuf};

use super::super::bits::Bits;
use super::super::dictionary::Part;
use super::super::files::{self, Lock};
use super::super::store::Content;
use super::super::terms;
use super::commit::{self, Commit};
use super::gather::Gather;
use super::merge::{self, LEVEL, Size};
use super::segment::{self, Segment, Writing};
use crate::analysis;
use crate::error::{At, Error};

/// Bytes of memory for a segment before it is written. Only what a pass adds is used of it.
const MEMORY_MAX: usize = 64 << 20;

/// Writes the index of words. There is one at a time; the lock of the store sees to that, and one of its own.
pub(crate) struct TextWriter {
    dir: PathBuf,
    /// While there is something to commit.
    lock: Option<Lock>,
    segments: Vec<Segment>,
    /// Of those, how many the commit names.
    named: usize,
    epoch: u64,
    committed: u32,
    wanted: u32,
    words: Gather,
    facts: Gather,
    /// Contents that were gathered.
    gathered: u32,
    dead: Vec<u32>,
}

impl TextWriter {
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        files::make_dir(dir)?;
        let (segments, commit) = match usable(dir)? {
            Some(found) => found,
            None => (Vec::new(), make(dir)?),
        };
        Ok(Self {
            dir: dir.to_owned(),
            lock: None,
            named: segments.len(),
            segments,
            epoch: commit.epoch,
            committed: commit.next,
            wanted: commit.next,
            words: Gather::default(),
            facts: Gather::default(),
            gathered: 0,
            dead: Vec::new(),
        })
    }

    /// Throws all of it away.
    pub(crate) fn begin_anew(&mut self) -> Result<(), Error> {
        self.lock = None;
        make(&self.dir)?;
        *self = Self::open(&self.dir)?;
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
        self.take_lock()?;
        let mut room = true;
        if let Some(text) = &content.text {
            analysis::words(text, |_, word| room &= self.words.add(word.as_bytes(), ordinal));
        }
        terms::each(content, |term| room &= self.facts.add(term.as_bytes(), ordinal));
        if !room {
            self.forget();
            return Err(Error::Cannot(format!("content {ordinal} has more words than can be counted")));
        }
        self.gathered += 1;
        self.wanted = ordinal.saturating_add(1);
        if self.words.bytes() + self.facts.bytes() > MEMORY_MAX {
            let written = self.write_segment(self.wanted);
            self.outcome(written)?;
        }
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
        self.take_lock()?;
        if next_ordinal != self.committed {
            let done = self.try_commit(next_ordinal);
            self.outcome(done)?;
        }
        self.merge(false)
    }

    /// Makes what is committed dense.
    pub(crate) fn condense(&mut self) -> Result<(), Error> {
        self.take_lock()?;
        self.merge(true)
    }

    fn merge(&mut self, dense: bool) -> Result<(), Error> {
        let merged = self.try_merge(dense);
        if merged.is_ok() {
            self.dead.clear();
        }
        self.lock = None;
        match merged {
            // What is damaged is made again from the store.
            Err(Error::Broken { .. }) => self.begin_anew(),
            other => other,
        }
    }

    fn take_lock(&mut self) -> Result<(), Error> {
        if self.lock.is_none() {
            self.lock = Some(Lock::take(&self.dir)?);
        }
        Ok(())
    }

    /// After a failure nothing that was not committed is there any more.
    fn outcome<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            self.forget();
        }
        result
    }

    fn forget(&mut self) {
        self.lock = None;
        self.gather_anew();
        self.segments.truncate(self.named);
        self.wanted = self.committed;
    }

    fn gather_anew(&mut self) {
        self.words = Gather::default();
        self.facts = Gather::default();
        self.gathered = 0;
    }

    fn try_commit(&mut self, next_ordinal: u32) -> Result<(), Error> {
        self.write_segment(next_ordinal)?;
        let commit = self.says(next_ordinal);
        commit.write(&self.dir)?;
        self.named = self.segments.len();
        self.committed = next_ordinal;
        self.wanted = next_ordinal;
        Ok(())
    }

    fn says(&self, next: u32) -> Commit {
        Commit {
            epoch: self.epoch,
            next,
            segments: self.segments.iter().map(|segment| segment.number).collect(),
        }
    }

    /// What was gathered becomes a segment, with all ordinals from the last one up to `end`.
    fn write_segment(&mut self, end: u32) -> Result<(), Error> {
        if self.gathered == 0 {
            return Ok(());
        }
        let start = self.segments.last().map_or(0, |segment| segment.range.end);
        let number = self.next_number()?;
        let mut writing = Writing::create(&self.dir, number, start..end, LEVEL)?;
        self.words.each(|term, contents| writing.add(Part::Words, term, contents))?;
        self.facts.each(|term, contents| writing.add(Part::Facts, term, contents))?;
        writing.finish(self.gathered)?;
        self.segments.push(Segment::open(&self.dir, number)?);
        self.gather_anew();
        Ok(())
    }

    /// A number that no file has.
    fn next_number(&self) -> Result<u64, Error> {
        let last = listed(&self.dir)?.into_iter().max();
        Ok(last.map_or(1, |number| number.saturating_add(1)))
    }

    fn try_merge(&mut self, dense: bool) -> Result<(), Error> {
        let mut dead = Bits::none(self.dead.iter().max().map_or(0, |last| last.saturating_add(1)));
        self.dead.iter().for_each(|ordinal| dead.set(*ordinal));
        let sizes: Vec<Size> = self.segments.iter().map(|segment| Size::of(segment, &dead)).collect();
        let which = merge::together(&sizes, dense);
        let Some(segments) = self.segments.get(which.clone()).filter(|segments| !segments.is_empty()) else {
            return Ok(());
        };
        let number = self.next_number()?;
        let some = merge::merge(&self.dir, number, segments, &dead)?;
        let merged = if some { Some(Segment::open(&self.dir, number)?) } else { None };
        let mut commit = self.says(self.committed);
        commit.segments.splice(which.clone(), merged.iter().map(|segment| segment.number));
        commit.write(&self.dir)?;
        self.segments.splice(which, merged);
        self.named = self.segments.len();
        remove_strays(&self.dir, &self.segments);
        Ok(())
    }
}

/// The numbers of the segments in a folder.
fn listed(dir: &Path) -> Result<Vec<u64>, Error> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir).at(dir)? {
        numbers.extend(entry.at(dir)?.file_name().to_str().and_then(segment::number));
    }
    Ok(numbers)
}

/// Removes segments that no commit names. What cannot be removed now is removed another time.
fn remove_strays(dir: &Path, segments: &[Segment]) {
    for number in listed(dir).unwrap_or_default() {
        if segments.iter().all(|segment| segment.number != number) {
            let _ = std::fs::remove_file(segment::path(dir, number));
        }
    }
}

/// What is committed in a folder; nothing where there is nothing, or something that cannot be used.
fn usable(dir: &Path) -> Result<Option<(Vec<Segment>, Commit)>, Error> {
    let Some(commit) = Commit::read(dir)? else { return Ok(None) };
    let mut segments: Vec<Segment> = Vec::with_capacity(commit.segments.len());
    for number in &commit.segments {
        match Segment::open(dir, *number) {
            Ok(segment) if segments.last().is_none_or(|last| last.range.end <= segment.range.start) => {
                segments.push(segment);
            }
            Ok(_) => return Ok(None),
            // What the system refuses now it may allow later; what is broken stays so.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e @ (Error::Io { .. } | Error::Locked { .. })) => return Err(e),
            Err(_) => return Ok(None),
        }
    }
    if segments.last().is_some_and(|last| last.range.end > commit.next) {
        return Ok(None);
    }
    remove_strays(dir, &segments);
    Ok(Some((segments, commit)))
}

/// Empties a folder and makes an index in it.
fn make(dir: &Path) -> Result<Commit, Error> {
    // Without a commit there is nothing that anybody could read.
    let first = [dir.join(commit::NAME)].into_iter();
    let rest: Vec<PathBuf> = std::fs::read_dir(dir)
        .at(dir)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .at(dir)?;
    for path in first.chain(rest).filter(|path| !path.ends_with(files::LOCK)) {
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e).at(path),
            _ => {}
        }
    }
    let commit = Commit::anew();
    commit.write(dir)?;
    Ok(commit)
}
