//! What a unit says to journald, by the files of the journal.
//!
//! A message belongs to the unit that journald itself has noted (`_SYSTEMD_UNIT`), which no message can set. Where it goes on
//! is the number of entries of each file, which keeps its own id when journald has finished it.

use std::collections::HashMap;
use std::io::{self, ErrorKind};

use mitra_parse::journal::{Cursor, Header};

use super::state::{JournalFile, Kept, LogState};
use crate::file::Root;
use crate::journal::{self, Open};

/// As many entries of a file in one step.
const ENTRIES_MAX: u64 = 4096;
/// Fields of a file that are known: most entries of a unit share theirs.
const FIELDS_MAX: usize = 4096;
/// Of a message so much is looked at.
const MESSAGE_BYTES_MAX: usize = super::open_log::LINE_BYTES_MAX;
const FIELD_BYTES_MAX: usize = 1100;
/// What an entry costs of the bytes that may be read.
const ENTRY_BYTES: u64 = 1024;

/// A field, by what it is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Unit,
    Other,
}

/// What is known of a file.
#[derive(Debug, Default)]
struct File {
    cursor: Cursor,
    fields: HashMap<u64, Field>,
    /// Whether it was among the files that journald writes to.
    is_written: bool,
}

/// The messages of a unit.
#[derive(Debug)]
pub struct Unit {
    field: Vec<u8>,
    files: HashMap<[u8; 16], File>,
    /// Whether what is there when the journal is first seen was passed over.
    has_begun: bool,
    /// When the newest entry came that was seen, in microseconds since 1970.
    newest_us: u64,
    /// Whether there are more files than are read.
    pub is_cut: bool,
    /// Whether a file that was not seen yet may have been there all the time.
    may_be_old: bool,
    pub lines: u64,
    pub skipped: u64,
    /// Entries that are still to be read.
    pub behind: u64,
    /// What is not to be found any more, for a message.
    pub lost: Vec<String>,
}

impl Unit {
    /// Goes on behind the entries that an earlier recorder has seen.
    pub fn new(unit: &str, kept: Option<&Kept>) -> Unit {
        let file = |(id, seen): &JournalFile| {
            (*id, File { cursor: Cursor::behind(*seen), is_written: true, ..File::default() })
        };
        let log = kept.map(|kept| &kept.log);
        Unit {
            field: format!("_SYSTEMD_UNIT={unit}").into_bytes(),
            files: kept.map_or_else(HashMap::new, |kept| kept.journal.iter().map(file).collect()),
            has_begun: kept.is_some(),
            newest_us: log.and_then(|log| u64::try_from(log.horizon_ns).ok()).unwrap_or(0),
            is_cut: false,
            may_be_old: false,
            lines: log.map_or(0, |log| log.lines),
            skipped: log.map_or(0, |log| log.skipped),
            behind: 0,
            lost: Vec::new(),
        }
    }

    /// Where it goes on: how many entries of each file were seen.
    pub fn state(&self) -> Option<(LogState, Vec<JournalFile>)> {
        let mut files: Vec<_> = self.files.iter().map(|(id, file)| (*id, file.cursor.seen())).collect();
        files.sort_unstable();
        let horizon_ns = i64::try_from(self.newest_us).unwrap_or(0);
        let state = LogState { lines: self.lines, skipped: self.skipped, horizon_ns, ..LogState::default() };
        self.has_begun.then_some((state, files))
    }

    /// Passes on the messages that came since the last look.
    pub fn look(
        &mut self,
        root: &Root,
        left: &mut u64,
        buffer: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        let before = self.newest_us;
        self.behind = 0;
        self.files.values_mut().for_each(|file| file.is_written = false);
        let mut denied = None;
        let (mut newest_us, mut is_new, mut is_sure) = (self.newest_us, false, true);
        let (written, is_cut) = journal::files(root);
        // One that was not among the first moves there when another one has gone.
        self.may_be_old = self.is_cut || is_cut;
        self.is_cut = is_cut;
        if written.is_empty() {
            return Err(io::Error::other("there is no journal"));
        }
        for opened in written {
            let fd = match opened {
                Ok(fd) => fd,
                Err(error) => {
                    // It has another name by now, and is found by that in the next look.
                    is_sure = false;
                    denied = Some(error).filter(|error| error.kind() != ErrorKind::NotFound).or(denied);
                    continue;
                }
            };
            let mut source = Open { fd: &fd, buffer: &mut *buffer };
            let Ok(header) = Header::read(&mut source) else {
                is_sure = false;
                continue;
            };
            newest_us = newest_us.max(header.last_us);
            is_new |= self.has_begun && !self.files.contains_key(&header.id);
            self.read(&mut source, &header, left, each);
            if let Some(file) = self.files.get_mut(&header.id) {
                file.is_written = true;
            }
        }
        let is_any_finished = self.files.values().any(|file| !file.is_written);
        if is_sure && self.has_begun && (is_new || is_any_finished) {
            self.finished(root, before, left, buffer, each);
        }
        self.has_begun = true;
        if *left > 0 && is_sure {
            self.newest_us = newest_us;
        }
        denied.map_or(Ok(()), Err)
    }

