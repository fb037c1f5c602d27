//! Asserts that the recorder or an importer fills every metric of the table.
//!
//! A metric counts as filled if a parser fills its cell from a fixture or from a file with its key, or if the code of a
//! reader has its name. Dump, export and queries read every column.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use mitra_model::{Frame, Metric, Strings, metrics};

use crate::testing::{KERNELS, cells, fixture, fixture_paths, list, parser, read};

/// The code that reads sources.
const READERS: [&str; 2] = ["../parse/src", "../collect/src"];

#[test]
fn every_metric_is_filled() {
    let mut filled = BTreeSet::new();
    for kernel in KERNELS {
        for path in fixture_paths(kernel) {
            fill(&path, fixture(kernel, &path), &mut filled);
        }
    }
    for (path, text) in files_of_keys() {
        fill(path, text.as_bytes(), &mut filled);
    }
    for path in crate::sysctl::settings().iter().map(|setting| setting.path) {
        fill(path, b"1\n", &mut filled);
    }
    let names = names_in_code();
    let is_filled = |name: &str| filled.contains(name) || names.iter().any(|pattern| matches(pattern, name));
    // Other network namespaces have the files of the recorder's own.
    let original = |name: &str| Some(name.strip_prefix("netns.")?.replacen('_', ".", 1));
    let unfilled: Vec<&str> = metrics::all()
        .map(|metric| metric.name)
        .filter(|name| !is_filled(name) && !original(name).is_some_and(|name| is_filled(&name)))
        .collect();
    assert!(unfilled.is_empty(), "declared in crates/model/metrics, and nobody fills them: {unfilled:?}");
}

fn fill(path: &str, input: &[u8], filled: &mut BTreeSet<String>) {
    let Some(mut parse) = parser(path) else { return };
    let (mut strings, mut frame) = (Strings::new(), Frame::new());
    parse(input, &mut strings, &mut frame);
    filled.extend(cells(&frame, &strings).into_keys().map(|(_, _, metric)| metric.to_owned()));
}

/// Files whose keys are names of metrics, with all keys of the table.
fn files_of_keys() -> Vec<(&'static str, String)> {
    let lines = |source: &str, line: fn(&Metric) -> String| -> String {
        metrics::all().filter(|metric| metric.source.starts_with(source)).map(line).collect()
    };
    let counter = |metric: &Metric| metric.name.split_once('.').map_or("", |(_, name)| name);
    let sections = |source: &str| {
        let mut text = String::new();
        let of_file: Vec<_> = metrics::all().filter(|metric| metric.source.starts_with(source)).collect();
        for section in of_file.chunk_by(|a, b| area(a) == area(b)) {
            let names: Vec<&str> = section.iter().map(|metric| counter(metric)).collect();
            let zeros = vec!["0"; names.len()].join(" ");
            let area = area(section[0]);
            _ = writeln!(text, "{area}: {}\n{area}: {zeros}", names.join(" "));
        }
        text
    };
    let stat =
        |metric: &Metric| format!("      {} 1\n", metric.name.split_once('.').map_or("", |(_, name)| name));
    let zones = format!(
        "Node 0, zone   Normal\n  per-node stats\n{}  pages free     1\n{}",
        lines("/proc/zoneinfo: per-node stats", stat),
        metrics::table("zone").iter().filter(|m| m.source == "/proc/zoneinfo").map(stat).collect::<String>()
    );
    vec![
        ("proc/vmstat", lines("/proc/vmstat", |metric| format!("{} 1\n", &metric.name["vm.".len()..]))),
        (
            "proc/meminfo",
            lines("/proc/meminfo:", |m| {
                format!("{} 1 kB\n", &m.source["/proc/meminfo:".len()..]).replacen(' ', ": ", 1)
            }),
        ),
        ("proc/net/snmp", sections("/proc/net/snmp")),
        ("proc/net/netstat", sections("/proc/net/netstat")),
        ("proc/zoneinfo", zones),
    ]
}

fn area(metric: &Metric) -> &'static str {
    metric.name.split_once('.').map_or("", |(area, _)| area)
}

/// String literals in the code of the readers, without tests. `{…}` matches anything, and so does a `_` at the end.
fn names_in_code() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut dirs: Vec<_> =
        READERS.iter().map(|dir| Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)).collect();
    while let Some(dir) = dirs.pop() {
        for entry in list(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !is_test(&path) {
                let code = String::from_utf8(read(&path).unwrap()).unwrap();
                let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                let code: Vec<&str> =
                    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
                let code = code.join("\n");
                let words = literals(&code).flat_map(str::split_whitespace);
                names.extend(words.filter(|word| word.contains('.')).map(str::to_owned));
            }
        }
    }
    names
}

/// The string literals in code. Some hold tables of names.
fn literals(code: &str) -> impl Iterator<Item = &str> {
    let mut rest = code;
    std::iter::from_fn(move || {
        loop {
            let (before, after) = rest.split_once('"')?;
            if before.ends_with('\'') || before.ends_with("'\\") {
                // The quotation mark as a character.
                rest = after;
                continue;
            }
            let end = if before.ends_with("r#") {
                after.find("\"#")?
            } else {
                let is_escaped =
                    |at: usize| after[..at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
                after.match_indices('"').map(|(at, _)| at).find(|at| !is_escaped(*at))?
            };
            rest = &after[end + 1..];
            return Some(&after[..end]);
        }
    })
}

fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.ends_with("filled.rs")
}

/// Whether a text of the code names the metric.
fn matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains('{') && !pattern.ends_with('_') {
        return pattern == name;
    }
    let open = if pattern.ends_with('_') { "{}" } else { "" };
    let pattern = format!("{pattern}{open}");
    let mut parts = pattern.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    let Some(mut rest) =
        parts.next().filter(|part| part.contains('.')).and_then(|part| name.strip_prefix(part))
    else {
        return false;
    };
    let mut last = "";
    for part in parts {
        last = part;
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.is_empty() || last.is_empty()
}

#[test]
fn a_metric_that_nobody_fills_is_found() {
    let code = r##"f('"', "a.b\"c d.e", r#"x "y" z"#, "g.h")"##;
    assert_eq!(literals(code).collect::<Vec<_>>(), ["a.b\\\"c d.e", "x \"y\" z", "g.h"]);
    let names = names_in_code();
    for name in ["disk.nonsense", "vm", "run.latency_p42", "task.comm2", "disk.latency_le_1s"] {
        assert!(!names.iter().any(|pattern| matches(pattern, name)), "{name}");
    }
    assert!(matches("disk.{op}_latency_", "disk.read_latency_le_16us"));
    assert!(!matches("disk.{op}_latency_sum", "disk.read_latency_summary"));
}
