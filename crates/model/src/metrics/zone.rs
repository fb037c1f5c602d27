//! Memory zones and NUMA nodes.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge};

const fn zone_pages(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Zone, name, Unit::Pages, "/proc/zoneinfo", since, help)
}

const fn state(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Zone, name, Unit::None, "/proc/zoneinfo", since, help)
}

const fn zone_kib(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Zone, name, Unit::KiB, "/proc/zoneinfo", since, help)
}

const fn zone_level(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Zone, name, Unit::Count, "/proc/zoneinfo", since, help)
}

const fn zone_page_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Zone, name, Unit::Pages, "/proc/zoneinfo", since, help)
}

const fn zone_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Zone, name, Unit::Count, "/proc/zoneinfo", since, help)
}

const fn buddy_level(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Zone, name, Unit::Count, "/proc/buddyinfo", since, help)
}

const fn node_count(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Node, name, Unit::Count, source, since, help)
}

const fn node_kib(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Node, name, Unit::KiB, source, since, help)
}

const fn node_level(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Node, name, Unit::Count, source, since, help)
}

const fn node_pages(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Node, name, Unit::Pages, source, since, help)
}

const fn node_page_count(
    name: &'static str,
    source: &'static str,
    since: Kernel,
    help: &'static str,
) -> Metric {
    counter(Entity::Node, name, Unit::Pages, source, since, help)
}

/// Of each zone of each node.
pub const ZONE: &[Metric] = &[
    zone_pages("zone.free", Kernel(2, 6), "Free pages of the zone."),
    zone_pages(
        "zone.boost",
        Kernel(5, 0),
        "Pages by which the watermarks are raised for the time being because allocations mixed movable and unmovable pages.",
    ),
    zone_pages(
        "zone.min",
        Kernel(2, 6),
        "Below this watermark only reclaim and urgent allocations get pages; everybody else reclaims directly.",
    ),
    zone_pages("zone.low", Kernel(2, 6), "Below this watermark kswapd wakes up."),
    zone_pages("zone.high", Kernel(2, 6), "Above this watermark kswapd goes back to sleep."),
    zone_pages(
        "zone.promo",
        Kernel(6, 6),
        "Watermark above which pages of slower memory may be promoted to this zone.",
    ),
    zone_pages(
        "zone.spanned",
        Kernel(2, 6),
        "Pages between the first and the last of the zone, holes included.",
    ),
    zone_pages("zone.present", Kernel(2, 6), "Pages that physically exist in the zone."),
    zone_pages("zone.managed", Kernel(3, 8), "Pages that the page allocator has of the zone."),
    zone_pages("zone.cma", Kernel(5, 6), "Pages of the zone set aside for contiguous allocations."),
    state(
        "zone.node_unreclaimable",
        Kernel(4, 12),
        "1 while kswapd has given up on the node because its scans freed nothing. Called all_unreclaimable, of the zone, before 4.12.",
    ),
    zone_pages("zone.nr_free_pages", Kernel(2, 6), "Free pages, counted by zone."),
    zone_pages(
        "zone.nr_free_pages_blocks",
        Kernel(6, 16),
        "Free pages in whole free page blocks: what huge allocations can still get.",
    ),
    zone_pages(
        "zone.nr_alloc_batch",
        Kernel(3, 12),
        "Pages that may still be taken before the next zone gets its turn; until 4.7.",
    ),
    zone_pages("zone.nr_zone_inactive_anon", Kernel(4, 8), "Inactive anonymous pages."),
    zone_pages("zone.nr_zone_active_anon", Kernel(4, 8), "Active anonymous pages."),
    zone_pages("zone.nr_zone_inactive_file", Kernel(4, 8), "Inactive pages of files."),
    zone_pages("zone.nr_zone_active_file", Kernel(4, 8), "Active pages of files."),
    zone_pages("zone.nr_zone_unevictable", Kernel(4, 8), "Pages that reclaim must leave alone."),
    zone_pages("zone.nr_zone_write_pending", Kernel(4, 8), "Dirty, unstable and writeback pages."),
    zone_pages("zone.nr_mlock", Kernel(2, 6), "Pages locked by mlock."),
    zone_pages("zone.nr_page_table_pages", Kernel(2, 6), "Pages of page tables; by node since 5.11."),
    zone_kib("zone.nr_kernel_stack", Kernel(2, 6), "Kernel stacks; by node since 5.11."),
    zone_pages("zone.nr_bounce", Kernel(2, 6), "Pages to copy blocks through."),
    zone_pages("zone.nr_zspages", Kernel(4, 8), "Pages of the allocator behind zram and zswap."),
    zone_pages("zone.nr_free_cma", Kernel(3, 7), "Free pages set aside for contiguous allocations."),
    zone_pages(
        "zone.nr_unaccepted",
        Kernel(6, 5),
        "Pages that a confidential virtual machine has not accepted yet.",
    ),
    zone_pages(
        "zone.nr_pages_scanned",
        Kernel(3, 17),
        "Pages scanned since a page was last freed; until 4.11.",
    ),
    zone_pages(
        "zone.nr_inactive_anon",
        Kernel(2, 6),
        "Inactive anonymous pages of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_active_anon",
        Kernel(2, 6),
        "Active anonymous pages of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_inactive_file",
        Kernel(2, 6),
        "Inactive pages of files of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_active_file",
        Kernel(2, 6),
        "Active pages of files of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_unevictable",
        Kernel(2, 6),
        "Pages that reclaim must leave alone of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_anon_pages",
        Kernel(2, 6),
        "Anonymous pages mapped by processes of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_mapped",
        Kernel(2, 6),
        "Pages of files mapped by processes of the zone; counted by node since 4.8.",
    ),
    zone_pages("zone.nr_file_pages", Kernel(2, 6), "Page cache of the zone; counted by node since 4.8."),
    zone_pages(
        "zone.nr_dirty",
        Kernel(2, 6),
        "Pages that have yet to be written of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_writeback",
        Kernel(2, 6),
        "Pages that are being written of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_slab_reclaimable",
        Kernel(2, 6),
        "Pages of slab caches that shrink of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_slab_unreclaimable",
        Kernel(2, 6),
        "Pages of slab caches that do not shrink of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_unstable",
        Kernel(2, 6),
        "Pages not committed by an NFS server of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_writeback_temp",
        Kernel(2, 6),
        "Copies of pages that FUSE is writing of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_isolated_anon",
        Kernel(2, 6),
        "Anonymous pages taken off the lists for a moment of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_isolated_file",
        Kernel(2, 6),
        "Pages of files taken off the lists for a moment of the zone; counted by node since 4.8.",
    ),
    zone_pages(
        "zone.nr_shmem",
        Kernel(2, 6),
        "Pages of shared memory of the zone; counted by node since 4.8.",
    ),
    zone_level(
        "zone.nr_anon_transparent_hugepages",
        Kernel(2, 6),
        "Anonymous huge pages of the zone; counted by node since 4.8.",
    ),
    zone_page_count(
        "zone.nr_vmscan_write",
        Kernel(2, 6),
        "Pages that reclaim itself wrote; counted by node since 4.8.",
    ),
    zone_page_count(
        "zone.nr_vmscan_immediate_reclaim",
        Kernel(3, 1),
        "Pages marked to be freed as soon as they are written; counted by node since 4.8.",
    ),
    zone_page_count("zone.nr_dirtied", Kernel(2, 6), "Pages made dirty; counted by node since 4.8."),
    zone_page_count("zone.nr_written", Kernel(2, 6), "Pages written; counted by node since 4.8."),
    zone_page_count(
        "zone.workingset_refault",
        Kernel(3, 15),
        "Pages read again after they were evicted; counted by node since 4.8.",
    ),
    zone_page_count(
        "zone.workingset_activate",
        Kernel(3, 15),
        "Refaults that show a cache too small; counted by node since 4.8.",
    ),
    zone_count(
        "zone.workingset_nodereclaim",
        Kernel(3, 15),
        "Nodes of page cache trees freed; counted by node since 4.8.",
    ),
];

