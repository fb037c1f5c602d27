//! Whose sockets these are: a walk over the descriptors of all processes, as `ss -p` does it.

use std::collections::HashSet;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::clock::Allowance;
use crate::file::{Buffer, Root, each_entry, inode_in_link};

/// A search goes on for so much CPU time at once: it costs a microsecond for each descriptor of the machine.
const STEP_CPU_MAX: Duration = Duration::from_millis(10);
/// So many processes are looked at.
const PROCESSES_MAX: usize = 16_384;
/// So many descriptors of a process. The rest of one that has more is left out.
const FDS_MAX: usize = 262_144;
/// The kernel lists some 300 descriptors at a time in so much space.
const LIST_BYTES: usize = 8192;

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

/// A process whose descriptors are listed.
#[derive(Debug)]
struct Listing {
    pid: u32,
    fds: OwnedFd,
    /// Those that were listed.
    seen: usize,
}

/// How far a list has come.
enum Listed {
    Whole,
    /// It goes on where it was left.
    Partly,
    TooMany,
    /// Nothing more is wanted of anybody.
    Enough,
}

impl Listing {
    /// Calls `f` with each of the descriptors from where it was left, until it returns false or `allowance` is used up.
    fn go_on(
        &mut self,
        proc: &Root,
        allowance: Allowance,
        f: &mut impl FnMut(&Root, u32, &OwnedFd, &CStr) -> bool,
    ) -> Listed {
        let mut space = [MaybeUninit::<u8>::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(&self.fds, &mut space);
        // A process that has ended meanwhile holds nothing.
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                self.seen += 1;
                if self.seen > FDS_MAX {
                    return Listed::TooMany;
                }
                if !f(proc, self.pid, &self.fds, name) {
                    return Listed::Enough;
                }
            }
            // The kernel goes on behind what it has listed.
            if entries.is_buffer_empty() && allowance.is_used_up() {
                return Listed::Partly;
            }
        }
        Listed::Whole
    }
}

/// A walk over the processes of the machine, in parts: on one in trouble others have the CPU for most of the time.
#[derive(Debug)]
pub struct Walk {
    proc: Root,
    /// Those that are left, the next one at the end.
    pids: Vec<u32>,
    /// The one that it is at.
    listing: Option<Listing>,
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
        Some(Walk { proc, pids, listing: None, is_complete })
    }

    /// Those that it has not come to.
    #[must_use]
    pub fn left(&self) -> &[u32] {
        &self.pids
    }

    /// Leaves some out.
    pub fn leave_out(&mut self, pids: &HashSet<u32>) {
        self.pids.retain(|pid| !pids.contains(pid));
    }

    /// Whether all descriptors were seen, once it has ended.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete && self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.pids.is_empty() && self.listing.is_none()
    }

    /// Calls `f` with each descriptor of each process, and the directory that it is in, until it returns false or `cpu_max` is used
    /// up. It gets on a little even without any. Whether the walk has ended.
    pub fn go_on(
        &mut self,
        cpu_max: Duration,
        mut f: impl FnMut(&Root, u32, &OwnedFd, &CStr) -> bool,
    ) -> bool {
        let allowance = Allowance::of(cpu_max);
        loop {
            if self.listing.is_none() {
                let Some(pid) = self.pids.pop() else { break };
                self.listing = self.open(pid);
            }
            if let Some(listing) = &mut self.listing {
                match listing.go_on(&self.proc, allowance, &mut f) {
                    Listed::Whole => self.listing = None,
                    Listed::Partly => {}
                    Listed::TooMany => (self.listing, self.is_complete) = (None, false),
                    Listed::Enough => {
                        (self.listing, self.is_complete) = (None, false);
                        return true;
                    }
                }
            }
            if allowance.is_used_up() {
                break;
            }
        }
        self.has_ended()
    }

    fn open(&mut self, pid: u32) -> Option<Listing> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(self.proc.fd(), format!("{pid}/fd"), flags, Mode::empty()) {
            Ok(fds) => Some(Listing { pid, fds, seen: 0 }),
            Err(Errno::NOENT | Errno::SRCH) => None,
            Err(_) => {
                self.is_complete = false;
                None
            }
        }
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
        walk.go_on(STEP_CPU_MAX, |proc, pid, fds, name| {
            if let Some(inode) = inode_in_link(fds, name, b"socket")
                && wanted.contains(&inode)
                && !found.iter().any(|owner| owner.inode == inode)
            {
                let comm = proc.read(&format!("{pid}/comm"), buffer).unwrap_or_default();
                let comm = String::from_utf8_lossy(comm.trim_ascii_end()).into_owned();
                found.push(Owner { inode, pid, comm });
            }
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
        // More than the kernel lists at a time.
        let many: Vec<_> = (0..400).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let own = std::process::id();
        let (mut seen, mut parts, mut parts_of_own) = (Vec::new(), 1, 0);
        let mut walk = Walk::begin().unwrap();
        loop {
            let from = seen.len();
            let has_ended = walk.go_on(Duration::ZERO, |_, pid, _, name| {
                seen.push((pid, name.to_owned()));
                true
            });
            parts_of_own += usize::from(seen[from..].iter().any(|(pid, _)| *pid == own));
            if has_ended {
                break;
            }
            parts += 1;
        }
        drop(many);
        child.kill().unwrap();
        child.wait().unwrap();
        let of = |wanted: u32| seen.iter().filter(|(pid, _)| *pid == wanted).count();
        assert!(of(own) >= 400 && of(child.id()) >= 3, "{seen:?}");
        assert!(parts_of_own >= 2, "a process with many is left in between");
        let pids: HashSet<u32> = seen.iter().map(|(pid, _)| *pid).collect();
        assert!(parts >= pids.len(), "one by one");
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count, "none twice");
    }
}
