//! `smartctl -a` and `smartctl --json`: whether a disk turns, and what it says of its health, as notes.
//!
//! ```text
//! smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.1.0-30-amd64] (local build)
//! Device Model:     ST4000NM0035
//! Rotation Rate:    7200 rpm
//! SMART overall-health self-assessment test result: PASSED
//! ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE
//!   5 Reallocated_Sector_Ct   0x0033   100   100   010    Pre-fail  Always       -       0
//! ```
//!
//! Counts are of the life of the disk and have no times, so that they are no events.

use crate::text::json::{Value, each_value};
use crate::text::prelude::*;

/// `smartctl -a`.
pub const TEXT: Format = Format::new(
    "smartctl",
    "whether a disk turns; its health as notes, of SATA, SAS and NVMe",
    |lines, _| lines.at(|line| line.starts_with(b"smartctl ") && has(line, b"[")),
    read,
);
/// `smartctl --json`.
pub const JSON: Format = Format::new("smartctl --json", "the same as JSON", |lines, _| is_json(lines), json);

/// Lines of one report; logs of errors are long.
const LINES_MAX: u32 = 5_000;

/// Attributes of SATA disks that a healthy one has none of, and what they count.
const ATTRIBUTES: &[(&[u8], &str)] = &[
    (b"5", GROWN),
    (b"187", UNCORRECTED),
    (b"197", "sectors cannot be read and wait to be replaced"),
    (b"198", "sectors could not be read when the disk tested itself"),
    (b"199", "transfers over the cable were damaged"),
];
/// What disks of SAS say instead of attributes.
const GROWN: &str = "sectors were replaced by spare ones";
const UNCORRECTED: &str = "errors could not be corrected";
/// Where the number stands in a row of attributes unless a header says so.
const RAW_AT: usize = 9;
/// The same of NVMe, as text and as the keys of JSON.
const NVME: &[(&str, &str, &str)] = &[
    ("Critical Warning", "critical_warning", "critical warnings (the bits of one number)"),
    ("Media and Data Integrity Errors", "media_errors", "errors of its medium"),
    ("Percentage Used", "percentage_used", "percent of its life are used"),
];

/// What lines without a colon begin with.
const OWN: &[&[u8]] = list!(
    "===|Copyright|SMART|Vendor|ID#|ID |Drive|No |Num|Self-test|Selective|If |Supported|St |Id |Error|General|Short|Extended|Conveyance|\
     Warning|Read|Some|SCT|Please|Auto|Offline data|Total |Commands|Powered_Up_Time|SS=|Device |Page |Pending|SATA |Index|Address|\
     Background|Protocol|relative|number of|Grown|Power on|Manufactured|LU is|defect list|Local|FARM|Seagate|Namespace|#|.| |\
     0|1|2|3|4|5|6|7|8|9|\t",
    b'|'
);

/// What a disk says of itself.
#[derive(Default)]
pub(super) struct Disk {
    pub device: String,
    pub model: String,
    pub turns: Option<(bool, u32)>,
    pub failed: bool,
    facts: Vec<String>,
}

impl Disk {
    /// The device that the command names, if this program ran.
    pub fn asked(program: &str, import: &Import) -> Disk {
        let mut disk = Disk::default();
        if import.context.ran(program, None) {
            let device = import.context.command.iter().find(|word| word.starts_with("/dev/"));
            disk.device = device.cloned().unwrap_or_default();
        }
        disk
    }

    /// Something that a healthy one has none of, of its whole life.
    pub fn fact(&mut self, value: f64, what: &str) {
        // A life of which less than the whole is used is nobody's trouble.
        let least = if what.starts_with("percent") { 90.0 } else { 1.0 };
        if value >= least && self.facts.len() < 16 {
            self.facts.push(format!("{value:.0} {what}"));
        }
    }

