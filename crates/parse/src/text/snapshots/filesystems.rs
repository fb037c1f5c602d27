//! How full filesystems are and where they are mounted: `df`, `mount`, `/proc/mounts`, and the disks of `lsblk`.
//!
//! ```text
//! Filesystem     1K-blocks     Used Available Use% Mounted on
//! /dev/vda       264212084 22592216  72909048  24% /
//! ```
//! ```text
//! /dev/vda on / type ext4 (rw,relatime,discard)
//! ```
//! ```text
//! NAME   SIZE ROTA SCHED       MOUNTPOINT
//! vda    256G    1 mq-deadline /
//! ```
//!
//! The headings of `df` follow the locale, so its columns are known by their order: size, used, available, share, mount
//! point. Of the heading counts only the unit, or that it is about inodes.

use mitra_model::lookup;

use super::sink::Sink;
use crate::text::prelude::*;

/// `df`.
pub const DF: Format =
    Format::new("df", "how full filesystems are, in any unit; with `-T` and `-i`", df_starts, df);
/// `mount`.
pub const MOUNT: Format =
    Format::new("mount", "what is mounted where, also as `/proc/mounts`", mount_starts, mount);
/// `lsblk`.
pub const LSBLK: Format = Format::new("lsblk", "disks: rotating or not, scheduler", lsblk_starts, lsblk);

/// A row of `df`: what is mounted, its type where shown, size, used, available, mount point.
struct DfRow<'a> {
    device: &'a [u8],
    kind: Option<&'a [u8]>,
    numbers: [&'a [u8]; 3],
    point: &'a [u8],
}

/// A number as `df` prints it, or the dash of what has none.
fn is_amount(word: &[u8]) -> bool {
    word == b"-" || with_suffix(word).is_some()
}

/// The row after a name of a device that may stand on the line before.
fn row<'a>(line: &'a [u8], before: Option<&'a [u8]>) -> Option<DfRow<'a>> {
    let mut list = words(line);
    let device = match before {
        Some(device) => device,
        None => list.next()?,
    };
    let first = list.next()?;
    let (kind, size) = if is_amount(first) { (None, first) } else { (Some(first), list.next()?) };
    let numbers = [size, list.next()?, list.next()?];
    let share = list.next()?;
    let is_share = share == b"-" || share.strip_suffix(b"%").and_then(integer).is_some();
    let point = list.rest();
    (is_share && numbers.iter().all(|n| is_amount(n)) && point.starts_with(b"/")).then_some(DfRow {
        device,
        kind,
        numbers,
        point,
    })
}

/// What the numbers of a table are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Amounts {
    /// Blocks of so many bytes.
    Blocks(f64),
    /// With suffixes.
    Human(f64),
    Inodes,
}

impl Amounts {
    /// The number of a cell, in bytes or inodes.
    fn read(self, word: &[u8]) -> Option<f64> {
        match self {
            Amounts::Inodes => with_suffix(word),
            Amounts::Blocks(bytes) => Some(leading(word).filter(|(_, rest)| rest.is_empty())?.0 * bytes),
            Amounts::Human(base) => {
                let (value, rest) = leading(word)?;
                let power =
                    b"KMGTPE".iter().position(|u| rest.first().map(u8::to_ascii_uppercase) == Some(*u));
                Some(value * power.map_or(1.0, |p| base.powi(i32::try_from(p).unwrap_or(0) + 1)))
            }
        }
    }
}

/// The heading of `df`: its amounts.
fn heading(line: &[u8], is_si: bool) -> Option<Amounts> {
    if !(line.contains(&b'%') || is_posix(line)) || line.contains(&b'/') {
        return None;
    }
    let said = text(line).to_lowercase();
    if said.contains("inod")
        || said.contains("in\u{153}ud")
        || said.contains("inoeud")
        || said.contains("i-nod")
    {
        return Some(Amounts::Inodes);
    }
    let block = said.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
    match block {
        Some(block) => block_size(block.as_bytes()),
        None => Some(Amounts::Human(if is_si { 1000.0 } else { 1024.0 })),
    }
}

/// The unit of `1K-blocks` or `1024-blocks`.
fn block_size(block: &[u8]) -> Option<Amounts> {
    let block = text(block).to_lowercase();
    let size = block.split('-').next().unwrap_or(&block);
    let (number, unit) = leading(size.as_bytes())?;
    // `1K` and `1M` are powers of 1024, `1kB` and `1MB` of 1000.
    let base: f64 =
        if unit.len() > 1 && unit.ends_with(b"b") && !unit.ends_with(b"ib") { 1000.0 } else { 1024.0 };
    let power = match unit.first() {
        None | Some(b'b') => 0,
        Some(b'k') => 1,
        Some(b'm') => 2,
        Some(b'g') => 3,
        Some(b't') => 4,
        Some(_) => return None,
    };
    Some(Amounts::Blocks(number * base.powi(power)))
}

