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

use super::fio::{BYTES, Direction, IOPS, Job};
use crate::text::json::{Value, each_value};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("fio JSON", "`--output-format=json` and `json+`", starts, read);

/// `{`, with the version of fio behind it.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let version = |line: &[u8]| has(line.get(..200).unwrap_or(line), b"\"fio version\"");
    lines.at(|line| line.trim_ascii_start().starts_with(b"{"))
        && (lines.at(version) || lines.soon(2, version))
}

/// Reads the whole text.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut job: Option<Job> = None;
    let mut operations = 0.0;
    each_value(lines, import, |path, value, n, import| {
        let part = |i: usize| path.get(i).map_or("", String::as_str);
        if part(0) != "jobs" {
            return;
        }
        if let (3, Value::Text(name), "jobname") = (path.len(), value, part(2)) {
            operations = 0.0;
            job = Some(Job::begin(import, name));
        }
        let Some(job) = &mut job else { return };
        match (path.len(), value) {
            // The object of a direction, or of a job, is complete.
            (2 | 3, Value::End) => {
                job.end_of_direction(import, operations > 0.0);
                operations = 0.0;
                if path.len() == 2 {
                    job.totals(import);
                }
            }
            (4, Value::Text(text)) if part(2) == "job options" => match part(3) {
                "rw" | "readwrite" => job.mode(import, text),
                "filename" | "directory" => job.run.target(import, text.as_bytes()),
                "numjobs" => job.run.put(import, "run.connections", n, number(text.as_bytes())),
                _ => {}
            },
            (_, Value::Number(x)) if !x.is_nan() => {
                job.direction = Some(match part(2) {
                    "read" => Direction::Read,
                    "write" => Direction::Write,
                    _ => return,
                });
                if part(3) == "total_ios" && path.len() == 4 {
                    operations = x;
                }
                of_direction(job, [part(3), part(4), part(5)], x, n);
            }
            _ => {}
        }
    });
}

fn of_direction(job: &mut Job, path: [&str; 3], x: f64, n: u32) {
    let [first, ..] = path;
    let unit = if first.ends_with("_ns") { 1e-9 } else { 1e-6 };
    match path {
        ["iops", "", _] => job.keep_of(IOPS, n, Some(x)),
        ["bw_bytes", "", _] => job.keep_of(BYTES, n, Some(x)),
        // KiB; version 3 has the bytes before it.
        ["bw", "", _] => job.keep_of(BYTES, n, Some(x * 1024.0)),
        ["total_ios", "", _] => job.requests(n, x),
        ["runtime", "", _] => job.runtime(n, Some(x / 1000.0)),
        ["lat_ns" | "lat", "min", ""] => job.keep("run.latency_min", n, Some(x * unit)),
        ["lat_ns" | "lat", "max", ""] => job.keep("run.latency_max", n, Some(x * unit)),
        ["lat_ns" | "lat", "mean", ""] => job.keep("run.latency_mean", n, Some(x * unit)),
        ["lat_ns" | "lat", "stddev", ""] => job.keep("run.latency_stdev", n, Some(x * unit)),
        ["clat_ns" | "clat" | "lat_ns" | "lat", "percentile", percent] => {
            if let Some(percent) = number(percent.as_bytes()) {
                job.percentile(percent, n, Some(x * unit));
            }
        }
        _ => {}
    }
}
