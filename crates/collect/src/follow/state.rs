//! Where logs go on when the recorder is started again, with what was counted up to there: one text file.
//!
//! Positions and counts stand in one file, which is replaced by rename(2). So they belong together at each moment, whenever
//! the recorder is killed: what was counted behind that position is counted once more, from the counts that belong to it. It
//! is written before the counts are shown to a sample, so that no sample has more than the next recorder begins with.
//! There is no fsync(2): after a loss of power the file may be one of some seconds before, which is as good, or damaged.
//! Then logs are followed anew, from their ends, and that is said.
//!
//! Of a file are kept device, inode and offset, whether a line was counted whose end is to come, and length and hash of its beginning and
//! of what stands just before the offset. Earlier recorders did not keep the last two.
//!
//! ```text
//! mitra logs 1
//! log file=/var/log/app.log       the log
//! counts 120 0                    lines and bytes that were not looked at
//! horizon 1790000000000000000     when the file was last written to
//! match 7 timeout                 lines that match, and the pattern
//! file 64769 1311 9120 0 1024 4bf1c1d2a0b3e6f7 256 d1c04a6e91f0b357
//! current 64769 1312 77 0 77 9a3c0e6d5b1f2a48 77 9a3c0e6d5b1f2a48
//! seen 1024 0 0c5e2d7f8a9b1c3d    the beginning of a file that is done
//! sum 1f2e3d4c5b6a7988            of all before it
//! ```

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::known::{Begin, Tail, fnv};
use super::open_log::{Id, OpenLog};

const HEAD: &str = "mitra logs 1";
/// No state is larger: 64 logs with 150 lines.
const BYTES_MAX: u64 = 4 << 20;

/// An open file of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileState {
    pub id: Id,
    pub offset: u64,
    pub is_in_rest: bool,
    pub begin: Begin,
    /// What stands just before the offset.
    pub tail: Tail,
}

impl FileState {
    pub fn of(file: &OpenLog) -> FileState {
        FileState {
            id: file.id,
            offset: file.offset,
            is_in_rest: file.is_in_rest,
            begin: file.begin.clone(),
            tail: file.tail(),
        }
    }
}

/// A log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogState {
    pub lines: u64,
    pub skipped: u64,
    pub horizon_ns: i64,
    /// The files that are read, the oldest first; the last one has the name, if this is so.
    pub files: Vec<FileState>,
    pub has_current: bool,
    pub seen: Vec<Begin>,
}

/// A file of the journal, by its own id, and how many of its entries were seen.
pub type JournalFile = ([u8; 16], u64);

/// What was kept of a log: of a file, or of what a unit says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// `file=/var/log/app.log`.
    pub name: String,
    /// Lines that match, by pattern.
    pub matches: Vec<(String, u64)>,
    pub log: LogState,
    /// Of what a unit says.
    pub journal: Vec<JournalFile>,
}

/// Writes the text of a state.
pub fn text(all: &[Kept]) -> String {
    let mut out = format!("{HEAD}\n");
    for kept in all {
        let log = &kept.log;
        _ = writeln!(out, "log {}\ncounts {} {}", kept.name, log.lines, log.skipped);
        _ = writeln!(out, "horizon {}", log.horizon_ns);
        for (pattern, count) in &kept.matches {
            _ = writeln!(out, "match {count} {pattern}");
        }
        for (nth, file) in log.files.iter().enumerate() {
            let is_current = log.has_current && nth + 1 == log.files.len();
            let word = if is_current { "current" } else { "file" };
            let FileState { id, offset, begin, tail, .. } = file;
            let rest = u8::from(file.is_in_rest);
            _ = write!(out, "{word} {} {} {offset} {rest} {} {:x}", id.0, id.1, begin.len, begin.hash);
            _ = writeln!(out, " {} {:x}", tail.len, tail.hash);
        }
        for begin in &log.seen {
            _ = writeln!(out, "seen {} {} {:x}", begin.len, u8::from(begin.is_whole), begin.hash);
        }
        for (id, entries) in &kept.journal {
            _ = writeln!(out, "journal {:x} {entries}", u128::from_be_bytes(*id));
        }
    }
    let sum = fnv(out.as_bytes());
    _ = writeln!(out, "sum {sum:x}");
    out
}

/// Reads it. `None` of anything that was not written so.
pub fn parse(text: &str) -> Option<Vec<Kept>> {
    let at = text.rfind("sum ")?;
    let (body, sum) = text.split_at_checked(at)?;
    if u64::from_str_radix(sum.strip_prefix("sum ")?.strip_suffix('\n')?, 16).ok()? != fnv(body.as_bytes()) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != HEAD {
        return None;
    }
    let mut all: Vec<Kept> = Vec::new();
    for line in lines {
        let (word, rest) = line.split_once(' ')?;
        if word == "log" {
            all.push(Kept { name: rest.to_owned(), ..Kept::default() });
            continue;
        }
        part(all.last_mut()?, word, rest)?;
    }
    Some(all)
}

