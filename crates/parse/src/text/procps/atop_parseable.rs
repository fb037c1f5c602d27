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

use mitra_model::time::SECOND;

use crate::text::clock;
use crate::text::import::{Column, Form, Import, When};
use crate::text::number::{integer, number, text, words};
use crate::text::{Context, Format, Lines};

/// See the module.
pub const FORMAT: Format =
    Format { name: "atop -P", what: "lines for programs, one for each thing and interval", starts, read };

/// The most fields of a line that are looked at.
const FIELDS_MAX: usize = 48;

/// Labels of lines that are read or passed over.
const LABELS: &[&[u8]] = &[
    b"CPU", b"cpu", b"CPL", b"GPU", b"MEM", b"SWP", b"LLC", b"PAG", b"PSI", b"LVM", b"MDD", b"DSK", b"NFM",
    b"NFC", b"NFS", b"NET", b"IFB", b"NUM", b"NUC", b"PRG", b"PRC", b"PRE", b"PRM", b"PRD", b"PRN", b"CGR",
];

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
    let Some(line) = lines.peek() else { return false };
    if is_mark(line) {
        return lines.ahead(1).is_some_and(|l| is_mark(l) || line_of(l).is_some());
    }
    line_of(line).is_some()
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut since_boot = false;
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        match line.trim_ascii() {
            b"SEP" => since_boot = false,
            b"RESET" => {
                since_boot = true;
                import.note("atop -P: the rates since boot, behind RESET, are left out");
            }
            _ => {
                let Some(parsed) = line_of(line) else {
                    if !words(line).next().is_some_and(|l| LABELS.contains(&l)) {
                        break;
                    }
                    import.unread(number, line);
                    lines.advance();
                    continue;
                };
                if import.host.hostname.is_empty() {
                    import.host.hostname = text(parsed.host);
                }
                if !one(&parsed, since_boot, number, import) {
                    import.unread(number, line);
                }
            }
        }
        lines.advance();
    }
}

/// How a field counts.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Level,
    /// Of the interval: times the factor, per second.
    Count,
}

