//! Writes batches. A batch is one transaction, and is on disk when [`Sink::put`] returns.
//!
//! A document that equals its last state costs nothing. If the disk refuses a batch, none of it is
//! stored.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::content::{
    Content, Fact, Key, Packed, Packer, SAMPLE_BYTES_MAX, SAMPLES_MAX, SAMPLES_MIN, Texts, pack_with, train,
};
use super::database::{self, Of};
use super::retention;
use crate::analysis;
use crate::backend::{Batch, Deleted, Sink};
use crate::day::Day;
use crate::document::{Flag, Kind, Stat};
use crate::error::Error;
use crate::lock::Lock;

/// Maximum number of notes waiting for [`Sink::messages`].
const NOTES_MAX: usize = 100;
/// Earlier than any real day.
const FIRST: Day = Day(i32::MIN);
/// Maximum number of cached prepared statements.
const STATEMENTS: usize = 64;

/// The writer of an index. It holds the lock, so a second writer is refused.
pub struct Writer {
    dir: PathBuf,
    path: PathBuf,
    db: Connection,
    /// The file is damaged and is renamed before the next batch.
    damaged: bool,
    day: Day,
    notes: Vec<String>,
    texts: Writing,
    _lock: Lock,
}

/// Compressors and buffers for storing texts.
#[derive(Default)]
struct Writing {
    /// Created on first use, and again after an error, because its dictionary may have been rolled
    /// back.
    packer: Option<Packer>,
    /// The number of texts in the last attempt to train a dictionary.
    tried: usize,
    texts: Texts,
    /// The tokens of a text, separated by blanks.
    words: String,
}

/// The last state of a document.
struct LastState {
    id: i64,
    content: i64,
    since_ns: i64,
    gone: bool,
    volatile: bool,
    event: bool,
    stat: Option<Stat>,
}

/// A new state.
struct State<'a> {
    content: i64,
    gone: bool,
    volatile: bool,
    event: bool,
    stat: Option<&'a Stat>,
}

/// The host and the time of a batch.
struct BatchHost {
    host: i64,
    at_ns: i64,
    known_before_ns: Option<i64>,
}

impl Writer {
    /// Opens an index for writing, and creates a missing one.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let lock = Lock::take(dir)?;
        let mut notes = Vec::new();
        let db = database::open_to_write(dir, &mut notes)?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        let path = dir.join(database::FILE);
        let day =
            db.query_row("SELECT max(day) FROM day", [], |row| row.get::<_, Option<i32>>(0)).of(&path)?;
        let day = day.map_or(FIRST, Day);
        let texts = Writing::default();
        Ok(Self { dir: dir.to_owned(), path, db, damaged: false, day, notes, texts, _lock: lock })
    }

    /// Compacts the file. The first batch of every day does so as well.
    pub fn tidy(&mut self) -> Result<(), Error> {
        self.write(|db, _| retention::tidy(db, Day(i32::MAX)))?;
        retention::compact(&self.db).of(&self.path)
    }

    fn note(&mut self, what: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(what);
        }
    }

    /// Runs a task in one transaction.
    fn write<T>(
        &mut self,
        task: impl FnOnce(&Transaction<'_>, &mut Writing) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        if self.damaged {
            self.db = database::open_to_write(&self.dir, &mut self.notes)?;
            self.db.set_prepared_statement_cache_capacity(STATEMENTS);
            self.damaged = false;
        }
        let texts = &mut self.texts;
        let done = (|| {
            let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = task(&transaction, texts)?;
            transaction.commit()?;
            Ok(done)
        })();
        let done = done.of(&self.path);
        self.damaged = matches!(done, Err(Error::Broken { .. }));
        if done.is_err() {
            self.texts = Writing::default();
        }
        done
    }
}

impl Sink for Writer {
    fn put(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.write(|db, texts| put(db, texts, batch))?;
        let day = Day::of(batch.at_ns);
        let before = self.day;
        self.day = before.max(day);
        if before != FIRST && before < day {
            if let Err(e) = self.write(|db, _| retention::tidy(db, day)) {
                self.note(format!("the index was not tidied: {e}"));
            } else if let Err(e) = retention::compact(&self.db).of(&self.path) {
                self.note(format!("the index was not made dense: {e}"));
            }
        }
        Ok(())
    }

    fn messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn names(&mut self, host: &str) -> Result<BTreeSet<String>, Error> {
        const LASTING: &str = "SELECT f.name FROM host h JOIN state s ON s.host = h.id JOIN file f ON f.id = s.file \
             WHERE h.name = ? AND s.until_ns IS NULL AND NOT s.gone AND NOT s.event";
        let names = || -> rusqlite::Result<BTreeSet<String>> {
            let mut statement = self.db.prepare_cached(LASTING)?;
            statement.query_map([host], |row| row.get(0))?.collect()
        };
        names().of(&self.path)
    }

