//! The files that are one for the whole machine: each with its parser, read on every tick or on slow ones.

use std::io;
use std::time::{Duration, Instant};

use mitra_model::{Entity, Frame, Key, NA};
use mitra_parse::sources::Parse;
use mitra_parse::{Period, SOURCES};

use crate::aside::Aside;
use crate::cells::{col, set};
use crate::file::{Buffer, KeptFile, Root};
use crate::io::Io;
use crate::missing::reason;

struct Source {
    file: KeptFile,
    parse: Parse,
    aside: Option<AsideFile>,
    /// Whether the thread is to be asked for it in this sample.
    is_asked: bool,
    period: Period,
    failed: bool,
    bytes: usize,
}

/// From here on a file is not small: a thousand lines.
const SMALL_BYTES_MAX: usize = 64 * 1024;

impl Source {
    /// Whether it is read in each sample. `is_rare` in one of some seconds.
    fn is_due(&self, is_slow: bool, is_rare: bool) -> bool {
        match self.period {
            Period::Slow => is_slow,
            Period::Fast => !is_slow,
            Period::Aside => !is_slow && (is_rare || self.bytes <= SMALL_BYTES_MAX),
        }
    }
}

/// An answer that is older than as many samples is not repeated.
const REPEATED_MAX: u32 = 3;
/// Others wait while the file is made. It is made anew after a pause as many times as long as that took: 2 % of the time.
const PAUSE: u32 = 49;

/// A file that a thread reads, with what it said last.
struct AsideFile {
    /// A question brings the buffer for the answer, which says how long it took.
    reader: Aside<Vec<u8>, io::Result<(Vec<u8>, Duration)>>,
    took: Duration,
    bytes: Vec<u8>,
    spare: Vec<u8>,
    /// Samples since the last answer.
    age: u32,
}

impl AsideFile {
    fn start(below: &str, root: &Root) -> io::Result<Self> {
        let root = Root::open(&root.path("")).map_err(io::Error::other)?;
        let (mut file, mut buffer) = (KeptFile::new(below), Buffer::default());
        Self::with(move |bytes| {
            bytes.extend_from_slice(file.read(&root, &mut buffer)?);
            Ok(())
        })
    }

    fn with(mut read: impl FnMut(&mut Vec<u8>) -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let mut next = Instant::now();
        let reader = Aside::start("mitra-files", move |mut bytes: Vec<u8>| {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let began = Instant::now();
            bytes.clear();
            let read = read(&mut bytes);
            let took = began.elapsed();
            next = Instant::now() + took * PAUSE;
            read.map(|()| (bytes, took))
        })?;
        Ok(AsideFile {
            reader,
            took: Duration::ZERO,
            bytes: Vec::new(),
            spare: Vec::new(),
            age: REPEATED_MAX,
        })
    }

    /// What the file said a moment ago, and how long that took. None while nothing is known.
    fn read(&mut self) -> Option<io::Result<(&[u8], Duration)>> {
        let mut failed = None;
        self.age = self.age.saturating_add(1);
        for answer in self.reader.answers() {
            match answer {
                Ok((bytes, took)) => {
                    self.spare = std::mem::replace(&mut self.bytes, bytes);
                    (self.took, self.age) = (took, 0);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) => Some(Err(error)),
            None => (self.age < REPEATED_MAX).then_some(Ok((&self.bytes, self.took))),
        }
    }

    /// Asks for what it says now.
    fn ask(&mut self) {
        self.reader.ask_with(&mut self.spare);
    }
}

/// All of them, and the rows of the slow ones.
pub struct Sources {
    all: Vec<Source>,
    /// What the slow sources said last. It is repeated in every frame in between, which costs the archive nothing.
    slow: Frame,
    parse_errors: i64,
    list_time: usize,
}

impl Sources {
    /// Nothing is opened yet.
    #[must_use]
    pub fn new() -> Self {
        let source = |s: &mitra_parse::Source| Source {
            file: KeptFile::new(s.path),
            parse: (s.parser)(),
            aside: None,
            is_asked: false,
            period: s.period,
            failed: false,
            bytes: 0,
        };
        let list_time = col("lock.list_time");
        Sources { all: SOURCES.iter().map(source).collect(), slow: Frame::new(), parse_errors: 0, list_time }
    }

    /// Files and lines of files that could not be read as expected, since the start.
    #[must_use]
    pub fn parse_errors(&self) -> i64 {
        self.parse_errors
    }

    /// The rows that slow ticks fill and every frame repeats.
    pub fn slow_frame(&mut self) -> &mut Frame {
        &mut self.slow
    }

    /// Begins a slow tick: forgets what the slow sources said, and reads them.
    pub fn read_slow(&mut self, is_retry: bool, io: &mut Io) {
        self.slow.clear();
        let mut slow = std::mem::take(&mut self.slow);
        self.read(true, is_retry, io, &mut slow);
        self.slow = slow;
    }

    /// Reads the sources of every tick.
    pub fn read_fast(&mut self, is_retry: bool, io: &mut Io, frame: &mut Frame) {
        self.read(false, is_retry, io, frame);
    }

