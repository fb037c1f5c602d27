//! The kernel settings, as `sysctl -a` prints them: reads all of `/proc/sys`, and writes nothing.
//!
//! ```text
//! kernel.core_pattern = core
//! kernel.printk = 4 4 1 7
//! net.ipv4.conf.eth0.rp_filter = 2
//! vm.swappiness = 60
//! ```
//!
//! Left out are counters (`fs.file-nr`), secrets, files that do something when they are read, and
//! files that cannot be read. Each setting is a field as well, except those of a single interface:
//! interface names differ between hosts, and `all` and `default` remain. Interfaces of containers
//! are left out altogether, because they come and go.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};

use super::read::{entries, read_value};
use super::{Source, line, nics, word};
use crate::document::{Document, Facts, Kind, Value};
use crate::fields::sysctl::is_words;

const ROOT: &str = "/proc/sys";
/// Maximum number of settings.
const FILES_MAX: usize = 4_096;
/// Maximum nesting depth.
const DEPTH_MAX: usize = 12;
/// Maximum number of values per setting.
const NUMBERS_MAX: usize = 256;

/// Settings that are not read, with the reason. A `*` stands for one part of the name.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("fs.aio-nr", "counts"),
    // An automount: opening it mounts a file system.
    ("fs.binfmt_misc", "mounts something"),
    ("fs.dentry-state", "counts"),
    ("fs.file-nr", "counts"),
    ("fs.inode-nr", "counts"),
    ("fs.inode-state", "counts"),
    ("fs.quota.allocated_dquots", "counts"),
    ("fs.quota.cache_hits", "counts"),
    ("fs.quota.drops", "counts"),
    ("fs.quota.free_dquots", "counts"),
    ("fs.quota.lookups", "counts"),
    ("fs.quota.reads", "counts"),
    ("fs.quota.syncs", "counts"),
    ("fs.quota.writes", "counts"),
    ("kernel.hung_task_detect_count", "counts"),
    ("kernel.ns_last_pid", "counts"),
    ("kernel.pty.nr", "counts"),
    // The kernel's document has it.
    ("kernel.random.boot_id", "changes with every start"),
    ("kernel.random.entropy_avail", "counts"),
    ("kernel.random.uuid", "changes with every look"),
    // Large machines have thousands, and some change by themselves.
    ("kernel.sched_domain", "is the topology"),
    ("net.ipv4.netfilter.ip_conntrack_count", "counts"),
    ("net.ipv4.tcp_fastopen_key", "is a secret"),
    ("net.ipv6.conf.*.stable_secret", "is a secret"),
    ("net.netfilter.nf_conntrack_count", "counts"),
    ("vm.stat_refresh", "stops every CPU"),
];

/// Settings that are lists of words. Every other text setting is a single word.
const LISTS: &[&str] = &[
    "kernel.seccomp.actions_avail",
    "kernel.seccomp.actions_logged",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_available_ulp",
    "net.mptcp.available_schedulers",
];

/// Directories with one subdirectory per network interface.
const PER_INTERFACE: &[&str] =
    &["net.ipv4.conf", "net.ipv4.neigh", "net.ipv6.conf", "net.ipv6.neigh", "net.mpls.conf"];

/// The document of the settings.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let folder = OFlags::RDONLY | OFlags::DIRECTORY;
    let root = source.open(ROOT, folder).map_err(|e| format!("{ROOT}: {e}"))?;
    let mut walk = Walk { source, settings: Vec::new(), full: false };
    walk.folder(root, "", true, 0);
    if walk.settings.is_empty() {
        return Err(format!("{ROOT}: no settings"));
    }
    walk.settings.sort();
    let mut content = String::new();
    let mut facts = Facts::new();
    for setting in &walk.settings {
        // `dev.cdrom.info` and a few others have several lines.
        for value in setting.value.lines() {
            line(&mut content, &setting.name, &spaced(value));
        }
        if setting.value.is_empty() {
            line(&mut content, &setting.name, "");
        }
        if setting.everywhere {
            add_values(&mut facts, &setting.name, &setting.value);
        }
    }
    if walk.full {
        content.push_str(&format!("# and more: {FILES_MAX} settings were read\n"));
    }
    Ok(vec![source.document("@sysctl", Kind::Sysctl, content, facts)])
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    /// Its parts are joined by dots. A dot inside a part becomes a slash.
    name: String,
    value: String,
    /// Whether the setting has the same name on other machines.
    everywhere: bool,
}

struct Walk<'a> {
    source: &'a Source<'a>,
    settings: Vec<Setting>,
    full: bool,
}

impl Walk<'_> {
    fn folder(&mut self, folder: OwnedFd, name: &str, everywhere: bool, depth: usize) {
        let Ok(copy) = folder.try_clone() else { return };
        // Skips a directory that cannot be listed.
        let Ok(found) = entries(copy) else { return };
        for entry in found {
            if self.settings.len() == FILES_MAX {
                self.full = true;
                return;
            }
            let part = entry.name.replace('.', "/");
            let path = if name.is_empty() { part.clone() } else { format!("{name}.{part}") };
            if is_left_out(&path) {
                continue;
            }
            if entry.kind == FileType::Directory && depth < DEPTH_MAX {
                let of_one = PER_INTERFACE.contains(&name) && !matches!(&*part, "all" | "default");
                if of_one && !nics::stays(self.source, &entry.name) {
                    continue;
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                if let Ok(inner) = rustix::fs::openat(&folder, &*entry.name, flags, Mode::empty()) {
                    self.folder(inner, &path, everywhere && !of_one, depth + 1);
                }
            } else if entry.kind == FileType::RegularFile {
                // Opening a write-only file fails, which leaves it out.
                if let Some(value) = value(&folder, &entry.name) {
                    self.settings.push(Setting { name: path, value, everywhere });
                }
            }
        }
    }
}

