//! Answers of `sock_diag` with the state of each socket: what `ss -tuoi` shows.
//!
//! See `include/uapi/linux/inet_diag.h`, `sock_diag.h` and `tcp.h`. `struct tcp_info` grows at its end: what an older
//! kernel does not send is not known.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::netlink::{End, attributes, messages, u16_at, u32_at};

const SOCK_DIAG: u16 = 20;
const INET: u8 = 2;
const INET6: u8 = 10;
/// `struct inet_diag_msg`.
const DIAG_BYTES: usize = 72;
/// `INET_DIAG_INFO`, `INET_DIAG_SKMEMINFO`.
const INFO: u16 = 2;
const MEMINFO: u16 = 7;

/// A TCP or UDP socket. Times in microseconds, sizes in bytes, as the kernel has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// The local address; IPv4-mapped ones as IPv4.
    pub local: SocketAddr,
    /// The remote address; all zeros without one.
    pub remote: SocketAddr,
    /// The number of the state (`include/net/tcp_states.h`).
    pub state: u8,
    /// Names the socket as long as it lives.
    pub cookie: u64,
    /// The inode number, as in the links of `/proc/PID/fd`; 0 where no process has it any more.
    pub inode: u32,
    /// Unread bytes; for a listening socket the connections in the accept queue.
    pub receive_queue: u32,
    /// Bytes that the other end has not acknowledged; of a listener how many connections may wait.
    pub send_queue: u32,
    /// Packets dropped because of the socket, mostly because its buffer was full.
    pub drops: Option<u32>,
    /// What TCP knows of the connection.
    pub tcp: Option<Tcp>,
}

/// `struct tcp_info`, what of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tcp {
    /// Retransmissions of the segment that is out now.
    pub retransmits: u8,
    /// The retransmission timeout.
    pub rto_us: u32,
    /// Segments that are out.
    pub unacked: u32,
    /// Of those the ones held for lost.
    pub lost: u32,
    /// Milliseconds since data was sent.
    pub last_data_sent_ms: u32,
    /// Milliseconds since data came.
    pub last_data_received_ms: u32,
    /// Round trip, smoothed.
    pub rtt_us: u32,
    /// Segments that may be out.
    pub cwnd: u32,
    /// Segments sent again, since it began.
    pub total_retransmits: u32,
    /// The shortest round trip; since 4.6.
    pub min_rtt_us: Option<u32>,
    /// Bytes that the other end has acknowledged; since 4.1.
    pub bytes_acked: Option<u64>,
    /// Bytes that came; since 4.1.
    pub bytes_received: Option<u64>,
    /// Bytes in the send queue that have not been sent; since 4.6.
    pub not_sent: Option<u32>,
    /// Time limited by the receive window of the peer; since 4.9.
    pub window_limited_us: Option<u64>,
    /// Time that it could not send because its own buffer was full; since 4.9.
    pub buffer_limited_us: Option<u64>,
}

/// Walks over the sockets of one buffer.
pub fn sockets(bytes: &[u8], mut f: impl FnMut(&Socket)) -> End {
    messages(bytes, |kind, body| {
        if kind == SOCK_DIAG
            && let Some(found) = socket(body)
        {
            f(&found);
        }
    })
}

fn socket(body: &[u8]) -> Option<Socket> {
    let family = *body.first()?;
    let mut found = Socket {
        local: SocketAddr::new(address(family, body.get(8..24)?)?, port(body, 4)?),
        remote: SocketAddr::new(address(family, body.get(24..40)?)?, port(body, 6)?),
        state: *body.get(1)?,
        cookie: u64_at(body, 44)?,
        receive_queue: u32_at(body, 56)?,
        send_queue: u32_at(body, 60)?,
        inode: u32_at(body, 68)?,
        drops: None,
        tcp: None,
    };
    attributes(body.get(DIAG_BYTES..)?, |kind, value| match kind {
        INFO => found.tcp = tcp(value),
        // The ninth word; since 3.16.
        MEMINFO => found.drops = u32_at(value, 32),
        _ => {}
    });
    Some(found)
}

fn port(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be(u16_at(bytes, at)?))
}

fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        INET => <[u8; 4]>::try_from(bytes.get(..4)?).ok().map(IpAddr::from),
        INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()),
        _ => None,
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn tcp(info: &[u8]) -> Option<Tcp> {
    Some(Tcp {
        retransmits: *info.get(2)?,
        rto_us: u32_at(info, 8)?,
        unacked: u32_at(info, 24)?,
        lost: u32_at(info, 32)?,
        last_data_sent_ms: u32_at(info, 44)?,
        last_data_received_ms: u32_at(info, 52)?,
        rtt_us: u32_at(info, 68)?,
        cwnd: u32_at(info, 80)?,
        total_retransmits: u32_at(info, 100)?,
        bytes_acked: u64_at(info, 120),
        bytes_received: u64_at(info, 128),
        not_sent: u32_at(info, 144),
        // What has seen no round trip has the largest number.
        min_rtt_us: u32_at(info, 148).filter(|rtt| *rtt != u32::MAX),
        window_limited_us: u64_at(info, 176),
        buffer_limited_us: u64_at(info, 184),
    })
}

/// A Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnixSocket {
    /// The number of the state, as of TCP: 10 listens.
    pub state: u8,
    /// The inode number, as in the links of `/proc/PID/fd`.
    pub inode: u32,
    /// The inode number of the socket at the other end; 0 where no process has accepted it yet.
    pub peer: Option<u32>,
    /// The name that it is bound to; one of an abstract address begins with a zero byte.
    pub name: Option<Vec<u8>>,
    /// Of a socket that listens the inode numbers of those that wait to be accepted.
    pub pending: Vec<u32>,
    /// Likewise how many wait, and how many may; of others bytes.
    pub queues: Option<(u32, u32)>,
}

/// Walks over the Unix sockets of one buffer (`include/uapi/linux/unix_diag.h`).
pub fn unix_sockets(bytes: &[u8], mut f: impl FnMut(&UnixSocket)) -> End {
    messages(bytes, |kind, body| {
        if kind == SOCK_DIAG
            && let Some(found) = unix_socket(body)
        {
            f(&found);
        }
    })
}

fn unix_socket(body: &[u8]) -> Option<UnixSocket> {
    /// `AF_UNIX`, and `struct unix_diag_msg`.
    const UNIX: u8 = 1;
    const UNIX_DIAG_BYTES: usize = 16;
    /// `UNIX_DIAG_NAME`, `UNIX_DIAG_PEER`, `UNIX_DIAG_ICONS`, `UNIX_DIAG_RQLEN`.
    const NAME: u16 = 0;
    const PEER: u16 = 2;
    const ICONS: u16 = 3;
    const RQLEN: u16 = 4;
    if *body.first()? != UNIX {
        return None;
    }
    let mut found = UnixSocket { state: *body.get(2)?, inode: u32_at(body, 4)?, ..UnixSocket::default() };
    attributes(body.get(UNIX_DIAG_BYTES..)?, |kind, value| match kind {
        NAME => found.name = Some(value.to_vec()),
        PEER => found.peer = u32_at(value, 0),
        ICONS => found.pending = value.chunks_exact(4).filter_map(|inode| u32_at(inode, 0)).collect(),
        RQLEN => found.queues = u32_at(value, 0).zip(u32_at(value, 4)),
        _ => {}
    });
    Some(found)
}

