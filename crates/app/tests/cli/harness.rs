//! Runs `mitra`, and makes one short recording for all tests that read.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The binary.
pub const MITRA: &str = env!("CARGO_BIN_EXE_mitra");
/// Far longer than anything here takes, even on a machine that compiles at the same time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of the recording that all tests read.
const FRAMES: u64 = 30;

/// What a command said.
pub struct Output {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// A command line, without colours or time zone from outside.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(MITRA);
    command
        .args(args)
        .env_remove("NO_COLOR")
        .env_remove("MITRA_ARCHIVE")
        .env_remove("NOTIFY_SOCKET")
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run(args: &[&str]) -> Output {
    finish(&mut command(args))
}

/// The same with a command that was prepared.
pub fn finish(command: &mut Command) -> Output {
    let output = command.output().expect("mitra can be started");
    Output {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        err: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}

/// Runs a command that has to succeed and returns its standard output.
pub fn good(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.code, 0, "{args:?}: {}", output.err);
    output.out
}

/// A program of the virtual environment that `tools/install-deps.sh` makes, and the one on the path.
fn candidates(in_venv: &str, on_path: &str) -> impl Iterator<Item = PathBuf> {
    let venv = std::env::var_os("MITRA_VENV")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/mitra-venv")));
    let in_venv = venv.map(|venv| venv.join("bin").join(in_venv));
    in_venv.into_iter().chain([PathBuf::from(on_path)])
}

/// The first of them that ends well with these arguments.
fn working(mut candidates: impl Iterator<Item = PathBuf>, args: &[&str]) -> Option<PathBuf> {
    candidates
        .find(|program| Command::new(program).args(args).output().is_ok_and(|output| output.status.success()))
}

/// Python with a module, from the virtual environment of `tools/install-deps.sh test`, or on the path.
pub fn python(module: &str) -> Option<PathBuf> {
    working(candidates("python", "python3"), &["-c", &format!("import {module}")])
}

/// Helm, from `tools/install-deps.sh packages`, or on the path.
pub fn helm() -> Option<PathBuf> {
    working(candidates("helm", "helm"), &["version"])
}

/// A running `mitra` that is ended when dropped.
pub struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mitra can be started");
        let stdout = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        Running { child, stdout }
    }

    /// The next line of its standard output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("standard output can be read");
        line
    }

    /// The next line of its standard error.
    pub fn err_line(&mut self) -> String {
        let stderr = self.child.stderr.as_mut().expect("standard error is a pipe");
        let (mut line, mut byte) = (Vec::new(), [0]);
        while stderr.read(&mut byte).expect("standard error can be read") == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).expect("standard error is UTF-8")
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }

    /// Sends a signal and waits for the end. Returns the status and what it wrote to standard error.
    pub fn end(self, signal: Signal) -> (ExitStatus, String) {
        self.signal(signal);
        self.wait()
    }

    /// Waits for the end. Returns the status and what it wrote to standard error.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut err = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut err).expect("standard error is UTF-8");
        }
        (status, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How many frames an archive has. None where it is not there yet.
pub fn frames(archive: &str) -> u64 {
    let status = run(&["status", "--json", "--archive", archive]);
    let json: Option<serde_json::Value> = serde_json::from_str(&status.out).ok();
    json.and_then(|json| json["frames"].as_u64()).unwrap_or(0)
}

/// Waits until a recorder has written so many.
pub fn wait_for_frames(archive: &str, count: u64) {
    wait_until("frames", || frames(archive) >= count);
}

/// Records so many frames with a short interval, and ends in order.
fn record(dir: &Path, count: u64) {
    let mut running =
        Running::start(command(&["record", "--no-bpf", "--interval", "100ms", "--archive"]).arg(dir));
    let line = running.line();
    assert!(line.starts_with("recording "), "{line}");
    wait_for_frames(dir.to_str().expect("the path is UTF-8"), count);
    let (status, err) = running.end(Signal::TERM);
    assert!(status.success(), "{status}: {err}");
}

/// One recording for everybody, made once. It stays in the target directory until the next run.
pub fn archive() -> &'static str {
    static ARCHIVE: OnceLock<String> = OnceLock::new();
    ARCHIVE.get_or_init(|| {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli-archive");
        // Gone on a first run.
        _ = std::fs::remove_dir_all(&dir);
        record(&dir, FRAMES);
        dir.to_str().expect("the path is UTF-8").to_owned()
    })
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
