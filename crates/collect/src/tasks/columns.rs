//! The columns that tasks fill.

use super::reading::used;
use crate::cells::col;

/// The columns of a task's row.
#[derive(Debug)]
pub struct TaskColumns {
    pub comm: usize,
    pub tgid: usize,
    pub ppid: usize,
    pub state: usize,
    pub kthread: usize,
    pub cpu: usize,
    pub cpus_allowed: usize,
    pub cpus_allowed_count: usize,
    pub policy: usize,
    pub nice: usize,
    pub cgroup: usize,
    pub kstack: usize,
    pub nvcsw: usize,
    pub nivcsw: usize,
    pub used: [usize; used::COUNT],
    pub io: [usize; 5],
    pub memory: [usize; 4],
    pub threads: usize,
    /// Open descriptors, their limit, and the network namespace.
    pub files: [usize; 3],
    pub lock_wait: usize,
}

impl TaskColumns {
    pub fn new() -> Self {
        TaskColumns {
            comm: col("task.comm"),
            tgid: col("task.tgid"),
            ppid: col("task.ppid"),
            state: col("task.state"),
            kthread: col("task.kthread"),
            cpu: col("task.cpu"),
            cpus_allowed: col("task.cpus_allowed"),
            cpus_allowed_count: col("task.cpus_allowed_count"),
            policy: col("task.policy"),
            nice: col("task.nice"),
            cgroup: col("task.cgroup"),
            kstack: col("task.kstack"),
            nvcsw: col("task.nvcsw"),
            nivcsw: col("task.nivcsw"),
            used: [
                "task.cpu_time",
                "task.user_time",
                "task.system_time",
                "task.minflt",
                "task.majflt",
                "task.read_bytes",
                "task.write_bytes",
                "task.run_delay",
                "task.blkio_delay",
                "task.swapin_delay",
                "task.reclaim_delay",
                "task.thrashing_delay",
                "task.compact_delay",
                "task.wpcopy_delay",
                "task.irq_delay",
            ]
            .map(col),
            io: ["task.rchar", "task.wchar", "task.syscr", "task.syscw", "task.cancelled_write_bytes"]
                .map(col),
            memory: ["task.rss_anon", "task.rss_file", "task.rss_shmem", "task.swap"].map(col),
            threads: col("task.threads"),
            files: ["task.fds", "task.fd_limit", "task.netns"].map(col),
            lock_wait: col("task.lock_wait"),
        }
    }
}

/// The columns of the whole machine that all tasks together fill.
#[derive(Debug)]
pub struct SumColumns {
    pub total: usize,
    pub recorded: usize,
    pub running: usize,
    pub uninterruptible: usize,
    pub waits: [usize; 5],
    /// By position in [`used`]; those without a sum lead nowhere.
    pub used: [usize; used::COUNT],
    pub busiest: usize,
    pub fds_fullest: usize,
    pub exited: usize,
    pub exited_cpu_time: usize,
}

/// The name of the sum of each of [`used`]; user and system time and minor faults have none.
const SUMS: [Option<&str>; used::COUNT] = [
    Some("tasks.cpu_time"),
    None,
    None,
    None,
    Some("tasks.majflt"),
    Some("tasks.read_bytes"),
    Some("tasks.write_bytes"),
    Some("tasks.run_delay"),
    Some("tasks.blkio_delay"),
    Some("tasks.swapin_delay"),
    Some("tasks.reclaim_delay"),
    Some("tasks.thrashing_delay"),
    Some("tasks.compact_delay"),
    Some("tasks.wpcopy_delay"),
    Some("tasks.irq_delay"),
];

impl SumColumns {
    pub fn new() -> Self {
        SumColumns {
            total: col("tasks.total"),
            recorded: col("tasks.recorded"),
            running: col("tasks.running"),
            uninterruptible: col("tasks.uninterruptible"),
            waits: ["tasks.d_io", "tasks.d_lock", "tasks.d_memory", "tasks.d_throttle", "tasks.d_other"]
                .map(col),
            used: SUMS.map(|name| name.map_or(usize::MAX, col)),
            busiest: col("tasks.busiest"),
            fds_fullest: col("tasks.fds_fullest"),
            exited: col("tasks.exited"),
            exited_cpu_time: col("tasks.exited_cpu_time"),
        }
    }
}

/// The columns of a group of ended processes.
#[derive(Debug)]
pub struct ExitedColumns {
    pub count: usize,
    /// By position in [`used`]; those without a column lead nowhere.
    pub used: [usize; used::COUNT],
    pub lifetime: usize,
    pub failed: usize,
    pub last_pid: usize,
    pub parent_comm: usize,
}

impl ExitedColumns {
    pub fn new() -> Self {
        let mut columns = [usize::MAX; used::COUNT];
        columns[used::CPU] = col("exited.cpu_time");
        columns[used::USER] = col("exited.user_time");
        columns[used::SYSTEM] = col("exited.system_time");
        columns[used::MINFLT] = col("exited.minflt");
        columns[used::MAJFLT] = col("exited.majflt");
        columns[used::READ] = col("exited.read_bytes");
        columns[used::WRITE] = col("exited.write_bytes");
        columns[used::RUN_DELAY] = col("exited.run_delay");
        ExitedColumns {
            count: col("exited.count"),
            used: columns,
            lifetime: col("exited.lifetime"),
            failed: col("exited.failed"),
            last_pid: col("exited.last_pid"),
            parent_comm: col("exited.parent_comm"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_in_the_table() {
        let t = TaskColumns::new();
        let single = [
            t.comm,
            t.tgid,
            t.ppid,
            t.state,
            t.kthread,
            t.cpu,
            t.cpus_allowed,
            t.cpus_allowed_count,
            t.policy,
            t.nice,
            t.cgroup,
            t.kstack,
            t.nvcsw,
            t.nivcsw,
            t.threads,
            t.lock_wait,
        ];
        let all = single.iter().chain(&t.used).chain(&t.io).chain(&t.memory).chain(&t.files);
        // What only other tools print of a task is not for the recorder to fill.
        let of_tools = ["task.rss", "task.vsize"];
        let table = mitra_model::columns(mitra_model::Entity::Task);
        let filled: std::collections::HashSet<usize> = all.copied().collect();
        for (column, metric) in table.iter().enumerate() {
            let is_filled = filled.contains(&column);
            assert_ne!(is_filled, of_tools.contains(&metric.name), "{}", metric.name);
        }

        let s = SumColumns::new();
        let single = [
            s.total,
            s.recorded,
            s.running,
            s.uninterruptible,
            s.busiest,
            s.fds_fullest,
            s.exited,
            s.exited_cpu_time,
        ];
        assert!(single.iter().chain(&s.waits).all(|c| *c != usize::MAX));
        assert_eq!(s.used.iter().filter(|c| **c == usize::MAX).count(), 3);

        let e = ExitedColumns::new();
        assert!([e.count, e.lifetime, e.failed, e.last_pid, e.parent_comm].iter().all(|c| *c != usize::MAX));
        assert_eq!(e.used.iter().filter(|c| **c != usize::MAX).count(), 8);
    }
}
