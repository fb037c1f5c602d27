//! Control groups.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge, text};

const fn micros(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Cgroup, name, Unit::Micros, source, since, help)
}

const fn count(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Cgroup, name, Unit::Count, source, since, help)
}

const fn micros_level(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Cgroup, name, Unit::Micros, source, since, help)
}

const fn bytes(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Cgroup, name, Unit::Bytes, source, since, help)
}

const fn page_count(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Cgroup, name, Unit::Pages, source, since, help)
}

const fn byte_count(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Cgroup, name, Unit::Bytes, source, since, help)
}

const fn level(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Cgroup, name, Unit::Count, source, since, help)
}

/// Of each group. Sums are over the group and all groups below it.
pub const CGROUP: &[Metric] = &[
    micros(
        "cgroup.cpu_usage",
        "v2 cpu.stat:usage_usec; v1 cpuacct.usage",
        Kernel(2, 6),
        "CPU time of the tasks of the group.",
    ),
    micros(
        "cgroup.cpu_user",
        "v2 cpu.stat:user_usec; v1 cpuacct.stat:user",
        Kernel(2, 6),
        "CPU time in user mode. In ticks of 10 ms with version 1.",
    ),
    micros(
        "cgroup.cpu_system",
        "v2 cpu.stat:system_usec; v1 cpuacct.stat:system",
        Kernel(2, 6),
        "CPU time in kernel mode. In ticks of 10 ms with version 1.",
    ),
    count(
        "cgroup.nr_periods",
        "cpu.stat:nr_periods",
        Kernel(3, 2),
        "Quota periods in which the group had something to run.",
    ),
    count(
        "cgroup.nr_throttled",
        "cpu.stat:nr_throttled",
        Kernel(3, 2),
        "Quota periods in which the group used up its quota and was stopped on some CPU.",
    ),
    micros(
        "cgroup.throttled_time",
        "v2 cpu.stat:throttled_usec; v1 cpu.stat:throttled_time",
        Kernel(3, 2),
        "Time that run queues of the group were stopped, summed over CPUs, so it may pass the clock. The task that waits sees it as run delay.",
    ),
    count(
        "cgroup.nr_bursts",
        "cpu.stat:nr_bursts",
        Kernel(5, 14),
        "Periods in which saved-up quota was used.",
    ),
    micros(
        "cgroup.burst_time",
        "v2 cpu.stat:burst_usec; v1 cpu.stat:burst_time",
        Kernel(5, 14),
        "CPU time beyond the quota taken from what was saved up.",
    ),
    micros_level(
        "cgroup.cpu_quota",
        "v2 cpu.max; v1 cpu.cfs_quota_us",
        Kernel(3, 2),
        "CPU time that the group may use in one period. Unavailable means that there is no limit.",
    ),
    micros_level(
        "cgroup.cpu_period",
        "v2 cpu.max; v1 cpu.cfs_period_us",
        Kernel(3, 2),
        "Length of a quota period.",
    ),
    bytes(
        "cgroup.memory_current",
        "v2 memory.current; v1 memory.usage_in_bytes",
        Kernel(2, 6),
        "Memory charged to the group: page cache and kernel memory too, not only what processes hold.",
    ),
    bytes(
        "cgroup.memory_max",
        "v2 memory.max; v1 memory.limit_in_bytes",
        Kernel(2, 6),
        "Limit at which the group reclaims from itself and, if that does not help, kills. Unavailable means that there is no limit.",
    ),
    bytes(
        "cgroup.memory_high",
        "v2 memory.high",
        Kernel(4, 0),
        "Level above which tasks of the group are slowed down and made to reclaim. Unavailable means that there is none.",
    ),
    bytes(
        "cgroup.swap_current",
        "v2 memory.swap.current; v1 memory.stat:total_swap",
        Kernel(2, 6),
        "Swap that the group uses.",
    ),
    bytes(
        "cgroup.swap_max",
        "v2 memory.swap.max; v1 memory.memsw.limit_in_bytes",
        Kernel(4, 5),
        "Limit of swap; with version 1 of memory and swap together. Unavailable means that there is no limit.",
    ),
    count(
        "cgroup.memory_failcnt",
        "v2 memory.events:max; v1 memory.failcnt",
        Kernel(2, 6),
        "Times that a charge hit the limit of the group. Each led to reclaim inside the group.",
    ),
    count(
        "cgroup.memory_high_events",
        "v2 memory.events:high",
        Kernel(4, 0),
        "Times that tasks were made to reclaim because the group was above memory.high.",
    ),
    count(
        "cgroup.memory_low_events",
        "v2 memory.events:low",
        Kernel(4, 0),
        "Times that the group was reclaimed although it was below its protection.",
    ),
    count(
        "cgroup.oom",
        "v2 memory.events:oom",
        Kernel(4, 0),
        "Times that the group was at its limit and an allocation was about to fail.",
    ),
    count(
        "cgroup.oom_kill",
        "v2 memory.events:oom_kill; v1 memory.oom_control:oom_kill",
        Kernel(4, 13),
        "Processes of the group killed by any OOM killer.",
    ),
    bytes(
        "cgroup.anon",
        "v2 memory.stat:anon; v1 memory.stat:total_rss",
        Kernel(2, 6),
        "Anonymous memory. With version 1 without shared memory and tmpfs.",
    ),
    bytes(
        "cgroup.file",
        "v2 memory.stat:file; v1 memory.stat:total_cache",
        Kernel(2, 6),
        "Page cache, shared memory and tmpfs included.",
    ),
    bytes("cgroup.shmem", "memory.stat:shmem", Kernel(4, 5), "Shared memory and tmpfs. Part of cgroup.file."),
    bytes(
        "cgroup.mapped",
        "v2 memory.stat:file_mapped; v1 memory.stat:total_mapped_file",
        Kernel(2, 6),
        "Page cache that is mapped by some process.",
    ),
    bytes(
        "cgroup.dirty",
        "v2 memory.stat:file_dirty; v1 memory.stat:total_dirty",
        Kernel(3, 19),
        "Page cache that has yet to be written.",
    ),
    bytes(
        "cgroup.writeback",
        "v2 memory.stat:file_writeback; v1 memory.stat:total_writeback",
        Kernel(3, 6),
        "Page cache that is being written.",
    ),
    bytes(
        "cgroup.slab",
        "v2 memory.stat:slab",
        Kernel(4, 5),
        "Kernel objects charged to the group. Version 1 has no such number.",
    ),
    bytes(
        "cgroup.slab_reclaimable",
        "v2 memory.stat:slab_reclaimable",
        Kernel(4, 5),
        "Kernel objects charged to the group that reclaim may drop, dentries and inodes above all.",
    ),
    bytes(
        "cgroup.kernel_stack",
        "v2 memory.stat:kernel_stack",
        Kernel(4, 5),
        "Kernel stacks of the group's tasks.",
    ),
    bytes("cgroup.sock", "v2 memory.stat:sock", Kernel(4, 5), "Socket buffers charged to the group."),
    bytes(
        "cgroup.active_anon",
        "memory.stat:active_anon",
        Kernel(2, 6),
        "Anonymous memory on the active list.",
    ),
    bytes(
        "cgroup.inactive_anon",
        "memory.stat:inactive_anon",
        Kernel(2, 6),
        "Anonymous memory on the inactive list.",
    ),
    bytes(
        "cgroup.active_file",
        "memory.stat:active_file",
        Kernel(2, 6),
        "Page cache on the active list: used more than once.",
    ),
    bytes(
        "cgroup.inactive_file",
        "memory.stat:inactive_file",
        Kernel(2, 6),
        "Page cache on the inactive list, the first to be reclaimed.",
    ),
    bytes(
        "cgroup.unevictable",
        "memory.stat:unevictable",
        Kernel(2, 6),
        "Memory that reclaim must leave alone, such as locked memory.",
    ),
    count("cgroup.pgfault", "memory.stat:pgfault", Kernel(2, 6), "Page faults, minor and major."),
    count("cgroup.pgmajfault", "memory.stat:pgmajfault", Kernel(2, 6), "Page faults that waited for I/O."),
    page_count(
        "cgroup.refault_anon",
        "memory.stat:workingset_refault_anon",
        Kernel(5, 9),
        "Anonymous pages swapped in again soon after they were evicted.",
    ),
    page_count(
        "cgroup.refault_file",
        "memory.stat:workingset_refault_file",
        Kernel(4, 13),
        "Pages of files read again after they were evicted. Called workingset_refault before 5.9.",
    ),
    page_count(
        "cgroup.activate_anon",
        "memory.stat:workingset_activate_anon",
        Kernel(5, 9),
        "Refaulted anonymous pages taken for part of the working set at once.",
    ),
    page_count(
        "cgroup.activate_file",
        "memory.stat:workingset_activate_file",
        Kernel(4, 13),
        "Refaulted pages of files taken for part of the working set at once: they were evicted while in use.",
    ),
    page_count("cgroup.pgscan", "v2 memory.stat:pgscan", Kernel(4, 13), "Pages that reclaim looked at."),
    page_count("cgroup.pgsteal", "v2 memory.stat:pgsteal", Kernel(4, 13), "Pages that reclaim took away."),
    byte_count(
        "cgroup.io_read_bytes",
        "v2 io.stat:rbytes; v1 blkio.throttle.io_service_bytes:Read",
        Kernel(2, 6),
        "Bytes read from block devices. Version 1 counts only this group and not those below it, unless the kernel has the recursive file.",
    ),
    byte_count(
        "cgroup.io_write_bytes",
        "v2 io.stat:wbytes; v1 blkio.throttle.io_service_bytes:Write",
        Kernel(2, 6),
        "Bytes written to block devices. With version 1 buffered writes are charged to the root group.",
    ),
    count(
        "cgroup.io_reads",
        "v2 io.stat:rios; v1 blkio.throttle.io_serviced:Read",
        Kernel(2, 6),
        "Reads sent to block devices.",
    ),
    count(
        "cgroup.io_writes",
        "v2 io.stat:wios; v1 blkio.throttle.io_serviced:Write",
        Kernel(2, 6),
        "Writes sent to block devices.",
    ),
    gauge(
        Entity::Cgroup,
        "cgroup.io_limit_rbps",
        Unit::Bytes,
        "v2 io.max:rbps; v1 blkio.throttle.read_bps_device",
        Kernel(2, 6),
        "Bytes a second that the group may read from a device. Of several devices the smallest. Unavailable means that there is no limit.",
    ),
    gauge(
        Entity::Cgroup,
        "cgroup.io_limit_wbps",
        Unit::Bytes,
        "v2 io.max:wbps; v1 blkio.throttle.write_bps_device",
        Kernel(2, 6),
        "Bytes a second that the group may write to a device. Of several devices the smallest. Unavailable means that there is no limit.",
    ),
    gauge(
        Entity::Cgroup,
        "cgroup.io_limit_riops",
        Unit::Count,
        "v2 io.max:riops; v1 blkio.throttle.read_iops_device",
        Kernel(2, 6),
        "Reads a second that the group may send to a device. Of several devices the smallest. Unavailable means that there is no limit.",
    ),
    gauge(
        Entity::Cgroup,
        "cgroup.io_limit_wiops",
        Unit::Count,
        "v2 io.max:wiops; v1 blkio.throttle.write_iops_device",
        Kernel(2, 6),
        "Writes a second that the group may send to a device. Of several devices the smallest. Unavailable means that there is no limit.",
    ),
    text(
        Entity::Cgroup,
        "cgroup.io_limit_device",
        "v2 io.max; v1 blkio.throttle.*_device",
        Kernel(2, 6),
        "Device of the limits of I/O; several are joined by commas.",
    ),
    level("cgroup.pids_current", "pids.current", Kernel(4, 3), "Tasks, threads included, in the group."),
    level(
        "cgroup.pids_max",
        "pids.max",
        Kernel(4, 3),
        "Limit of tasks: at it fork fails with EAGAIN. Unavailable means that there is no limit.",
    ),
    micros(
        "cgroup.psi_cpu_some",
        "cpu.pressure:some",
        Kernel(4, 20),
        "Time in which at least one task of the group waited for a CPU.",
    ),
    micros(
        "cgroup.psi_cpu_full",
        "cpu.pressure:full",
        Kernel(5, 13),
        "Time in which tasks of the group were runnable and none ran: the group was throttled by its quota or outranked.",
    ),
    micros(
        "cgroup.psi_io_some",
        "io.pressure:some",
        Kernel(4, 20),
        "Time in which at least one task of the group waited for I/O.",
    ),
    micros(
        "cgroup.psi_io_full",
        "io.pressure:full",
        Kernel(4, 20),
        "Time in which tasks of the group waited for I/O and none of them did productive work.",
    ),
    micros(
        "cgroup.psi_memory_some",
        "memory.pressure:some",
        Kernel(4, 20),
        "Time in which at least one task of the group waited for memory.",
    ),
    micros(
        "cgroup.psi_memory_full",
        "memory.pressure:full",
        Kernel(4, 20),
        "Time in which tasks of the group waited for memory and none of them did productive work.",
    ),
    micros(
        "cgroup.psi_irq_full",
        "irq.pressure:full",
        Kernel(6, 1),
        "Time in which tasks of the group could not run because of interrupts.",
    ),
];
