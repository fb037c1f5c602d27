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

use super::common::is_header;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("slabtop", "slab caches, as `-o` prints them", starts, read);

/// The columns of a row, without the share.
const COLUMNS: [&str; 6] =
    ["slab.num_objs", "slab.active_objs", "slab.objsize", "slab.num_slabs", "slab.objperslab", "slab.bytes"];
/// The metrics of the lines of totals: active and all. Slabs in use are all slabs with SLUB and have no metric.
const TOTALS: [[&str; 2]; 4] = [
    ["slabs.active_objs", "slabs.num_objs"],
    ["", "slabs.num_slabs"],
    ["", ""],
    ["slabs.active_size", "slabs.size"],
];

/// The name of a row, and its numbers as [`COLUMNS`].
fn row(line: &[u8]) -> Option<(&[u8], [f64; COLUMNS.len()])> {
    let mut list = words(line);
    let count = |word: &[u8]| number(word).filter(|v| *v >= 0.0 && !word.ends_with(b"%"));
    let sized = |word: &[u8]| with_suffix(word).filter(|_| matches!(word, [.., b'K' | b'M' | b'G' | b'T']));
    let (objs, active) = (count(list.next()?)?, count(list.next()?)?);
    list.next().filter(|w| w.ends_with(b"%") && number(w).is_some())?;
    let size = sized(list.next()?)?;
    let (slabs, per_slab) = (count(list.next()?)?, count(list.next()?)?);
    let bytes = sized(list.next()?)?;
    let name = list.next()?;
    list.next().is_none().then_some((name, [objs, active, size, slabs, per_slab, bytes]))
}

/// `Active / Total Objects (% used) : 885994 / 903014 (98.1%)`: the two numbers.
fn total(line: &[u8]) -> Option<[f64; 2]> {
    let colon = memchr::memrchr(b':', line)?;
    let mut list = words(line.get(colon + 1..)?);
    let active = with_suffix(list.next()?)?;
    (list.next()? == b"/").then_some(())?;
    let all = with_suffix(list.next()?)?;
    let last = list.next()?;
    (last.starts_with(b"(") && last.ends_with(b"%)") && list.next().is_none()).then_some([active, all])
}

/// `Minimum / Average / Maximum Object : 0.01K / 0.22K / 50.28K`.
fn is_object_line(line: &[u8]) -> bool {
    let Some(colon) = memchr::memrchr(b':', line) else { return false };
    let list = words(line.get(colon + 1..).unwrap_or(&[]));
    list.clone().count() == 5 && list.filter(|w| w.ends_with(b"K")).count() == 3
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    if lines.at(|line| total(line).is_some()) {
        return lines.soon(1, |next| total(next).is_some());
    }
    lines.at(|line| row(line).is_some())
        || lines.soon(1, |next| row(next).is_some())
            && lines.at(|line| words(line).count() >= 7 && is_header(line))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let at = import.now();
    let group = import.columns(&COLUMNS, Form::Level);
    let mut totals = TOTALS.iter();
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if let Some((name, values)) = row(line) {
            import.put(group, name, at, number, &values);
        } else if let Some(values) = total(line) {
            for (metric, value) in totals.next().into_iter().flatten().zip(values) {
                if !metric.is_empty() {
                    import.value(metric, "", Form::Level, at, number, value);
                }
            }
        } else if line.trim_ascii().is_empty() {
            if !lines.soon(2, is_ours) {
                return Took::No;
            }
            if lines.soon(1, |next| total(next).is_some()) {
                totals = TOTALS.iter();
            }
        } else if !is_ours(line) {
            return Took::unread_if(looks_damaged(line));
        }
        Took::Yes
    });
}

fn is_ours(line: &[u8]) -> bool {
    row(line).is_some()
        || total(line).is_some()
        || is_object_line(line)
        || is_header(line) && (has(line, b"OBJ") || words(line).count() >= 7 && line.contains(&b'/'))
}

/// Numbers, a share and sizes, but not enough of them.
fn looks_damaged(line: &[u8]) -> bool {
    let mut list = words(line);
    list.next().and_then(number).is_some()
        && list.next().and_then(number).is_some()
        && words(line).any(|w| w.ends_with(b"%"))
}
