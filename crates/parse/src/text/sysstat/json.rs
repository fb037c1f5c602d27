//! The JSON of sysstat, which `sadf -j`, `iostat -o JSON` and `mpstat -o JSON` print, one report at a time.
//!
//! ```text
//! {"sysstat": {
//!   "hosts": [
//!     {
//!       "nodename": "vm", "sysname": "Linux", "release": "6.18.44", "number-of-cpus": 2, "date": "11/21/26",
//!       "statistics": [
//!         {
//!           "timestamp": "11/21/26 13:30:24",
//!           "avg-cpu": {"user": 30.25, "nice": 0.66, "system": 7.07, "iowait": 1.44, "idle": 60.58},
//!           "disk": [
//!             {"disk_device": "vda", "tps": 623.20, "kB_read/s": 25643.85}
//! ```
//!
//! `sadf` has `{"date": …, "time": …, "interval": …}` for the time stamp. Names lack what the text puts around them:
//! `usr` is `%usr`.

use std::ops::ControlFlow;

use super::plan::{COLUMNS_MAX, Cells};
use crate::text::clock::{date, iso, time_of_day, whole_line};
use crate::text::json::{Token, tokens};
use crate::text::prelude::*;

/// Objects and arrays within each other.
const DEPTH_MAX: usize = 24;
/// Bytes of a key or a text; a longer one is cut.
const TEXT_MAX: usize = 1024;
/// Objects of one report: thousands of CPUs and disks.
const OBJECTS_MAX: usize = 65_536;

/// An object of a report that has numbers.
#[derive(Debug, Default)]
pub(super) struct Object {
    /// The key that it has, or that the array around it has.
    pub section: Vec<u8>,
    /// The name of the thing that it is about: its only text.
    pub name: Vec<u8>,
    /// Keys of numbers, each with a blank behind it.
    pub keys: Vec<u8>,
    /// The numbers.
    pub numbers: Vec<f64>,
    /// The line of the first number; of a CPU with soft interrupts the line on which it begins.
    pub line: u32,
}

impl Object {
    /// The keys of the numbers.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.split(|b| *b == b' ').filter(|key| !key.is_empty())
    }

    /// The number of a key.
    pub fn value(&self, key: &[u8]) -> Option<f64> {
        self.numbers.get(self.keys().position(|k| k == key)?).copied()
    }

    /// Adds a number.
    fn push(&mut self, key: &[u8], number: f64, line: u32) {
        if self.numbers.len() < COLUMNS_MAX && !key.is_empty() && !key.contains(&b' ') {
            if self.numbers.is_empty() {
                self.line = line;
            }
            self.keys.extend_from_slice(key);
            self.keys.push(b' ');
            self.numbers.push(number);
        }
    }

    /// Copies the numbers into the cells of a row.
    pub fn fill(&self, cells: &mut Cells) {
        for (cell, number) in cells.iter_mut().zip(&self.numbers) {
            *cell = *number;
        }
    }
}

/// One element of the list of statistics.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Its time stamp.
    pub time: Option<When>,
    /// When its interval began, of `sadf`.
    pub since: Option<When>,
    /// What is in it.
    pub objects: Vec<Object>,
    /// Whether it has interrupts by number, which are passed over.
    pub has_single_interrupts: bool,
    line: u32,
    damaged: Option<u32>,
}

/// Whether the JSON of a sysstat tool begins at the cursor.
pub(super) fn starts(lines: &mut Lines<'_>) -> bool {
    let Some(rest) = lines.peek().and_then(|line| line.trim_ascii().strip_prefix(b"{")) else { return false };
    let is_sysstat = |line: &[u8]| line.trim_ascii().starts_with(b"\"sysstat\"");
    if rest.trim_ascii().is_empty() { lines.soon(1, is_sysstat) } else { is_sysstat(rest) }
}

/// Whether one of the words is in the next lines.
pub(super) fn names(lines: &mut Lines<'_>, wanted: &[&[u8]]) -> bool {
    let is = |line: &[u8]| wanted.iter().any(|word| has(line, word));
    lines.at(is) || lines.soon(AHEAD_MAX, is)
}

/// Gives each report to `take`, up to the end of the JSON or to where its brackets are damaged, which `tool` notes. A
/// report with damage inside is passed over; `partial` says that one without an end counts.
pub(super) fn each(
    lines: &mut Lines<'_>,
    import: &mut Import,
    tool: &str,
    partial: bool,
    take: &mut dyn FnMut(Report, &mut Import),
) {
    let mut reader = Reader::default();
    lines.each(import, |lines, at, import| {
        let mut flow = ControlFlow::Continue(());
        tokens(lines.line(), |token| {
            flow = reader.token(token, at, import, take);
            flow
        });
        match (flow, reader.levels.is_empty()) {
            (ControlFlow::Break(()), false) => {
                import.note(format!(
                    "the JSON of {tool} breaks off or is damaged: what stands behind the damage was not read"
                ));
                import.unread(at, lines.line());
                Took::Last
            }
            (ControlFlow::Break(()), true) => Took::Last,
            _ => Took::Yes,
        }
    });
    // The end is missing where the tool was stopped by a signal; what was complete was read.
    if let Some(report) = reader.report.take() {
        if partial {
            take(report, import);
        } else {
            import.unread(report.line, b"{ (a report without an end)");
        }
    }
}

