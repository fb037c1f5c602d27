//! What the columns of the sysstat tools are, in all their versions: one table for sar and for every form of sadf, for
//! iostat, mpstat and pidstat.
//!
//! A name means the same in every section that has it, once it is known what a row is about; `tps` of a disk is not
//! `tps` of the machine. A column that is not here has no row in the metric table, or follows from others.

use crate::text::prelude::*;
use Form::{Level, Rate};
use Kind::{Cpu, Disk, Filesystem, Irq, Nic, Other, System, Task};

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
    /// A task, of pidstat.
    Task,
    /// Something that has no place here: terminals, fans, batteries.
    Other,
}

/// The kind of the rows below a column of names; `None` for a column of numbers.
#[must_use]
pub fn kind(header: &[u8]) -> Option<Kind> {
    match header {
        b"CPU" => Some(Cpu),
        b"DEV" => Some(Disk),
        b"IFACE" => Some(Nic),
        b"INTR" => Some(Irq),
        b"FILESYSTEM" | b"MOUNTPOINT" => Some(Filesystem),
        b"TTY" | b"BUS" | b"FAN" | b"TEMP" | b"IN" | b"BAT" | b"FCHOST" | b"DEVICE" => Some(Other),
        _ => None,
    }
}

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
/// sysstat and the kernel count sectors of 512 bytes whatever the device has.
pub const SECTOR: f64 = 512.0;

/// Times of CPUs, in percent: the name, and what follows `sys.cpu_` and `cpu.` in the metric's name.
pub const CPU_TIMES: Pairs = pairs!(
    "%user user  %usr user  %nice nice  %system system  %sys system  %iowait iowait  %steal steal  %irq irq
     %soft softirq  %guest guest  %gnice guest_nice  %idle idle"
);

/// Columns with the same kind of rows and the same unit.
pub struct Columns {
    pub kind: Kind,
    pub form: Form,
    /// What one printed unit is worth in the metric's base unit.
    pub factor: f64,
    /// Names as printed, each with its metric.
    names: Pairs,
}

const fn columns(kind: Kind, form: Form, factor: f64, names: Pairs) -> Columns {
    Columns { kind, form, factor, names }
}

