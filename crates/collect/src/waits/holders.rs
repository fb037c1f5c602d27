//! Which processes hold a pipe or a socket, and what a descriptor is.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::file::{Buffer, LINK_BYTES, Root, inode_in, inode_in_link, link};
use crate::net::owner::Walk;

/// A walk over all descriptors of the machine costs a microsecond for each, and goes on for no more CPU time in one look.
const WALK_CPU_MAX: Duration = Duration::from_millis(100);
/// On a machine with ten thousand processes it takes several looks. What was known so long ago stands in until then, with the
/// processes that came since.
const STALE: Duration = Duration::from_secs(5);
/// As many pipes and sockets are kept: 16 bytes each.
const HELD_MAX: usize = 262_144;
/// Of a pipe or socket that more descriptors have, nobody is named.
const CANDIDATES_MAX: usize = 64;
/// `fdinfo` of an epoll instance has a line of some 100 bytes for each of its descriptors, that of a file one for each lock.
const FDINFO_BYTES_MAX: usize = 128 * 1024;
/// Its first lines.
const FLAGS_BYTES_MAX: usize = 256;
/// Access modes of open(2).
const READ_ONLY: u32 = 0;
const WRITE_ONLY: u32 = 1;
const ACCESS: u32 = 3;

/// What a descriptor is called by which a program scans files as they are opened, and the number that stands for it: no pipe
/// and no socket has that.
const FANOTIFY_LINK: &[u8] = b"anon_inode:[fanotify]";
const FANOTIFY: u32 = 0;
/// The same of the daemon of a FUSE file system.
const FUSE_LINK: &[u8] = b"/dev/fuse";
const FUSE: u32 = u32::MAX;
/// `FAN_OPEN_PERM`, `FAN_ACCESS_PERM`, `FAN_OPEN_EXEC_PERM` and `FAN_PRE_ACCESS` of fanotify_mark(2).
const FAN_PERM: u32 = 0x1_0000 | 0x2_0000 | 0x4_0000 | 0x10_0000;

/// A descriptor of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    inode: u32,
    pid: u32,
    fd: u32,
}

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    Pipe(u32),
    Socket(u32),
    Epoll,
    Timer,
    /// A descriptor by which the process wakes itself.
    Event,
    /// One for a child, a signal, or something else.
    Special,
    File,
}

/// Which end of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Reads,
    Writes,
}

/// Who holds the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Only this process.
    One(u32),
    /// Only the process that waits.
    Itself,
    /// Several that may be meant, none, or not everybody could be asked.
    Unknown,
}

/// The pipes and sockets of all processes, in order of their inode numbers.
#[derive(Debug, Default)]
pub struct Holders {
    all: Vec<Held>,
    is_complete: bool,
    /// The processes that were seen for it, and when all were.
    seen: HashSet<u32>,
    as_of: Option<Instant>,
    /// A walk that one look was not enough for.
    next: Option<Part>,
}

/// What a walk has found so far.
#[derive(Debug)]
struct Part {
    walk: Walk,
    seen: HashSet<u32>,
    found: Vec<Held>,
}

impl Part {
    fn begin() -> Option<Part> {
        let walk = Walk::begin()?;
        Some(Part { seen: walk.left().iter().copied().collect(), walk, found: Vec::new() })
    }

    /// Whether it has ended.
    fn go_on(&mut self, cpu_max: Duration) -> bool {
        let (found, mut space) = (&mut self.found, [0; LINK_BYTES]);
        self.walk.go_on(cpu_max, |_, pid, fds, name| {
            let inode = link(fds, name, &mut space).and_then(|link| {
                inode_in(link, b"pipe")
                    .or_else(|| inode_in(link, b"socket"))
                    .or_else(|| (link == FANOTIFY_LINK).then_some(FANOTIFY))
                    .or_else(|| (link == FUSE_LINK).then_some(FUSE))
            });
            let fd = name.to_str().ok().and_then(|name| name.parse().ok());
            if let (Some(inode), Some(fd)) = (inode, fd) {
                found.push(Held { inode, pid, fd });
            }
            found.len() < HELD_MAX
        })
    }
}

