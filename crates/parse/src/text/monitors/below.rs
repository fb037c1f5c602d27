//! `below dump system`, `process`, `cgroup`, `disk` and `iface`, with `-O csv`, `tsv` or `json`.
//!
//! ```text
//! Datetime,Usage,User,System,Total,Free,Page In,Running Procs,Timestamp,
//! 2026-11-28 16:22:33,12.50%,10.00%,2.50%,23.5 GB,1.2 GB,3.0 MB/s,2,1795882953,
//! ```
//!
//! `CPU Pressure` is of the kind `some` in old versions and `full` in new ones, and is left out. With `--raw` sizes are bytes and nothing has a unit. Columns are known by their titles; what a file is about by the
//! title that names its rows. `Irq` of below is what its `IOWait` is, and is left out.

use super::wide::{Cell, KIB, MIB, Names, cells, find, names, time};
use crate::text::json::{Token, tokens};
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;
use std::ops::ControlFlow;

/// CSV and TSV.
pub const CSV: Format = Format::new(
    "below dump",
    "the machine, processes, cgroups, disks and interfaces, of `below dump … -O csv`",
    |lines, _| lines.peek().and_then(header).is_some(),
    csv,
);
/// JSON.
pub const JSON: Format =
    Format::new("below dump -O json", "the same as JSON", |lines, _| lines.at(is_json), json);

/// What the rows of a dump are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    System,
    Process,
    Cgroup,
    Disk,
    Nic,
}

const GIB: f64 = 1024.0 * MIB;
/// More columns than any dump has.
const COLUMNS_MAX: usize = 512;
/// Objects of one JSON text within each other: cgroups have their children in them.
const DEPTH_MAX: usize = 64;

#[rustfmt::skip]
const SYSTEM: &[Names] = &[
    names(Form::Share, 0.01, pairs!(
        "User sys.cpu_user  System sys.cpu_system  Idle sys.cpu_idle  Nice sys.cpu_nice  IOWait sys.cpu_iowait
         SoftIrq sys.cpu_softirq  Stolen sys.cpu_steal  Guest sys.cpu_guest  Guest_Nice sys.cpu_guest_nice"
    )),
    names(Form::Level, 1.0, pairs!(
        "Total mem.total  Free mem.free  Available mem.available  Buffers mem.buffers  Cached mem.cached
         Swap_Cached mem.swap_cached  Active mem.active  Inactive mem.inactive  Mlocked mem.mlocked
         Unevictable mem.unevictable  Swap_Total mem.swap_total  Swap_Free mem.swap_free  Dirty mem.dirty
         Writeback mem.writeback  Anon_Pages mem.anon  Mapped mem.mapped  Shmem mem.shmem  Slab mem.slab
         Slab_Reclaimable mem.sreclaimable  Slab_Unreclaimable mem.sunreclaim  Kernel_Stack mem.kernel_stack
         Page_Tables mem.page_tables  Running_Procs sys.procs_running  Blocked_Procs sys.procs_blocked"
    )),
    names(Form::Rate, 1.0, pairs!(
        "Pgsteal_Kswapd vm.pgsteal_kswapd  Pgsteal_Direct vm.pgsteal_direct  Pgscan_Kswapd vm.pgscan_kswapd
         Pgscan_Direct vm.pgscan_direct"
    )),
    names(Form::Total, 1.0, pairs!(
        "Total_Interrupts sys.intr  Context_Switches sys.ctxt  Total_Procs sys.forks  OOM_Kills vm.oom_kill"
    )),
];
#[rustfmt::skip]
const PROCESS: &[Names] = &[
    names(Form::Rate, 0.01, pairs!("CPU task.cpu_time  User_CPU task.user_time  Sys_CPU task.system_time")),
    names(Form::Rate, 1.0, pairs!("Minflt task.minflt  Majflt task.majflt  Reads task.read_bytes  Writes task.write_bytes")),
    names(Form::Level, 1.0, pairs!("Threads task.threads  RSS task.rss  VM_Size task.vsize")),
];
#[rustfmt::skip]
const CGROUP: &[Names] = &[
    names(Form::Rate, 0.01, pairs!(
        "CPU_Usage cgroup.cpu_usage  Throttled_Pct cgroup.throttled_time  CPU_Some_Pressure cgroup.psi_cpu_some
         I/O_Some_Pressure cgroup.psi_io_some  I/O_Pressure cgroup.psi_io_full
         Mem_Some_Pressure cgroup.psi_memory_some  Mem_Pressure cgroup.psi_memory_full"
    )),
    names(Form::Rate, 1.0, pairs!(
        "Nr_Throttled cgroup.nr_throttled  RBytes cgroup.io_read_bytes  WBytes cgroup.io_write_bytes
         R_I/O cgroup.io_reads  W_I/O cgroup.io_writes  Pgfault cgroup.pgfault  Pgmajfault cgroup.pgmajfault
         Workingset_Refault_Anon cgroup.refault_anon  Workingset_Refault_File cgroup.refault_file
         Pgscan cgroup.pgscan  Pgsteal cgroup.pgsteal"
    )),
    names(Form::Level, 1.0, pairs!(
        "Mem_Total cgroup.memory_current  Mem_Swap cgroup.swap_current  Mem_Anon cgroup.anon  Mem_File cgroup.file
         Mem_Slab cgroup.slab  Mem_Sock cgroup.sock  Mem_Shmem cgroup.shmem  File_Dirty cgroup.dirty
         File_WB cgroup.writeback  Kernel_Stack cgroup.kernel_stack  Active_File cgroup.active_file
         Inactive_File cgroup.inactive_file  Active_Anon cgroup.active_anon  Inactive_Anon cgroup.inactive_anon"
    )),
];
#[rustfmt::skip]
const DISK: &[Names] = &[
    names(Form::Rate, 1.0, pairs!("Read disk.read_bytes  Write disk.write_bytes  Discard disk.discard_bytes")),
    names(Form::Total, 1.0, pairs!(
        "Read_Completed disk.reads  Read_Merged disk.read_merges  Write_Completed disk.writes
         Write_Merged disk.write_merges  Discard_Completed disk.discards  Discard_Merged disk.discard_merges"
    )),
    names(Form::Total, 1e-3, pairs!(
        "Time_Spend_Read disk.read_time  Time_Spend_Write disk.write_time  Time_Spend_Discard disk.discard_time"
    )),
];
#[rustfmt::skip]
const NIC: &[Names] = &[
    names(Form::Rate, 1.0, pairs!(
        "RX_Bytes/s nic.rx_bytes  TX_Bytes/s nic.tx_bytes  RX_Pkts/s nic.rx_packets  TX_Pkts/s nic.tx_packets"
    )),
    names(Form::Total, 1.0, pairs!(
        "RX_Errors nic.rx_errs  TX_Errors nic.tx_errs  TX_Dropped nic.tx_drop  Collisions nic.tx_colls
         Multicast nic.rx_multicast"
    )),
];