/// Free blocks of each zone.
pub const BUDDY: &[Metric] = &[
    buddy_level(
        "zone.buddy_0",
        Kernel(2, 6),
        "Free blocks of 1 page. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_1",
        Kernel(2, 6),
        "Free blocks of 2 pages. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_2",
        Kernel(2, 6),
        "Free blocks of 4 pages. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_3",
        Kernel(2, 6),
        "Free blocks of 8 pages. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_4",
        Kernel(2, 6),
        "Free blocks of 16 pages. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_5",
        Kernel(2, 6),
        "Free blocks of 32 pages. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_6",
        Kernel(2, 6),
        "Free blocks of 64 pages. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_7",
        Kernel(2, 6),
        "Free blocks of 128 pages. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_8",
        Kernel(2, 6),
        "Free blocks of 256 pages. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_9",
        Kernel(2, 6),
        "Free blocks of 512 pages. Larger blocks are not counted again as smaller ones.",
    ),
    buddy_level(
        "zone.buddy_10",
        Kernel(2, 6),
        "Free blocks of 1024 pages. Larger blocks are not counted again as smaller ones.",
    ),
];

/// Of each NUMA node.
pub const NODE: &[Metric] = &[
    node_count(
        "node.numa_hit",
        "/sys/devices/system/node/nodeN/numastat",
        Kernel(2, 6),
        "Allocations that wanted this node and got it.",
    ),
    node_count(
        "node.numa_miss",
        "/sys/devices/system/node/nodeN/numastat",
        Kernel(2, 6),
        "Allocations that got this node although they preferred another.",
    ),
    node_count(
        "node.numa_foreign",
        "/sys/devices/system/node/nodeN/numastat",
        Kernel(2, 6),
        "Allocations that preferred this node and were served by another: counted on the node that was short of memory.",
    ),
    node_count(
        "node.interleave_hit",
        "/sys/devices/system/node/nodeN/numastat",
        Kernel(2, 6),
        "Allocations of an interleaving policy that wanted this node and got it.",
    ),
    node_count(
        "node.local_node",
        "/sys/devices/system/node/nodeN/numastat",
        Kernel(2, 6),
        "Allocations on this node by a task that ran on it.",
    ),
    node_count(
        "node.other_node",
        "/sys/devices/system/node/nodeN/numastat",
        Kernel(2, 6),
        "Allocations on this node by a task that ran on another.",
    ),
    node_kib(
        "node.mem_total",
        "/sys/devices/system/node/nodeN/meminfo",
        Kernel(2, 6),
        "Memory of the node that the page allocator has.",
    ),
    node_kib(
        "node.mem_free",
        "/sys/devices/system/node/nodeN/meminfo",
        Kernel(2, 6),
        "Free memory of the node.",
    ),
    node_level(
        "node.huge_total",
        "/sys/devices/system/node/nodeN/meminfo",
        Kernel(2, 6),
        "Huge pages of the default size in the node's pool.",
    ),
    node_level(
        "node.huge_free",
        "/sys/devices/system/node/nodeN/meminfo",
        Kernel(2, 6),
        "Huge pages of the node's pool that are not in use.",
    ),
    node_level(
        "node.huge_surp",
        "/sys/devices/system/node/nodeN/meminfo",
        Kernel(2, 6),
        "Huge pages of the node above the size of the pool.",
    ),
    node_pages(
        "node.nr_inactive_anon",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Inactive anonymous and shared memory pages of the node.",
    ),
    node_pages(
        "node.nr_active_anon",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Active anonymous and shared memory pages of the node.",
    ),
    node_pages(
        "node.nr_inactive_file",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Inactive pages of files.",
    ),
    node_pages(
        "node.nr_active_file",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Active pages of files.",
    ),
    node_pages(
        "node.nr_unevictable",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages that reclaim must leave alone.",
    ),
    node_pages(
        "node.nr_slab_reclaimable",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages of slab caches that shrink when asked.",
    ),
    node_pages(
        "node.nr_slab_unreclaimable",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages of slab caches that do not shrink.",
    ),
    node_pages(
        "node.nr_anon_pages",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Anonymous pages mapped by processes.",
    ),
    node_pages(
        "node.nr_mapped",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages of files mapped by processes.",
    ),
    node_pages(
        "node.nr_file_pages",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Page cache of the node.",
    ),
    node_pages(
        "node.nr_dirty",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages that have yet to be written.",
    ),
    node_pages(
        "node.nr_writeback",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages that are being written.",
    ),
    node_pages(
        "node.nr_shmem",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages of shared memory and tmpfs.",
    ),
    node_page_count(
        "node.workingset_refault",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages read again after they were evicted; until 5.8, then by kind.",
    ),
    node_page_count(
        "node.workingset_refault_anon",
        "/proc/zoneinfo: per-node stats",
        Kernel(5, 9),
        "Anonymous pages read again after they were evicted.",
    ),
    node_page_count(
        "node.workingset_refault_file",
        "/proc/zoneinfo: per-node stats",
        Kernel(5, 9),
        "Pages of files read again after they were evicted.",
    ),
    node_page_count(
        "node.workingset_activate",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Refaults that show a cache too small; until 5.8, then by kind.",
    ),
    node_page_count(
        "node.workingset_activate_anon",
        "/proc/zoneinfo: per-node stats",
        Kernel(5, 9),
        "Refaults of anonymous pages taken for part of the working set.",
    ),
    node_page_count(
        "node.workingset_activate_file",
        "/proc/zoneinfo: per-node stats",
        Kernel(5, 9),
        "Refaults of pages of files taken for part of the working set.",
    ),
    node_page_count(
        "node.nr_vmscan_write",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages that reclaim itself wrote. A counter.",
    ),
    node_page_count(
        "node.nr_vmscan_immediate_reclaim",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages marked to be freed as soon as they are written. A counter.",
    ),
    node_page_count(
        "node.nr_dirtied",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages made dirty. A counter.",
    ),
    node_page_count(
        "node.nr_written",
        "/proc/zoneinfo: per-node stats",
        Kernel(4, 8),
        "Pages written. A counter.",
    ),
    node_page_count(
        "node.pgpromote_success",
        "/proc/zoneinfo: per-node stats",
        Kernel(5, 15),
        "Pages moved to this faster node.",
    ),
    node_page_count(
        "node.pgdemote_kswapd",
        "/proc/zoneinfo: per-node stats",
        Kernel(6, 8),
        "Pages that kswapd moved to slower memory.",
    ),
    node_page_count(
        "node.pgdemote_direct",
        "/proc/zoneinfo: per-node stats",
        Kernel(6, 8),
        "Pages that direct reclaim moved to slower memory.",
    ),
];
