//! What processes of services in trouble have said to journald, looked through for texts that name a limit.
//!
//! The files of the journal are read, not its programs: what came since the look before is found in three or four reads, and nobody
//! has to decode it meanwhile. Who said something goes by the fields that journald adds itself (`_PID`, `_SYSTEMD_UNIT`, `_COMM`),
//! which no message can set. Of a process that has gone by now the unit tells, if it is a service: journald has no name of it, or the
//! one of a process that was asked for. Nothing of a message is kept.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use mitra_model::limits::{LimitText, texts_of};
use mitra_parse::journal::{Cursor, Entry, Header, Source};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use crate::file::{Buffer, LINK_BYTES, Root, each_entry, link};
use crate::log_tail::{LINE_BYTES_MAX, Look, STALE_S, count, note};

/// Below one folder each machine has one, and each namespace of journald.
const FOLDERS: [&str; 2] = ["run/log/journal", "var/log/journal"];
/// As many files are read: that of the system, and one for each ordinary user.
const FILES_MAX: usize = 16;
/// As many names of a folder are looked at. Those that journald has finished are not among them.
const NAMES_MAX: usize = 1024;
/// As many entries of a file in a look. A unit may write 10,000 in 30 s before journald drops its messages.
const ENTRIES_MAX: u32 = 512;
/// Of a file that is new here: as many of the last ones, if they came so lately that they belong to the trouble.
const FIRST_ENTRIES_MAX: u32 = 64;
const FIRST_AGE_US: u64 = 2_000_000;
/// Fields of a file that are known: most entries of a process share theirs.
const FIELDS_MAX: usize = 4096;
/// Of a field that is no message so much is read.
const FIELD_BYTES_MAX: usize = 320;

/// A field, by what it is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Pid(u64),
    Comm(String),
    Unit(String),
    /// It came as a message to syslog.
    Syslog,
    Message,
    Other,
}

/// What is known of a file.
#[derive(Debug, Default)]
struct File {
    cursor: Cursor,
    fields: HashMap<u64, Field>,
    at_s: u64,
}

/// A process that is asked for, and what its program would say.
struct Asked {
    pid: u64,
    comm: String,
    /// The field of what it says itself.
    own: Field,
    /// The fields of its unit, if that is a service of systemd, and of its name.
    unit: Option<Field>,
    name: Field,
    texts: Vec<&'static LimitText>,
}

/// The files that were looked at before, by what they call themselves.
#[derive(Debug, Default)]
pub struct Journals {
    files: HashMap<[u8; 16], File>,
    buffer: Vec<u8>,
}

/// The bytes of an open file. They are copied: a mapped one that is cut off would end the recorder.
pub struct Open<'a> {
    pub fd: &'a OwnedFd,
    pub buffer: &'a mut Vec<u8>,
}

impl Source for Open<'_> {
    fn at(&mut self, offset: u64, bytes: usize) -> Option<&[u8]> {
        self.buffer.resize(bytes.max(self.buffer.len()), 0);
        let room = self.buffer.get_mut(..bytes)?;
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(self.fd, &mut *room, offset)).ok()?;
        self.buffer.get(..read)
    }
}

impl Journals {
    /// Looks at what processes have said since the look before. `now_s` counts seconds, from wherever.
    pub fn look(&mut self, root: &Root, pids: &[u64], now_s: u64, look: &mut Look) {
        self.files.retain(|_, file| now_s.saturating_sub(file.at_s) <= STALE_S);
        let asked: Vec<Asked> = pids.iter().filter_map(|pid| Asked::of(root, *pid)).collect();
        if asked.is_empty() {
            return;
        }
        let (mut read, mut is_heard) = (0_u64, false);
        let (files, is_cut) = files(root);
        if is_cut {
            look.denied = Some(more_files());
        }
        for opened in files {
            let looked = opened.and_then(|fd| self.read(&fd, now_s, &asked, look));
            match looked {
                Ok(said) => (read, is_heard) = (read + 1, is_heard | said),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => look.denied = Some(error),
                // A file that has gone or is none says nothing, and the others do.
                Err(_) => {}
            }
        }
        if read > 0 && (is_heard || asked.iter().any(|asked| writes_to_a_socket(root, asked.pid))) {
            look.logs += 1;
        }
    }

