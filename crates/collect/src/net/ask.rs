//! Asks the kernel over netlink: for the queues of devices, and for sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mitra_parse::netlink::{End, Listener, Qdisc, Receiver, listeners, qdiscs, receivers};
use mitra_parse::sockets::{Socket, UnixSocket};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use super::rings;

/// The kernel fills at most this much at once.
const BUFFER_BYTES: usize = 32 * 1024;
/// As many pieces of an answer are read: a hundred listeners fit in one.
const PIECES_MAX: usize = 256;
/// Of an answer with all sockets: eighty with all that TCP knows of them fit in one.
const PIECES_OF_ALL_MAX: usize = 4096;

const REQUEST_DUMP: u16 = 0x1 | 0x300;
const GET_QDISC: u16 = 38;
/// The first form of the request, which asks for both families of addresses at once; each dump walks over the whole
/// table of listening sockets.
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDP: u8 = 17;
/// `INET_DIAG_SKMEMINFO` as a bit.
const WITH_MEMORY: u8 = 1 << 6;
/// `INET_DIAG_INFO` as a bit: what TCP knows of the connection.
const WITH_INFO: u8 = 1 << 1;
/// Both families of addresses have requests of their own.
const FAMILIES: [u8; 2] = [2, 10];
const TCP: u8 = 6;
const TCP_TIME_WAIT: u32 = 6;
const TCP_LISTEN: u32 = 10;
const UNIX: u8 = 1;
/// `UDIAG_SHOW_NAME`, `UDIAG_SHOW_PEER`, `UDIAG_SHOW_ICONS`.
const WITH_NAME_PEER_AND_PENDING: u32 = 0x1 | 0x4 | 0x8;
/// `UDIAG_SHOW_NAME`, `UDIAG_SHOW_RQLEN`.
const WITH_NAME_AND_QUEUES: u32 = 0x1 | 0x10;

/// Two sockets, of the network namespace in which they were opened.
#[derive(Debug)]
pub struct Sockets {
    route: OwnedFd,
    diag: OwnedFd,
}

/// A buffer for answers.
#[derive(Debug)]
pub struct Asker {
    buffer: Vec<u8>,
}

/// No protocol is the first one, `NETLINK_ROUTE`.
fn open(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    Ok(socket)
}

impl Sockets {
    /// Opens both.
    pub fn open() -> io::Result<Self> {
        Ok(Sockets { route: open(None)?, diag: open(Some(netlink::SOCK_DIAG))? })
    }

    /// The receive ring of a device, and the largest that its driver makes.
    pub fn ring(&self, device: &str) -> Option<[u32; 2]> {
        rings::ring(&self.route, device)
    }

    /// Whether a device is up and has a carrier.
    pub fn has_carrier(&self, device: &str) -> bool {
        rings::has_carrier(&self.route, device)
    }
}

/// A message with its header in front.
fn message(kind: u16, body: &[u8], out: &mut [u8; 128]) -> usize {
    const HEADER: usize = 16;
    let len = HEADER + body.len();
    let length = u32::try_from(len).unwrap_or(0).to_ne_bytes();
    let parts: [&[u8]; 5] = [&length, &kind.to_ne_bytes(), &REQUEST_DUMP.to_ne_bytes(), &[0; 8], body];
    for (to, from) in out.iter_mut().zip(parts.concat()) {
        *to = from;
    }
    len
}

/// `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, and no address.
fn diag_request(family: u8, protocol: u8, extensions: u8, states: u32) -> [u8; 56] {
    let mut body = [0; 56];
    let start = [family, protocol, extensions, 0].into_iter().chain(states.to_ne_bytes());
    body.iter_mut().zip(start).for_each(|(to, from)| *to = from);
    body
}

impl Asker {
    /// An empty buffer.
    pub fn new() -> Self {
        Asker { buffer: vec![0; BUFFER_BYTES] }
    }

    /// Calls `f` with the name of each device that queues packets, and its root discipline.
    pub fn qdiscs(&mut self, sockets: &Sockets, mut f: impl FnMut(&str, &Qdisc)) -> io::Result<()> {
        // `struct tcmsg`, all of it zero: every device.
        self.ask(&sockets.route, GET_QDISC, &[0; 20], |bytes| {
            qdiscs(bytes, |qdisc| {
                // A device that has gone meanwhile has no name any more.
                let name = rustix::net::netdevice::index_to_name_inlined(&sockets.route, qdisc.device);
                if let Ok(name) = name {
                    f(name.as_str(), qdisc);
                }
            })
        })
    }

    /// Calls `f` with each listening TCP socket.
    pub fn listeners(&mut self, sockets: &Sockets, mut f: impl FnMut(&Listener)) -> io::Result<()> {
        // `struct inet_diag_req`: four bytes that do not matter here, 48 of an address, the states, and a number.
        let mut body = [0; 60];
        let states = (1_u32 << TCP_LISTEN).to_ne_bytes();
        for (to, from) in body.iter_mut().skip(4 + 48).zip(states) {
            *to = from;
        }
        self.ask(&sockets.diag, TCPDIAG_GETSOCK, &body, |bytes| listeners(bytes, &mut f))
    }

    /// Calls `f` with each UDP socket that has dropped something.
    pub fn receivers(&mut self, sockets: &Sockets, mut f: impl FnMut(&Receiver)) -> io::Result<()> {
        for family in FAMILIES {
            let body = diag_request(family, UDP, WITH_MEMORY, u32::MAX);
            self.ask(&sockets.diag, SOCK_DIAG_BY_FAMILY, &body, |bytes| receivers(bytes, &mut f))?;
        }
        Ok(())
    }

