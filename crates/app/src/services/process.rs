//! The processes behind rows of services: their names, groups and parents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mitra_archive::{Query, Reader};
use mitra_model::{Entity, SeriesSet, Span, cgroup_name};

use super::metrics;
use crate::recording::chunks;

/// Read at a time.
const CHUNK_NS: i64 = 600 * mitra_model::time::SECOND;
const METRICS: &[&str] =
    &["task.comm", "task.cgroup", "task.ppid", "cgroup.container", "cgroup.image", "cgroup.pod"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    pub name: Option<String>,
    pub cgroup: Option<String>,
    /// Its unit, container or pod.
    pub cgroup_name: Option<String>,
    pub parent: Option<u32>,
}

/// By process id, as they were last.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    processes: BTreeMap<u32, Process>,
}

impl Processes {
    /// Reads these processes from a recording.
    pub fn read(reader: &Reader, span: Span, pids: BTreeSet<u32>) -> anyhow::Result<Processes> {
        let mut processes = Processes::default();
        if pids.is_empty() {
            return Ok(processes);
        }
        let pids = Arc::new(pids);
        for part in chunks(span, CHUNK_NS) {
            let wanted = Arc::clone(&pids);
            let is_wanted = move |entity: Entity, row: &str| match entity {
                Entity::Task => wanted.contains(&leader(row)),
                _ => entity == Entity::Cgroup,
            };
            let query = Query { rows: Some(Arc::new(is_wanted)), ..Query::new(part, metrics(METRICS)) };
            processes.add(&reader.read(&query)?);
        }
        Ok(processes)
    }

    /// Takes in the leaders of a set. Of two processes with one id the later one counts.
    pub fn add(&mut self, set: &SeriesSet) {
        for (row, comm) in set.each_text("task.comm") {
            self.of(row).name = comm.last().map(str::to_owned);
        }
        for (row, cgroup) in set.each_text("task.cgroup") {
            let process = self.of(row);
            process.cgroup = cgroup.last().map(str::to_owned);
            process.cgroup_name = cgroup.last().and_then(|path| cgroup_name::recorded(set, path));
        }
        for (row, parent) in set.each("task.ppid") {
            self.of(row).parent = parent.last(Span::ALL).map(|pid| pid as u32);
        }
    }

    fn of(&mut self, row: &str) -> &mut Process {
        self.processes.entry(leader(row)).or_default()
    }

    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// Whether two processes do the same work: they share name and group. In the root group, where everything may be, they
    /// have to be of one family.
    pub fn are_alike(&self, a: u32, b: u32) -> bool {
        let (Some(one), Some(other)) = (self.get(a), self.get(b)) else { return false };
        let same = one.name.is_some() && one.name == other.name;
        let Some(cgroup) = one.cgroup.as_deref() else { return false };
        if !same || other.cgroup.as_deref() != Some(cgroup) {
            return false;
        }
        // 1 adopts processes of everybody.
        let siblings = one.parent == other.parent && one.parent.is_some_and(|parent| parent > 1);
        cgroup != "/" || siblings || one.parent == Some(b) || other.parent == Some(a)
    }
}

/// The thread id in the name of a task's row, `4242@81230000000`; 0 is nobody's.
fn leader(row: &str) -> u32 {
    row.split_once('@').and_then(|(tid, _)| tid.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
impl Processes {
    pub fn with(mut self, pid: u32, name: &str, cgroup: &str, parent: u32) -> Self {
        let (name, cgroup) = (Some(name.to_owned()), Some(cgroup.to_owned()));
        self.processes.insert(pid, Process { name, cgroup, cgroup_name: None, parent: Some(parent) });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_name_and_group_or_parent() {
        let processes = Processes::default()
            .with(10, "gunicorn", "/system.slice/web.service", 1)
            .with(11, "gunicorn", "/system.slice/web.service", 10)
            .with(12, "psql", "/system.slice/web.service", 10)
            .with(20, "python3", "/", 5)
            .with(21, "python3", "/", 5)
            .with(22, "python3", "/", 1)
            .with(23, "python3", "/", 1)
            .with(24, "python3", "/", 22);
        assert!(processes.are_alike(10, 11) && processes.are_alike(20, 21) && processes.are_alike(22, 24));
        assert!(!processes.are_alike(10, 12), "another program of its group");
        assert!(!processes.are_alike(20, 22) && !processes.are_alike(22, 23), "strangers");
        assert!(!processes.are_alike(10, 99));
    }
}