impl Holders {
    /// Walks over the descriptors of all processes, as far as one gets in `cpu_max`. Those of processes that came since take half as
    /// much more at most.
    pub fn renew(&mut self, cpu_max: Duration) {
        let cpu_max = cpu_max.min(WALK_CPU_MAX);
        let is_continued = self.next.is_some();
        let Some(mut part) = self.next.take().or_else(Part::begin) else {
            *self = Holders::default();
            return;
        };
        if part.go_on(cpu_max) {
            part.found.sort_unstable();
            let Part { walk, seen, found } = part;
            let is_complete = walk.is_complete();
            *self = Holders { all: found, is_complete, seen, as_of: Some(Instant::now()), next: None };
            if is_continued {
                self.add_new(cpu_max / 2);
            }
            return;
        }
        self.next = Some(part);
        if self.as_of.is_none_or(|as_of| as_of.elapsed() > STALE) {
            (self.is_complete, self.as_of) = (false, None);
        } else {
            self.add_new(cpu_max / 2);
        }
    }

    /// Adds what processes hold that came since.
    fn add_new(&mut self, cpu_max: Duration) {
        let Some(mut part) = Part::begin() else {
            self.is_complete = false;
            return;
        };
        part.walk.leave_out(&self.seen);
        let has_ended = part.go_on(cpu_max);
        self.is_complete &= has_ended && part.walk.is_complete();
        self.seen.extend(part.seen);
        self.all.extend(part.found);
        self.all.sort_unstable();
    }

    fn of(&self, inode: u32) -> &[Held] {
        let from = self.all.partition_point(|held| held.inode < inode);
        let rest = self.all.get(from..).unwrap_or_default();
        rest.get(..rest.partition_point(|held| held.inode == inode)).unwrap_or_default()
    }

    /// The processes that hold one of some sockets.
    pub fn processes<'h>(&'h self, inodes: &'h [u32]) -> impl Iterator<Item = u32> + 'h {
        inodes.iter().flat_map(|inode| self.of(*inode)).map(|held| held.pid)
    }

    /// The pipes and sockets of a process.
    pub fn of_process(&self, pid: u32) -> Vec<u32> {
        self.all.iter().filter(|held| held.pid == pid).map(|held| held.inode).collect()
    }

    /// Who holds the other end of a pipe whose one side a process waits at.
    pub fn of_pipe(&self, root: &Root, inode: u32, waits: Side, waiter: Waiter) -> Holder {
        let other = |held: &Held| {
            let mut buffer = Buffer::default();
            Some(read_fdinfo(root, (held.pid, held.fd), FLAGS_BYTES_MAX, &mut buffer)?.is_other_end(waits))
        };
        self.only(root, &[inode], (b"pipe", waiter), |held| other(held).unwrap_or(false))
    }

    /// Who holds a socket, or one of several that are as good.
    pub fn of_sockets(&self, root: &Root, inodes: &[u32], waiter: Waiter) -> Holder {
        self.only(root, inodes, (b"socket", waiter), |_| true)
    }

