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

use super::super::clock::{self, time_of_day, with_half};
use super::super::number::{leading, number as number_of, words};
use super::super::{Context, Format, Import, Lines, When, context};
use super::iostat_columns::{COLUMNS_MAX, Table, is_disk_column};
use super::iostat_reports::Reports;

/// The format.
pub const FORMAT: Format = Format {
    name: "iostat",
    what: "CPU time and block devices: plain, `-x`, `-s`, `-t`, `-h`, `-m`, `-p`, `-g`, of versions 5 to 12",
    starts,
    read,
};

/// Headers of one run that are kept; options make at most five.
const TABLES_MAX: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    Cpu,
    /// Whether the name of the device is the last word.
    Disk {
        name_last: bool,
    },
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    if header(line).is_some() {
        return true;
    }
    old_stamp(line).is_some() && lines.ahead(1).is_some_and(|next| header(next).is_some())
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

struct Known {
    header: Vec<u8>,
    kind: Header,
    indent: usize,
    table: Table,
    /// The report that had it last.
    report: u32,
}

#[derive(Default)]
struct Reader {
    reports: Reports,
    tables: Vec<Known>,
    /// The table whose rows follow.
    open: Option<usize>,
    /// The line of a word that is alone, which may be the name of a device whose numbers are on the next line.
    name: Option<(u32, Vec<u8>)>,
    /// Whether a time was printed and no header since.
    stamped: bool,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader = Reader::default();
    if let Some(stamp) = import.context.stamp {
        reader.reports.stamp(stamp);
    }
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        if line.trim_ascii().is_empty() {
            reader.open = None;
            reader.drop_name(import);
        } else if !reader.row(line, number, import)
            && !reader.header(line, import)
            && !reader.stamp(line, import)
            && !reader.damaged(line, number, import)
        {
            break;
        }
        lines.advance();
    }
    reader.drop_name(import);
    reader.reports.end(import);
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
            let mut names: Vec<&[u8]> = words(line).take(COLUMNS_MAX).collect();
            let table = match kind {
                Header::Cpu => Table::cpu(import, names.get(1..).unwrap_or_default()),
                Header::Disk { name_last: false } => Table::disk(import, names.get(1..).unwrap_or_default()),
                Header::Disk { name_last: true } => {
                    names.pop();
                    Table::disk(import, &names)
                }
            };
            self.tables.push(Known { header: line.to_vec(), kind, indent: indent(line), table, report: 0 });
            self.tables.len() - 1
        });
        self.open = Some(i);
        self.drop_name(import);
        if let Some(known) = self.tables.get_mut(i) {
            known.report = self.reports.count;
            self.reports.table(import, known.table.group);
        }
        true
    }

    fn row(&mut self, line: &[u8], number: u32, import: &mut Import) -> bool {
        let Some(known) = self.open.and_then(|i| self.tables.get(i)) else { return false };
        let mut all: [&[u8]; COLUMNS_MAX] = [b""; COLUMNS_MAX];
        let mut n = 0;
        for word in words(line) {
            let Some(place) = all.get_mut(n) else { return false };
            *place = word;
            n += 1;
        }
        let all = all.get(..n).unwrap_or_default();
        let len = known.table.len();
        let (name, cells): (&[u8], &[&[u8]]) = match (known.kind, all) {
            (Header::Cpu, cells) if n == len => (b"", cells),
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
        if indent(line) > known.indent && self.may_be_group(known) {
            import.note("groups of devices are no devices: their rows were passed over");
            return true;
        }
        let key = (known.table.group, known.table.width());
        self.reports.row(import, key, name, number, |slots| known.table.fill(cells, slots));
        if let Header::Cpu = known.kind {
            self.open = None;
        }
        // It was the name of this row; a row with a name of its own leaves none behind.
        if n == len {
            self.name = None;
        }
        true
    }

    /// Whether an indented first word names a group of devices. Where the name is alone or last, numbers are indented.
    fn may_be_group(&self, known: &Known) -> bool {
        known.kind == Header::Disk { name_last: false } && self.name.is_none()
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

    /// A line of an open table of which most is numbers was one of its rows.
    fn damaged(&mut self, line: &[u8], number: u32, import: &mut Import) -> bool {
        if self.open.is_none() {
            return false;
        }
        let (mut numbers, mut others) = (0, 0);
        for word in words(line) {
            if leading(word).is_some() { numbers += 1 } else { others += 1 }
        }
        if numbers < 2 || numbers < others {
            return false;
        }
        import.unread(number, line);
        true
    }
}
