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

use super::run::{Field, Run, Shape, pair, report, seconds};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("pgbench", "the summary of PostgreSQL's benchmark", starts, read);

const FIELDS: &[Field] = &[
    ("number of clients", "run.connections", first),
    ("number of threads", "run.threads", first),
    ("number of transactions actually processed", "run.requests", first),
    ("number of failed transactions", "run.errors", first),
    ("duration", "run.duration", seconds),
    ("latency average", "run.latency_mean", latency),
    ("latency stddev", "run.latency_stdev", latency),
    // The time of connecting belongs to no transaction.
    ("tps", "run.transactions_per_s", |rate| first(rate).filter(|_| !has(rate, b"including"))),
];
/// Lines by which the middle of a run is known.
const KNOWN: &[&[u8]] = list!(
    "scaling factor:|partition|query mode:|number of |maximum number of tries|duration:|latency |\
     initial connection time|tps = |rate limit schedule lag|total number of retries|SQL script|\
     statement latencies in|- ",
    b'|'
);
const SHAPE: Shape = Shape { head, known };

fn head(line: &[u8]) -> bool {
    line.starts_with(b"transaction type:")
}

/// `transaction type: `, with a line of pgbench after it.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| head(line.trim_ascii()))
        && lines.soon(3, |line| line.trim_ascii().starts_with(b"scaling factor:"))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "pgbench", None);
    report(lines, import, &SHAPE, |line, n, import| {
        if let Some((b"transaction type", kind)) = pair(line) {
            run.target(import, kind);
        } else if !run.field(import, FIELDS, line, n) {
            return Took::No;
        }
        Took::Yes
    });
}

/// `1.186 ms`; old versions print `(including …)` behind.
fn latency(value: &[u8]) -> Option<f64> {
    let mut w = words(value);
    seconds(&[w.next()?, w.next()?].concat())
}

fn known(line: &[u8]) -> bool {
    // With -r: the latency of each statement.
    let mut w = words(line);
    let is_statement =
        w.next().and_then(number).is_some() && (w.rest().starts_with(b"\\") || w.rest().ends_with(b";"));
    begins(line, KNOWN) || is_statement
}