    /// Whose permission it takes to open files.
    pub fn of_fanotify(&self, root: &Root) -> Holder {
        let is_meant = |held: &&Held| {
            let mut buffer = Buffer::default();
            read_fdinfo(root, (held.pid, held.fd), FDINFO_BYTES_MAX, &mut buffer)
                .is_none_or(|info| !info.is_whole || info.is_asked_first())
        };
        let Some(all) = self.called(root, FANOTIFY, FANOTIFY_LINK) else { return Holder::Unknown };
        let mut pids: Vec<u32> = all.into_iter().filter(is_meant).map(|held| held.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        match pids[..] {
            [one] => Holder::One(one),
            _ => Holder::Unknown,
        }
    }

    /// The processes that answer for files of FUSE, each with the number of its connection where the kernel says it.
    pub fn fuse_daemons(&self, root: &Root) -> Option<Vec<(u32, Option<u32>)>> {
        let connection = |held: &Held| {
            let mut buffer = Buffer::default();
            read_fdinfo(root, (held.pid, held.fd), FLAGS_BYTES_MAX, &mut buffer)?.fuse_connection()
        };
        let all = self.called(root, FUSE, FUSE_LINK)?;
        Some(all.into_iter().map(|held| (held.pid, connection(held))).collect())
    }

    /// Those who have a descriptor that has a name and no inode number. `None` where not everybody could be asked.
    fn called(&self, root: &Root, number: u32, name: &[u8]) -> Option<Vec<&Held>> {
        let candidates = self.of(number);
        if !self.is_complete || candidates.len() > CANDIDATES_MAX {
            return None;
        }
        let has_it_still = |held: &&Held| {
            let mut space = [0; LINK_BYTES];
            link(root.fd(), format!("proc/{}/fd/{}", held.pid, held.fd), &mut space) == Some(name)
        };
        Some(candidates.iter().filter(has_it_still).collect())
    }

    fn only(
        &self,
        root: &Root,
        inodes: &[u32],
        (kind, waiter): (&[u8], Waiter),
        is_meant: impl Fn(&Held) -> bool,
    ) -> Holder {
        let candidates = || inodes.iter().flat_map(|inode| self.of(*inode));
        if !self.is_complete || candidates().count() > CANDIDATES_MAX {
            return Holder::Unknown;
        }
        // It may have been closed since, and its number may be another one's.
        let has_it_still = |held: &Held| {
            let path = format!("proc/{}/fd/{}", held.pid, held.fd);
            inode_in_link(root.fd(), path, kind) == Some(held.inode)
        };
        let meant = candidates().filter(|held| has_it_still(held) && is_meant(held));
        the_one(meant.map(|held| held.pid).collect(), waiter)
    }
}

/// Who can end a wait, of those that have the other end of what is waited for.
pub fn the_one(mut pids: Vec<u32>, waiter: Waiter) -> Holder {
    pids.sort_unstable();
    pids.dedup();
    let is_own = pids.contains(&waiter.pid);
    match pids[..] {
        [one] if one == waiter.pid => Holder::Itself,
        [one] => Holder::One(one),
        // It has a copy that it did not close, and no other thread that could use it.
        [a, b] if is_own && waiter.threads == 1 => Holder::One(if a == waiter.pid { b } else { a }),
        _ => Holder::Unknown,
    }
}

/// A process that waits, and how many threads it has.
#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    pub pid: u32,
    pub threads: usize,
}

/// What a descriptor of a process is.
pub fn open(root: &Root, pid: u32, fd: i32) -> Option<Open> {
    let mut space = [0; LINK_BYTES];
    let link = link(root.fd(), format!("proc/{pid}/fd/{fd}"), &mut space)?;
    if let Some(inode) = inode_in(link, b"pipe") {
        return Some(Open::Pipe(inode));
    }
    if let Some(inode) = inode_in(link, b"socket") {
        return Some(Open::Socket(inode));
    }
    Some(match link {
        b"anon_inode:[eventpoll]" => Open::Epoll,
        b"anon_inode:[timerfd]" => Open::Timer,
        b"anon_inode:[eventfd]" => Open::Event,
        _ if link.starts_with(b"anon_inode:") || link.starts_with(b"pidfd:") => Open::Special,
        _ => Open::File,
    })
}

/// A descriptor of an epoll instance (`fs/eventpoll.c`, `ep_show_fdinfo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    pub fd: i32,
    pub events: u32,
    /// The inode number of what the instance waits for: the descriptor may be another one by now. Since 4.13.
    pub inode: Option<u64>,
}

/// `/proc/PID/fdinfo/FD`.
#[derive(Debug)]
pub struct FdInfo<'b> {
    text: &'b str,
    is_whole: bool,
}

/// Reads it.
pub fn fdinfo<'b>(root: &Root, pid: u32, fd: i32, buffer: &'b mut Buffer) -> Option<FdInfo<'b>> {
    read_fdinfo(root, (pid, u32::try_from(fd).ok()?), FDINFO_BYTES_MAX, buffer)
}

