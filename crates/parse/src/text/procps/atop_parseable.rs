//! `atop -P LABEL,…`: a line for each thing and interval.
//!
//! ```text
//! RESET
//! CPU vm 1795268104 2026/11/21 13:35:04 13352 100 2 186568 808099 17175 1606735 37968 0 3809 720 0 5192 100 0 0
//! SEP
//! DSK vm 1795268105 2026/11/21 13:35:05 1 vda 400 5 40 904 1499136 14 655400 0 4.15
//! PRD vm 1795268105 2026/11/21 13:35:05 1 1 (user_daemon) S n y 0 0 0 0 0 1 n y
//! SEP
//! ```
//!
//! Label, host, seconds since 1970, date, time and length of the interval, then what the label has. What follows
//! `RESET` is of the time since boot; only its levels are read.

use mitra_model::lookup;

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("atop -P", "lines for programs, one for each thing and interval", starts, read);

/// The most fields of a line that are looked at.
const FIELDS_MAX: usize = 48;

/// Labels of lines that are read or passed over.
const LABELS: &[&[u8]] = list!(
    "CPU cpu CPL GPU MEM SWP LLC PAG PSI LVM MDD DSK NFM NFC NFS NET IFB NUM NUC PRG PRC PRE PRM PRD PRN CGR"
);

/// The part of a line that all labels have.
struct Line<'a> {
    label: &'a [u8],
    host: &'a [u8],
    at: When,
    interval: f64,
    rest: &'a [u8],
}

fn line_of(line: &[u8]) -> Option<Line<'_>> {
    let mut list = words(line);
    let label = list.next().filter(|l| LABELS.contains(l))?;
    let host = list.next()?;
    let seconds = integer(list.next()?).filter(|s| (1_000_000_000..4_000_000_000).contains(s))?;
    clock::date(list.next()?)?;
    clock::time_of_day(list.next()?)?;
    let interval = number(list.next()?).filter(|s| *s >= 0.0)?;
    let at = When::At(i64::try_from(seconds).ok()? * SECOND);
    Some(Line { label, host, at, interval, rest: list.rest() })
}

fn is_mark(line: &[u8]) -> bool {
    matches!(line.trim_ascii(), b"SEP" | b"RESET")
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is_line = |line: &[u8]| line_of(line).is_some();
    lines.at(is_line) || lines.at(is_mark) && lines.soon(1, |next| is_mark(next) || is_line(next))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut since_boot = false;
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        match line.trim_ascii() {
            b"SEP" => since_boot = false,
            b"RESET" => {
                since_boot = true;
                import.note("atop -P: the rates since boot, behind RESET, are left out");
            }
            _ => {
                let Some(parsed) = line_of(line) else {
                    return Took::unread_if(words(line).next().is_some_and(|l| LABELS.contains(&l)));
                };
                if import.host.hostname.is_empty() {
                    import.host.hostname = text(parsed.host);
                }
                let row = AtopLine { line: &parsed, counts: parsed.interval > 0.0 && !since_boot, number };
                if !one(&row, import) {
                    return Took::Unread;
                }
            }
        }
        Took::Yes
    });
}

/// A line that is read, and whether the counts of its interval are.
struct AtopLine<'a> {
    line: &'a Line<'a>,
    counts: bool,
    number: u32,
}

/// How a field counts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum How {
    /// A level.
    Level,
    /// Of the interval: times the factor, per second.
    Count,
}