    /// Reads the rest of files that journald has finished, and those that it began and finished since the last look.
    fn finished(
        &mut self,
        root: &Root,
        before_us: u64,
        left: &mut u64,
        buffer: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8]),
    ) {
        let is_finished =
            |name: &str| name.contains('@') && (name.ends_with(".journal") || name.ends_with(".journal~"));
        let mut seen = Vec::new();
        journal::each_file(root, is_finished, |opened| {
            let Ok(fd) = opened else { return };
            let mut source = Open { fd: &fd, buffer: &mut *buffer };
            let Ok(header) = Header::read(&mut source) else { return };
            let is_known = self.files.contains_key(&header.id);
            if is_known || before_us > 0 && header.first_us >= before_us {
                seen.push(header.id);
                self.read(&mut source, &header, left, each);
            }
        });
        if *left == 0 {
            // The rest of them comes in the next look.
            return;
        }
        let is_gone = |(id, file): &(&[u8; 16], &File)| !file.is_written && !seen.contains(*id);
        if self.files.iter().any(|one| is_gone(&one)) {
            self.lost.push("journald has removed a file that was not read to its end".to_owned());
        }
        self.files.retain(|_, file| file.is_written);
    }

    fn read(&mut self, source: &mut Open<'_>, header: &Header, left: &mut u64, each: &mut dyn FnMut(&[u8])) {
        // Of a file that is new all entries count, unless it began before what was read already.
        let is_new = self.has_begun && !(self.may_be_old && header.first_us < self.newest_us);
        let file = self.files.entry(header.id).or_insert_with(|| {
            let seen = if is_new { 0 } else { header.entries };
            File { cursor: Cursor::behind(seen), ..File::default() }
        });
        while file.cursor.seen() < header.entries && *left > 0 {
            let mut part = *header;
            part.entries = header.entries.min(file.cursor.seen() + ENTRIES_MAX);
            let entries = file.cursor.next(source, &part, u32::MAX);
            if entries.is_empty() {
                break;
            }
            *left = left.saturating_sub(ENTRY_BYTES * entries.len() as u64);
            for offset in entries {
                let Some(entry) = header.entry(source, offset) else { continue };
                if file.fields.len() > FIELDS_MAX {
                    file.fields.clear();
                }
                let mut is_own = false;
                for offset in &entry.fields {
                    let unit = &self.field;
                    let known = file.fields.entry(*offset).or_insert_with(|| {
                        let field = header.field(source, *offset, FIELD_BYTES_MAX);
                        if field == Some(&unit[..]) { Field::Unit } else { Field::Other }
                    });
                    is_own |= *known == Field::Unit;
                }
                if is_own {
                    self.lines += 1;
                    self.skipped += message(source, header, &entry.fields, each);
                }
            }
        }
        self.behind += header.entries.saturating_sub(file.cursor.seen());
    }
}

/// Passes on the message of an entry. Returns the bytes that could not be looked at.
fn message(source: &mut Open<'_>, header: &Header, fields: &[u64], each: &mut dyn FnMut(&[u8])) -> u64 {
    let mut compressed = 0;
    for offset in fields {
        match header.field(source, *offset, MESSAGE_BYTES_MAX) {
            Some(field) => {
                if let Some(text) = field.strip_prefix(b"MESSAGE=") {
                    each(text);
                    return 0;
                }
            }
            None => compressed += header.compressed_bytes(source, *offset).unwrap_or(0),
        }
    }
    compressed
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    /// The head of a file that has three entries and began then.
    fn file(first_us: u64) -> OwnedFd {
        let mut head = vec![0_u8; 208];
        let mut set = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        set(0, b"LPKSHHRH");
        set(24, &first_us.to_le_bytes());
        set(152, &3_u64.to_le_bytes());
        set(184, &first_us.to_le_bytes());
        set(192, &9_000_u64.to_le_bytes());
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &head).unwrap();
        file.into()
    }

    #[test]
    fn a_file_that_was_beyond_the_bound_counts_from_its_end() {
        let behind = |may_be_old: bool, first_us: u64| {
            let mut unit = Unit::new("a.service", None);
            (unit.has_begun, unit.newest_us, unit.may_be_old) = (true, 5_000, may_be_old);
            let (fd, mut buffer, mut left) = (file(first_us), Vec::new(), 1 << 20);
            let mut source = Open { fd: &fd, buffer: &mut buffer };
            let header = Header::read(&mut source).unwrap();
            unit.read(&mut source, &header, &mut left, &mut |_| {});
            unit.behind
        };
        assert_eq!(behind(true, 4_000), 0, "its history was there all the time");
        assert_eq!(behind(true, 6_000), 3, "it is new");
        assert_eq!(behind(false, 4_000), 3, "so it is where all are read, whatever the clock says");
    }
}
