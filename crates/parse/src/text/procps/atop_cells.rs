//! The lines of the upper part of an atop screen: a label, and cells of a key and a value between bars.

use crate::text::import::Form;
use crate::text::number::{leading, text, with_suffix, words};

use super::common::PAGE;

/// Labels of lines that have metrics, and of those that are passed over.
const LABELS: &[&[u8]] = &[
    b"PRC", b"CPU", b"cpu", b"CPL", b"GPU", b"MEM", b"SWP", b"LLC", b"NUM", b"NUC", b"PAG", b"PSI", b"LVM",
    b"MDD", b"DSK", b"NFM", b"NFC", b"NFS", b"NET", b"IFB", b"CSW",
];

/// The label of a line.
pub fn label(line: &[u8]) -> Option<&[u8]> {
    let mut list = words(line);
    let label = list.next().filter(|l| LABELS.contains(l))?;
    (list.next() == Some(b"|") && list.next().is_some()).then_some(label)
}

/// One cell.
struct Cell<'a> {
    key: &'a [u8],
    /// The word of the number.
    word: &'a [u8],
    value: f64,
    /// What stands behind the number: `%`, `G`, `Kbps`.
    unit: &'a [u8],
}

fn cell(text: &[u8]) -> Option<Cell<'_>> {
    let mut list = words(text);
    let key = list.next()?;
    let mut word = list.next()?;
    // `cpu001 w  2%` has two words before the number.
    if leading(word).is_none() {
        word = list.next()?;
    }
    let (value, glued) = leading(word)?;
    let unit = if glued.is_empty() { list.next().unwrap_or(&[]) } else { glued };
    Some(Cell { key, word, value, unit })
}

/// A number that waits until it is known how long the interval was.
pub struct Reading {
    /// The metric.
    pub metric: &'static str,
    /// The row.
    pub row: String,
    /// A level, a rate, or what was counted in the interval.
    pub kind: Kind,
    /// In base units.
    pub value: f64,
    /// The line.
    pub line: u32,
}

/// See [`Reading`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A level.
    Level,
    /// A rate over the interval.
    Rate,
    /// A number of the interval.
    Count,
}

impl Kind {
    /// The form of the column.
    pub fn form(self) -> Form {
        if self == Kind::Level { Form::Level } else { Form::Rate }
    }
}

/// Reads the cells of a line. The number of CPUs is told if it is there. Whether the line had a bar at all.
pub fn read(line: &[u8], number: u32, out: &mut Vec<Reading>, cpus: &mut Option<u32>) {
    let Some(label) = label(line) else { return };
    let cells: Vec<&[u8]> = line.split(|b| *b == b'|').skip(1).map(<[u8]>::trim_ascii).collect();
    let row = match label {
        b"cpu" => cells.iter().find_map(|c| cpu_of(c)),
        b"LVM" | b"MDD" | b"DSK" | b"NET" => cells.first().and_then(|c| words(c).next()),
        _ => Some(&[][..]),
    };
    let Some(row) = row else { return };
    let is_layer = label == b"NET" && matches!(row, b"transport" | b"network");
    let row_name = if is_layer { String::new() } else { text(row) };
    let values: Vec<Cell<'_>> = cells.iter().filter_map(|c| cell(c)).collect();
    for cell in &values {
        if label == b"CPL" && cell.key == b"numcpu" && cell.value >= 1.0 && cell.value <= 65_536.0 {
            *cpus = Some(cell.value as u32);
        }
        let Some((metric, kind, factor)) = metric(label, is_layer, cell) else { continue };
        let value = match (label, kind) {
            (b"MEM" | b"SWP", _) => with_suffix(cell.word),
            // `13760e3`, `206 Kbps`: the number alone.
            _ => Some(cell.value),
        };
        if let Some(value) = value.filter(|v| *v >= 0.0) {
            out.push(Reading { metric, row: row_name.clone(), kind, value: value * factor, line: number });
        }
    }
}