    /// Whether any of the processes has said something, whatever it was.
    fn read(&mut self, fd: &OwnedFd, now_s: u64, asked: &[Asked], look: &mut Look) -> Result<bool> {
        let mut source = Open { fd, buffer: &mut self.buffer };
        let header = Header::read(&mut source).map_err(|why| Error::new(ErrorKind::InvalidData, why))?;
        let is_new = !self.files.contains_key(&header.id);
        let file = self.files.entry(header.id).or_default();
        file.at_s = now_s;
        if file.fields.len() > FIELDS_MAX {
            file.fields.clear();
        }
        let entries =
            file.cursor.next(&mut source, &header, if is_new { FIRST_ENTRIES_MAX } else { ENTRIES_MAX });
        let mut is_heard = false;
        for offset in entries {
            let Some(entry) = header.entry(&mut source, offset) else { continue };
            if is_new && !is_young(entry.realtime_us) {
                continue;
            }
            is_heard |= file.hear(&mut source, &header, &entry, asked, look);
        }
        Ok(is_heard)
    }
}

impl File {
    /// Whether one of the processes has said it. Counts what names a limit.
    fn hear(
        &mut self,
        source: &mut Open<'_>,
        header: &Header,
        entry: &Entry,
        asked: &[Asked],
        look: &mut Look,
    ) -> bool {
        for offset in &entry.fields {
            let new = || header.field(source, *offset, FIELD_BYTES_MAX).map_or(Field::Other, Field::of);
            self.fields.entry(*offset).or_insert_with(new);
        }
        let is = |field: &Field, offset: &&u64| self.fields.get(*offset) == Some(field);
        let find = |field: &Field| entry.fields.iter().find(|offset| is(field, offset));
        let own = asked.iter().find(|asked| find(&asked.own).is_some());
        let has_name =
            entry.fields.iter().any(|offset| matches!(self.fields.get(offset), Some(Field::Comm(_))));
        let is_of_unit = |asked: &&Asked| {
            let is_unit = asked.unit.as_ref().is_some_and(|unit| find(unit).is_some());
            is_unit && (!has_name || find(&asked.name).is_some())
        };
        let of_unit = || asked.iter().find(is_of_unit);
        let Some(asked) = own.or_else(of_unit) else { return false };
        let (message, is_syslog) = (find(&Field::Message), find(&Field::Syslog).is_some());
        let text = message.and_then(|offset| header.field(source, *offset, LINE_BYTES_MAX));
        let Some(text) = text.and_then(|text| text.strip_prefix(b"MESSAGE=")) else { return true };
        let text = if is_syslog { behind_the_host(text, &asked.comm) } else { text };
        count(text, &asked.texts, |kind| note(look, &asked.comm, kind, asked.pid));
        true
    }
}

impl Field {
    fn of(bytes: &[u8]) -> Field {
        let text = |name: &[u8]| bytes.strip_prefix(name).and_then(|value| std::str::from_utf8(value).ok());
        if bytes.starts_with(b"MESSAGE=") {
            return Field::Message;
        }
        if bytes == b"_TRANSPORT=syslog" {
            return Field::Syslog;
        }
        let pid = text(b"_PID=").and_then(|pid| pid.parse().ok()).map(Field::Pid);
        let comm = || text(b"_COMM=").map(|comm| Field::Comm(comm.to_owned()));
        let unit = || text(b"_SYSTEMD_UNIT=").map(|unit| Field::Unit(unit.to_owned()));
        pid.or_else(comm).or_else(unit).unwrap_or(Field::Other)
    }
}

impl Asked {
    /// Nothing of a process whose program says nothing of limits.
    fn of(root: &Root, pid: u64) -> Option<Asked> {
        let mut buffer = Buffer::default();
        let comm = root.read(&format!("proc/{pid}/comm"), &mut buffer).ok()?;
        let comm = String::from_utf8_lossy(comm).trim_end_matches('\n').to_owned();
        let texts: Vec<_> = texts_of(&comm).collect();
        if texts.is_empty() {
            return None;
        }
        let unit = service_of(&root.text(&format!("proc/{pid}/cgroup")).unwrap_or_default()).map(Field::Unit);
        Some(Asked { pid, own: Field::Pid(pid), unit, name: Field::Comm(comm.clone()), comm, texts })
    }
}