/// The position of a field, its metric, how it counts, and what one is worth in the metric's base unit.
pub(super) type Field = (usize, &'static str, How, f64);

/// Fields of one kind, by their positions behind the length of the interval.
pub(super) fn fields(how: How, factor: f64, table: Pairs) -> impl Iterator<Item = Field> {
    let at = |position: &[u8]| integer(position).and_then(|n| usize::try_from(n).ok());
    table.iter().filter_map(move |(position, metric)| Some((at(position)?, *metric, how, factor)))
}

/// Reads one line; false where it has fewer fields than its label must have.
fn one(row: &AtopLine<'_>, import: &mut Import) -> bool {
    let words: Vec<&[u8]> = words(row.line.rest).take(FIELDS_MAX).collect();
    let positive = |i: usize| words.get(i).and_then(|w| number(w)).filter(|v| *v > 0.0);
    let label = row.line.label;
    let mut name = &b""[..];
    let list: Vec<Field> = match label {
        b"CPU" | b"cpu" => {
            let (Some(ticks), Some(which)) = (positive(0), words.get(1).and_then(|w| number(w))) else {
                return false;
            };
            let all = label == b"CPU";
            if which < 0.0 {
                return false;
            }
            if all && (1.0..=65_536.0).contains(&which) {
                import.host.cpus = import.host.cpus.max(which as u32);
            }
            let row_name = if all { String::new() } else { format!("{which}") };
            let of = if all { "sys.cpu_" } else { "cpu." };
            let times = fields(How::Count, 1.0 / ticks, CPU);
            let metric =
                |(i, time, how, factor)| Some((i, lookup(&format!("{of}{time}"))?.name, how, factor));
            return put(row, &row_name, &times.filter_map(metric).collect::<Vec<_>>(), &words, import);
        }
        b"MEM" | b"SWP" | b"PAG" => {
            let Some(page) = positive(0) else { return false };
            // Levels are pages, and so is what is read and written.
            match label {
                b"MEM" => fields(How::Level, page, MEM).collect(),
                b"SWP" => fields(How::Level, page, SWP).collect(),
                _ => fields(How::Count, 1.0, PAG).chain(fields(How::Count, page, PAG_BYTES)).collect(),
            }
        }
        b"CPL" => fields(How::Level, 1.0, LOADS).chain(fields(How::Count, 1.0, CPL)).collect(),
        b"PSI" if words.first() == Some(&&b"y"[..]) => fields(How::Count, 1e-6, PSI).collect(),
        b"LVM" | b"MDD" | b"DSK" | b"NET" => {
            let Some(first) = words.first() else { return false };
            name = *first;
            match *first {
                _ if label != b"NET" => fields(How::Count, 1.0, DISK)
                    .chain(fields(How::Count, 1e-3, DISK_TIME))
                    .chain(fields(How::Count, 512.0, DISK_BYTES))
                    .collect(),
                b"upper" => {
                    name = b"";
                    fields(How::Count, 1.0, UPPER).collect()
                }
                _ => fields(How::Count, 1.0, NIC).collect(),
            }
        }
        b"PRG" | b"PRC" | b"PRM" | b"PRD" => return process(row, import),
        _ => return true,
    };
    put(row, &text(name), &list, &words, import)
}

/// Puts the fields of one line; false when the first of them is no number.
fn put(row: &AtopLine<'_>, name: &str, list: &[Field], words: &[&[u8]], import: &mut Import) -> bool {
    let AtopLine { line, counts, number: line_number } = row;
    let value = |i: usize| words.get(i).and_then(|w| number(w));
    if list.first().is_none_or(|(i, ..)| value(*i).is_none()) {
        return false;
    }
    for (how, form, by) in [(How::Level, Form::Level, 1.0), (How::Count, Form::Rate, line.interval)] {
        let of_form = || list.iter().filter(|(_, _, h, _)| *h == how);
        if of_form().next().is_none() || (how == How::Count && !counts) {
            continue;
        }
        let columns = of_form().filter_map(|(_, metric, _, factor)| Column::new(metric, form, *factor));
        let group = import.group(columns.collect());
        if let (How::Count, When::At(t)) = (how, line.at) {
            import.since(group, When::At(t.saturating_sub((line.interval * SECOND as f64) as i64)));
        }
        let slots = import.row(group, name.as_bytes(), line.at, *line_number);
        for ((i, metric, ..), slot) in of_form().zip(slots) {
            // -1 and less is what the kernel does not have.
            let may_be_negative = *metric == "task.nice";
            *slot = value(*i).filter(|v| may_be_negative || *v >= 0.0).map_or(f64::NAN, |v| v / by);
        }
    }
    true
}

pub(super) const CPU: Pairs =
    pairs!("2 system  3 user  4 nice  5 idle  6 iowait  7 irq  8 softirq  9 steal  10 guest");
pub(super) const LOADS: Pairs = pairs!("1 sys.load1  2 sys.load5  3 sys.load15");
pub(super) const CPL: Pairs = pairs!("4 sys.ctxt  5 sys.intr");
pub(super) const MEM: Pairs = pairs!(
    "1 mem.total  2 mem.free  3 mem.cached  4 mem.buffers  5 mem.slab  6 mem.dirty  7 mem.sreclaimable  9 mem.shmem
     20 mem.page_tables"
);
pub(super) const SWP: Pairs =
    pairs!("1 mem.swap_total  2 mem.swap_free  4 mem.committed_as  5 mem.commit_limit");
pub(super) const PAG: Pairs = pairs!(
    "1 vm.pgscan  2 vm.allocstall  4 vm.pswpin  5 vm.pswpout  6 vm.oom_kill  7 vm.compact_stall
     8 vm.pgmigrate_success  9 vm.numa_pages_migrated"
);
pub(super) const PAG_BYTES: Pairs = pairs!("10 vm.pgpgin  11 vm.pgpgout");
pub(super) const PSI: Pairs =
    pairs!("4 psi.cpu_some  8 psi.memory_some  12 psi.memory_full  16 psi.io_some  20 psi.io_full");
pub(super) const DISK: Pairs = pairs!("2 disk.reads  4 disk.writes");
pub(super) const DISK_TIME: Pairs = pairs!("1 disk.io_time");
pub(super) const DISK_BYTES: Pairs = pairs!("3 disk.read_bytes  5 disk.write_bytes");
pub(super) const UPPER: Pairs = pairs!(
    "1 tcp.InSegs  2 tcp.OutSegs  3 udp.InDatagrams  4 udp.OutDatagrams  5 ip.InReceives  6 ip.OutRequests
     7 ip.InDelivers  8 ip.ForwDatagrams"
);
pub(super) const NIC: Pairs = pairs!("1 nic.rx_packets  2 nic.rx_bytes  3 nic.tx_packets  4 nic.tx_bytes");

/// Fields of a process behind its name, with so many ticks in a second.
pub(super) fn prc(ticks: f64) -> Vec<Field> {
    vec![
        (2, "task.user_time", How::Count, 1.0 / ticks),
        (3, "task.system_time", How::Count, 1.0 / ticks),
        (12, "task.run_delay", How::Count, 1e-9),
        (14, "task.blkio_delay", How::Count, 1.0 / ticks),
        (4, "task.nice", How::Level, 1.0),
        (8, "task.cpu", How::Level, 1.0),
    ]
}

pub(super) const PRM: &[Field] = &[
    (7, "task.minflt", How::Count, 1.0),
    (8, "task.majflt", How::Count, 1.0),
    (2, "task.vsize", How::Level, 1024.0),
    (3, "task.rss", How::Level, 1024.0),
];
pub(super) const PRD: &[Field] = &[
    (4, "task.read_bytes", How::Count, 512.0),
    (6, "task.write_bytes", How::Count, 512.0),
    (7, "task.cancelled_write_bytes", How::Count, 512.0),
];

/// A line of a process: its id, its name between parentheses, which may hold blanks, its state, and what the label has.
fn process(atop_line: &AtopLine<'_>, import: &mut Import) -> bool {
    let AtopLine { line, number: line_number, .. } = atop_line;
    let mut list = words(line.rest);
    let Some(pid) = list.next().and_then(integer).and_then(|p| u32::try_from(p).ok()) else { return false };
    let rest = list.rest();
    let (Some(b'('), Some(end)) = (rest.first(), name_end(rest)) else { return false };
    let (Some(name), Some(behind)) = (rest.get(1..end), rest.get(end + 1..)) else { return false };
    let fields: Vec<&[u8]> = words(behind).take(FIELDS_MAX).collect();
    let Some(state) = fields.first().filter(|s| s.len() == 1).and_then(|s| s.first()).copied() else {
        return false;
    };
    let row = import.task(pid, &text(name.get(..15).unwrap_or(name)));
    if state.is_ascii_alphabetic() && state != b'E' {
        import.value("task.state", &row, Form::Level, line.at, *line_number, f64::from(state));
    }
    let at = |i: usize| fields.get(i).and_then(|w| number(w));
    let list: Vec<Field> = match line.label {
        b"PRC" => {
            let Some(ticks) = at(1).filter(|t| *t > 0.0) else { return false };
            let wait = fields.get(13).and_then(|w| w.strip_prefix(b"(")?.strip_suffix(b")"));
            if let Some(wait) = wait.filter(|w| state == b'D' && !w.is_empty()) {
                import.text("task.kstack", &row, line.at, &text(wait));
            }
            prc(ticks)
        }
        b"PRM" => PRM.to_vec(),
        b"PRD" if fields.get(2) == Some(&&b"y"[..]) => PRD.to_vec(),
        _ => return true,
    };
    put(atop_line, &row, &list, &fields, import)
}

/// The parenthesis that ends the name: the first that a state follows.
fn name_end(rest: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b')', rest).find(|at| {
        matches!(rest.get(at + 1..at + 4), Some([b' ', state, b' ']) if state.is_ascii_alphabetic() || *state == b'-')
    })
}
