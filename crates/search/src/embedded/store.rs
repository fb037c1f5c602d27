//! Reading what a writer wrote: the table in memory, contents on demand.
//!
//! What counts is the table with the highest number, the packs that it names, and the logs from the number that it names. A
//! reader needs no lock: files that have their name are never changed but for the last log, which grows; files that a writer
//! removed meanwhile stay open, or opening is begun again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{BATCH, Batch};
use super::block::{INDEX, Index};
use super::codec::Input;
pub use super::content::Content;
use super::contents::{Contents, Source};
use super::files::{self, Role};
use super::frame::{self, FILE_HEADER_BYTES, Next, Scan, VERSION};
use super::sealed::{self, HEAD, HOSTS, Head, ROWS};
use super::table::Table;
use crate::document::{Document, Flag};
use crate::error::{At, Error};

/// Times that opening is begun again because files went meanwhile.
const OPEN_TRIES_MAX: u32 = 8;
/// Places of damage that are named.
const SKIPPED_MAX: usize = 1_000;
/// Bytes read ahead where only every second piece of a file is wanted.
const INDEX_WINDOW_BYTES: usize = 8 << 10;

/// A part of an index that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub why: String,
}

/// The log that grows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail {
    pub(super) number: u64,
    /// Its file among the sources of contents.
    source: u32,
    /// Where whole frames end.
    pub(super) end: u64,
}

/// What a writer wrote, to be read. Others may write while it is open.
pub struct Store {
    pub(super) dir: PathBuf,
    pub(super) table: Table,
    pub(super) contents: Contents,
    /// The ordinal of the next content.
    pub(super) next: u32,
    pub(super) tail: Option<Tail>,
    pub(super) packs: Vec<u64>,
    pub(super) log_from: u64,
    /// The number of the table and the bytes of its file.
    pub(super) sealed: Option<(u64, u64)>,
    logs: Vec<u64>,
    with_keys: bool,
    skipped: Vec<Skipped>,
}

