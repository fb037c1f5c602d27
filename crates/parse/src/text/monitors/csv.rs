//! CSV of `dstat` and `dool`, and of `pmrep -o csv`.
//!
//! ```text
//! "Dool 1.3.1 CSV output"
//! "Host:","web-17",,,,"User:","root"
//! "Cmdline:","dool --output x.csv -tcdn 1",,,,"Date:","27 Nov 2026 23:10:01 UTC"
//!
//! "system","total cpu usage",,,,,"dsk/vda",,"net/eth0",
//! "time","usr","sys","idl","wai","stl","read","writ","recv","send"
//! 27-11 23:10:02,1.5,0.5,97.0,1.0,0,4096,8192,120,90
//! ```
//! ```text
//! Time,"kernel.all.intr","disk.dev.read-vda","mem.util.free"
//! 2026-11-27 23:10:01,1024.5,12.0,270568
//! ```

use super::pcp_names;
use super::wide::{Cell, Names, Wide, cells, find, names, time};
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// `dstat` and `dool`.
pub const DSTAT: Format = Format::new(
    "dstat CSV",
    "`dstat --output`, `dool --output`: CPUs, disks, interfaces, memory, processes",
    dstat_starts,
    dstat,
);
/// `pmrep -o csv`.
pub const PMREP: Format = Format::new(
    "pmrep CSV",
    "`pmrep -o csv` of PCP: metrics of the kernel under their names",
    |lines, _| lines.peek().and_then(pmrep_header).is_some(),
    pmrep,
);

/// Lines between the title of `dstat` and its columns.
const TITLE_LINES: usize = 12;

/// Columns by the name of the group and their own, with a slash between.
#[rustfmt::skip]
const MACHINE: &[Names] = &[
    names(Form::Share, 0.01, pairs!(
        "total_cpu_usage/usr sys.cpu_user  total_cpu_usage/sys sys.cpu_system  total_cpu_usage/idl sys.cpu_idle
         total_cpu_usage/wai sys.cpu_iowait  total_cpu_usage/stl sys.cpu_steal  total_cpu_usage/hiq sys.cpu_irq
         total_cpu_usage/siq sys.cpu_softirq  total_usage/usr sys.cpu_user  total_usage/sys sys.cpu_system
         total_usage/idl sys.cpu_idle  total_usage/wai sys.cpu_iowait  total_usage/stl sys.cpu_steal"
    )),
    names(Form::Level, 1.0, pairs!(
        "load_avg/1m sys.load1  load_avg/5m sys.load5  load_avg/15m sys.load15
         memory_usage/used mem.used  memory_usage/free mem.free  memory_usage/buff mem.buffers
         memory_usage/cach mem.cached  memory_usage/avai mem.available  swap/free mem.swap_free
         procs/run sys.procs_running  procs/blk sys.procs_blocked  filesystem/files files.nr  filesystem/inodes inode.nr
         tcp_sockets/lis sock.tcp_listen  tcp_sockets/act sock.tcp_established  tcp_sockets/syn sock.tcp_syn_sent
         tcp_sockets/tim sock.tcp_tw  sockets/tot sock.used  sockets/tcp sock.tcp_inuse  sockets/udp sock.udp_inuse"
    )),
    names(Form::Rate, 1.0, pairs!(
        "system/int sys.intr  system/csw sys.ctxt  procs/new sys.forks  virtual_memory/majpf vm.pgmajfault
         virtual_memory/minpf vm.pgfault  virtual_memory/free vm.pgfree"
    )),
];
#[rustfmt::skip]
const DISK: &[Names] = &[
    names(Form::Rate, 1.0, pairs!("dsk/read disk.read_bytes  dsk/writ disk.write_bytes  io/read disk.reads  io/writ disk.writes")),
    names(Form::Rate, 0.01, pairs!("/util disk.io_time")),
];
const CPU: &[Names] = &[names(
    Form::Rate,
    0.01,
    pairs!(
        "usr cpu.user  sys cpu.system  idl cpu.idle  wai cpu.iowait  stl cpu.steal  hiq cpu.irq  siq cpu.softirq"
    ),
)];
const NIC: &[Names] = &[names(Form::Rate, 1.0, pairs!("recv nic.rx_bytes  send nic.tx_bytes"))];

