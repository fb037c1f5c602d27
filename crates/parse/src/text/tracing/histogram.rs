//! Histograms of bcc's tools, of perf-tools and of bpftrace: how many requests took how long, or were how big.
//!
//! ```text
//! Tracing block device I/O... Hit Ctrl-C to end.
//!      msecs               : count     distribution
//!          0 -> 1          : 83       |                                        |
//!         32 -> 63         : 8139     |****************************************|
//!
//! @usecs:
//! [64, 128)             12 |@@@@@@                                              |
//! [1K, 2K)              99 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
//! ```

use crate::text::prelude::*;

use super::buckets::{Bucket, Histogram};

/// Histograms that a banner or a heading begins, by what they are of.
pub(super) const FORMATS: [Format; 4] = [
    Format::new(
        "biolatency",
        "how long requests to disks took, from bcc, perf-tools and bpftrace",
        |l, c| begins(l, c) == Some(Tool::BlockLatency),
        read,
    ),
    Format::new(
        "bitesize",
        "how big requests to disks were, from bcc, perf-tools and bpftrace",
        |l, c| begins(l, c) == Some(Tool::BlockSize),
        read,
    ),
    Format::new(
        "runqlat",
        "how long tasks waited for a CPU",
        |l, c| begins(l, c) == Some(Tool::RunQueue),
        read,
    ),
    Format::new(
        "BPF histogram",
        "recognised; a histogram whose meaning is not known is noted",
        |l, c| begins(l, c).is_some(),
        read,
    ),
];

/// Buckets of one histogram; a power of two for each bit, or a linear one of bpftrace.
pub(super) const BUCKETS_MAX: usize = 1024;
/// Histograms of one output.
const HISTOGRAMS_MAX: usize = 100_000;

/// What a histogram is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    BlockLatency,
    BlockSize,
    RunQueue,
    Other,
}

fn begins(lines: &mut Lines<'_>, context: &Context) -> Option<Tool> {
    let line = lines.peek()?;
    let of_bpftrace = scalar(line) || map_name(line).is_some();
    if !of_bpftrace && !is_banner(line) && section(line).is_none() && heading(line).is_none() {
        return None;
    }
    let mut tool = tool_of(line, context);
    if map_name(line).is_some() {
        return lines.soon(1, |l| bracket(l).is_some()).then_some(tool);
    }
    if of_bpftrace {
        return Some(Tool::Other);
    }
    if !more(lines) {
        return None;
    }
    // What stands before the first histogram tells more than the first line, if anything does.
    for n in 1..4 {
        let Some(next) = lines.ahead(n) else { break };
        if has(next, b"I/O size (bytes)") {
            tool = Tool::BlockSize;
        } else if tool == Tool::Other
            && (is_banner(next) || section(next).is_some() || heading(next).is_some())
        {
            tool = tool_of(next, context);
        }
    }
    Some(tool)
}

fn is_banner(line: &[u8]) -> bool {
    (line.starts_with(b"Tracing") || line.starts_with(b"Sampling ") || line.starts_with(b"Attaching "))
        && has(line, b"...")
        || line.starts_with(b"Tracing block I/O. Output every")
        || line.starts_with(b"I/O size (bytes) histograms")
}

fn is_between(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line == b"^C" || section(line).is_some() || is_banner(line) || is_time(line)
}

fn is_time(line: &[u8]) -> bool {
    clock::whole_line(line, None).is_some()
}

/// The unit of a heading: `msecs : count distribution`.
fn heading(line: &[u8]) -> Option<&[u8]> {
    let mut list = words(line);
    let mut unit = list.next()?;
    let mut colon = list.next()?;
    if unit == b">=(ms)" && colon == b".." {
        (unit, colon) = (b"msecs", list.nth(1)?);
    }
    if colon != b":" || !matches!(list.next()?, b"count" | b"I/O") {
        return None;
    }
    let last = list.next()?;
    (last.eq_ignore_ascii_case(b"distribution") || last == b"|Distribution").then_some(unit)
}

/// The thing that the next histogram is of: `disk = 'sda'`, `Process Name = java`.
fn section(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii();
    // No key is longer than `Process Name`.
    let at = find!(line.get(..line.len().min(20))?, b" = ")?;
    let key = line.get(..at)?;
    let value = line.get(at + 3..)?.trim_ascii();
    let value = value.strip_prefix(b"b").filter(|v| v.first() == Some(&b'\'')).unwrap_or(value);
    let value = value.strip_prefix(b"'").and_then(|v| v.strip_suffix(b"'")).unwrap_or(value);
    matches!(key, b"disk" | b"Process Name" | b"pid" | b"pidns" | b"flags" | b"cpu" | b"operation" | b"tid")
        .then_some((key, value))
}

