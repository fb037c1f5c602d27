//! `mitra serve`: the real binary on a recording of the laboratory, asked through its socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{self, Running, command, good, run};

pub const RECORDING: &str = "disk-hog-writes.loud.101";
/// Far longer than an answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn recording() -> String {
    let dir =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings").join(RECORDING).join("archive");
    dir.to_str().expect("the path is UTF-8").to_owned()
}

/// A server, and where it listens.
pub struct Server {
    pub running: Running,
    pub address: String,
    /// A header of each question.
    token: String,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Server {
    pub fn start(args: &[&str]) -> Server {
        let mut running = Running::start(command(&["serve", "--listen", "127.0.0.1:0"]).args(args));
        let line = running.line();
        let told = line.trim().strip_prefix("http://").and_then(|rest| rest.split_once('/'));
        let (address, token) = told.unwrap_or_else(|| panic!("no address: {line}"));
        let token = token.strip_prefix("?token=").map(|token| format!("Authorization: Bearer {token}\r\n"));
        Server { running, address: address.to_owned(), token: token.unwrap_or_default() }
    }

    pub fn of_recording() -> Server {
        Server::start(&["--archive", &recording()])
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream
    }

    pub fn get(&self, path: &str) -> Answer {
        self.with(path, &[])
    }

    pub fn with(&self, path: &str, headers: &[&str]) -> Answer {
        let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let more = more + &self.token;
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{more}\r\n", self.address))
    }

    pub fn raw(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        // A refusal may come before everything is written.
        _ = stream.write_all(request.as_bytes());
        read(&mut stream)
    }

    /// An answer that has to be good.
    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        answer.json()
    }
}

pub fn read(stream: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    // A connection that is reset after the answer has given the answer.
    match stream.read_to_end(&mut bytes) {
        Err(error) if bytes.is_empty() => panic!("no answer: {error}"),
        _ => {}
    }
    let end =
        bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {bytes:?}"));
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head, body: bytes.split_off(end + 4) }
}

/// Seconds since 1970 of RFC 3339 in UTC, as GNU date reads it.
fn seconds(moment: &str) -> f64 {
    let output =
        Command::new("date").args(["-u", "+%s.%N", "-d", moment]).output().expect("date can be started");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{moment} is no moment"))
}

#[test]
fn what_is_told_is_what_the_commands_say() {
    let (server, archive) = (Server::of_recording(), recording());
    let told = server.json("/api/v1/recording");
    assert_eq!(told["schema"], "mitra.recording/1");
    assert_eq!((&told["is_live"], &told["interval_s"]), (&Value::Bool(false), &serde_json::json!(1.0)));
    let (since, until) = (told["since"].as_str().unwrap(), told["until"].as_str().unwrap());
    let range = format!("since={since}&until={until}");

    let explained: Value =
        serde_json::from_str(&good(&["explain", "--json", "--archive", &archive])).unwrap();
    assert_eq!(server.json("/api/v1/report"), explained);
    assert!(!explained["incidents"].as_array().unwrap().is_empty());
    let list = server.json("/api/v1/incidents");
    let (first, of_report) = (&list["incidents"][0], &explained["incidents"][0]);
    assert_eq!(first["root"]["id"], of_report["root_cause"]["condition"]);
    assert_eq!((&first["since"], &first["until"]), (&of_report["onset"], &of_report["end"]));
    assert_eq!(first["culprit"], of_report["root_cause"]["culprit"]);
    assert!(
        good(&["explain", "--archive", &archive])
            .contains(first["headline"].as_str().unwrap().split(';').next().unwrap())
    );
    let one = server.json("/api/v1/report?incident=1");
    assert_eq!(one["incidents"], serde_json::json!([of_report]));

    let page = server.get("/api/v1/report.html?incident=1");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.text().contains("<svg") && !page.text().contains("<script"));

    let known: Value = serde_json::from_str(&good(&["metrics", "--json"])).unwrap();
    assert_eq!(server.json("/api/v1/metrics").as_array().unwrap().len(), known.as_array().unwrap().len());
    let disks = server.json("/api/v1/metrics?entity=disk");
    assert!(disks.as_array().unwrap().iter().all(|metric| metric["entity"] == "disk"));

    let services = run(&["services", "--json", "--since", since, "--archive", &archive]);
    let answer = server.get(&format!("/api/v1/services?{range}"));
    match services.code {
        0 => assert_eq!(
            answer.json()["services"],
            serde_json::from_str::<Value>(&services.out).unwrap()["services"]
        ),
        _ => assert_eq!((answer.status, answer.code().as_str()), (404, "no_services")),
    }
    assert_eq!(server.json("/api/v1/openapi.json")["openapi"], "3.1.0");
    assert!(server.get("/").text().contains("<html"));
}

