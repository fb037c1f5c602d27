//! A port of TCP, plain or with TLS: each request is a connection of its own.
//!
//! TCP has no other acknowledgement than the end of a connection: what was sent is taken when the store has read it to its end and
//! closes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mitra_http::rustls::pki_types::ServerName;
use mitra_http::rustls::{ClientConfig, ClientConnection, Stream};

pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Of an answer that is kept.
pub const ANSWER_MAX: usize = 4_096;

/// What a store said until it closed the connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The beginning of it.
    pub begin: Vec<u8>,
    /// How many lines all of it was, without empty ones.
    pub lines: u64,
}

/// Host and port, and whom TLS trusts.
pub struct Endpoint {
    host: String,
    port: u16,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Endpoint {
    /// # Errors
    /// With TLS, if the host is no name that a certificate can have.
    pub fn new(host: &str, port: u16, tls: Option<ClientConfig>) -> Result<Endpoint, String> {
        let with_name = |tls| match ServerName::try_from(host.to_owned()) {
            Ok(name) => Ok((Arc::new(tls), name)),
            Err(error) => Err(format!("{host}: {error}")),
        };
        Ok(Endpoint { host: host.to_owned(), port, tls: tls.map(with_name).transpose()? })
    }

    /// Sends all, and returns what the store said.
    pub fn send(&self, bytes: &[u8]) -> Result<Said, String> {
        self.connect()
            .and_then(|stream| self.exchange(stream, bytes))
            .map_err(|error| format!("{}:{}: {error}", self.host, self.port))
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::other("the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn exchange(&self, stream: TcpStream, bytes: &[u8]) -> io::Result<Said> {
        let mut stream = Bounded { stream, end: Instant::now() + ANSWER_WITHIN };
        let Some((config, name)) = &self.tls else {
            stream.write_all(bytes)?;
            stream.stream.shutdown(Shutdown::Write)?;
            return answer(&mut stream);
        };
        let mut session =
            ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
        let mut secure = Stream::new(&mut session, &mut stream);
        secure.write_all(bytes)?;
        secure.conn.send_close_notify();
        secure.flush()?;
        secure.sock.stream.shutdown(Shutdown::Write)?;
        answer(&mut secure)
    }
}

/// A connection that ends at a moment, however slowly the other side reads and writes.
struct Bounded {
    stream: TcpStream,
    end: Instant,
}

impl Bounded {
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Bounded {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(to).map_err(timed_out)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The kernel says of a timeout that it would block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

/// What comes until the end of a connection. A store that is cut off while it still talks may not have read all.
fn answer(stream: &mut impl Read) -> io::Result<Said> {
    let (mut said, mut is_in_line) = (Said::default(), false);
    let mut buffer = [0; ANSWER_MAX];
    loop {
        let part = match stream.read(&mut buffer) {
            Ok(0) => return Ok(said),
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // Stores close a connection without the `close_notify` of TLS.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(said),
            Err(error) => return Err(error),
        };
        for byte in part {
            let is_of_line = *byte != b'\n';
            said.lines += u64::from(is_of_line && !is_in_line);
            is_in_line = is_of_line;
        }
        let room = ANSWER_MAX - said.begin.len();
        said.begin.extend(part.iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_store_that_says_a_byte_now_and_then_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = Bounded {
            stream: TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
            end: Instant::now() + Duration::from_millis(50),
        };
        let (mut other, _) = listener.accept().unwrap();
        let slow = std::thread::spawn(move || {
            while other.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        assert_eq!(answer(&mut stream).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
        drop(stream);
        slow.join().unwrap();
    }
}
