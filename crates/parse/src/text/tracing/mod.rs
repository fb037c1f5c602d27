//! Tracing tools: strace, perf script, folded stacks, ftrace, the BPF tools, bpftrace.

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[];
