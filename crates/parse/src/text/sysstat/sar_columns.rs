//! What the columns of sar are, in all versions since 9: one table for sar's text and for every form of sadf.
//!
//! A name means the same in every section that has it, once it is known what a row is about; `tps` of a disk is not
//! `tps` of the machine. A column that is not here has no row in the metric table, or follows from others.

use super::super::import::Form;
use Form::{Level, Rate};
use Kind::{Disk, Filesystem, Irq, Nic, System};

/// What the rows of a section are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The machine: no name in the rows.
    System,
    /// `CPU`: `all` and single ones.
    Cpu,
    /// `DEV`.
    Disk,
    /// `IFACE`.
    Nic,
    /// `INTR`: `sum` and single ones.
    Irq,
    /// `FILESYSTEM`, `MOUNTPOINT`.
    Filesystem,
    /// Something that has no place here: terminals, fans, batteries.
    Other,
}

/// The kind of the rows below a column of names; `None` for a column of numbers.
#[must_use]
pub fn kind(header: &[u8]) -> Option<Kind> {
    match header {
        b"CPU" => Some(Kind::Cpu),
        b"DEV" => Some(Disk),
        b"IFACE" => Some(Nic),
        b"INTR" => Some(Irq),
        b"FILESYSTEM" | b"MOUNTPOINT" => Some(Filesystem),
        b"TTY" | b"BUS" | b"FAN" | b"TEMP" | b"IN" | b"BAT" | b"FCHOST" | b"DEVICE" => Some(Kind::Other),
        _ => None,
    }
}

/// One column: what it is about, its name as printed, the metric, its form, what one printed unit is worth.
pub struct Entry {
    pub kind: Kind,
    pub name: &'static str,
    pub metric: &'static str,
    pub form: Form,
    pub factor: f64,
}

const fn entry(kind: Kind, name: &'static str, metric: &'static str, form: Form, factor: f64) -> Entry {
    Entry { kind, name, metric, form, factor }
}

const fn rate(name: &'static str, metric: &'static str) -> Entry {
    entry(System, name, metric, Rate, 1.0)
}

const fn share(name: &'static str, metric: &'static str) -> Entry {
    entry(System, name, metric, Rate, 0.01)
}

const fn level(name: &'static str, metric: &'static str) -> Entry {
    entry(System, name, metric, Level, 1.0)
}

const fn kib(name: &'static str, metric: &'static str) -> Entry {
    entry(System, name, metric, Level, 1024.0)
}

const fn disk(name: &'static str, metric: &'static str, factor: f64) -> Entry {
    entry(Disk, name, metric, Rate, factor)
}

const fn nic(name: &'static str, metric: &'static str) -> Entry {
    entry(Nic, name, metric, Rate, 1.0)
}

const fn softnet(name: &'static str, metric: &'static str) -> Entry {
    entry(Kind::Cpu, name, metric, Rate, 1.0)
}

/// Times of CPUs, in percent: the name, and what follows `sys.cpu_` and `cpu.` in the metric's name.
pub const CPU_TIMES: &[(&str, &str)] = &[
    ("%user", "user"),
    ("%usr", "user"),
    ("%nice", "nice"),
    ("%system", "system"),
    ("%sys", "system"),
    ("%iowait", "iowait"),
    ("%steal", "steal"),
    ("%irq", "irq"),
    ("%soft", "softirq"),
    ("%guest", "guest"),
    ("%gnice", "guest_nice"),
    ("%idle", "idle"),
];

