//! Recordings of `nmon -f`: a section for each kind of numbers, whose first line names the columns, and one row of each
//! section for a snapshot.
//!
//! ```text
//! AAA,host,web-17
//! AAA,interval,1
//! CPU_ALL,CPU Total web-17,User%,Sys%,Wait%,Idle%,Steal%,Busy,CPUs
//! DISKREAD,Disk Read KB/s web-17,vda,vda1
//! ZZZZ,T0001,23:10:01,27-NOV-2026
//! CPU_ALL,T0001,1.5,0.5,1.0,97.0,0.0,,2
//! DISKREAD,T0001,4.0,4.0
//! ```

use std::collections::HashMap;

use super::wide::{Cell, KIB, MIB, Names, Wide, find, names};
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// See the module.
pub const FORMAT: Format = Format::new(
    "nmon",
    "recordings of `nmon -f`: CPUs, memory, disks, interfaces, processes",
    |lines, _| {
        lines.at(|line| begins(line, &[b"AAA,progname,", b"AAA,command,", b"AAA,version,", b"AAA,host,"]))
    },
    read,
);

/// Sections of one recording; there are some for each CPU.
const SECTIONS_MAX: usize = 8192;

#[rustfmt::skip]
const MACHINE: &[Names] = &[
    names(Form::Share, 0.01, pairs!(
        "CPU_ALL/User% sys.cpu_user  CPU_ALL/Sys% sys.cpu_system  CPU_ALL/Wait% sys.cpu_iowait
         CPU_ALL/Idle% sys.cpu_idle  CPU_ALL/Steal% sys.cpu_steal"
    )),
    names(Form::Level, MIB, pairs!(
        "MEM/memtotal mem.total  MEM/memfree mem.free  MEM/cached mem.cached  MEM/buffers mem.buffers
         MEM/active mem.active  MEM/inactive mem.inactive  MEM/swaptotal mem.swap_total  MEM/swapfree mem.swap_free
         MEM/swapcached mem.swap_cached"
    )),
    names(Form::Level, 1.0, pairs!("PROC/Runnable sys.procs_running  PROC/Blocked sys.procs_blocked")),
    names(Form::Rate, 1.0, pairs!("PROC/pswitch sys.ctxt  PROC/fork sys.forks")),
];
const CPU: &[Names] = &[names(
    Form::Rate,
    0.01,
    pairs!("User% cpu.user  Sys% cpu.system  Wait% cpu.iowait  Idle% cpu.idle  Steal% cpu.steal"),
)];
/// Sections with a column for each disk.
const DISKS: &[Names] = &[
    names(Form::Rate, 0.01, pairs!("DISKBUSY disk.io_time")),
    names(Form::Rate, KIB, pairs!("DISKREAD disk.read_bytes  DISKWRITE disk.write_bytes")),
    names(Form::Rate, 1.0, pairs!("DISKXFER disk.transfers")),
];
/// Ends of names of interfaces.
const NICS: &[Names] = &[
    names(Form::Rate, KIB, pairs!("-read-KB/s nic.rx_bytes  -write-KB/s nic.tx_bytes")),
    names(Form::Rate, 1.0, pairs!("-read/s nic.rx_packets  -write/s nic.tx_packets")),
];
/// Columns of processes.
const TASKS: &[Names] = &[
    names(Form::Rate, 0.01, pairs!("%CPU task.cpu_time  %Usr task.user_time  %Sys task.system_time")),
    names(Form::Level, KIB, pairs!("ResSet task.rss  Size task.vsize")),
    names(Form::Rate, 1.0, pairs!("MinorFault task.minflt  MajorFault task.majflt")),
];

/// The cell of a column of a section.
fn cell(section: &[u8], name: &[u8]) -> Option<Cell> {
    let digits = section.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (plain, number) = section.split_at_checked(section.len() - digits)?;
    match plain {
        b"CPU" if digits > 0 => {
            // Counted from 1.
            let cpu = integer(number)?.checked_sub(1)?.to_string();
            find(CPU, name, cpu.as_bytes())
        }
        // More disks than fit have sections with a number.
        b"DISKBUSY" | b"DISKREAD" | b"DISKWRITE" | b"DISKXFER" => find(DISKS, plain, name),
        b"NET" | b"NETPACKET" => {
            let ends = [&b"-read-KB/s"[..], b"-write-KB/s", b"-read/s", b"-write/s"];
            let end = ends.iter().find(|end| name.ends_with(end))?;
            find(NICS, end, name.strip_suffix(*end)?)
        }
        _ => find(MACHINE, &[section, b"/", name].concat(), b""),
    }
}

