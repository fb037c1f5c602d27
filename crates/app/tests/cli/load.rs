//! `mitra load` as scripts use it: what it prints, its exit codes, and what a recording knows of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Running, command, good, is_root, run, wait_for_frames};

/// A server that answers each request of a connection, `status` and all; it ends with the process.
fn server(status: &'static str) -> String {
    server_that_tells(status).0
}

/// The same, and what tells of each request.
fn server_that_tells(status: &'static str) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (seen, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = seen.clone();
            std::thread::spawn(move || answer(&stream, status, || _ = seen.send(())));
        }
    });
    (url, requests)
}

fn answer(stream: &TcpStream, status: &str, seen: impl Fn()) {
    let mut writer = stream;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        if !line.is_empty() {
            continue;
        }
        seen();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&good(&[args, &["--json", "--no-mark"]].concat())).unwrap()
}

/// Without the breaks of its lines.
fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn wrong_usage_ends_with_2_and_no_answer_with_1() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for wrong in [
        &["load"][..],
        &["load", "http://127.0.0.1:1/"],
        &["load", "127.0.0.1:1", "--rate", "1/s"],
        &["load", "http://127.0.0.1:1/", "--rate", "1"],
        &["load", "http://127.0.0.1:1/", "--rate", "1/s", "--find-knee"],
        &["load", "http://127.0.0.1:1/", "--rate", "1..2/s", "--find-knee"],
        &["load", "http://127.0.0.1:1/", "--rate", "2000..1000/s", "--find-knee"],
        &["load", "http://127.0.0.1:99999/", "--rate", "1/s"],
        &["load", "http://127.0.0.1:808O/", "--rate", "1/s"],
        &["load", "http://127.0.0.1:1/", "--rate", "1/s", "--duration", "0s"],
        &["load", "http://127.0.0.1:1/", "--rate", "1/s", "--at", "@5"],
        &["load", "http://127.0.0.1:1/", "--rate", "1/s", "-H", "Content-Length: 3"],
        &["load", "http://127.0.0.1:1/", "--rate", "1/s", "--streams", "5"],
        &["load", "http://127.0.0.1:1/", "--rate", "1/s", "--replay", path],
        &["load", "http://127.0.0.1:1/", "http://127.0.0.1:2/", "--replay", path],
        &["load", "merge"],
        &["load", "merge", path],
    ] {
        let said = run(wrong);
        assert_eq!(said.code, 2, "{wrong:?}: {} {}", said.out, said.err);
    }
    let short = ["--rate", "20/s", "--duration", "500ms", "--no-mark"];
    let refused = run(&[&["load", "http://127.0.0.1:1/"], &short[..]].concat());
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.out.starts_with("no request was answered: refused 10\n"), "{}", refused.out);
    let unknown = run(&[&["load", "http://no-such-host.invalid/"], &short[..]].concat());
    assert_eq!(unknown.code, 1, "{}", unknown.out);
    assert!(unknown.err.contains("no-such-host.invalid"), "{}", unknown.err);
    let missing = run(&[&["load", "http://127.0.0.1:1/", "--body", "/nonexistent"], &short[..]].concat());
    assert_eq!(missing.code, 1, "{}", missing.err);
}

#[test]
fn the_verdict_comes_first() {
    let url = server("200 OK");
    let said = run(&["load", &url, "--rate", "100/s", "--duration", "1s", "--no-mark"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.contains("100 due, 100 answered") && said.out.contains("200: 100"), "{}", said.out);
    // Half a second between two requests: no machine is as busy as that.
    let said = run(&["load", &url, "--rate", "2/s", "--duration", "2s", "--no-mark"]);
    assert!(in_a_line(&said.out).contains("kept 2/s for 2s; "), "{}", said.out);
    let said = run(&["load", &server("404 Not Found"), "--rate", "2/s", "--duration", "1s", "--no-mark"]);
    assert!(in_a_line(&said.out).contains("kept 2/s for 1s, 100.0 % were 404; "), "{}", said.out);
    let said = run(&["load", &server("503 Busy"), "--rate", "20/s", "--duration", "1s", "--no-mark"]);
    assert_eq!(said.code, 0);
    assert!(said.out.contains("did not keep") && said.out.contains("20 failed"), "{}", said.out);
}

#[test]
fn results_of_several_machines_add_up() {
    let url = server("200 OK");
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (name, rate) in [("a", "50/s"), ("b", "150/s")] {
        let path = folder.path().join(name).to_str().unwrap().to_owned();
        let args = ["load", &url, "--rate", rate, "--duration", "1s", "--json", "--no-mark"];
        std::fs::write(&path, good(&args)).unwrap();
        files.push(path);
    }
    let one: Value = serde_json::from_str(&std::fs::read_to_string(&files[0]).unwrap()).unwrap();
    assert_eq!(
        (&one["schema"], &one["requests"], &one["runs"]),
        (&"mitra.load/1".into(), &50.into(), &1.into())
    );
    let args: Vec<&str> =
        ["load", "merge", "--json"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let sum: Value = serde_json::from_str(&good(&args)).unwrap();
    assert_eq!((&sum["requests"], &sum["answered"], &sum["runs"]), (&200.into(), &200.into(), &2.into()));
    assert_eq!((&sum["latency"]["count"], &sum["statuses"]["200"]), (&200.into(), &200.into()));
    let said = in_a_line(&good(&["load", "merge", &files[0], &files[1]]));
    assert!(said.contains(" of 2 runs (50/s for 1s; 150/s for 1s)"), "{said}");
    // What is no result is refused, wherever it stands.
    let other = std::fs::read_to_string(&files[1]).unwrap().replace("mitra.load/1", "mitra.load/2");
    let path = folder.path().join("other").to_str().unwrap().to_owned();
    std::fs::write(&path, other).unwrap();
    for order in [[&files[0], &path], [&path, &files[0]]] {
        assert_eq!(run(&["load", "merge", order[0], order[1]]).code, 2);
    }
    std::fs::write(&files[1], &std::fs::read(&files[1]).unwrap()[..500]).unwrap();
    assert_eq!(run(&["load", "merge", &files[0], &files[1]]).code, 2);
}

#[test]
fn secrets_come_from_files_that_only_the_owner_reads() {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "Bearer geheim\n").unwrap();
    let header = format!("Authorization: @{}", file.path().display());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a?b", listener.local_addr().unwrap());
    let args =
        ["load", &url, "--rate", "1/s", "--duration", "500ms", "--timeout", "2s", "--no-mark", "-H", &header];
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = run(&args);
    assert!(said.code == 1 && said.err.contains("0600") && !said.err.contains("geheim"), "{}", said.err);
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 2048];
        let n = stream.read(&mut bytes).unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        String::from_utf8_lossy(&bytes[..n]).to_ascii_lowercase()
    });
    assert_eq!(run(&args).code, 0);
    let asked = asked.join().unwrap();
    assert!(asked.starts_with("get /a?b http/1.1\r\n"), "{asked}");
    assert!(
        asked.contains("authorization: bearer geheim\r\n") && asked.contains("user-agent: mitra/"),
        "{asked}"
    );
    assert!(asked.contains("host: 127.0.0.1:"), "{asked}");
}

