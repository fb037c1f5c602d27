//! Benchmarks: wrk, ab, hey, vegeta, sysbench, fio, redis-benchmark, pgbench; and the layout that mkfs.xfs prints.

mod ab;
mod fio;
mod fio_json;
mod hey;
mod json;
mod mdadm;
mod mkfs;
mod pgbench;
mod redis;
mod run;
mod sysbench;
mod vegeta;
mod wrk;

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    Format { name: "wrk", starts: wrk::starts, read: wrk::read },
    Format { name: "ab", starts: ab::starts, read: ab::read },
    Format { name: "hey", starts: hey::starts, read: hey::read },
    Format { name: "vegeta", starts: vegeta::starts, read: vegeta::read },
    Format { name: "sysbench", starts: sysbench::starts, read: sysbench::read },
    Format { name: "fio", starts: fio::starts, read: fio::read },
    Format { name: "fio JSON", starts: fio_json::starts, read: fio_json::read },
    Format { name: "redis-benchmark", starts: redis::starts, read: redis::read },
    Format { name: "pgbench", starts: pgbench::starts, read: pgbench::read },
    Format { name: "mkfs.xfs", starts: mkfs::starts, read: mkfs::read },
    Format { name: "mdadm --detail", starts: mdadm::starts, read: mdadm::read },
];
