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

use super::run::{Field, Run, Shape, report, seconds};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("hey", "the report of `hey`", starts, read);

const FIELDS: &[Field] = &[
    ("Total", "run.duration", seconds),
    ("Slowest", "run.latency_max", seconds),
    ("Fastest", "run.latency_min", seconds),
    ("Average", "run.latency_mean", seconds),
    ("Requests/sec", "run.requests_per_s", first),
];
/// Lines by which the middle of a run is known.
const KNOWN: &[&[u8]] = list!(
    "Summary:|Total:|Slowest:|Fastest:|Average:|Requests/sec:|Total data:|Size/request:|Response time histogram:|\
     Latency distribution:|Details (average|DNS|req write:|resp wait:|resp read:|Status code distribution:|\
     Error distribution:",
    b'|'
);
const SHAPE: Shape = Shape { head: |line| line == b"Summary:", known };

/// `Summary:`, `Total: … secs`, `Slowest:`.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let heads = [&b"Summary:"[..], b"Total:", b"Slowest:"];
    heads
        .iter()
        .enumerate()
        .all(|(n, head)| lines.ahead(n).is_some_and(|line| line.trim_ascii().starts_with(head)))
}

/// Answers and failures, each with the first line that counts some.
#[derive(Default)]
struct Counts {
    in_errors: bool,
    answered: Option<(u32, f64)>,
    other_status: Option<(u32, f64)>,
    failed: Option<(u32, f64)>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "hey", None);
    let mut counts = Counts::default();
    report(lines, import, &SHAPE, |line, n, import| {
        counts.in_errors |= line.starts_with(b"Error distribution:");
        if let Some((count, rest)) = bracketed(line) {
            counts.add(count, rest, n);
        } else if let Some((percent, rest)) = leading(line).filter(|(_, rest)| rest.starts_with(b"%")) {
            // Some versions print the sign twice.
            let at = rest.iter().position(|b| *b != b'%').unwrap_or(rest.len());
            let value = rest.get(at..).and_then(|rest| rest.trim_ascii_start().strip_prefix(b"in "));
            run.percentile(import, percent, n, value.and_then(seconds));
        } else if !run.field(import, FIELDS, line, n) {
            return Took::No;
        }
        Took::Yes
    });
    for (metric, count) in [
        ("run.requests", counts.answered),
        ("run.non_2xx", counts.other_status),
        ("run.errors", counts.failed),
    ] {
        if let Some((line, count)) = count {
            run.put(import, metric, line, Some(count));
        }
    }
}

impl Counts {
    /// `[200] 46944 responses`, or below the errors `[3] text`.
    fn add(&mut self, bracket: f64, rest: &[u8], n: u32) {
        let add = |sum: &mut Option<(u32, f64)>, count: f64| sum.get_or_insert((n, 0.0)).1 += count;
        if self.in_errors {
            add(&mut self.failed, bracket);
        } else if let Some(count) = words(rest).next().and_then(number) {
            add(&mut self.answered, count);
            if !(200.0..400.0).contains(&bracket) {
                add(&mut self.other_status, count);
            }
        }
    }
}

fn bracketed(line: &[u8]) -> Option<(f64, &[u8])> {
    let (value, rest) = leading(line.strip_prefix(b"[")?)?;
    Some((value, rest.strip_prefix(b"]")?.trim_ascii()))
}

fn known(line: &[u8]) -> bool {
    let histogram = || {
        leading(line).is_some_and(|(_, rest)| matches!(rest.trim_ascii_start().first(), Some(b'[' | b'%')))
    };
    begins(line, KNOWN) || bracketed(line).is_some() || histogram()
}
