//! NUMA, huge pages and other machinery.

use crate::metric::{Entity, Kernel, Metric, Unit, counter};

const fn count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Count, "/proc/vmstat", since, help)
}

const fn page_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Pages, "/proc/vmstat", since, help)
}

/// What NUMA placement counts in `/proc/vmstat`.
pub const NUMA: &[Metric] = &[
    count("vm.numa_hit", Kernel(2, 6), "Allocations that got the node they wanted."),
    count(
        "vm.numa_miss",
        Kernel(2, 6),
        "Allocations that got another node than they preferred, counted on the node that served.",
    ),
    count(
        "vm.numa_foreign",
        Kernel(2, 6),
        "Allocations that got another node than they preferred, counted on the preferred node. Over the machine the same as numa_miss.",
    ),
    count(
        "vm.numa_interleave",
        Kernel(2, 6),
        "Allocations of an interleaving policy that got the node they wanted.",
    ),
    count("vm.numa_local", Kernel(2, 6), "Allocations on the node that the task ran on."),
    count("vm.numa_other", Kernel(2, 6), "Allocations on another node than the task ran on."),
    page_count(
        "vm.numa_pte_updates",
        Kernel(3, 8),
        "Pages made to fault so that the kernel sees who uses them.",
    ),
    count(
        "vm.numa_huge_pte_updates",
        Kernel(3, 13),
        "Huge pages made to fault so that the kernel sees who uses them.",
    ),
    count(
        "vm.numa_hint_faults",
        Kernel(3, 8),
        "Faults taken to see who uses a page: the price of NUMA balancing.",
    ),
    count("vm.numa_hint_faults_local", Kernel(3, 8), "Those of them from the node that has the page."),
    page_count("vm.numa_pages_migrated", Kernel(3, 8), "Pages moved to the node that uses them."),
];

/// Huge pages and page tables in `/proc/vmstat`.
pub const HUGE: &[Metric] = &[
    count("vm.thp_fault_alloc", Kernel(2, 6), "Huge pages allocated in a page fault."),
    count("vm.thp_fault_fallback", Kernel(2, 6), "Page faults that wanted a huge page and got small ones."),
    count(
        "vm.thp_fault_fallback_charge",
        Kernel(5, 8),
        "Page faults that got small pages because the control group had no room for a huge one.",
    ),
    count(
        "vm.thp_collapse_alloc",
        Kernel(2, 6),
        "Huge pages allocated by khugepaged to collapse small ones.",
    ),
    count("vm.thp_collapse_alloc_failed", Kernel(2, 6), "Huge pages that khugepaged wanted and did not get."),
    count("vm.thp_file_alloc", Kernel(4, 8), "Huge pages of shared memory or files allocated."),
    count(
        "vm.thp_file_fallback",
        Kernel(5, 8),
        "Huge pages of shared memory or files that were wanted and not got.",
    ),
    count(
        "vm.thp_file_fallback_charge",
        Kernel(5, 8),
        "Those not got because the control group had no room.",
    ),
    count("vm.thp_file_mapped", Kernel(4, 8), "Huge pages of shared memory or files mapped into a process."),
    count("vm.thp_split", Kernel(2, 6), "Huge pages split; until 4.4."),
    count("vm.thp_split_page", Kernel(4, 5), "Huge pages split into small ones."),
    count(
        "vm.thp_split_page_failed",
        Kernel(4, 5),
        "Huge pages that could not be split, for instance because somebody pinned them.",
    ),
    count(
        "vm.thp_deferred_split_page",
        Kernel(4, 5),
        "Huge pages queued to be split because part of them was unmapped.",
    ),
    count("vm.thp_underused_split_page", Kernel(6, 12), "Huge pages split because most of them was zeros."),
    count("vm.thp_split_pmd", Kernel(4, 5), "Huge mappings split; the page itself may stay whole."),
    count("vm.thp_split_pud", Kernel(4, 11), "Mappings of 1 GiB split."),
    count(
        "vm.thp_scan_exceed_none_pte",
        Kernel(5, 17),
        "Ranges that khugepaged passed over because too much of them was never touched.",
    ),
    count(
        "vm.thp_scan_exceed_swap_pte",
        Kernel(5, 17),
        "Ranges that khugepaged passed over because too much of them was swapped out.",
    ),
    count(
        "vm.thp_scan_exceed_share_pte",
        Kernel(5, 17),
        "Ranges that khugepaged passed over because too much of them was shared.",
    ),
    count("vm.thp_zero_page_alloc", Kernel(3, 8), "Huge pages of zeros allocated."),
    count("vm.thp_zero_page_alloc_failed", Kernel(3, 8), "Huge pages of zeros that could not be allocated."),
    count("vm.thp_swpout", Kernel(4, 14), "Huge pages swapped out whole."),
    count("vm.thp_swpout_fallback", Kernel(4, 14), "Huge pages split before they were swapped out."),
    count("vm.thp_migration_success", Kernel(5, 9), "Huge pages moved whole."),
    count("vm.thp_migration_fail", Kernel(5, 9), "Huge pages that could not be moved."),
    count("vm.thp_migration_split", Kernel(5, 9), "Huge pages split in order to be moved."),
    count("vm.htlb_buddy_alloc_success", Kernel(2, 6), "Pages for the pools of huge pages that were got."),
    count(
        "vm.htlb_buddy_alloc_fail",
        Kernel(2, 6),
        "Pages for the pools of huge pages that were not got: fragmentation.",
    ),
    count("vm.cma_alloc_success", Kernel(5, 12), "Contiguous allocations that succeeded."),
    count("vm.cma_alloc_fail", Kernel(5, 12), "Contiguous allocations that failed."),
    count("vm.cma_release_success", Kernel(6, 11), "Contiguous allocations given back."),
    count(
        "vm.direct_map_level2_splits",
        Kernel(5, 12),
        "Splits of 2 MiB mappings of the kernel's direct map.",
    ),
    count(
        "vm.direct_map_level3_splits",
        Kernel(5, 12),
        "Splits of 1 GiB mappings of the kernel's direct map.",
    ),
    count(
        "vm.direct_map_level2_collapses",
        Kernel(6, 15),
        "2 MiB mappings of the direct map put together again.",
    ),
    count(
        "vm.direct_map_level3_collapses",
        Kernel(6, 15),
        "1 GiB mappings of the direct map put together again.",
    ),
];