impl Store {
    /// Opens the index in a folder. A folder without one is an error.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Self::load(dir, false)
    }

    /// Sees what was written since. Says whether there was anything; then rows may have other numbers than before, while
    /// ordinals of contents stay.
    pub fn refresh(&mut self) -> Result<bool, Error> {
        let listed = files::list(&self.dir)?;
        if newest_table(&listed) == self.sealed.map(|(number, _)| number)
            && logs_from(&listed, self.log_from) == self.logs
        {
            match self.read_tail()? {
                Read::Nothing => return Ok(false),
                Read::More => return Ok(true),
                Read::Other => {}
            }
        }
        *self = Self::load(&self.dir, self.with_keys)?;
        Ok(true)
    }

    /// Every state of every document.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The ordinal that the next content gets.
    #[must_use]
    pub fn contents(&self) -> u32 {
        self.next
    }

    /// A content, read from disk.
    pub fn content(&self, ordinal: u32) -> Result<Content, Error> {
        self.contents.content(ordinal)
    }

    /// Whether a state of a document has this content.
    #[must_use]
    pub fn live(&self, ordinal: u32) -> bool {
        self.table.live(ordinal)
    }

    /// A state of a document, whole, with the flag `gone` where it is gone.
    pub fn document(&self, row: u32) -> Result<Document, Error> {
        let Some(row) = self.table.rows.get(row as usize) else {
            return Err(Error::Cannot(format!("{}: there is no row {row}", self.dir.display())));
        };
        let content = self.content(row.content)?;
        let mut document = Document {
            host: self.table.hosts.name(row.host).to_owned(),
            filename: self.table.files.name(row.file).to_owned(),
            kind: content.kind,
            content: content.text,
            stat: row.stat.and_then(|stat| self.table.stats.get(stat as usize)).cloned(),
            facts: content.facts,
            flags: content.flags,
            link: content.link,
            withheld: content.withheld,
            since_ns: row.since_ns,
        };
        if row.gone {
            document.flag(Flag::Gone);
        }
        Ok(document)
    }

    /// What could not be read when it was opened.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Opens it, for a writer with the keys of contents.
    pub(super) fn load(dir: &Path, with_keys: bool) -> Result<Self, Error> {
        let mut listed = files::list(dir)?;
        for _ in 0..OPEN_TRIES_MAX {
            match Self::try_load(dir, &listed, with_keys, true) {
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                other => return other,
            }
            let now = files::list(dir)?;
            if now == listed {
                break;
            }
            listed = now;
        }
        // Nobody is removing files: they are lost, and the rest is not.
        Self::try_load(dir, &listed, with_keys, false)
    }

    fn try_load(dir: &Path, listed: &[(Role, u64)], with_keys: bool, strict: bool) -> Result<Self, Error> {
        let mut store = Self {
            dir: dir.to_owned(),
            table: Table::default(),
            contents: Contents::new(dir.to_owned(), with_keys),
            next: 0,
            tail: None,
            packs: Vec::new(),
            log_from: 0,
            sealed: None,
            logs: Vec::new(),
            with_keys,
            skipped: Vec::new(),
        };
        if let Some(number) = newest_table(listed) {
            store.read_table(number)?;
        }
        for number in store.packs.clone() {
            if let Some(source) = store.source(Role::Pack, number, strict)? {
                store.read_pack(source)?;
            }
        }
        store.logs = logs_from(listed, store.log_from);
        if store.sealed.is_none() && store.logs.is_empty() {
            return Err(Error::Cannot(format!("{}: no index was written here", dir.display())));
        }
        for number in store.logs.clone() {
            store.end_of_log();
            if let Some(source) = store.source(Role::Log, number, strict)? {
                store.tail = Some(Tail { number, source, end: FILE_HEADER_BYTES });
                store.read_tail()?;
            }
        }
        Ok(store)
    }

    fn skip(&mut self, path: &Path, offset: u64, why: impl Into<String>) {
        if self.skipped.len() < SKIPPED_MAX {
            self.skipped.push(Skipped { path: path.to_owned(), offset, why: why.into() });
        }
    }

    /// Checks the header of a file. One of a later version is an error, one that is damaged is named.
    fn check(&mut self, path: &Path, file: &File, role: Role) -> Result<(), Error> {
        match frame::file_version(file, role.magic()).at(path)? {
            Some(version) if version > VERSION => Err(Error::Broken {
                path: path.to_owned(),
                what: format!("has format version {version}; this version of Mitra reads up to {VERSION}"),
            }),
            Some(_) => Ok(()),
            None => {
                self.skip(path, 0, "its header is damaged");
                Ok(())
            }
        }
    }

    fn read_table(&mut self, number: u64) -> Result<(), Error> {
        let path = files::path(&self.dir, Role::Table, number);
        let file = File::open(&path).at(&path)?;
        self.check(&path, &file, Role::Table)?;
        let len = file.metadata().at(&path)?.len();
        let mut scan = Scan::new(&file, FILE_HEADER_BYTES, len);
        let mut head = None;
        loop {
            let (at, outcome) = match scan.next().at(&path)? {
                Next::Frame { kind, payload, at } => match kind {
                    HEAD => (at, Head::decode(payload).map(|found| head = Some(found))),
                    HOSTS => (at, sealed::decode_hosts(payload, &mut self.table)),
                    ROWS => (at, sealed::decode_rows(payload, &mut self.table)),
                    _ => continue,
                },
                Next::Damage { from, to } => {
                    self.skip(&path, from, format!("{} bytes are damaged", to - from));
                    continue;
                }
                Next::End { at } if at < len => {
                    self.skip(&path, at, format!("{} bytes at the end are damaged", len - at));
                    break;
                }
                Next::End { .. } => break,
            };
            if let Err(e) = outcome {
                self.skip(&path, at, format!("no {}", e.0));
            }
        }
        let Some(head) = head else {
            return Err(Error::Broken {
                path,
                what: "its head is damaged, and the copy at its end too".to_owned(),
            });
        };
        self.table.kept_from = head.kept_from;
        self.next = self.next.max(head.contents);
        self.packs = head.packs;
        self.log_from = head.log_from;
        self.sealed = Some((number, len));
        Ok(())
    }

    /// Opens a file with contents; where it is missing that is an error, or a loss.
    fn source(&mut self, role: Role, number: u64, strict: bool) -> Result<Option<u32>, Error> {
        let path = files::path(&self.dir, role, number);
        match File::open(&path) {
            Ok(file) => {
                let source = Source { role, number, path, file: Arc::new(file) };
                Ok(Some(self.contents.add_source(source)))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !strict => {
                self.skip(&path, 0, "the file is missing");
                Ok(None)
            }
            Err(e) => Err(e).at(path),
        }
    }

    fn source_at(&self, source: u32) -> Option<Source> {
        self.contents.sources().get(source as usize).cloned()
    }

    fn read_pack(&mut self, source: u32) -> Result<(), Error> {
        let Some(Source { path, file, .. }) = self.source_at(source) else { return Ok(()) };
        self.check(&path, &file, Role::Pack)?;
        let len = file.metadata().at(&path)?.len();
        let mut scan = Scan::new(&file, FILE_HEADER_BYTES, len).window(INDEX_WINDOW_BYTES);
        loop {
            let index = match scan.next().at(&path)? {
                Next::Frame { kind: INDEX, payload, .. } => Index::read(&mut Input::new(payload)),
                Next::Frame { .. } => continue,
                Next::Damage { from, to } => {
                    self.skip(&path, from, format!("{} bytes are damaged", to - from));
                    continue;
                }
                Next::End { at } => {
                    if at < len {
                        self.skip(&path, at, format!("{} bytes at the end are damaged", len - at));
                    }
                    return Ok(());
                }
            };
            let at = scan.at();
            match index {
                Ok(index) if scan.skip(u64::from(index.packed)) => {
                    let table = &self.table;
                    self.contents.add_block(source, at, &index, |ordinal| table.live(ordinal));
                }
                Ok(_) => self.skip(&path, at, "the file ends before the contents that were announced"),
                Err(e) => self.skip(&path, at, format!("no {}", e.0)),
            }
        }
    }

    /// Reads what was appended to the last log.
    fn read_tail(&mut self) -> Result<Read, Error> {
        let Some(tail) = self.tail else { return Ok(Read::Nothing) };
        let Some(Source { path, file, .. }) = self.source_at(tail.source) else { return Ok(Read::Nothing) };
        let len = file.metadata().at(&path)?.len();
        let first = tail.end == FILE_HEADER_BYTES;
        if len == tail.end || (first && len < tail.end) {
            return Ok(Read::Nothing);
        }
        // A writer whose disk was full took back what it had begun.
        if len < tail.end {
            return Ok(Read::Other);
        }
        if first {
            self.check(&path, &file, Role::Log)?;
        }
        let mut scan = Scan::new(&file, tail.end, len);
        if !first && !scan.may_begin().at(&path)? {
            return Ok(Read::Other);
        }
        let mut read = Read::Nothing;
        loop {
            match scan.next().at(&path)? {
                Next::Frame { kind: BATCH, payload, at } => {
                    self.apply(tail.source, at, payload, &path);
                    self.tail = Some(Tail { end: scan.at(), ..tail });
                    read = Read::More;
                }
                Next::Frame { .. } => {}
                Next::Damage { .. } if !first && matches!(read, Read::Nothing) => return Ok(Read::Other),
                Next::Damage { from, to } => {
                    self.skip(&path, from, format!("{} bytes are damaged", to - from));
                }
                Next::End { at } => {
                    self.tail = Some(Tail { end: at, ..tail });
                    return Ok(read);
                }
            }
        }
    }

    /// Takes a batch that stands at a place of a file.
    fn apply(&mut self, source: u32, at: u64, payload: &[u8], path: &Path) {
        let (batch, blocks) = match Batch::decode(payload) {
            Ok(found) => found,
            Err(e) => return self.skip(path, at, format!("no {}", e.0)),
        };
        for (index, offset) in blocks {
            for entry in &index.entries {
                self.next = self.next.max(entry.ordinal + 1);
            }
            self.contents.add_block(source, at + offset as u64, &index, |_| true);
        }
        let host = self.table.hosts.add(&batch.host);
        for (file, state) in batch.rows {
            // The batch with its content may be lost; the ordinal is taken all the same.
            self.next = self.next.max(state.content + 1);
            let file = self.table.files.add(&file);
            self.table.push(host, file, state);
        }
        self.table.seen(host, batch.at_ns);
    }

    /// A log that another one follows has nothing more to come: what is left of it is damage.
    fn end_of_log(&mut self) {
        let Some(tail) = self.tail.take() else { return };
        let Some(Source { path, file, .. }) = self.source_at(tail.source) else { return };
        let len = file.metadata().map_or(0, |m| m.len());
        if len > tail.end {
            self.skip(&path, tail.end, format!("{} bytes at the end are damaged", len - tail.end));
        }
    }

    /// Sees what was appended to the last log by the writer itself.
    pub(super) fn take(&mut self) -> Result<(), Error> {
        match self.read_tail()? {
            Read::Nothing | Read::More => Ok(()),
            Read::Other => {
                *self = Self::load(&self.dir, self.with_keys)?;
                Ok(())
            }
        }
    }

    /// Begins to read a log that was made just now.
    pub(super) fn new_log(&mut self, number: u64) -> Result<(), Error> {
        if let Some(source) = self.source(Role::Log, number, true)? {
            self.logs.push(number);
            self.tail = Some(Tail { number, source, end: FILE_HEADER_BYTES });
        }
        Ok(())
    }
}

/// What the end of a log had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Nothing,
    More,
    /// What was read before is not what stands there now.
    Other,
}

fn newest_table(listed: &[(Role, u64)]) -> Option<u64> {
    listed.iter().filter(|(role, _)| *role == Role::Table).map(|(_, number)| *number).max()
}

fn logs_from(listed: &[(Role, u64)], from: u64) -> Vec<u64> {
    listed.iter().filter(|(role, number)| *role == Role::Log && *number >= from).map(|(_, n)| *n).collect()
}
