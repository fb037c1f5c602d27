//! From what a thread's call waits for to who can end the wait.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use mitra_parse::locks::{Waiting, waiting};
use mitra_parse::task::task_stat;

use super::call::Call;
use super::ends::{End, Kind};
use super::holders::{Holder, Holders, Open, Side, Waiter, fdinfo, open};
use super::mutex::{MUTEX_BYTES, owner};
use super::sockets::{NetSockets, Peer};
use crate::clock::thread_cpu_ns;
use crate::file::{Buffer, LINK_BYTES, Root, each_entry, inode_in_link, link};
use crate::net::ask::Asker;
use crate::net::owner::Walk;

/// A thread that waits for any of more than this waits for nobody in particular.
const ENDS_MAX: usize = 8;
/// Descriptors of one poll or select.
const POLLED_MAX: usize = 1024;
/// Descriptors of a process that are asked for a lock.
const LOCKING_FDS_MAX: usize = 4096;
/// All descriptors of the machine are looked through for such a lock, a microsecond for each: for so much CPU time in one look, however
/// many locks there are.
const HEIRS_CPU_MAX: Duration = Duration::from_millis(50);
/// Children of one process.
const CHILDREN_MAX: usize = 256;
/// `POLLIN`, `POLLPRI` and `POLLRDHUP`; `POLLOUT`.
const POLL_IN: u32 = 0x1 | 0x2 | 0x2000;
const POLL_OUT: u32 = 0x4;

type Wait = (Kind, End);

const NOBODY: Wait = (Kind::Other, End::Unknown);

/// A process that is looked at.
pub struct Process {
    pub pid: u32,
    pub threads: Vec<u32>,
    /// Whether a freezer of version 2 holds it, once a thread of it that sleeps was looked at.
    pub is_frozen: Option<bool>,
    memory: Option<OwnedFd>,
}

impl Process {
    pub fn new(pid: u32, threads: Vec<u32>) -> Self {
        Process { pid, threads, is_frozen: None, memory: None }
    }

    fn waiter(&self) -> Waiter {
        Waiter { pid: self.pid, threads: self.threads.len() }
    }

    /// Reads some of its memory. `None` if not all of it could be read.
    fn read(&mut self, root: &Root, at: u64, bytes: &mut [u8]) -> Option<()> {
        if self.memory.is_none() {
            self.memory = root.open_file(&format!("proc/{}/mem", self.pid)).ok();
        }
        let read = rustix::io::pread(self.memory.as_ref()?, &mut bytes[..], at).ok()?;
        (read == bytes.len()).then_some(())
    }
}

/// What is known of the machine in one look: read when it is first needed.
pub struct Scene<'l> {
    pub root: &'l Root,
    pub buffer: &'l mut Buffer,
    pub asker: &'l mut Asker,
    holders: &'l mut Holders,
    are_holders_new: bool,
    nets: HashMap<u32, NetSockets>,
    locks: Option<Vec<Waiting>>,
    heirs: HashMap<String, End>,
    /// What is left for those that are not known.
    heirs_cpu: Duration,
}

impl<'l> Scene<'l> {
    pub fn new(
        root: &'l Root,
        buffer: &'l mut Buffer,
        asker: &'l mut Asker,
        holders: &'l mut Holders,
    ) -> Self {
        Scene {
            root,
            buffer,
            asker,
            holders,
            are_holders_new: false,
            nets: HashMap::new(),
            locks: None,
            heirs: HashMap::new(),
            heirs_cpu: HEIRS_CPU_MAX,
        }
    }

    fn holders(&mut self) -> &Holders {
        if !std::mem::replace(&mut self.are_holders_new, true) {
            self.holders.renew();
        }
        self.holders
    }

    /// The sockets of the network namespace that a process is in.
    fn net(&mut self, pid: u32) -> Option<&NetSockets> {
        let inum = inode_in_link(self.root.fd(), format!("proc/{pid}/ns/net"), b"net")?;
        let (root, asker) = (self.root, &mut *self.asker);
        Some(self.nets.entry(inum).or_insert_with(|| NetSockets::of(root, pid, asker)))
    }

