//! `vegeta report`, the text.
//!
//! ```text
//! Requests      [total, rate, throughput]         500, 100.20, 99.90
//! Duration      [total, attack, wait]             5.003s, 4.99s, 12.7ms
//! Latencies     [min, mean, 50, 90, 95, 99, max]  512.4µs, 1.2ms, 1.1ms, 2ms, 2.4ms, 5.6ms, 1m2s
//! Bytes In      [total, mean]                     163000, 326.00
//! Success       [ratio]                           99.00%
//! Status Codes  [code:count]                      0:2  200:495  503:3
//! Error Set:
//! 503 Service Unavailable
//! ```
//!
//! The words in brackets say what the numbers are; versions differ in them.

use super::run::{Run, Shape, report, seconds};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("vegeta", "the text of `vegeta report`", starts, read);

/// The heads of all lines.
const HEADS: &[&[u8]] = list!("Requests|Duration|Latencies|Bytes In|Bytes Out|Success|Status Codes", b'|');
/// The head of a line, a word in its brackets, the metric. Of the requests what came back well in a second; old
/// versions print the rate of asking only.
const NUMBERS: &[(&str, &str, &str)] =
    &[("Requests", "total", "run.requests"), ("Requests", "throughput", "run.requests_per_s")];
/// The same of times.
const TIMES: &[(&str, &str, &str)] = &[
    ("Duration", "total", "run.duration"),
    ("Latencies", "min", "run.latency_min"),
    ("Latencies", "mean", "run.latency_mean"),
    ("Latencies", "max", "run.latency_max"),
];
const SHAPE: Shape = Shape {
    head: |line| fields(line).is_some_and(|(head, ..)| head == b"Requests"),
    known: |line| fields(line).is_some(),
};

/// `Requests [total, rate`.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| {
        fields(line).is_some_and(|(head, names, _)| head == b"Requests" && names.starts_with(b"total"))
    })
}

/// Head, the words in brackets, what follows.
fn fields(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (open, close) = (memchr::memchr(b'[', line)?, memchr::memchr(b']', line)?);
    let head = line.get(..open)?.trim_ascii();
    HEADS.contains(&head).then_some((head, line.get(open + 1..close)?, line.get(close + 1..)?.trim_ascii()))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "vegeta", None);
    report(lines, import, &SHAPE, |line, n, import| {
        if line.starts_with(b"Error Set:") {
            return Took::Last;
        }
        let Some((head, names, values)) = fields(line) else { return Took::No };
        let pairs = names.split(|b| *b == b',').zip(values.split(|b| *b == b','));
        for (name, value) in pairs.map(|(name, value)| (name.trim_ascii(), value.trim_ascii())) {
            let find = |table: &[(&str, &str, &'static str)]| {
                let field = table.iter().find(|(h, n, _)| h.as_bytes() == head && n.as_bytes() == name);
                field.map(|(.., metric)| *metric)
            };
            if let Some(metric) = find(NUMBERS) {
                run.put(import, metric, n, number(value));
            } else if let Some(metric) = find(TIMES) {
                run.put(import, metric, n, seconds(value));
            } else if let Some(percent) = number(name).filter(|_| head == b"Latencies") {
                run.percentile(import, percent, n, seconds(value));
            }
        }
        if head == b"Status Codes" {
            statuses(import, &run, values, n);
        }
        Took::Yes
    });
}

/// `0:2  200:495  503:3`; 0 are those without an answer.
fn statuses(import: &mut Import, run: &Run, list: &[u8], n: u32) {
    let (mut errors, mut others) = (0.0, 0.0);
    for word in words(list) {
        let mut parts = word.split(|b| *b == b':').map(number);
        let (Some(Some(code)), Some(Some(count))) = (parts.next(), parts.next()) else { continue };
        if code == 0.0 {
            errors += count;
        } else if !(200.0..400.0).contains(&code) {
            others += count;
        }
    }
    run.put(import, "run.errors", n, Some(errors));
    run.put(import, "run.non_2xx", n, Some(others));
}
