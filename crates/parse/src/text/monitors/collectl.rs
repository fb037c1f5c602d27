//! `collectl`, as columns for people and with `-P` for plotting.
//!
//! ```text
//! #Date Time [CPU]User% [CPU]Sys% [CPU]Ctx/sec [MEM]Free [DSK:vda]Reads [NET:eth0]RxKB
//! 20261127 23:10:01 1 0 2050 270568 12 5
//! ```
//! ```text
//! #<--------CPU--------><----------Disks-----------><----------Network---------->
//! #cpu sys inter  ctxsw KBRead  Reads KBWrit Writes   KBIn  PktIn  KBOut  PktOut
//!    1   0  1024   2050      4      1      8      2      5     12      4     11
//! ```

use super::csv::step;
use super::wide::{Cell, KIB, Names, Wide, compact_date, find, names};
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// `collectl -P`.
pub const PARSEABLE: Format = Format::new(
    "collectl -P",
    "CPUs, memory, disks and interfaces, of `collectl -P`",
    |lines, _| {
        let is = |line: &[u8]| parseable_header(line).is_some();
        lines.at(is) || (lines.at(is_above) && lines.soon(1, is))
    },
    parseable,
);
/// `collectl`.
pub const PLAIN: Format = Format::new(
    "collectl",
    "interrupts and context switches of the short form; its sums over disks and interfaces have no metric",
    plain_starts,
    plain,
);

#[rustfmt::skip]
const MACHINE: &[Names] = &[
    names(Form::Share, 0.01, pairs!(
        "[CPU]User% sys.cpu_user  [CPU]Nice% sys.cpu_nice  [CPU]Sys% sys.cpu_system  [CPU]Wait% sys.cpu_iowait
         [CPU]Irq% sys.cpu_irq  [CPU]Soft% sys.cpu_softirq  [CPU]Steal% sys.cpu_steal  [CPU]Idle% sys.cpu_idle"
    )),
    names(Form::Rate, 1.0, pairs!(
        "[CPU]Intrpt/sec sys.intr  [CPU]Ctx/sec sys.ctxt  [CPU]Proc/sec sys.forks
         [MEM]PageMajFaults vm.pgmajfault  [MEM]PageFaults vm.pgfault"
    )),
    names(Form::Rate, KIB, pairs!("[MEM]PageIn vm.pgpgin  [MEM]PageOut vm.pgpgout")),
    names(Form::Level, 1.0, pairs!(
        "[CPU]ProcRun sys.procs_running  [CPU]RunTot sys.procs_running  [CPU]BlkTot sys.procs_blocked
         [CPU]L-Avg1 sys.load1  [CPU]L-Avg5 sys.load5  [CPU]L-Avg15 sys.load15
         [SOCK]Used sock.used  [SOCK]Tcp sock.tcp_inuse  [SOCK]Orph sock.tcp_orphan  [SOCK]Tw sock.tcp_tw
         [SOCK]Alloc sock.tcp_alloc  [SOCK]Mem sock.tcp_mem  [SOCK]Udp sock.udp_inuse"
    )),
    names(Form::Level, KIB, pairs!(
        "[MEM]Tot mem.total  [MEM]Used mem.used  [MEM]Free mem.free  [MEM]Buf mem.buffers  [MEM]Cached mem.cached
         [MEM]Slab mem.slab  [MEM]Map mem.mapped  [MEM]Anon mem.anon  [MEM]Commit mem.committed_as
         [MEM]SwapTot mem.swap_total  [MEM]SwapFree mem.swap_free  [MEM]Inactive mem.inactive  [MEM]Dirty mem.dirty"
    )),
];
/// Columns of single things: `[CPU:0]User%`, `[DSK:vda]Reads`, `[NET:eth0]RxKB`.
#[rustfmt::skip]
const DETAILS: &[Names] = &[
    names(Form::Rate, 0.01, pairs!(
        "CPU/User% cpu.user  CPU/Nice% cpu.nice  CPU/Sys% cpu.system  CPU/Wait% cpu.iowait  CPU/Irq% cpu.irq
         CPU/Soft% cpu.softirq  CPU/Steal% cpu.steal  CPU/Idle% cpu.idle  DSK/Util disk.io_time  DSK/PctUtil disk.io_time"
    )),
    names(Form::Rate, 1.0, pairs!(
        "DSK/Reads disk.reads  DSK/Writes disk.writes  DSK/RMerge disk.read_merges  DSK/WMerge disk.write_merges
         NET/RxPkt nic.rx_packets  NET/TxPkt nic.tx_packets  NET/RxErrs nic.rx_errs  NET/TxErrs nic.tx_errs"
    )),
    names(Form::Rate, KIB, pairs!(
        "DSK/RKBytes disk.read_bytes  DSK/WKBytes disk.write_bytes  NET/RxKB nic.rx_bytes  NET/TxKB nic.tx_bytes"
    )),
];

