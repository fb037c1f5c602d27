//! Screens of `atop`, live or from `atop -r`, and single lines of them.
//!
//! ```text
//! ATOP - vm      2026/11/21  13:30:20      -----------------      10s elapsed
//! CPU | sys      14% | user     62% | irq       0% | idle    121% | wait      3% |
//! cpu | sys       8% | user     32% | irq       0% | idle     58% | cpu001 w  2% |
//! CPL | numcpu     2 | avg1    0.17 | avg5    0.11 | csw 22038806 | intr 13760e3 |
//! MEM | tot    23.5G | free   21.1G | cache   2.0G | buff   64.1M | slab  208.3M |
//! DSK |          vda | busy      4% | read 6467190 | write 1558e3 | avio 71.3 µs |
//! NET | eth0    ---- | pcki   13331 | pcko    8021 | si  206 Kbps | so    0 Kbps |
//!   PID SYSCPU USRCPU BDELAY  VGROW  RGROW  RDDSK  WRDSK  CPU CMD
//!     1 61.86s 12.09s  0.00s  50.5M  19.5M     0B     0B   1% user_daemon
//! ```
//!
//! Numbers that do not fit are cut: `13760e3`. The first screen is of the time since boot; only its levels are read.

use super::atop_cells::{self, Kind, Reading};
use super::common::duration;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("atop", "screens, live or from `-r`, and single lines of them", starts, read);

/// Lines of one screen that are held until its end.
const READINGS_MAX: usize = 65_536;

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| first_line(line).is_some() || atop_cells::label(line).is_some())
}

/// Host, time and length of the interval.
fn first_line(line: &[u8]) -> Option<(&[u8], i64, f64)> {
    let mut list = words(line.strip_prefix(b"ATOP - ")?);
    let mut host = list.next()?;
    let day = match clock::date(host) {
        // The host has no name.
        Some(day) => {
            host = b"";
            day
        }
        None => clock::date(list.next()?)?,
    };
    let time = clock::time_of_day(list.next()?)?;
    let mut last: [&[u8]; 2] = [b"", b""];
    for word in list {
        if word == b"elapsed" {
            break;
        }
        last = [last[1], word];
    }
    // Old versions spell it: `10 seconds elapsed`.
    let elapsed = if last[1].starts_with(b"second") { number(last[0]) } else { duration(last[1]) };
    Some((host, day * DAY + time, elapsed?))
}

/// One screen while it is read.
struct Screen {
    at: When,
    elapsed: Option<f64>,
    since_boot: bool,
    /// Seconds for which all processes ran.
    ran_s: Option<f64>,
    readings: Vec<Reading>,
    table: Option<Table>,
}

/// Twice what the CPUs can do in the interval, whose length is rounded to seconds.
const TOO_MUCH: f64 = 2.0;

/// `PRC | sys    0.44s | user   1.00s | …`.
fn ran_s(line: &[u8]) -> Option<f64> {
    let mut list = words(line.strip_prefix(b"PRC |")?).filter(|word| *word != b"|");
    let mut seconds = |key: &[u8]| {
        list.next().filter(|word| *word == key)?;
        duration(list.next()?)
    };
    Some(seconds(b"sys")? + seconds(b"user")?)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut screen = Screen {
        at: import.now(),
        elapsed: None,
        since_boot: false,
        ran_s: None,
        readings: Vec::new(),
        table: None,
    };
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if let Some((host, t, elapsed)) = first_line(line) {
            flush(&mut screen, import);
            if import.host.hostname.is_empty() {
                import.host.hostname = text(host);
            }
            screen.at = When::At(t);
            screen.elapsed = Some(elapsed).filter(|s| *s > 0.0);
            screen.since_boot = false;
            screen.ran_s = None;
            screen.table = None;
        } else if atop_cells::label(line).is_some() {
            let mut cpus = None;
            screen.ran_s = ran_s(line).or(screen.ran_s);
            if screen.readings.len() < READINGS_MAX {
                atop_cells::read(line, number, &mut screen.readings, &mut cpus);
            }
            import.host.cpus = import.host.cpus.max(cpus.unwrap_or(0));
        } else if is_unknown_kind(line) {
            // A kind of line of a later version.
        } else if line.starts_with(b"***") {
            screen.since_boot |= has(line, b"since");
        } else if line.trim_ascii().is_empty() {
            if !lines.soon(3, is_ours) {
                return Took::No;
            }
        } else if is_header(line) {
            flush(&mut screen, import);
            screen.table = Some(Table::new(line, import));
        } else if !screen.table.as_ref().is_some_and(|t| t.row(line, number, &screen, import)) {
            return Took::No;
        }
        Took::Yes
    });
    flush(&mut screen, import);
}

