//! `fio`, the report for people, of versions 2 and 3.
//!
//! ```text
//! randrw: (g=0): rw=randrw, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=sync, iodepth=1
//! fio-3.33
//! randrw: (groupid=0, jobs=1): err= 0: pid=27759: Sat Nov 21 13:31:44 2026
//!   read: IOPS=15.3k, BW=59.8MiB/s (62.7MB/s)(120MiB/2001msec)
//!     clat (usec): min=39, max=1017, avg=54.59, stdev=12.25
//!      lat (usec): min=39, max=1017, avg=54.65, stdev=12.26
//!     clat percentiles (usec):
//!      | 50.00th=[   53], 60.00th=[   56], 95.00th=[   72],
//!   write: IOPS=15.3k, BW=59.9MiB/s (62.8MB/s)(120MiB/2001msec); 0 zone resets
//!      issued rwts: total=30654,30702,0,0 short=0,0,0,0 dropped=0,0,0,0
//! ```
//!
//! A run has one latency. A job that reads and writes keeps that of its reads under its name, that of its writes under
//! `NAME:write`.

use super::run::{DAMAGE_MAX, Run, unit_seconds};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("fio", "the report for people, of versions 2 and 3", starts, read);

/// Jobs whose mode is remembered between the first lines and their results.
const MODES_MAX: usize = 256;
/// Percentiles of one direction that are kept.
const PERCENTILES_MAX: usize = 64;
/// Lines by which a report is known.
const KNOWN: &[&[u8]] = list!(
    "fio-;Starting ;read:;read :;write:;write :;trim:;slat (;clat (;lat (;clat percentiles;lat percentiles;\
     slat percentiles;|;bw (;bw  (;iops ;cpu ;IO depths;submit ;complete ;issued;latency ;Run status group;READ:;\
     WRITE:;TRIM:;Disk stats;fsync/fdatasync;sync (;sync percentiles;Jobs: ;zoned;...",
    b';'
);
/// Operations a second, of reads and of writes.
pub const IOPS: [&str; 2] = ["run.read_iops", "run.write_iops"];
/// Bytes a second, of reads and of writes.
pub const BYTES: [&str; 2] = ["run.read_bytes_per_s", "run.write_bytes_per_s"];

/// What a job does to its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// A job that is being read. What a direction says is kept until its end.
pub struct Job {
    name: String,
    /// The row of the job.
    pub run: Run,
    /// To what the next numbers belong.
    pub direction: Option<Direction>,
    /// The row of the latencies of the second direction.
    second: Option<Run>,
    seen: Vec<Direction>,
    kept: Vec<(&'static str, u32, f64)>,
    percentiles: Vec<(f64, u32, f64)>,
    requests: (f64, u32),
    duration: (f64, u32),
}

impl Job {
    /// Begins a job.
    pub fn begin(import: &mut Import, name: &str) -> Job {
        Job {
            name: name.to_owned(),
            run: Run::begin(import, "fio", Some(name)),
            direction: None,
            second: None,
            seen: Vec::new(),
            kept: Vec::new(),
            percentiles: Vec::new(),
            requests: (0.0, 0),
            duration: (0.0, 0),
        }
    }

    /// The pattern: `randread`.
    pub fn mode(&self, import: &mut Import, mode: &str) {
        self.run.tool(import, &format!("fio {mode}"));
    }

    /// Keeps a number of the direction; the first that is said counts.
    pub fn keep(&mut self, metric: &'static str, line: u32, value: Option<f64>) {
        if let Some(value) = value.filter(|_| !self.kept.iter().any(|(known, ..)| *known == metric)) {
            self.kept.push((metric, line, value));
        }
    }

