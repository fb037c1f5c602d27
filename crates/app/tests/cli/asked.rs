//! Probes that are asked for through `mitra serve`.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Running, command, wait_until};
use crate::serve::recording;

/// A server with its token.
struct Server {
    running: Running,
    address: String,
    token: String,
}

impl Server {
    fn start(args: &[&str]) -> Server {
        let mut running = Running::start(&mut command(args));
        let mut told = String::new();
        while !told.starts_with("http://") {
            told = running.line();
            assert!(!told.is_empty(), "it tells no address");
        }
        let (address, token) = told.trim().trim_start_matches("http://").split_once("/?token=").unwrap();
        Server { address: address.to_owned(), token: token.to_owned(), running }
    }

    /// The status and the answer.
    fn curl(&self, token: &str, more: &[&str]) -> (u16, Value) {
        let output = Command::new("curl")
            .args([
                "--silent",
                "--write-out",
                "\n%{http_code}",
                "--header",
                &format!("Authorization: Bearer {token}"),
            ])
            .args(more)
            .arg(format!("http://{}/api/v1/captures", self.address))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    fn ask(&self, body: &str) -> (u16, Value) {
        self.curl(&self.token, &["--header", "Content-Type: application/json", "--data", body])
    }
}

fn code(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["error"]["code"].as_str().unwrap_or_default())
}

#[test]
fn a_server_that_no_recorder_started_says_what_to_run() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "0123456789abcdef0123\n").unwrap();
    let file = token.path().to_str().unwrap();
    let mut running = Running::start(&mut command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--archive",
        &recording(),
        "--token-file",
        file,
    ]));
    let address = running.line().trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let server = Server { running, address, token: "0123456789abcdef0123".to_owned() };
    let answer = server.ask(r#"{"kind":"offcpu","seconds":5}"#);
    assert_eq!(code(&answer), (409, "no_recorder"));
    assert!(answer.1["error"]["message"].as_str().unwrap().contains("mitra capture KIND"), "{answer:?}");
    for body in [
        "",
        "[]",
        r#"{"kind":"offcpu"}"#,
        r#"{"kind":"offcpu","seconds":5,"options":"x"}"#,
        r#"{"kind":1,"seconds":5}"#,
    ] {
        assert_eq!(code(&server.ask(body)), (400, "bad_body"), "{body}");
    }
    // What a form of another page can send.
    assert_eq!(code(&server.curl(&server.token, &["--data", "{}"])), (415, "bad_type"));
    let data = ["--header", "Content-Type: application/json", "--data", "{}"];
    assert_eq!(code(&server.curl("0123456789abcdef0124", &data)), (401, "no_token"));
    assert!(server.curl(&server.token, &[]).1.get("may_be_armed").is_none());
    server.running.end(Signal::TERM);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_recorder_arms_what_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("mitra.toml");
    let archive = dir.path().join("archive");
    let archive = archive.to_str().unwrap();
    let start = |text: &str| {
        std::fs::write(&config, text).unwrap();
        let config = config.to_str().unwrap();
        Server::start(&["record", "--serve=127.0.0.1:0", "--archive", archive, "--config", config])
    };
    let server = start("[escalation]\nbuiltin = false\n");
    assert_eq!(code(&server.ask(r#"{"kind":"oncpu","seconds":2}"#)), (409, "no_recorder"), "it is off");
    server.running.end(Signal::TERM);

    let server = start("[escalation]\nbuiltin = false\nseconds-per-hour = 8\n[captures]\nask = true\n");
    let kinds = server.curl(&server.token, &[]).1["may_be_armed"].clone();
    if kinds.as_array().is_none_or(|kinds| !kinds.contains(&"oncpu".into())) {
        println!("skipped: this kernel has no probes: {kinds}");
        return;
    }
    assert!(!kinds.as_array().unwrap().iter().any(|kind| kind == "heap" || kind == "trace"), "{kinds}");
    for (body, says) in [
        (r#"{"kind":"heap","pid":1,"seconds":2}"#, "no such probe"),
        (r#"{"kind":"oncpu --pid","seconds":2}"#, "no such probe"),
        (r#"{"kind":"oncpu","seconds":31}"#, "want 1 to 30 seconds"),
        (r#"{"kind":"oncpu","pid":0,"seconds":2}"#, "number 0"),
        (r#"{"kind":"growth","seconds":2}"#, "of one process"),
    ] {
        let answer = server.ask(body);
        assert_eq!(code(&answer), (400, "refused"), "{body}: {answer:?}");
        assert!(answer.1["error"]["message"].as_str().unwrap().contains(says), "{body}: {answer:?}");
    }
    assert_eq!(code(&server.curl("0123456789abcdef0124", &["--data", "{}"])).0, 401);
    let own = format!(r#"{{"kind":"oncpu","pid":{},"seconds":4}}"#, std::process::id());
    let armed = server.ask(&own);
    assert_eq!((armed.0, &armed.1["kind"]), (202, &Value::from("oncpu")), "{armed:?}");
    let busy = server.ask(&own);
    assert_eq!(code(&busy), (409, "not_now"));
    assert!(busy.1["error"]["message"].as_str().unwrap().contains("other probes are running"), "{busy:?}");
    let mut list = Value::Null;
    wait_until("the capture is there", || {
        list = server.curl(&server.token, &[]).1["captures"].clone();
        list.as_array().is_some_and(|list| !list.is_empty())
    });
    assert_eq!((&list[0]["kind"], &list[0]["why"]), (&"oncpu".into(), &"asked for by 127.0.0.1".into()));
    // Eight seconds in an hour: there is no room for five after four, also for the next recorder.
    let long = r#"{"kind":"oncpu","seconds":5}"#;
    wait_until("nothing runs", || {
        code(&server.ask(long)).0 == 409 && {
            let message = server.ask(long).1["error"]["message"].clone();
            message.as_str().unwrap().contains("used up their time")
        }
    });
    server.running.end(Signal::TERM);
    let server = start("[escalation]\nbuiltin = false\nseconds-per-hour = 8\n[captures]\nask = true\n");
    assert_eq!(code(&server.ask(long)), (409, "not_now"));
    server.running.end(Signal::TERM);
    // Each question is in the recording.
    let reader = mitra_archive::Reader::open(std::path::Path::new(archive)).unwrap();
    let events = reader.events(mitra_model::Span::ALL).unwrap();
    let said = |part: &str| events.iter().any(|event| format!("{:?}", event.kind).contains(part));
    assert!(said("for 4 s, asked for by 127.0.0.1: armed"));
    assert!(said("probe oncpu of the machine for 31 s, asked for by 127.0.0.1: not armed, want 1 to 30"));
}
