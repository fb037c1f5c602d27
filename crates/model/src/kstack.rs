//! Classifies the wait of a task in D state by its kernel stack: block I/O, a lock, reclaim, or throttling.
//!
//! The names are functions of kernels 3.10 to 6.18.

/// The wait of a task in D state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitKind {
    /// Block I/O, a page or buffer under I/O, a journal commit, an answer of a file server.
    Io,
    /// A lock of the kernel: `mmap_lock`, an inode's, a mutex.
    Lock,
    /// Inside reclaim or compaction, or for a page that is being moved.
    Memory,
    /// Throttled: balancing of dirty pages, an I/O limit, `memory.high`, writeback throttling.
    Throttle,
    /// Something else (a child after `vfork`, a grace period of RCU), or the stack is not known.
    Other,
}

/// Throttling wins over what the task did before. Entries that end in `*` are prefixes.
///
/// `balance_dirty_pages` (mm/page-writeback.c) paces writers; `blk_throtl_*` and `blkcg_maybe_throttle_*`
/// (block/blk-throttle.c, blk-cgroup.c) are the limits of blkio and io.max; `rq_qos_wait` (block/blk-rq-qos.c)
/// serves `wbt_*`, iolatency and iocost; `mem_cgroup_handle_over_high` is the penalty of memory.high.
const THROTTLE: &[&str] = &[
    "balance_dirty_pages*",
    "blk_throtl*",
    "blkcg_maybe_throttle*",
    "blkcg_schedule_throttle",
    "throtl_*",
    "rq_qos_wait",
    "__rq_qos_throttle",
    "wbt_wait",
    "__wbt_wait",
    "ioc_rqos_throttle",
    "blkcg_iolatency_throttle",
    "mem_cgroup_handle_over_high",
    "__mem_cgroup_handle_over_high",
];

/// Reclaim (mm/vmscan.c), the charge against a control group's limit (mm/memcontrol.c), the OOM killer,
/// compaction (mm/compaction.c) and migration (mm/migrate.c). Reclaim may wait for a lock or for writeback; the cause is
/// still missing memory, so these win over the lists below.
const MEMORY: &[&str] = &[
    "shrink_*",
    "do_shrink_slab",
    "try_to_free_*",
    "do_try_to_free_pages",
    "reclaim_throttle",
    "throttle_direct_reclaim",
    "__alloc_pages_direct_*",
    "__perform_reclaim",
    "congestion_wait",
    "wait_iff_congested",
    "too_many_isolated",
    "balance_pgdat",
    "node_reclaim",
    "__node_reclaim",
    "zone_reclaim",
    "try_charge*",
    "mem_cgroup_oom*",
    "out_of_memory",
    "oom_kill_process",
    "pagefault_out_of_memory",
    "compact_*",
    "isolate_migratepages*",
    "migrate_pages*",
    "migration_entry_wait*",
    "softleaf_entry_wait*",
    "khugepaged_*",
];

/// Waiting for a device, its pages and buffers, or a file server.
///
/// Pages and buffers (mm/filemap.c, fs/buffer.c), requests (block/), direct I/O (fs/direct-io.c, fs/iomap/),
/// swap-in (mm/memory.c), synchronous writeback (fs/fs-writeback.c), journals (fs/jbd2/, fs/xfs/,
/// fs/btrfs/), stacked devices (drivers/md/) and network filesystems (net/sunrpc/, fs/nfs/, fs/fuse/).
const IO: &[&str] = &[
    "io_schedule*",
    "folio_wait_*",
    "__folio_lock*",
    "wait_on_page_*",
    "__lock_page*",
    "lock_page_killable",
    "sleep_on_page*",
    "filemap_fdatawait*",
    "__filemap_fdatawait*",
    "wait_on_buffer",
    "__wait_on_buffer",
    "sleep_on_buffer",
    "bit_wait_io*",
    "out_of_line_wait_on_bit*",
    "wait_for_completion_io*",
    "blk_*",
    "bio_await*",
    "blkdev_*",
    "__blkdev_*",
    "submit_bio_wait",
    "bt_get",
    "get_request*",
    "__iomap_dio_rw",
    "iomap_dio_*",
    "do_blockdev_direct_IO",
    "__blockdev_direct_IO",
    "dio_await*",
    "inode_dio_wait*",
    "__inode_dio_wait",
    "do_swap_page",
    "swap_readpage",
    "swap_read_folio",
    "wb_wait_for_completion",
    "sync_inodes_sb",
    "inode_wait_for_writeback",
    "__inode_wait_for_writeback",
    "writeback_inodes_sb*",
    "jbd2_*",
    "do_get_write_access",
    "start_this_handle",
    "add_transaction_credits",
    "wait_transaction_*",
    "xfs_buf_*",
    "xfs_log_*",
    "xlog_*",
    "xfs_trans_reserve",
    "btrfs_wait_*",
    "wait_current_trans",
    "wait_for_commit",
    "f2fs_wait_*",
    "md_*",
    "raid*_make_request",
    "dm_*",
    "scsi_execute_cmd",
    "nfs_wait_*",
    "nfs4_*",
    "rpc_wait_bit_killable",
    "__rpc_wait_for_completion_task",
    "request_wait_answer",
    "cifs_*",
    "ceph_*",
];

