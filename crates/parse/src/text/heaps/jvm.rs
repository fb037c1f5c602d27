//! Heaps of the JVM: `jcmd PID GC.heap_info`, `jcmd PID GC.class_histogram`, `jmap -histo`, `jstat -gc`, `-gcutil`.
//!
//! ```text
//!  garbage-first heap   total 262144K, used 83447K [0x00000000f0000000, 0x0000000100000000)
//!  Metaspace       used 77K, committed 320K, reserved 1114112K
//!
//!  num     #instances         #bytes  class name (module)
//! -------------------------------------------------------
//!    1:          3024       27278528  [B (java.base@17.0.15)
//! Total         10609       27657840
//!
//!   S0     S1     E      O      M     CCS    YGC     YGCT     FGC    FGCT     CGC    CGCT       GCT
//!   0.00  51.69   8.05   4.22  35.10   2.98     33     0.037     0     0.000     -         -     0.037
//! ```

use crate::text::prelude::*;
use mitra_model::Era;

use super::python::{census, put};

/// `jmap -histo`.
pub const HISTOGRAM: Format = Format::new(
    "jmap -histo",
    "a Java heap by class, also from `jcmd PID GC.class_histogram`",
    starts_histogram,
    read_histogram,
);
/// `jcmd GC.heap_info`.
pub const HEAP: Format =
    Format::new("jcmd GC.heap_info", "the spaces of a Java heap", starts_heap, read_heap);
/// `jstat`.
pub const JSTAT: Format =
    Format::new("jstat", "spaces and collections of a Java heap: `-gc`, `-gcutil`", starts_jstat, read_jstat);

/// Classes of one histogram.
const ROWS_MAX: u32 = 1_000_000;

/// ` num     #instances         #bytes  class name`.
fn starts_histogram(lines: &mut Lines<'_>, _: &Context) -> bool {
    let heading = |l: &[u8]| {
        let mut w = words(l);
        w.next() == Some(b"num") && w.next() == Some(b"#instances") && w.next() == Some(b"#bytes")
    };
    lines.at(heading)
}

/// Reads a histogram.
fn read_histogram(lines: &mut Lines<'_>, import: &mut Import) {
    lines.advance();
    let group = census(import);
    let last = lines.number().saturating_add(ROWS_MAX);
    let is_rank = |word: &[u8]| word.strip_suffix(b":").and_then(integer).is_some();
    lines.each(import, |lines, n, import| {
        let line = lines.line();
        let mut w = words(line);
        let head = w.next().unwrap_or_default();
        let numbers = [w.next().and_then(integer), w.next().and_then(integer)];
        if let [Some(count), Some(bytes)] = numbers {
            // The module behind the class says nothing about the kind.
            let class = text(w.next().unwrap_or_default());
            let name = if head == b"Total" { "(all)" } else { class.as_str() };
            if head == b"Total" || is_rank(head) && !name.is_empty() {
                put(import, group, name, n, [count as f64, bytes as f64], "jmap");
                return if head == b"Total" || n >= last { Took::Last } else { Took::Yes };
            }
        }
        let line = line.trim_ascii();
        if line.starts_with(b"---") || line == b"..." {
            return Took::Yes;
        }
        let is_row = |line: &[u8]| words(line).next().is_some_and(|w| w == b"Total" || is_rank(w));
        Took::unread_if(lines.soon(1, is_row))
    });
}

/// A line of `GC.heap_info`: the space, its bytes in all where they are said, the bytes in use.
fn space(line: &[u8]) -> Option<(&[u8], Option<f64>, f64)> {
    let line = line.trim_ascii();
    let at = find!(line, b" total ").or_else(|| find!(line, b" used "))?;
    let name = line.get(..at)?.trim_ascii();
    let known = name.ends_with(b"heap")
        || name.ends_with(b"generation")
        || name.ends_with(b"Gen")
        || name == b"Metaspace"
        || name == b"class space"
        || name.ends_with(b"Heap");
    if !known {
        return None;
    }
    let kib = |key: &[u8]| {
        let at = memchr::memmem::find(line, key)?;
        let (value, rest) = leading(line.get(at + key.len()..)?)?;
        match rest.first() {
            Some(b'K') => Some(value * 1024.0),
            Some(b'M') => Some(value * 1024.0 * 1024.0),
            Some(b'G') => Some(value * 1024.0 * 1024.0 * 1024.0),
            _ => None,
        }
    };
    Some((name, kib(b" total ").or_else(|| kib(b" committed ")), kib(b" used ")?))
}

/// ` garbage-first heap   total 262144K, used 83447K [`.
fn starts_heap(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|l| space(l).is_some())
}

