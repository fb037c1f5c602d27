//! The identity of a process: users, groups, capabilities.
//!
//! Read once, when the process is opened: tools that run for the process later use this identity. A
//! process may become another user at any time by executing a set-user-ID program.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// `/proc/PID/status` lists all groups in one line, up to 65,536 of them.
const STATUS_BYTES_MAX: u64 = 2 << 20;

/// Users, groups and capabilities of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Real, effective, saved, of the file system.
    users: [u32; 4],
    groups: [u32; 4],
    /// Permitted capabilities, as a mask.
    capabilities: u64,
    /// The user namespace of these numbers: device and inode of `/proc/PID/ns/user`.
    namespace: Option<(u64, u64)>,
}

/// The user on whose behalf a tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) group: u32,
    /// Permitted capabilities, as a mask.
    pub(crate) capabilities: u64,
}

/// One reading of `/proc/PID/status`.
pub(crate) struct Now {
    pub(crate) identity: Identity,
    /// Signals with a handler, as a mask.
    catches: u64,
}

impl Now {
    pub(crate) fn read(pid: u32) -> Option<Now> {
        let mut text = Vec::new();
        let status = File::open(format!("/proc/{pid}/status")).ok()?;
        status.take(STATUS_BYTES_MAX).read_to_end(&mut text).ok()?;
        let namespace = fs::metadata(format!("/proc/{pid}/ns/user")).ok();
        Now::parse(&String::from_utf8_lossy(&text), namespace.map(|meta| (meta.dev(), meta.ino())))
    }

    /// The name comes first. The kernel escapes newlines in it.
    fn parse(status: &str, namespace: Option<(u64, u64)>) -> Option<Now> {
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let ids = |name: &str| {
            let mut words = value(name)?.split_whitespace().map(|word| word.parse().ok());
            Some([words.next()??, words.next()??, words.next()??, words.next()??])
        };
        let mask = |name: &str| u64::from_str_radix(value(name)?.trim(), 16).ok();
        Some(Now {
            identity: Identity {
                users: ids("Uid:")?,
                groups: ids("Gid:")?,
                capabilities: mask("CapPrm:")?,
                namespace,
            },
            catches: mask("SigCgt:")?,
        })
    }

    pub(crate) fn catches(&self, signal: u32) -> bool {
        signal.checked_sub(1).and_then(|bit| self.catches.checked_shr(bit)).is_some_and(|mask| mask & 1 == 1)
    }
}

impl Identity {
    /// The user on whose behalf a tool may run. The error says in words why there is none.
    pub(crate) fn user(&self) -> Result<User, String> {
        let ours = fs::metadata("/proc/self/ns/user").ok().map(|meta| (meta.dev(), meta.ino()));
        if self.namespace.is_none() || self.namespace != ours {
            return Err(
                "it is in another user namespace, in which users have other numbers than here".to_owned()
            );
        }
        let ([id, users @ ..], [group, groups @ ..]) = (self.users, self.groups);
        if users.iter().any(|other| *other != id) || groups.iter().any(|other| *other != group) {
            return Err(
                "it runs with the rights of several users (real, effective and saved differ), as set-user-ID programs do"
                    .to_owned(),
            );
        }
        Ok(User { id, group, capabilities: self.capabilities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tsh\\nUid:\t7\\t7\nUmask:\t0022\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\n\
        CapPrm:\t0000000000000400\nSigCgt:\t0000000000000004\n";

    fn user(from: &str, to: &str) -> Result<User, String> {
        let own = Now::read(std::process::id()).unwrap().identity.namespace;
        Now::parse(&STATUS.replace(from, to), own).unwrap().identity.user()
    }

    #[test]
    fn who_is_one_and_the_same_is_acted_for() {
        assert_eq!(user("", ""), Ok(User { id: 1000, group: 100, capabilities: 0x400 }));
        let own = Now::read(std::process::id()).unwrap().identity.user().unwrap();
        assert_eq!(own.id, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn who_has_rights_of_several_is_not() {
        let real = "1000\t1000\t1000\t1000";
        for other in ["1000\t0\t0\t0", "1000\t0\t1000\t0", "1000\t1000\t0\t1000", "1000\t1000\t1000\t0"] {
            assert!(user(real, other).is_err_and(|why| why.contains("set-user-ID")), "{other}");
        }
        assert!(user("100\t100\t100\t100", "100\t0\t0\t0").is_err());
        let elsewhere = Now::parse(STATUS, Some((1, 2))).unwrap().identity;
        assert!(elsewhere.user().is_err_and(|why| why.contains("user namespace")));
        assert!(Now::parse(STATUS, None).unwrap().identity.user().is_err());
        assert!(Now::parse("Uid:\t0\t0\t0\nGid:\t0\t0\t0\t0\n", None).is_none());
    }

    #[test]
    fn handlers_are_read_of_the_mask() {
        let now = Now::parse(STATUS, None).unwrap();
        assert!(now.catches(3) && !now.catches(2) && !now.catches(4) && !now.catches(0) && !now.catches(65));
    }
}
