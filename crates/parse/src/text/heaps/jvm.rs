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
    for _ in 0..ROWS_MAX {
        let n = lines.number();
        let Some(line) = lines.peek() else { return };
        let mut w = words(line);
        let head = w.next().unwrap_or_default();
        let numbers = [w.next().and_then(integer), w.next().and_then(integer)];
        if let [Some(count), Some(bytes)] = numbers {
            let numbers = [count as f64, bytes as f64];
            if head == b"Total" {
                put(import, group, "(all)", n, numbers, "jmap");
                lines.advance();
                return;
            }
            let rank = head.strip_suffix(b":").and_then(integer);
            // The module behind the class says nothing about the kind.
            let name = text(words(w.rest()).next().unwrap_or_default());
            if rank.is_some() && !name.is_empty() {
                put(import, group, &name, n, numbers, "jmap");
                lines.advance();
                continue;
            }
        }
        let line = line.trim_ascii();
        if !line.starts_with(b"---") && line != b"..." {
            let more = lines.soon(1, |l| {
                words(l)
                    .next()
                    .is_some_and(|w| w == b"Total" || w.strip_suffix(b":").and_then(integer).is_some())
            });
            if !more {
                return;
            }
            if let Some(line) = lines.peek() {
                import.unread(n, line);
            }
        }
        lines.advance();
    }
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
    let when = import.now();
    let columns = ["allocator.used_bytes", "allocator.capacity_bytes"].into_iter();
    let group = import.group(columns.filter_map(|m| Column::new(m, Form::Level, 1.0)).collect());
    loop {
        let n = lines.number();
        let Some(line) = lines.peek() else { return };
        if let Some((name, total, used)) = space(line) {
            let row = format!("java {}", text(name));
            let numbers = [used, total.unwrap_or(f64::NAN)];
            import.put(group, row.as_bytes(), when, n, &numbers);
        } else {
            let line = line.trim_ascii();
            let inside = line.starts_with(b"region size")
                || [
                    &b"eden space"[..],
                    b"from space",
                    b"to   space",
                    b"to space",
                    b"the space",
                    b"object space",
                ]
                .iter()
                .any(|s| line.starts_with(s));
            if !inside {
                return;
            }
        }
        lines.advance();
    }
}

/// A column of `jstat`: row, metric, form and factor.
fn column(name: &[u8]) -> Option<(&'static str, &'static str, Form, f64)> {
    let used = |row, factor| Some((row, "allocator.used_bytes", Form::Level, factor));
    let size = |row| Some((row, "allocator.capacity_bytes", Form::Level, 1024.0));
    let share = |row| Some((row, "allocator.used_share", Form::Level, 0.01));
    let count = |row| Some((row, "allocator.collections", Form::Total, 1.0));
    let time = |row| Some((row, "allocator.collection_time", Form::Total, 1.0));
    match name {
        b"S0" => share("java survivor 0"),
        b"S1" => share("java survivor 1"),
        b"E" => share("java eden"),
        b"O" => share("java old"),
        b"M" => share("java metaspace"),
        b"CCS" => share("java class space"),
        b"S0C" => size("java survivor 0"),
        b"S1C" => size("java survivor 1"),
        b"EC" => size("java eden"),
        b"OC" => size("java old"),
        b"MC" => size("java metaspace"),
        b"CCSC" => size("java class space"),
        b"S0U" => used("java survivor 0", 1024.0),
        b"S1U" => used("java survivor 1", 1024.0),
        b"EU" => used("java eden", 1024.0),
        b"OU" => used("java old", 1024.0),
        b"MU" => used("java metaspace", 1024.0),
        b"CCSU" => used("java class space", 1024.0),
        b"YGC" => count("java young"),
        b"FGC" => count("java full"),
        b"CGC" => count("java concurrent"),
        b"YGCT" => time("java young"),
        b"FGCT" => time("java full"),
        b"CGCT" => time("java concurrent"),
        _ => None,
    }
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

type Cells = Vec<Option<(&'static str, GroupId)>>;

/// Reads a table; headings repeat with `-h`.
fn read_jstat(lines: &mut Lines<'_>, import: &mut Import) {
    // The first row's place in the sequence, of a table without times.
    let interval = jstat_interval(&import.context);
    let mut cells: Cells = Vec::new();
    let mut stamped = false;
    let mut step = 0;
    loop {
        let n = lines.number();
        let Some(line) = lines.peek() else { return };
        if is_jstat(line) {
            stamped = words(line).next() == Some(b"Timestamp");
            let mut next = Cells::new();
            for name in words(line) {
                next.push(column(name).and_then(|(row, metric, form, factor)| {
                    let column = Column::new(metric, form, factor)?;
                    Some((row, import.group(vec![column])))
                }));
            }
            cells = next;
        } else if words(line).count() == cells.len()
            && words(line).all(|w| number(w).is_some() || matches!(w, b"-" | b"\xe2\x80\x90"))
        {
            let since_start = words(line).next().and_then(number).filter(|_| stamped);
            let when = match since_start {
                Some(s) => in_sequence(import, s),
                None => in_sequence(import, f64::from(step) * interval),
            };
            step += 1;
            for (cell, word) in cells.iter().zip(words(line)) {
                if let (Some((row, group)), Some(value)) = (cell, number(word))
                    && let Some(slot) = import.row(*group, row.as_bytes(), when, n).first_mut()
                {
                    *slot = value;
                }
            }
        } else {
            return;
        }
        lines.advance();
    }
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
