//! The systemd timers, one document each, with their drop-ins applied.
//!
//! ```text
//! name = apt-daily.timer
//! unit = apt-daily.service
//! enabled = yes
//! OnCalendar = *-*-* 6,18:00
//! Persistent = true
//! RandomizedDelaySec = 12h
//! file = /usr/lib/systemd/system/apt-daily.timer
//! ```
//!
//! The last run of a timer is in a separate document (`@timer/apt-daily.timer/last`), which has the
//! flag `volatile`. Only timers with `Persistent=` record it.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::report::Moment;

use super::units::{self, Units};
use super::{Schedule, Source, line, word};
use crate::document::{Document, Facts, Flag, Kind, Value};

/// Maximum size of a timer's unit file in bytes.
const FILE_MAX: usize = 256 << 10;
/// Maximum number of timers.
const TIMERS_MAX: usize = 2_000;
/// The stamp files of systemd. The mtime of a stamp is the timer's last run.
const STAMPS: &str = "/var/lib/systemd/timers";

/// One timer with its drop-ins applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timer {
    /// The triggers: key (`OnCalendar`, `OnBootSec`, …), value, file and line.
    pub times: Vec<(String, String, String, u32)>,
    /// The other settings of the section `[Timer]`.
    pub others: BTreeMap<String, String>,
}

/// The documents of the timers.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let units = Units::read(source)?;
    let mut documents = Vec::new();
    for (name, path, enabled) in timers(&units) {
        documents.push(document(source, &name, &path, enabled, &read(source, &units, &name, &path)));
        documents.extend(last(source, &name));
    }
    Ok(documents)
}

/// The recurring jobs that enabled timers start.
#[must_use]
pub fn schedules(source: &Source<'_>) -> Vec<Schedule> {
    let Ok(units) = Units::read(source) else { return Vec::new() };
    let mut found = Vec::new();
    for (name, path, enabled) in timers(&units) {
        if !enabled {
            continue;
        }
        let timer = read(source, &units, &name, &path);
        let delay = timer.others.get("RandomizedDelaySec").and_then(|text| parse_span(text));
        for (_, calendar, file, line) in timer.times.iter().filter(|(key, ..)| key == "OnCalendar") {
            found.push(Schedule {
                name: name.clone(),
                unit_or_command: unit_of(&name, &timer),
                file: file.clone(),
                line: *line,
                calendar: calendar.clone(),
                delay_max_s: delay.unwrap_or(0),
            });
        }
    }
    found
}

/// Every timer with its unit file and whether it is enabled. A template counts only through its
/// instances.
fn timers(units: &Units) -> Vec<(String, String, bool)> {
    let wanted: BTreeSet<&str> = units.wanted.iter().map(|(unit, _)| unit.as_str()).collect();
    let names = units.files.keys().map(String::as_str).chain(wanted.iter().copied());
    let names: BTreeSet<&str> =
        names.filter(|name| name.ends_with(".timer") && !name.ends_with("@.timer")).collect();
    let mut found = Vec::new();
    for name in names.into_iter().take(TIMERS_MAX) {
        let template = template_of(name);
        let path = units.files.get(name).or_else(|| units.files.get(template.as_deref()?));
        if let Some(path) = path {
            found.push((name.to_owned(), path.clone(), wanted.contains(name)));
        }
    }
    found
}

/// Returns `backup@.timer` for `backup@home.timer`.
fn template_of(name: &str) -> Option<String> {
    let (stem, _) = name.strip_suffix(".timer")?.split_once('@')?;
    Some(format!("{stem}@.timer"))
}

/// Reads a timer's unit file and its drop-ins. Skips a file that cannot be read.
fn read(source: &Source<'_>, units: &Units, name: &str, path: &str) -> Timer {
    let mut overrides: BTreeMap<&str, &str> = BTreeMap::new();
    let template = template_of(name).unwrap_or_default();
    // Drop-ins for all timers come first, so that more specific ones win.
    for unit in ["timer", &template, name] {
        let files = units.overrides.get(unit).into_iter().flatten();
        overrides.extend(files.map(|(file, path)| (file.as_str(), path.as_str())));
    }
    let mut timer = Timer::default();
    for path in [path].into_iter().chain(overrides.into_values()) {
        if let Ok(text) = source.text(path, FILE_MAX) {
            // Skips a file that does not parse: it is not a unit file.
            _ = timer.add(path, &text);
        }
    }
    timer
}

impl Timer {
    /// Applies a file on top of those before it. As in systemd, an empty value removes all triggers
    /// set before.
    ///
    /// ```text
    /// [Timer]
    /// OnCalendar=
    /// OnCalendar=Mon *-*-* 04:00
    /// ```
    pub fn add(&mut self, path: &str, text: &str) -> Result<(), String> {
        for assignment in units::parse(text).map_err(|e| format!("{path}: {e}"))? {
            if assignment.section != "Timer" {
                continue;
            }
            let (key, value) = (assignment.key.to_owned(), assignment.value.to_owned());
            if !is_time(&key) {
                self.others.insert(key, value);
            } else if value.is_empty() {
                self.times.clear();
            } else {
                self.times.push((key, value, path.to_owned(), assignment.line));
            }
        }
        Ok(())
    }
}

fn is_time(key: &str) -> bool {
    matches!(
        key,
        "OnCalendar" | "OnActiveSec" | "OnBootSec" | "OnStartupSec" | "OnUnitActiveSec" | "OnUnitInactiveSec"
    )
}

fn unit_of(name: &str, timer: &Timer) -> String {
    let same = || format!("{}.service", name.strip_suffix(".timer").unwrap_or(name));
    timer.others.get("Unit").filter(|unit| !unit.is_empty()).cloned().unwrap_or_else(same)
}