/// Waiting for a lock that another task holds.
///
/// `rwsem_*` and `down_*` (kernel/locking/rwsem.c), `__mutex_lock*` (mutex.c), `percpu_*` (percpu-rwsem.c), the
/// locks of an address space (mm/mmap_lock.c) and of a VMA. `__vm_munmap`, `vm_mmap_pgoff` and
/// `lock_mm_and_find_vma` are what `/proc/PID/wchan` shows of a wait for `mmap_lock`.
const LOCK: &[&str] = &[
    "rwsem_*",
    "call_rwsem_*",
    "down_read*",
    "down_write*",
    "__down_read*",
    "__down_write*",
    "__down",
    "__down_common",
    "__down_killable",
    "down",
    "down_killable",
    "mutex_lock*",
    "__mutex_lock*",
    "__ww_mutex_lock*",
    "percpu_rwsem_wait",
    "percpu_down_*",
    "__percpu_down_read",
    "rt_mutex_*",
    "__rt_mutex_*",
    "rtlock_*",
    "__vm_munmap",
    "vm_mmap_pgoff",
    "lock_mm_and_find_vma",
    "vma_start_write",
    "__vma_start_write",
    "__vma_enter_locked",
    "__vma_start_exclude_readers",
    "lock_two_nondirectories",
    "lock_rename",
    "rtnl_lock*",
    "cgroup_lock*",
];

/// Where a lookup, a new name or a listing sleeps by itself: only for the lock of a directory. The kernel leaves the functions of the lock
/// out of its stacks, so that these are innermost then (fs/namei.c, fs/readdir.c; some of them are inlined into `path_openat`).
const DIRECTORY: &[&str] = &[
    "path_openat",
    "open_last_lookups",
    "do_last",
    "walk_component",
    "lookup_slow",
    "filename_create",
    "lock_rename",
    "do_unlinkat",
    "do_rmdir",
    "do_renameat2",
    "start_dirop",
    "start_creating*",
    "start_removing*",
    "start_renaming*",
    "iterate_dir",
    "vfs_readdir",
];

/// Whether a stack is that of a task which waits for the lock of a directory.
#[must_use]
pub fn waits_for_directory(stack: &str) -> bool {
    let mut frames = stack.split(';').map(base_name).filter(|name| !name.is_empty());
    frames
        .find(|name| *name == "lock_rename" || !is_on(LOCK, name))
        .is_some_and(|name| is_on(DIRECTORY, name))
}

/// Classifies a stack: function names joined by semicolons, the innermost first, or one name from `/proc/PID/wchan`.
///
/// Throttling or reclaim anywhere on the stack decides, the inner one of the two; otherwise the innermost name on one of
/// the other lists.
#[must_use]
pub fn wait_kind(stack: &str) -> WaitKind {
    let mut kind = WaitKind::Other;
    for frame in stack.split(';') {
        let name = base_name(frame);
        if name.is_empty() {
            continue;
        }
        if is_on(THROTTLE, name) {
            return WaitKind::Throttle;
        }
        if is_on(MEMORY, name) {
            return WaitKind::Memory;
        }
        if kind == WaitKind::Other {
            if is_on(IO, name) {
                kind = WaitKind::Io;
            } else if is_on(LOCK, name) {
                kind = WaitKind::Lock;
            }
        }
    }
    if kind == WaitKind::Other && waits_for_directory(stack) { WaitKind::Lock } else { kind }
}