/// The name of a state of TCP.
#[must_use]
pub fn state_name(state: u8) -> &'static str {
    const NAMES: [&str; 13] = [
        "?",
        "ESTAB",
        "SYN-SENT",
        "SYN-RECV",
        "FIN-WAIT-1",
        "FIN-WAIT-2",
        "TIME-WAIT",
        "CLOSED",
        "CLOSE-WAIT",
        "LAST-ACK",
        "LISTEN",
        "CLOSING",
        "SYN-RECV",
    ];
    NAMES.get(usize::from(state)).copied().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_other_end_of_a_unix_socket() {
        let message = |state: u8, inode: u32, attributes: &[u8]| {
            let mut body = vec![1, 1, state, 0];
            body.extend(inode.to_ne_bytes());
            body.extend([0; 8]);
            body.extend(attributes);
            let mut out = (16 + body.len() as u32).to_ne_bytes().to_vec();
            out.extend(20_u16.to_ne_bytes());
            out.extend([0; 10]);
            out.extend(body);
            out
        };
        let connected = message(1, 7, &attribute(2, &8_u32.to_ne_bytes()));
        let waiting = [9_u32, 10].map(u32::to_ne_bytes).concat();
        let listening = message(10, 11, &[attribute(0, b"/run/a\0"), attribute(3, &waiting)].concat());
        let bytes = [connected, listening].concat();
        let mut found = Vec::new();
        assert_eq!(unix_sockets(&bytes, |socket| found.push(socket.clone())), End::More);
        let first = UnixSocket { state: 1, inode: 7, peer: Some(8), ..UnixSocket::default() };
        let name = Some(b"/run/a\0".to_vec());
        let second = UnixSocket { state: 10, inode: 11, name, pending: vec![9, 10], ..UnixSocket::default() };
        assert_eq!(found, [first, second]);
        for cut in 0..bytes.len() {
            let _any_answer = unix_sockets(&bytes[..cut], |_| {});
        }
    }

    fn message(family: u8, info: &[u8]) -> Vec<u8> {
        let mut body = vec![0; DIAG_BYTES];
        body[0] = family;
        body[1] = 1;
        body[4..6].copy_from_slice(&443_u16.to_be_bytes());
        body[6..8].copy_from_slice(&50_000_u16.to_be_bytes());
        body[8..12].copy_from_slice(&[10, 0, 0, 1]);
        body[24..28].copy_from_slice(&[10, 0, 0, 2]);
        body[44..52].copy_from_slice(&77_u64.to_ne_bytes());
        body[56..60].copy_from_slice(&5_u32.to_ne_bytes());
        body[60..64].copy_from_slice(&6_u32.to_ne_bytes());
        body[68..72].copy_from_slice(&4242_u32.to_ne_bytes());
        body.extend(attribute(INFO, info));
        let mut memory = vec![0; 36];
        memory[32..36].copy_from_slice(&9_u32.to_ne_bytes());
        body.extend(attribute(MEMINFO, &memory));
        let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(SOCK_DIAG.to_ne_bytes());
        bytes.resize(16, 0);
        bytes.extend(body);
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<Socket> {
        let mut found = Vec::new();
        _ = sockets(bytes, |socket| found.push(*socket));
        found
    }

    #[test]
    fn a_connection_has_its_ends_queues_and_times() {
        let mut info = vec![0; 232];
        info[68..72].copy_from_slice(&12_000_u32.to_ne_bytes());
        info[80..84].copy_from_slice(&10_u32.to_ne_bytes());
        info[100..104].copy_from_slice(&3_u32.to_ne_bytes());
        info[120..128].copy_from_slice(&1_000_000_u64.to_ne_bytes());
        info[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        let found = read(&message(INET, &info));
        let [socket] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(socket.local, "10.0.0.1:443".parse().unwrap());
        assert_eq!(socket.remote, "10.0.0.2:50000".parse().unwrap());
        assert_eq!((socket.receive_queue, socket.send_queue, socket.inode), (5, 6, 4242));
        assert_eq!((socket.cookie, socket.drops), (77, Some(9)));
        let tcp = socket.tcp.unwrap();
        assert_eq!((tcp.rtt_us, tcp.cwnd, tcp.total_retransmits), (12_000, 10, 3));
        assert_eq!((tcp.bytes_acked, tcp.min_rtt_us), (Some(1_000_000), None));
        assert_eq!(state_name(socket.state), "ESTAB");
    }

    #[test]
    fn an_older_kernel_knows_less() {
        let found = read(&message(INET, &[0; 104]));
        let tcp = found[0].tcp.unwrap();
        assert_eq!((tcp.bytes_acked, tcp.window_limited_us), (None, None));
        assert_eq!(read(&message(INET, &[0; 50]))[0].tcp, None);
    }

    #[test]
    fn what_is_cut_or_of_another_family_is_left_out() {
        assert!(read(&message(1, &[0; 104])).is_empty());
        let whole = message(INET6, &[0; 104]);
        for len in 0..whole.len() {
            _ = read(&whole[..len]);
        }
        assert_eq!(read(&whole).len(), 1);
    }
}
