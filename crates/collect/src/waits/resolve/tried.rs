//! Locks for which a process tries again and again: SQLite sleeps for a moment where a database is locked, scripts do so before
//! a lock file. The kernel knows of nobody who waits then.

use std::os::fd::AsFd as _;

use mitra_parse::locks::exclusive;
use mitra_parse::task::task_stat;
use rustix::fs::{AtFlags, StatxFlags, statx};

use super::{End, Kind, Process, Scene, Wait};
use crate::file::{Root, each_entry_while};
use crate::waits::holders::{Open, fdinfo, open};

/// As many descriptors of a process are asked which file they are of, and locks of other processes compared with that.
const FDS_MAX: usize = 256;
const LOCKS_MAX: usize = 4096;
/// A process has no more parents than this.
const ELDERS_MAX: usize = 16;

/// An exclusive lock of a file.
#[derive(Debug)]
pub struct Exclusive {
    holder: u32,
    /// `fe:00:12345`
    file: String,
    device: (u32, u32),
    inode: u64,
}

/// Device and inode of a line of `/proc/locks`.
fn numbers(file: &str) -> Option<((u32, u32), u64)> {
    let mut parts = file.split(':');
    let hex = |part: Option<&str>| u32::from_str_radix(part?, 16).ok();
    Some(((hex(parts.next())?, hex(parts.next())?), parts.next()?.parse().ok()?))
}

/// Whether a file that a process has open is on a device. No file system is asked anew: one may hang.
fn is_on(root: &Root, pid: u32, fd: i32, device: (u32, u32)) -> bool {
    let path = format!("proc/{pid}/fd/{fd}");
    let stat = statx(root.fd(), path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
    stat.is_ok_and(|stat| (stat.stx_dev_major, stat.stx_dev_minor) == device)
}

impl Scene<'_> {
    /// What a thread waits for that sleeps on a timer.
    pub(super) fn timer(&mut self, process: &mut Process) -> Wait {
        let end = match process.tried {
            Some(known) => known,
            None => {
                let (end, fd) = self.keeps_lock(process.pid).unwrap_or((End::Unknown, -1));
                if end != End::Unknown {
                    self.note_file(process.pid, (Kind::Tries, end), fd);
                }
                *process.tried.insert(end)
            }
        };
        match end {
            End::Unknown => (Kind::Timer, end),
            _ => (Kind::Tries, end),
        }
    }

    /// The exclusive locks of the machine: one of each process and file, however many ranges it has locked.
    fn take_exclusive(&mut self) -> Vec<Exclusive> {
        if let Some(known) = self.exclusive.take() {
            return known;
        }
        let mut all = Vec::new();
        if let Ok(text) = self.root.read("proc/locks", self.buffer) {
            exclusive(text, |holder, file| {
                if let (Some((device, inode)), true) = (numbers(file), all.len() < LOCKS_MAX) {
                    all.push(Exclusive { holder, file: file.to_owned(), device, inode });
                }
            });
        }
        all.sort_unstable_by(|a, b| (a.holder, &a.file).cmp(&(b.holder, &b.file)));
        all.dedup_by(|a, b| (a.holder, &a.file) == (b.holder, &b.file));
        all
    }

    /// The only other process that has an exclusive lock of a file which a process has open, without a lock of it itself: with the
    /// descriptor.
    fn keeps_lock(&mut self, pid: u32) -> Option<(End, i32)> {
        let locks = self.take_exclusive();
        let found = self.only_keeper(pid, &locks);
        self.exclusive = Some(locks);
        found
    }

    fn only_keeper(&mut self, pid: u32, locks: &[Exclusive]) -> Option<(End, i32)> {
        // A lock of fcntl is not shown at the descriptors that children have inherited.
        let elders = self.elders(pid);
        let is_other = |lock: &&Exclusive| !elders.contains(&lock.holder);
        locks.iter().find(is_other)?;
        let mut found: Vec<(u32, &str, i32)> = Vec::new();
        for fd in self.descriptors(pid) {
            if self.named.is_used_up() {
                return None;
            }
            let Some(info) = fdinfo(self.root, pid, fd, self.buffer) else { continue };
            let Some(inode) = info.inode() else { continue };
            let of_file = locks.iter().filter(is_other).filter(|lock| lock.inode == inode);
            // Children of the one that took a lock by flock have it as well.
            let of_others = of_file.filter(|lock| !info.has_lock(&lock.file));
            let is_same = |lock: &&Exclusive| is_on(self.root, pid, fd, lock.device);
            found.extend(of_others.filter(is_same).map(|lock| (lock.holder, lock.file.as_str(), fd)));
        }
        found.sort_unstable();
        found.dedup_by_key(|(holder, file, _)| (*holder, *file));
        found.retain(|(holder, file, _)| self.named.has_lock(self.root, *holder, file));
        found.dedup_by_key(|(holder, ..)| *holder);
        if let [(holder, _, fd)] = found[..] { Some((End::Process(holder), fd)) } else { None }
    }

    /// A process, its parent, and so on.
    fn elders(&mut self, pid: u32) -> Vec<u32> {
        let mut elders = vec![pid];
        while let Some(last) = elders.last()
            && elders.len() < ELDERS_MAX
        {
            let stat = self.root.read(&format!("proc/{last}/stat"), self.buffer).ok();
            let parent = stat.and_then(task_stat).and_then(|stat| u32::try_from(stat.ppid).ok());
            let Some(parent) = parent.filter(|parent| *parent > 0) else { break };
            elders.push(parent);
        }
        elders
    }

    /// The descriptors of a process that are of files.
    fn descriptors(&self, pid: u32) -> Vec<i32> {
        let mut all = Vec::new();
        let Ok(fds) = self.root.open_file(&format!("proc/{pid}/fd")) else { return all };
        let mut seen = 0;
        let _listed = each_entry_while(fds.as_fd(), |name| {
            seen += 1;
            let fd = name.to_str().ok().and_then(|name| name.parse().ok());
            all.extend(fd.filter(|fd| open(self.root, pid, *fd) == Some(Open::File)));
            seen < FDS_MAX
        });
        all
    }
}
