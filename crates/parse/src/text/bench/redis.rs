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

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{leading, number, text, words};
use super::run::{Run, Took, after, each_line, first};
use crate::find::find;

/// The text after the progress.
fn shown(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    memchr::memrchr(b'\r', line).and_then(|at| line.get(at + 1..)).unwrap_or(line).trim_ascii()
}

/// `====== GET ======`, the quiet form, or the header of `--csv`.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    if quiet(shown(line)).is_some() || is_csv_header(line) {
        return true;
    }
    title(shown(line)).is_some()
        && (1..=3).any(|n| {
            lines.ahead(n).is_some_and(|l| memchr::memmem::find(l, b"requests completed in").is_some())
        })
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
    let rate = number(head.get(colon + 2..)?)?;
    let name = head.get(..colon)?;
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
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let n = lines.number();
    let Some(line) = lines.peek() else { return };
    if is_csv_header(line) {
        return csv(lines, import);
    }
    let line = shown(line);
    if let Some((name, rate, p50)) = quiet(line) {
        let run = Run::begin(import, "redis-benchmark", Some(&text(name)));
        run.put(import, "run.requests_per_s", n, Some(rate));
        run.put(import, "run.latency_p50", n, p50);
        lines.advance();
        return;
    }
    let job = title(line).map(text).unwrap_or_default();
    let run = Run::begin(import, "redis-benchmark", Some(&job));
    lines.advance();
    let mut summary = false;
    each_line(lines, import, known, |line, n, import| {
        let line = shown(line);
        if title(line).is_some() {
            return Took::Stop;
        }
        take(line, n, import, &run, &mut summary)
    });
}

fn take(line: &[u8], n: u32, import: &mut Import, run: &Run, summary: &mut bool) -> Took {
    if *summary {
        let ms: Vec<f64> = words(line).map_while(number).collect();
        if let [avg, min, p50, p95, p99, max] = ms.as_slice() {
            for (metric, ms) in [
                ("run.latency_mean", avg),
                ("run.latency_min", min),
                ("run.latency_p50", p50),
                ("run.latency_p95", p95),
                ("run.latency_p99", p99),
                ("run.latency_max", max),
            ] {
                run.put(import, metric, n, Some(ms / 1000.0));
            }
            return Took::Last;
        }
    }
    let mut w = words(line);
    let (head, second) = (w.next().unwrap_or_default(), w.next().unwrap_or_default());
    if memchr::memmem::find(line, b"requests completed in").is_some() {
        run.put(import, "run.requests", n, number(head));
        run.put(import, "run.duration", n, w.nth(2).and_then(number));
    } else if second == b"parallel" {
        run.put(import, "run.connections", n, number(head));
    } else if let Some(rate) = after(line, b"throughput summary") {
        run.put(import, "run.requests_per_s", n, first(rate));
    } else if line.ends_with(b"requests per second") {
        // The last line of a test before version 6.
        run.put(import, "run.requests_per_s", n, number(head));
        return Took::Last;
    } else if line.starts_with(b"latency summary") {
        *summary = true;
    } else if !known(line) {
        return Took::No;
    }
    Took::Yes
}

/// `"SET","90909.09","0.275","0.064","0.271","0.367","0.471","0.583"`, in the order that the header says.
fn csv(lines: &mut Lines<'_>, import: &mut Import) {
    let cells = |line: &[u8]| -> Vec<String> {
        line.split(|b| *b == b',').map(|c| text(c).trim_matches('"').to_owned()).collect()
    };
    let Some(header) = lines.peek().map(cells) else { return };
    lines.advance();
    loop {
        let n = lines.number();
        let Some(row) = lines.peek().filter(|l| l.starts_with(b"\"")).map(cells) else { return };
        if row.len() == header.len()
            && let Some(name) = row.first()
        {
            let run = Run::begin(import, "redis-benchmark", Some(name));
            for (key, cell) in header.iter().zip(&row) {
                let (metric, unit) = match key.as_str() {
                    "rps" => ("run.requests_per_s", 1.0),
                    "avg_latency_ms" => ("run.latency_mean", 1e-3),
                    "min_latency_ms" => ("run.latency_min", 1e-3),
                    "p50_latency_ms" => ("run.latency_p50", 1e-3),
                    "p95_latency_ms" => ("run.latency_p95", 1e-3),
                    "p99_latency_ms" => ("run.latency_p99", 1e-3),
                    "max_latency_ms" => ("run.latency_max", 1e-3),
                    _ => continue,
                };
                run.put(import, metric, n, number(cell.as_bytes()).map(|v| v * unit));
            }
        } else if let Some(line) = lines.peek() {
            import.unread(n, line);
        }
        lines.advance();
    }
}

/// Lines by which the middle of a test is known.
fn known(line: &[u8]) -> bool {
    const HEADS: [&[u8]; 10] = [
        b"keep alive:",
        b"host configuration",
        b"multi-thread:",
        b"threads:",
        b"Latency by percentile",
        b"Cumulative distribution",
        b"Summary:",
        b"throughput summary",
        b"latency summary",
        b"avg ",
    ];
    let line = line.trim_ascii();
    HEADS.iter().any(|h| line.starts_with(h))
        || line.ends_with(b"bytes payload")
        || line.ends_with(b"parallel clients")
        || line.ends_with(b"requests per second")
        || leading(line).is_some_and(|(_, rest)| rest.starts_with(b"% <= "))
}