/// An object or array that is open.
#[derive(Default)]
struct Level {
    is_array: bool,
    object: Object,
    /// `date` and `time` of a time stamp.
    day: Option<i64>,
    clock: Option<i64>,
}

#[derive(Default)]
struct Reader {
    levels: Vec<Level>,
    /// The key whose value comes next.
    key: Vec<u8>,
    report: Option<Report>,
}

impl Reader {
    /// Takes a token; it breaks off at the end and where the brackets are damaged.
    fn token(
        &mut self,
        token: Token<'_>,
        at: u32,
        import: &mut Import,
        take: &mut dyn FnMut(Report, &mut Import),
    ) -> ControlFlow<()> {
        match token {
            Token::Open { .. } if self.levels.len() >= DEPTH_MAX => return ControlFlow::Break(()),
            Token::Open { is_array } => self.open(is_array, at),
            Token::Close { is_array } => return self.close(is_array, import, take),
            Token::Key(key) => {
                self.key.clear();
                self.key.extend_from_slice(key.get(..TEXT_MAX).unwrap_or(key));
            }
            Token::Text(text) => self.text(text, import),
            Token::Number(number) => {
                if self.key == b"number-of-cpus" {
                    cpus(Some(number), import);
                }
                if let Some(level) = self.levels.last_mut().filter(|level| !level.is_array) {
                    level.object.push(&self.key, number, at);
                }
            }
            Token::Flag(_) => {}
            Token::Damage => match &mut self.report {
                Some(report) => _ = report.damaged.get_or_insert(at),
                None => return ControlFlow::Break(()),
            },
        }
        ControlFlow::Continue(())
    }

    fn open(&mut self, is_array: bool, at: u32) {
        // The things of an array are of the section that the array is.
        let section = match self.levels.last() {
            Some(outer) if outer.is_array => outer.object.section.clone(),
            _ => std::mem::take(&mut self.key),
        };
        if section == b"statistics" && !is_array {
            self.report = Some(Report { line: at, ..Report::default() });
        }
        if let Some(report) = &mut self.report {
            report.has_single_interrupts |= section == b"individual-interrupts";
        }
        self.levels.push(Level {
            is_array,
            object: Object { section, line: at, ..Object::default() },
            ..Level::default()
        });
    }

    fn close(
        &mut self,
        is_array: bool,
        import: &mut Import,
        take: &mut dyn FnMut(Report, &mut Import),
    ) -> ControlFlow<()> {
        let Some(Level { object, day, clock, .. }) = self.levels.pop().filter(|l| l.is_array == is_array)
        else {
            self.levels.push(Level::default());
            return ControlFlow::Break(());
        };
        let Some(report) = &mut self.report else {
            return if self.levels.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        };
        match object.section.as_slice() {
            b"timestamp" => {
                let interval = object.value(b"interval").unwrap_or(0.0).clamp(0.0, 1e9);
                let t = day.zip(clock).map(|(day, clock)| day * DAY + clock);
                report.time = t.map(When::At);
                report.since = t.map(|t| When::At(t - (interval * SECOND as f64) as i64));
            }
            // A soft interrupt: `{"name": "HI", "value": 0.00}` in a list of the CPU.
            b"intr" if !is_array => {
                let number = object.value(b"value").unwrap_or(f64::NAN);
                if let Some(cpu) = self.levels.iter_mut().rev().find(|level| !level.is_array) {
                    let line = cpu.object.line;
                    cpu.object.push(&[&object.name[..], b"/s"].concat(), number, line);
                }
            }
            b"statistics" if !is_array => {
                let report = std::mem::take(&mut self.report).unwrap_or_default();
                match report.damaged {
                    Some(line) => import.unread(line, b"{ (a damaged report)"),
                    None => take(report, import),
                }
            }
            _ if !object.numbers.is_empty() && report.objects.len() < OBJECTS_MAX => {
                report.objects.push(object)
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn text(&mut self, string: &[u8], import: &mut Import) {
        let string = string.get(..TEXT_MAX).unwrap_or(string);
        let Some(level) = self.levels.last_mut().filter(|level| !level.is_array) else { return };
        match (level.object.section.as_slice(), self.key.as_slice()) {
            (b"hosts", b"date") => {
                if let Some(date) = date(string) {
                    // As the header of the text: it begins a run of the tool.
                    (import.context.date, import.context.stamp) = (Some(date), None);
                    (import.context.underway, import.context.blank_lines) = (false, Some(0));
                }
            }
            (b"statistics", b"timestamp") => {
                if let Some(report) = &mut self.report {
                    // The words of a time zone may stand after it.
                    report.time =
                        whole_line(string, import.context.date).or_else(|| iso(string).map(When::At));
                }
            }
            (_, b"date") => level.day = date(string),
            (_, b"time") => level.clock = time_of_day(string),
            (_, b"nodename") if import.host.hostname.is_empty() => import.host.hostname = text(string),
            (_, b"release") if import.host.kernel.is_empty() => import.host.kernel = text(string),
            (_, b"number-of-cpus") => cpus(number(string), import),
            _ if level.object.name.is_empty() => level.object.name = string.to_vec(),
            _ => {}
        }
    }
}

fn cpus(count: Option<f64>, import: &mut Import) {
    if let Some(count) = count.filter(|n| (1.0..=65_536.0).contains(n)) {
        import.host.cpus = import.host.cpus.max(count as u32);
    }
}