fn dstat_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let title = |line: &[u8]| {
        let line = line.strip_prefix(b"\"").unwrap_or(line);
        begins(line, &[b"Dstat ", b"Dool ", b"pcp-dstat "]) && has(line, b"CSV")
    };
    lines.at(title) || (lines.at(is_groups) && lines.soon(1, is_names))
}

/// `"total cpu usage",,,,,"dsk/total",`.
fn is_groups(line: &[u8]) -> bool {
    line.starts_with(b"\"")
        && cells(line).iter().any(|cell| {
            matches!(
                *cell,
                b"total cpu usage" | b"total usage" | b"memory usage" | b"load avg" | b"procs" | b"system"
            ) || begins(cell, &[b"dsk/", b"net/", b"io/"])
        })
}

fn is_names(line: &[u8]) -> bool {
    line.starts_with(b"\"") && cells(line).iter().all(|cell| number(cell).is_none() || cell.len() < 3)
}

/// The cell of a column below a group.
fn dstat_cell(group: &[u8], name: &[u8]) -> Option<Cell> {
    // Of single CPUs the names repeat the group: `cpu0 usage:usr`.
    let name = name.rsplit(|b| *b == b':').next().unwrap_or(name);
    let key = [group, b"/", name].concat();
    if let Some((kind, row)) = group.iter().position(|b| *b == b'/').and_then(|at| group.split_at_checked(at))
    {
        let row = row.get(1..)?;
        // The sum over all devices has no metric: a device and its partitions would count twice.
        if row == b"total" {
            return None;
        }
        return match kind {
            b"dsk" | b"io" => find(DISK, &[kind, b"/", name].concat(), row),
            b"net" => find(NIC, name, row),
            _ => None,
        };
    }
    if let Some(cpu) = group.strip_prefix(b"cpu").and_then(|rest| rest.strip_suffix(b" usage")) {
        integer(cpu)?;
        return find(CPU, name, cpu);
    }
    find(MACHINE, &key, b"")
}

fn dstat(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sink = Sink::default();
    let (mut wide, mut time_at) = (Wide::default(), None);
    let (mut groups, mut first, mut title) = (Vec::new(), true, 0);
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        let list = cells(line);
        if !groups.is_empty() {
            wide.cells = columns(&groups, &list);
            time_at = list.iter().position(|name| matches!(*name, b"time" | b"date/time" | b"epoch"));
            groups.clear();
            first = true;
            return Took::Yes;
        }
        if is_groups(line) {
            groups = list.into_iter().map(<[u8]>::to_vec).collect();
            return Took::Yes;
        }
        if wide.cells.is_empty() {
            title += 1;
            date(&list, import);
            return if title <= TITLE_LINES { Took::Yes } else { Took::No };
        }
        let fits = list.len() >= wide.cells.len()
            && list
                .iter()
                .enumerate()
                .all(|(i, c)| Some(i) == time_at || c.is_empty() || leading(c).is_some());
        if !fits {
            return Took::unread_if(lines.soon(1, |line| cells(line).len() == wide.cells.len()));
        }
        let when = time_at.and_then(|i| list.get(i)).and_then(|cell| stamp(cell, import));
        let when = when.unwrap_or_else(|| step(import));
        // The first row is of the time since boot.
        wide.row(list.into_iter(), (when, at, first), &mut sink, import);
        first = false;
        Took::Yes
    });
}

/// A row without a time is one interval after the row before it.
pub(super) fn step(import: &mut Import) -> When {
    let n = import.context.step;
    import.context.step = n.saturating_add(1);
    When::Step(n)
}

fn columns(groups: &[Vec<u8>], list: &[&[u8]]) -> Vec<Option<Cell>> {
    let mut group: &[u8] = b"";
    list.iter()
        .enumerate()
        .map(|(i, name)| {
            group = groups.get(i).map(Vec::as_slice).filter(|g| !g.is_empty()).unwrap_or(group);
            dstat_cell(group, name)
        })
        .collect()
}

