//! Structured entries of journald, by its native protocol: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

use std::os::unix::net::UnixDatagram;

use super::Failure;
use crate::message::{Event, Message};

const SOCKET: &str = "/run/systemd/journal/socket";
/// `journalctl MESSAGE_ID=…` finds all of them.
const MESSAGE_ID: &str = "8f2f5b9a0d3c4c7e9a61e5d0b7f31c42";

pub fn send(message: &Message) -> Result<(), Failure> {
    let later = |error: std::io::Error| Failure::Later(format!("{SOCKET}: {error}"));
    let socket = UnixDatagram::unbound().map_err(later)?;
    socket.send_to(&entry(message), SOCKET).map_err(later)?;
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
