//! Benchmarks: wrk, ab, hey, vegeta, sysbench, fio, redis-benchmark, pgbench; and the layout that mkfs.xfs prints.

mod ab;
mod fio;
mod fio_json;
mod hey;
mod mdadm;
mod mkfs;
mod pgbench;
mod redis;
pub(in crate::text) mod run;
mod sysbench;
mod vegeta;
mod wrk;

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    wrk::FORMAT,
    ab::FORMAT,
    hey::FORMAT,
    vegeta::FORMAT,
    sysbench::FORMAT,
    fio::FORMAT,
    fio_json::FORMAT,
    redis::FORMAT,
    pgbench::FORMAT,
    mkfs::FORMAT,
    mdadm::FORMAT,
];
