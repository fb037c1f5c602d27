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

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{leading, number, text, words};
use super::run::{Run, Took, each_line, first, unit_seconds};
use crate::find::find;

/// Jobs whose mode is remembered between the first lines and their results.
const MODES_MAX: usize = 256;

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
    run: Run,
    direction: Option<Direction>,
    /// The row of the latencies of the direction.
    second: Option<Run>,
    seen: Vec<Direction>,
    kept: Vec<(&'static str, u32, f64)>,
    percentiles: Vec<(f64, u32, f64)>,
    has_bytes: bool,
    requests: f64,
    requests_line: u32,
    duration: f64,
    duration_line: u32,
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
            has_bytes: false,
            requests: 0.0,
            requests_line: 0,
            duration: 0.0,
            duration_line: 0,
        }
    }

    /// The pattern: `randread`.
    pub fn mode(&self, import: &mut Import, mode: &str) {
        self.run.tool(import, &format!("fio {mode}"));
    }

    /// The file or the directory.
    pub fn target(&self, import: &mut Import, target: &[u8]) {
        self.run.target(import, target);
    }

    /// How many jobs ran.
    pub fn jobs(&self, import: &mut Import, line: u32, jobs: Option<f64>) {
        self.run.put(import, "run.connections", line, jobs);
    }

    /// Says to what the numbers after this belong.
    pub fn direction(&mut self, direction: Direction) {
        self.direction = Some(direction);
    }

    fn keep(&mut self, metric: &'static str, line: u32, value: Option<f64>) {
        if let Some(value) = value
            && !self.kept.iter().any(|(m, ..)| *m == metric)
        {
            self.kept.push((metric, line, value));
        }
    }

    /// Operations a second.
    pub fn iops(&mut self, line: u32, value: Option<f64>) {
        let write = self.direction == Some(Direction::Write);
        self.keep(if write { "run.write_iops" } else { "run.read_iops" }, line, value);
    }

    /// Bytes a second; the first that is said counts.
    pub fn bytes(&mut self, line: u32, value: Option<f64>) {
        if self.has_bytes {
            return;
        }
        self.has_bytes = true;
        let write = self.direction == Some(Direction::Write);
        self.keep(if write { "run.write_bytes_per_s" } else { "run.read_bytes_per_s" }, line, value);
    }

    /// Operations of the direction.
    pub fn requests(&mut self, line: u32, value: f64) {
        self.requests += value;
        self.requests_line = line;
    }

    /// How long the direction took; the longer of two counts.
    pub fn runtime(&mut self, line: u32, value: Option<f64>) {
        if let Some(value) = value.filter(|v| *v > self.duration) {
            self.duration = value;
            self.duration_line = line;
        }
    }

    /// A number of the latency.
    pub fn latency(&mut self, metric: &'static str, line: u32, value: Option<f64>) {
        self.keep(metric, line, value);
    }

    /// A percentile of the latency.
    pub fn percentile(&mut self, percent: f64, line: u32, value: Option<f64>) {
        const KEPT_MAX: usize = 64;
        if let Some(value) = value
            && self.percentiles.len() < KEPT_MAX
        {
            self.percentiles.push((percent, line, value));
        }
    }

    /// Puts what the direction said, if it did anything.
    pub fn end_of_direction(&mut self, import: &mut Import, did_something: bool) {
        let kept = std::mem::take(&mut self.kept);
        let percentiles = std::mem::take(&mut self.percentiles);
        self.has_bytes = false;
        let Some(direction) = self.direction.take().filter(|_| did_something) else { return };
        if !self.seen.is_empty() && !self.seen.contains(&direction) && self.second.is_none() {
            let name = &self.name;
            let what = if direction == Direction::Write { "write" } else { "read" };
            self.second = Some(Run::begin(import, "fio", Some(&format!("{name}:{what}"))));
        }
        self.seen.push(direction);
        let of_latency = self.second.as_ref().unwrap_or(&self.run);
        for (metric, line, value) in kept {
            let run = if metric.starts_with("run.latency") { of_latency } else { &self.run };
            run.put(import, metric, line, Some(value));
        }
        for (percent, line, value) in percentiles {
            // The greatest is the one of the whole latency, which is printed beside.
            if percent < 100.0 {
                of_latency.percentile(import, percent, line, Some(value));
            }
        }
    }

    /// Puts what both directions add up to.
    pub fn totals(&self, import: &mut Import) {
        if self.requests > 0.0 {
            self.run.put(import, "run.requests", self.requests_line, Some(self.requests));
        }
        if self.duration > 0.0 {
            self.run.put(import, "run.duration", self.duration_line, Some(self.duration));
        }
    }

    /// Ends the job.
    pub fn end(&mut self, import: &mut Import) {
        self.end_of_direction(import, true);
        self.totals(import);
    }
}

