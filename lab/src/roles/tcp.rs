//! TCP servers and clients. Arguments are words; the first is an address with a port.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::words::{address, number};
use super::{Meter, Role};

/// The roles of this file.
pub const ROLES: &[Role] = &[
    ("tcp-serve", serve),
    ("tcp-visit", visit),
    ("tcp-crowd", crowd),
    ("tcp-answer", answer),
    ("tcp-ask", ask),
    ("tcp-mute", mute),
    ("tcp-hold", hold),
    ("tcp-churn", churn),
    ("tcp-pour", pour),
    ("tcp-stream", stream),
    ("tcp-abandon", abandon),
    ("tcp-drain", drain),
    ("tcp-push", push),
    ("tcp-fetch", fetch),
];

/// Request and answer where the content does not matter.
const WORD: &[u8; 8] = b"12345678";
/// Limit of a crowd's open connections, to protect the laboratory.
const CROWD_MAX: usize = 2_000;

/// Raises this process' descriptor limit to its maximum.
fn many_files() -> io::Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    Ok(())
}

/// Listens with a backlog of this size.
fn listen(address: SocketAddr, backlog: u64) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, i32::try_from(backlog).unwrap_or(4096))?;
    Ok(listener)
}

/// Milliseconds that a server takes for each connection or datagram, read from a file every time.
pub fn delay(file: &str) -> Duration {
    let text = fs::read_to_string(file).unwrap_or_default();
    Duration::from_secs_f64(text.trim().parse::<f64>().unwrap_or(0.0).clamp(0.0, 3_600_000.0) / 1000.0)
}

/// `ADDR BACKLOG FILE`: takes one connection after the other, waits as long as the file says before
/// each, sends a word and lets the client close first.
fn serve(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let listener = listen(address, number(&words, 0, 128))?;
    let file = words.get(1).copied().unwrap_or_default();
    let mut word = [0_u8; 8];
    loop {
        sleep(delay(file));
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        // Ignores clients that have given up.
        let served = stream.read_exact(&mut word).and_then(|()| stream.write_all(WORD));
        if served.is_ok() {
            // The side that closes first keeps the port in TIME_WAIT. The timeout is short, so that
            // a slow client does not block the server.
            stream.set_read_timeout(Some(Duration::from_millis(4)))?;
            _ = stream.read(&mut word);
        }
    }
}

/// One visit: connect, ask, read the answer, close.
fn one_visit(address: SocketAddr, patience: Duration) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    stream.write_all(WORD)?;
    stream.read_exact(&mut [0; 8])
}

/// `ADDR EVERY_MS PATIENCE_MS`: repeats visits to a server, each on a new connection.
fn visit(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let every = Duration::from_millis(number(&words, 0, 20));
    let patience = Duration::from_millis(number(&words, 1, 5_000));
    let mut meter = Meter::create()?;
    loop {
        meter.measure(|| one_visit(address, patience))?;
        sleep(every);
    }
}

/// An unfinished visit of a crowd.
struct Visitor {
    stream: TcpStream,
    since: Instant,
    asked: bool,
}

impl Visitor {
    fn begin(address: SocketAddr) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self { stream: TcpStream::from(socket), since: Instant::now(), asked: false })
    }

    /// Makes progress without blocking. True once the visit is over.
    fn is_over(&mut self, patience: Duration) -> bool {
        let waits =
            |error: &io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected);
        if !self.asked {
            match self.stream.write(WORD) {
                Ok(_) => self.asked = true,
                Err(error) if waits(&error) => return self.since.elapsed() > patience,
                Err(_) => return true,
            }
        }
        match self.stream.read(&mut [0; 8]) {
            Err(error) if waits(&error) => self.since.elapsed() > patience,
            _ => true,
        }
    }
}

/// `ADDR PER_S PATIENCE_MS ON_MS EVERY_MS`: visits at a fixed rate, whether or not earlier ones are
/// over. With the last two, only in the first ON_MS of each period.
fn crowd(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    many_files()?;
    let per_s = number(&words, 0, 50).max(1) as f64;
    let patience = Duration::from_millis(number(&words, 1, 4_000));
    let (on_s, every_s) =
        (number(&words, 2, 1).max(1) as f64 / 1e3, number(&words, 3, 1).max(1) as f64 / 1e3);
    let come_s = |s: f64| (s / every_s).floor() * on_s + (s % every_s).min(on_s);
    let (start, mut begun) = (Instant::now(), 0_u64);
    let mut visitors: VecDeque<Visitor> = VecDeque::new();
    loop {
        while (begun as f64) < come_s(start.elapsed().as_secs_f64()) * per_s {
            begun += 1;
            if visitors.len() < CROWD_MAX {
                visitors.extend(Visitor::begin(address).ok());
            }
        }
        visitors.retain_mut(|visitor| !visitor.is_over(patience));
        sleep(Duration::from_millis(5));
    }
}

/// `ADDR BYTES`: answers each word on a connection with BYTES bytes. One thread per connection.
fn answer(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let bytes = usize::try_from(number(&words, 0, 1_000)).unwrap_or(1_000);
    let listener = listen(address, 128)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        std::thread::spawn(move || -> io::Result<()> {
            stream.set_nodelay(true)?;
            let body = vec![b'.'; bytes];
            let mut word = [0_u8; 8];
            loop {
                stream.read_exact(&mut word)?;
                stream.write_all(&body)?;
            }
        });
    }
}

