//! A write-ahead journal of every change to the machine and how to undo it.
//!
//! A run has one file of JSON lines in [`DIR`]. Each entry is appended before its change is made,
//! so that after a `SIGKILL` the file lists what may be left. Undoing a change that was never made
//! is harmless. The file is removed when everything is undone; entries that failed stay in it for
//! the next attempt.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// Lost at reboot, like the changes themselves.
pub const DIR: &str = "/run/mitra-lab";
/// Environment variable with the stage's token, set in every process that a stage starts.
pub const TOKEN: &str = "MITRA_LAB_STAGE";
/// Time limit for the kernel to release a cgroup or a mount: 5 s in steps of 20 ms.
const TRIES: u32 = 250;
const STEP: Duration = Duration::from_millis(20);
/// `_IOWR('X', 120, int)` of `linux/fs.h`.
const FITHAW: libc::c_ulong = 0xc004_5878;

/// How to undo one change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undo {
    /// Runs a program with arguments.
    Command(Vec<String>),
    /// Writes a text to a file.
    Write(PathBuf, String),
    /// Removes a file or a directory with its contents.
    Remove(PathBuf),
    /// Writes a text to a file before anything else is undone: a throttled device cannot be
    /// unmounted.
    Lift(PathBuf, String),
    /// Kills all processes that carry the token of a stage.
    Processes(String),
    /// Kills the processes of a cgroup and removes it.
    Cgroup(PathBuf),
    /// Thaws a frozen file system, by its mount point. One that is not frozen stays unchanged.
    Thaw(PathBuf),
    /// Unmounts.
    Unmount(PathBuf),
    /// Detaches the file of a loop device, `/dev/loop3`.
    Detach(String),
    /// Removes a zram device, by its number.
    Zram(String),
}

impl Undo {
    /// Lower ranks first. Within a rank, the latest change first.
    fn rank(&self) -> u8 {
        match self {
            Self::Lift(..) | Self::Thaw(_) => 0,
            Self::Processes(_) => 1,
            _ => 2,
        }
    }

    /// Undoes the change. Something that no longer exists counts as undone.
    pub fn perform(&self) -> io::Result<()> {
        match self {
            Self::Command(words) => run(words),
            Self::Write(path, text) | Self::Lift(path, text) => gone_is_fine(fs::write(path, text)),
            Self::Remove(path) => match fs::symlink_metadata(path) {
                Ok(m) if m.is_dir() => gone_is_fine(fs::remove_dir_all(path)),
                Ok(_) => gone_is_fine(fs::remove_file(path)),
                Err(_) => Ok(()),
            },
            Self::Processes(token) => kill_all(token),
            Self::Cgroup(dir) => remove_cgroup(dir),
            Self::Thaw(path) => thaw(path),
            Self::Unmount(path) => unmount(path),
            Self::Detach(device) => detach(device),
            Self::Zram(number) => remove_zram(number),
        }
    }
}

fn thaw(path: &Path) -> io::Result<()> {
    match File::open(path) {
        // SAFETY: `FITHAW` takes no argument.
        Ok(dir) => match unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&dir), FITHAW, 0) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                error => Err(error),
            },
        },
        Err(error) => gone_is_fine(Err(error)),
    }
}

/// The journal of one stage.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// In the order of the changes.
    pending: Vec<Undo>,
}

impl Journal {
    /// Creates a journal in `dir`. If the name is taken, because a former run could not undo
    /// everything, adds a number.
    pub fn create(dir: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(dir).map_err(|e| of_file(dir, &e))?;
        let mut path = dir.join(format!("{name}.journal"));
        let mut number = 1;
        loop {
            match fs::OpenOptions::new().create_new(true).append(true).open(&path) {
                Ok(file) => return Ok(Self { path, file, pending: Vec::new() }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    number += 1;
                    path = dir.join(format!("{name}-{number}.journal"));
                }
                Err(e) => return Err(of_file(&path, &e)),
            }
        }
    }

    /// Must be called before the change is made.
    pub fn note(&mut self, undo: Undo) -> io::Result<()> {
        let mut line = serde_json::to_string(&undo)?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(|e| of_file(&self.path, &e))?;
        self.pending.push(undo);
        Ok(())
    }

    /// Undoes everything and removes the file. Returns the failures, which stay in the journal.
    pub fn undo_all(&mut self) -> Vec<String> {
        let failed = perform_all(&mut self.pending);
        if failed.is_empty() {
            _ = fs::remove_file(&self.path);
        }
        failed
    }
}

/// Performs all entries in the right order. Those that fail stay in `pending`.
fn perform_all(pending: &mut Vec<Undo>) -> Vec<String> {
    pending.reverse();
    pending.sort_by_key(Undo::rank);
    let mut failed = Vec::new();
    pending.retain(|undo| match undo.perform() {
        Ok(()) => false,
        Err(e) => {
            failed.push(format!("{undo:?}: {e}"));
            true
        }
    });
    failed
}

/// The entries of a journal file. A torn last line belongs to a change that was not made.
pub fn pending(text: &str) -> Vec<Undo> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Undoes what killed runs have left behind. The caller must hold the machine-wide lock. Returns
/// the failures.
pub fn sweep(dir: &Path) -> Vec<String> {
    let mut failed = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "journal") {
            continue;
        }
        let mut left = pending(&fs::read_to_string(&path).unwrap_or_default());
        println!("cleaning up after {}: {} things", entry.file_name().to_string_lossy(), left.len());
        let now_failed = perform_all(&mut left);
        if now_failed.is_empty() {
            _ = fs::remove_file(&path);
        }
        failed.extend(now_failed);
    }
    failed
}

