//! Logs: of the kernel in dmesg, syslog and journal form, of BIRD, and any log whose lines begin with a time.

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[];
