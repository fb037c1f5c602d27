//! `mitra capture` as a program: what was kept is listed, read and drawn; what cannot be done is said. Arming itself needs
//! root, and is skipped with a word otherwise.

#[path = "capture/growth.rs"]
mod growth;
#[path = "capture/runtimes.rs"]
mod runtimes;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mitra_archive::{captures, store_capture};
use mitra_model::capture::{Captured, Profile, Raw, RawStack, SCHEMA};

fn mitra(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mitra")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether probes can be armed here. Says why not.
fn can_arm() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: needs root");
    }
    is_root
}

/// A program that is always on a CPU, until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Keeps a capture of two seconds.
fn kept(dir: &Path, kind: &str, since_real: i64, comm: &str) {
    let stack = RawStack {
        pid: 7,
        comm: comm.into(),
        user: vec![2, 1],
        weight: 1.5,
        count: 3,
        ..RawStack::default()
    };
    let header = Captured {
        schema: SCHEMA.into(),
        kind: kind.into(),
        host: "web-17".into(),
        since_real,
        seconds: 2.0,
        ..Captured::default()
    };
    let raw =
        Raw { captured: header, weight: Some(("time off CPU", "s")), stacks: vec![stack], ..Raw::default() };
    let captured = raw.resolve(&mut |stack| stack.user.iter().rev().map(|a| format!("f{a}")).collect());
    store_capture(dir, &captured).unwrap();
}

#[test]
fn the_page_of_a_report_draws_what_was_captured_with_the_incident() {
    const SECOND: i64 = 1_000_000_000;
    // 2026-11-22 00:13:58 UTC.
    const ONSET: i64 = 1_795_306_438 * SECOND;
    let recording = "../../lab/recordings/flood-once.loud.7919/archive/0000000001.seg";
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(recording), dir.path().join("0000000001.seg"))
        .unwrap();
    let archive = dir.path().to_str().unwrap();
    let page = || stdout(&mitra(&["explain", "--archive", archive, "--html", "-"]));
    assert!(!page().contains("captured meanwhile"));
    kept(dir.path(), "offcpu", ONSET - 100 * SECOND, "before");
    kept(dir.path(), "offcpu", ONSET + SECOND, "</title><b>evil");
    kept(dir.path(), "offcpu", ONSET + 4 * SECOND, "later");
    kept(dir.path(), "oncpu", ONSET + 2 * SECOND, "busy");
    let page = page();
    assert_eq!(page.matches("Stacks that were captured meanwhile</h2>").count(), 1, "{page}");
    for part in ["<h3>offcpu on web-17", "<h3>oncpu on web-17", "<title>f2: 1.5 s, 100.0 % of all</title>"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        page.contains("<title>&lt;/title&gt;&lt;b&gt;evil: 1.5 s") && page.contains("<title>busy: 1.5 s")
    );
    assert!(!page.contains("<b>evil") && !page.contains("<script"));
    assert!(!page.contains("<title>before") && !page.contains("<title>later"), "one of each probe");
}

#[test]
fn what_was_kept_is_shown_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    kept(dir.path(), "offcpu", 1_700_000_000_000_000_000, "web");
    let archive = dir.path().to_str().unwrap();
    let show = |more: &[&str]| {
        let args = ["capture", "--show", "latest", "--archive", archive];
        stdout(&mitra(&[&args, more].concat()))
    };
    let text = show(&[]);
    assert!(
        text.contains("offcpu on web-17") && text.contains("f2 < f1") && text.contains("captures/2023"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "colours in a pipe");
    assert_eq!(show(&["--folded", "-"]), "web;f1;f2 1500000\n");
    assert!(show(&["--flame", "-"]).starts_with("<!DOCTYPE html>"));
    let json: serde_json::Value = serde_json::from_str(&show(&["--json"])).unwrap();
    assert_eq!((&json["schema"], &json["profile"]["stacks"][0]["weight"]), (&SCHEMA.into(), &1.5.into()));
    let file = &captures(dir.path()).unwrap()[0];
    let by_path = mitra(&["capture", "--show", file.path.to_str().unwrap(), "--folded", "-"]);
    assert_eq!(stdout(&by_path), "web;f1;f2 1500000\n");
    let by_kind = mitra(&["capture", "faults", "--show", "latest", "--archive", archive]);
    assert_eq!(by_kind.status.code(), Some(2), "there is none of faults");
}

