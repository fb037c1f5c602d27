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

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{leading, number, with_suffix, words};
use super::run::{Run, Took, after, each_line, first, seconds};

/// `Running 2m test @ URL`.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|line| target(line).is_some())
}

fn target(line: &[u8]) -> Option<&[u8]> {
    let mut w = words(line);
    let fits = w.next() == Some(b"Running")
        && w.next().and_then(seconds).is_some()
        && w.next() == Some(b"test")
        && w.next() == Some(b"@");
    fits.then(|| w.rest().trim_ascii()).filter(|t| !t.is_empty())
}

/// Reads one run.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "wrk", None);
    if let Some(target) = lines.peek().and_then(target) {
        run.target(import, target);
    }
    lines.advance();
    // wrk2 prints every step of its distribution, then the summary.
    let mut spectrum = false;
    each_line(lines, import, known, |line, n, import| {
        let line = line.trim_ascii();
        if target(line).is_some() {
            return Took::Stop;
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
        // Average, deviation, greatest.
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
        let took = w.next().map(|t| t.strip_suffix(b",").unwrap_or(t));
        run.put(import, "run.duration", n, took.and_then(seconds));
    } else if let Some(errors) = after(line, b"Socket errors") {
        socket_errors(errors, n, import, run);
    } else if let Some(count) = after(line, b"Non-2xx or 3xx responses") {
        run.put(import, "run.non_2xx", n, number(count));
    } else if head == b"Requests/sec:" {
        run.put(import, "run.requests_per_s", n, number(second));
    } else if head == b"Transfer/sec:" {
        run.put(import, "run.bytes_per_s", n, with_suffix(second));
        return Took::Last;
    } else if !known(line) {
        return Took::No;
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

/// Lines by which the middle of a run is known.
fn known(line: &[u8]) -> bool {
    const HEADS: [&[u8]; 13] = [
        b"Thread Stats",
        b"Thread calibration",
        b"Initialised",
        b"Latency",
        b"Req/Sec",
        b"Socket errors:",
        b"Non-2xx",
        b"Requests/sec:",
        b"Transfer/sec:",
        b"Detailed Percentile",
        b"#[",
        b"-----",
        b"Value",
    ];
    let line = line.trim_ascii();
    let is_percentile =
        || leading(line).is_some_and(|(_, rest)| rest.first() == Some(&b'%') && first(&rest[1..]).is_some());
    HEADS.iter().any(|h| line.starts_with(h)) || is_percentile()
}
