//! Whose sockets these are: a walk over the descriptors of all processes, as `ss -p` does it.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::clock::thread_cpu_ns;
use crate::file::{Buffer, Root, each_entry, inode_in_link};

/// A search goes on for so much CPU time at once: it costs a microsecond for each descriptor of the machine.
const STEP_CPU_MAX: Duration = Duration::from_millis(10);
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

/// A walk over the processes of the machine, in parts: on one in trouble others have the CPU for most of the time.
#[derive(Debug)]
pub struct Walk {
    proc: Root,
    /// Those that are left, the next one at the end.
    pids: Vec<u32>,
    /// None may not be looked at, and there are not too many of them.
    is_complete: bool,
}

impl Walk {
    /// Lists the processes.
    pub fn begin() -> Option<Walk> {
        let proc = Root::open("/proc".as_ref()).ok()?;
        let dir = proc.open_file(".").ok()?;
        let mut pids: Vec<u32> = Vec::new();
        let is_listed = each_entry(dir.as_fd(), |name| {
            pids.extend(name.to_str().ok().and_then(|name| name.parse::<u32>().ok()));
        });
        let is_complete = is_listed.is_ok() && pids.len() <= PROCESSES_MAX;
        pids.truncate(PROCESSES_MAX);
        pids.reverse();
        Some(Walk { proc, pids, is_complete })
    }

    /// Those that are left.
    #[must_use]
    pub fn left(&self) -> &[u32] {
        &self.pids
    }

    /// Leaves some out.
    pub fn leave_out(&mut self, pids: &HashSet<u32>) {
        self.pids.retain(|pid| !pids.contains(pid));
    }

    /// Whether all processes were seen, once it has ended.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete && self.pids.is_empty()
    }

    /// Calls `f` with each process and the directory of its descriptors, until it says that this was the last one or `cpu_max`
    /// is used up, but with one at least. Whether the walk has ended.
    pub fn go_on(&mut self, cpu_max: Duration, mut f: impl FnMut(&Root, u32, &OwnedFd) -> bool) -> bool {
        let began = thread_cpu_ns();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        while let Some(pid) = self.pids.pop() {
            match rustix::fs::openat(self.proc.fd(), format!("{pid}/fd"), flags, Mode::empty()) {
                Ok(fds) if !f(&self.proc, pid, &fds) => {
                    self.is_complete = false;
                    return true;
                }
                Ok(_) | Err(Errno::NOENT | Errno::SRCH) => {}
                Err(_) => self.is_complete = false,
            }
            if Duration::from_nanos((thread_cpu_ns() - began).unsigned_abs()) > cpu_max {
                break;
            }
        }
        self.pids.is_empty()
    }
}

/// A search for the processes that hold some sockets, of each socket the first.
#[derive(Debug)]
pub struct Search {
    walk: Walk,
    wanted: Vec<u32>,
    found: Vec<Owner>,
    buffer: Buffer,
}

impl Search {
    /// Begins one.
    pub fn begin(wanted: Vec<u32>) -> Option<Search> {
        Some(Search { walk: Walk::begin()?, wanted, found: Vec::new(), buffer: Buffer::default() })
    }

    /// Goes on for a few milliseconds. Whether it has ended.
    pub fn step(&mut self) -> bool {
        let Search { walk, wanted, found, buffer } = self;
        walk.go_on(STEP_CPU_MAX, |proc, pid, fds| {
            let _listed = each_entry(fds.as_fd(), |name| {
                let Some(inode) = inode_in_link(fds, name, b"socket") else { return };
                if wanted.contains(&inode) && !found.iter().any(|owner| owner.inode == inode) {
                    let comm = proc.read(&format!("{pid}/comm"), buffer).unwrap_or_default();
                    let comm = String::from_utf8_lossy(comm.trim_ascii_end()).into_owned();
                    found.push(Owner { inode, pid, comm });
                }
            });
            found.len() < wanted.len()
        })
    }

    /// Those that are known by now. Who is not found has none.
    #[must_use]
    pub fn found(&self) -> &[Owner] {
        &self.found
    }
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
        let mut search = Search::begin(vec![u32::try_from(inode).unwrap()]).unwrap();
        while !search.step() {}
        let found: Vec<u32> = search.found().iter().map(|owner| owner.pid).collect();
        assert_eq!(found, [std::process::id()]);
    }

    #[test]
    fn a_walk_goes_on_where_it_stopped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (mut seen, mut parts) = (Vec::new(), 1);
        let mut walk = Walk::begin().unwrap();
        let mut note = |_: &Root, pid: u32, _: &OwnedFd| {
            seen.push(pid);
            true
        };
        while !walk.go_on(Duration::ZERO, &mut note) {
            parts += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen.contains(&std::process::id()) && seen.contains(&child.id()), "{seen:?}");
        seen.sort_unstable();
        let count = seen.len();
        seen.dedup();
        assert!(seen.len() == count && parts >= count, "one by one, and none twice");
    }
}
