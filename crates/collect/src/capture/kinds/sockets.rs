//! `sockets`: each TCP and UDP socket with its queues and what TCP knows of its connection.
//!
//! What it answers: which connection retransmits and to which peer, whether a sender waits for the network (retransmissions,
//! lost segments), for the other end (its window is full) or for itself (its buffer is), which program leaves data
//! unread, where a queue of connections waits to be accepted, and which UDP socket drops.
//!
//! No program runs in the kernel: all sockets are asked for at the beginning and at the end (netlink, `sock_diag`), and
//! the difference is what happened meanwhile. A socket that both began and ended in between is not seen. Where there are
//! too many to see them all at the beginning, what happened to those left out meanwhile is not known. With `--pid`
//! the sockets are those of that process, in its network namespace. `--comm` is the name of the owner.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): 1,000 TCP sockets with a descriptor each take 10 ms of CPU, 2 ms of
//! them at the beginning.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

use mitra_model::capture::{CaptureRow, Cell, Raw};
use mitra_parse::sockets::{Socket, Tcp, state_name};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::capture::calls::{sort_by_weight, table};
use crate::capture::loader::Loader;
use crate::capture::{AnyError, CaptureReader, Kind, Request, as_all};
use crate::file::inode_in_link;
use crate::net::ask::{self, Asker};

pub(super) static KIND: Kind = Kind {
    name: "sockets",
    help: "each TCP and UDP socket: queues, round trip, retransmissions, what holds it up, and its owner",
    cost: "nothing while it waits; each socket is read twice, and the descriptors of all processes once to find \
           owners: 10 ms for 1,000 of both",
    since: "3.3; bytes sent and received: 4.1; for how long it could not send: 4.10",
    attaches: &["sock_diag"],
    columns: COLUMNS,
    options: &[],
    filters: &["pid", "comm"],
    one_process: false,
    object: &[],
    source: include_str!("sockets.rs"),
    configure: as_all,
    arm,
};

const COLUMNS: &[(&str, &str, &str)] = &[
    ("pid", "", "who has it open; of several the first one"),
    ("comm", "", "its name"),
    ("protocol", "", "tcp or udp"),
    ("state", "", "as TCP calls it"),
    ("local", "", "address and port here"),
    ("remote", "", "address and port of the other end"),
    ("receive queue", "B", "bytes that nobody has read; of a listener the connections that wait"),
    ("send queue", "B", "bytes that are not acknowledged; of a listener how many connections may wait"),
    ("not sent", "B", "of the send queue"),
    ("round trip", "s", "smoothed"),
    ("shortest", "s", "the shortest round trip"),
    ("cwnd", "1", "segments that may be out"),
    ("unacked", "1", "segments that are out"),
    ("lost", "1", "of those, held for lost"),
    ("retransmitted", "1", "segments sent again during the capture"),
    ("of old", "1", "segments sent again since the connection began"),
    ("sent", "B", "acknowledged during the capture"),
    ("received", "B", "during the capture"),
    ("window full", "s", "of the capture: it could not send because the other end would take no more"),
    ("buffer full", "s", "of the capture: it could not send because its own buffer was full"),
    ("silent for", "s", "since data came"),
    ("dropped", "1", "packets dropped at the socket during the capture, mostly because its buffer was full"),
];

const STATE_COLUMNS: &[(&str, &str, &str)] = &[
    ("protocol", "", "tcp or udp"),
    ("state", "", "as TCP calls it"),
    ("sockets", "1", "how many at the end"),
];

/// As many sockets of each protocol are looked at; each is about 400 bytes of an answer.
const SOCKETS_MAX: usize = 50_000;
/// As many links of `/proc/PID/fd` are read to find owners.
const LINKS_MAX: usize = 200_000;
const LISTEN: u8 = 10;

