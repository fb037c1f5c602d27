//! `tcpretrans -c`: segments that TCP sent again, by connection.
//!
//! ```text
//! LADDR:LPORT              RADDR:RPORT             RETRANSMITS
//! 192.168.10.50:60366  <-> 172.217.21.194:443             700
//! ```
//!
//! How long was counted is not said: the sum is told, and is no reading of the kernel's counter.

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "tcpretrans -c",
    "segments that TCP sent again, in all, as a note",
    |lines, _| lines.at(is_header),
    read,
);

fn is_header(line: &[u8]) -> bool {
    words(line).eq([&b"LADDR:LPORT"[..], b"RADDR:RPORT", b"RETRANSMITS"])
}

/// The retransmits of a connection.
fn count(line: &[u8]) -> Option<u64> {
    let mut list = words(line);
    let is_address = |word: &[u8]| word.contains(&b':');
    list.next().filter(|word| is_address(word))?;
    list.next().filter(|word| *word == b"<->")?;
    list.next().filter(|word| is_address(word))?;
    let n = list.next().and_then(integer)?;
    list.next().is_none().then_some(n)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let (mut sum, mut connections) = (0_u64, 0_u64);
    lines.each(import, |lines, _, _| {
        let line = lines.line();
        if is_header(line) {
            return Took::Yes;
        }
        match count(line) {
            Some(n) => {
                sum = sum.saturating_add(n);
                connections += 1;
                Took::Yes
            }
            None => Took::unread_if(lines.soon(1, |next| count(next).is_some())),
        }
    });
    if connections > 0 {
        import.has_read();
        import.note(format!("tcpretrans: {sum} segments of {connections} connections were sent again"));
    }
}
