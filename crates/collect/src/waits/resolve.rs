//! From what a thread's call waits for to who can end the wait.

mod inside;
mod polled;
mod tried;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use mitra_parse::locks::{Waiting, waiting};
use rustix::fs::readlinkat_raw;

use super::call::Call;
use super::ends::{End, Kind};
use super::fuse::Fuse;
use super::holders::{Holder, Holders, Open, Side, Waiter, fdinfo, open};
use super::mutex::{MUTEX_BYTES, owner};
use super::named::Named;
use super::sockets::{NetSockets, Peer};
use crate::clock::Allowance;
use crate::file::{Buffer, Root, inode_in_link};
use crate::memory::Memory;
use crate::net::ask::Asker;
use inside::Inside;
pub use inside::function;
use tried::Exclusive;

/// A thread that waits for any of more than this waits for nobody in particular.
const ENDS_MAX: usize = 8;
/// Children of one process.
const CHILDREN_MAX: usize = 256;
/// Files whose locks are waited for that are named in a look.
const FILES_MAX: usize = 64;
/// Of a longer path the beginning is kept.
const PATH_BYTES: usize = 256;
/// So many fifths of the CPU time of a look are for threads. Of the others two are for the walk over who holds what, and one is for what
/// came since that began.
const FIFTHS: u32 = 5;
const OF_THREADS: u32 = 2;
const OF_WALK: u32 = 2;

type Wait = (Kind, End);

const NOBODY: Wait = (Kind::Other, End::Unknown);

/// A process that is looked at, with what was found out for one of its threads and holds for all of them.
#[derive(Default)]
pub struct Process {
    pub pid: u32,
    pub threads: Vec<u32>,
    /// Whether a freezer of version 2 holds it, once a thread of it that sleeps was looked at.
    pub is_frozen: Option<bool>,
    memory: Option<Memory>,
    /// Its threads and its children by the ids that they have in their PID namespace.
    threads_by_id: Option<HashMap<u32, u32>>,
    children_by_id: Option<HashMap<u32, u32>>,
    children: Option<Vec<u32>>,
    /// Who keeps a lock for which those may try again that sleep for moments.
    tried: Option<End>,
    /// Whom those wait for that wait for an epoll instance.
    polled: HashMap<i32, Vec<Wait>>,
}

impl Process {
    pub fn new(pid: u32, threads: Vec<u32>) -> Self {
        Process { pid, threads, ..Process::default() }
    }

    fn waiter(&self) -> Waiter {
        Waiter { pid: self.pid, threads: self.threads.len() }
    }

    /// Reads some of its memory. `None` if not all of it could be read.
    fn read(&mut self, root: &Root, at: u64, bytes: &mut [u8]) -> Option<()> {
        if self.memory.is_none() {
            self.memory = Memory::open(root, self.pid).ok();
        }
        let read = self.memory.as_ref()?.read(at, bytes).ok()?;
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
    exclusive: Option<Vec<Exclusive>>,
    files: BTreeMap<(u32, Kind, End), String>,
    named: Named,
    fuse: Fuse,
    cpu_max: Duration,
}

impl<'l> Scene<'l> {
    /// A look takes no more CPU time than `cpu_max`, but for the lists of sockets.
    pub fn new(
        root: &'l Root,
        buffer: &'l mut Buffer,
        asker: &'l mut Asker,
        holders: &'l mut Holders,
        cpu_max: Duration,
    ) -> Self {
        Scene {
            root,
            buffer,
            asker,
            holders,
            are_holders_new: false,
            nets: HashMap::new(),
            locks: None,
            exclusive: None,
            files: BTreeMap::new(),
            named: Named::within(Allowance::of(Duration::ZERO)),
            fuse: Fuse::default(),
            cpu_max,
        }
    }

    /// From now on threads are looked at: for so long.
    pub fn begin_threads(&mut self) -> Allowance {
        let allowance = Allowance::of(self.cpu_max / FIFTHS * OF_THREADS);
        self.named = Named::within(allowance);
        allowance
    }

