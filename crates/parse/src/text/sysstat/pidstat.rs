//! `pidstat`: CPU time, faults, I/O and switches of tasks.
//!
//! ```text
//! 13:34:50      UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command
//! 13:34:51        0     30208   18.63   13.73    0.00   41.18   32.35     0  stress-ng-hdd
//!
//! # Time        UID      TGID       TID   cswch/s nvcswch/s  Command
//! 1795268097      0     30208         -      0.99      0.00  stress-ng-hdd
//! 1795268097      0         -     30208      0.99      0.00  |__stress-ng-hdd
//! ```
//!
//! The time of a header is that of the sample before; with `-h` there is none. Where both are the same, the numbers are
//! of the time since boot.

use super::pidstat_columns::{COLUMNS_MAX, TaskColumns, is_header};
use super::pidstat_tasks::Tasks;
use super::pidstat_time::{Lead, lead};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "pidstat",
    "CPU time, faults, memory, I/O, switches, descriptors and policy of tasks: `-u -r -d -w -v -R -t -h -H -l -U`",
    starts,
    read,
);

/// Headers that are kept; options make at most a dozen.
const SECTIONS_MAX: usize = 32;

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| header(line).is_some())
}

/// What a header line says of time, and the names after it.
fn header(line: &[u8]) -> Option<(Option<Lead>, &[u8])> {
    if !line.ends_with(b"d") && !line.trim_ascii_end().ends_with(b" Command") {
        return None;
    }
    if let Some(rest) = line.strip_prefix(b"#") {
        let mut w = words(rest);
        // In other languages than English the word for time may be another.
        let all = w.rest();
        w.next()?;
        let rest = if is_header(all) { all } else { w.rest() };
        return is_header(rest).then_some((None, rest));
    }
    let (lead, taken) = lead(line)?;
    let rest = line.get(taken..)?;
    is_header(rest).then_some((Some(lead), rest))
}

/// How the rows of the open section are to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// By the columns at this position.
    Columns(usize),
    /// Averages of what was printed before.
    Average,
}

struct Reader {
    /// By their headers.
    columns: Vec<(Vec<u8>, TaskColumns)>,
    open: Option<Section>,
    tasks: Tasks,
    /// The bytes of the time of the last row, and what they mean.
    stamp: Vec<u8>,
    when: When,
    /// Nanoseconds of the sample, to measure intervals; and of the one before, which a header names.
    ns: i64,
    header_ns: Option<i64>,
    interval_s: f64,
    since_boot: bool,
    /// The process whose threads follow.
    tgid: Option<u32>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader = Reader {
        columns: Vec::new(),
        open: None,
        tasks: Tasks::default(),
        stamp: Vec::new(),
        when: When::Fact,
        ns: -1,
        header_ns: None,
        interval_s: f64::NAN,
        since_boot: false,
        tgid: None,
    };
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if reader.row(line, number, import) || reader.pass_over(line) || reader.header(line, import) {
            return Took::Yes;
        }
        Took::unread_if(reader.open.is_some() && is_damaged(line))
    });
}

impl Reader {
    fn header(&mut self, line: &[u8], import: &mut Import) -> bool {
        let Some((lead, rest)) = header(line) else { return false };
        self.tgid = None;
        self.stamp.clear();
        self.header_ns = None;
        match lead {
            Some(Lead::Average) => {
                self.open = Some(Section::Average);
                return true;
            }
            Some(Lead::Clock(ns)) => self.header_ns = Some(ns),
            None => {}
        }
        if words(rest).any(|w| w.ends_with(b"-ms") || w.ends_with(b"-nr") && w != b"fd-nr") {
            import.note("pidstat -T CHILD: totals of tasks and their children are passed over");
            self.open = Some(Section::Average);
            return true;
        }
        let i = self.columns.iter().position(|(known, _)| known == rest).unwrap_or_else(|| {
            if self.columns.len() >= SECTIONS_MAX {
                self.columns.clear();
            }
            self.columns.push((rest.to_vec(), TaskColumns::new(import, rest)));
            self.columns.len() - 1
        });
        self.open = Some(Section::Columns(i));
        true
    }

