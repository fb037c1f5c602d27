//! Logs that rules name: their lines that match, counted beside the recorder.
//!
//! A thread of its own looks at them each time a sample was taken, and at once when a name in a log's directory changes, so
//! that a file that is rotated is open before it is compressed or removed. What is counted, each line once:
//!
//! - A file that is renamed is read to its end, the new one from its beginning; both while somebody still writes to the old one.
//! - A file that was cut off (`copytruncate`) goes on from its beginning. What was not read of it is in the copy. The tool loses
//!   what is written between its copy and its cut; no reader can have that.
//! - A file is known again by device and inode, and by its first bytes, also as a copy or compressed by gzip or zstd. One that was written
//!   anew and put in place of the log is known by what stands just before where reading goes on, too.
//! - A line counts when its end has come, and in a file that is not written to any more without one. Zero bytes at the end of a file
//!   are not written yet, and before a line they are none of it.
//! - Positions and counts are kept together (`state.rs`), so that a recorder that is killed and started again counts what was
//!   written meanwhile, and nothing twice.
//!
//! What cannot be told: files that begin with the same 1,024 bytes and were copied, not renamed; those that are compressed by
//! another program than gzip or zstd before they were read.
//!
//! A log belongs to strangers. It is a regular file that is no link, known before it is opened. Nothing of a line is kept.

mod known;
mod log;
mod open_log;
mod packed;
mod rotated;
mod state;
mod thread;
mod unit;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mitra_model::{Entity, Event, EventKind, Frame, Key, Stamp};
use regex::bytes::Regex;

use crate::cells::{cell, col, set};
use crate::file::Root;
use crate::inotify::{Inotify, WatchFlags};
use crate::io::Io;
use log::{Log, Work};
use state::{Kept, StateFile};
use thread::{Note, Thread};
use unit::Unit;

/// Bytes that are read in a second, of all logs together.
const READ_BYTES_PER_S: u64 = 16 << 20;
/// Without an answer for so long the thread hangs: twice as long as it may stand still by itself.
const OVERDUE_NS: i64 = 10_000_000_000;
/// A burst is over when no line has come for so long.
const QUIET_NS: i64 = 30_000_000_000;
/// What goes on is told so often.
const BURST_NS_MAX: i64 = 300_000_000_000;

/// A pattern of a rule.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// The name of its row.
    pub name: String,
    /// Where it is looked for.
    pub log: LogSource,
    /// What is looked for.
    pub regex: Regex,
}

/// A log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSource {
    /// A file, by its path.
    File(PathBuf),
    /// What a unit says to journald, by the unit's name.
    Unit(String),
}

impl LogSource {
    /// `file=/var/log/app.log`.
    fn name(&self) -> String {
        match self {
            LogSource::File(path) => format!("file={}", path.display()),
            LogSource::Unit(unit) => format!("unit={unit}"),
        }
    }
}

/// What was counted of a pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that match.
    pub matches: u64,
    /// Lines that were looked at.
    pub lines: u64,
    /// Bytes that were not.
    pub skipped: u64,
    /// Bytes that are still to be read.
    pub behind: u64,
    /// Whether the log can be read.
    pub is_known: bool,
}

enum Place {
    File(Box<Log>),
    Unit(Unit),
    /// A path without a name.
    None,
}

/// A log and the patterns that are looked for in it.
struct One {
    source: LogSource,
    place: Place,
    patterns: Vec<Wanted>,
    /// Whether all that was there at the start was read: counts of before belong to no second.
    has_caught_up: bool,
    is_known: bool,
}

struct Wanted {
    /// Its position among all patterns.
    at: usize,
    regex: Regex,
    matches: u64,
}

/// All logs, as the thread has them.
pub struct Follower {
    root: Root,
    logs: Vec<One>,
    state: Option<StateFile>,
    inotify: Option<Inotify>,
    left: u64,
    last_ns: Option<u64>,
    /// The log that is read first in the next look, so that one with many lines does not starve the others.
    first: usize,
    buffer: Vec<u8>,
    /// Bytes of lines that the last look read.
    line_bytes: u64,
    /// One more than the first pattern of the log that is looked at now; 0: none is.
    looked_at: Arc<AtomicUsize>,
}

