//! Reclaim, working set and compaction.

use crate::metric::{Entity, Kernel, Metric, Unit, counter};

const fn count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Count, "/proc/vmstat", since, help)
}

const fn page_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Pages, "/proc/vmstat", since, help)
}

/// What reclaim and compaction count in `/proc/vmstat`.
pub const RECLAIM: &[Metric] = &[
    count(
        "vm.allocstall",
        Kernel(2, 6),
        "Times that a task had to reclaim memory itself; until 4.7, then counted by zone.",
    ),
    count(
        "vm.allocstall_dma",
        Kernel(4, 8),
        "Times that a task had to reclaim memory itself to allocate from zone DMA: direct reclaim.",
    ),
    count(
        "vm.allocstall_dma32",
        Kernel(4, 8),
        "Times that a task had to reclaim memory itself to allocate from zone DMA32: direct reclaim.",
    ),
    count(
        "vm.allocstall_normal",
        Kernel(4, 8),
        "Times that a task had to reclaim memory itself to allocate from zone Normal: direct reclaim.",
    ),
    count(
        "vm.allocstall_high",
        Kernel(4, 8),
        "Times that a task had to reclaim memory itself to allocate from zone HighMem: direct reclaim.",
    ),
    count(
        "vm.allocstall_movable",
        Kernel(4, 8),
        "Times that a task had to reclaim memory itself to allocate from zone Movable: direct reclaim.",
    ),
    count(
        "vm.allocstall_device",
        Kernel(6, 1),
        "Times that a task had to reclaim memory itself to allocate from zone Device: direct reclaim.",
    ),
    page_count(
        "vm.pgskip_dma",
        Kernel(4, 8),
        "Pages that reclaim passed over because their zone, DMA, was not the one that was short.",
    ),
    page_count(
        "vm.pgskip_dma32",
        Kernel(4, 8),
        "Pages that reclaim passed over because their zone, DMA32, was not the one that was short.",
    ),
    page_count(
        "vm.pgskip_normal",
        Kernel(4, 8),
        "Pages that reclaim passed over because their zone, Normal, was not the one that was short.",
    ),
    page_count(
        "vm.pgskip_high",
        Kernel(4, 8),
        "Pages that reclaim passed over because their zone, HighMem, was not the one that was short.",
    ),
    page_count(
        "vm.pgskip_movable",
        Kernel(4, 8),
        "Pages that reclaim passed over because their zone, Movable, was not the one that was short.",
    ),
    page_count(
        "vm.pgskip_device",
        Kernel(6, 1),
        "Pages that reclaim passed over because their zone, Device, was not the one that was short.",
    ),
    page_count(
        "vm.pgrefill",
        Kernel(4, 8),
        "Pages of active lists that reclaim looked at to fill the inactive lists.",
    ),
    page_count(
        "vm.pgrefill_dma",
        Kernel(2, 6),
        "Active pages that reclaim looked at in zone DMA; until 4.7.",
    ),
    page_count(
        "vm.pgrefill_dma32",
        Kernel(2, 6),
        "Active pages that reclaim looked at in zone DMA32; until 4.7.",
    ),
    page_count(
        "vm.pgrefill_normal",
        Kernel(2, 6),
        "Active pages that reclaim looked at in zone Normal; until 4.7.",
    ),
    page_count(
        "vm.pgrefill_high",
        Kernel(2, 6),
        "Active pages that reclaim looked at in zone HighMem; until 4.7.",
    ),
    page_count(
        "vm.pgrefill_movable",
        Kernel(2, 6),
        "Active pages that reclaim looked at in zone Movable; until 4.7.",
    ),
    page_count("vm.pgscan_kswapd_dma", Kernel(2, 6), "Pages that kswapd looked at in zone DMA; until 4.7."),
    page_count(
        "vm.pgscan_kswapd_dma32",
        Kernel(2, 6),
        "Pages that kswapd looked at in zone DMA32; until 4.7.",
    ),
    page_count(
        "vm.pgscan_kswapd_normal",
        Kernel(2, 6),
        "Pages that kswapd looked at in zone Normal; until 4.7.",
    ),
    page_count(
        "vm.pgscan_kswapd_high",
        Kernel(2, 6),
        "Pages that kswapd looked at in zone HighMem; until 4.7.",
    ),
    page_count(
        "vm.pgscan_kswapd_movable",
        Kernel(2, 6),
        "Pages that kswapd looked at in zone Movable; until 4.7.",
    ),
    page_count(
        "vm.pgscan_direct_dma",
        Kernel(2, 6),
        "Pages that tasks looked at to reclaim themselves in zone DMA; until 4.7.",
    ),
    page_count(
        "vm.pgscan_direct_dma32",
        Kernel(2, 6),
        "Pages that tasks looked at to reclaim themselves in zone DMA32; until 4.7.",
    ),
    page_count(
        "vm.pgscan_direct_normal",
        Kernel(2, 6),
        "Pages that tasks looked at to reclaim themselves in zone Normal; until 4.7.",
    ),
    page_count(
        "vm.pgscan_direct_high",
        Kernel(2, 6),
        "Pages that tasks looked at to reclaim themselves in zone HighMem; until 4.7.",
    ),
    page_count(
        "vm.pgscan_direct_movable",
        Kernel(2, 6),
        "Pages that tasks looked at to reclaim themselves in zone Movable; until 4.7.",
    ),
    page_count("vm.pgsteal_kswapd_dma", Kernel(2, 6), "Pages that kswapd freed in zone DMA; until 4.7."),
    page_count("vm.pgsteal_kswapd_dma32", Kernel(2, 6), "Pages that kswapd freed in zone DMA32; until 4.7."),
    page_count(
        "vm.pgsteal_kswapd_normal",
        Kernel(2, 6),
        "Pages that kswapd freed in zone Normal; until 4.7.",
    ),
    page_count("vm.pgsteal_kswapd_high", Kernel(2, 6), "Pages that kswapd freed in zone HighMem; until 4.7."),
    page_count(
        "vm.pgsteal_kswapd_movable",
        Kernel(2, 6),
        "Pages that kswapd freed in zone Movable; until 4.7.",
    ),
    page_count(
        "vm.pgsteal_direct_dma",
        Kernel(2, 6),
        "Pages that tasks freed themselves in zone DMA; until 4.7.",
    ),
    page_count(
        "vm.pgsteal_direct_dma32",
        Kernel(2, 6),
        "Pages that tasks freed themselves in zone DMA32; until 4.7.",
    ),
    page_count(
        "vm.pgsteal_direct_normal",
        Kernel(2, 6),
        "Pages that tasks freed themselves in zone Normal; until 4.7.",
    ),
    page_count(
        "vm.pgsteal_direct_high",
        Kernel(2, 6),
        "Pages that tasks freed themselves in zone HighMem; until 4.7.",
    ),
    page_count(
        "vm.pgsteal_direct_movable",
        Kernel(2, 6),
        "Pages that tasks freed themselves in zone Movable; until 4.7.",
    ),
    page_count("vm.pgscan_kswapd", Kernel(4, 8), "Pages that kswapd looked at."),
    page_count(
        "vm.pgscan_direct",
        Kernel(4, 8),
        "Pages that tasks looked at because they had to reclaim themselves.",
    ),
    page_count("vm.pgscan_khugepaged", Kernel(6, 2), "Pages that khugepaged looked at to find memory."),
    page_count("vm.pgscan_proactive", Kernel(6, 16), "Pages looked at on request through memory.reclaim."),
    count(
        "vm.pgscan_direct_throttle",
        Kernel(3, 6),
        "Times that a task was held because the reserves of a node were half gone.",
    ),
    page_count(
        "vm.pgscan_anon",
        Kernel(5, 8),
        "Anonymous pages that any reclaim looked at, that of control groups included.",
    ),
    page_count(
        "vm.pgscan_file",
        Kernel(5, 8),
        "Pages of files that any reclaim looked at. Rises without pgscan_kswapd and pgscan_direct when a control group reclaims from itself.",
    ),
    page_count("vm.pgsteal_kswapd", Kernel(4, 8), "Pages that kswapd freed."),
    page_count(
        "vm.pgsteal_direct",
        Kernel(4, 8),
        "Pages that tasks freed because they had to reclaim themselves.",
    ),
    page_count("vm.pgsteal_khugepaged", Kernel(6, 2), "Pages that khugepaged freed."),
    page_count("vm.pgsteal_proactive", Kernel(6, 16), "Pages freed on request through memory.reclaim."),
    page_count("vm.pgsteal_anon", Kernel(5, 8), "Anonymous pages freed by any reclaim."),
    page_count("vm.pgsteal_file", Kernel(5, 8), "Pages of files freed by any reclaim."),
    page_count(
        "vm.pgdemote_kswapd",
        Kernel(5, 15),
        "Pages that kswapd moved to slower memory instead of freeing them.",
    ),
    page_count("vm.pgdemote_direct", Kernel(5, 15), "Pages that direct reclaim moved to slower memory."),
    page_count("vm.pgdemote_khugepaged", Kernel(6, 4), "Pages that khugepaged moved to slower memory."),
    page_count("vm.pgdemote_proactive", Kernel(6, 16), "Pages moved to slower memory on request."),
    page_count("vm.pgpromote_success", Kernel(5, 15), "Pages moved from slower to faster memory."),
    page_count(
        "vm.pgpromote_candidate",
        Kernel(5, 18),
        "Pages that were hot enough to be moved to faster memory.",
    ),
    page_count(
        "vm.pgpromote_candidate_nrl",
        Kernel(6, 17),
        "Pages to be moved to faster memory that had room, so without the rate limit.",
    ),
    count(
        "vm.zone_reclaim_success",
        Kernel(6, 16),
        "Reclaims of a node under vm.zone_reclaim_mode that freed enough.",
    ),
    count(
        "vm.zone_reclaim_failed",
        Kernel(2, 6),
        "Reclaims of a node under vm.zone_reclaim_mode that freed too little.",
    ),
    page_count("vm.pginodesteal", Kernel(2, 6), "Pages freed together with their inode by direct reclaim."),
    page_count("vm.kswapd_inodesteal", Kernel(2, 6), "Pages freed together with their inode by kswapd."),
    count("vm.slabs_scanned", Kernel(2, 6), "Objects of slab caches that reclaim looked at."),
    count(
        "vm.kswapd_low_wmark_hit_quickly",
        Kernel(2, 6),
        "Times that kswapd found the low watermark undercut again soon after it had slept.",
    ),
    count(
        "vm.kswapd_high_wmark_hit_quickly",
        Kernel(2, 6),
        "Times that kswapd found the high watermark undercut again soon after it had slept.",
    ),
    count(
        "vm.kswapd_skip_congestion_wait",
        Kernel(2, 6),
        "Times that kswapd did not wait although devices were busy; until 3.x.",
    ),
    count("vm.pageoutrun", Kernel(2, 6), "Rounds of kswapd."),
    page_count(
        "vm.nr_vmscan_write",
        Kernel(2, 6),
        "Pages that reclaim itself wrote. A counter in spite of its name.",
    ),
    page_count(
        "vm.nr_vmscan_immediate_reclaim",
        Kernel(3, 1),
        "Pages marked to be freed as soon as they are written, because reclaim met them under writeback. A counter.",
    ),
    page_count(
        "vm.workingset_refault",
        Kernel(3, 15),
        "Pages of files read again after they were evicted; until 5.8, then by kind.",
    ),
    page_count(
        "vm.workingset_refault_anon",
        Kernel(5, 9),
        "Anonymous pages read again after they were evicted.",
    ),
    page_count(
        "vm.workingset_refault_file",
        Kernel(5, 9),
        "Pages of files read again after they were evicted, by whatever evicted them.",
    ),
    page_count(
        "vm.workingset_activate",
        Kernel(3, 15),
        "Refaults of pages that would have stayed had the cache been a little larger; until 5.8, then by kind.",
    ),
    page_count(
        "vm.workingset_activate_anon",
        Kernel(5, 9),
        "Refaults of anonymous pages taken for part of the working set.",
    ),
    page_count(
        "vm.workingset_activate_file",
        Kernel(5, 9),
        "Refaults of pages of files taken for part of the working set: thrash, where it is near workingset_refault_file.",
    ),
    page_count(
        "vm.workingset_restore",
        Kernel(4, 20),
        "Refaults of pages that had been active when they were evicted; until 5.8, then by kind.",
    ),
    page_count(
        "vm.workingset_restore_anon",
        Kernel(5, 9),
        "Refaults of anonymous pages that had been active when they were evicted.",
    ),
    page_count(
        "vm.workingset_restore_file",
        Kernel(5, 9),
        "Refaults of pages of files that had been active when they were evicted.",
    ),
    count(
        "vm.workingset_nodereclaim",
        Kernel(3, 15),
        "Nodes of page cache trees freed because they held only marks of evicted pages.",
    ),
    count(
        "vm.drop_pagecache",
        Kernel(3, 15),
        "Times that somebody dropped the page cache through vm.drop_caches.",
    ),
    count("vm.drop_slab", Kernel(3, 15), "Times that somebody dropped slab caches through vm.drop_caches."),
    count(
        "vm.oom_kill",
        Kernel(4, 13),
        "Processes killed by the OOM killer, of the machine or of a control group.",
    ),
    page_count(
        "vm.compact_migrate_scanned",
        Kernel(3, 8),
        "Pages that compaction looked at to move them away.",
    ),
    page_count("vm.compact_free_scanned", Kernel(3, 8), "Pages that compaction looked at for free room."),
    page_count("vm.compact_isolated", Kernel(3, 8), "Pages that compaction took to move."),
    count("vm.compact_stall", Kernel(2, 6), "Times that a task had to compact memory itself."),
    count(
        "vm.compact_fail",
        Kernel(2, 6),
        "Direct compactions that did not free a block of the size wanted.",
    ),
    count("vm.compact_success", Kernel(2, 6), "Direct compactions that freed a block of the size wanted."),
    count("vm.compact_blocks_moved", Kernel(2, 6), "Blocks moved by compaction; until 3.7."),
    page_count("vm.compact_pages_moved", Kernel(2, 6), "Pages moved by compaction; until 3.7."),
    page_count(
        "vm.compact_pagemigrate_failed",
        Kernel(2, 6),
        "Pages that compaction failed to move; until 3.7.",
    ),
    count("vm.compact_daemon_wake", Kernel(4, 6), "Times that kcompactd woke up."),
    page_count(
        "vm.compact_daemon_migrate_scanned",
        Kernel(4, 11),
        "Pages that kcompactd looked at to move them away.",
    ),
    page_count(
        "vm.compact_daemon_free_scanned",
        Kernel(4, 11),
        "Pages that kcompactd looked at for free room.",
    ),
    page_count(
        "vm.pgmigrate_success",
        Kernel(3, 8),
        "Pages moved to another place, for compaction, NUMA or tiering.",
    ),
    page_count("vm.pgmigrate_fail", Kernel(3, 8), "Pages that could not be moved."),
    page_count(
        "vm.unevictable_pgs_culled",
        Kernel(2, 6),
        "Pages taken off the lists because they became unevictable.",
    ),
    page_count("vm.unevictable_pgs_scanned", Kernel(2, 6), "Unevictable pages checked again."),
    page_count("vm.unevictable_pgs_rescued", Kernel(2, 6), "Unevictable pages put back on the lists."),
    page_count("vm.unevictable_pgs_mlocked", Kernel(2, 6), "Pages locked by mlock."),
    page_count("vm.unevictable_pgs_munlocked", Kernel(2, 6), "Pages unlocked."),
    page_count(
        "vm.unevictable_pgs_cleared",
        Kernel(2, 6),
        "Locked pages unlocked because their process unmapped them.",
    ),
    page_count(
        "vm.unevictable_pgs_stranded",
        Kernel(2, 6),
        "Pages that could not be taken off the lists when they were unlocked.",
    ),
    page_count("vm.unevictable_pgs_mlockfreed", Kernel(2, 6), "Locked pages that were freed; until 4.x."),
];