/// Reads the spaces of one heap.
fn read_heap(lines: &mut Lines<'_>, import: &mut Import) {
    let inside: &[&[u8]] =
        list!("region size|eden space|from space|to   space|to space|the space|object space", b'|');
    let when = import.now();
    let group = import.columns(&["allocator.used_bytes", "allocator.capacity_bytes"], Form::Level);
    lines.each(import, |lines, n, import| {
        let line = lines.line();
        if let Some((name, total, used)) = space(line) {
            let row = format!("java {}", text(name));
            import.put(group, row.as_bytes(), when, n, &[used, total.unwrap_or(f64::NAN)]);
        } else if !begins(line.trim_ascii(), inside) {
            return Took::No;
        }
        Took::Yes
    });
}

/// Columns of `jstat`, `_` for a blank in the name of the row `java …`: how full a space is, in percent.
const SHARES: Pairs = pairs!("S0 survivor_0  S1 survivor_1  E eden  O old  M metaspace  CCS class_space");
/// Its size, in KiB.
const SIZES: Pairs =
    pairs!("S0C survivor_0  S1C survivor_1  EC eden  OC old  MC metaspace  CCSC class_space");
/// What is used of it, in KiB.
const USED: Pairs = pairs!("S0U survivor_0  S1U survivor_1  EU eden  OU old  MU metaspace  CCSU class_space");
/// Collections, and their seconds.
const COUNTS: Pairs = pairs!("YGC young  FGC full  CGC concurrent");
const TIMES: Pairs = pairs!("YGCT young  FGCT full  CGCT concurrent");

/// A column of `jstat`: its row, and what it is.
fn column(name: &[u8]) -> Option<(String, Column)> {
    let tables = [
        (SHARES, "allocator.used_share", Form::Level, 0.01),
        (SIZES, "allocator.capacity_bytes", Form::Level, 1024.0),
        (USED, "allocator.used_bytes", Form::Level, 1024.0),
        (COUNTS, "allocator.collections", Form::Total, 1.0),
        (TIMES, "allocator.collection_time", Form::Total, 1.0),
    ];
    tables.into_iter().find_map(|(table, metric, form, factor)| {
        let row = format!("java {}", find_pair(table, name)?.replace('_', " "));
        Some((row, Column::new(metric, form, factor)?))
    })
}

/// The heading of `jstat -gc` or `-gcutil`.
fn starts_jstat(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(is_jstat)
}

fn is_jstat(line: &[u8]) -> bool {
    if find!(line, b"YGCT").is_none() {
        return false;
    }
    let names: Vec<&[u8]> = words(line).take(20).collect();
    let has = |name: &[u8]| names.contains(&name);
    has(b"YGC") && has(b"YGCT") && has(b"FGC") && has(b"GCT")
}

/// Reads a table; headings repeat with `-h`.
fn read_jstat(lines: &mut Lines<'_>, import: &mut Import) {
    // The first row's place in the sequence, of a table without times.
    let interval = jstat_interval(&import.context);
    let mut cells: Vec<Option<(String, GroupId)>> = Vec::new();
    let (mut stamped, mut step) = (false, 0);
    lines.each(import, |lines, n, import| {
        let line = lines.line();
        if is_jstat(line) {
            stamped = words(line).next() == Some(b"Timestamp");
            let mut cell = |name: &[u8]| column(name).map(|(row, column)| (row, import.group(vec![column])));
            cells = words(line).map(&mut cell).collect();
            return Took::Yes;
        }
        let is_cell = |w: &[u8]| number(w).is_some() || matches!(w, b"-" | b"\xe2\x80\x90");
        if words(line).count() != cells.len() || !words(line).all(is_cell) {
            return Took::No;
        }
        let since_start = words(line).next().and_then(number).filter(|_| stamped);
        let when = in_sequence(import, since_start.unwrap_or(f64::from(step) * interval));
        step += 1;
        for (cell, word) in cells.iter().zip(words(line)) {
            if let (Some((row, group)), Some(value)) = (cell, number(word)) {
                import.put(*group, row.as_bytes(), when, n, &[value]);
            }
        }
        Took::Yes
    });
}

/// A moment so many seconds after the beginning of the file's own sequence: the clock of a JVM begins with it.
pub(super) fn in_sequence(import: &Import, seconds: f64) -> When {
    let start = import.moment(When::Step(0));
    let offset = (seconds.clamp(0.0, 5_000_000.0) * SECOND as f64) as i64;
    let t = start.saturating_add(offset);
    if Era::of(t) == Era::Sequence { When::At(t) } else { When::Fact }
}

/// Seconds between the rows: `jstat -gc 4242 250` or `250ms` or `1s`.
fn jstat_interval(context: &Context) -> f64 {
    const USUAL: f64 = 1.0;
    if context.command.first().is_none_or(|c| c != "jstat") {
        return USUAL;
    }
    let operands = context.command.iter().skip(1).filter(|w| !w.starts_with('-'));
    let Some((value, unit)) = operands.clone().nth(1).and_then(|w| leading(w.as_bytes())) else {
        return USUAL;
    };
    match unit {
        b"s" => value,
        _ => value / 1000.0,
    }
}