#[test]
fn secrets_do_not_go_over_the_network_in_clear() {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "Bearer geheim\n").unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let header = format!("Authorization: @{}", file.path().display());
    let args = ["load", "http://no-such-host.invalid/", "--rate", "1/s", "--no-mark", "-H", &header];
    let said = run(&args);
    assert!(said.code == 2 && said.err.contains("--insecure"), "{}", said.err);
    // Then it goes on as far as the name.
    let said = run(&[&args[..], &["--insecure"]].concat());
    assert!(said.code == 1 && said.err.contains("no-such-host.invalid"), "{}", said.err);
}

#[test]
fn a_step_is_a_result() {
    let said = json(&["load", &server("200 OK"), "--rate", "1000..1000/s", "--find-knee", "--step", "1s"]);
    let step = &said["steps"][0];
    assert_eq!((&said["schema"], &step["rate"]), (&"mitra.load.knee/1".into(), &1000.0_f64.into()));
    assert_eq!((&step["schema"], &step["requests"]), (&"mitra.load/1".into(), &1000.into()));
    assert!(step["verdict"].is_string() && step["is_kept"].is_boolean(), "{step}");
}

#[test]
fn who_is_stopped_prints_what_there_is() {
    let (url, requests) = server_that_tells("200 OK");
    let mut running =
        Running::start(&mut command(&["load", &url, "--rate", "100/s", "--duration", "1h", "--no-mark"]));
    requests.recv().unwrap();
    running.signal(Signal::INT);
    assert!(running.line().starts_with("stopped before its end; "));
    let (status, err) = running.wait();
    assert_eq!((status.code(), err.as_str()), (Some(130), ""));
}

#[test]
fn a_log_is_replayed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let line = |s: u32| format!("::1 - - [27/Nov/2026:10:00:{s:02} +0000] \"GET /{s} HTTP/1.1\" 200 1\n");
    std::fs::write(file.path(), line(0) + &line(1) + &line(4) + "nothing\n").unwrap();
    let said = json(&["load", &server("200 OK"), "--replay", file.path().to_str().unwrap(), "--speed", "10"]);
    assert_eq!((&said["requests"], &said["unread_lines"]), (&3.into(), &1.into()));
    let (first, last) = (said["due"]["first"].as_f64().unwrap(), said["due"]["last"].as_f64().unwrap());
    assert!((last - first - 0.4).abs() < 0.001, "{said}");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn explain_names_a_run() {
    if !is_root() || std::fs::OpenOptions::new().write(true).open("/dev/kmsg").is_err() {
        return println!("skipped: the kernel log cannot be written");
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().to_str().unwrap();
    let mut recorder =
        Running::start(&mut command(&["record", "--no-bpf", "--interval", "100ms", "--archive", archive]));
    recorder.line();
    wait_for_frames(archive, 5);
    let url = server("200 OK");
    good(&["load", &url, "--rate", "20/s", "--duration", "1s"]);
    wait_for_frames(archive, 30);
    let (status, err) = recorder.end(Signal::TERM);
    assert!(status.success(), "{err}");
    let report: Value = serde_json::from_str(&good(&["explain", "--json", "--archive", archive])).unwrap();
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    assert_eq!(report["loads"][0]["what"], format!("20/s for 1s to {host}"), "{report}");
    assert!(report["loads"][0]["until"].is_string(), "{report}");
    let text = good(&["explain", "--archive", archive]);
    assert!(text.contains(&format!("mitra load offered 20/s for 1s to {host} from ")), "{text}");
}
