//! The index of words follows the store.
//!
//! A reader makes words of what is not committed itself ([`super::fresh`]), so nothing is in a hurry: few contents wait until
//! they are worth a segment, many are committed as they come. Contents are read back from the store for it, and those that
//! no row has any more are taken out when the store was sealed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::store::{Content, Store};
use super::text::{self, Text, TextWriter};
use crate::error::Error;

/// Contents that are committed at once: a reader needs some tenths of a second for as many, and larger segments are not
/// made faster.
const PENDING_MAX: u32 = 4_096;
/// Contents that are worth a segment, when there was none for a while: reading as many takes some milliseconds.
const WORTH_IT: u32 = 256;
/// The while.
const PAUSE: Duration = Duration::from_secs(10);
/// After a failure the next attempt waits.
const FAILURE_PAUSE: Duration = Duration::from_secs(60);

/// Brings the index of words up to date.
pub(super) struct Words {
    dir: PathBuf,
    /// The ordinal of the next content when the store was opened. An index with more is that of a store that lost some, and
    /// gave their ordinals to others.
    opened: u32,
    /// Opened when it is first needed.
    writer: Option<TextWriter>,
    done: Option<Instant>,
    failed: Option<Instant>,
}

impl Words {
    /// For the index of words of a store that was just opened.
    pub(super) fn new(dir: &Path, store: &Store) -> Self {
        let dir = dir.join(text::FOLDER);
        Self { dir, opened: store.contents(), writer: None, done: None, failed: None }
    }

    /// After a batch: commits when it is worth it.
    pub(super) fn follow(&mut self, store: &Store) -> Result<(), Error> {
        let paused = |since: Option<Instant>, pause| since.is_some_and(|at| at.elapsed() < pause);
        if paused(self.failed, FAILURE_PAUSE) {
            return Ok(());
        }
        let paused = paused(self.done, PAUSE);
        self.attempt(store, |pending| pending >= PENDING_MAX || (pending >= WORTH_IT && !paused))
    }

    /// Before the writer goes: what is worth a segment is committed.
    pub(super) fn close(&mut self, store: &Store) -> Result<(), Error> {
        self.attempt(store, |pending| pending >= WORTH_IT)
    }

    /// Before the store is sealed: commits all that it has, while contents lie in the order in which they came.
    pub(super) fn all(&mut self, store: &Store) -> Result<(), Error> {
        self.attempt(store, |pending| pending > 0)
    }

    /// After the store was sealed: takes out what no row has, and makes the rest dense.
    pub(super) fn tidy(&mut self, store: &Store) -> Result<(), Error> {
        let writer = self.writer()?;
        for ordinal in (0..writer.committed()).filter(|ordinal| !store.live(*ordinal)) {
            writer.delete(ordinal);
        }
        writer.condense()
    }

    /// Commits all that the store has, if what is pending is worth it.
    fn attempt(&mut self, store: &Store, worth_it: impl Fn(u32) -> bool) -> Result<(), Error> {
        let result = self.writer().and_then(|writer| {
            let pending = store.contents().saturating_sub(writer.committed());
            if worth_it(pending) { add(writer, store).map(|()| true) } else { Ok(false) }
        });
        let now = Some(Instant::now());
        match result {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.done = now;
                self.failed = None;
                Ok(())
            }
            Err(e) => {
                self.failed = now;
                Err(e)
            }
        }
    }

    fn writer(&mut self) -> Result<&mut TextWriter, Error> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            empty => {
                let mut writer = Text::open_writer(&self.dir)?;
                if writer.committed() > self.opened {
                    writer.begin_anew()?;
                }
                Ok(empty.insert(writer))
            }
        }
    }
}

fn add(writer: &mut TextWriter, store: &Store) -> Result<(), Error> {
    for ordinal in writer.wanted()..store.contents() {
        if let Some(content) = whole(store, ordinal)? {
            writer.add(ordinal, &content)?;
        }
    }
    writer.commit(store.contents())
}

/// A content that a row has. One that is damaged has no words; who asks for its document is told.
pub(super) fn whole(store: &Store, ordinal: u32) -> Result<Option<Content>, Error> {
    if !store.live(ordinal) {
        return Ok(None);
    }
    match store.content(ordinal) {
        Ok(content) => Ok(Some(content)),
        Err(Error::Broken { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}
