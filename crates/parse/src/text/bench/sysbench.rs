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

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{leading, text, with_suffix, words};
use super::run::{Run, Took, each_line, first, seconds};

/// `sysbench 1.0.20 (using …)`, `sysbench 0.4.12:  multi-threaded system evaluation benchmark`.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(is_banner)
}

fn is_banner(line: &[u8]) -> bool {
    let mut w = words(line);
    w.next() == Some(b"sysbench")
        && w.next().is_some_and(|v| v.first().is_some_and(u8::is_ascii_digit) && v.contains(&b'.'))
}

/// Reads one run.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "sysbench", None);
    let mut state =
        State { statistics: false, events: None, duration: None, events_line: 0, rate_known: false };
    let first_line = lines.number();
    each_line(lines, import, known, |line, n, import| {
        if n != first_line && is_banner(line) {
            return Took::Stop;
        }
        state.take(line.trim_ascii(), n, import, &run)
    });
    // The tests of threads and mutexes print events and time, and leave the division to the reader.
    if let (false, Some(events), Some(duration)) = (state.rate_known, state.events, state.duration)
        && duration > 0.0
    {
        run.put(import, "run.events_per_s", state.events_line, Some(events / duration));
    }
}

struct State {
    /// Behind the heading under which the latencies stand.
    statistics: bool,
    events: Option<f64>,
    duration: Option<f64>,
    events_line: u32,
    rate_known: bool,
}

impl State {
    fn take(&mut self, line: &[u8], n: u32, import: &mut Import, run: &Run) -> Took {
        if let Some(tool) = test_of(line) {
            run.tool(import, &format!("sysbench {tool}"));
        }
        if matches!(line, b"Latency (ms):" | b"per-request statistics:" | b"response time:") {
            self.statistics = true;
            return Took::Yes;
        }
        let Some(at) = line.iter().position(|b| *b == b':') else {
            return self.without_colon(line, n, import, run);
        };
        let key = line.get(..at).unwrap_or_default();
        let value = line.get(at + 1..).unwrap_or_default().trim_ascii();
        if self.statistics
            && let Some(metric) = latency(key)
        {
            // Since 1.0 the heading has the unit, before each number did.
            run.put(import, metric, n, seconds(value).or_else(|| number_alone(value).map(|ms| ms / 1000.0)));
            return Took::Yes;
        }
        let number = first(value);
        match key {
            b"Number of threads" => run.put(import, "run.threads", n, number),
            b"total time" => {
                self.duration = seconds(value);
                run.put(import, "run.duration", n, self.duration);
            }
            b"time elapsed" => run.put(import, "run.duration", n, seconds(value)),
            b"events per second" | b"events/s (eps)" => {
                self.rate_known = true;
                run.put(import, "run.events_per_s", n, number);
            }
            b"total number of events" => {
                (self.events, self.events_line) = (number, n);
                run.put(import, "run.requests", n, number);
            }
            b"transactions" => run.put(import, "run.transactions_per_s", n, per_second(value)),
            b"queries" | b"read/write requests" => {
                run.put(import, "run.requests_per_s", n, per_second(value))
            }
            b"ignored errors" => run.put(import, "run.errors", n, number),
            b"reads/s" => run.put(import, "run.read_iops", n, number),
            b"writes/s" => run.put(import, "run.write_iops", n, number),
            b"read, MiB/s" => run.put(import, "run.read_bytes_per_s", n, number.map(|m| m * 1_048_576.0)),
            b"written, MiB/s" => run.put(import, "run.write_bytes_per_s", n, number.map(|m| m * 1_048_576.0)),
            b"Total operations" | b"Operations performed" => {
                if let Some(rate) = per_second(value) {
                    self.rate_known = true;
                    run.put(import, "run.events_per_s", n, Some(rate));
                }
            }
            b"execution time (avg/stddev)" => return Took::Last,
            _ => return if known(line) { Took::Yes } else { Took::No },
        }
        Took::Yes
    }

    fn without_colon(&mut self, line: &[u8], n: u32, import: &mut Import, run: &Run) -> Took {
        if line.ends_with(b"MiB/sec)") || line.ends_with(b"MB/sec)") {
            let rate = in_brackets(line).and_then(first).map(|m| m * 1_048_576.0);
            run.put(import, "run.bytes_per_s", n, rate);
        } else if line.starts_with(b"Read ") && line.ends_with(b"/sec)") {
            // 0.4 and 0.5: `Read 16Mb  Written 8Mb  Total transferred 24Mb  (3.2Mb/sec)`.
            let rate = in_brackets(line).and_then(|r| with_suffix(r.strip_suffix(b"b/sec")?));
            run.put(import, "run.bytes_per_s", n, rate);
        } else if line.ends_with(b"Requests/sec executed") {
            run.put(import, "run.requests_per_s", n, first(line));
        } else if !known(line) && !line.ends_with(b"test") {
            return Took::No;
        }
        Took::Yes
    }
}