    /// As [`Job::keep`], of the metric that the direction has.
    pub fn keep_of(&mut self, [read, write]: [&'static str; 2], line: u32, value: Option<f64>) {
        self.keep(if self.direction == Some(Direction::Write) { write } else { read }, line, value);
    }

    /// Operations of the direction.
    pub fn requests(&mut self, line: u32, value: f64) {
        self.requests = (self.requests.0 + value, line);
    }

    /// How long the direction took; the longer of two counts.
    pub fn runtime(&mut self, line: u32, value: Option<f64>) {
        if let Some(value) = value.filter(|v| *v > self.duration.0) {
            self.duration = (value, line);
        }
    }

    /// A percentile of the latency. The greatest is the one of the whole latency, which is printed beside.
    pub fn percentile(&mut self, percent: f64, line: u32, value: Option<f64>) {
        if let Some(value) = value.filter(|_| percent < 100.0 && self.percentiles.len() < PERCENTILES_MAX) {
            self.percentiles.push((percent, line, value));
        }
    }

    /// Puts what the direction said, if it did anything.
    pub fn end_of_direction(&mut self, import: &mut Import, did_something: bool) {
        let (kept, percentiles) = (std::mem::take(&mut self.kept), std::mem::take(&mut self.percentiles));
        let Some(direction) = self.direction.take().filter(|_| did_something) else { return };
        if !self.seen.is_empty() && !self.seen.contains(&direction) && self.second.is_none() {
            let what = if direction == Direction::Write { "write" } else { "read" };
            self.second = Some(Run::begin(import, "fio", Some(&format!("{}:{what}", self.name))));
        }
        self.seen.push(direction);
        let of_latency = self.second.as_ref().unwrap_or(&self.run);
        for (metric, line, value) in kept {
            let run = if metric.starts_with("run.latency") { of_latency } else { &self.run };
            run.put(import, metric, line, Some(value));
        }
        for (percent, line, value) in percentiles {
            of_latency.percentile(import, percent, line, Some(value));
        }
    }

    /// Puts what both directions add up to.
    pub fn totals(&self, import: &mut Import) {
        for (metric, (value, line)) in [("run.requests", self.requests), ("run.duration", self.duration)] {
            self.run.put(import, metric, line, Some(value).filter(|v| *v > 0.0));
        }
    }

    fn end(mut self, import: &mut Import) {
        self.end_of_direction(import, true);
        self.totals(import);
    }
}

/// The first line of a job, or of its results.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| declared(line).is_some() || results(line).is_some())
}

/// `NAME: (g=0): rw=randrw, bs=…`: name and pattern.
fn declared(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = find!(line, b": (g=")?;
    let mode = behind(line.get(at + 5..)?, b"): rw=")?;
    let end = mode.iter().position(|b| matches!(b, b',' | b' ')).unwrap_or(mode.len());
    Some((line.get(..at)?.trim_ascii(), mode.get(..end)?))
}

/// `NAME: (groupid=0, jobs=1): err= 0: pid=27759: …`: name and number of jobs.
fn results(line: &[u8]) -> Option<(&[u8], Option<f64>)> {
    let at = find!(line, b": (groupid=")?;
    let rest = line.get(at..)?;
    has(rest, b"err=").then_some(())?;
    Some((line.get(..at)?.trim_ascii(), first(behind(rest, b"jobs=")?)))
}

/// Reads jobs up to the end of the report.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut modes: Vec<(String, String)> = Vec::new();
    let mut job: Option<Job> = None;
    let mut unit = 1e-6;
    let mut done = false;
    lines.each(import, |lines, n, import| {
        let line = lines.line();
        if let Some((name, mode)) = declared(line) {
            if done {
                return Took::No;
            }
            if modes.len() < MODES_MAX {
                modes.push((text(name), text(mode)));
            }
            return Took::Yes;
        }
        if let Some((name, jobs)) = results(line) {
            let name = text(name);
            if let Some(before) = job.take() {
                before.end(import);
            }
            let next = job.insert(Job::begin(import, &name));
            if let Some((_, mode)) = modes.iter().find(|(of, _)| *of == name) {
                next.mode(import, mode);
            }
            next.run.put(import, "run.connections", n, jobs);
            return Took::Yes;
        }
        let line = line.trim_ascii();
        if line.starts_with(b"Run status group") {
            done = true;
            if let Some(before) = job.take() {
                before.end(import);
            }
        }
        let taken = job.as_mut().is_some_and(|job| of_job(line, n, import, job, &mut unit));
        if taken || line.is_empty() || known(line) {
            return Took::Yes;
        }
        Took::unread_if(lines.soon(DAMAGE_MAX, known))
    });
    if let Some(last) = job {
        last.end(import);
    }
}

