//! `ab`, the benchmark of the Apache server.
//!
//! ```text
//! This is ApacheBench, Version 2.3 <$Revision: 1903618 $>
//! Server Hostname:        127.0.0.1
//! Concurrency Level:      4
//! Time taken for tests:   0.637 seconds
//! Complete requests:      300
//! Failed requests:        0
//!    (Connect: 0, Receive: 0, Length: 0, Exceptions: 0)
//! Non-2xx responses:      3
//! Requests per second:    471.22 [#/sec] (mean)
//! Time per request:       8.489 [ms] (mean)
//! Transfer rate:          221.34 [Kbytes/sec] received
//! Total:          0    8  30.5      2     269
//!   50%      2
//!  100%    269 (longest request)
//! ```

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{number, words};
use super::run::{Run, Took, after, each_line, first};

/// The banner, or the first line of the report where the banner was cut off.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|l| {
        let l = l.trim_ascii_start();
        l.starts_with(b"This is ApacheBench,")
            || l.starts_with(b"Server Software:")
            || l.starts_with(b"Concurrency Level:")
    })
}

/// Reads one run.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "ab", None);
    let mut target: Vec<u8> = Vec::new();
    let first_line = lines.number();
    each_line(lines, import, known, |line, n, import| {
        if n != first_line && line.starts_with(b"This is ApacheBench,") {
            return Took::Stop;
        }
        for (key, before) in
            [(&b"Server Hostname"[..], &b""[..]), (b"Server Port", b":"), (b"Document Path", b"")]
        {
            if let Some(part) = after(line, key) {
                target.extend_from_slice(before);
                target.extend_from_slice(part);
            }
        }
        take(line.trim_ascii(), n, import, &run)
    });
    run.target(import, &target);
}

fn take(line: &[u8], n: u32, import: &mut Import, run: &Run) -> Took {
    if let Some((key, value)) = number_of(line) {
        match key {
            b"Concurrency Level" => run.put(import, "run.connections", n, Some(value)),
            b"Time taken for tests" => run.put(import, "run.duration", n, Some(value)),
            b"Complete requests" => run.put(import, "run.requests", n, Some(value)),
            b"Failed requests" => run.put(import, "run.errors", n, Some(value)),
            b"Non-2xx responses" => run.put(import, "run.non_2xx", n, Some(value)),
            b"Requests per second" => run.put(import, "run.requests_per_s", n, Some(value)),
            b"Transfer rate" => run.put(import, "run.bytes_per_s", n, Some(value * 1024.0)),
            b"Total" => {
                // Least, mean, deviation, median, greatest; ms.
                let ms: Vec<Option<f64>> =
                    words(line).skip(1).map(|w| number(w).map(|v| v / 1000.0)).collect();
                let at = |i: usize| ms.get(i).copied().flatten().filter(|_| ms.len() == 5);
                run.put(import, "run.latency_min", n, at(0));
                run.put(import, "run.latency_mean", n, at(1));
                run.put(import, "run.latency_stdev", n, at(2));
                run.put(import, "run.latency_max", n, at(4));
            }
            // Printed twice: of one request, and divided by the concurrency.
            _ => return if known(line) { Took::Yes } else { Took::No },
        }
        return Took::Yes;
    }
    let mut w = words(line);
    if let Some(percent) = w.next().and_then(|p| p.strip_suffix(b"%")).and_then(number) {
        let ms = w.next().and_then(number);
        if percent < 100.0 {
            run.percentile(import, percent, n, ms.map(|v| v / 1000.0));
            return Took::Yes;
        }
        return Took::Last;
    }
    if known(line) { Took::Yes } else { Took::No }
}

/// `Complete requests:      300`.
fn number_of(line: &[u8]) -> Option<(&[u8], f64)> {
    let at = line.iter().position(|b| *b == b':')?;
    Some((line.get(..at)?, first(line.get(at + 1..)?)?))
}

/// Lines by which the middle of a run is known.
fn known(line: &[u8]) -> bool {
    const HEADS: [&[u8]; 34] = [
        b"This is ApacheBench",
        b"Copyright ",
        b"Licensed to",
        b"Benchmarking ",
        b"Completed ",
        b"Finished ",
        b"Server ",
        b"SSL/TLS",
        b"TLS Server",
        b"Document ",
        b"Concurrency Level:",
        b"Time taken for tests:",
        b"Complete requests:",
        b"Failed requests:",
        b"Keep-Alive requests:",
        b"Write errors:",
        b"Non-2xx responses:",
        b"Total transferred:",
        b"Total body sent:",
        b"Total POSTed:",
        b"HTML transferred:",
        b"Requests per second:",
        b"Time per request:",
        b"Transfer rate:",
        b"Connection Times",
        b"min ",
        b"Connect:",
        b"Processing:",
        b"Waiting:",
        b"Total:",
        b"Percentage of the requests",
        b"(Connect:",
        b"WARNING:",
        b"apr_",
    ];
    let line = line.trim_ascii();
    let sent = || line.ends_with(b"kb/s sent") || line.ends_with(b"kb/s total");
    HEADS.iter().any(|h| line.starts_with(h))
        || sent()
        || words(line).next().is_some_and(|w| w.strip_suffix(b"%").and_then(number).is_some())
}
