//! The fields of documents, declared once. The cluster's mapping, the meaning of a query and
//! `docs/fields.md` come from here.
//!
//! A field's name decides its type, and a value never does, so that every host and both back ends
//! agree. A value that does not fit the type is left out of the fields, but stays in the content.

pub mod sysctl;

use crate::document::Kind;

/// How the values of a field are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Text, split into tokens, case-insensitive.
    Text,
    /// A whole string, case-sensitive. Above [`KEYWORD_MAX`] it is not indexed.
    Keyword,
    /// An integer.
    Long,
    /// Any number.
    Double,
    /// A time in milliseconds.
    Date,
    /// A UTC day.
    Day,
}

/// Where the embedded index stores the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The state of one document of one host.
    Row,
    /// The content, which many states may share.
    Content,
}

/// One field, or a family of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The name. That of a family ends in `.*`.
    pub name: &'static str,
    /// How its values are compared.
    pub kind: Type,
    /// Where the embedded index stores its values.
    pub side: Side,
    /// Its meaning, with unit and source.
    pub help: &'static str,
}

/// Longer keywords are not indexed.
pub const KEYWORD_MAX: usize = 8_191;

/// Whether a keyword is short enough for the index. Like a cluster, counts UTF-16 units.
pub(crate) fn is_short(word: &str) -> bool {
    word.len() <= KEYWORD_MAX || (word.len() <= 4 * KEYWORD_MAX && word.encode_utf16().count() <= KEYWORD_MAX)
}

/// The field of a query term without a field.
pub const DEFAULT: &str = "content";

/// Older names of fields, with the current ones.
pub const ALIASES: &[(&str, &str)] = &[("hostname", "host"), ("timestamp", "time")];

const fn row(name: &'static str, kind: Type, help: &'static str) -> Field {
    Field { name, kind, side: Side::Row, help }
}

const fn fact(name: &'static str, kind: Type, help: &'static str) -> Field {
    Field { name, kind, side: Side::Content, help }
}

use Type::{Date, Day, Double, Keyword, Long, Text};

