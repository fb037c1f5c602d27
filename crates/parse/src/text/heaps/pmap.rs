//! `pmap`, `pmap -x` and `pmap -X`. Headings follow the locale, so columns are known by their place.
//!
//! ```text
//! 31007:   sleep 100
//! Address           Kbytes     RSS   Dirty Mode  Mapping
//! 000055dd412d0000       8       8       0 r---- sleep
//! 000055dd71624000     132      16      16 rw---   [ anon ]
//! ---------------- ------- ------- -------
//! total kB            6256    1944     120
//! ```
//!
//! `-X` has the fields of smaps as columns, under their own names in every locale.

use super::smaps::{FIELDS, row_name};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("pmap", "mappings of a process: plain, `-x`, `-X`", starts, read);

/// `31007:   sleep 100`, and a mapping or a heading below.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|l| process(l).is_some()) && lines.soon(2, |l| mapping(l).is_some() || wide(l).is_some())
}

fn process(line: &[u8]) -> Option<u32> {
    let mut w = words(line);
    let pid = integer(w.next()?.strip_suffix(b":")?)?;
    (!w.rest().is_empty()).then(|| u32::try_from(pid).ok())?
}

struct Mapping<'a> {
    start: u64,
    kib: u64,
    /// Resident and dirty KiB, of `-x`.
    more: Option<(u64, u64)>,
    name: &'a [u8],
}

fn is_mode(word: &[u8]) -> bool {
    word.len() == 5 && word.iter().all(|b| matches!(b, b'r' | b'w' | b'x' | b's' | b'R' | b'-'))
}

fn mapping(line: &[u8]) -> Option<Mapping<'_>> {
    let mut w = words(line);
    let address = w.next().filter(|a| a.len() >= 8)?;
    let start = hexadecimal(address)?;
    let size = w.next()?;
    if let Some(kib) = size.strip_suffix(b"K").and_then(integer) {
        w.next().filter(|m| is_mode(m))?;
        return Some(Mapping { start, kib, more: None, name: w.rest().trim_ascii() });
    }
    let kib = integer(size)?;
    let (rss, dirty) = (integer(w.next()?)?, integer(w.next()?)?);
    w.next().filter(|m| is_mode(m))?;
    Some(Mapping { start, kib, more: Some((rss, dirty)), name: w.rest().trim_ascii() })
}

/// The fields of the heading of `-X`; the mapping's name comes last.
fn wide(line: &[u8]) -> Option<Vec<Option<Column>>> {
    let names: Vec<&[u8]> = words(line).collect();
    let has = |name: &[u8]| names.contains(&name);
    if !(has(b"Size") && has(b"Rss") && has(b"Pss") && names.len() > 8) {
        return None;
    }
    let of = |name: &&[u8]| Column::new(find_pair(FIELDS, name)?, Form::Level, 1024.0);
    // The first column with a metric tells where the numbers begin; the last is the name.
    Some(names.iter().take(names.len() - 1).map(of).collect())
}

/// Reads one process.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let pid = lines.peek().and_then(process);
    lines.advance();
    let when = import.now();
    let column = |metric: &str| Column::new(metric, Form::Level, 1024.0);
    let size = import.group(column("mapping.size").into_iter().collect());
    let full: Vec<Column> = ["mapping.size", "mapping.rss"].into_iter().filter_map(column).collect();
    let full = import.group(full);
    loop {
        let n = lines.number();
        let Some(line) = lines.peek() else { return };
        if let Some(columns) = wide(line) {
            lines.advance();
            return read_wide(lines, import, pid, &columns);
        }
        if let Some(m) = mapping(line) {
            let end = m.start.saturating_add(m.kib.saturating_mul(1024));
            let range = format!("{:08x}-{end:08x}", m.start);
            let row = row_name(pid, 0, range.as_bytes(), m.name);
            let (group, numbers) = match m.more {
                Some((rss, _)) => (full, [m.kib as f64, rss as f64]),
                None => (size, [m.kib as f64, f64::NAN]),
            };
            let name = text(m.name);
            import.put(group, row.as_bytes(), when, n, &numbers);
            import.text("mapping.name", &row, when, &name);
        } else if is_total(line) {
            lines.advance();
            return;
        } else {
            // The heading and the line before the total.
            let ruled = line.trim_ascii().starts_with(b"---");
            let heads = lines.soon(1, |l| mapping(l).is_some());
            if !ruled && !heads {
                return;
            }
        }
        lines.advance();
    }
}

/// `total kB  6256 1944 120`, ` total  6252K`; the word follows the locale.
fn is_total(line: &[u8]) -> bool {
    let mut w = words(line);
    let Some(first) = w.next() else { return false };
    let numbers = w.clone().filter(|w| number(w.strip_suffix(b"K").unwrap_or(w)).is_some()).count();
    first.first().is_some_and(|b| b.is_ascii_alphabetic() || *b >= 0x80)
        && numbers >= 1
        && numbers + 2 > w.count()
}

fn read_wide(lines: &mut Lines<'_>, import: &mut Import, pid: Option<u32>, columns: &[Option<Column>]) {
    let when = import.now();
    let group = import.group(columns.iter().copied().flatten().collect());
    lines.each(import, |lines, n, import| {
        let line = lines.line();
        let cells: Vec<&[u8]> = words(line).take(columns.len()).collect();
        let start = cells.first().filter(|_| cells.len() == columns.len()).and_then(|a| hexadecimal(a));
        let Some(start) = start else {
            let trimmed = line.trim_ascii();
            let own = trimmed.starts_with(b"===") || trimmed.ends_with(b"KB");
            if own {
                return Took::Yes;
            }
            return Took::No;
        };
        let mut rest = words(line);
        let numbers: Vec<f64> = columns
            .iter()
            .zip(rest.by_ref())
            .filter(|(column, _)| column.is_some())
            .map(|(_, cell)| number(cell).unwrap_or(f64::NAN))
            .collect();
        let name = text(rest.rest().trim_ascii());
        let kib = numbers.first().copied().filter(|k| *k >= 0.0).unwrap_or(0.0) as u64;
        let end = start.saturating_add(kib.saturating_mul(1024));
        let row = row_name(pid, 0, format!("{start:08x}-{end:08x}").as_bytes(), name.as_bytes());
        import.put(group, row.as_bytes(), when, n, &numbers);
        import.text("mapping.name", &row, when, &name);
        Took::Yes
    });
}
