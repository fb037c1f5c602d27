//! The resource that a metric is about.

/// What metrics are about, in the order of the page, by the beginnings of their names.
const RESOURCES: [(&str, &[&str]); 6] = [
    (
        "Services",
        &[
            "service.",
            "dependency.",
            "session.",
            "resolver.",
            "listener.",
            "call.",
            "run.",
            "cache.",
            "wait.",
        ],
    ),
    (
        "CPU and tasks",
        &[
            "cpu.",
            "sys.",
            "irq.",
            "softirq.",
            "runq.",
            "tasks.",
            "exited.",
            "lock.",
            "cgroup.cpu_",
            "cgroup.nr_",
            "cgroup.throttled",
        ],
    ),
    (
        "Memory",
        &[
            "vm.",
            "mem.",
            "zone.",
            "node.",
            "slab",
            "dentry.",
            "inode.",
            "mapping.",
            "census.",
            "allocator.",
            "jvm.",
            "task.majflt",
            "task.minflt",
            "task.rss",
            "task.swap",
            "cgroup.memory",
            "cgroup.swap",
            "cgroup.refault",
            "cgroup.oom",
            "probe.compaction",
            "probe.memcg",
        ],
    ),
    (
        "Disk",
        &[
            "disk.",
            "fs.",
            "fuse.",
            "block.",
            "task.read_",
            "task.write_",
            "task.blkio",
            "task.cancelled",
            "cgroup.io_",
            "cgroup.writeback",
        ],
    ),
    (
        "Network",
        &[
            "nic.",
            "netns.",
            "sock.",
            "softnet.",
            "conntrack.",
            "peer.",
            "drop.",
            "tcp",
            "mptcp",
            "udp",
            "ip.",
            "ipext.",
            "icmp",
            "limit.",
        ],
    ),
    ("Others", &[]),
];
const PRESSURE: &str = "Pressure";
/// What tasks do without a resource of its own.
const TASKS: &str = "CPU and tasks";

/// The place on the page, and the name.
pub fn resource(metric: &str) -> (usize, &'static str) {
    if metric.contains("psi") {
        return (RESOURCES.len(), PRESSURE);
    }
    let of = |names: &[&str]| names.iter().any(|name| metric.starts_with(name));
    let found = RESOURCES.iter().position(|(_, names)| of(names));
    let place = match found {
        Some(place) => place,
        None if metric.starts_with("task.") => {
            RESOURCES.iter().position(|r| r.0 == TASKS).unwrap_or_default()
        }
        None => RESOURCES.len() - 1,
    };
    (place, RESOURCES.get(place).map_or(PRESSURE, |r| r.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_resource() {
        for (metric, wanted) in [
            ("vm.pgmajfault", "Memory"),
            ("task.majflt", "Memory"),
            ("task.run_delay", "CPU and tasks"),
            ("task.read_bytes", "Disk"),
            ("cgroup.io_reads", "Disk"),
            ("cgroup.nr_throttled", "CPU and tasks"),
            ("cgroup.psi_io_some", "Pressure"),
            ("psi.memory_some", "Pressure"),
            ("tcpext.listen_drops", "Network"),
            ("resolver.queries", "Services"),
            ("sysctl.vm.swappiness", "Others"),
        ] {
            assert_eq!(resource(metric).1, wanted, "{metric}");
        }
    }
}