type Field = (usize, &'static str, How, f64);

/// Reads one line; false where it has fewer fields than its label must have.
fn one(line: &Line<'_>, since_boot: bool, number_of: u32, import: &mut Import) -> bool {
    let fields: Vec<&[u8]> = words(line.rest).take(FIELDS_MAX).collect();
    let at = |i: usize| fields.get(i).and_then(|w| number(w)).filter(|v| *v >= 0.0);
    match line.label {
        b"CPU" | b"cpu" => {
            let (Some(ticks), Some(which)) = (at(0).filter(|t| *t > 0.0), at(1)) else { return false };
            let all = line.label == b"CPU";
            if all && (1.0..=65_536.0).contains(&which) {
                import.host.cpus = import.host.cpus.max(which as u32);
            }
            let row = if all { String::new() } else { format!("{which}") };
            let list: Vec<Field> = CPU
                .iter()
                .map(|(i, one, sum)| (*i, if all { *sum } else { *one }, How::Count, 1.0 / ticks))
                .collect();
            put(line, &row, &list, &fields, since_boot, number_of, import)
        }
        b"MEM" | b"SWP" | b"PAG" => {
            let Some(page) = at(0).filter(|p| *p > 0.0) else { return false };
            let table: &[Field] = match line.label {
                b"MEM" => MEM,
                b"SWP" => SWP,
                _ => PAG,
            };
            // Levels are pages, and so is what is read and written.
            let in_bytes = |m: &str| m.starts_with("mem.") || m.starts_with("vm.pgpg");
            let list: Vec<Field> = table
                .iter()
                .map(|(i, m, how, f)| (*i, *m, *how, if in_bytes(m) { f * page } else { *f }))
                .collect();
            put(line, "", &list, &fields, since_boot, number_of, import)
        }
        b"CPL" => put(line, "", CPL, &fields, since_boot, number_of, import),
        b"PSI" if fields.first() == Some(&&b"y"[..]) => {
            put(line, "", PSI, &fields, since_boot, number_of, import)
        }
        b"LVM" | b"MDD" | b"DSK" => {
            let Some(name) = fields.first() else { return false };
            put(line, &text(name), DISK, &fields, since_boot, number_of, import)
        }
        b"NET" => match fields.first() {
            Some(&b"upper") => put(line, "", UPPER, &fields, since_boot, number_of, import),
            Some(name) => put(line, &text(name), NIC, &fields, since_boot, number_of, import),
            None => false,
        },
        b"PRG" | b"PRC" | b"PRM" | b"PRD" => process(line, since_boot, number_of, import),
        _ => true,
    }
}

/// Puts the fields of one line; false when the first of them is no number.
fn put(
    line: &Line<'_>,
    row: &str,
    list: &[Field],
    fields: &[&[u8]],
    since_boot: bool,
    number_of: u32,
    import: &mut Import,
) -> bool {
    let value = |i: usize| fields.get(i).and_then(|w| number(w));
    if list.first().is_none_or(|(i, ..)| value(*i).is_none()) {
        return false;
    }
    let counts = line.interval > 0.0 && !since_boot;
    for form in [How::Level, How::Count] {
        let of_form = || list.iter().filter(|(_, _, how, _)| *how == form);
        if of_form().next().is_none() || (form == How::Count && !counts) {
            continue;
        }
        let (shape, by) = if form == How::Level { (Form::Level, 1.0) } else { (Form::Rate, line.interval) };
        let columns = of_form().filter_map(|(_, metric, _, factor)| Column::new(metric, shape, *factor));
        let group = import.group(columns.collect());
        if form == How::Count
            && let When::At(t) = line.at
        {
            import.since(group, When::At(t.saturating_sub((line.interval * SECOND as f64) as i64)));
        }
        for ((i, metric, ..), slot) in of_form().zip(import.row(group, row.as_bytes(), line.at, number_of)) {
            // -1 and less is what the kernel does not have.
            let negative = *metric == "task.nice";
            *slot = value(*i).filter(|v| negative || *v >= 0.0).map_or(f64::NAN, |v| v / by);
        }
    }
    true
}

const CPU: &[(usize, &str, &str)] = &[
    (2, "cpu.system", "sys.cpu_system"),
    (3, "cpu.user", "sys.cpu_user"),
    (4, "cpu.nice", "sys.cpu_nice"),
    (5, "cpu.idle", "sys.cpu_idle"),
    (6, "cpu.iowait", "sys.cpu_iowait"),
    (7, "cpu.irq", "sys.cpu_irq"),
    (8, "cpu.softirq", "sys.cpu_softirq"),
    (9, "cpu.steal", "sys.cpu_steal"),
    (10, "cpu.guest", "sys.cpu_guest"),
];

const CPL: &[Field] = &[
    (1, "sys.load1", How::Level, 1.0),
    (2, "sys.load5", How::Level, 1.0),
    (3, "sys.load15", How::Level, 1.0),
    (4, "sys.ctxt", How::Count, 1.0),
    (5, "sys.intr", How::Count, 1.0),
];

const MEM: &[Field] = &[
    (1, "mem.total", How::Level, 1.0),
    (2, "mem.free", How::Level, 1.0),
    (3, "mem.cached", How::Level, 1.0),
    (4, "mem.buffers", How::Level, 1.0),
    (5, "mem.slab", How::Level, 1.0),
    (6, "mem.dirty", How::Level, 1.0),
    (7, "mem.sreclaimable", How::Level, 1.0),
    (9, "mem.shmem", How::Level, 1.0),
    (20, "mem.page_tables", How::Level, 1.0),
];

const SWP: &[Field] = &[
    (1, "mem.swap_total", How::Level, 1.0),
    (2, "mem.swap_free", How::Level, 1.0),
    (4, "mem.committed_as", How::Level, 1.0),
    (5, "mem.commit_limit", How::Level, 1.0),
];

const PAG: &[Field] = &[
    (1, "vm.pgscan", How::Count, 1.0),
    (2, "vm.allocstall", How::Count, 1.0),
    (4, "vm.pswpin", How::Count, 1.0),
    (5, "vm.pswpout", How::Count, 1.0),
    (6, "vm.oom_kill", How::Count, 1.0),
    (7, "vm.compact_stall", How::Count, 1.0),
    (8, "vm.pgmigrate_success", How::Count, 1.0),
    (9, "vm.numa_pages_migrated", How::Count, 1.0),
    (10, "vm.pgpgin", How::Count, 1.0),
    (11, "vm.pgpgout", How::Count, 1.0),
];

const PSI: &[Field] = &[
    (4, "psi.cpu_some", How::Count, 1e-6),
    (8, "psi.memory_some", How::Count, 1e-6),
    (12, "psi.memory_full", How::Count, 1e-6),
    (16, "psi.io_some", How::Count, 1e-6),
    (20, "psi.io_full", How::Count, 1e-6),
];

const DISK: &[Field] = &[
    (1, "disk.io_time", How::Count, 1e-3),
    (2, "disk.reads", How::Count, 1.0),
    (3, "disk.read_bytes", How::Count, 512.0),
    (4, "disk.writes", How::Count, 1.0),
    (5, "disk.write_bytes", How::Count, 512.0),
];

const UPPER: &[Field] = &[
    (1, "tcp.InSegs", How::Count, 1.0),
    (2, "tcp.OutSegs", How::Count, 1.0),
    (3, "udp.InDatagrams", How::Count, 1.0),
    (4, "udp.OutDatagrams", How::Count, 1.0),
    (5, "ip.InReceives", How::Count, 1.0),
    (6, "ip.OutRequests", How::Count, 1.0),
    (7, "ip.InDelivers", How::Count, 1.0),
    (8, "ip.ForwDatagrams", How::Count, 1.0),
];

const NIC: &[Field] = &[
    (1, "nic.rx_packets", How::Count, 1.0),
    (2, "nic.rx_bytes", How::Count, 1.0),
    (3, "nic.tx_packets", How::Count, 1.0),
    (4, "nic.tx_bytes", How::Count, 1.0),
];

/// A line of a process: its id, its name between parentheses, which may hold blanks, its state, and what the label has.
fn process(line: &Line<'_>, since_boot: bool, number_of: u32, import: &mut Import) -> bool {
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
        import.value("task.state", &row, Form::Level, line.at, number_of, f64::from(state));
    }
    let at = |i: usize| fields.get(i).and_then(|w| number(w));
    let list: Vec<Field> = match line.label {
        b"PRC" => {
            let Some(ticks) = at(1).filter(|t| *t > 0.0) else { return false };
            let wait = fields.get(13).and_then(|w| w.strip_prefix(b"(")?.strip_suffix(b")"));
            if let Some(wait) = wait.filter(|w| state == b'D' && !w.is_empty()) {
                import.text("task.kstack", &row, line.at, &text(wait));
            }
            vec![
                (2, "task.user_time", How::Count, 1.0 / ticks),
                (3, "task.system_time", How::Count, 1.0 / ticks),
                (12, "task.run_delay", How::Count, 1e-9),
                (14, "task.blkio_delay", How::Count, 1.0 / ticks),
                (4, "task.nice", How::Level, 1.0),
                (8, "task.cpu", How::Level, 1.0),
            ]
        }
        b"PRM" => vec![
            (7, "task.minflt", How::Count, 1.0),
            (8, "task.majflt", How::Count, 1.0),
            (2, "task.vsize", How::Level, 1024.0),
            (3, "task.rss", How::Level, 1024.0),
        ],
        b"PRD" if fields.get(2) == Some(&&b"y"[..]) => vec![
            (4, "task.read_bytes", How::Count, 512.0),
            (6, "task.write_bytes", How::Count, 512.0),
            (7, "task.cancelled_write_bytes", How::Count, 512.0),
        ],
        _ => return true,
    };
    put(line, &row, &list, &fields, since_boot, number_of, import)
}

/// The parenthesis that ends the name: the first that a state follows.
fn name_end(rest: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b')', rest).find(|at| {
        matches!(rest.get(at + 1..at + 4), Some([b' ', state, b' ']) if state.is_ascii_alphabetic() || *state == b'-')
    })
}
