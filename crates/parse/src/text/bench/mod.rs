//! Benchmarks: wrk, ab, hey, vegeta, sysbench, fio; and the layout that mkfs.xfs prints.

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[];
