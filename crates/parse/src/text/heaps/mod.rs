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
    Format { name: "smaps", starts: smaps::starts, read: smaps::read },
    Format { name: "pmap", starts: pmap::starts, read: pmap::read },
    Format { name: "/proc/PID/status", starts: status::starts, read: status::read },
    Format { name: "guppy", starts: python::starts_guppy, read: python::read_guppy },
    Format { name: "tracemalloc", starts: python::starts_tracemalloc, read: python::read_tracemalloc },
    Format { name: "Erlang allocators", starts: erlang::starts, read: erlang::read },
    Format { name: "jmap -histo", starts: jvm::starts_histogram, read: jvm::read_histogram },
    Format { name: "jcmd GC.heap_info", starts: jvm::starts_heap, read: jvm::read_heap },
    Format { name: "jstat", starts: jvm::starts_jstat, read: jvm::read_jstat },
    Format { name: "JVM garbage collection log", starts: gclog::starts, read: gclog::read },
    // Much text begins with a number.
    Format { name: "counts of strings", starts: strings::starts, read: strings::read },
];
