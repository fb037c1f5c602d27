//! PostgreSQL clients. They speak protocol version 3 themselves and use no password.

use std::fs::File;
use std::io::{self, Read, Write};
use std::thread::sleep;

use super::sql::{self, milliseconds, split};
use super::{Meter, Role};

/// The roles of this file.
pub const ROLES: &[Role] = &[
    ("pg-ask", sql::ask::<Session<File>>),
    ("pg-visit", visit),
    ("pg-hold", sql::hold::<Session<File>>),
    ("pg-keep", keep),
];

/// Protocol 3.0.
const VERSION: u32 = 3 << 16;
/// Limit of a server message.
const MESSAGE_MAX: usize = 1 << 20;

/// A session.
struct Session<S> {
    stream: S,
    /// The pid of the session's server process.
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

    /// Runs a statement to completion.
    fn run(&mut self, sql: &str) -> io::Result<()> {
        let mut message = vec![b'Q'];
        message.extend(length(sql.len() + 1)?);
        message.extend(sql.as_bytes());
        message.push(0);
        self.stream.write_all(&message)?;
        self.until_ready()
    }

    /// Reads until the server is ready for the next statement. Returns the server's error, if any.
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

impl sql::Session for Session<File> {
    fn begin(stream: File) -> io::Result<Self> {
        Session::begin(stream)
    }

    fn run(&mut self, sql: &str) -> io::Result<()> {
        Session::run(self, sql)
    }

    fn number(&self) -> u32 {
        self.pid
    }
}

fn connect(to: &str) -> io::Result<Session<File>> {
    sql::Session::connect(to)
}

/// `SOCKET EVERY_MS SQL`: repeats a statement, each time in a new session.
fn visit(argument: &str) -> io::Result<()> {
    let ([to, every], sql) = split(argument)?;
    let mut meter = Meter::create()?;
    loop {
        meter.measure(|| connect(to)?.run(sql))?;
        sleep(milliseconds(every));
    }
}

/// `SOCKET EVERY_MS FULL`: opens a session in each period and keeps all of them. Creates the file
/// FULL once the server refuses one, and keeps trying.
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

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};

    use super::Session;

    /// The server's messages, and the messages to it.
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
}
