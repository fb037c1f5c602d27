//! How long programs wait for name servers (`bpf/dns.bpf.c`).

use std::io;
use std::net::Ipv6Addr;

use aya::maps::MapData;

use super::record::comm_str;
use super::sys::{MapReader, Plain, zeroed};

/// 1 ms doubled 13 times, and the rest.
pub const DNS_BUCKETS: usize = 15;
/// As many entries as the kernel's map holds.
const SERVERS_MAX: usize = 64;
/// As many sockets as the kernel's map holds.
const OPEN_MAX: usize = 1024;
/// Who has no answer after so long just keeps its socket. Twin: `GIVE_UP_NS_MAX` in bpf/dns.bpf.c.
const GIVE_UP_NS_MAX: u64 = 30_000_000_000;

/// A name server, as a network namespace sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerKey {
    address: [u8; 16],
    /// The inode number of the network namespace.
    pub netns: u32,
    pad: u32,
}
const _: () = assert!(size_of::<ServerKey>() == 24, "twin: struct server in bpf/net.h");
// SAFETY: repr(C), bytes and u32 fields, no hole.
unsafe impl Plain for ServerKey {}

impl ServerKey {
    /// Its address; version 4 ones are written within version 6 ones.
    pub fn address(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.address)
    }
}

/// What is known of a server, since it is in the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSum {
    /// Times that a program turned to it.
    pub queries: u64,
    /// Answers read.
    pub answers: u64,
    /// Times that a program gave up.
    pub unanswered: u64,
    /// Time waited, answered or not.
    pub wait_ns: u64,
    /// Answers by the time they took.
    pub latency: [u64; DNS_BUCKETS],
    worst_round: u64,
    /// The longest wait since the table was read, or of the round before.
    pub worst_wait_ns: u64,
    /// The process that waited so long.
    pub worst_tgid: u32,
    pad: u32,
    worst_comm: [u8; 16],
}
const _: () = assert!(size_of::<ServerSum>() == 192, "twin: struct server_sum in bpf/net.h");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for ServerSum {}

impl Default for ServerSum {
    fn default() -> Self {
        zeroed()
    }
}

impl ServerSum {
    /// Takes over who waited longest.
    pub fn set_worst(&mut self, other: &Self) {
        self.worst_wait_ns = other.worst_wait_ns;
        self.worst_tgid = other.worst_tgid;
        self.worst_comm = other.worst_comm;
    }

    /// Takes over who still waits, if nobody waited longer.
    pub fn set_worst_open(&mut self, open: &Open) {
        if open.wait_ns >= self.worst_wait_ns {
            self.worst_wait_ns = open.wait_ns;
            self.worst_tgid = open.tgid;
            self.worst_comm = open.comm;
        }
    }

    /// The name of the thread that waited longest.
    pub fn worst_comm(&self) -> &str {
        comm_str(&self.worst_comm)
    }
}

/// A question that has no answer yet.
pub struct Open {
    /// For how long.
    pub wait_ns: u64,
    tgid: u32,
    comm: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Question {
    server: ServerKey,
    first: u64,
    last: u64,
    answered: u64,
    outstanding: u32,
    answers: u32,
}

/// A socket that has turned to name servers.
#[repr(C)]
#[derive(Clone, Copy)]
struct Waiting {
    questions: [Question; 3],
    tgid: u32,
    next: u32,
    is_connected: u32,
    sent_at_answer: u32,
    comm: [u8; 16],
}
const _: () = assert!(size_of::<Waiting>() == 200, "twin: struct waiting in bpf/dns.bpf.c");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for Waiting {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Globals {
    events: u64,
    lost: u64,
}
// SAFETY: only u64 fields.
unsafe impl Plain for Globals {}

/// The name servers that programs ask.
pub struct Resolvers {
    servers: MapReader<ServerKey, ServerSum>,
    rounds: MapReader<u32, u64>,
    globals: MapReader<u32, Globals>,
    waiting: MapReader<u64, Waiting>,
    round: u64,
    seen: u64,
}

impl Resolvers {
    pub(super) fn new([servers, rounds, globals, waiting]: [&MapData; 4]) -> io::Result<Self> {
        Ok(Self {
            servers: MapReader::new(servers, 1)?,
            rounds: MapReader::new(rounds, 1)?,
            globals: MapReader::new(globals, 1)?,
            waiting: MapReader::new(waiting, 1)?,
            round: 0,
            seen: 0,
        })
    }

    /// Calls `f` with each question that has no answer at `now_ns` of the monotonic clock. Does not allocate.
    pub fn open(&mut self, now_ns: u64, mut f: impl FnMut(&ServerKey, &Open)) -> io::Result<()> {
        self.waiting.each(OPEN_MAX, |_, sockets| {
            for socket in sockets {
                for question in socket.questions.iter().filter(|q| q.outstanding > 0) {
                    let wait_ns = now_ns.saturating_sub(question.first);
                    if wait_ns <= GIVE_UP_NS_MAX {
                        f(&question.server, &Open { wait_ns, tgid: socket.tgid, comm: socket.comm });
                    }
                }
            }
        })
    }

    /// Calls `f` with each server, if anything changed since the last call. Returns how many changes found no room.
    /// Does not allocate.
    pub fn read(&mut self, mut f: impl FnMut(&ServerKey, &ServerSum)) -> io::Result<u64> {
        let globals = self.globals.lookup(&0)?.and_then(<[_]>::first).copied();
        let Some(Globals { events, lost }) = globals else { return Ok(0) };
        if events == self.seen {
            return Ok(lost);
        }
        self.servers.each(SERVERS_MAX, |key, sums| sums.iter().for_each(|sum| f(key, sum)))?;
        self.seen = events;
        self.round += 1;
        self.rounds.store(&0, &self.round)?;
        Ok(lost)
    }
}
