//! What a message of the kernel means for whoever runs the machine, in one sentence.

use mitra_model::{EventKind, limits};

use super::{contains, meaning};

const CGROUP_OOM: &str = "A cgroup reached its memory limit and nothing in it could be freed, so the kernel killed one of its processes, \
     however much memory the machine has.";

/// What a line of the kernel's log means, without the time and without `kernel:`.
#[must_use]
pub fn explained(text: &str) -> Option<&'static str> {
    match meaning(text) {
        // The limit stands in another line.
        Some(EventKind::OomKill { .. }) if contains(text, "emory cgroup out of memory") => Some(CGROUP_OOM),
        Some(kind) => sentence(&kind),
        None => limits::explained_by_kernel(text),
    }
}

/// What an event of the kernel means.
#[must_use]
pub fn sentence(kind: &EventKind) -> Option<&'static str> {
    Some(match kind {
        EventKind::KernelLog { text, .. } => return limits::explained_by_kernel(text),
        EventKind::OomKill { cgroup: Some(_), .. } => CGROUP_OOM,
        EventKind::OomKill { cgroup: None, .. } => {
            "The machine had no memory left that could be freed, so the kernel killed the process whose end frees most."
        }
        EventKind::Crash { .. } => {
            "The program accessed memory that it does not have, or not in that way: a bug in it or in a library, or damaged memory."
        }
        EventKind::Stuck { what, .. } => return stuck(what),
        EventKind::DeviceError { what, .. } => return device(what),
        EventKind::TcpPressure { what, .. } => match what.as_str() {
            "orphans" => {
                "There were more closed connections whose end is still awaited than net.ipv4.tcp_max_orphans allows: the kernel resets them."
            }
            "memory" => {
                "The buffers of all TCP connections have reached net.ipv4.tcp_mem: they grow no more, and segments are dropped."
            }
            _ => {
                "A limit of TCP was reached, net.ipv4.tcp_max_orphans or net.ipv4.tcp_mem: connections are reset or segments dropped."
            }
        },
        EventKind::AllocationFailure { order: 0, .. } => {
            "The kernel found no free page at a place where it must not wait for one: what it was for failed, of network drivers a packet."
        }
        EventKind::AllocationFailure { .. } => {
            "The kernel found no so large piece of contiguous memory, though there may be enough in smaller ones: what it was for failed."
        }
        _ => return None,
    })
}

fn stuck(what: &str) -> Option<&'static str> {
    Some(match what {
        "hung-task" => {
            "The task has waited in the kernel for so long that something is wrong with what it waits for (a disk, a network file system, \
             a lock), and it cannot be killed meanwhile."
        }
        "soft-lockup" => {
            "A CPU ran code of the kernel for so long without letting any task run that whatever was to run there stood still; in a virtual \
             machine the host may have withheld the CPU."
        }
        "rcu-stall" => {
            "A CPU has not come to a point where the kernel can free old data: it is held in the kernel or with interrupts off, or the host of \
             the virtual machine withholds it."
        }
        _ => return None,
    })
}

fn device(what: &str) -> Option<&'static str> {
    Some(match what {
        "io-error" => {
            "The device failed a request or did not answer in time: programs get an error or wait, unless a mirror or another path has the data."
        }
        "link-down" => {
            "The interface has no link to the other end (cable, transceiver, switch port, its driver): nothing is sent or received over it."
        }
        "device-lost" => {
            "The kernel has given the device up: every request to it fails until it is there again."
        }
        "filesystem-error" => {
            "The file system found itself damaged or could not write: it may be read-only from now on and has to be checked."
        }
        "machine-check" => {
            "The hardware reports an error that it could not correct: data may be lost, and the part fails."
        }
        "disk-failing" => {
            "The disk counts failures of its own and expects to fail: what is on it should be copied while it can be read."
        }
        "path-failed" => {
            "One of several ways to a disk failed, and its requests go over the others: with the last one gone they wait or fail."
        }
        "pool-full" => {
            "A pool of thin volumes has no room left for data or for its metadata: writes to its volumes wait or fail until it is extended."
        }
        "corrected-error" => {
            "The hardware corrected an error by itself and nothing was lost; where it comes again and again, the part is failing."
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_explained_in_one_sentence() {
        for (line, part) in [
            ("INFO: task java:4242 blocked for more than 120 seconds.", "cannot be killed"),
            (
                "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [kworker/1:2:4711]",
                "ran code of the kernel",
            ),
            ("rcu: INFO: rcu_sched self-detected stall on CPU", "free old data"),
            (
                "Out of memory: Killed process 812 (java) total-vm:300kB, anon-rss:12kB, file-rss:0kB",
                "The machine had no memory left",
            ),
            (
                "Memory cgroup out of memory: Killed process 23059 (eater) total-vm:35372kB, anon-rss:32384kB",
                "A cgroup reached its memory limit",
            ),
            (
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a,task=hog,pid=8,uid=0",
                "A cgroup reached its memory limit",
            ),
            (
                "blk_update_request: I/O error, dev sdb, sector 1953 op 0x0:(READ) flags 0x0",
                "failed a request",
            ),
            ("EXT4-fs (vdb): Remounting filesystem read-only", "has to be checked"),
            ("e1000e: eth0 NIC Link is Down", "no link to the other end"),
            ("sd 2:0:0:0: [sdb] rejecting I/O to offline device", "given the device up"),
            ("device-mapper: multipath: 253:3: Failing path 8:32.", "ways to a disk"),
            ("device-mapper: thin: 253:4: no free data space available.", "thin volumes"),
            (
                "device-mapper: thin: 253:4: reached low water mark for data device: sending event.",
                "nearly full",
            ),
            ("sd 0:0:1:0: [sdb] Add. Sense: Failure prediction threshold exceeded", "expects to fail"),
            ("mce: [Hardware Error]: Machine check events logged", "corrected an error by itself"),
            ("java: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP)", "contiguous"),
            ("swapper/0: page allocation failure: order:0, mode:0xa20(GFP_ATOMIC)", "no free page"),
            ("TCP: too many orphaned sockets", "tcp_max_orphans"),
            ("TCP: out of memory -- consider tuning tcp_mem", "net.ipv4.tcp_mem"),
            (
                "orderd[4242]: segfault at 8 ip 00005648dc8451a0 sp 00007ffd4df000b0 error 4 in orderd[11a0,5648dc845000+1000]",
                "a bug in it",
            ),
            ("nf_conntrack: nf_conntrack: table full, dropping packet", "tracked connections is full"),
            (
                "TCP: request_sock_TCP: Possible SYN flooding on port 80. Sending cookies.",
                "accepts too slowly",
            ),
        ] {
            let sentence = explained(line).unwrap_or_else(|| panic!("{line}"));
            assert!(sentence.contains(part), "{line}: {sentence}");
            assert!(sentence.ends_with('.') && !sentence.contains(". "), "one sentence: {sentence}");
        }
        for line in
            ["", "e1000e: eth0 NIC Link is Up 1000 Mbps", "systemd[1]: Started Session 7 of user root."]
        {
            assert_eq!(explained(line), None, "{line}");
        }
    }
}
