//! DNS messages (RFC 1035, RFC 6891), as far as a query and a look at its answer need them.
//!
//! A resolver's library would bring some twenty crates for these hundred lines.

use std::net::Ipv4Addr;

use super::trace::{Answer, Kind, NOERROR, Query};

/// A message over TCP is no longer, and one over UDP neither.
pub(super) const MESSAGE_MAX: usize = 65_535;
const HEADER: usize = 12;
const CLASS_IN: u16 = 1;
const TYPE_OPT: u16 = 41;
/// Bytes of a label, by its two upper bits a pointer.
const POINTER: u8 = 0xC0;
/// Labels of a name: one byte each would be 127.
const LABELS_MAX: usize = 128;

fn type_of(kind: Kind) -> u16 {
    match kind {
        Kind::A => 1,
        Kind::Aaaa => 28,
        Kind::Soa => 6,
    }
}

/// The bytes of a query, or nothing if the name fits into no message.
pub(super) fn query(id: u16, query: &Query) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(HEADER + query.name.len() + 20);
    message.extend(id.to_be_bytes());
    // Recursion is desired.
    message.extend([0x01, if query.ad { 0x20 } else { 0x00 }]);
    for count in [1, 0, 0, u16::from(query.edns.is_some())] {
        message.extend(u16::to_be_bytes(count));
    }
    if !super::is_sendable(&query.name) {
        return None;
    }
    for label in query.name.split('.') {
        message.push(u8::try_from(label.len()).ok()?);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(type_of(query.kind).to_be_bytes());
    message.extend(CLASS_IN.to_be_bytes());
    if let Some(size) = query.edns {
        message.push(0);
        message.extend(TYPE_OPT.to_be_bytes());
        message.extend(size.to_be_bytes());
        message.extend([0; 6]);
    }
    Some(message)
}

/// What a resolver looks at, if the message answers this query: the same id and the same question. Servers that
/// do not read a query at all answer with an error and no question.
pub(super) fn answer(bytes: &[u8], id: u16, query: &Query) -> Option<Answer> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let flags = word(2)?;
    if word(0)? != id || flags & 0x8000 == 0 {
        return None;
    }
    let rcode = (flags & 0x000F) as u8;
    match word(4)? {
        1 => {}
        0 if rcode != NOERROR => return Some(Answer { rcode, is_bare: true, ..Answer::default() }),
        _ => return None,
    }
    let (name, mut at) = name(bytes, HEADER)?;
    if !name.eq_ignore_ascii_case(query.name.as_bytes())
        || word(at)? != type_of(query.kind)
        || word(at + 2)? != CLASS_IN
    {
        return None;
    }
    at += 4;
    let records = word(6)?;
    let mut addresses = 0;
    for _ in 0..records {
        let Some(record) = record(bytes, at) else { break };
        let is_address = match query.kind {
            Kind::A => record.length == size_of::<Ipv4Addr>(),
            Kind::Aaaa => record.length == size_of::<std::net::Ipv6Addr>(),
            Kind::Soa => false,
        };
        addresses += u16::from(is_address && record.kind == type_of(query.kind));
        at = record.end;
    }
    Some(Answer {
        rcode,
        records,
        addresses,
        truncated: flags & 0x0200 != 0,
        authoritative: flags & 0x0400 != 0,
        recursive: flags & 0x0080 != 0,
        additional: word(10)?,
        is_bare: false,
    })
}

struct Record {
    kind: u16,
    length: usize,
    end: usize,
}

fn record(bytes: &[u8], at: usize) -> Option<Record> {
    let at = skip_name(bytes, at)?;
    let fixed: [u8; 10] = bytes.get(at..at.checked_add(10)?)?.try_into().ok()?;
    let [a, b, .., c, d] = fixed;
    let length = usize::from(u16::from_be_bytes([c, d]));
    let end = at + 10 + length;
    bytes.get(..end)?;
    Some(Record { kind: u16::from_be_bytes([a, b]), length, end })
}

/// A name without pointers, as it stands in a question, and where it ends.
fn name(bytes: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let mut name = Vec::new();
    for _ in 0..LABELS_MAX {
        let length = *bytes.get(at)?;
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length & POINTER != 0 {
            return None;
        }
        let label = bytes.get(at..at + usize::from(length))?;
        if !name.is_empty() {
            name.push(b'.');
        }
        name.extend(label);
        at += usize::from(length);
    }
    None
}

/// Where a name ends. A pointer ends it; where it leads to does not matter.
fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..LABELS_MAX {
        let length = *bytes.get(at)?;
        match length & POINTER {
            _ if length == 0 => return Some(at + 1),
            POINTER => return Some(at + 2),
            0 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::trace::Transport;
    use super::*;

    fn example(kind: Kind, edns: Option<u16>) -> Query {
        let server = "127.0.0.1:53".parse().unwrap();
        Query { server, name: "www.Example".into(), kind, transport: Transport::Udp, edns, ad: true }
    }

    /// An answer of a CNAME and an address.
    fn reply() -> Vec<u8> {
        let mut reply = query(7, &example(Kind::A, None)).unwrap();
        reply[2] = 0x81;
        reply[3] = 0x80;
        reply[7] = 2;
        reply.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x02\xc0\x10");
        reply.extend(b"\xc0\x10\0\x01\0\x01\0\0\0\x3c\0\x04\x0a\0\0\x01");
        reply
    }

    #[test]
    fn a_query_and_its_answer() {
        let bytes = query(0x1234, &example(Kind::Aaaa, Some(1232))).unwrap();
        let expected = b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01\x03www\x07Example\0\0\x1c\0\x01\
            \0\0\x29\x04\xd0\0\0\0\0\0\0";
        assert_eq!(bytes, expected);
        let answer = answer(&reply(), 7, &example(Kind::A, None)).unwrap();
        assert_eq!((answer.rcode, answer.records, answer.addresses, answer.recursive), (0, 2, 1, true));
    }

    #[test]
    fn of_another_query() {
        let asked = example(Kind::A, None);
        assert_eq!(answer(&reply(), 8, &asked), None);
        assert_eq!(answer(&reply(), 7, &example(Kind::Aaaa, None)), None);
        assert_eq!(answer(&reply(), 7, &Query { name: "www.example.org".into(), ..asked.clone() }), None);
        // An error without the question is one, and an answer without it is none.
        let bare = answer(b"\0\x07\x81\x85\0\0\0\0\0\0\0\0", 7, &asked).unwrap();
        assert_eq!((bare.rcode, bare.is_bare, bare.addresses), (5, true, 0));
        assert_eq!(answer(b"\0\x07\x81\x80\0\0\0\0\0\0\0\0", 7, &asked), None);
        // The query itself is no answer.
        assert_eq!(answer(&query(7, &asked).unwrap(), 7, &asked), None);
        // A record that is cut counts in the header only.
        let cut = reply();
        let answer = answer(&cut[..cut.len() - 1], 7, &asked).unwrap();
        assert_eq!((answer.records, answer.addresses), (2, 0));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            _ = answer(&bytes, 7, &example(Kind::A, None));
        }

        #[test]
        fn no_damage_panics(at in 0_usize..60, byte in any::<u8>(), length in 0_usize..80) {
            let mut bytes = reply();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(length);
            _ = answer(&bytes, 7, &example(Kind::A, None));
        }
    }
}