/// Every field, in the order of `docs/fields.md`.
pub const FIELDS: &[Field] = &[
    row("host", Keyword, "name of the host"),
    row("filename", Keyword, "path of the file, or @ and a name for what a collector says"),
    fact("kind", Keyword, "file, package, kernel, sysctl, mount, …: what the document is"),
    fact("content", Text, "the text, without secrets"),
    fact("hash", Keyword, "SHA-256 of the content as it is kept"),
    row("size", Long, "bytes of the file"),
    row("mode", Keyword, "permissions in octal, four digits: 0644"),
    row("uid", Long, "number of the owner"),
    row("gid", Long, "number of the group"),
    row("user", Keyword, "name of the owner"),
    row("group", Keyword, "name of the group"),
    row("inode", Long, "number of the inode"),
    row("mtime", Date, "when the content was changed"),
    row("ctime", Date, "when content, owner, mode or name was changed"),
    row("time", Date, "since when this state is known"),
    row("day", Day, "the day of the index"),
    fact("link", Keyword, "where a symbolic link points"),
    fact("flags", Keyword, "binary, truncated, redacted, refused, gone, …: what is special about it"),
    fact("withheld.count", Long, "values that were withheld"),
    fact("withheld.reason", Keyword, "why they were withheld"),
    fact("withheld.key", Keyword, "the keys that they belong to"),
    fact(
        "sysctl.*",
        Double,
        "a setting of the kernel: sysctl.vm.swappiness; some are words: sysctl.kernel.core_pattern",
    ),
    fact(
        "package.*",
        Keyword,
        "version of an installed package: package.zsh; a dot in its name is written _",
    ),
    fact("kernel.release", Keyword, "release of the running kernel (uname -r)"),
    fact("kernel.version", Keyword, "build of the running kernel (uname -v)"),
    fact("kernel.machine", Keyword, "its architecture (uname -m)"),
    fact("kernel.tainted", Long, "its taint flags (/proc/sys/kernel/tainted)"),
    fact("kernel.module", Keyword, "names of loaded modules (/proc/modules)"),
    fact("os.id", Keyword, "the distribution (/etc/os-release)"),
    fact("os.version", Keyword, "its version (/etc/os-release)"),
    fact("os.name", Keyword, "its name with version (/etc/os-release)"),
    fact(
        "cmdline.*",
        Keyword,
        "an argument of the kernel (/proc/cmdline): cmdline.mitigations; empty for one without value; a dot in its name is \
         written _",
    ),
    fact("fs.type", Keyword, "type of a mounted file system"),
    fact("fs.device", Keyword, "what is mounted"),
    fact("fs.mountpoint", Keyword, "where it is mounted"),
    fact("fs.options", Keyword, "its mount options"),
    fact("fs.block_size", Long, "bytes of a block of a file system"),
    fact("fs.size", Long, "bytes of a file system"),
    fact("fs.sunit", Long, "stripe unit of XFS, in blocks"),
    fact("fs.swidth", Long, "stripe width of XFS, in blocks"),
    fact("fs.agcount", Long, "allocation groups of XFS"),
    fact("disk.name", Keyword, "name of a block device"),
    fact("disk.size", Long, "its bytes"),
    fact("disk.model", Keyword, "its model"),
    fact("disk.rotational", Long, "1 where it turns"),
    fact("disk.scheduler", Keyword, "its I/O scheduler"),
    fact("disk.nr_requests", Long, "requests that its queue takes"),
    fact("disk.read_ahead_kb", Long, "its read-ahead, in kilobytes"),
    fact("disk.logical_block_size", Long, "bytes that it addresses"),
    fact("disk.physical_block_size", Long, "bytes that it writes at once"),
    fact("disk.max_sectors_kb", Long, "its largest request, in kilobytes"),
    fact("disk.write_cache", Keyword, "write back or write through"),
    fact("socket.port", Long, "ports that are listened on"),
    fact("socket.address", Keyword, "addresses with port that are listened on"),
    fact("socket.process", Keyword, "programs that listen"),
    fact("account.user", Keyword, "names of users (/etc/passwd)"),
    fact("account.group", Keyword, "names of groups (/etc/group)"),
    fact("unit.enabled", Keyword, "units of systemd that are started at boot"),
    fact("unit.active", Keyword, "units of systemd that have processes"),
    fact("unit.masked", Keyword, "units of systemd that are masked"),
    fact("timer.name", Keyword, "name of a timer of systemd"),
    fact("timer.unit", Keyword, "the unit that it starts"),
    fact("timer.calendar", Keyword, "when it does (OnCalendar=)"),
    fact("timer.last", Date, "when it last did"),
    fact("cron.schedule", Keyword, "the five fields of a line of a crontab, or @daily"),
    fact("cron.command", Keyword, "what it runs"),
    fact("cron.user", Keyword, "the user that it runs as"),
    fact("cron.file", Keyword, "the crontab"),
    fact("cron.line", Long, "the line in it"),
    fact("cgroup.limited", Keyword, "paths of cgroups with a limit"),
    fact("cgroup.container", Keyword, "names of containers that have a cgroup"),
    fact("cgroup.image", Keyword, "their images"),
    fact("cgroup.pod", Keyword, "pods of Kubernetes that have a cgroup: namespace/name"),
    fact("cpu.model", Keyword, "model of the processor"),
    fact("cpu.count", Long, "logical CPUs"),
    fact("cpu.flags", Keyword, "flags of the processor"),
    fact("cpu.governor", Keyword, "governor of its frequency"),
    fact("cpu.mitigation.*", Keyword, "state of a vulnerability: cpu.mitigation.spectre_v2"),
    fact("numa.nodes", Long, "memory nodes"),
    fact("nic.name", Keyword, "name of a network interface"),
    fact("nic.driver", Keyword, "its driver"),
    fact("nic.mtu", Long, "its largest packet, in bytes"),
    fact("nic.speed", Long, "its speed, in Mbit/s"),
    fact("nic.rx_ring", Long, "entries of its receive ring"),
    fact("nic.tx_ring", Long, "entries of its transmit ring"),
    fact("nic.offload", Keyword, "its offloads that are on: tso, gro, …"),
    fact("incident.root", Keyword, "root cause of an incident, an id of docs/conditions"),
    fact("incident.condition", Keyword, "every condition of its chain"),
    fact("incident.process", Keyword, "culprit: program"),
    fact("incident.cgroup", Keyword, "culprit: cgroup, by its path and by what it is called"),
    fact("incident.device", Keyword, "culprit: device"),
    fact("incident.path", Keyword, "culprit: file"),
    fact("incident.sysctl", Keyword, "culprit: setting of the kernel"),
    fact("incident.confidence", Double, "how sure, 0 to 1"),
    fact("incident.lost", Double, "task-seconds that were lost"),
    fact("incident.onset", Date, "when it began"),
    fact("incident.end", Date, "when it ended"),
];

