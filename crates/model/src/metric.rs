//! The shape of the metric table. The rows are in `crates/model/metrics/`, see [`crate::metrics`].

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// What a metric is measured on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Entity {
    /// The whole machine: one row.
    System = 0,
    /// One logical CPU; key `0`, `1`, ….
    Cpu,
    /// One NUMA node; key `0`, `1`, ….
    Node,
    /// One memory zone of a node; key `0/DMA32`, `0/Normal`, ….
    Zone,
    /// One block device or partition as in `/proc/diskstats`; key `vda`, `loop0`, ….
    Disk,
    /// One mounted filesystem; key is the mount point.
    Filesystem,
    /// One network device; key `eth0`, ….
    Nic,
    /// One slab cache; key `dentry`, ….
    Slab,
    /// One control group; key is its path below the mount, `/` for the root. Version 1 controllers that have a
    /// group at the same path share one row.
    Cgroup,
    /// One task (thread). Its key is the thread id and the start time, because ids are reused.
    Task,
    /// Tasks that ended, added up by parent and command; see `exited.*`.
    Exited,
    /// One interrupt line of `/proc/interrupts`; key is its number or name.
    Irq,
    /// One network namespace other than the recorder's own; key is its name in `/run/netns` where it has one, else
    /// `net:[4026532201]`.
    Netns,
    /// One TCP socket that accepts connections; key is `127.0.0.1:80`, with `@NAMESPACE` at its end for another
    /// network namespace than the recorder's.
    Listener,
    /// One reason for which the kernel throws packets away; key is the reason, `qdisc_drop`.
    Drop,
    /// One remote end of TCP connections that had trouble; key is `10.0.0.7:443`.
    Peer,
    /// One name server that programs ask; key is `10.0.0.53:53`.
    Resolver,
    /// One system call of a trace; key is the call, or `program/call` where the trace knows the program.
    Call,
    /// Names that were looked up in vain in one directory; key is the directory.
    Lookup,
    /// One mapping of a process; key is `pid:start-end name`, the pid left out where it is not known.
    Mapping,
    /// One instance of a run time's allocator; key is `eheap_alloc 0`, ….
    Allocator,
    /// One kind of object in a heap: a type, a string; key is its name.
    Census,
    /// One run of a benchmark; key is the name of its file, or of the job in it.
    Run,
    /// One program that writes a log; key is its name.
    Log,
    /// One code path by its folded stack, `main;read;do_sync`.
    Path,
}

impl Entity {
    /// Every entity, in the order of their tables in a frame.
    pub const ALL: [Entity; 25] = [
        Entity::System,
        Entity::Cpu,
        Entity::Node,
        Entity::Zone,
        Entity::Disk,
        Entity::Filesystem,
        Entity::Nic,
        Entity::Slab,
        Entity::Cgroup,
        Entity::Task,
        Entity::Exited,
        Entity::Irq,
        Entity::Netns,
        Entity::Listener,
        Entity::Drop,
        Entity::Peer,
        Entity::Resolver,
        Entity::Call,
        Entity::Lookup,
        Entity::Mapping,
        Entity::Allocator,
        Entity::Census,
        Entity::Run,
        Entity::Log,
        Entity::Path,
    ];
    /// How many kinds of entity there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The name used in documents and on disk.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Entity::System => "system",
            Entity::Cpu => "cpu",
            Entity::Node => "node",
            Entity::Zone => "zone",
            Entity::Disk => "disk",
            Entity::Filesystem => "filesystem",
            Entity::Nic => "nic",
            Entity::Slab => "slab",
            Entity::Cgroup => "cgroup",
            Entity::Task => "task",
            Entity::Exited => "exited",
            Entity::Irq => "irq",
            Entity::Netns => "netns",
            Entity::Listener => "listener",
            Entity::Drop => "drop",
            Entity::Peer => "peer",
            Entity::Resolver => "resolver",
            Entity::Call => "call",
            Entity::Lookup => "lookup",
            Entity::Mapping => "mapping",
            Entity::Allocator => "allocator",
            Entity::Census => "census",
            Entity::Run => "run",
            Entity::Log => "log",
            Entity::Path => "path",
        }
    }

    /// Whether the recorder fills it; the others come only from the output of other tools.
    #[must_use]
    pub fn is_recorded(self) -> bool {
        (self as usize) <= Entity::Resolver as usize
    }

    /// Whether the counters of a row begin with the row: what a new row shows has happened since the frame before.
    #[must_use]
    pub fn counts_from_nothing(self) -> bool {
        matches!(self, Entity::Exited | Entity::Drop | Entity::Peer | Entity::Resolver)
    }

    /// The entity of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|e| e.name() == name)
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The unit of a stored value. Base units; pages only where the kernel itself means pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A number of things: faults, processes, packets.
    Count,
    /// Bytes.
    Bytes,
    /// Memory pages of the machine's base page size.
    Pages,
    /// Kibibytes, as the kernel prints most sizes. Presented as bytes.
    KiB,
    /// Nanoseconds. Presented as seconds; for a counter as seconds per second.
    Nanos,
    /// Microseconds. Presented as seconds.
    Micros,
    /// Milliseconds. Presented as seconds.
    Millis,
    /// Hundredths of a second, the `USER_HZ` of every architecture that Mitra runs on. Presented as seconds.
    Ticks,
    /// Hundredths of the number meant, as in the load average.
    Centi,
    /// Millionths of the number meant: ratios and rates that other tools print with decimals.
    Ppm,
    /// Sectors of 512 bytes, whatever the device's own sector size.
    Sectors,
    /// A text: the stored value is an id in the frame's string table.
    Text,
    /// No unit: a setting, a state, a bit mask.
    None,
}

