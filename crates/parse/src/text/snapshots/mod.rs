//! Files of /proc and /sys that were saved, once, in a row or as histories; sysctl, df, mount, lsblk, numastat; lvs, dmsetup,
//! multipath, dmidecode.

mod assignment;
mod bare;
mod by_name;
mod by_name_process;
mod by_name_sockets;
mod dmidecode;
mod filesystems;
mod keys;
mod lvm;
mod mdstat;
mod multipath;
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
    numastat::FORMAT,
    filesystems::DF,
    filesystems::MOUNT,
    filesystems::LSBLK,
    mdstat::FORMAT,
    multipath::FORMAT,
    lvm::LVS,
    lvm::DMSETUP,
    dmidecode::FORMAT,
    by_name::FORMAT,
    saved::FORMAT,
];
