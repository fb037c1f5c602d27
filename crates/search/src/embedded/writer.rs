//! Writing: what is new is appended to the log and on disk before [`Sink::put`] returns.
//!
//! A batch is compared with what is known; what says the same costs nothing. The rest becomes frames (`frame.rs`, `batch.rs`),
//! written by one call and synced. Then the writer reads its own frames, as any reader does, so what it knows is what is on
//! disk. A batch that the disk refused is taken back and has not happened.
//!
//! After that, when it is worth it, the log is sealed (`seal.rs`) and words are brought up to date (`words.rs`). Neither is
//! needed for what was acknowledged; when they fail, that is noted and tried again later.

mod news;

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::content::encode;
use super::files::{self, Lock, Role};
use super::frame::{self, FILE_HEADER_BYTES};
use super::seal::seal;
use super::store::{Skipped, Store};
use super::table::{Row, State};
use super::words::Words;
use crate::backend::{Batch, Deleted, Sink};
use crate::day::Day;
use crate::document::{Document, Flag, Kind};
use crate::error::{At, Error};
use news::News;

/// A log with more bytes is sealed, unless the table is larger than that.
const SEAL_BYTES: u64 = 16 << 20;
/// On a new day a log with more bytes than this is sealed, or with a quarter of the table's.
const SEAL_DAY_BYTES: u64 = 64 << 10;
/// After a failure to seal the next attempt waits.
const SEAL_PAUSE: Duration = Duration::from_secs(60);
/// Days before today that have to be there before anything is deleted, of twice as many; fewer where fewer are kept.
const DAYS_WANTED: usize = 3;
/// What could not be done and was not asked for, in one line each.
const NOTES_MAX: usize = 100;

/// The one that writes an index; another is refused while it lives.
pub struct Writer {
    dir: PathBuf,
    store: Store,
    log: Option<Log>,
    /// What it knows is not what is on disk: it has to be read again first.
    stale: bool,
    day: Day,
    failed: Option<Instant>,
    notes: Vec<String>,
    words: Words,
    _lock: Lock,
}

/// The log that is appended to.
struct Log {
    path: PathBuf,
    file: File,
    end: u64,
    /// There may be bytes behind the end.
    torn: bool,
}

