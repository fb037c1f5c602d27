//! What the kernel offers, and what it offers to this process.

use std::io::ErrorKind;

use rustix::thread::{CapabilitySet, capabilities};

use super::{Ability, State};
use crate::file::{Buffer, Root};
use crate::kmsg::KernelLog;
use crate::missing::reason;

/// The first kernel with the task iterator and `CAP_BPF`.
const BPF_SINCE: (u32, u32) = (5, 8);

pub fn version(root: &Root, out: &mut Vec<Ability>) {
    let release = root.text("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    out.push(if release.is_empty() {
        Ability::no("kernel", "/proc/sys/kernel/osrelease cannot be read: is /proc mounted?")
    } else if version < BPF_SINCE {
        let why = format!("{release}: before 5.8 there is no task iterator, so tasks are read from /proc at a higher cost, and ended ones are not seen");
        Ability::degraded("kernel", why)
    } else {
        Ability::yes("kernel", release)
    });
}

pub fn privileges(root: &Root, out: &mut Vec<Ability>) {
    if !root.is_host() {
        return;
    }
    let wanted = [
        (CapabilitySet::BPF, "cap_bpf", "BPF programs"),
        (CapabilitySet::PERFMON, "cap_perfmon", "BPF programs that read kernel memory"),
        (CapabilitySet::SYS_PTRACE, "cap_sys_ptrace", "I/O counters of other users' tasks without BPF"),
        (CapabilitySet::SYSLOG, "cap_syslog", "the kernel log"),
        (CapabilitySet::DAC_READ_SEARCH, "cap_dac_read_search", "files that only root may read"),
    ];
    let Ok(sets) = capabilities(None) else { return };
    // CAP_SYS_ADMIN stands for those of the first kernels that had no finer ones.
    let has_all = sets.effective.contains(CapabilitySet::SYS_ADMIN);
    let lacks: Vec<_> = wanted.iter().filter(|(set, _, _)| !sets.effective.contains(*set)).collect();
    if lacks.is_empty() || has_all {
        out.push(Ability::yes("privileges", "all that Mitra uses"));
        return;
    }
    let why: Vec<String> = lacks.iter().map(|(_, name, what)| format!("{name} ({what})")).collect();
    let names: Vec<_> = wanted.iter().map(|(_, name, _)| *name).collect();
    let own = std::env::current_exe().map_or_else(|_| "mitra".to_owned(), |path| path.display().to_string());
    let ability =
        Ability { state: State::Degraded, ..Ability::no("privileges", format!("lacks {}", why.join(", "))) };
    out.push(ability.with_command(format!("setcap {}+ep {own}   # or run as root", names.join(","))));
}

pub fn lockdown(root: &Root, out: &mut Vec<Ability>) {
    let Some(text) = root.text("sys/kernel/security/lockdown") else { return };
    if text.contains("[confidentiality]") {
        let why = "the kernel is locked down to confidentiality: BPF programs may not read its memory";
        out.push(Ability::no("lockdown", why).with_argument("lockdown=integrity", true));
    } else {
        out.push(Ability::yes("lockdown", text));
    }
}

pub fn type_information(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "kernel type information (BTF)";
    out.push(match root.open_file("sys/kernel/btf/vmlinux") {
        Ok(_) => Ability::yes(NAME, "/sys/kernel/btf/vmlinux"),
        Err(error) if error.kind() == ErrorKind::NotFound => Ability::no(
            NAME,
            "the kernel was built without CONFIG_DEBUG_INFO_BTF: BPF programs cannot be fitted to it",
        ),
        Err(error) => Ability::no(NAME, reason(&error)),
    });
}

/// What each probe is for; the names are those of the BPF side.
const PROBES: &[(&str, &str)] = &[
    ("task_iter", "every task in one pass; else /proc is read, at 20 to 80 times the cost"),
    ("exits", "processes that end, also those that live for milliseconds"),
    ("block_io", "latency and size of block I/O"),
    ("oom", "OOM kills with their victim"),
    ("signals", "signals that kill, with their sender"),
    ("direct_reclaim", "time lost in direct reclaim"),
    ("memcg_reclaim", "time lost in reclaim inside a cgroup"),
    ("compaction", "time lost in compaction"),
    ("throttled", "time that reclaim made tasks sleep"),
    ("locks", "time lost for locks inside the kernel"),
    ("packet_drops", "packets that the kernel drops, with its reason"),
    ("tcp_peers", "peers that need segments sent again or reset connections"),
    ("full_sockets", "sockets whose buffers are full"),
    (
        "services",
        "requests, response times and connections of services, and of what processes call; needs Linux 6.3",
    ),
    (
        "answers",
        "how answers of services went, by their first bytes, where the configuration asks for it; needs Linux 6.3",
    ),
    (
        "resolvers",
        "how long programs wait for name servers; also needs Linux 5.12, cap_net_admin, and cgroup version 2",
    ),
];

