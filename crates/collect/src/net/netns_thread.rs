//! A thread that asks for what has to be asked for inside a network namespace, or may have to wait for a lock of the
//! network. The thread of the recorder never leaves its namespace and never waits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mitra_parse::netlink::{Listener, Qdisc, Receiver};
use mitra_parse::sysctl::number;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::ask::{Asker, Sockets};
use super::netns::NetNsFile;
use super::owner;
use super::rings::Rings;
use crate::file::Buffer;

/// Of one namespace as many devices and listening sockets are kept.
const QDISCS_MAX: usize = 256;
const LISTENERS_MAX: usize = 2_048;
const RECEIVERS_MAX: usize = 256;
/// On every so many requests a namespace is looked at thoroughly: the rings of the own one; of others the settings, and
/// whether they have queues and listening sockets at all. Without them there is nothing to ask for in between.
const THOROUGH_EVERY: u64 = 10;
/// The answer is waited for this long; asking takes a tenth of a millisecond.
const PATIENCE: Duration = Duration::from_millis(5);
/// Between two parts of a search for owners, which takes a tenth of a CPU in that way.
const PAUSE: Duration = Duration::from_millis(100);
/// A sysctl's handler zeroes a buffer as large as it is asked for.
const SYSCTL_BYTES_MAX: usize = 64;

/// Where a namespace is found.
#[derive(Debug, Clone)]
pub enum NetNsEntry {
    /// The namespace that the recorder is in.
    Own,
    /// That of a process, by its directory in `/proc`, which is of nobody else when the id is used again.
    Process(Arc<OwnedFd>),
    /// A name in `/run/netns`.
    Named(String),
}

/// One namespace to look into.
#[derive(Debug, Clone)]
pub struct NetNsTarget {
    /// Its inode number.
    pub inum: u32,
    /// The way in.
    pub entry: NetNsEntry,
}

/// The files of a namespace, as they were read inside.
#[derive(Debug, Default)]
pub struct NetNsFiles {
    texts: [Vec<u8>; NetNsFile::ALL.len()],
}

impl NetNsFiles {
    /// The text of one; `None` where it is not there.
    pub fn get(&self, file: NetNsFile) -> Option<&[u8]> {
        self.texts.get(file as usize).filter(|text| !text.is_empty()).map(Vec::as_slice)
    }

    /// Reads one of the thread's namespace anew; whether it is another text than the one before.
    fn read(&mut self, file: NetNsFile, buffer: &mut Buffer) -> bool {
        let Some(text) = self.texts.get_mut(file as usize) else { return false };
        let opened = open(&format!("/proc/thread-self/{}", file.below()));
        let read = opened.ok().and_then(|fd| buffer.fill(fd.as_fd()).ok()).unwrap_or_default();
        if text.as_slice() == read {
            return false;
        }
        text.clear();
        text.extend_from_slice(read);
        true
    }

    /// Reads all of them. As long as no device has passed a packet, the others have nothing new to say.
    fn read_all(&mut self, buffer: &mut Buffer, thoroughly: bool) {
        let is_new = NetNsFile::ALL.first().is_some_and(|dev| self.read(*dev, buffer));
        if is_new || thoroughly {
            for file in NetNsFile::ALL.into_iter().skip(1) {
                self.read(file, buffer);
            }
        }
    }
}

/// What was found in one.
#[derive(Debug, Default)]
pub struct Findings {
    /// Its inode number.
    pub inum: u32,
    /// Devices that queue packets.
    pub qdiscs: Vec<(String, Qdisc)>,
    /// Their receive rings, of the own namespace: what it has room for, and the most that the driver makes.
    pub rings: Arc<[(String, [u32; 2])]>,
    /// Listening TCP sockets.
    pub listeners: Vec<Listener>,
    /// Listening Unix sockets that have a name and are waited for.
    pub unix: Vec<UnixListener>,
    /// UDP sockets that have dropped something, where they were asked for: [`NetNsThread::want_receivers`].
    pub receivers: Vec<Receiver>,
    /// `net.netfilter.nf_conntrack_max`, of other namespaces than the own one.
    pub conntrack_max: Option<i64>,
    /// `net.ipv4.ip_local_port_range`, of other namespaces than the own one.
    pub port_range: Option<String>,
    /// Its files, where no process is in it through whose directory they could be read.
    pub files: Option<NetNsFiles>,
    /// Why something is missing.
    pub failed: Option<io::Error>,
}

