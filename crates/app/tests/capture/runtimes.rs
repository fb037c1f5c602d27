//! Functions that a runtime interprets or compiles while the program runs: they have names where it writes them, and
//! where it does not, what would make it is said. Skipped with a word where the runtime is missing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mitra_model::capture::Captured;
use tempfile::TempDir;

use super::{Busy, can_arm, mitra, stdout};

/// What the programs here write before they keep a CPU busy.
const READY: &str = "ready";
/// A virtual machine starts within a second, unless others compile meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(20);

const PYTHON_HIDES: &str = "of CPython the interpreter is shown, not the functions of the program; from 3.12 on \
                            `python -X perf`, or PYTHONPERFSUPPORT=1, names them";
const PYTHON_CUT_OFF: &str = "this CPython writes the names of the program's functions, but was compiled without frame \
                              pointers, so that stacks do not reach them; one built with -fno-omit-frame-pointer does";
const ERLANG_HIDES: &str = "compiled Erlang has no names; `+JPperf true` (OTP 24 and later) writes them";
const NODE_HIDES: &str = "compiled JavaScript has no names; `--perf-basic-prof` writes them";

/// The files of names go with the program.
struct Running(Busy);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = self.0.pid();
        for file in [format!("/tmp/perf-{pid}.map"), format!("/tmp/jit-{pid}.dump")] {
            _ = fs::remove_file(file);
        }
    }
}

/// A capture of a program that is busy in one function.
struct Seen {
    pid: String,
    captured: Captured,
    folded: String,
}

impl Seen {
    fn of(program: &mut Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        program.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let running = Running(Busy(child));
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            _ = BufReader::new(out).read_line(&mut line);
            _ = tell.send(line);
        });
        let line = told.recv_timeout(READY_WITHIN).unwrap_or_default();
        assert_eq!(line.trim_end(), READY, "{program:?}");
        let pid = running.0.pid();
        let file = dir.path().join("folded");
        let how = ["capture", "oncpu", "--seconds", "1", "--budget", "100%", "--no-archive", "--json"];
        let what = ["--pid", pid.as_str(), "--folded", file.to_str().unwrap()];
        let captured = serde_json::from_str(&stdout(&mitra(&[&how[..], &what[..]].concat()))).unwrap();
        Self { pid, captured, folded: fs::read_to_string(file).unwrap() }
    }

    /// The share of the program's time in functions whose names begin so, and in what they call.
    fn share(&self, name: &str) -> f64 {
        let (mut all, mut below) = (0.0, 0.0);
        for line in self.folded.lines() {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            let weight: f64 = weight.parse().unwrap();
            all += weight;
            if stack.split(';').any(|frame| frame.starts_with(name)) {
                below += weight;
            }
        }
        below / all
    }

    fn says(&self, note: &str) -> bool {
        self.captured.notes.contains(&format!("{note} (process {})", self.pid))
    }

    #[track_caller]
    fn is_busy_in(&self, name: &str) {
        assert!(self.share(name) > 0.5, "{name}: {:?}\n{}", self.captured.notes, self.folded);
    }

    /// It has no names of this kind, and says what would give it them.
    #[track_caller]
    fn hides(&self, names: &str, note: &str) {
        assert!(self.says(note), "{:?}\n{}", self.captured.notes, self.folded);
        assert!(self.share(names) == 0.0, "{}", self.folded);
    }
}

/// What a program prints, or why it does not.
fn prints(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{program}: {}", text(&output.stderr).lines().next().unwrap_or_default()))
    }
}

/// Its version, the machine, whether it can write names, and whether the function that interprets keeps a frame pointer:
/// it begins with `mov %rsp,%rbp` then. The flags that `sysconfig` tells are not always those of the build.
const BUILD: &str = r#"
import ctypes, platform, sysconfig
names = bool(sysconfig.get_config_var("PY_HAVE_PERF_TRAMPOLINE"))
code = ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, ctypes.c_void_p).value
frames = bytes.fromhex("4889e5") in ctypes.string_at(code, 32)
print(platform.python_version(), platform.machine(), names, frames)
"#;

