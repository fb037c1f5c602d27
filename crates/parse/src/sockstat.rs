//! `/proc/net/sockstat`: sockets and the memory of their buffers.
//!
//! ```text
//! sockets: used 59
//! TCP: inuse 44 orphan 0 tw 2 alloc 44 mem 205
//! UDP: inuse 0 mem 0
//! UDPLITE: inuse 0
//! RAW: inuse 0
//! FRAG: inuse 0 memory 0
//! ```
//!
//! See `sockstat_seq_show` in `net/ipv4/proc.c`. `mem` is pages, `memory` bytes.

use mitra_model::{Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::scan::{Lines, number, word};

const FIELDS: usize = 12;
/// No line has more pairs of a name and a number.
const PAIRS_MAX: usize = 8;

/// The parser of `/proc/net/sockstat`.
#[derive(Debug)]
pub struct SockStat {
    fields: [(&'static [u8], &'static [u8], Column); FIELDS],
}

impl Default for SockStat {
    fn default() -> Self {
        let field = |section: &'static [u8], key: &'static [u8], name| (section, key, Column::of(name));
        SockStat {
            fields: [
                field(b"sockets:", b"used", "sock.used"),
                field(b"TCP:", b"inuse", "sock.tcp_inuse"),
                field(b"TCP:", b"orphan", "sock.tcp_orphan"),
                field(b"TCP:", b"tw", "sock.tcp_tw"),
                field(b"TCP:", b"alloc", "sock.tcp_alloc"),
                field(b"TCP:", b"mem", "sock.tcp_mem"),
                field(b"UDP:", b"inuse", "sock.udp_inuse"),
                field(b"UDP:", b"mem", "sock.udp_mem"),
                field(b"UDPLITE:", b"inuse", "sock.udplite_inuse"),
                field(b"RAW:", b"inuse", "sock.raw_inuse"),
                field(b"FRAG:", b"inuse", "sock.frag_inuse"),
                field(b"FRAG:", b"memory", "sock.frag_memory"),
            ],
        }
    }
}

impl SockStat {
    /// Fills the system row.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let mut seen = 0_u32;
        let row = frame.system_mut();
        while let Some(line) = lines.next(&mut outcome) {
            let mut pairs = [(FIELDS, NA); PAIRS_MAX];
            let Some(count) = self.pairs(line, &mut pairs) else {
                outcome.bad(lines.number());
                continue;
            };
            let mut is_bad = false;
            for (field, value) in pairs.iter().take(count) {
                let Some((_, _, column)) = self.fields.get(*field) else {
                    outcome.unknown_keys += 1;
                    continue;
                };
                if seen & 1 << *field != 0 {
                    is_bad = true;
                    continue;
                }
                seen |= 1 << *field;
                column.set(row, *value);
                is_bad |= *value == NA;
            }
            if is_bad {
                outcome.bad(lines.number());
            }
        }
        outcome
    }

    /// The pairs of a line, each as the position of its field and a number; returns how many there are.
    fn pairs(&self, line: &[u8], pairs: &mut [(usize, i64)]) -> Option<usize> {
        let (section, mut rest) = word(line)?;
        let mut count = 0;
        if !section.ends_with(b":") {
            return None;
        }
        while let Some((key, tail)) = word(rest) {
            let (value, tail) = number(tail)?;
            let field = self.fields.iter().position(|(s, k, _)| *s == section && *k == key).unwrap_or(FIELDS);
            *pairs.get_mut(count)? = (field, value);
            count += 1;
            rest = tail;
        }
        (count > 0).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        parsed("3.10", "proc/net/sockstat").is("sock.tcp_orphan", 12);
        parsed("4.18", "proc/net/sockstat").is("sock.tcp_mem", 8_211);
        parsed("5.15", "proc/net/sockstat").is("sock.used", 1_102);
        parsed("6.1", "proc/net/sockstat").is("sock.frag_memory", 4_608);
        let s = parsed("6.18", "proc/net/sockstat");
        s.is("sock.used", 59);
        s.is("sock.tcp_inuse", 44);
        s.is("sock.tcp_mem", 205);
        s.is("sock.frag_memory", 0);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "proc/net/sockstat",
            b"sockets: used 5\nsockets: used 6\nTCP: inuse 4 orphan\nUDP: inuse -3 mem 4\nUDPLITE inuse 1\nRAW: inuse 2\r\nFRAG:\n\
              SCTP: inuse 7\nFRAG: inuse 8 memory 99999999999999999999\nRAW: inuse 3",
        );
        s.is("sock.used", 5);
        s.is("sock.frag_inuse", 8);
        s.count(2);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad, s.outcome.unknown_keys), (8, Some(2), 1));
    }
}
