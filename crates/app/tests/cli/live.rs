//! `mitra live` without a terminal.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Running, command, good, wait_for_frames};

#[test]
fn it_records_and_stops_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut live =
        Running::start(&mut command(&["live", "--no-bpf", "--interval", "100ms", "--archive", path]));
    assert!(live.line().starts_with("recording "));
    wait_for_frames(path, 4);
    let (status, err) = live.end(Signal::TERM);
    assert!(status.success(), "{status}: {err}");
    let status: serde_json::Value =
        serde_json::from_str(&good(&["status", "--json", "--archive", path])).unwrap();
    assert!(status["frames"].as_u64().unwrap() >= 4 && status["log_bytes"] == 0, "{status}");
}

#[test]
fn it_watches_what_another_one_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut recorder =
        Running::start(&mut command(&["record", "--no-bpf", "--interval", "100ms", "--archive", path]));
    recorder.line();
    wait_for_frames(path, 2);
    let mut live = Running::start(&mut command(&["live", "--archive", path]));
    let line = live.line();
    assert!(line.starts_with("watching ") && line.contains(&recorder.pid().to_string()), "{line}");
    assert!(live.end(Signal::INT).0.success());
    assert!(recorder.end(Signal::TERM).0.success(), "the one who watches does not end the recorder");
}

#[test]
fn a_kill_takes_the_recorder_along() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut live =
        Running::start(&mut command(&["live", "--no-bpf", "--interval", "100ms", "--archive", path]));
    live.line();
    live.end(Signal::KILL);
    // The lock is free as soon as the recorder is gone.
    let mut next = Running::start(&mut command(&["record", "--no-bpf", "--archive", path]));
    let mut tries = 0;
    while next.line().is_empty() {
        tries += 1;
        assert!(tries < 100, "the recorder outlives its screen");
        std::thread::sleep(Duration::from_millis(100));
        next = Running::start(&mut command(&["record", "--no-bpf", "--archive", path]));
    }
    assert!(next.end(Signal::TERM).0.success());
}
