//! Maps the metric that moved most to a condition.
//!
//! The baselines rank metrics and know no conditions. This table has what an experienced engineer
//! would conclude from the metric alone. Metrics that move in every trouble (load, context
//! switches, idle time) have no entry and are skipped, which favours the baselines. Conditions that
//! no incident makes are skipped too: such an answer could never be right.

use crate::incidents;

/// Prefixes of metric names. The longest match counts.
pub const TABLE: &[(&str, &str)] = &[
    // Page cache and reclaim.
    ("vm.workingset_refault_file", "page-cache-thrash"),
    ("vm.workingset_activate_file", "page-cache-thrash"),
    ("vm.workingset_restore_file", "page-cache-thrash"),
    ("vm.pgsteal", "streaming-read-flood"),
    ("vm.pgscan", "streaming-read-flood"),
    ("vm.pgmajfault", "streaming-read-flood"),
    ("vm.pswp", "swap-thrash"),
    ("vm.workingset_refault_anon", "swap-thrash"),
    ("mem.swap", "swap-thrash"),
    ("vm.oom_kill", "oom-kill"),
    ("cgroup.oom", "oom-kill"),
    ("tasks.oom_kills", "oom-kill"),
    ("cgroup.refault_file", "page-cache-thrash"),
    ("cgroup.refault_anon", "swap-thrash"),
    ("cgroup.anon", "anonymous-growth"),
    ("vm.allocstall", "anonymous-growth"),
    ("mem.anon", "anonymous-growth"),
    ("mem.shmem", "shmem-growth"),
    ("vm.compact", "memory-fragmentation"),
    ("vm.numa_", "numa-imbalance"),
    ("psi.memory", "cgroup-memory-limit"),
    ("cgroup.memory_failcnt", "cgroup-memory-limit"),
    ("cgroup.psi_memory", "cgroup-memory-limit"),
    // Slabs.
    ("dentry.", "slab-dentry-bloat"),
    ("inode.", "slab-inode-bloat"),
    ("mem.sreclaimable", "slab-dentry-bloat"),
    ("mem.sunreclaim", "slab-leak"),
    // Faults and locks.
    ("vm.pgfault", "minor-fault-storm"),
    ("tasks.wpcopy_delay", "fork-stall"),
    // CPU.
    ("sys.forks", "fork-storm"),
    ("sys.cpu_steal", "cpu-steal"),
    ("cpu.steal", "cpu-steal"),
    ("sys.procs_running", "runqueue-saturation"),
    ("psi.cpu", "runqueue-saturation"),
    ("sys.cpu_user", "cpu-hog"),
    ("cpu.user", "single-thread-bottleneck"),
    ("cpu.softirq", "interrupt-imbalance"),
    ("cgroup.throttled_time", "cpu-quota-throttled"),
    ("cgroup.nr_throttled", "cpu-quota-throttled"),
    ("cgroup.psi_cpu_full", "cpu-quota-throttled"),
    // Disk.
    ("disk.read_time", "slow-device"),
    ("disk.write_time", "slow-device"),
    ("disk.weighted", "disk-hog"),
    ("disk.io_time", "disk-hog"),
    ("disk.read", "disk-hog"),
    ("disk.write", "disk-hog"),
    ("mem.dirty", "dirty-writeback-stall"),
    ("mem.writeback", "dirty-writeback-stall"),
    ("vm.nr_dirty", "dirty-writeback-stall"),
    ("vm.nr_writeback", "dirty-writeback-stall"),
    ("psi.io", "slow-device"),
    ("cgroup.psi_io", "io-throttled"),
    ("tasks.d_throttle", "io-throttled"),
    ("fs.free", "filesystem-full"),
    ("fs.avail", "filesystem-full"),
    ("fs.inodes_free", "inode-exhaustion"),
    // Network.
    ("sock.tcp_orphan", "tcp-orphan-pressure"),
    ("sock.tcp_mem", "tcp-memory-pressure"),
    ("tcpext.TCPAbortOnMemory", "tcp-orphan-pressure"),
    ("tcpext.TCPMemoryPressures", "tcp-memory-pressure"),
    ("netns.tcpext_TCPAbortOnMemory", "tcp-orphan-pressure"),
    ("tcpext.ListenOverflows", "listen-overflow"),
    ("tcpext.ListenDrops", "listen-overflow"),
    ("netns.tcpext_Listen", "listen-overflow"),
    ("listener.", "listen-overflow"),
    ("tcp.RetransSegs", "retransmit-storm"),
    ("netns.tcp_RetransSegs", "retransmit-storm"),
    ("peer.", "retransmit-storm"),
    ("udp.RcvbufErrors", "socket-buffer-overflow"),
    ("udp.InErrors", "socket-buffer-overflow"),
    ("netns.udp_RcvbufErrors", "socket-buffer-overflow"),
    ("netns.udp_InErrors", "socket-buffer-overflow"),
    ("nic.qdisc", "qdisc-drops"),
    ("udp.SndbufErrors", "qdisc-drops"),
    ("nic.rx_drop", "nic-drops"),
    ("nic.tx_drop", "nic-drops"),
    ("softnet.", "nic-drops"),
    ("conntrack.", "conntrack-full"),
    ("netns.conntrack", "conntrack-full"),
    ("sock.tcp_tw", "port-exhaustion"),
    ("resolver.", "resolver-slow"),
    // Processes and host.
    ("tasks.uninterruptible", "hung-task"),
    ("tasks.d_other", "hung-task"),
    ("tasks.exited", "crash-loop"),
    ("files.nr", "fd-exhaustion"),
    ("tasks.fds_fullest", "fd-exhaustion"),
    ("tasks.total", "thread-explosion"),
    ("cgroup.pids_current", "thread-explosion"),
    ("sysctl.", "config-drift"),
];

/// Whether an incident has the condition as its root or as equally true.
pub fn is_made(condition: &str) -> bool {
    incidents::all().any(|i| i.is_true(condition))
}

/// The condition of a metric.
pub fn of(metric: &str) -> Option<&'static str> {
    let fits = TABLE.iter().filter(|(prefix, _)| metric.starts_with(prefix));
    let (_, condition) = fits.max_by_key(|(prefix, _)| prefix.len())?;
    is_made(condition).then_some(*condition)
}
