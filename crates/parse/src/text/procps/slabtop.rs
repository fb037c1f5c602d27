//! `slabtop`, as `-o` prints it. Names are translated; the shape of the lines is not.
//!
//! ```text
//!  Active / Total Objects (% used)    : 885994 / 903014 (98.1%)
//!  Active / Total Slabs (% used)      : 27440 / 27440 (100.0%)
//!  Active / Total Caches (% used)     : 124 / 236 (52.5%)
//!  Active / Total Size (% used)       : 198527.72K / 201863.88K (98.3%)
//!  Minimum / Average / Maximum Object : 0.01K / 0.22K / 50.28K
//!
//!   OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME
//! 279240 273890  98%    0.10K   7160       39     28640K buffer_head
//! ```
//!
//! `USE` is not read: it follows from the counts, and overflows with large ones.

use crate::text::import::{Column, Form, Import};
use crate::text::number::{number, with_suffix, words};
use crate::text::{Context, Format, Lines};

use super::common::is_header;

/// See the module.
pub const FORMAT: Format = Format { name: "slabtop", what: "slab caches, as `-o` prints them", starts, read };

/// A row: name, OBJS, ACTIVE, bytes of an object, SLABS, OBJ/SLAB, bytes of the cache.
fn row(line: &[u8]) -> Option<(&[u8], [f64; 6])> {
    let mut list = words(line);
    let count = |word: &[u8]| number(word).filter(|v| *v >= 0.0 && !word.ends_with(b"%"));
    let sized = |word: &[u8]| {
        word.last().is_some_and(|b| matches!(b, b'K' | b'M' | b'G' | b'T')).then(|| with_suffix(word))?
    };
    let (objs, active) = (count(list.next()?)?, count(list.next()?)?);
    list.next().filter(|w| w.ends_with(b"%") && number(w).is_some())?;
    let size = sized(list.next()?)?;
    let (slabs, per_slab) = (count(list.next()?)?, count(list.next()?)?);
    let bytes = sized(list.next()?)?;
    let name = list.next()?;
    list.next().is_none().then_some((name, [objs, active, size, slabs, per_slab, bytes]))
}

/// `Active / Total Objects (% used) : 885994 / 903014 (98.1%)`: the two numbers.
fn total(line: &[u8]) -> Option<(f64, f64)> {
    let colon = memchr::memrchr(b':', line)?;
    let mut list = words(line.get(colon + 1..)?);
    let a = with_suffix(list.next()?)?;
    (list.next()? == b"/").then_some(())?;
    let b = with_suffix(list.next()?)?;
    let last = list.next()?;
    (last.starts_with(b"(") && last.ends_with(b"%)") && list.next().is_none()).then_some((a, b))
}

/// `Minimum / Average / Maximum Object : 0.01K / 0.22K / 50.28K`.
fn is_object_line(line: &[u8]) -> bool {
    let Some(colon) = memchr::memrchr(b':', line) else { return false };
    let list = words(line.get(colon + 1..).unwrap_or(&[]));
    list.clone().count() == 5 && list.filter(|w| w.ends_with(b"K")).count() == 3
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    if row(line).is_some() {
        return true;
    }
    if total(line).is_some() {
        return lines.ahead(1).is_some_and(|next| total(next).is_some());
    }
    lines.ahead(1).is_some_and(|next| row(next).is_some())
        && lines.peek().is_some_and(|line| words(line).count() >= 7 && is_header(line))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let at = import.now();
    let group = {
        let columns = [
            ("slab.num_objs", 1.0),
            ("slab.active_objs", 1.0),
            ("slab.objsize", 1.0),
            ("slab.num_slabs", 1.0),
            ("slab.objperslab", 1.0),
            ("slab.bytes", 1.0),
        ];
        import.group(columns.iter().filter_map(|(m, f)| Column::new(m, Form::Level, *f)).collect())
    };
    let mut totals = 0;
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        if let Some((name, values)) = row(line) {
            import.row(group, name, at, number).copy_from_slice(&values);
        } else if let Some((active, all)) = total(line) {
            totals += 1;
            for (metric, value) in totals_of(totals).iter().zip([active, all]).filter(|(m, _)| !m.is_empty())
            {
                import.value(metric, "", Form::Level, at, number, value);
            }
        } else if line.trim_ascii().is_empty() {
            if !(1..=2).any(|n| lines.ahead(n).is_some_and(is_ours)) {
                break;
            }
            totals = if lines.ahead(1).is_some_and(|l| total(l).is_some()) { 0 } else { totals };
        } else if !is_ours(line) {
            if !looks_damaged(line) {
                break;
            }
            import.unread(number, line);
        }
        lines.advance();
    }
}

/// The metrics of the n-th line of totals: active and all.
fn totals_of(n: u32) -> [&'static str; 2] {
    match n {
        1 => ["slabs.active_objs", "slabs.num_objs"],
        // Both are the same with SLUB; those in use have no metric.
        2 => ["", "slabs.num_slabs"],
        4 => ["slabs.active_size", "slabs.size"],
        _ => ["", ""],
    }
}

fn is_ours(line: &[u8]) -> bool {
    row(line).is_some()
        || total(line).is_some()
        || is_object_line(line)
        || words(line).any(|w| memchr::memmem::find(w, b"OBJ").is_some()) && is_header(line)
        || words(line).count() >= 7 && is_header(line) && memchr::memmem::find(line, b"/").is_some()
}

/// Numbers, a share and sizes, but not enough of them.
fn looks_damaged(line: &[u8]) -> bool {
    let mut list = words(line);
    list.next().is_some_and(|w| number(w).is_some())
        && list.next().is_some_and(|w| number(w).is_some())
        && words(line).any(|w| w.ends_with(b"%"))
}
