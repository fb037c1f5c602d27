//! What a file's name tells of a content without words: `proc/sys/net/ipv4/tcp_mem`, `tcp_max_orphans.txt`.

use mitra_model::{Metric, metrics};

use crate::text::Context;

/// The name that tells what follows: the file that a command before it showed, or the file itself.
pub(super) fn hint(context: &Context) -> &str {
    const SHOWING: &[&str] = &["cat", "head", "tail", "more", "less", "grep", "sysctl"];
    if let Some((program, words)) = context.command.split_first()
        && SHOWING.contains(&program.as_str())
    {
        // Of several files nobody knows which one it is.
        let mut names = words.iter().filter(|w| !w.starts_with('-') && w.contains(['/', '.', '_']));
        if let (Some(name), None) = (names.next(), names.next()) {
            return name;
        }
    }
    &context.file_name
}

/// The path of a line such as `==> /proc/meminfo <==`, or of a title that is nothing but a path below `/proc`.
pub(super) fn banner(line: &[u8]) -> Option<&str> {
    // Asked for every line: most begin with a letter or a digit.
    if line.trim_ascii_start().first()?.is_ascii_alphanumeric() {
        return None;
    }
    let line = std::str::from_utf8(line).ok()?.trim();
    if let Some(path) = line.strip_prefix("==> ").and_then(|l| l.strip_suffix(" <==")) {
        return Some(path.trim());
    }
    let bare = line.trim_matches(['=', '-', '#', '*', ':', ' ', '<', '>', '[', ']']);
    let is_path = bare.starts_with("/proc/") || bare.starts_with("/sys/");
    (is_path && !bare.contains([' ', ':', '='])).then_some(bare)
}

/// The path that `grep` puts before each line, and what follows it.
pub(super) fn grep_path(line: &[u8]) -> Option<(&str, &[u8])> {
    if !line.starts_with(b"/proc/") && !line.starts_with(b"/sys/") {
        return None;
    }
    let colon = line.iter().position(|b| matches!(b, b':' | b' ' | b'='))?;
    let (path, rest) = line.split_at_checked(colon)?;
    Some((std::str::from_utf8(path).ok()?, rest.strip_prefix(b":")?))
}

/// The last parts of a path as words of lower-case letters, digits and `_`, without endings such as `.txt`.
fn simple(name: &str) -> String {
    let name = name.trim_end_matches('/');
    let name = [".txt", ".log", ".out"].iter().find_map(|e| name.strip_suffix(e)).unwrap_or(name);
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// The setting whose file has this name.
pub(super) fn setting(name: &str) -> Option<&'static Metric> {
    let whole = simple(name);
    let last = simple(name.trim_end_matches('/').rsplit('/').next()?);
    metrics::table("sysctl").iter().find(|metric| {
        let Some(path) = metric.source.strip_prefix('/').filter(|p| !p.contains(';')) else { return false };
        let Some((_, leaf)) = path.rsplit_once('/') else { return false };
        let short = path.strip_prefix("proc/sys/").unwrap_or(path);
        let with_folder = short.rsplit('/').take(2).collect::<Vec<_>>();
        let with_folder = with_folder.into_iter().rev().collect::<Vec<_>>().join("/");
        // `enabled` tells nothing without its folder.
        (path.starts_with("proc/sys/") && last == simple(leaf))
            || ends_with_part(&whole, &simple(&with_folder))
    })
}

/// Whether the name ends with the part, and the part begins where a word does.
fn ends_with_part(name: &str, part: &str) -> bool {
    name.strip_suffix(part).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
}

/// Whether the name is one of a file of several numbers below `/proc/sys/fs`; returns its path.
pub(super) fn state(name: &str) -> Option<&'static str> {
    let last = simple(name.trim_end_matches('/').rsplit('/').next()?);
    ["proc/sys/fs/dentry-state", "proc/sys/fs/inode-state", "proc/sys/fs/file-nr"]
        .into_iter()
        .find(|path| path.rsplit('/').next().is_some_and(|leaf| ends_with_part(&last, &simple(leaf))))
}

/// The number of the node whose own file it is: `/sys/devices/system/node/node0/numastat`.
pub(super) fn node(name: &str) -> Option<&str> {
    let (before, last) = name.rsplit_once('/')?;
    let folder = before.rsplit('/').next()?;
    let number =
        folder.strip_prefix("node").filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))?;
    last.contains("numastat").then_some(number)
}

/// Which of the files of `/proc/pressure` it is.
pub(super) fn pressure(name: &str) -> Option<&'static str> {
    let last = simple(name.rsplit('/').next()?);
    let is_one = simple(name).contains("pressure") || simple(name).contains("psi");
    ["cpu", "io", "memory", "irq"]
        .into_iter()
        .find(|resource| last == *resource || (is_one && last.split('_').any(|word| word == *resource)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_tell() {
        for (name, metric) in [
            ("tcp_mem", "sysctl.net.ipv4.tcp_mem"),
            ("/var/tmp/case/tcp_mem.txt", "sysctl.net.ipv4.tcp_mem"),
            ("proc/sys/net/ipv4/tcp_max_orphans", "sysctl.net.ipv4.tcp_max_orphans"),
            ("net.ipv4.tcp_max_orphans", "sysctl.net.ipv4.tcp_max_orphans"),
            ("proc_sys_vm_swappiness.log", "sysctl.vm.swappiness"),
            ("/sys/kernel/mm/transparent_hugepage/enabled", "sys.thp_enabled"),
        ] {
            assert_eq!(setting(name).map(|m| m.name), Some(metric), "{name}");
        }
        for name in ["a", "", "/", "tcp_mem_notes", "enabled", "xtcp_mem", "meminfo"] {
            assert_eq!(setting(name), None, "{name}");
        }
        assert_eq!(banner(b"==> /proc/meminfo <=="), Some("/proc/meminfo"));
        assert_eq!(banner(b"### /proc/sys/vm/swappiness ###"), Some("/proc/sys/vm/swappiness"));
        assert_eq!(banner(b"/proc/meminfo: no"), None);
        assert_eq!(grep_path(b"/proc/sys/vm/swappiness:60"), Some(("/proc/sys/vm/swappiness", &b"60"[..])));
        assert_eq!(grep_path(b"/proc/x y:60"), None);
        assert_eq!(node("/sys/devices/system/node/node1/numastat"), Some("1"));
        assert_eq!(pressure("/proc/pressure/io"), Some("io"));
        assert_eq!(pressure("pressure-memory.txt"), Some("memory"));
        assert_eq!(pressure("notes"), None);
        assert_eq!(state("x/dentry-state"), Some("proc/sys/fs/dentry-state"));
    }
}
