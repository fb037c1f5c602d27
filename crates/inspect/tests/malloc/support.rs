//! Programs to inspect.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use mitra_inspect::Target;
use mitra_inspect::malloc::{CHeap, Detection, Options, find, walk_heap};

/// A waiting program and its output.
pub struct Running {
    child: Child,
    pub said: Vec<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Running {
    /// Starts it, and waits until it prints that it is ready.
    pub fn start(command: &mut Command) -> Option<Self> {
        let mut child = match command.stdout(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: {command:?}: {error}");
                return None;
            }
        };
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.map(Result::unwrap).take_while(|line| line != "ready").collect();
        Some(Self { child, said })
    }

    pub fn target(&self) -> Target {
        Target::open(self.child.id()).unwrap()
    }

    pub fn walk_heap(&self) -> (Detection, CHeap) {
        let target = self.target();
        let detection = find(&target).unwrap();
        let heap = walk_heap(&target, &detection, &Options::default());
        (detection, heap)
    }

    /// The number behind a name in the output.
    pub fn number(&self, name: &str) -> u64 {
        let words: Vec<&str> = self.said.iter().flat_map(|line| line.split_whitespace()).collect();
        let at = words.iter().position(|word| *word == name).unwrap();
        words[at + 1].parse().unwrap()
    }
}

/// Compiles a program; `None`, with a message, if that is not possible here.
pub fn compile(compiler: &str, source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(|| tempfile::tempdir().unwrap()).path();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malloc").join(source);
    let program = dir.join(format!("{name}-{}", rand_name()));
    let done = Command::new(compiler)
        .args(flags)
        .arg("-O1")
        .arg("-pthread")
        .arg("-o")
        .arg(&program)
        .arg(source)
        .status();
    match done {
        Ok(status) if status.success() => Some(program),
        other => {
            println!("skipped: {compiler} {flags:?}: {other:?}");
            None
        }
    }
}

/// Tests run in parallel, and each compiles for itself.
fn rand_name() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}
