//! Settings of the kernel that change how it behaves under load.

use crate::metric::{Entity, Kernel, Metric, Unit, gauge, text};

const fn state(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::None, source, since, help)
}

const fn kib(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::KiB, source, since, help)
}

const fn bytes(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Bytes, source, since, help)
}

const fn centi(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Centi, source, since, help)
}

const fn micros_level(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Micros, source, since, help)
}

const fn system_text(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    text(Entity::System, name, source, since, help)
}

const fn level(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Count, source, since, help)
}

/// Read at the start and every few seconds; a change is recorded when it is seen.
pub const SYSCTL: &[Metric] = &[
    state(
        "sysctl.vm.swappiness",
        "/proc/sys/vm/swappiness",
        Kernel(2, 6),
        "How much reclaim prefers anonymous pages over page cache: 0 to 100, since 5.8 to 200.",
    ),
    state(
        "sysctl.vm.vfs_cache_pressure",
        "/proc/sys/vm/vfs_cache_pressure",
        Kernel(2, 6),
        "How eagerly dentries and inodes are reclaimed, in percent of the page cache. 0 never frees them.",
    ),
    kib(
        "sysctl.vm.min_free_kbytes",
        "/proc/sys/vm/min_free_kbytes",
        Kernel(2, 6),
        "What the min watermarks of all zones add up to.",
    ),
    state(
        "sysctl.vm.watermark_scale_factor",
        "/proc/sys/vm/watermark_scale_factor",
        Kernel(4, 6),
        "Distance of the watermarks in ten-thousandths of memory: how early kswapd starts.",
    ),
    state(
        "sysctl.vm.dirty_ratio",
        "/proc/sys/vm/dirty_ratio",
        Kernel(2, 6),
        "Share of available memory in percent that may be dirty before writers wait. 0 where dirty_bytes is in force.",
    ),
    state(
        "sysctl.vm.dirty_background_ratio",
        "/proc/sys/vm/dirty_background_ratio",
        Kernel(2, 6),
        "Share of available memory in percent that may be dirty before the flushers start. 0 where dirty_background_bytes is in force.",
    ),
    bytes(
        "sysctl.vm.dirty_bytes",
        "/proc/sys/vm/dirty_bytes",
        Kernel(2, 6),
        "Dirty memory at which writers wait. 0 where dirty_ratio is in force.",
    ),
    bytes(
        "sysctl.vm.dirty_background_bytes",
        "/proc/sys/vm/dirty_background_bytes",
        Kernel(2, 6),
        "Dirty memory at which the flushers start. 0 where dirty_background_ratio is in force.",
    ),
    centi(
        "sysctl.vm.dirty_expire_centisecs",
        "/proc/sys/vm/dirty_expire_centisecs",
        Kernel(2, 6),
        "Age at which dirty pages are written.",
    ),
    centi(
        "sysctl.vm.dirty_writeback_centisecs",
        "/proc/sys/vm/dirty_writeback_centisecs",
        Kernel(2, 6),
        "How often the flushers wake up.",
    ),
    state(
        "sysctl.vm.overcommit_memory",
        "/proc/sys/vm/overcommit_memory",
        Kernel(2, 6),
        "0 refuses only absurd promises of memory, 1 promises everything, 2 keeps to the commit limit.",
    ),
    state(
        "sysctl.vm.overcommit_ratio",
        "/proc/sys/vm/overcommit_ratio",
        Kernel(2, 6),
        "Share of memory in percent that counts for the commit limit.",
    ),
    state(
        "sysctl.vm.zone_reclaim_mode",
        "/proc/sys/vm/zone_reclaim_mode",
        Kernel(2, 6),
        "Other than 0: a node reclaims its own page cache before it takes memory of another node.",
    ),
    state(
        "sysctl.vm.max_map_count",
        "/proc/sys/vm/max_map_count",
        Kernel(2, 6),
        "How many mappings a process may have; mmap fails above it.",
    ),
    state(
        "sysctl.vm.nr_hugepages",
        "/proc/sys/vm/nr_hugepages",
        Kernel(2, 6),
        "Huge pages asked for in the pool.",
    ),
    state(
        "sysctl.vm.drop_caches",
        "/proc/sys/vm/drop_caches",
        Kernel(2, 6),
        "What was last written to drop caches: 1 page cache, 2 slab, 3 both; 4 silences the log.",
    ),
    state(
        "sysctl.vm.extfrag_threshold",
        "/proc/sys/vm/extfrag_threshold",
        Kernel(2, 6),
        "Fragmentation above which compaction is preferred to reclaim.",
    ),
    state(
        "sysctl.vm.compaction_proactiveness",
        "/proc/sys/vm/compaction_proactiveness",
        Kernel(5, 9),
        "How hard compaction works ahead of need.",
    ),
    state(
        "sysctl.vm.page-cluster",
        "/proc/sys/vm/page-cluster",
        Kernel(2, 6),
        "Logarithm of the number of pages read ahead from swap.",
    ),
    state(
        "sysctl.vm.panic_on_oom",
        "/proc/sys/vm/panic_on_oom",
        Kernel(2, 6),
        "Other than 0: the machine panics instead of killing a process.",
    ),
    state(
        "sysctl.vm.laptop_mode",
        "/proc/sys/vm/laptop_mode",
        Kernel(2, 6),
        "Other than 0: writes are bundled to let disks sleep.",
    ),
    state(
        "sysctl.kernel.pid_max",
        "/proc/sys/kernel/pid_max",
        Kernel(2, 6),
        "Largest process id; fork fails when all are taken.",
    ),
    state(
        "sysctl.kernel.threads-max",
        "/proc/sys/kernel/threads-max",
        Kernel(2, 6),
        "Limit of threads of the whole machine.",
    ),
    state(
        "sysctl.kernel.numa_balancing",
        "/proc/sys/kernel/numa_balancing",
        Kernel(3, 13),
        "1 if pages are moved to the nodes that use them, 2 with memory tiers.",
    ),
    micros_level(
        "sysctl.kernel.sched_rt_runtime_us",
        "/proc/sys/kernel/sched_rt_runtime_us",
        Kernel(2, 6),
        "How long real-time tasks may run in one period; -1 is without limit.",
    ),
    state(
        "sysctl.kernel.sched_autogroup_enabled",
        "/proc/sys/kernel/sched_autogroup_enabled",
        Kernel(2, 6),
        "1 if each session is scheduled as one group.",
    ),
    state(
        "sysctl.kernel.task_delayacct",
        "/proc/sys/kernel/task_delayacct",
        Kernel(5, 14),
        "1 if tasks born from now on have their delays counted.",
    ),
    state(
        "sysctl.kernel.hung_task_timeout_secs",
        "/proc/sys/kernel/hung_task_timeout_secs",
        Kernel(2, 6),
        "Seconds in D state after which the kernel reports a hung task; 0 is never.",
    ),
    state(
        "sysctl.kernel.hung_task_panic",
        "/proc/sys/kernel/hung_task_panic",
        Kernel(2, 6),
        "1 if a hung task makes the machine panic.",
    ),
    state(
        "sysctl.kernel.softlockup_panic",
        "/proc/sys/kernel/softlockup_panic",
        Kernel(2, 6),
        "1 if a CPU stuck in the kernel makes the machine panic.",
    ),
    state(
        "sysctl.kernel.watchdog_thresh",
        "/proc/sys/kernel/watchdog_thresh",
        Kernel(2, 6),
        "Seconds after which a stuck CPU is reported, doubled for soft lockups.",
    ),
    state(
        "sysctl.kernel.printk_ratelimit",
        "/proc/sys/kernel/printk_ratelimit",
        Kernel(2, 6),
        "Seconds in which only a burst of kernel messages is let through: lines may be missing.",
    ),
    state(
        "sysctl.fs.file-max",
        "/proc/sys/fs/file-max",
        Kernel(2, 6),
        "Limit of open files of the whole machine.",
    ),
    state(
        "sysctl.fs.nr_open",
        "/proc/sys/fs/nr_open",
        Kernel(2, 6),
        "Largest limit of open files that a process may set.",
    ),
    state(
        "sysctl.fs.aio-max-nr",
        "/proc/sys/fs/aio-max-nr",
        Kernel(2, 6),
        "Limit of asynchronous I/O requests of the whole machine.",
    ),
    state(
        "sysctl.fs.inotify.max_user_watches",
        "/proc/sys/fs/inotify/max_user_watches",
        Kernel(2, 6),
        "Limit of watches on files for each user.",
    ),
    state(
        "sysctl.net.core.somaxconn",
        "/proc/sys/net/core/somaxconn",
        Kernel(2, 6),
        "Largest accept queue that listen can ask for.",
    ),
    state(
        "sysctl.net.core.netdev_max_backlog",
        "/proc/sys/net/core/netdev_max_backlog",
        Kernel(2, 6),
        "Packets that may wait for a CPU before more are dropped.",
    ),
    state(
        "sysctl.net.core.netdev_budget",
        "/proc/sys/net/core/netdev_budget",
        Kernel(2, 6),
        "Packets that one round of polling may take.",
    ),
    bytes(
        "sysctl.net.core.rmem_max",
        "/proc/sys/net/core/rmem_max",
        Kernel(2, 6),
        "Largest receive buffer that a program may ask for.",
    ),
    bytes(
        "sysctl.net.core.wmem_max",
        "/proc/sys/net/core/wmem_max",
        Kernel(2, 6),
        "Largest send buffer that a program may ask for.",
    ),
    system_text(
        "sysctl.net.core.default_qdisc",
        "/proc/sys/net/core/default_qdisc",
        Kernel(3, 12),
        "Queueing discipline that new devices get.",
    ),
    state(
        "sysctl.net.ipv4.tcp_max_orphans",
        "/proc/sys/net/ipv4/tcp_max_orphans",
        Kernel(2, 6),
        "Limit of sockets that no process holds; connections are reset above it.",
    ),
    system_text(
        "sysctl.net.ipv4.tcp_mem",
        "/proc/sys/net/ipv4/tcp_mem",
        Kernel(2, 6),
        "Pages of TCP buffers of the whole machine: low, pressure, limit.",
    ),
    system_text(
        "sysctl.net.ipv4.tcp_rmem",
        "/proc/sys/net/ipv4/tcp_rmem",
        Kernel(2, 6),
        "Bytes of a TCP receive buffer: least, at the start, most.",
    ),
    system_text(
        "sysctl.net.ipv4.tcp_wmem",
        "/proc/sys/net/ipv4/tcp_wmem",
        Kernel(2, 6),
        "Bytes of a TCP send buffer: least, at the start, most.",
    ),
    system_text(
        "sysctl.net.ipv4.udp_mem",
        "/proc/sys/net/ipv4/udp_mem",
        Kernel(2, 6),
        "Pages of UDP buffers of the whole machine: low, pressure, limit.",
    ),
    state(
        "sysctl.net.ipv4.tcp_max_syn_backlog",
        "/proc/sys/net/ipv4/tcp_max_syn_backlog",
        Kernel(2, 6),
        "Half-open connections that a listening socket remembers without cookies.",
    ),
    state(
        "sysctl.net.ipv4.tcp_max_tw_buckets",
        "/proc/sys/net/ipv4/tcp_max_tw_buckets",
        Kernel(2, 6),
        "Limit of connections in TIME-WAIT.",
    ),
    state(
        "sysctl.net.ipv4.tcp_syncookies",
        "/proc/sys/net/ipv4/tcp_syncookies",
        Kernel(2, 6),
        "1 if SYN cookies are sent when the queue is full, 2 always.",
    ),
    state(
        "sysctl.net.ipv4.tcp_tw_reuse",
        "/proc/sys/net/ipv4/tcp_tw_reuse",
        Kernel(2, 6),
        "Whether outgoing connections may use a port in TIME-WAIT: 1 yes, 2 on loopback.",
    ),
    state(
        "sysctl.net.ipv4.tcp_fin_timeout",
        "/proc/sys/net/ipv4/tcp_fin_timeout",
        Kernel(2, 6),
        "Seconds that an orphaned connection stays in FIN-WAIT-2.",
    ),
    system_text(
        "sysctl.net.ipv4.ip_local_port_range",
        "/proc/sys/net/ipv4/ip_local_port_range",
        Kernel(2, 6),
        "First and last port for outgoing connections.",
    ),
    system_text(
        "sysctl.net.ipv4.tcp_congestion_control",
        "/proc/sys/net/ipv4/tcp_congestion_control",
        Kernel(2, 6),
        "Congestion control that new connections use.",
    ),
    state(
        "sysctl.net.netfilter.nf_conntrack_max",
        "/proc/sys/net/netfilter/nf_conntrack_max",
        Kernel(2, 6),
        "Limit of tracked connections; packets of new ones are dropped above it.",
    ),
    level(
        "sysctl.net.netfilter.nf_conntrack_count",
        "/proc/sys/net/netfilter/nf_conntrack_count",
        Kernel(2, 6),
        "Connections that are tracked at the moment.",
    ),
    system_text(
        "sys.thp_enabled",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        Kernel(2, 6),
        "Whether transparent huge pages are made: always, madvise or never.",
    ),
    system_text(
        "sys.thp_defrag",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        Kernel(2, 6),
        "Whether a page fault reclaims and compacts to get a huge page: always, defer, defer+madvise, madvise or never.",
    ),
    state(
        "sys.delayacct",
        "/proc/sys/kernel/task_delayacct; /proc/cmdline",
        Kernel(2, 6),
        "1 if the kernel counts the delays of tasks: set now, or at boot before 5.14.",
    ),
];
