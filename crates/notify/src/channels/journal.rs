//! Structured entries of journald, by its native protocol: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use super::Failure;
use crate::message::{Event, Message};

const SOCKET: &str = "/run/systemd/journal/socket";
/// How long a journald that reads nothing is waited for.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// `journalctl MESSAGE_ID=…` finds all of them.
const MESSAGE_ID: &str = "8f2f5b9a0d3c4c7e9a61e5d0b7f31c42";

pub fn send(message: &Message) -> Result<(), Failure> {
    write(&entry(message), Path::new(SOCKET), WRITE_WITHIN)
        .map_err(|error| Failure::Later(format!("{SOCKET}: {error}")))
}

fn write(entry: &[u8], to: &Path, within: Duration) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(within))?;
    socket.send_to(entry, to)?;
    Ok(())
}

fn entry(message: &Message) -> Vec<u8> {
    // Of syslog: warning, notice, info.
    let priority = match message.event {
        Event::Begun | Event::Revised | Event::RecorderStopped => "4",
        Event::Ended | Event::Device | Event::RecorderBack => "5",
        Event::Finding | Event::Test => "6",
    };
    let mut out = Vec::new();
    for (name, value) in [
        ("MESSAGE", format!("{}\n{}", message.line(), message.details()).as_str()),
        ("MESSAGE_ID", MESSAGE_ID),
        ("PRIORITY", priority),
        ("SYSLOG_IDENTIFIER", "mitra"),
        ("MITRA_EVENT", message.event.name()),
        ("MITRA_INCIDENT", message.id.as_str()),
        ("MITRA_CONDITION", message.condition.as_str()),
        ("MITRA_CULPRIT", message.culprit.as_deref().unwrap_or_default()),
        ("MITRA_SINCE", message.since.as_str()),
        ("MITRA_UNTIL", message.until.as_deref().unwrap_or_default()),
    ] {
        if !value.is_empty() {
            field(&mut out, name, value);
        }
    }
    out
}

/// A value with its length, so that a line break in it begins no field.
fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_journald_that_reads_nothing_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _journald = UnixDatagram::bind(&path).unwrap();
        // Each from a socket of its own, so that only the queue of the reader is full.
        let is_taken = || {
            let socket = UnixDatagram::unbound().unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.send_to(b"x", &path).is_ok()
        };
        while is_taken() {}
        let (say, said) = mpsc::channel();
        let to = path.clone();
        std::thread::spawn(move || say.send(write(b"x", &to, Duration::from_millis(20))));
        let result = said.recv_timeout(Duration::from_secs(60)).expect("it waits for ever");
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
