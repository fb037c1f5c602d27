//! One cgroup, whether the machine has cgroup v1 controllers, v2, or both.
//!
//! On v1 the group exists under every controller that is asked for, and in the v2 tree beside them
//! if there is one, because only that has pressure (PSI) per group.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::guard::PREFIX;
use crate::harness::Stop;

const ROOT: &str = "/sys/fs/cgroup";
/// Period of the CPU quota: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// A cgroup that is removed, with everything that runs in it, when dropped.
pub struct Cgroup {
    name: String,
    dirs: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes `mitra-live-NAME` with the given controllers (`memory`, `cpu`).
    pub fn create(name: &str, controllers: &[&str]) -> Result<Self, Stop> {
        let mut group = Self { name: format!("{PREFIX}{name}"), dirs: Vec::new() };
        for controller in controllers {
            group.add(controller)?;
        }
        let beside = Path::new(ROOT).join("unified");
        if beside.join("cgroup.procs").exists() {
            group.add_dir(beside)?;
        }
        Ok(group)
    }

    fn add(&mut self, controller: &str) -> Result<(), Stop> {
        let root = Path::new(ROOT);
        let v2 = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if v2.split_whitespace().any(|c| c == controller) {
            fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"))
                .map_err(|e| Stop::Skipped(format!("cannot enable the {controller} controller: {e}")))?;
            return self.add_dir(root.to_owned());
        }
        let v1 = root.join(controller);
        if !v1.join("cgroup.procs").exists() {
            return Err(Stop::Skipped(format!("no {controller} controller in {ROOT}")));
        }
        self.add_dir(v1)
    }

    fn add_dir(&mut self, parent: PathBuf) -> Result<(), Stop> {
        let dir = parent.join(&self.name);
        if self.dirs.contains(&dir) {
            return Ok(());
        }
        fs::create_dir(&dir).map_err(|e| Stop::Skipped(format!("cannot make {}: {e}", dir.display())))?;
        self.dirs.push(dir);
        Ok(())
    }

    /// The last part of the path that Mitra reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Limits memory; swap, if there is any, stays unlimited.
    pub fn limit_memory(&self, bytes: u64) -> Result<(), Stop> {
        self.write(&["memory.max", "memory.limit_in_bytes"], &bytes.to_string())
    }

    /// Limits CPU time to `percent` of one CPU.
    pub fn limit_cpu(&self, percent: u64) -> Result<(), Stop> {
        let quota_us = CPU_PERIOD_US * percent / 100;
        self.write(&["cpu.max"], &format!("{quota_us} {CPU_PERIOD_US}")).or_else(|_| {
            self.write(&["cpu.cfs_period_us"], &CPU_PERIOD_US.to_string())?;
            self.write(&["cpu.cfs_quota_us"], &quota_us.to_string())
        })
    }

    /// Writes to the first of `files` that one of the directories has.
    fn write(&self, files: &[&str], value: &str) -> Result<(), Stop> {
        let path = self.find(files).ok_or_else(|| Stop::Failed(format!("{}: no {files:?}", self.name)))?;
        fs::write(&path, value).map_err(|e| Stop::Failed(format!("{}: {e}", path.display())))
    }

    fn find(&self, files: &[&str]) -> Option<PathBuf> {
        self.dirs.iter().flat_map(|d| files.iter().map(|f| d.join(f))).find(|p| p.exists())
    }

    /// The files to write `0` to in order to enter the group.
    pub fn open_entries(&self) -> io::Result<Vec<File>> {
        self.dirs.iter().map(|d| fs::OpenOptions::new().write(true).open(d.join("cgroup.procs"))).collect()
    }

    /// Files with counters of this group, with the prefix they are shown under.
    pub fn counter_files(&self) -> Vec<(String, PathBuf)> {
        let files: [(&str, &[&str]); 7] = [
            ("cgroup.cpu", &["cpu.stat"]),
            ("cgroup.memory", &["memory.stat"]),
            ("cgroup.failcnt", &["memory.failcnt"]),
            ("cgroup.events", &["memory.events", "memory.oom_control"]),
            ("cgroup.psi.memory", &["memory.pressure"]),
            ("cgroup.psi.io", &["io.pressure"]),
            ("cgroup.psi.cpu", &["cpu.pressure"]),
        ];
        files.iter().filter_map(|(prefix, names)| Some(((*prefix).to_owned(), self.find(names)?))).collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for dir in &self.dirs {
            remove(dir);
        }
    }
}

/// Kills what is in the group and removes it; gives the kernel two seconds to let go.
fn remove(dir: &Path) {
    for _ in 0..100 {
        let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        for pid in text.lines().filter_map(|l| l.parse().ok()).filter_map(rustix::process::Pid::from_raw) {
            _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        match fs::remove_dir(dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => sleep(Duration::from_millis(20)),
            _ => return,
        }
    }
    println!("  note: {} could not be removed", dir.display());
}

/// Removes groups of earlier runs: at the top of v2, of each v1 controller, and of the v2 tree beside.
pub fn sweep() {
    let mut parents = vec![PathBuf::from(ROOT)];
    parents.extend(fs::read_dir(ROOT).into_iter().flatten().flatten().map(|e| e.path()));
    for entry in parents.iter().flat_map(|p| fs::read_dir(p).into_iter().flatten().flatten()) {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            println!("live-cleanup: {}", entry.path().display());
            remove(&entry.path());
        }
    }
}