impl Follower {
    /// `path` keeps positions. A message says why it could not be used.
    pub fn open(root: Root, patterns: &[Pattern], path: Option<&Path>) -> (Follower, Option<String>) {
        let state = path.map(StateFile::new);
        let (kept, why) = match state.as_ref().map(StateFile::read) {
            Some(Ok(kept)) => (kept.unwrap_or_default(), None),
            Some(Err(error)) => {
                let why =
                    format!("where logs go on is not known: {error}; they are followed from their ends");
                (Vec::new(), Some(why))
            }
            None => (Vec::new(), None),
        };
        let mut logs: Vec<One> = Vec::new();
        for (at, pattern) in patterns.iter().enumerate() {
            let name = pattern.log.name();
            let kept = kept.iter().find(|kept| kept.name == name);
            let found = logs.iter().position(|one| one.source == pattern.log).unwrap_or_else(|| {
                logs.push(One::new(&root, pattern.log.clone(), kept));
                logs.len() - 1
            });
            let count =
                kept.and_then(|kept| kept.matches.iter().find(|(text, _)| text == pattern.regex.as_str()));
            let matches = count.map_or(0, |(_, count)| *count);
            if let Some(one) = logs.get_mut(found) {
                one.patterns.push(Wanted { at, regex: pattern.regex.clone(), matches });
            }
        }
        let inotify = Inotify::new().ok();
        let follower = Follower {
            root,
            logs,
            state,
            inotify,
            left: 0,
            last_ns: None,
            first: 0,
            buffer: Vec::new(),
            line_bytes: 0,
            looked_at: Arc::default(),
        };
        (follower, why)
    }

    /// The queue of changed names, where the kernel has room for one.
    pub fn inotify(&self) -> Option<&Inotify> {
        self.inotify.as_ref()
    }

    /// Looks at all logs. `now_ns` never goes back. Each trouble, or its end, is told to `note`.
    pub fn look(&mut self, now_ns: u64, note: &mut dyn FnMut(Note)) {
        let elapsed = self.last_ns.map_or(1_000_000_000, |last| now_ns.saturating_sub(last));
        self.last_ns = Some(now_ns);
        let more = u128::from(elapsed) * u128::from(READ_BYTES_PER_S) / 1_000_000_000;
        self.left = self.left.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)).min(READ_BYTES_PER_S);
        // What has changed is seen by looking at everything, also after a queue that was full.
        if let Some(inotify) = &self.inotify {
            _ = inotify.has_changed();
        }
        let (count, allowed, mut beside) = (self.logs.len(), self.left, 0_u64);
        for nth in 0..count {
            let Some(one) = self.logs.get_mut((self.first + nth) % count) else { continue };
            let pattern = one.patterns.first().map_or(0, |wanted| wanted.at + 1);
            self.looked_at.store(pattern, Ordering::Relaxed);
            if let (Some(inotify), Place::File(log)) = (&self.inotify, &one.place) {
                // A directory that was replaced has to be watched anew; where it is the same nothing happens.
                _ = inotify.watch(log.dir(), NAMES);
            }
            one.look(&self.root, now_ns / 1_000_000_000, &mut self.left, &mut self.buffer, note);
            if let Place::File(log) = &mut one.place {
                beside = beside.saturating_add(std::mem::take(&mut log.beside_bytes));
            }
        }
        self.looked_at.store(0, Ordering::Relaxed);
        self.line_bytes = allowed.saturating_sub(self.left).saturating_sub(beside);
        self.first = (self.first + 1) % count.max(1);
        self.keep(note);
    }

    fn keep(&mut self, note: &mut dyn FnMut(Note)) {
        let Some(state) = &mut self.state else { return };
        let kept: Vec<Kept> = self.logs.iter().filter_map(One::kept).collect();
        note(Note::Source(
            "positions of logs".to_owned(),
            state.write(&kept).map_err(|error| error.to_string()),
        ));
    }

    /// What was counted, by the positions of the patterns.
    pub fn counts(&self) -> impl Iterator<Item = (usize, Counts)> {
        self.logs.iter().flat_map(|one| {
            let (lines, skipped, behind) = one.counts();
            let is_known = one.is_known && one.has_caught_up;
            one.patterns.iter().map(move |wanted| {
                (wanted.at, Counts { matches: wanted.matches, lines, skipped, behind, is_known })
            })
        })
    }
}