/// The current name of a field, for a current or an older one.
#[must_use]
pub fn resolve(name: &str) -> &str {
    ALIASES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

/// The field with this name, or the family that it belongs to.
#[must_use]
pub fn field(name: &str) -> Option<Field> {
    let name = resolve(name);
    let of_family = |f: &&Field| {
        f.name.strip_suffix('*').is_some_and(|head| name.len() > head.len() && name.starts_with(head))
    };
    let found = FIELDS.iter().find(|f| f.name == name).or_else(|| FIELDS.iter().find(of_family)).copied()?;
    if found.name == "sysctl.*" && sysctl::is_words(name) {
        return Some(Field { kind: Keyword, ..found });
    }
    Some(found)
}

/// The first part of a name: `kernel` for `kernel.release`.
#[must_use]
pub fn family(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// The kind of documents that have a field; `None` if any kind may. If a host has no document of
/// that kind, nothing is known about the field.
#[must_use]
pub fn kind_of(name: &str) -> Option<Kind> {
    match family(resolve(name)) {
        "package" => Some(Kind::Package),
        "sysctl" => Some(Kind::Sysctl),
        "kernel" | "os" => Some(Kind::Kernel),
        "cmdline" => Some(Kind::Cmdline),
        "fs" => Some(Kind::Mount),
        "disk" => Some(Kind::Disk),
        "socket" => Some(Kind::Socket),
        "account" => Some(Kind::User),
        "unit" => Some(Kind::Unit),
        "timer" => Some(Kind::Timer),
        "cron" => Some(Kind::Cron),
        "cgroup" => Some(Kind::Cgroup),
        "cpu" => Some(Kind::Cpu),
        "numa" => Some(Kind::Numa),
        "nic" => Some(Kind::Nic),
        "incident" => Some(Kind::Incident),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        assert_eq!(field("sysctl.vm.swappiness").map(|f| f.kind), Some(Double));
        assert_eq!(field("sysctl.kernel.core_pattern").map(|f| f.kind), Some(Keyword));
        assert_eq!(field("hostname").map(|f| f.name), Some("host"));
        assert_eq!(field("sysctl."), None);
        assert_eq!(field("nothing"), None);
        assert_eq!(family("kernel.release"), "kernel");
    }

    #[test]
    fn every_family_belongs_to_a_kind_of_documents() {
        for f in FIELDS.iter().filter(|f| f.name.contains('.') && family(f.name) != "withheld") {
            assert!(kind_of(f.name).is_some(), "{}", f.name);
        }
        assert_eq!(kind_of("filename"), None);
    }

    #[test]
    fn no_field_is_both_a_value_and_a_family() {
        for f in FIELDS {
            let below = format!("{}.", f.name.trim_end_matches(".*"));
            let clash = FIELDS.iter().find(|other| other.name.starts_with(&below) && other.name != f.name);
            assert!(f.name.ends_with(".*") || clash.is_none(), "{} and {:?}", f.name, clash.map(|c| c.name));
        }
    }
}
