//! How often each file of a group is worth reading. What they hold is known by [`mitra_parse::cgroup`].

use mitra_model::NA;
use mitra_parse::cgroup::File;

use crate::cells::col;

/// How often a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// On each tick: these tell whether the others are worth it.
    Always,
    /// When something happened in the group.
    Active,
    /// Limits and weights: on slow ticks.
    Slow,
    /// Limits of I/O: soon after the group began to send some.
    IoLimit,
}

/// Files that move whenever something happens in the group.
const ALWAYS: [&str; 3] = ["cpuacct.usage", "memory.current", "memory.usage_in_bytes"];
/// Files that change when somebody sets them.
const SLOW: [&str; 12] = [
    "cpu.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.weight",
    "cpu.shares",
    "cpu.idle",
    "memory.max",
    "memory.high",
    "memory.swap.max",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "pids.max",
];

/// Where the limits of I/O are, and each is a file of its own with version 1.
const IO_LIMITS: [&str; 5] = [
    "io.max",
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];

impl Pace {
    /// The pace of a file.
    #[must_use]
    pub fn of(file: &File) -> Pace {
        // Version 1 has a file of this name too, with the throttling alone.
        let is_usage = file.name == "cpu.stat" && file.hierarchy == mitra_parse::cgroup::Hierarchy::V2;
        if is_usage || ALWAYS.contains(&file.name) {
            Pace::Always
        } else if SLOW.contains(&file.name) {
            Pace::Slow
        } else if IO_LIMITS.contains(&file.name) {
            Pace::IoLimit
        } else {
            Pace::Active
        }
    }
}

/// The cells that say whether something happens in a group.
#[derive(Debug)]
pub struct SignsOfLife {
    activity: [usize; 2],
    stall: [usize; 3],
    io: [usize; 2],
    limits: [usize; 2],
    tasks: usize,
    /// The device of the limits of I/O.
    pub limit_device: usize,
}

impl SignsOfLife {
    pub fn new() -> Self {
        SignsOfLife {
            activity: ["cgroup.cpu_usage", "cgroup.memory_current"].map(col),
            stall: ["cgroup.psi_cpu_some", "cgroup.psi_io_some", "cgroup.psi_memory_some"].map(col),
            io: ["cgroup.io_reads", "cgroup.io_writes"].map(col),
            limits: ["cgroup.cpu_quota", "cgroup.pids_max"].map(col),
            tasks: col("cgroup.pids_current"),
            limit_device: col("cgroup.io_limit_device"),
        }
    }

    /// What moves when something happens in the group.
    pub fn activity(&self, cells: &[i64]) -> [i64; 2] {
        self.activity.map(|column| cells.get(column).copied().unwrap_or(NA))
    }

    /// Whether the group has a quota, or half as many tasks as it may have, and nothing tells whether something happens in it: with
    /// version 1 such a limit may be in another hierarchy than the CPU time and the memory.
    pub fn is_limited_blindly(&self, cells: &[i64]) -> bool {
        let of = |column: usize| cells.get(column).copied().unwrap_or(NA);
        let [quota, tasks_max] = self.limits.map(of);
        let is_half_full = tasks_max != NA && of(self.tasks) >= tasks_max / 2;
        self.activity(cells) == [NA; 2] && (quota != NA || is_half_full)
    }

    /// The tasks of the group as a share of what it may have, in millionths. `None`: it has no limit.
    pub fn tasks_ppm(&self, cells: &[i64]) -> Option<i64> {
        let of = |column: usize| cells.get(column).copied().filter(|value| *value != NA);
        let max = of(self.limits[1]).filter(|max| *max > 0)?;
        Some(of(self.tasks)?.saturating_mul(1_000_000) / max)
    }

    /// How much I/O the group has sent.
    pub fn io(&self, cells: &[i64]) -> [i64; 2] {
        self.io.map(|column| cells.get(column).copied().unwrap_or(NA))
    }

    /// What moves while tasks of the group are stalled.
    pub fn stall(&self, cells: &[i64]) -> [i64; 3] {
        self.stall.map(|column| cells.get(column).copied().unwrap_or(NA))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mitra_parse::cgroup::FILES;

    #[test]
    fn a_group_with_a_limit_of_which_nothing_tells_is_looked_at() {
        let signs = SignsOfLife::new();
        let with = |values: &[(&str, i64)]| {
            let mut cells = vec![NA; mitra_model::columns(mitra_model::Entity::Cgroup).len()];
            values.iter().for_each(|(name, value)| cells[col(name)] = *value);
            signs.is_limited_blindly(&cells)
        };
        assert!(with(&[("cgroup.cpu_quota", 100_000)]));
        assert!(!with(&[("cgroup.cpu_quota", 100_000), ("cgroup.cpu_usage", 7)]), "its time tells");
        assert!(with(&[("cgroup.pids_max", 90), ("cgroup.pids_current", 50)]));
        assert!(!with(&[("cgroup.pids_max", 4915), ("cgroup.pids_current", 3)]), "as every unit of systemd");
        assert!(!with(&[]));
        let mut cells = vec![NA; mitra_model::columns(mitra_model::Entity::Cgroup).len()];
        assert_eq!(signs.tasks_ppm(&cells), None);
        (cells[col("cgroup.pids_max")], cells[col("cgroup.pids_current")]) = (90, 45);
        assert_eq!(signs.tasks_ppm(&cells), Some(500_000));
    }

    #[test]
    fn every_name_is_one_of_the_parsers() {
        for name in ALWAYS.iter().chain(&SLOW).chain(&IO_LIMITS) {
            assert!(FILES.iter().any(|file| file.name == *name), "{name}");
        }
        let paces = |pace| FILES.iter().filter(|file| Pace::of(file) == pace).count();
        assert_eq!((paces(Pace::Always), paces(Pace::Slow), paces(Pace::IoLimit)), (4, 14, 5));
        let signs = SignsOfLife::new();
        assert!(
            signs.activity.iter().chain(&signs.stall).chain(&signs.io).all(|column| *column != usize::MAX)
        );
        assert_ne!(signs.limit_device, usize::MAX);
    }
}
