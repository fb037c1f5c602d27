//! `fio --output-format=json` and `json+`.
//!
//! ```text
//! {
//!   "fio version" : "fio-3.33",
//!   "jobs" : [
//!     {
//!       "jobname" : "rr",
//!       "job options" : { "rw" : "randread", "numjobs" : "2" },
//!       "read" : {
//!         "bw_bytes" : 109622217,
//!         "iops" : 26763.236763,
//!         "total_ios" : 26790,
//!         "clat_ns" : { "mean" : 73549.5, "percentile" : { "50.000000" : 67072 } },
//!         "lat_ns" : { "min" : 22223, "max" : 9449695, "mean" : 73604.3, "stddev" : 149065.5 }
//! ```
//!
//! Before version 3 the latencies are `clat` and `lat`, in microseconds.

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::number;
use super::fio::{Direction, Job};
use super::json::{Value, each_value};

/// `{`, with the version of fio behind it.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|l| l.trim_ascii_start().starts_with(b"{"))
        && (0..=2).any(|n| {
            lines.ahead(n).is_some_and(|l| {
                let head = l.get(..l.len().min(200)).unwrap_or_default();
                memchr::memmem::find(head, b"\"fio version\"").is_some()
            })
        })
}

/// Reads the whole text.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut job: Option<Job> = None;
    let mut operations = 0.0;
    each_value(lines, import, |path, value, n, import| {
        let part = |i: usize| path.get(i).map_or("", String::as_str);
        if part(0) != "jobs" {
            return;
        }
        match (path.len(), value) {
            (3, Value::Text(name)) if part(2) == "jobname" => {
                operations = 0.0;
                job = Some(Job::begin(import, name));
            }
            // The object of a direction, or of a job, is complete.
            (2 | 3, Value::End) => {
                if let Some(job) = &mut job {
                    job.end_of_direction(import, operations > 0.0);
                    operations = 0.0;
                    if path.len() == 2 {
                        job.totals(import);
                    }
                }
            }
            (4, Value::Text(text)) if part(2) == "job options" => {
                if let Some(job) = &job {
                    match part(3) {
                        "rw" | "readwrite" => job.mode(import, text),
                        "filename" | "directory" => job.target(import, text.as_bytes()),
                        "numjobs" => job.jobs(import, n, number(text.as_bytes())),
                        _ => {}
                    }
                }
            }
            (_, Value::Number(x)) => {
                let direction = match part(2) {
                    "read" => Direction::Read,
                    "write" => Direction::Write,
                    _ => return,
                };
                if let Some(job) = &mut job {
                    if part(3) == "total_ios" && path.len() == 4 {
                        operations = x;
                    }
                    job.direction(direction);
                    of_direction(job, path, x, n);
                }
            }
            _ => {}
        }
    });
}

fn of_direction(job: &mut Job, path: &[String], x: f64, n: u32) {
    let part = |i: usize| path.get(i).map_or("", String::as_str);
    let unit = if part(3).ends_with("_ns") { 1e-9 } else { 1e-6 };
    match (part(3), part(4), part(5)) {
        ("iops", "", _) => job.iops(n, Some(x)),
        ("bw_bytes", "", _) => job.bytes(n, Some(x)),
        // KiB; version 3 has the bytes before it.
        ("bw", "", _) => job.bytes(n, Some(x * 1024.0)),
        ("total_ios", "", _) => job.requests(n, x),
        ("runtime", "", _) => job.runtime(n, Some(x / 1000.0)),
        ("lat_ns" | "lat", "min", "") => job.latency("run.latency_min", n, Some(x * unit)),
        ("lat_ns" | "lat", "max", "") => job.latency("run.latency_max", n, Some(x * unit)),
        ("lat_ns" | "lat", "mean", "") => job.latency("run.latency_mean", n, Some(x * unit)),
        ("lat_ns" | "lat", "stddev", "") => job.latency("run.latency_stdev", n, Some(x * unit)),
        ("clat_ns" | "clat" | "lat_ns" | "lat", "percentile", percent) => {
            if let Some(percent) = number(percent.as_bytes()) {
                job.percentile(percent, n, Some(x * unit));
            }
        }
        _ => {}
    }
}
