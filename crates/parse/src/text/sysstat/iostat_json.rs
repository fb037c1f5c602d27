//! The JSON of `iostat -o JSON` and `mpstat -o JSON`, one report at a time, so that neither the length of a file nor
//! its missing end matters.
//!
//! ```text
//! {"sysstat": {
//!     "hosts": [
//!         {
//!             "nodename": "web-17", "sysname": "Linux", "release": "6.1.0", "machine": "x86_64",
//!             "number-of-cpus": 2, "date": "11/21/26",
//!             "statistics": [
//!                 {
//!                     "timestamp": "11/21/26 13:30:24",
//!                     "avg-cpu": {"user": 30.25, "nice": 0.66, "system": 7.07, "iowait": 1.44, …},
//!                     "disk": [
//!                         {"disk_device": "vda", "tps": 623.20, "kB_read/s": 25643.85, …}
//! ```

use serde_json::{Map, Value};

use super::super::{Context, Format, Import, Lines, When, clock, context};
use super::iostat_columns::{COLUMNS_MAX, Table};
use super::iostat_reports::Reports;

/// The format.
pub const FORMAT: Format = Format { name: "iostat -o JSON", what: "the same as JSON", starts, read };

/// Bytes of one report; thousands of disks fit.
const REPORT_MAX: usize = 4 * 1024 * 1024;
/// Where the reports are: `{"sysstat": {"hosts": [{"statistics": [{`.
const HOST_DEPTH: u32 = 4;
const LIST_DEPTH: u32 = 5;
const REPORT_DEPTH: u32 = 6;
/// Tables with different columns; there are two.
const TABLES_MAX: usize = 16;

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    is_sysstat(lines) && names(lines, &["\"avg-cpu\"", "\"disk_device\""])
}

/// Whether the JSON of a sysstat tool begins here.
pub(super) fn is_sysstat(lines: &mut Lines<'_>) -> bool {
    let Some(line) = lines.peek() else { return false };
    if line.first().is_none_or(|b| !matches!(b, b'{' | b' ' | b'\t')) {
        return false;
    }
    let line = line.trim_ascii();
    if line == b"{" {
        return lines.ahead(1).is_some_and(|next| next.trim_ascii().starts_with(b"\"sysstat\""));
    }
    line.strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"\"sysstat\""))
}

/// Whether one of the words is in the next lines.
pub(super) fn names(lines: &mut Lines<'_>, wanted: &[&str]) -> bool {
    (0..super::super::lines::AHEAD_MAX)
        .map_while(|n| {
            let line = lines.ahead(n)?;
            Some(wanted.iter().any(|w| memchr::memmem::find(line, w.as_bytes()).is_some()))
        })
        .any(|found| found)
}

/// One element of the list of statistics.
pub(super) struct Report<'a> {
    pub value: &'a Map<String, Value>,
    text: &'a [u8],
    line: u32,
}

impl Report<'_> {
    /// The line on which the text stands for the `n`-th time, from 0, after the name of its list.
    pub fn line_of(&self, list: &str, text: &str, n: usize) -> u32 {
        let start = memchr::memmem::find(self.text, list.as_bytes()).unwrap_or(0);
        let rest = self.text.get(start..).unwrap_or_default();
        let at = start + memchr::memmem::find_iter(rest, text.as_bytes()).nth(n).unwrap_or(0);
        let before = self.text.get(..at).unwrap_or_default();
        self.line.saturating_add(memchr::memchr_iter(b'\n', before).count() as u32)
    }
}

/// Gives each report to `take`. Reads up to the end of the JSON, or to where it is broken.
pub(super) fn each(
    lines: &mut Lines<'_>,
    import: &mut Import,
    take: &mut dyn FnMut(&Report<'_>, &mut Import),
) {
    let mut walk = Walk::default();
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        walk.line(line, number, import, take);
        lines.advance();
        if walk.depth == 0 && walk.begun {
            return;
        }
    }
    // The end is missing where iostat was stopped by a signal; what was complete was read.
    if walk.kept.len() > 1 && walk.depth >= REPORT_DEPTH {
        import.unread(walk.line, b"{ (a report without an end)");
    }
}

#[derive(Default)]
struct Walk {
    depth: u32,
    begun: bool,
    quoted: bool,
    escaped: bool,
    kept: Vec<u8>,
    /// The line on which what is kept begins.
    line: u32,
}