/// Every other column, by the options of sar where it has them.
#[rustfmt::skip]
const COLUMNS: &[Columns] = &[
    columns(System, Rate, 1.0, pairs!(
        // -w, -c, -W
        "proc/s sys.forks           cswch/s sys.ctxt            pswpin/s vm.pswpin          pswpout/s vm.pswpout
         fault/s vm.pgfault         majflt/s vm.pgmajfault      pgfree/s vm.pgfree          pgscank/s vm.pgscan_kswapd
         pgscand/s vm.pgscan_direct pgsteal/s vm.pgsteal        pgprom/s vm.pgpromote_success"
    )),
    // -B
    columns(System, Rate, KIB, pairs!("pgpgin/s vm.pgpgin  pgpgout/s vm.pgpgout")),
    // -r, -S
    columns(System, Level, KIB, pairs!(
        "kbmemfree mem.free         kbavail mem.available       kbmemused mem.used          kbbuffers mem.buffers
         kbcached mem.cached        kbcommit mem.committed_as   kbactive mem.active         kbinact mem.inactive
         kbdirty mem.dirty          kbanonpg mem.anon           kbslab mem.slab             kbkstack mem.kernel_stack
         kbpgtbl mem.page_tables    kbvmused mem.vmalloc_used   kbswpfree mem.swap_free     kbswpcad mem.swap_cached"
    )),
    // -R, -v, -q, -n SOCK
    columns(System, Level, 1.0, pairs!(
        "frmpg/s mem.free_change    bufpg/s mem.buffers_change  campg/s mem.cached_change
         dentunusd dentry.unused    file-nr files.nr            inode-nr inode.nr
         file-sz files.nr           inode-sz inode.nr
         runq-sz sys.procs_running  plist-sz tasks.total        blocked sys.procs_blocked
         ldavg-1 sys.load1          ldavg-5 sys.load5           ldavg-15 sys.load15
         totsck sock.used           tcpsck sock.tcp_inuse       udpsck sock.udp_inuse
         rawsck sock.raw_inuse      ip-frag sock.frag_inuse     tcp-tw sock.tcp_tw"
    )),
    // -q CPU,IO,MEM: the columns that are of the interval, not the kernel's averages
    columns(System, Rate, 0.01, pairs!(
        "%scpu psi.cpu_some  %sio psi.io_some  %fio psi.io_full  %smem psi.memory_some  %fmem psi.memory_full"
    )),
    // -d, and iostat
    columns(Disk, Rate, 1.0, pairs!(
        "tps disk.transfers         avgqu-sz disk.weighted_time aqu-sz disk.weighted_time
         r/s disk.reads             w/s disk.writes             d/s disk.discards           f/s disk.flushes
         rrqm/s disk.read_merges    wrqm/s disk.write_merges    drqm/s disk.discard_merges"
    )),
    columns(Disk, Rate, SECTOR, pairs!(
        "rd_sec/s disk.read_bytes   wr_sec/s disk.write_bytes   dc_sec/s disk.discard_bytes
         rsec/s disk.read_bytes     wsec/s disk.write_bytes     dsec/s disk.discard_bytes
         Blk_read/s disk.read_bytes Blk_wrtn/s disk.write_bytes Blk_dscd/s disk.discard_bytes"
    )),
    columns(Disk, Rate, KIB, pairs!(
        "rkB/s disk.read_bytes      wkB/s disk.write_bytes      dkB/s disk.discard_bytes
         kB_read/s disk.read_bytes  kB_wrtn/s disk.write_bytes  kB_dscd/s disk.discard_bytes"
    )),
    columns(Disk, Rate, MIB, pairs!(
        "rMB/s disk.read_bytes      wMB/s disk.write_bytes      dMB/s disk.discard_bytes
         MB_read/s disk.read_bytes  MB_wrtn/s disk.write_bytes  MB_dscd/s disk.discard_bytes"
    )),
    columns(Disk, Rate, 0.01, pairs!("%util disk.io_time")),
    // -F
    columns(Filesystem, Level, MIB, pairs!("MBfsfree fs.free_bytes")),
    columns(Filesystem, Level, 1.0, pairs!("Ifree fs.inodes_free")),
    // -I: `all` since 12.5, `CPU*` in the header of sadf
    columns(Irq, Rate, 1.0, pairs!("all irq.count  CPU* irq.count  intr/s irq.count")),
    // -n DEV, EDEV
    columns(Nic, Rate, 1.0, pairs!(
        "rxpck/s nic.rx_packets     txpck/s nic.tx_packets      rxbyt/s nic.rx_bytes        txbyt/s nic.tx_bytes
         rxcmp/s nic.rx_compressed  txcmp/s nic.tx_compressed   rxmcst/s nic.rx_multicast   coll/s nic.tx_colls
         rxerr/s nic.rx_errs        txerr/s nic.tx_errs         rxdrop/s nic.rx_drop        txdrop/s nic.tx_drop
         txcarr/s nic.tx_carrier    rxfram/s nic.rx_frame       rxfifo/s nic.rx_fifo        txfifo/s nic.tx_fifo"
    )),
    columns(Nic, Rate, KIB, pairs!("rxkB/s nic.rx_bytes  txkB/s nic.tx_bytes")),
    // -n IP, EIP
    columns(System, Rate, 1.0, pairs!(
        "irec/s ip.InReceives       fwddgm/s ip.ForwDatagrams   idel/s ip.InDelivers        orq/s ip.OutRequests
         asmrq/s ip.ReasmReqds      asmok/s ip.ReasmOKs         fragok/s ip.FragOKs         fragcrt/s ip.FragCreates
         ihdrerr/s ip.InHdrErrors   iadrerr/s ip.InAddrErrors   iukwnpr/s ip.InUnknownProtos
         idisc/s ip.InDiscards      odisc/s ip.OutDiscards      onort/s ip.OutNoRoutes
         asmf/s ip.ReasmFails       fragf/s ip.FragFails"
    )),
    // -n ICMP, EICMP
    columns(System, Rate, 1.0, pairs!(
        "imsg/s icmp.InMsgs         omsg/s icmp.OutMsgs         iech/s icmp.InEchos         iechr/s icmp.InEchoReps
         oech/s icmp.OutEchos       oechr/s icmp.OutEchoReps    itm/s icmp.InTimestamps     itmr/s icmp.InTimestampReps
         otm/s icmp.OutTimestamps   otmr/s icmp.OutTimestampReps
         iadrmk/s icmp.InAddrMasks  iadrmkr/s icmp.InAddrMaskReps
         oadrmk/s icmp.OutAddrMasks oadrmkr/s icmp.OutAddrMaskReps
         ierr/s icmp.InErrors       oerr/s icmp.OutErrors
         idstunr/s icmp.InDestUnreachs                          odstunr/s icmp.OutDestUnreachs
         itmex/s icmp.InTimeExcds   otmex/s icmp.OutTimeExcds
         iparmpb/s icmp.InParmProbs oparmpb/s icmp.OutParmProbs
         isrcq/s icmp.InSrcQuenchs  osrcq/s icmp.OutSrcQuenchs
         iredir/s icmp.InRedirects  oredir/s icmp.OutRedirects"
    )),
    // -n TCP, ETCP, UDP; `retrans/s` is also a column of NFS, see `of_nfs`
    columns(System, Rate, 1.0, pairs!(
        "active/s tcp.ActiveOpens   passive/s tcp.PassiveOpens  iseg/s tcp.InSegs           oseg/s tcp.OutSegs
         atmptf/s tcp.AttemptFails  estres/s tcp.EstabResets    retrans/s tcp.RetransSegs   isegerr/s tcp.InErrs
         orsts/s tcp.OutRsts        idgm/s udp.InDatagrams      odgm/s udp.OutDatagrams     noport/s udp.NoPorts
         idgmerr/s udp.InErrors"
    )),
    // -n SOFT
    columns(Cpu, Rate, 1.0, pairs!(
        "total/s softnet.processed  dropd/s softnet.dropped     squeezd/s softnet.time_squeeze
         rx_rps/s softnet.received_rps                          flw_lim/s softnet.flow_limit"
    )),
    columns(Cpu, Level, 1.0, pairs!("blg_len softnet.backlog")),
    // pidstat; `iodelay` are ticks
    columns(Task, Rate, 0.01, pairs!(
        "%usr task.user_time        %user task.user_time        %system task.system_time    %wait task.run_delay
         %CPU task.cpu_time         iodelay task.blkio_delay"
    )),
    columns(Task, Rate, 1.0, pairs!(
        "minflt/s task.minflt  majflt/s task.majflt  cswch/s task.nvcsw  nvcswch/s task.nivcsw"
    )),
    columns(Task, Rate, KIB, pairs!(
        "kB_rd/s task.read_bytes  kB_wr/s task.write_bytes  kB_ccwr/s task.cancelled_write_bytes"
    )),
    columns(Task, Level, KIB, pairs!("VSZ task.vsize  RSS task.rss")),
    columns(Task, Level, 1.0, pairs!(
        "CPU task.cpu  threads task.threads  fd-nr task.fds  policy task.policy"
    )),
];

