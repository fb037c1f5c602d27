//! The limits of cgroups, v1 and v2: CPU time, memory, I/O, number of processes. Cgroups without a
//! limit are left out.
//!
//! ```text
//! /system.slice/nginx.service memory.max = 1073741824
//! /system.slice/nginx.service pids.max = 4915
//! /user.slice cpu.max = 200000 100000
//! ```
//!
//! Cgroups that come and go by themselves (sessions, containers) are in `@cgroups/transient`, which
//! has the flag `volatile`. It also names containers and pods, with and without a limit:
//!
//! ```text
//! /docker/4f0c1e7d… is container web (nginx:1.25)
//! ```

use std::collections::{BTreeMap, BTreeSet};

use rustix::fs::FileType;

use mitra_parse::container_state::{Pass, State};

use super::{Source, containers, word};
use crate::document::{Document, Facts, Flag, Kind};

const ROOT: &str = "/sys/fs/cgroup";
/// Maximum number of cgroups read per hierarchy.
const GROUPS_MAX: usize = 2_000;
/// Maximum nesting depth.
const DEPTH_MAX: usize = 16;
/// Cgroup v1 reports "no limit" of memory as the largest multiple of the page size, which is above
/// this value.
const MEMORY_UNLIMITED: u64 = 1 << 62;

/// The limit files of cgroup v2.
const UNIFIED: &[&str] = &[
    "cpu.max",
    "cpuset.cpus",
    "cpuset.mems",
    "io.max",
    "memory.high",
    "memory.max",
    "memory.swap.max",
    "pids.max",
];

/// The limit files of cgroup v1, by hierarchy.
const SPLIT: &[(&str, &[&str])] = &[
    (
        "blkio",
        &[
            "blkio.throttle.read_bps_device",
            "blkio.throttle.read_iops_device",
            "blkio.throttle.write_bps_device",
            "blkio.throttle.write_iops_device",
        ],
    ),
    ("cpu", &["cpu.cfs_quota_us"]),
    ("memory", &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
    ("pids", &["pids.max"]),
];

/// Two documents: the limits of permanent cgroups, and those of transient ones.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let mut limits = BTreeSet::new();
    let mut names = BTreeMap::new();
    let runtimes = Pass::new(source);
    let mut hierarchies = 0;
    for unified in [ROOT.to_owned(), format!("{ROOT}/unified")] {
        if source.stat(&format!("{unified}/cgroup.controllers")).is_some() {
            hierarchies += 1;
            walk(source, &unified, |group| {
                limits_of(source, &unified, group, UNIFIED, &mut limits);
                names.entry(group.to_owned()).or_insert_with(|| containers::of_group(&runtimes, group));
            });
        }
    }
    for (name, files) in SPLIT {
        let hierarchy = format!("{ROOT}/{name}");
        if source.stat(&format!("{hierarchy}/cgroup.procs")).is_some() {
            hierarchies += 1;
            walk(source, &hierarchy, |group| {
                limits_of(source, &hierarchy, group, files, &mut limits);
                names.entry(group.to_owned()).or_insert_with(|| containers::of_group(&runtimes, group));
            });
        }
    }
    if hierarchies == 0 {
        return Err(format!("{ROOT}: no cgroups"));
    }
    let (transient, lasting): (Vec<_>, Vec<_>) =
        limits.into_iter().partition(|limit| is_transient(&limit.group));
    let names: BTreeMap<String, State> =
        names.into_iter().filter_map(|(group, state)| Some((group, state?))).collect();
    let mut documents = vec![document(source, "@cgroups", &lasting, &BTreeMap::new())];
    if !transient.is_empty() || !names.is_empty() {
        let mut document = document(source, "@cgroups/transient", &transient, &names);
        document.flag(Flag::Volatile);
        documents.push(document);
    }
    Ok(documents)
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Limit {
    group: String,
    file: &'static str,
    value: String,
}

fn document(
    source: &Source<'_>,
    filename: &str,
    limits: &[Limit],
    names: &BTreeMap<String, State>,
) -> Document {
    let mut content: String =
        limits.iter().map(|l| format!("{} {} = {}\n", l.group, l.file, l.value)).collect();
    let mut facts = Facts::new();
    for (group, state) in names {
        content.push_str(&containers::add(&mut facts, group, state));
    }
    let groups: BTreeSet<&str> = limits.iter().map(|l| l.group.as_str()).collect();
    groups.into_iter().for_each(|group| word(&mut facts, "cgroup.limited", group));
    source.document(filename, Kind::Cgroup, content, facts)
}

fn limits_of(
    source: &Source<'_>,
    hierarchy: &str,
    group: &str,
    files: &[&'static str],
    limits: &mut BTreeSet<Limit>,
) {
    let folder = format!("{hierarchy}{group}");
    for file in files.iter().copied() {
        let Some(text) = source.value(&format!("{folder}/{file}")) else { continue };
        for value in text.lines().filter_map(|line| limit(file, line)) {
            let mut value = value.to_owned();
            if file == "cpu.cfs_quota_us" {
                let period = source.value(&format!("{folder}/cpu.cfs_period_us")).unwrap_or_default();
                value = format!("{value} {period}");
            }
            limits.insert(Limit { group: group.to_owned(), file, value });
        }
    }
}

/// The limit in a line of a limit file; `None` if the line means "no limit".
///
/// `max 100000` in `cpu.max` and `9223372036854771712` in `memory.limit_in_bytes` are no limits.
/// `200000 100000` and `8:0 rbps=1048576 wbps=max riops=max wiops=max` are limits.
#[must_use]
pub fn limit<'a>(file: &str, line: &'a str) -> Option<&'a str> {
    let line = line.trim();
    let none = match file {
        "cpu.max" => line.starts_with("max"),
        "cpu.cfs_quota_us" => line.starts_with('-'),
        "memory.limit_in_bytes" | "memory.memsw.limit_in_bytes" => {
            line.parse::<u64>().map_or(true, |bytes| bytes >= MEMORY_UNLIMITED)
        }
        _ => line == "max",
    };
    (!none && !line.is_empty()).then_some(line)
}

