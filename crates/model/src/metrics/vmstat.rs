//! Levels and page traffic of the whole machine.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge};

const fn pages(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Pages, "/proc/vmstat", since, help)
}

const fn bytes(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Bytes, "/proc/vmstat", since, help)
}

const fn level(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Count, "/proc/vmstat", since, help)
}

const fn kib(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::KiB, "/proc/vmstat", since, help)
}

const fn kib_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::KiB, "/proc/vmstat", since, help)
}

const fn page_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Pages, "/proc/vmstat", since, help)
}

const fn count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Count, "/proc/vmstat", since, help)
}

/// The `nr_` lines of `/proc/vmstat`: pages at the moment of the sample, unless the help says otherwise.
pub const LEVELS: &[Metric] = &[
    pages("vm.nr_free_pages", Kernel(2, 6), "Free pages."),
    pages(
        "vm.nr_free_pages_blocks",
        Kernel(6, 16),
        "Free pages in whole free page blocks: what huge allocations can still get.",
    ),
    pages(
        "vm.nr_alloc_batch",
        Kernel(3, 12),
        "Pages that may still be taken from a zone before the next one gets its turn; until 4.7.",
    ),
    pages("vm.nr_zone_inactive_anon", Kernel(4, 8), "Inactive anonymous pages, counted by zone."),
    pages("vm.nr_zone_active_anon", Kernel(4, 8), "Active anonymous pages, counted by zone."),
    pages("vm.nr_zone_inactive_file", Kernel(4, 8), "Inactive pages of files, counted by zone."),
    pages("vm.nr_zone_active_file", Kernel(4, 8), "Active pages of files, counted by zone."),
    pages("vm.nr_zone_unevictable", Kernel(4, 8), "Unevictable pages, counted by zone."),
    pages("vm.nr_zone_write_pending", Kernel(4, 8), "Dirty, unstable and writeback pages, counted by zone."),
    pages("vm.nr_mlock", Kernel(2, 6), "Pages locked by mlock."),
    pages("vm.nr_zspages", Kernel(4, 8), "Pages of the allocator behind zram and zswap."),
    pages("vm.nr_free_cma", Kernel(3, 7), "Free pages set aside for contiguous allocations."),
    pages(
        "vm.nr_unaccepted",
        Kernel(6, 5),
        "Pages that a confidential virtual machine has not accepted yet.",
    ),
    pages("vm.nr_inactive_anon", Kernel(2, 6), "Inactive anonymous and shared memory pages."),
    pages("vm.nr_active_anon", Kernel(2, 6), "Active anonymous and shared memory pages."),
    pages("vm.nr_inactive_file", Kernel(2, 6), "Inactive pages of files: used once, or not lately."),
    pages("vm.nr_active_file", Kernel(2, 6), "Active pages of files: used more than once."),
    pages("vm.nr_unevictable", Kernel(2, 6), "Pages that reclaim must leave alone."),
    pages("vm.nr_slab_reclaimable", Kernel(2, 6), "Pages of slab caches that shrink when asked."),
    pages("vm.nr_slab_unreclaimable", Kernel(2, 6), "Pages of slab caches that do not shrink."),
    bytes(
        "vm.nr_indirectly_reclaimable",
        Kernel(4, 17),
        "Bytes, not pages, of kernel memory freed together with reclaimable slab; until 4.19.",
    ),
    pages(
        "vm.nr_isolated_anon",
        Kernel(2, 6),
        "Anonymous pages that reclaim or migration has taken off the lists for a moment.",
    ),
    pages(
        "vm.nr_isolated_file",
        Kernel(2, 6),
        "Pages of files that reclaim or migration has taken off the lists for a moment. Many: reclaimers crowd.",
    ),
    pages("vm.nr_anon_pages", Kernel(2, 6), "Anonymous pages mapped by processes."),
    pages("vm.nr_mapped", Kernel(2, 6), "Pages of files mapped by processes."),
    pages("vm.nr_file_pages", Kernel(2, 6), "Page cache, shared memory and swap cache included."),
    pages("vm.nr_dirty", Kernel(2, 6), "Pages of files that have yet to be written."),
    pages("vm.nr_writeback", Kernel(2, 6), "Pages that are being written."),
    pages("vm.nr_writeback_temp", Kernel(2, 6), "Copies of pages that FUSE is writing."),
    pages(
        "vm.nr_unstable",
        Kernel(2, 6),
        "Pages sent to an NFS server and not yet committed there. Always 0 since 5.8.",
    ),
    pages(
        "vm.nr_bounce",
        Kernel(2, 6),
        "Pages to copy blocks through for devices that cannot reach all memory.",
    ),
    pages("vm.nr_shmem", Kernel(2, 6), "Pages of shared memory and tmpfs."),
    level("vm.nr_shmem_hugepages", Kernel(4, 8), "Huge pages of shared memory."),
    level("vm.nr_shmem_pmdmapped", Kernel(4, 8), "Huge pages of shared memory mapped as such."),
    level(
        "vm.nr_file_hugepages",
        Kernel(5, 4),
        "Huge pages in the page cache. Counts huge pages, not base pages.",
    ),
    level("vm.nr_file_pmdmapped", Kernel(5, 4), "Huge pages of the page cache mapped as such."),
    level(
        "vm.nr_anon_transparent_hugepages",
        Kernel(2, 6),
        "Anonymous transparent huge pages. Counts huge pages, not base pages.",
    ),
    pages(
        "vm.nr_pages_scanned",
        Kernel(3, 17),
        "Pages scanned since a page of the zone was last freed; until 4.11.",
    ),
    pages(
        "vm.nr_kernel_misc_reclaimable",
        Kernel(4, 20),
        "Kernel pages outside slab that reclaim may ask for.",
    ),
    kib("vm.nr_kernel_stack", Kernel(2, 6), "Kernel stacks, in KiB, not pages; in stacks before 4.10."),
    bytes("vm.nr_shadow_call_stack", Kernel(5, 8), "Shadow stacks of the kernel, in bytes; arm64."),
    pages("vm.nr_page_table_pages", Kernel(2, 6), "Pages of page tables."),
    pages(
        "vm.nr_sec_page_table_pages",
        Kernel(6, 1),
        "Pages of secondary page tables: of virtual machines and IOMMUs.",
    ),
    pages("vm.nr_iommu_pages", Kernel(6, 11), "Pages of IOMMU page tables."),
    pages("vm.nr_swapcached", Kernel(5, 12), "Pages of the swap cache."),
    pages("vm.nr_hugetlb", Kernel(6, 13), "Base pages in huge pages that are in use."),
    pages(
        "vm.nr_balloon_pages",
        Kernel(6, 16),
        "Pages that a balloon driver has given back to the hypervisor.",
    ),
    pages(
        "vm.nr_kernel_file_pages",
        Kernel(6, 18),
        "Page cache that a filesystem keeps for itself and charges to no group.",
    ),
    pages("vm.nr_gpu_active", Kernel(6, 19), "Pages that GPU drivers hold for objects in use."),
    pages("vm.nr_gpu_reclaim", Kernel(6, 19), "Pages that GPU drivers hold and give back when asked."),
    pages(
        "vm.nr_memmap",
        Kernel(6, 11),
        "Pages of page descriptors taken from the buddy allocator; renamed in 6.12.",
    ),
    pages("vm.nr_memmap_boot", Kernel(6, 11), "Pages of page descriptors reserved at boot; renamed in 6.12."),
    pages("vm.nr_memmap_pages", Kernel(6, 12), "Pages of page descriptors taken from the buddy allocator."),
    pages("vm.nr_memmap_boot_pages", Kernel(6, 12), "Pages of page descriptors reserved at boot."),
    pages("vm.nr_dirty_threshold", Kernel(2, 6), "Dirty pages at which writers are made to wait."),
    pages(
        "vm.nr_dirty_background_threshold",
        Kernel(2, 6),
        "Dirty pages at which the flusher threads begin to write.",
    ),
    level(
        "vm.workingset_nodes",
        Kernel(4, 20),
        "Nodes of page cache trees that hold nothing but marks of evicted pages.",
    ),
];