/// Mean milliseconds of a request of a disk, the column with the requests a second, and what both are together:
/// seconds of waiting a second.
pub const WAITS: &[(&str, &str, &str)] = &[
    ("r_await", "r/s", "disk.read_time"),
    ("w_await", "w/s", "disk.write_time"),
    ("d_await", "d/s", "disk.discard_time"),
    ("f_await", "f/s", "disk.flush_time"),
];

/// Whether `retrans/s` after this column is NFS's.
#[must_use]
pub fn of_nfs(before: Option<&[u8]>) -> bool {
    before == Some(b"call/s")
}

/// Columns that belong to the things of a kind and are not read by themselves.
const OF_KIND: &[(Kind, &[&[u8]])] = &[
    (Cpu, list!("MHz wghMHz")),
    (Disk, list!("areq-sz avgrq-sz await svctm")),
    (Nic, list!("%ifutil")),
    (Filesystem, list!("MBfsused %fsused %ufsused Iused %Iused")),
];

/// Whether a column is one of the things of a kind; of those that have no place here, whether it is not the machine's.
#[must_use]
pub fn belongs(kind: Kind, name: &[u8]) -> bool {
    match kind {
        Other => find(System, name).is_none(),
        Irq => find(kind, name).is_some() || name.starts_with(b"CPU"),
        _ => {
            find(kind, name).is_some()
                || (kind == Cpu && cpu_time(name).is_some())
                || OF_KIND.iter().any(|(k, names)| *k == kind && names.contains(&name))
        }
    }
}

/// The option of sar that prints a column, without `sar `; `_` stands for a blank. The first name of a section that is
/// found names it.
const OPTIONS: Pairs = pairs!(
    "%scpu -q_CPU        %sio -q_IO          %smem -q_MEM        %idle -u            total/s -n_SOFT
     MHz -m_CPU          wghMHz -m_FREQ      cswch/s -w          proc/s -w           pswpin/s -W
     pgpgin/s -B         bread/s -b          frmpg/s -R          kbmemfree -r        kbswpfree -S
     kbhugfree -H        dentunusd -v        plist-sz -q         TTY -y              %util -d
     DEV -d              rxpck/s -n_DEV      rxerr/s -n_EDEV     scall/s -n_NFSD     call/s -n_NFS
     totsck -n_SOCK      irec/s -n_IP        ihdrerr/s -n_EIP    imsg/s -n_ICMP      ierr/s -n_EICMP
     iseg/s -n_TCP       orsts/s -n_ETCP     idgm/s -n_UDP       tcp6sck -n_SOCK6    irec6/s -n_IP6
     ihdrer6/s -n_EIP6   imsg6/s -n_ICMP6    ierr6/s -n_EICMP6   idgm6/s -n_UDP6     MBfsfree -F
     INTR -I             FCHOST -n_FC        FAN -m_FAN          TEMP -m_TEMP        IN -m_IN
     BUS -m_USB          BAT -m_BAT          i000/s -I_-P"
);

