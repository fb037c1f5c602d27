//! `/proc/net/snmp` and `/proc/net/netstat`: the counters of the IP, TCP and UDP protocols.
//!
//! ```text
//! Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
//! Udp: 53 0 0 54 0 0 0 0 0
//! ```
//!
//! See `net/ipv4/proc.c` and `Documentation/networking/snmp_counter.rst`. Each pair of lines names columns and gives
//! their numbers; kernels differ in both. `Tcp:` has one number that may be negative, `MaxConn`.

use mitra_model::{Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::scan::{digits, signed, split_line};

/// No file has more pairs of lines, and no line more columns.
const SECTIONS_MAX: usize = 64;
const COLUMNS_MAX: usize = 1024;

/// The parser of one of the two files.
#[derive(Debug, Default)]
pub struct Snmp {
    sections: Vec<Section>,
    values: Vec<i64>,
    pass: u32,
}

/// A pair of lines whose first line is known.
#[derive(Debug)]
struct Section {
    /// The first line with its newline.
    header: Box<[u8]>,
    /// The prefix of the second line: `Udp: `.
    prefix: Box<[u8]>,
    columns: Box<[Slot]>,
    unknown: u32,
    seen: u32,
}

#[derive(Debug, Clone, Copy)]
enum Slot {
    Unsigned(Column),
    Signed(Column),
    Unknown,
}

impl Snmp {
    /// Fills the system row.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut rest = input;
        let mut line = 0;
        let mut next = 0;
        let row = frame.system_mut();
        self.pass = self.pass.wrapping_add(1);
        while !rest.is_empty() {
            line += 1;
            let Some((at, tail)) = self.section(rest, next) else {
                outcome.bad(line);
                rest = split_line(rest).map_or(&[], |(_, tail)| tail);
                continue;
            };
            next = at + 1;
            rest = tail;
            let Some((values, tail)) = split_line(rest) else {
                // The columns without their numbers, or with some of them: a file that was cut off.
                outcome.bad(line + 1);
                break;
            };
            let Some(section) = self.sections.get_mut(at) else { break };
            let again = std::mem::replace(&mut section.seen, self.pass) == self.pass;
            if values.starts_with(&section.prefix) {
                line += 1;
                rest = tail;
            }
            if again || !section.read(values, &mut self.values) {
                outcome.bad(line);
                continue;
            }
            outcome.unknown_keys += section.unknown;
            for (slot, value) in section.columns.iter().zip(&self.values) {
                if let Slot::Unsigned(column) | Slot::Signed(column) = slot {
                    column.set(row, *value);
                }
            }
            if self.values.contains(&NA) {
                outcome.bad(line);
            }
        }
        outcome
    }

    /// The section at the start of the input, and the rest after its first line.
    fn section<'a>(&mut self, input: &'a [u8], next: usize) -> Option<(usize, &'a [u8])> {
        if let Some(tail) = self.sections.get(next).and_then(|section| input.strip_prefix(&*section.header)) {
            return Some((next, tail));
        }
        let (header, tail) = split_line(input)?;
        let known = self.sections.iter().position(|s| s.header.strip_suffix(b"\n") == Some(header));
        if let Some(at) = known {
            return Some((at, tail));
        }
        let colon = header.iter().position(|b| *b == b':')?;
        let (area, names) = header.split_at_checked(colon)?;
        let names = names.strip_prefix(b": ")?;
        if area.is_empty() || names.is_empty() || names.iter().filter(|b| **b == b' ').count() >= COLUMNS_MAX
        {
            return None;
        }
        // A first line that is damaged in another way each time must not fill the memory.
        if self.sections.len() >= SECTIONS_MAX {
            self.sections.clear();
        }
        let columns: Option<Box<[Slot]>> = names.split(|b| *b == b' ').map(|name| slot(area, name)).collect();
        let columns = columns?;
        let unknown = columns.iter().filter(|slot| matches!(slot, Slot::Unknown)).count();
        // Counts of ICMP messages by number: those with a name are in `Icmp:`.
        let unknown = if area == b"IcmpMsg" { 0 } else { u32::try_from(unknown).unwrap_or(u32::MAX) };
        let at = next.min(self.sections.len());
        let section = Section {
            header: input.get(..=header.len())?.into(),
            prefix: header.get(..colon + 2)?.into(),
            columns,
            unknown,
            seen: self.pass.wrapping_sub(1),
        };
        self.sections.insert(at, section);
        Some((at, tail))
    }
}

