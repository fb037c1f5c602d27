//! Which process of this machine has the other end of a TCP connection that a server names by its address.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};

use crate::file::{Buffer, FILE_BYTES_MAX, Root, each_entry, inode_in_link};
use crate::net::owner::Search;

/// As many descriptors of a process are looked at.
const DESCRIPTORS_MAX: usize = 1024;
/// All processes are searched for the others, in steps of ten milliseconds.
const STEPS_MAX: usize = 10;
/// For the clients of a server they are searched once in this time.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// As many connections of a server are known, and as many servers.
const KNOWN_MAX: usize = 256;
const SERVERS_MAX: usize = 16;

/// Those that were found before, by the process of the server. A client keeps its connection for long.
#[derive(Debug, Default)]
pub struct Clients {
    servers: HashMap<u32, ServerClients>,
}

#[derive(Debug)]
struct ServerClients {
    known: Vec<Client>,
    asked: Instant,
    /// When all processes were searched.
    searched: Option<Instant>,
}

#[derive(Debug)]
struct Client {
    address: SocketAddr,
    pid: Option<u32>,
    /// Whether it was found, or every process was searched for it, or it has no socket here. Another one is searched for again.
    is_certain: bool,
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
        self.find_within(root, server, wanted, likely, STEPS_MAX)
    }

    fn find_within(
        &mut self,
        root: &Root,
        server: u32,
        wanted: &[SocketAddr],
        likely: &[u32],
        steps_max: usize,
    ) -> Vec<(SocketAddr, u32)> {
        let ServerClients { known, searched, .. } = self.of(server);
        let is_due = searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY);
        known.retain(|client| wanted.contains(&client.address) && (client.is_certain || !is_due));
        let new = |address: &&SocketAddr| !known.iter().any(|client| client.address == **address);
        let room = KNOWN_MAX.saturating_sub(known.len());
        let new: Vec<SocketAddr> = wanted.iter().filter(new).copied().take(room).collect();
        if !new.is_empty() {
            let (inodes, are_all_there) = inodes(root, server, &new);
            let likely = |inode: u32| likely.iter().copied().find(|pid| owns(root, *pid, inode));
            let owners: Vec<Option<u32>> = inodes.iter().map(|inode| (*inode).and_then(likely)).collect();
            let left = inodes.iter().zip(&owners).filter(|(_, owner)| owner.is_none());
            let left: Vec<u32> = left.filter_map(|(inode, _)| *inode).collect();
            if is_due && !(left.is_empty() && are_all_there) {
                *searched = Some(Instant::now());
            }
            let (others, has_ended) = if left.is_empty() || !is_due {
                (Vec::new(), left.is_empty())
            } else {
                search(left, steps_max)
            };
            for ((address, inode), owner) in new.into_iter().zip(inodes).zip(owners) {
                let found = others.iter().find(|(socket, _)| Some(*socket) == inode);
                let pid = owner.or(found.map(|(_, pid)| *pid));
                let is_certain = pid.is_some() || if inode.is_some() { has_ended } else { are_all_there };
                known.push(Client { address, pid, is_certain });
            }
        }
        known.iter().filter_map(|client| Some((client.address, client.pid?))).collect()
    }

    /// What is known of a server. For a new one that is forgotten that was asked longest ago.
    fn of(&mut self, server: u32) -> &mut ServerClients {
        let now = Instant::now();
        if self.servers.len() >= SERVERS_MAX
            && !self.servers.contains_key(&server)
            && let Some(oldest) = self.servers.iter().min_by_key(|(_, one)| one.asked).map(|(pid, _)| *pid)
        {
            self.servers.remove(&oldest);
        }
        let new = || ServerClients { known: Vec::new(), asked: now, searched: None };
        let one = self.servers.entry(server).or_insert_with(new);
        one.asked = now;
        one
    }
}

