//! Common parts of the database clients: a session runs statements, each to completion.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::Meter;

/// A database session.
pub trait Session: Sized {
    /// Opens a session.
    fn begin(stream: File) -> io::Result<Self>;

    /// Runs a statement to completion. A server error is returned as an error.
    fn run(&mut self, sql: &str) -> io::Result<()>;

    /// The server's id of the session.
    fn number(&self) -> u32;

    /// Connects to a Unix socket, or to an address with a port.
    fn connect(to: &str) -> io::Result<Self> {
        let stream = if to.starts_with('/') {
            OwnedFd::from(UnixStream::connect(to)?)
        } else {
            let stream = TcpStream::connect(to)?;
            stream.set_nodelay(true)?;
            OwnedFd::from(stream)
        };
        Self::begin(File::from(stream))
    }
}

/// The first `N` words, and the statement after them.
pub fn split<const N: usize>(argument: &str) -> io::Result<([&str; N], &str)> {
    let mut all = argument.splitn(N + 1, ' ');
    let mut words = [""; N];
    for word in &mut words {
        *word = all.next().ok_or(ErrorKind::InvalidInput)?;
    }
    Ok((words, all.next().ok_or(ErrorKind::InvalidInput)?))
}

/// Parses a number of milliseconds.
pub fn milliseconds(word: &str) -> Duration {
    Duration::from_millis(word.parse().unwrap_or(0))
}

/// `SOCKET EVERY_MS SQL`: repeats a statement.
pub fn ask<S: Session>(argument: &str) -> io::Result<()> {
    let ([to, every], sql) = split(argument)?;
    let mut session = S::connect(to)?;
    let mut meter = Meter::create()?;
    loop {
        meter.measure(|| session.run(sql))?;
        sleep(milliseconds(every));
    }
}

/// `SOCKET GO HOLD_MS EVERY_MS NUMBER SQL`: once the file GO exists, begins a transaction in each
/// period, runs a statement in it, and stays idle for HOLD_MS. Writes the session's id to the file
/// NUMBER.
pub fn hold<S: Session>(argument: &str) -> io::Result<()> {
    let ([to, go, hold, every, number], sql) = split(argument)?;
    let mut session = S::connect(to)?;
    std::fs::write(number, session.number().to_string())?;
    while !Path::new(go).exists() {
        sleep(Duration::from_millis(5));
    }
    loop {
        session.run("BEGIN")?;
        session.run(sql)?;
        sleep(milliseconds(hold));
        session.run("COMMIT")?;
        sleep(milliseconds(every).saturating_sub(milliseconds(hold)));
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn the_statement_is_the_rest() {
        assert_eq!(split("a 10 SELECT 1").unwrap(), (["a", "10"], "SELECT 1"));
        assert!(split::<2>("a 10").is_err());
    }
}
