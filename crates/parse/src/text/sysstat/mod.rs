//! The sysstat tools: sar, sadf, iostat, mpstat, pidstat.

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[];