#[test]
fn columns_hold_the_values_that_dump_prints() {
    let (server, archive) = (Server::of_recording(), recording());
    let told = server.json("/api/v1/recording");
    let since = seconds(told["since"].as_str().unwrap()).floor();
    let until = since + 24.0;
    let answer = server.get(&format!(
        "/api/v1/series?metric=sys.ctxt&metric=disk.write_bytes&row=vda&metric=disk.reads&row=none&since={since}&until={until}&columns=3"
    ));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let u32_at = |at: usize| u32::from_le_bytes(answer.body[at..at + 4].try_into().unwrap());
    let f64_at = |at: usize| f64::from_le_bytes(answer.body[at..at + 8].try_into().unwrap());
    let f32_at = |at: usize| f32::from_le_bytes(answer.body[at..at + 4].try_into().unwrap());
    assert_eq!([u32_at(0), u32_at(4), u32_at(8), u32_at(12)], [0x3154_524D, 3, 3, 0]);
    assert_eq!((f64_at(16), f64_at(24)), (since, 8.0));
    assert_eq!(answer.body.len(), 32 + 3 * 5 * 3 * 4);
    let value =
        |series: usize, line: usize, column: usize| f32_at(32 + ((series * 5 + line) * 3 + column) * 4);
    let dumped = good(&[
        "dump",
        "--json",
        "--metric",
        "sys.ctxt",
        "--archive",
        &archive,
        "--since",
        &format!("@{since}"),
        "--until",
        &format!("@{until}"),
    ]);
    for column in 0..3 {
        let (from, to) = (since + 8.0 * column as f64, since + 8.0 * (column + 1) as f64);
        let mut values: Vec<f32> = dumped
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|line| (from..to).contains(&seconds(line["time"].as_str().unwrap())))
            .map(|line| line["value"].as_f64().unwrap() as f32)
            .collect();
        values.sort_by(f32::total_cmp);
        assert!(values.len() >= 6, "{column}: {values:?}");
        assert_eq!(value(0, 0, column), values[0]);
        assert_eq!(value(0, 2, column), values[(values.len() - 1) / 2]);
        assert_eq!(value(0, 4, column), values[values.len() - 1]);
        assert!((0..4).all(|line| value(0, line, column) <= value(0, line + 1, column)));
        assert!((0..5).all(|line| value(2, line, column).is_nan()), "there is no such disk");
    }
    let again = server.get(&format!("/api/v1/series?metric=sys.ctxt&since={since}&until={until}&columns=3"));
    assert_eq!(again.body[32..], answer.body[32..32 + 60], "from the cache");
    let many = format!("/api/v1/series?metric=sys.ctxt&since={since}&until={until}&columns=1000");
    let packed = server.with(&many, &["Accept-Encoding: gzip"]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(packed.body.as_slice()).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, server.get(&many).body);
    let before = server.get("/api/v1/series?metric=sys.ctxt&since=0&until=1000&columns=2");
    assert!(before.body[32..].chunks(4).all(|four| f32::from_le_bytes(four.try_into().unwrap()).is_nan()));
}

#[test]
fn rows_and_processes_are_those_of_the_machine() {
    let server = Server::of_recording();
    let rows = server.json("/api/v1/rows?metric=task.write_bytes&limit=3");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(
        rows[0]["row"].as_str().unwrap().contains('@') && rows[0]["label"].as_str().unwrap().ends_with(')'),
        "{rows:?}"
    );
    assert!(rows.iter().all(|row| row["max"].as_f64() >= row["mean"].as_f64()));
    let disks = server.json("/api/v1/rows?metric=disk.io_time");
    assert!(disks.as_array().unwrap().iter().all(|row| row["mean"].as_f64().unwrap() <= 1.01), "{disks}");
    let told = server.json(&format!(
        "/api/v1/processes?at={}",
        server.json("/api/v1/recording")["until"].as_str().unwrap()
    ));
    let processes = told["processes"].as_array().unwrap();
    let kthreadd = processes.iter().find(|process| process["pid"] == 2).expect("each machine has a kthreadd");
    assert!(
        kthreadd["comm"] == "kthreadd"
            && kthreadd["state"] == "S"
            && kthreadd["kthread"] == true
            && kthreadd["rss"].is_null(),
        "{kthreadd}"
    );
    let order: Vec<f64> = processes.iter().map(|process| process["cpu"].as_f64().unwrap_or(0.0)).collect();
    assert!(order.is_sorted_by(|a, b| a >= b));
}

