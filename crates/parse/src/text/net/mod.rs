//! Network tools: ip, ethtool, netstat, nstat, ss, conntrack.

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[];
