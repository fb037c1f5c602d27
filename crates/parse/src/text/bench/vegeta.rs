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

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{number, words};
use super::run::{Run, Took, each_line, seconds};

/// `Requests [total, rate`.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|l| {
        fields(l).is_some_and(|(head, names, _)| head == b"Requests" && names.starts_with(b"total"))
    })
}

/// Head, the words in brackets, what follows.
fn fields(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let open = memchr::memchr(b'[', line)?;
    let close = memchr::memchr(b']', line)?;
    Some((line.get(..open)?.trim_ascii(), line.get(open + 1..close)?, line.get(close + 1..)?.trim_ascii()))
}

/// Reads one report.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let run = Run::begin(import, "vegeta", None);
    let first_line = lines.number();
    each_line(
        lines,
        import,
        |l| fields(l).is_some_and(|(head, ..)| is_head(head)),
        |line, n, import| {
            if line.starts_with(b"Error Set:") {
                return Took::Last;
            }
            let Some((head, names, values)) = fields(line).filter(|(head, ..)| is_head(head)) else {
                return Took::No;
            };
            if head == b"Requests" && n != first_line {
                return Took::Stop;
            }
            let pairs = names.split(|b| *b == b',').zip(values.split(|b| *b == b','));
            for (name, value) in pairs.map(|(n, v)| (n.trim_ascii(), v.trim_ascii())) {
                put(import, &run, head, name, value, n);
            }
            if head == b"Status Codes" {
                statuses(import, &run, values, n);
            }
            Took::Yes
        },
    );
}

fn is_head(head: &[u8]) -> bool {
    matches!(
        head,
        b"Requests" | b"Duration" | b"Latencies" | b"Bytes In" | b"Bytes Out" | b"Success" | b"Status Codes"
    )
}

fn put(import: &mut Import, run: &Run, head: &[u8], name: &[u8], value: &[u8], n: u32) {
    match (head, name) {
        (b"Requests", b"total") => run.put(import, "run.requests", n, number(value)),
        // What came back well in a second; old versions print the rate of asking only.
        (b"Requests", b"throughput") => run.put(import, "run.requests_per_s", n, number(value)),
        (b"Duration", b"total") => run.put(import, "run.duration", n, seconds(value)),
        (b"Latencies", b"min") => run.put(import, "run.latency_min", n, seconds(value)),
        (b"Latencies", b"mean") => run.put(import, "run.latency_mean", n, seconds(value)),
        (b"Latencies", b"max") => run.put(import, "run.latency_max", n, seconds(value)),
        (b"Latencies", percent) => {
            if let Some(percent) = number(percent) {
                run.percentile(import, percent, n, seconds(value));
            }
        }
        _ => {}
    }
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
