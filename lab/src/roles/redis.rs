//! A client of a redis server.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Meter, Role};

/// The roles of this file. The argument is a port.
pub const ROLES: &[Role] = &[("redis-ping", redis_ping)];

/// Asks a redis server `PING` a hundred times a second.
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