impl Walk {
    fn line(
        &mut self,
        line: &[u8],
        number: u32,
        import: &mut Import,
        take: &mut dyn FnMut(&Report<'_>, &mut Import),
    ) {
        for byte in line {
            let outside = !self.quoted;
            if self.quoted {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.quoted = false,
                    _ => {}
                }
            } else if *byte == b'"' {
                self.quoted = true;
            }
            if outside && matches!(byte, b'{' | b'[') {
                self.depth = self.depth.saturating_add(1);
                self.begun = true;
                if self.depth == LIST_DEPTH {
                    self.host(import);
                }
                if (self.depth == HOST_DEPTH || self.depth == REPORT_DEPTH) && *byte == b'{' {
                    self.kept.clear();
                    self.line = number;
                }
            }
            if self.depth >= HOST_DEPTH && self.depth != LIST_DEPTH && self.kept.len() < REPORT_MAX {
                self.kept.push(*byte);
            }
            if outside && matches!(byte, b'}' | b']') {
                if self.depth == REPORT_DEPTH {
                    self.report(import, take);
                }
                self.depth = self.depth.saturating_sub(1);
            }
        }
        if self.depth >= HOST_DEPTH && self.kept.len() < REPORT_MAX {
            self.kept.push(b'\n');
        }
    }

    /// What is said of the host stands before the list: it is made whole and read.
    fn host(&mut self, import: &mut Import) {
        let mut text = std::mem::take(&mut self.kept);
        text.extend_from_slice(b" 0}");
        let Ok(host) = serde_json::from_slice::<Map<String, Value>>(&text) else { return };
        let text = |key: &str| host.get(key).and_then(Value::as_str).unwrap_or_default();
        let cpus = host.get("number-of-cpus").and_then(Value::as_u64).unwrap_or(0);
        let header = format!(
            "Linux {} ({}) {} _{}_ ({cpus} CPU)",
            text("release"),
            text("nodename"),
            text("date"),
            text("machine")
        );
        context::take(header.as_bytes(), import);
    }

    fn report(&mut self, import: &mut Import, take: &mut dyn FnMut(&Report<'_>, &mut Import)) {
        match serde_json::from_slice::<Map<String, Value>>(&self.kept) {
            Ok(value) => take(&Report { value: &value, text: &self.kept, line: self.line }, import),
            Err(_) => {
                let first = self.kept.split(|b| *b == b'\n').next().unwrap_or_default().to_vec();
                import.unread(self.line, &first);
            }
        }
        self.kept.clear();
    }
}

/// A time in JSON: a date and a time of day, or the time of day alone.
pub(super) fn time(report: &Report<'_>, import: &Import) -> Option<When> {
    let text = report.value.get("timestamp")?.as_str()?;
    clock::whole_line(text.as_bytes(), import.context.date).or_else(|| {
        // The words of a time zone after it.
        clock::iso(text.as_bytes()).map(When::At)
    })
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reports = Reports::default();
    let mut tables: Vec<(Vec<String>, Table)> = Vec::new();
    each(lines, import, &mut |report, import| {
        if let Some(time) = time(report, import) {
            reports.stamp(time);
        }
        reports.begin(import);
        if let Some(Value::Object(cpu)) = report.value.get("avg-cpu") {
            let line = report.line_of("\"avg-cpu\"", "\"avg-cpu\"", 0);
            row(&mut reports, &mut tables, import, cpu, None, line);
        }
        let disks = report.value.get("disk").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (i, disk) in disks.iter().filter_map(Value::as_object).enumerate() {
            let Some(name) = disk.get("disk_device").and_then(Value::as_str) else { continue };
            let line = report.line_of("\"disk\"", "\"disk_device\"", i);
            row(&mut reports, &mut tables, import, disk, Some(name), line);
        }
    });
    reports.end(import);
}

/// One object of names and numbers as a row of the table with these columns.
fn row(
    reports: &mut Reports,
    tables: &mut Vec<(Vec<String>, Table)>,
    import: &mut Import,
    object: &Map<String, Value>,
    device: Option<&str>,
    line: u32,
) {
    // The names are those of the text, without the sign of the percentages.
    let percent = |name: &str| device.is_none() || matches!(name, "util" | "rrqm" | "wrqm" | "drqm");
    let with_sign = |name: &String| if percent(name) { format!("%{name}") } else { name.clone() };
    let names: Vec<String> = object.keys().take(COLUMNS_MAX).map(with_sign).collect();
    let i = tables.iter().position(|(known, _)| *known == names).unwrap_or_else(|| {
        if tables.len() >= TABLES_MAX {
            tables.clear();
        }
        let words: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let table = match device {
            None => Table::cpu(import, &words),
            Some(_) => Table::disk(import, &words),
        };
        tables.push((names, table));
        tables.len() - 1
    });
    let Some((_, table)) = tables.get(i) else { return };
    reports.table(import, table.group);
    let numbers: Vec<f64> = object.values().map(|v| v.as_f64().unwrap_or(f64::NAN)).collect();
    let name = device.unwrap_or_default().as_bytes();
    reports
        .row(import, (table.group, table.width()), name, line, |slots| table.fill_numbers(&numbers, slots));
}
