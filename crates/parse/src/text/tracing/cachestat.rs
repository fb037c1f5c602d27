//! cachestat of bcc, of old bcc, and of perf-tools.
//!
//! ```text
//! Counting cache functions... Output every 1 seconds.
//!     HITS   MISSES  DIRTIES    RATIO   BUFFERS_MB   CACHE_MB
//!     1811      632        2    74.1%           17      48009
//!
//! TIME         HITS   MISSES  DIRTIES HITRATIO   BUFFERS_MB  CACHED_MB
//! 10:53:32       54        0       12  100.00%           41      33680
//! ```

use crate::text::prelude::*;

/// See the module.
pub(super) const FORMAT: Format =
    Format::new("cachestat", "hits and misses of the page cache, from bcc and perf-tools", starts, read);

const MIB: f64 = 1024.0 * 1024.0;
const BANNER: &[u8] = b"Counting cache functions... Output every ";

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| line.starts_with(BANNER) || columns(line, 1.0).is_some())
}

/// A column that is filled, one that is passed over, or the time.
enum Cell {
    Value(Column),
    Skip,
    Time,
}

fn columns(line: &[u8], interval_s: f64) -> Option<Vec<Cell>> {
    let mut cells = Vec::new();
    let (mut hits, mut misses) = (false, false);
    let first = words(line).next()?;
    if !matches!(first, b"HITS" | b"TOTAL" | b"TIME") {
        return None;
    }
    let rate = |metric| Column::new(metric, Form::Rate, 1.0 / interval_s);
    for word in words(line) {
        let column = match word {
            b"HITS" => rate("cache.hits"),
            b"MISSES" => rate("cache.misses"),
            b"DIRTIES" => rate("cache.dirties"),
            b"RATIO" | b"HITRATIO" => Column::new("cache.hit_ratio", Form::Level, 0.01),
            b"BUFFERS_MB" => Column::new("mem.buffers", Form::Level, MIB),
            b"CACHE_MB" | b"CACHED_MB" => Column::new("mem.cached", Form::Level, MIB),
            b"TIME" => {
                cells.push(Cell::Time);
                continue;
            }
            b"TOTAL" | b"READ_HIT%" | b"WRITE_HIT%" => None,
            _ => return None,
        };
        hits |= word == b"HITS";
        misses |= word == b"MISSES";
        cells.push(column.map_or(Cell::Skip, Cell::Value));
    }
    (hits && misses && cells.len() >= 5).then_some(cells)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut interval = import.context.interval_s;
    if let Some(rest) = lines.peek().and_then(|line| line.strip_prefix(BANNER)) {
        interval = leading(rest).map(|n| n.0).filter(|s| *s > 0.0).or(interval);
        lines.advance();
    }
    let interval = interval.or_else(|| difference(lines)).unwrap_or(1.0);
    import.context.interval_s = Some(interval);
    let Some(mut cells) = lines.peek().and_then(|line| columns(line, interval)) else { return };
    let values = |cells: &[Cell]| {
        cells.iter().filter_map(|c| if let Cell::Value(c) = c { Some(*c) } else { None }).collect()
    };
    let mut group = import.group(values(&cells));
    lines.advance();
    let mut step = 0;
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if let Some(again) = columns(line, interval) {
            group = import.group(values(&again));
            cells = again;
        } else if let Some(when) = row(&cells, line, step) {
            let slots = import.row(group, b"", when, number);
            fill(&cells, line, slots);
            step = step.saturating_add(1);
        } else if line.first().is_some_and(|b| b.is_ascii_digit() || *b == b' ')
            && lines.soon(1, |next| row(&cells, next, 0).is_some())
        {
            return Took::Unread;
        } else if !super::is_pause(lines) {
            return Took::No;
        }
        Took::Yes
    });
}

/// The time of a row; `None` when the line is none.
fn row(cells: &[Cell], line: &[u8], step: u32) -> Option<When> {
    let mut when = When::Step(step);
    let mut list = words(line);
    let mut read = 0;
    for cell in cells {
        let word = list.next()?;
        match cell {
            Cell::Time => when = When::Clock(clock::time_of_day(word)?),
            _ => read += usize::from(number(word).is_some()),
        }
    }
    (list.next().is_none() && read >= 3).then_some(when)
}

fn fill(cells: &[Cell], line: &[u8], slots: &mut [f64]) {
    let values = cells.iter().zip(words(line)).filter(|(cell, _)| matches!(cell, Cell::Value(_)));
    for (slot, (_, word)) in slots.iter_mut().zip(values) {
        *slot = number(word).unwrap_or(f64::NAN);
    }
}

/// The interval by the times of the first two rows.
fn difference(lines: &mut Lines<'_>) -> Option<f64> {
    let mut time = |n| lines.ahead(n).and_then(|l| words(l).next()).and_then(clock::time_of_day);
    let ns = time(2)? - time(1)?;
    (ns > 0).then_some(ns as f64 / 1e9)
}
