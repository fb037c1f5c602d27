//! `iostat`: CPU time and block devices, one report after the other.
//!
//! ```text
//! 11/21/2026 01:30:36 PM
//! avg-cpu:  %user   %nice %system %iowait  %steal   %idle
//!           67.50    0.00   32.50    0.00    0.00    0.00
//!
//! Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s …  aqu-sz  %util
//! vda              9.00     68.00     8.00  47.06    3.22     7.56   97.00 393232.00 …    1.26  14.40
//! ```
//!
//! The columns are known by their names, so the order and the number of them do not matter. With `-h` (since 12) the
//! name of the device comes last and the table is in pieces; before, it had a line of its own.

use super::columns::{self, Kind};
use super::iostat_reports::Reports;
use super::plan::{COLUMNS_MAX, Cells, Plan};
use crate::text::clock::{time_of_day, with_half};
use crate::text::number::number as number_of;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "iostat",
    "CPU time and block devices: plain, `-x`, `-s`, `-t`, `-h`, `-m`, `-p`, `-g`, of versions 5 to 12",
    starts,
    read,
);

/// Headers of one run that are kept; options make at most five.
const TABLES_MAX: usize = 32;
/// Words of one line that are looked at.
const WORDS_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    Cpu,
    /// Whether the name of the device is the last word.
    Disk {
        name_last: bool,
    },
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is_header = |line: &[u8]| header(line).is_some();
    lines.at(is_header) || lines.at(|line| old_stamp(line).is_some()) && lines.soon(1, is_header)
}

/// Whether a word is the name of a column of the device tables.
fn is_disk_column(word: &[u8]) -> bool {
    columns::find(Kind::Disk, word).is_some()
        || columns::WAITS.iter().any(|(wait, ..)| wait.as_bytes() == word)
        || word == b"await"
}

/// What kind of header the line is.
fn header(line: &[u8]) -> Option<Header> {
    let mut w = words(line);
    let first = w.next()?;
    if first == b"avg-cpu:" {
        return w.any(|word| word == b"%idle").then_some(Header::Cpu);
    }
    if matches!(first, b"Device" | b"Device:") {
        return w.any(is_disk_column).then_some(Header::Disk { name_last: false });
    }
    (line.trim_ascii_end().ends_with(b" Device") && is_disk_column(first))
        .then_some(Header::Disk { name_last: true })
}

/// `Time: 10:23:45 AM` of versions before 9.1, and what it is in other languages.
fn old_stamp(line: &[u8]) -> Option<When> {
    let mut w = words(line);
    let mut word = w.next()?;
    if !word.ends_with(b":") {
        (w.next()? == b":").then_some(())?;
    } else if time_of_day(word).is_some() {
        return None;
    }
    word = w.next()?;
    let mut ns = time_of_day(word)?;
    if let Some(mark) = w.next() {
        ns = with_half(ns, mark)?;
    }
    w.next().is_none().then_some(When::Clock(ns))
}

/// A table of the reports, by its header.
struct Table {
    header: Vec<u8>,
    kind: Header,
    indent: usize,
    plan: Plan,
    /// The report that had it last.
    report: u32,
}

struct Reader {
    reports: Reports,
    tables: Vec<Table>,
    cells: Cells,
    /// The table whose rows follow.
    open: Option<usize>,
    /// The line of a word that is alone, which may be the name of a device whose numbers are on the next line.
    name: Option<(u32, Vec<u8>)>,
    /// Whether a time was printed and no header since.
    stamped: bool,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader = Reader {
        reports: Reports::default(),
        tables: Vec::new(),
        cells: [f64::NAN; COLUMNS_MAX],
        open: None,
        name: None,
        stamped: false,
    };
    if let Some(stamp) = import.context.stamp {
        reader.reports.stamp(stamp);
    }
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if line.trim_ascii().is_empty() {
            reader.open = None;
            reader.drop_name(import);
            return Took::Yes;
        }
        if reader.row(line, number, import) || reader.header(line, import) || reader.stamp(line, import) {
            return Took::Yes;
        }
        // A line of an open table of which most is numbers was one of its rows.
        Took::unread_if(reader.open.is_some() && mostly_numbers(line, 2))
    });
    reader.drop_name(import);
    reader.reports.end(import);
}

/// Whether a line has so many numbers at least, and no more other words than numbers.
pub(super) fn mostly_numbers(line: &[u8], least: usize) -> bool {
    let numbers = words(line).filter(|word| leading(word).is_some()).count();
    numbers >= least && 2 * numbers >= words(line).count()
}

