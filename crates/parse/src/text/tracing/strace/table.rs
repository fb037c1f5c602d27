//! The table of `strace -c`, with any choice of columns.
//!
//! ```text
//! % time     seconds  usecs/call     calls    errors syscall
//! ------ ----------- ----------- --------- --------- ----------------
//! 100.00    0.003180           0      6647      6643 access
//! ------ ----------- ----------- --------- --------- ----------------
//! 100.00    0.003180                  6647      6643 total
//! ```

use crate::text::prelude::*;

use super::METRICS;

/// Calls in one table; Linux has fewer.
const ROWS_MAX: usize = 4096;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Share,
    Seconds,
    Each,
    Shortest,
    Longest,
    Calls,
    Errors,
    Name,
}

/// The columns of a header.
fn columns(line: &[u8]) -> Option<Vec<Cell>> {
    let mut cells = Vec::new();
    let mut list = words(line);
    while let Some(word) = list.next() {
        cells.push(match word {
            b"%" if list.next() == Some(b"time") => Cell::Share,
            b"seconds" => Cell::Seconds,
            b"usecs/call" => Cell::Each,
            b"shortest" => Cell::Shortest,
            b"longest" => Cell::Longest,
            b"calls" => Cell::Calls,
            b"errors" => Cell::Errors,
            b"syscall" => Cell::Name,
            _ => return None,
        });
    }
    let has = |cell| cells.iter().filter(|c| **c == cell).count() == 1;
    (has(Cell::Name) && (has(Cell::Calls) || has(Cell::Seconds)) && cells.len() >= 3).then_some(cells)
}

pub(super) fn is_header(line: &[u8]) -> bool {
    // Most lines are settled by their length and their end.
    line.len() < 200 && find!(line, b"syscall").is_some() && columns(line).is_some()
}

pub(super) fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(is_header)
}

pub(super) fn read(lines: &mut Lines<'_>, import: &mut Import) {
    read_after(lines, import, &[]);
}

/// Reads a table. Of calls that a log counted already, only the time is new.
pub(super) fn read_after(lines: &mut Lines<'_>, import: &mut Import, counted: &[Box<[u8]>]) {
    let Some(columns) = lines.peek().and_then(columns) else { return };
    lines.advance();
    let totals: Vec<Column> = METRICS.iter().filter_map(|m| Column::new(m, Form::Total, 1.0)).collect();
    let group = import.group(totals);
    let longest = import.group(Column::new("call.time_max", Form::Level, 1.0).into_iter().collect());
    for _ in 0..ROWS_MAX {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        if line.starts_with(b"---") {
            lines.advance();
            continue;
        }
        if line.is_empty() || context::take(line, import) {
            break;
        }
        if let Some(row) = row(&columns, line) {
            let total = row.name == b"total";
            if !total {
                put(import, (group, longest), &row, number, counted);
            }
            lines.advance();
            if total {
                break;
            }
            continue;
        }
        // The end of a table that was cut, or a damaged line in it.
        if lines.ahead(1).is_none_or(|next| row(&columns, next).is_none()) {
            break;
        }
        if let Some(line) = lines.peek() {
            import.unread(number, line);
        }
        lines.advance();
    }
}

fn put(import: &mut Import, groups: (GroupId, GroupId), row: &CallRow<'_>, line: u32, counted: &[Box<[u8]>]) {
    let known = counted.iter().any(|name| **name == *row.name);
    let slots = import.row(groups.0, row.name, When::Fact, line);
    for (slot, value) in slots.iter_mut().zip([row.calls, row.errors, row.seconds]) {
        if slot.is_nan() {
            *slot = value;
        } else if !known && value.is_finite() {
            *slot += value;
        }
    }
    if row.longest.is_finite()
        && let Some(slot) = import.row(groups.1, row.name, When::Fact, line).first_mut()
    {
        *slot = slot.max(row.longest);
    }
}

struct CallRow<'a> {
    name: &'a [u8],
    calls: f64,
    errors: f64,
    seconds: f64,
    longest: f64,
}

fn row<'a>(columns: &[Cell], line: &'a [u8]) -> Option<CallRow<'a>> {
    let mut row =
        CallRow { name: b"", calls: f64::NAN, errors: f64::NAN, seconds: f64::NAN, longest: f64::NAN };
    let n = words(line).count();
    let total = words(line).any(|w| w == b"total");
    // A call without errors has a blank there, the total has one in place of the time of each.
    let blank = |cell: &Cell| *cell == Cell::Errors && n < columns.len();
    let mut list = words(line);
    for cell in columns {
        if *cell == Cell::Errors && blank(cell) && !total {
            row.errors = 0.0;
            continue;
        }
        if total && *cell == Cell::Each && n < columns.len() {
            continue;
        }
        let Some(word) = list.next() else { return total.then_some(CallRow { name: b"total", ..row }) };
        match cell {
            Cell::Name => row.name = name(word)?,
            Cell::Calls => row.calls = integer(word)? as f64,
            Cell::Errors if total => {}
            Cell::Errors => row.errors = integer(word)? as f64,
            Cell::Seconds => row.seconds = number(word)?,
            Cell::Longest => row.longest = number(word)?,
            Cell::Share | Cell::Each | Cell::Shortest => {
                number(word)?;
            }
        }
    }
    if total {
        row.name = b"total";
    }
    (list.next().is_none() || total).then_some(row)
}

fn name(word: &[u8]) -> Option<&[u8]> {
    let good = word.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_');
    good.then_some(word)
}
