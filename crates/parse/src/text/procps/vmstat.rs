//! `vmstat`, with any of `-w -t -a -n -y -S`.
//!
//! ```text
//! procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu----- -----timestamp-----
//!  r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st                 UTC
//!  2  0      0 9552352 217752 19212732    0    0     0    25    6    3 38  4 58  0  0 2026-11-21 13:30:08
//! ```
//!
//! The names are translated with the locale, their order is the same everywhere. `us` contains the nice time and `sy`
//! that of interrupts.

use crate::text::prelude::*;

use super::common::{PAGE, is_header, when};

/// See the module.
pub const FORMAT: Format =
    Format::new("vmstat", "run queue, memory, swapping, blocks, CPU time: `-w -t -a -n -y -S`", starts, read);

/// The order of the columns wherever names are not English.
const ORDER: [&[u8]; 18] = [
    b"r", b"b", b"swpd", b"free", b"buff", b"cache", b"si", b"so", b"bi", b"bo", b"in", b"cs", b"us", b"sy",
    b"id", b"wa", b"st", b"gu",
];
/// The most columns of a table, the time not counted.
const COLUMNS_MAX: usize = 20;
/// Columns of AIX and the BSDs, which have others in their places.
const FOREIGN: &[&[u8]] = list!("avm fre");
/// Headers are repeated after a screen of rows. One that comes sooner belongs to a new run.
const SCREEN_MIN: u32 = 10;

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    header_lines(lines).is_some()
}

/// How many lines the header at the cursor has.
fn header_lines(lines: &mut Lines<'_>) -> Option<usize> {
    let line = lines.peek()?;
    if is_english(line) {
        return Some(1);
    }
    if find!(line, b"---").is_none() || words(line).count() < 5 || !is_header(line) {
        return None;
    }
    let names = lines.ahead(1)?;
    if is_english(names) {
        return Some(2);
    }
    let count = words(names).count();
    if words(names).any(|name| FOREIGN.contains(&name))
        || !(16..=COLUMNS_MAX).contains(&count)
        || !is_header(names)
    {
        return None;
    }
    let row = lines.ahead(2)?;
    (words(row).take_while(|w| number(w).is_some()).count() + 1 >= count).then_some(2)
}

fn is_english(line: &[u8]) -> bool {
    let mut w = words(line);
    w.next() == Some(b"r")
        && w.next() == Some(b"b")
        && w.clone().count() >= 13
        && w.any(|w| w == b"si")
        && w.any(|w| w == b"cs")
        && !words(line).any(|name| FOREIGN.contains(&name))
}

struct Table {
    levels: GroupId,
    rates: GroupId,
    /// Of each printed column whether it is a level, and its place among those; `None` is passed over.
    slots: Vec<Option<(bool, usize)>>,
}

/// One row as it is printed.
struct VmstatRow {
    values: [f64; COLUMNS_MAX],
    at: Option<When>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let base = import.context.step;
    let skips_first = !(import.context.ran("vmstat", Some('y'))
        || import.context.command.iter().any(|w| w == "--no-first"));
    let mut table: Option<Table> = None;
    let (mut n, mut since_header, mut first) = (0_u32, SCREEN_MIN, false);
    // Where rows have times, one without is damaged.
    let mut timed = false;
    loop {
        if let Some(header) = header_lines(lines) {
            if header == 2 {
                lines.advance();
            }
            let Some(names) = lines.peek() else { break };
            let list: Vec<Box<[u8]>> = words(names).take(COLUMNS_MAX).map(Box::from).collect();
            lines.advance();
            first = skips_first && (table.is_none() || since_header < SCREEN_MIN);
            since_header = 0;
            table = Some(columns(&list, unit(&import.context), import));
            continue;
        }
        let (Some(table), number) = (&table, lines.number()) else { break };
        let Some(line) = lines.peek() else { break };
        let Some(row) = row(line, table.slots.len()).filter(|r| !timed || r.at.is_some()) else {
            if !line.trim_ascii_start().first().is_some_and(u8::is_ascii_digit) || words(line).count() < 8 {
                break;
            }
            import.unread(number, line);
            lines.advance();
            continue;
        };
        lines.advance();
        timed = row.at.is_some();
        if first {
            first = false;
            let alone = lines.peek().is_none_or(|next| self::row(next, table.slots.len()).is_none());
            let at = row.at.unwrap_or_else(|| when(import, base, n));
            since_boot(import, table, &row, alone.then_some(number), at);
        } else {
            let at = row.at.unwrap_or_else(|| when(import, base, n));
            put(import, table, &row, at, at, number);
        }
        n += 1;
        since_header += 1;
    }
    import.context.step = base.saturating_add(n);
}

/// The first row of a run: levels of the moment and averages since boot.
fn since_boot(import: &mut Import, table: &Table, row: &VmstatRow, alone: Option<u32>, at: When) {
    let Some(number) = alone else {
        import.note("vmstat: the first row, the average since boot, is left out");
        // The interval of the next one begins here.
        import.sampled(table.rates, at);
        return;
    };
    import.note("vmstat: the only row; its rates are averages since boot");
    let at = row.at.unwrap_or_else(|| import.now());
    put(import, table, row, at, When::Fact, number);
}

