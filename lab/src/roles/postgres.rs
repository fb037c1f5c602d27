//! Clients of PostgreSQL, by its protocol of version 3 and without a password.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::{Meter, Role};

/// The roles of this file.
pub const ROLES: &[Role] = &[("pg-ask", ask), ("pg-visit", visit), ("pg-hold", hold), ("pg-keep", keep)];

/// Protocol 3.0.
const VERSION: u32 = 3 << 16;
/// A message of the server is no longer here.
const MESSAGE_MAX: usize = 1 << 20;

/// A session.
struct Session<S> {
    stream: S,
    /// The process of the server that serves it.
    pid: u32,
}

impl<S: Read + Write> Session<S> {
    fn begin(mut stream: S) -> io::Result<Self> {
        let mut body = VERSION.to_be_bytes().to_vec();
        body.extend(b"user\0lab\0database\0postgres\0\0");
        stream.write_all(&length(body.len())?)?;
        stream.write_all(&body)?;
        let mut session = Self { stream, pid: 0 };
        session.until_ready()?;
        Ok(session)
    }

    /// Runs a statement to its end.
    fn run(&mut self, sql: &str) -> io::Result<()> {
        let mut message = vec![b'Q'];
        message.extend(length(sql.len() + 1)?);
        message.extend(sql.as_bytes());
        message.push(0);
        self.stream.write_all(&message)?;
        self.until_ready()
    }

    /// Reads until the server waits for the next statement. An error of it is one here.
    fn until_ready(&mut self) -> io::Result<()> {
        let mut failed = None;
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let [kind, a, b, c, d] = head;
            let length = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(4);
            if length > MESSAGE_MAX {
                return Err(io::Error::other("a message that is too long"));
            }
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body)?;
            match (kind, body.as_slice()) {
                (b'R', body) if body != [0; 4] => return Err(io::Error::other("a password is wanted")),
                (b'K', [a, b, c, d, ..]) => self.pid = u32::from_be_bytes([*a, *b, *c, *d]),
                (b'E', body) => failed = Some(String::from_utf8_lossy(body).replace('\0', " ")),
                (b'Z', _) => return failed.map_or(Ok(()), |why| Err(io::Error::other(why))),
                _ => {}
            }
        }
    }
}

fn length(bytes: usize) -> io::Result<[u8; 4]> {
    Ok(u32::try_from(bytes + 4).map_err(io::Error::other)?.to_be_bytes())
}

/// Connects to a socket in the file system, or to an address and a port.
fn connect(to: &str) -> io::Result<Session<File>> {
    let stream = if to.starts_with('/') {
        OwnedFd::from(UnixStream::connect(to)?)
    } else {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        OwnedFd::from(stream)
    };
    Session::begin(File::from(stream))
}

/// The words in front and the statement after them.
pub fn split<const N: usize>(argument: &str) -> io::Result<([&str; N], &str)> {
    let mut all = argument.splitn(N + 1, ' ');
    let mut words = [""; N];
    for word in &mut words {
        *word = all.next().ok_or(ErrorKind::InvalidInput)?;
    }
    Ok((words, all.next().ok_or(ErrorKind::InvalidInput)?))
}

/// A number of milliseconds.
pub fn milliseconds(word: &str) -> Duration {
    Duration::from_millis(word.parse().unwrap_or(0))
}

/// `SOCKET EVERY_MS SQL`: runs a statement again and again.
fn ask(argument: &str) -> io::Result<()> {
    let ([to, every], sql) = split(argument)?;
    let mut session = connect(to)?;
    let mut meter = Meter::create()?;
    loop {
        meter.measure(|| session.run(sql))?;
        sleep(milliseconds(every));
    }
}

/// `SOCKET EVERY_MS SQL`: the same with a session for each time.
fn visit(argument: &str) -> io::Result<()> {
    let ([to, every], sql) = split(argument)?;
    let mut meter = Meter::create()?;
    loop {
        meter.measure(|| connect(to)?.run(sql))?;
        sleep(milliseconds(every));
    }
}

/// `SOCKET EVERY_MS FULL`: begins a session in each period and keeps all of them. Once none is to be had there is a file FULL,
/// and it goes on trying.
fn keep(argument: &str) -> io::Result<()> {
    let ([to, every], full) = split(argument)?;
    let mut sessions = Vec::new();
    loop {
        match connect(to) {
            Ok(session) => sessions.push(session),
            Err(_) => std::fs::write(full, "")?,
        }
        sleep(milliseconds(every));
    }
}

/// `SOCKET GO HOLD_MS EVERY_MS PID SQL`: once the file GO is there, begins a transaction, runs a statement in it, and does
/// nothing more until so much time is over; again in each period. The file PID gets the process of the server.
fn hold(argument: &str) -> io::Result<()> {
    let ([to, go, hold, every, pid], sql) = split(argument)?;
    let mut session = connect(to)?;
    std::fs::write(pid, session.pid.to_string())?;
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
    use std::io::{self, Read, Write};

    use super::{Session, split};

    /// What the server says, and what it was told.
    struct Script {
        says: Vec<u8>,
        told: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = (&self.says[..]).read(buffer)?;
            self.says.drain(..count);
            Ok(count)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.told.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut all = vec![kind];
        all.extend((body.len() as u32 + 4).to_be_bytes());
        all.extend(body);
        all
    }

    #[test]
    fn a_session_knows_its_process_and_sees_errors() {
        let says = [
            message(b'R', &[0; 4]),
            message(b'S', b"server_version\x0015\0"),
            message(b'K', &[0, 0, 4, 1, 9, 9, 9, 9]),
            message(b'Z', b"I"),
            message(b'C', b"UPDATE 1\0"),
            message(b'Z', b"I"),
            message(b'E', b"Mno\0\0"),
            message(b'Z', b"I"),
        ];
        let mut session = Session::begin(Script { says: says.concat(), told: Vec::new() }).unwrap();
        assert_eq!(session.pid, 1025);
        assert!(session.run("UPDATE a").is_ok() && session.run("UPDATE b").is_err());
        assert!(session.stream.told.ends_with(b"Q\0\0\0\x0dUPDATE b\0"));
        let wants = message(b'R', &[0, 0, 0, 3]);
        assert!(Session::begin(Script { says: wants, told: Vec::new() }).is_err());
    }

    #[test]
    fn the_statement_is_the_rest() {
        assert_eq!(split("a 10 SELECT 1").unwrap(), (["a", "10"], "SELECT 1"));
        assert!(split::<2>("a 10").is_err());
    }
}