/// `cpu001 w  2%`: the number without zeros before it.
fn cpu_of(cell: &[u8]) -> Option<&[u8]> {
    let digits = words(cell).next()?.strip_prefix(b"cpu")?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|b| **b == b'0').count().min(digits.len() - 1);
    digits.get(zeros..)
}

type Spec = (&'static str, Kind, f64);

fn metric(label: &[u8], is_layer: bool, cell: &Cell<'_>) -> Option<Spec> {
    use Kind::{Count, Level};
    match label {
        b"CPU" | b"cpu" | b"PSI" => {
            if cell.unit != b"%" {
                return None;
            }
            Some((share(label, cell.key)?, Kind::Rate, 0.01))
        }
        b"CPL" => Some(match cell.key {
            b"avg1" => ("sys.load1", Level, 1.0),
            b"avg5" => ("sys.load5", Level, 1.0),
            b"avg15" => ("sys.load15", Level, 1.0),
            b"csw" => ("sys.ctxt", Count, 1.0),
            b"intr" => ("sys.intr", Count, 1.0),
            _ => return None,
        }),
        b"PRC" => Some(match cell.key {
            b"#trun" => ("tasks.running", Level, 1.0),
            b"#tslpu" => ("tasks.uninterruptible", Level, 1.0),
            _ => return None,
        }),
        b"MEM" | b"SWP" => Some((memory(label, cell.key)?, Level, 1.0)),
        b"PAG" => Some(match cell.key {
            b"scan" => ("vm.pgscan", Count, 1.0),
            b"stall" => ("vm.allocstall", Count, 1.0),
            b"compact" => ("vm.compact_stall", Count, 1.0),
            b"migrate" => ("vm.pgmigrate_success", Count, 1.0),
            b"numamig" => ("vm.numa_pages_migrated", Count, 1.0),
            // Pages here, though the kernel counts them in KiB.
            b"pgin" => ("vm.pgpgin", Count, PAGE),
            b"pgout" => ("vm.pgpgout", Count, PAGE),
            b"swin" => ("vm.pswpin", Count, 1.0),
            b"swout" => ("vm.pswpout", Count, 1.0),
            b"oomkill" => ("vm.oom_kill", Count, 1.0),
            _ => return None,
        }),
        b"LVM" | b"MDD" | b"DSK" => disk(cell),
        b"NET" if is_layer => Some((layer(cell.key)?, Count, 1.0)),
        b"NET" => nic(cell),
        _ => None,
    }
}

fn share(label: &[u8], key: &[u8]) -> Option<&'static str> {
    Some(match (label, key) {
        (b"CPU", b"sys") => "sys.cpu_system",
        // Nice processes are among them.
        (b"CPU", b"user") => "sys.cpu_user",
        (b"CPU", b"idle") => "sys.cpu_idle",
        (b"CPU", b"wait") => "sys.cpu_iowait",
        (b"CPU", b"steal") => "sys.cpu_steal",
        (b"CPU", b"guest") => "sys.cpu_guest",
        // Interrupts and softirqs together; most of it is the latter.
        (b"CPU", b"irq") => "sys.cpu_softirq",
        (b"cpu", b"sys") => "cpu.system",
        (b"cpu", b"user") => "cpu.user",
        (b"cpu", b"idle") => "cpu.idle",
        (b"cpu", b"irq") => "cpu.softirq",
        (b"cpu", b"steal") => "cpu.steal",
        (b"cpu", b"guest") => "cpu.guest",
        (b"cpu", key) if key.starts_with(b"cpu") => "cpu.iowait",
        (b"PSI", b"cpusome") => "psi.cpu_some",
        (b"PSI", b"memsome") => "psi.memory_some",
        (b"PSI", b"memfull") => "psi.memory_full",
        (b"PSI", b"iosome") => "psi.io_some",
        (b"PSI", b"iofull") => "psi.io_full",
        _ => return None,
    })
}

