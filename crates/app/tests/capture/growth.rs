//! `mitra capture growth PID` names who makes a process grow, and tells it from who merely gets and returns memory.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mitra_model::capture::{CaptureTable, Captured, Cell};

use super::runtimes::python_that_writes_names;
use super::{Busy, can_arm, mitra, stdout};
use pythons::pythons;

#[path = "../../../inspect/tests/services/pythons.rs"]
mod pythons;

const PROGRAM: &str = include_str!("growth.c");
const SECONDS: &str = "4";

/// The function, when it had leaked, and how many bytes.
type Leak = (String, i64, f64);

/// The program, and what it says of its leaks.
struct Leaking {
    program: Busy,
    leaked: mpsc::Receiver<Leak>,
}

impl Leaking {
    fn start(dir: &Path) -> Option<Self> {
        let (source, program) = (dir.join("growth.c"), dir.join("leaking"));
        std::fs::write(&source, PROGRAM).unwrap();
        // As programs are compiled, without frame pointers.
        let mut compiler = Command::new("cc");
        let compiler = compiler.args(["-g", "-O2", "-fno-optimize-sibling-calls", "-pthread", "-o"]);
        match compiler.arg(&program).arg(&source).status() {
            Ok(status) => assert!(status.success(), "growth.c is not compiled"),
            Err(error) => {
                println!("skipped: cc: {error}");
                return None;
            }
        }
        let mut child = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let program = Busy(child);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{line}");
        let (tell, leaked) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                // When it is killed the last line may not be whole.
                let [who, time, bytes] = words[..] else { break };
                let Some((time, bytes)) = time.parse().ok().zip(bytes.parse().ok()) else { break };
                _ = tell.send((who.to_owned(), time, bytes));
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        Some(Self { program, leaked })
    }

    /// Bytes that its two functions leaked while a capture was armed. As long as a leak takes, it is not known on which
    /// side of the beginning, or of the end, it was.
    fn leaked(&self, captured: &Captured) -> [f64; 2] {
        let until = captured.since_mono + (captured.seconds * 1e9) as i64;
        let leaks: Vec<Leak> = self.leaked.try_iter().collect();
        ["leak_here", "leak_in_thread"].map(|function| {
            let during =
                |(who, time, _): &&Leak| who == function && (captured.since_mono..until).contains(time);
            leaks.iter().filter(during).map(|(_, _, bytes)| bytes).sum()
        })
    }
}

/// What is still there of what came, and what came, of stacks with a frame of this name.
fn by(captured: &Captured, function: &str) -> [f64; 2] {
    by_frame(captured, |frame| frame == function)
}

fn by_frame(captured: &Captured, is_it: impl Fn(&str) -> bool) -> [f64; 2] {
    let profile = captured.profile.as_ref().unwrap();
    let stacks = || profile.stacks.iter().filter(|stack| profile.frames(stack).any(&is_it));
    [stacks().map(|stack| stack.weight).sum(), stacks().map(|stack| stack.beside).sum()]
}

/// What is there of stacks that have no such frame: the first ones teach how to follow the others, which takes as long as
/// whoever reads them waits for a CPU. It has to be the small part of `grew`.
fn unfollowed(captured: &Captured, is_followed: impl Fn(&str) -> bool, grew: f64) -> f64 {
    let profile = captured.profile.as_ref().unwrap();
    let unfollowed = profile.stacks.iter().filter(|stack| !profile.frames(stack).any(&is_followed));
    let bytes = unfollowed.map(|stack| stack.weight).sum();
    println!("not followed: {bytes} of {grew}");
    assert!(bytes <= 0.25 * grew, "{bytes} of {grew} in stacks that were not followed");
    bytes
}

fn table<'a>(captured: &'a Captured, name: &str) -> &'a CaptureTable {
    captured.tables.iter().find(|table| table.name == name).unwrap()
}

