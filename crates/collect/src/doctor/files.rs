//! What the files of `/proc`, `/sys` and the control groups tell to this process.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;

use mitra_model::{column, metrics};

use super::Ability;
use crate::file::{Buffer, Root, each_entry};
use crate::missing::reason;
use crate::mounts::{hierarchies, read_mounts};

/// Fewer open files than this are not enough to keep those of a busy machine open.
const OPEN_FILES_ENOUGH: u64 = 1_024;
/// What loading the BPF programs takes for a moment: the kernel's type information is large.
const MEMORY_ENOUGH: u64 = 128 << 20;
/// Version 1 writes a number near this for no limit.
const NO_LIMIT: u64 = 1 << 62;
/// Unknown counters are named up to so many.
const NAMES_MAX: usize = 40;

pub fn slabinfo(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "slab caches";
    out.push(match root.open_file("proc/slabinfo") {
        Ok(_) => Ability::yes(NAME, "/proc/slabinfo"),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Ability::no(NAME, "/proc/slabinfo may only be read by root: what grows in the kernel has no name")
                .with_advice("run as root")
        }
        Err(error) => Ability::no(NAME, format!("/proc/slabinfo: {}", reason(&error))),
    });
}

pub fn tasks_of_others(root: &Root, out: &mut Vec<Ability>) {
    let mut buffer = Buffer::default();
    let not_needed = "; not needed with the task iterator";
    for (name, file) in [("I/O counters of other users' tasks", "io"), ("kernel stacks from /proc", "stack")]
    {
        // The kernel's first thread belongs to root and hides nothing from it; the first process may.
        let places = [format!("proc/2/{file}"), format!("proc/1/{file}")];
        let read = places.iter().map(|below| root.read(below, &mut buffer).map(|_| below));
        let best = read.reduce(|first, second| if first.is_ok() { first } else { second });
        out.push(match best {
            None => continue,
            Some(Ok(below)) => Ability::yes(name, format!("/{below}")),
            Some(Err(error)) if error.kind() == ErrorKind::PermissionDenied => {
                let ability =
                    Ability::degraded(name, format!("/proc/PID/{file}: {}{not_needed}", reason(&error)));
                if rustix::process::geteuid().is_root() {
                    ability
                } else {
                    ability.with_advice("run as root")
                }
            }
            Some(Err(error)) => {
                Ability::no(name, format!("/proc/PID/{file}: {}{not_needed}", reason(&error)))
            }
        });
    }
}

pub fn hidden_tasks(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "tasks of other users";
    let mounts = read_mounts(root, &mut Buffer::default());
    let proc = mounts.iter().find(|mount| mount.kind == "proc" && mount.point == "/proc");
    let hides = |option: &&str| {
        let value = option.strip_prefix("hidepid=");
        value.is_some_and(|value| !matches!(value, "0" | "off"))
    };
    let hidepid = proc.and_then(|mount| mount.options.split(',').find(hides));
    let is_root = rustix::process::geteuid().is_root();
    out.push(match hidepid {
        Some(option) if !is_root => Ability::degraded(
            NAME,
            format!("/proc is mounted with {option}; not needed with the task iterator"),
        )
        .with_command("mount -o remount,hidepid=0 /proc   # or run as root"),
        _ => Ability::yes(NAME, "/proc shows all of them"),
    });
}

pub fn control_groups(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "cgroups";
    let found = hierarchies(&read_mounts(root, &mut Buffer::default()));
    if found.is_empty() {
        out.push(Ability::no(NAME, "no hierarchy is mounted"));
        return;
    }
    let mut parts = Vec::new();
    let mut controllers: Vec<String> = Vec::new();
    for hierarchy in &found {
        if hierarchy.is_unified() {
            let text = root.text(&format!("{}/cgroup.controllers", hierarchy.mount)).unwrap_or_default();
            let named = if text.is_empty() { "no controllers".to_owned() } else { text.clone() };
            parts.push(format!("version 2 on /{} ({named})", hierarchy.mount));
            controllers.extend(text.split(' ').map(str::to_owned));
        } else {
            parts.push(format!("version 1 on /{} ({})", hierarchy.mount, hierarchy.controllers().join(", ")));
            controllers.extend(hierarchy.controllers().iter().cloned());
        }
    }
    let why = parts.join("; ");
    let lacks = ["cpu", "memory"].into_iter().filter(|name| !controllers.iter().any(|c| c == name));
    let lacks: Vec<_> = lacks.collect();
    out.push(if lacks.is_empty() {
        Ability::yes(NAME, why)
    } else {
        Ability::degraded(NAME, format!("{why}; without the controllers {}", lacks.join(" and ")))
    });
    let has_psi = found.iter().any(|h| h.is_unified());
    out.push(if has_psi {
        Ability::yes("cgroup pressure (PSI)", "version 2 is mounted")
    } else {
        Ability::no("cgroup pressure (PSI)", "only version 2 has it, and that is not mounted")
            .with_command("mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified")
    });
}

