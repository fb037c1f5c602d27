//! `/proc/self/mounts`: which filesystems are mounted where.
//!
//! ```text
//! /dev/vda / ext4 rw,relatime,discard 0 0
//! tmpfs /mnt/a\040b tmpfs rw,size=4k 0 0
//! ```
//!
//! See `show_vfsmnt` in `fs/proc_namespace.c`. Blanks, tabs, newlines and backslashes are written as three octal digits.

use std::borrow::Cow;

use crate::Outcome;
use crate::scan::{Lines, word};

/// A mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount<'a> {
    /// The device or other source.
    pub device: Cow<'a, [u8]>,
    /// The mount point.
    pub point: Cow<'a, [u8]>,
    /// The type of the filesystem.
    pub kind: &'a str,
    /// The options, separated by commas.
    pub options: &'a [u8],
}

/// Types without space of their own.
const WITHOUT_DATA: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fuse.gvfsd-fuse",
    "fuse.lxcfs",
    "fuse.portal",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "overlay",
    "proc",
    "pstore",
    "resctrl",
    "rootfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tracefs",
];

/// Types whose statfs(2) waits for another machine or a process.
const MAY_HANG: &[&str] =
    &["9p", "afs", "ceph", "cifs", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "virtiofs"];

impl Mount<'_> {
    /// Whether it can run out of space or inodes. An overlay has the space of the filesystem below it, and a squashfs is
    /// always full.
    #[must_use]
    pub fn holds_data(&self) -> bool {
        !WITHOUT_DATA.contains(&self.kind)
    }

    /// Whether statfs(2) may hang.
    #[must_use]
    pub fn may_hang(&self) -> bool {
        MAY_HANG.contains(&self.kind) || self.kind == "fuse" || self.kind.starts_with("fuse.")
    }
}

/// The mounts, in the order of the file. A mount point that comes again hides the one before it.
#[must_use]
pub fn mounts(input: &[u8]) -> (Vec<Mount<'_>>, Outcome) {
    let mut outcome = Outcome::default();
    let mut lines = Lines::new(input);
    let mut mounts = Vec::new();
    while let Some(line) = lines.next(&mut outcome) {
        match mount(line) {
            Some(mount) => mounts.push(mount),
            None => outcome.bad(lines.number()),
        }
    }
    (mounts, outcome)
}

fn mount(line: &[u8]) -> Option<Mount<'_>> {
    let (device, rest) = word(line)?;
    let (point, rest) = word(rest)?;
    let (kind, rest) = word(rest)?;
    let (options, rest) = word(rest)?;
    let (dump, rest) = word(rest)?;
    let (pass, rest) = word(rest)?;
    let is_whole = rest.is_empty() && dump == b"0" && pass == b"0" && point.starts_with(b"/");
    let kind = std::str::from_utf8(kind).ok()?;
    is_whole.then(|| Mount { device: unescaped(device), point: unescaped(point), kind, options })
}

/// Turns `\040` back into a blank.
#[must_use]
pub fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                tail
            }
            _ => {
                out.push(*byte);
                tail
            }
        };
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::mounts;
    use crate::testing::fixture;

    #[test]
    fn each_kernel() {
        for (kernel, device, kind) in [
            ("3.10", &b"/dev/mapper/centos-root"[..], "xfs"),
            ("4.18", b"/dev/mapper/rhel-root", "xfs"),
            ("5.15", b"/dev/nvme0n1p2", "ext4"),
            ("6.1", b"/dev/sda1", "ext4"),
            ("6.18", b"/dev/vda", "ext4"),
        ] {
            let (list, outcome) = mounts(fixture(kernel, "proc/self/mounts"));
            assert!(outcome.is_clean());
            let root = list.iter().find(|m| *m.point == *b"/" && m.holds_data()).unwrap();
            assert_eq!((&*root.device, root.kind), (device, kind));
            assert!(!root.may_hang());
            assert!(list.iter().any(|m| m.kind == "proc" && !m.holds_data()));
        }
        let (list, _) = mounts(fixture("5.15", "proc/self/mounts"));
        assert!(list.iter().any(|m| *m.point == *b"/mnt/two words" && m.kind == "nfs4" && m.may_hang()));
    }

    #[test]
    fn damage() {
        let (list, outcome) = mounts(
            b"/dev/a / ext4 rw 0 0\n/dev/b /b ext4 rw 0\n/dev/c c ext4 rw 0 0\n/dev/d /d \xff rw 0 0\n/dev/e /e ext4 rw 0 0 0\n\n/dev/f /f\\04 ext4 rw 0 0\r\n/dev/g /g\\011\\134\\04 ext4 rw 0 0\n/dev/h /h ext4 rw 0 0",
        );
        assert_eq!(list.len(), 2);
        assert_eq!(&*list[1].point, b"/g\t\\\\04");
        assert_eq!((outcome.bad_lines, outcome.first_bad), (7, Some(2)));
    }
}
