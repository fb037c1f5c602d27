//! The recorder: how it starts, how it ends, what it survives.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{MITRA, Running, command, finish, good, is_root, run, wait_for_frames, wait_until};

fn status(dir: &str) -> serde_json::Value {
    serde_json::from_str(&good(&["status", "--json", "--archive", dir])).unwrap()
}

#[test]
fn a_second_recorder_is_told_who_the_first_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut first = Running::start(&mut command(&["record", "--no-bpf", "--archive", path]));
    assert!(first.line().contains(path));
    let second = run(&["record", "--no-bpf", "--archive", path]);
    assert_eq!(second.code, 2);
    assert!(second.err.contains(&first.pid().to_string()), "{}", second.err);
    assert_eq!(status(path)["recorder"]["pid"], first.pid(), "{}", status(path));
    wait_for_frames(path, 1);
    let alive = ["status", "--alive", "--archive", path];
    assert_eq!(good(&alive), "");
    let (end, err) = first.end(Signal::INT);
    assert!(end.success(), "{end}: {err}");
    assert!(status(path)["recorder"].is_null());
    let ended = run(&alive);
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    assert!(ended.err.contains("no recorder writes it"), "{}", ended.err);
}

#[test]
fn recorders_of_one_machine_know_of_each_other() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let record = |dir: &tempfile::TempDir| {
        Running::start(command(&["record", "--no-bpf", "--interval", "100ms", "--archive"]).arg(dir.path()))
    };
    let mut first = record(&dir);
    first.line();
    let mut second = record(&other);
    let line = second.line();
    assert!(line.contains("; another recorder, process "), "{line}");
    wait_for_frames(other.path().to_str().unwrap(), 2);
    assert!(second.end(Signal::TERM).0.success());
    assert!(first.end(Signal::TERM).0.success());
    let reader = mitra_archive::Reader::open(other.path()).unwrap();
    let events = reader.events(mitra_model::Span::ALL).unwrap();
    let is_told = |event: &mitra_model::Event| matches!(&event.kind, mitra_model::EventKind::Recorder { text } if text.starts_with("another recorder"));
    assert_eq!(events.iter().filter(|event| is_told(event)).count(), 1, "{events:?}");
}

#[test]
fn what_a_recorder_says_is_wrong_stands_in_the_status() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut recorder =
        Running::start(&mut command(&["record", "--no-bpf", "--interval", "100ms", "--archive", path]));
    recorder.line();
    wait_for_frames(path, 2);
    recorder.signal(Signal::STOP);
    // As it says it itself when the disk is full.
    let state = dir.path().join("state");
    let mut said = std::fs::read(&state).unwrap();
    let trouble = b"\nthe disk takes nothing";
    let at = said.iter().position(|byte| *byte == b'\n').unwrap();
    said[at..at + trouble.len()].copy_from_slice(trouble);
    std::fs::write(&state, said).unwrap();
    let shown = status(path);
    let page = good(&["status", "--archive", path]);
    recorder.signal(Signal::CONT);
    assert_eq!(shown["recorder"]["trouble"], "the disk takes nothing");
    assert!(page.contains("Trouble") && page.contains("the disk takes nothing"), "{page}");
    assert!(recorder.end(Signal::TERM).0.success());
}

#[test]
fn what_cannot_be_seen_is_named_with_the_first_sample() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut recorder = Running::start(&mut command(&["record", "--no-bpf", "--archive", path]));
    let line = recorder.line();
    assert!(line.contains("not available (mitra explain names "), "{line}");
    assert_eq!(recorder.line(), "not available: bpf: turned off by the user\n");
    assert!(recorder.end(Signal::TERM).0.success());
}

#[test]
fn a_hangup_does_not_stop_it_and_a_term_seals_the_archive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut recorder =
        Running::start(&mut command(&["record", "--no-bpf", "--interval", "100ms", "--archive", path]));
    recorder.line();
    wait_for_frames(path, 3);
    recorder.signal(Signal::HUP);
    wait_for_frames(path, 8);
    let (end, err) = recorder.end(Signal::TERM);
    assert!(end.success() && err.is_empty(), "{end}: {err}");
    let status = status(path);
    assert!(status["frames"].as_u64().unwrap() >= 8, "{status}");
    assert_eq!(status["log_bytes"], 0, "an orderly end leaves no open log");
    assert_eq!(status["gaps"].as_array().unwrap().len(), 0, "{status}");
}

#[test]
fn what_a_kill_leaves_is_read_and_taken_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    for turn in 0..2 {
        let mut recorder =
            Running::start(&mut command(&["record", "--no-bpf", "--interval", "100ms", "--archive", path]));
        recorder.line();
        wait_for_frames(path, 3 * (turn + 1));
        recorder.end(Signal::KILL);
        let frames = status(path)["frames"].as_u64().unwrap();
        assert!(frames >= 3 * (turn + 1), "{frames} after turn {turn}");
    }
}