fn read_fdinfo<'b>(
    root: &Root,
    (pid, fd): (u32, u32),
    bytes_max: usize,
    buffer: &'b mut Buffer,
) -> Option<FdInfo<'b>> {
    let file: OwnedFd = root.open_file(&format!("proc/{pid}/fdinfo/{fd}")).ok()?;
    let bytes = buffer.fill_once(file.as_fd(), bytes_max).ok()?;
    Some(FdInfo { text: std::str::from_utf8(bytes).ok()?, is_whole: bytes.len() < bytes_max })
}

impl FdInfo<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    fn access(&self) -> Option<u32> {
        Some(u32::from_str_radix(self.value("flags:")?, 8).ok()? & ACCESS)
    }

    /// Whether the other side of a pipe or queue can be used through it than the one at which somebody waits.
    pub fn is_other_end(&self, waits: Side) -> bool {
        let unfit = if waits == Side::Reads { READ_ONLY } else { WRITE_ONLY };
        self.access().is_some_and(|access| access != unfit)
    }

    /// The inode number of the file (5.14).
    pub fn inode(&self) -> Option<u64> {
        self.value("ino:")?.parse().ok()
    }

    /// The id of the mount by which it was opened (3.15).
    pub fn mount(&self) -> Option<u64> {
        self.value("mnt_id:")?.parse().ok()
    }

    /// The number of the connection of a daemon of FUSE (6.18).
    pub fn fuse_connection(&self) -> Option<u32> {
        self.value("fuse_connection:")?.parse().ok()
    }

    /// The process of a pidfd.
    pub fn pid(&self) -> Option<u32> {
        self.value("Pid:")?.parse().ok()
    }

    /// Whether a lock of a file is held through it, by `fe:00:12345`.
    pub fn has_lock(&self, file: &str) -> bool {
        let locks = self.text.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.flat_map(str::split_ascii_whitespace).any(|word| word == file)
    }

    /// Whether files are opened only with the permission of who has it (`fs/notify/fdinfo.c`: `fanotify mnt_id:1d mflags:0 mask:10000
    /// ignored_mask:0`).
    pub fn is_asked_first(&self) -> bool {
        let marks = self.text.lines().filter(|line| line.starts_with("fanotify "));
        let masks = marks.flat_map(str::split_ascii_whitespace).filter_map(|word| word.strip_prefix("mask:"));
        masks.filter_map(|mask| u32::from_str_radix(mask, 16).ok()).any(|mask| mask & FAN_PERM != 0)
    }

    /// Those of an epoll instance. `None` where they are more than are read.
    pub fn polled(&self) -> Option<Vec<Polled>> {
        self.is_whole.then(|| self.text.lines().filter_map(polled).collect())
    }
}