impl Unit {
    /// What one stored unit is worth in the base unit that people read (`ns` are stored, seconds are read).
    #[must_use]
    pub fn scale(self) -> f64 {
        match self {
            Unit::KiB => 1024.0,
            Unit::Nanos => 1e-9,
            Unit::Micros | Unit::Ppm => 1e-6,
            Unit::Millis => 1e-3,
            Unit::Ticks | Unit::Centi => 1e-2,
            Unit::Sectors => 512.0,
            _ => 1.0,
        }
    }

    /// The base unit after [`Unit::scale`], for a gauge.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Unit::Count | Unit::Centi | Unit::Ppm | Unit::None => "",
            Unit::Bytes | Unit::KiB | Unit::Sectors => "bytes",
            Unit::Pages => "pages",
            Unit::Nanos | Unit::Micros | Unit::Millis | Unit::Ticks => "s",
            Unit::Text => "text",
        }
    }
}

/// How a value behaves in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Only grows while the thing lives; what is read is its rate per second.
    Counter,
    /// A level at the moment of the sample.
    Gauge,
    /// A counter of one bucket of a histogram: events that took at most the bound in the metric's name.
    Bucket,
    /// A text that is stored when it changes.
    Text,
}

/// The kernel version since which a number exists, as `(major, minor)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kernel(pub u8, pub u8);

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// One row of the metric table.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The public name: `area.counter`, with the kernel's own name for the counter where it has one.
    pub name: &'static str,
    /// What it is measured on.
    pub entity: Entity,
    /// The unit of the stored integer.
    pub unit: Unit,
    /// How it behaves in time.
    pub kind: Kind,
    /// The file (and field in it) or the kernel structure that it comes from.
    pub source: &'static str,
    /// The kernel that first had it.
    pub since: Kernel,
    /// What the number really means.
    pub help: &'static str,
}

impl Metric {
    /// The unit that readers see: `bytes/s` for a counter of bytes or sectors, `s/s` for a counter of nanoseconds.
    #[must_use]
    pub fn unit_label(&self) -> String {
        match (self.kind, self.unit.label()) {
            (Kind::Counter | Kind::Bucket, "") => "1/s".to_owned(),
            (Kind::Counter | Kind::Bucket, label) => format!("{label}/s"),
            (_, label) => label.to_owned(),
        }
    }

    /// Whether readers see a rate.
    #[must_use]
    pub fn is_rate(&self) -> bool {
        matches!(self.kind, Kind::Counter | Kind::Bucket)
    }
}

struct Index {
    columns: [Vec<&'static Metric>; Entity::COUNT],
    by_name: HashMap<&'static str, (&'static Metric, usize)>,
}

fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut columns: [Vec<&'static Metric>; Entity::COUNT] = Default::default();
        let mut by_name = HashMap::new();
        for metric in crate::metrics::all() {
            let list = &mut columns[metric.entity as usize];
            by_name.insert(metric.name, (metric, list.len()));
            list.push(metric);
        }
        Index { columns, by_name }
    })
}

/// The metrics of one entity, in the order of the columns of its table in a frame.
#[must_use]
pub fn columns(entity: Entity) -> &'static [&'static Metric] {
    &index().columns[entity as usize]
}

/// The metric of that name.
#[must_use]
pub fn lookup(name: &str) -> Option<&'static Metric> {
    index().by_name.get(name).map(|(metric, _)| *metric)
}

/// The position of a metric in the table of its entity.
#[must_use]
pub fn column(name: &str) -> Option<usize> {
    index().by_name.get(name).map(|(_, column)| *column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_lookup_agree() {
        for entity in Entity::ALL {
            for (i, metric) in columns(entity).iter().enumerate() {
                assert_eq!(column(metric.name), Some(i));
                assert_eq!(lookup(metric.name), Some(*metric));
                assert_eq!(metric.entity, entity);
            }
            assert_eq!(Entity::from_name(entity.name()), Some(entity));
        }
    }
}
