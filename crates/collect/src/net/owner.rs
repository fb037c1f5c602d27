//! Whose sockets these are: a walk over the descriptors of all processes, as `ss -p` does it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::clock::thread_cpu_ns;
use crate::file::{Buffer, Root, each_entry, inode_in_link};

/// A walk ends after so much CPU time, whoever was found by then: it costs a microsecond for each descriptor of the machine.
const WALK_CPU_MAX: Duration = Duration::from_millis(50);
/// So many processes are looked at.
const PROCESSES_MAX: usize = 16_384;

/// A process that holds a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The inode number of the socket.
    pub inode: u32,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
}

/// Calls `f` with each process and the directory of its descriptors, until it says that this was the last one or `cpu_max`
/// is used up: on a machine in trouble others have the CPU for most of the time. Whether it saw all of them: a process that may not be looked at, or one too many, makes it false.
pub fn each_process(cpu_max: Duration, mut f: impl FnMut(&Root, u32, &OwnedFd) -> bool) -> bool {
    let began = thread_cpu_ns();
    let Ok(root) = Root::open("/proc".as_ref()) else { return false };
    let Ok(dir) = root.open_file(".") else { return false };
    let mut pids: Vec<u32> = Vec::new();
    let is_listed = each_entry(dir.as_fd(), |name| {
        pids.extend(name.to_str().ok().and_then(|name| name.parse::<u32>().ok()));
    });
    let mut is_complete = is_listed.is_ok() && pids.len() <= PROCESSES_MAX;
    pids.truncate(PROCESSES_MAX);
    for pid in pids {
        if Duration::from_nanos((thread_cpu_ns() - began).unsigned_abs()) > cpu_max {
            return false;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(root.fd(), format!("{pid}/fd"), flags, Mode::empty()) {
            Ok(fds) if !f(&root, pid, &fds) => return false,
            Ok(_) | Err(Errno::NOENT | Errno::SRCH) => {}
            Err(_) => is_complete = false,
        }
    }
    is_complete
}

/// Finds the processes that hold these sockets, of each socket the first.
#[must_use]
pub fn find(inodes: &[u32]) -> Vec<Owner> {
    let mut found: Vec<Owner> = Vec::new();
    let mut buffer = Buffer::default();
    // Who was not found has no row.
    let _is_complete = each_process(WALK_CPU_MAX, |root, pid, fds| {
        let _listed = each_entry(fds.as_fd(), |name| {
            let Some(inode) = inode_in_link(fds, name, b"socket") else { return };
            if inodes.contains(&inode) && !found.iter().any(|owner| owner.inode == inode) {
                let comm = root.read(&format!("{pid}/comm"), &mut buffer).unwrap_or_default();
                let comm = String::from_utf8_lossy(comm.trim_ascii_end()).into_owned();
                found.push(Owner { inode, pid, comm });
            }
        });
        found.len() < inodes.len()
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn the_own_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&listener);
        let inode = std::fs::metadata(format!("/proc/self/fd/{fd}")).unwrap().ino();
        let found = find(&[u32::try_from(inode).unwrap()]);
        assert_eq!(found.iter().map(|owner| owner.pid).collect::<Vec<_>>(), [std::process::id()]);
    }
}
