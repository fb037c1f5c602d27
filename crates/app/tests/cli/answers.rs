//! What `mitra serve` says of captures, of two ranges, of documents and of the archive: what the commands print.

use std::fs;
use std::path::{Path, PathBuf};

use mitra_archive::store_capture;
use mitra_model::capture::{Captured, Raw, RawStack, SCHEMA};
use serde_json::{Value, json};

use crate::harness::good;
use crate::serve::{Server, recording};

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// A copy of the recording, with whatever a test puts beside it.
fn copy(dir: &Path) -> PathBuf {
    let archive = dir.join("archive");
    fs::create_dir(&archive).unwrap();
    for file in fs::read_dir(recording()).unwrap().map(|file| file.unwrap()) {
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), archive.join(file.file_name())).unwrap();
        }
    }
    archive
}

/// Made up: stacks whose names would end what carries them.
fn captured(kind: &str, since_real: i64) -> Captured {
    let stack = |comm: &str, user: &[u64], weight| RawStack {
        pid: 7,
        comm: comm.into(),
        user: user.to_vec(),
        weight,
        count: 1,
        ..RawStack::default()
    };
    let raw = Raw {
        captured: Captured {
            schema: SCHEMA.into(),
            kind: kind.into(),
            why: "rule <b>x</b>".into(),
            host: "web1".into(),
            since_real,
            seconds: 2.0,
            events: 3,
            filter: [("pid".to_owned(), "7".to_owned())].into(),
            ..Captured::default()
        },
        weight: Some(("time off CPU", "s")),
        beside: "",
        stacks: vec![
            stack("a;b\u{1b}", &[1, 2], 1.5),
            stack("a;b\u{1b}", &[1, 2], 0.25),
            stack("</script>", &[3], 0.5),
            stack("none", &[3], 0.0),
        ],
    };
    raw.resolve(&mut |stack| stack.user.iter().map(|address| format!("f{address};\u{7f}")).collect())
}