/// `"Date:","27 Nov 2026 23:10:01 UTC"`, `"Host:","web-17"`.
fn date(list: &[&[u8]], import: &mut Import) {
    for pair in list.windows(2) {
        let [key, value] = pair else { continue };
        let mut parts = words(value);
        match *key {
            b"Date:" => {
                let day = parts.next().and_then(integer).and_then(|d| u32::try_from(d).ok());
                let month = parts.next().and_then(clock::month);
                let year = parts.next().and_then(integer).and_then(|y| i64::try_from(y).ok());
                if let (Some(day), Some(month), Some(year)) = (day, month, year) {
                    import.context.date = clock::days(year, month, day).or(import.context.date);
                }
            }
            b"Host:" if import.host.hostname.is_empty() => import.host.hostname = text(value),
            b"Cmdline:" => {
                let delay = parts.filter_map(number).find(|n| *n >= 1.0);
                import.context.interval_s = delay.or(import.context.interval_s);
            }
            _ => {}
        }
    }
}

/// `27-11 23:10:02`, `Nov-27 23:10:02`, or what [`time`] knows.
fn stamp(cell: &[u8], import: &Import) -> Option<When> {
    if let Some(found) = time(cell).filter(|found| matches!(found, When::At(_))) {
        return Some(found);
    }
    let mut list = words(cell);
    let day = list.next()?;
    let clock = clock::time_of_day(list.next()?)?;
    let dash = memchr::memchr(b'-', day)?;
    let (a, b) = (day.get(..dash)?, day.get(dash + 1..)?);
    let small = |w: &[u8]| integer(w).and_then(|n| u32::try_from(n).ok());
    let (day, month) = match clock::month(a) {
        Some(month) => (small(b)?, month),
        None => (small(a)?, small(b)?),
    };
    let known = import.context.date?;
    // The year is that of the header; a night at its end has the next one.
    let year = 1970 + (known as f64 / 365.2425) as i64;
    let near = |year| clock::days(year, month, day).filter(|d| (d - known).abs() <= 180);
    Some(When::At([year - 1, year, year + 1].into_iter().find_map(near)? * DAY + clock))
}

/// The columns behind `Time`.
fn pmrep_header(line: &[u8]) -> Option<Wide> {
    let rest = line.strip_prefix(b"Time,").or_else(|| line.strip_prefix(b"\"Time\","))?;
    let wide = Wide { cells: cells(rest).into_iter().map(pcp_names::cell).collect() };
    let is_dotted = cells(rest).iter().all(|name| name.contains(&b'.'));
    (is_dotted && wide.is_known()).then_some(wide)
}

fn pmrep(lines: &mut Lines<'_>, import: &mut Import) {
    let Some(wide) = lines.peek().and_then(pmrep_header) else { return };
    lines.advance();
    timed(lines, import, &wide, 0);
}

/// Rows whose first cell is a time, with numbers behind it.
fn timed(lines: &mut Lines<'_>, import: &mut Import, wide: &Wide, time_at: usize) {
    let mut sink = Sink::default();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        // Another recording, whose columns are others.
        if pmrep_header(line).is_some() {
            return Took::No;
        }
        let list = cells(line);
        let behind = list.len().saturating_sub(time_at + 1);
        let when = list.get(time_at).and_then(|cell| time(cell));
        let Some(when) = when.filter(|_| behind == wide.cells.len()) else {
            return Took::unread_if(lines.soon(1, |line| cells(line).len() == wide.cells.len() + 1));
        };
        // With `-r` counters are as the kernel has them, and are printed without a point; a rate has one, unless `-P 0` takes it.
        let is_raw = |cell: &Option<Cell>, word: &[u8]| {
            cell.as_ref().is_some_and(|cell| cell.form == Form::Rate) && !word.contains(&b'.')
        };
        let row = list.into_iter().skip(time_at + 1).zip(&wide.cells);
        let row = row.map(|(word, cell)| if is_raw(cell, word) { &b""[..] } else { word });
        wide.row(row, (when, at, false), &mut sink, import);
        Took::Yes
    });
}