fn put(import: &mut Import, table: &Table, row: &VmstatRow, level_at: When, rate_at: When, number: u32) {
    for (group, of_levels, at) in [(table.levels, true, level_at), (table.rates, false, rate_at)] {
        let out = import.row(group, b"", at, number);
        for (slot, value) in table.slots.iter().zip(&row.values) {
            let slot = slot.filter(|(is_level, _)| *is_level == of_levels);
            if let Some(cell) = slot.and_then(|(_, i)| out.get_mut(i)) {
                *cell = *value;
            }
        }
    }
}

/// A row of that many columns; `None` where one is missing or no number.
fn row(line: &[u8], columns: usize) -> Option<VmstatRow> {
    let mut values = [f64::NAN; COLUMNS_MAX];
    let mut list = words(line);
    let mut rest = list.clone();
    for slot in values.get_mut(..columns)? {
        let value = list.next().and_then(number);
        match value.filter(|v| *v >= 0.0) {
            Some(value) => *slot = value,
            // The name of the time zone stands in the header, where it looks like a column.
            None => break,
        }
        rest = list.clone();
    }
    let read = values.iter().take_while(|v| !v.is_nan()).count();
    if read + 1 < columns || read < 14 {
        return None;
    }
    let at = time(rest.rest());
    (read == columns || at.is_some()).then_some(VmstatRow { values, at })
}

/// `2026-11-21 13:30:08`, with a time zone behind it in old versions.
fn time(text: &[u8]) -> Option<When> {
    let mut list = words(text);
    let (day, clock) = (list.next()?, list.next()?);
    let stamp = [day, clock].join(&b' ');
    clock::iso(&stamp).map(When::At)
}

/// What one unit of memory is: KiB unless `-S` says otherwise.
pub(super) fn unit(context: &Context) -> f64 {
    let mut list = context.command.iter().map(String::as_str);
    if list.next() != Some("vmstat") {
        return 1024.0;
    }
    let mut found = None;
    while let Some(word) = list.next() {
        let value = if let Some(value) = word.strip_prefix("--unit=") {
            Some(value)
        } else if word == "--unit"
            || (word.starts_with('-') && !word.starts_with("--") && word.ends_with('S'))
        {
            list.next()
        } else if word.starts_with('-') && !word.starts_with("--") {
            word.split_once('S').map(|(_, value)| value)
        } else {
            None
        };
        found = value.or(found);
    }
    match found {
        Some("k") => 1000.0,
        Some("m") => 1e6,
        Some("M") => 1_048_576.0,
        _ => 1024.0,
    }
}

/// The groups for a header.
fn columns(names: &[Box<[u8]>], unit: f64, import: &mut Import) -> Table {
    let is_known = |n: &&[u8]| ORDER.contains(n) || matches!(*n, b"inact" | b"active" | b"w");
    let english = names.iter().map(AsRef::as_ref).take_while(is_known).count() + 1 >= names.len();
    let active = names.get(4).is_some_and(|n| {
        ["ina", "nieakt", "비활", "неакт"].iter().any(|start| n.starts_with(start.as_bytes()))
    });
    let (mut levels, mut rates) = (Vec::new(), Vec::new());
    let mut slots: Vec<Option<(bool, usize)>> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let name: &[u8] = if english {
                name.as_ref()
            } else {
                match (i, active) {
                    (4, true) => b"inact",
                    (5, true) => b"active",
                    _ => ORDER.get(i).copied().unwrap_or(b""),
                }
            };
            let (metric, form, factor) = column(name, unit)?;
            let list = if form == Form::Level { &mut levels } else { &mut rates };
            list.push(Column::new(metric, form, factor)?);
            Some((form == Form::Level, list.len() - 1))
        })
        .collect();
    // The name of a time zone is no column, whatever it is.
    if slots.len() > ORDER.len() {
        slots.truncate(ORDER.len() + 1);
    }
    Table { levels: import.group(levels), rates: import.group(rates), slots }
}

fn column(name: &[u8], unit: f64) -> Option<(&'static str, Form, f64)> {
    use Form::{Level, Rate, Share};
    Some(match name {
        b"r" => ("sys.procs_running", Level, 1.0),
        b"b" => ("sys.procs_blocked", Level, 1.0),
        b"free" => ("mem.free", Level, unit),
        b"buff" => ("mem.buffers", Level, unit),
        b"cache" => ("mem.cached", Level, unit),
        b"inact" => ("mem.inactive", Level, unit),
        b"active" => ("mem.active", Level, unit),
        b"si" => ("vm.pswpin", Rate, unit / PAGE),
        b"so" => ("vm.pswpout", Rate, unit / PAGE),
        // Blocks of 1 KiB, whatever -S says.
        b"bi" => ("vm.pgpgin", Rate, 1024.0),
        b"bo" => ("vm.pgpgout", Rate, 1024.0),
        b"in" => ("sys.intr", Rate, 1.0),
        b"cs" => ("sys.ctxt", Rate, 1.0),
        b"us" => ("sys.cpu_user", Share, 0.01),
        b"sy" => ("sys.cpu_system", Share, 0.01),
        b"id" => ("sys.cpu_idle", Share, 0.01),
        b"wa" => ("sys.cpu_iowait", Share, 0.01),
        b"st" => ("sys.cpu_steal", Share, 0.01),
        b"gu" => ("sys.cpu_guest", Share, 0.01),
        _ => return None,
    })
}
