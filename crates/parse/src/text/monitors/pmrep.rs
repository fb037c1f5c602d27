//! `pmrep` of PCP, as it prints to a terminal.
//!
//! ```text
//!           k.a.load  k.a.load  k.a.pswitch  m.u.free
//!           1 minute  15 minut                       
//!                                   count/s     Kbyte
//! 10:41:37     0.160     0.180          N/A   3060624
//! 10:41:38     0.160     0.180     1427.016   3060268
//! ```
//!
//! Of the name of a metric each part but the last is one letter. Columns end where their label ends; what does not fit is cut
//! off. Below the labels stand instances, if there are any, and units, which differ by option and are blank for numbers
//! without one. With `-x` a paragraph about the recording comes first.

use super::csv::step;
use super::pcp_names;
use super::wide::{COLUMNS_MAX, Cell, KIB, time};
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// See the module.
pub const FORMAT: Format = Format::new(
    "pmrep",
    "`pmrep` of PCP as it prints to a terminal: metrics of the kernel under their short names",
    starts,
    read,
);

/// Lines below the labels.
const HEADER_LINES: usize = 4;
/// What `-x` says before the table.
const ABOUT: &[&[u8]] =
    list!("archive: |host: |timezone: |start: |end: |metrics: |samples: |interval: |duration: ", b'|');

/// The label of a column, and where it ends.
struct Label {
    name: Vec<u8>,
    end: usize,
    is_known: bool,
}

/// `k.a.load`, `m.freemem`.
fn is_label(word: &[u8]) -> bool {
    let mut parts = word.rsplit(|b| *b == b'.');
    let is_name = |part: &[u8]| part.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let has_last = parts.next().is_some_and(|last| !last.is_empty() && is_name(last));
    has_last && word.contains(&b'.') && parts.all(|part| part.len() == 1 && is_name(part))
}

/// The labels of a header of which a metric is known.
fn labels(line: &[u8]) -> Option<Vec<Label>> {
    if !line.starts_with(b"  ") || !words(line).all(is_label) {
        return None;
    }
    let mut out = Vec::new();
    let mut end = 0;
    for word in line.split(|b| *b == b' ').take(COLUMNS_MAX) {
        end += word.len();
        if !word.is_empty() {
            out.push(Label { name: word.to_vec(), end, is_known: pcp_names::is_short(word) });
        }
        end += 1;
    }
    out.iter().any(|label| label.is_known).then_some(out)
}

/// What stands in a column.
fn cell_of<'a>(line: &'a [u8], labels: &[Label], i: usize) -> &'a [u8] {
    let end_of = |i: usize| labels.get(i).map_or(0, |label| label.end);
    let from = i.checked_sub(1).map_or(0, end_of);
    line.get(from..end_of(i).min(line.len())).unwrap_or_default().trim_ascii()
}

/// The time and the numbers of a row, `NaN` where there is none.
fn row(line: &[u8], labels: &[Label]) -> Option<(Option<When>, Vec<f64>)> {
    // The first cell has the time before it.
    let first = cell_of(line, labels, 0);
    let at = first.iter().rposition(|b| *b == b' ').map_or(0, |blank| blank + 1);
    let (clock, value) = first.split_at_checked(at)?;
    let clock = clock.trim_ascii();
    let when = if clock.is_empty() { None } else { Some(time(clock)?) };
    let mut out = Vec::with_capacity(labels.len());
    for (i, label) in labels.iter().enumerate() {
        let word = if i == 0 { value } else { cell_of(line, labels, i) };
        match number(word) {
            Some(value) => out.push(value),
            None if !label.is_known || matches!(word, b"" | b"N/A" | b"xxx" | b"NaN" | b"inf" | b"-inf") => {
                out.push(f64::NAN);
            }
            None => return None,
        }
    }
    let is_one = out.iter().any(|value| !value.is_nan()) || has(line, b"N/A");
    is_one.then_some((when, out))
}

/// What a unit is in bytes, if it is of such, and whether it is of a second.
fn unit(word: &[u8]) -> Option<(Option<f64>, bool)> {
    let (name, is_rate) = match word.strip_suffix(b"/s") {
        Some(name) => (name, true),
        None => (word, false),
    };
    let bytes = match name.to_ascii_lowercase().as_slice() {
        b"" | b"none" | b"count" => None,
        b"byte" | b"b" => Some(1.0),
        b"kbyte" | b"kb" => Some(KIB),
        b"mbyte" | b"mb" => Some(KIB * KIB),
        b"gbyte" | b"gb" => Some(KIB * KIB * KIB),
        b"tbyte" | b"tb" => Some(KIB * KIB * KIB * KIB),
        _ => return None,
    };
    Some((bytes, is_rate))
}

/// Words of which no instance consists; those of units that are not read among them.
fn is_units(line: &[u8]) -> bool {
    let is_unit = |word: &[u8]| {
        unit(word).is_some()
            || word.ends_with(b"/s")
            || matches!(word, b"millisec" | b"microsec" | b"sec" | b"%")
    };
    words(line).next().is_some() && words(line).all(is_unit)
}

/// What the cells of a metric are in the unit that was printed; `None` without a line of units, as with `-U`.
fn in_unit(cell: Cell, word: Option<&[u8]>) -> Option<Cell> {
    let word = word.unwrap_or_default();
    let (bytes, is_rate) = unit(word)?;
    // Bytes are in a unit that the option chose, and a counter says whether it is a rate.
    let needs_unit = cell.form == Form::Rate || cell.factor > 1.0;
    if word.is_empty() && needs_unit || is_rate && cell.form == Form::Level {
        return None;
    }
    // With `-r` counters are as the kernel has them.
    let form = if cell.form == Form::Rate && !is_rate { Form::Total } else { cell.form };
    let factor = bytes.unwrap_or(cell.factor);
    Some(Cell { form, factor, ..cell })
}