/// Every other column.
pub const COLUMNS: &[Entry] = &[
    // -w, -c
    rate("proc/s", "sys.forks"),
    rate("cswch/s", "sys.ctxt"),
    // -W
    rate("pswpin/s", "vm.pswpin"),
    rate("pswpout/s", "vm.pswpout"),
    // -B; the first two are KiB
    entry(System, "pgpgin/s", "vm.pgpgin", Rate, 1024.0),
    entry(System, "pgpgout/s", "vm.pgpgout", Rate, 1024.0),
    rate("fault/s", "vm.pgfault"),
    rate("majflt/s", "vm.pgmajfault"),
    rate("pgfree/s", "vm.pgfree"),
    rate("pgscank/s", "vm.pgscan_kswapd"),
    rate("pgscand/s", "vm.pgscan_direct"),
    rate("pgsteal/s", "vm.pgsteal"),
    rate("pgprom/s", "vm.pgpromote_success"),
    // -r, -S
    kib("kbmemfree", "mem.free"),
    kib("kbavail", "mem.available"),
    kib("kbmemused", "mem.used"),
    kib("kbbuffers", "mem.buffers"),
    kib("kbcached", "mem.cached"),
    kib("kbcommit", "mem.committed_as"),
    kib("kbactive", "mem.active"),
    kib("kbinact", "mem.inactive"),
    kib("kbdirty", "mem.dirty"),
    kib("kbanonpg", "mem.anon"),
    kib("kbslab", "mem.slab"),
    kib("kbkstack", "mem.kernel_stack"),
    kib("kbpgtbl", "mem.page_tables"),
    kib("kbvmused", "mem.vmalloc_used"),
    kib("kbswpfree", "mem.swap_free"),
    kib("kbswpcad", "mem.swap_cached"),
    // -R
    level("frmpg/s", "mem.free_change"),
    level("bufpg/s", "mem.buffers_change"),
    level("campg/s", "mem.cached_change"),
    // -v
    level("dentunusd", "dentry.unused"),
    level("file-nr", "files.nr"),
    level("inode-nr", "inode.nr"),
    level("file-sz", "files.nr"),
    level("inode-sz", "inode.nr"),
    // -q
    level("runq-sz", "sys.procs_running"),
    level("plist-sz", "tasks.total"),
    level("ldavg-1", "sys.load1"),
    level("ldavg-5", "sys.load5"),
    level("ldavg-15", "sys.load15"),
    level("blocked", "sys.procs_blocked"),
    // -q CPU,IO,MEM: the columns that are of the interval, not the kernel's averages
    share("%scpu", "psi.cpu_some"),
    share("%sio", "psi.io_some"),
    share("%fio", "psi.io_full"),
    share("%smem", "psi.memory_some"),
    share("%fmem", "psi.memory_full"),
    // -d
    disk("tps", "disk.transfers", 1.0),
    disk("rd_sec/s", "disk.read_bytes", 512.0),
    disk("wr_sec/s", "disk.write_bytes", 512.0),
    disk("rkB/s", "disk.read_bytes", 1024.0),
    disk("wkB/s", "disk.write_bytes", 1024.0),
    disk("dc_sec/s", "disk.discard_bytes", 512.0),
    disk("dkB/s", "disk.discard_bytes", 1024.0),
    disk("avgqu-sz", "disk.weighted_time", 1.0),
    disk("aqu-sz", "disk.weighted_time", 1.0),
    disk("%util", "disk.io_time", 0.01),
    // -F; free space is in MiB
    entry(Filesystem, "MBfsfree", "fs.free_bytes", Level, 1_048_576.0),
    entry(Filesystem, "Ifree", "fs.inodes_free", Level, 1.0),
    // -I: `all` since 12.5, `CPU*` in the header of sadf
    entry(Irq, "all", "irq.count", Rate, 1.0),
    entry(Irq, "CPU*", "irq.count", Rate, 1.0),
    entry(Irq, "intr/s", "irq.count", Rate, 1.0),
    // -n DEV, EDEV
    nic("rxpck/s", "nic.rx_packets"),
    nic("txpck/s", "nic.tx_packets"),
    nic("rxbyt/s", "nic.rx_bytes"),
    nic("txbyt/s", "nic.tx_bytes"),
    entry(Nic, "rxkB/s", "nic.rx_bytes", Rate, 1024.0),
    entry(Nic, "txkB/s", "nic.tx_bytes", Rate, 1024.0),
    nic("rxcmp/s", "nic.rx_compressed"),
    nic("txcmp/s", "nic.tx_compressed"),
    nic("rxmcst/s", "nic.rx_multicast"),
    nic("rxerr/s", "nic.rx_errs"),
    nic("txerr/s", "nic.tx_errs"),
    nic("coll/s", "nic.tx_colls"),
    nic("rxdrop/s", "nic.rx_drop"),
    nic("txdrop/s", "nic.tx_drop"),
    nic("txcarr/s", "nic.tx_carrier"),
    nic("rxfram/s", "nic.rx_frame"),
    nic("rxfifo/s", "nic.rx_fifo"),
    nic("txfifo/s", "nic.tx_fifo"),
    // -n SOCK
    level("totsck", "sock.used"),
    level("tcpsck", "sock.tcp_inuse"),
    level("udpsck", "sock.udp_inuse"),
    level("rawsck", "sock.raw_inuse"),
    level("ip-frag", "sock.frag_inuse"),
    level("tcp-tw", "sock.tcp_tw"),
    // -n IP, EIP
    rate("irec/s", "ip.InReceives"),
    rate("fwddgm/s", "ip.ForwDatagrams"),
    rate("idel/s", "ip.InDelivers"),
    rate("orq/s", "ip.OutRequests"),
    rate("asmrq/s", "ip.ReasmReqds"),
    rate("asmok/s", "ip.ReasmOKs"),
    rate("fragok/s", "ip.FragOKs"),
    rate("fragcrt/s", "ip.FragCreates"),
    rate("ihdrerr/s", "ip.InHdrErrors"),
    rate("iadrerr/s", "ip.InAddrErrors"),
    rate("iukwnpr/s", "ip.InUnknownProtos"),
    rate("idisc/s", "ip.InDiscards"),
    rate("odisc/s", "ip.OutDiscards"),
    rate("onort/s", "ip.OutNoRoutes"),
    rate("asmf/s", "ip.ReasmFails"),
    rate("fragf/s", "ip.FragFails"),
    // -n ICMP, EICMP
    rate("imsg/s", "icmp.InMsgs"),
    rate("omsg/s", "icmp.OutMsgs"),
    rate("iech/s", "icmp.InEchos"),
    rate("iechr/s", "icmp.InEchoReps"),
    rate("oech/s", "icmp.OutEchos"),
    rate("oechr/s", "icmp.OutEchoReps"),
    rate("itm/s", "icmp.InTimestamps"),
    rate("itmr/s", "icmp.InTimestampReps"),
    rate("otm/s", "icmp.OutTimestamps"),
    rate("otmr/s", "icmp.OutTimestampReps"),
    rate("iadrmk/s", "icmp.InAddrMasks"),
    rate("iadrmkr/s", "icmp.InAddrMaskReps"),
    rate("oadrmk/s", "icmp.OutAddrMasks"),
    rate("oadrmkr/s", "icmp.OutAddrMaskReps"),
    rate("ierr/s", "icmp.InErrors"),
    rate("oerr/s", "icmp.OutErrors"),
    rate("idstunr/s", "icmp.InDestUnreachs"),
    rate("odstunr/s", "icmp.OutDestUnreachs"),
    rate("itmex/s", "icmp.InTimeExcds"),
    rate("otmex/s", "icmp.OutTimeExcds"),
    rate("iparmpb/s", "icmp.InParmProbs"),
    rate("oparmpb/s", "icmp.OutParmProbs"),
    rate("isrcq/s", "icmp.InSrcQuenchs"),
    rate("osrcq/s", "icmp.OutSrcQuenchs"),
    rate("iredir/s", "icmp.InRedirects"),
    rate("oredir/s", "icmp.OutRedirects"),
    // -n TCP, ETCP, UDP; `retrans/s` is also a column of NFS, see `of_nfs`
    rate("active/s", "tcp.ActiveOpens"),
    rate("passive/s", "tcp.PassiveOpens"),
    rate("iseg/s", "tcp.InSegs"),
    rate("oseg/s", "tcp.OutSegs"),
    rate("atmptf/s", "tcp.AttemptFails"),
    rate("estres/s", "tcp.EstabResets"),
    rate("retrans/s", "tcp.RetransSegs"),
    rate("isegerr/s", "tcp.InErrs"),
    rate("orsts/s", "tcp.OutRsts"),
    rate("idgm/s", "udp.InDatagrams"),
    rate("odgm/s", "udp.OutDatagrams"),
    rate("noport/s", "udp.NoPorts"),
    rate("idgmerr/s", "udp.InErrors"),
    // -n SOFT
    softnet("total/s", "softnet.processed"),
    softnet("dropd/s", "softnet.dropped"),
    softnet("squeezd/s", "softnet.time_squeeze"),
    softnet("rx_rps/s", "softnet.received_rps"),
    softnet("flw_lim/s", "softnet.flow_limit"),
    entry(Kind::Cpu, "blg_len", "softnet.backlog", Level, 1.0),
];

