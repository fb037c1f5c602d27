//! The lines of the upper part of an atop screen: a label, and cells of a key and a value between bars.

use super::common::PAGE;
use crate::text::prelude::*;

/// Labels of lines that have metrics, and of those that are passed over.
const LABELS: &[&[u8]] =
    list!("PRC CPU cpu CPL GPU MEM SWP LLC NUM NUC PAG PSI LVM MDD DSK NFM NFC NFS NET IFB CSW");

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

/// Reads the cells of a line. The number of CPUs is told if it is there.
pub fn read(line: &[u8], number: u32, out: &mut Vec<Reading>, cpus: &mut Option<u32>) {
    let Some(label) = label(line) else { return };
    let cells: Vec<&[u8]> = line.split(|b| *b == b'|').skip(1).map(<[u8]>::trim_ascii).collect();
    let row = match label {
        b"cpu" => cells.iter().find_map(|c| cpu_of(c)),
        b"LVM" | b"MDD" | b"DSK" | b"NET" => cells.first().and_then(|c| words(c).next()),
        _ => Some(&[][..]),
    };
    let Some(row) = row else { return };
    let (label, row): (&[u8], &[u8]) = match (label, row) {
        (b"LVM" | b"MDD", row) => (b"DSK", row),
        (b"NET", b"transport" | b"network") => (b"NET upper", b""),
        other => other,
    };
    for cell in cells.iter().filter_map(|c| cell(c)) {
        if label == b"CPL" && cell.key == b"numcpu" && cell.value >= 1.0 && cell.value <= 65_536.0 {
            *cpus = Some(cell.value as u32);
        }
        let Some((metric, kind, factor)) = metric(label, &cell) else { continue };
        // `13760e3`, `206 Kbps`: the number alone.
        let is_size = matches!(label, b"MEM" | b"SWP");
        let value = if is_size { with_suffix(cell.word) } else { Some(cell.value) };
        if let Some(value) = value.filter(|v| *v >= 0.0) {
            out.push(Reading { metric, row: text(row), kind, value: value * factor, line: number });
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

/// Cells of one label with the same unit.
struct Cells {
    label: &'static str,
    kind: Kind,
    /// What one is worth in the metric's base unit.
    factor: f64,
    /// What has to stand behind the number; `None` is anything.
    unit: Option<&'static [u8]>,
    names: Pairs,
}

const fn cells(
    label: &'static str,
    kind: Kind,
    factor: f64,
    unit: Option<&'static [u8]>,
    names: Pairs,
) -> Cells {
    Cells { label, kind, factor, unit, names }
}

/// Every cell that has a metric.
#[rustfmt::skip]
const CELLS: &[Cells] = &[
    // Nice processes are among `user`. `irq` has interrupts and softirqs; most of it is the latter.
    cells("CPU", Kind::Rate, 0.01, Some(b"%"), pairs!(
        "sys sys.cpu_system  user sys.cpu_user    idle sys.cpu_idle  wait sys.cpu_iowait
         irq sys.cpu_softirq steal sys.cpu_steal  guest sys.cpu_guest"
    )),
    cells("cpu", Kind::Rate, 0.01, Some(b"%"), pairs!(
        "sys cpu.system  user cpu.user  idle cpu.idle  irq cpu.softirq  steal cpu.steal  guest cpu.guest"
    )),
    cells("PSI", Kind::Rate, 0.01, Some(b"%"), pairs!(
        "cpusome psi.cpu_some  memsome psi.memory_some  memfull psi.memory_full  iosome psi.io_some
         iofull psi.io_full"
    )),
    cells("CPL", Kind::Level, 1.0, None, pairs!("avg1 sys.load1  avg5 sys.load5  avg15 sys.load15")),
    cells("CPL", Kind::Count, 1.0, None, pairs!("csw sys.ctxt  intr sys.intr")),
    cells("PRC", Kind::Level, 1.0, None, pairs!("#trun tasks.running  #tslpu tasks.uninterruptible")),
    cells("MEM", Kind::Level, 1.0, None, pairs!(
        "tot mem.total    free mem.free    avail mem.available  cache mem.cached        dirty mem.dirty
         buff mem.buffers slab mem.slab    shmem mem.shmem      slrec mem.sreclaimable  pgtab mem.page_tables
         anthp mem.anon_huge"
    )),
    cells("SWP", Kind::Level, 1.0, None, pairs!(
        "tot mem.swap_total  free mem.swap_free  swcac mem.swap_cached  zpool mem.zswap  zstor mem.zswapped
         vmcom mem.committed_as  vmlim mem.commit_limit"
    )),
    cells("PAG", Kind::Count, 1.0, None, pairs!(
        "scan vm.pgscan   stall vm.allocstall  compact vm.compact_stall  migrate vm.pgmigrate_success
         swin vm.pswpin   swout vm.pswpout     oomkill vm.oom_kill       numamig vm.numa_pages_migrated"
    )),
    // Pages here, though the kernel counts them in KiB.
    cells("PAG", Kind::Count, PAGE, None, pairs!("pgin vm.pgpgin  pgout vm.pgpgout")),
    cells("DSK", Kind::Rate, 0.01, Some(b"%"), pairs!("busy disk.io_time")),
    cells("DSK", Kind::Count, 1.0, Some(b""), pairs!("read disk.reads  write disk.writes  discrd disk.discards")),
    cells("DSK", Kind::Rate, 1_048_576.0, Some(b""), pairs!("MBr/s disk.read_bytes  MBw/s disk.write_bytes")),
    cells("DSK", Kind::Level, 1.0, Some(b""), pairs!("inflt disk.in_flight")),
    cells("NET upper", Kind::Count, 1.0, None, pairs!(
        "tcpi tcp.InSegs       tcpo tcp.OutSegs        tcpao tcp.ActiveOpens   tcppo tcp.PassiveOpens
         tcprs tcp.RetransSegs tcpie tcp.InErrs        tcpor tcp.OutRsts       udpi udp.InDatagrams
         udpo udp.OutDatagrams udpnp udp.NoPorts       udpie udp.InErrors      ipi ip.InReceives
         ipo ip.OutRequests    ipfrw ip.ForwDatagrams  deliv ip.InDelivers"
    )),
    cells("NET", Kind::Count, 1.0, None, pairs!(
        "pcki nic.rx_packets  pcko nic.tx_packets  coll nic.tx_colls  mlti nic.rx_multicast  erri nic.rx_errs
         erro nic.tx_errs     drpi nic.rx_drop     drpo nic.tx_drop"
    )),
    // Bits of powers of ten.
    cells("NET", Kind::Rate, 0.125, Some(b"bps"), RATES),
    cells("NET", Kind::Rate, 125.0, Some(b"Kbps"), RATES),
    cells("NET", Kind::Rate, 125e3, Some(b"Mbps"), RATES),
    cells("NET", Kind::Rate, 125e6, Some(b"Gbps"), RATES),
    cells("NET", Kind::Rate, 125e9, Some(b"Tbps"), RATES),
];
const RATES: Pairs = pairs!("si nic.rx_bytes  so nic.tx_bytes");

/// The metric of a cell, what its numbers are, and what one is worth.
fn metric(label: &[u8], cell: &Cell<'_>) -> Option<(&'static str, Kind, f64)> {
    if label == b"cpu" && cell.key.starts_with(b"cpu") && cell.unit == b"%" {
        return Some(("cpu.iowait", Kind::Rate, 0.01));
    }
    let fits = |c: &&Cells| c.label.as_bytes() == label && c.unit.is_none_or(|unit| unit == cell.unit);
    CELLS.iter().filter(fits).find_map(|c| Some((find_pair(c.names, cell.key)?, c.kind, c.factor)))
}
