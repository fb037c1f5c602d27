//! Where the readers of other tools' output put what they read: rows of numbers, texts and events, each with the time
//! that its file gives it and the line that it stands on.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};

use mitra_model::report::FileRead;
use mitra_model::time::SECOND;
use mitra_model::{Entity, Era, Event, EventKind, HostInfo, Metric, SourceLine, lookup};

use super::context::Context;

/// The numbers that are kept in memory, of all files together; further rows are counted and dropped. 32 million are
/// 256 MB and hold a day of every process of a busy host.
pub const VALUES_MAX: usize = 32 * 1024 * 1024;
/// Events that are kept.
pub const EVENTS_MAX: usize = 200_000;
/// Bytes of all names and texts together: a line may have a name of its whole length.
const TEXTS_BYTES_MAX: usize = 128 << 20;
/// Notes that are kept of one file.
const NOTES_MAX: usize = 20;
/// Bytes that are shown of a line that was not read.
pub(super) const SHOWN_MAX: usize = 200;
/// One day.
pub(in crate::text) const DAY: i64 = 86_400 * SECOND;
/// What lies between the sequences of two files, so that they do not mix.
const FILE_APART: i64 = DAY / 8;

/// What a column's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A rate per second over the interval that ends at the row.
    Rate,
    /// A level at the moment of the row.
    Level,
    /// A share of the time of all CPUs together, 1 when all did nothing else: it becomes CPU-seconds per second when
    /// the number of CPUs is known.
    Share,
    /// The reading of a counter that grows since boot, or since the tool began.
    Total,
}

/// One column of a group of rows.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The metric that it holds.
    pub metric: &'static Metric,
    /// What the numbers are.
    pub form: Form,
    /// What one printed unit is worth in the metric's base unit: 1024 for `kbmemfree`, 0.01 for a percentage of one
    /// CPU's time.
    pub factor: f64,
}

impl Column {
    /// A column; `None` when the metric is not in the table.
    #[must_use]
    pub fn new(metric: &str, form: Form, factor: f64) -> Option<Column> {
        let metric = lookup(metric);
        debug_assert!(metric.is_some(), "the metric is not in the table");
        Some(Column { metric: metric?, form, factor })
    }
}

/// A group of rows with the same columns, of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupId(usize);

/// When a row was, as far as its file says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// A moment, in nanoseconds since 1970 UTC. Files seldom name a time zone; then their clock is shown as it is.
    At(i64),
    /// A time of day in nanoseconds. It belongs to the file's date where one is known, and to the next day when it is
    /// far before the row above it in the group.
    Clock(i64),
    /// Nanoseconds since the machine booted.
    Boot(i64),
    /// The n-th sample of a sequence without times, [`Context::interval_s`] apart.
    Step(u32),
    /// A single observation without a time.
    Fact,
}

pub(super) struct Group {
    pub columns: Vec<Column>,
    pub file: u32,
    /// The times of its rows, each once, in the order in which they came.
    pub times: Vec<i64>,
    /// When the first interval began, where the file says.
    pub since: Option<i64>,
    last_clock: i64,
    days: i64,
    /// The column whose zeros mean nothing unless something has another value.
    doubtful: Option<usize>,
    /// The date that `days` counts from.
    date: Option<i64>,
}

#[derive(Default)]
pub(super) struct Track {
    pub group: usize,
    pub row: Box<[u8]>,
    pub t: Vec<i64>,
    pub lines: Vec<u32>,
    pub values: Vec<f64>,
}

/// One text that something had.
pub(super) struct TextAt {
    pub t: i64,
    pub text: String,
    pub place: SourceLine,
}

