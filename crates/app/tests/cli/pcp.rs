//! `mitra export --pcp`: the tools of PCP read what the recording holds.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use mitra_model::{Kind, Unit, lookup};
use serde_json::Value;

use crate::export::simulated;
use crate::harness::{archive, finish, good, run};

const METRICS: &str = "sys.*,mem.*,vm.*,cpu.*,disk.*,nic.*,fs.*,cgroup.*,task.comm,task.minflt";

/// Whether the tools are there; if one is not, that is printed.
fn has_tools() -> bool {
    let mut tools = ["pmdumplog", "pmlogcheck", "pminfo", "pmval", "pmrep", "pmlogsummary"].into_iter();
    let missing = tools.find(|tool| Command::new(tool).arg("--version").output().is_err());
    if let Some(tool) = missing {
        println!("skipped: {tool} of PCP is not installed; run: apt-get install pcp");
    }
    missing.is_none()
}

fn tool(tool: &str, args: &[&str]) -> String {
    // Its scripts are for the Python of the system.
    let output = finish(Command::new(tool).args(args).env("TZ", "UTC").env("PATH", "/usr/bin:/bin"));
    assert_eq!(output.code, 0, "{tool} {args:?}: {}", output.err);
    output.out
}

fn exported(archive: &str, base: &Path, more: &[&str]) -> String {
    let base = base.to_str().unwrap();
    let said = good(&[&["export", "--archive", archive, "--pcp", base], more].concat());
    assert!(said.starts_with(base) && said.contains(" moments"), "{said}");
    base.to_owned()
}

/// Times of day in milliseconds, and values as text, by metric and row.
type Read = BTreeMap<(String, String), Vec<(u64, String)>>;

fn time_of_day_ms(clock: &str) -> u64 {
    let parts: Vec<f64> = clock.split(':').map(|part| part.parse().unwrap()).collect();
    ((parts[0] * 3600.0 + parts[1] * 60.0 + parts[2]) * 1000.0) as u64
}

/// What `pmdumplog` prints.
fn read(text: &str) -> Read {
    let mut read = Read::new();
    let (mut time, mut metric) = (0, String::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.ends_with("<mark>")) {
        if !line.starts_with(' ') {
            time = time_of_day_ms(line.split(' ').next().unwrap());
            continue;
        }
        let mut rest = line.trim_start();
        if let Some((_, named)) = rest.split_once(" (mitra.") {
            let (name, values) = named.split_once("):").unwrap();
            (metric, rest) = (name.to_owned(), values.trim_start());
        }
        if rest.is_empty() {
            continue;
        }
        let (row, value) = match rest.strip_prefix("value ") {
            Some(value) => ("", value),
            None => {
                let named = rest.split_once(" or \"").unwrap_or_else(|| panic!("{line}")).1;
                named.split_once("\"] value ").unwrap()
            }
        };
        read.entry((metric.clone(), row.to_owned())).or_default().push((time, value.to_owned()));
    }
    read
}

/// What `mitra dump --raw` prints, in the units of PCP.
fn dumped(archive: &str) -> Read {
    let all = ["dump", "--archive", archive, "--since", "@0", "--raw", "--json", "--metric", METRICS];
    let mut dumped = Read::new();
    for line in good(&all).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        let metric = lookup(&text("metric")).unwrap();
        let time = time_of_day_ms(text("time").split_once('T').unwrap().1.trim_end_matches('Z'));
        let value = match (metric.kind, metric.unit) {
            (Kind::Text, _) => format!("\"{}\"", text("text")),
            (_, Unit::Ticks) => (line["value"].as_f64().unwrap() * 10.0).to_string(),
            (_, Unit::Sectors | Unit::Centi | Unit::Ppm) => {
                (line["value"].as_f64().unwrap() * metric.unit.scale()).to_string()
            }
            _ => line["value"].as_f64().unwrap().to_string(),
        };
        let name = metric.name.replace('-', "_");
        dumped.entry((name, text("row"))).or_default().push((time, value));
    }
    dumped
}

fn same(written: &str, wanted: &str) -> bool {
    match (written.parse::<f64>(), wanted.parse::<f64>()) {
        (Ok(written), Ok(wanted)) => (written - wanted).abs() <= 1e-6 * wanted.abs(),
        _ => written == wanted,
    }
}

#[test]
fn pcp_reads_what_dump_shows() {
    let dir = tempfile::tempdir().unwrap();
    let base = exported(archive(), &dir.path().join("all"), &["--metric", METRICS]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing half-written stays");
    if !has_tools() {
        return;
    }
    tool("pmlogcheck", &[&base]);
    let (written, wanted) = (read(&tool("pmdumplog", &[&base])), dumped(archive()));
    let names = |read: &Read| read.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&written), names(&wanted));
    assert!(wanted.len() > 200, "{}", wanted.len());
    for (key, wanted) in &wanted {
        let written = &written[key];
        assert_eq!(written.len(), wanted.len(), "{key:?}");
        for ((t, value), (wanted_t, wanted)) in written.iter().zip(wanted) {
            assert!(
                t.abs_diff(*wanted_t) <= 1 && same(value, wanted),
                "{key:?} at {t}: {value}, not {wanted}"
            );
        }
    }
    let of_type = |metric: &str| tool("pminfo", &["-d", "-a", &base, metric]);
    let read_bytes = of_type("mitra.nic.rx_bytes");
    assert!(read_bytes.contains("Semantics: counter  Units: byte"), "{read_bytes}");
    let free = of_type("mitra.mem.free");
    assert!(free.contains("Semantics: instant  Units: Kbyte"), "{free}");
    let user = of_type("mitra.sys.cpu_user");
    assert!(user.contains("Semantics: counter  Units: millisec"), "{user}");
}

