//! Which process of this machine has the other end of a TCP connection that a server names by its address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;

use rustix::fs::{Mode, OFlags, openat};

use crate::file::{Buffer, Root, each_entry, inode_in_link};
use crate::net::owner::Search;

/// As many descriptors of a process are looked at.
const DESCRIPTORS_MAX: usize = 1024;
/// All processes are searched for the others, in steps of ten milliseconds.
const STEPS_MAX: usize = 10;
/// As many connections of a server are known.
const KNOWN_MAX: usize = 256;

/// Those that were found before. A client keeps its connection for long.
#[derive(Debug, Default)]
pub struct Clients {
    server: u32,
    known: Vec<(SocketAddr, Option<u32>)>,
}

impl Clients {
    /// The processes at some addresses, first out of those that are likely: who asked once, and holds a lock since, is none of them.
    pub fn find(
        &mut self,
        root: &Root,
        server: u32,
        wanted: &[SocketAddr],
        likely: &[u32],
    ) -> Vec<(SocketAddr, u32)> {
        if std::mem::replace(&mut self.server, server) != server {
            self.known.clear();
        }
        self.known.retain(|(client, _)| wanted.contains(client));
        let new = |client: &&SocketAddr| !self.known.iter().any(|(known, _)| known == *client);
        let new: Vec<SocketAddr> = wanted.iter().filter(new).copied().take(KNOWN_MAX).collect();
        if !new.is_empty() {
            let inodes = inodes(root, server, &new);
            let likely = |inode: u32| likely.iter().copied().find(|pid| owns(root, *pid, inode));
            let mut owners: Vec<Option<u32>> = inodes.iter().map(|inode| (*inode).and_then(likely)).collect();
            let left = inodes.iter().zip(&owners).filter(|(_, owner)| owner.is_none());
            let others = search(left.filter_map(|(inode, _)| *inode).collect());
            for (owner, inode) in owners.iter_mut().zip(&inodes) {
                let found = others.iter().find(|(socket, _)| Some(*socket) == *inode);
                *owner = owner.or(found.map(|(_, pid)| *pid));
            }
            self.known.extend(new.into_iter().zip(owners));
        }
        self.known.iter().filter_map(|(client, pid)| Some((*client, (*pid)?))).collect()
    }
}

/// The sockets at these addresses, in the network namespace of the server: `/proc/PID/net/tcp` and `tcp6`.
fn inodes(root: &Root, server: u32, clients: &[SocketAddr]) -> Vec<Option<u32>> {
    let mut found = vec![None; clients.len()];
    let mut buffer = Buffer::default();
    for file in ["tcp", "tcp6"] {
        let Ok(table) = root.read(&format!("proc/{server}/net/{file}"), &mut buffer) else { continue };
        for (local, inode) in table.split(|byte| *byte == b'\n').filter_map(socket) {
            for (client, found) in clients.iter().zip(&mut found) {
                if *client == local {
                    *found = Some(inode);
                }
            }
        }
    }
    found
}

/// Local address and inode of a line: `0: 0100007F:0CEA 0100007F:8E2C 01 00000000:… 0 21871 …`.
fn socket(line: &[u8]) -> Option<(SocketAddr, u32)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (address, port) = words.nth(1)?.split_once(':')?;
    let inode = words.nth(7)?.parse().ok().filter(|inode| *inode != 0)?;
    let word = |i: usize| Some(u32::from_str_radix(address.get(8 * i..8 * i + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?)).to_canonical()
        }
        _ => return None,
    };
    Some((SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?), inode))
}

/// Which processes have some sockets.
fn search(sockets: Vec<u32>) -> Vec<(u32, u32)> {
    let Some(mut search) = (!sockets.is_empty()).then(|| Search::begin(sockets)).flatten() else {
        return Vec::new();
    };
    let _has_ended = (0..STEPS_MAX).any(|_| search.step());
    search.found().iter().map(|owner| (owner.inode, owner.pid)).collect()
}

fn owns(root: &Root, pid: u32, socket: u32) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = openat(root.fd(), format!("proc/{pid}/fd"), flags, Mode::empty()) else { return false };
    let (mut seen, mut is_own) = (0, false);
    let listed = each_entry(dir.as_fd(), |name| {
        seen += 1;
        is_own |= !is_own && seen <= DESCRIPTORS_MAX && inode_in_link(&dir, name, b"socket") == Some(socket);
    });
    listed.is_ok() && is_own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_at_the_other_end_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let client = client.local_addr().map(|address| (client, address)).unwrap();
        let root = Root::open("/".as_ref()).unwrap();
        let us = std::process::id();
        let mut clients = Clients::default();
        assert_eq!(clients.find(&root, us, &[client.1], &[1, us]), [(client.1, us)]);
        assert_eq!(
            Clients::default().find(&root, us, &[client.1], &[]),
            [(client.1, us)],
            "all are searched"
        );
        let other = "127.0.0.1:1".parse().unwrap();
        assert_eq!(clients.find(&root, us, &[other], &[us]), []);
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let line = |local: &str| format!("   0: {local} 0100007F:8E2C 01 0:0 0:0 0 0 0 21871 1 0");
        let of = |local: &str| socket(line(local).as_bytes()).map(|(at, inode)| (at.to_string(), inode));
        let little = cfg!(target_endian = "little");
        if little {
            assert_eq!(of("0100007F:0CEA"), Some(("127.0.0.1:3306".to_owned(), 21871)));
            assert_eq!(
                of("0000000000000000FFFF00000100007F:0CEA"),
                Some(("127.0.0.1:3306".to_owned(), 21871))
            );
        }
        assert_eq!(of("0100:0CEA"), None);
        assert_eq!(of("sl"), None);
    }
}
