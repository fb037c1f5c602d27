//! `pgbench` of PostgreSQL.
//!
//! ```text
//! transaction type: <builtin: TPC-B (sort of)>
//! scaling factor: 1
//! query mode: simple
//! number of clients: 2
//! number of threads: 2
//! duration: 2 s
//! number of transactions actually processed: 3371
//! number of failed transactions: 0 (0.000%)
//! latency average = 1.186 ms
//! latency stddev = 0.234 ms
//! tps = 1685.993153 (without initial connection time)
//! ```
//!
//! Before version 14 `tps` is printed twice, with and without the time for connecting; the second one counts.

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{leading, words};
use super::run::{Run, Took, after, each_line, first, seconds};

/// `transaction type: `, with a line of pgbench after it.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|l| l.trim_ascii().starts_with(b"transaction type:"))
        && (1..=3).any(|n| lines.ahead(n).is_some_and(|l| l.trim_ascii().starts_with(b"scaling factor:")))
}

/// Reads one run.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "pgbench", None);
    let first_line = lines.number();
    each_line(lines, import, known, |line, n, import| {
        let line = line.trim_ascii();
        if n != first_line && line.starts_with(b"transaction type:") {
            return Took::Stop;
        }
        take(line, n, import, &run)
    });
}

fn take(line: &[u8], n: u32, import: &mut Import, run: &Run) -> Took {
    if let Some(kind) = after(line, b"transaction type") {
        run.target(import, kind);
        return Took::Yes;
    }
    let counts: [(&[u8], &str); 4] = [
        (b"number of clients", "run.connections"),
        (b"number of threads", "run.threads"),
        (b"number of transactions actually processed", "run.requests"),
        (b"number of failed transactions", "run.errors"),
    ];
    for (key, metric) in counts {
        if let Some(value) = after(line, key) {
            run.put(import, metric, n, first(value));
            return Took::Yes;
        }
    }
    if let Some(value) = after(line, b"duration") {
        run.put(import, "run.duration", n, seconds(value));
    } else if let Some(value) = equals(line, b"latency average") {
        run.put(import, "run.latency_mean", n, value);
    } else if let Some(value) = equals(line, b"latency stddev") {
        run.put(import, "run.latency_stdev", n, value);
    } else if let Some(value) = line.strip_prefix(b"tps = ") {
        // The time of connecting belongs to no transaction.
        if memchr::memmem::find(value, b"including").is_none() {
            run.put(import, "run.transactions_per_s", n, first(value));
        }
    } else if !known(line) {
        return Took::No;
    }
    Took::Yes
}

/// `latency average = 1.186 ms`; old versions print a colon, and `(including …)` behind.
fn equals(line: &[u8], key: &[u8]) -> Option<Option<f64>> {
    let rest = line.strip_prefix(key)?.trim_ascii_start();
    let mut w = words(rest.strip_prefix(b"=").or_else(|| rest.strip_prefix(b":"))?);
    let (value, unit) = (w.next()?, w.next()?);
    Some(leading(value).and_then(|(v, _)| Some(v * super::run::unit_seconds(unit)?)))
}

/// Lines by which the middle of a run is known.
fn known(line: &[u8]) -> bool {
    const HEADS: [&[u8]; 13] = [
        b"scaling factor:",
        b"partition",
        b"query mode:",
        b"number of ",
        b"maximum number of tries",
        b"duration:",
        b"latency ",
        b"initial connection time",
        b"tps = ",
        b"rate limit schedule lag",
        b"total number of retries",
        b"SQL script",
        b"statement latencies in",
    ];
    let line = line.trim_ascii();
    // With -r: the latency of each statement.
    let statement = || {
        let mut w = words(line);
        w.next().and_then(super::super::number::number).is_some()
            && (w.rest().starts_with(b"\\") || w.rest().ends_with(b";"))
    };
    HEADS.iter().any(|h| line.starts_with(h)) || line.starts_with(b"- ") || statement()
}
