//! The rows of the metric table: everything that Mitra measures, declared once.
//!
//! The order of the rows of one entity is the order of its columns in a frame. The archive stores names, so rows
//! may be added anywhere.

pub mod cgroup;
pub mod cpu;
pub mod disk;
pub mod filesystem;
pub mod heaps;
pub mod irq;
pub mod meminfo;
pub mod netns;
pub mod netstat_ip;
pub mod netstat_tcp;
pub mod nettrouble;
pub mod network;
pub mod psi;
pub mod slab;
pub mod snmp;
pub mod summary;
pub mod sysctl;
pub mod tasks;
pub mod text_heaps;
pub mod text_net;
pub mod text_pidstat;
pub mod text_procps;
pub mod text_tracing;
pub mod tools;
pub mod vmstat;
pub mod vmstat_huge;
pub mod vmstat_reclaim;
pub mod zone;

use crate::metric::Metric;

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    [
        cpu::CPU_SYSTEM,
        cpu::CPU,
        irq::IRQ,
        psi::PSI,
        disk::DISK,
        filesystem::FILESYSTEM,
        slab::SLAB,
        slab::CACHES,
        zone::ZONE,
        zone::BUDDY,
        zone::NODE,
        cgroup::CGROUP,
        sysctl::SYSCTL,
        network::NIC,
        network::SOFTNET,
        network::SOCKSTAT,
        meminfo::MEMINFO,
        vmstat::LEVELS,
        vmstat::TRAFFIC,
        vmstat_reclaim::RECLAIM,
        vmstat_huge::NUMA,
        vmstat_huge::HUGE,
        vmstat_huge::DEBUG,
        snmp::SNMP,
        netstat_tcp::TCPEXT,
        netstat_ip::IPEXT,
        netstat_ip::MPTCPEXT,
        netns::NETNS,
        netns::NETNS_TOTALS,
        nettrouble::LISTENER,
        nettrouble::DROP,
        nettrouble::PEER,
        nettrouble::RESOLVER,
        nettrouble::FULL_SOCKETS,
        summary::SUMMARY,
        tasks::TASK,
        tasks::EXITED,
        tools::OF_TOOLS,
        tools::TRANSFERS,
        tools::CALL,
        text_tracing::TRACED,
        tools::LOOKUP,
        tools::LOG,
        tools::PATH,
        heaps::MAPPING,
        heaps::ALLOCATOR,
        heaps::CENSUS,
        heaps::RUN,
        text_heaps::SPACES,
        text_net::TEXT_NET,
        text_net::TEXT_NIC,
        text_pidstat::TASK_SIZES,
        text_procps::SLAB_SIZE,
        text_procps::TOTALS,
    ]
    .into_iter()
    .flatten()
}
