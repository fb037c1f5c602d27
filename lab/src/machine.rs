//! State of the whole machine and program: the lock, signals, the keeper, quiet, tools.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::counters;
use crate::incident::Stop;
use crate::journal;

/// Time limit of the wait for a quiet machine.
const QUIET_WAIT_S: u64 = 60;
/// Above this share of busy CPU time the machine is not quiet enough to start.
const QUIET_BUSY_MAX: f64 = 0.15;
const LOCK: &str = "/run/mitra-lab.lock";

/// Set by the signal handler, polled by everything that waits.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// True after Ctrl-C, `SIGTERM` or `SIGHUP`.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Sleeps. Returns an error as soon as the run is interrupted.
pub fn nap(time: Duration) -> Result<(), Stop> {
    let start = Instant::now();
    loop {
        if interrupted() {
            return Err(Stop::Interrupted);
        }
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// The lock of the single laboratory process that may change this machine.
pub struct MachineLock {
    _lock: File,
    keeper: Child,
    _line: Option<ChildStdin>,
}

/// A closed pipe ends the program silently, as in `mitra-lab list | head`.
pub fn die_on_closed_pipe() {
    // SAFETY: SIG_DFL is a valid disposition and no other thread runs yet.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

impl MachineLock {
    /// Waits for the lock, cleans up after a killed run, and starts the keeper.
    pub fn take() -> anyhow::Result<Self> {
        anyhow::ensure!(
            rustix::process::geteuid().is_root(),
            "needs root: makes cgroups, mounts and network namespaces"
        );
        let lock = lock()?;
        for failed in journal::sweep(Path::new(journal::DIR)) {
            println!("could not be undone: {failed}");
        }
        // SAFETY: the handler only stores to an atomic, which is safe in a signal handler.
        unsafe {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, on_signal as *const () as libc::sighandler_t);
            }
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("keeper").stdin(Stdio::piped());
        // SAFETY: `setsid` is a plain system call.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
        }
        let mut keeper = command.spawn()?;
        let line = keeper.stdin.take();
        Ok(Self { _lock: lock, keeper, _line: line })
    }
}

impl Drop for MachineLock {
    fn drop(&mut self) {
        // After an orderly end nothing is left for the keeper.
        _ = self.keeper.kill();
        _ = self.keeper.wait();
    }
}

/// Only one laboratory runs at a time, whatever user started it.
fn lock() -> io::Result<File> {
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(LOCK)
        .map_err(|e| io::Error::new(e.kind(), format!("{LOCK}: {e}")))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            println!("another laboratory runs here; waiting for it");
            flock(&file, FlockOperation::LockExclusive)?;
        }
        other => other?,
    }
    Ok(file)
}

/// The keeper: a process beside the laboratory that cleans up if the laboratory is killed, which
/// closes the keeper's standard input.
pub fn keep() -> io::Result<()> {
    io::stdin().read_to_end(&mut Vec::new())?;
    let _lock = lock()?;
    for failed in journal::sweep(Path::new(journal::DIR)) {
        eprintln!("could not be undone: {failed}");
    }
    Ok(())
}

/// Undoes what killed runs have left, without starting another run.
pub fn clean() -> io::Result<Vec<String>> {
    let _lock = lock()?;
    Ok(journal::sweep(Path::new(journal::DIR)))
}

/// Interval between two readings of the CPU usage.
const QUIET_LOOK: Duration = Duration::from_millis(500);
/// Set by `--hurry`: runs start on a busy machine too.
static HURRY: AtomicBool = AtomicBool::new(false);

/// Stops all waiting for a quiet machine.
pub fn hurry() {
    HURRY.store(true, Ordering::Relaxed);
}

/// Waits for a quiet moment, because other work on the machine would be recorded too. Continues
/// with a note after `QUIET_WAIT_S`.
pub fn wait_until_quiet() -> Result<(), Stop> {
    if HURRY.load(Ordering::Relaxed) {
        return Ok(());
    }
    let start = Instant::now();
    loop {
        let before = counters::cpu_seconds();
        nap(QUIET_LOOK)?;
        let after = counters::cpu_seconds();
        let busy = (after.busy_s - before.busy_s) / (after.total_s - before.total_s).max(0.01);
        if busy <= QUIET_BUSY_MAX {
            return Ok(());
        }
        if start.elapsed().as_secs() > QUIET_WAIT_S {
            println!("  note: the machine is {:.0} % busy with something else", busy * 100.0);
            return Ok(());
        }
    }
}

/// Where runs put their files: `$TMPDIR`, else `/var/tmp`, which is on a disk and not a tmpfs.
pub fn base_dir() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// Where `tool` is: on the path, or in a directory for root's tools.
pub fn which(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    // Distributions keep the programs of PostgreSQL in a directory per version.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    dirs.extend(versions.map(|v| v.path().join("bin")));
    dirs.into_iter().map(|dir| dir.join(tool)).find(|p| p.is_file())
}

/// True if `tool` can be started.
pub fn have(tool: &str) -> bool {
    which(tool).is_some()
}

/// Whether the machine has active swap.
pub fn swap_is_on() -> bool {
    has_swap(&fs::read_to_string("/proc/swaps").unwrap_or_default())
}

/// The first line of `/proc/swaps` is a header.
fn has_swap(swaps: &str) -> bool {
    swaps.lines().nth(1).is_some()
}

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Free space for us on the file system of `dir`.
pub fn free_disk_bytes(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |s| s.f_bavail * s.f_frsize)
}

/// Runs a short helper command and returns its standard output.
pub fn run(command: &mut Command) -> Result<String, Stop> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Stop::Failed(format!("{:?}: {e}", command.get_program())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Stop::Failed(format!("{command:?}: {} {said}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::has_swap;

    #[test]
    fn swap_is_on_when_a_device_is_listed() {
        let title = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert!(!has_swap(title) && !has_swap(""));
        assert!(has_swap(&format!("{title}/dev/vda5   partition\t998396\t\t0\t\t-2\n")));
    }
}