/// The sockets at these addresses, in the network namespace of the server: `/proc/PID/net/tcp` and `tcp6`. And whether both tables
/// were read whole.
fn inodes(root: &Root, server: u32, clients: &[SocketAddr]) -> (Vec<Option<u32>>, bool) {
    let mut found = vec![None; clients.len()];
    let mut are_all_there = true;
    let mut buffer = Buffer::default();
    for file in ["tcp", "tcp6"] {
        let table = match root.read(&format!("proc/{server}/net/{file}"), &mut buffer) {
            Ok(table) => table,
            Err(error) => {
                // A kernel without IPv6 has no such table.
                are_all_there &= file == "tcp6" && error.kind() == ErrorKind::NotFound;
                continue;
            }
        };
        are_all_there &= table.len() < FILE_BYTES_MAX;
        for (local, inode) in table.split(|byte| *byte == b'\n').filter_map(socket) {
            for (client, found) in clients.iter().zip(&mut found) {
                if *client == local {
                    *found = Some(inode);
                }
            }
        }
    }
    (found, are_all_there)
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

/// Which processes have some sockets, and whether all were searched for them.
fn search(sockets: Vec<u32>, steps_max: usize) -> (Vec<(u32, u32)>, bool) {
    let Some(mut search) = Search::begin(sockets) else { return (Vec::new(), false) };
    let has_ended = (0..steps_max).any(|_| search.step());
    (search.found().iter().map(|owner| (owner.inode, owner.pid)).collect(), has_ended)
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
    fn two_servers_are_known_and_a_search_that_was_cut_off_is_made_again_later() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let address = client.local_addr().unwrap();
        let root = Root::open("/".as_ref()).unwrap();
        let us = std::process::id();
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut clients = Clients::default();
        let find = |clients: &mut Clients, server: u32, steps_max: usize| {
            let found = clients.find_within(&root, server, &[address], &[], steps_max);
            (found, clients.servers.get(&server).and_then(|one| one.searched))
        };
        let (found, first) = find(&mut clients, us, 0);
        assert_eq!((found, first.is_some()), (Vec::new(), true), "cut off");
        assert_eq!(find(&mut clients, other.id(), STEPS_MAX).0, [(address, us)]);
        assert_eq!(find(&mut clients, us, STEPS_MAX), (Vec::new(), first), "too soon");
        clients.servers.values_mut().for_each(|one| one.searched = None);
        assert_eq!(find(&mut clients, us, STEPS_MAX).0, [(address, us)]);
        assert_eq!(find(&mut clients, other.id(), 0), (vec![(address, us)], None), "it is known");
        other.kill().unwrap();
        other.wait().unwrap();
        for server in 0..100 {
            clients.find(&root, u32::MAX - server, &[], &[]);
        }
        assert_eq!(clients.servers.len(), SERVERS_MAX);
    }

    #[test]
    fn who_is_in_no_table_is_certain_only_if_both_were_read_whole() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let address = client.local_addr().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let at = |file: &str| dir.path().join("proc/7/net").join(file);
        std::fs::create_dir_all(at("")).unwrap();
        // Long enough after the search before.
        let find = |clients: &mut Clients| {
            clients.servers.values_mut().for_each(|one| one.searched = None);
            clients.find(&root, 7, &[address], &[])
        };
        let full = std::fs::read("/proc/self/net/tcp").unwrap();
        let mut clients = Clients::default();
        assert_eq!(find(&mut clients), [], "there is no table");
        assert!(clients.servers[&7].searched.is_some(), "the tables are not read all the time");
        std::fs::File::create(at("tcp")).unwrap().set_len(FILE_BYTES_MAX as u64 + 1).unwrap();
        assert_eq!(find(&mut clients), [], "the table is cut");
        std::fs::write(at("tcp"), "").unwrap();
        std::fs::create_dir(at("tcp6")).unwrap();
        assert_eq!(find(&mut clients), [], "the other one cannot be read");
        std::fs::write(at("tcp"), &full).unwrap();
        assert_eq!(find(&mut clients), [(address, std::process::id())]);

        // Without IPv6 there is one table.
        std::fs::remove_dir(at("tcp6")).unwrap();
        std::fs::write(at("tcp"), "").unwrap();
        let mut clients = Clients::default();
        assert_eq!(find(&mut clients), []);
        std::fs::write(at("tcp"), &full).unwrap();
        assert_eq!(find(&mut clients), [], "it has no socket here: that is certain");
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