/// The heading of `df -P`, which has no `%`: `Filesystem 1024-blocks Used Available Capacity Mounted on`.
fn is_posix(line: &[u8]) -> bool {
    let is_block = |word: &[u8]| {
        let digits = word.iter().take_while(|b| b.is_ascii_digit()).count();
        digits > 0 && word.get(digits) == Some(&b'-') && word.len() > digits + 3
    };
    words(line).skip(1).take(3).any(is_block) && words(line).count() >= 6
}

/// What a column of `df --output` holds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Out {
    Device,
    Kind,
    Point,
    Number(&'static str),
    Skip,
}

/// The columns of `df --output`, and what their amounts are; `None` where they are those of `df` alone.
fn output_columns(line: &[u8], is_si: bool) -> Option<(Vec<Out>, Amounts)> {
    const NUMBERS: Pairs =
        pairs!("Inodes fs.inodes  IFree fs.inodes_free  Size fs.total_bytes  Avail fs.avail_bytes");
    let mut amounts = Amounts::Human(if is_si { 1000.0 } else { 1024.0 });
    let mut out = Vec::new();
    let mut list = words(line);
    while let Some(word) = list.next() {
        out.push(match word {
            b"Filesystem" => Out::Device,
            b"Type" => Out::Kind,
            b"Mounted" => {
                list.next().filter(|on| *on == b"on")?;
                Out::Point
            }
            b"IUsed" | b"IUse%" | b"Used" | b"Use%" | b"File" => Out::Skip,
            word if find_pair(NUMBERS, word).is_some() => Out::Number(find_pair(NUMBERS, word)?),
            word if word.ends_with(b"-blocks") => {
                amounts = block_size(word)?;
                Out::Number("fs.total_bytes")
            }
            _ => return None,
        });
    }
    let numbers = out.iter().filter(|o| matches!(o, Out::Number(_))).count();
    (numbers > 0 && out.contains(&Out::Point)).then_some((out, amounts))
}

/// A row of `df --output`: nothing where it does not fit the columns.
fn output_row<'a>(line: &'a [u8], columns: &[Out]) -> Option<Vec<&'a [u8]>> {
    let mut list = words(line);
    let mut cells = Vec::new();
    for (i, column) in columns.iter().enumerate() {
        // The last column may hold blanks.
        let is_last = i + 1 == columns.len();
        let cell = if is_last { list.rest().trim_ascii_end() } else { list.next()? };
        let fits = match column {
            Out::Point => cell.starts_with(b"/"),
            Out::Number(_) => is_amount(cell),
            Out::Device | Out::Kind | Out::Skip => !cell.is_empty(),
        };
        if !fits || (is_last && *column != Out::Point && words(cell).count() != 1) {
            return None;
        }
        cells.push(cell);
    }
    Some(cells)
}

fn output_starts(lines: &mut Lines<'_>) -> bool {
    let Some((columns, _)) = lines.peek().and_then(|line| output_columns(line, false)) else { return false };
    lines.soon(1, |line| output_row(line, &columns).is_some())
}

fn output(lines: &mut Lines<'_>, import: &mut Import, is_si: bool) {
    let Some((columns, amounts)) = lines.peek().and_then(|line| output_columns(line, is_si)) else { return };
    let (mut sink, when) = (Sink::default(), import.now());
    lines.advance();
    lines.each(import, |lines, at, import| {
        let Some(cells) = output_row(lines.line(), &columns) else { return Took::No };
        let cell = |wanted: Out| columns.iter().position(|c| *c == wanted).and_then(|i| cells.get(i));
        let Some(point) = cell(Out::Point) else { return Took::No };
        for (column, word) in columns.iter().zip(&cells) {
            let Out::Number(name) = column else { continue };
            let of = if name.starts_with("fs.inodes") { Amounts::Inodes } else { amounts };
            if let (Some(metric), Some(value)) = (lookup(name), of.read(word)) {
                sink.put_as(import, metric, Form::Level, 1.0, point, when, at, value);
            }
        }
        for (column, name) in [(Out::Device, "fs.device"), (Out::Kind, "fs.type")] {
            if let Some(shown) = cell(column).filter(|c| **c != b"-") {
                import.text(name, &text(point), when, &text(shown));
            }
        }
        Took::Yes
    });
}

