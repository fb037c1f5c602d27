//! Network tools: ip, ifconfig, ethtool, netstat, nstat, ss, conntrack, tc.

mod counters;
mod iftop;
mod interfaces;
mod links;
mod mountstats;
mod queues;
mod sentences;
mod sockets;

use mitra_model::lookup;

use super::snapshots::sink::Sink;
use super::{Format, Import, When};

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    links::IP,
    links::IFCONFIG,
    links::ETHTOOL,
    links::RINGS,
    interfaces::FORMAT,
    iftop::FORMAT,
    mountstats::FORMAT,
    mountstats::NFSSTAT,
    counters::NETSTAT,
    counters::NSTAT,
    sockets::SUMMARY,
    sockets::LIST,
    queues::QDISC,
    queues::TRACKING,
    queues::COUNT,
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
    fn put(&mut self, import: &mut Import, metric: &str, row: &[u8], line: u32, value: f64) {
        let Some(metric) = lookup(metric) else { return };
        let when = *self.when.get_or_insert_with(|| import.now());
        self.sink.put(import, metric, row, when, line, value);
    }
}