impl Writer {
    /// Opens an index for writing, makes it where there is none, and mends what a crash left.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        files::make_dir(dir)?;
        let lock = Lock::take(dir)?;
        let listed = files::list(dir)?;
        if !listed.iter().any(|(role, _)| matches!(role, Role::Table | Role::Log)) {
            Log::create(dir, next_number(&listed))?;
        }
        let store = Store::load(dir, true)?;
        let words = Words::new(dir, &store);
        let mut writer = Self {
            dir: dir.to_owned(),
            store,
            log: None,
            stale: false,
            day: Day(i32::MIN),
            failed: None,
            notes: Vec::new(),
            words,
            _lock: lock,
        };
        writer.mend()?;
        writer.remove_strays();
        writer.day = writer.last_day();
        Ok(writer)
    }

    /// What of the index could not be read when it was opened.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        self.store.skipped()
    }

    /// Makes the files dense. It happens by itself once a day and when a log is large.
    pub fn seal(&mut self) -> Result<(), Error> {
        self.ready()?;
        self.seal_from(self.store.table.kept_from)
    }

    fn note(&mut self, what: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(what);
        }
    }

    fn last_day(&self) -> Day {
        let table = &self.store.table;
        let hosts = 0..table.hosts.len() as u32;
        let days = hosts.filter_map(|host| table.cover(host).and_then(|cover| cover.days.last()));
        days.max().copied().unwrap_or(Day(i32::MIN))
    }

    /// Takes the bytes away that a crash left behind the last whole frame.
    fn mend(&mut self) -> Result<(), Error> {
        let Some(tail) = self.store.tail else { return Ok(()) };
        let path = files::path(&self.dir, Role::Log, tail.number);
        let file = files::open_to_write(&path).at(&path)?;
        let len = file.metadata().at(&path)?.len();
        if len < FILE_HEADER_BYTES {
            file.write_all_at(&frame::file_header(Role::Log.magic()), 0).at(&path)?;
            file.sync_all().at(&path)?;
        } else if len > tail.end {
            let torn = len - tail.end;
            self.note(format!(
                "{}: {torn} bytes at the end were no whole batch and are gone",
                path.display()
            ));
            file.set_len(tail.end).at(&path)?;
            file.sync_all().at(&path)?;
        }
        self.log = Some(Log { path, file, end: tail.end, torn: false });
        Ok(())
    }

    /// Removes files that no table names.
    fn remove_strays(&mut self) {
        let store = &self.store;
        let table = store.sealed.map(|(number, _)| number);
        let Ok(listed) = files::list(&self.dir) else { return };
        for (role, number) in listed {
            let needed = match role {
                Role::Table => Some(number) == table,
                Role::Pack => store.packs.contains(&number),
                Role::Log => number >= store.log_from,
                Role::Unfinished => false,
            };
            if !needed {
                // It is tried again when the index is opened.
                let _ = std::fs::remove_file(files::path(&self.dir, role, number));
            }
        }
    }

    /// Brings itself into a state in which it can write.
    fn ready(&mut self) -> Result<(), Error> {
        if self.stale {
            self.log = None;
            self.store = Store::load(&self.dir, true)?;
            self.stale = false;
            self.mend()?;
        }
        if self.log.is_none() {
            let number = next_number(&files::list(&self.dir)?);
            let log = Log::create(&self.dir, number)?;
            self.store.new_log(number)?;
            self.log = Some(log);
        }
        Ok(())
    }

    /// Seals, keeps what is needed from a day on, and goes on with what is on disk then.
    fn seal_from(&mut self, kept_from: Day) -> Result<(), Error> {
        if let Err(e) = self.words.all(&self.store) {
            self.note(format!("words were not brought up to date: {e}"));
        }
        let number = next_number(&files::list(&self.dir)?);
        seal(&self.store, number, kept_from)?;
        self.stale = true;
        self.log = None;
        self.store = Store::load(&self.dir, true)?;
        self.stale = false;
        self.remove_strays();
        if let Err(e) = self.words.tidy(&self.store) {
            self.note(format!("words were not brought up to date: {e}"));
        }
        Ok(())
    }

    /// What is done beside, when it is worth it.
    fn maintain(&mut self, at_ns: i64) {
        let end = self.log.as_ref().map_or(0, |log| log.end);
        let table = self.store.sealed.map_or(0, |(_, bytes)| bytes);
        let day = Day::of(at_ns);
        let mut due = end > SEAL_BYTES.max(table);
        if day > self.day {
            due |= end > SEAL_DAY_BYTES.max(table / 4);
            self.day = day;
        }
        if due && self.failed.is_none_or(|at| at.elapsed() > SEAL_PAUSE) {
            self.failed = None;
            if let Err(e) = self.seal_from(self.store.table.kept_from) {
                self.failed = Some(Instant::now());
                self.note(format!("the log could not be sealed: {e}"));
            }
        }
        if let Err(e) = self.words.follow(&self.store) {
            self.note(format!("words were not brought up to date: {e}"));
        }
    }

    /// What of a batch is not known yet, as frames. Nothing where the host was looked at and all was known.
    fn news(&self, batch: &Batch<'_>) -> Result<News, Error> {
        let table = &self.store.table;
        let host = table.hosts.ordinal(batch.host);
        let row = |name: &str| -> Option<&Row> {
            let row = table.latest(host?, table.files.ordinal(name)?)?;
            table.rows.get(row as usize)
        };
        let since = |row: Option<&Row>| {
            row.map_or(batch.at_ns, |row| batch.at_ns.max(row.since_ns.saturating_add(1)))
        };
        let known_before_ns = host.and_then(|host| table.known_before(host, batch.at_ns));
        let mut news = News::new(batch, known_before_ns, self.store.next).at(&self.dir)?;
        let mut seen = HashSet::new();
        // Of two that say they are the same file, the later one is right.
        for document in batch.documents.iter().rev() {
            if !seen.insert(&*document.filename) {
                continue;
            }
            let row = row(&document.filename);
            let (bytes, key) = encode(document);
            let known = self.store.contents.ordinal(&key);
            if row.is_some_and(|row| !row.gone && Some(row.content) == known && self.same_stat(row, document))
            {
                continue;
            }
            let state = State {
                content: news.content(known, key, &bytes).at(&self.dir)?,
                stat: document.stat.clone(),
                since_ns: since(row),
                until_ns: None,
                known_before_ns,
                gone: false,
                volatile: document.is(Flag::Volatile),
                event: document.kind == Kind::Incident,
            };
            news.row(&document.filename, state).at(&self.dir)?;
        }
        for name in batch.gone {
            // What happened once does not go.
            let Some(row) = row(name).filter(|row| !row.gone && !row.event) else { continue };
            if !seen.insert(name) {
                continue;
            }
            let state = State {
                content: row.content,
                stat: row.stat.and_then(|stat| table.stats.get(stat as usize)).cloned(),
                since_ns: since(Some(row)),
                until_ns: None,
                known_before_ns,
                gone: true,
                volatile: row.volatile,
                event: false,
            };
            news.row(name, state).at(&self.dir)?;
        }
        Ok(news)
    }

    fn same_stat(&self, row: &Row, document: &Document) -> bool {
        let stat = row.stat.and_then(|stat| self.store.table.stats.get(stat as usize));
        stat == document.stat.as_ref()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.stale {
            // Whoever asks makes words of what is not committed; the next writer commits it.
            let _ = self.words.close(&self.store);
        }
    }
}