/// A Unix socket that accepts connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixListener {
    /// Its name, as `sockaddr_un` has it.
    pub name: Vec<u8>,
    /// Connections that wait to be accepted.
    pub queue: u32,
    /// How many may wait.
    pub backlog: u32,
    /// The inode number of the socket.
    pub inode: u32,
}

#[derive(Debug, Default)]
struct Exchange {
    targets: Vec<NetNsTarget>,
    /// Inode numbers of sockets whose process is wanted.
    wanted: Vec<u32>,
    owners: Vec<owner::Owner>,
    /// Namespaces whose UDP sockets are wanted too.
    receiving: Vec<u32>,
    findings: Vec<Findings>,
    asked: u64,
    answered: u64,
    is_over: bool,
}

/// What both threads share, behind a lock.
#[derive(Debug, Default)]
struct SharedExchange {
    exchange: Mutex<Exchange>,
    asked: Condvar,
    answered: Condvar,
}

impl SharedExchange {
    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread. It ends with this.
#[derive(Debug)]
pub struct NetNsThread {
    shared: Arc<SharedExchange>,
    thread: Option<JoinHandle<()>>,
}

impl NetNsThread {
    /// Starts it.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(SharedExchange::default());
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("mitra-net".to_owned()).stack_size(256 * 1024);
        let thread = builder.spawn(move || work(&theirs))?;
        Ok(NetNsThread { shared, thread: Some(thread) })
    }

    /// Says where to look from now on.
    pub fn set_targets(&self, targets: Vec<NetNsTarget>) {
        self.shared.exchange().targets = targets;
    }

    /// Lets it begin. While it looks around, the recorder reads its files.
    pub fn ask(&self) {
        self.shared.exchange().asked += 1;
        self.shared.asked.notify_one();
    }

    /// Hands over what was found since [`NetNsThread::ask`]. `None` if it is not there in time, or the thread has ended.
    pub fn answer<T>(&self, f: impl FnOnce(&[Findings], &[owner::Owner]) -> T) -> Option<T> {
        let exchange = self.shared.exchange();
        let waiting = |exchange: &mut Exchange| exchange.answered < exchange.asked && !exchange.is_over;
        let (exchange, _) = self
            .shared
            .answered
            .wait_timeout_while(exchange, PATIENCE, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        (exchange.answered >= exchange.asked && !exchange.is_over)
            .then(|| f(&exchange.findings, &exchange.owners))
    }

    /// Asks whose sockets these are. The answer comes with a later [`NetNsThread::answer`].
    pub fn want_owners(&self, inodes: &[u32]) {
        let mut exchange = self.shared.exchange();
        exchange.wanted.clear();
        exchange.wanted.extend_from_slice(inodes);
        drop(exchange);
        self.shared.asked.notify_one();
    }
}

impl NetNsThread {
    /// Says in which namespaces to look at UDP sockets too, from the next time on. The kernel walks over a table of all of
    /// them for it, so that it is done only where one is known to drop.
    pub fn want_receivers(&self, inums: &[u32]) {
        let mut exchange = self.shared.exchange();
        exchange.receiving.clear();
        exchange.receiving.extend_from_slice(inums);
    }
}

impl Drop for NetNsThread {
    fn drop(&mut self) {
        self.shared.exchange().is_over = true;
        self.shared.asked.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so itself.
            let _ended = thread.join();
        }
    }
}

/// What was seen of another namespace when it was looked at thoroughly.
struct NetNsFacts {
    inum: u32,
    has_qdiscs: bool,
    has_listeners: bool,
    has_unix: bool,
    conntrack_max: Option<i64>,
    port_range: Option<String>,
}

/// What the thread keeps.
struct Worker {
    asker: Asker,
    own: OwnedFd,
    own_sockets: Option<Sockets>,
    known: Vec<NetNsFacts>,
    rings: Rings,
    buffer: Buffer,
    with_receivers: bool,
}

