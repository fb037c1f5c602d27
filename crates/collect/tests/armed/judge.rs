//! bpftrace on the same load.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A script that runs until it is asked what it has seen.
pub struct Judge {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Judge {
    /// None where there is no bpftrace, or nobody is allowed to run it. A script that does not run elsewhere is wrong.
    pub fn start(script: &str) -> Option<Self> {
        Self::start_where_known(&[], script)
    }

    /// As [`Judge::start`], but None also where this kernel lacks what only some have: a tracepoint
    /// (`mmap_lock:mmap_lock_start_locking`) or a field of one (`order`).
    pub fn start_where_known(optional: &[&str], script: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: bpftrace needs root");
            return None;
        }
        if !has("bpftrace") {
            return None;
        }
        // It wants tracefs, which need not be mounted: a namespace of its own leaves the machine as it is.
        let shell = "test -d /sys/kernel/tracing/events || mount -t tracefs nodev /sys/kernel/tracing; \
                     exec bpftrace -e \"$0\"";
        let script = format!("BEGIN {{ printf(\"ready\\n\"); }} {script}");
        let mut child = Command::new("unshare")
            .args(["-m", "sh", "-c", shell, &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            if said.read_line(&mut line).unwrap() == 0 {
                let output = child.wait_with_output().unwrap();
                let why = String::from_utf8_lossy(&output.stderr);
                assert!(misses_only(optional, &why), "bpftrace does not run: {why}");
                println!("skipped: this kernel lacks what bpftrace is asked for: {why}");
                return None;
            }
        }
        Some(Self { child, said })
    }

    /// Ends it, and returns the value of a map without a key.
    pub fn values<const N: usize>(mut self, names: [&str; N]) -> [f64; N] {
        let pid = rustix::process::Pid::from_child(&self.child);
        let start = Instant::now();
        // What it says are a few lines, which fit into the pipe. A signal that comes while it still attaches is lost.
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "bpftrace does not end");
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            std::thread::sleep(Duration::from_secs(2));
        }
        let (mut text, mut errors) = (String::new(), String::new());
        self.said.read_to_string(&mut text).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        names.map(|name| {
            let value = text.lines().find_map(|line| line.strip_prefix(&format!("@{name}: ")));
            value
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or_else(|| panic!("no {name} in {text}{errors}"))
        })
    }
}

impl Drop for Judge {
    /// A test that fails must not leave its probe behind.
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Whether there is a program to compare with.
pub fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        println!("skipped: no {program} here");
    }
    there
}

/// Whether each error that bpftrace finds in the script is that the kernel lacks one of these. The script itself, which
/// it shows as well, has their names in any case.
fn misses_only(optional: &[&str], said: &str) -> bool {
    let is_known = |error: &str| {
        optional.iter().any(|name| {
            error.ends_with(&format!("tracepoint not found: {name}"))
                || error.ends_with(&format!("a field named '{name}'"))
        })
    };
    let mut errors = said.lines().filter(|line| line.contains(": ERROR: ")).peekable();
    errors.peek().is_some() && errors.all(|error| is_known(error.trim_end()))
}

/// How long bpftrace may take to print what it has.
const PATIENCE: Duration = Duration::from_secs(20);

/// What two who watched the same load have counted may differ by a twentieth: they do not begin and end together.
pub fn agree(what: &str, ours: f64, theirs: f64) {
    println!("{what}: {ours} here, {theirs} by bpftrace");
    let is_near = theirs > 0.0 && (ours - theirs).abs() <= 0.05 * theirs;
    assert!(is_near, "{what}: {ours} here, {theirs} by bpftrace");
}