/// A row of bcc or perf-tools: the bounds, how many, and the bar.
fn arrow(line: &[u8]) -> Option<(f64, u64, &[u8])> {
    let mut list = words(line);
    let mut first = list.next()?;
    if first != b"->" {
        number(first)?;
        first = list.next()?;
    }
    if first != b"->" {
        return None;
    }
    let high = number(list.next()?)?;
    if list.next()? != b":" {
        return None;
    }
    let n = integer(list.next()?)?;
    Some((high, n, list.rest()))
}

/// The name of a bpftrace map and its key: `@usecs[sda]:`.
fn map_name(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = line.strip_prefix(b"@")?.trim_ascii_end().strip_suffix(b":")?;
    let Some(at) = memchr::memchr(b'[', inner) else { return Some((inner, b"")) };
    Some((inner.get(..at)?, inner.get(at + 1..)?.strip_suffix(b"]")?))
}

/// A row of bpftrace: `[4K, 8K)   12 |@@@ |`, `(..., 0)`, `[0]`.
fn bracket(line: &[u8]) -> Option<(f64, u64, &[u8])> {
    let open = *line.first()?;
    if !matches!(open, b'[' | b'(') {
        return None;
    }
    let end = line.iter().position(|b| matches!(b, b')' | b']'))?;
    let bounds = line.get(1..end)?;
    let mut list = words(line.get(end + 1..)?);
    let n = integer(list.next()?)?;
    let high = bounds.rsplit(|b| *b == b',').next()?.trim_ascii();
    let high = if high == b"..." { f64::INFINITY } else { with_suffix(high)? };
    let bar = list.rest();
    bar.starts_with(b"|").then_some((high, n, bar))
}

fn read_rows(lines: &mut Lines<'_>, row: impl Fn(&[u8]) -> Option<(f64, u64, &[u8])>) -> Histogram {
    let mut histogram = Histogram { line: lines.number(), ..Histogram::default() };
    while histogram.buckets.len() < BUCKETS_MAX {
        let Some((high, n, bar)) = lines.peek().and_then(&row) else { break };
        let inner = bar.strip_prefix(b"|").and_then(|b| b.strip_suffix(b"|"));
        histogram.full |=
            inner.is_some_and(|b| b.len() > 8 && b.iter().all(|c| matches!(c, b'*' | b'#' | b'@')));
        histogram.buckets.push(Bucket { high, n });
        lines.advance();
    }
    histogram
}

/// What the output is of: by its banner, else by the command before it, else by what only one tool prints.
fn tool_of(banner: &[u8], context: &Context) -> Tool {
    let says = |what: &[u8]| has(banner, what);
    if says(b"block device I/O") || says(b"block I/O. Output") {
        return Tool::BlockLatency;
    }
    if says(b"run queue latency") || says(b"CPU scheduler") {
        return Tool::RunQueue;
    }
    if says(b"Tracing block I/O") || says(b"I/O size (bytes)") {
        return Tool::BlockSize;
    }
    let named = says(b"Tracing ") && !says(b"Tracing...");
    match context.command.first().map(|c| c.trim_end_matches(".bt")) {
        _ if named => Tool::Other,
        Some("biolatency" | "iolatency") => Tool::BlockLatency,
        Some("bitesize") => Tool::BlockSize,
        Some("runqlat") => Tool::RunQueue,
        _ if says(b"Process Name = ") => Tool::BlockSize,
        _ if heading(banner).is_some_and(|u| u.eq_ignore_ascii_case(b"kbytes")) => Tool::BlockSize,
        _ => Tool::Other,
    }
}

/// How many printed units make one base unit, or how many base units one printed unit, and whether those are bytes.
fn unit_of(unit: &[u8]) -> Option<(f64, bool)> {
    match unit.to_ascii_lowercase().as_slice() {
        b"nsecs" | b"ns" => Some((1e9, false)),
        b"usecs" | b"us" => Some((1e6, false)),
        b"msecs" | b"ms" => Some((1e3, false)),
        b"secs" => Some((1.0, false)),
        b"bytes" => Some((1.0, true)),
        b"kbytes" => Some((1024.0, true)),
        _ => None,
    }
}

/// Histograms of one output, as they come.
pub(super) struct Report {
    tool: Tool,
    interval_s: Option<f64>,
    /// Each with the number of its moment and the disk that it is of.
    found: Vec<(u32, Vec<u8>, Histogram)>,
    /// The moments, where they are told.
    times: Vec<Option<When>>,
    sections: Vec<Vec<u8>>,
    disk: Vec<u8>,
    skipped: bool,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let Some(line) = lines.peek() else { return };
    let mut report = Report::new(line, import);
    while report.found.len() < HISTOGRAMS_MAX && report.line(lines, import) {}
    report.write(import);
}