#[test]
fn captures_are_listed_and_their_stacks_are_those_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let archive = copy(dir.path());
    const SECOND: i64 = 1_000_000_000;
    for (kind, second) in [("offcpu", 100), ("oncpu", 200), ("offcpu", 300)] {
        store_capture(&archive, &captured(kind, second * SECOND)).unwrap();
    }
    let plain = Captured { kind: "syscalls".into(), since_real: 400 * SECOND, ..Captured::default() };
    store_capture(&archive, &plain).unwrap();
    fs::write(archive.join("captures/20261121T163200.123Z-offcpu.json.zst"), "no pack").unwrap();
    let server = Server::start(&["--archive", text(&archive)]);
    let list = server.json("/api/v1/captures");
    let of = |list: &Value, what: &str| -> Vec<Value> {
        list["captures"].as_array().unwrap().iter().map(|one| one[what].clone()).collect()
    };
    assert_eq!(of(&list, "kind"), ["offcpu", "syscalls", "offcpu", "oncpu", "offcpu"]);
    assert!(list["captures"][0]["error"].as_str().unwrap().contains("cannot be read"), "{list}");
    assert_eq!(
        (&list["captures"][1]["weight"], &list["captures"][2]["weight"]),
        (&Value::Null, &json!("time off CPU"))
    );
    assert_eq!(list["captures"][2]["why"], "rule <b>x</b>");
    let some = server.json("/api/v1/captures?since=100&until=300&limit=1");
    assert_eq!((of(&some, "kind"), &some["left_out"]), (vec![json!("oncpu")], &json!(1)));
    assert_eq!(of(&server.json("/api/v1/captures?kind=oncpu"), "since"), ["1970-01-01T00:03:20.000Z"]);

    let id = list["captures"][2]["id"].as_str().unwrap();
    let answer = server.get(&format!("/api/v1/captures/{id}"));
    assert!(!answer.body.iter().any(|byte| *byte == 0x1b || *byte == 0x7f), "a terminal would execute it");
    let one = answer.json();
    let folded = good(&["capture", "--show", id, "--folded", "-", "--archive", text(&archive)]);
    let mut told: Vec<String> = one["profile"]["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stack| format!("{} {:.0}", stack[0].as_str().unwrap(), stack[1].as_f64().unwrap() * 1e6))
        .collect();
    told.sort();
    assert_eq!(told, folded.lines().collect::<Vec<_>>());
    assert_eq!(one["profile"]["cut"], json!({ "stacks": 0, "weight": 0.0 }));
    let shown: Value =
        serde_json::from_str(&good(&["capture", "--show", id, "--json", "--archive", text(&archive)]))
            .unwrap();
    assert_eq!((&one["tables"][0]["rows"], &one["host"]), (&shown["tables"][0]["rows"], &shown["host"]));
    for (path, status, code) in [
        ("/api/v1/captures/none", 404, "no_capture"),
        ("/api/v1/captures/..%2f..%2fetc%2fpasswd", 404, "no_capture"),
        ("/api/v1/captures/", 404, "no_path"),
        ("/api/v1/captures?limit=0", 400, "bad_number"),
        ("/api/v1/captures?since=2&until=1", 400, "bad_range"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{path}");
    }
    let status: Value =
        serde_json::from_str(&good(&["status", "--json", "--archive", text(&archive)])).unwrap();
    assert_eq!(server.json("/api/v1/status"), status);
    assert_eq!(status["captures"], 5);
}

#[test]
fn two_ranges_differ_as_the_command_says() {
    let server = Server::of_recording();
    let told = server.json("/api/v1/recording");
    let since: jiff::Timestamp = told["since"].as_str().unwrap().parse().unwrap();
    let at = |second: i64| since.as_second() + second;
    let archive = recording();
    let (a, b) = (format!("@{}..@{}", at(1), at(9)), format!("@{}..@{}", at(10), at(20)));
    let compared: Value =
        serde_json::from_str(&good(&["compare", "--json", "--archive", &archive, &a, &b])).unwrap();
    let path = |a_since, a_until, b_since, b_until| {
        format!("/api/v1/compare?a_since={a_since}&a_until={a_until}&b_since={b_since}&b_until={b_until}")
    };
    let answer = server.json(&path(at(1), at(9), at(10), at(20)));
    assert_eq!(answer, compared);
    assert!(answer["pairs"][0]["differences"].as_array().unwrap().len() > 5, "{answer}");
    for (path, status, code) in [
        (path(at(1), at(9), at(20), at(10)), 400, "bad_range"),
        (path(at(1), at(9), 1000, 2000), 404, "not_recorded"),
        (format!("/api/v1/compare?a_since={0}&a_until={1}&b_since={0}", at(1), at(9)), 400, "bad_parameter"),
    ] {
        let answer = server.get(&path);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{path}");
    }
}

#[test]
fn documents_are_found_shown_whole_and_with_what_became_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let archive = copy(dir.path());
    let server = Server::start(&["--archive", text(&archive)]);
    for path in ["/api/v1/search", "/api/v1/document?host=a&filename=b"] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.code().as_str()), (404, "no_index"), "{path}");
        assert!(answer.text().contains("mitra index --store"), "{}", answer.text());
    }
    let (etc, index) = (dir.path().join("etc"), archive.join("index"));
    fs::create_dir(&etc).unwrap();
    let conf = etc.join("app.conf");
    let config = dir.path().join("index.toml");
    fs::write(&config, format!("[index]\nfiles = [{etc:?}]\ncollectors = []\n")).unwrap();
    let read = || good(&["index", "--host", "web1", "--config", text(&config), "--store", text(&index)]);
    fs::write(&conf, "listen = 8080\nDB_PASSWORD=correct-horse-7\n").unwrap();
    read();
    fs::write(&conf, "listen = 9090\nDB_PASSWORD=correct-horse-7\n").unwrap();
    read();
    fs::write(etc.join("\"quoted\" *.conf"), "listen = 1\n").unwrap();
    read();
    let found = server.json("/api/v1/search?query=listen&limit=1");
    assert_eq!((&found["left_out"], found["documents"].as_array().unwrap().len()), (&json!(1), 1));
    let all = server.json("/api/v1/search?query=listen");
    let command: Value =
        serde_json::from_str(&good(&["search", "listen", "--json", "--store", text(&index)])).unwrap();
    let names = |list: &Value| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|one| one["filename"].clone()).collect()
    };
    assert_eq!(names(&all["documents"]), names(&command["hits"]));
    let told = |name: &Path| {
        let name: String =
            percent_encoding::utf8_percent_encode(text(name), percent_encoding::NON_ALPHANUMERIC).to_string();
        server.json(&format!("/api/v1/document?host=web1&filename={name}"))
    };
    let one = told(&conf);
    let shown: Value =
        serde_json::from_str(&good(&["show", "web1", text(&conf), "--json", "--store", text(&index)]))
            .unwrap();
    assert_eq!((&one["document"], &one["is_cut"]), (&shown, &json!(false)));
    assert!(!one.to_string().contains("correct-horse"), "{one}");
    let history = one["history"].as_array().unwrap();
    assert_eq!((history.len(), &history[0]["what"]), (1, &json!("changed")), "{one}");
    let diff = history[0]["changes"][0]["diff"].as_str().unwrap();
    assert!(diff.contains("-listen = 8080\n+listen = 9090\n"), "{diff}");
    // Its name is no pattern.
    let quoted = told(&etc.join("\"quoted\" *.conf"));
    assert_eq!(quoted["history"][0]["what"], "new", "{quoted}");
    assert_eq!(quoted["history"].as_array().unwrap().len(), 1, "{quoted}");
    for (path, status, code) in [
        ("/api/v1/search?query=filename:(", 400, "bad_query"),
        ("/api/v1/search?changed=perhaps", 400, "bad_parameter"),
        ("/api/v1/search?limit=201", 400, "bad_number"),
        ("/api/v1/document?host=web1", 400, "bad_parameter"),
        ("/api/v1/document?host=web1&filename=none", 404, "no_document"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{path}: {}", answer.text());
    }
    let changed = server.json("/api/v1/search?changed=true");
    assert_eq!(changed["documents"].as_array().unwrap().len(), 2, "{changed}");
}