/// Changes of names in a directory, and of its own.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

impl One {
    fn new(root: &Root, source: LogSource, kept: Option<&Kept>) -> One {
        let place = match &source {
            LogSource::File(path) => {
                let path = root.path(&path.to_string_lossy());
                Log::new(&path, kept.map(|kept| kept.log.clone()))
                    .map_or(Place::None, |log| Place::File(Box::new(log)))
            }
            LogSource::Unit(unit) => Place::Unit(Unit::new(unit, kept)),
        };
        One { source, place, patterns: Vec::new(), has_caught_up: false, is_known: false }
    }

    fn look(
        &mut self,
        root: &Root,
        now_s: u64,
        left: &mut u64,
        buffer: &mut Vec<u8>,
        note: &mut dyn FnMut(Note),
    ) {
        let patterns = &mut self.patterns;
        let mut each = |line: &[u8]| {
            for wanted in &mut *patterns {
                wanted.matches += u64::from(wanted.regex.is_match(line));
            }
        };
        let looked = match &mut self.place {
            Place::File(log) => log.look(&mut Work { now_s, left: &mut *left, buffer, each: &mut each }),
            Place::Unit(unit) => unit.look(root, left, buffer, &mut each),
            Place::None => Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no name")),
        };
        self.is_known = looked.is_ok();
        let name = self.source.name();
        let lost = match &mut self.place {
            Place::File(log) => std::mem::take(&mut log.lost),
            Place::Unit(unit) => std::mem::take(&mut unit.lost),
            Place::None => Vec::new(),
        };
        lost.iter().for_each(|why| note(Note::Lost(format!("log {name}: {why}"))));
        let (_, _, behind) = self.counts();
        self.has_caught_up |= self.is_known && (*left > 0 || behind > log::BEHIND_BYTES_MAX / 2);
        if let Place::Unit(unit) = &self.place {
            let all = if unit.is_cut { Err(crate::journal::more_files().to_string()) } else { Ok(()) };
            note(Note::Source("files of the journal".to_owned(), all));
        }
        note(Note::Source(format!("log {name}"), looked.map_err(|error| crate::missing::reason(&error))));
    }

    fn counts(&self) -> (u64, u64, u64) {
        match &self.place {
            Place::File(log) => (log.lines, log.skipped, log.behind()),
            Place::Unit(unit) => (unit.lines, unit.skipped, unit.behind),
            Place::None => (0, 0, 0),
        }
    }

    fn kept(&self) -> Option<Kept> {
        let (log, journal) = match &self.place {
            Place::File(log) => (log.state()?, Vec::new()),
            Place::Unit(unit) => unit.state()?,
            Place::None => return None,
        };
        let count = |wanted: &Wanted| (wanted.regex.as_str().to_owned(), wanted.matches);
        Some(Kept {
            name: self.source.name(),
            matches: self.patterns.iter().map(count).collect(),
            log,
            journal,
        })
    }
}

/// The rows of patterns, and the thread that counts.
#[derive(Debug)]
pub struct Followed {
    patterns: Vec<Pattern>,
    state: Option<PathBuf>,
    thread: Option<Thread>,
    heard: Heard,
    bursts: Vec<Burst>,
    matches: usize,
    lines: usize,
    skipped: usize,
    behind: usize,
}

impl Followed {
    pub fn new(patterns: Vec<Pattern>, state: Option<PathBuf>) -> Self {
        Followed {
            bursts: patterns.iter().map(|_| Burst::default()).collect(),
            patterns,
            state,
            thread: None,
            heard: Heard::default(),
            matches: col("pattern.matches"),
            lines: col("pattern.lines"),
            skipped: col("pattern.skipped"),
            behind: col("pattern.behind"),
        }
    }

