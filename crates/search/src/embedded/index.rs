//! Queries of an index.

use std::collections::{BTreeSet, BinaryHeap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::condition::{Condition, StateRow, know_all};
use super::content::{About, Packed, Texts};
use super::database::{self, Of};
use super::values;
use super::writer::stat;
use crate::backend::{Changed, Hit, Page, ValueHosts};
use crate::day::Day;
use crate::document::{Document, Flag};
use crate::error::Error;
use crate::query::{Query, Set};
use crate::scope::Scope;

/// Changes of one query. Each holds two whole documents.
const CHANGES_MAX: usize = 100_000;

/// An index, open for queries. A [`super::Writer`] may write at the same time; a query sees what was written before it.
pub struct Index {
    path: PathBuf,
    db: Mutex<Connection>,
    texts: Mutex<Texts>,
}

/// A state that was found, on a day, in the order of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StateHit {
    /// The places of the names of host and file in the order of names.
    host: u32,
    file: u32,
    day: i32,
    state: i64,
}

/// The rows of a query.
pub(super) struct FromClause<'a> {
    pub text: String,
    pub condition: Condition<'a>,
    /// The expression of the day.
    pub day: &'static str,
}

impl Index {
    /// Opens an index for queries. A folder without one is an error.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let db = Mutex::new(database::open_to_read(dir)?);
        Ok(Self { path: dir.join(database::FILE), db, texts: Mutex::default() })
    }

    /// See [`crate::Backend::days`].
    pub fn days(&self) -> Result<Option<(Day, Day)>, Error> {
        self.ask(|db| {
            db.query_row("SELECT min(day), max(day) FROM day", [], |row| {
                Ok(row.get::<_, Option<i32>>(0)?.zip(row.get::<_, Option<i32>>(1)?))
            })
        })
        .map(|days| days.map(|(first, last)| (Day(first), Day(last))))
    }

    /// See [`crate::Backend::search`].
    pub fn search(&self, query: &Query, scope: Scope, limit: usize) -> Result<Page, Error> {
        self.ask(|db| {
            let (total, first) = first(db, &query.set, scope, limit)?;
            let hits = first.into_iter().map(|found| hit(db, found)).collect::<Result<_, _>>()?;
            Ok(Page { total, hits })
        })
    }

    /// See [`crate::Backend::hosts`].
    pub fn hosts(&self, query: &Query, scope: Scope) -> Result<BTreeSet<String>, Error> {
        self.ask(|db| {
            let mut from = from(db, &query.set, scope)?;
            let sql = format!("SELECT name FROM host WHERE id IN (SELECT s.host {})", from.text);
            from.condition.install()?;
            let mut statement = db.prepare(&sql)?;
            statement.query_map(params_from_iter(&from.condition.values), |row| row.get(0))?.collect()
        })
    }

    /// See [`crate::Backend::values`].
    pub fn values(&self, field: &str, query: &Query, scope: Scope) -> Result<Vec<ValueHosts>, Error> {
        let Some(field) = values::field(field)? else { return Ok(Vec::new()) };
        self.ask(|db| values::values(db, &field, from(db, &query.set, scope)?))
    }

    /// See [`crate::Backend::get`].
    pub fn get(&self, host: &str, filename: &str, scope: Scope) -> Result<Option<Document>, Error> {
        let document = self.ask(|db| {
            let mut from = from(db, &Set::All, scope)?;
            let host = from.condition.value(host.to_owned());
            let file = from.condition.value(filename.to_owned());
            let sql = format!(
                "SELECT s.id {} AND s.host = (SELECT id FROM host WHERE name = {host}) \
                 AND s.file = (SELECT id FROM file WHERE name = {file}) ORDER BY s.since_ns DESC LIMIT 1",
                from.text
            );
            let mut statement = db.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(&from.condition.values))?;
            rows.next()?.map(|row| row.get(0)).transpose()?.map(|state| self.read(db, state)).transpose()
        })?;
        document.transpose().map_err(|what| self.broken(what))
    }

    /// See [`crate::Backend::each`].
    pub fn each(
        &self,
        query: &Query,
        scope: Scope,
        take: &mut dyn FnMut(Day, Document) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // SQLite sorts, on disk if it must: there may be more documents than fit into memory.
        let each = |db: &Connection| {
            let mut from = from(db, &query.set, scope)?;
            let sql = format!(
                "SELECT {0}, s.id {1} ORDER BY (SELECT name FROM host WHERE id = s.host), \
                 (SELECT name FROM file WHERE id = s.file), {0}",
                from.day, from.text
            );
            from.condition.install()?;
            let mut statement = db.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(&from.condition.values))?;
            let mut last: Option<(i64, Document)> = None;
            while let Some(row) = rows.next()? {
                let (day, state) = (Day(row.get(0)?), row.get(1)?);
                let document = match last.take().filter(|(id, _)| *id == state) {
                    Some((_, document)) => document,
                    None => match self.read(db, state)? {
                        Ok(document) => document,
                        Err(what) => return Ok(Err(self.broken(what))),
                    },
                };
                last = Some((state, document.clone()));
                if let Err(error) = take(day, document) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        };
        self.ask(each)?
    }

    /// See [`crate::Backend::changes`].
    pub fn changes(
        &self,
        host: Option<&str>,
        query: &Query,
        since_ns: i64,
        until_ns: i64,
    ) -> Result<Vec<Changed>, Error> {
        let found = self.ask(|db| changed(db, host, &query.set, since_ns, until_ns))?;
        if found.len() > CHANGES_MAX {
            return Err(Error::Cannot(format!(
                "there are more than the {CHANGES_MAX} changes that are shown at once: ask for a shorter time or one host"
            )));
        }
        let mut changes = Vec::with_capacity(found.len());
        for (before, at) in found {
            let before = before.map(|before| self.document(before)).transpose()?;
            let after = self.document(at.state)?;
            changes.push(Changed {
                at_ns: after.since_ns,
                not_before_ns: at.known_before_ns,
                before: before.filter(|before| !before.is(Flag::Gone)),
                after: Some(after).filter(|after| !after.is(Flag::Gone)),
            });
        }
        Ok(changes)
    }

    fn document(&self, state: i64) -> Result<Document, Error> {
        self.ask(|db| self.read(db, state))?.map_err(|what| self.broken(what))
    }

    fn read(&self, db: &Connection, state: i64) -> rusqlite::Result<Result<Document, String>> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let read = document(db, &mut texts, state)?;
        if read.is_ok() {
            return Ok(read);
        }
        // A dictionary may have been written since.
        know_all(db, &mut texts)?;
        document(db, &mut texts, state)
    }

    fn broken(&self, what: String) -> Error {
        Error::Broken { path: self.path.clone(), what }
    }

    /// Runs a query in one transaction, so that all of its statements see one state.
    fn ask<T>(&self, question: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let db: MutexGuard<'_, Connection> = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = || {
            let transaction = db.unchecked_transaction()?;
            question(&transaction)
        };
        asked().of(&self.path)
    }
}