fn value(folder: impl AsFd, name: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?;
    read_value(&fd).ok()
}

/// Whether a setting is left out, see [`LEFT_OUT`].
#[must_use]
pub fn is_left_out(name: &str) -> bool {
    LEFT_OUT.iter().any(|(pattern, _)| {
        let mut parts = name.split('.');
        let fits = pattern.split('.').all(|p| parts.next().is_some_and(|part| p == "*" || p == part));
        fits && parts.next().is_none()
    })
}

/// A value with its tabs replaced by single spaces.
fn spaced(value: &str) -> String {
    value.trim().replace('\t', " ")
}

/// Adds the values of a setting as fields. Leaves out values that do not fit the type of the field.
///
/// `net.ipv4.ip_local_port_range` = `32768    60999` adds two numbers, `kernel.core_pattern` one
/// text.
pub fn add_values(facts: &mut Facts, name: &str, value: &str) {
    let field = format!("sysctl.{name}");
    if is_words(&field) {
        if LISTS.contains(&name) {
            value.split_ascii_whitespace().for_each(|w| word(facts, &field, w));
        } else if !value.trim().is_empty() {
            word(facts, &field, value.trim());
        }
        return;
    }
    let mut numbers = Vec::new();
    for part in value.split_ascii_whitespace() {
        let Some(number) = parse_number(part) else { return };
        if numbers.len() == NUMBERS_MAX {
            return;
        }
        numbers.push(Value::Number(number));
    }
    if !numbers.is_empty() {
        facts.insert(field, numbers);
    }
}

/// Parses a number as settings have them: an integer, with or without sign. `0x10`, `1.5` and `nan`
/// are not accepted.
#[must_use]
pub fn parse_number(text: &str) -> Option<f64> {
    text.parse::<i128>().ok().filter(|n| n.unsigned_abs() <= u64::MAX.into()).map(|n| n as f64)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::collectors::Cache;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn settings_are_read_as_sysctl_prints_them() {
        let root = tree(&[
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/sys/kernel/core_pattern", "|/usr/bin/dump %p %s\n"),
            ("proc/sys/kernel/printk", "4\t4\t1\t7\n"),
            ("proc/sys/kernel/random/uuid", "0a1b\n"),
            ("proc/sys/fs/file-nr", "1 2 3\n"),
            ("proc/sys/kernel/odd", "rather not\n"),
            ("proc/sys/kernel/empty", "\n"),
            ("proc/sys/dev/cdrom/info", "CD-ROM information\n\ndrive name:\tsr0\n"),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic\n"),
            ("proc/sys/net/ipv4/conf/all/rp_filter", "0\n"),
            ("proc/sys/net/ipv4/conf/eth0.7/rp_filter", "2\n"),
            ("proc/sys/net/ipv4/conf/veth1a/rp_filter", "2\n"),
            ("proc/sys/net/ipv6/conf/all/stable_secret", "::1\n"),
            ("sys/class/net/eth0.7/uevent", "DEVTYPE=vlan\nINTERFACE=eth0.7\n"),
            ("sys/class/net/veth1a/uevent", "INTERFACE=veth1a\n"),
        ]);
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        let documents = collect(&source).unwrap();
        let document = &documents[0];
        assert_eq!(
            document.content.as_deref(),
            Some(
                "dev.cdrom.info = CD-ROM information\ndev.cdrom.info = \ndev.cdrom.info = drive name: sr0\n\
                 kernel.core_pattern = |/usr/bin/dump %p %s\nkernel.empty = \nkernel.odd = rather not\n\
                 kernel.printk = 4 4 1 7\n\
                 net.ipv4.conf.all.rp_filter = 0\nnet.ipv4.conf.eth0/7.rp_filter = 2\n\
                 net.ipv4.tcp_available_congestion_control = reno cubic\nvm.swappiness = 60\n"
            )
        );
        let numbers = |ns: &[f64]| ns.iter().map(|n| Value::Number(*n)).collect::<Vec<_>>();
        let words = |ws: &[&str]| ws.iter().map(|w| Value::Text((*w).to_owned())).collect::<Vec<_>>();
        let wanted: Facts = [
            ("dev.cdrom.info", words(&["CD-ROM information\n\ndrive name:\tsr0"])),
            ("kernel.core_pattern", words(&["|/usr/bin/dump %p %s"])),
            ("kernel.printk", numbers(&[4.0, 4.0, 1.0, 7.0])),
            ("net.ipv4.conf.all.rp_filter", numbers(&[0.0])),
            ("net.ipv4.tcp_available_congestion_control", words(&["reno", "cubic"])),
            ("vm.swappiness", numbers(&[60.0])),
        ]
        .map(|(name, values)| (format!("sysctl.{name}"), values))
        .into();
        assert_eq!(document.facts, wanted);
    }

    #[test]
    fn numbers_are_whole() {
        assert_eq!(parse_number("-1"), Some(-1.0));
        assert_eq!(parse_number("18446744073692774399"), Some(18_446_744_073_692_774_399.0));
        for wrong in [
            "",
            "0x10",
            "1.5",
            "nan",
            "1e3",
            "340282366920938463463374607431768211456",
            "99999999999999999999",
        ] {
            assert_eq!(parse_number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_left_out_is_left_out_whole() {
        assert!(is_left_out("net.ipv6.conf.eth0.stable_secret"));
        assert!(is_left_out("kernel.sched_domain"));
        assert!(!is_left_out("net.ipv6.conf.eth0.mtu"));
        assert!(!is_left_out("fs.file-max"));
    }
}
