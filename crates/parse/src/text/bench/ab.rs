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

use super::run::{Field, Run, Shape, pair, report};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("ab", "the benchmark of the Apache server", starts, read);

const FIELDS: &[Field] = &[
    ("Concurrency Level", "run.connections", first),
    ("Time taken for tests", "run.duration", first),
    ("Complete requests", "run.requests", first),
    ("Failed requests", "run.errors", first),
    ("Non-2xx responses", "run.non_2xx", first),
    ("Requests per second", "run.requests_per_s", first),
    ("Transfer rate", "run.bytes_per_s", |rate| Some(first(rate)? * 1024.0)),
];
/// The columns of `Total`, in milliseconds.
const TOTAL: [Option<&str>; 5] = [
    Some("run.latency_min"),
    Some("run.latency_mean"),
    Some("run.latency_stdev"),
    None, // The median.
    Some("run.latency_max"),
];
/// Lines by which the middle of a run is known.
const KNOWN: &[&[u8]] = list!(
    "This is ApacheBench|Copyright |Licensed to|Benchmarking |Completed |Finished |Server |SSL/TLS|TLS Server|\
     Document |Concurrency Level:|Time taken for tests:|Complete requests:|Failed requests:|Keep-Alive requests:|\
     Write errors:|Non-2xx responses:|Total transferred:|Total body sent:|Total POSTed:|HTML transferred:|\
     Requests per second:|Time per request:|Transfer rate:|Connection Times|min |Connect:|Processing:|Waiting:|\
     Total:|Percentage of the requests|(Connect:|WARNING:|apr_",
    b'|'
);
const SHAPE: Shape = Shape { head: |line| line.starts_with(b"This is ApacheBench,"), known };

/// The banner, or the first line of the report where the banner was cut off.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let heads = list!("This is ApacheBench,|Server Software:|Concurrency Level:", b'|');
    lines.at(|line| begins(line.trim_ascii_start(), heads))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "ab", None);
    let mut target: Vec<u8> = Vec::new();
    report(lines, import, &SHAPE, |line, n, import| {
        match pair(line) {
            Some((b"Server Hostname" | b"Document Path", part)) => target.extend_from_slice(part),
            Some((b"Server Port", port)) => target.extend([b":", port].concat()),
            Some((b"Total", columns)) => {
                let ms: Vec<Option<f64>> = words(columns).map(number).collect();
                for (metric, ms) in TOTAL.iter().zip(ms.iter().filter(|_| ms.len() == TOTAL.len())) {
                    if let Some(metric) = metric {
                        run.put(import, metric, n, ms.map(|ms| ms / 1000.0));
                    }
                }
            }
            _ if run.field(import, FIELDS, line, n) => {}
            _ => return percentile(line, n, import, &run),
        }
        Took::Yes
    });
    run.target(import, &target);
}

fn percentile(line: &[u8], n: u32, import: &mut Import, run: &Run) -> Took {
    let mut w = words(line);
    let Some(percent) = w.next().and_then(|p| p.strip_suffix(b"%")).and_then(number) else { return Took::No };
    if percent >= 100.0 {
        return Took::Last;
    }
    run.percentile(import, percent, n, w.next().and_then(number).map(|ms| ms / 1000.0));
    Took::Yes
}

fn known(line: &[u8]) -> bool {
    begins(line, KNOWN)
        || line.ends_with(b"kb/s sent")
        || line.ends_with(b"kb/s total")
        || words(line).next().is_some_and(|w| w.strip_suffix(b"%").and_then(number).is_some())
}