#[test]
fn the_service_manager_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let archive = dir.path().join("archive");
    let recorder = Running::start(
        command(&["record", "--no-bpf", "--interval", "100ms", "--archive"])
            .arg(&archive)
            .env("NOTIFY_SOCKET", dir.path().join("notify"))
            .env("WATCHDOG_USEC", "200000"),
    );
    let hear = || {
        let mut buffer = [0_u8; 1024];
        let n = socket.recv(&mut buffer).expect("a message in time");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let ready = hear();
    assert!(ready.starts_with("READY=1\nSTATUS=recording "), "{ready}");
    assert!(
        ready.contains("WATCHDOG_USEC=300000"),
        "a watchdog shorter than three intervals is extended: {ready}"
    );
    assert_eq!(hear(), "WATCHDOG=1");
    recorder.end(Signal::TERM);
    let mut last = hear();
    while last == "WATCHDOG=1" {
        last = hear();
    }
    assert_eq!(last, "STOPPING=1");
}

/// Without any privilege it records what it can, and says what it cannot.
#[test]
#[ignore = "needs root: make test-kernel"]
fn nobody_can_record() {
    if !is_root() {
        println!("skipped: the other tests already run without privileges");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).unwrap();
    // The build directory may be closed to others.
    let binary = dir.path().join("mitra");
    std::fs::copy(MITRA, &binary).unwrap();
    let archive = dir.path().join("archive");
    let nobody = |args: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(args).arg("--archive").arg(&archive).uid(65_534).gid(65_534).current_dir("/");
        command
    };
    let mut recorder = Running::start(&mut nobody(&["record", "--interval", "100ms"]));
    assert!(recorder.line().contains("not available"), "it says that it cannot see all");
    std::thread::sleep(Duration::from_secs(1));
    let (end, err) = recorder.end(Signal::TERM);
    assert!(end.success(), "{end}: {err}");
    let report = finish(&mut nobody(&["explain", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&report.out).unwrap();
    assert!(!report["recorder"]["unavailable"].as_array().unwrap().is_empty(), "{report}");
}

/// A full disk costs not even samples while they are few; the recorder says so once, and when there is space again.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_full_disk_is_survived() {
    if !is_root() {
        println!("skipped: a small file system of its own needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
        set -e
        mount -t tmpfs -o size=2m none "$DIR"
        head -c 4M /dev/zero >"$DIR/filler" 2>/dev/null || true
        "$MITRA" record --no-bpf --interval 100ms --archive "$DIR/archive" >/dev/null 2>"$DIR.log" &
        pid=$!
        sleep 1.5
        rm "$DIR/filler"
        sleep 1.5
        kill -TERM $pid
        wait $pid
        "$MITRA" dump --archive "$DIR/archive" --metric mem.free --format csv | wc -l
    "#;
    let mount = dir.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let output = finish(
        Command::new("unshare").args(["--mount", "sh", "-c", script]).env("DIR", &mount).env("MITRA", MITRA),
    );
    if output.err.contains("unshare failed") || output.err.contains("permission denied") {
        println!("skipped: no mount namespace here: {}", output.err);
        return;
    }
    let log = std::fs::read_to_string(mount.with_extension("log")).unwrap();
    assert_eq!(output.code, 0, "{}\n{log}", output.err);
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines.len() >= 2 && lines[0].contains("is kept and tried again"), "{log}");
    assert!(lines.last().unwrap().contains("written again"), "{log}");
    assert!(lines.len() <= 3, "one complaint a minute: {log}");
    let samples: usize = output.out.trim().parse().unwrap();
    // Fifteen in each half, and a header; the first half would be missing.
    assert!(samples > 20, "{samples} lines");
}

#[test]
fn a_recorder_is_served_beside_and_the_server_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(
        command(&["record", "--no-bpf", "--interval", "100ms", "--serve=127.0.0.1:0", "--archive"])
            .arg(dir.path()),
    );
    assert!(running.line().starts_with("recording "));
    let mut told = String::new();
    while !told.starts_with("http://") {
        told = running.line();
        assert!(!told.is_empty(), "it tells no address");
    }
    let (address, token) = told.trim().trim_start_matches("http://").split_once("/?token=").unwrap();
    let ask = || {
        let header = format!("Authorization: Bearer {token}");
        let url = format!("http://{address}/api/v1/recording");
        let output = Command::new("curl").args(["--silent", "--header", &header, &url]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    wait_until("a sample is served", || ask().contains("mitra.recording/1"));
    running.signal(Signal::KILL);
    wait_until("the server has ended", || ask().is_empty());
    let refused =
        run(&["record", "--no-bpf", "--serve=0.0.0.0:0", "--archive", dir.path().to_str().unwrap()]);
    assert!(refused.code == 2 && refused.err.contains("run mitra serve beside"), "{}", refused.err);
}