#[test]
fn pcp_computes_the_rates_of_dump() {
    let dir = tempfile::tempdir().unwrap();
    let base = exported(archive(), &dir.path().join("rates"), &["--metric", "sys.ctxt,mem.free"]);
    if !has_tools() {
        return;
    }
    let dump = |more: &[&str]| -> Vec<f64> {
        let lines = good(&[&["dump", "--archive", archive(), "--since", "@0", "--json"], more].concat());
        let value = |line: &str| serde_json::from_str::<Value>(line).unwrap()["value"].as_f64().unwrap();
        lines.lines().map(value).collect()
    };
    // Rows are a time and a number.
    let rows = |text: &str| -> Vec<f64> {
        let row = |line: &str| {
            let (time, value) = line.split_once(' ')?;
            time.contains(':').then(|| value.trim().parse().ok()).flatten()
        };
        text.lines().filter_map(row).collect()
    };
    let near = |got: f64, wanted: f64| (got - wanted).abs() <= 0.01 * wanted.abs() + 0.1;
    let rates = dump(&["--metric", "sys.ctxt"]);
    let got = rows(&tool("pmval", &["-U", &base, "-f", "3", "-w", "24", "mitra.sys.ctxt"]));
    assert!(!rates.is_empty() && got.len() == rates.len(), "{got:?}, not {rates:?}");
    assert!(got.iter().zip(&rates).all(|(got, wanted)| near(*got, *wanted)), "{got:?}, not {rates:?}");
    let all = &dumped(archive())[&("sys.ctxt".to_owned(), String::new())];
    let [(since, first), .., (until, last)] = &all[..] else { panic!("{all:?}") };
    let grown = last.parse::<f64>().unwrap() - first.parse::<f64>().unwrap();
    let mean = grown * 1000.0 / until.checked_sub(*since).unwrap_or(1) as f64;
    let summary = tool("pmlogsummary", &[&base, "mitra.sys.ctxt"]);
    let summed: f64 = summary.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(near(summed, mean), "{summary}, not {mean}");
    let csv = tool("pmrep", &["-a", &base, "-u", "-o", "csv", "mitra.mem.free"]);
    let levels: Vec<f64> =
        csv.lines().filter_map(|line| line.split_once(',')?.1.trim_matches('"').parse().ok()).collect();
    assert_eq!(levels, dump(&["--raw", "--metric", "mem.free"]), "{csv}");
}

#[test]
fn a_gap_is_a_mark() {
    let dir = simulated(2, 20);
    let recording = dir.path().to_str().unwrap();
    let base = exported(recording, &dir.path().join("two"), &["--metric", "sys.*,disk.*"]);
    if !has_tools() {
        return;
    }
    let text = tool("pmdumplog", &[&base]);
    let is_mark = |record: &str| record.contains("<mark>");
    let marks: Vec<usize> =
        text.split("\n\n").enumerate().filter(|(_, record)| is_mark(record)).map(|(i, _)| i).collect();
    assert_eq!(marks, [20], "between the records of two boots, of which each has a sample a second");
    let read = read(&text);
    assert_eq!(read[&("sys.ctxt".to_owned(), String::new())].len(), 40);
    // After a mark PCP does not know a text any more.
    assert_eq!(read[&("disk.queue_scheduler".to_owned(), "disk0".to_owned())].len(), 2);
    // The counters of the second boot begin below.
    let checked = finish(Command::new("pmlogcheck").arg(&base));
    assert_eq!((checked.code, checked.err.contains("wrap")), (0, false), "{}", checked.err);
}

#[test]
fn steps_names_and_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let said = good(&["export", "--archive", archive(), "--pcp", path, "--every", "1h"]);
    let moments = |said: &str| -> u64 {
        said.trim().rsplit_once(": ").unwrap().1.split(' ').next().unwrap().parse().unwrap()
    };
    let each = dir.path().join("each");
    let all = good(&["export", "--archive", archive(), "--pcp", each.to_str().unwrap()]);
    assert!(moments(&said) < moments(&all), "{said} {all}");
    let mut ends: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("each."))
        .map(|name| name.rsplit_once(".pcp.").unwrap().1.to_owned())
        .collect();
    ends.sort();
    assert_eq!(ends, ["0", "index", "meta"]);
    for wrong in [
        &["export", "--archive", archive(), "--pcp", "-"][..],
        // One of that name is there.
        &["export", "--archive", archive(), "--pcp", path],
        &["export", "--archive", archive(), "--pcp", path, "--sar", "-"],
        &["export", "--archive", archive(), "--pcp", "/nonexistent/x"],
        &["export", "--archive", archive(), "--pcp", path, "--every", "2h"],
    ] {
        assert_eq!(run(wrong).code, 2, "{wrong:?}");
    }
    let other = dir.path().join("other");
    let none = ["export", "--archive", archive(), "--metric", "run.*", "--pcp", other.to_str().unwrap()];
    let none = run(&none);
    assert!(none.code != 0 && none.err.contains("nothing of that was recorded"), "{}", none.err);
    assert!(
        !std::fs::read_dir(dir.path())
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with("other") })
    );
}