/// The states of a query and a scope, as the `FROM` clause of a statement.
pub(super) fn from<'a>(db: &'a Connection, set: &Set, scope: Scope) -> rusqlite::Result<FromClause<'a>> {
    let mut condition = Condition::new(db);
    let (text, day) = match scope {
        Scope::Days { first, last } => {
            let (first, last) = (condition.value(first.0), condition.value(last.0));
            let text = format!(
                "FROM state s CROSS JOIN day d ON d.host = s.host AND d.day BETWEEN max(s.first_day, {first}) \
                 AND min(coalesce(s.last_day, {last}), {last}) \
                 WHERE s.first_day <= {last} AND coalesce(s.last_day, {first}) >= {first}"
            );
            (text, "d.day")
        }
        // Before a host was looked at on a day, and when it was not, the day before answers.
        Scope::At { ns } => {
            let day = Day::of(ns);
            let (ns, day, before) =
                (condition.value(ns), condition.value(day.0), condition.value(day.before().0));
            let text = format!(
                "FROM state s CROSS JOIN day d ON d.host = s.host \
                 AND d.day = (SELECT max(day) FROM day WHERE host = s.host AND day IN ({day}, {before})) \
                 WHERE s.since_ns <= {ns} AND (s.until_ns IS NULL OR s.until_ns > {ns}) AND NOT s.gone"
            );
            (text, "d.day")
        }
        // Of one day the last state, if it still was in that time.
        Scope::Changed { since_ns, until_ns } => {
            let (since, until) = (condition.value(since_ns), condition.value(until_ns));
            let text = format!(
                "FROM state s WHERE s.since_ns >= {since} AND s.since_ns < {until} AND {} \
                 AND NOT EXISTS (SELECT 1 FROM state n WHERE n.host = s.host AND n.file = s.file \
                 AND n.since_ns > s.since_ns AND n.since_ns < {until} AND n.first_day = s.first_day)",
                is_change()
            );
            (text, "s.first_day")
        }
    };
    let asked = condition.set(set, StateRow { state: "s", day })?;
    Ok(FromClause { text: format!("{text} AND {asked}"), condition, day })
}