    /// The processes that accept connections at the same addresses as one does, itself included.
    pub fn workers(&mut self, pid: u32) -> Vec<u32> {
        let own = self.holders().of_process(pid);
        let listeners = self.net(pid).map(|net| net.same_listeners(&own)).unwrap_or_default();
        let mut pids: Vec<u32> = std::iter::once(pid).chain(self.holders().processes(&listeners)).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Who can end the wait of a thread: any of these. The first of several threads of a process is asked as all others are.
    pub fn resolve(&mut self, call: Call, process: &mut Process, tid: u32) -> Vec<Wait> {
        match call {
            Call::Running => vec![(Kind::Cpu, End::Unknown)],
            Call::Mutex { word, is_pi } => vec![self.mutex(process, word, is_pi)],
            Call::Futex => vec![(Kind::Futex, End::Unknown)],
            Call::Read(fd) => vec![self.descriptor(process, tid, fd, Side::Reads)],
            Call::Write(fd) | Call::Connect(fd) => vec![self.descriptor(process, tid, fd, Side::Writes)],
            Call::Accept => vec![(Kind::Accept, End::Unknown)],
            Call::Poll { array, count } => {
                let polled = self.poll_array(process, array, count);
                self.any_of(process, tid, polled)
            }
            Call::Select { count, sets } => {
                let polled = self.select_sets(process, count, sets);
                self.any_of(process, tid, polled)
            }
            Call::Epoll(fd) => {
                let polled = self.epoll_list(process.pid, fd);
                self.any_of(process, tid, polled)
            }
            Call::Child(pid) => self.children(process, pid),
            Call::ChildOf(fd) => {
                let info = fdinfo(self.root, process.pid, fd, self.buffer);
                let child = info.and_then(|info| info.pid()).map_or(End::Unknown, End::Process);
                vec![(Kind::Child, child)]
            }
            Call::FileLock { fd, is_flock } => {
                vec![(Kind::FileLock, self.file_lock(process.pid, fd, is_flock))]
            }
            Call::Open => vec![self.lease(process.pid, tid)],
            Call::Timer => vec![(Kind::Timer, End::Unknown)],
            Call::Other => vec![self.inside(process.pid, tid)],
        }
    }

    /// What a thread sleeps in inside the kernel, where its call does not say it.
    fn inside(&mut self, pid: u32, tid: u32) -> Wait {
        let name = self.root.read(&format!("proc/{pid}/task/{tid}/wchan"), self.buffer).unwrap_or_default();
        // `fs/fuse/dev.c`
        if name == b"request_wait_answer" { (Kind::Fuse, self.fuse_daemon()) } else { NOBODY }
    }

    /// Who was asked to give a lease back that keeps a process from opening a file.
    fn lease(&mut self, pid: u32, tid: u32) -> Wait {
        let own = self.locks().iter().filter(|lock| lock.is_lease && lock.waiter == i64::from(pid));
        let mut holders: Vec<i64> = own.map(|lock| lock.holder).collect();
        holders.sort_unstable();
        holders.dedup();
        match holders[..] {
            [] => self.inside(pid, tid),
            [holder] => (Kind::FileLock, u32::try_from(holder).map_or(End::Unknown, End::Process)),
            _ => (Kind::FileLock, End::Unknown),
        }
    }

    /// The only process that answers for files of FUSE.
    pub fn fuse_daemon(&mut self) -> End {
        let root = self.root;
        match self.holders().of_fuse(root) {
            Holder::One(pid) => End::Process(pid),
            Holder::Itself | Holder::Unknown => End::Unknown,
        }
    }

    /// The only process whose permission it takes to open files.
    pub fn scanner(&mut self) -> End {
        let root = self.root;
        match self.holders().of_fanotify(root) {
            Holder::One(pid) => End::Process(pid),
            Holder::Itself | Holder::Unknown => End::Unknown,
        }
    }

    fn locks(&mut self) -> &[Waiting] {
        if self.locks.is_none() {
            let mut all = Vec::new();
            if let Ok(text) = self.root.read("proc/locks", self.buffer) {
                waiting(text, |waits| all.push(waits.clone()));
            }
            self.locks = Some(all);
        }
        self.locks.as_deref().unwrap_or_default()
    }

    fn mutex(&mut self, process: &mut Process, word: u64, is_pi: bool) -> Wait {
        let mut bytes = [0; MUTEX_BYTES];
        let named = process.read(self.root, word, &mut bytes).and_then(|()| owner(&bytes, is_pi));
        let tid = named.and_then(|owner| self.outer_id(process.pid, &process.threads, owner));
        match tid {
            Some(tid) => (Kind::Mutex, End::Thread { word, tid }),
            None => (Kind::Futex, End::Unknown),
        }
    }

    /// Which of some tasks has an id in the PID namespace of a process.
    fn outer_id(&mut self, pid: u32, tasks: &[u32], id: u32) -> Option<u32> {
        if self.inner_id(pid)? == pid {
            return tasks.contains(&id).then_some(id);
        }
        tasks.iter().copied().find(|task| self.inner_id(*task) == Some(id))
    }

    /// The id of a task in its own PID namespace (`NSpid`, 4.1); without it the one that everybody sees.
    fn inner_id(&mut self, tid: u32) -> Option<u32> {
        let status = self.root.read(&format!("proc/{tid}/status"), self.buffer).ok()?;
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"));
        let Some(line) = line else { return Some(tid) };
        std::str::from_utf8(line).ok()?.split_ascii_whitespace().next_back()?.parse().ok()
    }

    fn descriptor(&mut self, process: &Process, tid: u32, fd: i32, side: Side) -> Wait {
        match open(self.root, process.pid, fd) {
            Some(Open::Pipe(inode)) => {
                let root = self.root;
                of_holder(Kind::Pipe, self.holders().of_pipe(root, inode, side, process.waiter()))
            }
            Some(Open::Socket(inode)) => self.socket(process, inode, side),
            Some(Open::Epoll) => (Kind::Poll, End::Unknown),
            Some(Open::Timer) => (Kind::Timer, End::Unknown),
            Some(Open::File) => self.inside(process.pid, tid),
            Some(Open::Event) => (Kind::Futex, End::Unknown),
            Some(Open::Special) | None => NOBODY,
        }
    }

    fn socket(&mut self, process: &Process, inode: u32, side: Side) -> Wait {
        let Some(found) = self.net(process.pid).and_then(|net| net.conversation(inode)) else {
            return NOBODY;
        };
        if found.is_listening {
            return (Kind::Accept, End::Unknown);
        }
        if found.is_server && side == Side::Reads {
            return (Kind::Client, End::Unknown);
        }
        let kind = if found.is_tcp { Kind::Tcp } else { Kind::Unix };
        let root = self.root;
        match found.peer {
            Peer::Socket(peer) => of_holder(kind, self.holders().of_sockets(root, &[peer], process.waiter())),
            Peer::Listeners(all) => of_holder(kind, self.holders().of_sockets(root, &all, process.waiter())),
            Peer::Address(address) => (kind, End::Address(address)),
            Peer::Unknown => (kind, End::Unknown),
        }
    }

    /// Whom a thread waits for that waits for one of several descriptors.
    fn any_of(&mut self, process: &Process, tid: u32, polled: Option<Vec<(i32, u32)>>) -> Vec<Wait> {
        let Some(polled) = polled else { return vec![(Kind::Poll, End::Unknown)] };
        if polled.is_empty() {
            return vec![(Kind::Timer, End::Unknown)];
        }
        let mut ends: Vec<Wait> = Vec::new();
        for (fd, events) in polled {
            let side = match (events & POLL_IN != 0, events & POLL_OUT != 0) {
                (true, _) => Side::Reads,
                (false, true) => Side::Writes,
                (false, false) => continue,
            };
            let end = self.descriptor(process, tid, fd, side);
            if end.0 == Kind::Accept {
                return vec![end];
            }
            if !ends.contains(&end) {
                ends.push(end);
            }
            if ends.len() > ENDS_MAX {
                return vec![(Kind::Poll, End::Unknown)];
            }
        }
        let others = ends.iter().filter(|(kind, _)| kind.has_other_end()).count();
        if others == 0 {
            let client = ends.iter().find(|(kind, _)| *kind == Kind::Client);
            return vec![client.or(ends.first()).copied().unwrap_or(NOBODY)];
        }
        if others == ends.len() {
            return ends;
        }
        // Signals and its own threads wake it through a descriptor: it need not wait for whoever holds the others, as a server
        // process that also watches whether its parent is alive. A client with a single conversation hardly does anything else.
        let mut named = ends.iter().filter(|(kind, _)| *kind != Kind::Futex);
        match (named.next(), named.next()) {
            (Some((Kind::Tcp | Kind::Unix, end)), None) if *end != End::Unknown => vec![(Kind::Answer, *end)],
            _ => vec![(Kind::Poll, End::Unknown)],
        }
    }

    /// An array of `struct pollfd`: `int fd; short events; short revents`.
    fn poll_array(&mut self, process: &mut Process, array: u64, count: u64) -> Option<Vec<(i32, u32)>> {
        let count = usize::try_from(count).ok().filter(|count| *count <= POLLED_MAX)?;
        let mut bytes = vec![0; 8 * count];
        process.read(self.root, array, &mut bytes)?;
        let one = |bytes: &[u8]| {
            let fd = i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
            Some((fd, u32::from(u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?))))
        };
        Some(bytes.chunks_exact(8).filter_map(one).filter(|(fd, _)| *fd >= 0).collect())
    }