fn cell(name: &[u8]) -> Option<Cell> {
    let inside = name.strip_prefix(b"[")?;
    let (inside, column) = inside.split_at_checked(memchr::memchr(b']', inside)?)?;
    match memchr::memchr(b':', inside) {
        Some(at) => {
            let (kind, row) = inside.split_at_checked(at)?;
            find(DETAILS, &[kind, b"/", column.get(1..)?].concat(), row.get(1..)?)
        }
        None => find(MACHINE, name, b""),
    }
}

/// The character between columns, and the columns behind date and time.
fn parseable_header(line: &[u8]) -> Option<(u8, Wide)> {
    let rest = line.strip_prefix(b"#Date")?;
    let between = *rest.first()?;
    let names = rest.get(1..)?.strip_prefix(b"Time")?.strip_prefix(&[between])?;
    let wide = Wide { cells: names.split(|b| *b == between).map(cell).collect() };
    wide.is_known().then_some((between, wide))
}

fn parseable(lines: &mut Lines<'_>, import: &mut Import) {
    while lines.at(is_above) {
        lines.advance();
    }
    let Some((mut between, mut wide)) = lines.peek().and_then(parseable_header) else { return };
    let mut sink = Sink::default();
    lines.advance();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if line.starts_with(b"#") {
            if let Some(found) = parseable_header(line) {
                (between, wide) = found;
            }
            return Took::Yes;
        }
        let mut list = line.split(|b| *b == between);
        let day = list.next().and_then(compact_date);
        let clock = list.next().and_then(clock::time_of_day);
        let (Some(day), Some(clock), true) = (day, clock, list.clone().count() == wide.cells.len()) else {
            return Took::unread_if(lines.soon(1, |l| l.first().is_some_and(u8::is_ascii_digit)));
        };
        wide.row(list, (When::At(day * DAY + clock), at, false), &mut sink, import);
        Took::Yes
    });
}

#[rustfmt::skip]
const SHORT: &[Names] = &[
    names(Form::Share, 0.01, pairs!("sys sys.cpu_system")),
    names(Form::Rate, 1.0, pairs!("inter sys.intr  ctxsw sys.ctxt")),
];

/// `#cpu sys inter  ctxsw …`, with `Time` or `Date Time` before; how many words of time there are.
fn plain_header(line: &[u8]) -> Option<(usize, Wide)> {
    let list: Vec<&[u8]> = words(line.strip_prefix(b"#")?).collect();
    let times = list.iter().take_while(|w| matches!(**w, b"Time" | b"Date")).count();
    let names = list.get(times..)?;
    let is_one = names.starts_with(&[&b"cpu"[..], b"sys", b"inter", b"ctxsw"]);
    is_one.then(|| (times, Wide { cells: names.iter().map(|name| find(SHORT, name, b"")).collect() }))
}

/// What stands above the header: a line about the wait, and the subsystems.
fn is_above(line: &[u8]) -> bool {
    (line.starts_with(b"waiting for ") && line.ends_with(b" sample..."))
        || (line.starts_with(b"#") && has(line, b"<---") && has(line, b"CPU"))
}

fn plain_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is = |line: &[u8]| plain_header(line).is_some();
    lines.at(is) || (lines.at(is_above) && lines.soon(2, is))
}

fn plain(lines: &mut Lines<'_>, import: &mut Import) {
    while lines.at(is_above) {
        lines.advance();
    }
    let Some((mut times, mut wide)) = lines.peek().and_then(plain_header) else { return };
    let mut sink = Sink::default();
    lines.advance();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if line.starts_with(b"#") {
            if let Some(found) = plain_header(line) {
                (times, wide) = found;
            }
            return Took::Yes;
        }
        let list: Vec<&[u8]> = words(line).collect();
        let numbers = list.get(times..).unwrap_or_default();
        let is_row = numbers.len() == wide.cells.len() && numbers.iter().all(|w| with_suffix(w).is_some());
        if !is_row {
            return Took::No;
        }
        let when = match list.get(..times) {
            Some([clock]) => clock::time_of_day(clock).map(When::Clock),
            Some([day, clock]) => compact_date(day)
                .or_else(|| clock::date(day))
                .zip(clock::time_of_day(clock))
                .map(|(day, clock)| When::At(day * DAY + clock)),
            _ => None,
        };
        let when = when.unwrap_or_else(|| step(import));
        wide.row(numbers.iter().copied(), (when, at, false), &mut sink, import);
        Took::Yes
    });
}
