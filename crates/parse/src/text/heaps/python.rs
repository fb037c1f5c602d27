//! Heaps of Python: guppy's partitions and the lines of `tracemalloc`.
//!
//! ```text
//! Partition of a set of 533203 objects. Total size = 59814702 bytes.
//!  Index  Count   %     Size   % Cumulative  % Kind (class / dict of class)
//!      0 132180  25  9964875  17   9964875  17 types.CodeType
//! <140 more rows. Type e.g. '_.more' to view.>
//!
//! #1: /usr/lib/python3/json/decoder.py:353: size=4855 KiB, count=39328, average=126 B
//! ```

use crate::text::prelude::*;

/// `guppy`.
pub const GUPPY: Format = Format::new("guppy", "a Python heap by type, from guppy", starts_guppy, read_guppy);
/// `tracemalloc`.
pub const TRACEMALLOC: Format = Format::new(
    "tracemalloc",
    "a Python heap by line, from tracemalloc",
    starts_tracemalloc,
    read_tracemalloc,
);

/// Count and bytes of a kind.
pub(super) fn census(import: &mut Import) -> GroupId {
    import.columns(&["census.count", "census.bytes"], Form::Level)
}

/// One row of a census.
pub(super) fn put(import: &mut Import, group: GroupId, row: &str, line: u32, numbers: [f64; 2], tool: &str) {
    let when = import.now();
    import.put(group, row.as_bytes(), when, line, &numbers);
    import.text("census.tool", row, when, tool);
}

/// `Partition of a set of N objects. Total size = M bytes.`
fn starts_guppy(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|l| partition(l).is_some())
}

fn partition(line: &[u8]) -> Option<[f64; 2]> {
    let at = find!(line, b"Partition of a set of ")?;
    let rest = line.get(at + 22..)?;
    let objects = words(rest).next().and_then(integer)?;
    let at = memchr::memmem::find(rest, b"Total size = ")?;
    let bytes = words(rest.get(at + 13..)?).next().and_then(integer)?;
    Some([objects as f64, bytes as f64])
}

/// Index, count, %, size, %, cumulative, %, kind.
fn kind(line: &[u8]) -> Option<([f64; 2], &[u8])> {
    let mut w = words(line);
    let mut numbers = [0; 7];
    for slot in &mut numbers {
        *slot = integer(w.next()?)?;
    }
    let name = w.rest().trim_ascii();
    let [_, count, _, size, ..] = numbers;
    (!name.is_empty()).then_some(([count as f64, size as f64], name))
}

/// Reads one partition.
fn read_guppy(lines: &mut Lines<'_>, import: &mut Import) {
    let group = census(import);
    if let Some(total) = lines.peek().and_then(partition) {
        let n = lines.number();
        put(import, group, "(all)", n, total, "guppy");
    }
    lines.advance();
    lines.each(import, |lines, n, import| {
        if let Some((numbers, name)) = kind(lines.line()) {
            put(import, group, &text(name), n, numbers, "guppy");
            return Took::Yes;
        }
        let line = lines.line().trim_ascii();
        if begins(line, &[b"Index ", b"<"]) || line == b"..." {
            return Took::Yes;
        }
        Took::unread_if(lines.soon(1, |line| kind(line).is_some()))
    });
}

/// `file.py:353: size=4855 KiB, count=39328, average=126 B`.
fn starts_tracemalloc(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|l| traced(l).is_some())
}

/// Where, count and bytes. A difference to another snapshot stands in brackets behind each, and is not kept.
fn traced(line: &[u8]) -> Option<(&[u8], [f64; 2])> {
    let at = find!(line, b": size=")?;
    let mut place = line.get(..at)?.trim_ascii();
    // A number of the rank before it: `#1: `.
    if let Some(rest) = place.strip_prefix(b"#")
        && let Some((_, after)) = leading(rest)
        && let Some(after) = after.strip_prefix(b": ")
    {
        place = after;
    }
    let rest = line.get(at + 7..)?;
    let mut w = words(rest);
    let (value, unit) = (leading(w.next()?)?.0, w.next()?);
    let unit = unit.strip_suffix(b",").unwrap_or(unit);
    let bytes = if unit == b"B" { value } else { value * with_suffix(&[b"1", unit].concat())? };
    let at = memchr::memmem::find(rest, b"count=")?;
    let count = leading(rest.get(at + 6..)?)?.0;
    (!place.is_empty()).then_some((place, [count, bytes]))
}

/// Reads lines of a snapshot.
fn read_tracemalloc(lines: &mut Lines<'_>, import: &mut Import) {
    let group = census(import);
    loop {
        let n = lines.number();
        let Some((place, numbers)) = lines.peek().and_then(traced) else { return };
        let place = text(place);
        put(import, group, &place, n, numbers, "tracemalloc");
        lines.advance();
        // The recipe of the manual prints the line of the source below.
        while lines.at(|l| l.starts_with(b"    ") && traced(l).is_none()) {
            lines.advance();
        }
    }
}
