//! What only other tools' output has: rates that the kernel does not add up itself, traces, heaps, benchmark runs.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge, text};

/// Tools print these for any kernel that they run on.
const ANY: Kernel = Kernel(2, 6);

/// Of the whole machine.
pub const OF_TOOLS: &[Metric] = &[
    counter(
        Entity::System,
        "vm.pgsteal",
        Unit::Pages,
        "sar -B pgsteal/s",
        ANY,
        "Pages reclaimed by whoever reclaimed; what sar prints. Kernels do not have the sum as one counter.",
    ),
    gauge(
        Entity::System,
        "mem.free_change",
        Unit::Pages,
        "sar -R frmpg/s",
        ANY,
        "Pages a second by which the free memory grew; negative where it shrank.",
    ),
    gauge(
        Entity::System,
        "mem.buffers_change",
        Unit::Pages,
        "sar -R bufpg/s",
        ANY,
        "Pages a second by which the buffers grew; negative where they shrank.",
    ),
    gauge(
        Entity::System,
        "mem.cached_change",
        Unit::Pages,
        "sar -R campg/s",
        ANY,
        "Pages a second by which the page cache grew; negative where it shrank.",
    ),
    gauge(
        Entity::System,
        "mem.buff_cache",
        Unit::Bytes,
        "free buff/cache",
        ANY,
        "Buffers, page cache and reclaimable slab together, as free and top print them.",
    ),
    gauge(
        Entity::System,
        "mem.used",
        Unit::Bytes,
        "free used, sar -r kbmemused",
        ANY,
        "Memory in use as the tool reckons it; tools and versions differ in whether the page cache counts.",
    ),
    counter(
        Entity::System,
        "cache.hits",
        Unit::Count,
        "cachestat HITS",
        ANY,
        "Pages that were asked for and found in the page cache.",
    ),
    counter(
        Entity::System,
        "cache.misses",
        Unit::Count,
        "cachestat MISSES",
        ANY,
        "Pages that were asked for and had to be read.",
    ),
    counter(
        Entity::System,
        "cache.dirties",
        Unit::Count,
        "cachestat DIRTIES",
        ANY,
        "Pages of the page cache that were written to.",
    ),
    gauge(
        Entity::System,
        "cache.hit_ratio",
        Unit::Ppm,
        "cachestat RATIO",
        ANY,
        "Share of the pages asked for that were in the page cache.",
    ),
    counter(
        Entity::System,
        "block.requests",
        Unit::Count,
        "biolatency, bitesize",
        ANY,
        "Requests in the histogram of a block tracing tool.",
    ),
    gauge(
        Entity::System,
        "block.latency_p50",
        Unit::Nanos,
        "biolatency",
        ANY,
        "Upper bound of the bucket that holds the median latency of a block request.",
    ),
    gauge(
        Entity::System,
        "block.latency_p99",
        Unit::Nanos,
        "biolatency",
        ANY,
        "Upper bound of the bucket that holds the 99th percentile of the latency of block requests.",
    ),
    gauge(
        Entity::System,
        "block.size_p50",
        Unit::Bytes,
        "bitesize",
        ANY,
        "Upper bound of the bucket that holds the median size of a block request.",
    ),
    counter(
        Entity::System,
        "runq.waits",
        Unit::Count,
        "runqlat",
        ANY,
        "Waits for a CPU in the histogram of a tracing tool.",
    ),
    gauge(
        Entity::System,
        "runq.latency_p50",
        Unit::Nanos,
        "runqlat",
        ANY,
        "Upper bound of the bucket that holds the median wait for a CPU.",
    ),
    gauge(
        Entity::System,
        "runq.latency_p99",
        Unit::Nanos,
        "runqlat",
        ANY,
        "Upper bound of the bucket that holds the 99th percentile of waits for a CPU.",
    ),
];

/// Of block devices.
pub const TRANSFERS: &[Metric] = &[
    counter(
        Entity::Disk,
        "disk.transfers",
        Unit::Count,
        "sar -d tps",
        ANY,
        "Requests of both directions, where a tool does not tell them apart.",
    ),
    counter(
        Entity::Disk,
        "disk.transfer_time",
        Unit::Millis,
        "sar -d tps * await",
        ANY,
        "Time that requests of both directions took, added up, where a tool does not tell them apart.",
    ),
];

/// Of system calls in a trace.
pub const CALL: &[Metric] = &[
    counter(Entity::Call, "call.calls", Unit::Count, "strace", ANY, "System calls seen in a trace."),
    counter(Entity::Call, "call.errors", Unit::Count, "strace", ANY, "Calls that returned an error."),
    counter(
        Entity::Call,
        "call.time",
        Unit::Nanos,
        "strace -c, -T",
        ANY,
        "Time spent in the calls: with -c CPU time of the kernel, with -T time on the wall.",
    ),
    gauge(Entity::Call, "call.time_max", Unit::Nanos, "strace -T, -w", ANY, "The longest single call."),
];

/// Of names that were looked up in vain.
pub const LOOKUP: &[Metric] = &[
    counter(
        Entity::Lookup,
        "lookup.failed",
        Unit::Count,
        "strace, opensnoop",
        ANY,
        "Names below the directory that were looked up and did not exist.",
    ),
    gauge(
        Entity::Lookup,
        "lookup.unique",
        Unit::Count,
        "strace, opensnoop",
        ANY,
        "Different names among them, as far as was counted.",
    ),
    text(
        Entity::Lookup,
        "lookup.pattern",
        "strace, opensnoop",
        ANY,
        "The missing names with each run of digits or hex digits as N.",
    ),
    text(
        Entity::Lookup,
        "lookup.program",
        "strace -f, opensnoop",
        ANY,
        "The program that looked them up, where the trace names it.",
    ),
];

/// Of programs that write logs.
pub const LOG: &[Metric] = &[counter(
    Entity::Log,
    "log.lines",
    Unit::Count,
    "any time-stamped log",
    ANY,
    "Lines that the program wrote.",
)];

/// Of code paths.
pub const PATH: &[Metric] = &[
    counter(
        Entity::Path,
        "path.samples",
        Unit::Count,
        "perf script, folded stacks",
        ANY,
        "Samples that had this stack.",
    ),
    counter(
        Entity::Path,
        "path.time",
        Unit::Nanos,
        "offcputime -f",
        ANY,
        "Time spent off the CPU with this stack.",
    ),
];
