//! `mpstat -o JSON`; the frame of it is that of `iostat -o JSON`.
//!
//! ```text
//! {
//!     "timestamp": "13:35:11",
//!     "cpu-load": [
//!         {"cpu": "all", "usr": 64.00, "nice": 0.00, "sys": 36.00, "iowait": 0.00, …, "idle": 0.00}
//!     ]
//! },
//! ```

use serde_json::{Map, Value};

use super::super::{Context, Format, Import, Lines, When};
use super::iostat_json::{each, is_sysstat, names, time};
use super::mpstat_columns::{COLUMNS_MAX, Cells, Kind};

/// The format.
pub const FORMAT: Format =
    Format { name: "mpstat -o JSON", what: "the same as `mpstat`, as JSON", starts, read };

/// Rows that are kept until it is known whether their report is the only one.
const HELD_MAX: usize = 65_536;

/// The lists of a report, and what they are.
const LISTS: [(&str, Kind); 3] = [
    ("cpu-load", Kind::Load),
    ("sum-interrupts", Kind::Interrupts),
    ("soft-interrupts", Kind::SoftInterrupts),
];

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    // `sadf -j` has the same frame, but there a time is an object.
    is_sysstat(lines)
        && names(lines, &["\"timestamp\": \"", "\"timestamp\":\""])
        && names(
            lines,
            &[
                "\"cpu-load\"",
                "\"sum-interrupts\"",
                "\"individual-interrupts\"",
                "\"soft-interrupts\"",
                "\"node-load\"",
            ],
        )
        && !names(lines, &["\"avg-cpu\"", "\"disk_device\""])
}

struct Held {
    kind: Kind,
    cpu: String,
    line: u32,
    names: Vec<String>,
    numbers: Vec<f64>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut first: Vec<Held> = Vec::new();
    let mut first_when = When::Fact;
    let mut count = 0_u32;
    each(lines, import, &mut |report, import| {
        if report.value.contains_key("individual-interrupts") {
            import.note("mpstat -I CPU: interrupts by number are passed over");
        }
        count = count.saturating_add(1);
        let when = time(report, import).unwrap_or(When::Step(count));
        let mut rows = Vec::new();
        for (list, kind) in LISTS {
            let objects = report.value.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let name = format!("\"{list}\"");
            for (i, object) in objects.iter().filter_map(Value::as_object).enumerate() {
                rows.extend(held(kind, object, report.line_of(&name, "\"cpu\"", i)));
            }
        }
        if count == 1 {
            first = rows;
            first.truncate(HELD_MAX);
            first_when = when;
            return;
        }
        if count == 2 {
            for row in first.drain(..) {
                put(import, &row, first_when);
            }
        }
        for row in &rows {
            put(import, row, when);
        }
    });
    // A single report is an average since boot, unless an interval was asked for; the file does not say.
    let when = if import.context.ran("mpstat", None) && import.context.interval_s.is_some() {
        first_when
    } else {
        When::Fact
    };
    for row in first {
        put(import, &row, when);
    }
}

fn held(kind: Kind, object: &Map<String, Value>, line: u32) -> Option<Held> {
    let cpu = match object.get("cpu")? {
        Value::String(name) => name.clone(),
        number => number.as_u64()?.to_string(),
    };
    if cpu != "all" && cpu.parse::<u16>().is_err() {
        return None;
    }
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let (mut names, mut numbers) = (Vec::new(), Vec::new());
    match (kind, object.get("intr")) {
        (Kind::SoftInterrupts, Some(Value::Array(list))) => {
            for one in list.iter().take(COLUMNS_MAX) {
                let name = one.get("name").and_then(Value::as_str).unwrap_or_default();
                names.push(format!("{name}/s"));
                numbers.push(one.get("value").map_or(f64::NAN, number));
            }
        }
        (Kind::Interrupts, Some(value)) => {
            names.push("intr/s".to_owned());
            numbers.push(number(value));
        }
        (Kind::Load, _) => {
            for (name, value) in object.iter().filter(|(name, _)| *name != "cpu").take(COLUMNS_MAX) {
                names.push(format!("%{name}"));
                numbers.push(number(value));
            }
        }
        _ => return None,
    }
    Some(Held { kind, cpu, line, names, numbers })
}

fn put(import: &mut Import, row: &Held, when: When) {
    let names: Vec<&[u8]> = row.names.iter().map(String::as_bytes).collect();
    let all = row.cpu == "all";
    let Some(cells) = Cells::new(import, row.kind, &names, all) else { return };
    let name = if all { "" } else { row.cpu.as_str() };
    cells.fill_with(row.numbers.iter().copied(), import.row(cells.group, name.as_bytes(), when, row.line));
}