/// The function without suffixes of the compiler (`.isra.0`, `.constprop.0`) and of `/proc/PID/stack` (`+0x1f/0x90`).
fn base_name(frame: &str) -> &str {
    let end = frame.find(['.', '+', ' ']).unwrap_or(frame.len());
    frame.get(..end).unwrap_or(frame)
}

fn is_on(list: &[&str], name: &str) -> bool {
    list.iter().any(|entry| match entry.split_once('*') {
        None => *entry == name,
        Some((start, "")) => name.starts_with(start),
        Some((start, end)) => name.starts_with(start) && name.ends_with(end),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io() {
        for stack in [
            "folio_wait_bit_common;filemap_get_pages;filemap_read;vfs_read;ksys_read",
            "folio_wait_bit_common;do_swap_page;__handle_mm_fault;handle_mm_fault;exc_page_fault",
            "__iomap_dio_rw;iomap_dio_rw;ext4_file_read_iter;vfs_read",
            "blk_mq_get_tag;__blk_mq_alloc_requests;blk_mq_submit_bio;submit_bio_noacct",
            "jbd2_log_wait_commit;ext4_fsync_journal;ext4_sync_file;do_fsync",
            "add_transaction_credits;start_this_handle;jbd2__journal_start;__ext4_journal_start_sb",
            "wb_wait_for_completion;__writeback_inodes_sb_nr;sync_filesystem",
            "submit_bio_wait;blkdev_issue_flush;ext4_sync_file",
            "xfs_buf_iowait;xfs_buf_read_map;xfs_trans_read_buf_map",
            "bit_wait_io;out_of_line_wait_on_bit;do_get_write_access",
            "raid5_make_request;md_handle_request;md_submit_bio",
            "folio_wait_bit",
        ] {
            assert_eq!(wait_kind(stack), WaitKind::Io, "{stack}");
        }
    }

    #[test]
    fn locks() {
        for stack in [
            "rwsem_down_write_slowpath;down_write_killable;__vm_munmap;__x64_sys_munmap;do_syscall_64",
            "rwsem_down_read_slowpath;down_read_killable;lock_mm_and_find_vma;do_user_addr_fault",
            "__mutex_lock.constprop.0;ext4_create;path_openat",
            "percpu_rwsem_wait;__percpu_down_read;cgroup_attach_task",
            "path_openat;do_filp_open;do_sys_openat2;__x64_sys_openat;do_syscall_64",
            "do_renameat2;__x64_sys_rename;do_syscall_64",
            "vm_mmap_pgoff",
            "lock_mm_and_find_vma",
            "rwsem_down_write_slowpath+0x2a1/0x4d0;ext4_buffered_write_iter",
        ] {
            assert_eq!(wait_kind(stack), WaitKind::Lock, "{stack}");
        }
    }

    #[test]
    fn memory_wins_over_what_reclaim_waits_for() {
        for stack in [
            "folio_wait_bit_common;folio_wait_writeback;shrink_folio_list;shrink_lruvec;try_to_free_mem_cgroup_pages;try_charge_memcg",
            "reclaim_throttle;shrink_node;do_try_to_free_pages;try_to_free_pages;__alloc_pages_slowpath",
            "__mutex_lock;i915_gem_shrink;do_shrink_slab;shrink_slab",
            "compact_zone;compact_zone_order;try_to_compact_pages",
            "congestion_wait;shrink_inactive_list",
            "migration_entry_wait_on_locked;do_swap_page",
        ] {
            assert_eq!(wait_kind(stack), WaitKind::Memory, "{stack}");
        }
    }

    #[test]
    fn a_rule_wins_over_the_io_that_it_delays() {
        for stack in [
            "balance_dirty_pages;balance_dirty_pages_ratelimited_flags;generic_perform_write",
            "rq_qos_wait;wbt_wait;__rq_qos_throttle;blk_mq_submit_bio;swap_writepage;shrink_folio_list",
            "blk_throtl_bio;submit_bio_noacct;__iomap_dio_rw",
            "mem_cgroup_handle_over_high;resume_user_mode_work",
        ] {
            assert_eq!(wait_kind(stack), WaitKind::Throttle, "{stack}");
        }
    }

    #[test]
    fn the_rest_is_other() {
        for stack in
            ["", ";", "kernel_clone;__x64_sys_vfork", "synchronize_rcu;namespace_unlock", "downtown", "0"]
        {
            assert_eq!(wait_kind(stack), WaitKind::Other, "{stack}");
        }
    }
}
