//! Everything that has to be undone: directories, processes, huge pages, zram swap.
//!
//! Each guard undoes its work when dropped. What changes the machine itself is also noted in
//! [`STATE_DIR`], so that [`sweep`] can undo it after a run that was killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};

use crate::cgroup::{self, Cgroup};
use crate::counters::mem_available_bytes;
use crate::harness::Stop;

/// Everything that these tests leave in the file system or in `/sys` has this in its name.
pub const PREFIX: &str = "mitra-live-";
/// Archives of failed cases: kept for people, never swept.
const KEPT_PREFIX: &str = "mitra-kept-";
/// Notes of what has to be restored, one file each. Lost at reboot, like what they describe.
const STATE_DIR: &str = "/run/mitra-live";

/// A directory for one case. Prefers `$TMPDIR`, else a real disk rather than a tmpfs.
pub struct RunDir(PathBuf);

fn base_dir() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

impl RunDir {
    /// Makes the directory.
    pub fn create(case: &str) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix(&format!("{PREFIX}{case}-")).tempdir_in(base_dir())?;
        Ok(Self(dir.keep()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Moves the archive of a failed case and its report to a place that stays.
    pub fn keep(&self, archive: &Path, json: &str) -> io::Result<PathBuf> {
        let name = self.0.file_name().and_then(|n| n.to_str()).unwrap_or(PREFIX);
        let kept = self.0.with_file_name(name.replacen(PREFIX, KEPT_PREFIX, 1));
        fs::create_dir_all(&kept)?;
        fs::rename(archive, kept.join("archive"))?;
        fs::write(kept.join("report.json"), json)?;
        Ok(kept)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// A process group that dies with its guard, and with the test binary whatever happens to that.
pub struct Child {
    inner: std::process::Child,
    group: Pid,
}

/// Starts `command` in a group of its own, inside `cgroup` from its first instruction on.
///
/// Standard output and error go to `log`.
pub fn spawn(command: &mut Command, cgroup: Option<&Cgroup>, log: &Path) -> Result<Child, Stop> {
    let out = File::create(log)?;
    command.process_group(0).stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
    let entries: Vec<File> = cgroup.map_or_else(|| Ok(Vec::new()), Cgroup::open_entries)?;
    // SAFETY: the closure only makes plain system calls, on files opened before the fork.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            for entry in &entries {
                rustix::io::write(entry, b"0")?;
            }
            Ok(())
        });
    }
    let inner = command
        .spawn()
        .map_err(|e| Stop::Failed(format!("cannot start {:?}: {e}", command.get_program())))?;
    let group = i32::try_from(inner.id()).ok().and_then(Pid::from_raw);
    let group = group.ok_or_else(|| Stop::Failed("a child without a pid".into()))?;
    Ok(Child { inner, group })
}

impl Child {
    /// The pid as Mitra reports it.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// `Some(success)` once the process has ended by itself.
    pub fn ended(&mut self) -> Option<bool> {
        self.inner.try_wait().ok().flatten().map(|status| status.success())
    }

    /// Presses Ctrl-C.
    pub fn interrupt(&self) {
        _ = kill_process_group(self.group, Signal::INT);
    }