fn arm(request: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    let mut netlink = Netlink::open(request.pid)?;
    let mut before = HashMap::new();
    let cut = netlink.all(|socket| {
        before.insert((socket.protocol, socket.socket.cookie), socket.socket);
    })?;
    for protocol in &cut {
        loader.note(format!(
            "there were more than {SOCKETS_MAX} sockets of {} at the beginning; of those beyond it is not known what \
             happened meanwhile",
            protocol.name()
        ));
    }
    Ok(Box::new(Sockets { netlink, before, cut, pid: request.pid, comm: request.comm_text() }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

struct Found {
    protocol: Protocol,
    socket: Socket,
}

/// Netlink in the network namespace that is looked at.
struct Netlink {
    sockets: ask::Sockets,
    asker: Asker,
}

impl Netlink {
    /// A socket belongs to the namespace in which it was made, so a thread of its own goes there.
    fn open(pid: Option<u32>) -> Result<Self, AnyError> {
        let place = |who: &str| format!("/proc/{who}/ns/net");
        let is_ours = |pid: u32| {
            let inode = |who: &str| std::fs::metadata(place(who)).ok().map(|meta| meta.ino());
            inode("self").is_some_and(|own| inode(&pid.to_string()) == Some(own))
        };
        // Nobody needs a privilege to stay where he is.
        let sockets = match pid.filter(|pid| !is_ours(*pid)) {
            None => ask::Sockets::open()?,
            Some(pid) => {
                let there = std::thread::spawn(move || {
                    let path = place(&pid.to_string());
                    let of_path = |error: io::Error| format!("{path}: {error}");
                    let namespace = std::fs::File::open(&path).map_err(of_path)?;
                    let kind = Some(LinkNameSpaceType::Network);
                    move_into_link_name_space(namespace.as_fd(), kind).map_err(|e| of_path(e.into()))?;
                    ask::Sockets::open().map_err(|error| error.to_string())
                });
                there.join().map_err(|_| "the thread that looks into a namespace has failed")??
            }
        };
        Ok(Self { sockets, asker: Asker::new() })
    }

    /// All sockets; says of which protocols there were too many.
    fn all(&mut self, mut f: impl FnMut(Found)) -> Result<Vec<Protocol>, AnyError> {
        let mut cut = Vec::new();
        for (protocol, number) in [(Protocol::Tcp, libc::IPPROTO_TCP), (Protocol::Udp, libc::IPPROTO_UDP)] {
            let mut seen = 0;
            self.asker.every(&self.sockets, number as u8, |socket| {
                seen += 1;
                // An IPv4 socket comes with the family 2 alone; one of family 10 may hold both.
                if seen <= SOCKETS_MAX {
                    f(Found { protocol, socket: *socket });
                }
            })?;
            if seen > SOCKETS_MAX {
                cut.push(protocol);
            }
        }
        Ok(cut)
    }
}

/// Who has sockets open, by their inode numbers.
type Owners = HashMap<u32, (u32, String)>;

/// Who has which socket open, as far as so many descriptors tell; and whether there are more.
fn owners(pid: Option<u32>, mut links: usize) -> (Owners, bool) {
    let mut owners = HashMap::new();
    let pids: Vec<u32> = match pid {
        Some(pid) => vec![pid],
        None => std::fs::read_dir("/proc")
            .map(|entries| entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
            .unwrap_or_default(),
    };
    for pid in pids {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let mut comm = None;
        for entry in entries.flatten() {
            if links == 0 {
                return (owners, true);
            }
            links -= 1;
            let Some(inode) = inode_in_link(rustix::fs::CWD, entry.path(), b"socket") else { continue };
            let comm = comm.get_or_insert_with(|| {
                let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
                String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned()
            });
            owners.entry(inode).or_insert_with(|| (pid, comm.clone()));
        }
    }
    (owners, false)
}

struct Sockets {
    netlink: Netlink,
    before: HashMap<(Protocol, u64), Socket>,
    /// Of these not all were seen at the beginning.
    cut: Vec<Protocol>,
    pid: Option<u32>,
    comm: Option<String>,
}

struct Row {
    owner: Option<(u32, String)>,
    protocol: Protocol,
    now: Socket,
    before: Option<Socket>,
    /// Whether one that was not there before has begun since: all that were there have been seen.
    saw_all: bool,
}

impl CaptureReader for Sockets {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        let (owners, is_cut) = owners(self.pid, LINKS_MAX);
        let filtered = self.pid.is_some() || self.comm.is_some();
        if is_cut {
            let missing =
                if filtered { "sockets beyond are left out" } else { "sockets beyond have no owner here" };
            raw.captured
                .notes
                .push(format!("more than {LINKS_MAX} descriptors are open, and no more are read: {missing}"));
        }
        let mut rows = Vec::new();
        let mut seen = 0_u64;
        let cut = self.netlink.all(|Found { protocol, socket }| {
            seen += 1;
            let owner = owners.get(&socket.inode).filter(|_| socket.inode > 0).cloned();
            let of_name =
                self.comm.as_deref().is_none_or(|n| owner.as_ref().is_some_and(|(_, comm)| comm == n));
            if !filtered || owner.is_some() && of_name {
                let before = self.before.get(&(protocol, socket.cookie)).copied();
                // A listener has no connection: its numbers mean something else.
                let tcp = socket.tcp.filter(|_| socket.state != LISTEN);
                let saw_all = !self.cut.contains(&protocol);
                rows.push(Row { owner, protocol, now: Socket { tcp, ..socket }, before, saw_all });
            }
        })?;
        for protocol in cut {
            let name = protocol.name();
            raw.captured.notes.push(format!(
                "there are more than {SOCKETS_MAX} sockets of {name}; those beyond are left out"
            ));
        }
        self.before.clear();
        raw.captured.events = seen;
        raw.captured.tables.extend(tables(&mut rows));
        raw.captured.tops = rows.iter().filter(|row| row.weight() > 0.0).map(Row::top).collect();
        Ok(())
    }
}

fn tables(rows: &mut [Row]) -> [mitra_model::capture::CaptureTable; 2] {
    sort_by_weight(rows, Row::weight, |row| (row.now.remote, row.now.local));
    let mut states: HashMap<(&str, &str), u32> = HashMap::new();
    for row in &*rows {
        *states.entry((row.protocol.name(), row.state())).or_default() += 1;
    }
    let mut states: Vec<_> = states.into_iter().collect();
    sort_by_weight(&mut states, |(_, count)| f64::from(*count), |(key, _)| *key);
    let states = states.into_iter().map(|((protocol, state), count)| {
        vec![Cell::text(protocol), Cell::text(state), Cell::number(f64::from(count))]
    });
    [
        table("sockets", COLUMNS, rows.iter().map(Row::cells).collect()),
        table("states", STATE_COLUMNS, states.collect()),
    ]
}

impl Row {
    fn state(&self) -> &'static str {
        match self.protocol {
            Protocol::Tcp => state_name(self.now.state),
            // UDP borrows the numbers: connected, or not.
            Protocol::Udp if self.now.state == 1 => "connected",
            Protocol::Udp => "open",
        }
    }

    /// A count as it was at the beginning: nothing of a socket that was not there yet, or had no connection.
    fn before(&self, value: impl Fn(&Socket) -> Option<u64>) -> Option<u64> {
        match &self.before {
            Some(socket) => Some(value(socket).unwrap_or(0)),
            None => self.saw_all.then_some(0),
        }
    }

    /// The growth of a count of the connection; since it began, where it began during the capture.
    fn grown(&self, value: impl Fn(&Tcp) -> Option<u64>) -> Option<f64> {
        let now = value(self.now.tcp.as_ref()?)?;
        let before = self.before(|socket| value(socket.tcp.as_ref()?))?;
        Some(now.saturating_sub(before) as f64)
    }

    fn retransmitted(&self) -> f64 {
        self.grown(|tcp| Some(u64::from(tcp.total_retransmits))).unwrap_or(0.0)
    }

    fn dropped(&self) -> Option<f64> {
        let now = u64::from(self.now.drops?);
        let before = self.before(|socket| socket.drops.map(u64::from))?;
        Some(now.saturating_sub(before) as f64)
    }

    /// Packets count for as much as they carry, about 1,500 bytes. The queue of a listener holds connections.
    fn weight(&self) -> f64 {
        const PACKET_BYTES: f64 = 1500.0;
        let is_listener = self.protocol == Protocol::Tcp && self.now.state == LISTEN;
        let queues = if is_listener {
            f64::from(self.now.receive_queue) * PACKET_BYTES
        } else {
            f64::from(self.now.receive_queue) + f64::from(self.now.send_queue)
        };
        queues + (self.retransmitted() + self.dropped().unwrap_or(0.0)) * PACKET_BYTES
    }

    fn top(&self) -> CaptureRow {
        let (pid, comm) = self.owner.clone().map_or((None, String::new()), |(pid, comm)| (Some(pid), comm));
        let is_listener = self.protocol == Protocol::Tcp && self.now.state == LISTEN;
        let queues = f64::from(self.now.receive_queue) + f64::from(self.now.send_queue);
        CaptureRow {
            pid,
            comm,
            what: format!(
                "{} {} {} > {}",
                self.protocol.name(),
                self.state(),
                self.now.local,
                self.now.remote
            ),
            count: if is_listener {
                f64::from(self.now.receive_queue)
            } else {
                self.retransmitted() + self.dropped().unwrap_or(0.0)
            },
            amount: if is_listener { 0.0 } else { queues },
            ..CaptureRow::default()
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let known = |value: Option<f64>| value.map_or(Cell::Unknown(()), Cell::number);
        let tcp = |value: fn(&Tcp) -> Option<f64>| known(self.now.tcp.as_ref().and_then(value));
        let owner = self.owner.as_ref();
        vec![
            known(owner.map(|(pid, _)| f64::from(*pid))),
            Cell::text(owner.map_or("", |(_, comm)| comm.as_str())),
            Cell::text(self.protocol.name()),
            Cell::text(self.state()),
            Cell::text(self.now.local.to_string()),
            Cell::text(self.now.remote.to_string()),
            Cell::number(f64::from(self.now.receive_queue)),
            Cell::number(f64::from(self.now.send_queue)),
            tcp(|t| t.not_sent.map(f64::from)),
            tcp(|t| (t.rtt_us > 0).then(|| f64::from(t.rtt_us) * 1e-6)),
            tcp(|t| t.min_rtt_us.map(|us| f64::from(us) * 1e-6)),
            tcp(|t| Some(f64::from(t.cwnd))),
            tcp(|t| Some(f64::from(t.unacked))),
            tcp(|t| Some(f64::from(t.lost))),
            known(self.grown(|t| Some(u64::from(t.total_retransmits)))),
            tcp(|t| Some(f64::from(t.total_retransmits))),
            known(self.grown(|t| t.bytes_acked)),
            known(self.grown(|t| t.bytes_received)),
            known(self.grown(|t| t.window_limited_us).map(|us| us * 1e-6)),
            known(self.grown(|t| t.buffer_limited_us).map(|us| us * 1e-6)),
            tcp(|t| Some(f64::from(t.last_data_received_ms) * 1e-3)),
            known(self.dropped()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn who_could_not_be_looked_at_is_not_passed_over_in_silence() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap().ino();
        let own = std::process::id();
        let inode = u32::try_from(inode).unwrap();
        let (all, is_cut) = owners(Some(own), LINKS_MAX);
        assert_eq!((all.get(&inode).map(|(pid, _)| *pid), is_cut), (Some(own), false));
        let (none, is_cut) = owners(Some(own), 0);
        assert!(none.is_empty() && is_cut);
    }

    #[test]
    fn what_a_socket_was_before_is_not_made_up() {
        let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        let socket = |total_retransmits, drops| Socket {
            local: nowhere,
            remote: nowhere,
            state: 1,
            cookie: 1,
            inode: 1,
            receive_queue: 0,
            send_queue: 0,
            drops: Some(drops),
            tcp: Some(Tcp { total_retransmits, ..Tcp::default() }),
        };
        let row = |before, saw_all| {
            let row = Row { owner: None, protocol: Protocol::Tcp, now: socket(900, 50), before, saw_all };
            (row.grown(|tcp| Some(u64::from(tcp.total_retransmits))), row.dropped())
        };
        assert_eq!(row(Some(socket(890, 20)), true), (Some(10.0), Some(30.0)));
        assert_eq!(row(Some(socket(890, 20)), false), (Some(10.0), Some(30.0)));
        assert_eq!(row(None, true), (Some(900.0), Some(50.0)), "it began during the capture");
        assert_eq!(row(None, false), (None, None), "its whole life is not the capture");
    }
}
