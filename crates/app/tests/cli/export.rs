//! `mitra export` in the forms of other tools: their readers read back what the recording holds, and Python the trace.

use mitra_archive::{Query, Reader};
use mitra_model::{SeriesSet, Span, lookup};
use mitra_parse::text::Import;

use crate::harness::{archive, good, run};

const SECOND: i64 = 1_000_000_000;

fn recorded(metrics: &[&str]) -> SeriesSet {
    let reader = Reader::open(archive().as_ref()).unwrap();
    let metrics = metrics.iter().map(|name| lookup(name).unwrap()).collect();
    reader.read(&Query::new(reader.span().unwrap(), metrics)).unwrap()
}

fn read(name: &str, text: &str) -> SeriesSet {
    let mut import = Import::new(None);
    mitra_parse::text::read(&mut text.as_bytes(), name, &mut import).unwrap();
    let imported = import.finish();
    assert_eq!((imported.files[0].unread, &imported.files[0].first_unread), (0, &None), "{name}");
    imported.set
}

/// Asserts that the values that were read are those of the recording in the same second, within `by`.
fn same(metric: &str, row: &str, read: &SeriesSet, by: f64) {
    let all = recorded(&[metric]);
    let written = read.get(metric, row).unwrap_or_else(|| panic!("{metric} of {row:?} was not written"));
    let mut compared = 0;
    for (t, _, value) in written.samples(Span::ALL) {
        let second = Span { since: t, until: t + SECOND };
        let series = all.get(metric, row).unwrap();
        let wanted =
            if lookup(metric).unwrap().is_rate() { series.mean(second) } else { series.last(second) };
        let wanted = wanted.unwrap_or_else(|| panic!("{metric} of {row:?}: nothing at {t}"));
        assert!(
            (wanted - value).abs() <= by + 0.006 * wanted.abs(),
            "{metric} of {row:?} at {t}: {value}, not {wanted}"
        );
        compared += 1;
    }
    assert!(compared > 0, "{metric} of {row:?}: no value");
}

#[test]
fn sysstat_and_atop_read_back() {
    let to = |form: &str| good(&["export", "--archive", archive(), form, "-"]);
    for (form, name) in [("--sar", "sar.txt"), ("--sadf-json", "sadf.json")] {
        let set = read(name, &to(form));
        same("sys.ctxt", "", &set, 0.01);
        same("vm.pgfault", "", &set, 0.01);
        same("mem.free", "", &set, 1024.0);
        same("mem.available", "", &set, 1024.0);
        same("mem.slab", "", &set, 1024.0);
        same("sys.load1", "", &set, 0.01);
        same("sys.forks", "", &set, 0.01);
        // Shares of what was counted, of which a CPU's ticks may not be all of a second.
        same("sys.cpu_user", "", &set, 0.1);
        same("cpu.idle", "0", &set, 0.1);
        same("nic.rx_bytes", "lo", &set, 11.0);
        same("nic.rx_drop", "lo", &set, 0.01);
        assert!(set.host.cpus > 0 && !set.host.hostname.is_empty());
    }
    let set = read("atop.txt", &to("--atop"));
    same("sys.ctxt", "", &set, 1.0);
    same("sys.cpu_user", "", &set, 0.02);
    same("mem.free", "", &set, 4096.0);
    same("mem.total", "", &set, 4096.0);
    same("nic.rx_packets", "lo", &set, 1.0);
    assert!(set.each("task.user_time").count() > 2, "processes");
    assert!(set.each("task.rss").any(|(_, series)| series.values.iter().any(|v| *v > 4096.0)));
}

#[test]
fn a_trace_is_one_document() {
    let text = good(&["export", "--archive", archive(), "--trace", "-"]);
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let first = recorded(&["mem.free"]).span().unwrap().since as f64 / 1e3;
    for event in of("C") {
        assert!(event["ts"].as_f64().unwrap() >= first - 1e6, "{event}");
        let args = event["args"].as_object().unwrap();
        assert!(!args.is_empty() && args.values().all(|value| value.as_f64().is_some()), "{event}");
    }
    for name in ["CPU (CPUs)", "lost time (tasks)", "memory (bytes)", "runnable tasks", "lo (bytes per s)"] {
        assert!(of("C").iter().any(|event| event["name"] == name), "{name}");
    }
    let lives = of("X");
    assert!(lives.len() > 2 && lives.iter().all(|life| life["dur"].as_f64().unwrap() >= 0.0));
    assert!(lives.iter().all(|life| life["pid"].as_u64().unwrap() > 0 && life["name"].is_string()));
    assert_eq!(of("b").len(), of("e").len());
}

#[test]
fn a_pipe_is_written_to_and_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    good(&["export", "--archive", archive(), "--sar", pipe.to_str().unwrap()]);
    assert!(!std::fs::symlink_metadata(&pipe).unwrap().is_file());
    assert_eq!(reader.join().unwrap(), good(&["export", "--archive", archive(), "--sar", "-"]));
}

#[test]
fn steps_files_and_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let said = good(&["export", "--archive", archive(), "--sadf-json", path, "--every", "1h"]);
    assert!(said.contains(".sadf.json: ") && said.contains(" moments"), "{said}");
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "nothing half-written stays: {files:?}");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&files[0]).unwrap()).unwrap();
    assert!(json["sysstat"]["hosts"][0]["statistics"].as_array().unwrap().len() <= 2);
    for wrong in [
        &["export", "--archive", archive(), "--sar", "-", "--every", "100ms"][..],
        &["export", "--archive", archive(), "--sar", "-", "--every", "2h"],
        &["export", "--archive", archive(), "--sar", "-", "--metric", "mem.free"],
        &["export", "--archive", archive(), "--sar", "-", "--atop", "-"],
        &["export", "--archive", archive(), "--parquet", path, "--every", "10s"],
        &["export", "--archive", archive(), "--trace", "/nonexistent/x.json"],
    ] {
        assert_eq!(run(wrong).code, 2, "{wrong:?}");
    }
}
