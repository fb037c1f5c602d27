//! Commands that read a recording.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::{archive, good, run};
use crate::serve::Server;

fn dump(args: &[&str]) -> String {
    good(&[&["dump", "--archive", archive(), "--since", "@0"], args].concat())
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

#[test]
fn memory_is_what_the_kernel_says() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total_kib: f64 = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .and_then(|l| l.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap();
    let values = json_lines(&dump(&["--metric", "mem.total", "--json"]));
    assert!(values.len() > 10);
    for value in &values {
        assert_eq!(value["value"].as_f64(), Some(total_kib * 1024.0));
        assert_eq!((value["entity"].as_str(), value["row"].as_str()), (Some("system"), Some("")));
    }
    let raw = json_lines(&dump(&["--metric", "mem.total", "--json", "--raw"]));
    assert_eq!(raw[0]["value"].as_f64(), Some(total_kib), "raw values are as the kernel counts");
}

#[test]
fn csv_and_json_say_the_same() {
    let csv = dump(&["--metric", "vm.pgfault,task.cpu_time,task.comm", "--format", "csv"]);
    let json = json_lines(&dump(&["--metric", "vm.pgfault,task.cpu_time,task.comm", "--format", "json"]));
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("time,metric,entity,row,value"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), json.len());
    for (line, value) in lines.iter().zip(&json) {
        let (key, _) =
            (format!("{},{},", value["time"].as_str().unwrap(), value["metric"].as_str().unwrap()), ());
        assert!(line.starts_with(&key), "{line} and {value}");
    }
    let times: Vec<&str> = json.iter().map(|v| v["time"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "values come by time");
    let metrics: BTreeSet<&str> = json.iter().map(|v| v["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, BTreeSet::from(["task.comm", "task.cpu_time", "vm.pgfault"]));
    assert!(json.iter().all(|v| v["value"].is_number() != v["text"].is_string()));
}

#[test]
fn counters_are_rates_and_raw_counters_grow() {
    let rates = json_lines(&dump(&["--metric", "sys.ctxt", "--json"]));
    assert!(rates.len() > 5 && rates.iter().all(|v| v["value"].as_f64().unwrap() >= 0.0));
    let raw: Vec<f64> = json_lines(&dump(&["--metric", "sys.ctxt", "--json", "--raw"]))
        .iter()
        .map(|v| v["value"].as_f64().unwrap())
        .collect();
    assert!(raw.is_sorted() && raw.first() < raw.last(), "{raw:?}");
    assert_eq!(raw.len(), rates.len() + 1, "the first sample has no rate");
}

/// Time on all CPUs adds up to the time that passed, as far as ticks of 10 ms can tell.
#[test]
fn cpu_time_adds_up() {
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    let names = "sys.cpu_user,sys.cpu_nice,sys.cpu_system,sys.cpu_idle,sys.cpu_iowait,sys.cpu_irq,sys.cpu_softirq,sys.cpu_steal";
    let values = json_lines(&dump(&["--metric", names, "--json"]));
    let samples = values.iter().filter(|v| v["metric"] == "sys.cpu_idle").count() as f64;
    let sum: f64 = values.iter().map(|v| v["value"].as_f64().unwrap()).sum::<f64>() / samples;
    // Offline CPUs and processes that may not use all of them make the number of CPUs uncertain.
    let online = std::fs::read_to_string("/proc/stat").unwrap();
    let online = online.lines().filter(|l| l.starts_with("cpu") && !l.starts_with("cpu ")).count() as f64;
    assert!((sum - online).abs() < 0.2 * online, "{sum} CPUs of {online} ({cpus} usable)");
}

#[test]
fn rows_and_entities_select() {
    let pid = std::process::id();
    let all = json_lines(&dump(&["--entity", "task", "--metric", "task.t*", "--json"]));
    let rows: BTreeSet<&str> = all.iter().map(|v| v["row"].as_str().unwrap()).collect();
    assert!(rows.len() > 3 && rows.iter().all(|r| r.contains('@')), "{rows:?}");
    let own = json_lines(&dump(&["--metric", "task.threads", "--row", &pid.to_string(), "--json"]));
    assert!(
        !own.is_empty() && own.iter().all(|v| v["row"].as_str().unwrap().starts_with(&format!("{pid}@")))
    );
    let table = dump(&["--metric", "mem.free,mem.total"]);
    assert!(table.starts_with("TIME") && table.lines().count() > 10, "{table}");
    let list = dump(&["--list"]);
    assert!(list.contains("mem.free") && list.contains("task.comm"), "{list}");
}

#[test]
fn times_select() {
    let status: Value = serde_json::from_str(&good(&["status", "--json", "--archive", archive()])).unwrap();
    let until = status["span"]["until"].as_str().unwrap();
    let values = json_lines(&dump(&["--metric", "mem.free", "--json"]));
    let middle = values[values.len() / 2]["time"].as_str().unwrap();
    let late = json_lines(&good(&[
        "dump",
        "--archive",
        archive(),
        "--metric",
        "mem.free",
        "--json",
        "--since",
        middle,
        "--until",
        until,
    ]));
    assert!(late.len() < values.len() && late.iter().all(|v| v["time"].as_str().unwrap() >= middle));
}

#[test]
fn the_report_keeps_its_contract() {
    let report: Value = serde_json::from_str(&good(&["explain", "--json", "--archive", archive()])).unwrap();
    assert_eq!(report["schema"], "mitra.report/1");
    assert_eq!(report["source"], "archive");
    for key in ["since", "until"] {
        assert!(report["window"][key].as_str().unwrap().ends_with('Z'));
    }
    for list in ["incidents", "healthy"] {
        assert!(report[list].is_array(), "{list}");
    }
    assert!(report["recorder"]["unavailable"].is_array() && report["recorder"]["gaps"].is_array());
    assert!(report["ledger"]["lost_task_seconds"].as_f64().is_some_and(|s| s >= 0.0));
    let text = good(&["explain", "--archive", archive()]);
    let first = text.lines().next().unwrap();
    let verdict = first.starts_with("No incident on ") || first.as_bytes().get(2) == Some(&b':');
    assert!(verdict, "the first line is the verdict: {text}");
    assert!(!text.contains('\x1b'));
}

#[test]
fn a_baseline_can_be_named() {
    let values = json_lines(&dump(&["--metric", "mem.free", "--json"]));
    let time = |i: usize| values[i]["time"].as_str().unwrap().to_owned();
    let (first, middle) = (time(0), time(values.len() / 2));
    let report = good(&[
        "explain",
        "--json",
        "--archive",
        archive(),
        "--since",
        &middle,
        "--baseline",
        &format!("{first}..{middle}"),
    ]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(
        first.starts_with(report["baseline"]["since"].as_str().unwrap().trim_end_matches('Z')),
        "{report}"
    );
    let output = run(&["explain", "--archive", archive(), "--baseline", &format!("{middle}..{first}")]);
    assert_eq!(output.code, 2, "{}", output.err);
}

#[test]
fn the_status_has_the_outputs() {
    let dir = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(archive()).unwrap().flatten().filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
    }
    std::fs::create_dir(dir.path().join("send")).unwrap();
    let metrics = r#"{"until_ns": null, "tally": {"sent": 12345, "refused": 2, "dropped_s": 60}, "last_error": "no route; password=hunter2hunter2"}"#;
    std::fs::write(dir.path().join("send/metrics.json"), metrics).unwrap();
    let logs = r#"{"until_ns": null, "is_of_records": true}"#;
    std::fs::write(dir.path().join("send/logs.json"), logs).unwrap();
    let of_another = r#"{"until_ns": null, "archive": "/somewhere/else"}"#;
    std::fs::write(dir.path().join("send/elsewhere.json"), of_another).unwrap();
    let path = dir.path().to_str().unwrap();
    let text = good(&["status", "--archive", path]);
    assert!(text.contains("metrics: 12,345 samples taken, 2 refused, 1 min given up; no route"), "{text}");
    let status: Value = serde_json::from_str(&good(&["status", "--json", "--archive", path])).unwrap();
    assert_eq!(status["outputs"].as_array().map(Vec::len), Some(2), "{status}");
    assert_eq!(status["outputs"][0]["counts"], "records", "{status}");
    let output = &status["outputs"][1];
    assert_eq!(output["counts"], "samples", "{status}");
    assert_eq!((&output["sent"], &output["dropped_seconds"]), (&12_345.into(), &60.into()), "{status}");
    assert!(output["behind_seconds"].is_null(), "nothing was sent yet: {status}");
    let server = Server::start(&["--archive", path]);
    let served = server.json("/api/v1/status")["outputs"].clone();
    assert_eq!((served.as_array().map(Vec::len), &served[1]["sent"]), (Some(2), &12_345.into()), "{served}");
    assert!(!served.to_string().contains("hunter2"), "{served}");
}

#[test]
fn the_status_is_complete() {
    let text = good(&["status", "--archive", archive()]);
    for word in ["Archive", "Machine", "Recorded", "Size", "Gaps"] {
        assert!(text.contains(word), "{text}");
    }
    let status: Value = serde_json::from_str(&good(&["status", "--json", "--archive", archive()])).unwrap();
    assert!(status["frames"].as_u64().unwrap() >= 15, "{status}");
    // What only says who records is not part of it.
    let is_recorded = |e: &std::fs::DirEntry| {
        let name = e.file_name();
        [".log", ".seg"].iter().any(|end| name.to_string_lossy().ends_with(end))
    };
    let files = std::fs::read_dir(archive()).unwrap().map(|e| e.unwrap()).filter(is_recorded);
    let on_disk: u64 = files.map(|e| e.metadata().unwrap().len()).sum();
    let claimed = status["disk_bytes"].as_u64().unwrap();
    assert_eq!(claimed, on_disk);
    let parts: u64 = status["parts"].as_array().unwrap().iter().map(|p| p["bytes"].as_u64().unwrap()).sum();
    assert!(parts > 0 && parts <= claimed, "{status}");
}
