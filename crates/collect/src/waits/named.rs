//! Who else has a file open: one that has a name, and no number of its own in the links of descriptors.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::time::Duration;

use mitra_parse::task::task_stat;

use super::holders::{FdInfo, Holder, Open, Side, Waiter, fdinfo, open, the_one};
use crate::clock::Allowance;
use crate::file::{Buffer, LINK_BYTES, Root, each_entry_while, link};
use crate::net::owner::Walk;

/// Descriptors of a process that are asked for a lock.
const FDS_MAX: usize = 4096;
/// All descriptors of the machine are looked through for such a file, a microsecond for each: for no more CPU time in one look, however
/// many files there are.
const CPU_MAX: Duration = Duration::from_millis(50);

/// What is known of such files in one look.
#[derive(Debug)]
pub struct Named {
    /// Whether a process has a file open through which the lock is held.
    locked: HashMap<(u32, String), bool>,
    heirs: HashMap<String, Option<u32>>,
    /// Of a FIFO or a message queue, by inode number and the side at which somebody waits.
    ends: HashMap<(u64, Side), Option<Vec<u32>>>,
    /// CPU time that is left for what is not known yet, and for the look as a whole.
    cpu: Duration,
    of_all: Allowance,
}

impl Named {
    /// Nothing is known yet. To find out takes no more than half of what the look may take.
    pub fn within(of_all: Allowance) -> Self {
        Named {
            locked: HashMap::new(),
            heirs: HashMap::new(),
            ends: HashMap::new(),
            cpu: CPU_MAX.min(of_all.left() / 2),
            of_all,
        }
    }

    /// Whether the CPU time of the look is over.
    pub fn is_used_up(&self) -> bool {
        self.of_all.is_used_up()
    }

    /// Whether a process has a file open through which the lock is held. The kernel keeps naming the process that took a lock where
    /// only a child has the file still.
    pub fn has_lock(&mut self, root: &Root, pid: u32, file: &str) -> bool {
        let key = (pid, file.to_owned());
        if let Some(known) = self.locked.get(&key) {
            return *known;
        }
        let has_it = self.timed(|cpu_max| has_lock(root, pid, file, cpu_max));
        self.locked.insert(key, has_it);
        has_it
    }

    /// The process that holds a lock which another one took: `flock 9` in a script has ended, and the script has the open file. The
    /// children of the script have it as well; the lock is held by whom they descend from. A lock of an open file (OFDLCK) names
    /// nobody.
    pub fn heir(&mut self, root: &Root, waiter: (u32, i32), file: &str) -> Option<u32> {
        if let Some(known) = self.heirs.get(file) {
            return *known;
        }
        let all = self.openers(root, waiter, |info| info.has_lock(file));
        let heir = all.and_then(|all| first_of_all(root, &all));
        self.heirs.insert(file.to_owned(), heir);
        heir
    }

    /// Who has the other end of a FIFO or a message queue, at one side of which somebody waits. Before 5.14 nobody is named.
    pub fn other_end(&mut self, root: &Root, waiter: Waiter, fd: i32, side: Side) -> Holder {
        let mut buffer = Buffer::default();
        let Some(inode) = fdinfo(root, waiter.pid, fd, &mut buffer).and_then(|info| info.inode()) else {
            return Holder::Unknown;
        };
        if !self.ends.contains_key(&(inode, side)) {
            let is_meant = |info: &FdInfo<'_>| info.inode() == Some(inode) && info.is_other_end(side);
            let all = self.openers(root, (waiter.pid, fd), is_meant);
            self.ends.insert((inode, side), all);
        }
        let all = self.ends.get(&(inode, side)).cloned().flatten();
        all.map_or(Holder::Unknown, |all| the_one(all, waiter))
    }

