//! What goes over the socket between a program and its reader of files: one message for each question, and one for its answer.
//!
//! ```text
//! question  u8 kind   u32 file   u64 offset or address   a name; of a new file its descriptor goes with it
//! answer    u8 kind   u32 file, or u64 address, or a name, or i8 is_from_frame_pointer i32 offset i16 frame_pointer_at
//! ```
//!
//! Numbers are little-endian. Whoever wrote a file may have taken the reader over, so an answer is no more than what it says it
//! is: numbers are asked about by the caller as any, names are cleaned again.

use mitra_model::capture::UnwindRule;

use super::Kind;

/// Of any message: a name is bounded by `NAME_CHARS_MAX` characters of up to four bytes.
pub(super) const BYTES_MAX: usize = 1024;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// To take in the file that comes with it.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Nothing,
    NoRoom,
    Taken(u32),
    Name(String),
    UnwindRule(UnwindRule),
    Address(u64),
}

const KINDS: [Kind; 4] = [Kind::Names, Kind::PerfMap, Kind::Frames, Kind::Sections];
/// Questions behind those that take a file in.
const NAME: u8 = 4;
const CALLER: u8 = 5;
const SECTION: u8 = 6;
const SYMBOL: u8 = 7;
const FORGET: u8 = 8;

fn message(kind: u8, parts: [&[u8]; 2]) -> Vec<u8> {
    let mut bytes = vec![kind];
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.truncate(BYTES_MAX);
    bytes
}

/// Splits a number off.
fn number<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((*first, rest))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Question {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Question::Take(kind) => {
                let kind = KINDS.iter().position(|known| known == kind).unwrap_or_default();
                message(u8::try_from(kind).unwrap_or_default(), [&[], &[]])
            }
            Question::Name { id, at } => message(NAME, [&id.to_le_bytes(), &at.to_le_bytes()]),
            Question::UnwindRule { id, at } => message(CALLER, [&id.to_le_bytes(), &at.to_le_bytes()]),
            Question::Section { id, name } => message(SECTION, [&id.to_le_bytes(), name.as_bytes()]),
            Question::Symbol { id, name } => message(SYMBOL, [&id.to_le_bytes(), name.as_bytes()]),
            Question::Forget { id } => message(FORGET, [&id.to_le_bytes(), &[]]),
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        if let Some(kind) = KINDS.get(usize::from(*kind)) {
            return Some(Question::Take(*kind));
        }
        let (id, rest) = number(rest)?;
        let id = u32::from_le_bytes(id);
        let at = || Some(u64::from_le_bytes(number(rest)?.0));
        Some(match *kind {
            NAME => Question::Name { id, at: at()? },
            CALLER => Question::UnwindRule { id, at: at()? },
            SECTION => Question::Section { id, name: text(rest) },
            SYMBOL => Question::Symbol { id, name: text(rest) },
            FORGET => Question::Forget { id },
            _ => return None,
        })
    }
}

impl Answer {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Answer::Nothing => message(0, [&[], &[]]),
            Answer::NoRoom => message(1, [&[], &[]]),
            Answer::Taken(id) => message(2, [&id.to_le_bytes(), &[]]),
            Answer::Name(name) => message(3, [name.as_bytes(), &[]]),
            Answer::Address(address) => message(4, [&address.to_le_bytes(), &[]]),
            Answer::UnwindRule(UnwindRule::FramePointer) => message(5, [&[], &[]]),
            Answer::UnwindRule(UnwindRule::Nobody) => message(6, [&[], &[]]),
            Answer::UnwindRule(UnwindRule::At { is_from_frame_pointer, offset, frame_pointer_at }) => {
                let kind = 7 + u8::from(*is_from_frame_pointer);
                message(kind, [&offset.to_le_bytes(), &frame_pointer_at.to_le_bytes()])
            }
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match kind {
            0 => Answer::Nothing,
            1 => Answer::NoRoom,
            2 => Answer::Taken(u32::from_le_bytes(number(rest)?.0)),
            3 => Answer::Name(text(rest)),
            4 => Answer::Address(u64::from_le_bytes(number(rest)?.0)),
            5 => Answer::UnwindRule(UnwindRule::FramePointer),
            6 => Answer::UnwindRule(UnwindRule::Nobody),
            7 | 8 => {
                let (offset, rest) = number(rest)?;
                Answer::UnwindRule(UnwindRule::At {
                    is_from_frame_pointer: *kind == 8,
                    offset: i32::from_le_bytes(offset),
                    frame_pointer_at: i16::from_le_bytes(number(rest)?.0),
                })
            }
            _ => return None,
        })
    }
}

/// For [`crate::fuzzing`]: whatever comes over the socket is taken for what it says again.
pub(crate) fn fuzz(bytes: &[u8]) {
    let bytes = bytes.get(..BYTES_MAX).unwrap_or(bytes);
    if let Some(question) = Question::parse(bytes) {
        std::hint::black_box(Question::parse(&question.to_bytes()));
    }
    if let Some(answer) = Answer::parse(bytes) {
        std::hint::black_box(Answer::parse(&answer.to_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let at = |is_from_frame_pointer| {
            Answer::UnwindRule(UnwindRule::At {
                is_from_frame_pointer,
                offset: -70_000,
                frame_pointer_at: -16,
            })
        };
        for answer in [
            Answer::Nothing,
            Answer::NoRoom,
            Answer::Taken(7),
            Answer::Name("übung".to_owned()),
            Answer::Address(u64::MAX),
            Answer::UnwindRule(UnwindRule::FramePointer),
            Answer::UnwindRule(UnwindRule::Nobody),
            at(true),
            at(false),
        ] {
            assert_eq!(Answer::parse(&answer.to_bytes()), Some(answer));
        }
        let name = || "_PyRuntime".to_owned();
        for question in KINDS.map(Question::Take).into_iter().chain([
            Question::Name { id: 1, at: 2 },
            Question::UnwindRule { id: 1, at: u64::MAX },
            Question::Section { id: 3, name: name() },
            Question::Symbol { id: 3, name: name() },
            Question::Forget { id: u32::MAX },
        ]) {
            assert_eq!(Question::parse(&question.to_bytes()), Some(question));
        }
    }

    #[test]
    fn half_a_message_is_none() {
        for bytes in [&[][..], &[2, 1, 2, 3], &[4, 1], &[7, 1, 2, 3, 4, 5], &[9], &[255; 30]] {
            assert_eq!(Answer::parse(bytes), None, "{bytes:?}");
        }
        for bytes in [&[][..], &[4, 1, 2, 3, 4, 5], &[8, 1], &[9, 1, 2, 3, 4], &[255; 30]] {
            assert_eq!(Question::parse(bytes), None, "{bytes:?}");
        }
    }
}
