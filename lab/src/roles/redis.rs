//! Clients of a redis server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::words::numbers;
use super::{Meter, Role, XorShift};

/// The roles of this file. The argument is a port; for writers also the number of keys.
pub const ROLES: &[Role] =
    &[("redis-ping", redis_ping), ("redis-write", redis_write), ("redis-say", redis_say)];

/// Commands that a writer sends at once.
const BATCH: usize = 64;

/// Sends `PING` to a redis server a hundred times a second.
fn redis_ping(port: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let (mut meter, mut line) = (Meter::create()?, String::new());
    loop {
        line.clear();
        let start = Instant::now();
        stream.write_all(b"PING\r\n")?;
        answers.read_line(&mut line)?;
        meter.record(start.elapsed())?;
        sleep(Duration::from_millis(10));
    }
}

/// Writes one byte into each of `BATCH` random values, fifty times a second. Each value lies on a
/// different page. Key names are those of `redis-benchmark -r`.
fn redis_write(argument: &str) -> io::Result<()> {
    let n = numbers(argument);
    let [port, keys] = n[..] else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let (mut meter, mut random, mut line) = (Meter::create()?, XorShift::new(), String::new());
    loop {
        let mut batch = String::new();
        for _ in 0..BATCH {
            let key = random.below(usize::try_from(keys).unwrap_or(1));
            batch.push_str(&format!("SETRANGE key:{key:012} 0 y\r\n"));
        }
        let start = Instant::now();
        stream.write_all(batch.as_bytes())?;
        for _ in 0..BATCH {
            line.clear();
            answers.read_line(&mut line)?;
        }
        meter.record(start.elapsed())?;
        sleep(Duration::from_millis(20));
    }
}

/// `PORT EVERY_MS COMMAND`: sends a command in each period, on a new connection, and reads the
/// whole answer.
fn redis_say(argument: &str) -> io::Result<()> {
    let mut words = argument.splitn(3, ' ');
    let (port, every, command) = (words.next(), words.next(), words.next());
    let address = format!("127.0.0.1:{}", port.unwrap_or_default());
    let every = Duration::from_millis(every.and_then(|w| w.parse().ok()).unwrap_or(1_000));
    let said = format!("{}\r\nQUIT\r\n", command.unwrap_or("PING"));
    let mut piece = vec![0; 256 << 10];
    loop {
        let start = Instant::now();
        let mut stream = TcpStream::connect(&address)?;
        stream.write_all(said.as_bytes())?;
        while stream.read(&mut piece)? > 0 {}
        sleep(every.saturating_sub(start.elapsed()));
    }
}