/// See the module.
#[derive(Default)]
pub struct Import {
    /// What is known of the machine.
    pub host: HostInfo,
    /// What the current file has said so far that holds for the lines after it.
    pub context: Context,
    /// Rows of CPUs are of all CPUs of the machine.
    pub has_all_cpus: bool,
    pub(super) groups: Vec<Group>,
    pub(super) tracks: Vec<Track>,
    pub(super) texts: BTreeMap<(&'static str, String), Vec<TextAt>>,
    pub(super) events: Vec<Event>,
    files: Vec<FileRead>,
    /// How many files there were, and the line, when a line was last unread.
    last_unread: (usize, u32),
    index: HashMap<(usize, Box<[u8]>), usize>,
    /// The tracks of the rows of a group come in the same order again and again: the one that follows each.
    next: Vec<usize>,
    last_track: usize,
    spare: Vec<f64>,
    values: usize,
    texts_bytes: usize,
    dropped: u64,
    /// How many rows, texts, events and samples there were.
    stored: u64,
    only_context: bool,
    default_date: Option<i64>,
}

impl Import {
    /// Nothing yet. `default_date` (days since 1970) is the date of files that have none.
    #[must_use]
    pub fn new(default_date: Option<i64>) -> Self {
        Import { default_date, ..Import::default() }
    }

    /// Begins a file. `name` is what reports call it.
    pub fn begin_file(&mut self, name: &str) {
        self.files.push(FileRead { file: name.to_owned(), ..FileRead::default() });
        self.context = Context { file_name: name.to_owned(), date: self.default_date, ..Context::default() };
    }

