//! Messages between a program and its helper that reads files: JSON, one message for each request
//! and one for its response. The descriptor of a new file is attached to its request.
//!
//! A hostile file may have taken over the helper. Its responses are parsed into these types; the
//! caller checks numbers like any foreign input, and cleans names again.

use mitra_model::capture::UnwindRule;
use serde::{Deserialize, Serialize};

use super::Kind;

/// Limit of a message. A name has at most `NAME_CHARS_MAX` characters of up to four bytes.
pub(super) const BYTES_MAX: usize = 2048;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// Parse the attached file.
    Take(Kind),
    Name {
        id: u32,
        at: u64,
    },
    UnwindRule {
        id: u32,
        at: u64,
    },
    Section {
        id: u32,
        name: String,
    },
    Symbol {
        id: u32,
        name: String,
    },
    Forget {
        id: u32,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Response {
    Nothing,
    NoRoom,
    Taken(u32),
    Name(String),
    UnwindRule(UnwindRule),
    Address(u64),
}

pub(super) fn to_bytes(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

/// For [`crate::fuzzing`]: everything that parses must survive a round trip.
pub(crate) fn fuzz(bytes: &[u8]) {
    let bytes = bytes.get(..BYTES_MAX).unwrap_or(bytes);
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        assert_eq!(serde_json::from_slice::<Request>(&to_bytes(&request)).ok(), Some(request));
    }
    if let Ok(response) = serde_json::from_slice::<Response>(bytes) {
        assert_eq!(serde_json::from_slice::<Response>(&to_bytes(&response)).ok(), Some(response));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_socket_and_fit_into_it() {
        let caller = |is_from_frame_pointer| {
            Response::UnwindRule(UnwindRule::At {
                is_from_frame_pointer,
                offset: -70_000,
                frame_pointer_at: -16,
            })
        };
        for response in [
            Response::Nothing,
            Response::NoRoom,
            Response::Taken(7),
            Response::Name(crate::symbols::bounded(&"\u{1f600}\"\\".repeat(1000))),
            Response::Address(u64::MAX),
            Response::UnwindRule(UnwindRule::FramePointer),
            Response::UnwindRule(UnwindRule::Nobody),
            caller(true),
            caller(false),
        ] {
            let bytes = to_bytes(&response);
            assert!(bytes.len() < BYTES_MAX);
            assert_eq!(serde_json::from_slice::<Response>(&bytes).unwrap(), response);
        }
        let name = || "_PyRuntime".to_owned();
        for request in [
            Request::Take(Kind::Sections),
            Request::Name { id: 1, at: 2 },
            Request::UnwindRule { id: 1, at: u64::MAX },
            Request::Section { id: 3, name: name() },
            Request::Symbol { id: 3, name: name() },
            Request::Forget { id: u32::MAX },
        ] {
            assert_eq!(serde_json::from_slice::<Request>(&to_bytes(&request)).unwrap(), request);
        }
    }

    #[test]
    fn half_a_message_is_none() {
        for bytes in
            [&b""[..], b"{\"Taken\":", b"\"Taken\"", b"{\"Address\":-1}", b"{\"Name\":7}", &[255; 30]]
        {
            assert!(serde_json::from_slice::<Response>(bytes).is_err(), "{bytes:?}");
            assert!(serde_json::from_slice::<Request>(bytes).is_err(), "{bytes:?}");
        }
    }
}