/// The first states of a host are no change: what was before is unknown.
fn is_change() -> &'static str {
    "(s.known_before_ns IS NOT NULL OR EXISTS \
     (SELECT 1 FROM state o WHERE o.host = s.host AND o.file = s.file AND o.since_ns < s.since_ns))"
}

/// How many states are found, and the first of them, ordered by host, file name and day. No more than these are in memory.
fn first(db: &Connection, set: &Set, scope: Scope, limit: usize) -> rusqlite::Result<(u64, Vec<StateHit>)> {
    let mut from = from(db, set, scope)?;
    from.condition.install()?;
    let (hosts, files) = (ranks(db, "host")?, ranks(db, "file")?);
    let rank =
        |ranks: &[u32], id: i64| usize::try_from(id).ok().and_then(|id| ranks.get(id)).copied().unwrap_or(0);
    let mut statement = db.prepare(&format!("SELECT s.host, s.file, {}, s.id {}", from.day, from.text))?;
    let mut rows = statement.query(params_from_iter(&from.condition.values))?;
    let (mut total, mut first) = (0, BinaryHeap::new());
    while let Some(row) = rows.next()? {
        let (host, file) = (rank(&hosts, row.get(0)?), rank(&files, row.get(1)?));
        let found = StateHit { host, file, day: row.get(2)?, state: row.get(3)? };
        total += 1;
        if first.len() < limit {
            first.push(found);
        } else if let Some(mut last) = first.peek_mut().filter(|last| found < **last) {
            *last = found;
        }
    }
    Ok((total, first.into_sorted_vec()))
}

/// The place of each name in the order of names, by id.
fn ranks(db: &Connection, table: &str) -> rusqlite::Result<Vec<u32>> {
    let mut statement = db.prepare_cached(&format!("SELECT id FROM {table} ORDER BY name"))?;
    let mut ranks = Vec::new();
    let mut rows = statement.query([])?;
    let mut rank = 0;
    while let Some(row) = rows.next()? {
        let id = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
        if ranks.len() <= id {
            ranks.resize(id + 1, 0);
        }
        if let Some(of) = ranks.get_mut(id) {
            *of = rank;
        }
        rank += 1;
    }
    Ok(ranks)
}

fn hit(db: &Connection, found: StateHit) -> rusqlite::Result<Hit> {
    const HIT: &str = "SELECT h.name, f.name, s.since_ns, s.size, s.mtime_ns \
         FROM state s JOIN host h ON h.id = s.host JOIN file f ON f.id = s.file WHERE s.id = ?";
    db.prepare_cached(HIT)?.query_row([found.state], |row| {
        Ok(Hit {
            host: row.get(0)?,
            filename: row.get(1)?,
            day: Day(found.day),
            since_ns: row.get(2)?,
            size: row.get::<_, Option<i64>>(3)?.map(i64::cast_unsigned),
            mtime_ns: row.get(4)?,
        })
    })
}

/// A change that was found.
struct At {
    state: i64,
    known_before_ns: Option<i64>,
}