    /// Asks for an orderly end; `None` when it did not come in time.
    pub fn terminate(&mut self, patience: Duration) -> Option<std::process::ExitStatus> {
        _ = rustix::process::kill_process(self.group, Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < patience {
            if let Ok(Some(status)) = self.inner.try_wait() {
                return Some(status);
            }
            sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        _ = kill_process_group(self.group, Signal::KILL);
        _ = self.inner.wait();
    }
}

fn note(name: &str, text: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(STATE_DIR)?;
    let path = Path::new(STATE_DIR).join(name);
    fs::write(&path, text)?;
    Ok(path)
}

const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

/// So often huge pages are asked for: each time the kernel compacts a little more.
const RESERVE_TRIES: u32 = 4;

/// Makes the machine small by reserving huge pages that nobody uses.
///
/// This is the one change that would cripple the machine if the test were killed, so a shell waits for
/// that: its standard input ends with this process, and then it puts the number back.
pub struct SmallMemory {
    before: String,
    note: PathBuf,
    keeper: std::process::Child,
}

impl SmallMemory {
    /// Leaves about `usable_bytes` for anonymous memory and page cache.
    pub fn leave(usable_bytes: u64) -> Result<Self, Stop> {
        let before = fs::read_to_string(NR_HUGEPAGES)
            .map_err(|e| Stop::Skipped(format!("{NR_HUGEPAGES}: {e}")))?
            .trim()
            .to_owned();
        if before != "0" {
            return Err(Stop::Skipped("huge pages are in use on this machine".into()));
        }
        let page_bytes = hugepage_bytes().ok_or_else(|| Stop::Skipped("no huge page size".into()))?;
        let available = mem_available_bytes().unwrap_or(0);
        let pages = available.saturating_sub(usable_bytes) / page_bytes;
        let keeper = Command::new("sh")
            .args(["-c", &format!("read -r _; echo {before} >{NR_HUGEPAGES}")])
            .process_group(0)
            .stdin(Stdio::piped())
            .spawn()?;
        let guard = Self { note: note("hugepages", &before)?, before, keeper };
        // Huge pages need memory in one piece, and cached files lie all over it.
        let mut left = available;
        for _ in 0..RESERVE_TRIES {
            _ = fs::write("/proc/sys/vm/drop_caches", "3");
            _ = fs::write("/proc/sys/vm/compact_memory", "1");
            fs::write(NR_HUGEPAGES, pages.to_string())?;
            left = mem_available_bytes().unwrap_or(0);
            if left <= usable_bytes + usable_bytes / 4 {
                return Ok(guard);
            }
        }
        Err(Stop::Skipped(format!("memory could not be made small: {} MB are left", left >> 20)))
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        if fs::write(NR_HUGEPAGES, &self.before).is_ok() {
            _ = fs::remove_file(&self.note);
        }
        _ = self.keeper.kill();
        _ = self.keeper.wait();
    }
}

fn hugepage_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("Hugepagesize:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Swap space on compressed memory.
pub struct ZramSwap {
    number: String,
    note: PathBuf,
}

impl ZramSwap {
    /// Adds a zram device of its own and swaps to it.
    pub fn on(size_bytes: u64) -> Result<Self, Stop> {
        let control = Path::new("/sys/class/zram-control/hot_add");
        if !control.exists() {
            _ = Command::new("modprobe").arg("zram").output();
        }
        let number = fs::read_to_string(control)
            .map_err(|e| Stop::Skipped(format!("no zram: {}: {e}", control.display())))?
            .trim()
            .to_owned();
        let guard = Self { note: note(&format!("zram-{number}"), &number)?, number };
        fs::write(format!("/sys/block/zram{}/disksize", guard.number), size_bytes.to_string())?;
        crate::harness::run(Command::new("mkswap").arg(guard.device()))?;
        crate::harness::run(Command::new("swapon").args(["-p", "100"]).arg(guard.device()))?;
        Ok(guard)
    }

    fn device(&self) -> String {
        format!("/dev/zram{}", self.number)
    }
}

impl Drop for ZramSwap {
    fn drop(&mut self) {
        remove_zram(&self.number);
        _ = fs::remove_file(&self.note);
    }
}

fn remove_zram(number: &str) {
    _ = Command::new("swapoff").arg(format!("/dev/zram{number}")).output();
    _ = fs::write(format!("/sys/block/zram{number}/reset"), "1");
    _ = fs::write("/sys/class/zram-control/hot_remove", number);
}

/// Undoes what a killed run left behind. Needs the machine-wide lock.
pub fn sweep() {
    cgroup::sweep();
    for entry in fs::read_dir(STATE_DIR).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let name = entry.file_name();
        println!("live-cleanup: {}", name.to_string_lossy());
        if name == "hugepages" {
            _ = fs::write(NR_HUGEPAGES, &text);
        } else {
            remove_zram(text.trim());
        }
        _ = fs::remove_file(entry.path());
    }
    for entry in fs::read_dir(base_dir()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            println!("live-cleanup: {}", entry.path().display());
            _ = fs::remove_dir_all(entry.path());
        }
    }
}