/// Whether `retrans/s` after this column is NFS's.
#[must_use]
pub fn of_nfs(before: Option<&[u8]>) -> bool {
    before == Some(b"call/s")
}

/// Columns that belong to the things of a kind and are not read by themselves.
const OF_KIND: &[(Kind, &str)] = &[
    (Kind::Cpu, "MHz"),
    (Kind::Cpu, "wghMHz"),
    (Disk, "areq-sz"),
    (Disk, "avgrq-sz"),
    (Disk, "await"),
    (Disk, "svctm"),
    (Nic, "%ifutil"),
    (Filesystem, "MBfsused"),
    (Filesystem, "%fsused"),
    (Filesystem, "%ufsused"),
    (Filesystem, "Iused"),
    (Filesystem, "%Iused"),
];

/// Whether a column is one of the things of a kind; of those that have no place here, whether it is not the machine's.
#[must_use]
pub fn belongs(kind: Kind, name: &[u8]) -> bool {
    match kind {
        Kind::Other => find(System, name).is_none(),
        Irq => find(kind, name).is_some() || name.starts_with(b"CPU"),
        _ => {
            find(kind, name).is_some()
                || (kind == Kind::Cpu && cpu_time(name).is_some())
                || OF_KIND.iter().any(|(k, n)| *k == kind && n.as_bytes() == name)
        }
    }
}

