//! Answers of netlink: the queueing disciplines of `RTM_GETQDISC`, and the listening sockets of `sock_diag`.
//!
//! An answer is a row of messages, each with its length in front; so are the attributes of a message. Numbers are in
//! the machine's byte order, ports and addresses in that of the network. See `include/uapi/linux/netlink.h`,
//! `rtnetlink.h`, `gen_stats.h` and `inet_diag.h`, which only ever grow at their ends.

use std::net::{IpAddr, Ipv6Addr};

const HEADER: usize = 16;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_QDISC: u16 = 36;
/// The answers to `SOCK_DIAG_BY_FAMILY`, and to the request before it.
const SOCK_DIAG: [u16; 2] = [20, 18];
const INTERRUPTED: u16 = 0x10;

/// `TCA_KIND`, `TCA_STATS`, `TCA_STATS2`; inside the last `TCA_STATS_QUEUE`.
const KIND: u16 = 1;
const STATS: u16 = 3;
const STATS2: u16 = 7;
const STATS_QUEUE: u16 = 3;
/// The parent of the root queueing discipline, whose numbers include those below.
const ROOT: u32 = 0xffff_ffff;

/// What one buffer of an answer ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// There is more to be read.
    More,
    /// That was all.
    Done,
    /// The kernel refused with this error number; 0 for a malformed message.
    Failed(i32),
}

/// What a device waits to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Qdisc {
    /// The number of the device.
    pub device: u32,
    /// Bytes that wait.
    pub backlog_bytes: u32,
    /// Packets that wait.
    pub backlog_packets: u32,
    /// Packets dropped.
    pub drops: u32,
    /// Packets that the device did not take.
    pub requeues: u32,
    /// Times that a rate held a packet back.
    pub overlimits: u32,
}

/// A TCP socket that accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// The local address; IPv4-mapped ones as IPv4.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Connections that wait to be accepted.
    pub queue: u32,
    /// How many may wait.
    pub backlog: u32,
    /// The inode number of the socket, as in the links of `/proc/PID/fd`.
    pub inode: u32,
}

