//! Parsers of kernel files and of the output of other tools. No I/O, no panics.
//!
//! Each kernel file has one module. Its parser fills rows of a frame and returns an [`Outcome`]: damaged, cut off or
//! duplicate lines are skipped and counted. Values that the kernel does not print stay unavailable.
//!
//! Parsers learn the layout of their file, so that a pass over a file of known layout compares keys and reads
//! numbers and neither allocates nor hashes.

#![forbid(unsafe_code)]

mod column;
mod flat_keyed;
mod keyed;
mod rows;
mod scan;

pub mod buddyinfo;
pub mod cgroup;
mod cgroup_io;
pub mod cgroup_limits;
mod cgroup_memory;
pub mod conntrack;
pub mod container_state;
pub mod diskstats;
pub mod fields;
pub mod fs_state;
pub mod interrupts;
pub mod journal;
pub mod kernel_message;
pub mod kmsg;
pub mod loadavg;
pub mod locks;
pub mod maps;
pub mod meminfo;
pub mod mountinfo;
pub mod mounts;
pub mod net_dev;
pub mod netlink;
pub mod node;
pub mod perfdata;
pub mod pressure;
pub mod slabinfo;
pub mod smaps;
pub mod snmp;
pub mod sockets;
pub mod sockstat;
pub mod softirqs;
pub mod softnet;
pub mod sources;
pub mod stack;
pub mod stat;
pub mod sysctl;
pub mod task;
pub mod task_status;
pub mod text;
pub mod vmstat;
pub mod zoneinfo;

#[cfg(test)]
mod damage;
#[cfg(test)]
mod filled;
mod find;
#[cfg(test)]
mod testing;

pub use sources::{Period, SOURCES, Source};

/// What a parser skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Lines that are damaged, cut off, repeated, or hold a number too large to store. Of all but the last kind
    /// nothing is used.
    pub bad_lines: u32,
    /// The number of the first of them, from 1.
    pub first_bad: Option<u32>,
    /// Well-formed counters that the metric table does not have.
    pub unknown_keys: u32,
}

impl Outcome {
    /// Whether everything was read.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.bad_lines == 0
    }

    pub(crate) fn bad(&mut self, line: u32) {
        self.bad_lines = self.bad_lines.saturating_add(1);
        self.first_bad.get_or_insert(line);
    }

    /// A file of one line that could not be read.
    pub(crate) fn bad_file() -> Self {
        Outcome { bad_lines: 1, first_bad: Some(1), unknown_keys: 0 }
    }
}