/// The option of sar that prints a column: the first name of a section that is found names it.
const OPTIONS: &[(&str, &str)] = &[
    ("%scpu", "sar -q CPU"),
    ("%sio", "sar -q IO"),
    ("%smem", "sar -q MEM"),
    ("%idle", "sar -u"),
    ("total/s", "sar -n SOFT"),
    ("MHz", "sar -m CPU"),
    ("wghMHz", "sar -m FREQ"),
    ("cswch/s", "sar -w"),
    ("proc/s", "sar -w"),
    ("pswpin/s", "sar -W"),
    ("pgpgin/s", "sar -B"),
    ("bread/s", "sar -b"),
    ("frmpg/s", "sar -R"),
    ("kbmemfree", "sar -r"),
    ("kbswpfree", "sar -S"),
    ("kbhugfree", "sar -H"),
    ("dentunusd", "sar -v"),
    ("plist-sz", "sar -q"),
    ("TTY", "sar -y"),
    ("%util", "sar -d"),
    ("DEV", "sar -d"),
    ("rxpck/s", "sar -n DEV"),
    ("rxerr/s", "sar -n EDEV"),
    ("scall/s", "sar -n NFSD"),
    ("call/s", "sar -n NFS"),
    ("totsck", "sar -n SOCK"),
    ("irec/s", "sar -n IP"),
    ("ihdrerr/s", "sar -n EIP"),
    ("imsg/s", "sar -n ICMP"),
    ("ierr/s", "sar -n EICMP"),
    ("iseg/s", "sar -n TCP"),
    ("orsts/s", "sar -n ETCP"),
    ("idgm/s", "sar -n UDP"),
    ("tcp6sck", "sar -n SOCK6"),
    ("irec6/s", "sar -n IP6"),
    ("ihdrer6/s", "sar -n EIP6"),
    ("imsg6/s", "sar -n ICMP6"),
    ("ierr6/s", "sar -n EICMP6"),
    ("idgm6/s", "sar -n UDP6"),
    ("MBfsfree", "sar -F"),
    ("INTR", "sar -I"),
    ("FCHOST", "sar -n FC"),
    ("FAN", "sar -m FAN"),
    ("TEMP", "sar -m TEMP"),
    ("IN", "sar -m IN"),
    ("BUS", "sar -m USB"),
    ("BAT", "sar -m BAT"),
    ("i000/s", "sar -I -P"),
];

