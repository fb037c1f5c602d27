//! What services answer and what processes ask of others (`bpf/services.bpf.c`).

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::MapData;

use super::sys::{self, MapReader, Mapped, Plain};
use super::windows::{Seeing, Windows};

/// Both kinds have as many entries together; the first is nobody's.
const SLOTS: u32 = 1024;
/// Ports that may be listened on.
const PORTS_MAX: usize = 4096;
/// Steps of the histogram of response times: sixteen for each power of two from 1 us to two minutes.
pub const SERVICE_BUCKETS: usize = 400;

/// How answers go, by their first bytes: not known, well, the client's fault, the server's (`enum status`).
pub const STATUSES: usize = 4;

/// Which side of a connection a key is about.
const ROLE_SERVER: u8 = 1;

/// A service by its address, or a process and the address that it calls.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceKey {
    address: [u8; 16],
    /// The network namespace.
    pub netns: u32,
    /// The process, of one that calls.
    pub tgid: u32,
    port: u16,
    role: u8,
    pad: [u8; 5],
}
const _: () = assert!(size_of::<ServiceKey>() == 32, "twin: struct service_key in bpf/services.h");
// SAFETY: repr(C), integer fields, no hole.
unsafe impl Plain for ServiceKey {}

impl ServiceKey {
    /// Its address and port; version 4 ones are written within version 6 ones. `None` of a Unix socket.
    #[must_use]
    pub fn endpoint(&self) -> Option<(Ipv6Addr, u16)> {
        (self.port > 0).then(|| (Ipv6Addr::from(self.address), self.port))
    }

    /// Whether it serves.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.role == ROLE_SERVER
    }
}

/// A port that is listened on, in which network namespace.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortKey {
    /// The network namespace.
    pub netns: u32,
    /// The port.
    pub port: u32,
}
// SAFETY: repr(C), two u32 fields.
unsafe impl Plain for PortKey {}

/// What was counted of one key since it has its slot. Times in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceCounts {
    generation: u64,
    /// Time until the answers.
    pub response_ns: u64,
    /// Time that was waited for answers that did not come.
    pub in_vain_ns: u64,
    /// The server ended the connection instead of an answer.
    pub unanswered: u64,
    /// The client gave up.
    pub abandoned: u64,
    /// Connections that were established.
    pub connections: u64,
    /// Time of the attempts that ended.
    pub connect_ns: u64,
    /// Attempts that failed.
    pub connect_failed: u64,
    /// Connections that the other side reset.
    pub resets: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes that arrived.
    pub received: u64,
    /// Segments of TCP that all connections have sent, up to the last [`Services::pass`], or messages of Unix sockets.
    pub sends: u64,
    /// Those of which it is known what was asked and answered.
    pub sends_seen: u64,
    worst_ns: u64,
    oncpu_worst_ns: u64,
    oncpu_from_ns: u64,
    sleeps_from: u64,
    writes_from: u64,
    /// Calls of write() by those who answer, in some of the time that was looked at.
    pub writes: u64,
    /// What was sent in those.
    pub writes_sent: u64,
    /// Answers by how they went, where that is read.
    answers: [u64; STATUSES],
    /// Requests without an answer, as of the last [`Services::pass`].
    pub open: u64,
    /// How long those have waited, added up.
    pub open_ns: u64,
    /// Attempts to connect that go on.
    pub connecting: u64,
    /// How long those have, added up.
    pub connecting_ns: u64,
    /// Connections.
    pub alive: u64,
    /// The process that sent last.
    pub tgid: u32,
    tid: u32,
    window: u32,
    /// Of the last answer of which it is known how it went (`enum protocol`).
    pub protocol: u32,
    comm: [u8; 16],
    path: [u8; 112],
}
const COUNTS_BYTES: usize = size_of::<ServiceCounts>();
const SLOT_BYTES: usize = COUNTS_BYTES + 4 * SERVICE_BUCKETS;
const _: () = assert!(SLOT_BYTES == 1976, "twin: struct service_slot in bpf/services.h");
const WORST_AT: usize = std::mem::offset_of!(ServiceCounts, worst_ns);
const ONCPU_WORST_AT: usize = std::mem::offset_of!(ServiceCounts, oncpu_worst_ns);
/// What a pass over the connections adds up.
const OPEN_AT: usize = std::mem::offset_of!(ServiceCounts, open);
const OPEN_WORDS: usize = 5;
// SAFETY: repr(C), integer and byte fields, no hole.
unsafe impl Plain for ServiceCounts {}

impl Default for ServiceCounts {
    fn default() -> Self {
        sys::zeroed()
    }
}

impl ServiceCounts {
    /// The name of the thread that sent last.
    #[must_use]
    pub fn comm(&self) -> &str {
        super::record::comm_str(&self.comm)
    }

    /// How many more answers there are than before, by how they went.
    #[must_use]
    pub fn answers_since(&self, before: &ServiceCounts) -> [u64; STATUSES] {
        std::array::from_fn(|status| self.answers[status].saturating_sub(before.answers[status]))
    }