fn work(shared: &SharedExchange) {
    let Ok(own) = open("/proc/thread-self/ns/net") else { return end(shared) };
    let mut worker = Worker {
        asker: Asker::new(),
        own,
        own_sockets: None,
        known: Vec::new(),
        rings: Rings::default(),
        buffer: Buffer::default(),
        with_receivers: false,
    };
    let mut findings: Vec<Findings> = Vec::new();
    let mut targets: Vec<NetNsTarget> = Vec::new();
    let mut receiving: Vec<u32> = Vec::new();
    let mut search: Option<owner::Search> = None;
    loop {
        let mut exchange = shared.exchange();
        while exchange.answered >= exchange.asked && !exchange.is_over {
            if search.is_some() {
                let (next, waited) =
                    shared.asked.wait_timeout(exchange, PAUSE).unwrap_or_else(PoisonError::into_inner);
                exchange = next;
                if waited.timed_out() {
                    break;
                }
            } else if exchange.wanted.is_empty() {
                exchange = shared.asked.wait(exchange).unwrap_or_else(PoisonError::into_inner);
            } else {
                search = owner::Search::begin(std::mem::take(&mut exchange.wanted));
                break;
            }
        }
        if exchange.is_over {
            return;
        }
        if exchange.answered >= exchange.asked {
            drop(exchange);
            // Nobody waits: this may take its time.
            search = search.take().and_then(|mut search| {
                let has_ended = search.step();
                shared.exchange().owners = search.found().to_vec();
                (!has_ended).then_some(search)
            });
            continue;
        }
        let asked = exchange.asked;
        targets.clone_from(&exchange.targets);
        receiving.clone_from(&exchange.receiving);
        drop(exchange);

        findings.resize_with(targets.len(), Findings::default);
        worker.known.retain(|known| targets.iter().any(|target| target.inum == known.inum));
        for (target, found) in targets.iter().zip(&mut findings) {
            worker.with_receivers = receiving.contains(&target.inum);
            if worker.look(target, found, asked % THOROUGH_EVERY == 1).is_err() {
                // It did not find the way back. What it would say now is of another namespace.
                return end(shared);
            }
        }
        let mut exchange = shared.exchange();
        std::mem::swap(&mut exchange.findings, &mut findings);
        exchange.answered = asked;
        drop(exchange);
        shared.answered.notify_one();
    }
}

fn end(shared: &SharedExchange) {
    shared.exchange().is_over = true;
    shared.answered.notify_one();
}

fn open(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn enter(fd: &OwnedFd) -> io::Result<()> {
    Ok(move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network))?)
}