    /// The position of the current file.
    #[must_use]
    pub fn file(&self) -> u32 {
        u32::try_from(self.files.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    fn current(&mut self) -> &mut FileRead {
        if self.files.is_empty() {
            self.files.push(FileRead::default());
        }
        let last = self.files.len() - 1;
        &mut self.files[last]
    }

    /// Says that the file holds output of a tool, once for each: `sar -d`, `strace -c`.
    pub fn format(&mut self, name: &str) {
        let file = self.current();
        if !file.formats.iter().any(|f| f == name) {
            file.formats.push(name.to_owned());
        }
    }

    /// Begins the output of a tool. What it returns is for [`Import::end_format`].
    pub(super) fn begin_format(&mut self, name: &str) -> FormatMark {
        let (formats, unread) = (self.current().formats.len(), self.current().unread);
        self.format(name);
        self.only_context = false;
        FormatMark { formats, unread, stored: self.stored }
    }

    /// Ends it. An output that gave nothing, no number, no text and no event, counts as unread, line by line: nobody
    /// should take it for evidence that was looked at.
    pub(super) fn end_format(&mut self, mark: FormatMark, line: u32, lines: u32, first: &[u8]) {
        if self.stored > mark.stored {
            return;
        }
        let only_context = self.only_context;
        let file = self.current();
        file.formats.truncate(mark.formats);
        if only_context {
            return;
        }
        let counted = file.unread.saturating_sub(mark.unread);
        file.unread += u64::from(lines).saturating_sub(counted);
        if file.first_unread.as_ref().is_none_or(|(known, _)| *known > line) {
            file.first_unread = Some((line, super::number::text(first)));
        }
    }

    /// Says that the lines of an output say what those after them are, and no more.
    pub(super) fn is_context(&mut self) {
        self.only_context = true;
    }

    /// Says that something was read that has no row, such as that nothing happened.
    pub fn has_read(&mut self) {
        self.stored += 1;
    }

    /// Counts a line that made no sense, once. The first of a file is kept.
    pub fn unread(&mut self, line: u32, text: &[u8]) {
        self.current();
        if std::mem::replace(&mut self.last_unread, (self.files.len(), line)) == (self.files.len(), line) {
            return;
        }
        let file = self.current();
        file.unread += 1;
        if file.first_unread.is_none() {
            let shown = text.get(..SHOWN_MAX).unwrap_or(text);
            file.first_unread = Some((line, super::number::text(shown)));
        }
    }

    /// Something to say about the file, once.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        let file = self.current();
        if file.notes.len() < NOTES_MAX && !file.notes.contains(&note) {
            file.notes.push(note);
        }
    }

    pub(super) fn line_count(&mut self, lines: u64) {
        self.current().lines = lines;
    }

    /// The group of rows with these columns in the current file; made when it is asked for first.
    pub fn group(&mut self, columns: Vec<Column>) -> GroupId {
        let file = self.file();
        let same = |g: &Group| {
            g.file == file
                && g.columns.len() == columns.len()
                && g.columns.iter().zip(&columns).all(|(a, b)| {
                    std::ptr::eq(a.metric, b.metric) && a.form == b.form && a.factor == b.factor
                })
        };
        if let Some(i) = self.groups.iter().rposition(same) {
            return GroupId(i);
        }
        self.groups.push(Group {
            columns,
            file,
            times: Vec::new(),
            since: None,
            last_clock: -1,
            days: 0,
            doubtful: None,
            date: None,
        });
        GroupId(self.groups.len() - 1)
    }

    /// Says when the interval began that ends at the group's first row.
    pub fn since(&mut self, group: GroupId, when: When) {
        if self.groups[group.0].times.is_empty() {
            let t = self.resolve(group, when);
            self.groups[group.0].since.get_or_insert(t);
        }
    }

    /// Says that the group was sampled at that moment, even if no thing had a row: tools leave out what did nothing.
    /// The interval of the rows that follow begins here.
    pub fn sampled(&mut self, group: GroupId, when: When) {
        let t = self.resolve(group, when);
        self.stored += 1;
        let times = &mut self.groups[group.0].times;
        if times.last() != Some(&t) && times.len() < VALUES_MAX {
            times.push(t);
        }
    }

    /// Says that zeros of a column are unavailable as long as nothing in the group has another value: counters that
    /// the kernel keeps only if it was told to.
    pub fn zeros_are_unavailable(&mut self, group: GroupId, column: usize) {
        self.groups[group.0].doubtful = Some(column);
    }

    /// Takes out the zeros of columns that hold nothing else.
    pub(super) fn drop_doubtful_zeros(&mut self) {
        for (i, group) in self.groups.iter().enumerate() {
            let (width, Some(column)) = (group.columns.len().max(1), group.doubtful) else { continue };
            let of_group = |track: &&mut Track| track.group == i;
            let is_zero = |row: &[f64]| row.get(column).is_none_or(|v| *v == 0.0 || v.is_nan());
            if self.tracks.iter().filter(|t| t.group == i).all(|t| t.values.chunks_exact(width).all(is_zero))
            {
                for track in self.tracks.iter_mut().filter(of_group) {
                    track
                        .values
                        .chunks_exact_mut(width)
                        .filter_map(|r| r.get_mut(column))
                        .for_each(|v| *v = f64::NAN);
                }
            }
        }
    }

    /// A row: the thing's name (empty for the whole machine) and its numbers, as printed, to be filled in; `NaN` is
    /// unavailable. A row that the thing already has at that time is written over.
    pub fn row(&mut self, group: GroupId, row: &[u8], when: When, line: u32) -> &mut [f64] {
        self.stored += 1;
        let width = self.groups[group.0].columns.len();
        if self.values + width > VALUES_MAX || self.texts_bytes > TEXTS_BYTES_MAX {
            self.dropped += 1;
            self.spare.clear();
            self.spare.resize(width, f64::NAN);
            return &mut self.spare;
        }
        let t = self.resolve(group, when);
        let times = &mut self.groups[group.0].times;
        if times.last() != Some(&t) {
            times.push(t);
        }
        let i = self.track(group.0, row);
        let track = &mut self.tracks[i];
        if track.t.last() == Some(&t) {
            let start = track.values.len() - width;
            return &mut track.values[start..];
        }
        track.t.push(t);
        track.lines.push(line);
        let start = track.values.len();
        track.values.resize(start + width, f64::NAN);
        self.values += width;
        &mut track.values[start..]
    }

    /// The group of rows with columns of one form, in base units.
    pub fn columns(&mut self, metrics: &[&str], form: Form) -> GroupId {
        self.group(metrics.iter().filter_map(|metric| Column::new(metric, form, 1.0)).collect())
    }

    /// As [`Import::row`], with its numbers.
    pub fn put(&mut self, group: GroupId, row: &[u8], when: When, line: u32, values: &[f64]) {
        for (slot, value) in self.row(group, row, when, line).iter_mut().zip(values) {
            *slot = *value;
        }
    }

    /// A single number of a single metric: for files of one number on a line.
    pub fn value(&mut self, metric: &str, row: &str, form: Form, when: When, line: u32, value: f64) {
        let Some(column) = Column::new(metric, form, 1.0) else { return };
        let group = self.group(vec![column]);
        self.put(group, row.as_bytes(), when, line, &[value]);
    }

    /// A text of a thing, such as the command of a task.
    pub fn text(&mut self, metric: &str, row: &str, when: When, text: &str) {
        self.text_at(metric, row, when, 0, text);
    }

    /// A text of a thing with the line that it stands on, such as a setting of several numbers.
    pub fn text_at(&mut self, metric: &str, row: &str, when: When, line: u32, text: &str) {
        let Some(metric) = lookup(metric) else { return };
        self.stored += 1;
        if self.texts_bytes > TEXTS_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        let t = self.moment(when);
        let place = SourceLine { file: self.file(), line };
        self.texts_bytes += row.len();
        let changes = self.texts.entry((metric.name, row.to_owned())).or_default();
        if changes.last().is_none_or(|last| last.text != text) {
            self.texts_bytes += text.len();
            changes.push(TextAt { t, text: text.to_owned(), place });
        }
    }

    /// Whether a thing has a text of that moment.
    #[must_use]
    pub fn has_text(&self, metric: &str, row: &str, when: When) -> bool {
        let Some(metric) = lookup(metric) else { return false };
        let t = self.moment(when);
        self.texts.get(&(metric.name, row.to_owned())).is_some_and(|all| all.iter().any(|text| text.t == t))
    }

    /// The row of a task in the groups of [`Entity::Task`], and its command. A process id that was used twice in one
    /// file is one task here: files do not tell.
    pub fn task(&mut self, pid: u32, comm: &str) -> String {
        let row = format!("{pid}@0");
        let known = self.texts.get(&("task.comm", row.clone()));
        if known.and_then(|c| c.last()).is_none_or(|last| last.text != comm) {
            self.text("task.comm", &row, When::Fact, comm);
            self.value("task.tgid", &row, Form::Level, When::Fact, 0, f64::from(pid));
        }
        row
    }

    /// Something that happened.
    pub fn event(&mut self, when: When, line: u32, kind: EventKind) {
        self.stored += 1;
        if self.events.len() >= EVENTS_MAX || self.texts_bytes > TEXTS_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        let mut length = Length(0);
        // It counts and cannot fail.
        _ = write!(length, "{kind:?}");
        self.texts_bytes += length.0;
        let real = self.moment(when);
        let place = Some(SourceLine { file: self.file(), line });
        self.events.push(Event { real, mono: None, place, kind });
    }

    /// The time of what stands in a block that was given a time by a line before it (`date`, `zzz`), or no time.
    #[must_use]
    pub fn now(&self) -> When {
        self.context.stamp.unwrap_or(When::Fact)
    }

    /// A moment on the common axis, without a group: times of day do not pass into the next day.
    #[must_use]
    pub fn moment(&self, when: When) -> i64 {
        match when {
            When::At(t) => t,
            When::Clock(ns) => self.context.date.map_or(Era::Day.zero(), |date| date * DAY) + ns,
            When::Boot(ns) => Era::Boot.zero().saturating_add(ns),
            When::Step(n) => {
                let step = self.context.interval_s.unwrap_or(1.0) * SECOND as f64;
                let offset = (f64::from(n) * step) as i64;
                Era::Sequence.zero() + i64::from(self.file() % 800) * FILE_APART + offset
            }
            When::Fact => Era::Fact.zero() + i64::from(self.file() % 800) * FILE_APART,
        }
    }

    /// As [`Import::moment`], with a time of day that is far before the last one of the group on the next day.
    fn resolve(&mut self, group: GroupId, when: When) -> i64 {
        let t = self.moment(when);
        let When::Clock(clock) = when else { return t };
        let group = &mut self.groups[group.0];
        if group.date != self.context.date {
            // A new header names the date: nights that were counted before it are in it.
            (group.date, group.last_clock, group.days) = (self.context.date, -1, 0);
        }
        if group.last_clock - clock > DAY / 2
            && t + group.days * DAY <= group.times.last().copied().unwrap_or(t)
        {
            group.days += 1;
        } else if clock - group.last_clock > DAY / 2 && group.last_clock >= 0 && group.days > 0 {
            // A section of the same day that begins before midnight again.
            group.days -= 1;
        }
        group.last_clock = clock;
        t + group.days * DAY
    }

    fn track(&mut self, group: usize, row: &[u8]) -> usize {
        if let Some(next) = self.next.get(self.last_track).copied()
            && let Some(track) = self.tracks.get(next)
            && track.group == group
            && *track.row == *row
        {
            self.last_track = next;
            return next;
        }
        let key: (usize, Box<[u8]>) = (group, row.into());
        let found = self.index.get(&key).copied();
        let i = found.unwrap_or_else(|| {
            // Here and in the index.
            self.texts_bytes += 2 * row.len();
            self.tracks.push(Track { group, row: row.into(), ..Track::default() });
            self.next.push(usize::MAX);
            self.index.insert(key, self.tracks.len() - 1);
            self.tracks.len() - 1
        });
        if let Some(next) = self.next.get_mut(self.last_track) {
            *next = i;
        }
        self.last_track = i;
        i
    }

    /// What was made of each file.
    pub(super) fn take_files(&mut self) -> Vec<FileRead> {
        if self.dropped > 0 {
            let dropped = self.dropped;
            self.note(format!("{dropped} rows or events were left out: there are more than fit into memory"));
        }
        std::mem::take(&mut self.files)
    }
}

/// What was known before the output of a tool.
pub(super) struct FormatMark {
    formats: usize,
    unread: u64,
    stored: u64,
}

/// How long something would be in words, which none are made for.
struct Length(usize);

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// Whether rows of the entity are named by what they are; tasks are named by their id.
#[must_use]
pub fn is_named(entity: Entity) -> bool {
    !matches!(entity, Entity::System | Entity::Task | Entity::Exited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_unread_once_and_no_number_is_beyond_all() {
        let mut import = Import::default();
        import.begin_file("a");
        [1, 1, 2].into_iter().for_each(|line| import.unread(line, b"x"));
        import.begin_file("b");
        import.unread(2, b"x");
        let unread: Vec<u64> = import.take_files().iter().map(|file| file.unread).collect();
        assert_eq!(unread, [2, 1]);
        let mut file: &[u8] = b"MemTotal:  1e308 kB\nMemFree:  1e308 kB\nCached:  1e308 kB\n";
        let mut import = Import::default();
        crate::text::read_as(&[crate::text::snapshots::FORMATS], &mut file, "meminfo", &mut import).unwrap();
        let imported = import.finish();
        let all = imported.set.metrics().flat_map(|(_, rows)| rows.values());
        assert!(all.flat_map(|series| &series.values).all(|value| !value.is_infinite()));
    }

    #[test]
    fn names_of_any_length_have_a_bound_together() {
        let long = "x".repeat(1 << 20);
        let times = 2 * (TEXTS_BYTES_MAX >> 20);
        let mut import = Import::default();
        import.begin_file("events");
        for _ in 0..times {
            let kind = EventKind::Unavailable { source: String::new(), why: long.clone() };
            import.event(When::Fact, 1, kind);
        }
        assert!(import.events.len() <= times / 2 + 1 && import.dropped as usize >= times / 2 - 1);
        let mut import = Import::default();
        import.begin_file("rows");
        for n in 0..times {
            let name = format!("{n}{long}");
            import.value("disk.read_bytes", &name, Form::Level, When::Fact, 1, 1.0);
            import.text("task.comm", &name, When::Fact, "x");
        }
        assert!(import.tracks.len() + import.texts.len() <= times / 2 + 2);
        assert!(import.take_files()[0].notes[0].contains("more than fit into memory"));
    }
}