/// The unit as journald knows it, of `/proc/PID/cgroup`, if it is a service. All of a user are in the one of the user's manager.
fn service_of(text: &str) -> Option<String> {
    let path = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        (controllers.is_empty() || controllers == "name=systemd").then(|| path.to_owned())
    };
    let unit = |path: String| path.split('/').find(|part| part.ends_with(".service")).map(str::to_owned);
    text.lines().filter_map(path).find_map(unit).filter(|unit| !unit.starts_with("user@"))
}

/// Some programs send the name of the host as well, which journald takes for a part of the message: `db1 nginx: `.
fn behind_the_host<'a>(text: &'a [u8], comm: &str) -> &'a [u8] {
    let end_of_host = text.iter().position(|byte| *byte == b' ').map_or(text.len(), |at| at + 1);
    let rest = text.get(end_of_host..).unwrap_or_default();
    rest.strip_prefix(comm.as_bytes()).and_then(|rest| rest.strip_prefix(b": ")).unwrap_or(text)
}

/// Whether standard output or standard error is a socket, as that of journald is.
fn writes_to_a_socket(root: &Root, pid: u64) -> bool {
    let is_socket = |number: u8| {
        let mut space = [0; LINK_BYTES];
        link(root.fd(), format!("proc/{pid}/fd/{number}"), &mut space)
            .is_some_and(|link| link.starts_with(b"socket:"))
    };
    is_socket(1) || is_socket(2)
}

fn is_young(realtime_us: u64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros());
    now.abs_diff(realtime_us.into()) <= FIRST_AGE_US.into()
}

/// The files that journald writes to, open, and whether there are more of them than are read. Those that it has finished have an `@` in
/// their names.
pub fn files(root: &Root) -> (Vec<Result<OwnedFd>>, bool) {
    let is_written = |name: &str| {
        name == "system.journal"
            || name.starts_with("user-") && name.ends_with(".journal") && !name.contains('@')
    };
    let (mut files, mut is_cut) = (Vec::new(), false);
    each_file(root, is_written, |file| {
        if files.len() < FILES_MAX {
            files.push(file);
        } else {
            is_cut = true;
        }
    });
    (files, is_cut)
}

/// Why some of the files are not read.
pub fn more_files() -> Error {
    Error::other(format!("journald writes to more than {FILES_MAX} files; the others are not read"))
}

/// Opens those files of this machine's journals whose names are wanted, one after the other.
pub fn each_file(root: &Root, is_wanted: impl Fn(&str) -> bool, mut f: impl FnMut(Result<OwnedFd>)) {
    let Some(machine) = root.text("etc/machine-id").filter(|id| !id.is_empty()) else { return };
    for folder in FOLDERS {
        let Ok(folder) = open_folder(root.fd(), folder) else { continue };
        let is_own = |name: &str| {
            name.strip_prefix(&machine).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        for name in names(&folder, is_own) {
            let own = match open_folder(folder.as_fd(), &name) {
                Ok(own) => own,
                Err(error) => {
                    f(Err(error));
                    continue;
                }
            };
            names(&own, &is_wanted).into_iter().for_each(|name| f(open(&own, &name)));
        }
    }
}

fn open_folder(at: std::os::fd::BorrowedFd<'_>, name: &str) -> Result<OwnedFd> {
    Ok(openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn names(folder: &OwnedFd, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    let listed = each_entry(folder.as_fd(), |name| {
        let name = name.to_str().ok().filter(|name| is_wanted(name) && names.len() < NAMES_MAX);
        names.extend(name.map(str::to_owned));
    });
    // That of the system comes first.
    names.sort_unstable();
    listed.map_or_else(|_| Vec::new(), |()| names)
}

/// Opens a file of the journal: a regular one of root's that nobody else may change.
fn open(folder: &OwnedFd, name: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || stat.st_uid != 0 || Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(Error::new(ErrorKind::InvalidData, "no file of journald"));
    }
    Ok(file)
}

#[cfg(test)]
pub mod tests;