    /// Sets of bits in words of the machine.
    fn select_sets(&mut self, process: &mut Process, count: u64, sets: [u64; 3]) -> Option<Vec<(i32, u32)>> {
        let count = usize::try_from(count).ok().filter(|count| *count <= POLLED_MAX)?;
        let mut polled = Vec::new();
        for (set, events) in sets.into_iter().zip([POLL_IN, POLL_OUT, POLL_IN]).filter(|(set, _)| *set != 0) {
            let mut bytes = vec![0; count.div_ceil(64) * 8];
            process.read(self.root, set, &mut bytes)?;
            for (word, bytes) in bytes.chunks_exact(8).enumerate() {
                let bits = u64::from_ne_bytes(bytes.try_into().ok()?);
                let fds = (0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| 64 * word + bit);
                polled.extend(fds.take_while(|fd| *fd < count).map(|fd| (fd as i32, events)));
            }
        }
        Some(polled)
    }

    /// Descriptors that are another one by now than the instance waits for are left out.
    fn epoll_list(&mut self, pid: u32, fd: i32) -> Option<Vec<(i32, u32)>> {
        let info = fdinfo(self.root, pid, fd, self.buffer)?;
        let polled = info.polled().filter(|polled| polled.len() <= POLLED_MAX)?;
        let is_same = |fd: i32, inode: Option<u64>| match open(self.root, pid, fd) {
            Some(Open::Pipe(now) | Open::Socket(now)) => inode.is_none_or(|inode| inode == u64::from(now)),
            other => other.is_some(),
        };
        Some(polled.iter().filter(|p| is_same(p.fd, p.inode)).map(|p| (p.fd, p.events)).collect())
    }