    /// Puts what is known of it; `tool` says it.
    pub fn put(self, tool: &str, import: &mut Import) {
        let when = import.now();
        let device = self.device.rsplit('/').next().unwrap_or_default();
        if let Some((turns, line)) = self.turns.filter(|_| !device.is_empty()) {
            import.value("disk.rotational", device, Form::Level, when, line, f64::from(u8::from(turns)));
        }
        let name = match (device, self.model.as_str()) {
            ("", "") => "a disk".to_owned(),
            ("", model) => model.to_owned(),
            (device, "") => device.to_owned(),
            (device, model) => format!("{device} ({model})"),
        };
        import.has_read();
        if self.failed {
            import.note(format!("{tool}: {name} says of itself that it fails"));
        }
        if !self.facts.is_empty() {
            import.note(format!("{tool}: of {name}, in its life: {}", self.facts.join(", ")));
        }
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut disk = Disk::asked("smartctl", import);
    let (mut taken, mut named) = (0, false);
    // Where the number of an attribute stands, while its table is read: `-x` and `-f brief` have fewer columns.
    let (mut raw_at, mut uncorrected) = (None, 0.0);
    lines.each(import, |lines, at, import| {
        taken += 1;
        if taken == 1 {
            return Took::Yes;
        }
        // Its lines are a key and a value, as those of many.
        if begins_other(lines, &import.context, &[TEXT.name]) {
            return Took::No;
        }
        let line = lines.line();
        if line.starts_with(b"smartctl ") || taken > LINES_MAX {
            return Took::No;
        }
        if line.starts_with(b"ID# ATTRIBUTE_NAME") {
            raw_at = Some(words(line).position(|column| column == b"RAW_VALUE").unwrap_or(RAW_AT));
            named = true;
            return Took::Yes;
        }
        if line.trim_ascii().is_empty() {
            raw_at = None;
            return Took::Yes;
        }
        if let Some(raw) = raw_at.and_then(|column| words(line).nth(column)) {
            let id = words(line).next();
            if let Some((_, what)) = ATTRIBUTES.iter().find(|(known, _)| Some(*known) == id) {
                disk.fact(first(raw).unwrap_or(0.0), what);
            }
            return Took::Yes;
        }
        // A prompt, or a line with a time: something else has begun. The log of self-tests has numbers behind the mark.
        let is_prompt =
            begins(line, &[b"$ ", b"# "]) && line.get(2).is_none_or(|b| !b" 0123456789".contains(b));
        let is_timed = words(line).next().and_then(clock::time_of_day).is_some();
        if is_prompt || is_timed || context::is_between(line) {
            return Took::No;
        }
        let Some(colon) = memchr::memchr(b':', line) else {
            return if begins(line, OWN) { Took::Yes } else { Took::No };
        };
        let (key, value) = line.split_at_checked(colon).unwrap_or((line, &[]));
        // `root@web17:~# `.
        if key.contains(&b'@') {
            return Took::No;
        }
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        match key {
            b"Device Model" | b"Model Number" | b"Product" => {
                disk.model = text(value);
                named = true;
            }
            b"Rotation Rate" if value.ends_with(b" rpm") => disk.turns = Some((true, at)),
            b"Rotation Rate" if value == b"Solid State Device" => disk.turns = Some((false, at)),
            b"SMART overall-health self-assessment test result" | b"SMART Health Status" => {
                disk.failed |= !matches!(value, b"PASSED" | b"OK");
                named = true;
            }
            b"Elements in grown defect list" => {
                disk.fact(first(value).unwrap_or(0.0), GROWN);
                named = true;
            }
            // Corrected in two ways and by trying again, corrected in all, tries, gigabytes, and not corrected.
            b"read" | b"write" | b"verify" if words(value).count() == 7 => {
                uncorrected += words(value).last().and_then(number).unwrap_or(0.0);
                named = true;
            }
            _ => {
                let known = NVME.iter().find(|(name, ..)| name.as_bytes() == key);
                if let Some((_, _, what)) = known {
                    let number = hexadecimal_or(value);
                    disk.fact(number.unwrap_or(0.0), what);
                    named = true;
                }
            }
        }
        Took::Yes
    });
    disk.fact(uncorrected, UNCORRECTED);
    // That it could not be opened is no report.
    if named {
        disk.put("smartctl", import);
    }
}

/// `0x00`, `12%`, `1,234`.
pub(super) fn hexadecimal_or(value: &[u8]) -> Option<f64> {
    if let Some(digits) = value.strip_prefix(b"0x") {
        return hexadecimal(digits).map(|n| n as f64);
    }
    let digits: Vec<u8> = value.iter().copied().filter(|b| *b != b',').collect();
    first(&digits)
}

fn is_json(lines: &mut Lines<'_>) -> bool {
    // Sorted by key it begins with others.
    let is_own = |line: &[u8]| has(line, b"\"smartctl\"") || has(line, b"\"json_format_version\"");
    lines.at(|line| line.starts_with(b"{"))
        && (lines.at(is_own) || (lines.at(|line| line.trim_ascii() == b"{") && lines.soon(24, is_own)))
}

fn json(lines: &mut Lines<'_>, import: &mut Import) {
    let mut disk = Disk::default();
    let (mut attribute, mut named): (Option<(String, f64)>, bool) = (None, false);
    let (mut uncorrected, mut shown) = (0.0, None);
    each_value(lines, import, |path, value, line, _| {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match (path.as_slice(), value) {
            (["device", "name"], Value::Text(name)) => name.clone_into(&mut disk.device),
            (["model_name" | "scsi_model_name"], Value::Text(name)) => {
                name.clone_into(&mut disk.model);
                named = true;
            }
            (["rotation_rate"], Value::Number(rpm)) => disk.turns = Some((rpm > 0.0, line)),
            (["smart_status", "passed"], Value::Flag(passed)) => {
                disk.failed |= !passed;
                named = true;
            }
            (["ata_smart_attributes", "table", "", "id"], Value::Number(id)) => {
                attribute = Some((format!("{id}"), 0.0));
                named = true;
            }
            (["ata_smart_attributes", "table", "", "raw", "value"], Value::Number(raw)) => {
                if let Some((_, known)) = &mut attribute {
                    *known = raw;
                }
            }
            // The value may have other counts in its upper half, which the text takes apart.
            (["ata_smart_attributes", "table", "", "raw", "string"], Value::Text(text)) => {
                shown = first(text.as_bytes());
            }
            (["ata_smart_attributes", "table", ""], Value::End) => {
                let (id, value) = attribute.take().unwrap_or_default();
                let raw = shown.take().unwrap_or(value);
                if let Some((_, what)) = ATTRIBUTES.iter().find(|(known, _)| *known == id.as_bytes()) {
                    disk.fact(raw, what);
                }
            }
            (["scsi_grown_defect_list"], Value::Number(sectors)) => {
                disk.fact(sectors, GROWN);
                named = true;
            }
            (["scsi_error_counter_log", _, "total_uncorrected_errors"], Value::Number(errors)) => {
                uncorrected += if errors.is_finite() { errors } else { 0.0 };
                named = true;
            }
            (["nvme_smart_health_information_log", key], Value::Number(number)) => {
                if let Some((_, _, what)) = NVME.iter().find(|(_, known, _)| known == key) {
                    disk.fact(number, what);
                    named = true;
                }
            }
            _ => {}
        }
    });
    disk.fact(uncorrected, UNCORRECTED);
    // That it could not be opened is no report.
    if named {
        disk.put("smartctl", import);
    }
}
