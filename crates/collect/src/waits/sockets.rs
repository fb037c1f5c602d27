//! The sockets of a network namespace, and which one is the other end of which.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use mitra_parse::sockets::{Socket, UnixSocket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::file::{Root, inode_in_link};
use crate::net::ask::{Asker, Sockets};

/// States of a socket (`include/net/tcp_states.h`).
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;
const LISTEN: u8 = 10;

/// What is at the other end of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A socket of this machine, by its inode number.
    Socket(u32),
    /// Nobody has accepted the connection yet: the sockets that listen there.
    Listeners(Vec<u32>),
    /// An address that no socket of this namespace has.
    Address(SocketAddr),
    Unknown,
}

/// A socket that a thread waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    pub is_tcp: bool,
    pub is_listening: bool,
    /// Whether the other end has called: it belongs to a client.
    pub is_server: bool,
    pub peer: Peer,
}

/// Those of one namespace.
#[derive(Debug, Default)]
pub struct NetSockets {
    tcp: Vec<Socket>,
    tcp_by_inode: HashMap<u32, usize>,
    tcp_by_ends: HashMap<(SocketAddr, SocketAddr), usize>,
    /// The inode numbers of those that listen at an address.
    tcp_listeners: HashMap<SocketAddr, Vec<u32>>,
    unix: HashMap<u32, UnixSocket>,
    /// The names at which one listens.
    unix_names: HashSet<Vec<u8>>,
    /// Of each that nobody has accepted yet the ones that listen for it.
    unix_listeners: HashMap<u32, Vec<u32>>,
}

impl NetSockets {
    /// Those of the namespace that a process is in. What the kernel refuses, or is too much, is left out.
    pub fn of(root: &Root, pid: u32, asker: &mut Asker) -> Self {
        let mut found = NetSockets::default();
        let Ok(sockets) = sockets_of(root, pid) else { return found };
        let mut tcp = Vec::new();
        if asker.connections(&sockets, |socket| tcp.push(*socket)).is_ok() {
            found.set_tcp(tcp);
        }
        // A socket with half an answer in it is not used again.
        let mut unix = HashMap::new();
        let Ok(sockets) = sockets_of(root, pid) else { return found };
        if asker.unix(&sockets, |socket| _ = unix.insert(socket.inode, socket.clone())).is_ok() {
            found.set_unix(unix);
        }
        found
    }

    fn set_tcp(&mut self, tcp: Vec<Socket>) {
        for (at, socket) in tcp.iter().enumerate() {
            if socket.inode != 0 {
                self.tcp_by_inode.insert(socket.inode, at);
            }
            if socket.state == LISTEN {
                self.tcp_listeners.entry(socket.local).or_default().push(socket.inode);
            } else {
                self.tcp_by_ends.insert((socket.local, socket.remote), at);
            }
        }
        self.tcp = tcp;
    }

    fn set_unix(&mut self, unix: HashMap<u32, UnixSocket>) {
        for socket in unix.values().filter(|socket| socket.state == LISTEN) {
            self.unix_names.extend(socket.name.clone());
            for pending in &socket.pending {
                self.unix_listeners.entry(*pending).or_default().push(socket.inode);
            }
        }
        self.unix = unix;
    }

    /// A socket by its inode number. `None` if it is neither of TCP nor a Unix socket of this namespace.
    pub fn conversation(&self, inode: u32) -> Option<Conversation> {
        match self.tcp_by_inode.get(&inode).and_then(|at| self.tcp.get(*at)) {
            Some(socket) => Some(self.of_tcp(socket)),
            None => self.unix.get(&inode).map(|socket| self.of_unix(socket)),
        }
    }

    /// Of some sockets those into which more was written than the other end, which is on this machine, has read: that one.
    pub fn unread(&self, inodes: &[u32]) -> Vec<u32> {
        let full = |inode: &u32| {
            let socket = self.tcp_by_inode.get(inode).and_then(|at| self.tcp.get(*at))?;
            let peer =
                self.tcp_by_ends.get(&(socket.remote, socket.local)).and_then(|at| self.tcp.get(*at))?;
            // Of one that listens these are other things.
            let is_full = socket.state != LISTEN && socket.send_queue > 0 && peer.receive_queue > 0;
            (is_full && peer.inode != 0).then_some(peer.inode)
        };
        inodes.iter().filter_map(full).collect()
    }