#[test]
fn what_is_wrong_is_refused_and_never_the_servers_fault() {
    let server = Server::of_recording();
    for (path, status, code) in [
        ("/api/v1/nothing", 404, "no_path"),
        ("/../etc/passwd", 404, "no_path"),
        ("/api/v1/recording?x=1", 400, "bad_parameter"),
        ("/api/v1/metrics?entity=planet", 400, "bad_entity"),
        ("/api/v1/incidents?since=yesterday", 400, "bad_time"),
        ("/api/v1/incidents?since=2000&until=1000", 400, "bad_range"),
        ("/api/v1/incidents?since=1000&until=2000", 404, "not_recorded"),
        ("/api/v1/incidents?until=1000", 404, "not_recorded"),
        ("/api/v1/series?metric=sys.ctxt&columns=3&since=9000000000", 404, "not_recorded"),
        ("/api/v1/incidents?since=-9223372036&until=9223372036", 200, ""),
        ("/api/v1/report?incident=0", 400, "bad_number"),
        ("/api/v1/report?incident=999", 404, "no_incident"),
        ("/api/v1/report.html?incident=99999999999999999999", 400, "bad_number"),
        ("/api/v1/rows", 400, "bad_parameter"),
        ("/api/v1/rows?metric=no.metric", 404, "no_metric"),
        ("/api/v1/rows?metric=task.comm", 400, "not_a_number"),
        ("/api/v1/rows?metric=task.cpu_time&limit=0", 400, "bad_number"),
        ("/api/v1/series?metric=sys.ctxt", 400, "bad_number"),
        ("/api/v1/series?columns=10", 400, "bad_parameter"),
        ("/api/v1/series?metric=sys.ctxt&columns=4097", 400, "bad_number"),
        ("/api/v1/series?metric=disk.reads&columns=10", 400, "no_row"),
        ("/api/v1/series?row=vda&metric=disk.reads&columns=10", 400, "bad_parameter"),
        ("/api/v1/processes?at=1000", 404, "not_recorded"),
        ("/api/v1/processes?span=0", 400, "bad_number"),
        ("/api/v1/stream?a=%ff", 400, "bad_parameter"),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        if status != 200 {
            assert_eq!(answer.code(), code, "{path}");
        }
    }
    let many = format!("/api/v1/series?columns=1{}", "&metric=sys.ctxt".repeat(33));
    assert_eq!(server.get(&many).status, 400);
    assert_eq!(server.get(&format!("/{}", "a".repeat(20_000))).status, 431);
    let host = &server.address;
    assert_eq!(
        server.raw(&format!("POST / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).status,
        405
    );
    assert_eq!(server.raw("hello\r\n\r\n").status, 400);
    let gigabyte =
        format!("GET /api/v1/recording HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000000\r\n\r\n");
    let start = Instant::now();
    let refused = server.raw(&format!("{gigabyte}{}", "x".repeat(1 << 20)));
    assert_eq!((refused.status, refused.code().as_str()), (413, "too_large"));
    assert!(start.elapsed() < Duration::from_secs(10), "the connection is closed without reading all");
}

/// Questions made from what the OpenAPI document says, right ones and wrong ones.
#[test]
fn nothing_that_the_document_allows_is_the_servers_fault() {
    let Some(python) = harness::python("schemathesis") else {
        println!("skipped: no Python with schemathesis; run: tools/install-deps.sh test");
        return;
    };
    let (server, dir) = (Server::of_recording(), tempfile::tempdir().unwrap());
    let url = format!("http://{}", server.address);
    let mut tester = Command::new(python.with_file_name("schemathesis"));
    tester.current_dir(dir.path()).args([
        "--no-color",
        "run",
        &format!("{url}/api/v1/openapi.json"),
        "--url",
        &url,
    ]);
    // Events have no end.
    tester.args(["--exclude-path", "/api/v1/stream", "--checks", "not_a_server_error", "--workers", "1"]);
    tester.args(["--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--seed", "1"]);
    let said = harness::finish(tester.args(["--request-timeout", "60"]));
    assert_eq!(said.code, 0, "{}", said.out);
    let count =
        said.out.split_once(" generated, ").and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
    assert!(count.is_some_and(|count: u32| count > 300), "{}", said.out);
    let recording = server.json("/api/v1/recording");
    assert_eq!(recording["schema"], "mitra.recording/1", "it still answers");
}

#[test]
fn a_client_that_waits_is_told_when_the_recording_has_grown() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().to_str().unwrap();
    let mut recorder = Running::start(&mut command(&[
        "record",
        "--no-bpf",
        "--no-arm",
        "--interval",
        "200ms",
        "--archive",
        archive,
    ]));
    assert!(recorder.line().starts_with("recording "));
    harness::wait_for_frames(archive, 5);
    let server = Server::start(&["--archive", archive]);
    assert_eq!(server.json("/api/v1/recording")["is_live"], true);
    let mut stream = server.connect();
    stream
        .write_all(
            format!("GET /api/v1/stream HTTP/1.1\r\nHost: {}\r\n{}\r\n", server.address, server.token)
                .as_bytes(),
        )
        .unwrap();
    let mut said = String::new();
    while said.matches("event: sample").count() < 3 {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).expect("events come");
        assert!(count > 0, "it ended: {said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    let until: Vec<&str> =
        said.split("\"until\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(until.is_sorted() && until[0] < until[2], "{until:?}");
    // One that listens does not keep it from ending.
    let start = Instant::now();
    let (status, err) = server.running.end(Signal::TERM);
    assert!(status.success() && err.is_empty(), "{status}: {err}");
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(recorder.end(Signal::TERM).0.success());
}

#[test]
fn hostile_names_are_only_text() {
    let name = "\u{1b}]0;\"}<b>\\\u{7f}";
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("sleeper");
    let source = PathBuf::from("/bin/sleep");
    std::fs::copy(source, &program).unwrap();
    let hostile = dir.path().join(name);
    std::fs::rename(&program, &hostile).unwrap();
    let mut sleeper = Command::new(&hostile).arg("60").stdout(Stdio::null()).spawn().unwrap();
    let archive = dir.path().join("archive");
    let archive = archive.to_str().unwrap();
    let mut recorder = Running::start(&mut command(&[
        "record",
        "--no-bpf",
        "--no-arm",
        "--interval",
        "200ms",
        "--archive",
        archive,
    ]));
    assert!(recorder.line().starts_with("recording "));
    harness::wait_for_frames(archive, 5);
    assert!(recorder.end(Signal::TERM).0.success());
    _ = sleeper.kill();
    _ = sleeper.wait();
    // Only its owner may read the archive, so that nobody else may ask.
    let mut server = Server::start(&["--archive", archive]);
    let token = std::mem::take(&mut server.token);
    assert_eq!(server.get("/api/v1/processes").status, 401);
    server.token = token;
    let answer = server.get("/api/v1/processes");
    let told = answer.json();
    let found = told["processes"].as_array().unwrap().iter().find(|process| process["pid"] == sleeper.id());
    assert_eq!(found.unwrap_or_else(|| panic!("{told}"))["comm"], name);
    assert!(!answer.body.iter().any(|byte| *byte == 0x1b || *byte == 0x7f), "a terminal would execute it");
}

#[test]
fn prometheus_reads_the_metrics() {
    let server = Server::of_recording();
    let answer = server.get("/metrics");
    assert_eq!(answer.status, 200);
    assert!(
        answer.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0")
    );
    let text = answer.text();
    assert!(
        text.ends_with("\n# EOF\n") && text.contains("\nmitra_incident_lost_seconds{condition=\""),
        "{text}"
    );
    // Each family once, its samples together, its unit the end of its name.
    let mut families: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap();
            assert!(!families.contains(&name), "{name} comes twice");
            families.push(name);
        } else if let Some(unit) = line.strip_prefix("# UNIT ") {
            let (name, unit) = unit.split_once(' ').unwrap();
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(families.last().unwrap()), "{line} is not of {:?}", families.last());
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(families.len() > 40, "{families:?}");
    let Ok(mut promtool) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        println!("skipped: promtool (package prometheus) is not here");
        return;
    };
    // It knows the older format only, which has no units and names counters with their ending.
    let older: String = text
        .lines()
        .filter(|line| !line.starts_with("# UNIT") && *line != "# EOF")
        .map(|line| {
            let is_counter = line.starts_with("# TYPE") && line.ends_with(" counter");
            let name = line.split(' ').nth(2).unwrap_or_default();
            let of_counter = line.starts_with("# HELP") && text.contains(&format!("# TYPE {name} counter\n"));
            let line = if is_counter || of_counter {
                line.replacen(name, &format!("{name}_total"), 1)
            } else {
                line.to_owned()
            };
            line + "\n"
        })
        .collect();
    promtool.stdin.take().unwrap().write_all(older.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&said.stderr);
    // 3: words of style, such as a unit in a name of a metric.
    assert!(matches!(said.status.code(), Some(0 | 3)), "{errors}");
}
