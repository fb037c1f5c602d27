//! Tracing tools: strace, perf script, folded stacks, ftrace, the BPF tools, bpftrace.

mod blkparse;
mod bpftrace_json;
mod buckets;
mod cachestat;
mod ftrace;
mod histogram;
mod perf_sched;
mod perf_stat;
mod retransmits;
mod snoop;
mod stacks;
mod strace;
mod tally;

use super::{Format, Lines};

/// The formats, the most particular first.
pub static FORMATS: &[Format] = {
    let [biolatency, bitesize, runqlat, other] = histogram::FORMATS;
    let [opensnoop, execsnoop, tcpretrans, biosnoop] = snoop::FORMATS;
    let [script, folded, long] = stacks::FORMATS;
    &[
        strace::TABLE,
        cachestat::FORMAT,
        opensnoop,
        execsnoop,
        tcpretrans,
        retransmits::FORMAT,
        biosnoop,
        blkparse::FORMAT,
        long,
        biolatency,
        bitesize,
        runqlat,
        other,
        bpftrace_json::FORMAT,
        perf_stat::FORMAT,
        perf_stat::JSON,
        perf_sched::LATENCY,
        perf_sched::TIMEHIST,
        ftrace::FORMAT,
        script,
        strace::LOG,
        folded,
    ]
};

/// Whether the line at the cursor is what people leave in a copy between or after rows: a blank line, the key that
/// ended the tool, the mark of something left out. A blank line counts only if something of the kind or rows follow.
fn is_pause(lines: &mut Lines<'_>) -> bool {
    lines.peek().is_some_and(|line| matches!(line.trim_ascii(), b"^C" | b"[...]" | b"..." | b"(...)"))
}