    /// Calls `f` with each socket of a protocol, whatever its state.
    pub fn every(&mut self, sockets: &Sockets, protocol: u8, f: impl FnMut(&Socket)) -> io::Result<()> {
        self.of_protocol(sockets, protocol, (WITH_INFO | WITH_MEMORY, u32::MAX), PIECES_OF_ALL_MAX, f)
    }

    /// Calls `f` with each TCP socket that a process has or may have, without what TCP knows of it. An error where there are
    /// more than fit in `PIECES_MAX`, some 270 in each.
    pub fn connections(&mut self, sockets: &Sockets, f: impl FnMut(&Socket)) -> io::Result<()> {
        self.of_protocol(sockets, TCP, (0, !(1 << TCP_TIME_WAIT)), PIECES_MAX, f)
    }

    /// Calls `f` with each Unix socket.
    pub fn unix(&mut self, sockets: &Sockets, f: impl FnMut(&UnixSocket)) -> io::Result<()> {
        self.of_unix(sockets, u32::MAX, WITH_NAME_PEER_AND_PENDING, f)
    }

    /// Calls `f` with each Unix socket that listens.
    pub fn unix_listeners(&mut self, sockets: &Sockets, f: impl FnMut(&UnixSocket)) -> io::Result<()> {
        self.of_unix(sockets, 1 << TCP_LISTEN, WITH_NAME_AND_QUEUES, f)
    }

    fn of_unix(
        &mut self,
        sockets: &Sockets,
        states: u32,
        show: u32,
        mut f: impl FnMut(&UnixSocket),
    ) -> io::Result<()> {
        // `struct unix_diag_req`: family, protocol, padding, states, inode, what to show, and no cookie.
        let mut body = [0; 24];
        let states_on = [states, 0, show].map(u32::to_ne_bytes);
        let start = [UNIX, 0, 0, 0].into_iter().chain(states_on.into_iter().flatten());
        body.iter_mut().zip(start).for_each(|(to, from)| *to = from);
        let read = |bytes: &[u8]| mitra_parse::sockets::unix_sockets(bytes, &mut f);
        self.ask(&sockets.diag, SOCK_DIAG_BY_FAMILY, &body, read)
    }

    fn of_protocol(
        &mut self,
        sockets: &Sockets,
        protocol: u8,
        (extensions, states): (u8, u32),
        pieces_max: usize,
        mut f: impl FnMut(&Socket),
    ) -> io::Result<()> {
        for family in FAMILIES {
            let body = diag_request(family, protocol, extensions, states);
            let read = |bytes: &[u8]| mitra_parse::sockets::sockets(bytes, &mut f);
            match self.ask_long(&sockets.diag, SOCK_DIAG_BY_FAMILY, &body, pieces_max, read) {
                // A kernel without the module for a family or a protocol has no such sockets.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn ask(
        &mut self,
        socket: &OwnedFd,
        kind: u16,
        body: &[u8],
        read: impl FnMut(&[u8]) -> End,
    ) -> io::Result<()> {
        self.ask_long(socket, kind, body, PIECES_MAX, read)
    }

    fn ask_long(
        &mut self,
        socket: &OwnedFd,
        kind: u16,
        body: &[u8],
        pieces_max: usize,
        mut read: impl FnMut(&[u8]) -> End,
    ) -> io::Result<()> {
        let mut request = [0; 128];
        let len = message(kind, body, &mut request);
        // Without an address it goes to the kernel.
        rustix::net::send(socket.as_fd(), request.get(..len).unwrap_or_default(), SendFlags::empty())?;
        for _ in 0..pieces_max {
            // The kernel makes the answer while it is asked and read: there is nothing to wait for.
            let flags = RecvFlags::DONTWAIT;
            let (_, len) = rustix::net::recv(socket.as_fd(), &mut self.buffer[..], flags)?;
            match read(self.buffer.get(..len).unwrap_or_default()) {
                End::More if len > 0 => {}
                End::Done => return Ok(()),
                End::Failed(errno) if errno > 0 => return Err(io::Error::from_raw_os_error(errno)),
                End::More | End::Failed(_) => break,
            }
        }
        Err(io::Error::other("an answer over netlink that makes no sense"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_with_its_queue() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let clients: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        let sockets = match Sockets::open() {
            Ok(sockets) => sockets,
            Err(error) => return println!("skipped: {error}"),
        };
        let mut asker = Asker::new();
        let mut found = Vec::new();
        asker
            .listeners(&sockets, |l| {
                if l.port == port {
                    found.push((l.address, l.queue))
                }
            })
            .unwrap();
        assert_eq!(found, [("127.0.0.1".parse().unwrap(), 3)]);
        drop(clients);
        let path = std::env::temp_dir().join(format!("mitra-queue-{}", std::process::id()));
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let _clients = [(); 2].map(|()| std::os::unix::net::UnixStream::connect(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let mut found = Vec::new();
        let listed = asker.unix_listeners(&sockets, |l| {
            if l.name.as_ref().is_some_and(|name| name.starts_with(path.as_os_str().as_encoded_bytes())) {
                found.push(l.queues.map(|(queue, _)| queue));
            }
        });
        match listed {
            Ok(()) => assert_eq!(found, [Some(2)]),
            Err(error) => println!("skipped: {error}"),
        }
        asker.qdiscs(&sockets, |name, _| assert!(!name.is_empty())).unwrap();
    }
}
