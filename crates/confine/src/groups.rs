//! Control groups for helper programs, below the group that a service manager delegated to this
//! process.
//!
//! ```text
//! mitra.service            delegated; nobody may be in it once its controllers are on
//! ├── recorder             this process
//! └── job-1                what it started, with a limit of its own
//! ```
//!
//! Without its own limit, a child that needs too much memory takes it from everybody, and the
//! service manager may kill the whole service for it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Mount points of version 2, alone or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The group of this process. systemd uses the same name (`DelegateSubgroup=`).
const OWN: &str = "recorder";
const JOB: &str = "job-";
/// The controllers. The first is required.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// The attribute by which service managers mark a delegated group.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// Attempts to remove a group whose last process is about to end.
const REMOVALS: u32 = 100;
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);

/// The limits of a child.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Memory, page cache included. It gets no swap.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub tasks: u32,
    /// Its share of a busy CPU; 100 is the default.
    pub cpu_weight: u32,
}

/// The group that is delegated to this process.
#[derive(Debug)]
pub struct Groups {
    dir: PathBuf,
    next: AtomicU32,
}

impl Groups {
    /// Finds the group that is delegated to this process and moves this process into a group below
    /// it. An error says in words why there is none.
    pub fn find() -> Result<Groups, String> {
        let own = own_group()?;
        let dir = match own.parent() {
            Some(parent) if own.ends_with(OWN) && is_delegated(parent) => parent.to_owned(),
            _ => {
                if !is_delegated(&own) {
                    return Err("no cgroup is delegated to it".to_owned());
                }
                move_below(&own)?;
                own
            }
        };
        let groups = Groups { dir, next: AtomicU32::new(1) };
        groups.remove_old();
        groups.turn_on()?;
        Ok(groups)
    }

    /// Left by an earlier process.
    fn remove_old(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(JOB) {
                end(&entry.path());
            }
        }
    }

    /// Enables the controllers for the groups below.
    fn turn_on(&self) -> Result<(), String> {
        let file = self.dir.join("cgroup.subtree_control");
        for (i, name) in CONTROLLERS.iter().enumerate() {
            match fs::write(&file, format!("+{name}")) {
                Err(error) if i == 0 => return Err(format!("{}: +{name}: {error}", file.display())),
                // The other limits are useful by themselves.
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a group for one child. Its limits hold before anything is in it.
    pub fn make(&self, limits: Limits) -> io::Result<Group> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir.join(format!("{JOB}{number}"));
        fs::create_dir(&dir)?;
        let group = Group { dir };
        group.set("memory.max", limits.memory_bytes)?;
        // It is killed as a whole, because the rest of a program without one of its processes is of
        // no use.
        group.set("memory.oom.group", 1)?;
        // They are missing without swap, or if the controller is not delegated.
        for (file, value) in [
            ("memory.swap.max", 0),
            ("pids.max", limits.tasks.into()),
            ("cpu.weight", limits.cpu_weight.into()),
        ] {
            match group.set(file, value) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(group)
    }
}

/// The group of one child. Dropping it kills all that is still in it.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
}

impl Group {
    fn set(&self, file: &str, value: u64) -> io::Result<()> {
        // Kernels without the feature have no such file, and none can be created.
        let mut file = File::options().write(true).open(self.dir.join(file))?;
        file.write_all(value.to_string().as_bytes())
    }

    /// A process that writes `0` here joins the group.
    pub(crate) fn procs(&self) -> io::Result<OwnedFd> {
        Ok(File::options().write(true).open(self.dir.join("cgroup.procs"))?.into())
    }

    /// Whether the kernel killed a process in it at the memory limit.
    #[must_use]
    pub fn ran_out_of_memory(&self) -> bool {
        let text = fs::read_to_string(self.dir.join("memory.events")).unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        end(&self.dir);
    }
}

/// Kills what is in a group, even if it has left the session of its parent, and removes it.
fn end(dir: &Path) {
    // Kernels before 5.14 have no such file.
    _ = fs::write(dir.join("cgroup.kill"), "1");
    for _ in 0..REMOVALS {
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                kill_each(dir);
                std::thread::sleep(REMOVAL_PAUSE);
            }
            _ => break,
        }
    }
}

/// Kills processes that `cgroup.kill` misses: it signals the first thread of a process, which may
/// have ended before the others.
fn kill_each(dir: &Path) {
    let listed = || fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    for line in listed().lines() {
        let Some(pid) = line.parse().ok().and_then(Pid::from_raw) else { continue };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // The number may have been reused before it was opened; the pidfd is in the group or not.
        if listed().lines().any(|other| other == line) {
            _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// The directory of this process' group.
fn own_group() -> Result<PathBuf, String> {
    let text = fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
    let none = || "there is no cgroup version 2 hierarchy".to_owned();
    let below = text.lines().find_map(|line| line.strip_prefix("0::/")).ok_or_else(none)?;
    let mount = MOUNTS.iter().map(Path::new).find(|dir| dir.join("cgroup.procs").exists());
    Ok(mount.ok_or_else(none)?.join(below))
}

/// Whether this process may divide a group: it is marked as delegated, or belongs to a user other
/// than root.
fn is_delegated(dir: &Path) -> bool {
    let is_marked = |name: &&str| {
        let mut value = [0_u8; 8];
        rustix::fs::getxattr(dir, *name, &mut value[..]).is_ok_and(|length| value.get(..length) == Some(b"1"))
    };
    let user = rustix::process::geteuid();
    let is_ours = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.uid() == user.as_raw());
    MARKS.iter().any(is_marked)
        || !user.is_root() && is_ours(dir) && is_ours(&dir.join("cgroup.subtree_control"))
}

/// Moves this process into its own group. A group with other processes cannot be divided.
fn move_below(dir: &Path) -> Result<(), String> {
    let list = dir.join("cgroup.procs");
    let own = std::process::id().to_string();
    let said = |what: &Path, error: io::Error| format!("{}: {error}", what.display());
    let text = fs::read_to_string(&list).map_err(|e| said(&list, e))?;
    if text.lines().any(|pid| pid != own) {
        return Err(format!("{}: other processes are in the cgroup too", dir.display()));
    }
    let below = dir.join(OWN);
    match fs::create_dir(&below) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(said(&below, error)),
        _ => {}
    }
    fs::write(below.join("cgroup.procs"), own).map_err(|e| said(&below, e))
}