#[test]
fn what_cannot_be_done_is_said() {
    let said = |args: &[&str]| {
        let output = mitra(args);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for args in [&["capture"][..], &["capture", "tachyons"], &["capture", "offcpu", "--seconds", "-1"]] {
        let (code, text) = said(args);
        assert_eq!(code, Some(2), "{args:?}: {text}");
    }
    let list = stdout(&mitra(&["capture", "--list"]));
    for kind in ["offcpu", "oncpu", "faults"] {
        assert!(list.contains(kind), "{list}");
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_capture_by_hand_is_kept_and_counted() {
    if !can_arm() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().to_str().unwrap();
    let busy = Busy::start();
    let pid = busy.pid();
    let output =
        mitra(&["capture", "oncpu", "--pid", &pid, "--seconds", "1", "--json", "--archive", archive]);
    drop(busy);
    let captured: Captured = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(captured.schema, SCHEMA);
    assert!(captured.events > 5 && captured.cost_ns.is_some(), "{captured:?}");
    let profile: &Profile = captured.profile.as_ref().unwrap();
    assert!(profile.stacks.iter().all(|stack| stack.pid.to_string() == pid));
    let files = captures(dir.path()).unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(mitra_archive::read_capture(&files[0].path).unwrap(), captured);
}

/// A recorder that ends tells the probes that it armed, and has no time for them.
#[test]
#[ignore = "needs root: make test-kernel"]
fn what_probes_saw_is_kept_when_they_are_told_to_end() {
    if !can_arm() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // By a relative path, as somebody types it.
    let mut armed = Command::new(env!("CARGO_BIN_EXE_mitra"))
        .args(["armed", "--archive", "here", "--why", "a test", "--seconds", "30", "tachyons", "oncpu"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(armed.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("unavailable") && line.contains("tachyons"), "{line}");
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    let pid = rustix::process::Pid::from_child(&armed);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    line.clear();
    out.read_line(&mut line).unwrap();
    let end = armed.wait().unwrap();
    // So long a recorder waits for it; on a machine that compiles meanwhile it may take longer.
    assert!(end.success() && began.elapsed() < Duration::from_secs(10), "{end} after {:?}", began.elapsed());
    assert!(!line.contains("unavailable"), "{line}");
    let files = captures(&dir.path().join("here")).unwrap();
    assert_eq!(files.len(), 1, "{line}");
    let captured = mitra_archive::read_capture(&files[0].path).unwrap();
    assert_eq!(
        (captured.kind.as_str(), captured.ended.clone()),
        ("oncpu", mitra_model::capture::Ended::Stopped)
    );
    assert!(captured.notes.iter().any(|note| note.contains("not looked up")), "{:?}", captured.notes);
}

/// It is stored before the functions of programs have names, and has them in the end.
#[test]
#[ignore = "needs root: make test-kernel"]
fn what_probes_saw_has_names_in_the_end() {
    if !can_arm() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().to_str().unwrap();
    let busy = Busy::start();
    let pid = busy.pid();
    let armed = |pid: &str, began: &[&str]| {
        let args = ["armed", "--archive", archive, "--why", "a test", "--seconds", "1", "--pid", pid];
        mitra(&[&args, began, &["oncpu", "runqlat"]].concat())
    };
    let output = armed(&pid, &[]);
    let another = armed(&pid, &["--pid-began", "1"]);
    drop(busy);
    let text = stdout(&output);
    assert!(!text.contains("unavailable"), "{text}");
    let events: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let files = captures(dir.path()).unwrap();
    assert_eq!((events.len(), files.len()), (2, 2), "{text}");
    for file in files {
        assert!(events.iter().any(|event| event["file"] == file.name.as_str()), "{text}");
        let captured = mitra_archive::read_capture(&file.path).unwrap();
        let unnamed = captured.notes.iter().find(|note| note.contains("not looked up"));
        assert_eq!(unnamed, None, "{}", captured.kind);
        assert_eq!(captured.profile.is_some(), captured.kind == "oncpu");
        if let Some(profile) = captured.profile {
            let is_named = |name: &String| !name.starts_with('[') && !name.ends_with("_[k]");
            assert!(profile.names.iter().any(is_named), "{:?}", profile.names);
        }
    }
    // Its number is somebody else's by now.
    let text = stdout(&another);
    assert_eq!(text.matches("another one has its number").count(), 2, "{text}");
}