/// Lines of `/proc/vmstat` that only kernels built for debugging have.
pub const DEBUG: &[Metric] = &[
    count(
        "vm.nr_tlb_remote_flush",
        Kernel(3, 12),
        "Requests to other CPUs to flush their address translations.",
    ),
    count("vm.nr_tlb_remote_flush_received", Kernel(3, 12), "Such requests received."),
    count("vm.nr_tlb_local_flush_all", Kernel(3, 12), "Flushes of all address translations of a CPU."),
    count("vm.nr_tlb_local_flush_one", Kernel(3, 12), "Flushes of a single address translation."),
    count("vm.vmacache_find_calls", Kernel(3, 16), "Look-ups in the cache of mappings; until 6.0."),
    count("vm.vmacache_find_hits", Kernel(3, 16), "Hits in the cache of mappings; until 6.0."),
    count("vm.vmacache_full_flushes", Kernel(3, 19), "Flushes of the cache of mappings; until 4.x."),
    count("vm.vma_lock_success", Kernel(6, 4), "Page faults served under the lock of one mapping."),
    count("vm.vma_lock_abort", Kernel(6, 4), "Page faults that had to give up the lock of one mapping."),
    count("vm.vma_lock_retry", Kernel(6, 4), "Page faults that began again with mmap_lock."),
    count("vm.vma_lock_miss", Kernel(6, 4), "Page faults that could not take the lock of one mapping."),
    count("vm.kstack_1k", Kernel(6, 12), "Ended tasks that had used at most 1 KiB of kernel stack."),
    count("vm.kstack_2k", Kernel(6, 12), "Ended tasks that had used at most 2 KiB of kernel stack."),
    count("vm.kstack_4k", Kernel(6, 12), "Ended tasks that had used at most 4 KiB of kernel stack."),
    count("vm.kstack_8k", Kernel(6, 12), "Ended tasks that had used at most 8 KiB of kernel stack."),
    count("vm.kstack_16k", Kernel(6, 12), "Ended tasks that had used at most 16 KiB of kernel stack."),
    count("vm.kstack_32k", Kernel(6, 12), "Ended tasks that had used at most 32 KiB of kernel stack."),
    count("vm.kstack_64k", Kernel(6, 12), "Ended tasks that had used at most 64 KiB of kernel stack."),
    count("vm.kstack_rest", Kernel(6, 12), "Ended tasks that had used more kernel stack than that."),
];