pub fn block_statistics(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "block statistics";
    let mut off = Vec::new();
    if let Ok(dir) = root.open_file("sys/block") {
        // A directory that cannot be listed has no disks to ask about.
        let _listed = each_entry(dir.as_fd(), |name| {
            if let Ok(name) = name.to_str()
                && root.text(&format!("sys/block/{name}/queue/iostats")).as_deref() == Some("0")
            {
                off.push(name.to_owned());
            }
        });
    }
    off.sort_unstable();
    out.push(match off.first() {
        None => Ability::yes(NAME, "on for every disk"),
        Some(first) => {
            Ability::degraded(NAME, format!("turned off for {}: no times, no utilisation", off.join(", ")))
                .with_command(format!("echo 1 > /sys/block/{first}/queue/iostats"))
        }
    });
}

pub fn own_limits(root: &Root, out: &mut Vec<Ability>) {
    if !root.is_host() {
        return;
    }
    use rustix::process::{Resource, getrlimit};
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    out.push(if files < OPEN_FILES_ENOUGH {
        Ability::degraded("open files", format!("at most {files}: cgroup files are opened each time"))
            .with_command("ulimit -n 4096   # LimitNOFILE=4096 in the service unit")
    } else {
        Ability::yes("open files", format!("up to {files}"))
    });
    const NAME: &str = "memory limit";
    let of_process = getrlimit(Resource::As).maximum;
    let limits = [of_process, group_limit(root)].into_iter().flatten();
    out.push(match limits.min() {
        None => Ability::yes(NAME, "none for this process and its cgroup"),
        Some(bytes) if bytes < MEMORY_ENOUGH => {
            let why = format!("{bytes} bytes: starting needs {MEMORY_ENOUGH}, most of it for a moment");
            Ability::degraded(NAME, why).with_advice("MemoryMax=256M in the service unit")
        }
        Some(bytes) => Ability::yes(NAME, format!("{bytes} bytes")),
    });
}

/// The limit of the control group that this process is in, if it has one.
fn group_limit(root: &Root) -> Option<u64> {
    let own = root.text("proc/self/cgroup")?;
    let found = hierarchies(&read_mounts(root, &mut Buffer::default()));
    let limit = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_v1 = controllers.split(',').any(|name| name == "memory");
        let hierarchy = found
            .iter()
            .find(|h| if is_v1 { h.has("memory") } else { controllers.is_empty() && h.is_unified() })?;
        let file = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        let text = root.text(&format!("{}{}/{file}", hierarchy.mount, path.trim_end_matches('/')))?;
        text.parse::<u64>().ok().filter(|bytes| *bytes < NO_LIMIT)
    };
    own.lines().filter_map(limit).min()
}

/// Counters that a newer kernel, or one with patches, prints and the metric table lacks.
pub fn unknown_counters(root: &Root, out: &mut Vec<Ability>) {
    let mut unknown = Vec::new();
    for line in root.text("proc/vmstat").unwrap_or_default().lines() {
        let name = line.split(' ').next().unwrap_or_default();
        if column(&format!("vm.{name}")).is_none() {
            unknown.push(format!("vmstat: {name}"));
        }
    }
    let is_known = |name: &str| {
        metrics::table("meminfo")
            .iter()
            .any(|metric| metric.source.strip_prefix("/proc/meminfo:") == Some(name))
    };
    for line in root.text("proc/meminfo").unwrap_or_default().lines() {
        let name = line.split(':').next().unwrap_or_default();
        if !name.is_empty() && !is_known(name) {
            unknown.push(format!("meminfo: {name}"));
        }
    }
    for below in ["proc/net/snmp", "proc/net/netstat"] {
        unknown_of_net(&root.text(below).unwrap_or_default(), below, &mut unknown);
    }
    let name = "counters that this kernel has and Mitra does not know";
    if unknown.is_empty() {
        out.push(Ability::yes(name, "none"));
        return;
    }
    let more = unknown.len().saturating_sub(NAMES_MAX);
    unknown.truncate(NAMES_MAX);
    let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
    out.push(Ability::degraded(name, format!("{}{rest}", unknown.join(", "))));
}

/// Of each pair of lines the first has the names: `Tcp: RtoAlgorithm RtoMin …`.
fn unknown_of_net(text: &str, below: &str, unknown: &mut Vec<String>) {
    let file = below.rsplit('/').next().unwrap_or(below);
    for line in text.lines().step_by(2) {
        let Some((area, names)) = line.split_once(": ") else { continue };
        let area = area.to_lowercase();
        for name in names.split_ascii_whitespace() {
            let is_known = column(&format!("{area}.{name}")).is_some();
            // Icmp types by number come and go with what was received.
            if !is_known && area != "icmpmsg" {
                unknown.push(format!("{file}: {area}.{name}"));
            }
        }
    }
}