    /// The children of a process, or the one with an id in its PID namespace.
    fn children(&mut self, process: &Process, wanted: Option<u32>) -> Vec<Wait> {
        let mut all: Vec<u32> = Vec::new();
        for tid in &process.threads {
            let path = format!("proc/{}/task/{tid}/children", process.pid);
            let text = self.root.read(&path, self.buffer).unwrap_or_default();
            let words = text.split(|byte| *byte == b' ').filter_map(|word| std::str::from_utf8(word).ok());
            all.extend(words.filter_map(|word| word.parse::<u32>().ok()));
        }
        all.truncate(CHILDREN_MAX);
        if let Some(wanted) = wanted {
            let child = self.outer_id(process.pid, &all, wanted);
            return vec![(Kind::Child, child.map_or(End::Unknown, End::Process))];
        }
        if all.is_empty() || all.len() > ENDS_MAX {
            return vec![(Kind::Child, End::Unknown)];
        }
        all.into_iter().map(|child| (Kind::Child, End::Process(child))).collect()
    }

    /// The process that holds the lock of a file which a process waits for. Where the kernel does not say which file that is
    /// (before 5.14), it has to wait for one of this kind only.
    fn file_lock(&mut self, pid: u32, fd: i32, is_flock: bool) -> End {
        let info = fdinfo(self.root, pid, fd, self.buffer);
        let inode = info.and_then(|info| info.inode());
        let mut own: Vec<_> = self
            .locks()
            .iter()
            .filter(|lock| lock.waiter == i64::from(pid) && lock.is_flock == is_flock && !lock.is_lease)
            .filter(|lock| inode.is_none_or(|inode| lock.inode() == Some(inode)))
            .map(|lock| (lock.holder, lock.file.clone()))
            .collect();
        own.sort_unstable();
        own.dedup();
        let [(holder, file)] = &own[..] else { return End::Unknown };
        match u32::try_from(*holder) {
            Ok(holder) if has_lock(self.root, holder, file) => End::Process(holder),
            _ => self.heir(pid, fd, file),
        }
    }