    fn row(&mut self, line: &[u8], number: u32, import: &mut Import) -> bool {
        let Some(Section::Columns(i)) = self.open else { return false };
        let Some((_, columns)) = self.columns.get(i) else { return false };
        let known = self.stamp.len();
        let rest = if known > 0 && line.starts_with(&self.stamp) {
            line.get(known..).unwrap_or_default()
        } else {
            let Some((lead, taken)) = row_lead(line) else { return false };
            // The time alone is not enough of a row to become the time of the sample.
            if line.get(taken..).is_none_or(|rest| words(rest).count() <= columns.words) {
                return false;
            }
            let (before, interval) = (self.header_ns.take(), import.context.interval_s);
            let ns = match lead {
                When::Clock(ns) | When::At(ns) => ns,
                _ => return false,
            };
            let last = before.or(Some(self.ns).filter(|ns| *ns >= 0));
            self.since_boot = before == Some(ns);
            if last != Some(ns) {
                let step = last.map(|last| (ns - last).rem_euclid(DAY) as f64 / SECOND as f64);
                self.interval_s = step.filter(|s| *s < 43_200.0).or(interval).unwrap_or(f64::NAN);
            }
            self.ns = ns;
            self.when = if self.since_boot { When::Fact } else { lead };
            self.stamp.clear();
            self.stamp.extend_from_slice(line.get(..taken).unwrap_or_default());
            if self.since_boot {
                import.note("pidstat without an interval: averages since boot");
            } else if let Some(group) = columns.group {
                if let Some(before) = before {
                    import.since(group, When::Clock(before));
                }
                import.sampled(group, lead);
            }
            line.get(taken..).unwrap_or_default()
        };
        let mut all: [&[u8]; COLUMNS_MAX] = [b""; COLUMNS_MAX];
        let mut w = words(rest);
        for slot in all.iter_mut().take(columns.words) {
            let Some(word) = w.next() else { return false };
            *slot = word;
        }
        let command = w.rest().trim_ascii_end();
        let cells = all.get(..columns.words).unwrap_or_default();
        let id = |i: usize| cells.get(i).and_then(|w| integer(w)).and_then(|n| u32::try_from(n).ok());
        if command.is_empty() {
            return false;
        }
        let (pid, tgid) = match columns.tid {
            None => match id(columns.pid) {
                Some(pid) => (pid, Some(pid)),
                None => return false,
            },
            Some(tid) => match (id(columns.pid), id(tid)) {
                // The sum of the threads that follow; with it each would count twice.
                (Some(process), None) => {
                    self.tgid = Some(process);
                    return true;
                }
                (None, Some(thread)) => (thread, self.tgid),
                _ => return false,
            },
        };
        let Some(group) = columns.group else { return true };
        let row = self.tasks.row(import, pid, tgid, command);
        let interval_s = if self.since_boot { f64::NAN } else { self.interval_s };
        let slots = import.row(group, row, self.when, number);
        columns.fill(cells, interval_s, tgid.is_none_or(|t| t == pid), slots);
        true
    }

    /// Blank lines, the `^C` of the terminal, and averages.
    fn pass_over(&mut self, line: &[u8]) -> bool {
        let line = line.trim_ascii();
        if line.is_empty() {
            self.open = None;
            return true;
        }
        if line == b"^C" {
            return true;
        }
        match lead(line) {
            Some((Lead::Average, taken)) => {
                // A row of averages has a task after the word, and nothing else of pidstat begins with a word.
                let rest = line.get(taken..).unwrap_or_default();
                self.open.is_some()
                    && !is_header(rest)
                    && words(rest).take(3).filter_map(|w| w.first()).any(u8::is_ascii_digit)
            }
            Some(_) => self.open == Some(Section::Average) && header(line).is_none(),
            None => false,
        }
    }
}

/// A line that begins with a time like the rows, with more numbers than words, was one of them.
fn is_damaged(line: &[u8]) -> bool {
    let numbers = words(line).filter(|w| w.first().is_some_and(u8::is_ascii_digit)).count();
    row_lead(line).is_some() && numbers >= 3 && 2 * numbers >= words(line).count()
}

/// The time of a row: of day, or seconds since 1970 with `-H` and in old versions with `-h`.
fn row_lead(line: &[u8]) -> Option<(When, usize)> {
    if let Some((Lead::Clock(ns), taken)) = lead(line) {
        return Some((When::Clock(ns), taken));
    }
    let mut w = words(line);
    let seconds = integer(w.next()?).filter(|s| (1_000_000_000..4_000_000_000).contains(s))?;
    let ns = i64::try_from(seconds).ok()? * SECOND;
    Some((When::At(ns), line.len().saturating_sub(w.rest().len())))
}