fn document(source: &Source<'_>, name: &str, path: &str, enabled: bool, timer: &Timer) -> Document {
    let mut content = String::new();
    let mut facts = Facts::new();
    let unit = unit_of(name, timer);
    line(&mut content, "name", name);
    line(&mut content, "unit", &unit);
    line(&mut content, "enabled", if enabled { "yes" } else { "no" });
    for (key, value, ..) in &timer.times {
        line(&mut content, key, value);
        if key == "OnCalendar" {
            word(&mut facts, "timer.calendar", value);
        }
    }
    for (key, value) in timer.others.iter().filter(|(key, value)| *key != "Unit" && !value.is_empty()) {
        line(&mut content, key, value);
    }
    line(&mut content, "file", path);
    word(&mut facts, "timer.name", name);
    word(&mut facts, "timer.unit", unit);
    source.document(format!("@timer/{name}"), Kind::Timer, content, facts)
}

/// The document of a timer's last run.
fn last(source: &Source<'_>, name: &str) -> Option<Document> {
    let stat = source.stat(&format!("{STAMPS}/stamp-{name}"))?;
    let ns = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    let ns = i64::try_from(ns).ok()?;
    let mut content = String::new();
    line(&mut content, "name", name);
    line(&mut content, "last", &Moment(ns).to_string());
    let mut facts = Facts::new();
    word(&mut facts, "timer.name", name);
    facts.insert("timer.last".to_owned(), vec![Value::Time(ns)]);
    let mut document = source.document(format!("@timer/{name}/last"), Kind::Timer, content, facts);
    document.flag(Flag::Volatile);
    Some(document)
}

/// Parses a time span of systemd into whole seconds: `12h`, `1h 30min`, `90`, `2 weeks`.
#[must_use]
pub fn parse_span(text: &str) -> Option<u64> {
    let mut total_s = 0_u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let after = after.trim_start();
        let (unit, after) =
            after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        let unit_s = match unit {
            "" | "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3_600,
            "d" | "day" | "days" => 86_400,
            "w" | "week" | "weeks" => 604_800,
            "M" | "month" | "months" => 2_629_800,
            "y" | "year" | "years" => 31_557_600,
            "us" | "usec" | "ms" | "msec" => 0,
            _ => return None,
        };
        total_s = total_s.checked_add(digits.parse::<u64>().ok()?.checked_mul(unit_s)?)?;
        rest = after.trim_start();
    }
    Some(total_s)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::collectors::Cache;

    #[test]
    fn timers_with_what_overrides_them() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let daily = "[Unit]\nDescription=x\n[Timer]\nOnCalendar=*-*-* 6,18:00\nRandomizedDelaySec=12h\nPersistent=true\n";
        file("usr/lib/systemd/system/daily.timer", daily);
        file("etc/systemd/system/daily.timer.d/later.conf", "[Timer]\nOnCalendar=\nOnCalendar=Mon 04:00\n");
        file("usr/lib/systemd/system/off.timer", "[Timer]\nOnCalendar=daily\nUnit=other.service\n");
        file("usr/lib/systemd/system/pg@.timer", "[Timer]\nOnBootSec=5min\nOnCalendar=weekly\n");
        fs::create_dir_all(root.path().join("etc/systemd/system/timers.target.wants")).unwrap();
        for (name, target) in [("daily.timer", "daily.timer"), ("pg@main.timer", "pg@.timer")] {
            let path = root.path().join("etc/systemd/system/timers.target.wants").join(name);
            symlink(format!("/usr/lib/systemd/system/{target}"), path).unwrap();
        }
        file("var/lib/systemd/timers/stamp-daily.timer", "");
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };

        let documents = collect(&source).unwrap();
        let names: Vec<&str> = documents.iter().map(|d| d.filename.as_str()).collect();
        let wanted =
            ["@timer/daily.timer", "@timer/daily.timer/last", "@timer/off.timer", "@timer/pg@main.timer"];
        assert_eq!(names, wanted);
        assert_eq!(
            documents[0].content.as_deref(),
            Some(
                "name = daily.timer\nunit = daily.service\nenabled = yes\nOnCalendar = Mon 04:00\nPersistent = true\n\
                 RandomizedDelaySec = 12h\nfile = /usr/lib/systemd/system/daily.timer\n"
            )
        );
        assert!(documents[1].is(Flag::Volatile) && documents[1].facts.contains_key("timer.last"));

        let schedules = schedules(&source);
        let short: Vec<_> =
            schedules.iter().map(|s| (&*s.name, &*s.unit_or_command, &*s.calendar, s.line)).collect();
        assert_eq!(
            short,
            [
                ("daily.timer", "daily.service", "Mon 04:00", 3),
                ("pg@main.timer", "pg@main.service", "weekly", 3)
            ]
        );
        assert_eq!(schedules[0].file, "/etc/systemd/system/daily.timer.d/later.conf");
        assert_eq!(schedules[0].delay_max_s, 43_200);
    }

    #[test]
    fn a_file_that_is_none_of_a_unit_is_refused() {
        let error = Timer::default().add("/etc/x.timer", "[Timer]\nOnCalendar\n").unwrap_err();
        assert_eq!(error, "/etc/x.timer: line 2: '[Section]' or 'Key=value' was wanted");
    }

    #[test]
    fn spans_of_time() {
        for (text, wanted) in [
            ("12h", Some(43_200)),
            ("1h 30min", Some(5_400)),
            ("90", Some(90)),
            ("2 weeks", Some(1_209_600)),
            ("500ms", Some(0)),
            ("", None),
            ("h", None),
            ("12parsecs", None),
            ("99999999999999999999y", None),
            ("18446744073709551615y", None),
            ("1h-", None),
        ] {
            assert_eq!(parse_span(text), wanted, "{text}");
        }
    }
}
