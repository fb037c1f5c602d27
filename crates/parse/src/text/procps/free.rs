//! `free`, with any unit, and with `-w -l -t -v -s -L`.
//!
//! ```text
//!               total        used        free      shared  buff/cache   available
//! Mem:          64414       18421       11218           5       34773       45407
//! Swap:             0           0           0
//! ```
//!
//! until version 3.3.9:
//!
//! ```text
//!              total       used       free     shared    buffers     cached
//! Mem:      16333384   16000000     333384          0     200000    9000000
//! -/+ buffers/cache:    6800000    9533384
//! Swap:      2097148          0    2097148
//! ```
//!
//! Names are translated; what the columns are follows from their number. The unit stands in the command or behind the
//! numbers. Where it does neither, sizes of the kernel are multiples of a page: bytes of 4096 and KiB of 4.

use crate::text::prelude::*;

use super::common::{is_header, when};

/// See the module.
pub const FORMAT: Format = Format::new("free", "memory and swap in any unit: `-w -l -t -v -s`", starts, read);
/// `free -L`: `SwapUse  0 CachUse  2293440  MemUse  611936 MemFree 22120976`.
pub const LINE: Format = Format::new("free -L", "memory on one line", is_short, short);

/// The most numbers of a row.
const CELLS_MAX: usize = 7;

/// A row: its name with the colon and the numbers behind it.
struct FreeRow<'a> {
    name: &'a [u8],
    cells: [Size; CELLS_MAX],
    count: usize,
}

/// A printed size.
#[derive(Clone, Copy, Default)]
struct Size {
    value: f64,
    /// What the suffix says that one is worth in bytes; nothing where there is none.
    suffix: Option<f64>,
}

fn size(word: &[u8], thousands: bool) -> Option<Size> {
    let (value, rest) = leading(word).filter(|(v, _)| *v >= 0.0)?;
    let binary = rest.len() > 1 && rest.ends_with(b"i");
    let base: f64 = if thousands && !binary { 1000.0 } else { 1024.0 };
    let power = match rest.strip_suffix(b"i").unwrap_or(rest) {
        [] => return Some(Size { value, suffix: None }),
        b"B" => 0,
        b"K" | b"k" => 1,
        b"M" => 2,
        b"G" => 3,
        b"T" => 4,
        b"P" => 5,
        _ => return None,
    };
    Some(Size { value, suffix: Some(base.powi(power)) })
}

/// The numbers stand behind the last word that is none; it ends with a colon.
fn row(line: &[u8], thousands: bool) -> Option<FreeRow<'_>> {
    let line = line.trim_ascii();
    let colon = memchr::memchr(b':', line)?;
    let (name, rest) = line.split_at_checked(colon)?;
    if name.is_empty() || name.first()?.is_ascii_digit() || words(name).count() > 2 {
        return None;
    }
    let mut out = FreeRow { name, cells: [Size::default(); CELLS_MAX], count: 0 };
    for word in words(rest.get(1..)?) {
        *out.cells.get_mut(out.count)? = size(word, thousands)?;
        out.count += 1;
    }
    (out.count >= 2).then_some(out)
}

fn is_head(line: &[u8]) -> bool {
    memchr::memchr3(b':', b'|', b'=', line).is_none()
        && memchr::memchr3(b',', b'(', b'%', line).is_none()
        && matches!(words(line).take(8).count(), 6 | 7)
        && is_header(line)
}

/// A header of six or seven names, then a row of as many sizes: the first the largest of them, as of a whole.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    if !is_head(line) {
        return false;
    }
    let names = words(line).count();
    let english = words(line).take(3).eq([&b"total"[..], b"used", b"free"]);
    let Some(mem) = lines.ahead(1).and_then(|l| row(l, false)) else { return false };
    let known = english || MEMORY.contains(&mem.name);
    let (total, parts) = (mem.cells.first(), mem.cells.get(1..3));
    let fits = match (total, parts) {
        (Some(total), Some(parts)) => parts.iter().all(|p| bytes(*p, 1.0) <= bytes(*total, 1.0) * 1.1),
        _ => false,
    };
    known && fits && mem.count == names
}

/// What the translations of procps-ng call the memory.
const MEMORY: &[&[u8]] =
    list!("Mem|Speicher|Mem.|Pamięć|Minne|메모리|მეხს|Пам|Память|内存|記憶體|Mém|Bộ nhớ", b'|');