impl Sink for Writer {
    fn put(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.ready()?;
        let news = self.news(batch)?;
        let day = Day::of(batch.at_ns);
        let host = self.store.table.hosts.ordinal(batch.host);
        // That a host was looked at once more on a day may be lost with the power, but not with the process.
        let sync = news.rows > 0 || !host.is_some_and(|host| self.store.table.covered(host, day));
        let frames = news.finish().at(&self.dir)?;
        let Some(log) = &mut self.log else {
            return Err(Error::Cannot("there is no log to write to".to_owned()));
        };
        log.append(&frames, sync)?;
        // From here on nothing is lost; should the writer not be able to read it now, it does so before the next batch.
        if let Err(e) = self.store.take() {
            self.stale = true;
            self.note(format!("what was written could not be read again: {e}"));
            return Ok(());
        }
        self.maintain(batch.at_ns);
        Ok(())
    }

    fn messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn names(&mut self, host: &str) -> Result<BTreeSet<String>, Error> {
        if self.stale {
            self.ready()?;
        }
        let table = &self.store.table;
        let mut names = BTreeSet::new();
        let Some(host) = table.hosts.ordinal(host) else { return Ok(names) };
        for (file, name) in (0..).zip(table.files.iter()) {
            let row = table.latest(host, file).and_then(|row| table.rows.get(row as usize));
            if row.is_some_and(|row| !row.gone && !row.event) {
                names.insert(name.to_owned());
            }
        }
        Ok(names)
    }

    fn delete_before(&mut self, day: Day, today: Day, most: usize) -> Result<Deleted, Error> {
        self.ready()?;
        let table = &self.store.table;
        let covers = (0..table.hosts.len() as u32).filter_map(|host| table.cover(host));
        let days: BTreeSet<Day> = covers.flat_map(|cover| cover.days.iter().copied()).collect();
        let old = days.range(..day).count();
        if day <= table.kept_from || old == 0 {
            return Ok(Deleted::All);
        }
        let keep = usize::try_from(today.0.saturating_sub(day.0)).unwrap_or(0);
        let doubt = doubt(&days, keep, today);
        // Beyond as many as are to be kept, the oldest go whatever the clock says: the disk has a bound.
        let surplus = days.len().saturating_sub(keep.saturating_add(1));
        let may = if doubt.is_some() { surplus } else { usize::MAX }.min(most).min(old);
        if may > 0 {
            let from = days.iter().nth(may).map_or(day, |first| day.min(*first));
            self.seal_from(from)?;
        }
        Ok(match doubt {
            _ if may == old => Deleted::All,
            Some(why) if may < most => Deleted::Doubted(why),
            _ => Deleted::Some,
        })
    }
}

/// Why it may not be the day that the clock says: then the days before it are not there.
fn doubt(days: &BTreeSet<Day>, keep: usize, today: Day) -> Option<String> {
    let wanted = keep.clamp(1, DAYS_WANTED);
    let since = Day(today.0.saturating_sub(2 * wanted as i32 + 1));
    let there = days.range(since..today).count();
    (there < wanted).then(|| {
        let last = days.range(..today).next_back();
        let last = last.map_or_else(|| "none".to_owned(), |day| format!("the last is {day}"));
        format!("of the days from {since} to {today} there are {there}, {last}")
    })
}

fn next_number(listed: &[(Role, u64)]) -> u64 {
    listed.iter().map(|(_, number)| *number).max().map_or(1, |number| number.saturating_add(1))
}

impl Log {
    /// Makes a log and its name durable.
    fn create(dir: &Path, number: u64) -> Result<Self, Error> {
        let path = files::path(dir, Role::Log, number);
        let file = files::create(&path).at(&path)?;
        let made =
            file.write_all_at(&frame::file_header(Role::Log.magic()), 0).and_then(|()| file.sync_all());
        if let Err(e) = made {
            let _ = std::fs::remove_file(&path);
            return Err(e).at(path);
        }
        files::sync_dir(dir)?;
        Ok(Self { path, file, end: FILE_HEADER_BYTES, torn: false })
    }

    /// Appends bytes, or leaves the log as it was.
    fn append(&mut self, bytes: &[u8], sync: bool) -> Result<(), Error> {
        if self.torn {
            self.file.set_len(self.end).at(&self.path)?;
        }
        self.torn = true;
        let written = self.file.write_all_at(bytes, self.end);
        let written = written.and_then(|()| if sync { self.file.sync_data() } else { Ok(()) });
        if let Err(e) = written {
            // Should that fail too, it is tried again before anything else is written.
            self.torn = self.file.set_len(self.end).is_err();
            return Err(e).at(&self.path);
        }
        self.end += bytes.len() as u64;
        self.torn = false;
        Ok(())
    }
}
