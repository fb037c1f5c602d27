//! `mitra export` in the forms of other tools: their readers read back what the recording holds, and Python the trace.

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Query, Reader, Writer};
use mitra_model::{Entity, Frame, HostInfo, Key, SeriesSet, Span, Stamp, Strings, column, lookup};
use mitra_parse::text::Import;
use tempfile::TempDir;

use crate::harness::{archive, good, run};

const SECOND: i64 = 1_000_000_000;
/// 2026-11-21T03:40:00Z, in seconds.
const SINCE: i64 = 1_795_232_400;

fn recorded(metrics: &[&str]) -> SeriesSet {
    let reader = Reader::open(archive().as_ref()).unwrap();
    let metrics = metrics.iter().map(|name| lookup(name).unwrap()).collect();
    reader.read(&Query::new(reader.span().unwrap(), metrics)).unwrap()
}

/// A recording of so many boots, each of so many seconds.
pub fn simulated(boots: u32, seconds: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for boot in 0..boots {
        let mut machine = Machine::new(3, 1, 3);
        let boot_id = format!("00000000-0000-0000-0000-{boot:012}");
        let host = HostInfo { boot_id, ..Machine::host() };
        let mut writer = Writer::open(dir.path(), &host, Options::default()).unwrap();
        for _ in 0..seconds {
            machine.tick();
            writer.append(machine.frame(), machine.strings()).unwrap();
        }
        writer.finish().unwrap();
    }
    dir
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

/// Boots a minute apart, with a frame at each whole second.
fn by_hand(boots: i64, seconds: i64, fill: impl Fn(i64, &mut Frame, &mut Strings)) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for boot in 0..boots {
        let host = HostInfo { boot_id: format!("boot {boot}"), ..Machine::host() };
        let mut writer = Writer::open(dir.path(), &host, Options::default()).unwrap();
        let (mut frame, mut strings) = (Frame::new(), Strings::new());
        for second in 1..=seconds {
            fill(second, &mut frame, &mut strings);
            let ns = second * SECOND;
            let real = SINCE * SECOND + boot * (seconds + 60) * SECOND + ns;
            frame.time = Stamp { real, mono: ns, boot: ns };
            writer.append(&frame, &strings).unwrap();
            frame.clear();
        }
        writer.finish().unwrap();
    }
    dir
}

fn system(frame: &mut Frame, metric: &str, cell: i64) {
    frame.system_mut()[column(metric).unwrap()] = cell;
}

#[test]
fn a_reboot_is_told() {
    let dir = by_hand(2, 20, |second, frame, _| system(frame, "sys.ctxt", 100 * second));
    let to = |form: &str| good(&["export", "--archive", dir.path().to_str().unwrap(), form, "-"]);
    let json: serde_json::Value = serde_json::from_str(&to("--sadf-json")).unwrap();
    let restarts = json["sysstat"]["hosts"][0]["restarts"].as_array().unwrap();
    assert_eq!(restarts.len(), 1, "{restarts:?}");
    assert_eq!(restarts[0]["boot"]["cpu_count"], 2);
    let text = to("--sar");
    let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert_eq!((count("LINUX RESTART\t(2 CPU)"), count("cswch/s")), (1, 2), "{text}");
    // The first interval of the second boot does not reach into the first one.
    let set = read("sar.txt", &text);
    let samples = set.get("sys.ctxt", "").unwrap().samples(Span::ALL);
    let intervals: Vec<f64> = samples.map(|(_, dt, _)| dt).collect();
    assert_eq!(intervals, [1.0; 38]);
}

#[test]
fn a_trace_has_levels_where_they_were_measured_and_the_last_name_of_a_process() {
    // A shell becomes another program, later than what is read at a time.
    let dir = by_hand(1, 120, |second, frame, strings| {
        let name = strings.intern(if second <= 90 { "sh" } else { "java" });
        let cells = frame.table_mut(Entity::Task).push(Key::task(7, 1));
        for (metric, cell) in [("task.tgid", 7), ("task.ppid", 1), ("task.comm", i64::from(name))] {
            cells[column(metric).unwrap()] = cell;
        }
        system(frame, "mem.free", second);
    });
    let text = good(&["export", "--archive", dir.path().to_str().unwrap(), "--trace", "-", "--every", "10s"]);
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let levels = events.iter().filter(|event| event["name"] == "memory (bytes)");
    let times: Vec<i64> = levels.map(|event| (event["ts"].as_f64().unwrap() / 1e6) as i64 - SINCE).collect();
    assert_eq!((times.first(), times.last(), times.len()), (Some(&9), Some(&120), 13), "{times:?}");
    let life = events.iter().find(|event| event["ph"] == "X").unwrap();
    assert_eq!((life["name"].as_str(), life["dur"].as_f64()), (Some("java"), Some(119e6)));
}