/// A server of a recording of the laboratory.
fn of(name: &str) -> Server {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings");
    Server::start(&["--archive", text(&recordings.join(name).join("archive"))])
}

#[test]
fn who_stands_still_is_told_with_its_stack_and_its_threads() {
    let server = of("frozen-fs.loud.101");
    let moment = "/api/v1/processes?at=2026-11-21T18:41:20Z";
    let all = server.json(moment);
    let all = all["processes"].as_array().unwrap();
    let stack_of = |process: &Value| process["waits_in"][0].as_str().unwrap_or_default().to_owned();
    let stuck = all.iter().find(|process| stack_of(process).starts_with("percpu_rwsem_wait;"));
    let stuck = stuck.expect("a writer waits for the file system");
    let stack = stack_of(stuck);
    assert_eq!(stuck["state"], "D");
    let lost = stuck["lost"].as_f64().unwrap();
    assert!(lost > 0.9, "a lock of the kernel takes all of a second: {stuck}");
    let alone = server.json(&format!("{moment}&pid={}", stuck["pid"]));
    let [one] = &alone["processes"].as_array().unwrap()[..] else { panic!("one process: {alone}") };
    let tasks = one["tasks"].as_array().unwrap();
    assert_eq!(one["pid"], stuck["pid"]);
    assert!(
        tasks.iter().any(|task| task["row"] == one["row"] && task["tid"] == one["pid"]),
        "the first thread has the id of the process: {one}"
    );
    assert!(tasks.iter().any(|task| task["waits_in"] == stack), "{one}");
    assert!(all.iter().all(|process| process.get("tasks").is_none()), "only of the one that is asked for");
    assert_eq!(server.json(&format!("{moment}&pid=4294967295"))["processes"], json!([]));
    assert_eq!(server.get(&format!("{moment}&pid=0")).code(), "bad_number");
}

#[test]
fn processes_that_ended_are_told_by_parent_and_name() {
    let server = of("short-processes.25s.101");
    let told = server.json("/api/v1/processes?at=2026-11-21T18:42:29.500Z");
    let ended = told["ended"].as_array().unwrap();
    let of_name = ended.iter().find(|one| one["comm"] == "true").expect("they end each second");
    assert!(of_name["count"].as_f64().unwrap() >= 10.0 && of_name["ppid"].is_u64(), "{of_name}");
    assert_eq!(told["ended_left_out"], 0);
    let cpu: Vec<f64> = ended.iter().map(|one| one["cpu"].as_f64().unwrap_or(0.0)).collect();
    assert!(cpu.is_sorted_by(|a, b| a >= b), "{cpu:?}");
}