/// The first line of a job, or of its results.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|l| declared(l).is_some() || results(l).is_some())
}

/// `NAME: (g=0): rw=randrw, bs=…`: name and pattern.
fn declared(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = find!(line, b": (g=")?;
    let rest = line.get(at + 5..)?;
    let rw = memchr::memmem::find(rest, b"): rw=")?;
    let mode = rest.get(rw + 6..)?;
    let end = mode.iter().position(|b| matches!(b, b',' | b' ')).unwrap_or(mode.len());
    Some((line.get(..at)?.trim_ascii(), mode.get(..end)?))
}

/// `NAME: (groupid=0, jobs=1): err= 0: pid=27759: …`: name and number of jobs.
fn results(line: &[u8]) -> Option<(&[u8], Option<f64>)> {
    let at = find!(line, b": (groupid=")?;
    let rest = line.get(at..)?;
    let jobs = memchr::memmem::find(rest, b"jobs=")?;
    memchr::memmem::find(rest, b"err=")?;
    Some((line.get(..at)?.trim_ascii(), rest.get(jobs + 5..).and_then(first)))
}

/// Reads jobs up to the end of the report.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut modes: Vec<(String, String)> = Vec::new();
    let mut job: Option<Job> = None;
    let mut unit = 1e-6;
    let mut done = false;
    each_line(lines, import, known, |line, n, import| {
        if let Some((name, mode)) = declared(line) {
            if done {
                return Took::Stop;
            }
            if modes.len() < MODES_MAX {
                modes.push((text(name), text(mode)));
            }
            return Took::Yes;
        }
        if let Some((name, jobs)) = results(line) {
            if let Some(mut before) = job.take() {
                before.end(import);
            }
            let name = text(name);
            let next = Job::begin(import, &name);
            if let Some((_, mode)) = modes.iter().find(|(of, _)| *of == name) {
                next.mode(import, mode);
            }
            next.jobs(import, n, jobs);
            job = Some(next);
            return Took::Yes;
        }
        let line = line.trim_ascii();
        if line.starts_with(b"Run status group") {
            done = true;
            if let Some(mut before) = job.take() {
                before.end(import);
            }
        }
        let taken = job.as_mut().is_some_and(|job| of_job(line, n, import, job, &mut unit));
        if taken || known(line) { Took::Yes } else { Took::No }
    });
    if let Some(mut last) = job {
        last.end(import);
    }
}

