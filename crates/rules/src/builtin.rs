//! The suspicions that come with Mitra: what is seen all the time for little, and the probes that would tell.
//!
//! A suspicion is not a verdict. It may be wrong, and costs a few seconds of a probe then; so its thresholds are lower
//! than those of the conditions of the diagnosis, and above what healthy machines under load do.

use crate::rule::{Probe, Rule};

/// One line of the table.
pub struct Suspicion {
    /// Its name.
    pub name: &'static str,
    /// The condition of the diagnosis that it suspects.
    pub suspects: &'static str,
    /// The condition in the language.
    pub when: &'static str,
    /// The probes that would confirm or refute it.
    pub arm: &'static [&'static str],
    /// Whose process they watch; empty for everybody's.
    pub pid_of: &'static str,
    /// For how long.
    pub seconds: f64,
    /// For how long it rests after that, the first time.
    pub cool_down_s: f64,
    /// Why that is suspicious: the physics of the thresholds.
    pub why: &'static str,
}

/// A minute, then longer.
const USUAL_S: f64 = 60.0;

/// The table. At most one is armed at a time, and the first one wins: what names a culprit stands before what describes
/// a state.
pub const SUSPICIONS: &[Suspicion] = &[
    Suspicion {
        name: "failing-lookups",
        suspects: "slab-dentry-bloat",
        when: "rate(dentry.negative) > 2000/s for 3s",
        arm: &["lookups"],
        pid_of: "",
        seconds: 5.0,
        cool_down_s: USUAL_S,
        why: "Each negative dentry takes 192 bytes and goes only under memory pressure: 2,000 more each second are 1.4 GB \
              in an hour. A build that searches paths makes hundreds, and the same ones again.",
    },
    Suspicion {
        name: "kernel-lock-waits",
        suspects: "mmap-lock-contention",
        when: "(tasks.d_lock >= 2 or probe.lock_wait_time > 50%) and sys.cpu_system > 20% for 3s",
        arm: &["locks", "offcpu d-only"],
        pid_of: "",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "Two tasks found asleep in a lock of the kernel in each of three samples spend most of their time there. With a \
              fifth of a CPU busy in the kernel it is no dead lock: somebody holds it and works.",
    },
    Suspicion {
        name: "descriptors-near-limit",
        suspects: "fd-exhaustion",
        when: "tasks.fds_fullest >= 95% and task.fds / task.fd_limit >= 95%",
        arm: &["errors"],
        pid_of: "culprit",
        seconds: 5.0,
        cool_down_s: 300.0,
        why: "The last twentieth of a limit is used up by a leak or by the next burst, and then accept and open fail with \
              EMFILE, which no counter of the kernel shows.",
    },
    Suspicion {
        name: "filesystem-nearly-full",
        suspects: "filesystem-full",
        when: "fs.avail_bytes{type!=squashfs, type!=erofs, type!=iso9660, type!=cramfs, type!=udf} / fs.total_bytes < 0.1%",
        arm: &["errors"],
        pid_of: "",
        seconds: 5.0,
        cool_down_s: 1800.0,
        why: "A thousandth is less than what a write, a log file or a journal asks for at once. Then writes fail with ENOSPC, \
              and no counter says so. Images that are full by nature are left out.",
    },
    Suspicion {
        name: "accept-queue-overflow",
        suspects: "listen-overflow",
        when: "tcpext.ListenOverflows > 1/s or any(netns.tcpext_ListenOverflows > 1/s) for 2s",
        arm: &["sockets"],
        pid_of: "",
        seconds: 5.0,
        cool_down_s: USUAL_S,
        why: "Each is a client that waits a second for its next try. A healthy machine has none.",
    },
    Suspicion {
        name: "fork-rate",
        suspects: "fork-storm",
        when: "sys.forks > 300/s for 3s",
        arm: &["fork"],
        pid_of: "",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "A fork with its exit costs a third to a whole millisecond: 300 each second are a tenth to a third of a CPU. \
              A package upgrade reaches 115 on two CPUs.",
    },
    Suspicion {
        name: "minor-fault-rate",
        suspects: "minor-fault-storm",
        when: "vm.pgfault > 80000/s and sum(task.minflt) by pid > 40000/s for 3s",
        arm: &["faults"],
        pid_of: "culprit",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "A fault takes half a microsecond to two: 40,000 each second are up to a tenth of a CPU, and 160 MB of fresh \
              memory each second. A compiler run on two CPUs makes 32,000, an upgrade 45,000, spread over processes that end.",
    },
    Suspicion {
        name: "switches-without-work",
        suspects: "user-lock-contention",
        when: "sys.ctxt > 15000/s and sys.cpu_system > 20% * sys.cpus_online and sys.cpu_idle > 15% * sys.cpus_online \
               and sum(task.nvcsw) by pid > 8000/s and max(task.nvcsw) by pid < 70% * sum(task.nvcsw) by pid \
               and max(task.threads) by pid >= 4 for 3s",
        arm: &["locks", "syscalls"],
        pid_of: "culprit",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "Threads of one process that put each other to sleep and wake each other leave CPUs idle, while the kernel \
              is busy with nothing but that: a switch there and back costs 3 to 5 microseconds. Two that take turns have half \
              of the switches each; one thread that waits for the clients of a server has nearly all.",
    },
    Suspicion {
        name: "threads-that-take-turns",
        suspects: "user-lock-contention",
        when: "sum(task.run_delay) by pid > 40% and sys.cpu_idle > 15% * sys.cpus_online and sum(task.nvcsw) by pid > 500/s \
               and max(task.threads) by pid >= 4 and max(task.cpu_time) by pid < 80% for 3s",
        arm: &["locks", "syscalls"],
        pid_of: "culprit",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "Threads of one process wait for a CPU while another one is idle, and none of them nearly fills one: they are woken \
              onto the CPU of the one that woke them, which goes on with the lock.",
    },
    Suspicion {
        name: "system-time-of-a-process",
        suspects: "cpu-hog",
        when: "sys.cpu_system > 60% and sum(task.system_time{kthread=0}) by pid > 60% for 3s",
        arm: &["oncpu", "syscalls"],
        pid_of: "culprit",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "A process that spends most of a CPU inside the kernel does one thing there again and again, and only a profile \
              says which.",
    },
    Suspicion {
        name: "page-cache-churn",
        suspects: "page-cache-thrash",
        when: "(vm.pgscan_file > 10000/s or vm.pgscan_kswapd > 10000/s or vm.pgscan_direct > 10000/s) \
               and (vm.workingset_refault_file > 1000/s or vm.workingset_refault > 1000/s or vm.pgmajfault > 200/s \
               or psi.memory_some > 5%) for 2s",
        arm: &["cache"],
        pid_of: "",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "Reclaim passes over 40 MB each second, and somebody misses what went: pages come back, faults read from disk, \
              or tasks wait for memory. Refaults without reclaim are none of it.",
    },
    Suspicion {
        name: "major-fault-rate",
        suspects: "page-cache-thrash",
        when: "vm.pgmajfault > 200/s for 3s",
        arm: &["cache", "faults"],
        pid_of: "",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "Each is a task that waits for a read: 200 of a tenth of a millisecond to ten milliseconds are 2 to 200 % of a \
              task's time. Healthy loads stay near 50.",
    },
    Suspicion {
        name: "memory-stall",
        suspects: "direct-reclaim",
        when: "psi.memory_full > 10% or probe.direct_reclaim_time > 20% for 2s",
        arm: &["offcpu d-only"],
        pid_of: "",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "For a tenth of the time nobody works because memory has to be found first.",
    },
    Suspicion {
        name: "io-waits-without-io",
        suspects: "io-throttled",
        when: "psi.io_some > 50% and max(disk.io_time) < 20% for 3s",
        arm: &["offcpu d-only"],
        pid_of: "",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "Tasks wait for I/O half of the time while every device is idle for most of it: they wait for something in front \
              of the device, a throttle, a lock or a server far away.",
    },
    Suspicion {
        name: "io-stall",
        suspects: "disk-saturated",
        when: "psi.io_full > 40% for 5s",
        arm: &["offcpu d-only"],
        pid_of: "",
        seconds: 3.0,
        cool_down_s: 120.0,
        why: "For two fifths of the time everybody who could work waits for I/O. The stacks say for which file system and call.",
    },
    Suspicion {
        name: "waits-beside-idle-cpus",
        suspects: "cpu-affinity-misplaced",
        when: "psi.cpu_some > 50% and sys.cpu_idle > 30% * sys.cpus_online for 4s",
        arm: &["runqlat"],
        pid_of: "",
        seconds: 3.0,
        cool_down_s: USUAL_S,
        why: "Tasks wait for a CPU half of the time while a third of the CPUs has nothing to do: affinity or a quota keeps \
              them away.",
    },
    Suspicion {
        name: "resolver-waits",
        suspects: "resolver-slow",
        when: "sum(resolver.wait_time) > 50% or sum(resolver.unanswered) > 1/s for 2s",
        arm: &["offcpu min=200ms"],
        pid_of: "",
        seconds: 5.0,
        cool_down_s: 120.0,
        why: "A name server in the same network answers in a millisecond. Half of a task's time spent waiting for answers is \
              hundreds of queries, or one that times out.",
    },
    Suspicion {
        name: "retransmissions",
        suspects: "retransmit-storm",
        when: "tcp.RetransSegs > 20/s and tcp.RetransSegs / tcp.OutSegs > 1% for 3s",
        arm: &["sockets"],
        pid_of: "",
        seconds: 5.0,
        cool_down_s: 120.0,
        why: "One segment in a hundred lost halves what a connection over a long way carries, and each waits 200 ms or more \
              where it is the last one.",
    },
    Suspicion {
        name: "process-grows",
        suspects: "memory-leak-native",
        when: "bytes(task.rss_anon) > 100MiB and bytes(rate(task.rss_anon)) > 256KiB/s for 20s",
        arm: &["heap"],
        pid_of: "culprit",
        seconds: 5.0,
        cool_down_s: 3600.0,
        why: "A quarter of a megabyte more in each of twenty seconds is a gigabyte in an hour. A program that starts takes its \
              memory faster and is done; one that takes some at each request grows in bursts. What it is is told by a look into \
              its heap, which costs some CPU seconds: so at most one an hour.",
    },
];

