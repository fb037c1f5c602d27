//! Files of /proc and /sys that were saved, once, in a row or as histories; sysctl, df, mount, lsblk, numastat.

mod assignment;
mod bare;
mod filesystems;
mod keys;
mod names;
mod numastat;
mod saved;
pub(in crate::text) mod sink;
mod stamp;
mod tables;
mod zones;

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    Format {
        name: "numastat",
        what: "hits and misses of NUMA nodes; with `-m` and `-n`",
        starts: numastat::starts,
        read: numastat::read,
    },
    Format {
        name: "df",
        what: "how full filesystems are, in any unit; with `-T` and `-i`",
        starts: filesystems::df_starts,
        read: filesystems::df,
    },
    Format {
        name: "mount",
        what: "what is mounted where, also as `/proc/mounts`",
        starts: filesystems::mount_starts,
        read: filesystems::mount,
    },
    Format {
        name: "lsblk",
        what: "disks: rotating or not, scheduler",
        starts: filesystems::lsblk_starts,
        read: filesystems::lsblk,
    },
    Format {
        name: "/proc files",
        what: "files of `/proc` and `/proc/sys` and `sysctl -a`: alone, one after the other, as `grep` leaves them, or as histories with times",
        starts: saved::starts,
        read: saved::read,
    },
];
