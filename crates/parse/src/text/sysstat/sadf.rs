//! What `sadf -d` and `sadf -p` print of the data files of sadc: one sample or one number on a line, with its host, its
//! interval and its moment.
//!
//! ```text
//! # hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;dkB/s;areq-sz;aqu-sz;await;%util
//! vm;1;2026-11-21 13:30:15 UTC;vda;36.00;0.00;131072.00;131080.00;7282.00;0.48;13.36;6.40
//!
//! vm      1       2026-11-21 13:30:15 UTC all     %user   49.50
//! ```
//!
//! The columns are sar's, see [`super::columns`]. Of all CPUs together the number is -1. With `-h` all sections
//! stand on one line, see [`super::sadf_wide`].

use super::columns::{self, Kind};
use super::plan::{COLUMNS_MAX, Cells, Plan, Plans, printed};
use super::sadf_wide::Wide;
use crate::text::prelude::*;

/// `sadf -d`.
pub const SEMICOLONS: Format = Format::new(
    "sadf -d",
    "data files of sadc as lines with semicolons, also with `-h`",
    starts_semicolons,
    read_semicolons,
);
/// `sadf -p`.
pub const TABS: Format =
    Format::new("sadf -p", "data files of sadc as lines with tabs", starts_tabs, read_tabs);

/// What stands before every number.
pub struct Stamp<'a> {
    pub host: &'a [u8],
    /// The length of the interval that ends here, in seconds; `None` for marks, of a restart for instance.
    pub interval: Option<f64>,
    pub time: i64,
}

impl<'a> Stamp<'a> {
    fn new(host: &'a [u8], interval: &[u8], time: &[u8]) -> Option<Self> {
        let interval = number(interval)?;
        Some(Stamp { host, interval: (interval >= 0.0).then_some(interval), time: moment(time)? })
    }

    /// When the interval began.
    #[must_use]
    pub fn since(&self) -> When {
        let length = (self.interval.unwrap_or(0.0).min(1e9) * SECOND as f64) as i64;
        When::At(self.time.saturating_sub(length))
    }
}

/// `2026-11-21 13:30:15 UTC`, `2026-11-21 13:30:15`, `1795267815`.
fn moment(text: &[u8]) -> Option<i64> {
    if let Some(seconds) = number(text) {
        return (1e8..1e11).contains(&seconds).then_some((seconds * SECOND as f64) as i64);
    }
    clock::iso(text.get(..19)?)
}

/// The fields that `# hostname;interval;timestamp;` is followed by.
fn header(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"#")?.trim_ascii_start();
    rest.strip_prefix(b"hostname;interval;timestamp;")
}

/// The stamp of a data line of `sadf -d`, and what follows it.
fn stamped(line: &[u8], separator: u8) -> Option<(Stamp<'_>, &[u8])> {
    let mut rest = line;
    let mut field = || {
        let end = memchr::memchr(separator, rest)?;
        let (field, tail) = rest.split_at_checked(end)?;
        rest = tail.get(1..)?;
        Some(field)
    };
    let (host, interval, time) = (field()?, field()?, field()?);
    Some((Stamp::new(host, interval, time)?, rest))
}

fn starts_semicolons(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| header(line.trim_ascii()).is_some())
}

fn read_semicolons(lines: &mut Lines<'_>, import: &mut Import) {
    let mut plans = Plans::default();
    let mut current: Option<usize> = None;
    let mut wide: Option<Wide> = None;
    let mut cells: Cells = [f64::NAN; COLUMNS_MAX];
    lines.each(import, |lines, at, import| {
        let line = lines.line().trim_ascii();
        if let Some(list) = header(line) {
            wide = Wide::new(list, import, &mut plans);
            current = None;
            if wide.is_none() {
                current = plans.find(list, list.split(|b| *b == b';'), import);
            }
        } else if let Some((stamp, rest)) = stamped(line, b';') {
            known_host(stamp.host, import);
            let taken = match (&mut wide, current.and_then(|i| plans.get(i))) {
                _ if stamp.interval.is_none() => true,
                (Some(wide), _) => wide.take(&stamp, rest, at, import, &mut cells),
                (None, Some(plan)) => take(plan, &stamp, rest, at, import, &mut cells),
                (None, None) => false,
            };
            return if taken { Took::Yes } else { Took::Unread };
        } else if !line.is_empty() {
            return Took::No;
        }
        Took::Yes
    });
    plans.note(import);
}

/// One line of one section.
fn take(
    plan: &Plan,
    stamp: &Stamp<'_>,
    rest: &[u8],
    at: u32,
    import: &mut Import,
    cells: &mut Cells,
) -> bool {
    let mut fields = rest.split(|b| *b == b';');
    let name = if plan.kind == Kind::System { Some(&b""[..]) } else { fields.next() };
    let Some(name) = name else { return false };
    // `CPU*` stands for one column, or for all CPUs together and each.
    let several = plan.kind == Kind::Irq;
    if !fill(plan, &mut fields, cells) || (fields.next().is_some() && !several) {
        return false;
    }
    if plan.is_read() {
        plan.since(import, stamp.since());
        plan.put(import, name, When::At(stamp.time), at, cells);
    }
    true
}

