//! Mounted filesystems.

use crate::metric::{Entity, Kernel, Metric, Unit, gauge, text};

const fn bytes(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Filesystem, name, Unit::Bytes, source, since, help)
}

const fn level(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Filesystem, name, Unit::Count, source, since, help)
}

const fn filesystem_text(
    name: &'static str,
    source: &'static str,
    since: Kernel,
    help: &'static str,
) -> Metric {
    text(Entity::Filesystem, name, source, since, help)
}

/// Of each mount that holds data.
pub const FILESYSTEM: &[Metric] = &[
    bytes("fs.total_bytes", "statfs: f_blocks", Kernel(2, 6), "Size of the filesystem."),
    bytes(
        "fs.free_bytes",
        "statfs: f_bfree",
        Kernel(2, 6),
        "Free space, what is reserved for root included.",
    ),
    bytes(
        "fs.avail_bytes",
        "statfs: f_bavail",
        Kernel(2, 6),
        "Free space for a process without privileges. Writes fail at 0 although root still has room.",
    ),
    level(
        "fs.inodes",
        "statfs: f_files",
        Kernel(2, 6),
        "Inodes that the filesystem has room for; 0 where it makes them as needed.",
    ),
    level(
        "fs.inodes_free",
        "statfs: f_ffree",
        Kernel(2, 6),
        "Inodes that are free. At 0 no file can be created, however much space is free.",
    ),
    filesystem_text("fs.type", "/proc/self/mounts", Kernel(2, 6), "Type of the filesystem."),
    filesystem_text(
        "fs.device",
        "/proc/self/mounts",
        Kernel(2, 6),
        "What is mounted: a device, a share, or a name without meaning.",
    ),
];