    /// The name of a Unix socket; one in the abstract namespace begins with a zero byte.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        let is_end = |at: &usize| *at > 0 && self.path[*at] == 0;
        &self.path[..(0..self.path.len()).find(is_end).unwrap_or(self.path.len())]
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Totals {
    slots_made: u64,
    slots_lost: u64,
}
// SAFETY: repr(C), two u64 fields.
unsafe impl Plain for Totals {}

/// The table of services and of what processes call.
pub struct Services {
    slot_of: MapReader<ServiceKey, SlotNumber>,
    slots: Mapped,
    free: OwnedFd,
    listening: MapReader<PortKey, SlotNumber>,
    settings: MapReader<u32, u32>,
    calls: MapReader<u32, u64>,
    totals: MapReader<u32, Totals>,
    over_connections: OwnedFd,
    unaccepted: Option<MapReader<u64, Unaccepted>>,
    /// Whether it is read how answers begin.
    pub(super) reads_answers: bool,
    /// Until it has begun.
    seeing: Option<Seeing>,
    windows: Option<Windows>,
}

/// As `enum setting` has them.
const IS_ON: u32 = 0;
const TICK_NS: u32 = 2;
const BY_FILES: u32 = 3;

/// What goes over all connections.
pub(super) struct Passes<'a> {
    /// To count what is open, and as a window begins.
    pub(super) links: [OwnedFd; 2],
    /// The connections without a file, if both go over files.
    pub(super) unaccepted: Option<&'a MapData>,
}

/// Twin of `struct unaccepted`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Unaccepted {
    generation: u64,
    asked_ns: u64,
    slot: u32,
    pad: u32,
}
// SAFETY: repr(C), integer fields, no hole.
unsafe impl Plain for Unaccepted {}
const UNACCEPTED_MAX: usize = 16384;

type SlotNumber = u32;

impl Services {
    /// `programs` see each request.
    pub(super) fn new(
        [slot_of, slots, free, listening, settings, calls, globals]: [&MapData; 7],
        programs: [OwnedFd; 2],
        Passes { links: [over_connections, pass], unaccepted }: Passes<'_>,
        cpus: usize,
    ) -> io::Result<Self> {
        let info = slots.info().map_err(io::Error::other)?;
        if info.value_size() as usize != SLOT_BYTES {
            return Err(io::Error::other("the slots have another size than here"));
        }
        let services = Services {
            slot_of: MapReader::new(slot_of, 1)?,
            slots: Mapped::new(slots, SLOT_BYTES * SLOTS as usize)?,
            free: free.fd().as_fd().try_clone_to_owned()?,
            listening: MapReader::new(listening, 1)?,
            settings: MapReader::new(settings, 1)?,
            calls: MapReader::new(calls, cpus)?,
            totals: MapReader::new(globals, 1)?,
            over_connections,
            unaccepted: unaccepted.map(|map| MapReader::new(map, 1)).transpose()?,
            reads_answers: false,
            seeing: Some(Seeing { programs, pass, settings: MapReader::new(settings, 1)? }),
            windows: None,
        };
        for slot in (1..SLOTS).rev() {
            sys::push(services.free.as_fd(), &slot)?;
        }
        Ok(services)
    }

    /// Begins, once it is known which ports are listened on. What a process asks over Unix sockets is left out.
    pub fn begin(&mut self, but_for: Option<u32>) -> io::Result<()> {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        self.settings.store(&TICK_NS, &u32::try_from(tick.tv_nsec).unwrap_or(0))?;
        self.settings.store(&BY_FILES, &u32::from(self.unaccepted.is_some()))?;
        self.settings.store(&IS_ON, &but_for.unwrap_or(1))?;
        if let Some(seeing) = self.seeing.take() {
            self.windows = Some(Windows::start(seeing)?);
        }
        Ok(())
    }

    /// How much of all time requests are looked at, once it has begun.
    #[must_use]
    pub fn windows(&self) -> Option<&Windows> {
        self.windows.as_ref()
    }

    /// Whether it is read how answers begin, and counted how they went.
    #[must_use]
    pub fn reads_answers(&self) -> bool {
        self.reads_answers
    }

    /// Whether the pass goes over files, and so misses what waits to be accepted on a Unix socket.
    #[must_use]
    pub fn goes_over_files(&self) -> bool {
        self.unaccepted.is_some()
    }

    /// How often the programs were called that see each request.
    pub fn calls(&mut self) -> io::Result<u64> {
        Ok(self.calls.lookup(&0)?.map_or(0, |counts| counts.iter().sum()))
    }

    /// Looks at all connections for what is open in these slots.
    pub fn pass(&mut self, slots: impl Iterator<Item = u32>) -> io::Result<()> {
        for at in slots.filter_map(|slot| self.offset(slot)) {
            let words = (0..OPEN_WORDS).filter_map(|word| self.slots.atomic(at + OPEN_AT + 8 * word));
            words.for_each(|word| word.store(0, Ordering::Relaxed));
        }
        // The programs add to the slots.
        let pass = || sys::iterate(self.over_connections.as_fd());
        self.windows.as_ref().map_or_else(pass, |windows| windows.alone(pass))?;
        self.add_unaccepted()
    }

