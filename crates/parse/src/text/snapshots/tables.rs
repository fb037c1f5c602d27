//! Lines of `/proc` files that are tables. Each line goes through the parser that the recorder uses for its file, so
//! each number keeps its line.

use mitra_model::{Entity, Frame, Key, Strings};

use super::keys::count;
use crate::sources::Parse;
use crate::text::list::list;
use crate::text::number::words;
use crate::{SOURCES, zoneinfo};

/// A file whose lines are tables, as a position in [`FILES`].
pub(super) type File = usize;

/// The files, by their paths in [`SOURCES`].
pub(super) const FILES: &[&str] = &[
    "proc/stat",
    "proc/diskstats",
    "proc/slabinfo",
    "proc/net/dev",
    "proc/net/snmp",
    "proc/net/sockstat",
    "proc/net/softnet_stat",
    "proc/loadavg",
    "proc/buddyinfo",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/pressure/memory",
    "proc/pressure/irq",
    "proc/sys/fs/dentry-state",
    "proc/sys/fs/inode-state",
    "proc/sys/fs/file-nr",
];

/// The position of a path in [`FILES`].
pub(super) fn file(path: &str) -> Option<File> {
    FILES.iter().position(|p| *p == path)
}

/// What a line is, as far as it can be told without parsing it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    /// A row of the file.
    Row(File),
    /// A heading of the file.
    Heading(File),
    /// A line of one of the files of `/proc/pressure`.
    Pressure,
}

/// The file that a line must be of.
pub(super) fn shape(line: &[u8]) -> Option<Shape> {
    let row = |path| file(path).map(Shape::Row);
    let heading = |path| file(path).map(Shape::Heading);
    let mut list = words(line);
    let first = list.next()?;
    let are_numbers = |list: crate::text::number::Words<'_>| {
        let mut n = 0;
        list.map(|w| count(w).is_some())
            .inspect(|_| n += 1)
            .all(|is_number| is_number)
            .then_some(())
            .map(|()| n)
    };
    match first {
        b"some" | b"full" => list.next()?.starts_with(b"avg10=").then_some(Shape::Pressure),
        b"ctxt" | b"btime" | b"processes" | b"procs_running" | b"procs_blocked" => {
            (are_numbers(list) == Some(1)).then(|| row("proc/stat"))?
        }
        b"intr" | b"softirq" => (are_numbers(list)? >= 5).then(|| row("proc/stat"))?,
        b"sockets:" | b"TCP:" | b"UDP:" | b"UDPLITE:" | b"RAW:" | b"FRAG:" | b"TCP6:" | b"UDP6:"
        | b"UDPLITE6:" | b"RAW6:" | b"FRAG6:" => {
            let key = list.next()?;
            (matches!(key, b"used" | b"inuse") && count(list.next()?).is_some())
                .then(|| row("proc/net/sockstat"))?
        }
        b"slabinfo" => line.starts_with(b"slabinfo - version: ").then(|| heading("proc/slabinfo"))?,
        b"#" => (list.next()? == b"name" && list.next()?.starts_with(b"<active_objs>"))
            .then(|| heading("proc/slabinfo"))?,
        // `/proc/net/wireless` begins with the same word.
        b"Inter-|" => memchr::memmem::find(line, b"Receive").and_then(|_| heading("proc/net/dev")),
        b"face" => list.next()?.starts_with(b"|bytes").then(|| heading("proc/net/dev"))?,
        b"Node" => {
            let comma = line.iter().position(|b| *b == b',')?;
            let mut rest = words(line.get(comma + 1..)?);
            // Blocks by kind of page, in `/proc/pagetypeinfo`, are seven numbers at most.
            let is_zone = rest.next()? == b"zone" && rest.next().is_some() && are_numbers(rest)? >= 8;
            is_zone.then(|| row("proc/buddyinfo"))?
        }
        _ if first.starts_with(b"cpu") => {
            let is_cpu = first.get(3..)?.iter().all(u8::is_ascii_digit);
            (is_cpu && are_numbers(list)? >= 7).then(|| row("proc/stat"))?
        }
        _ if first.first()?.is_ascii_hexdigit() && is_softnet(line) => row("proc/net/softnet_stat"),
        _ if first.first()?.is_ascii_digit() => digits_first(first, list).and_then(row),
        _ if memchr::memmem::find(line, b" : tunables ").is_some() => row("proc/slabinfo"),
        _ => is_device(line).then(|| row("proc/net/dev"))?,
    }
}