    fn delete_before(&mut self, day: Day, today: Day, most: usize) -> Result<Deleted, Error> {
        let days = retention::days(&self.db).of(&self.path)?;
        let plan = retention::plan(&days, day, today, most);
        if let Some(from) = plan.from {
            self.write(|db, _| retention::delete_before(db, from))?;
            retention::compact(&self.db).of(&self.path)?;
        }
        Ok(plan.said)
    }
}

fn put(db: &Transaction<'_>, texts: &mut Writing, batch: &Batch<'_>) -> rusqlite::Result<()> {
    let look = look(db, batch)?;
    texts.ready(db, batch)?;
    let mut seen = HashSet::new();
    // Of two documents with the same file name the later one counts.
    for document in batch.documents.iter().rev() {
        if !seen.insert(&*document.filename) {
            continue;
        }
        let file = file(db, &document.filename)?;
        let last = last(db, look.host, file)?;
        let content = Content::of(document);
        let known = content_of_key(db, &content.key)?;
        let same = |last: &LastState| !last.gone && Some(last.content) == known && last.stat == document.stat;
        if last.as_ref().is_some_and(same) {
            continue;
        }
        let content = match known {
            Some(known) => known,
            None => texts.add(db, &content, last.as_ref().map(|last| last.content))?,
        };
        let volatile = document.is(Flag::Volatile);
        let event = document.kind == Kind::Incident;
        let state = State { content, gone: false, volatile, event, stat: document.stat.as_ref() };
        add_state(db, &look, file, last.as_ref(), &state)?;
    }
    for name in batch.gone {
        let Some(file) = known_file(db, name)? else { continue };
        // An event does not disappear.
        let Some(last) = last(db, look.host, file)?.filter(|last| !last.gone && !last.event) else {
            continue;
        };
        if !seen.insert(name) {
            continue;
        }
        let state = State {
            content: last.content,
            gone: true,
            volatile: last.volatile,
            event: false,
            stat: last.stat.as_ref(),
        };
        add_state(db, &look, file, Some(&last), &state)?;
    }
    Ok(())
}

/// Records the pass over a host.
fn look(db: &Connection, batch: &Batch<'_>) -> rusqlite::Result<BatchHost> {
    let known: Option<(i64, i64, Option<i64>)> = db
        .prepare_cached("SELECT id, looked_ns, before_ns FROM host WHERE name = ?")?
        .query_row([batch.host], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let at_ns = batch.at_ns;
    let (host, known_before_ns) = match known {
        None => {
            let host = db
                .prepare_cached("INSERT INTO host (name, looked_ns) VALUES (?, ?)")?
                .insert(params![batch.host, at_ns])?;
            (host, None)
        }
        Some((host, looked_ns, before_ns)) => {
            let next_before = if at_ns > looked_ns { Some(looked_ns) } else { before_ns };
            db.prepare_cached("UPDATE host SET looked_ns = ?, before_ns = ? WHERE id = ?")?
                .execute(params![at_ns, next_before, host])?;
            // Handles a second batch of the same pass.
            (host, if at_ns == looked_ns { before_ns } else { Some(looked_ns.min(at_ns)) })
        }
    };
    db.prepare_cached("INSERT OR IGNORE INTO day (host, day) VALUES (?, ?)")?
        .execute(params![host, Day::of(at_ns).0])?;
    Ok(BatchHost { host, at_ns, known_before_ns })
}

const KNOWN_FILE: &str = "SELECT id FROM file WHERE name = ?";

fn known_file(db: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached(KNOWN_FILE)?.query_row([name], |row| row.get(0)).optional()
}

fn file(db: &Connection, name: &str) -> rusqlite::Result<i64> {
    named(db, KNOWN_FILE, "INSERT INTO file (name) VALUES (?)", name)
}

fn last(db: &Connection, host: i64, file: i64) -> rusqlite::Result<Option<LastState>> {
    const LAST: &str = "SELECT id, content, since_ns, gone, volatile, event, \
         size, mode, uid, gid, user, \"group\", inode, mtime_ns, ctime_ns \
         FROM state WHERE host = ? AND file = ? ORDER BY since_ns DESC LIMIT 1";
    let read = |row: &Row<'_>| {
        Ok(LastState {
            id: row.get(0)?,
            content: row.get(1)?,
            since_ns: row.get(2)?,
            gone: row.get(3)?,
            volatile: row.get(4)?,
            event: row.get(5)?,
            stat: stat(row, 6)?,
        })
    };
    db.prepare_cached(LAST)?.query_row([host, file], read).optional()
}

