//! Queries on an index.

use std::collections::{BTreeSet, BinaryHeap};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::functions::FunctionFlags;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::condition::{Condition, asks_day, know_all, packed};
use super::content::{About, Texts};
use super::database::{self, Of};
use super::states::{Bits, Reader, States};
use super::values;
use super::writer::stat;
use crate::backend::{Changed, Hit, Page, ValueHosts};
use crate::day::Day;
use crate::document::{Document, Flag};
use crate::error::Error;
use crate::query::{Query, Set};
use crate::scope::Scope;

/// Maximum number of changes per query. Each holds two whole documents.
const CHANGES_MAX: usize = 100_000;

/// An index, open for queries. A [`super::Writer`] may write at the same time. A query sees what
/// was committed before it.
pub struct Index {
    path: PathBuf,
    reader: Mutex<Reader>,
}

/// A matching state on one day. Its order is the order of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StateHit {
    /// The ranks of the host's and the file's name.
    host: u32,
    file: u32,
    day: i32,
    state: i64,
}

/// The `FROM` and `WHERE` clauses of a query.
pub(super) struct FromClause {
    pub text: String,
    pub values: Vec<Value>,
    /// The SQL expression for the day.
    pub day: &'static str,
}

impl Index {
    /// Whether a directory has an index, and not only what waits for a cluster. In doubt it has.
    #[must_use]
    pub fn is_in(dir: &Path) -> bool {
        dir.join(database::FILE).try_exists().unwrap_or(true)
    }