/// Columns of sections that are not read whose shape does not tell that they are columns.
const OTHERS: &[&str] =
    &["rtps", "wtps", "dtps", "udp6sck", "raw6sck", "ip6-frag", "pty-nr", "super-sz", "dquot-sz"];

/// The option of sar that prints a section with these columns.
pub fn option<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Option<&'static str> {
    OPTIONS.iter().find(|(mark, _)| names.clone().any(|n| n == mark.as_bytes())).map(|(_, option)| *option)
}

/// The metric of a column.
#[must_use]
pub fn find(kind: Kind, name: &[u8]) -> Option<&'static Entry> {
    COLUMNS.iter().find(|e| e.kind == kind && e.name.as_bytes() == name)
}

/// What follows `cpu.` in the metric of a share of CPU time.
#[must_use]
pub fn cpu_time(name: &[u8]) -> Option<&'static str> {
    CPU_TIMES.iter().find(|(n, _)| n.as_bytes() == name).map(|(_, metric)| *metric)
}

/// Whether some section has a column of this name, read or not.
#[must_use]
pub fn is_known(name: &[u8]) -> bool {
    // Asked for every word of a line behind a time, which most often is one of a log.
    may_be_known(name) && is_one_of_all(name)
}

/// Where the names have a mark, by their length and their ends.
fn mark(name: &[u8]) -> Option<(usize, u64)> {
    let (first, last) = (usize::from(*name.first()?), usize::from(*name.last()?));
    let place = first.wrapping_mul(37).wrapping_add(last.wrapping_mul(5)).wrapping_add(name.len()) % 1024;
    Some((place / 64, 1 << (place % 64)))
}

/// Whether a name with the same length and the same ends is known.
fn may_be_known(name: &[u8]) -> bool {
    static MARKS: std::sync::OnceLock<[u64; 16]> = std::sync::OnceLock::new();
    let marks = MARKS.get_or_init(|| {
        let mut marks = [0; 16];
        let columns = COLUMNS.iter().map(|e| e.name);
        let options = OPTIONS.iter().map(|(mark, _)| *mark);
        for name in columns.chain(options).chain(OTHERS.iter().copied()) {
            if let Some((at, bit)) = mark(name.as_bytes())
                && let Some(slot) = marks.get_mut(at)
            {
                *slot |= bit;
            }
        }
        marks
    });
    let of_table = mark(name).is_some_and(|(at, bit)| marks.get(at).is_some_and(|slot| slot & bit != 0));
    of_table || kind(name).is_some() || cpu_time(name).is_some()
}

fn is_one_of_all(name: &[u8]) -> bool {
    kind(name).is_some()
        || cpu_time(name).is_some()
        || COLUMNS.iter().any(|e| e.name.as_bytes() == name)
        || OPTIONS.iter().any(|(mark, _)| mark.as_bytes() == name)
        || OTHERS.iter().any(|other| other.as_bytes() == name)
}

/// Whether a word looks like the head of a column of numbers.
#[must_use]
pub fn is_shaped(name: &[u8]) -> bool {
    name.ends_with(b"/s") || name.starts_with(b"%") || (name.starts_with(b"kb") && name.len() > 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_exists_and_is_of_the_kind() {
        use mitra_model::{Entity, lookup};
        for e in COLUMNS {
            let metric = lookup(e.metric).unwrap_or_else(|| panic!("{} is not in the table", e.metric));
            let entity = match e.kind {
                System => Entity::System,
                Kind::Cpu => Entity::Cpu,
                Disk => Entity::Disk,
                Nic => Entity::Nic,
                Irq => Entity::Irq,
                Filesystem => Entity::Filesystem,
                Kind::Other => unreachable!(),
            };
            assert_eq!(metric.entity, entity, "{}", e.name);
            assert_eq!(metric.is_rate(), e.form == Rate, "{}", e.name);
        }
        for (_, name) in CPU_TIMES {
            for metric in [format!("sys.cpu_{name}"), format!("cpu.{name}")] {
                assert!(lookup(&metric).is_some(), "{metric}");
            }
        }
    }

    #[test]
    fn names_are_unique_within_a_kind() {
        let mut seen = std::collections::HashSet::new();
        assert!(COLUMNS.iter().all(|e| seen.insert((e.kind as u8, e.name))));
    }
}