    /// The processes that have a file open by the path by which one has it, through a descriptor of which something is so.
    fn openers(
        &mut self,
        root: &Root,
        waiter: (u32, i32),
        is_meant: impl Fn(&FdInfo<'_>) -> bool,
    ) -> Option<Vec<u32>> {
        self.timed(|cpu_max| openers(root, waiter, cpu_max, is_meant))
    }

    /// Tells how much CPU time may be taken, and notes how much was.
    fn timed<T>(&mut self, f: impl FnOnce(Duration) -> T) -> T {
        let cpu_max = self.cpu.min(self.of_all.left());
        let allowance = Allowance::of(cpu_max);
        let result = f(cpu_max);
        self.cpu = self.cpu.saturating_sub(cpu_max - allowance.left());
        result
    }
}

/// `None` where not everybody could be asked in `cpu_max`.
fn openers(
    root: &Root,
    (pid, fd): (u32, i32),
    cpu_max: Duration,
    is_meant: impl Fn(&FdInfo<'_>) -> bool,
) -> Option<Vec<u32>> {
    if cpu_max.is_zero() {
        return None;
    }
    let (mut own, mut space, mut buffer) = ([0; LINK_BYTES], [0; LINK_BYTES], Buffer::default());
    let path = link(root.fd(), format!("proc/{pid}/fd/{fd}"), &mut own)?;
    let mut all: Vec<u32> = Vec::new();
    let mut walk = Walk::begin()?;
    walk.go_on(cpu_max, |_, pid, fds, name| {
        if all.last() != Some(&pid) && link(fds, name, &mut space) == Some(path) {
            let fd = name.to_str().ok().and_then(|name| name.parse().ok());
            let info = fd.and_then(|fd| fdinfo(root, pid, fd, &mut buffer));
            if info.is_some_and(|info| is_meant(&info)) {
                all.push(pid);
            }
        }
        true
    });
    walk.is_complete().then_some(all)
}

/// Of some processes the one from which all others descend.
fn first_of_all(root: &Root, all: &[u32]) -> Option<u32> {
    let mut buffer = Buffer::default();
    let is_first = |pid: &&u32| {
        let stat = root.read(&format!("proc/{pid}/stat"), &mut buffer).ok();
        let parent = stat.and_then(task_stat).map(|stat| stat.ppid);
        parent.is_some_and(|parent| !all.iter().any(|other| i64::from(*other) == parent))
    };
    let first: Vec<u32> = all.iter().filter(is_first).copied().collect();
    if let [one] = first[..] { Some(one) } else { None }
}

/// False where not all of its descriptors could be asked, too.
fn has_lock(root: &Root, pid: u32, file: &str, cpu_max: Duration) -> bool {
    let Ok(fds) = root.open_file(&format!("proc/{pid}/fd")) else { return false };
    let allowance = Allowance::of(cpu_max);
    let (mut buffer, mut seen, mut has_it) = (Buffer::default(), 0, false);
    let _listed = each_entry_while(fds.as_fd(), |name| {
        let fd: Option<i32> = name.to_str().ok().and_then(|name| name.parse().ok());
        seen += 1;
        has_it = fd.is_some_and(|fd| {
            open(root, pid, fd) == Some(Open::File)
                && fdinfo(root, pid, fd, &mut buffer).is_some_and(|info| info.has_lock(file))
        });
        !has_it && seen < FDS_MAX && !allowance.is_used_up()
    });
    has_it
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    /// A file whose lock this process holds, and how `fdinfo` calls it.
    fn locked() -> (std::fs::File, String) {
        let file = tempfile::tempfile().unwrap();
        file.lock().unwrap();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap();
        let line = info.lines().find(|line| line.starts_with("lock:")).unwrap();
        let name = line.split_ascii_whitespace().find(|word| word.matches(':').count() == 2).unwrap();
        let name = name.to_owned();
        (file, name)
    }

    #[test]
    fn who_has_a_lock_is_asked_once_in_a_look() {
        let (file, name) = locked();
        let (root, pid) = (Root::open("/".as_ref()).unwrap(), std::process::id());
        let ample = || Named::within(Allowance::of(Duration::from_secs(60)));
        let mut named = ample();
        assert!(named.has_lock(&root, pid, &name));
        file.unlock().unwrap();
        assert!(named.has_lock(&root, pid, &name), "as it was");
        assert!(!ample().has_lock(&root, pid, &name));
    }

    #[test]
    fn nobody_is_asked_where_the_time_of_the_look_is_over() {
        let (file, name) = locked();
        let (root, pid) = (Root::open("/".as_ref()).unwrap(), std::process::id());
        // Descriptors with lower numbers are asked first.
        let mut named = Named::within(Allowance::of(Duration::ZERO));
        assert!(file.as_raw_fd() > 0 && !named.has_lock(&root, pid, &name));
        assert_eq!(named.heir(&root, (pid, file.as_raw_fd()), &name), None);
    }
}