    fn holders(&mut self) -> &Holders {
        if !std::mem::replace(&mut self.are_holders_new, true) {
            self.holders.renew(self.cpu_max / FIFTHS * OF_WALK);
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
            Call::Write(fd) => vec![match self.descriptor(process, tid, fd, Side::Writes) {
                (Kind::Tcp | Kind::Unix, end) => (Kind::Sends, end),
                other => other,
            }],
            Call::Connect(fd) => vec![self.descriptor(process, tid, fd, Side::Writes)],
            Call::Accept => vec![(Kind::Accept, End::Unknown)],
            Call::Poll { array, count } => {
                let polled = self.poll_array(process, array, count);
                self.any_of(process, tid, polled)
            }
            Call::Select { count, sets } => {
                let polled = self.select_sets(process, count, sets);
                self.any_of(process, tid, polled)
            }
            Call::Epoll(fd) => self.epoll(process, tid, fd),
            Call::Child(pid) => self.children(process, pid),
            Call::ChildOf(fd) => {
                let info = fdinfo(self.root, process.pid, fd, self.buffer);
                let child = info.and_then(|info| info.pid()).map_or(End::Unknown, End::Process);
                vec![(Kind::Child, child)]
            }
            Call::FileLock { fd, is_flock } => {
                let end = self.file_lock(process.pid, fd, is_flock);
                self.note_file(process.pid, (Kind::FileLock, end), fd);
                vec![(Kind::FileLock, end)]
            }
            Call::Open => vec![self.lease(process.pid, tid)],
            Call::Timer => vec![self.timer(process)],
            // The functions of futexes and descriptors have names of their own; those of a sleep that goes on may be left out.
            Call::Again => match self.inside(process.pid, tid) {
                NOBODY => vec![self.timer(process)],
                known => vec![known],
            },
            Call::Other => vec![self.inside(process.pid, tid)],
        }
    }

    /// Keeps the path of a file whose lock a process waits for.
    fn note_file(&mut self, pid: u32, (kind, end): Wait, fd: i32) {
        let mut space = [0; PATH_BYTES];
        if self.files.len() < FILES_MAX
            && let Ok(len) = readlinkat_raw(self.root.fd(), format!("proc/{pid}/fd/{fd}"), &mut space[..])
        {
            let path = String::from_utf8_lossy(space.get(..len).unwrap_or_default());
            let cut = if len == PATH_BYTES { "…" } else { "" };
            self.files.entry((pid, kind, end)).or_insert_with(|| format!("{path}{cut}"));
        }
    }

    /// The files whose locks are waited for.
    pub fn files(self) -> Vec<((u32, Kind, End), String)> {
        self.files.into_iter().collect()
    }

    /// The processes that do not read what was written into connections of one.
    pub fn unread(&mut self, process: &Process) -> Vec<Wait> {
        let own = self.holders().of_process(process.pid);
        let peers = self.net(process.pid).map(|net| net.unread(&own)).unwrap_or_default();
        let root = self.root;
        let holder = |peer: u32| self.holders().of_sockets(root, &[peer], process.waiter());
        let all = peers.into_iter().map(holder).map(|holder| of_holder(Kind::Unread, holder));
        all.filter(|(_, end)| matches!(end, End::Process(_))).collect()
    }

    /// What a thread sleeps in inside the kernel, where its call does not say it.
    fn inside(&mut self, pid: u32, tid: u32) -> Wait {
        match Inside::of(self.root, pid, tid, self.buffer) {
            Some(Inside::Fuse) => (Kind::Fuse, self.fuse_daemon(pid, None)),
            Some(Inside::Fifo) => (Kind::Pipe, End::Unknown),
            Some(Inside::Timer) => (Kind::Timer, End::Unknown),
            Some(Inside::Futex) => (Kind::Futex, End::Unknown),
            Some(Inside::Poll) => (Kind::Poll, End::Unknown),
            Some(Inside::Asked) => (Kind::Client, End::Unknown),
            Some(Inside::Queue) | None => NOBODY,
        }
    }