/// What is tested, by the words that only that test prints.
fn test_of(line: &[u8]) -> Option<String> {
    let name = match line {
        b"CPU speed:" | b"Doing CPU performance benchmark" => "cpu",
        b"File operations:" => "fileio",
        b"SQL statistics:" | b"OLTP test statistics:" => "oltp",
        l if l.starts_with(b"Running memory speed test")
            || l.starts_with(b"Doing memory operations speed") =>
        {
            "memory"
        }
        l if l.starts_with(b"Doing ") && l.ends_with(b" test") && memchr::memchr(b'/', l).is_none() => {
            let words: Vec<String> = words(l).skip(1).map(text).collect();
            return words.split_last().map(|(_, w)| w.join(" "));
        }
        _ => return None,
    };
    Some(name.to_owned())
}

fn latency(key: &[u8]) -> Option<&'static str> {
    Some(match key {
        b"min" => "run.latency_min",
        b"avg" => "run.latency_mean",
        b"max" => "run.latency_max",
        b"95th percentile" | b"approx.  95 percentile" | b"approx. 95 percentile" => "run.latency_p95",
        b"99th percentile" | b"approx.  99 percentile" | b"approx. 99 percentile" => "run.latency_p99",
        _ => return None,
    })
}

fn number_alone(value: &[u8]) -> Option<f64> {
    leading(value).filter(|(_, rest)| rest.is_empty()).map(|(v, _)| v)
}

/// `2130   (212.76 per sec.)`, `1048576 (7130701.92 per second)`, `(3345678.12 ops/sec)`.
fn per_second(value: &[u8]) -> Option<f64> {
    in_brackets(value).and_then(first)
}

fn in_brackets(text: &[u8]) -> Option<&[u8]> {
    let from = memchr::memrchr(b'(', text)?;
    let rest = text.get(from + 1..)?;
    rest.get(..memchr::memchr(b')', rest)?)
}

/// Lines by which the middle of a run is known.
fn known(line: &[u8]) -> bool {
    const HEADS: &[&[u8]] = &[
        b"sysbench ",
        b"Running ",
        b"Number of ",
        b"Random number generator",
        b"Initializing",
        b"Prime numbers limit",
        b"Maximum prime number",
        b"Threads started",
        b"Time limit exceeded",
        b"(last message",
        b"Done.",
        b"WARNING",
        b"CPU speed",
        b"events per second",
        b"events/s",
        b"General statistics",
        b"Throughput",
        b"Test execution summary",
        b"total ",
        b"Latency",
        b"per-request statistics",
        b"response time",
        b"min:",
        b"avg:",
        b"max:",
        b"sum:",
        b"95th percentile",
        b"99th percentile",
        b"approx.",
        b"Threads fairness",
        b"events (avg/stddev)",
        b"execution time (avg",
        b"Extra file open flags",
        b"Block size",
        b"Read/Write ratio",
        b"Periodic FSYNC",
        b"Calling fsync",
        b"Using ",
        b"Doing ",
        b"File operations",
        b"Operations performed",
        b"reads/s",
        b"writes/s",
        b"fsyncs/s",
        b"read, MiB/s",
        b"written, MiB/s",
        b"SQL statistics",
        b"OLTP test statistics",
        b"queries",
        b"read:",
        b"write:",
        b"other:",
        b"total:",
        b"transactions",
        b"deadlocks",
        b"read/write requests",
        b"other operations",
        b"ignored errors",
        b"reconnects",
        b"Memory block size",
        b"Memory transfer size",
        b"Memory operations",
        b"Memory scope",
        b"Report intermediate",
        b"block size:",
        b"operation:",
        b"scope:",
        b"Total operations",
        b"time elapsed",
        b"Threads:",
        b"[ ",
    ];
    let line = line.trim_ascii();
    let files = || {
        let mut w = words(line);
        let first_is_size = w.next().and_then(leading).is_some();
        first_is_size && w.next().is_some_and(|s| matches!(s, b"files," | b"total" | b"MiB" | b"MB"))
    };
    HEADS.iter().any(|h| line.starts_with(h)) || files()
}