    fn of_tcp(&self, socket: &Socket) -> Conversation {
        let peer = match self.tcp_by_ends.get(&(socket.remote, socket.local)).and_then(|at| self.tcp.get(*at))
        {
            Some(peer) if peer.inode != 0 => Peer::Socket(peer.inode),
            // One that was closed without being accepted is in another state.
            Some(peer) if matches!(peer.state, ESTABLISHED | CLOSE_WAIT) => {
                Peer::Listeners(self.listeners(peer.local))
            }
            Some(_) => Peer::Unknown,
            None => Peer::Address(socket.remote),
        };
        Conversation {
            is_tcp: true,
            is_listening: socket.state == LISTEN,
            is_server: socket.state != LISTEN && !self.listeners(socket.local).is_empty(),
            peer,
        }
    }

    /// The sockets that listen at an address; those that listen at every address only if none does at this one.
    fn listeners(&self, at: SocketAddr) -> Vec<u32> {
        if let Some(own) = self.tcp_listeners.get(&at) {
            return own.clone();
        }
        let every: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let of_port = every.map(|ip| self.tcp_listeners.get(&SocketAddr::new(ip, at.port())));
        of_port.into_iter().flatten().flatten().copied().collect()
    }

    fn of_unix(&self, socket: &UnixSocket) -> Conversation {
        let peer = match socket.peer {
            Some(0) => Peer::Listeners(self.unix_listeners.get(&socket.inode).cloned().unwrap_or_default()),
            Some(inode) => Peer::Socket(inode),
            None => Peer::Unknown,
        };
        let is_listening = socket.state == LISTEN;
        Conversation {
            is_tcp: false,
            is_listening,
            // A socket that was accepted has the name of the one that listens.
            is_server: !is_listening
                && socket.name.as_ref().is_some_and(|name| self.unix_names.contains(name)),
            peer,
        }
    }

    /// The sockets that listen at the same address as one of these, by their inode numbers: workers may share a socket, or
    /// have one each (`SO_REUSEPORT`).
    pub fn same_listeners(&self, inodes: &[u32]) -> Vec<u32> {
        let mut same: Vec<u32> = Vec::new();
        for inode in inodes {
            let tcp = self.tcp_by_inode.get(inode).and_then(|at| self.tcp.get(*at));
            if let Some(socket) = tcp.filter(|socket| socket.state == LISTEN) {
                same.extend(self.tcp_listeners.get(&socket.local).into_iter().flatten());
            }
            if self.unix.get(inode).is_some_and(|socket| socket.state == LISTEN && socket.name.is_some()) {
                same.push(*inode);
            }
        }
        same.sort_unstable();
        same.dedup();
        same
    }
}