/// Columns of sections that are not read whose shape does not tell that they are columns.
const OTHERS: &[&[u8]] = list!("rtps wtps dtps udp6sck raw6sck ip6-frag pty-nr super-sz dquot-sz");

/// The option of sar that prints a section with these columns.
pub fn option<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Option<String> {
    let (_, option) = OPTIONS.iter().find(|(mark, _)| names.clone().any(|name| name == *mark))?;
    Some(format!("sar {}", option.replace('_', " ")))
}

/// The metric of a column, and the columns that are like it.
#[must_use]
pub fn find(kind: Kind, name: &[u8]) -> Option<(&'static str, &'static Columns)> {
    let of_kind = COLUMNS.iter().filter(|columns| columns.kind == kind);
    of_kind.filter_map(|columns| Some((find_pair(columns.names, name)?, columns))).next()
}

/// What follows `cpu.` in the metric of a share of CPU time.
#[must_use]
pub fn cpu_time(name: &[u8]) -> Option<&'static str> {
    find_pair(CPU_TIMES, name)
}

/// Every name that some section of sar has.
fn of_sar() -> impl Iterator<Item = &'static [u8]> {
    let of_tasks = |columns: &&Columns| columns.kind != Task;
    let columns = COLUMNS.iter().filter(of_tasks).flat_map(|columns| columns.names).map(|(name, _)| *name);
    columns.chain(OPTIONS.iter().map(|(mark, _)| *mark)).chain(OTHERS.iter().copied())
}

/// Whether some section of sar has a column of this name, read or not.
#[must_use]
pub fn is_known(name: &[u8]) -> bool {
    // Asked for every word of a line behind a time, which most often is one of a log.
    kind(name).is_some()
        || cpu_time(name).is_some()
        || (may_be_of_sar(name) && of_sar().any(|known| known == name))
}

/// Where the names have a mark, by their length and their ends.
fn mark(name: &[u8]) -> Option<(usize, u64)> {
    let (first, last) = (usize::from(*name.first()?), usize::from(*name.last()?));
    let place = first.wrapping_mul(37).wrapping_add(last.wrapping_mul(5)).wrapping_add(name.len()) % 1024;
    Some((place / 64, 1 << (place % 64)))
}

/// Whether a name with the same length and the same ends is known.
fn may_be_of_sar(name: &[u8]) -> bool {
    static MARKS: std::sync::OnceLock<[u64; 16]> = std::sync::OnceLock::new();
    let marks = MARKS.get_or_init(|| {
        let mut marks = [0; 16];
        for (at, bit) in of_sar().filter_map(mark) {
            if let Some(slot) = marks.get_mut(at) {
                *slot |= bit;
            }
        }
        marks
    });
    mark(name).is_some_and(|(at, bit)| marks.get(at).is_some_and(|slot| slot & bit != 0))
}

/// Whether a word looks like the head of a column of numbers.
#[must_use]
pub fn is_shaped(name: &[u8]) -> bool {
    name.ends_with(b"/s") || name.starts_with(b"%") || (name.starts_with(b"kb") && name.len() > 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mitra_model::{Entity, lookup};

    #[test]
    fn every_metric_exists_and_is_of_the_kind() {
        let mut seen = std::collections::HashSet::new();
        for columns in COLUMNS {
            for (name, metric) in columns.names {
                let metric = lookup(metric).unwrap_or_else(|| panic!("{metric} is not in the table"));
                let entity = match columns.kind {
                    System => Entity::System,
                    Cpu => Entity::Cpu,
                    Disk => Entity::Disk,
                    Nic => Entity::Nic,
                    Irq => Entity::Irq,
                    Filesystem => Entity::Filesystem,
                    Task => Entity::Task,
                    Other => unreachable!(),
                };
                let name = text(name);
                assert_eq!(metric.entity, entity, "{name}");
                assert_eq!(metric.is_rate(), columns.form == Rate, "{name}");
                assert!(seen.insert((columns.kind as u8, name.clone())), "{name} comes twice");
            }
        }
        for (_, name) in CPU_TIMES {
            for metric in [format!("sys.cpu_{name}"), format!("cpu.{name}")] {
                assert!(lookup(&metric).is_some(), "{metric}");
            }
        }
    }
}