/// `WWW | reqs  0.0/s | totKB …`: a line of the upper part of a kind that has no metrics.
fn is_unknown_kind(line: &[u8]) -> bool {
    let mut list = words(line);
    let is_label = |w: &[u8]| w.len() == 3 && w.iter().all(u8::is_ascii_alphanumeric);
    list.next().is_some_and(is_label) && list.next() == Some(b"|") && line.trim_ascii_end().ends_with(b"|")
}

fn is_ours(line: &[u8]) -> bool {
    first_line(line).is_some()
        || is_unknown_kind(line)
        || atop_cells::label(line).is_some()
        || is_header(line)
        || line.starts_with(b"***")
}

/// Writes what was held.
fn flush(screen: &mut Screen, import: &mut Import) {
    let mut left_out = false;
    // `pcp atop` does not say that its first screen is of the time since boot.
    let room = screen.elapsed.map(|elapsed| elapsed * f64::from(import.host.cpus)).filter(|room| *room > 0.0);
    screen.since_boot |= screen.ran_s.zip(room).is_some_and(|(ran, room)| ran > TOO_MUCH * room);
    for reading in std::mem::take(&mut screen.readings) {
        let value = match (reading.kind, screen.since_boot, screen.elapsed) {
            (Kind::Level, _, _) => reading.value,
            (Kind::Rate, false, _) => reading.value,
            (Kind::Count, false, Some(elapsed)) => reading.value / elapsed,
            _ => {
                left_out = true;
                continue;
            }
        };
        let Some(column) = Column::new(reading.metric, reading.kind.form(), 1.0) else { continue };
        let group = import.group(vec![column]);
        if let (true, Some(elapsed), When::At(t)) = (reading.kind != Kind::Level, screen.elapsed, screen.at) {
            import.since(group, When::At(t.saturating_sub((elapsed * SECOND as f64) as i64)));
        }
        import.put(group, reading.row.as_bytes(), screen.at, reading.line, &[value]);
    }
    if left_out && screen.since_boot {
        import.note("atop: the rates of the first screen, averages since boot, are left out");
    } else if left_out {
        import.note("atop: counts of an interval of unknown length are left out");
    }
}

/// What a column of processes holds.
#[derive(Clone, Copy)]
enum Cell {
    Skip,
    Pid,
    Tid,
    Command,
    /// A level, by its column in the group of levels.
    Level(usize, fn(&[u8]) -> Option<f64>),
    /// What was counted in the interval, by its column in the group of rates.
    Count(usize, fn(&[u8]) -> Option<f64>),
}

/// A column that holds a number: its name, the metric, how it is read.
type Number = (&'static str, &'static str, fn(&[u8]) -> Option<f64>);

/// Levels.
const LEVELS: &[Number] = &[
    ("S", "task.state", state),
    ("THR", "task.threads", number),
    ("CPUNR", "task.cpu", number),
    ("PPID", "task.ppid", number),
    ("NICE", "task.nice", number),
    ("RSIZE", "task.rss", size),
    ("VSIZE", "task.vsize", size),
];
/// What was counted in the interval.
const COUNTS: &[Number] = &[
    ("SYSCPU", "task.system_time", duration),
    ("USRCPU", "task.user_time", duration),
    ("BDELAY", "task.blkio_delay", duration),
    ("RDELAY", "task.run_delay", duration),
    ("RDDSK", "task.read_bytes", size),
    ("WRDSK", "task.write_bytes", size),
    ("WCANCL", "task.cancelled_write_bytes", size),
    ("MINFLT", "task.minflt", count),
    ("MAJFLT", "task.majflt", count),
];

fn state(word: &[u8]) -> Option<f64> {
    word.first().filter(|b| b.is_ascii_alphabetic()).map(|b| f64::from(*b))
}

fn size(word: &[u8]) -> Option<f64> {
    with_suffix(word).filter(|bytes| *bytes >= 0.0)
}

fn count(word: &[u8]) -> Option<f64> {
    leading(word).filter(|(n, rest)| rest.is_empty() && *n >= 0.0).map(|(n, _)| n)
}

struct Table {
    cells: Vec<Cell>,
    levels: GroupId,
    rates: GroupId,
    level_count: usize,
    rate_count: usize,
}

/// Columns of processes of every view.
const NAMES: &[&[u8]] = list!(
    "PID TID SYSCPU USRCPU BDELAY RDELAY VGROW RGROW RDDSK WRDSK WCANCL CPU CMD RUID EUID ST EXC THR S CPUNR
     MINFLT MAJFLT VSTEXT VSLIBS VDATA VSTACK VSIZE RSIZE PSIZE SWAPSZ MEM DSK COMMAND-LINE PPID NICE PRI POLI
     TGID LOCKSZ VSLCK SHTEXT VSTK NET WCHAN RTPR STDATE STTIME ENDATE ENTIME SUID FSUID RGID EGID SGID FSGID
     CTID VPID CID POD IBUSY SNET RNET TCPSND TCPRCV TCPSASZ TCPRASZ UDPSND UDPRCV UDPSASZ UDPRASZ BANDWI BANDWO
     NVCSW NIVCSW CGRNICE CPUWGT MEMMAX SWPMAX GPUBUSY MEMBUSY MEMNOW MEMAVG GPUNUMS TRUN TSLPI TSLPU TIDLE"
);