/// `biolatency -D 1 5`, `runqlat 10`: the first number that is no option's.
fn by_command(context: &Context) -> Option<f64> {
    let arguments = context.command.get(1..)?;
    let mut before = "";
    for word in arguments {
        if let Some(n) = number(word.as_bytes()).filter(|n| *n > 0.0)
            && !matches!(before, "-p" | "--pid" | "-d")
        {
            return Some(n);
        }
        before = word;
    }
    None
}

impl Report {
    /// Nothing yet, of the tool that the first line or the command before it names.
    pub(super) fn new(first: &[u8], import: &Import) -> Report {
        Report {
            tool: tool_of(first, &import.context),
            interval_s: by_command(&import.context),
            found: Vec::new(),
            times: vec![import.context.stamp],
            sections: Vec::new(),
            disk: Vec::new(),
            skipped: false,
        }
    }

    fn moment(&self) -> u32 {
        self.times.len() as u32
    }

    /// What follows is of another moment.
    pub(super) fn next_moment(&mut self, when: Option<When>) {
        if self.found.last().is_some_and(|f| f.0 == self.moment()) {
            self.times.push(when);
        } else if let Some(last) = self.times.last_mut().filter(|_| when.is_some()) {
            *last = when;
        }
        self.sections.clear();
    }

    /// Takes what is at the cursor. Whether it was of this output.
    fn line(&mut self, lines: &mut Lines<'_>, import: &mut Import) -> bool {
        let Some(line) = lines.peek() else { return false };
        if let Some(unit) = heading(line) {
            let unit = self.unit(unit);
            lines.advance();
            let histogram = read_rows(lines, arrow);
            self.put(unit, histogram);
            return true;
        }
        if let Some((name, key)) = map_name(line) {
            let (name, key) = (name.to_vec(), key.to_vec());
            lines.advance();
            let histogram = read_rows(lines, bracket);
            self.map(&name, &key, histogram);
            return true;
        }
        if scalar(line) {
            self.skipped = true;
        } else if !is_between(line) || !more(lines) {
            return self.found.is_empty() && self.skip_first(lines);
        } else {
            self.between(lines, import);
        }
        lines.advance();
        true
    }

    /// The first line is of the output whatever it says.
    fn skip_first(&mut self, lines: &mut Lines<'_>) -> bool {
        if self.skipped || lines.peek().is_none_or(|l| !is_banner(l)) {
            return false;
        }
        self.skipped = true;
        lines.advance();
        true
    }

    fn between(&mut self, lines: &mut Lines<'_>, import: &Import) {
        let Some(line) = lines.peek() else { return };
        if let Some((key, value)) = section(line) {
            self.disk = if key == b"disk" { value.to_vec() } else { Vec::new() };
            self.section(key, value);
        } else if let Some(when) = clock::whole_line(line.trim_ascii(), import.context.date) {
            self.next_moment(Some(when));
        } else if is_banner(line) && self.found.is_empty() {
            let every = memchr::memmem::find(line, b"Output every ").and_then(|at| line.get(at + 13..));
            self.interval_s = every.and_then(leading).map(|n| n.0).filter(|s| *s > 0.0).or(self.interval_s);
            self.banner(line, &import.context);
        }
    }

    /// A line before the histograms tells what they are of.
    pub(super) fn banner(&mut self, line: &[u8], context: &Context) {
        if has(line, b"I/O size (bytes)") {
            self.tool = Tool::BlockSize;
        } else if self.tool == Tool::Other {
            self.tool = tool_of(line, context);
        }
    }

    /// The histogram of a map of bpftrace, by its name without the `@`.
    pub(super) fn map(&mut self, name: &[u8], key: &[u8], histogram: Histogram) {
        let unit = self.map_unit(name);
        self.disk = if self.tool == Tool::BlockSize { Vec::new() } else { key.to_vec() };
        if !key.is_empty() {
            self.section(b"key", key);
        }
        self.put(unit, histogram);
    }

    /// The unit of such a map, if it holds what the tool measures.
    pub(super) fn map_unit(&self, name: &[u8]) -> Option<(f64, bool)> {
        let is_size = name.is_empty() && self.tool == Tool::BlockSize;
        self.unit(if is_size { b"bytes" } else { name })
    }

    /// What [`unit_of`] says, if the tool measures in such units.
    fn unit(&self, unit: &[u8]) -> Option<(f64, bool)> {
        unit_of(unit).filter(|(_, size)| *size == (self.tool == Tool::BlockSize) && self.tool != Tool::Other)
    }

    /// A part of the moment; one that was there already is of the next moment.
    fn section(&mut self, key: &[u8], value: &[u8]) {
        let name = [key, value].concat();
        if self.sections.contains(&name) {
            self.next_moment(None);
        }
        if self.sections.len() < HISTOGRAMS_MAX {
            self.sections.push(name);
        }
    }

