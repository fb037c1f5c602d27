//! The tables, and how their columns are worked out.

use mitra_model::{Entity, cgroup_name};

use super::value::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Panel {
    #[default]
    Processes,
    Cgroups,
    Disks,
    Network,
    Services,
    /// Has no table: incidents come from the diagnosis.
    Incidents,
    /// Processes by how their memory grows, below what the memory of the machine is used for.
    Memory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Share,
    Bytes,
    BytesPerS,
    PerS,
    Seconds,
    Count,
    /// How many at a time, on average.
    Mean,
}

/// A column of numbers.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    pub width: usize,
    pub unit: Unit,
    pub value: Value,
    /// From here on a number is bad, from half of it worth a look.
    pub bad: f64,
    /// The same of processes that ended.
    pub ended: &'static [&'static str],
}

impl Column {
    const fn new(title: &'static str, width: usize, unit: Unit, value: Value) -> Self {
        Column { title, width, unit, value, bad: f64::INFINITY, ended: &[] }
    }

    const fn bad(self, bad: f64) -> Self {
        Column { bad, ..self }
    }

    const fn ended(self, ended: &'static [&'static str]) -> Self {
        Column { ended, ..self }
    }
}

use Unit::{Bytes, BytesPerS, Count, Mean, PerS, Seconds, Share};
use Value::{Growth, Least, Lost, Pages, Ratio, Sum};

const PROCESSES: &[Column] = &[
    Column::new("CPU", 8, Share, Sum(&["task.cpu_time"])).ended(&["exited.cpu_time"]),
    // A task that stands still for a whole second has lost all of it.
    Column::new("LOST", 7, Mean, Lost).bad(1.0).ended(&["exited.run_delay"]),
    Column::new("MEM", 8, Bytes, Pages(&["task.rss_anon", "task.rss_file", "task.rss_shmem"])),
    Column::new("READ", 10, BytesPerS, Sum(&["task.read_bytes"])).ended(&["exited.read_bytes"]),
    Column::new("WRITE", 10, BytesPerS, Sum(&["task.write_bytes"])).ended(&["exited.write_bytes"]),
    Column::new("THR", 5, Count, Sum(&["task.threads"])),
    Column::new("MAJFLT", 9, PerS, Sum(&["task.majflt"])).ended(&["exited.majflt"]),
    Column::new("SWAP", 8, Bytes, Pages(&["task.swap"])),
    Column::new("IOWAIT", 7, Share, Sum(&["task.blkio_delay"])).bad(0.5),
    Column::new("CPUWAIT", 8, Share, Sum(&["task.run_delay"])).bad(0.5).ended(&["exited.run_delay"]),
    Column::new("FDS", 7, Count, Sum(&["task.fds"])),
];

const CGROUPS: &[Column] = &[
    Column::new("CPU", 7, Share, Sum(&["cgroup.cpu_usage"])),
    // Of the time of all CPUs: half a second of each second is half of one.
    Column::new("THROTTLE", 9, Share, Sum(&["cgroup.throttled_time"])).bad(0.5),
    Column::new("MEM", 8, Bytes, Sum(&["cgroup.memory_current"])),
    Column::new("LIMIT", 8, Bytes, Least("cgroup.memory_max")),
    Column::new("READ", 10, BytesPerS, Sum(&["cgroup.io_read_bytes"])),
    Column::new("WRITE", 10, BytesPerS, Sum(&["cgroup.io_write_bytes"])),
    Column::new("CPUWAIT", 8, Share, Sum(&["cgroup.psi_cpu_some"])).bad(0.8),
    Column::new("IOWAIT", 7, Share, Sum(&["cgroup.psi_io_some"])).bad(0.4),
    Column::new("MEMWAIT", 8, Share, Sum(&["cgroup.psi_memory_some"])).bad(0.1),
    Column::new("PIDS", 7, Count, Sum(&["cgroup.pids_current"])),
    Column::new("OOM", 7, PerS, Sum(&["cgroup.oom_kill"])).bad(f64::MIN_POSITIVE),
];

const DISKS: &[Column] = &[
    Column::new("BUSY", 7, Share, Sum(&["disk.io_time"])).bad(0.95),
    Column::new("QUEUE", 7, Mean, Sum(&["disk.weighted_time"])),
    Column::new("READ", 10, BytesPerS, Sum(&["disk.read_bytes"])),
    Column::new("READS", 9, PerS, Sum(&["disk.reads"])),
    Column::new("R-TIME", 8, Seconds, Ratio(&["disk.read_time"], &["disk.reads"])),
    Column::new("WRITE", 10, BytesPerS, Sum(&["disk.write_bytes"])),
    Column::new("WRITES", 9, PerS, Sum(&["disk.writes"])),
    Column::new("W-TIME", 8, Seconds, Ratio(&["disk.write_time"], &["disk.writes"])),
    Column::new("FLUSHES", 9, PerS, Sum(&["disk.flushes"])),
    Column::new("F-TIME", 8, Seconds, Ratio(&["disk.flush_time"], &["disk.flushes"])),
];

