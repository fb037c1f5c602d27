//! Whose sockets these are: a walk over the descriptors of all processes, as `ss -p` does it.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::file::{Buffer, Root, each_entry, inode_in_link};

/// A walk ends after this long, whoever was found by then: it costs a microsecond for each descriptor of the machine.
const WALK_TIME_MAX: Duration = Duration::from_millis(50);
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

/// Finds the processes that hold these sockets, of each socket the first.
#[must_use]
pub fn find(inodes: &[u32]) -> Vec<Owner> {
    let began = Instant::now();
    let mut found: Vec<Owner> = Vec::new();
    let Ok(root) = Root::open("/proc".as_ref()) else { return found };
    let Ok(dir) = root.open_file(".") else { return found };
    let mut pids: Vec<u32> = Vec::new();
    // A directory that cannot be listed has no processes to look at.
    let _listed = each_entry(dir.as_fd(), |name| {
        pids.extend(name.to_str().ok().and_then(|name| name.parse::<u32>().ok()));
    });
    pids.truncate(PROCESSES_MAX);
    let mut buffer = Buffer::default();
    for pid in pids {
        if found.len() == inodes.len() || began.elapsed() > WALK_TIME_MAX {
            break;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(fds) = rustix::fs::openat(root.fd(), format!("{pid}/fd"), flags, Mode::empty()) else {
            continue;
        };
        let _listed = each_entry(fds.as_fd(), |name| {
            let Some(inode) = inode_in_link(&fds, name, b"socket") else { return };
            if inodes.contains(&inode) && !found.iter().any(|owner| owner.inode == inode) {
                let comm = root.read(&format!("{pid}/comm"), &mut buffer).unwrap_or_default();
                let comm = String::from_utf8_lossy(comm.trim_ascii_end()).into_owned();
                found.push(Owner { inode, pid, comm });
            }
        });
    }
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
