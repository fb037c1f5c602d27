//! The files that exist once for the machine, in reading order.
//!
//! Files of a node, group, task or setting are in [`crate::node`], [`crate::cgroup`],
//! [`crate::task`] and [`crate::sysctl`].

use mitra_model::{Frame, Strings};

use crate::Outcome;
use crate::buddyinfo::BuddyInfo;
use crate::conntrack::ConnTrack;
use crate::diskstats::DiskStats;
use crate::fs_state::{DentryState, FileNr, InodeState};
use crate::interrupts::Interrupts;
use crate::loadavg::LoadAvg;
use crate::locks::Locks;
use crate::meminfo::MemInfo;
use crate::net_dev::NetDev;
use crate::pressure::{Pressure, Resource};
use crate::slabinfo::SlabInfo;
use crate::snmp::Snmp;
use crate::sockstat::SockStat;
use crate::softirqs::SoftIrqs;
use crate::softnet::SoftNet;
use crate::stat::Stat;
use crate::vmstat::VmStat;
use crate::zoneinfo::ZoneInfo;

/// A parser with the layout that it has learned.
pub type Parse = Box<dyn FnMut(&[u8], &mut Strings, &mut Frame) -> Outcome + Send>;

/// How often a file is worth reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// In each sample.
    Fast,
    /// In each sample while it is small, by a thread of its own. The kernel waits for a grace period of RCU before it lists
    /// the locks of files (`locks_start` of `fs/locks.c`), for 8 ms on an idle machine and for many seconds during a fork
    /// storm. Any user can make the list as long as it likes, and then it is read every few seconds.
    Aside,
    /// Every few seconds: the file is costly to make or seldom changes.
    Slow,
}

/// A file and its parser.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// The path below the root, without a slash at its start.
    pub path: &'static str,
    /// How often it is read.
    pub period: Period,
    /// Makes a new parser.
    pub parser: fn() -> Parse,
}

fn boxed<P: Send + 'static>(
    mut parser: P,
    parse: fn(&mut P, &[u8], &mut Strings, &mut Frame) -> Outcome,
) -> Parse {
    Box::new(move |input, strings, frame| parse(&mut parser, input, strings, frame))
}

/// The files. `/proc/stat` comes first, because its rows tell which CPUs are online.
pub const SOURCES: &[Source] = &[
    fast("proc/stat", || boxed(Stat::default(), Stat::parse)),
    fast("proc/loadavg", || boxed(LoadAvg::default(), LoadAvg::parse)),
    fast("proc/vmstat", || boxed(VmStat::default(), VmStat::parse)),
    fast("proc/meminfo", || boxed(MemInfo::default(), MemInfo::parse)),
    fast("proc/buddyinfo", || boxed(BuddyInfo::default(), BuddyInfo::parse)),
    fast("proc/diskstats", || boxed(DiskStats::default(), DiskStats::parse)),
    fast("proc/pressure/cpu", || boxed(Pressure::new(Resource::Cpu), Pressure::parse)),
    fast("proc/pressure/io", || boxed(Pressure::new(Resource::Io), Pressure::parse)),
    fast("proc/pressure/memory", || boxed(Pressure::new(Resource::Memory), Pressure::parse)),
    fast("proc/pressure/irq", || boxed(Pressure::new(Resource::Irq), Pressure::parse)),
    fast("proc/softirqs", || boxed(SoftIrqs::default(), SoftIrqs::parse)),
    fast("proc/net/dev", || boxed(NetDev::default(), NetDev::parse)),
    fast("proc/net/snmp", || boxed(Snmp::default(), Snmp::parse)),
    fast("proc/net/netstat", || boxed(Snmp::default(), Snmp::parse)),
    fast("proc/net/sockstat", || boxed(SockStat::default(), SockStat::parse)),
    fast("proc/net/stat/nf_conntrack", || boxed(ConnTrack::default(), ConnTrack::parse)),
    fast("proc/net/softnet_stat", || boxed(SoftNet::default(), SoftNet::parse)),
    fast("proc/sys/fs/dentry-state", || boxed(DentryState::default(), DentryState::parse)),
    fast("proc/sys/fs/inode-state", || boxed(InodeState::default(), InodeState::parse)),
    fast("proc/sys/fs/file-nr", || boxed(FileNr::default(), FileNr::parse)),
    Source { path: "proc/locks", period: Period::Aside, parser: || boxed(Locks::default(), Locks::parse) },
    slow("proc/zoneinfo", || boxed(ZoneInfo::default(), ZoneInfo::parse)),
    slow("proc/slabinfo", || boxed(SlabInfo::default(), SlabInfo::parse)),
    slow("proc/interrupts", || boxed(Interrupts::default(), Interrupts::parse)),
];

const fn fast(path: &'static str, parser: fn() -> Parse) -> Source {
    Source { path, period: Period::Fast, parser }
}

const fn slow(path: &'static str, parser: fn() -> Parse) -> Source {
    Source { path, period: Period::Slow, parser }
}
