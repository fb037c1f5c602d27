//! UDP servers and clients, among them a small name server and a client that looks up names.

use std::fs;
use std::io;
use std::net::{ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::tcp::delay;
use super::words::{address, number};
use super::{Meter, Role, XorShift};

/// The roles of this file.
pub const ROLES: &[Role] = &[
    ("udp-serve", serve),
    ("udp-ask", ask),
    ("udp-load", load),
    ("udp-swallow", swallow),
    ("dns-serve", dns_serve),
    ("lookup", lookup),
];

/// The first byte of a datagram that wants an answer.
const WANTS_ANSWER: u8 = 1;

/// `ADDR RCVBUF FILE`: takes one datagram after the other, works on each as long as the file says,
/// answers if requested.
fn serve(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let socket = UdpSocket::bind(address)?;
    let bytes = usize::try_from(number(&words, 0, 65_536)).unwrap_or(65_536);
    sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    let file = words.get(1).copied().unwrap_or_default();
    let mut datagram = [0_u8; 2048];
    loop {
        let (n, from) = socket.recv_from(&mut datagram)?;
        sleep(delay(file));
        if let Some(asked) = datagram.get(..n).filter(|d| d.first() == Some(&WANTS_ANSWER)) {
            _ = socket.send_to(asked, from);
        }
    }
}

/// `ADDR EVERY_MS PATIENCE_MS`: sends a request and waits for exactly its answer. Up to three
/// attempts.
fn ask(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let every = Duration::from_millis(number(&words, 0, 20));
    let patience = Duration::from_millis(number(&words, 1, 250));
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(patience))?;
    let mut meter = Meter::create()?;
    let mut count = 0_u64;
    loop {
        count += 1;
        let mut question = [0_u8; 16];
        question[0] = WANTS_ANSWER;
        question[8..].copy_from_slice(&count.to_le_bytes());
        meter.measure(|| {
            (0..3).find_map(|_| asked(&socket, &question).ok()).ok_or(io::ErrorKind::TimedOut.into())
        })?;
        sleep(every);
    }
}

fn asked(socket: &UdpSocket, question: &[u8; 16]) -> io::Result<()> {
    socket.send(question)?;
    let mut answer = [0_u8; 16];
    loop {
        if socket.recv(&mut answer)? == question.len() && answer == *question {
            return Ok(());
        }
    }
}

/// `ADDR PER_S BYTES BURST`: sends datagrams at a fixed rate in bursts, without expecting answers.
fn load(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let per_s = number(&words, 0, 100).max(1) as f64;
    let body = vec![0_u8; usize::try_from(number(&words, 1, 1_000)).unwrap_or(1_000)];
    let burst = number(&words, 2, 1).max(1);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address)?;
    let (start, mut sent) = (Instant::now(), 0_u64);
    loop {
        let due = (start.elapsed().as_secs_f64() * per_s) as u64;
        // Skips what is overdue by more than a tenth of a second.
        sent = sent.max(due.saturating_sub((per_s / 10.0) as u64));
        while sent < due {
            for _ in 0..burst {
                // A send may return the ICMP error of the one before instead of sending. Then
                // repeat it.
                if socket.send(&body).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
                    _ = socket.send(&body);
                }
            }
            sent += burst;
        }
        sleep(Duration::from_millis(2));
    }
}

/// `ADDR`: reads datagrams and drops them.
fn swallow(argument: &str) -> io::Result<()> {
    let (address, _) = address(argument)?;
    let socket = UdpSocket::bind(address)?;
    _ = sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
    let mut datagram = [0_u8; 2048];
    loop {
        socket.recv(&mut datagram)?;
    }
}

/// What the name server does to a kind of query.
#[derive(Clone, Copy, Default)]
struct Manner {
    late: Duration,
    drop_percent: u64,
}

/// `aaaa late 1500`, `nx late 800`, `all drop 30`: lines of the server's control file.
fn manner(file: &str, is_aaaa: bool, is_unknown: bool) -> Manner {
    let mut manner = Manner::default();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let mut words = line.split_whitespace();
        let (Some(kind), Some(what), Some(number)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let applies = match kind {
            "aaaa" => is_aaaa,
            "nx" => is_unknown,
            _ => true,
        };
        let number: u64 = number.parse().unwrap_or(0);
        match what {
            "late" if applies => manner.late = Duration::from_millis(number),
            "drop" if applies => manner.drop_percent = number,
            _ => {}
        }
    }
    manner
}