/// Reads a line of the results of a job; whether it was one.
fn of_job(line: &[u8], n: u32, import: &mut Import, job: &mut Job, unit: &mut f64) -> bool {
    if let Some((direction, rest)) = direction_of(line) {
        job.end_of_direction(import, true);
        job.direction(direction);
        job.iops(n, value_of(rest, b"iops=").and_then(with_thousands));
        job.bytes(n, value_of(rest, b"bw=").and_then(bytes_per_second));
        job.runtime(n, runtime(rest));
        return true;
    }
    if let Some(total) = line
        .strip_prefix(b"issued")
        .and_then(|l| memchr::memmem::find(l, b"total=").and_then(|at| l.get(at + 6..)))
    {
        // `30654,30702,0,0`; version 2: `r=30654/w=30702/d=0`.
        for part in words(total).next().unwrap_or_default().split(|b| matches!(b, b',' | b'/')).take(2) {
            let digits = part.iter().position(u8::is_ascii_digit).and_then(|at| part.get(at..));
            job.requests(n, digits.and_then(number).unwrap_or(0.0));
        }
        return true;
    }
    // `lat (usec): min=39, max=1017, avg=54.65, stdev=12.26`, not the histogram `lat (usec)   : 4=40.41%`.
    if let Some(rest) = line.strip_prefix(b"lat (")
        && memchr::memmem::find(rest, b"min=").is_some()
    {
        let unit = unit_of(rest).unwrap_or(f64::NAN);
        for (key, metric) in [
            (&b"min="[..], "run.latency_min"),
            (b"max=", "run.latency_max"),
            (b"avg=", "run.latency_mean"),
            (b"stdev=", "run.latency_stdev"),
        ] {
            let value = value_of(rest, key).and_then(with_thousands).map(|v| v * unit);
            job.latency(metric, n, value.filter(|v| v.is_finite()));
        }
        return true;
    }
    if let Some(rest) = line.strip_prefix(b"clat percentiles (").or(line.strip_prefix(b"lat percentiles (")) {
        *unit = unit_of(rest).unwrap_or(f64::NAN);
        return true;
    }
    if line.starts_with(b"|") {
        for part in line.split(|b| matches!(b, b',' | b'|')) {
            if let Some((percent, rest)) = leading(part.trim_ascii())
                && let Some(value) = rest.strip_prefix(b"th=[").and_then(first)
            {
                job.percentile(percent, n, Some(value * *unit).filter(|v| v.is_finite()));
            }
        }
        return true;
    }
    false
}

/// `read: IOPS=…`, `write: io=…`.
fn direction_of(line: &[u8]) -> Option<(Direction, &[u8])> {
    let (direction, rest) = match line {
        [b'r', b'e', b'a', b'd', rest @ ..] => (Direction::Read, rest),
        [b'w', b'r', b'i', b't', b'e', rest @ ..] => (Direction::Write, rest),
        _ => return None,
    };
    let rest = rest.trim_ascii_start().strip_prefix(b":")?;
    value_of(rest, b"bw=").map(|_| (direction, rest))
}

/// What follows a key, whatever its case, up to a comma.
fn value_of<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let at = line.windows(key.len()).position(|w| w.eq_ignore_ascii_case(key))?;
    let rest = line.get(at + key.len()..)?.trim_ascii_start();
    let end = rest.iter().position(|b| matches!(b, b',' | b';')).unwrap_or(rest.len());
    rest.get(..end)
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
    let (value, rest) = leading(text)?;
    let end = memchr::memmem::find(rest, b"B/s")?;
    let power = match rest.get(..end)? {
        [] => 0,
        [b'K' | b'k'] | [b'K' | b'k', b'i'] => 1,
        [b'M'] | [b'M', b'i'] => 2,
        [b'G'] | [b'G', b'i'] => 3,
        [b'T'] | [b'T', b'i'] => 4,
        _ => return None,
    };
    Some(value * 1024_f64.powi(power))
}

/// `(120MiB/2001msec)`; version 2: `runt=  2001msec`.
fn runtime(rest: &[u8]) -> Option<f64> {
    let text = match value_of(rest, b"runt=") {
        Some(text) => text,
        None => {
            let open = memchr::memrchr(b'(', rest)?;
            let inside = rest.get(open + 1..)?;
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

/// Lines by which a report is known.
fn known(line: &[u8]) -> bool {
    const HEADS: &[&[u8]] = &[
        b"fio-",
        b"Starting ",
        b"read:",
        b"read :",
        b"write:",
        b"write :",
        b"trim:",
        b"slat (",
        b"clat (",
        b"lat (",
        b"clat percentiles",
        b"lat percentiles",
        b"slat percentiles",
        b"|",
        b"bw (",
        b"bw  (",
        b"iops ",
        b"cpu ",
        b"IO depths",
        b"submit ",
        b"complete ",
        b"issued",
        b"latency ",
        b"Run status group",
        b"READ:",
        b"WRITE:",
        b"TRIM:",
        b"Disk stats",
        b"fsync/fdatasync",
        b"sync (",
        b"sync percentiles",
        b"Jobs: ",
        b"zoned",
        b"...",
    ];
    let trimmed = line.trim_ascii();
    HEADS.iter().any(|h| trimmed.starts_with(h))
        || memchr::memmem::find(trimmed, b": Laying out IO file").is_some()
        || memchr::memmem::find(trimmed, b": ios=").is_some()
        || declared(line).is_some()
        || results(line).is_some()
}