impl Kind {
    fn tables(self) -> &'static [Names] {
        match self {
            Kind::System => SYSTEM,
            Kind::Process => PROCESS,
            Kind::Cgroup => CGROUP,
            Kind::Disk => DISK,
            Kind::Nic => NIC,
        }
    }

    /// The kind by the titles. A dump has a time, and titles that no other tool has together.
    fn of<'a>(titles: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Kind> {
        let has = |title: &[u8]| titles.clone().any(|t| t == title);
        if !has(b"Timestamp") && !has(b"Datetime") {
            return None;
        }
        let any = |list: &[&[u8]]| list.iter().any(|title| has(title));
        let kind = if has(b"Pid") && has(b"Comm") {
            Kind::Process
        } else if has(b"Interface") && any(&[b"RX Bytes/s", b"RX Pkts/s"]) {
            Kind::Nic
        } else if has(b"Name") && any(&[b"Read Completed", b"Time Spend Read", b"Disk"]) {
            Kind::Disk
        } else if (has(b"Name") || has(b"Full Path")) && any(&[b"CPU Usage", b"Mem Total"]) {
            Kind::Cgroup
        } else if any(&[b"Usage", b"Page In", b"Total Interrupts", b"Running Procs"]) && !has(b"Name") {
            Kind::System
        } else {
            return None;
        };
        Some(kind)
    }
}

/// The kind of a header, and what is between its titles. Each title has a separator behind it, the last one too.
fn header(line: &[u8]) -> Option<(Kind, u8)> {
    let separator = *line.last().filter(|b| matches!(b, b',' | b'\t'))?;
    Some((Kind::of(split(line, separator))?, separator))
}

fn split(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(move |b| *b == separator).take(COLUMNS_MAX).map(<[u8]>::trim_ascii)
}

/// A printed number: `12.50%`, `1.2 GB`, `3.0 MB/s`, `120 pages/s`, `15 ms`, or with `--raw` the number alone. Sizes are
/// powers of 1024, whatever they are called.
fn value(cell: &[u8]) -> Option<f64> {
    let (number, rest) = leading(cell.trim_ascii())?;
    let unit = rest.trim_ascii();
    let unit = unit.strip_suffix(b"/s").unwrap_or(unit);
    let factor = match unit {
        b"" | b"%" | b"B" | b"ms" | b"pages" | b"pkts" | b"segs" => 1.0,
        b"KB" | b"KiB" | b"K" => KIB,
        b"MB" | b"MiB" | b"M" => MIB,
        b"GB" | b"GiB" | b"G" => GIB,
        b"TB" | b"TiB" | b"T" => 1024.0 * GIB,
        _ => return None,
    };
    Some(number * factor).filter(|value| *value >= 0.0)
}