/// The query of a datagram: its end, the labels of its name and its type.
fn question(datagram: &[u8]) -> Option<(usize, usize, u16)> {
    let (mut at, mut labels) = (12, 0);
    loop {
        let length = usize::from(*datagram.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels += 1;
        at += length;
    }
    let kind = u16::from_be_bytes([*datagram.get(at)?, *datagram.get(at + 1)?]);
    (at + 4 <= datagram.len()).then_some((at + 4, labels, kind))
}

/// The answer: names of one label have an IPv4 address, all others do not exist.
fn reply(datagram: &[u8]) -> Option<(Vec<u8>, bool, bool)> {
    const A: u16 = 1;
    const AAAA: u16 = 28;
    let (end, labels, kind) = question(datagram)?;
    let is_unknown = labels > 1;
    let mut reply = datagram.get(..end)?.to_vec();
    // Response, recursion available, NXDOMAIN for unknown names.
    reply[2] = 0x81;
    reply[3] = if is_unknown { 0x83 } else { 0x80 };
    reply[4..12].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    if !is_unknown && kind == A {
        reply[7] = 1;
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 9, 8, 7]);
    }
    Some((reply, kind == AAAA, is_unknown))
}

/// `ADDR FILE`: a name server that behaves as FILE says. A late answer does not delay others.
fn dns_serve(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let file = words.first().copied().unwrap_or_default();
    let socket = Arc::new(UdpSocket::bind(address)?);
    let (mut datagram, mut random) = ([0_u8; 1500], XorShift::new());
    loop {
        let (n, from) = socket.recv_from(&mut datagram)?;
        let Some((reply, is_aaaa, is_unknown)) = datagram.get(..n).and_then(reply) else { continue };
        let manner = manner(file, is_aaaa, is_unknown);
        if (random.below(100) as u64) < manner.drop_percent {
            continue;
        }
        if manner.late.is_zero() {
            _ = socket.send_to(&reply, from);
            continue;
        }
        let socket = Arc::clone(&socket);
        std::thread::spawn(move || {
            sleep(manner.late);
            _ = socket.send_to(&reply, from);
        });
    }
}

/// `FILE NAME EVERY_MS`: repeats a lookup, with FILE as its `/etc/resolv.conf`.
fn lookup(argument: &str) -> io::Result<()> {
    let words: Vec<&str> = argument.split_whitespace().collect();
    let (file, name) = (words.first().copied().unwrap_or_default(), words.get(1).copied().unwrap_or("db"));
    let every = Duration::from_millis(number(&words, 2, 100));
    own_resolv_conf(file)?;
    let mut meter = Meter::create()?;
    loop {
        meter.measure(|| (name, 80).to_socket_addrs().map(Iterator::count))?;
        sleep(every);
    }
}

/// Mounts a file over `/etc/resolv.conf`, for this process only.
fn own_resolv_conf(file: &str) -> io::Result<()> {
    // SAFETY: a plain system call; the process has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    // The path may be a symbolic link to a file of another program.
    rustix::mount::mount_bind(file, fs::canonicalize("/etc/resolv.conf")?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{question, reply};

    /// A query for the addresses of a name, as glibc sends it.
    fn asked(labels: &[&str], kind: u8) -> Vec<u8> {
        let mut datagram = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            datagram.push(label.len() as u8);
            datagram.extend(label.bytes());
        }
        datagram.extend([0, 0, kind, 0, 1]);
        datagram
    }

    #[test]
    fn a_name_of_one_label_has_an_address() {
        let (reply, is_aaaa, is_unknown) = reply(&asked(&["db"], 1)).unwrap();
        assert!(!is_aaaa && !is_unknown);
        assert_eq!(&reply[..8], [0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1]);
        assert_eq!(reply[reply.len() - 4..], [10, 9, 8, 7]);
    }

    #[test]
    fn a_name_with_a_search_domain_does_not_exist() {
        let (reply, is_aaaa, is_unknown) = reply(&asked(&["db", "corp", "test"], 28)).unwrap();
        assert!(is_aaaa && is_unknown);
        assert_eq!(reply[3] & 15, 3);
    }

    #[test]
    fn half_a_question_has_no_answer() {
        let whole = asked(&["db"], 1);
        assert!((0..whole.len()).all(|n| question(&whole[..n]).is_none()));
    }
}
