//! `sysbench` 0.4 to 1.0: cpu, memory, threads, mutex, fileio, oltp.
//!
//! ```text
//! sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)
//! Number of threads: 2
//! SQL statistics:
//!     transactions:                        2130   (212.76 per sec.)
//! CPU speed:
//!     events per second:  4828.36
//! File operations:
//!     reads/s:                      61846.84
//! Throughput:
//!     read, MiB/s:                  966.36
//! General statistics:
//!     total time:                          2.0016s
//! Latency (ms):
//!          min:                                    0.22
//!          95th percentile:                        0.26
//! Threads fairness:
//!     execution time (avg/stddev):   1.9969/0.00
//! ```
//!
//! Before 1.0 the latencies are below `per-request statistics:` (or `response time:`), each with its unit, and lines
//! end with `per sec.`.

use super::run::{Field, Run, Shape, report, seconds};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("sysbench", "cpu, memory, threads, mutex, fileio and oltp, of 0.4 to 1.0", starts, read);

const FIELDS: &[Field] = &[
    ("Number of threads", "run.threads", first),
    ("total time", "run.duration", seconds),
    ("time elapsed", "run.duration", seconds),
    ("events per second", "run.events_per_s", first),
    ("events/s (eps)", "run.events_per_s", first),
    ("total number of events", "run.requests", first),
    ("transactions", "run.transactions_per_s", per_second),
    ("queries", "run.requests_per_s", per_second),
    ("read/write requests", "run.requests_per_s", per_second),
    ("ignored errors", "run.errors", first),
    ("reads/s", "run.read_iops", first),
    ("writes/s", "run.write_iops", first),
    ("read, MiB/s", "run.read_bytes_per_s", mib),
    ("written, MiB/s", "run.write_bytes_per_s", mib),
    ("Total operations", "run.events_per_s", per_second),
    ("Operations performed", "run.events_per_s", per_second),
];
/// The lines below the heading of the latencies.
const LATENCIES: &[Field] = &[
    ("min", "run.latency_min", latency),
    ("avg", "run.latency_mean", latency),
    ("max", "run.latency_max", latency),
    ("95th percentile", "run.latency_p95", latency),
    ("approx.  95 percentile", "run.latency_p95", latency),
    ("approx. 95 percentile", "run.latency_p95", latency),
    ("99th percentile", "run.latency_p99", latency),
    ("approx.  99 percentile", "run.latency_p99", latency),
    ("approx. 99 percentile", "run.latency_p99", latency),
];
/// Lines by which the middle of a run is known.
const KNOWN: &[&[u8]] = list!(
    "sysbench |Running |Number of |Random number generator|Initializing|Prime numbers limit|Maximum prime number|\
     Threads started|Time limit exceeded|(last message|Done.|WARNING|CPU speed|events per second|events/s|\
     General statistics|Throughput|Test execution summary|total |Latency|per-request statistics|response time|min:|\
     avg:|max:|sum:|95th percentile|99th percentile|approx.|Threads fairness|events (avg/stddev)|\
     execution time (avg|Extra file open flags|Block size|Read/Write ratio|Periodic FSYNC|Calling fsync|Using |\
     Doing |File operations|Operations performed|reads/s|writes/s|fsyncs/s|read, MiB/s|written, MiB/s|\
     SQL statistics|OLTP test statistics|queries|read:|write:|other:|total:|transactions|deadlocks|\
     read/write requests|other operations|ignored errors|reconnects|Memory block size|Memory transfer size|\
     Memory operations|Memory scope|Report intermediate|block size:|operation:|scope:|Total operations|time elapsed|\
     Threads:|[ ",
    b'|'
);
const SHAPE: Shape = Shape { head, known };

/// `sysbench 1.0.20 (using …)`, `sysbench 0.4.12:  multi-threaded system evaluation benchmark`.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(head)
}

fn head(line: &[u8]) -> bool {
    let mut w = words(line);
    w.next() == Some(b"sysbench")
        && w.next().is_some_and(|v| v.first().is_some_and(u8::is_ascii_digit) && v.contains(&b'.'))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "sysbench", None);
    let mut state = State::default();
    report(lines, import, &SHAPE, |line, n, import| state.take(line, n, import, &run));
    // The tests of threads and mutexes print events and time, and leave the division to the reader.
    if let (false, Some((events, line)), Some(duration)) = (state.rate_known, state.events, state.duration)
        && duration > 0.0
    {
        run.put(import, "run.events_per_s", line, Some(events / duration));
    }
}