fn indent(line: &[u8]) -> usize {
    line.iter().take_while(|b| matches!(b, b' ' | b'\t')).count()
}

impl Reader {
    /// The word that was alone was no name.
    fn drop_name(&mut self, import: &mut Import) {
        if let Some((line, word)) = self.name.take() {
            import.unread(line, &word);
        }
    }

    fn header(&mut self, line: &[u8], import: &mut Import) -> bool {
        let Some(kind) = header(line) else { return false };
        let known = self.tables.iter().position(|t| t.header == line);
        let again = known.and_then(|i| self.tables.get(i)).is_some_and(|t| t.report == self.reports.count);
        // With -d there is no CPU table, with -c nothing else: what comes again is of the next report.
        if self.reports.count == 0 || self.stamped || kind == Header::Cpu || again {
            self.reports.begin(import);
            self.stamped = false;
        }
        let i = known.unwrap_or_else(|| {
            if self.tables.len() >= TABLES_MAX {
                self.tables.clear();
            }
            let names: Vec<&[u8]> = words(line).take(WORDS_MAX).collect();
            let name_last = kind == Header::Disk { name_last: true };
            let names = if name_last { names.split_last() } else { names.split_first() };
            let rows = if kind == Header::Cpu { Kind::Cpu } else { Kind::Disk };
            let plan = Plan::of(rows, names.map_or(&[][..], |(_, names)| names), import);
            self.tables.push(Table { header: line.to_vec(), kind, indent: indent(line), plan, report: 0 });
            self.tables.len() - 1
        });
        self.open = Some(i);
        self.drop_name(import);
        if let Some(table) = self.tables.get_mut(i) {
            table.report = self.reports.count;
            self.reports.table(import, &table.plan);
        }
        true
    }

    fn row(&mut self, line: &[u8], number: u32, import: &mut Import) -> bool {
        let Some(table) = self.open.and_then(|i| self.tables.get(i)) else { return false };
        let mut all: [&[u8]; WORDS_MAX] = [b""; WORDS_MAX];
        let mut n = 0;
        for word in words(line) {
            let Some(slot) = all.get_mut(n) else { return false };
            *slot = word;
            n += 1;
        }
        let all = all.get(..n).unwrap_or_default();
        let len = table.plan.width;
        let (name, cells): (&[u8], &[&[u8]]) = match (table.kind, all) {
            (Header::Cpu, cells) if n == len => (b"all", cells),
            (Header::Disk { name_last: false }, [name, cells @ ..]) if n == len + 1 => (name, cells),
            (Header::Disk { name_last: true }, [cells @ .., name]) if n == len + 1 => (name, cells),
            (Header::Disk { .. }, cells) if n == len => match &self.name {
                Some((_, name)) => (name.as_slice(), cells),
                None => return false,
            },
            (Header::Disk { name_last: false }, [name]) if leading(name).is_none() => {
                let name = name.to_vec();
                self.drop_name(import);
                self.name = Some((number, name));
                return true;
            }
            _ => return false,
        };
        // -nan and inf are printed too.
        let may_be_number = |b: &u8| matches!(b, b'0'..=b'9' | b'-' | b'n' | b'i');
        if !cells.iter().all(|cell| cell.first().is_some_and(may_be_number)) {
            return false;
        }
        let name = name.strip_prefix(b"/dev/").unwrap_or(name);
        if number_of(name).is_some() {
            return false;
        }
        // Where the name is alone or last, numbers are indented.
        let may_be_group = table.kind == Header::Disk { name_last: false } && self.name.is_none();
        if indent(line) > table.indent && may_be_group {
            import.note("groups of devices are no devices: their rows were passed over");
            return true;
        }
        table.plan.read(cells, &mut self.cells);
        self.reports.row(import, &table.plan, name, number, &self.cells);
        if table.kind == Header::Cpu {
            self.open = None;
        }
        // It was the name of this row; a row with a name of its own leaves none behind.
        if n == len {
            self.name = None;
        }
        true
    }

    fn stamp(&mut self, line: &[u8], import: &mut Import) -> bool {
        let stamp = if clock::whole_line(line.trim_ascii(), import.context.date).is_some() {
            context::take(line, import);
            import.context.stamp
        } else {
            old_stamp(line)
        };
        let Some(stamp) = stamp else { return false };
        self.reports.stamp(stamp);
        self.stamped = true;
        self.open = None;
        true
    }
}
