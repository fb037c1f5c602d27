//! Accept queues and the queues of devices, from what the helper has found.

use std::net::IpAddr;

use mitra_model::{Entity, Frame, Key, NA, StrId};
use mitra_parse::netlink::{Listener, Qdisc};

use super::names::{endpoint, unix_name};
use super::netns_thread::{Findings, UnixListener};
use super::owner::Owner;
use crate::cells::{col, row, set};
use crate::io::Io;

/// As many listening sockets have rows.
const ROWS_MAX: usize = 256;
/// A queue that has been empty for so long has no row.
const EMPTY_NS_MAX: i64 = 60_000_000_000;
/// Whose sockets these are is asked at most so often.
const OWNERS_EVERY_NS: i64 = 10_000_000_000;

/// A listening socket that had a queue within the last minute; several of one address are one.
#[derive(Debug)]
struct ListenerRow {
    netns: u32,
    socket: Listening,
    name: String,
    id: StrId,
    waited_ns: i64,
    owner: Option<(u32, String)>,
    is_seen: bool,
}

/// A listening socket: an address, or a name that is told apart by its inode number.
#[derive(Debug, Clone, Copy)]
struct Listening {
    at: Option<(IpAddr, u16)>,
    queue: u32,
    backlog: u32,
    inode: u32,
}

impl Listening {
    fn of_tcp(socket: &Listener) -> Listening {
        let Listener { address, port, queue, backlog, inode } = *socket;
        Listening { at: Some((address, port)), queue, backlog, inode }
    }

    fn of_unix(socket: &UnixListener) -> Listening {
        Listening { at: None, queue: socket.queue, backlog: socket.backlog, inode: socket.inode }
    }

    fn is_same(&self, other: &Listening) -> bool {
        self.at == other.at && (self.at.is_some() || self.inode == other.inode)
    }
}

/// The columns, and the rows.
#[derive(Debug)]
pub struct Queues {
    listener: [usize; 4],
    own: [usize; 4],
    netns_max: usize,
    qdisc: [usize; 5],
    rows: Vec<ListenerRow>,
    asked_ns: i64,
    generation: u32,
}

impl Queues {
    pub fn new() -> Self {
        Queues {
            listener: ["listener.queue", "listener.backlog", "listener.pid", "listener.comm"].map(col),
            own: ["sock.tcp_listen", "sock.listen_queue_max", "sock.listen_backlog", "sock.listen_overfull"]
                .map(col),
            netns_max: col("netns.sock_listen_queue_max"),
            qdisc: [
                "nic.qdisc_dropped",
                "nic.qdisc_overlimits",
                "nic.qdisc_requeues",
                "nic.qdisc_backlog_bytes",
                "nic.qdisc_backlog_packets",
            ]
            .map(col),
            rows: Vec::new(),
            asked_ns: i64::MIN,
            generation: 0,
        }
    }

    /// Fills the row of a device.
    pub fn fill_qdisc(&self, key: Key, qdisc: &Qdisc, frame: &mut Frame) {
        let row = row(frame.table_mut(Entity::Nic), key);
        let values =
            [qdisc.drops, qdisc.overlimits, qdisc.requeues, qdisc.backlog_bytes, qdisc.backlog_packets];
        for (column, value) in self.qdisc.iter().zip(values) {
            set(row, *column, i64::from(value));
        }
    }

    /// Fills the cells of the whole machine from its own namespace.
    pub fn fill_own(&self, listeners: &[Listener], frame: &mut Frame) {
        let longest = listeners.iter().max_by_key(|l| l.queue);
        let overfull = listeners.iter().filter(|l| l.queue > l.backlog).count();
        let values = [
            i64::try_from(listeners.len()).unwrap_or(NA),
            longest.map_or(0, |l| i64::from(l.queue)),
            longest.map_or(NA, |l| i64::from(l.backlog)),
            i64::try_from(overfull).unwrap_or(NA),
        ];
        let system = frame.system_mut();
        for (column, value) in self.own.iter().zip(values) {
            set(system, *column, value);
        }
    }

    /// Fills the longest queue of another namespace.
    pub fn fill_longest(&self, listeners: &[Listener], id: StrId, frame: &mut Frame) {
        let longest = listeners.iter().map(|l| l.queue).max().unwrap_or(0);
        set(row(frame.table_mut(Entity::Netns), Key::named(id)), self.netns_max, i64::from(longest));
    }

    /// Takes in the sockets of all namespaces, and fills their rows. Returns the sockets whose process is to be found.
    pub fn fill(&mut self, all: &[Findings], owners: &[Owner], io: &mut Io, frame: &mut Frame) -> Vec<u32> {
        let now = frame.time.mono;
        if self.generation != io.strings.generation() {
            self.generation = io.strings.generation();
            for one in &mut self.rows {
                one.id = io.strings.intern(&one.name);
            }
        }
        self.rows.iter_mut().for_each(|one| one.is_seen = false);
        for findings in all {
            for socket in &findings.listeners {
                let name = || endpoint(socket.address, Some(socket.port));
                self.note(findings.inum, Listening::of_tcp(socket), name, owners, now, io);
            }
            for socket in &findings.unix {
                let name = || unix_name(&socket.name);
                self.note(findings.inum, Listening::of_unix(socket), name, owners, now, io);
            }
        }
        // Of Unix sockets only those are told for which somebody waits.
        for one in self.rows.iter_mut().filter(|one| one.socket.at.is_none() && !one.is_seen) {
            (one.socket.queue, one.is_seen) = (0, true);
        }
        self.rows.retain(|one| one.is_seen && now - one.waited_ns < EMPTY_NS_MAX);
        let mut wanted = Vec::new();
        for one in &self.rows {
            let cells = row(frame.table_mut(Entity::Listener), Key::named(one.id));
            let [queue, backlog, pid, comm] = self.listener;
            set(cells, queue, i64::from(one.socket.queue));
            set(cells, backlog, i64::from(one.socket.backlog));
            if let Some((owner, name)) = &one.owner {
                set(cells, pid, i64::from(*owner));
                set(cells, comm, i64::from(io.strings.intern(name)));
            } else if u64::from(one.socket.queue) * 2 > u64::from(one.socket.backlog) {
                wanted.push(one.socket.inode);
            }
        }
        if wanted.is_empty() || now.saturating_sub(self.asked_ns) < OWNERS_EVERY_NS {
            return Vec::new();
        }
        self.asked_ns = now;
        wanted
    }