#[derive(Default)]
struct State {
    /// Behind the heading under which the latencies stand.
    statistics: bool,
    /// How many, and their line.
    events: Option<(f64, u32)>,
    duration: Option<f64>,
    rate_known: bool,
}

impl State {
    fn take(&mut self, line: &[u8], n: u32, import: &mut Import, run: &Run) -> Took {
        if let Some(test) = test_of(line) {
            run.tool(import, &format!("sysbench {test}"));
        }
        if matches!(line, b"Latency (ms):" | b"per-request statistics:" | b"response time:") {
            self.statistics = true;
            return Took::Yes;
        }
        let Some(at) = line.iter().position(|b| *b == b':') else {
            return without_colon(line, n, import, run);
        };
        if self.statistics && run.field(import, LATENCIES, line, n) {
            return Took::Yes;
        }
        let value = line.get(at + 1..).unwrap_or_default().trim_ascii();
        match line.get(..at).unwrap_or_default() {
            b"total time" => self.duration = seconds(value),
            b"events per second" | b"events/s (eps)" => self.rate_known = true,
            b"total number of events" => self.events = first(value).map(|events| (events, n)),
            b"Total operations" | b"Operations performed" => self.rate_known |= per_second(value).is_some(),
            b"execution time (avg/stddev)" => return Took::Last,
            _ => {}
        }
        if run.field(import, FIELDS, line, n) { Took::Yes } else { Took::No }
    }
}

fn without_colon(line: &[u8], n: u32, import: &mut Import, run: &Run) -> Took {
    if line.ends_with(b"MiB/sec)") || line.ends_with(b"MB/sec)") {
        run.put(import, "run.bytes_per_s", n, in_brackets(line).and_then(mib));
    } else if line.starts_with(b"Read ") && line.ends_with(b"/sec)") {
        // 0.4 and 0.5: `Read 16Mb  Written 8Mb  Total transferred 24Mb  (3.2Mb/sec)`.
        let rate = in_brackets(line).and_then(|r| with_suffix(r.strip_suffix(b"b/sec")?));
        run.put(import, "run.bytes_per_s", n, rate);
    } else if line.ends_with(b"Requests/sec executed") {
        run.put(import, "run.requests_per_s", n, first(line));
    } else if !line.ends_with(b"test") {
        return Took::No;
    }
    Took::Yes
}

/// What is tested, by the words that only that test prints.
fn test_of(line: &[u8]) -> Option<String> {
    let name = match line {
        b"CPU speed:" | b"Doing CPU performance benchmark" => "cpu",
        b"File operations:" => "fileio",
        b"SQL statistics:" | b"OLTP test statistics:" => "oltp",
        _ if begins(line, &[b"Running memory speed test", b"Doing memory operations speed"]) => "memory",
        _ => {
            let test =
                line.strip_prefix(b"Doing ")?.strip_suffix(b" test").filter(|test| !test.contains(&b'/'))?;
            return Some(words(test).map(text).collect::<Vec<_>>().join(" "));
        }
    };
    Some(name.to_owned())
}

/// Since 1.0 the heading has the unit, milliseconds; before each number did.
fn latency(value: &[u8]) -> Option<f64> {
    seconds(value).or_else(|| leading(value).filter(|(_, rest)| rest.is_empty()).map(|(ms, _)| ms / 1000.0))
}

fn mib(value: &[u8]) -> Option<f64> {
    first(value).map(|mib| mib * 1_048_576.0)
}

/// `2130   (212.76 per sec.)`, `1048576 (7130701.92 per second)`, `(3345678.12 ops/sec)`.
fn per_second(value: &[u8]) -> Option<f64> {
    in_brackets(value).and_then(first)
}

fn in_brackets(text: &[u8]) -> Option<&[u8]> {
    let rest = text.get(memchr::memrchr(b'(', text)? + 1..)?;
    rest.get(..memchr::memchr(b')', rest)?)
}

fn known(line: &[u8]) -> bool {
    // `128 files, 16MiB each`.
    let mut w = words(line);
    let is_size = w.next().and_then(leading).is_some();
    begins(line, KNOWN)
        || is_size && w.next().is_some_and(|s| matches!(s, b"files," | b"total" | b"MiB" | b"MB"))
}