fn bytes(size: Size, unit: f64) -> f64 {
    size.value * size.suffix.unwrap_or(unit)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let thousands = import.context.command.iter().any(|w| w == "--si");
    let base = import.context.step;
    if let Some(seconds) = interval(&import.context) {
        import.context.interval_s = Some(seconds);
    }
    let mut n = 0;
    loop {
        if lines.at(|l| l.trim_ascii().is_empty()) {
            if !lines.soon(1, is_head) {
                break;
            }
            lines.advance();
        }
        if !starts(lines, &import.context) {
            break;
        }
        let again = n > 0 || follows(lines);
        let at = if again { when(import, base, n) } else { import.now() };
        table(lines, import, at, thousands);
        n += 1;
    }
    import.context.step = base.saturating_add(n);
}

/// Whether another table comes after the one at the cursor.
fn follows(lines: &mut Lines<'_>) -> bool {
    (2..9).any(|n| {
        lines.ahead(n).is_some_and(is_head) && lines.ahead(n + 1).is_some_and(|l| row(l, false).is_some())
    })
}

/// What `-s` says.
fn interval(context: &Context) -> Option<f64> {
    let mut list = context.command.iter();
    if list.next().is_none_or(|p| p != "free") {
        return None;
    }
    while let Some(word) = list.next() {
        let value = if let Some(value) = word.strip_prefix("--seconds=") {
            value
        } else if word == "--seconds"
            || word.starts_with('-') && !word.starts_with("--") && word.ends_with('s')
        {
            list.next()?
        } else if let Some(value) = word.strip_prefix("-s") {
            value
        } else {
            continue;
        };
        return number(value.as_bytes()).filter(|s| *s > 0.0);
    }
    None
}

fn table(lines: &mut Lines<'_>, import: &mut Import, at: When, thousands: bool) {
    let Some(header) = lines.peek() else { return };
    let names: Vec<Box<[u8]>> = words(header).take(CELLS_MAX).map(Box::from).collect();
    lines.advance();
    // What the rows must share: the unit is that of the first.
    let mut unit = None;
    let (mut first, mut swap_seen) = (true, false);
    lines.each(import, |lines, number, import| {
        let Some(row) = row(lines.line(), thousands) else { return Took::No };
        if first {
            let old = !names.iter().any(|n| n.contains(&b'/')) && names.len() == 6;
            unit = unit_of(&import.context, &row, thousands);
            if unit.is_none() {
                import.note("free: the unit is neither in the command nor behind the numbers; left out");
            }
            memory(import, at, number, &row, unit, old);
            first = false;
        } else if row.count == 3 {
            match (row.name, unit) {
                (b"Comm", Some(unit)) => {
                    pair(import, at, number, &row, unit, [("mem.commit_limit", 0), ("mem.committed_as", 1)]);
                }
                (name, Some(unit)) if !swap_seen && !is_zone(name) => {
                    pair(import, at, number, &row, unit, [("mem.swap_total", 0), ("mem.swap_free", 2)]);
                    swap_seen = true;
                }
                _ => {}
            }
        } else if row.count != 2 {
            return Took::Unread;
        }
        Took::Yes
    });
}

/// `Low:`, `High:` and `Total:` in the languages of procps-ng.
fn is_zone(name: &[u8]) -> bool {
    const NAMES: &[&[u8]] = list!(
        "Low|High|Total|Niedrig|Hoch|Gesamt|Baja|Alta|Basse|Haute|Baixa|Niska|Wysoka|Razem|Lågt|Högt|Totalt|총  계|\
         상  위|하  위|მაღალი|დაბალი|ჯამი",
        b'|'
    );
    NAMES.contains(&name)
}

fn memory(import: &mut Import, at: When, line: u32, row: &FreeRow<'_>, unit: Option<f64>, old: bool) {
    const NEW: [&str; 6] =
        ["mem.total", "mem.used", "mem.free", "mem.shmem", "mem.buff_cache", "mem.available"];
    const WIDE: [&str; 7] =
        ["mem.total", "mem.used", "mem.free", "mem.shmem", "mem.buffers", "mem.cached", "mem.available"];
    let list: &[&str] = if old {
        &WIDE[..6]
    } else if row.count == 7 {
        &WIDE
    } else {
        &NEW
    };
    for (metric, cell) in list.iter().zip(row.cells.iter().take(row.count)) {
        // Old versions printed shared memory as a constant 0.
        if let Some(unit) = unit.filter(|_| !(old && *metric == "mem.shmem" && cell.value == 0.0)) {
            import.value(metric, "", Form::Level, at, line, bytes(*cell, unit));
        }
    }
}