/// A row, by title. Which row it is and when it was stand in it.
fn row<'a>(
    kind: Kind,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    at: u32,
    sink: &mut Sink,
    import: &mut Import,
) -> bool {
    let cell = |title: &[u8]| pairs.clone().find(|(t, _)| *t == title).map(|(_, cell)| cell);
    let stamp = cell(b"Timestamp").and_then(number).filter(|s| (1e9..4e9).contains(s));
    let stamp = stamp.map(|s| When::At((s * SECOND as f64) as i64));
    let Some(when) = stamp.or_else(|| cell(b"Datetime").and_then(time)) else { return false };
    let name: Vec<u8> = match kind {
        Kind::System => Vec::new(),
        Kind::Process => {
            let Some(pid) = cell(b"Pid").and_then(integer).and_then(|p| u32::try_from(p).ok()) else {
                return false;
            };
            let comm = text(cell(b"Comm").unwrap_or_default());
            import.task(pid, &comm).into_bytes()
        }
        Kind::Cgroup => cell(b"Full Path").or_else(|| cell(b"Name")).unwrap_or_default().to_vec(),
        Kind::Disk => cell(b"Name").unwrap_or_default().to_vec(),
        Kind::Nic => cell(b"Interface").unwrap_or_default().to_vec(),
    };
    if name.is_empty() && kind != Kind::System {
        return false;
    }
    for (title, printed) in pairs {
        let known = cpu_of(title).filter(|_| kind == Kind::System).map_or_else(
            || find(kind.tables(), title, &name),
            |(cpu, time)| {
                let metric = find(SYSTEM, time, b"")?.metric.name.strip_prefix("sys.cpu_")?;
                Cell::new(&format!("cpu.{metric}"), Form::Rate, 0.01, cpu)
            },
        );
        if let (Some(known), Some(value)) = (known, value(printed)) {
            known.put(value, when, at, sink, import);
        }
    }
    true
}

/// `CPU 31 User`: the CPU and its time.
fn cpu_of(title: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut list = words(title.strip_prefix(b"CPU ")?);
    let cpu = list.next().filter(|cpu| integer(cpu).is_some())?;
    Some((cpu, list.rest()))
}

fn csv(lines: &mut Lines<'_>, import: &mut Import) {
    let Some((mut kind, mut separator)) = lines.peek().and_then(header) else { return };
    let mut sink = Sink::default();
    let mut titles: Vec<Vec<u8>> = Vec::new();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(found) = header(line) {
            (kind, separator) = found;
            titles = split(line, separator).map(<[u8]>::to_vec).collect();
            return Took::Yes;
        }
        // Between commas a text may be quoted.
        let list = if separator == b',' { cells(line) } else { split(line, separator).collect() };
        if list.len() != titles.len() {
            return Took::No;
        }
        let pairs = titles.iter().map(Vec::as_slice).zip(list.iter().copied());
        if row(kind, pairs, at, &mut sink, import) { Took::Yes } else { Took::Unread }
    });
}

/// An object with a time and a title that only below has; a dump of several rows is an array of them.
fn is_json(line: &[u8]) -> bool {
    begins(line, &[b"{", b"[{"]) && {
        let mut keys: Vec<&[u8]> = Vec::new();
        tokens(line, |token| match token {
            Token::Key(key) if keys.len() < COLUMNS_MAX => {
                keys.push(key);
                ControlFlow::Continue(())
            }
            Token::Close { .. } | Token::Damage | Token::Key(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        Kind::of(keys.into_iter()).is_some()
    }
}

fn json(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sink = Sink::default();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if line.trim_ascii().is_empty() || line.trim_ascii() == b"]" {
            return Took::Yes;
        }
        // The values are texts. A cgroup has an array of its children in it, below its own titles.
        let mut open: Vec<Vec<(&[u8], &[u8])>> = Vec::new();
        let (mut key, mut good, mut any) = (&b""[..], true, false);
        tokens(line, |token| {
            match token {
                Token::Open { is_array: false } if open.len() < DEPTH_MAX => open.push(Vec::new()),
                Token::Open { is_array: false } | Token::Damage => {
                    good = false;
                    return ControlFlow::Break(());
                }
                Token::Key(name) => key = name,
                Token::Text(text) => {
                    if let Some(pairs) = open.last_mut().filter(|pairs| pairs.len() < COLUMNS_MAX) {
                        pairs.push((key, text));
                    }
                }
                Token::Close { is_array: false } => {
                    if let Some(pairs) = open.pop() {
                        let kind = Kind::of(pairs.iter().map(|(title, _)| *title));
                        any |=
                            kind.is_some_and(|kind| row(kind, pairs.iter().copied(), at, &mut sink, import));
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        match (any, good) {
            (true, true) => Took::Yes,
            (true, false) => Took::Unread,
            (false, _) => Took::No,
        }
    });
}