/// A UDP socket that has dropped datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receiver {
    /// The local address; IPv4-mapped ones as IPv4.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Datagrams that it dropped since it was opened, mostly because its receive buffer was full.
    pub drops: u32,
    /// The inode number of the socket, as in the links of `/proc/PID/fd`.
    pub inode: u32,
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Walks over the messages of one buffer. `f` gets the type and the body of each that is neither end nor error.
pub(crate) fn messages(mut bytes: &[u8], mut f: impl FnMut(u16, &[u8])) -> End {
    while !bytes.is_empty() {
        let (Some(len), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) else { return End::Failed(0) };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let Some(body) = bytes.get(HEADER..len) else { return End::Failed(0) };
        match kind {
            DONE => return End::Done,
            ERROR => return End::Failed(u32_at(body, 0).map_or(0, |e| (e as i32).wrapping_neg())),
            _ => f(kind, body),
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    End::More
}

/// Walks over attributes.
pub(crate) fn attributes<'a>(mut bytes: &'a [u8], mut f: impl FnMut(u16, &'a [u8])) {
    while let (Some(len), Some(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) {
        let Some(value) = bytes.get(4..usize::from(len)) else { return };
        // The two highest bits are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
        f(kind & 0x3fff, value);
        bytes = bytes.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
    }
}

/// The root discipline of each device that has a real one: `noqueue` never holds a packet.
pub fn qdiscs(bytes: &[u8], mut f: impl FnMut(&Qdisc)) -> End {
    messages(bytes, |kind, body| {
        if kind == NEW_QDISC
            && let Some(found) = qdisc(body)
        {
            f(&found);
        }
    })
}

fn qdisc(body: &[u8]) -> Option<Qdisc> {
    /// `struct tcmsg`: family, number of the device, handle, parent, info.
    const TCMSG: usize = 20;
    let mut found = Qdisc { device: u32_at(body, 4)?, ..Qdisc::default() };
    if u32_at(body, 12)? != ROOT {
        return None;
    }
    let mut is_real = false;
    let mut has_numbers = false;
    attributes(body.get(TCMSG..)?, |kind, value| match kind {
        KIND => is_real = !value.starts_with(b"noqueue"),
        STATS2 => attributes(value, |kind, value| {
            let numbers = [0, 4, 8, 12, 16].map(|at| u32_at(value, at));
            if let (STATS_QUEUE, [Some(packets), Some(bytes), Some(drops), Some(requeues), Some(over)]) =
                (kind, numbers)
            {
                (found.backlog_packets, found.backlog_bytes) = (packets, bytes);
                (found.drops, found.requeues, found.overlimits) = (drops, requeues, over);
                has_numbers = true;
            }
        }),
        // The older form has no count of requeues; it comes along with the newer one.
        STATS => {}
        _ => {}
    });
    (is_real && has_numbers).then_some(found)
}

/// The listening sockets.
pub fn listeners(bytes: &[u8], mut f: impl FnMut(&Listener)) -> End {
    messages(bytes, |kind, body| {
        if SOCK_DIAG.contains(&kind)
            && let Some(found) = listener(body)
        {
            f(&found);
        }
    })
}

/// `INET_DIAG_SKMEMINFO`: nine numbers of a socket's memory, of which the last one is `SK_MEMINFO_DROPS`.
const SKMEMINFO: u16 = 7;
const DROPS_AT: usize = 8 * 4;
/// `struct inet_diag_msg`.
const DIAG_BYTES: usize = 72;

/// The UDP sockets that have dropped something, of an answer with the numbers of their memory.
pub fn receivers(bytes: &[u8], mut f: impl FnMut(&Receiver)) -> End {
    messages(bytes, |kind, body| {
        if SOCK_DIAG.contains(&kind)
            && let Some(found) = receiver(body)
        {
            f(&found);
        }
    })
}

fn receiver(body: &[u8]) -> Option<Receiver> {
    let (address, port) = source(body)?;
    let mut drops = 0;
    attributes(body.get(DIAG_BYTES..)?, |kind, value| {
        if kind == SKMEMINFO {
            // Kernels before 4.6 have no such number there.
            drops = u32_at(value, DROPS_AT).unwrap_or(0);
        }
    });
    (drops > 0).then_some(Receiver { address, port, drops, inode: u32_at(body, 68)? })
}

/// The address and the port at this end of a socket.
fn source(body: &[u8]) -> Option<(IpAddr, u16)> {
    const V4: u8 = 2;
    const V6: u8 = 10;
    let source = body.get(8..24)?;
    let address = match *body.first()? {
        V4 => {
            let four: [u8; 4] = source.get(..4)?.try_into().ok()?;
            IpAddr::from(four)
        }
        V6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(source).ok()?)).to_canonical(),
        _ => return None,
    };
    let port: [u8; 2] = body.get(4..6)?.try_into().ok()?;
    Some((address, u16::from_be_bytes(port)))
}

fn listener(body: &[u8]) -> Option<Listener> {
    let (address, port) = source(body)?;
    Some(Listener {
        address,
        port,
        queue: u32_at(body, 56)?,
        backlog: u32_at(body, 60)?,
        inode: u32_at(body, 68)?,
    })
}

/// NLM_F_DUMP_INTR: the list changed during the dump, and entries may be missing or doubled.
#[must_use]
pub fn is_interrupted(bytes: &[u8]) -> bool {
    u16_at(bytes, 6).is_some_and(|flags| flags & INTERRUPTED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(u32::try_from(HEADER + body.len()).unwrap().to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend([0; 10]);
        out.extend(body);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_ne_bytes()).collect()
    }

    fn qdisc_message(device: u32, parent: u32, kind: &[u8]) -> Vec<u8> {
        let mut body = words(&[0, device, 0x8001_0000, parent, 2]);
        body.extend(attribute(KIND, kind));
        body.extend(attribute(0x8000 | STATS2, &attribute(STATS_QUEUE, &words(&[3, 4500, 70, 1, 99]))));
        message(NEW_QDISC, &body)
    }

    #[test]
    fn only_roots_that_can_hold_packets() {
        let mut bytes = qdisc_message(2, ROOT, b"tbf\0");
        bytes.extend(qdisc_message(2, 0x8001_0001, b"bfifo\0"));
        bytes.extend(qdisc_message(1, ROOT, b"noqueue\0"));
        bytes.extend(message(DONE, &[0; 4]));
        let mut found = Vec::new();
        assert_eq!(qdiscs(&bytes, |q| found.push(*q)), End::Done);
        let wanted = Qdisc {
            device: 2,
            backlog_bytes: 4500,
            backlog_packets: 3,
            drops: 70,
            requeues: 1,
            overlimits: 99,
        };
        assert_eq!(found, [wanted]);
    }

    #[test]
    fn addresses_of_listeners() {
        let body = |family: u8, address: [u8; 16]| {
            let mut body = vec![family, 10, 0, 0, 0x1f, 0x90, 0, 0];
            body.extend(address);
            body.extend([0; 16 + 4 + 8]);
            body.extend(words(&[0, 5, 128, 1000, 4242]));
            body
        };
        let mut four = [0; 16];
        four[..4].copy_from_slice(&[127, 0, 0, 1]);
        let mapped = std::net::Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped().octets();
        let mut bytes = message(18, &body(2, four));
        bytes.extend(message(20, &body(10, mapped)));
        bytes.extend(message(20, &body(10, [0; 16])));
        bytes.extend(message(20, &body(1, [0; 16])));
        let mut found = Vec::new();
        assert_eq!(listeners(&bytes, |l| found.push(*l)), End::More);
        let names: Vec<_> = found.iter().map(|l| l.address.to_string()).collect();
        assert_eq!(names, ["127.0.0.1", "10.0.0.7", "::"]);
        assert!(found.iter().all(|l| (l.port, l.queue, l.backlog, l.inode) == (8080, 5, 128, 4242)));
    }

    #[test]
    fn only_sockets_that_have_dropped() {
        let socket = |drops: u32| {
            let mut body = vec![2, 7, 0, 0, 0x00, 0x35, 0, 0, 10, 0, 0, 7];
            body.extend([0; 12 + 16 + 4 + 8]);
            body.extend(words(&[0, 700, 0, 0, 4242]));
            body.extend(attribute(5, &[1]));
            body.extend(attribute(SKMEMINFO, &words(&[900, 4096, 0, 4096, 0, 0, 0, 0, drops])));
            message(SOCK_DIAG[0], &body)
        };
        let bytes = [socket(0), socket(12)].concat();
        let mut found = Vec::new();
        assert_eq!(receivers(&bytes, |r| found.push(*r)), End::More);
        let address = "10.0.0.7".parse().unwrap();
        assert_eq!(found, [Receiver { address, port: 53, drops: 12, inode: 4242 }]);
        for cut in 0..bytes.len() {
            let _any_answer = receivers(&bytes[..cut], |_| {});
        }
    }

    #[test]
    fn damage_and_refusal() {
        let refused = message(ERROR, &words(&[(-1_i32) as u32]));
        assert_eq!(qdiscs(&refused, |_| {}), End::Failed(1));
        let whole = qdisc_message(2, ROOT, b"tbf\0");
        for cut in 0..whole.len() {
            let mut count = 0;
            let end = qdiscs(&whole[..cut], |_| count += 1);
            assert_eq!((end, count), (if cut == 0 { End::More } else { End::Failed(0) }, 0), "{cut}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bad = whole.clone();
                bad[at] = byte;
                let _any_answer = (qdiscs(&bad, |_| {}), listeners(&bad, |_| {}));
            }
        }
        assert!(!is_interrupted(&whole) && !is_interrupted(&[]));
    }
}
