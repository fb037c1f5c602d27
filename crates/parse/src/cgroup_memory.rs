//! `memory.stat` of control groups, both layouts.
//!
//! ```text
//! anon 11599872
//! file 9629696
//! workingset_refault_file 356
//! ```
//! ```text
//! cache 9629696
//! rss 11599872
//! total_cache 548184064
//! total_rss 30904320
//! ```
//!
//! See `memory_stat_format` in `mm/memcontrol.c` and `memcg1_stat_format` in `mm/memcontrol-v1.c`. Version 2 adds up the
//! groups below; in version 1 the lines that begin with `total_` do, and the others are left out. Sizes are bytes.

/// The keys of version 2 that have a metric. The others are many.
pub(crate) const V2: &[(&str, &str)] = &[
    ("anon", "cgroup.anon"),
    ("file", "cgroup.file"),
    ("shmem", "cgroup.shmem"),
    ("file_mapped", "cgroup.mapped"),
    ("file_dirty", "cgroup.dirty"),
    ("file_writeback", "cgroup.writeback"),
    ("slab", "cgroup.slab"),
    ("slab_reclaimable", "cgroup.slab_reclaimable"),
    ("kernel_stack", "cgroup.kernel_stack"),
    ("sock", "cgroup.sock"),
    ("active_anon", "cgroup.active_anon"),
    ("inactive_anon", "cgroup.inactive_anon"),
    ("active_file", "cgroup.active_file"),
    ("inactive_file", "cgroup.inactive_file"),
    ("unevictable", "cgroup.unevictable"),
    ("pgfault", "cgroup.pgfault"),
    ("pgmajfault", "cgroup.pgmajfault"),
    ("workingset_refault", "cgroup.refault_file"),
    ("workingset_refault_anon", "cgroup.refault_anon"),
    ("workingset_refault_file", "cgroup.refault_file"),
    ("workingset_activate", "cgroup.activate_file"),
    ("workingset_activate_anon", "cgroup.activate_anon"),
    ("workingset_activate_file", "cgroup.activate_file"),
    ("pgscan", "cgroup.pgscan"),
    ("pgsteal", "cgroup.pgsteal"),
];

/// The keys of version 1 that have a metric.
pub(crate) const V1: &[(&str, &str)] = &[
    ("total_rss", "cgroup.anon"),
    ("total_cache", "cgroup.file"),
    ("total_shmem", "cgroup.shmem"),
    ("total_mapped_file", "cgroup.mapped"),
    ("total_dirty", "cgroup.dirty"),
    ("total_writeback", "cgroup.writeback"),
    ("total_swap", "cgroup.swap_current"),
    ("total_active_anon", "cgroup.active_anon"),
    ("total_inactive_anon", "cgroup.inactive_anon"),
    ("total_active_file", "cgroup.active_file"),
    ("total_inactive_file", "cgroup.inactive_file"),
    ("total_unevictable", "cgroup.unevictable"),
    ("total_pgfault", "cgroup.pgfault"),
    ("total_pgmajfault", "cgroup.pgmajfault"),
    ("total_workingset_refault", "cgroup.refault_file"),
    ("total_workingset_refault_anon", "cgroup.refault_anon"),
    ("total_workingset_refault_file", "cgroup.refault_file"),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("3.10", "sys/fs/cgroup/memory/web/memory.stat");
        s.is("cgroup.anon", 212_004_864);
        s.is("cgroup.file", 91_553_792);
        s.none("cgroup.refault_file");
        s.none("cgroup.shmem");
        let s = parsed("4.18", "sys/fs/cgroup/memory/web/memory.stat");
        s.is("cgroup.refault_file", 52_876);
        s.is("cgroup.shmem", 135_168);
        let s = parsed("5.15", "sys/fs/cgroup/web.slice/memory.stat");
        s.is("cgroup.anon", 31_330_304);
        s.is("cgroup.pgscan", 85_327);
        s.is("cgroup.slab", 4_120_576);
        let s = parsed("6.1", "sys/fs/cgroup/web.slice/memory.stat");
        s.is("cgroup.activate_anon", 12);
        s.is("cgroup.pgsteal", 51_002);
        let s = parsed("6.18", "sys/fs/cgroup/memory/memory.stat");
        s.is("cgroup.anon", 30_904_320);
        s.is("cgroup.refault_file", 672_085);
        s.is("cgroup.active_file", 282_701_824);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "sys/fs/cgroup/a/memory.stat",
            b"anon 5\nanon 6\nfile -7\nnovel 5\nshmem 9\r\nslab\nsock 8",
        );
        s.is("cgroup.anon", 5);
        s.count(1);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad, s.outcome.unknown_keys), (5, Some(2), 0));
    }
}
