//! What the kernel tells through BPF: every task in one pass, the ones that ended, block
//! I/O, time lost in reclaim and for locks, OOM kills and fatal signals.
//!
//! The programs are in `bpf/`, written in C and compiled once; field offsets are filled in
//! for the kernel at hand when they are loaded. Only BPF iterators, BTF tracepoints and
//! hooks of control groups are used: no kprobes, no tracefs. A probe that this kernel or this privilege does not allow
//! is left out, and [`Probes::unavailable`] says why.
//!
//! Needs `/sys/kernel/btf/vmlinux` (5.8 and later) and `CAP_BPF` with `CAP_PERFMON`.

mod block;
mod dns;
mod enums;
mod events;
mod exit;
mod load;
mod load_net;
mod locks;
mod net;
mod record;
mod services;
pub(crate) mod sys;
mod task;
mod windows;

pub use block::{BlockHist, BlockHists, BlockOp};
pub use dns::{DNS_BUCKETS, Open, Resolvers, ServerKey, ServerSum};
pub use events::{EventKind, EventRec, Events, StallHist, StallKind, StallSum, Stalls};
pub use exit::{ExitKey, ExitRec, ExitSum, Exits};
pub use load::Probes;
pub(crate) use load::{chain, cpus, with_bounded_heap};
pub use locks::{LockOwner, LockWaits};
pub use net::{DROP_REASONS, NetAttached, NetTotals, NetTrouble, PeerKey, PeerSum};
pub use record::{
    CgroupIds, Delays, FLAG_GROUP_DEAD, FLAG_HAS_DELAYS, FLAG_HAS_FILES, FLAG_HAS_MM, FLAG_HAS_STACK,
    FLAG_IN_IOWAIT, FLAG_KTHREAD, FLAG_LEADER, LATENCY_BUCKETS, NA, SIZE_BUCKETS, comm_str, known,
    latency_bucket_us_max, size_bucket_bytes_max,
};
pub use services::{PortKey, SERVICE_BUCKETS, STATUSES, ServiceCounts, ServiceKey, Services};
pub use task::{PassStats, Seen, StillRec, TaskIo, TaskIter, TaskRec, split_cpu_time};
pub use windows::Windows;

/// The exit ring's bytes by the size of a record and its 8 bytes of header.
const EXIT_RING_RECORDS_MAX: usize = 512 * 1024 / (size_of::<ExitRec>() + 8);
/// The event ring's bytes by the size of a record and its 8 bytes of header.
const EVENT_RING_RECORDS_MAX: usize = 64 * 1024 / (size_of::<EventRec>() + 8);
