//! A connection to a server with a time limit and a limit of bytes for each question.
//!
//! Everything that comes is a stranger's: a length that it claims allocates nothing, only bytes that have arrived do.

use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Bytes of one answer. A thousand clients of Redis take 350 KB; the answers of the others have a few kilobytes.
const ANSWER_BYTES_MAX: usize = 512 * 1024;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 4096;
/// Bytes of a line.
const LINE_BYTES_MAX: usize = 1024;

const CLOSED: &str = "it closed the connection";

/// Why a server was not asked or has not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Asking again soon makes sense.
    Passing(String),
    /// It stays so until somebody changes something: a password, a privilege.
    Lasting(String),
}

impl Failure {
    /// Something that the protocol does not have.
    pub fn junk(what: &str) -> Failure {
        Failure::Passing(format!("not understood: {what}"))
    }

    /// The reason.
    pub fn why(&self) -> &str {
        match self {
            Failure::Passing(why) | Failure::Lasting(why) => why,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Passing(match error.kind() {
            ErrorKind::UnexpectedEof => CLOSED.to_owned(),
            ErrorKind::TimedOut => "no answer within the time limit".to_owned(),
            _ => error.to_string(),
        })
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Error::from(errno).into()
    }
}

/// The connection. Its socket does not block.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
    deadline: Instant,
    left_bytes: usize,
    chunk: Vec<u8>,
    /// How much of the chunk is used up.
    used: usize,
}

impl Wire {
    /// Takes a socket that is connected and does not block.
    pub fn new(socket: OwnedFd, limit: Duration) -> Wire {
        let deadline = Instant::now() + limit;
        Wire { socket, deadline, left_bytes: ANSWER_BYTES_MAX, chunk: Vec::new(), used: 0 }
    }

    /// A question begins: it has so much time. What is left of the answer before it is no part of it.
    pub fn begin(&mut self, limit: Duration) -> Result<(), Failure> {
        self.deadline = Instant::now() + limit;
        self.left_bytes = ANSWER_BYTES_MAX;
        if self.used < self.chunk.len() {
            return Err(Failure::junk("more than the answer"));
        }
        Ok(())
    }

    /// Sends all of it.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// The next bytes, so many.
    pub fn take(&mut self, bytes: usize) -> Result<Vec<u8>, Failure> {
        let mut taken = Vec::new();
        while taken.len() < bytes {
            let some = self.some(bytes - taken.len())?;
            taken.extend_from_slice(some);
        }
        Ok(taken)
    }

    /// The next bytes, of a number that is known.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        self.take(N)?.try_into().map_err(|_| Failure::junk("a length"))
    }

    /// The line up to `\r\n`, without it.
    pub fn line(&mut self) -> Result<Vec<u8>, Failure> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if line.len() >= LINE_BYTES_MAX {
                return Err(Failure::junk("a line that is too long"));
            }
            line.extend_from_slice(self.some(1)?);
        }
        line.truncate(line.len().saturating_sub(2));
        Ok(line)
    }

    /// All until the server closes the connection.
    pub fn rest(&mut self) -> Result<Vec<u8>, Failure> {
        let mut taken = Vec::new();
        loop {
            match self.some(usize::MAX) {
                Ok(some) => taken.extend_from_slice(some),
                Err(Failure::Passing(why)) if why == CLOSED => return Ok(taken),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// At least one byte and at most so many, of those that have arrived.
    fn some(&mut self, bytes: usize) -> Result<&[u8], Failure> {
        if self.used >= self.chunk.len() {
            self.receive()?;
        }
        let end = self.used.saturating_add(bytes).min(self.chunk.len());
        let some = self.chunk.get(self.used..end).unwrap_or_default();
        self.used = end;
        Ok(some)
    }

    fn receive(&mut self) -> Result<(), Failure> {
        if self.left_bytes == 0 {
            return Err(Failure::Passing(format!("an answer of more than {ANSWER_BYTES_MAX} bytes")));
        }
        let room = CHUNK_BYTES.min(self.left_bytes);
        self.chunk.clear();
        self.used = 0;
        self.chunk.resize(room, 0);
        let received = loop {
            // Bytes that come drop by drop do not lengthen it.
            if Instant::now() >= self.deadline {
                break Err(Error::from(ErrorKind::TimedOut).into());
            }
            match recv(&self.socket, &mut self.chunk[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => break Err(Error::from(ErrorKind::UnexpectedEof).into()),
                Ok((received, _)) => break Ok(received),
                Err(Errno::AGAIN) => match self.wait(PollFlags::IN) {
                    Ok(()) => {}
                    Err(failure) => break Err(failure),
                },
                Err(Errno::INTR) => {}
                Err(errno) => break Err(errno.into()),
            }
        };
        self.chunk.truncate(*received.as_ref().unwrap_or(&0));
        self.left_bytes -= received?;
        Ok(())
    }

    fn wait(&self, what: PollFlags) -> Result<(), Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| Failure::junk("a time limit"))?;
        match poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), what)], Some(&left)) {
            Ok(0) => Err(Error::from(ErrorKind::TimedOut).into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A text that a server says of itself, if it is one of the kind that names have: letters, digits, spaces and `_|.-()/`.
pub fn name(bytes: &[u8]) -> Option<&str> {
    const BYTES_MAX: usize = 64;
    let is_of_names = |byte: &u8| byte.is_ascii_alphanumeric() || b" _|.-()/".contains(byte);
    let is_name = (1..=BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(is_of_names);
    std::str::from_utf8(bytes).ok().filter(|_| is_name)
}

/// What statements begin with. Of a statement nothing else is kept, and no other word.
pub fn keyword(bytes: &[u8]) -> Option<&'static str> {
    const KEYWORDS: [&str; 38] = [
        "ALTER", "ANALYZE", "BEGIN", "CALL", "CHECK", "CLUSTER", "COMMIT", "COPY", "CREATE", "DELETE", "DO",
        "DROP", "EXECUTE", "EXPLAIN", "FETCH", "FLUSH", "GRANT", "INSERT", "KILL", "LOAD", "LOCK", "MERGE",
        "OPTIMIZE", "PREPARE", "REFRESH", "REINDEX", "RENAME", "REPAIR", "REPLACE", "REVOKE", "ROLLBACK",
        "SELECT", "SET", "SHOW", "START", "TRUNCATE", "UPDATE", "VACUUM",
    ];
    let end = bytes.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(bytes.len());
    let word = bytes.get(..end)?;
    KEYWORDS.into_iter().find(|keyword| keyword.as_bytes().eq_ignore_ascii_case(word))
}

/// A number in decimal digits.
pub fn number(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
