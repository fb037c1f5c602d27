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

use crate::Outcome;
use crate::column::Column;
use crate::keyed::Keyed;
use crate::vmstat::lines_of_numbers;

/// The parser of `memory.stat` of one version.
#[derive(Debug)]
pub struct MemoryStat {
    keys: Keyed<Option<Column>>,
    columns: &'static [(&'static [u8], &'static str)],
}

/// Names of version 2 and their metrics.
const V2: &[(&[u8], &str)] = &[
    (b"anon ", "cgroup.anon"),
    (b"file ", "cgroup.file"),
    (b"shmem ", "cgroup.shmem"),
    (b"file_mapped ", "cgroup.mapped"),
    (b"file_dirty ", "cgroup.dirty"),
    (b"file_writeback ", "cgroup.writeback"),
    (b"slab ", "cgroup.slab"),
    (b"slab_reclaimable ", "cgroup.slab_reclaimable"),
    (b"kernel_stack ", "cgroup.kernel_stack"),
    (b"sock ", "cgroup.sock"),
    (b"active_anon ", "cgroup.active_anon"),
    (b"inactive_anon ", "cgroup.inactive_anon"),
    (b"active_file ", "cgroup.active_file"),
    (b"inactive_file ", "cgroup.inactive_file"),
    (b"unevictable ", "cgroup.unevictable"),
    (b"pgfault ", "cgroup.pgfault"),
    (b"pgmajfault ", "cgroup.pgmajfault"),
    (b"workingset_refault ", "cgroup.refault_file"),
    (b"workingset_refault_anon ", "cgroup.refault_anon"),
    (b"workingset_refault_file ", "cgroup.refault_file"),
    (b"workingset_activate ", "cgroup.activate_file"),
    (b"workingset_activate_anon ", "cgroup.activate_anon"),
    (b"workingset_activate_file ", "cgroup.activate_file"),
    (b"pgscan ", "cgroup.pgscan"),
    (b"pgsteal ", "cgroup.pgsteal"),
];

/// Names of version 1 and their metrics.
const V1: &[(&[u8], &str)] = &[
    (b"total_rss ", "cgroup.anon"),
    (b"total_cache ", "cgroup.file"),
    (b"total_shmem ", "cgroup.shmem"),
    (b"total_mapped_file ", "cgroup.mapped"),
    (b"total_dirty ", "cgroup.dirty"),
    (b"total_writeback ", "cgroup.writeback"),
    (b"total_swap ", "cgroup.swap_current"),
    (b"total_active_anon ", "cgroup.active_anon"),
    (b"total_inactive_anon ", "cgroup.inactive_anon"),
    (b"total_active_file ", "cgroup.active_file"),
    (b"total_inactive_file ", "cgroup.inactive_file"),
    (b"total_unevictable ", "cgroup.unevictable"),
    (b"total_pgfault ", "cgroup.pgfault"),
    (b"total_pgmajfault ", "cgroup.pgmajfault"),
    (b"total_workingset_refault ", "cgroup.refault_file"),
    (b"total_workingset_refault_anon ", "cgroup.refault_anon"),
    (b"total_workingset_refault_file ", "cgroup.refault_file"),
];

impl MemoryStat {
    /// Of version 1.
    #[must_use]
    pub fn v1() -> Self {
        MemoryStat { keys: Keyed::default(), columns: V1 }
    }

    /// Of version 2.
    #[must_use]
    pub fn v2() -> Self {
        MemoryStat { keys: Keyed::default(), columns: V2 }
    }

    /// Fills the row of the group. Names that have no metric are left out and not counted: they are many.
    pub fn parse(&mut self, input: &[u8], row: &mut [i64]) -> Outcome {
        let columns = self.columns;
        let classify = |key: &[u8]| {
            let known = columns.iter().find(|(name, _)| *name == key);
            Some(known.map_or(Column::NONE, |(_, metric)| Column::of(metric)))
        };
        lines_of_numbers(&mut self.keys, input, classify, row, |value| value)
    }
}

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
