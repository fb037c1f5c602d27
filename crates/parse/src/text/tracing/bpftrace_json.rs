//! `bpftrace -f json`: histograms of the tools that are known; other maps as notes.
//!
//! ```text
//! {"type": "attached_probes", "data": {"probes": 3}}
//! {"type": "printf", "data": "Tracing CPU scheduler... Hit Ctrl-C to end.\n"}
//! {"type": "map", "data": {"@reads": {"bash": 12, "sshd": 4}}}
//! {"type": "hist", "data": {"@usecs": [{"min": 64, "max": 127, "count": 12}, {"min": 128, "max": 255, "count": 3}]}}
//! ```
//!
//! Upper bounds belong to their bucket here, and to the next one in the text that bpftrace prints. Of what a program prints
//! itself only the line counts that says what it traces.

use super::buckets::{Bucket, Histogram};
use super::histogram::{BUCKETS_MAX, Report};
use crate::text::json::{Value, line_values};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "bpftrace JSON",
    "of `bpftrace -f json` the histograms of biolatency, bitesize and runqlat; other maps as notes",
    |lines, _| lines.at(is_first),
    read,
);

/// What lines are.
const KINDS: &[&[u8]] = list!(
    "attached_probes map hist stats tseries value printf time cat join syscall lost_events helper_error"
);
/// Blank lines that the terminal leaves between.
const BLANK_MAX: usize = 4;
/// Maps that are told.
const MAPS_TOLD: usize = 8;
/// Entries of a map that are told, the largest.
const ENTRIES_TOLD: usize = 4;
/// Entries of one map.
const ENTRIES_MAX: usize = 100_000;

/// What a line is, and what stands behind.
fn event(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"{\"type\"")?.trim_ascii_start().strip_prefix(b":")?;
    let rest = rest.trim_ascii_start().strip_prefix(b"\"")?;
    let (kind, behind) = rest.split_at_checked(memchr::memchr(b'"', rest)?)?;
    KINDS.contains(&kind).then_some((kind, behind))
}

/// Others have lines of a type with data too: the first one names probes or a map.
fn is_first(line: &[u8]) -> bool {
    let Some((kind, behind)) = event(line) else { return false };
    has(behind, b"\"data\"")
        && (kind == b"attached_probes" && has(behind, b"\"probes\"") || has(behind, b"{\"@"))
}

struct Reader {
    report: Report,
    /// Maps as they were printed last, and what to say of them.
    told: Vec<(String, String)>,
    more: bool,
    printed: u64,
    lost: f64,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let report = Report::new(b"", import);
    let mut reader = Reader { report, told: Vec::new(), more: false, printed: 0, lost: 0.0 };
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if line.trim_ascii().is_empty() || line == b"^C" {
            let goes_on = lines.soon(BLANK_MAX, |next| event(next).is_some());
            return if goes_on { Took::Yes } else { Took::No };
        }
        let Some((kind, _)) = event(line) else {
            return Took::unread_if(lines.soon(1, |next| event(next).is_some()));
        };
        if reader.take(kind, line, at, import) { Took::Yes } else { Took::Unread }
    });
    for (map, said) in &reader.told {
        import.note(format!("bpftrace: {map}: {said}"));
    }
    if reader.more {
        import.note("bpftrace: further maps were passed over");
    }
    if reader.lost > 0.0 {
        import.note(format!("bpftrace lost {:.0} events: its counts are too small", reader.lost));
    }
    if reader.printed > 0 {
        let printed = reader.printed;
        import.note(format!("bpftrace: {printed} lines that the program printed itself were passed over"));
    }
    reader.report.write(import);
}

impl Reader {
    /// Takes a line. Whether it is whole.
    fn take(&mut self, kind: &[u8], line: &[u8], at: u32, import: &mut Import) -> bool {
        match kind {
            b"hist" => self.histograms(line, at, import),
            b"map" | b"stats" => self.map(line, import),
            b"lost_events" => line_values(line, |path, value| {
                if let (Some("events"), Value::Number(lost)) = (path.last().map(String::as_str), value) {
                    self.lost += lost.max(0.0);
                }
            }),
            b"printf" | b"time" => self.message(kind, line, import),
            _ => line_values(line, |_, _| {}),
        }
    }