/// The rules of the table.
#[must_use]
pub fn rules() -> Vec<Rule> {
    SUSPICIONS.iter().filter_map(|suspicion| rule(suspicion).ok()).collect()
}

fn rule(suspicion: &Suspicion) -> Result<Rule, crate::error::Mistake> {
    let mut rule = Rule::new(suspicion.name, suspicion.when)?;
    if !suspicion.pid_of.is_empty() {
        rule.set_pid_of(suspicion.pid_of)?;
    }
    rule.suspects = Some(suspicion.suspects.to_owned());
    rule.why = suspicion.why.to_owned();
    rule.arm = suspicion.arm.iter().filter_map(|text| Probe::parse(text)).collect();
    rule.seconds = suspicion.seconds;
    rule.cool_down_s = suspicion.cool_down_s;
    rule.is_builtin = true;
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suspicion_is_a_rule() {
        for suspicion in SUSPICIONS {
            let rule = rule(suspicion).unwrap_or_else(|m| {
                panic!("{}: {m}\n{}", suspicion.name, m.caret(suspicion.when));
            });
            assert_eq!(rule.arm.len(), suspicion.arm.len(), "{}", suspicion.name);
            assert!(!rule.arm.is_empty() && !rule.why.is_empty(), "{}", suspicion.name);
        }
        let mut names: Vec<_> = SUSPICIONS.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SUSPICIONS.len());
    }
}