pub fn probes(root: &Root, out: &mut Vec<Ability>) {
    if !root.is_host() {
        out.push(Ability::no("probes", "only for the machine itself, not for a tree of files"));
        return;
    }
    let loaded = crate::bpf::Probes::try_load();
    let is_privileged = capabilities(None).is_ok_and(|sets| {
        let both = CapabilitySet::BPF | CapabilitySet::PERFMON;
        sets.effective.contains(both) || sets.effective.contains(CapabilitySet::SYS_ADMIN)
    });
    for (name, what) in PROBES {
        // A part that could not be opened takes what belongs to it along.
        let parts: &[&str] = match *name {
            "oom" | "signals" => &[name, "events"],
            "direct_reclaim" | "memcg_reclaim" | "compaction" | "throttled" | "locks" => &[name, "stalls"],
            "answers" => &[name, "services"],
            _ => &[name],
        };
        let why = loaded.unavailable().iter().find(|(part, _)| parts.contains(part)).map(|(_, why)| why);
        let title = format!("probe {name}");
        out.push(match why {
            None => Ability::yes(&title, *what),
            Some(why) if is_privileged => Ability::no(&title, format!("{what}: {why}")),
            Some(why) => {
                Ability::no(&title, format!("{what}: {why}")).with_advice("run as root, or see privileges")
            }
        });
    }
}

pub fn delay_accounting(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "delay accounting";
    let lost = "what a task waited for (block I/O, swap, reclaim) is then estimated from its states";
    let nodelayacct =
        root.text("proc/cmdline").is_some_and(|line| line.split(' ').any(|word| word == "nodelayacct"));
    out.push(match root.text("proc/sys/kernel/task_delayacct").as_deref() {
        Some("0") => {
            let why =
                format!("kernel.task_delayacct is 0; {lost}. Once on, it counts for tasks born after that");
            Ability::no(NAME, why).with_command("sysctl -w kernel.task_delayacct=1")
        }
        Some(_) => Ability::yes(NAME, "counts for tasks born since it was turned on"),
        None if nodelayacct => {
            let why = format!("turned off by nodelayacct on the kernel's command line; {lost}");
            Ability::no(NAME, why).with_argument("nodelayacct", false)
        }
        None if root.open_file("proc/self/schedstat").is_ok()
            || root.open_file("proc/1/schedstat").is_ok() =>
        {
            Ability::yes(NAME, "on since the boot, where the kernel has CONFIG_TASK_DELAY_ACCT")
        }
        None => Ability::no(NAME, "the kernel was built without it"),
    });
}

pub fn pressure(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "pressure (PSI)";
    let mut buffer = Buffer::default();
    out.push(match root.read("proc/pressure/cpu", &mut buffer) {
        Ok(_) => Ability::yes(NAME, "/proc/pressure"),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Ability::no(NAME, "built into the kernel and turned off").with_argument("psi=1", true)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ability::no(
            NAME,
            "the kernel has none: it is older than 4.20, was built without CONFIG_PSI, or needs psi=1",
        )
        .with_argument("psi=1", true),
        Err(error) => Ability::no(NAME, reason(&error)),
    });
}

pub fn run_delay(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "run delay of tasks";
    let text = root.text("proc/self/schedstat").or_else(|| root.text("proc/1/schedstat"));
    out.push(match text {
        None => Ability::no(
            NAME,
            "the kernel was built without CONFIG_SCHED_INFO: waiting for a CPU is not counted",
        ),
        Some(text) if text == "0 0 0" => Ability::no(NAME, "the kernel does not count it"),
        Some(_) => Ability::yes(NAME, "/proc/PID/schedstat counts"),
    });
}

pub fn kernel_log(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "kernel log";
    out.push(match KernelLog::open(root) {
        Ok(_) => Ability::yes(NAME, "/dev/kmsg"),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let ability = Ability::no(
                NAME,
                "/dev/kmsg may not be read: kernel.dmesg_restrict or the rights of the file",
            );
            ability.with_command("sysctl -w kernel.dmesg_restrict=0   # or run as root")
        }
        Err(error) => Ability::no(NAME, format!("/dev/kmsg: {}", reason(&error))),
    });
}
