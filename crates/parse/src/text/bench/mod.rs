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
    Format {
        name: "wrk",
        what: "`wrk` and `wrk2`, with and without `--latency`",
        starts: wrk::starts,
        read: wrk::read,
    },
    Format { name: "ab", what: "the benchmark of the Apache server", starts: ab::starts, read: ab::read },
    Format { name: "hey", what: "the report of `hey`", starts: hey::starts, read: hey::read },
    Format {
        name: "vegeta",
        what: "the text of `vegeta report`",
        starts: vegeta::starts,
        read: vegeta::read,
    },
    Format {
        name: "sysbench",
        what: "cpu, memory, threads, mutex, fileio and oltp, of 0.4 to 1.0",
        starts: sysbench::starts,
        read: sysbench::read,
    },
    Format {
        name: "fio",
        what: "the report for people, of versions 2 and 3",
        starts: fio::starts,
        read: fio::read,
    },
    Format {
        name: "fio JSON",
        what: "`--output-format=json` and `json+`",
        starts: fio_json::starts,
        read: fio_json::read,
    },
    Format {
        name: "redis-benchmark",
        what: "quiet, long and `--csv`",
        starts: redis::starts,
        read: redis::read,
    },
    Format {
        name: "pgbench",
        what: "the summary of PostgreSQL's benchmark",
        starts: pgbench::starts,
        read: pgbench::read,
    },
    Format {
        name: "mkfs.xfs",
        what: "the layout of a filesystem, also from `xfs_info`",
        starts: mkfs::starts,
        read: mkfs::read,
    },
    Format {
        name: "mdadm --detail",
        what: "what an array is made of, as a note",
        starts: mdadm::starts,
        read: mdadm::read,
    },
];
