//! Files of /proc and /sys that were saved, once, in a row or as histories; sysctl, df, mount, lsblk, numastat.

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
    Format { name: "numastat", starts: numastat::starts, read: numastat::read },
    Format { name: "df", starts: filesystems::df_starts, read: filesystems::df },
    Format { name: "mount", starts: filesystems::mount_starts, read: filesystems::mount },
    Format { name: "lsblk", starts: filesystems::lsblk_starts, read: filesystems::lsblk },
    Format { name: "/proc files", starts: saved::starts, read: saved::read },
];