    /// A text that the program prints; a newline in it is written `\n`.
    fn message(&mut self, kind: &[u8], line: &[u8], import: &mut Import) -> bool {
        let mut said = String::new();
        let is_whole = line_values(line, |path, value| {
            if let (Some("data"), Value::Text(text)) = (path.last().map(String::as_str), value) {
                text.clone_into(&mut said);
            }
        });
        if kind == b"time" {
            let time = said.trim_end_matches("\\n").trim();
            if let Some(when) = clock::whole_line(time.as_bytes(), import.context.date) {
                self.report.next_moment(Some(when));
            }
            return is_whole;
        }
        self.report.banner(said.as_bytes(), &import.context);
        if !said.contains("Ctrl-C") && !said.contains("I/O size (bytes)") {
            self.printed += 1;
        }
        is_whole
    }

    fn histograms(&mut self, line: &[u8], at: u32, import: &mut Import) -> bool {
        let Some(found) = histograms(line, at) else { return false };
        for (name, key, histogram) in found {
            let map = name.strip_prefix('@').unwrap_or(&name).as_bytes();
            if self.report.map_unit(map).is_some() {
                self.report.map(map, key.as_bytes(), histogram);
                continue;
            }
            let half = histogram.quantile(0.5);
            let below = if half.is_finite() { format!(", half of them below {half}") } else { String::new() };
            let label = if key.is_empty() { name } else { format!("{name}[{key}]") };
            self.tell(label, format!("{} values{below}", histogram.count()), import);
        }
        true
    }

    /// Counts by their keys, or a single number.
    fn map(&mut self, line: &[u8], import: &mut Import) -> bool {
        let mut name = String::new();
        let mut entries: Vec<(String, f64)> = Vec::new();
        let is_whole = line_values(line, |path, value| {
            let ([_, map, key @ ..], Value::Number(number)) = (path, value) else { return };
            if number.is_finite() && entries.len() < ENTRIES_MAX {
                name.clone_from(map);
                entries.push((key.join(" ").trim().to_owned(), number));
            }
        });
        if !is_whole || entries.is_empty() {
            return is_whole;
        }
        entries.sort_by(|a, b| b.1.total_cmp(&a.1));
        let one = |(key, number): &(String, f64)| {
            if key.is_empty() { format!("{number}") } else { format!("{key} {number}") }
        };
        let mut said = entries.iter().take(ENTRIES_TOLD).map(one).collect::<Vec<_>>().join(", ");
        if entries.len() > ENTRIES_TOLD {
            said.push_str(&format!(" and {} others", entries.len() - ENTRIES_TOLD));
        }
        self.tell(name, said, import);
        true
    }

    fn tell(&mut self, map: String, said: String, import: &mut Import) {
        import.has_read();
        if let Some(known) = self.told.iter_mut().find(|(name, _)| *name == map) {
            known.1 = said;
        } else if self.told.len() < MAPS_TOLD {
            self.told.push((map, said));
        } else {
            self.more = true;
        }
    }
}

/// The histograms of a line, each with the name of its map and its key; `None` if the line is not whole.
fn histograms(line: &[u8], at: u32) -> Option<Vec<(String, String, Histogram)>> {
    let begun = || Histogram { line: at, full: true, ..Histogram::default() };
    let (mut open, mut found) = (begun(), Vec::new());
    let (mut low, mut high, mut count): (Option<f64>, Option<f64>, Option<f64>) = (None, None, None);
    let is_whole = line_values(line, |path, value| {
        let (Some(name), Some(last)) = (path.get(1), path.last()) else { return };
        match (last.as_str(), value) {
            ("min", Value::Number(number)) => low = Some(number),
            ("max", Value::Number(number)) => high = Some(number),
            ("count", Value::Number(number)) => count = Some(number),
            ("", Value::End) => {
                let bound = match (low.take(), high.take()) {
                    // `[0]` and `[1]` have one value.
                    (Some(low), Some(high)) if low == high => high,
                    (_, Some(high)) => high + 1.0,
                    (_, None) => f64::INFINITY,
                };
                if let Some(n) = count.take().filter(|n| *n >= 0.0 && open.buckets.len() < BUCKETS_MAX) {
                    open.buckets.push(Bucket { high: bound, n: n as u64 });
                }
            }
            (_, Value::End) if !open.buckets.is_empty() => {
                let key = path.get(2..).unwrap_or_default().join(",");
                found.push((name.clone(), key, std::mem::replace(&mut open, begun())));
            }
            _ => {}
        }
    });
    is_whole.then_some(found)
}