/// Reads a file's status from nine columns. SQLite's integers are signed, but sizes and inodes are
/// not.
pub(super) fn stat(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Stat>> {
    let Some(size) = row.get::<_, Option<i64>>(first)? else { return Ok(None) };
    Ok(Some(Stat {
        size: size.cast_unsigned(),
        mode: row.get(first + 1)?,
        uid: row.get(first + 2)?,
        gid: row.get(first + 3)?,
        user: row.get(first + 4)?,
        group: row.get(first + 5)?,
        inode: row.get::<_, i64>(first + 6)?.cast_unsigned(),
        mtime_ns: row.get(first + 7)?,
        ctime_ns: row.get(first + 8)?,
    }))
}

fn content_of_key(db: &Connection, key: &Key) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT id FROM content WHERE key = ?")?.query_row([key], |row| row.get(0)).optional()
}

fn failed(e: io::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(e))
}

impl Writing {
    /// Trains a dictionary as soon as there are enough texts.
    fn ready(&mut self, db: &Connection, batch: &Batch<'_>) -> rusqlite::Result<()> {
        if self.packer.as_ref().is_some_and(|packer| packer.dictionary.is_some()) {
            return Ok(());
        }
        if self.packer.is_none() {
            self.texts = Texts::default();
            let known: Option<(i64, Vec<u8>)> = db
                .query_row("SELECT id, bytes FROM dictionary ORDER BY id DESC LIMIT 1", [], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            let is_known = known.is_some();
            self.with(known)?;
            if is_known {
                return Ok(());
            }
        }
        const STORED: &str =
            "SELECT count(*) FROM (SELECT 1 FROM content WHERE base IS NULL AND text IS NOT NULL LIMIT ?)";
        let stored: u32 = db.prepare_cached(STORED)?.query_row([SAMPLES_MAX as u32], |row| row.get(0))?;
        let stored = stored as usize;
        // After a failed training, waits until there are twice as many texts.
        if stored + batch.documents.len() < 2 * self.tried.max(SAMPLES_MIN / 2) {
            return Ok(());
        }
        self.tried = stored + batch.documents.len();
        let mut samples = self.stored(db)?;
        samples.extend(batch.documents.iter().filter_map(|document| document.content.clone()));
        if let Some(bytes) = train(&samples) {
            let id = db.prepare("INSERT INTO dictionary (bytes) VALUES (?)")?.insert([&bytes])?;
            self.with(Some((id, bytes)))?;
        }
        Ok(())
    }

    fn with(&mut self, dictionary: Option<(i64, Vec<u8>)>) -> rusqlite::Result<()> {
        if let Some((id, bytes)) = &dictionary {
            self.texts.know(*id, bytes);
        }
        self.packer = Some(Packer::new(dictionary).map_err(failed)?);
        Ok(())
    }

    /// Stored texts as samples for the training.
    fn stored(&mut self, db: &Connection) -> rusqlite::Result<Vec<String>> {
        const TEXTS: &str = "SELECT text, bytes FROM content \
             WHERE base IS NULL AND dictionary IS NULL AND text IS NOT NULL AND bytes <= ? ORDER BY id DESC LIMIT ?";
        let mut statement = db.prepare(TEXTS)?;
        let mut rows = statement.query([SAMPLE_BYTES_MAX as u32, SAMPLES_MAX as u32])?;
        let mut samples = Vec::new();
        while let Some(row) = rows.next()? {
            let packed = Packed { text: row.get_ref(0)?.as_blob()?, bytes: row.get(1)?, dictionary: None };
            let mut text = String::new();
            if self.texts.read(packed, None, &mut text).is_ok() {
                samples.push(text);
            }
        }
        Ok(samples)
    }

    /// Stores a content. Compresses its text with that of the state before, if that is worthwhile.
    fn add(&mut self, db: &Connection, content: &Content<'_>, before: Option<i64>) -> rusqlite::Result<i64> {
        let (mut base, mut dictionary, mut packed) = (None, None, None);
        if let Some(text) = content.text {
            if let Some(root) = before.map(|before| self.root(db, before)).transpose()?.flatten() {
                let with = pack_with(text, &root.text).map_err(failed)?;
                // At half the size or more the two have little in common, and the new text becomes
                // a base itself.
                if with.len() * 2 < root.packed {
                    (base, packed) = (Some(root.id), Some(with));
                }
            }
            if let (None, Some(packer)) = (&packed, &mut self.packer) {
                (dictionary, packed) = (packer.dictionary, Some(packer.pack(text).map_err(failed)?));
            }
        }
        let about = content.about_column().map_err(failed)?;
        let bytes = content.text.map(|text| text.len() as i64);
        let id = db
            .prepare_cached(
                "INSERT INTO content (key, kind, hash, bytes, base, dictionary, text, about) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .insert(params![content.key, content.kind, content.hash, bytes, base, dictionary, packed, about])?;
        if let Some(text) = content.text {
            let words = &mut self.words;
            words.clear();
            analysis::words(text, |_, word| {
                words.push_str(word);
                words.push(' ');
            });
            db.prepare_cached("INSERT INTO word (rowid, text) VALUES (?, ?)")?
                .execute(params![id, &*words])?;
        }
        content.about.each_fact(|fact| add_fact(db, &fact, id))?;
        Ok(id)
    }

    /// The base of a content's text, or the text itself if it has no base. An unreadable text is
    /// never a base.
    fn root(&mut self, db: &Connection, content: i64) -> rusqlite::Result<Option<Root>> {
        const ROOT: &str = "SELECT r.id, r.bytes, r.dictionary, r.text FROM content c \
             JOIN content r ON r.id = coalesce(c.base, c.id) WHERE c.id = ? AND r.text IS NOT NULL";
        let mut statement = db.prepare_cached(ROOT)?;
        let mut rows = statement.query([content])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let packed = Packed { text: row.get_ref(3)?.as_blob()?, bytes: row.get(1)?, dictionary: row.get(2)? };
        let mut text = String::new();
        let read = self.texts.read(packed, None, &mut text);
        Ok(read.is_ok().then_some(Root { id: row.get(0)?, packed: packed.text.len(), text }))
    }
}

/// A text that can be the base of others.
struct Root {
    id: i64,
    packed: usize,
    text: String,
}

fn add_fact(db: &Connection, fact: &Fact<'_>, content: i64) -> rusqlite::Result<()> {
    let field =
        named(db, "SELECT id FROM field WHERE name = ?", "INSERT INTO field (name) VALUES (?)", fact.name)?;
    let known: Option<i64> = db
        .prepare_cached("SELECT id FROM fact WHERE field = ? AND value = ?")?
        .query_row(params![field, fact.value], |row| row.get(0))
        .optional()?;
    let fact = match known {
        Some(known) => known,
        None => db
            .prepare_cached("INSERT INTO fact (field, value) VALUES (?, ?)")?
            .insert(params![field, fact.value])?,
    };
    db.prepare_cached("INSERT OR IGNORE INTO has (fact, content) VALUES (?, ?)")?
        .execute([fact, content])
        .map(|_| ())
}

/// The id of a name, which is added if it is new.
fn named(db: &Connection, find: &str, add: &str, name: &str) -> rusqlite::Result<i64> {
    match db.prepare_cached(find)?.query_row([name], |row| row.get(0)).optional()? {
        Some(id) => Ok(id),
        None => db.prepare_cached(add)?.insert([name]),
    }
}

/// Adds a state, and ends the one before.
fn add_state(
    db: &Connection,
    look: &BatchHost,
    file: i64,
    last: Option<&LastState>,
    state: &State<'_>,
) -> rusqlite::Result<()> {
    // Keeps the times of a document ascending, even if the clock was set back.
    let since_ns = last.map_or(look.at_ns, |last| look.at_ns.max(last.since_ns.saturating_add(1)));
    let day = Day::of(since_ns);
    if let Some(last) = last {
        db.prepare_cached(
            "UPDATE state SET until_ns = min(coalesce(until_ns, ?1), ?1), last_day = min(coalesce(last_day, ?2), ?2) WHERE id = ?3",
        )?
        .execute(params![since_ns, day.before().0, last.id])?;
    }
    let stat = state.stat;
    db.prepare_cached(
        "INSERT INTO state (host, file, content, since_ns, until_ns, known_before_ns, first_day, last_day, gone, volatile, event, \
         size, mode, uid, gid, user, \"group\", inode, mtime_ns, ctime_ns) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        look.host,
        file,
        state.content,
        since_ns,
        state.event.then(|| day.end_ns()),
        look.known_before_ns,
        day.0,
        (state.event || state.gone).then_some(day.0),
        state.gone,
        state.volatile,
        state.event,
        stat.map(|s| s.size.cast_signed()),
        stat.map(|s| s.mode),
        stat.map(|s| s.uid),
        stat.map(|s| s.gid),
        stat.and_then(|s| s.user.as_deref()),
        stat.and_then(|s| s.group.as_deref()),
        stat.map(|s| s.inode.cast_signed()),
        stat.map(|s| s.mtime_ns),
        stat.map(|s| s.ctime_ns),
    ])?;
    Ok(())
}
