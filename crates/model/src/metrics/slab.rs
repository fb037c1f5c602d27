//! Slab caches, and the caches of names, inodes and open files.

use crate::metric::{Entity, Kernel, Metric, Unit, gauge};

const fn slab_level(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Slab, name, Unit::Count, "/proc/slabinfo", since, help)
}

const fn bytes(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Slab, name, Unit::Bytes, "/proc/slabinfo", since, help)
}

const fn pages(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Slab, name, Unit::Pages, "/proc/slabinfo", since, help)
}

const fn system_level(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Count, source, since, help)
}

/// Of each cache in `/proc/slabinfo`, which only root may read.
pub const SLAB: &[Metric] = &[
    slab_level(
        "slab.active_objs",
        Kernel(2, 6),
        "Objects in use. SLUB counts all objects of the slabs that a CPU holds as in use, so it is an upper bound.",
    ),
    slab_level("slab.num_objs", Kernel(2, 6), "Objects that the slabs of the cache have room for."),
    bytes("slab.objsize", Kernel(2, 6), "Bytes of one object with its padding."),
    slab_level("slab.objperslab", Kernel(2, 6), "Objects in one slab."),
    pages(
        "slab.pagesperslab",
        Kernel(2, 6),
        "Pages in one slab. Times slab.num_slabs it is the memory that the cache takes.",
    ),
    slab_level("slab.active_slabs", Kernel(2, 6), "Slabs with objects in use. SLUB reports all slabs."),
    slab_level("slab.num_slabs", Kernel(2, 6), "Slabs of the cache."),
];

/// Of the whole machine.
pub const CACHES: &[Metric] = &[
    system_level(
        "dentry.nr",
        "/proc/sys/fs/dentry-state:1",
        Kernel(2, 6),
        "Names of files that the kernel remembers, negative ones included.",
    ),
    system_level(
        "dentry.unused",
        "/proc/sys/fs/dentry-state:2",
        Kernel(2, 6),
        "Names that nobody uses at the moment; reclaim may drop them.",
    ),
    system_level(
        "dentry.negative",
        "/proc/sys/fs/dentry-state:5",
        Kernel(5, 0),
        "Unused names of files that do not exist. The field was a constant 0 before 5.0; there it is not available.",
    ),
    system_level("inode.nr", "/proc/sys/fs/inode-state:1", Kernel(2, 6), "Inodes in memory."),
    system_level(
        "inode.free",
        "/proc/sys/fs/inode-state:2",
        Kernel(2, 6),
        "Inodes in memory that nobody uses; reclaim may drop them.",
    ),
    system_level(
        "files.nr",
        "/proc/sys/fs/file-nr:1",
        Kernel(2, 6),
        "Open file descriptions of the whole machine: a descriptor that was inherited or duplicated is not counted again.",
    ),
    system_level(
        "files.free",
        "/proc/sys/fs/file-nr:2",
        Kernel(2, 6),
        "Always 0 since 2.6: unused ones are freed at once.",
    ),
    system_level(
        "files.max",
        "/proc/sys/fs/file-nr:3",
        Kernel(2, 6),
        "The limit fs.file-max. Opening a file fails with ENFILE above it, except for root.",
    ),
];