    fn read(&mut self, is_slow: bool, is_retry: bool, io: &mut Io, frame: &mut Frame) {
        let Io { root, buffer, strings, missing, .. } = io;
        for source in self.all.iter_mut().filter(|source| source.is_due(is_slow, is_retry)) {
            if source.failed && !is_retry {
                continue;
            }
            // Files that stand for others wait for nothing.
            let read = if source.period == Period::Aside && root.is_host() {
                if source.aside.is_none() {
                    source.aside = AsideFile::start(source.file.below(), root).ok();
                }
                source.is_asked = true;
                match source.aside.as_mut().map(AsideFile::read) {
                    Some(Some(read)) => read.map(|(bytes, took)| {
                        let took = i64::try_from(took.as_millis()).unwrap_or(NA);
                        set(frame.system_mut(), self.list_time, took);
                        bytes
                    }),
                    Some(None) => continue,
                    None => Err(io::Error::other("no thread reads it")),
                }
            } else {
                source.file.read(root, buffer)
            };
            match read {
                Ok(bytes) => {
                    source.bytes = bytes.len();
                    let outcome = (source.parse)(bytes, strings, frame);
                    self.parse_errors += i64::from(outcome.bad_lines);
                    if source.failed {
                        source.failed = false;
                        missing.remove(&format!("/{}", source.file.below()));
                    }
                }
                Err(error) => {
                    source.failed = true;
                    missing.add(&format!("/{}", source.file.below()), &reason(&error));
                }
            }
        }
    }

    /// Asks the threads for what their files say now. They may wait in the kernel, in state D, and would be seen at that if this came
    /// before the tasks are counted: the kernel waits for a grace period of RCU where `/proc/locks` is opened for reading.
    pub fn ask(&mut self) {
        for source in self.all.iter_mut().filter(|source| source.is_asked) {
            source.is_asked = false;
            source.aside.iter_mut().for_each(AsideFile::ask);
        }
    }

    /// Copies what the slow sources said last into the frame, which has no rows of theirs yet.
    pub fn repeat_slow(&self, frame: &mut Frame) {
        for entity in Entity::ALL {
            let (from, to) = (self.slow.table(entity), frame.table_mut(entity));
            if entity == Entity::System {
                if let Some((_, cells)) = from.rows().next() {
                    let row = if to.is_empty() { to.push(Key::SYSTEM) } else { to.row_mut(0) };
                    for (to, from) in row.iter_mut().zip(cells).filter(|(_, from)| **from != NA) {
                        *to = *from;
                    }
                }
                continue;
            }
            for (key, cells) in from.rows() {
                to.push(key).copy_from_slice(cells);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_anybody_can_make_large_is_then_read_seldom() {
        let source = |bytes| Source {
            file: KeptFile::new("proc/locks"),
            parse: Box::new(|_, _, _| mitra_parse::Outcome::default()),
            aside: None,
            is_asked: false,
            period: Period::Aside,
            failed: false,
            bytes,
        };
        let due = |bytes, is_rare| source(bytes).is_due(false, is_rare);
        assert_eq!(
            (due(0, false), due(SMALL_BYTES_MAX + 1, false), due(SMALL_BYTES_MAX + 1, true)),
            (true, false, true)
        );
    }

    #[test]
    fn a_thread_says_what_it_read_until_that_is_old() {
        let (say, said) = std::sync::mpsc::channel::<&str>();
        let mut file = AsideFile::with(move |bytes| {
            let text = said.recv().map_err(|_| io::Error::other("gone"))?;
            bytes.extend_from_slice(text.as_bytes());
            Ok(())
        })
        .unwrap();
        let mut wait_for = |wanted: Option<&str>| {
            while !matches!((file.read(), wanted), (Some(Ok((text, _))), Some(wanted)) if text == wanted.as_bytes())
            {
                file.ask();
                std::thread::yield_now();
            }
            file.ask();
            // Said again, but not for ever: the thread waits.
            let again: Vec<bool> = (0..REPEATED_MAX).map(|_| file.read().is_some()).collect();
            assert_eq!(again, [true, true, false]);
        };
        for text in ["first", "second"] {
            say.send(text).unwrap();
            wait_for(Some(text));
        }
        drop(say);
        while !matches!(file.read(), Some(Err(_))) {
            file.ask();
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_that_disappears_is_said_once_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("proc/loadavg");
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(&path, "0.50 0.25 0.10 1/100 4242\n").unwrap();
        let mut io = Io::new(Root::open(dir.path()).unwrap());
        let (mut sources, mut frame) = (Sources::new(), Frame::new());
        let mut read = |is_retry: bool| {
            frame.clear();
            sources.read_fast(is_retry, &mut io, &mut frame);
            let load = frame.system_mut()[mitra_model::column("sys.load1").unwrap()];
            let is_missing = io.missing.list().iter().any(|(source, _)| source == "/proc/loadavg");
            let said = io.missing.news().filter(|event| format!("{event:?}").contains("loadavg")).count();
            (load, is_missing, said)
        };
        assert_eq!(read(true), (50, false, 0));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(false), (NA, true, 1));
        assert_eq!(read(true), (NA, true, 0));
        std::fs::write(&path, "1.00 0.25 0.10 1/100 4242\n").unwrap();
        assert_eq!(read(false), (NA, true, 0), "it is tried again now and then, not each time");
        assert_eq!(read(true), (100, false, 1));
    }
}
