//! UDP sockets that drop datagrams, and whose they are.
//!
//! The kernel counts the datagrams that found a receive buffer full for each network namespace, and says of each socket
//! what it has dropped. To ask for that it walks over all UDP sockets, so it is asked only while the count of the
//! namespace grows, and for a minute after.

use mitra_model::{Entity, Frame, Key, NA};

use super::names::endpoint;
use super::netns::NetNs;
use super::netns_thread::Findings;
use super::owner::Owner;
use crate::cells::{col, row, set};
use crate::io::Io;

/// For so long after the last drop the sockets of a namespace are asked for.
const LATER_NS: i64 = 60_000_000_000;
/// Whose sockets these are is asked at most so often.
const OWNERS_EVERY_NS: i64 = 10_000_000_000;
/// As many owners are remembered.
const OWNERS_MAX: usize = 256;

/// A namespace: its number, what its count was, and until when its sockets are asked for.
#[derive(Debug, Clone, Copy)]
struct Watched {
    inum: u32,
    errors: i64,
    until_ns: i64,
}

/// The columns, and what is remembered from frame to frame.
#[derive(Debug)]
pub struct Receivers {
    errors: [usize; 2],
    cells: [usize; 3],
    watched: Vec<Watched>,
    /// By inode number: what a socket had dropped at the last look, and who holds it.
    known: Vec<(u32, u32, Option<Owner>)>,
    asked_ns: i64,
}

impl Receivers {
    pub fn new() -> Self {
        Receivers {
            errors: ["udp.RcvbufErrors", "netns.udp_RcvbufErrors"].map(col),
            cells: ["listener.drops", "listener.pid", "listener.comm"].map(col),
            watched: Vec::new(),
            known: Vec::new(),
            asked_ns: i64::MIN,
        }
    }

    /// The namespaces whose sockets are to be asked for, by the counts in the frame.
    pub fn watch(&mut self, namespaces: &[NetNs], frame: &mut Frame) -> Vec<u32> {
        let now = frame.time.mono;
        let [own, other] = self.errors;
        let home = frame.system_mut().get(own).copied().unwrap_or(NA);
        self.watched.retain(|one| one.inum == 0 || namespaces.iter().any(|space| space.inum == one.inum));
        self.note(0, home, now);
        let table = frame.table_mut(Entity::Netns);
        for space in namespaces {
            let cells = row(table, Key::named(space.id));
            self.note(space.inum, cells.get(other).copied().unwrap_or(NA), now);
        }
        self.watched.iter().filter(|one| one.until_ns > now).map(|one| one.inum).collect()
    }

    /// Notes the count of a namespace.
    fn note(&mut self, inum: u32, errors: i64, now: i64) {
        match self.watched.iter_mut().find(|one| one.inum == inum) {
            Some(one) => {
                if one.errors != NA && errors > one.errors {
                    one.until_ns = now.saturating_add(LATER_NS);
                }
                one.errors = errors;
            }
            None => self.watched.push(Watched { inum, errors, until_ns: i64::MIN }),
        }
    }

    /// Fills the rows of the sockets that were found; those that share an address are one. Returns the sockets whose
    /// process is to be found: those that dropped since the last look.
    pub fn fill(&mut self, all: &[Findings], owners: &[Owner], io: &mut Io, frame: &mut Frame) -> Vec<u32> {
        let now = frame.time.mono;
        let mut wanted = Vec::new();
        let mut known = Vec::new();
        for (findings, socket) in all.iter().flat_map(|f| f.receivers.iter().map(move |r| (f, r))) {
            let before = self.known.iter().find(|(inode, ..)| *inode == socket.inode);
            let owner = owners.iter().find(|o| o.inode == socket.inode).cloned();
            let owner = owner.or_else(|| before?.2.clone());
            let name = format!("{}/udp", endpoint(socket.address, Some(socket.port)));
            let id = io.strings.intern(&io.netns.within(&name, findings.inum));
            let cells = row(frame.table_mut(Entity::Listener), Key::named(id));
            let [drops, pid, comm] = self.cells;
            let others = cells.get(drops).copied().filter(|n| *n != NA).unwrap_or(0);
            set(cells, drops, others.saturating_add(i64::from(socket.drops)));
            if let Some(owner) = &owner {
                set(cells, pid, i64::from(owner.pid));
                set(cells, comm, i64::from(io.strings.intern(&owner.comm)));
            } else if before.is_some_and(|(_, drops, _)| socket.drops > *drops) {
                wanted.push(socket.inode);
            }
            if known.len() < OWNERS_MAX {
                known.push((socket.inode, socket.drops, owner));
            }
        }
        self.known = known;
        if wanted.is_empty() || now.saturating_sub(self.asked_ns) < OWNERS_EVERY_NS {
            return Vec::new();
        }
        self.asked_ns = now;
        wanted
    }
}

#[cfg(test)]
mod tests {
    use mitra_parse::netlink::Receiver;

    use super::*;
    use crate::file::Root;

    #[test]
    fn sockets_are_asked_for_while_the_count_grows() {
        let mut receivers = Receivers::new();
        let mut frame = Frame::new();
        let mut step = |second: i64, errors: i64| {
            frame.clear();
            frame.time.mono = second * 1_000_000_000;
            set(frame.system_mut(), col("udp.RcvbufErrors"), errors);
            receivers.watch(&[], &mut frame)
        };
        assert!(step(1, 1_000).is_empty(), "what was before does not count");
        assert!(step(2, 1_000).is_empty());
        assert_eq!(step(3, 1_001), [0]);
        assert_eq!(step(62, 1_001), [0]);
        assert!(step(64, 1_001).is_empty());
    }

    #[test]
    fn sockets_of_one_address_are_one_row_with_an_owner() {
        let mut io = Io::new(Root::open("/".as_ref()).unwrap());
        let mut receivers = Receivers::new();
        let mut frame = Frame::new();
        let mut step = |second: i64, drops: [u32; 2], owners: &[Owner]| {
            frame.clear();
            frame.time.mono = second * 1_000_000_000;
            let socket = |inode, drops| Receiver { address: [10, 0, 0, 1].into(), port: 53, drops, inode };
            let found = vec![socket(1, drops[0]), socket(2, drops[1])];
            let findings = [Findings { receivers: found, ..Findings::default() }];
            let wanted = receivers.fill(&findings, owners, &mut io, &mut frame);
            let table = frame.table(Entity::Listener);
            let cells = |row: &[i64]| (row[col("listener.drops")], row[col("listener.pid")]);
            (table.rows().map(|(_, row)| cells(row)).collect::<Vec<_>>(), wanted)
        };
        assert_eq!(step(1, [5, 6], &[]), (vec![(11, NA)], vec![]));
        assert_eq!(step(2, [5, 9], &[]), (vec![(14, NA)], vec![2]));
        let owner = Owner { inode: 2, pid: 7, comm: "named".to_owned() };
        assert_eq!(step(3, [5, 12], &[owner]), (vec![(17, 7)], vec![]));
        assert_eq!(step(4, [5, 13], &[]), (vec![(18, 7)], vec![]));
    }
}
