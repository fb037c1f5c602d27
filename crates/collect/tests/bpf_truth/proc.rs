//! The files of `/proc` that the BPF values are held against, read the plain way.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// What `/proc` says of one thread. Nanoseconds, kB, bytes, ticks: as the files have it.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub tgid: u32,
    pub comm: String,
    pub state: char,
    pub ppid: u32,
    pub utime_ticks: u64,
    pub stime_ticks: u64,
    pub nice: i64,
    pub num_threads: u64,
    pub start_ticks: u64,
    pub cpu: u64,
    pub rt_priority: u64,
    pub policy: u64,
    /// Those that never fall, under the names of [`COUNTERS`].
    pub counters: HashMap<&'static str, u64>,
    /// Those in kB, and only where there is an address space.
    pub rss_kb: HashMap<&'static str, u64>,
    pub cpus_allowed: u64,
}

pub const COUNTERS: [&str; 13] = [
    "minflt",
    "majflt",
    "runtime",
    "run_delay",
    "rchar",
    "wchar",
    "syscr",
    "syscw",
    "read_bytes",
    "write_bytes",
    "cancelled_write_bytes",
    "voluntary_ctxt_switches",
    "nonvoluntary_ctxt_switches",
];

/// Every thread there is; one that ends meanwhile is left out.
pub fn read_all() -> HashMap<u32, Thread> {
    let mut all = HashMap::new();
    for tgid in numbers(Path::new("/proc")) {
        for tid in numbers(Path::new(&format!("/proc/{tgid}/task"))) {
            if let Some(thread) = read_thread(tgid, tid) {
                all.insert(tid, thread);
            }
        }
    }
    all
}

fn numbers(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub fn read_thread(tgid: u32, tid: u32) -> Option<Thread> {
    let file = |name: &str| fs::read_to_string(format!("/proc/{tgid}/task/{tid}/{name}")).ok();
    let stat = file("stat")?;
    let (head, tail) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    // Numbered from 3, the state, as in proc_pid_stat(5).
    let at = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
    let mut thread = Thread {
        tgid,
        comm: head.split_once('(')?.1.to_owned(),
        state: at(3).chars().next()?,
        ppid: at(4).parse().ok()?,
        utime_ticks: at(14).parse().ok()?,
        stime_ticks: at(15).parse().ok()?,
        nice: at(19).parse().ok()?,
        num_threads: at(20).parse().ok()?,
        start_ticks: at(22).parse().ok()?,
        cpu: at(39).parse().ok()?,
        rt_priority: at(40).parse().ok()?,
        policy: at(41).parse().ok()?,
        ..Thread::default()
    };
    thread.counters.insert("minflt", at(10).parse().ok()?);
    thread.counters.insert("majflt", at(12).parse().ok()?);
    let schedstat = file("schedstat")?;
    let mut schedstat = schedstat.split_whitespace().map(str::parse::<u64>);
    thread.counters.insert("runtime", schedstat.next()?.ok()?);
    thread.counters.insert("run_delay", schedstat.next()?.ok()?);
    for line in file("io")?.lines().chain(file("status")?.lines()) {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim().trim_end_matches(" kB");
        if let Some(known) = COUNTERS.iter().find(|known| **known == name) {
            thread.counters.insert(known, value.parse().ok()?);
        }
        if let Some(known) = RSS.iter().find(|known| **known == name) {
            thread.rss_kb.insert(known, value.parse().ok()?);
        }
        if name == "Cpus_allowed" {
            let mask: String = value.chars().filter(|c| *c != ',').collect();
            let low = mask.get(mask.len().saturating_sub(16)..)?;
            thread.cpus_allowed = u64::from_str_radix(low, 16).ok()?;
        }
    }
    Some(thread)
}

pub const RSS: [&str; 4] = ["RssAnon", "RssFile", "RssShmem", "VmSwap"];

/// Completed reads and the milliseconds they took, of one whole disk.
pub fn disk_reads(major: u32, minor: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/diskstats").ok()?;
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it =
            fields.first()?.parse::<u32>().ok()? == major && fields.get(1)?.parse::<u32>().ok()? == minor;
        is_it.then(|| Some((fields.get(3)?.parse().ok()?, fields.get(6)?.parse().ok()?)))?
    })
}

/// The functions of `/proc/PID/stack`, innermost first, joined by `;`.
pub fn kernel_stack(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stack")).ok()?;
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('+').next()).collect();
    Some(names.join(";"))
}

/// Where a hierarchy of cgroups is mounted: `controller` of v1, or v2 for none.
pub fn cgroup_mount(controller: Option<&str>) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (point, kind, options) = (fields.get(1)?, fields.get(2)?, fields.get(3)?);
        let is_it = match controller {
            None => *kind == "cgroup2",
            Some(name) => *kind == "cgroup" && options.split(',').any(|option| option == name),
        };
        is_it.then(|| (*point).to_owned())
    })
}

/// The directory of a process' cgroup in a hierarchy.
pub fn cgroup_path(pid: u32, controller: Option<&str>) -> Option<String> {
    let mount = cgroup_mount(controller)?;
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = match controller {
            None => controllers.is_empty(),
            Some(name) => controllers.split(',').any(|c| c == name),
        };
        is_it.then(|| format!("{mount}{path}"))
    })
}
