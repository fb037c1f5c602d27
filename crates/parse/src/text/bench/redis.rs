//! `redis-benchmark`: the quiet form, the long one of version 6 and of those before, and `--csv`.
//!
//! ```text
//! SET: 64102.56 requests per second, p50=0.399 msec
//!
//! ====== GET ======
//!   5000 requests completed in 0.05 seconds
//!   50 parallel clients
//! 99.219% <= 0.415 milliseconds (cumulative count 4966)
//! Summary:
//!   throughput summary: 90909.09 requests per second
//!   latency summary (msec):
//!           avg       min       p50       p95       p99       max
//!         0.281     0.048     0.279     0.351     0.407     0.527
//! ```
//!
//! The progress that it prints to a terminal ends with a carriage return, so a line may hold several states: the text
//! after the last one counts.

use super::run::{Run, Shape, pair, report};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("redis-benchmark", "quiet, long and `--csv`", starts, read);

/// The summary of the latency in its order, in milliseconds, and what `--csv` calls it.
const LATENCIES: [(&str, &str); 6] = [
    ("run.latency_mean", "avg_latency_ms"),
    ("run.latency_min", "min_latency_ms"),
    ("run.latency_p50", "p50_latency_ms"),
    ("run.latency_p95", "p95_latency_ms"),
    ("run.latency_p99", "p99_latency_ms"),
    ("run.latency_max", "max_latency_ms"),
];
/// Lines by which the middle of a test is known.
const KNOWN: &[&[u8]] = list!(
    "keep alive:|host configuration|multi-thread:|threads:|Latency by percentile|Cumulative distribution|Summary:|\
     throughput summary|latency summary|avg ",
    b'|'
);
const SHAPE: Shape = Shape { head: |line| title(shown(line)).is_some(), known };

/// The text after the progress.
fn shown(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    memchr::memrchr(b'\r', line).and_then(|at| line.get(at + 1..)).unwrap_or(line).trim_ascii()
}

/// `====== GET ======`, the quiet form, or the header of `--csv`.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| quiet(shown(line)).is_some() || is_csv_header(line))
        || lines.at(SHAPE.head) && lines.soon(3, |line| has(line, b"requests completed in"))
}

/// The name of the test between its bars.
fn title(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(b"====== ")?.strip_suffix(b" ======")
}

/// Name, requests a second and median of the quiet form.
fn quiet(line: &[u8]) -> Option<(&[u8], f64, Option<f64>)> {
    let at = find!(line, b" requests per second")?;
    let rest = line.get(at + 20..)?;
    let head = line.get(..at)?;
    let colon = memchr::memmem::rfind(head, b": ")?;
    let (name, rate) = (head.get(..colon)?, number(head.get(colon + 2..)?)?);
    if name.is_empty() || name == b"throughput summary" {
        return None;
    }
    let p50 = rest.strip_prefix(b", p50=").and_then(first).map(|ms| ms / 1000.0);
    (p50.is_some() || rest.is_empty()).then_some((name, rate, p50))
}

fn is_csv_header(line: &[u8]) -> bool {
    line.starts_with(b"\"test\",\"rps\"")
}

/// Reads one test, or all of a table.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let n = lines.number();
    if lines.at(is_csv_header) {
        return csv(lines, import);
    }
    let line = shown(lines.line());
    if let Some((name, rate, p50)) = quiet(line) {
        let run = Run::begin(import, "redis-benchmark", Some(&text(name)));
        run.put(import, "run.requests_per_s", n, Some(rate));
        run.put(import, "run.latency_p50", n, p50);
        lines.advance();
        return;
    }
    let run = Run::begin(import, "redis-benchmark", Some(&title(line).map(text).unwrap_or_default()));
    let mut summary = false;
    report(lines, import, &SHAPE, |line, n, import| take(shown(line), n, import, &run, &mut summary));
}

fn take(line: &[u8], n: u32, import: &mut Import, run: &Run, summary: &mut bool) -> Took {
    let ms: Vec<f64> = words(line).map_while(number).take(7).collect();
    if *summary && ms.len() == LATENCIES.len() {
        for ((metric, _), ms) in LATENCIES.iter().zip(ms) {
            run.put(import, metric, n, Some(ms / 1000.0));
        }
        return Took::Last;
    }
    let mut w = words(line);
    let (head, second) = (w.next().unwrap_or_default(), w.next().unwrap_or_default());
    if has(line, b"requests completed in") {
        run.put(import, "run.requests", n, number(head));
        run.put(import, "run.duration", n, w.nth(2).and_then(number));
    } else if second == b"parallel" {
        run.put(import, "run.connections", n, number(head));
    } else if let Some((b"throughput summary", rate)) = pair(line) {
        run.put(import, "run.requests_per_s", n, first(rate));
    } else if line.ends_with(b"requests per second") {
        // The last line of a test before version 6.
        run.put(import, "run.requests_per_s", n, number(head));
        return Took::Last;
    } else if line.starts_with(b"latency summary") {
        *summary = true;
    } else if title(line).is_none() {
        return Took::No;
    }
    Took::Yes
}

/// `"SET","90909.09","0.275","0.064","0.271","0.367","0.471","0.583"`, in the order that the header says.
fn csv(lines: &mut Lines<'_>, import: &mut Import) {
    let cells = |line: &[u8]| -> Vec<String> {
        line.split(|b| *b == b',').map(|c| text(c).trim_matches('"').to_owned()).collect()
    };
    let header = cells(lines.line());
    lines.advance();
    lines.each(import, |lines, n, import| {
        let row = cells(lines.line());
        let Some(name) = row.first().filter(|_| lines.at(|line| line.starts_with(b"\""))) else {
            return Took::No;
        };
        if row.len() != header.len() {
            return Took::Unread;
        }
        let run = Run::begin(import, "redis-benchmark", Some(name));
        for (key, value) in header.iter().zip(row.iter().map(|cell| number(cell.as_bytes()))) {
            if key == "rps" {
                run.put(import, "run.requests_per_s", n, value);
            } else if let Some((metric, _)) = LATENCIES.iter().find(|(_, name)| name == key) {
                run.put(import, metric, n, value.map(|ms| ms / 1000.0));
            }
        }
        Took::Yes
    });
}

fn known(line: &[u8]) -> bool {
    begins(line, KNOWN)
        || [&b"bytes payload"[..], b"parallel clients", b"requests per second"]
            .iter()
            .any(|end| line.ends_with(end))
        || leading(line).is_some_and(|(_, rest)| rest.starts_with(b"% <= "))
}