/// A CPython that can write names, and whether it keeps frame pointers.
pub fn python_that_writes_names() -> Option<(&'static str, bool)> {
    let mut others = Vec::new();
    for program in ["python3", "python3.14", "python3.13", "python3.12"] {
        let said = prints(program, &["-c", BUILD]);
        let words: Vec<&str> = said.iter().flat_map(|text| text.split_whitespace()).collect();
        if let [_, "x86_64", "True", frames] = words[..] {
            return Some((program, frames == "True"));
        }
        others.push(said);
    }
    println!("skipped: needs CPython 3.12 or later on x86-64, built with what -X perf does: {others:?}");
    None
}

fn whirl_in_python(program: &str, flags: &[&str]) -> Seen {
    let text =
        format!("def whirl_about():\n while True: pass\nprint('{READY}', flush=True)\nwhirl_about()\n");
    let mut python = Command::new(program);
    Seen::of(python.env_remove("PYTHONPERFSUPPORT").args(flags).args(["-c", &text]))
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn functions_of_python_have_names_if_its_build_lets_them_be_reached() {
    if !can_arm() {
        return;
    }
    let Some((program, keeps_frames)) = python_that_writes_names() else { return };
    let seen = whirl_in_python(program, &["-X", "perf"]);
    if keeps_frames {
        seen.is_busy_in("py::whirl_about:");
        assert!(!seen.says(PYTHON_HIDES) && !seen.says(PYTHON_CUT_OFF), "{:?}", seen.captured.notes);
    } else {
        seen.hides("py::", PYTHON_CUT_OFF);
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn python_that_writes_no_names_is_told_how_to() {
    if !can_arm() {
        return;
    }
    if let Err(error) = prints("python3", &["--version"]) {
        println!("skipped: {error}");
        return;
    }
    whirl_in_python("python3", &[]).hides("py::", PYTHON_HIDES);
}

/// A module that keeps busy, if there is an Erlang here that compiles it to machine code.
fn erlang_module() -> Option<TempDir> {
    let flavour = "io:format(\"~p\", [(catch erlang:system_info(emu_flavor))]), halt().";
    let flavour = prints("erl", &["-noinput", "-eval", flavour]);
    if flavour.as_deref() != Ok("jit") {
        println!("skipped: needs Erlang with its JIT, has {flavour:?}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("spin.erl");
    fs::write(&file, "-module(spin).\n-export([whirl/1]).\nwhirl(N) -> whirl(N + 1).\n").unwrap();
    let compiled = prints("erlc", &["-o", dir.path().to_str().unwrap(), file.to_str().unwrap()]);
    compiled.map_err(|error| println!("skipped: {error}")).ok()?;
    Some(dir)
}

fn whirl_in_erlang(flags: &[&str]) -> Option<Seen> {
    let dir = erlang_module()?;
    let start = format!("io:format(\"{READY}~n\"), spin:whirl(0).");
    let mut erlang = Command::new("erl");
    erlang.args(flags).args(["-noinput", "-pa"]).arg(dir.path()).args(["-eval", &start]);
    Some(Seen::of(&mut erlang))
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn functions_of_erlang_have_names_if_it_writes_them() {
    if !can_arm() {
        return;
    }
    let Some(seen) = whirl_in_erlang(&["+JPperf", "true"]) else { return };
    seen.is_busy_in("$spin:whirl/1");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn erlang_that_writes_no_names_is_told_how_to() {
    if !can_arm() {
        return;
    }
    let Some(seen) = whirl_in_erlang(&[]) else { return };
    seen.hides("$", ERLANG_HIDES);
}

fn whirl_in_node(flags: &[&str]) -> Option<Seen> {
    if let Err(error) = prints("node", &["--version"]) {
        println!("skipped: {error}");
        return None;
    }
    let text = format!(
        "function whirlAbout() {{ for (let n = 1; ; ) n = (n * 31 + 7) | 0 }}
         require('fs').writeSync(1, '{READY}\\n'); whirlAbout()"
    );
    let mut node = Command::new("node");
    Some(Seen::of(node.env_remove("NODE_OPTIONS").args(flags).args(["-e", &text])))
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn functions_of_javascript_have_names_if_node_writes_them() {
    if !can_arm() {
        return;
    }
    let Some(seen) = whirl_in_node(&["--perf-basic-prof"]) else { return };
    seen.is_busy_in("JS:*whirlAbout ");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn node_that_writes_no_names_is_told_how_to() {
    if !can_arm() {
        return;
    }
    let Some(seen) = whirl_in_node(&[]) else { return };
    seen.hides("JS:", NODE_HIDES);
}