impl Section {
    /// Reads the second line, which must have a number for each column.
    fn read(&self, line: &[u8], values: &mut Vec<i64>) -> bool {
        values.clear();
        let Some(mut rest) = line.strip_prefix(&*self.prefix) else { return false };
        for (i, slot) in self.columns.iter().enumerate() {
            if i > 0 {
                let [b' ', tail @ ..] = rest else { return false };
                rest = tail;
            }
            let number = if let Slot::Signed(_) = slot { signed(rest) } else { digits(rest) };
            let Some((value, tail)) = number else { return false };
            values.push(value);
            rest = tail;
        }
        rest.is_empty()
    }
}

/// The column of a name; `None` for what cannot be a name.
fn slot(area: &[u8], name: &[u8]) -> Option<Slot> {
    let is_name = |text: &[u8]| text.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    // The first line names columns; a line of numbers here is a second line that has lost its first.
    if !is_name(area) || !is_name(name) || !name.first()?.is_ascii_alphabetic() {
        return None;
    }
    let area = String::from_utf8_lossy(area).to_ascii_lowercase();
    Some(match Column::in_area(&area, name) {
        Some(column) if name == b"MaxConn" => Slot::Signed(column),
        Some(column) => Slot::Unsigned(column),
        None => Slot::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("3.10", "proc/net/snmp");
        s.is("tcp.MaxConn", -1);
        s.is("udp.InCsumErrors", 2);
        s.none("udp.IgnoredMulti");
        let s = parsed("3.10", "proc/net/netstat");
        s.is("tcpext.TCPPrequeued", 118_203);
        s.is("ipext.InNoECTPkts", 44_120_007);
        let s = parsed("4.18", "proc/net/netstat");
        s.is("tcpext.TCPSynRetrans", 512);
        s.is("tcpext.TCPRcvQDrop", 3);
        let s = parsed("5.15", "proc/net/netstat");
        s.is("tcpext.TCPMigrateReqSuccess", 0);
        s.is("mptcpext.MPCapableSYNRX", 4);
        let s = parsed("6.1", "proc/net/snmp");
        s.is("udp.MemErrors", 0);
        s.none("ip.OutTransmits");
        let s = parsed("6.18", "proc/net/snmp");
        s.is("ip.InReceives", 13_132);
        s.is("ip.OutTransmits", 11_625);
        s.is("tcp.CurrEstab", 42);
        s.is("tcp.MaxConn", -1);
        s.is("udp.OutDatagrams", 54);
        let s = parsed("6.18", "proc/net/netstat");
        s.is("tcpext.TCPHPHits", 9_778);
        s.is("tcpext.TCPDelivered", 10_123);
        s.is("ipext.InOctets", 95_888_843);
        s.is("mptcpext.WinProbe", 0);
    }

    #[test]
    fn damage() {
        let mut s = Sample::of("proc/net/snmp", b"Udp: InDatagrams NoPorts Novel\nUdp: 1 2 3\n");
        s.is("udp.NoPorts", 2);
        s.count(2);
        assert_eq!((s.outcome.bad_lines, s.outcome.unknown_keys), (0, 1));
        for (bad, lines) in [
            (&b"Udp: InDatagrams NoPorts Novel\nUdp: 1 2\n"[..], 1),
            (b"Udp: InDatagrams NoPorts\nUdp: 1 2 3\n", 1),
            (b"Udp: InDatagrams NoPorts\nUdp: 1 -2\n", 1),
            (b"Udp: InDatagrams NoPorts\nUdp: 1  2\n", 1),
            (b"Udp: InDatagrams NoPorts\r\nUdp: 1 2\r\n", 2),
            (b"Udp: InDatagrams NoPorts\nUdpLite: 1 2\n", 2),
            (b"Udp: InDatagrams NoPorts\nUdp: 1 2", 1),
            (b"Udp: InDatagrams NoPorts\n", 1),
            (b"Udp: 1 2\n", 1),
            (b"Udp:\nUdp:\n", 2),
            (b"Udp: InDatagrams \xff\nUdp: 1 2\n", 2),
        ] {
            s.again(bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, lines, "{}", String::from_utf8_lossy(bad));
        }
        s.again(b"Udp: InDatagrams NoPorts\nUdp: 1 2\nUdp: InDatagrams NoPorts\nUdp: 3 4\nTcp: CurrEstab MaxConn\nTcp: 99999999999999999999 -1\n");
        s.is("udp.InDatagrams", 1);
        s.is("tcp.MaxConn", -1);
        s.none("tcp.CurrEstab");
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad), (2, Some(4)));
    }
}
