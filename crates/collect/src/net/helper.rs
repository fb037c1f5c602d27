//! A thread that asks for what has to be asked for inside a network namespace, or may have to wait for a lock of the
//! network. The thread of the recorder never leaves its namespace and never waits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mitra_parse::netlink::{Listener, Qdisc, Receiver};
use mitra_parse::sysctl::number;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::ask::{Asker, Sockets};
use super::owner;
use super::spaces::File;
use crate::file::Buffer;

/// Of one namespace as many devices and listening sockets are kept.
const QDISCS_MAX: usize = 256;
const LISTENERS_MAX: usize = 2_048;
const RECEIVERS_MAX: usize = 256;
/// On every so many requests another namespace is looked at thoroughly: its settings, and whether it has queues and
/// listening sockets at all. Without them there is nothing to ask for in between.
const THOROUGH_EVERY: u64 = 10;
/// The answer is waited for this long; asking takes a tenth of a millisecond.
const PATIENCE: Duration = Duration::from_millis(5);
/// A sysctl's handler zeroes a buffer as large as it is asked for.
const SYSCTL_BYTES_MAX: usize = 64;

/// Where a namespace is found.
#[derive(Debug, Clone)]
pub enum Door {
    /// The namespace that the recorder is in.
    Own,
    /// That of a process, by its directory in `/proc`, which is of nobody else when the id is used again.
    Process(Arc<OwnedFd>),
    /// A name in `/run/netns`.
    Named(String),
}

/// One namespace to look into.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its inode number.
    pub inum: u32,
    /// The way in.
    pub door: Door,
}

/// The files of a namespace, as they were read inside.
#[derive(Debug, Default)]
pub struct Files {
    texts: [Vec<u8>; File::ALL.len()],
}

impl Files {
    /// The text of one; `None` where it is not there.
    pub fn get(&self, file: File) -> Option<&[u8]> {
        self.texts.get(file as usize).filter(|text| !text.is_empty()).map(Vec::as_slice)
    }