    fn note(
        &mut self,
        netns: u32,
        socket: Listening,
        name: impl FnOnce() -> String,
        owners: &[Owner],
        now: i64,
        io: &mut Io,
    ) {
        let is_it = |one: &ListenerRow| one.netns == netns && one.socket.is_same(&socket);
        let at = match self.rows.iter().position(is_it) {
            Some(at) => at,
            None if socket.queue == 0 || self.rows.len() >= ROWS_MAX => return,
            None => {
                let name = io.netns.within(&name(), netns);
                let id = io.strings.intern(&name);
                let owner = None;
                self.rows.push(ListenerRow {
                    netns,
                    socket,
                    name,
                    id,
                    waited_ns: now,
                    owner,
                    is_seen: false,
                });
                self.rows.len() - 1
            }
        };
        let Some(one) = self.rows.get_mut(at) else { return };
        if one.is_seen {
            // Another socket of the same address: they share the work.
            one.socket.queue = one.socket.queue.saturating_add(socket.queue);
            one.socket.backlog = one.socket.backlog.saturating_add(socket.backlog);
        } else {
            if one.socket.inode != socket.inode {
                one.owner = None;
            }
            one.socket = socket;
            one.is_seen = true;
        }
        if socket.queue > 0 {
            one.waited_ns = now;
        }
        if let Some(owner) = owners.iter().find(|owner| owner.inode == socket.inode) {
            one.owner = Some((owner.pid, owner.comm.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Root;

    fn findings(queue: u32) -> Vec<Findings> {
        let socket = |port, queue, inode| Listener {
            address: "0.0.0.0".parse().unwrap(),
            port,
            queue,
            backlog: 10,
            inode,
        };
        let listeners = vec![socket(80, queue, 1), socket(80, 0, 2), socket(443, 0, 3)];
        vec![Findings { listeners, ..Findings::default() }]
    }

    #[test]
    fn rows_come_with_a_queue_and_stay_a_minute() {
        let mut io = Io::new(Root::open("/".as_ref()).unwrap());
        let mut queues = Queues::new();
        let mut frame = Frame::new();
        let mut step = |second: i64, queue: u32, owners: &[Owner]| {
            frame.clear();
            frame.time.mono = second * 1_000_000_000;
            let wanted = queues.fill(&findings(queue), owners, &mut io, &mut frame);
            let table = frame.table(Entity::Listener);
            let rows: Vec<_> = table.rows().map(|(_, row)| row[..3].to_vec()).collect();
            (rows, wanted)
        };
        assert_eq!(step(1, 0, &[]), (vec![], vec![]));
        assert_eq!(step(2, 3, &[]), (vec![vec![3, 20, NA]], vec![]));
        assert_eq!(step(3, 11, &[]), (vec![vec![11, 20, NA]], vec![1]));
        assert!(step(4, 11, &[]).1.is_empty(), "not asked again at once");
        let owner = Owner { inode: 1, pid: 7, comm: "web".to_owned() };
        assert_eq!(step(5, 11, &[owner]), (vec![vec![11, 20, 7]], vec![]));
        assert_eq!(step(6, 0, &[]).0, vec![vec![0, 20, 7]]);
        assert_eq!(step(64, 0, &[]).0.len(), 1);
        assert_eq!(step(66, 0, &[]).0.len(), 0);
    }

    #[test]
    fn a_unix_socket_has_a_row_while_it_is_waited_for_and_a_minute_longer() {
        let mut io = Io::new(Root::open("/".as_ref()).unwrap());
        let mut queues = Queues::new();
        let mut frame = Frame::new();
        let mut step = |second: i64, queue: u32| {
            frame.clear();
            frame.time.mono = second * 1_000_000_000;
            let waited = UnixListener { name: b"/run/app.sock".to_vec(), queue, backlog: 10, inode: 4 };
            let unix = (queue > 0).then_some(waited).into_iter().collect();
            queues.fill(&[Findings { unix, ..Findings::default() }], &[], &mut io, &mut frame);
            let rows = frame.table(Entity::Listener).rows();
            let name = |key: Key| io.strings.get(key.id as StrId).unwrap_or_default().to_owned();
            rows.map(|(key, row)| (name(key), row[0], row[1])).collect::<Vec<_>>()
        };
        assert_eq!(step(1, 0), []);
        assert_eq!(step(2, 3), [("unix:/run/app.sock".to_owned(), 3, 10)]);
        assert_eq!(step(3, 0), [("unix:/run/app.sock".to_owned(), 0, 10)]);
        assert_eq!(step(63, 0), []);
    }
}
