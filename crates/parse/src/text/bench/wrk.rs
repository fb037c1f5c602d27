//! `wrk` and `wrk2`, with and without `--latency`.
//!
//! ```text
//! Running 2m test @ http://192.168.56.10:8888
//!   2 threads and 200 connections
//!   Thread Stats   Avg      Stdev     Max   +/- Stdev
//!     Latency   103.07ms   52.76ms   1.76s    98.16%
//!     Req/Sec   622.83    160.41   828.00     90.20%
//!   Latency Distribution
//!      50%   96.45ms
//!      99%  289.35ms
//!   41559 requests in 2.00m, 6.66MB read
//!   Socket errors: connect 0, read 56, write 0, timeout 1197
//!   Non-2xx or 3xx responses: 3
//! Requests/sec:    346.15
//! Transfer/sec:     56.79KB
//! ```

use super::run::{Field, Run, Shape, pair, report, seconds};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("wrk", "`wrk` and `wrk2`, with and without `--latency`", starts, read);

const FIELDS: &[Field] = &[
    ("Non-2xx or 3xx responses", "run.non_2xx", number),
    ("Requests/sec", "run.requests_per_s", number),
    ("Transfer/sec", "run.bytes_per_s", with_suffix),
];
/// Lines by which the middle of a run is known.
const KNOWN: &[&[u8]] = list!(
    "Thread Stats|Thread calibration|Initialised|Latency|Req/Sec|Socket errors:|Non-2xx|Requests/sec:|\
     Transfer/sec:|Detailed Percentile|#[|-----|Value",
    b'|'
);
const SHAPE: Shape = Shape { head: |line| target(line).is_some(), known };

/// `Running 2m test @ URL`.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| target(line).is_some())
}

fn target(line: &[u8]) -> Option<&[u8]> {
    let mut w = words(line);
    let fits = w.next() == Some(b"Running")
        && w.next().and_then(seconds).is_some()
        && w.next() == Some(b"test")
        && w.next() == Some(b"@");
    fits.then(|| w.rest().trim_ascii()).filter(|t| !t.is_empty())
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "wrk", None);
    // wrk2 prints every step of its distribution, then the summary.
    let mut spectrum = false;
    report(lines, import, &SHAPE, |line, n, import| {
        if let Some(target) = target(line) {
            run.target(import, target);
            return Took::Yes;
        }
        if line.starts_with(b"Detailed Percentile") {
            spectrum = true;
            run.tool(import, "wrk2");
        } else if line.starts_with(b"-----") {
            spectrum = false;
        }
        if spectrum && matches!(line.first(), Some(b'0'..=b'9' | b'#' | b'V' | b'D')) {
            return Took::Yes;
        }
        take(line, n, import, &run)
    });
}

fn take(line: &[u8], n: u32, import: &mut Import, run: &Run) -> Took {
    let mut w = words(line);
    let (head, second) = (w.next().unwrap_or_default(), w.next().unwrap_or_default());
    if head == b"Latency" && second != b"Distribution" {
        run.put(import, "run.latency_mean", n, seconds(second));
        run.put(import, "run.latency_stdev", n, w.next().and_then(seconds));
        run.put(import, "run.latency_max", n, w.next().and_then(seconds));
    } else if let Some(percent) = head.strip_suffix(b"%").and_then(number) {
        run.percentile(import, percent, n, seconds(second));
    } else if second == b"threads" {
        run.put(import, "run.threads", n, number(head));
        run.put(import, "run.connections", n, w.nth(1).and_then(number));
    } else if second == b"requests" && w.next() == Some(b"in") {
        run.put(import, "run.requests", n, number(head));
        let took = w.next().map(|took| took.strip_suffix(b",").unwrap_or(took));
        run.put(import, "run.duration", n, took.and_then(seconds));
    } else if let Some((b"Socket errors", errors)) = pair(line) {
        socket_errors(errors, n, import, run);
    } else if !run.field(import, FIELDS, line, n) {
        return Took::No;
    } else if head == b"Transfer/sec:" {
        return Took::Last;
    }
    Took::Yes
}

/// `connect 0, read 56, write 0, timeout 1197`.
fn socket_errors(list: &[u8], n: u32, import: &mut Import, run: &Run) {
    let mut errors = Some(0.0);
    for part in list.split(|b| *b == b',') {
        let mut w = words(part);
        let (kind, count) = (w.next().unwrap_or_default(), w.next().and_then(number));
        if kind == b"timeout" {
            run.put(import, "run.timeouts", n, count);
        } else {
            errors = errors.and_then(|sum| Some(sum + count?));
        }
    }
    run.put(import, "run.errors", n, errors);
}

fn known(line: &[u8]) -> bool {
    let percentile =
        leading(line).and_then(|(_, rest)| rest.strip_prefix(b"%")).is_some_and(|rest| first(rest).is_some());
    begins(line, KNOWN) || percentile
}
