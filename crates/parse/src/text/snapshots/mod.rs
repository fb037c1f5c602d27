//! Files of /proc and /sys that were saved, once, in a row or as histories; sysctl, df, mount, lsblk, numastat.

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[];