/// Reads a line of the results of a job; whether it was one.
fn of_job(line: &[u8], n: u32, import: &mut Import, job: &mut Job, unit: &mut f64) -> bool {
    if let Some((direction, rest)) = direction_of(line) {
        job.end_of_direction(import, true);
        job.direction = Some(direction);
        job.keep_of(IOPS, n, value_of(rest, b"iops=").and_then(with_thousands));
        job.keep_of(BYTES, n, value_of(rest, b"bw=").and_then(bytes_per_second));
        job.runtime(n, runtime(rest));
    } else if let Some(total) = line.strip_prefix(b"issued").and_then(|line| behind(line, b"total=")) {
        // `30654,30702,0,0`; version 2: `r=30654/w=30702/d=0`.
        for part in words(total).next().unwrap_or_default().split(|b| matches!(b, b',' | b'/')).take(2) {
            let digits = part.iter().position(u8::is_ascii_digit).and_then(|at| part.get(at..));
            job.requests(n, digits.and_then(number).unwrap_or(0.0));
        }
    } else if let Some(rest) = line.strip_prefix(b"lat (").filter(|rest| has(rest, b"min=")) {
        // `lat (usec): min=39, max=1017, avg=54.65, stdev=12.26`, not the histogram `lat (usec)   : 4=40.41%`.
        let unit = unit_of(rest).unwrap_or(f64::NAN);
        for (key, metric) in [
            (&b"min="[..], "run.latency_min"),
            (b"max=", "run.latency_max"),
            (b"avg=", "run.latency_mean"),
            (b"stdev=", "run.latency_stdev"),
        ] {
            let value = value_of(rest, key).and_then(with_thousands).map(|v| v * unit);
            job.keep(metric, n, value.filter(|v| v.is_finite()));
        }
    } else if let Some(rest) =
        line.strip_prefix(b"clat percentiles (").or_else(|| line.strip_prefix(b"lat percentiles ("))
    {
        *unit = unit_of(rest).unwrap_or(f64::NAN);
    } else if line.starts_with(b"|") {
        for part in line.split(|b| matches!(b, b',' | b'|')) {
            if let Some((percent, rest)) = leading(part.trim_ascii())
                && let Some(value) = rest.strip_prefix(b"th=[").and_then(first)
            {
                job.percentile(percent, n, Some(value * *unit).filter(|v| v.is_finite()));
            }
        }
    } else {
        return false;
    }
    true
}

/// `read: IOPS=…`, `write: io=…`.
fn direction_of(line: &[u8]) -> Option<(Direction, &[u8])> {
    let (direction, rest) = match line.strip_prefix(b"read") {
        Some(rest) => (Direction::Read, rest),
        None => (Direction::Write, line.strip_prefix(b"write")?),
    };
    let rest = rest.trim_ascii_start().strip_prefix(b":")?;
    value_of(rest, b"bw=").map(|_| (direction, rest))
}

/// What follows a key, whatever its case, up to a comma.
fn value_of<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let at = line.windows(key.len()).position(|w| w.eq_ignore_ascii_case(key))?;
    let rest = line.get(at + key.len()..)?.trim_ascii_start();
    rest.split(|b| matches!(b, b',' | b';')).next()
}

/// `15.3k`, `1.2M`, `213`: powers of 1000.
fn with_thousands(word: &[u8]) -> Option<f64> {
    let (value, rest) = leading(word.trim_ascii())?;
    match rest.trim_ascii() {
        [] => Some(value),
        [b'k' | b'K'] => Some(value * 1e3),
        [b'm' | b'M'] => Some(value * 1e6),
        [b'g' | b'G'] => Some(value * 1e9),
        _ => None,
    }
}

/// `59.8MiB/s (62.7MB/s)(…)`, `61514KB/s` of version 2: its units are powers of 1024, as those with an `i` are.
fn bytes_per_second(text: &[u8]) -> Option<f64> {
    let (_, rest) = leading(text)?;
    let end = text.len() - rest.len() + memchr::memmem::find(rest, b"B/s")?;
    with_suffix(text.get(..end)?)
}

/// `(120MiB/2001msec)`; version 2: `runt=  2001msec`.
fn runtime(rest: &[u8]) -> Option<f64> {
    let text = match value_of(rest, b"runt=") {
        Some(text) => text,
        None => {
            let inside = rest.get(memchr::memrchr(b'(', rest)? + 1..)?;
            let inside = inside.get(..memchr::memchr(b')', inside)?)?;
            inside.get(memchr::memchr(b'/', inside)? + 1..)?
        }
    };
    let (value, unit) = leading(text)?;
    Some(value * unit_seconds(unit.trim_ascii())?)
}

/// `usec): …`.
fn unit_of(rest: &[u8]) -> Option<f64> {
    unit_seconds(rest.get(..memchr::memchr(b')', rest)?)?)
}

fn known(line: &[u8]) -> bool {
    let trimmed = line.trim_ascii();
    begins(trimmed, KNOWN)
        || has(trimmed, b": Laying out IO file")
        || has(trimmed, b": ios=")
        || declared(line).is_some()
        || results(line).is_some()
}
