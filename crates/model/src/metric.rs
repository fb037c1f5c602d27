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
    /// Tasks that exited, summed by parent and command; see `exited.*`.
    Exited,
    /// One interrupt line of `/proc/interrupts`; key is its number or name.
    Irq,
    /// One network namespace other than the recorder's own; key is its name in `/run/netns`, or `net:[4026532201]`.
    Netns,
    /// One listening TCP socket; key is `127.0.0.1:80`, with `@NAMESPACE` appended in other network namespaces.
    Listener,
    /// One drop reason of the kernel (`enum skb_drop_reason`); key is the reason, `qdisc_drop`.
    Drop,
    /// One remote address of TCP connections with retransmissions or resets; key is `10.0.0.7:443`.
    Peer,
    /// One DNS server that programs query; key is `10.0.0.53:53`.
    Resolver,
    /// One TCP port or named Unix socket that serves; key is `127.0.0.1:8080`, `unix:/run/app.sock`, with `@NAMESPACE`
    /// appended in other network namespaces.
    Service,
    /// What one process asks of one address; key is `812>10.0.0.7:5432`, the process id first.
    Dependency,
    /// One file with a lock that somebody waits for; key is `fe:00:12345`, device and inode number.
    Lock,
    /// Threads of one process that wait for the same; key is `4242>pipe:5151`, the process id first.
    Wait,
    /// One session of a database server; key is its process id, or `4242:37`, that of the server and its own number.
    Session,
    /// One command of a Redis server; key is `4242:keys`, the process id of the server first.
    Command,
    /// What takes connections or requests up to a limit, in HAProxy or PHP-FPM; key is `4242:web/FRONTEND`, the process id first.
    Pool,
    /// One connection of the kernel with a FUSE daemon; key is `0:45`, the device number of its file system.
    Fuse,
    /// One limit of its own that a program says in its log to have reached; key is `nginx:worker_connections`.
    Limit,
    /// One JVM; key is its process id.
    Jvm,
    /// One pattern that a rule looks for in a log; key is the rule's term, `log{file=/var/log/app.log} =~ "timeout"`.
    Pattern,
    /// One system call of a trace; key is the call, or `program/call` if the trace names the program.
    Call,
    /// Failed path lookups (ENOENT) in one directory; key is the directory.
    Lookup,
    /// One mapping of a process; key is `pid:start-end name`, without the pid if it is not known.
    Mapping,
    /// One allocator instance or heap space of a runtime; key is `eheap_alloc 0`, ….
    Allocator,
    /// One type or string in a heap; key is its name.
    Census,
    /// One run of a benchmark; key is the name of its file, or of the job in it.
    Run,
    /// One program with a log; key is its name.
    Log,
    /// One folded stack, `main;read;do_sync`.
    Path,
}

impl Entity {
    /// Every entity, in the order of their tables in a frame.
    pub const ALL: [Entity; 36] = [
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
        Entity::Service,
        Entity::Dependency,
        Entity::Lock,
        Entity::Wait,
        Entity::Session,
        Entity::Command,
        Entity::Pool,
        Entity::Fuse,
        Entity::Limit,
        Entity::Jvm,
        Entity::Pattern,
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
            Entity::Service => "service",
            Entity::Dependency => "dependency",
            Entity::Lock => "lock",
            Entity::Wait => "wait",
            Entity::Session => "session",
            Entity::Command => "command",
            Entity::Pool => "pool",
            Entity::Fuse => "fuse",
            Entity::Limit => "limit",
            Entity::Jvm => "jvm",
            Entity::Pattern => "pattern",
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

    /// Whether the recorder fills its table. The others are filled from the output of other tools only.
    #[must_use]
    pub fn is_recorded(self) -> bool {
        (self as usize) <= Entity::Pattern as usize
    }

    /// Whether the counters of a new row start at zero, so that its first values are increments since the last frame.
    #[must_use]
    pub fn counts_from_nothing(self) -> bool {
        matches!(
            self,
            Entity::Exited
                | Entity::Drop
                | Entity::Peer
                | Entity::Resolver
                | Entity::Service
                | Entity::Dependency
                | Entity::Limit
        )
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
    /// Hundredths, as in the load average.
    Centi,
    /// Millionths: ratios and rates that other tools print with decimals.
    Ppm,
    /// Sectors of 512 bytes, whatever the device's own sector size.
    Sectors,
    /// A text: the cell holds an id of [`crate::Strings`].
    Text,
    /// No unit: a setting, a state, a bit mask.
    None,
}

impl Unit {
    /// The factor from the stored unit to the base unit that readers see: nanoseconds to seconds.
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

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Grows for the lifetime of the entity. Readers see the rate per second.
    Counter,
    /// The value at the time of the sample.
    Gauge,
    /// The counter of one histogram bucket, whose upper bound is in the metric's name.
    Bucket,
    /// A text, stored when it changes.
    Text,
}

/// The first kernel version with the metric, as `(major, minor)`.
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
    /// The public name: `area.counter`, with the kernel's name of the counter if it has one.
    pub name: &'static str,
    /// The entity that it is measured on.
    pub entity: Entity,
    /// The unit of the stored integer.
    pub unit: Unit,
    /// Counter, gauge, bucket or text.
    pub kind: Kind,
    /// The file and field, kernel structure or tool that it is read from.
    pub source: &'static str,
    /// The first kernel version that has it.
    pub since: Kernel,
    /// The meaning, with the pitfalls.
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
        let mut columns: [Vec<&'static Metric>; Entity::COUNT] = std::array::from_fn(|_| Vec::new());
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