/// Calls `visit` with the path of every cgroup below a hierarchy (`/system.slice/ssh.service`), but
/// not with its root.
fn walk(source: &Source<'_>, hierarchy: &str, mut visit: impl FnMut(&str)) {
    let mut left = vec![(String::new(), 0)];
    let mut seen = 0;
    while let Some((group, depth)) = left.pop() {
        let found = source.list(&format!("{hierarchy}{group}")).unwrap_or_default();
        for entry in found.iter().filter(|entry| entry.kind == FileType::Directory) {
            if seen == GROUPS_MAX {
                return;
            }
            seen += 1;
            let inner = format!("{group}/{}", entry.name);
            visit(&inner);
            if depth < DEPTH_MAX {
                left.push((inner, depth + 1));
            }
        }
    }
}

/// Whether a cgroup comes and goes by itself: scopes of sessions and virtual machines, containers,
/// units started by `systemd-run`.
#[must_use]
pub fn is_transient(group: &str) -> bool {
    const CONTAINERS: &[&str] =
        &["docker", "kubepods", "libpod", "crio", "lxc", "garden", "machine.slice", "nspawn"];
    group.split('/').any(|part| {
        part.ends_with(".scope")
            || part.starts_with("run-")
            || part.starts_with("user-")
            || part.starts_with("user@")
            || CONTAINERS.iter().any(|name| part.starts_with(name))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::collectors::Cache;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("sys/fs/cgroup").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn contents(root: &tempfile::TempDir) -> Vec<(String, String)> {
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        let documents = collect(&source).unwrap();
        documents.into_iter().map(|d| (d.filename, d.content.unwrap())).collect()
    }

    #[test]
    fn limits_of_the_second_version() {
        let root = tree(&[
            ("cgroup.controllers", "cpu io memory pids\n"),
            ("system.slice/memory.max", "max\n"),
            ("system.slice/a.service/memory.max", "1073741824\n"),
            ("system.slice/a.service/cpu.max", "200000 100000\n"),
            (
                "system.slice/a.service/io.max",
                "8:0 rbps=1 wbps=max riops=max wiops=max\n8:16 rbps=2 wbps=max\n",
            ),
            ("system.slice/b.service/cpu.max", "max 100000\n"),
            ("system.slice/docker-0a1b.scope/pids.max", "100\n"),
        ]);
        let lasting = "/system.slice/a.service cpu.max = 200000 100000\n\
            /system.slice/a.service io.max = 8:0 rbps=1 wbps=max riops=max wiops=max\n\
            /system.slice/a.service io.max = 8:16 rbps=2 wbps=max\n\
            /system.slice/a.service memory.max = 1073741824\n";
        let transient = "/system.slice/docker-0a1b.scope pids.max = 100\n";
        let wanted = [("@cgroups", lasting), ("@cgroups/transient", transient)];
        assert_eq!(contents(&root), wanted.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn containers_and_pods_are_named() {
        const ID: &str = "4f0c1e7d9b2a5c8e3f6a1b4d7e0c9f2a5b8d1e4c7f0a3b6d9e2c5f8a1b4d7e0c";
        const POD: &str = "kubepods/pod0d4f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b";
        let docker = format!("docker/{ID}");
        let root = tree(&[
            ("cgroup.controllers", "memory\n"),
            (&format!("{docker}/memory.max"), "1073741824\n"),
            (&format!("{POD}/memory.max"), "max\n"),
            ("docker/unknown/memory.max", "max\n"),
        ]);
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let config = r#"{"Name":"/web","Config":{"Image":"nginx:1.25"}}"#;
        put(&format!("var/lib/docker/{}/config.v2.json", docker.replace("docker", "containers")), config);
        put("var/log/pods/shop_orders-7d9f_0d4f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b/app/0.log", "");
        let wanted = format!(
            "/{docker} memory.max = 1073741824\n/{docker} is container web (nginx:1.25)\n/{POD} is pod shop/orders-7d9f\n"
        );
        assert_eq!(contents(&root)[1], ("@cgroups/transient".to_owned(), wanted));
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        let facts = collect(&source).unwrap().pop().unwrap().facts;
        let texts = |field: &str| format!("{:?}", facts.get(field));
        assert!(
            texts("cgroup.container").contains("web") && texts("cgroup.pod").contains("shop/orders-7d9f")
        );
    }

    #[test]
    fn limits_of_the_first_version() {
        let root = tree(&[
            ("memory/cgroup.procs", ""),
            ("memory/a/memory.limit_in_bytes", "104857600\n"),
            ("memory/b/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cpu/cgroup.procs", ""),
            ("cpu/a/cpu.cfs_quota_us", "50000\n"),
            ("cpu/a/cpu.cfs_period_us", "100000\n"),
            ("cpu/b/cpu.cfs_quota_us", "-1\n"),
            ("blkio/cgroup.procs", ""),
            ("blkio/a/blkio.throttle.read_bps_device", "\n"),
        ]);
        let wanted = "/a cpu.cfs_quota_us = 50000 100000\n/a memory.limit_in_bytes = 104857600\n";
        assert_eq!(contents(&root), [("@cgroups".to_owned(), wanted.to_owned())]);
    }

    #[test]
    fn no_limit_is_none() {
        for (file, line, wanted) in [
            ("memory.max", "max", None),
            ("memory.max", "0", Some("0")),
            ("cpuset.cpus", "", None),
            ("cpuset.cpus", "0-3", Some("0-3")),
            ("memory.limit_in_bytes", "many", None),
        ] {
            assert_eq!(limit(file, line), wanted, "{file} {line}");
        }
    }
}
