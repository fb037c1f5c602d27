//! The indexer's log: one line per message, with secrets withheld, in a rotated file.
//!
//! ```text
//! 2026-11-22T07:52:00Z error 12400000 bytes or more, larger than maxsize: /var/lib/big
//! 2026-11-22T07:52:00Z info  502 files, 3 read, 1 changed, 0 gone
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mitra_model::must_escape;
use mitra_model::report::Moment;
use rustix::fs::OFlags;

use super::clock::Clock;
use super::config::{Level, LogConfig};
use crate::secrets::Policy;

/// How many rotated files are kept. `.1` is the newest.
const KEPT: usize = 10;
/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Writes log lines.
#[derive(Debug)]
pub struct Log {
    config: LogConfig,
    clock: Clock,
    policy: Policy,
    file: Option<Open>,
    has_failed: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
    inode: (u64, u64),
}

impl Log {
    /// A log that opens its file at the first line.
    #[must_use]
    pub fn new(config: LogConfig, clock: Clock, policy: Policy) -> Self {
        Self { config, clock, policy, file: None, has_failed: false }
    }

    /// Logs a failure.
    pub fn error(&mut self, text: &str) {
        self.line(Level::Error, text);
    }

    /// Logs a condition that needs attention.
    pub fn warning(&mut self, text: &str) {
        self.line(Level::Warning, text);
    }

    /// Logs a change.
    pub fn info(&mut self, text: &str) {
        self.line(Level::Info, text);
    }

    /// Logs what every pass does.
    pub fn debug(&mut self, text: &str) {
        self.line(Level::Debug, text);
    }

    fn line(&mut self, level: Level, text: &str) {
        if level > self.config.level {
            return;
        }
        let line = self.format(level, text);
        let Some(path) = self.config.file.clone() else {
            // If standard error fails, there is nowhere to report it.
            let _told = io::stderr().write_all(line.as_bytes());
            return;
        };
        match self.write(&path, &line) {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                // Reports the failure once. The lines themselves go to standard error.
                let why = if self.has_failed {
                    String::new()
                } else {
                    format!("mitra: {}: {error}\n", path.display())
                };
                self.has_failed = true;
                self.file = None;
                let _told = io::stderr().write_all(format!("{why}{line}").as_bytes());
            }
        }
    }

    fn format(&self, level: Level, text: &str) -> String {
        let (text, _) = self.policy.clean_text(text);
        let level = match level {
            Level::Error => "error",
            Level::Warning => "warn ",
            Level::Info => "info ",
            Level::Debug => "debug",
        };
        let mut line = format!("{} {level} ", Moment(self.clock.now_ns()));
        for c in text.chars() {
            if line.len() >= LINE_BYTES_MAX {
                line.push('…');
                break;
            }
            // A file name may contain anything. Escaping keeps it on one line and free of control
            // sequences.
            if must_escape(c) {
                line.extend(c.escape_default());
            } else {
                line.push(c);
            }
        }
        line.push('\n');
        line
    }

    fn write(&mut self, path: &Path, line: &str) -> io::Result<()> {
        let max = self.config.max_bytes.unwrap_or(u64::MAX);
        if self.file.as_ref().is_some_and(|open| !is_still(path, open)) {
            self.file = None;
        }
        let mut open = match self.file.take() {
            Some(open) => open,
            None => Open::at(path)?,
        };
        if open.bytes > 0 && open.bytes + line.len() as u64 > max {
            drop(open);
            rotate(path)?;
            open = Open::at(path)?;
        }
        open.file.write_all(line.as_bytes())?;
        open.bytes += line.len() as u64;
        self.file = Some(open);
        Ok(())
    }
}

impl Open {
    /// Follows no symbolic link and does not block on a FIFO, because everyone may write to `/tmp`.
    fn at(path: &Path) -> io::Result<Self> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        let file =
            OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags as i32).open(path)?;
        let stat = file.metadata()?;
        if !stat.is_file() {
            return Err(io::Error::other("is no file"));
        }
        Ok(Self { file, bytes: stat.len(), inode: (stat.dev(), stat.ino()) })
    }
}

/// Whether the path still leads to the open file. Other programs rotate logs, too.
fn is_still(path: &Path, open: &Open) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|stat| (stat.dev(), stat.ino()) == open.inode)
}

/// Renames `.9` to `.10`, …, and the file itself to `.1`.
fn rotate(path: &Path) -> io::Result<()> {
    for n in (1..KEPT).rev() {
        match std::fs::rename(numbered(path, n), numbered(path, n + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::rename(path, numbered(path, 1))
}

fn numbered(path: &Path, n: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::indexer::clock::FakeClock;

    fn log(path: &Path, max_bytes: Option<u64>, level: Level) -> Log {
        let config = LogConfig { file: Some(path.to_owned()), max_bytes, level };
        Log::new(config, Clock::Fake(FakeClock::new(1_795_333_920_000_000_000)), Policy::default())
    }

    #[test]
    fn lines_have_their_time_and_level() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runner.log");
        let mut log = log(&path, None, Level::Info);
        log.info("a");
        log.error("/tmp/x\ny\u{1b}[2J: no");
        log.debug("not wanted");
        log.warning(&"z".repeat(2 * LINE_BYTES_MAX));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "2026-11-22T07:52:00Z info  a");
        assert_eq!(lines[1], "2026-11-22T07:52:00Z error /tmp/x\\ny\\u{1b}[2J: no");
        assert!(lines[2].len() < LINE_BYTES_MAX + 10 && lines.len() == 3);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o137, 0, "nobody else reads it");
    }

    #[test]
    fn it_is_rotated_before_it_grows_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runner.log");
        let mut log = log(&path, Some(100), Level::Debug);
        for i in 0..40 {
            log.info(&format!("line {i:03}"));
        }
        // Each line has 37 bytes, so a file holds two.
        let read = |n| fs::read_to_string(if n == 0 { path.clone() } else { numbered(&path, n) });
        for n in 0..=KEPT {
            assert!(read(n).unwrap().len() <= 100);
            assert!(read(n).unwrap().ends_with(&format!("line {:03}\n", 39 - 2 * n)), "{n}");
        }
        assert!(read(KEPT + 1).is_err());
        let mut again = tests::log(&path, Some(100), Level::Debug);
        again.info("after a restart");
        assert!(read(1).unwrap().ends_with("line 039\n"), "the size of a file that was there counts");
    }

    #[test]
    fn one_that_others_rotate_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runner.log");
        let mut log = log(&path, None, Level::Info);
        log.info("one");
        fs::rename(&path, dir.path().join("old")).unwrap();
        log.info("two");
        assert!(fs::read_to_string(&path).unwrap().ends_with("two\n"));
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("runner.log"), dir.path().join("victim"));
        fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        log(&path, None, Level::Info).info("goes to the standard error output");
        assert_eq!(fs::read_to_string(&target).unwrap(), "");
    }
}