    /// The same of one that reads or writes what has a name: a FIFO and a message queue have another end.
    fn file(&mut self, process: &Process, tid: u32, fd: i32, side: Side) -> Wait {
        let kind = match Inside::of(self.root, process.pid, tid, self.buffer) {
            Some(Inside::Fifo) => of_pipe(side),
            Some(Inside::Queue) => Kind::Queue,
            Some(Inside::Fuse) => return (Kind::Fuse, self.fuse_daemon(process.pid, Some(fd))),
            Some(Inside::Asked) => return (Kind::Client, End::Unknown),
            Some(Inside::Timer | Inside::Futex | Inside::Poll) | None => return NOBODY,
        };
        of_holder(kind, self.named.other_end(self.root, process.waiter(), fd, side))
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

    /// The only process that can answer for what a process waits for of FUSE, at a file that it has open or at any.
    pub fn fuse_daemon(&mut self, pid: u32, fd: Option<i32>) -> End {
        self.holders();
        self.fuse.daemon(self.root, self.holders, pid, fd).map_or(End::Unknown, End::Process)
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
        let tid = named.and_then(|owner| self.thread(process, owner));
        match tid {
            Some(tid) => (Kind::Mutex, End::Thread { word, tid }),
            None => (Kind::Futex, End::Unknown),
        }
    }

    /// Which of its threads has an id in the PID namespace of a process.
    fn thread(&mut self, process: &mut Process, id: u32) -> Option<u32> {
        if process.threads_by_id.is_none() {
            process.threads_by_id = Some(self.by_id(process.pid, &process.threads));
        }
        process.threads_by_id.as_ref()?.get(&id).copied()
    }

    /// Some tasks by the ids that they have in the PID namespace of a process.
    fn by_id(&mut self, pid: u32, tasks: &[u32]) -> HashMap<u32, u32> {
        let has_own = self.inner_id(pid).is_none_or(|id| id != pid);
        let mut all = HashMap::new();
        for task in tasks {
            let id = if has_own { self.inner_id(*task) } else { Some(*task) };
            if let Some(id) = id {
                all.entry(id).or_insert(*task);
            }
        }
        all
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
                of_holder(of_pipe(side), self.holders().of_pipe(root, inode, side, process.waiter()))
            }
            Some(Open::Socket(inode)) => self.socket(process, inode, side),
            Some(Open::Epoll) => (Kind::Poll, End::Unknown),
            Some(Open::Timer) => (Kind::Timer, End::Unknown),
            Some(Open::File) => self.file(process, tid, fd, side),
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
        let kind = match found.is_server && side == Side::Reads {
            true => Kind::Client,
            false if found.is_tcp => Kind::Tcp,
            false => Kind::Unix,
        };
        let root = self.root;
        match found.peer {
            Peer::Socket(peer) => of_holder(kind, self.holders().of_sockets(root, &[peer], process.waiter())),
            Peer::Listeners(all) => of_holder(kind, self.holders().of_sockets(root, &all, process.waiter())),
            Peer::Address(address) => (kind, End::Address(address)),
            Peer::Unknown => (kind, End::Unknown),
        }
    }

    /// The children of a process, or the one with an id in its PID namespace.
    fn children(&mut self, process: &mut Process, wanted: Option<u32>) -> Vec<Wait> {
        if process.children.is_none() {
            process.children = Some(self.list_children(process));
        }
        let all = process.children.as_deref().unwrap_or_default();
        if let Some(wanted) = wanted {
            if process.children_by_id.is_none() {
                process.children_by_id = Some(self.by_id(process.pid, all));
            }
            let child = process.children_by_id.as_ref().and_then(|all| all.get(&wanted)).copied();
            return vec![(Kind::Child, child.map_or(End::Unknown, End::Process))];
        }
        if all.is_empty() || all.len() > ENDS_MAX {
            return vec![(Kind::Child, End::Unknown)];
        }
        all.iter().map(|child| (Kind::Child, End::Process(*child))).collect()
    }

    fn list_children(&mut self, process: &Process) -> Vec<u32> {
        let mut all: Vec<u32> = Vec::new();
        for tid in &process.threads {
            let path = format!("proc/{}/task/{tid}/children", process.pid);
            let text = self.root.read(&path, self.buffer).unwrap_or_default();
            let words = text.split(|byte| *byte == b' ').filter_map(|word| std::str::from_utf8(word).ok());
            all.extend(words.filter_map(|word| word.parse::<u32>().ok()));
        }
        all.truncate(CHILDREN_MAX);
        all
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
            Ok(holder) if self.named.has_lock(self.root, holder, file) => End::Process(holder),
            _ => self.named.heir(self.root, (pid, fd), file).map_or(End::Unknown, End::Process),
        }
    }
}

/// Who writes into a pipe waits only where it is full.
fn of_pipe(side: Side) -> Kind {
    match side {
        Side::Reads => Kind::Pipe,
        Side::Writes => Kind::Full,
    }
}

fn of_holder(kind: Kind, holder: Holder) -> Wait {
    match holder {
        Holder::One(pid) => (kind, End::Process(pid)),
        Holder::Itself => (Kind::Futex, End::Unknown),
        Holder::Unknown => (kind, End::Unknown),
    }
}

#[cfg(test)]
mod tests;
