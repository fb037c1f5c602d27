//! HTTP clients. Arguments are words; the first is an address with a port.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::words::{address, number};
use super::{Meter, Role};

/// The roles of this file.
pub const ROLES: &[Role] = &[("http-ask", ask), ("http-crowd", crowd), ("http-idle", idle)];

/// Limit of a crowd's open requests, to protect the laboratory.
const CROWD_MAX: usize = 800;
/// Interval at which a crowd checks for due requests.
const STEP: Duration = Duration::from_millis(5);
/// Limits of a header line and of a body.
const LINE_MAX: u64 = 8 << 10;
const BODY_MAX: u64 = 64 << 20;

fn request(path: &str, host: SocketAddr, keeps: bool) -> Vec<u8> {
    let connection = if keeps { "keep-alive" } else { "close" };
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: {connection}\r\n\r\n").into_bytes()
}

/// Reads a response to its end. A status of 400 and above is an error, and so is a truncated body.
fn read_response(from: &mut impl BufRead) -> io::Result<()> {
    let mut line = String::new();
    let mut next = |from: &mut dyn BufRead| -> io::Result<String> {
        line.clear();
        from.take(LINE_MAX).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    let first = next(from)?;
    let status = first.split(' ').nth(1).and_then(|w| w.parse::<u16>().ok());
    let status = status.ok_or(ErrorKind::UnexpectedEof)?;
    let mut length = None;
    loop {
        let header = next(from)?;
        let Some((name, value)) = header.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<u64>().ok();
        }
    }
    let wanted = length.unwrap_or(BODY_MAX);
    let read = io::copy(&mut from.take(wanted), &mut io::sink())?;
    if length.is_some_and(|length| read < length) {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if status >= 400 { Err(io::Error::other(format!("status {status}"))) } else { Ok(()) }
}

/// `ADDR EVERY_MS PATIENCE_MS PATH keep|close`: repeats a request, on one connection or each time
/// on a new one.
fn ask(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let every = Duration::from_millis(number(&words, 0, 20));
    let patience = Duration::from_millis(number(&words, 1, 5_000));
    let keeps = words.get(3) == Some(&"keep");
    let asked = request(words.get(2).copied().unwrap_or("/"), address, keeps);
    let mut meter = Meter::create()?;
    let mut open: Option<BufReader<TcpStream>> = None;
    loop {
        let answered = meter.measure(|| {
            if open.is_none() {
                let fresh = TcpStream::connect_timeout(&address, patience)?;
                fresh.set_nodelay(true)?;
                fresh.set_read_timeout(Some(patience))?;
                open = Some(BufReader::new(fresh));
            }
            let stream = open.as_mut().ok_or(ErrorKind::NotConnected)?;
            stream.get_mut().write_all(&asked)?;
            read_response(stream)
        })?;
        if answered.is_none() || !keeps {
            open = None;
        }
        sleep(every);
    }
}

/// An unfinished request of a crowd.
struct Visit {
    stream: TcpStream,
    since: Instant,
    has_asked: bool,
}

impl Visit {
    fn begin(address: SocketAddr) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self { stream: TcpStream::from(socket), since: Instant::now(), has_asked: false })
    }

    fn waits_for(&self) -> PollFlags {
        if self.has_asked { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Makes progress without blocking. True once the request is over.
    fn is_over(&mut self, asked: &[u8], piece: &mut [u8]) -> bool {
        let waits = |error: &io::Error| error.kind() == ErrorKind::WouldBlock;
        if !self.has_asked {
            // An open connection takes the whole request; one that is still connecting takes
            // nothing.
            match self.stream.write_all(asked) {
                Ok(()) => self.has_asked = true,
                Err(error) => return !waits(&error),
            }
        }
        loop {
            match self.stream.read(piece) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !waits(&error),
            }
        }
    }
}

/// `ADDR FILE PATIENCE_MS PATH`: requests at the rate in the file, each on its own connection,
/// whether or not earlier ones are answered.
fn crowd(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let file = words.first().copied().unwrap_or_default();
    let patience = Duration::from_millis(number(&words, 1, 5_000));
    let asked = request(words.get(2).copied().unwrap_or("/"), address, false);
    let mut piece = vec![0; 64 << 10];
    let mut visits: Vec<Visit> = Vec::new();
    let (mut last, mut due) = (Instant::now(), 0.0);
    let step = Timespec { tv_sec: 0, tv_nsec: i64::from(STEP.subsec_nanos()) };
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let now = Instant::now();
        due += text.trim().parse::<f64>().unwrap_or(0.0) * now.duration_since(last).as_secs_f64();
        last = now;
        while due >= 1.0 {
            due -= 1.0;
            if visits.len() < CROWD_MAX {
                visits.extend(Visit::begin(address).ok());
            }
        }
        let mut waiting: Vec<PollFd<'_>> =
            visits.iter().map(|visit| PollFd::new(&visit.stream, visit.waits_for())).collect();
        poll(&mut waiting, Some(&step))?;
        let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        visits.retain_mut(|visit| {
            let is_ready = ready.next().unwrap_or(false);
            let is_over = is_ready && visit.is_over(&asked, &mut piece);
            !is_over && visit.since.elapsed() <= patience
        });
    }
}

/// `ADDR COUNT EVERY_MS PATH`: keeps this many connections, and sends a request on each in turn.
fn idle(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let every = Duration::from_millis(number(&words, 1, 100));
    let asked = request(words.get(2).copied().unwrap_or("/"), address, true);
    let count = usize::try_from(number(&words, 0, 10)).unwrap_or(10);
    let mut open: Vec<Option<BufReader<TcpStream>>> = Vec::new();
    open.resize_with(count, || None);
    loop {
        for place in &mut open {
            let stream = match place.take() {
                Some(stream) => Ok(stream),
                None => TcpStream::connect(address).map(BufReader::new),
            };
            // A connection that was closed meanwhile is reopened at its next turn.
            *place = stream.ok().and_then(|mut stream| {
                stream.get_mut().write_all(&asked).ok()?;
                read_response(&mut stream).ok()?;
                Some(stream)
            });
            sleep(every);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Read};

    use super::read_response;

    #[test]
    fn a_response_is_read_to_its_end_and_no_further() {
        let mut two = &b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 3\r\n\r\nabcHTTP/1.1 204 No Content\r\n\r\n"[..];
        read_response(&mut two).unwrap();
        assert!(two.starts_with(b"HTTP/1.1 204"));
        let mut open_ended = &b"HTTP/1.0 200 OK\r\n\r\nabc"[..];
        read_response(&mut open_ended).unwrap();
        assert!(open_ended.fill_buf().unwrap().is_empty() && open_ended.read(&mut [0]).unwrap() == 0);
    }

    #[test]
    fn what_fails_or_is_cut_off_is_an_error() {
        for bad in [
            "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno",
            "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nno",
            "",
            "garbage",
        ] {
            assert!(read_response(&mut bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