/// Nine to fifteen words of eight hexadecimal digits.
fn is_softnet(line: &[u8]) -> bool {
    let mut n = 0;
    words(line).inspect(|_| n += 1).all(|w| w.len() == 8 && w.iter().all(u8::is_ascii_hexdigit))
        && (9..=16).contains(&n)
}

/// A line of `/proc/diskstats` or `/proc/loadavg`.
fn digits_first<'a>(first: &[u8], mut list: crate::text::number::Words<'a>) -> Option<&'static str> {
    let second = list.next()?;
    let third = list.next()?;
    if count(first).is_some() && count(second).is_some() && third.first()?.is_ascii_alphabetic() {
        let mut n = 0;
        let are_numbers = list.inspect(|_| n += 1).all(|w| count(w).is_some());
        return (are_numbers && matches!(n, 11 | 15 | 17)).then_some("proc/diskstats");
    }
    let is_average = |w: &[u8]| w.len() >= 4 && w.get(w.len() - 3) == Some(&b'.');
    let tasks = list.next()?;
    let is_load = is_average(first) && is_average(second) && is_average(third) && tasks.contains(&b'/');
    (is_load && count(list.next()?).is_some() && list.next().is_none()).then_some("proc/loadavg")
}

/// A name, a colon and sixteen numbers. `/proc/softirqs` of a machine with sixteen CPUs has such lines too.
fn is_device(line: &[u8]) -> bool {
    const SOFTIRQS: &[&[u8]] =
        list!("HI TIMER NET_TX NET_RX BLOCK IRQ_POLL BLOCK_IOPOLL TASKLET SCHED HRTIMER RCU");
    let Some(colon) = line.iter().rposition(|b| *b == b':') else { return false };
    let Some((name, rest)) = line.split_at_checked(colon) else { return false };
    let name = name.trim_ascii();
    let mut n = 0;
    !name.is_empty()
        && name.len() < 64
        && !name.contains(&b' ')
        && !SOFTIRQS.contains(&name)
        && words(rest.get(1..).unwrap_or_default()).inspect(|_| n += 1).all(|w| count(w).is_some())
        && n == 16
}

/// What `Tcp:` of a line of names is, when the other line is the numbers of it: a pair of `/proc/net/snmp`.
pub(super) fn is_pair(names: &[u8], numbers: &[u8]) -> bool {
    let (mut names, mut numbers) = (words(names), words(numbers));
    let (Some(area), Some(again)) = (names.next(), numbers.next()) else { return false };
    let is_name = |w: &[u8]| w.first().is_some_and(u8::is_ascii_alphabetic);
    let is_number = |w: &[u8]| count(w.strip_prefix(b"-").unwrap_or(w)).is_some();
    area == again
        && area.ends_with(b":")
        && is_name(area)
        && names.next().is_some_and(is_name)
        && numbers.next().is_some_and(is_number)
}

/// The parsers that were needed so far, and the frame that they fill.
#[derive(Default)]
pub(super) struct Tables {
    parsers: Vec<Option<Parse>>,
    /// What the parsers filled in last.
    pub frame: Frame,
    /// The names of its rows.
    pub strings: Strings,
    text: Vec<u8>,
}

impl Tables {
    /// Reads lines that belong together into the frame; whether they were whole.
    pub(super) fn parse(&mut self, file: File, lines: &[&[u8]]) -> bool {
        self.frame.clear();
        self.fill_frame(file, lines)
    }

    /// Reads a line without the number of its CPU, which is the `n`-th.
    pub(super) fn parse_nth_cpu(&mut self, file: File, line: &[u8], n: u32) -> bool {
        self.frame.clear();
        if words(line).count() < 13 {
            let key = Key::named(self.strings.intern(&n.to_string()));
            self.frame.table_mut(Entity::Cpu).push(key);
        }
        self.fill_frame(file, &[line])
    }

    fn fill_frame(&mut self, file: File, lines: &[&[u8]]) -> bool {
        let Some(path) = FILES.get(file) else { return false };
        self.parsers.resize_with(FILES.len(), || None);
        let Some(slot) = self.parsers.get_mut(file) else { return false };
        let Some(source) = SOURCES.iter().find(|s| s.path == *path) else { return false };
        let parser = slot.get_or_insert_with(source.parser);
        self.text.clear();
        for line in lines {
            // Blanks at the ends are lost where text was copied.
            self.text.extend_from_slice(line.trim_ascii());
            self.text.push(b'\n');
        }
        parser(&self.text, &mut self.strings, &mut self.frame).is_clean()
    }
}

/// Whether the line begins a zone of `/proc/zoneinfo`.
pub(super) fn is_zone(line: &[u8]) -> bool {
    zoneinfo::zone_header(line.trim_ascii()).is_some()
}