/// `tfd:        5 events:       19 data:                5  pos:0 ino:1c4 sdev:9`.
fn polled(line: &str) -> Option<Polled> {
    let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
    let fd = words.next()?.parse().ok()?;
    let events = (words.next()? == "events:").then(|| words.next())??;
    let inode = words.find_map(|word| u64::from_str_radix(word.strip_prefix("ino:")?, 16).ok());
    Some(Polled { fd, events: u32::from_str_radix(events, 16).ok()?, inode })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_scanner_that_is_asked_first_is_not_one_that_watches() {
        let of = |mask: &str| {
            let text = format!(
                "pos:\t0\nflags:\t02\nfanotify flags:4 event-flags:0\nfanotify mnt_id:1d mflags:0 mask:{mask} ignored_mask:10000\n"
            );
            FdInfo { text: &text, is_whole: true }.is_asked_first()
        };
        assert!(of("10000") && of("20038"));
        assert!(!of("38") && !of("junk"));
    }

    #[test]
    fn the_lines_of_fdinfo() {
        let of = |text| FdInfo { text, is_whole: true };
        let info = of(
            "pos:\t0\nflags:\t02000001\nmnt_id:\t15\nino:\t9\nlock:\t1: FLOCK  ADVISORY  WRITE 708 fe:00:12345 0 EOF\n\
             Pid:\t42\n",
        );
        assert_eq!((info.access(), info.inode(), info.pid()), (Some(1), Some(9), Some(42)));
        assert_eq!((info.mount(), info.fuse_connection()), (Some(15), None));
        assert_eq!(of("flags:\t0100002\nfuse_connection:\t45\n").fuse_connection(), Some(45));
        assert!(info.has_lock("fe:00:12345") && !info.has_lock("fe:00:1234"));
        let lines = "tfd:        5 events:       19 data:                5  pos:0 ino:1c4 sdev:9\n\
                     tfd: 6 events: 4 data: 6\ntfd:\ntfd: x events: 1\ntfd: 7 events";
        let first = Polled { fd: 5, events: 0x19, inode: Some(0x1c4) };
        let second = Polled { fd: 6, events: 4, inode: None };
        assert_eq!(of(lines).polled(), Some(vec![first, second]));
        assert_eq!(FdInfo { text: lines, is_whole: false }.polled(), None);
        assert_eq!(of("flags:\t9\n").access(), None);
    }

    #[test]
    fn who_holds_the_other_end_of_an_own_pipe() {
        let (reader, writer) = std::io::pipe().unwrap();
        let root = Root::open("/".as_ref()).unwrap();
        let pid = std::process::id();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let Some(Open::Pipe(inode)) = open(&root, pid, fd) else { panic!("no pipe") };
        let mut holders = Holders::default();
        while holders.as_of.is_none() {
            holders.renew(WALK_CPU_MAX);
        }
        holders.is_complete = true;
        let waiter = Waiter { pid, threads: 2 };
        assert_eq!(holders.of_pipe(&root, inode, Side::Reads, waiter), Holder::Itself);
        drop(writer);
        assert_eq!(holders.of_pipe(&root, inode, Side::Reads, waiter), Holder::Unknown, "it is closed");
        holders.is_complete = false;
        assert_eq!(holders.of_pipe(&root, inode, Side::Writes, waiter), Holder::Unknown);
    }

    #[test]
    #[ignore = "needs root: make test-kernel"]
    fn who_has_the_device_of_fuse_open_may_answer_for_its_files() {
        const DEVICE: &str = "/dev/fuse";
        let fuse = match std::fs::File::options().read(true).write(true).open(DEVICE) {
            Ok(fuse) => fuse,
            Err(why) => {
                println!("skipped: {DEVICE}: {why}");
                return;
            }
        };
        let root = Root::open("/".as_ref()).unwrap();
        let pid = std::process::id();
        let mut holders = Holders::default();
        while holders.as_of.is_none() {
            holders.renew(WALK_CPU_MAX);
        }
        // A child that has just begun has it too, until it is another program.
        let has_it = |held: &Held| {
            let link = std::fs::read_link(format!("/proc/{}/fd/{}", held.pid, held.fd));
            link.is_ok_and(|link| link == Path::new(DEVICE))
        };
        if holders.of(FUSE).iter().any(|held| held.pid != pid && has_it(held)) {
            println!("skipped: another process has {DEVICE} open");
            return;
        }
        holders.is_complete = true;
        assert_eq!(holders.fuse_daemons(&root), Some(vec![(pid, None)]), "nothing is mounted");
        holders.is_complete = false;
        assert_eq!(holders.fuse_daemons(&root), None, "not everybody could be asked");
        holders.is_complete = true;
        drop(fuse);
        assert_eq!(holders.fuse_daemons(&root), Some(Vec::new()), "it is closed");
    }

    #[test]
    fn who_came_since_is_added_to_what_is_known() {
        let (reader, writer) = std::io::pipe().unwrap();
        let Some(Open::Pipe(inode)) = open(
            &Root::open("/".as_ref()).unwrap(),
            std::process::id(),
            std::os::fd::AsRawFd::as_raw_fd(&reader),
        ) else {
            panic!("no pipe")
        };
        let mut holders = Holders::default();
        while holders.as_of.is_none() {
            holders.renew(WALK_CPU_MAX);
        }
        let mut child = std::process::Command::new("sleep").arg("60").stdout(writer).spawn().unwrap();
        let pids = |holders: &Holders| holders.processes(&[inode]).collect::<HashSet<u32>>();
        assert!(!pids(&holders).contains(&child.id()));
        holders.add_new(WALK_CPU_MAX);
        let found = pids(&holders);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, HashSet::from([std::process::id(), child.id()]));
    }
}