/// What the row below a heading says; a long name of a device has a line of its own.
fn row_ahead(lines: &mut Lines<'_>, n: usize) -> bool {
    if lines.ahead(n).is_some_and(|line| row(line, None).is_some()) {
        return true;
    }
    let is_name = lines.ahead(n).is_some_and(|line| words(line).count() == 1);
    is_name
        && lines.ahead(n + 1).is_some_and(|line| line.starts_with(b" ") && row(line, Some(b"x")).is_some())
}

fn df_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    (lines.at(|line| heading(line, false).is_some()) && row_ahead(lines, 1)) || output_starts(lines)
}

fn df(lines: &mut Lines<'_>, import: &mut Import) {
    let is_si = import.context.ran("df", Some('H')) || import.context.command.iter().any(|w| w == "--si");
    if !row_ahead(lines, 1) {
        return output(lines, import, is_si);
    }
    let Some(amounts) = lines.peek().and_then(|line| heading(line, is_si)) else { return };
    let mut sink = Sink::default();
    lines.advance();
    loop {
        let at = lines.number();
        let Some(line) = lines.peek() else { break };
        if let Some(row) = row(line, None) {
            df_row(&row, amounts, at, &mut sink, import);
        } else if words(line).count() == 1 && row_ahead(lines, 0) {
            let device = lines.peek().unwrap_or_default().trim_ascii().to_vec();
            lines.advance();
            if let Some(row) = lines.peek().and_then(|line| row(line, Some(&device))) {
                df_row(&row, amounts, at + 1, &mut sink, import);
            }
        } else {
            break;
        }
        lines.advance();
    }
}

fn df_row(row: &DfRow<'_>, amounts: Amounts, at: u32, sink: &mut Sink, import: &mut Import) {
    let [size, used, available] = row.numbers.map(|word| amounts.read(word));
    let free = size.zip(used).map(|(size, used)| size - used).filter(|free| *free >= 0.0);
    let list = match amounts {
        Amounts::Inodes => [("fs.inodes", size), ("fs.inodes_free", available), ("", None)],
        // Rounded numbers do not give the difference.
        Amounts::Human(_) => [("fs.total_bytes", size), ("fs.avail_bytes", available), ("", None)],
        Amounts::Blocks(_) => {
            [("fs.total_bytes", size), ("fs.avail_bytes", available), ("fs.free_bytes", free)]
        }
    };
    let when = import.now();
    for (metric, value) in list {
        if let (Some(metric), Some(value)) = (lookup(metric), value) {
            sink.put_as(import, metric, Form::Level, 1.0, row.point, when, at, value);
        }
    }
    let point = text(row.point);
    import.text("fs.device", &point, when, &text(row.device));
    if let Some(kind) = row.kind {
        import.text("fs.type", &point, when, &text(kind));
    }
}

/// Device, mount point and type of a line of `mount` or of `/proc/mounts`.
fn mounted(line: &[u8]) -> Option<(String, String, String)> {
    let line = std::str::from_utf8(line).ok()?.trim();
    if let Some((device, rest)) = line.split_once(" on /") {
        let (point, rest) = rest.rsplit_once(" type ")?;
        let (kind, options) = rest.split_once(' ')?;
        let is_one = options.starts_with('(') && (options.ends_with(')') || options.ends_with(']'));
        return is_one.then(|| (device.to_owned(), format!("/{point}"), kind.to_owned()));
    }
    let with_end = format!("{line}\n");
    let (mounts, outcome) = crate::mounts::mounts(with_end.as_bytes());
    let mount = mounts.first().filter(|_| outcome.is_clean())?;
    Some((text(&mount.device), text(&mount.point), mount.kind.to_owned()))
}

fn mount_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| (find!(line, b" type ").is_some() || line.ends_with(b" 0 0")) && mounted(line).is_some())
}

fn mount(lines: &mut Lines<'_>, import: &mut Import) {
    let when = import.now();
    while let Some((device, point, kind)) = lines.peek().and_then(mounted) {
        import.text("fs.device", &point, when, &device);
        import.text("fs.type", &point, when, &kind);
        lines.advance();
    }
}

/// The places of the columns of `lsblk`, as far as they are wanted.
struct Columns {
    /// Which word, and where it ends: numbers stand below the end of their title, and cells may be empty.
    rota: Option<(usize, usize)>,
    sched: Option<usize>,
    width: usize,
}

/// The words of a line, and where each ends in characters: what the tree is drawn with has several bytes.
fn ends(line: &[u8]) -> Vec<(usize, &[u8])> {
    let (mut out, mut at) = (Vec::new(), 0);
    for word in line.split(|b| *b == b' ') {
        let end = at + word.iter().filter(|b| **b & 0xc0 != 0x80).count();
        if !word.is_empty() {
            out.push((end, word));
        }
        at = end + 1;
    }
    out
}

