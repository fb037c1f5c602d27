//! Both ends of a fast transfer.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use super::{Meter, Role};

/// The roles of this file. The argument is `ADDRESS:PORT`.
pub const ROLES: &[Role] = &[("swallow", swallow), ("pour", pour)];

/// Reads whatever comes, from one client after the other.
fn swallow(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let mut buffer = vec![0_u8; 256 << 10];
    loop {
        let (mut stream, _) = listener.accept()?;
        while stream.read(&mut buffer)? > 0 {}
    }
}

/// Sends as fast as the other end takes it; an operation is 256 KB.
fn pour(address: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let (mut meter, buffer) = (Meter::create()?, vec![7_u8; 256 << 10]);
    loop {
        let start = Instant::now();
        stream.write_all(&buffer)?;
        meter.record(start.elapsed())?;
    }
}
