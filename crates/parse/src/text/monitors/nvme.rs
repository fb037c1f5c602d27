//! `nvme smart-log`, as text and as JSON: what an NVMe disk says of its health, as notes.
//!
//! ```text
//! Smart Log for NVME device:nvme0n1 namespace-id:ffffffff
//! critical_warning                        : 0x9
//! temperature                             : 39 °C (312 K)
//! available_spare                         : 0%
//! available_spare_threshold               : 5%
//! percentage_used                         : 1%
//! media_errors                            : 0
//! Warning Temperature Time                : 0
//! Thermal Management T1 Trans Count       : 0
//! ```
//! ```text
//! {"critical_warning":9,"temperature":312,"avail_spare":0,"spare_thresh":5,"percent_used":1,"media_errors":0}
//! ```
//!
//! JSON does not name the disk: the command before it does, if there is one.

use super::smartctl::{Disk, hexadecimal_or};
use crate::text::json::{Value, each_value};
use crate::text::prelude::*;

/// `nvme smart-log`.
pub const TEXT: Format = Format::new(
    "nvme smart-log",
    "health of an NVMe disk, as notes",
    |lines, _| lines.at(|line| line.starts_with(TITLE)),
    read,
);
/// `nvme smart-log -o json`.
pub const JSON: Format =
    Format::new("nvme smart-log -o json", "the same as JSON", |lines, _| is_json(lines), json);

const TITLE: &[u8] = b"Smart Log for NVME device:";
/// Lines of one log.
const LINES_MAX: u32 = 100;

/// Keys of the text, small and with `_` for blanks, and those of JSON.
#[rustfmt::skip]
const KEYS: Pairs = pairs!(
    "critical_warning critical_warning          available_spare avail_spare
     available_spare_threshold spare_thresh     percentage_used percent_used
     media_errors media_errors                  warning_temperature_time warning_temp_time
     critical_composite_temperature_time critical_comp_time
     thermal_management_t1_trans_count thm_temp1_trans_count
     thermal_management_t2_trans_count thm_temp2_trans_count"
);
/// What such keys begin with, of all lines of a log.
const OWN: &[&[u8]] = list!(
    "critical_ temperature available_ percentage_ endurance_ data_units_ host_ controller_ power_ unsafe_ media_ num_err_
     warning_ thermal_"
);
/// What the bits of the critical warning mean.
const WARNINGS: [&str; 6] = [
    "it runs out of spare blocks",
    "it is too hot or too cold",
    "it is no longer reliable",
    "it takes no more writes",
    "its memory would not survive a loss of power",
    "its persistent memory takes no more writes",
];
/// The temperature passes.
const PASSES: u64 = 0b10;

#[derive(Default)]
struct Health {
    disk: Disk,
    spare: Option<f64>,
    threshold: Option<f64>,
    warnings: Vec<&'static str>,
    is_known: bool,
}

impl Health {
    fn warn(&mut self, bits: u64) {
        self.disk.failed |= bits & !PASSES != 0;
        self.warnings
            .extend((0_u64..).zip(WARNINGS).filter(|(bit, _)| (bits >> bit) & 1 == 1).map(|(_, w)| w));
    }

    /// Takes a number by its key in JSON.
    fn take(&mut self, key: &str, value: f64) {
        let what = match key {
            "critical_warning" => {
                self.is_known = true;
                return self.warn(value as u64);
            }
            "avail_spare" => {
                self.spare = Some(value);
                return;
            }
            "spare_thresh" => {
                self.threshold = Some(value);
                return;
            }
            "percent_used" => "percent of its life are used",
            "media_errors" => "errors of its medium",
            "warning_temp_time" => "minutes above its warning temperature",
            "critical_comp_time" => "minutes above its critical temperature",
            "thm_temp1_trans_count" => "times slowed down for its heat",
            "thm_temp2_trans_count" => "times slowed down much for its heat",
            _ => return,
        };
        self.is_known = true;
        self.disk.fact(value, what);
    }

    fn put(self, import: &mut Import) {
        // That it could not be opened is no log.
        if !self.is_known {
            return;
        }
        let name = match self.disk.device.rsplit('/').next() {
            None | Some("") => "a disk".to_owned(),
            Some(name) => name.to_owned(),
        };
        if !self.warnings.is_empty() {
            import.note(format!("nvme: {name} warns: {}", self.warnings.join(", ")));
        }
        if let (Some(spare), Some(threshold)) = (self.spare, self.threshold)
            && spare < threshold
        {
            import.note(format!(
                "nvme: {name} has {spare:.0} % of its spare blocks left; its threshold is {threshold:.0} %"
            ));
        }
        self.disk.put("nvme", import);
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut health = Health::default();
    let name = lines.peek().and_then(|line| words(line.get(TITLE.len()..)?).next());
    health.disk.device = name.map(text).unwrap_or_default();
    lines.advance();
    let last = lines.number().saturating_add(LINES_MAX);
    lines.each(import, |lines, at, _| {
        let Some((key, value)) = pair(lines.line()).filter(|_| at < last) else { return Took::No };
        if let Some(key) = find_pair(KEYS, key.as_bytes())
            && let Some(number) = hexadecimal_or(value)
        {
            health.take(key, number);
        }
        Took::Yes
    });
    health.put(import);
}

/// A key, as in [`KEYS`], and its value. Bits of a number are below it.
fn pair(line: &[u8]) -> Option<(String, &[u8])> {
    let (key, value) = line.split_at_checked(memchr::memchr(b':', line)?)?;
    let name = text(key.trim_ascii()).to_lowercase().replace(' ', "_");
    let is_own = begins(name.as_bytes(), OWN) || line.starts_with(b"   ");
    is_own.then(|| (name, value.get(1..).unwrap_or_default().trim_ascii()))
}

/// The keys of no other JSON, near its beginning.
fn is_json(lines: &mut Lines<'_>) -> bool {
    let warns = |line: &[u8]| has(line, b"\"critical_warning\"");
    let spares = |line: &[u8]| has(line, b"\"avail_spare\"");
    lines.at(|line| line.starts_with(b"{"))
        && (lines.at(|line| warns(line) && spares(line))
            || lines.at(|line| line.trim_ascii() == b"{") && lines.soon(4, warns) && lines.soon(16, spares))
}

fn json(lines: &mut Lines<'_>, import: &mut Import) {
    let mut health = Health { disk: Disk::asked("nvme", import), ..Health::default() };
    each_value(lines, import, |path, value, _, _| {
        // With `-v` the warning is an object with its bits and their number.
        let key = match path {
            [key] => key,
            [key, part] if key == "critical_warning" && part == "value" => key,
            _ => return,
        };
        // Numbers of 128 bits are texts.
        let number = match value {
            Value::Number(number) => Some(number),
            Value::Text(text) => number(text.as_bytes()),
            _ => None,
        };
        if let Some(number) = number.filter(|number| number.is_finite()) {
            health.take(key, number);
        }
    });
    health.put(import);
}