/// `ADDR BYTES EVERY_MS`: repeats requests on one connection. Reconnects if it breaks.
fn ask(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let mut body = vec![0_u8; usize::try_from(number(&words, 0, 1_000)).unwrap_or(1_000)];
    let every = Duration::from_millis(number(&words, 1, 10));
    let mut meter = Meter::create()?;
    let mut stream: Option<TcpStream> = None;
    loop {
        let answered = meter.measure(|| {
            if stream.is_none() {
                let fresh = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
                fresh.set_nodelay(true)?;
                fresh.set_read_timeout(Some(Duration::from_secs(5)))?;
                fresh.set_write_timeout(Some(Duration::from_secs(5)))?;
                stream = Some(fresh);
            }
            let open = stream.as_mut().ok_or(ErrorKind::NotConnected)?;
            open.write_all(WORD)?;
            open.read_exact(&mut body)
        })?;
        if answered.is_none() {
            stream = None;
        }
        sleep(every);
    }
}

/// `ADDR`: accepts everything and never reads.
fn mute(argument: &str) -> io::Result<()> {
    let (address, _) = address(argument)?;
    many_files()?;
    let listener = listen(address, 1_024)?;
    let mut all = Vec::new();
    loop {
        all.push(listener.accept()?.0);
    }
}

/// `ADDR COUNT PER_S`: opens COUNT connections and keeps them.
fn hold(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    many_files()?;
    let pause = Duration::from_secs_f64(1.0 / number(&words, 1, 500).max(1) as f64);
    let mut all = Vec::new();
    loop {
        if (all.len() as u64) < number(&words, 0, 100)
            && let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(3))
        {
            all.push(stream);
        }
        sleep(pause);
    }
}

/// `ADDR PER_S`: one connection per request, closed by this side.
fn churn(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let per_s = number(&words, 0, 100).max(1) as f64;
    let (start, mut done) = (Instant::now(), 0_u64);
    loop {
        while (done as f64) < start.elapsed().as_secs_f64() * per_s {
            done += 1;
            _ = one_visit(address, Duration::from_secs(1));
        }
        sleep(Duration::from_millis(5));
    }
}

/// `ADDR COUNT`: fills COUNT connections to a peer that does not read.
fn pour(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    many_files()?;
    let mut all = Vec::new();
    for _ in 0..number(&words, 0, 10) {
        let stream = TcpStream::connect(address)?;
        stream.set_nonblocking(true)?;
        all.push(stream);
    }
    let body = vec![b'.'; 64 << 10];
    loop {
        for stream in &mut all {
            _ = stream.write(&body);
        }
        sleep(Duration::from_millis(10));
    }
}

/// `ADDR`: sends as fast as the peer reads. An operation is 256 KB.
fn stream(argument: &str) -> io::Result<()> {
    let (address, _) = address(argument)?;
    let mut stream = TcpStream::connect(address)?;
    let (mut meter, block) = (Meter::create()?, vec![7_u8; 256 << 10]);
    loop {
        let start = Instant::now();
        stream.write_all(&block)?;
        meter.record(start.elapsed())?;
    }
}

/// `ADDR`: accepts one connection after the other and reads all that comes.
fn drain(argument: &str) -> io::Result<()> {
    let (address, _) = address(argument)?;
    let listener = listen(address, 16)?;
    let mut buffer = vec![0_u8; 256 << 10];
    loop {
        let (mut stream, _) = listener.accept()?;
        while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
    }
}

/// `ADDR PER_S`: fills connections to a peer that does not read, and closes them with unsent data.
fn abandon(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let pause = Duration::from_secs_f64(1.0 / number(&words, 0, 50).max(1) as f64);
    let body = vec![b'.'; 64 << 10];
    loop {
        if let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            sockopt::set_socket_send_buffer_size(&stream, 32 << 10)?;
            stream.set_nonblocking(true)?;
            for _ in 0..50 {
                if stream.write(&body).is_err() {
                    break;
                }
            }
        }
        sleep(pause);
    }
}

/// `ADDR BYTES`: writes BYTES bytes to each client and closes with data still unsent.
fn push(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let body = vec![b'.'; usize::try_from(number(&words, 0, 100_000)).unwrap_or(100_000)];
    let listener = listen(address, 128)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        sockopt::set_socket_send_buffer_size(&stream, body.len())?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        _ = stream.write_all(&body);
    }
}

/// `ADDR BYTES EVERY_MS`: reads BYTES bytes slowly, as over a thin line. A truncated answer is a
/// failure.
fn fetch(argument: &str) -> io::Result<()> {
    let (address, words) = address(argument)?;
    let bytes = usize::try_from(number(&words, 0, 100_000)).unwrap_or(100_000);
    let every = Duration::from_millis(number(&words, 1, 50));
    let mut meter = Meter::create()?;
    let mut piece = vec![0_u8; 8 << 10];
    loop {
        meter.measure(|| {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            // Room for a few packets of a veth's size. With less, packets would be lost.
            sockopt::set_socket_recv_buffer_size(&stream, 128 << 10)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut left = bytes;
            while left > 0 {
                let n = stream.read(&mut piece)?;
                if n == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                left = left.saturating_sub(n);
                sleep(Duration::from_millis(8));
            }
            Ok(())
        })?;
        sleep(every);
    }
}