const NETWORK: &[Column] = &[
    Column::new("RX", 10, BytesPerS, Sum(&["nic.rx_bytes"])),
    Column::new("TX", 10, BytesPerS, Sum(&["nic.tx_bytes"])),
    Column::new("RXPKTS", 9, PerS, Sum(&["nic.rx_packets"])),
    Column::new("TXPKTS", 9, PerS, Sum(&["nic.tx_packets"])),
    Column::new("DROPS", 8, PerS, Sum(&["nic.rx_drop", "nic.tx_drop"])).bad(1.0),
    Column::new("ERRORS", 8, PerS, Sum(&["nic.rx_errs", "nic.tx_errs", "nic.rx_fifo", "nic.tx_carrier"]))
        .bad(1.0),
];

const SERVICES: &[Column] = &[
    // How many clients wait at a time.
    Column::new("WAITING", 9, Mean, Sum(&["service.wait_time"])).bad(10.0),
    Column::new("REQUESTS", 10, PerS, Sum(&["service.requests"])),
    Column::new("P50", 8, Seconds, Least("service.latency_p50")),
    Column::new("P99", 8, Seconds, Least("service.latency_p99")),
    Column::new("OPEN", 7, Count, Sum(&["service.open"])),
    Column::new(
        "FAILED",
        8,
        PerS,
        Sum(&["service.unanswered", "service.abandoned", "service.resets", "service.server_errors"]),
    )
    .bad(1.0),
    Column::new("CONNS", 8, Count, Sum(&["service.established"])),
    Column::new("SENT", 10, BytesPerS, Sum(&["service.sent_bytes"])),
    Column::new("RECEIVED", 10, BytesPerS, Sum(&["service.received_bytes"])),
];

const MEMORY: &[Column] = &[
    // What moves to swap is still there, and pages of files are whose the page cache is.
    Column::new("GROWTH", 10, BytesPerS, Growth(&["task.rss_anon", "task.rss_shmem", "task.swap"])),
    Column::new("MEM", 8, Bytes, Pages(&["task.rss_anon", "task.rss_file", "task.rss_shmem"])),
    Column::new("ANON", 8, Bytes, Pages(&["task.rss_anon"])),
    Column::new("FILE", 8, Bytes, Pages(&["task.rss_file"])),
    Column::new("SHARED", 8, Bytes, Pages(&["task.rss_shmem"])),
    Column::new("SWAP", 8, Bytes, Pages(&["task.swap"])),
    Column::new("MAJFLT", 9, PerS, Sum(&["task.majflt"])),
    Column::new("MINFLT", 9, PerS, Sum(&["task.minflt"])),
    // Memory is reclaimed by whoever needs some.
    Column::new("RECLAIM", 9, Share, Sum(&["task.reclaim_delay"])).bad(0.1),
    Column::new("THRASH", 8, Share, Sum(&["task.thrashing_delay"])).bad(0.1),
];

impl Panel {
    pub const ALL: [Panel; 7] = [
        Panel::Processes,
        Panel::Cgroups,
        Panel::Disks,
        Panel::Network,
        Panel::Services,
        Panel::Incidents,
        Panel::Memory,
    ];

    /// Whether its rows are processes.
    pub fn has_processes(self) -> bool {
        matches!(self, Panel::Processes | Panel::Memory)
    }

    pub fn title(self) -> &'static str {
        match self {
            Panel::Processes => "processes",
            Panel::Cgroups => "cgroups",
            Panel::Disks => "disks",
            Panel::Network => "network",
            Panel::Services => "services",
            Panel::Incidents => "incidents",
            Panel::Memory => "memory",
        }
    }

    /// Its number on the screen, from 0.
    pub fn number(self) -> usize {
        self as usize
    }

    pub fn columns(self) -> &'static [Column] {
        match self {
            Panel::Processes => PROCESSES,
            Panel::Cgroups => CGROUPS,
            Panel::Disks => DISKS,
            Panel::Network => NETWORK,
            Panel::Services => SERVICES,
            Panel::Incidents => &[],
            Panel::Memory => MEMORY,
        }
    }

    pub fn entity(self) -> Option<Entity> {
        Some(match self {
            Panel::Processes | Panel::Memory => Entity::Task,
            Panel::Cgroups => Entity::Cgroup,
            Panel::Disks => Entity::Disk,
            Panel::Network => Entity::Nic,
            Panel::Services => Entity::Service,
            Panel::Incidents => return None,
        })
    }

    /// Texts and ids that its rows need.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Panel::Processes | Panel::Memory => &[
                "task.comm",
                "task.tgid",
                "task.ppid",
                "task.kthread",
                "task.state",
                "task.cgroup",
                "task.kstack",
                "exited.count",
                "exited.last_pid",
                "cgroup.container",
                "cgroup.image",
                "cgroup.pod",
            ],
            Panel::Cgroups => &cgroup_name::METRICS,
            Panel::Services => &["service.comm"],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use mitra_model::lookup;

    use super::*;

    #[test]
    fn columns_are_of_metrics_that_there_are() {
        for panel in Panel::ALL {
            for column in panel.columns() {
                for name in column.value.metrics() {
                    let metric = lookup(name).unwrap_or_else(|| panic!("{name}"));
                    assert_eq!(Some(metric.entity), panel.entity(), "{name}");
                }
                assert!(
                    column.ended.iter().all(|name| lookup(name).is_some_and(|m| m.entity == Entity::Exited))
                );
                assert!(column.title.len() < column.width, "{}", column.title);
            }
            assert!(panel.names().iter().all(|name| lookup(name).is_some()));
        }
    }
}
