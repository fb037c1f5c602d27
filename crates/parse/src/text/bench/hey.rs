//! `hey`.
//!
//! ```text
//! Summary:
//!   Total:        2.0013 secs
//!   Slowest:      0.1021 secs
//!   Fastest:      0.0002 secs
//!   Average:      0.0021 secs
//!   Requests/sec: 23456.7800
//!
//! Latency distribution:
//!   50% in 0.0018 secs
//!   99% in 0.0106 secs
//!
//! Status code distribution:
//!   [200] 46944 responses
//!
//! Error distribution:
//!   [3]   Get "http://localhost/": dial tcp: connection refused
//! ```

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{leading, number, words};
use super::run::{Run, Took, after, each_line, first, seconds};

/// `Summary:`, `Total: … secs`, `Slowest:`.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is = |line: Option<&[u8]>, head: &[u8]| line.is_some_and(|l| l.trim_ascii().starts_with(head));
    is(lines.peek(), b"Summary:") && is(lines.ahead(1), b"Total:") && is(lines.ahead(2), b"Slowest:")
}

/// Reads one run.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "hey", None);
    let first_line = lines.number();
    let mut counts = Counts::default();
    each_line(lines, import, known, |line, n, import| {
        let line = line.trim_ascii();
        if n != first_line && line == b"Summary:" {
            return Took::Stop;
        }
        counts.take(line, n, import, &run)
    });
    counts.put(import, &run);
}

#[derive(Default)]
struct Counts {
    in_errors: bool,
    answered: Option<(u32, f64)>,
    other_status: Option<(u32, f64)>,
    failed: Option<(u32, f64)>,
}

impl Counts {
    fn take(&mut self, line: &[u8], n: u32, import: &mut Import, run: &Run) -> Took {
        let times: [(&[u8], &str); 4] = [
            (b"Total:", "run.duration"),
            (b"Slowest:", "run.latency_max"),
            (b"Fastest:", "run.latency_min"),
            (b"Average:", "run.latency_mean"),
        ];
        for (key, metric) in times {
            if let Some(value) = after(line, key) {
                run.put(import, metric, n, seconds(value));
                return Took::Yes;
            }
        }
        if let Some(value) = after(line, b"Requests/sec") {
            run.put(import, "run.requests_per_s", n, first(value));
        } else if line.starts_with(b"Error distribution:") {
            self.in_errors = true;
        } else if let Some((count, rest)) = bracketed(line) {
            self.count(count, rest, n);
        } else if let Some((percent, rest)) = leading(line).filter(|(_, r)| r.first() == Some(&b'%')) {
            // Some versions print the sign twice.
            let at = rest.iter().position(|b| *b != b'%').unwrap_or(rest.len());
            let value = rest.get(at..).and_then(|r| r.trim_ascii_start().strip_prefix(b"in "));
            run.percentile(import, percent, n, value.and_then(seconds));
        } else if !known(line) {
            return Took::No;
        }
        Took::Yes
    }

    /// `[200] 46944 responses`, or below the errors `[3] text`.
    fn count(&mut self, bracket: f64, rest: &[u8], n: u32) {
        let add = |slot: &mut Option<(u32, f64)>, count: f64| {
            let (line, sum) = slot.unwrap_or((n, 0.0));
            *slot = Some((line, sum + count));
        };
        if self.in_errors {
            add(&mut self.failed, bracket);
        } else if let Some(count) = words(rest).next().and_then(number) {
            add(&mut self.answered, count);
            if !(200.0..400.0).contains(&bracket) {
                add(&mut self.other_status, count);
            }
        }
    }

    fn put(&self, import: &mut Import, run: &Run) {
        for (metric, count) in
            [("run.requests", self.answered), ("run.non_2xx", self.other_status), ("run.errors", self.failed)]
        {
            if let Some((line, count)) = count {
                run.put(import, metric, line, Some(count));
            }
        }
    }
}

fn bracketed(line: &[u8]) -> Option<(f64, &[u8])> {
    let (value, rest) = leading(line.strip_prefix(b"[")?)?;
    Some((value, rest.strip_prefix(b"]")?.trim_ascii()))
}

/// Lines by which the middle of a run is known.
fn known(line: &[u8]) -> bool {
    const HEADS: [&[u8]; 17] = [
        b"Summary:",
        b"Total:",
        b"Slowest:",
        b"Fastest:",
        b"Average:",
        b"Requests/sec:",
        b"Total data:",
        b"Size/request:",
        b"Response time histogram:",
        b"Latency distribution:",
        b"Details (average",
        b"DNS",
        b"req write:",
        b"resp wait:",
        b"resp read:",
        b"Status code distribution:",
        b"Error distribution:",
    ];
    let line = line.trim_ascii();
    let histogram = || {
        leading(line).is_some_and(|(_, rest)| {
            let rest = rest.trim_ascii_start();
            rest.first() == Some(&b'[') || rest.first() == Some(&b'%')
        })
    };
    HEADS.iter().any(|h| line.starts_with(h)) || bracketed(line).is_some() || histogram()
}