/// A header of processes: `PID SYSCPU … CMD`, with the page behind it.
fn is_header(line: &[u8]) -> bool {
    let mut list = words(line);
    let mut own = 0;
    if list.next() != Some(b"PID") {
        return false;
    }
    for word in list {
        if matches!(
            word,
            b"SYSCPU"
                | b"USRCPU"
                | b"RDDSK"
                | b"MINFLT"
                | b"VGROW"
                | b"COMMAND-LINE"
                | b"RTPR"
                | b"STDATE"
                | b"TCPSND"
        ) {
            own += 1;
        } else if !NAMES.contains(&word) && !word.first().is_some_and(u8::is_ascii_digit) {
            return false;
        }
    }
    own > 0
}

impl Table {
    fn new(header: &[u8], import: &mut Import) -> Table {
        let (mut levels, mut rates) = (Vec::new(), Vec::new());
        let mut cells = Vec::new();
        for name in words(header) {
            let of = |table: &[Number]| {
                table.iter().find(|(n, ..)| n.as_bytes() == name).map(|(_, metric, read)| (*metric, *read))
            };
            cells.push(match name {
                b"PID" => Cell::Pid,
                b"TID" => Cell::Tid,
                b"CMD" | b"COMMAND-LINE" => Cell::Command,
                // The page, `1/3`, stands behind the header.
                page if page.first().is_some_and(u8::is_ascii_digit) => break,
                _ => {
                    if let Some((metric, read)) = of(LEVELS) {
                        levels.extend(Column::new(metric, Form::Level, 1.0));
                        Cell::Level(levels.len().saturating_sub(1), read)
                    } else if let Some((metric, read)) = of(COUNTS) {
                        rates.extend(Column::new(metric, Form::Rate, 1.0));
                        Cell::Count(rates.len().saturating_sub(1), read)
                    } else {
                        Cell::Skip
                    }
                }
            });
        }
        let (level_count, rate_count) = (levels.len(), rates.len());
        Table { cells, levels: import.group(levels), rates: import.group(rates), level_count, rate_count }
    }

    fn row(&self, line: &[u8], line_number: u32, screen: &Screen, import: &mut Import) -> bool {
        let (mut levels, mut rates) = (vec![f64::NAN; self.level_count], vec![f64::NAN; self.rate_count]);
        let (mut pid, mut tid, mut command) = (None, None, None);
        let mut list = words(line);
        let set = |values: &mut [f64], i: usize, value: Option<f64>| {
            if let (Some(slot), Some(value)) = (values.get_mut(i), value) {
                *slot = value;
            }
        };
        let id = |w: &[u8]| {
            number(w).filter(|n| n.fract() == 0.0 && (1.0..=4_194_304.0).contains(n)).map(|n| n as u32)
        };
        for cell in &self.cells {
            if matches!(cell, Cell::Command) {
                command = Some(list.rest().trim_ascii());
                break;
            }
            let Some(word) = list.next() else { return false };
            match *cell {
                Cell::Pid => pid = id(word),
                Cell::Tid => tid = id(word),
                Cell::Level(i, read) => set(&mut levels, i, read(word)),
                Cell::Count(i, read) => set(&mut rates, i, read(word)),
                Cell::Skip | Cell::Command => {}
            }
        }
        let (Some(pid), Some(command)) = (pid.or(tid), command) else { return false };
        let name = words(command).next().unwrap_or(command);
        let name = name.strip_prefix(b"<").and_then(|n| n.strip_suffix(b">")).unwrap_or(name);
        let name = name.rsplit(|b| *b == b'/').next().filter(|_| name.starts_with(b"/")).unwrap_or(name);
        let row = import.task(tid.unwrap_or(pid), &text(name.get(..15).unwrap_or(name)));
        if !levels.is_empty() {
            fill(import.row(self.levels, row.as_bytes(), screen.at, line_number), &levels, 1.0);
        }
        if let Some(elapsed) = screen.elapsed.filter(|_| !screen.since_boot && !rates.is_empty()) {
            fill(import.row(self.rates, row.as_bytes(), screen.at, line_number), &rates, elapsed);
        }
        true
    }
}

fn fill(out: &mut [f64], values: &[f64], by: f64) {
    for (slot, value) in out.iter_mut().zip(values) {
        *slot = value / by;
    }
}