fn part(kept: &mut Kept, word: &str, rest: &str) -> Option<()> {
    let cells: Vec<&str> = rest.split(' ').collect();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    match (word, &cells[..]) {
        ("match", [count, ..]) => {
            let pattern = rest.split_once(' ')?.1;
            kept.matches.push((pattern.to_owned(), count.parse().ok()?));
        }
        ("counts", [lines, skipped]) => {
            (kept.log.lines, kept.log.skipped) = (lines.parse().ok()?, skipped.parse().ok()?);
        }
        ("horizon", [ns]) => kept.log.horizon_ns = ns.parse().ok()?,
        ("file" | "current", [device, inode, offset, rest, len, hash, tail @ ..]) => {
            let tail = match tail {
                [] => Tail::default(),
                [len, hash] => Tail { len: len.parse().ok()?, hash: hex(hash)? },
                _ => return None,
            };
            kept.log.has_current = word == "current";
            kept.log.files.push(FileState {
                id: (device.parse().ok()?, inode.parse().ok()?),
                offset: offset.parse().ok()?,
                is_in_rest: *rest == "1",
                begin: Begin::kept(len.parse().ok()?, hex(hash)?, false),
                tail,
            });
        }
        ("seen", [len, is_whole, hash]) => {
            kept.log.seen.push(Begin::kept(len.parse().ok()?, hex(hash)?, *is_whole == "1"));
        }
        ("journal", [id, entries]) => {
            let id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
            kept.journal.push((id, entries.parse().ok()?));
        }
        _ => return None,
    }
    Some(())
}

/// The file.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    written: String,
}

impl StateFile {
    pub fn new(path: &Path) -> StateFile {
        StateFile { path: path.to_owned(), written: String::new() }
    }

    /// What was kept, if there is something. An error says why it cannot be used.
    pub fn read(&self) -> io::Result<Option<Vec<Kept>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut text = String::new();
        io::Read::read_to_string(&mut io::Read::take(std::fs::File::from(fd), BYTES_MAX), &mut text)?;
        match parse(&text) {
            Some(kept) => Ok(Some(kept)),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged, or of another version")),
        }
    }

    /// Replaces the file, if there is anything new.
    pub fn write(&mut self, all: &[Kept]) -> io::Result<()> {
        let text = text(all);
        if text == self.written {
            return Ok(());
        }
        let beside = self.path.with_extension("state.tmp");
        _ = std::fs::remove_file(&beside);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&beside, flags, Mode::from_raw_mode(0o640))?;
        io::Write::write_all(&mut std::fs::File::from(fd), text.as_bytes())?;
        std::fs::rename(&beside, &self.path)?;
        self.written = text;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Vec<Kept> {
        let file = |inode, offset| FileState {
            id: (64769, inode),
            offset,
            is_in_rest: inode == 7,
            begin: Begin::kept(1024, 0xfeed, false),
            tail: Tail { len: 256, hash: 0xbeef },
        };
        let log = LogState {
            lines: 9,
            skipped: 3,
            horizon_ns: -5,
            files: vec![file(7, 4096), file(8, 0)],
            has_current: true,
            seen: vec![Begin::kept(12, 1, true)],
        };
        let matches = vec![("a b  c".to_owned(), 7), (String::new(), 0)];
        let file = Kept { name: "file=/var/log/a b.log".to_owned(), matches, log, journal: Vec::new() };
        let unit =
            Kept { name: "unit=x.service".to_owned(), journal: vec![([0xab; 16], 12)], ..Kept::default() };
        vec![file, unit]
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(parse(&text(&kept())), Some(kept()));
        assert_eq!(parse(&text(&[])), Some(Vec::new()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs.state");
        let mut file = StateFile::new(&path);
        assert!(matches!(file.read(), Ok(None)));
        file.write(&kept()).unwrap();
        assert_eq!(file.read().unwrap(), Some(kept()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        // A link in its place leads nowhere.
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(file.read().is_err());
    }

    #[test]
    fn what_an_earlier_recorder_kept_is_read() {
        let body = format!("{HEAD}\nlog file=/a\ncurrent 1 2 9 0 9 ff\n");
        let kept = parse(&format!("{body}sum {:x}\n", fnv(body.as_bytes()))).unwrap();
        let begin = Begin::kept(9, 0xff, false);
        let file = FileState { id: (1, 2), offset: 9, begin, ..FileState::default() };
        assert_eq!(kept[0].log.files, [file]);
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let whole = text(&kept());
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]), None, "{cut}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(String::from_utf8(bytes).ok().and_then(|text| parse(&text)), None, "{at}");
        }
        assert_eq!(parse(""), None);
    }
}