    /// Fills the rows with what was counted when the sample before was taken, and asks for the next counts. Without rows if the thread
    /// hangs: that no line was counted does not say that none came.
    pub fn fill(&mut self, io: &mut Io, frame: &mut Frame) {
        if self.patterns.is_empty() {
            return;
        }
        if self.thread.is_none() {
            // Not before the first sample: by then the archive is locked, and nobody else writes the state.
            match Thread::start(io.root.path(""), &self.patterns, self.state.as_deref()) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => io.missing.add("logs of rules", &crate::missing::reason(&error)),
            }
        }
        let Some(thread) = &self.thread else { return };
        if thread.has_ended() {
            io.missing.add("logs of rules", "the thread that follows them has ended");
            return;
        }
        let time = frame.time;
        for note in thread.notes() {
            match note {
                Note::Source(name, Ok(())) => io.missing.remove(&name),
                Note::Source(name, Err(why)) => io.missing.add(&name, &why),
                Note::Lost(text) => frame.events.push(event(time, EventKind::Recorder { text })),
            }
        }
        if self.heard.is_overdue(thread.answers(), time.mono) {
            let log =
                thread.looks_at().and_then(|at| self.patterns.get(at)).map(|pattern| pattern.log.name());
            let who = log.map_or("the thread that follows them".to_owned(), |name| format!("log {name}"));
            io.missing.add("logs of rules", &format!("{who} does not answer"));
            return;
        }
        io.missing.remove("logs of rules");
        for (at, (pattern, burst)) in self.patterns.iter().zip(&mut self.bursts).enumerate() {
            let Some(counts) = thread.counts(at) else { continue };
            if let Some(event) = burst.note(counts.matches, time, &pattern.name) {
                frame.events.push(event);
            }
            let row = frame.table_mut(Entity::Pattern).push(Key::named(io.strings.intern(&pattern.name)));
            set(row, self.matches, cell(counts.matches));
            set(row, self.lines, cell(counts.lines));
            set(row, self.skipped, cell(counts.skipped));
            set(row, self.behind, cell(counts.behind));
        }
        thread.ask();
    }
}

fn event(time: Stamp, kind: EventKind) -> Event {
    Event { real: time.real, mono: Some(time.mono), place: None, kind }
}

/// When the thread last answered.
#[derive(Debug, Default)]
struct Heard {
    answers: u64,
    at_ns: Option<i64>,
}

impl Heard {
    /// Whether no answer has come for too long.
    fn is_overdue(&mut self, answers: u64, now_ns: i64) -> bool {
        let at_ns = self.at_ns.filter(|_| self.answers == answers).unwrap_or(now_ns);
        (self.answers, self.at_ns) = (answers, Some(at_ns));
        now_ns.saturating_sub(at_ns) >= OVERDUE_NS
    }
}

/// Lines that match, until none has come for a while.
#[derive(Debug, Default)]
struct Burst {
    /// The counts as of the sample before, and when the first ones came.
    seen: Option<u64>,
    first: Option<(u64, i64)>,
    now: Option<Lines>,
}

#[derive(Debug, Clone, Copy)]
struct Lines {
    began: Stamp,
    last: Stamp,
    before: u64,
}

impl Burst {
    /// The event of a burst that is over, or has gone on for long. Its time is that of the first line.
    fn note(&mut self, matches: u64, time: Stamp, name: &str) -> Option<Event> {
        let seen = self.seen.replace(matches);
        let (first, since) = *self.first.get_or_insert((matches, time.mono));
        let seen = seen?;
        if matches > seen {
            let lines = self.now.get_or_insert(Lines { began: time, last: time, before: seen });
            lines.last = time;
        }
        let lines = self.now?;
        let is_over = time.mono.saturating_sub(lines.last.mono) >= QUIET_NS
            || time.mono.saturating_sub(lines.began.mono) >= BURST_NS_MAX;
        if !is_over {
            return None;
        }
        self.now = None;
        let seconds = |ns: i64| ns as f64 * 1e-9;
        let before_s = seconds(lines.began.mono.saturating_sub(since));
        let usual = lines.before.saturating_sub(first) as f64;
        Some(event(
            lines.began,
            EventKind::LogBurst {
                program: name.to_owned(),
                lines: matches.saturating_sub(lines.before),
                seconds: seconds(lines.last.mono.saturating_sub(lines.began.mono)),
                usual_per_s: if before_s > 0.0 { usual / before_s } else { 0.0 },
            },
        ))
    }
}
