//! Heaps and run times: smaps, counts of strings, guppy, recon_alloc, jcmd, logs of garbage collectors.

mod erlang;
mod gclog;
mod jvm;
mod pmap;
mod python;
mod smaps;
mod status;
mod strings;
mod terms;

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    Format {
        name: "smaps",
        what: "mappings of processes: `/proc/PID/smaps` and `smaps_rollup`",
        starts: smaps::starts,
        read: smaps::read,
    },
    Format {
        name: "pmap",
        what: "mappings of a process: plain, `-x`, `-X`",
        starts: pmap::starts,
        read: pmap::read,
    },
    Format {
        name: "/proc/PID/status",
        what: "memory, threads and switches of a process",
        starts: status::starts,
        read: status::read,
    },
    Format {
        name: "guppy",
        what: "a Python heap by type, from guppy",
        starts: python::starts_guppy,
        read: python::read_guppy,
    },
    Format {
        name: "tracemalloc",
        what: "a Python heap by line, from tracemalloc",
        starts: python::starts_tracemalloc,
        read: python::read_tracemalloc,
    },
    Format {
        name: "Erlang allocators",
        what: "allocators of the Erlang VM: `recon_alloc`, `erlang:system_info`",
        starts: erlang::starts,
        read: erlang::read,
    },
    Format {
        name: "jmap -histo",
        what: "a Java heap by class, also from `jcmd PID GC.class_histogram`",
        starts: jvm::starts_histogram,
        read: jvm::read_histogram,
    },
    Format {
        name: "jcmd GC.heap_info",
        what: "the spaces of a Java heap",
        starts: jvm::starts_heap,
        read: jvm::read_heap,
    },
    Format {
        name: "jstat",
        what: "spaces and collections of a Java heap: `-gc`, `-gcutil`",
        starts: jvm::starts_jstat,
        read: jvm::read_jstat,
    },
    Format {
        name: "JVM garbage collection log",
        what: "pauses and heap sizes, of JDK 8 and of the unified log",
        starts: gclog::starts,
        read: gclog::read,
    },
    // Much text begins with a number.
    Format {
        name: "counts of strings",
        what: "what `strings CORE | sort | uniq -c | sort -rn` leaves",
        starts: strings::starts,
        read: strings::read,
    },
];
