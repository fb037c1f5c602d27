//! Sends queries to name servers and measures their replies.
//!
//! Each query has a socket of its own, connected to its server: an answer from elsewhere does not
//! count, and an ICMP error is seen.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::message;
use super::trace::{Answer, Basis, Got, Query, Reply, Transport};

/// Queries on their way at a time: few enough for a small server, and a dead one delays no more than
/// its own.
const AT_ONCE: usize = 16;

/// Sends all of them, and waits for each no longer than `patience`. Replies are in the order of the
/// queries.
#[must_use]
pub fn all(queries: &[Query], patience: Duration) -> Vec<Reply> {
    let next = AtomicUsize::new(0);
    let replies: Mutex<Vec<Option<Reply>>> = Mutex::new(vec![None; queries.len()]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(queries.len()) {
            scope.spawn(|| {
                while let Some((at, query)) = take(&next, queries) {
                    let reply = one(query, patience);
                    if let Ok(mut replies) = replies.lock()
                        && let Some(slot) = replies.get_mut(at)
                    {
                        *slot = Some(reply);
                    }
                }
            });
        }
    });
    let replies = replies.into_inner().unwrap_or_default();
    let lost = Reply { got: Got::Silence, after_us: 0, basis: Basis::Assumed };
    replies.into_iter().map(|reply| reply.unwrap_or(lost)).collect()
}

fn take<'q>(next: &AtomicUsize, queries: &'q [Query]) -> Option<(usize, &'q Query)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, queries.get(at)?))
}

fn one(query: &Query, patience: Duration) -> Reply {
    let start = Instant::now();
    let id = RandomState::new().build_hasher().finish() as u16;
    let got = match (message::query(id, query), query.transport) {
        (None, _) => Got::Refused,
        (Some(bytes), Transport::Udp) => udp(query, id, &bytes, start + patience),
        (Some(bytes), Transport::Tcp) => tcp(query, id, &bytes, start + patience, patience),
    };
    let after_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    Reply { got, after_us, basis: Basis::Measured }
}

fn udp(query: &Query, id: u16, bytes: &[u8], end: Instant) -> Got {
    let heard = || -> io::Result<Answer> {
        let any: SocketAddr = match query.server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(query.server)?;
        socket.send(bytes)?;
        let mut buffer = vec![0; message::MESSAGE_MAX];
        loop {
            socket.set_read_timeout(Some(left(end)?))?;
            let length = socket.recv(&mut buffer)?;
            let message = buffer.get(..length).unwrap_or_default();
            if let Some(answer) = message::answer(message, id, query) {
                return Ok(answer);
            }
        }
    };
    match heard() {
        Ok(answer) => Got::Message(answer),
        Err(error) if is_timeout(&error) => Got::Silence,
        Err(_) => Got::Refused,
    }
}

fn tcp(query: &Query, id: u16, bytes: &[u8], end: Instant, patience: Duration) -> Got {
    let mut stream = match TcpStream::connect_timeout(&query.server, patience) {
        Ok(stream) => stream,
        Err(error) if is_timeout(&error) => return Got::NoConnection,
        Err(_) => return Got::Refused,
    };
    let mut heard = || -> io::Result<Option<Answer>> {
        let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
        stream.set_write_timeout(Some(left(end)?))?;
        stream.write_all(&[&length.to_be_bytes(), bytes].concat())?;
        let mut length = [0; 2];
        exactly(&mut stream, &mut length, end)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        exactly(&mut stream, &mut message, end)?;
        Ok(message::answer(&message, id, query))
    };
    match heard() {
        Ok(Some(answer)) => Got::Message(answer),
        Err(error) if is_timeout(&error) => Got::Silence,
        _ => Got::Closed,
    }
}

/// A server that sends byte by byte has no more time than another one.
fn exactly(stream: &mut TcpStream, mut buffer: &mut [u8], end: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length => buffer = buffer.get_mut(length..).unwrap_or_default(),
        }
    }
    Ok(())
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::trace::Kind;
    use super::*;

    fn query_of(server: SocketAddr, transport: Transport) -> Query {
        Query { server, name: "a.example".into(), kind: Kind::A, transport, edns: None, ad: false }
    }

    #[test]
    fn a_liar_a_late_one_and_nobody() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let liar = server.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 512];
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            let mut answer = buffer[..length].to_vec();
            answer[2] = 0x81;
            answer[3] = 0x83;
            // Another id, another name, and then the answer.
            let mut wrong = answer.clone();
            wrong[0] ^= 1;
            server.send_to(&wrong, from).unwrap();
            let mut wrong = answer.clone();
            wrong[13] ^= 1;
            server.send_to(&wrong, from).unwrap();
            server.send_to(&answer, from).unwrap();
        });
        let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
        let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let queries = [liar, mute.local_addr().unwrap(), gone].map(|server| query_of(server, Transport::Udp));
        let replies = all(&queries, Duration::from_secs(1));
        thread.join().unwrap();
        assert!(matches!(replies[0].got, Got::Message(Answer { rcode: 3, .. })), "{replies:?}");
        assert_eq!((replies[1].got, replies[2].got), (Got::Silence, Got::Refused));
        assert!(replies[1].after_us >= 1_000_000);
    }

    #[test]
    fn connections() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut message).unwrap();
            message[2] = 0x81;
            stream.write_all(&length).unwrap();
            stream.write_all(&message).unwrap();
            // The second one is closed without an answer.
            drop(server.accept().unwrap());
        });
        let asked = query_of(address, Transport::Tcp);
        let patience = Duration::from_secs(5);
        assert!(matches!(one(&asked, patience).got, Got::Message(Answer { rcode: 0, .. })));
        assert_eq!(one(&asked, patience).got, Got::Closed);
        thread.join().unwrap();
        assert_eq!(one(&asked, patience).got, Got::Refused);
    }
}
