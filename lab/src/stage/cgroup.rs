//! Cgroups, for machines with v1 controllers, v2, or both.
//!
//! On v1 the cgroup exists under every requested controller, and in the v2 tree if there is one,
//! because only v2 has PSI per cgroup.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::Stage;
use super::disk::device_number;
use crate::incident::{Stop, WithPath};
use crate::journal::Undo;
use crate::machine;

const ROOT: &str = "/sys/fs/cgroup";
/// Files that keep a cgroup from swapping if set to 0: of v2, and of v1.
const NO_SWAP: &[&str] = &["memory.swap.max", "memory.swappiness"];
/// Period of the CPU quota: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// I/O limits per second. `None` is unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub struct IoLimit {
    /// Reads.
    pub riops: Option<u64>,
    /// Writes.
    pub wiops: Option<u64>,
    /// Bytes read.
    pub rbps: Option<u64>,
    /// Bytes written.
    pub wbps: Option<u64>,
}

impl IoLimit {
    /// The files of cgroup v1, each with its limit.
    pub(super) fn v1(self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("blkio.throttle.read_iops_device", self.riops),
            ("blkio.throttle.write_iops_device", self.wiops),
            ("blkio.throttle.read_bps_device", self.rbps),
            ("blkio.throttle.write_bps_device", self.wbps),
        ]
        .into_iter()
        .filter_map(|(file, value)| Some((file, value?)))
    }

    /// The value of `io.max` of cgroup v2.
    fn v2(self) -> String {
        let keys = [("riops", self.riops), ("wiops", self.wiops), ("rbps", self.rbps), ("wbps", self.wbps)];
        keys.iter()
            .filter_map(|(key, value)| Some(format!("{key}={}", (*value)?)))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A cgroup of the stage. Removed with its processes at the end.
#[derive(Clone, Debug)]
pub struct Cgroup {
    name: String,
    dirs: Vec<PathBuf>,
}

impl Cgroup {
    /// The last part of the path that Mitra reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Limits memory without swap: at the limit the kernel drops file pages or kills.
    pub fn limit_memory(&self, bytes: u64) -> Result<(), Stop> {
        if self.find(NO_SWAP).is_some() {
            self.write(NO_SWAP, "0")?;
        } else if machine::swap_is_on() {
            return Err(Stop::Skipped("swap is on, and no cgroup can be kept from it here".into()));
        }
        self.limit_memory_but_swap(bytes)
    }

    /// Limits memory. Swap, if there is any, stays unlimited.
    pub fn limit_memory_but_swap(&self, bytes: u64) -> Result<(), Stop> {
        self.write(&["memory.max", "memory.limit_in_bytes"], &bytes.to_string())
    }

    /// How often the cgroup reached its memory limit.
    pub fn memory_fails(&self) -> u64 {
        let read = |file: &str| self.find(&[file]).and_then(|path| fs::read_to_string(path).ok());
        let text = read("memory.failcnt").or_else(|| {
            let events = read("memory.events")?;
            events.lines().find_map(|line| line.strip_prefix("max ")).map(str::to_owned)
        });
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Limits CPU time to `percent` of one CPU.
    pub fn limit_cpu(&self, percent: u64) -> Result<(), Stop> {
        let quota_us = CPU_PERIOD_US * percent / 100;
        self.write(&["cpu.max"], &format!("{quota_us} {CPU_PERIOD_US}")).or_else(|_| {
            self.write(&["cpu.cfs_period_us"], &CPU_PERIOD_US.to_string())?;
            self.write(&["cpu.cfs_quota_us"], &quota_us.to_string())
        })
    }

    /// Limits I/O on a device (controller `io`).
    pub fn limit_io(&self, stage: &mut Stage, device: &str, limit: IoLimit) -> Result<(), Stop> {
        if let Some(dir) = self.dirs.iter().find(|d| d.join("blkio.throttle.read_iops_device").exists()) {
            return stage.throttle_v1(dir, device, limit);
        }
        let number = device_number(device)?;
        let path = self.find(&["io.max"]).ok_or_else(|| Stop::Skipped("no io.max in this group".into()))?;
        let lifted = format!("{number} riops=max wiops=max rbps=max wbps=max");
        stage.on_cleanup(Undo::Lift(path.clone(), lifted))?;
        fs::write(&path, format!("{number} {}", limit.v2())).at(&path)
    }

    /// Writes to the first of `files` that exists in one of the directories.
    pub fn write(&self, files: &[&str], value: &str) -> Result<(), Stop> {
        let path = self.find(files).ok_or_else(|| Stop::Failed(format!("{}: no {files:?}", self.name)))?;
        fs::write(&path, value).at(&path)
    }

    fn find(&self, files: &[&str]) -> Option<PathBuf> {
        self.dirs.iter().flat_map(|d| files.iter().map(|f| d.join(f))).find(|p| p.exists())
    }

    /// The files that a process writes `0` to in order to enter the cgroup.
    pub(super) fn open_entries(&self) -> Result<Vec<File>, Stop> {
        let entries = self.dirs.iter().map(|d| d.join("cgroup.procs"));
        entries.map(|entry| fs::OpenOptions::new().write(true).open(&entry).at(&entry)).collect()
    }

    /// Files with counters of this cgroup, with the prefix of their names.
    fn counter_files(&self) -> Vec<(String, PathBuf)> {
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

impl Stage {
    /// A cgroup under a drawn name with the given controllers: `memory`, `cpu`, `io`.
    ///
    /// [`Stage::moved`] has the counters of the latest cgroup: `cgroup.cpu.nr_throttled`.
    pub fn cgroup(&mut self, controllers: &[&str]) -> Result<Cgroup, Stop> {
        let mut parents =
            controllers.iter().map(|c| self.controller_root(c)).collect::<Result<Vec<_>, _>>()?;
        let beside = Path::new(ROOT).join("unified");
        if beside.join("cgroup.procs").exists() {
            parents.push(beside);
        }
        // An existing cgroup belongs to somebody else and would be removed at the end.
        let name = loop {
            let name = format!("{}-{}", self.draw.name(), self.draw.uniform(10, 9_999));
            if !parents.iter().any(|p| p.join(&name).exists()) {
                break name;
            }
        };
        let mut group = Cgroup { name, dirs: Vec::new() };
        for parent in &parents {
            self.add_dir(&mut group, parent)?;
        }
        self.timeline.cgroups = group.counter_files();
        Ok(group)
    }

    fn add_dir(&mut self, group: &mut Cgroup, parent: &Path) -> Result<(), Stop> {
        let dir = parent.join(&group.name);
        if group.dirs.contains(&dir) {
            return Ok(());
        }
        self.journal.note(Undo::Cgroup(dir.clone()))?;
        fs::create_dir(&dir).map_err(|e| Stop::Skipped(format!("cannot make {}: {e}", dir.display())))?;
        group.dirs.push(dir);
        Ok(())
    }

    /// The directory for new cgroups of this controller.
    fn controller_root(&mut self, controller: &str) -> Result<PathBuf, Stop> {
        let root = Path::new(ROOT);
        let lists = |file: &str| {
            let text = fs::read_to_string(root.join(file)).unwrap_or_default();
            text.split_whitespace().any(|c| c == controller)
        };
        if lists("cgroup.controllers") {
            let enabled = root.join("cgroup.subtree_control");
            if !lists("cgroup.subtree_control") {
                self.journal.note(Undo::Write(enabled.clone(), format!("-{controller}")))?;
                fs::write(&enabled, format!("+{controller}"))
                    .map_err(|e| Stop::Skipped(format!("cannot enable the {controller} controller: {e}")))?;
            }
            return Ok(root.to_owned());
        }
        let v1 = root.join(if controller == "io" { "blkio" } else { controller });
        if !v1.join("cgroup.procs").exists() {
            return Err(Stop::Skipped(format!("no {controller} controller in {ROOT}")));
        }
        Ok(v1)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::Cgroup;

    /// A cgroup with these controller files.
    fn group(dir: &Path, files: &[(&str, &str)]) -> Cgroup {
        for (file, text) in files {
            fs::write(dir.join(file), text).unwrap();
        }
        Cgroup { name: "g".into(), dirs: vec![dir.to_owned()] }
    }

    #[test]
    fn a_memory_limit_forbids_swap_in_both_versions() {
        for (limit, swap, swap_before) in
            [("memory.max", "memory.swap.max", "max"), ("memory.limit_in_bytes", "memory.swappiness", "60")]
        {
            let dir = tempfile::tempdir().unwrap();
            let group = group(dir.path(), &[(limit, "max"), (swap, swap_before)]);
            let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
            group.limit_memory_but_swap(1 << 20).unwrap();
            assert_eq!((read(limit).as_str(), read(swap).as_str()), ("1048576", swap_before));
            group.limit_memory(2 << 20).unwrap();
            assert_eq!((read(limit).as_str(), read(swap).as_str()), ("2097152", "0"));
        }
    }

    #[test]
    fn a_group_says_how_often_it_was_full() {
        let fails = |file: &str, text: &str| {
            let dir = tempfile::tempdir().unwrap();
            group(dir.path(), &[(file, text)]).memory_fails()
        };
        assert_eq!(fails("memory.failcnt", "17\n"), 17);
        assert_eq!(fails("memory.events", "low 0\nhigh 3\nmax 5\noom 0\n"), 5);
        assert_eq!(fails("memory.stat", "cache 1\n"), 0);
    }
}