    fn put(&mut self, unit: Option<(f64, bool)>, mut histogram: Histogram) {
        let Some((factor, size)) = unit.filter(|_| self.found.len() < HISTOGRAMS_MAX) else {
            self.skipped = true;
            return;
        };
        if self.sections.is_empty() && self.found.last().is_some_and(|f| f.0 == self.moment()) {
            self.next_moment(None);
        }
        for bucket in &mut histogram.buckets {
            bucket.high = if size { bucket.high * factor } else { bucket.high / factor };
        }
        self.found.push((self.moment(), std::mem::take(&mut self.disk), histogram));
    }

    pub(super) fn write(mut self, import: &mut Import) {
        if self.skipped && self.found.is_empty() {
            import.note("a histogram or map of a tracing tool was passed over: what it is of is not known");
        }
        let cut = self.found.iter().any(|(_, _, h)| h.count() > 0 && !h.full);
        if cut {
            import.note("a histogram was passed over: it is cut, its largest bucket is missing");
            self.found.retain(|(_, _, h)| h.count() == 0 || h.full);
        }
        let several = self.times.len() > 1;
        let apart = |pair: &[Option<When>]| match pair {
            [Some(When::Clock(a)), Some(When::Clock(b))] | [Some(When::At(a)), Some(When::At(b))]
                if b > a =>
            {
                Some((b - a) as f64 / 1e9)
            }
            _ => None,
        };
        let interval = self.interval_s.or_else(|| self.times.windows(2).find_map(apart));
        if several {
            import.context.interval_s = Some(interval.unwrap_or(1.0));
        }
        // A single histogram is of a time that nobody knows.
        let form =
            if several { (Form::Rate, 1.0 / interval.unwrap_or(f64::NAN)) } else { (Form::Total, 1.0) };
        for (i, time) in self.times.iter().enumerate() {
            let moment = i as u32 + 1;
            let when = time.unwrap_or(if several { When::Step(i as u32) } else { When::Fact });
            let of = || self.found.iter().filter(|f| f.0 == moment);
            let mut disks: Vec<&[u8]> = of().map(|f| f.1.as_slice()).filter(|d| !d.is_empty()).collect();
            disks.sort_unstable();
            disks.dedup();
            row(import, self.tool, b"", form, when, of().map(|f| &f.2));
            for disk in disks {
                row(import, self.tool, disk, form, when, of().filter(|f| f.1 == disk).map(|f| &f.2));
            }
        }
    }
}

/// Whether after what stands between there is a histogram again.
fn more(lines: &mut Lines<'_>) -> bool {
    const BETWEEN_MAX: usize = 8;
    for n in 0..BETWEEN_MAX {
        let Some(line) = lines.ahead(n) else { return false };
        if heading(line).is_some() || map_name(line).is_some() {
            return true;
        }
        if !is_between(line) {
            return false;
        }
    }
    false
}

/// `@reads[java]: 123`: a map without a distribution.
fn scalar(line: &[u8]) -> bool {
    line.starts_with(b"@")
        && memchr::memrchr(b':', line)
            .is_some_and(|at| line.get(at + 1..).is_some_and(|v| number(v.trim_ascii()).is_some()))
}

fn metrics(tool: Tool, disk: bool) -> [&'static str; 3] {
    match (tool, disk) {
        (Tool::BlockLatency, true) => {
            ["disk.traced_requests", "disk.traced_latency_p50", "disk.traced_latency_p99"]
        }
        (Tool::BlockSize, _) => ["block.requests", "block.size_p50", ""],
        (Tool::RunQueue, _) => ["runq.waits", "runq.latency_p50", "runq.latency_p99"],
        _ => ["block.requests", "block.latency_p50", "block.latency_p99"],
    }
}

fn row<'a>(
    import: &mut Import,
    tool: Tool,
    disk: &[u8],
    form: (Form, f64),
    when: When,
    parts: impl Iterator<Item = &'a Histogram>,
) {
    let mut all = Histogram::default();
    for part in parts {
        if all.buckets.is_empty() {
            all.line = part.line;
        }
        all.buckets.extend_from_slice(&part.buckets);
    }
    if all.buckets.is_empty() || (tool != Tool::BlockLatency && !disk.is_empty()) {
        return;
    }
    all.buckets.sort_by(|a, b| a.high.total_cmp(&b.high));
    let [requests, p50, p99] = metrics(tool, !disk.is_empty());
    let columns = [
        Column::new(requests, form.0, form.1),
        Column::new(p50, Form::Level, 1.0),
        if p99.is_empty() { None } else { Column::new(p99, Form::Level, 1.0) },
    ];
    let group = import.group(columns.into_iter().flatten().collect());
    let values = [all.count() as f64, all.quantile(0.5), all.quantile(0.99)];
    import.put(group, disk, when, all.line, &values);
}