/// Two sizes of a row, by their positions.
fn pair(import: &mut Import, at: When, line: u32, row: &FreeRow<'_>, unit: f64, cells: [(&str, usize); 2]) {
    for (metric, i) in cells {
        if let Some(size) = row.cells.get(i) {
            import.value(metric, "", Form::Level, at, line, bytes(*size, unit));
        }
    }
}

/// What one is worth in bytes.
fn unit_of(context: &Context, row: &FreeRow<'_>, thousands: bool) -> Option<f64> {
    let cells = row.cells.get(..row.count).unwrap_or(&[]);
    if cells.iter().any(|c| c.suffix.is_some()) {
        return Some(1.0);
    }
    if context.command.first().is_some_and(|p| p == "free") {
        return Some(command_unit(&context.command, thousands));
    }
    let all_of = |page: f64| cells.iter().all(|c| c.value % page == 0.0);
    let total = cells.first().map_or(0.0, |c| c.value);
    if total < 256.0 {
        // GiB and MiB look the same.
        None
    } else if all_of(4096.0) && total >= 1e8 {
        Some(1.0)
    } else if all_of(4.0) {
        Some(1024.0)
    } else {
        // Of a machine of less than 1 TiB that is not in KiB.
        (total < 1_048_576.0).then_some(1_048_576.0)
    }
}

fn command_unit(command: &[String], thousands: bool) -> f64 {
    let base: f64 = if thousands { 1000.0 } else { 1024.0 };
    let mut unit = base;
    for word in command.iter().skip(1) {
        unit = match word.as_str() {
            "--bytes" => 1.0,
            "--kilo" => 1e3,
            "--mega" => 1e6,
            "--giga" => 1e9,
            "--tera" => 1e12,
            "--kibi" => 1024.0,
            "--mebi" => 1024_f64.powi(2),
            "--gibi" => 1024_f64.powi(3),
            "--tebi" => 1024_f64.powi(4),
            flags if flags.starts_with('-') && !flags.starts_with("--") => {
                flags.bytes().skip(1).fold(unit, |unit, flag| match flag {
                    b'b' => 1.0,
                    b'k' => base,
                    b'm' => base.powi(2),
                    b'g' => base.powi(3),
                    _ => unit,
                })
            }
            _ => unit,
        };
    }
    unit
}

fn is_short(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| pairs(line).is_some())
}

/// The numbers of `SwapUse`, `CachUse`, `MemUse`, `MemFree`.
fn pairs(line: &[u8]) -> Option<[Size; 4]> {
    let mut out = [Size::default(); 4];
    let mut list = words(line);
    for (slot, name) in out.iter_mut().zip([&b"SwapUse"[..], b"CachUse", b"MemUse", b"MemFree"]) {
        if list.next()? != name {
            return None;
        }
        *slot = size(list.next()?, false)?;
    }
    list.next().is_none().then_some(out)
}

fn short(lines: &mut Lines<'_>, import: &mut Import) {
    if let Some(seconds) = interval(&import.context) {
        import.context.interval_s = Some(seconds);
    }
    let unit =
        if import.context.ran("free", None) { command_unit(&import.context.command, false) } else { 1024.0 };
    let base = import.context.step;
    let mut n = 0;
    while let Some(list) = lines.peek().and_then(pairs) {
        let again = n > 0 || lines.soon(1, |l| pairs(l).is_some());
        let at = if again { when(import, base, n) } else { import.now() };
        let [_, cache, used, free] = list;
        let line = lines.number();
        import.value("mem.buff_cache", "", Form::Level, at, line, bytes(cache, unit));
        import.value("mem.used", "", Form::Level, at, line, bytes(used, unit));
        import.value("mem.free", "", Form::Level, at, line, bytes(free, unit));
        lines.advance();
        n += 1;
    }
    import.context.step = base.saturating_add(n);
}