    /// The process that holds a lock which another one took: `flock 9` in a script has ended, and the script has the open file. The
    /// children of the script have it as well; the lock is held by whom they descend from. A lock of an open file (OFDLCK) names
    /// nobody.
    fn heir(&mut self, waiter: u32, fd: i32, file: &str) -> End {
        if let Some(known) = self.heirs.get(file) {
            return *known;
        }
        let began = thread_cpu_ns();
        let heir = heirs(self.root, (waiter, fd), file, self.heirs_cpu);
        let took = Duration::from_nanos((thread_cpu_ns() - began).unsigned_abs());
        self.heirs_cpu = self.heirs_cpu.saturating_sub(took);
        let heir = heir.map_or(End::Unknown, End::Process);
        self.heirs.insert(file.to_owned(), heir);
        heir
    }
}

fn of_holder(kind: Kind, holder: Holder) -> Wait {
    match holder {
        Holder::One(pid) => (kind, End::Process(pid)),
        Holder::Itself => (Kind::Futex, End::Unknown),
        Holder::Unknown => (kind, End::Unknown),
    }
}

/// Of the processes that hold a lock through a descriptor of theirs, the one from which all others descend.
///
/// Nobody is named where not all could be asked in `cpu_max`.
fn heirs(root: &Root, (waiter, fd): (u32, i32), file: &str, cpu_max: Duration) -> Option<u32> {
    if cpu_max.is_zero() {
        return None;
    }
    let (mut own, mut space, mut buffer) = ([0; LINK_BYTES], [0; LINK_BYTES], Buffer::default());
    let path = link(root.fd(), format!("proc/{waiter}/fd/{fd}"), &mut own)?;
    let mut all: Vec<u32> = Vec::new();
    let mut walk = Walk::begin()?;
    walk.go_on(cpu_max, |_, pid, fds| {
        let (mut has_it, mut seen) = (false, 0);
        let _listed = each_entry(fds.as_fd(), |name| {
            seen += 1;
            if !has_it && seen <= LOCKING_FDS_MAX && link(fds, name, &mut space) == Some(path) {
                let fd = name.to_str().ok().and_then(|name| name.parse().ok());
                let info = fd.and_then(|fd| fdinfo(root, pid, fd, &mut buffer));
                has_it = info.is_some_and(|info| info.has_lock(file));
            }
        });
        if has_it {
            all.push(pid);
        }
        true
    });
    if !walk.is_complete() {
        return None;
    }
    let is_first = |pid: &&u32| {
        let stat = root.read(&format!("proc/{pid}/stat"), &mut buffer).ok();
        let parent = stat.and_then(task_stat).map(|stat| stat.ppid);
        parent.is_some_and(|parent| !all.iter().any(|other| i64::from(*other) == parent))
    };
    let first: Vec<u32> = all.iter().filter(is_first).copied().collect();
    if let [one] = first[..] { Some(one) } else { None }
}

/// Whether a process has a file open through which the lock is held. The kernel keeps naming the process that took a lock
/// where only a child has the file still.
fn has_lock(root: &Root, pid: u32, file: &str) -> bool {
    let Ok(fds) = root.open_file(&format!("proc/{pid}/fd")) else { return false };
    let mut all: Vec<i32> = Vec::new();
    let _listed = each_entry(fds.as_fd(), |name| {
        if all.len() < LOCKING_FDS_MAX {
            all.extend(name.to_str().ok().and_then(|name| name.parse::<i32>().ok()));
        }
    });
    let mut buffer = Buffer::default();
    let mut has = |fd| fdinfo(root, pid, fd, &mut buffer).is_some_and(|info| info.has_lock(file));
    all.into_iter().any(|fd| open(root, pid, fd) == Some(Open::File) && has(fd))
}
