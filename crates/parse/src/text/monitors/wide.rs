//! Tables with a column for each number: which metric each is, and rows of them over time.

use mitra_model::{Metric, lookup};

use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// Columns of one table; a machine with thousands of CPUs and disks has more than any other.
pub(super) const COLUMNS_MAX: usize = 16_384;
pub(super) const KIB: f64 = 1024.0;
pub(super) const MIB: f64 = 1024.0 * KIB;

/// Names with the same form and the same factor to the metric's base unit. A blank in a name is written `_`.
pub(super) struct Names {
    pub form: Form,
    pub factor: f64,
    pub names: Pairs,
}

pub(super) const fn names(form: Form, factor: f64, names: Pairs) -> Names {
    Names { form, factor, names }
}

/// What a column holds.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub metric: &'static Metric,
    pub form: Form,
    pub factor: f64,
    /// The row in the metric's table; empty for the machine.
    pub row: Vec<u8>,
}

impl Cell {
    /// A cell of a row.
    pub fn new(metric: &str, form: Form, factor: f64, row: &[u8]) -> Option<Cell> {
        Some(Cell { metric: lookup(metric)?, form, factor, row: row.to_vec() })
    }

    /// A cell in the unit in which the kernel counts.
    pub fn raw(metric: &str, row: &[u8]) -> Option<Cell> {
        let metric = lookup(metric)?;
        let form = if metric.is_rate() { Form::Total } else { Form::Level };
        Some(Cell { metric, form, factor: metric.unit.scale(), row: row.to_vec() })
    }

    /// Puts a number as it was printed.
    pub fn put(&self, value: f64, when: When, line: u32, sink: &mut Sink, import: &mut Import) {
        sink.put_as(import, self.metric, self.form, self.factor, &self.row, when, line, value);
    }
}

/// The cell of a name in tables.
pub(super) fn find(tables: &[Names], name: &[u8], row: &[u8]) -> Option<Cell> {
    let same = |(printed, _): &&(&[u8], &str)| {
        printed.len() == name.len()
            && printed.iter().zip(name).all(|(a, b)| a == b || (*a == b'_' && *b == b' '))
    };
    tables.iter().find_map(|table| {
        let (_, metric) = table.names.iter().find(same)?;
        Cell::new(metric, table.form, table.factor, row)
    })
}

/// A table whose header was read.
#[derive(Default)]
pub(super) struct Wide {
    pub cells: Vec<Option<Cell>>,
}

impl Wide {
    /// Whether a column has a metric.
    pub fn is_known(&self) -> bool {
        self.cells.iter().any(Option::is_some)
    }

    /// Puts the numbers of a row that have a metric. `only_levels`: of an interval of unknown length.
    pub fn row<'a>(
        &self,
        words: impl Iterator<Item = &'a [u8]>,
        (when, line, only_levels): (When, u32, bool),
        sink: &mut Sink,
        import: &mut Import,
    ) {
        for (cell, word) in self.cells.iter().zip(words) {
            let Some(cell) = cell.as_ref().filter(|c| !only_levels || c.form == Form::Level) else {
                continue;
            };
            // None of the metrics can be negative: nmon has -1 for what is not there.
            if let Some(value) = number(word.trim_ascii()).filter(|value| *value >= 0.0) {
                cell.put(value, when, line, sink, import);
            }
        }
    }
}

/// The cells of a line between commas, without quotation marks; a comma may stand between two of them.
pub(super) fn cells(line: &[u8]) -> Vec<&[u8]> {
    let (mut out, mut from, mut quoted) = (Vec::new(), 0, false);
    for (at, byte) in line.iter().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                out.push(unquoted(line.get(from..at).unwrap_or_default()));
                from = at + 1;
            }
            _ => {}
        }
        if out.len() >= COLUMNS_MAX {
            return out;
        }
    }
    out.push(unquoted(line.get(from..).unwrap_or_default()));
    out
}

fn unquoted(cell: &[u8]) -> &[u8] {
    let cell = cell.trim_ascii();
    cell.strip_prefix(b"\"").and_then(|c| c.strip_suffix(b"\"")).unwrap_or(cell)
}

/// A time in one cell: seconds since 1970, `2026-11-27 23:10:01`, ISO 8601, or a time of day.
pub(super) fn time(cell: &[u8]) -> Option<When> {
    if let Some(seconds) = number(cell).filter(|s| (1e9..4e9).contains(s)) {
        return Some(When::At((seconds * SECOND as f64) as i64));
    }
    if let Some(t) = clock::iso(cell) {
        return Some(When::At(t));
    }
    let mut list = words(cell);
    let (first, second) = (list.next()?, list.next());
    match second {
        None => clock::time_of_day(first).map(When::Clock),
        Some(second) => {
            let day = clock::date(first).or_else(|| compact_date(first))?;
            Some(When::At(day * DAY + clock::time_of_day(second)?))
        }
    }
}

/// `20261127`.
pub(super) fn compact_date(word: &[u8]) -> Option<i64> {
    let part = |range: std::ops::Range<usize>| word.get(range).and_then(integer);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    if word.len() != 8 {
        return None;
    }
    clock::days(i64::try_from(year).ok()?, u32::try_from(month).ok()?, u32::try_from(day).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_times() {
        assert_eq!(cells(b"\"a\",b,\"c,d\",,1"), [&b"a"[..], b"b", b"c,d", b"", b"1"]);
        assert_eq!(time(b"1474363244.5"), Some(When::At(1_474_363_244 * SECOND + SECOND / 2)));
        let t = When::At(1_473_504_812 * SECOND);
        assert_eq!(time(b"2016-09-10 10:53:32"), Some(t));
        assert_eq!(time(b"20160910 10:53:32"), Some(t));
        assert_eq!(time(b"10:53:32"), Some(When::Clock((10 * 3600 + 53 * 60 + 32) * SECOND)));
        assert_eq!(time(b"x"), None);
    }
}