/// Page traffic in `/proc/vmstat`.
pub const TRAFFIC: &[Metric] = &[
    kib_count("vm.pgpgin", Kernel(2, 6), "KiB, not pages, read from block devices, direct I/O included."),
    kib_count("vm.pgpgout", Kernel(2, 6), "KiB, not pages, written to block devices, direct I/O included."),
    page_count("vm.pswpin", Kernel(2, 6), "Pages read from swap."),
    page_count("vm.pswpout", Kernel(2, 6), "Pages written to swap."),
    count("vm.pgfault", Kernel(2, 6), "Page faults, minor and major together."),
    count("vm.pgmajfault", Kernel(2, 6), "Page faults that waited for I/O."),
    page_count("vm.pgalloc_dma", Kernel(2, 6), "Pages allocated from zone DMA."),
    page_count("vm.pgalloc_dma32", Kernel(2, 6), "Pages allocated from zone DMA32."),
    page_count("vm.pgalloc_normal", Kernel(2, 6), "Pages allocated from zone Normal."),
    page_count("vm.pgalloc_high", Kernel(2, 6), "Pages allocated from zone HighMem."),
    page_count("vm.pgalloc_movable", Kernel(2, 6), "Pages allocated from zone Movable."),
    page_count("vm.pgalloc_device", Kernel(6, 1), "Pages allocated from zone Device."),
    page_count("vm.pgfree", Kernel(2, 6), "Pages freed."),
    page_count("vm.pgactivate", Kernel(2, 6), "Pages moved to an active list."),
    page_count(
        "vm.pgdeactivate",
        Kernel(2, 6),
        "Pages moved to an inactive list out of turn. Ageing by reclaim counts in pgrefill.",
    ),
    page_count("vm.pglazyfree", Kernel(4, 12), "Pages that a process said it may lose (MADV_FREE)."),
    page_count("vm.pglazyfreed", Kernel(4, 5), "Pages freed after MADV_FREE."),
    page_count(
        "vm.pgrotated",
        Kernel(2, 6),
        "Pages moved to the tail of the inactive list because their writing ended after reclaim had passed.",
    ),
    count(
        "vm.pgreuse",
        Kernel(5, 12),
        "Write faults on a page shared no longer, which was used again instead of copied.",
    ),
    page_count("vm.nr_dirtied", Kernel(2, 6), "Pages made dirty since boot. A counter in spite of its name."),
    page_count("vm.nr_written", Kernel(2, 6), "Pages written since boot. A counter in spite of its name."),
    page_count(
        "vm.nr_throttled_written",
        Kernel(5, 16),
        "Pages written while reclaim waited for writing. A counter in spite of its name.",
    ),
    page_count(
        "vm.nr_foll_pin_acquired",
        Kernel(5, 7),
        "Pins of pages taken for direct I/O and devices. A counter.",
    ),
    page_count(
        "vm.nr_foll_pin_released",
        Kernel(5, 7),
        "Pins of pages given back. A counter; the difference is what is pinned.",
    ),
    page_count("vm.swap_ra", Kernel(4, 14), "Pages read ahead from swap."),
    page_count("vm.swap_ra_hit", Kernel(4, 14), "Pages read ahead from swap that were then used."),
    page_count("vm.swpin_zero", Kernel(6, 13), "Pages of zeros swapped in without I/O."),
    page_count("vm.swpout_zero", Kernel(6, 13), "Pages of zeros swapped out without I/O."),
    page_count("vm.zswpin", Kernel(5, 19), "Pages read from the compressed swap cache. Not part of pswpin."),
    page_count("vm.zswpout", Kernel(5, 19), "Pages put into the compressed swap cache. Not part of pswpout."),
    page_count(
        "vm.zswpwb",
        Kernel(6, 8),
        "Pages of the compressed swap cache written on to the swap device.",
    ),
    page_count(
        "vm.ksm_swpin_copy",
        Kernel(5, 18),
        "Pages copied at swap-in because another process shares the merged page.",
    ),
    page_count("vm.cow_ksm", Kernel(5, 18), "Copies made because a process wrote to a merged page."),
    page_count("vm.balloon_inflate", Kernel(3, 18), "Pages given to the hypervisor by the balloon."),
    page_count("vm.balloon_deflate", Kernel(3, 18), "Pages taken back from the hypervisor by the balloon."),
    page_count("vm.balloon_migrate", Kernel(3, 18), "Balloon pages moved by compaction."),
];