#[test]
fn a_setting_that_was_changed_is_told() {
    let server = of("drift-dirty.loud.7919");
    let told = server.json("/api/v1/changes");
    let changes = told["changes"].as_array().unwrap();
    let ratio = changes.iter().find(|change| change["name"] == "vm.dirty_ratio").expect("it was changed");
    assert_eq!((&ratio["kind"], &ratio["from"], &ratio["to"]), (&json!("sysctl"), &json!("20"), &json!("0")));
    assert!(told["index_error"].is_null() && changes.is_sorted_by_key(|change| change["at"].to_string()));
    let (since, at) = (told["since"].as_str().unwrap(), ratio["at"].as_str().unwrap());
    let before = server.json(&format!("/api/v1/changes?since={since}&until={at}"));
    let is_it = |change: &Value| change["name"] == "vm.dirty_ratio";
    assert!(!before["changes"].as_array().unwrap().iter().any(is_it), "{before}");
    assert_eq!(server.get("/api/v1/changes?since=1000&until=2000").code(), "not_recorded");
}

#[test]
fn cgroups_are_told_with_those_below_them() {
    let server = of("cpu-quota.loud.101");
    let told = server.json("/api/v1/cgroups?at=1795285075");
    let groups = told["cgroups"].as_array().unwrap();
    let cpu: Vec<f64> = groups.iter().map(|group| group["cpu"].as_f64().unwrap_or(0.0)).collect();
    assert!(cpu.is_sorted_by(|a, b| a >= b), "{cpu:?}");
    let path_of = |one: &Value| one["cgroup"].as_str().unwrap_or_default().to_owned();
    let limited = groups.iter().find(|group| path_of(group).ends_with("cartd-364"));
    let limited = limited.expect("the group has a quota");
    assert!(limited["throttled"].as_f64().unwrap() > 0.1, "{limited}");
    let processes = server.json("/api/v1/processes?at=1795285075");
    let processes = processes["processes"].as_array().unwrap();
    let inside: Vec<&Value> = processes.iter().filter(|one| one["cgroup"] == limited["cgroup"]).collect();
    assert_eq!(limited["processes"], json!(inside.len()));
    let lost: f64 = inside.iter().filter_map(|one| one["lost"].as_f64()).sum();
    assert!((limited["lost"].as_f64().unwrap_or(0.0) - lost).abs() < 1e-6, "{limited}: {lost}");
    let top = groups.iter().find(|group| path_of(group) == "/").expect("it is above all");
    let all = processes.iter().filter(|one| !one["cgroup"].is_null()).count();
    assert!(all > 1, "processes are in cgroups");
    assert_eq!(top["processes"], json!(all));
    assert_eq!(server.get("/api/v1/cgroups?at=1000").code(), "not_recorded");
}

#[test]
fn a_process_is_drawn_with_all_of_its_threads() {
    let server = of("busy-threads.loud.7919");
    let told = server.json("/api/v1/processes?at=1795302700&pid=26718");
    let process = &told["processes"][0];
    let tasks = process["tasks"].as_array().unwrap();
    assert!(tasks.len() > 1, "it has threads: {process}");
    // Of a tenth of a second, so that a column has one sample at most.
    let cpu_time = |row: &Value, more: &str| -> Vec<f32> {
        let row = row.as_str().unwrap();
        let answer = server.get(&format!(
            "/api/v1/series?metric=task.cpu_time&row={row}&since=1795302699&until=1795302701&columns=20{more}"
        ));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let medians = answer.body[32..].chunks_exact(4).skip(2 * 20).take(20);
        medians.map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    };
    let of_process = cpu_time(&process["row"], "&process=true");
    let of_threads: Vec<Vec<f32>> = tasks.iter().map(|task| cpu_time(&task["row"], "")).collect();
    assert!(of_process.iter().any(|value| *value > 0.0), "{of_process:?}");
    for (column, value) in of_process.iter().enumerate().filter(|(_, value)| value.is_finite()) {
        let sum: f32 = of_threads.iter().map(|one| one[column]).filter(|value| value.is_finite()).sum();
        assert!((value - sum).abs() < 1e-4, "{value} of the process, {sum} of its threads");
    }
    let most = |values: &[f32]| values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f32::max);
    assert!(of_threads.iter().all(|one| most(one) < most(&of_process)), "each thread has a part of it");
    let wrong = "/api/v1/series?metric=sys.ctxt&columns=3&process=1";
    assert_eq!(server.get(wrong).code(), "bad_parameter");
}
