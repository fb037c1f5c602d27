//! MariaDB clients. They speak the protocol themselves and use no password.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};

use super::Role;
use super::sql;

/// The roles of this file.
pub const ROLES: &[Role] = &[("my-ask", sql::ask::<Session<File>>), ("my-hold", sql::hold::<Session<File>>)];

/// `CLIENT_LONG_PASSWORD | CLIENT_PROTOCOL_41 | CLIENT_SECURE_CONNECTION | CLIENT_PLUGIN_AUTH`.
const ABILITIES: u32 = 1 | 0x200 | 0x8000 | 0x8_0000;
const PACKET_MAX: u32 = 1 << 24;
const UTF8: u8 = 33;
const COM_QUERY: u8 = 3;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

/// A session.
struct Session<S> {
    stream: S,
    sequence: u8,
    /// The connection id.
    id: u32,
}

impl<S: Read + Write> Session<S> {
    fn begin(stream: S) -> io::Result<Self> {
        let mut session = Self { stream, sequence: 0, id: 0 };
        let greeting = session.packet()?;
        let version = greeting.iter().position(|byte| *byte == 0).ok_or(ErrorKind::InvalidData)?;
        let id = greeting.get(version + 1..version + 5).and_then(|id| id.first_chunk());
        session.id = u32::from_le_bytes(*id.ok_or(ErrorKind::InvalidData)?);
        let mut reply = ABILITIES.to_le_bytes().to_vec();
        reply.extend(PACKET_MAX.to_le_bytes());
        reply.push(UTF8);
        reply.extend([0; 23]);
        reply.extend(b"lab\0\0mysql_native_password\0");
        session.send(&reply)?;
        match session.packet()?.first() {
            Some(0) => Ok(session),
            _ => Err(io::Error::other("it does not let us in")),
        }
    }

    /// Runs a statement to completion.
    fn run(&mut self, sql: &str) -> io::Result<()> {
        self.sequence = 0;
        self.send(&[&[COM_QUERY], sql.as_bytes()].concat())?;
        let first = self.packet()?;
        match first.first() {
            Some(0) => return Ok(()),
            Some(&ERROR) => return Err(io::Error::other(String::from_utf8_lossy(&first).into_owned())),
            _ => {}
        }
        // Columns end with the same packet as rows.
        for _ in 0..2 {
            loop {
                let packet = self.packet()?;
                match packet.first() {
                    Some(&END) if packet.len() < 9 => break,
                    Some(&ERROR) => {
                        return Err(io::Error::other(String::from_utf8_lossy(&packet).into_owned()));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn packet(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, sequence] = head;
        self.sequence = sequence.wrapping_add(1);
        let mut body = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    fn send(&mut self, body: &[u8]) -> io::Result<()> {
        let [a, b, c, _] = u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes();
        self.stream.write_all(&[&[a, b, c, self.sequence], body].concat())
    }
}

impl sql::Session for Session<File> {
    fn begin(stream: File) -> io::Result<Self> {
        Session::begin(stream)
    }

    fn run(&mut self, sql: &str) -> io::Result<()> {
        Session::run(self, sql)
    }

    fn number(&self) -> u32 {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};

    use super::Session;

    /// The server's messages.
    struct Script(Vec<u8>);

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = (&self.0[..]).read(buffer)?;
            self.0.drain(..count);
            Ok(count)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn packet(body: &[u8]) -> Vec<u8> {
        let [a, b, c, _] = (body.len() as u32).to_le_bytes();
        [&[a, b, c, 0], body].concat()
    }

    #[test]
    fn a_session_knows_its_number_and_sees_errors() {
        let end = packet(&[0xfe, 0, 0, 2, 0]);
        let says = [
            packet(b"\x0a10.11.6-MariaDB\0\x25\0\0\0rest"),
            packet(&[0, 0, 0, 2, 0]),
            packet(&[1]),
            packet(b"def"),
            end.clone(),
            packet(b"\x011"),
            end,
            packet(b"\xff\x15\x04no"),
        ];
        let mut session = Session::begin(Script(says.concat())).unwrap();
        assert_eq!(session.id, 37);
        assert!(session.run("SELECT 1").is_ok() && session.run("SELECT").is_err());
        let refused = [packet(b"\x0a1\0\x01\0\0\0"), packet(b"\xff\x15\x04no")].concat();
        assert!(Session::begin(Script(refused)).is_err());
    }
}