    /// Reads one of the thread's namespace anew; whether it is another text than the one before.
    fn read(&mut self, file: File, buffer: &mut Buffer) -> bool {
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
        let is_new = File::ALL.first().is_some_and(|dev| self.read(*dev, buffer));
        if is_new || thoroughly {
            for file in File::ALL.into_iter().skip(1) {
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
    /// Listening TCP sockets.
    pub listeners: Vec<Listener>,
    /// UDP sockets that have dropped something, where they were asked for: [`Helper::want_receivers`].
    pub receivers: Vec<Receiver>,
    /// `net.netfilter.nf_conntrack_max`, of other namespaces than the own one.
    pub conntrack_max: Option<i64>,
    /// `net.ipv4.ip_local_port_range`, of other namespaces than the own one.
    pub port_range: Option<String>,
    /// Its files, where no process is in it through whose directory they could be read.
    pub files: Option<Files>,
    /// Why something is missing.
    pub failed: Option<io::Error>,
}

#[derive(Debug, Default)]
struct Desk {
    places: Vec<Place>,
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

/// The desk over which orders and findings go.
#[derive(Debug, Default)]
struct Office {
    desk: Mutex<Desk>,
    asked: Condvar,
    answered: Condvar,
}

impl Office {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread. It ends with this.
#[derive(Debug)]
pub struct Helper {
    office: Arc<Office>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts it.
    pub fn start() -> io::Result<Self> {
        let office = Arc::new(Office::default());
        let theirs = Arc::clone(&office);
        let builder = std::thread::Builder::new().name("mitra-net".to_owned()).stack_size(256 * 1024);
        let thread = builder.spawn(move || work(&theirs))?;
        Ok(Helper { office, thread: Some(thread) })
    }

    /// Says where to look from now on.
    pub fn set_places(&self, places: Vec<Place>) {
        self.office.desk().places = places;
    }

    /// Lets it begin. While it looks around, the recorder reads its files.
    pub fn ask(&self) {
        self.office.desk().asked += 1;
        self.office.asked.notify_one();
    }

    /// Hands over what was found since [`Helper::ask`]. `None` if it is not there in time, or the thread has ended.
    pub fn answer<T>(&self, f: impl FnOnce(&[Findings], &[owner::Owner]) -> T) -> Option<T> {
        let desk = self.office.desk();
        let waiting = |desk: &mut Desk| desk.answered < desk.asked && !desk.is_over;
        let (desk, _) = self
            .office
            .answered
            .wait_timeout_while(desk, PATIENCE, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        (desk.answered >= desk.asked && !desk.is_over).then(|| f(&desk.findings, &desk.owners))
    }

    /// Asks whose sockets these are. The answer comes with a later [`Helper::answer`].
    pub fn want_owners(&self, inodes: &[u32]) {
        let mut desk = self.office.desk();
        desk.wanted.clear();
        desk.wanted.extend_from_slice(inodes);
        drop(desk);
        self.office.asked.notify_one();
    }
}

impl Helper {
    /// Says in which namespaces to look at UDP sockets too, from the next time on. The kernel walks over a table of all of
    /// them for it, so that it is done only where one is known to drop.
    pub fn want_receivers(&self, inums: &[u32]) {
        let mut desk = self.office.desk();
        desk.receiving.clear();
        desk.receiving.extend_from_slice(inums);
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.office.desk().is_over = true;
        self.office.asked.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so itself.
            let _ended = thread.join();
        }
    }
}

/// What was seen of another namespace when it was looked at thoroughly.
struct Known {
    inum: u32,
    has_qdiscs: bool,
    has_listeners: bool,
    conntrack_max: Option<i64>,
    port_range: Option<String>,
}

/// What the thread keeps.
struct Worker {
    asker: Asker,
    own: OwnedFd,
    own_sockets: Option<Sockets>,
    known: Vec<Known>,
    buffer: Buffer,
    with_receivers: bool,
}

fn work(office: &Office) {
    let Ok(own) = open("/proc/thread-self/ns/net") else { return end(office) };
    let mut worker = Worker {
        asker: Asker::new(),
        own,
        own_sockets: None,
        known: Vec::new(),
        buffer: Buffer::default(),
        with_receivers: false,
    };
    let mut findings: Vec<Findings> = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    let mut receiving: Vec<u32> = Vec::new();
    loop {
        let mut desk = office.desk();
        while desk.answered >= desk.asked && desk.wanted.is_empty() && !desk.is_over {
            desk = office.asked.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
        if desk.is_over {
            return;
        }
        if desk.answered >= desk.asked {
            // Nobody waits: this may take its time.
            let wanted = std::mem::take(&mut desk.wanted);
            drop(desk);
            let owners = owner::find(&wanted);
            office.desk().owners = owners;
            continue;
        }
        let asked = desk.asked;
        places.clone_from(&desk.places);
        receiving.clone_from(&desk.receiving);
        drop(desk);

        findings.resize_with(places.len(), Findings::default);
        worker.known.retain(|known| places.iter().any(|place| place.inum == known.inum));
        for (place, found) in places.iter().zip(&mut findings) {
            worker.with_receivers = receiving.contains(&place.inum);
            if worker.look(place, found, asked % THOROUGH_EVERY == 1).is_err() {
                // It did not find the way back. What it would say now is of another namespace.
                return end(office);
            }
        }
        let mut desk = office.desk();
        std::mem::swap(&mut desk.findings, &mut findings);
        desk.answered = asked;
        drop(desk);
        office.answered.notify_one();
    }
}

fn end(office: &Office) {
    office.desk().is_over = true;
    office.answered.notify_one();
}

fn open(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn enter(fd: &OwnedFd) -> io::Result<()> {
    Ok(move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network))?)
}

impl Worker {
    /// Looks into one namespace. An error: the thread is in another namespace than its own.
    fn look(&mut self, place: &Place, found: &mut Findings, thoroughly: bool) -> io::Result<()> {
        if found.inum != place.inum {
            *found = Findings { inum: place.inum, ..Findings::default() };
        }
        found.qdiscs.clear();
        found.listeners.clear();
        found.receivers.clear();
        match &place.door {
            Door::Named(_) => _ = found.files.get_or_insert_default(),
            Door::Own | Door::Process(_) => found.files = None,
        }
        let inside = match &place.door {
            Door::Own => {
                found.failed = self.look_around_home(found).err();
                return Ok(());
            }
            Door::Process(dir) => {
                rustix::fs::openat(dir, "ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(io::Error::from)
            }
            Door::Named(path) => open(path),
        };
        let entered = inside.and_then(|inside| enter(&inside));
        if let Err(error) = entered {
            found.failed = Some(error);
            return Ok(());
        }
        found.failed = self.look_inside(found, thoroughly).err();
        enter(&self.own)
    }

    fn look_around_home(&mut self, found: &mut Findings) -> io::Result<()> {
        let sockets = match self.own_sockets.take() {
            Some(sockets) => sockets,
            None => Sockets::open()?,
        };
        // A socket with half an answer in it is not used again.
        self.list_qdiscs(&sockets, found)?;
        self.list_listeners(&sockets, found)?;
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
        if known.has_qdiscs || known.has_listeners || is_new || self.with_receivers {
            let sockets = Sockets::open()?;
            if known.has_qdiscs || is_new {
                self.list_qdiscs(&sockets, found)?;
                known.has_qdiscs = !found.qdiscs.is_empty();
            }
            if known.has_listeners || is_new {
                self.list_listeners(&sockets, found)?;
                known.has_listeners = !found.listeners.is_empty();
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

    fn list_receivers(&mut self, sockets: &Sockets, found: &mut Findings) -> io::Result<()> {
        let receivers = &mut found.receivers;
        self.asker.receivers(sockets, |receiver| {
            if receivers.len() < RECEIVERS_MAX {
                receivers.push(*receiver);
            }
        })
    }

    /// A sysctl of the network is that of the namespace of the thread that opens it.
    fn settings(&mut self, inum: u32) -> Known {
        let mut read = |path: &str| {
            let fd = open(path).ok()?;
            Some(self.buffer.fill_once(fd.as_fd(), SYSCTL_BYTES_MAX).ok()?.to_vec())
        };
        let conntrack_max = read("/proc/sys/net/netfilter/nf_conntrack_max").and_then(|bytes| number(&bytes));
        let port_range = read("/proc/sys/net/ipv4/ip_local_port_range").and_then(|bytes| {
            let text = String::from_utf8(bytes).ok()?;
            Some(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
        });
        Known { inum, has_qdiscs: false, has_listeners: false, conntrack_max, port_range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_and_one_that_is_not_there() {
        let helper = Helper::start().unwrap();
        let gone = Place { inum: 7, door: Door::Named("/run/netns/nowhere-at-all".to_owned()) };
        helper.set_places(vec![Place { inum: 1, door: Door::Own }, gone]);
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