    /// Opens an index for queries. A missing index is an error.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let reader = Mutex::new(Reader::new(database::open_to_read(dir)?));
        Ok(Self { path: dir.join(database::FILE), reader })
    }

    /// See [`crate::Backend::days`].
    pub fn days(&self) -> Result<Option<(Day, Day)>, Error> {
        self.ask(|reader| {
            reader.db.query_row("SELECT min(day), max(day) FROM day", [], |row| {
                Ok(row.get::<_, Option<i32>>(0)?.zip(row.get::<_, Option<i32>>(1)?))
            })
        })
        .map(|days| days.map(|(first, last)| (Day(first), Day(last))))
    }

    /// See [`crate::Backend::search`].
    pub fn search(&self, query: &Query, scope: Scope, limit: usize) -> Result<Page, Error> {
        self.ask(|reader| {
            let (total, first) = first(reader, &query.set, scope, limit)?;
            let hits = first.into_iter().map(|found| hit(&reader.db, found)).collect::<Result<_, _>>()?;
            Ok(Page { total, hits })
        })
    }

    /// See [`crate::Backend::hosts`].
    pub fn hosts(&self, query: &Query, scope: Scope) -> Result<BTreeSet<String>, Error> {
        self.ask(|reader| {
            let from = from(reader, &query.set, scope)?;
            let sql = format!("SELECT name FROM host WHERE id IN (SELECT s.host {})", from.text);
            let mut statement = reader.db.prepare(&sql)?;
            statement.query_map(params_from_iter(&from.values), |row| row.get(0))?.collect()
        })
    }

    /// See [`crate::Backend::values`].
    pub fn values(&self, field: &str, query: &Query, scope: Scope) -> Result<Vec<ValueHosts>, Error> {
        let Some(field) = values::field(field)? else { return Ok(Vec::new()) };
        self.ask(|reader| values::values(&reader.db, &field, from(reader, &query.set, scope)?))
    }

    /// See [`crate::Backend::get`].
    pub fn get(&self, host: &str, filename: &str, scope: Scope) -> Result<Option<Document>, Error> {
        let document = self.ask(|reader| {
            let mut from = from(reader, &Set::All, scope)?;
            let host = from.value(host.to_owned());
            let file = from.value(filename.to_owned());
            let sql = format!(
                "SELECT s.id {} AND s.host = (SELECT id FROM host WHERE name = {host}) \
                 AND s.file = (SELECT id FROM file WHERE name = {file}) ORDER BY s.since_ns DESC LIMIT 1",
                from.text
            );
            let mut statement = reader.db.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(&from.values))?;
            rows.next()?.map(|row| row.get(0)).transpose()?.map(|state| read(reader, state)).transpose()
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
        // SQLite sorts, on disk if necessary, because the documents may not fit into memory.
        let each = |reader: &Reader| {
            let from = from(reader, &query.set, scope)?;
            let sql = format!(
                "SELECT {0}, s.id {1} ORDER BY (SELECT name FROM host WHERE id = s.host), \
                 (SELECT name FROM file WHERE id = s.file), {0}",
                from.day, from.text
            );
            let mut statement = reader.db.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(&from.values))?;
            let mut last: Option<(i64, Document)> = None;
            while let Some(row) = rows.next()? {
                let (day, state) = (Day(row.get(0)?), row.get(1)?);
                let document = match last.take().filter(|(id, _)| *id == state) {
                    Some((_, document)) => document,
                    None => match read(reader, state)? {
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
        let found = self.ask(|reader| changed(reader, host, &query.set, since_ns, until_ns))?;
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
        self.ask(|reader| read(reader, state))?.map_err(|what| self.broken(what))
    }

    fn broken(&self, what: String) -> Error {
        Error::Broken { path: self.path.clone(), what }
    }

    /// Runs a query in one transaction, so that all of its statements see the same data.
    fn ask<T>(&self, question: impl FnOnce(&Reader) -> rusqlite::Result<T>) -> Result<T, Error> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = || {
            let _transaction = reader.db.unchecked_transaction()?;
            question(&reader)
        };
        asked().of(&self.path)
    }
}

impl FromClause {
    /// Binds a value. Returns its placeholder.
    pub(super) fn value(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }
}

/// The clauses for a query and a scope.
pub(super) fn from(reader: &Reader, set: &Set, scope: Scope) -> rusqlite::Result<FromClause> {
    let mut values: Vec<Value> = Vec::new();
    let mut value = |value: Value| {
        values.push(value);
        format!("?{}", values.len())
    };
    let (text, day) = match scope {
        Scope::Days { first, last } => {
            let (first, last) = (value(first.0.into()), value(last.0.into()));
            let text = format!(
                "FROM state s CROSS JOIN day d ON d.host = s.host AND d.day BETWEEN max(s.first_day, {first}) \
                 AND min(coalesce(s.last_day, {last}), {last}) \
                 WHERE s.first_day <= {last} AND coalesce(s.last_day, {first}) >= {first}"
            );
            (text, "d.day")
        }
        // On a day on which the host was not read yet, or not at all, the day before counts.
        Scope::At { ns } => {
            let day = Day::of(ns);
            let (ns, day, before) = (value(ns.into()), value(day.0.into()), value(day.before().0.into()));
            let text = format!(
                "FROM state s CROSS JOIN day d ON d.host = s.host \
                 AND d.day = (SELECT max(day) FROM day WHERE host = s.host AND day IN ({day}, {before})) \
                 WHERE s.since_ns <= {ns} AND (s.until_ns IS NULL OR s.until_ns > {ns}) AND NOT s.gone"
            );
            (text, "d.day")
        }
        // The last state of each day within the time.
        Scope::Changed { since_ns, until_ns } => {
            let (since, until) = (value(since_ns.into()), value(until_ns.into()));
            let text = format!(
                "FROM state s WHERE s.since_ns >= {since} AND s.since_ns < {until} AND {} \
                 AND NOT EXISTS (SELECT 1 FROM state n WHERE n.host = s.host AND n.file = s.file \
                 AND n.since_ns > s.since_ns AND n.since_ns < {until} AND n.first_day = s.first_day)",
                is_change()
            );
            (text, "s.first_day")
        }
    };
    let asked = found(reader, set, day)?;
    Ok(FromClause { text: format!("{text} AND {asked}"), values, day })
}

/// The SQL condition for a change. The first states of a host are not changes, because what was
/// there before is unknown.
fn is_change() -> &'static str {
    "(s.known_before_ns IS NOT NULL OR EXISTS \
     (SELECT 1 FROM state o WHERE o.host = s.host AND o.file = s.file AND o.since_ns < s.since_ns))"
}

/// The matching states on some days.
struct Found {
    days: RangeInclusive<i32>,
    states: Bits,
}

/// The states within `within` that a query matches. Evaluates the query once for all days, or once
/// per day if it depends on the day.
fn find(
    reader: &Reader,
    states: &States,
    set: &Set,
    days: RangeInclusive<i32>,
    within: impl Fn(&RangeInclusive<i32>) -> Bits,
) -> rusqlite::Result<Vec<Found>> {
    const DAYS: &str = "SELECT day FROM day WHERE day BETWEEN ?1 AND ?2 \
                        UNION SELECT first_day FROM state WHERE first_day BETWEEN ?1 AND ?2";
    let each = if asks_day(set) {
        let mut statement = reader.db.prepare_cached(DAYS)?;
        let one = |row: &Row<'_>| row.get(0).map(|day| day..=day);
        statement.query_map([days.start(), days.end()], one)?.collect::<Result<_, _>>()?
    } else {
        vec![days]
    };
    let one = |days: RangeInclusive<i32>| {
        let within = within(&days);
        let mut found = Condition { reader, states, day: *days.start() }.set(set, &within)?;
        found.and(&within);
        Ok(Found { days, states: found })
    };
    each.into_iter().map(one).collect()
}

/// The SQL condition that the state `s` matches a query on a day. It is valid until the next call,
/// which replaces the function `found`.
fn found(reader: &Reader, set: &Set, day: &str) -> rusqlite::Result<String> {
    if matches!(set, Set::All) {
        return Ok("TRUE".to_owned());
    }
    let states = reader.states()?;
    let found = find(reader, &states, set, i32::MIN..=i32::MAX, |_| states.those(|_| true))?;
    let ids = |found: Found| {
        let mut ids: Vec<i64> = states.of(&found.states).map(|state| state.id).collect();
        ids.sort_unstable();
        (found.days, ids)
    };
    let found: Vec<_> = found.into_iter().map(ids).collect();
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    reader.db.create_scalar_function("found", 2, flags, move |call| {
        let (id, day) = (call.get(0)?, call.get(1)?);
        let of_day = found.iter().find(|(days, _)| days.contains(&day));
        Ok(of_day.is_some_and(|(_, ids)| ids.binary_search(&id).is_ok()))
    })?;
    Ok(format!("found(s.id, {day})"))
}

/// The number of matches, and the first `limit` of them, ordered by host, file name and day. Only
/// these are kept in memory.
fn first(reader: &Reader, set: &Set, scope: Scope, limit: usize) -> rusqlite::Result<(u64, Vec<StateHit>)> {
    let (hosts, files) = (ranks(&reader.db, "host")?, ranks(&reader.db, "file")?);
    let rank = |ranks: &[u32], id: i64| by_id(ranks, id).copied().unwrap_or(0);
    let (mut total, mut first) = (0, BinaryHeap::new());
    let mut take = |host, file, day, state| {
        let found = StateHit { host: rank(&hosts, host), file: rank(&files, file), day, state };
        total += 1;
        if first.len() < limit {
            first.push(found);
        } else if let Some(mut last) = first.peek_mut().filter(|last| found < **last) {
            *last = found;
        }
    };
    if let Scope::Days { first, last } = scope {
        let states = reader.states()?;
        let within = |days: &RangeInclusive<i32>| states.between(*days.start(), *days.end());
        let days = days_of_hosts(&reader.db)?;
        for found in find(reader, &states, set, first.0..=last.0, within)? {
            for state in states.of(&found.states) {
                let days = by_id(&days, state.host).map_or(&[][..], |days| days);
                let first = state.first_day.max(*found.days.start());
                let last = state.last_day.min(*found.days.end());
                let from = days.partition_point(|day| *day < first);
                let behind = days.iter().skip(from).take_while(|day| **day <= last);
                behind.for_each(|day| take(state.host, state.file, *day, state.id));
            }
        }
    } else {
        let from = from(reader, set, scope)?;
        let mut statement =
            reader.db.prepare(&format!("SELECT s.host, s.file, {}, s.id {}", from.day, from.text))?;
        let mut rows = statement.query(params_from_iter(&from.values))?;
        while let Some(row) = rows.next()? {
            take(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        }
    }
    Ok((total, first.into_sorted_vec()))
}

/// The days on which each host was read, ascending, indexed by host id.
fn days_of_hosts(db: &Connection) -> rusqlite::Result<Vec<Vec<i32>>> {
    let mut statement = db.prepare_cached("SELECT host, day FROM day ORDER BY host, day")?;
    let mut rows = statement.query([])?;
    let mut days: Vec<Vec<i32>> = Vec::new();
    while let Some(row) = rows.next()? {
        let host = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
        if days.len() <= host {
            days.resize(host + 1, Vec::new());
        }
        if let Some(days) = days.get_mut(host) {
            days.push(row.get(1)?);
        }
    }
    Ok(days)
}

fn by_id<T>(list: &[T], id: i64) -> Option<&T> {
    usize::try_from(id).ok().and_then(|id| list.get(id))
}

/// The rank of each name in sorted order, indexed by id.
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

/// The state after a change.
struct At {
    state: i64,
    known_before_ns: Option<i64>,
}

/// Changes within a time whose state before or after matches, each with the id of the state before.
/// Reads one more than the limit.
fn changed(
    reader: &Reader,
    host: Option<&str>,
    set: &Set,
    since_ns: i64,
    until_ns: i64,
) -> rusqlite::Result<Vec<(Option<i64>, At)>> {
    let mut values: Vec<Value> = vec![since_ns.into(), until_ns.into()];
    let of_host = host.map_or("TRUE", |host| {
        values.push(host.to_owned().into());
        "s.host = (SELECT id FROM host WHERE name = ?3)"
    });
    let after = found(reader, set, "s.first_day")?;
    let before = after.replace("s.id", "p.id");
    // A tombstone does not count as a state before.
    let sql = format!(
        "SELECT p.id, s.id, s.known_before_ns FROM state s LEFT JOIN state p ON p.id = \
         (SELECT o.id FROM state o WHERE o.host = s.host AND o.file = s.file AND o.since_ns < s.since_ns \
          ORDER BY o.since_ns DESC LIMIT 1) \
         WHERE s.since_ns >= ?1 AND s.since_ns < ?2 AND {of_host} AND {} \
         AND ({after} OR (p.id IS NOT NULL AND NOT p.gone AND {before})) \
         ORDER BY s.since_ns, (SELECT name FROM host WHERE id = s.host), (SELECT name FROM file WHERE id = s.file) \
         LIMIT {}",
        is_change(),
        CHANGES_MAX + 1
    );
    let mut statement = reader.db.prepare(&sql)?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, At { state: row.get(1)?, known_before_ns: row.get(2)? }));
    statement.query_map(params_from_iter(&values), read)?.collect()
}

/// Reads the document of a state, see [`document`].
fn read(reader: &Reader, state: i64) -> rusqlite::Result<Result<Document, String>> {
    let mut texts = reader.texts.borrow_mut();
    let read = document(&reader.db, &mut texts, state)?;
    if read.is_ok() {
        return Ok(read);
    }
    // The writer may have added a dictionary since.
    know_all(&reader.db, &mut texts)?;
    document(&reader.db, &mut texts, state)
}

/// Reads the document of a state, with the flag `gone` for a tombstone. The inner error describes
/// damage.
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

/// The text in a row of [`document`].
fn text(row: &Row<'_>, texts: &mut Texts) -> std::io::Result<Option<String>> {
    let Some(own) = packed(row, 6).map_err(std::io::Error::other)? else { return Ok(None) };
    let base = packed(row, 9).map_err(std::io::Error::other)?;
    let mut text = String::new();
    texts.read(own, base, &mut text)?;
    Ok(Some(text))
}