#[derive(Default)]
struct Reader {
    sections: HashMap<Vec<u8>, Wide>,
    /// Columns of processes, behind the id and the snapshot.
    tasks: Vec<Option<(&'static Names, &'static str)>>,
    when: Option<When>,
    sink: Sink,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader = Reader::default();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        let list: Vec<&[u8]> = line.split(|b| *b == b',').collect();
        let (Some(section), Some(second)) = (list.first().copied(), list.get(1).copied()) else {
            return Took::unread_if(
                lines.soon(3, |l| begins(l, &[b"ZZZZ,", b"CPU", b"AAA,", b"BBB", b"TOP,"])),
            );
        };
        if !section.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_') {
            return Took::No;
        }
        let is_snapshot = |w: &[u8]| w.strip_prefix(b"T").and_then(integer).is_some() && w.len() >= 4;
        match section {
            b"AAA" => fact(second, list.get(2).copied().unwrap_or_default(), import),
            b"ZZZZ" => reader.when = snapshot(&list),
            b"TOP" if list.get(2).is_some_and(|w| is_snapshot(w)) => reader.task(&list, at, import),
            b"TOP" => reader.tasks = list.iter().skip(3).map(|name| task_column(name)).collect(),
            _ if is_snapshot(second) => {
                if let (Some(when), Some(wide)) = (reader.when, reader.sections.get(section)) {
                    // Of processes the first snapshot has no interval: what was counted in it is zero.
                    let only_levels = section == b"PROC" && second == b"T0001";
                    wide.row(list.into_iter().skip(2), (when, at, only_levels), &mut reader.sink, import);
                }
            }
            _ if reader.sections.len() < SECTIONS_MAX && !section.starts_with(b"BBB") => {
                let cells = list.iter().skip(2).map(|name| cell(section, name.trim_ascii())).collect();
                reader.sections.insert(section.to_vec(), Wide { cells });
            }
            _ => {}
        }
        Took::Yes
    });
}

fn fact(key: &[u8], value: &[u8], import: &mut Import) {
    match key {
        b"host" if import.host.hostname.is_empty() => import.host.hostname = text(value),
        b"cpus" => {
            let cpus = integer(value).filter(|n| (1..=65_536).contains(n)).unwrap_or(0);
            import.host.cpus = import.host.cpus.max(cpus as u32);
        }
        _ => {}
    }
}

/// `ZZZZ,T0001,23:10:01,27-NOV-2026`.
fn snapshot(list: &[&[u8]]) -> Option<When> {
    let clock = clock::time_of_day(list.get(2)?)?;
    let mut date = list.get(3)?.split(|b| *b == b'-');
    let day = u32::try_from(integer(date.next()?)?).ok()?;
    let name = date.next()?.to_ascii_lowercase();
    let capital = [&name.get(..1)?.to_ascii_uppercase()[..], name.get(1..)?].concat();
    let month = clock::month(&capital)?;
    let year = i64::try_from(integer(date.next()?)?).ok()?;
    Some(When::At(clock::days(year, month, day)? * DAY + clock))
}

fn task_column(name: &[u8]) -> Option<(&'static Names, &'static str)> {
    TASKS.iter().find_map(|table| Some((table, find_pair(table.names, name)?)))
}

impl Reader {
    /// `TOP,0004242,T0002,20.0,15.0,5.0,27856,23552,…,java`.
    fn task(&mut self, list: &[&[u8]], at: u32, import: &mut Import) {
        let pid = list.get(1).and_then(|w| integer(w)).and_then(|n| u32::try_from(n).ok());
        // The command is the fourteenth; with `-T` the whole command line stands behind it.
        let command = list.get(13).copied().unwrap_or_default();
        let (Some(pid), Some(when)) = (pid, self.when) else { return import.unread(at, &list.join(&b',')) };
        let row = import.task(pid, &text(command.get(..15).unwrap_or(command)));
        for (column, word) in self.tasks.iter().zip(list.iter().skip(3)) {
            let (Some((table, metric)), Some(value)) = (column, number(word)) else { continue };
            if let Some(cell) = Cell::new(metric, table.form, table.factor, row.as_bytes()) {
                cell.put(value, when, at, &mut self.sink, import);
            }
        }
    }
}