/// Sockets to ask in the namespace of a process. A thread enters another one, opens them there and ends: they keep asking
/// there, and nobody has to find the way back.
fn sockets_of(root: &Root, pid: u32) -> io::Result<Sockets> {
    let own = inode_in_link(root.fd(), "proc/thread-self/ns/net", b"net");
    if own.is_none() || own == inode_in_link(root.fd(), format!("proc/{pid}/ns/net"), b"net") {
        return Sockets::open();
    }
    let inside: OwnedFd = root.open_file(&format!("proc/{pid}/ns/net"))?;
    let builder = std::thread::Builder::new().name("mitra-waits-ns".to_owned()).stack_size(64 * 1024);
    let opened = builder.spawn(move || {
        move_into_link_name_space(inside.as_fd(), Some(LinkNameSpaceType::Network))?;
        Sockets::open()
    })?;
    opened.join().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(local: &str, remote: &str, state: u8, inode: u32) -> Socket {
        Socket {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            state,
            cookie: 0,
            inode,
            receive_queue: 0,
            send_queue: 0,
            drops: None,
            tcp: None,
        }
    }

    #[test]
    fn which_socket_is_the_other_end() {
        let mut net = NetSockets::default();
        net.set_tcp(vec![
            tcp("0.0.0.0:80", "0.0.0.0:0", LISTEN, 1),
            tcp("127.0.0.1:80", "127.0.0.1:5000", ESTABLISHED, 2),
            tcp("127.0.0.1:5000", "127.0.0.1:80", ESTABLISHED, 3),
            tcp("127.0.0.1:80", "127.0.0.1:5001", ESTABLISHED, 0),
            tcp("127.0.0.1:5001", "127.0.0.1:80", ESTABLISHED, 4),
            tcp("127.0.0.1:80", "127.0.0.1:5002", 4, 0),
            tcp("127.0.0.1:5002", "127.0.0.1:80", ESTABLISHED, 5),
            tcp("10.0.0.1:5003", "10.0.0.7:80", ESTABLISHED, 6),
            tcp("0.0.0.0:80", "0.0.0.0:0", LISTEN, 7),
        ]);
        let of = |inode| net.conversation(inode).map(|c| (c.is_listening, c.is_server, c.peer));
        assert_eq!(of(1).map(|c| c.0), Some(true));
        assert_eq!(of(2), Some((false, true, Peer::Socket(3))));
        assert_eq!(of(3), Some((false, false, Peer::Socket(2))));
        assert_eq!(of(4), Some((false, false, Peer::Listeners(vec![1, 7]))));
        assert_eq!(of(5), Some((false, false, Peer::Unknown)), "the server has closed it");
        assert_eq!(of(6), Some((false, false, Peer::Address("10.0.0.7:80".parse().unwrap()))));
        assert_eq!(of(9), None);
        assert_eq!(net.same_listeners(&[1, 2]), [1, 7]);
    }

    #[test]
    fn a_connection_is_full_where_both_its_ends_say_so() {
        let ends = |sent: u32, arrived: u32| {
            let mut net = NetSockets::default();
            net.set_tcp(vec![
                Socket { receive_queue: 3, send_queue: 128, ..tcp("0.0.0.0:80", "0.0.0.0:0", LISTEN, 1) },
                Socket { send_queue: sent, ..tcp("127.0.0.1:80", "127.0.0.1:5000", ESTABLISHED, 2) },
                Socket { receive_queue: arrived, ..tcp("127.0.0.1:5000", "127.0.0.1:80", ESTABLISHED, 3) },
                Socket { send_queue: sent, ..tcp("10.0.0.1:80", "10.0.0.7:5000", ESTABLISHED, 4) },
            ]);
            net.unread(&[1, 2, 3, 4])
        };
        assert_eq!(ends(2_500_000, 6_000_000), [3]);
        assert!(ends(2_500_000, 0).is_empty(), "it is under way");
        assert!(ends(0, 6_000_000).is_empty(), "it has not come to it yet");
    }

    #[test]
    fn who_listens_at_every_address_does_so_only_where_nobody_listens_at_this_one() {
        let mut net = NetSockets::default();
        net.set_tcp(vec![
            tcp("[::]:80", "[::]:0", LISTEN, 1),
            tcp("127.0.0.1:80", "0.0.0.0:0", LISTEN, 2),
            tcp("0.0.0.0:81", "0.0.0.0:0", LISTEN, 3),
        ]);
        let at = |address: &str| net.listeners(address.parse().unwrap());
        assert_eq!((at("127.0.0.1:80"), at("127.0.0.2:80"), at("127.0.0.1:82")), (vec![2], vec![1], vec![]));
    }

    #[test]
    fn sixty_thousand_connections_are_not_gone_through_for_each_of_them() {
        let to_all = |n: u32| {
            let far = format!("10.0.{}.{}:5000", n >> 8, n & 255);
            tcp("10.1.0.1:80", &far, ESTABLISHED, n)
        };
        let mut net = NetSockets::default();
        net.set_tcp(
            (1..=60_000).map(to_all).chain([tcp("0.0.0.0:80", "0.0.0.0:0", LISTEN, 60_001)]).collect(),
        );
        let named = |n: u32| UnixSocket {
            state: 1,
            inode: n,
            peer: Some(0),
            name: Some(b"/run/a".to_vec()),
            ..UnixSocket::default()
        };
        net.set_unix((100_000..160_000).map(|n| (n, named(n))).collect());
        let allowance = crate::clock::Allowance::of(std::time::Duration::from_secs(1));
        assert!(
            (1..=60_000).all(|n| net.conversation(n).is_some_and(|found| found.is_tcp && found.is_server))
        );
        assert!((100_000..160_000).all(|n| net.conversation(n).is_some_and(|found| !found.is_server)));
        assert!(!allowance.is_used_up());
    }

    #[test]
    fn the_other_end_of_a_unix_socket() {
        let socket = |state, inode, peer, name: &[u8], pending: &[u32]| UnixSocket {
            state,
            inode,
            peer,
            name: (!name.is_empty()).then(|| name.to_vec()),
            pending: pending.to_vec(),
            ..UnixSocket::default()
        };
        let all = [
            socket(LISTEN, 1, None, b"/run/a", &[4]),
            socket(1, 2, Some(3), b"/run/a", &[]),
            socket(1, 3, Some(2), b"", &[]),
            socket(1, 4, Some(0), b"", &[]),
            socket(7, 5, None, b"/run/b", &[]),
        ];
        let mut net = NetSockets::default();
        net.set_unix(all.into_iter().map(|socket| (socket.inode, socket)).collect());
        let of = |inode| net.conversation(inode).map(|c| (c.is_listening, c.is_server, c.peer));
        assert_eq!(of(2), Some((false, true, Peer::Socket(3))));
        assert_eq!(of(3), Some((false, false, Peer::Socket(2))));
        assert_eq!(of(4), Some((false, false, Peer::Listeners(vec![1]))));
        assert_eq!(of(5), Some((false, false, Peer::Unknown)));
        assert_eq!(net.same_listeners(&[1, 2, 5]), [1]);
    }
}