/// Changes within a time whose state before or after matches, with the state before. Reads one more than the limit.
fn changed(
    db: &Connection,
    host: Option<&str>,
    set: &Set,
    since_ns: i64,
    until_ns: i64,
) -> rusqlite::Result<Vec<(Option<i64>, At)>> {
    let mut condition = Condition::new(db);
    let (since, until) = (condition.value(since_ns), condition.value(until_ns));
    let host = match host {
        Some(host) => {
            format!("s.host = (SELECT id FROM host WHERE name = {})", condition.value(host.to_owned()))
        }
        None => "TRUE".to_owned(),
    };
    let after = condition.set(set, StateRow { state: "s", day: "s.first_day" })?;
    let before = condition.set(set, StateRow { state: "p", day: "s.first_day" })?;
    condition.install()?;
    // What was gone was not there before.
    let sql = format!(
        "SELECT p.id, s.id, s.known_before_ns FROM state s LEFT JOIN state p ON p.id = \
         (SELECT o.id FROM state o WHERE o.host = s.host AND o.file = s.file AND o.since_ns < s.since_ns \
          ORDER BY o.since_ns DESC LIMIT 1) \
         WHERE s.since_ns >= {since} AND s.since_ns < {until} AND {host} AND {} \
         AND ({after} OR (p.id IS NOT NULL AND NOT p.gone AND {before})) \
         ORDER BY s.since_ns, (SELECT name FROM host WHERE id = s.host), (SELECT name FROM file WHERE id = s.file) \
         LIMIT {}",
        is_change(),
        CHANGES_MAX + 1
    );
    let mut statement = db.prepare(&sql)?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, At { state: row.get(1)?, known_before_ns: row.get(2)? }));
    statement.query_map(params_from_iter(&condition.values), read)?.collect()
}

/// A state of a document, whole, with the flag `gone` if it is gone; or a description of the damage.
fn document(db: &Connection, texts: &mut Texts, state: i64) -> rusqlite::Result<Result<Document, String>> {
    const DOCUMENT: &str = "SELECT h.name, f.name, s.since_ns, s.gone, c.kind, c.about, \
         c.text, c.bytes, c.dictionary, b.text, b.bytes, b.dictionary, \
         s.size, s.mode, s.uid, s.gid, s.user, s.\"group\", s.inode, s.mtime_ns, s.ctime_ns \
         FROM state s JOIN host h ON h.id = s.host JOIN file f ON f.id = s.file JOIN content c ON c.id = s.content \
         LEFT JOIN content b ON b.id = c.base WHERE s.id = ?";
    db.prepare_cached(DOCUMENT)?.query_row(params![state], |row| {
        let filename: String = row.get(1)?;
        let damaged = |what: &str| format!("the content of {filename} is damaged: {what}");
        let kind: String = row.get(4)?;
        let Ok(kind) = kind.parse() else { return Ok(Err(damaged("its kind is not known"))) };
        let about = match About::read(row.get_ref(5)?) {
            Ok(about) => about,
            Err(e) => return Ok(Err(damaged(&e.to_string()))),
        };
        let content = match text(row, texts) {
            Ok(text) => text,
            Err(e) => return Ok(Err(damaged(&e.to_string()))),
        };
        let mut document = Document {
            content,
            stat: stat(row, 12)?,
            since_ns: row.get(2)?,
            ..Document::new(row.get::<_, String>(0)?, filename, kind)
        };
        about.into_document(&mut document);
        if row.get(3)? {
            document.flag(Flag::Gone);
        }
        Ok(Ok(document))
    })
}

/// The text of a row of [`document`].
fn text(row: &Row<'_>, texts: &mut Texts) -> std::io::Result<Option<String>> {
    let Some(packed) = packed(row, 6).map_err(std::io::Error::other)? else { return Ok(None) };
    let base = self::packed(row, 9).map_err(std::io::Error::other)?;
    let mut text = String::new();
    texts.read(packed, base, &mut text)?;
    Ok(Some(text))
}

/// A text, its bytes and its dictionary, from a column on.
fn packed<'r>(row: &'r Row<'_>, first: usize) -> rusqlite::Result<Option<Packed<'r>>> {
    let ValueRef::Blob(text) = row.get_ref(first)? else { return Ok(None) };
    Ok(Some(Packed { text, bytes: row.get(first + 1)?, dictionary: row.get(first + 2)? }))
}
