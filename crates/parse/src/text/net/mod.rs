//! Network tools: ip, ifconfig, ethtool, netstat, nstat, ss, conntrack, tc.

mod counters;
mod links;
mod queues;
mod sentences;
mod sockets;

use mitra_model::lookup;

use super::snapshots::sink::Sink;
use super::{Format, Import, When};

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    Format {
        name: "ip -s link",
        what: "counters of network devices, also with `-s -s`",
        starts: links::ip_starts,
        read: links::ip,
    },
    Format {
        name: "ifconfig",
        what: "counters of network devices, of old and new net-tools",
        starts: links::ifconfig_starts,
        read: links::ifconfig,
    },
    Format {
        name: "ethtool -S",
        what: "drops at the rings of the driver",
        starts: links::ethtool_starts,
        read: links::ethtool,
    },
    Format {
        name: "netstat -s",
        what: "counters of protocols, of all versions of net-tools",
        starts: counters::netstat_starts,
        read: counters::netstat,
    },
    Format {
        name: "nstat",
        what: "counters of protocols by the kernel's names",
        starts: counters::nstat_starts,
        read: counters::nstat,
    },
    Format {
        name: "ss -s",
        what: "sockets by kind",
        starts: sockets::summary_starts,
        read: sockets::summary,
    },
    Format {
        name: "ss",
        what: "sockets by state and their queues, from `ss` and `netstat -tan`",
        starts: sockets::list_starts,
        read: sockets::list,
    },
    Format {
        name: "tc -s qdisc",
        what: "queueing disciplines: what waits and is dropped",
        starts: queues::qdisc_starts,
        read: queues::qdisc,
    },
    Format {
        name: "conntrack -S",
        what: "what connection tracking found, dropped and could not insert",
        starts: queues::tracking_starts,
        read: queues::tracking,
    },
    Format {
        name: "conntrack -C",
        what: "how many connections are tracked",
        starts: queues::count_starts,
        read: queues::count,
    },
];

/// Where the numbers of one output go.
#[derive(Default)]
struct Out {
    sink: Sink,
    /// When the block was, the same for all of it.
    when: Option<When>,
}

impl Out {
    /// Puts a number in the base unit of a metric; a name that the table does not have is passed over.
    fn put(&mut self, import: &mut Import, metric: &str, row: &[u8], line: u32, value: f64) -> bool {
        let Some(metric) = lookup(metric) else { return false };
        let when = *self.when.get_or_insert_with(|| import.now());
        self.sink.put(import, metric, row, when, line, value);
        true
    }
}
