//! Heaps and run times: smaps, counts of strings, guppy, recon_alloc, jcmd, logs of garbage collectors, jfr.

mod erlang;
mod gclog;
mod jfr;
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
    smaps::FORMAT,
    pmap::FORMAT,
    status::FORMAT,
    python::GUPPY,
    python::TRACEMALLOC,
    erlang::FORMAT,
    jvm::HISTOGRAM,
    jvm::HEAP,
    jvm::JSTAT,
    gclog::FORMAT,
    jfr::SUMMARY,
    jfr::PRINT,
    // Much text begins with a number.
    strings::FORMAT,
];