fn sum(captured: &Captured, name: &str) -> f64 {
    let rows = &table(captured, "sums").rows;
    let row = rows.iter().find(|row| row[0] == Cell::text(name)).unwrap();
    if let Cell::Number(bytes) = row[1] { bytes } else { panic!("{row:?}") }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_makes_a_process_grow_is_told_from_who_gets_and_returns_memory() {
    if !can_arm() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(leaking) = Leaking::start(dir.path()) else { return };
    let pid = leaking.program.pid();
    let (folded, flame) = (dir.path().join("folded"), dir.path().join("flame.html"));
    let how = [
        "capture",
        "growth",
        pid.as_str(),
        "--seconds",
        SECONDS,
        "--budget",
        "100%",
        "--no-archive",
        "--json",
    ];
    let files = ["--folded", folded.to_str().unwrap(), "--flame", flame.to_str().unwrap()];
    let captured: Captured = serde_json::from_str(&stdout(&mitra(&[&how[..], &files[..]].concat()))).unwrap();
    println!("{:?}\n{:?}", captured.notes, captured.tables);
    assert_eq!((captured.lost, captured.filter["pid"].as_str()), (0, pid.as_str()));

    let [leak, _] = by(&captured, "leak_here");
    let [in_thread, _] = by(&captured, "leak_in_thread");
    let [churn, churned] = by(&captured, "churn");
    let grew = sum(&captured, "grew by");
    let [truth, truth_in_thread] = leaking.leaked(&captured);
    println!(
        "leak_here {leak} of {truth}, thread {in_thread} of {truth_in_thread}, churn {churn} of {churned}, grew by {grew}"
    );
    let unfollowed =
        unfollowed(&captured, |frame| ["leak_here", "leak_in_thread", "churn"].contains(&frame), grew);
    for (bytes, truth) in [(leak, truth), (in_thread, truth_in_thread)] {
        assert!(bytes <= 1.05 * truth, "{bytes} bytes, it leaked {truth}");
        assert!(bytes + unfollowed >= 0.95 * truth, "{bytes} bytes, it leaked {truth}");
    }
    assert!(
        (leak + in_thread + churn + unfollowed - grew).abs() <= 0.05 * grew,
        "{leak} and {in_thread} of {grew}"
    );
    assert_eq!(sum(&captured, "of the stacks: not known"), 0.0, "memory of whose faults nobody knows");
    // At most the buffer that it has in the end.
    assert!(churned > 2.0 * leak && churn <= f64::from(1 << 20), "churn has {churn} bytes of {churned}");

    let first = captured.profile.as_ref().unwrap();
    assert!(first.frames(&first.stacks[0]).any(|frame| frame == "leak_here"), "{:?}", first.stacks[0]);
    let mappings = table(&captured, "mappings");
    let names: Vec<&Cell> = mappings.rows.iter().map(|row| &row[0]).collect();
    for name in ["[heap]", "heap of threads (arena of malloc)", "memory without a name"] {
        assert!(names.contains(&&Cell::text(name)), "{name}: {names:?}");
    }
    let folded = std::fs::read_to_string(folded).unwrap();
    assert!(folded.contains(";leak_here"), "{folded}");
    assert!(std::fs::read_to_string(flame).unwrap().contains("leak_here"));
}

/// Leaks in a function of its own, at some depth.
const PYTHON: &str = "\
import time
kept = []
def leak_of_python(count):
    for i in range(count):
        kept.append(bytes(3000))
def deeper(depth):
    deeper(depth - 1) if depth else leak_of_python(100)
while True:
    deeper(10)
    time.sleep(0.02)
";

/// Most builds of CPython have no frame pointers, nor have the trampolines between its functions.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_function_of_python_that_leaks_has_a_name() {
    if !can_arm() {
        return;
    }
    let Some((program, _)) = python_that_writes_names() else { return };
    let mut python = Command::new(program);
    let python = Busy(python.args(["-X", "perf", "-c", PYTHON]).stdin(Stdio::null()).spawn().unwrap());
    std::thread::sleep(Duration::from_secs(1));
    let pid = python.pid();
    let how =
        ["capture", "growth", pid.as_str(), "--seconds", "2", "--budget", "100%", "--no-archive", "--json"];
    let captured: Captured = serde_json::from_str(&stdout(&mitra(&how))).unwrap();
    let [leak, _] = by_frame(&captured, |frame| frame.starts_with("py::leak_of_python:"));
    let [deep, _] = by_frame(&captured, |frame| frame.starts_with("py::<module>:"));
    let grew = sum(&captured, "grew by");
    println!("leak_of_python {leak}, from the beginning {deep}, of {grew}: {:?}", captured.notes);
    _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    let followed = grew - unfollowed(&captured, |frame| frame.starts_with("py::"), grew);
    assert!(leak >= 0.9 * followed && deep >= 0.9 * followed, "{leak} and {deep} of {followed}");
}

/// Each keeps the calls of its functions in another way. None of them was started for it.
const MINORS: [u32; 6] = [6, 8, 10, 11, 12, 13];

#[test]
#[ignore = "needs root: make test-kernel"]
fn functions_of_python_are_shown_without_its_help() {
    if !can_arm() {
        return;
    }
    for (version, program) in pythons(&MINORS) {
        let python = Busy(Command::new(program).args(["-c", PYTHON]).stdin(Stdio::null()).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(500));
        let pid = python.pid();
        let how = [
            "capture",
            "growth",
            pid.as_str(),
            "--seconds",
            "2",
            "--budget",
            "100%",
            "--no-archive",
            "--json",
        ];
        let captured: Captured = serde_json::from_str(&stdout(&mitra(&how))).unwrap();
        let [leak, _] = by_frame(&captured, |frame| frame == "py::leak_of_python:<string>");
        let [deep, _] = by_frame(&captured, |frame| frame == "py::<module>:<string>");
        let grew = sum(&captured, "grew by");
        println!(
            "{version}: leak_of_python {leak}, from the beginning {deep}, of {grew}: {:?}",
            captured.notes
        );
        let followed = grew - unfollowed(&captured, |frame| frame.starts_with("py::"), grew);
        assert!(
            leak >= 0.9 * followed && deep >= 0.9 * followed,
            "{version}: {leak} and {deep} of {followed}"
        );
    }
}

#[test]
fn whose_growth_has_to_be_said() {
    if !can_arm() {
        return;
    }
    let output = mitra(&["capture", "growth", "--no-archive"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("of one process"), "{said}");
    let output = mitra(&["capture", "growth", "7", "--pid", "7"]);
    assert_eq!(output.status.code(), Some(2), "a process is named once");
}