fn memory(label: &[u8], key: &[u8]) -> Option<&'static str> {
    Some(match (label, key) {
        (b"MEM", b"tot") => "mem.total",
        (b"MEM", b"free") => "mem.free",
        (b"MEM", b"avail") => "mem.available",
        (b"MEM", b"cache") => "mem.cached",
        (b"MEM", b"dirty") => "mem.dirty",
        (b"MEM", b"buff") => "mem.buffers",
        (b"MEM", b"slab") => "mem.slab",
        (b"MEM", b"slrec") => "mem.sreclaimable",
        (b"MEM", b"shmem") => "mem.shmem",
        (b"MEM", b"pgtab") => "mem.page_tables",
        (b"MEM", b"anthp") => "mem.anon_huge",
        (b"SWP", b"tot") => "mem.swap_total",
        (b"SWP", b"free") => "mem.swap_free",
        (b"SWP", b"swcac") => "mem.swap_cached",
        (b"SWP", b"zpool") => "mem.zswap",
        (b"SWP", b"zstor") => "mem.zswapped",
        (b"SWP", b"vmcom") => "mem.committed_as",
        (b"SWP", b"vmlim") => "mem.commit_limit",
        _ => return None,
    })
}

fn disk(cell: &Cell<'_>) -> Option<Spec> {
    use Kind::{Count, Level, Rate};
    Some(match (cell.key, cell.unit) {
        (b"busy", b"%") => ("disk.io_time", Rate, 0.01),
        (b"read", b"") => ("disk.reads", Count, 1.0),
        (b"write", b"") => ("disk.writes", Count, 1.0),
        (b"discrd", b"") => ("disk.discards", Count, 1.0),
        (b"MBr/s", b"") => ("disk.read_bytes", Rate, 1_048_576.0),
        (b"MBw/s", b"") => ("disk.write_bytes", Rate, 1_048_576.0),
        (b"inflt", b"") => ("disk.in_flight", Level, 1.0),
        _ => return None,
    })
}

fn layer(key: &[u8]) -> Option<&'static str> {
    Some(match key {
        b"tcpi" => "tcp.InSegs",
        b"tcpo" => "tcp.OutSegs",
        b"tcpao" => "tcp.ActiveOpens",
        b"tcppo" => "tcp.PassiveOpens",
        b"tcprs" => "tcp.RetransSegs",
        b"tcpie" => "tcp.InErrs",
        b"tcpor" => "tcp.OutRsts",
        b"udpi" => "udp.InDatagrams",
        b"udpo" => "udp.OutDatagrams",
        b"udpnp" => "udp.NoPorts",
        b"udpie" => "udp.InErrors",
        b"ipi" => "ip.InReceives",
        b"ipo" => "ip.OutRequests",
        b"ipfrw" => "ip.ForwDatagrams",
        b"deliv" => "ip.InDelivers",
        _ => return None,
    })
}

fn nic(cell: &Cell<'_>) -> Option<Spec> {
    use Kind::{Count, Rate};
    // Bits of powers of ten.
    let bits = || {
        Some(match cell.unit {
            b"bps" => 0.125,
            b"Kbps" => 125.0,
            b"Mbps" => 125_000.0,
            b"Gbps" => 125_000_000.0,
            b"Tbps" => 125_000_000_000.0,
            _ => return None,
        })
    };
    Some(match cell.key {
        b"pcki" => ("nic.rx_packets", Count, 1.0),
        b"pcko" => ("nic.tx_packets", Count, 1.0),
        b"si" => ("nic.rx_bytes", Rate, bits()?),
        b"so" => ("nic.tx_bytes", Rate, bits()?),
        b"coll" => ("nic.tx_colls", Count, 1.0),
        b"mlti" => ("nic.rx_multicast", Count, 1.0),
        b"erri" => ("nic.rx_errs", Count, 1.0),
        b"erro" => ("nic.tx_errs", Count, 1.0),
        b"drpi" => ("nic.rx_drop", Count, 1.0),
        b"drpo" => ("nic.tx_drop", Count, 1.0),
        _ => return None,
    })
}
