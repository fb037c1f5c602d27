//! Records of `/dev/kmsg`: lines of the kernel log.
//!
//! ```text
//! 6,339,5140900,-;NET: Registered protocol family 10
//! 12,340,5690716,-;udevd[80]: starting version 181
//!  SUBSYSTEM=acpi
//! ```
//!
//! See `Documentation/ABI/testing/dev-kmsg`. One read gives one record: priority and facility, sequence number,
//! microseconds since boot and flags, then the text up to a newline. Bytes that are not printable are `\xNN`.

use std::borrow::Cow;

use mitra_model::NA;

use crate::scan::digits;

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// 0 emergency … 7 debug.
    pub priority: u8,
    /// Who wrote it: 0 is the kernel, 1 a user's program.
    pub facility: u32,
    /// Counts all records since boot; a hole means that records were lost.
    pub sequence: u64,
    /// When it was written, on the clock that the log uses, which stops while the machine sleeps.
    pub usec: u64,
    /// Whether it continues the line of the record before.
    pub is_continued: bool,
    /// The text; invalid UTF-8 is replaced.
    pub text: Cow<'a, str>,
}

/// Reads one record. The lines after the first, facts about a device, are left out.
#[must_use]
pub fn record(input: &[u8]) -> Option<Record<'_>> {
    let end = input.iter().position(|b| *b == b'\n')?;
    let line = input.get(..end)?;
    let (syslog, rest) = digits(line)?;
    let (sequence, rest) = digits(rest.strip_prefix(b",")?)?;
    let (usec, rest) = digits(rest.strip_prefix(b",")?)?;
    let rest = rest.strip_prefix(b",")?;
    let semicolon = rest.iter().position(|b| *b == b';')?;
    let (flags, text) = rest.split_at_checked(semicolon)?;
    if [syslog, sequence, usec].contains(&NA) {
        return None;
    }
    Some(Record {
        priority: u8::try_from(syslog & 7).ok()?,
        facility: u32::try_from(syslog >> 3).ok()?,
        sequence: u64::try_from(sequence).ok()?,
        usec: u64::try_from(usec).ok()?,
        is_continued: flags.first() == Some(&b'c') || flags.first() == Some(&b'+'),
        text: unescaped(text.strip_prefix(b";")?),
    })
}

/// Turns `\x0a` back into the byte.
fn unescaped(text: &[u8]) -> Cow<'_, str> {
    if !text.contains(&b'\\') {
        return String::from_utf8_lossy(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = match rest {
            [b'\\', b'x', high, low, tail @ ..] if let Some(byte) = byte_of(*high, *low) => {
                out.push(byte);
                tail
            }
            _ => {
                out.push(*byte);
                tail
            }
        };
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

fn byte_of(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::record;

    #[test]
    fn records() {
        let r = record(b"6,339,5140900,-;NET: Registered protocol family 10\n").unwrap();
        assert_eq!((r.priority, r.facility, r.sequence, r.usec), (6, 0, 339, 5_140_900));
        assert_eq!(r.text, "NET: Registered protocol family 10");
        assert!(!r.is_continued);
        let r = record(b"12,340,5690716,-;udevd[80]: starting\n SUBSYSTEM=acpi\n").unwrap();
        assert_eq!((r.priority, r.facility), (4, 1));
        assert_eq!(r.text, "udevd[80]: starting");
        let r = record(b"4,1,2,c,caller=T1;a\\x0ab\\\\xzz\\x5c\xff;\n").unwrap();
        assert_eq!(r.text, "a\nb\\\\xzz\\\u{fffd};");
        assert!(r.is_continued);
        // Flags of 3.10.
        assert!(record(b"4,1,2,+;x\n").unwrap().is_continued);
    }

    #[test]
    fn damage() {
        for bad in [
            &b""[..],
            b"\n",
            b"6,339,5140900,-;NET",
            b"6,339,5140900,-\n",
            b"6,339,5140900;x\n",
            b"6,339,-5,-;x\n",
            b"x,339,5,-;x\n",
            b"6,99999999999999999999,5,-;x\n",
            b"99999999999999,1,5,-;x\n",
            b"6 339 5 -;x\n",
        ] {
            assert_eq!(record(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        let whole = b"6,339,5140900,-;NET: \\x0a 10\n";
        for end in 0..whole.len() {
            assert_eq!(record(&whole[..end]), None);
        }
    }
}