/// A table whose header is read.
struct Table {
    labels: Vec<Label>,
    instances: Option<Vec<u8>>,
    units: Option<Vec<u8>>,
    /// Known with the first row.
    cells: Option<Vec<Option<Cell>>>,
}

impl Table {
    fn new(labels: Vec<Label>) -> Table {
        Table { labels, instances: None, units: None, cells: None }
    }

    /// What the columns are.
    fn columns(&self, import: &mut Import) -> Vec<Option<Cell>> {
        let instances = self.instances.as_deref().unwrap_or_default();
        let mut cells = Vec::with_capacity(self.labels.len());
        let mut before = None;
        for (i, label) in self.labels.iter().enumerate() {
            let instance = cell_of(instances, &self.labels, i);
            // Two blanks stand between columns; before the first may be a time.
            let width = before.map_or(label.name.len(), |before| label.end.saturating_sub(before + 2));
            before = Some(label.end);
            let cell = if pcp_names::is_load(&label.name) || instance.len() < width {
                pcp_names::short(&label.name, instance)
            } else {
                import.note("pmrep: names that fill their column may be cut: such columns were left out");
                None
            };
            let unit = self.units.as_deref().map(|units| cell_of(units, &self.labels, i));
            cells.push(cell.and_then(|cell| in_unit(cell, unit)));
        }
        cells
    }
}

/// A line of `-x`: its key and its value.
fn about(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = line.trim_ascii_start();
    if text.len() == line.len() || !begins(text, ABOUT) {
        return None;
    }
    let (key, value) = text.split_at_checked(memchr::memchr(b':', text)?)?;
    Some((key, value.get(1..)?.trim_ascii()))
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is_timezone = |line: &[u8]| about(line).is_some_and(|(key, _)| key == b"timezone");
    let begins_about = |line: &[u8]| about(line).is_some_and(|(key, _)| matches!(key, b"archive" | b"host"));
    if lines.at(begins_about) {
        return lines.soon(2, is_timezone);
    }
    let Some(labels) = lines.peek().and_then(labels) else { return false };
    lines.soon(HEADER_LINES, |line| row(line, &labels).is_some())
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sink = Sink::default();
    let mut table: Option<Table> = None;
    if let Some(interval) = asked_interval(&import.context) {
        import.context.interval_s.get_or_insert(interval);
    }
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(found) = labels(line) {
            table = Some(Table::new(found));
            return Took::Yes;
        }
        let Some(known) = &mut table else {
            if let Some((key, value)) = about(line) {
                take_about(key, value, import);
                return Took::Yes;
            }
            let is_blank = line.trim_ascii().is_empty();
            return if is_blank && lines.soon(1, |next| labels(next).is_some()) {
                Took::Yes
            } else {
                Took::No
            };
        };
        let is_header = known.cells.is_none();
        if let Some((when, values)) = row(line, &known.labels) {
            let when = when.unwrap_or_else(|| step(import));
            if is_header {
                known.cells = Some(known.columns(import));
            }
            let cells = known.cells.iter().flatten();
            for (cell, value) in cells.zip(values) {
                if let Some(cell) = cell.as_ref().filter(|_| value >= 0.0) {
                    cell.put(value, when, at, &mut sink, import);
                }
            }
            return Took::Yes;
        }
        let is_blank = line.trim_ascii().is_empty();
        if is_header && known.units.is_none() && (is_blank || is_units(line)) {
            known.units = Some(line.to_vec());
            return Took::Yes;
        }
        if is_header && known.units.is_none() && known.instances.is_none() {
            known.instances = Some(line.to_vec());
            return Took::Yes;
        }
        if is_blank {
            // A header again, as high as the screen.
            return if lines.soon(1, |next| labels(next).is_some()) { Took::Yes } else { Took::No };
        }
        Took::unread_if(lines.soon(1, |next| row(next, &known.labels).is_some()))
    });
}

fn take_about(key: &[u8], value: &[u8], import: &mut Import) {
    match key {
        b"host" if import.host.hostname.is_empty() => import.host.hostname = text(value),
        b"start" => {
            if let Some(When::At(t)) = clock::whole_line(value, None) {
                import.context.date = Some(t.div_euclid(DAY));
            }
        }
        b"interval" => {
            if let Some(seconds) = first(value).filter(|seconds| *seconds > 0.0) {
                import.context.interval_s = Some(seconds);
            }
        }
        _ => {}
    }
}

/// `-t 5`, `-t5sec`, `-t 1m`; without it a second.
fn asked_interval(context: &Context) -> Option<f64> {
    if !context.ran("pmrep", None) {
        return None;
    }
    let mut list = context.command.iter().skip_while(|word| !word.starts_with("-t"));
    let word = list.next()?.strip_prefix("-t")?;
    let word = if word.is_empty() { list.next()?.as_str() } else { word };
    let (value, unit) = leading(word.as_bytes())?;
    let factor = match unit.first() {
        None | Some(b's') => 1.0,
        Some(b'm') if !unit.starts_with(b"ms") && !unit.starts_with(b"milli") => 60.0,
        _ => return None,
    };
    Some(value * factor).filter(|seconds| *seconds > 0.0)
}
