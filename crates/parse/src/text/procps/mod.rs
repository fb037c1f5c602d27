//! vmstat, free, top, ps, uptime, slabtop and atop.

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[];