/// Fills in the numbers that a plan needs; `false` when there are too few fields.
pub fn fill<'a>(plan: &Plan, fields: &mut impl Iterator<Item = &'a [u8]>, cells: &mut Cells) -> bool {
    for i in 0..plan.width {
        let Some(field) = fields.next() else { return false };
        if let (Some(slot), Some(Some(unit))) = (cells.get_mut(i), plan.needed.get(i)) {
            *slot = printed(field, *unit);
        }
    }
    true
}

fn known_host(host: &[u8], import: &mut Import) {
    if import.host.hostname.is_empty() {
        import.host.hostname = text(host);
    }
}

/// One number of `sadf -p`.
struct Number<'a> {
    stamp: Stamp<'a>,
    device: &'a [u8],
    name: &'a [u8],
    value: &'a [u8],
}

fn number_line(line: &[u8]) -> Option<Number<'_>> {
    let (stamp, rest) = stamped(line, b'\t')?;
    let mut fields = rest.split(|b| *b == b'\t');
    let (device, name, value) = (fields.next()?, fields.next()?, fields.next()?);
    (fields.next().is_none() && !name.is_empty()).then_some(Number { stamp, device, name, value })
}

/// `vm -1 2026-11-21 13:30:00 UTC LINUX-RESTART (2 CPU)`, with tabs.
fn is_mark(line: &[u8]) -> bool {
    stamped(line, b'\t').is_some_and(|(stamp, _)| stamp.interval.is_none())
}

fn starts_tabs(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    number_line(line).is_some_and(|n| {
        n.stamp.interval.is_some()
            && number(n.value).is_some()
            && (columns::is_known(n.name) || columns::is_shaped(n.name))
    })
}

/// The numbers of one thing at one moment that have been read so far.
struct Record {
    device: Vec<u8>,
    /// The names, each with a blank behind it.
    names: Vec<u8>,
    count: usize,
    cells: Cells,
    time: i64,
    since: When,
    line: u32,
}

fn read_tabs(lines: &mut Lines<'_>, import: &mut Import) {
    let mut plans = Plans::default();
    let mut record = Record {
        device: Vec::new(),
        names: Vec::new(),
        count: 0,
        cells: [f64::NAN; COLUMNS_MAX],
        time: 0,
        since: When::Fact,
        line: 0,
    };
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(n) = number_line(line).filter(|n| n.stamp.interval.is_some()) {
            let new = n.stamp.time != record.time || n.device != record.device;
            if new || record.count >= COLUMNS_MAX || record.begins_anew(n.name) {
                record.flush(import, &mut plans);
                record.begin(&n, at);
            }
            record.push(&n);
            known_host(n.stamp.host, import);
        } else if !line.trim_ascii().is_empty() && !is_mark(line) {
            return Took::No;
        }
        Took::Yes
    });
    record.flush(import, &mut plans);
    plans.note(import);
}

impl Record {
    fn begin(&mut self, n: &Number<'_>, line: u32) {
        self.device.clear();
        self.device.extend_from_slice(n.device);
        (self.time, self.since, self.line) = (n.stamp.time, n.stamp.since(), line);
    }

    /// Whether the name is one that the thing has already: another section has it too.
    fn begins_anew(&self, name: &[u8]) -> bool {
        self.names.split(|b| *b == b' ').any(|known| known == name)
    }

    fn push(&mut self, n: &Number<'_>) {
        if let Some(cell) = self.cells.get_mut(self.count) {
            *cell = number(n.value).unwrap_or(f64::NAN);
            self.count += 1;
            self.names.extend_from_slice(n.name);
            self.names.push(b' ');
        }
    }

    fn flush(&mut self, import: &mut Import, plans: &mut Plans) {
        if self.count > 0 {
            self.put(import, plans);
        }
        self.names.clear();
        self.count = 0;
    }

    fn put(&self, import: &mut Import, plans: &mut Plans) {
        let device = self.device.as_slice();
        let list: Vec<&[u8]> =
            self.names.split(|b| *b == b' ').filter(|n| !n.is_empty()).take(COLUMNS_MAX).collect();
        let kind = kind_of(device, &list);
        let key: Vec<u8> = [kind as u8].iter().chain(&self.names).copied().collect();
        let known = plans.known(&key).or_else(|| {
            let plan = Plan::of(kind, &list, import);
            if !plan.is_read() {
                let option = columns::option(list.iter().copied());
                plans.skip(option.as_deref().unwrap_or("columns of no section"));
            }
            plans.add(&key, plan)
        });
        let Some(plan) = known.and_then(|i| plans.get(i)).filter(|p| p.is_read()) else { return };
        let name = if kind == Kind::Cpu { device.strip_prefix(b"cpu").unwrap_or(device) } else { device };
        plan.since(import, self.since);
        plan.put(import, name, When::At(self.time), self.line, &self.cells);
    }
}

/// What a thing is: `-` is the machine, and others are what most of their columns belong to.
fn kind_of(device: &[u8], list: &[&[u8]]) -> Kind {
    if device == b"-" || device.is_empty() {
        return Kind::System;
    }
    let known = |kind: Kind| {
        let of_kind = |n: &&&[u8]| {
            columns::find(kind, n).is_some() || (kind == Kind::Cpu && columns::cpu_time(n).is_some())
        };
        list.iter().filter(of_kind).count()
    };
    let kinds = [Kind::Cpu, Kind::Disk, Kind::Nic, Kind::Irq, Kind::Filesystem];
    kinds.into_iter().filter(|k| known(*k) > 0).max_by_key(|k| known(*k)).unwrap_or(Kind::Other)
}