impl Worker {
    /// Looks into one namespace. An error: the thread is in another namespace than its own.
    fn look(&mut self, target: &NetNsTarget, found: &mut Findings, thoroughly: bool) -> io::Result<()> {
        if found.inum != target.inum {
            *found = Findings { inum: target.inum, ..Findings::default() };
        }
        found.qdiscs.clear();
        found.listeners.clear();
        found.unix.clear();
        found.receivers.clear();
        match &target.entry {
            NetNsEntry::Named(_) => _ = found.files.get_or_insert_default(),
            NetNsEntry::Own | NetNsEntry::Process(_) => found.files = None,
        }
        let inside = match &target.entry {
            NetNsEntry::Own => {
                found.failed = self.look_around_home(found, thoroughly).err();
                return Ok(());
            }
            NetNsEntry::Process(dir) => {
                rustix::fs::openat(dir, "ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(io::Error::from)
            }
            NetNsEntry::Named(path) => open(path),
        };
        let entered = inside.and_then(|inside| enter(&inside));
        if let Err(error) = entered {
            found.failed = Some(error);
            return Ok(());
        }
        found.failed = self.look_inside(found, thoroughly).err();
        enter(&self.own)
    }

    fn look_around_home(&mut self, found: &mut Findings, thoroughly: bool) -> io::Result<()> {
        let sockets = match self.own_sockets.take() {
            Some(sockets) => sockets,
            None => Sockets::open()?,
        };
        // A socket with half an answer in it is not used again.
        self.list_qdiscs(&sockets, found)?;
        if thoroughly {
            let names = found.qdiscs.iter().map(|(name, _)| name.as_str());
            self.rings.look(
                names,
                Instant::now(),
                |name| sockets.has_carrier(name),
                |name| sockets.ring(name),
            );
        }
        found.rings = Arc::clone(&self.rings.all);
        self.list_listeners(&sockets, found)?;
        self.list_unix(&sockets, found)?;
        if self.with_receivers {
            self.list_receivers(&sockets, found)?;
        }
        self.own_sockets = Some(sockets);
        Ok(())
    }

    /// The sockets are closed before the return, and hold nothing of the namespace beyond it.
    fn look_inside(&mut self, found: &mut Findings, thoroughly: bool) -> io::Result<()> {
        if let Some(files) = &mut found.files {
            files.read_all(&mut self.buffer, thoroughly);
        }
        let at = self.known.iter().position(|known| known.inum == found.inum);
        let known = at.map(|at| self.known.swap_remove(at)).filter(|_| !thoroughly);
        let is_new = known.is_none();
        let mut known = known.unwrap_or_else(|| self.settings(found.inum));
        if known.has_qdiscs || known.has_listeners || known.has_unix || is_new || self.with_receivers {
            let sockets = Sockets::open()?;
            if known.has_qdiscs || is_new {
                self.list_qdiscs(&sockets, found)?;
                known.has_qdiscs = !found.qdiscs.is_empty();
            }
            if known.has_listeners || is_new {
                self.list_listeners(&sockets, found)?;
                known.has_listeners = !found.listeners.is_empty();
            }
            if known.has_unix || is_new {
                known.has_unix = self.list_unix(&sockets, found)?;
            }
            if self.with_receivers {
                self.list_receivers(&sockets, found)?;
            }
        }
        found.conntrack_max = known.conntrack_max;
        found.port_range.clone_from(&known.port_range);
        self.known.push(known);
        Ok(())
    }

    fn list_qdiscs(&mut self, sockets: &Sockets, found: &mut Findings) -> io::Result<()> {
        let qdiscs = &mut found.qdiscs;
        self.asker.qdiscs(sockets, |name, qdisc| {
            if qdiscs.len() < QDISCS_MAX {
                qdiscs.push((name.to_owned(), *qdisc));
            }
        })
    }

    fn list_listeners(&mut self, sockets: &Sockets, found: &mut Findings) -> io::Result<()> {
        let listeners = &mut found.listeners;
        self.asker.listeners(sockets, |listener| {
            if listeners.len() < LISTENERS_MAX {
                listeners.push(*listener);
            }
        })
    }

    /// Whether any listens that has a name.
    fn list_unix(&mut self, sockets: &Sockets, found: &mut Findings) -> io::Result<bool> {
        let (mut has_any, unix) = (false, &mut found.unix);
        let listed = self.asker.unix_listeners(sockets, |socket| {
            let (Some(name), Some((queue, backlog))) = (&socket.name, socket.queues) else { return };
            has_any = true;
            if queue > 0 && unix.len() < LISTENERS_MAX {
                // A path ends with a zero byte, an abstract name begins with one.
                let name = name.strip_suffix(&[0]).filter(|path| !path.is_empty()).unwrap_or(name).to_owned();
                unix.push(UnixListener { name, queue, backlog, inode: socket.inode });
            }
        });
        match listed {
            // The module for it is not loaded.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            other => other.map(|()| has_any),
        }
    }

    fn list_receivers(&mut self, sockets: &Sockets, found: &mut Findings) -> io::Result<()> {
        let receivers = &mut found.receivers;
        self.asker.receivers(sockets, |receiver| {
            if receivers.len() < RECEIVERS_MAX {
                receivers.push(*receiver);
            }
        })
    }

    /// A sysctl of the network is that of the namespace of the thread that opens it.
    fn settings(&mut self, inum: u32) -> NetNsFacts {
        let mut read = |path: &str| {
            let fd = open(path).ok()?;
            Some(self.buffer.fill_once(fd.as_fd(), SYSCTL_BYTES_MAX).ok()?.to_vec())
        };
        let conntrack_max = read("/proc/sys/net/netfilter/nf_conntrack_max").and_then(|bytes| number(&bytes));
        let port_range = read("/proc/sys/net/ipv4/ip_local_port_range").and_then(|bytes| {
            let text = String::from_utf8(bytes).ok()?;
            Some(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
        });
        NetNsFacts {
            inum,
            has_qdiscs: false,
            has_listeners: false,
            has_unix: false,
            conntrack_max,
            port_range,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_and_one_that_is_not_there() {
        let helper = NetNsThread::start().unwrap();
        let gone = NetNsTarget { inum: 7, entry: NetNsEntry::Named("/run/netns/nowhere-at-all".to_owned()) };
        helper.set_targets(vec![NetNsTarget { inum: 1, entry: NetNsEntry::Own }, gone]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for _ in 0..3 {
            helper.ask();
            let mut answer = None;
            for _ in 0..400 {
                answer = helper.answer(|findings, _| {
                    assert_eq!(findings.iter().map(|f| f.inum).collect::<Vec<_>>(), [1, 7]);
                    assert!(findings[1].failed.is_some());
                    if let Some(error) = &findings[0].failed {
                        println!("skipped: {error}");
                        return true;
                    }
                    findings[0].listeners.iter().any(|l| l.port == port)
                });
                if answer.is_some() {
                    break;
                }
            }
            assert_eq!(answer, Some(true));
        }
    }
}