fn of_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        // A removed device takes its files and limits with it.
        Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        other => other,
    }
}

fn run(words: &[String]) -> io::Result<()> {
    let Some((program, args)) = words.split_first() else { return Ok(()) };
    let output = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Pids of all processes that carry the token. Kernel threads have no environment.
fn carriers(token: &str) -> Vec<Pid> {
    let mark = format!("{TOKEN}={token}");
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if pid.unsigned_abs() != own && environment.split(|b| *b == 0).any(|v| v == mark.as_bytes()) {
            found.extend(Pid::from_raw(pid));
        }
    }
    found
}

/// Kills repeatedly, until no process is left that could start another.
fn kill_all(token: &str) -> io::Result<()> {
    for _ in 0..TRIES {
        let found = carriers(token);
        if found.is_empty() {
            return Ok(());
        }
        for pid in found {
            _ = kill_process(pid, Signal::KILL);
        }
        sleep(STEP);
    }
    Err(io::Error::other("processes of the stage do not die"))
}

fn remove_cgroup(dir: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..TRIES {
        let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        for pid in text.lines().filter_map(|l| l.parse().ok()).filter_map(Pid::from_raw) {
            _ = kill_process(pid, Signal::KILL);
        }
        last = gone_is_fine(fs::remove_dir(dir));
        if last.is_ok() {
            return Ok(());
        }
        sleep(STEP);
    }
    last
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|l| l.split(' ').nth(1).is_some_and(|p| Path::new(p) == path))
}

fn unmount(path: &Path) -> io::Result<()> {
    for _ in 0..TRIES {
        if !is_mounted(path) {
            return Ok(());
        }
        if rustix::mount::unmount(path, rustix::mount::UnmountFlags::empty()).is_err() {
            sleep(STEP);
        }
    }
    // A process that still uses the mount keeps it until it ends.
    Ok(rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH)?)
}

fn detach(device: &str) -> io::Result<()> {
    let name = device.trim_start_matches("/dev/");
    if !Path::new("/sys/block").join(name).join("loop/backing_file").exists() {
        return Ok(());
    }
    run(&["losetup".into(), "--detach".into(), device.into()])
}

fn remove_zram(number: &str) -> io::Result<()> {
    let device = format!("/dev/zram{number}");
    if !Path::new(&device).exists() {
        return Ok(());
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().any(|l| l.split_whitespace().next() == Some(&device)) {
        run(&["swapoff".into(), device])?;
    }
    fs::write(format!("/sys/block/zram{number}/reset"), "1")?;
    fs::write("/sys/class/zram-control/hot_remove", number)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Journal, Undo, pending, sweep};

    #[test]
    fn throttles_are_lifted_first_then_the_latest_change() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let say = |word: &str| {
            let line = format!("echo {word} >>{}", log.display());
            Undo::Command(vec!["sh".into(), "-c".into(), line])
        };
        let throttle = dir.path().join("throttle");
        let mut journal = Journal::create(dir.path(), "t").unwrap();
        journal.note(say("first")).unwrap();
        journal.note(Undo::Lift(throttle.clone(), "0".into())).unwrap();
        let seen = format!("cat {} >>{}", throttle.display(), log.display());
        journal.note(Undo::Command(vec!["sh".into(), "-c".into(), seen])).unwrap();
        assert_eq!(journal.undo_all(), Vec::<String>::new());
        assert_eq!(fs::read_to_string(&log).unwrap(), "0first\n");
        assert!(!dir.path().join("t.journal").exists());
    }

    #[test]
    fn a_killed_run_is_swept_and_what_fails_stays_noted() {
        let dir = tempfile::tempdir().unwrap();
        let (left, setting) = (dir.path().join("left"), dir.path().join("setting"));
        fs::create_dir(&left).unwrap();
        let mut journal = Journal::create(dir.path(), "killed").unwrap();
        journal.note(Undo::Remove(left.clone())).unwrap();
        journal.note(Undo::Write(setting.clone(), "60".into())).unwrap();
        journal.note(Undo::Command(vec!["false".into()])).unwrap();
        drop(journal);
        let failed = sweep(dir.path());
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(!left.exists());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "60");
        assert!(dir.path().join("killed.journal").exists());
    }

    #[test]
    fn what_could_not_be_undone_does_not_stop_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Journal::create(dir.path(), "run").unwrap();
        first.note(Undo::Command(vec!["false".into()])).unwrap();
        assert_eq!(first.undo_all().len(), 1);
        let mut second = Journal::create(dir.path(), "run").unwrap();
        second.note(Undo::Remove(dir.path().join("nothing"))).unwrap();
        assert_eq!(second.undo_all(), Vec::<String>::new());
        assert_eq!(sweep(dir.path()).len(), 1, "the first one is noted still");
    }

    #[test]
    fn a_torn_line_is_a_change_that_was_not_made() {
        let text = "{\"write\":[\"/proc/sys/vm/x\",\"1\"]}\n{\"rem";
        assert_eq!(pending(text), vec![Undo::Write("/proc/sys/vm/x".into(), "1".into())]);
    }
}