    /// Adds what waits to be accepted, where the pass goes over files.
    fn add_unaccepted(&mut self) -> io::Result<()> {
        let Some(mut unaccepted) = self.unaccepted.take() else { return Ok(()) };
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_ns = u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0);
        let mut gone = None;
        let done = unaccepted.each(UNACCEPTED_MAX, |socket, each| {
            for one in each {
                let at = self.offset(one.slot).filter(|at| {
                    self.slots.read::<u64>(*at).is_some_and(|generation| generation == one.generation)
                });
                match at {
                    Some(at) => self.add_one_unaccepted(at, one, now_ns),
                    None => gone = Some(*socket),
                }
            }
        });
        // Of a slot that was given up: one in each pass is enough.
        let done = done.and_then(|()| gone.map_or(Ok(()), |socket| unaccepted.remove(&socket)));
        self.unaccepted = Some(unaccepted);
        done
    }

    fn add_one_unaccepted(&self, at: usize, one: &Unaccepted, now_ns: u64) {
        let add = |field: usize, n: u64| {
            if let Some(word) = self.slots.atomic(at + field) {
                word.fetch_add(n, Ordering::Relaxed);
            }
        };
        add(std::mem::offset_of!(ServiceCounts, alive), 1);
        if one.asked_ns != 0 {
            add(OPEN_AT, 1);
            add(std::mem::offset_of!(ServiceCounts, open_ns), now_ns.saturating_sub(one.asked_ns));
        }
    }

    /// Says that a port is listened on.
    pub fn add_port(&mut self, port: PortKey) -> io::Result<()> {
        self.listening.store(&port, &1)
    }

    /// Forgets the ports for which `is_open` is false.
    pub fn keep_ports(&mut self, is_open: impl Fn(&PortKey) -> bool) -> io::Result<()> {
        let mut closed = Vec::new();
        self.listening.each(PORTS_MAX, |port, _| {
            if !is_open(port) {
                closed.push(*port);
            }
        })?;
        closed.iter().try_for_each(|port| self.listening.remove(port))
    }

    /// How many slots were given out, and how often there was none.
    pub fn made_and_lost(&mut self) -> io::Result<(u64, u64)> {
        let totals = self.totals.lookup(&0)?.and_then(<[_]>::first).copied();
        Ok(totals.map_or((0, 0), |totals| (totals.slots_made, totals.slots_lost)))
    }

    /// Calls `f` with each key and its slot.
    pub fn keys(&mut self, mut f: impl FnMut(&ServiceKey, u32)) -> io::Result<()> {
        self.slot_of.each(SLOTS as usize, |key, slots| slots.iter().for_each(|slot| f(key, *slot)))
    }

    /// What a slot holds now.
    #[must_use]
    pub fn counts(&self, slot: u32) -> Option<ServiceCounts> {
        self.slots.read(self.offset(slot)?)
    }

    /// The longest response since this was asked last.
    #[must_use]
    pub fn take_worst_ns(&self, slot: u32) -> u64 {
        self.take(slot, WORST_AT)
    }

    /// The longest CPU time without a pause of a thread that answered since this was asked last.
    #[must_use]
    pub fn take_oncpu_worst_ns(&self, slot: u32) -> u64 {
        self.take(slot, ONCPU_WORST_AT)
    }

    fn take(&self, slot: u32, field: usize) -> u64 {
        let worst = self.offset(slot).and_then(|at| self.slots.atomic(at + field));
        worst.map_or(0, |worst: &AtomicU64| worst.swap(0, Ordering::Relaxed))
    }

    /// Calls `f` with each step of a slot's histogram.
    pub fn latency(&self, slot: u32, mut f: impl FnMut(usize, u32)) {
        let Some(at) = self.offset(slot) else { return };
        for bucket in 0..SERVICE_BUCKETS {
            if let Some(count) = self.slots.read::<u32>(at + COUNTS_BYTES + 4 * bucket) {
                f(bucket, count);
            }
        }
    }

    /// Takes a slot away from its key; whoever comes next begins at zero.
    pub fn release(&mut self, key: &ServiceKey, slot: u32) -> io::Result<()> {
        self.slot_of.remove(key)?;
        let Some(at) = self.offset(slot) else { return Ok(()) };
        let generation = self.slots.read::<u64>(at).unwrap_or(0).wrapping_add(1);
        for word in (0..SLOT_BYTES / 8).rev() {
            if let Some(cell) = self.slots.atomic(at + 8 * word) {
                cell.store(if word == 0 { generation } else { 0 }, Ordering::SeqCst);
            }
        }
        sys::push(self.free.as_fd(), &slot)
    }

    fn offset(&self, slot: u32) -> Option<usize> {
        (slot < SLOTS).then_some(slot as usize * SLOT_BYTES)
    }
}