/// The tree is drawn before names of partitions.
fn behind_tree(word: &[u8]) -> Option<&[u8]> {
    word.get(word.iter().position(u8::is_ascii_alphanumeric)?..)
}

fn columns(line: &[u8]) -> Option<Columns> {
    if words(line).next() != Some(b"NAME") {
        return None;
    }
    let names = ends(line);
    let at = |name: &[u8]| names.iter().position(|(_, n)| *n == name);
    // `swapon --show` has such names, too.
    if at(b"PRIO").is_some() {
        return None;
    }
    let is_one = at(b"NAME") == Some(0)
        && [&b"MAJ:MIN"[..], b"SIZE", b"ROTA", b"SCHED", b"TYPE"].iter().filter(|n| at(n).is_some()).count()
            >= 2;
    let rota = at(b"ROTA").and_then(|i| Some((i, names.get(i)?.0)));
    is_one.then(|| Columns { rota, sched: at(b"SCHED"), width: names.len() })
}

fn lsblk_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| columns(line).is_some() || pairs_of(line).is_some())
}

/// What is wanted of a line of `lsblk -P`: `NAME="vda" ROTA="1" SCHED="mq-deadline"`.
fn pairs_of(line: &[u8]) -> Option<[Option<&[u8]>; 3]> {
    let mut rest = line.strip_prefix(b"NAME=\"")?;
    let mut found = [None; 3];
    let mut key: &[u8] = b"NAME";
    loop {
        let end = memchr::memchr(b'"', rest)?;
        let (value, behind) = rest.split_at_checked(end)?;
        if let Some(slot) =
            [&b"NAME"[..], b"ROTA", b"SCHED"].iter().position(|k| *k == key).and_then(|at| found.get_mut(at))
        {
            *slot = Some(value);
        }
        let behind = behind.get(1..)?.trim_ascii_start();
        if behind.is_empty() {
            return found.iter().skip(1).any(Option::is_some).then_some(found);
        }
        let mark = memchr::memmem::find(behind, b"=\"")?;
        (key, rest) = (behind.get(..mark)?, behind.get(mark + 2..)?);
    }
}

fn lsblk_pairs(lines: &mut Lines<'_>, import: &mut Import) {
    let (mut sink, when) = (Sink::default(), import.now());
    lines.each(import, |lines, at, import| {
        let Some([name, rotates, scheduler]) = pairs_of(lines.line()) else { return Took::No };
        let name = name.unwrap_or_default();
        put_disk(name, rotates, scheduler, when, at, &mut sink, import);
        Took::Yes
    });
}

/// What `lsblk` says of a disk.
fn put_disk(
    name: &[u8],
    rotates: Option<&[u8]>,
    scheduler: Option<&[u8]>,
    when: When,
    at: u32,
    sink: &mut Sink,
    import: &mut Import,
) {
    const SCHEDULERS: &[&[u8]] = &[b"none", b"mq-deadline", b"bfq", b"kyber", b"noop", b"deadline", b"cfq"];
    let rotates = rotates.and_then(integer).filter(|v| *v <= 1);
    if let (Some(value), Some(metric)) = (rotates, lookup("disk.rotational")) {
        sink.put(import, metric, name, when, at, value as f64);
    }
    // Empty cells shift those behind them, so a word counts only if it is the name of a scheduler.
    if let Some(scheduler) = scheduler.filter(|w| SCHEDULERS.contains(w)) {
        import.text("disk.queue_scheduler", &text(name), when, &text(scheduler));
    }
}

fn lsblk(lines: &mut Lines<'_>, import: &mut Import) {
    if lines.at(|line| pairs_of(line).is_some()) {
        return lsblk_pairs(lines, import);
    }
    let Some(columns) = lines.peek().and_then(columns) else { return };
    let mut sink = Sink::default();
    let when = import.now();
    lines.advance();
    loop {
        let at = lines.number();
        if begins_other(lines, &import.context, &[LSBLK.name]) {
            break;
        }
        let Some(line) = lines.peek().filter(|line| !line.trim_ascii().is_empty()) else { break };
        let list = ends(line);
        if list.len() > columns.width + 2 || (list.len() < 2 && !line.starts_with(b" ")) {
            break;
        }
        let name = list.iter().find_map(|(_, word)| behind_tree(word)).unwrap_or_default();
        let cell = |at: usize| list.get(at).map(|(_, word)| *word);
        let rotates = columns.rota.and_then(|(at, end)| {
            let below = list.iter().find(|(e, _)| *e == end).map(|(_, word)| *word);
            below.or_else(|| cell(at).filter(|_| list.len() == columns.width))
        });
        let scheduler = columns.sched.and_then(cell);
        put_disk(name, rotates, scheduler, when, at, &mut sink, import);
        lines.advance();
    }
}
