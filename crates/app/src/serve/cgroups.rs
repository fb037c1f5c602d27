//! The cgroups of one moment: units, slices, containers and pods, each with those below it.

use std::collections::{BTreeMap, BTreeSet};

use mitra_diagnose::process::Process;
use mitra_model::cgroup_name;
use serde_json::{Value, json};

use super::archive::View;
use super::processes::{Moment, largest_first};
use super::response::Failure;
use crate::render::style::rfc3339;

const METRICS: &[&str] = &[
    "task.tgid",
    "task.kthread",
    "task.state",
    "task.kstack",
    "task.cgroup",
    "task.cpu_time",
    "task.run_delay",
    "task.read_bytes",
    "task.write_bytes",
    "cgroup.container",
    "cgroup.image",
    "cgroup.pod",
    "cgroup.cpu_usage",
    "cgroup.throttled_time",
    "cgroup.memory_current",
    "cgroup.memory_max",
    "cgroup.io_read_bytes",
    "cgroup.io_write_bytes",
    "cgroup.pids_current",
    "cgroup.psi_cpu_some",
    "cgroup.psi_io_some",
    "cgroup.psi_memory_some",
];

/// One of them is there where the recorder saw a group.
const SEEN_BY: &[&str] = &["cgroup.cpu_usage", "cgroup.memory_current", "cgroup.pids_current"];

/// What the tasks of a group and of those below it add up to.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    processes: usize,
    tasks: usize,
    cpu: Option<f64>,
    lost: Option<f64>,
    read: Option<f64>,
    written: Option<f64>,
}

impl Sums {
    fn of(moment: &Moment, process: &Process<'_>) -> Sums {
        let is_there = |row: &&&str| moment.set.get("task.tgid", row).is_some_and(|s| moment.is_there(s));
        Sums {
            processes: 1,
            tasks: process.rows.iter().filter(is_there).count(),
            cpu: moment.rate(process, "task.cpu_time"),
            // What a kernel thread waits for is not lost to anybody's work.
            lost: moment.lost(process).filter(|_| !process.kthread),
            read: moment.rate(process, "task.read_bytes"),
            written: moment.rate(process, "task.write_bytes"),
        }
    }

    fn add(&mut self, other: Sums) {
        let sum = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(|a, b| a + b);
        *self = Sums {
            processes: self.processes + other.processes,
            tasks: self.tasks + other.tasks,
            cpu: sum(self.cpu, other.cpu),
            lost: sum(self.lost, other.lost),
            read: sum(self.read, other.read),
            written: sum(self.written, other.written),
        };
    }
}

/// Numbers are the group's own where they were recorded; else CPU time, I/O and tasks are those of the tasks that were seen.
pub fn answer(view: &View, at: i64, span_s: usize) -> Result<Value, Failure> {
    let moment = Moment::read(view, at, span_s, METRICS)?;
    let Moment { ref set, last, span, seconds } = moment;
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    for process in moment.processes() {
        let own = Sums::of(&moment, &process);
        for path in process.cgroup.into_iter().flat_map(with_those_above) {
            sums.entry(path).or_default().add(own);
        }
    }
    let recorded = SEEN_BY.iter().flat_map(|metric| set.each(metric));
    let recorded = recorded.filter(|(_, series)| moment.is_there(series)).map(|(path, _)| path);
    let paths: BTreeSet<&str> = sums.keys().copied().chain(recorded).collect();
    let rows = paths.into_iter().map(|path| {
        let rate =
            |metric: &str| Some(set.get(metric, path)?.total(span)? / seconds).filter(|_| seconds > 0.0);
        let level = |metric: &str| set.get(metric, path)?.last(span);
        let of_tasks = sums.get(path).copied().unwrap_or_default();
        let cpu = rate("cgroup.cpu_usage").or(of_tasks.cpu);
        let row = json!({
            "cgroup": path,
            "cgroup_name": cgroup_name::recorded(set, path),
            "cpu": cpu,
            "throttled": rate("cgroup.throttled_time"),
            "memory": level("cgroup.memory_current"),
            "memory_max": level("cgroup.memory_max"),
            "read": rate("cgroup.io_read_bytes").or(of_tasks.read),
            "written": rate("cgroup.io_write_bytes").or(of_tasks.written),
            "lost": of_tasks.lost,
            "cpu_some": rate("cgroup.psi_cpu_some"),
            "io_some": rate("cgroup.psi_io_some"),
            "memory_some": rate("cgroup.psi_memory_some"),
            "tasks": level("cgroup.pids_current").unwrap_or(of_tasks.tasks as f64),
            "processes": of_tasks.processes,
        });
        (cpu.unwrap_or(0.0), row)
    });
    Ok(json!({ "at": rfc3339(last), "seconds": seconds, "cgroups": largest_first(rows.collect()) }))
}

/// A group and those above it: `/a/b`, `/a`, `/`.
fn with_those_above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (above, _) => Some(above),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_counts_for_those_above_it() {
        let all = |path: &'static str| with_those_above(path).collect::<Vec<_>>();
        assert_eq!(all("/a.slice/b.service"), ["/a.slice/b.service", "/a.slice", "/"]);
        assert_eq!(all("/"), ["/"]);
        // Names are somebody else's.
        assert_eq!(all(""), [""]);
        assert_eq!(all("a"), ["a"]);
        assert_eq!(all("//"), ["//", "/"]);
        let mut sums = Sums { tasks: 1, cpu: None, lost: Some(1.0), ..Sums::default() };
        sums.add(Sums { tasks: 2, cpu: Some(0.5), lost: None, ..Sums::default() });
        assert_eq!((sums.tasks, sums.cpu, sums.lost, sums.read), (3, Some(0.5), Some(1.0), None));
    }
}
