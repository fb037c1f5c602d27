//! `/proc/net/stat/nf_conntrack`: the table of tracked connections, a line for each CPU. Hexadecimal, named in the first
//! line.
//!
//! ```text
//! entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart
//! 0000002b  00000000 00000000 00000000 00000012 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000  00000000 00000000 00000000 00000000
//! ```
//!
//! See `ct_cpu_seq_show` in `net/netfilter/nf_conntrack_standalone.c`. `entries` is the same number in each line; the
//! rest is counted by each CPU in 32 bits. Kernels before 4.x had columns of other names in some places, so the first
//! line decides.

use mitra_model::{Frame, NA, Strings};

use crate::Outcome;
use crate::column::{Column, sum};
use crate::scan::{Lines, hex, skip_blanks, word};

/// No kernel has more columns.
const COLUMNS_MAX: usize = 32;
const FIELDS: usize = 7;

/// The parser of `/proc/net/stat/nf_conntrack`.
#[derive(Debug)]
pub struct ConnTrack {
    fields: [(&'static [u8], Column); FIELDS],
}

impl Default for ConnTrack {
    fn default() -> Self {
        let field = |key: &'static [u8], name| (key, Column::of(name));
        ConnTrack {
            fields: [
                field(b"entries", "conntrack.count"),
                field(b"found", "conntrack.found"),
                field(b"invalid", "conntrack.invalid"),
                field(b"insert_failed", "conntrack.insert_failed"),
                field(b"drop", "conntrack.drop"),
                field(b"early_drop", "conntrack.early_drop"),
                field(b"search_restart", "conntrack.search_restart"),
            ],
        }
    }
}

impl ConnTrack {
    /// Fills the system row.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let Some(header) = lines.next(&mut outcome) else { return Outcome::bad_file() };
        let Some((places, columns)) = self.places(header) else { return Outcome::bad_file() };
        let mut sums = [NA; FIELDS];
        while let Some(line) = lines.next(&mut outcome) {
            let mut values = [NA; COLUMNS_MAX];
            if hexadecimals(line, &mut values) != Some(columns) {
                outcome.bad(lines.number());
                continue;
            }
            for (field, place) in places.iter().enumerate() {
                let (Some(slot), Some(value)) = (sums.get_mut(field), place.and_then(|at| values.get(at)))
                else {
                    continue;
                };
                // The first is of the table and not of the CPU.
                *slot = if *slot == NA || field == 0 { *value } else { sum(*slot, *value) };
            }
        }
        let row = frame.system_mut();
        for (field, ((_, column), value)) in self.fields.iter().zip(sums).enumerate() {
            // A sum with a part missing would be a counter that went back.
            if value != NA && (field == 0 || outcome.is_clean()) {
                column.set(row, value);
            }
        }
        outcome
    }

    /// Where each field stands in a line, and how many columns there are.
    fn places(&self, header: &[u8]) -> Option<([Option<usize>; FIELDS], usize)> {
        let mut places = [None; FIELDS];
        let mut rest = header;
        let mut columns = 0;
        while let Some((name, tail)) = word(rest) {
            if !name.iter().all(|b| b.is_ascii_lowercase() || *b == b'_') || columns >= COLUMNS_MAX {
                return None;
            }
            if let Some(field) = self.fields.iter().position(|(key, _)| *key == name)
                && let Some(place) = places.get_mut(field)
                && place.replace(columns).is_some()
            {
                return None;
            }
            columns += 1;
            rest = tail;
        }
        places.first()?.is_some().then_some((places, columns))
    }
}

/// Reads the words of a line; returns how many there were.
fn hexadecimals(line: &[u8], values: &mut [i64; COLUMNS_MAX]) -> Option<usize> {
    let mut rest = skip_blanks(line);
    let mut count = 0;
    while !rest.is_empty() {
        let (value, tail) = hex(rest)?;
        if !matches!(tail, [] | [b' ', ..]) {
            return None;
        }
        *values.get_mut(count)? = value;
        count += 1;
        rest = skip_blanks(tail);
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("3.10", "proc/net/stat/nf_conntrack");
        s.is("conntrack.count", 0x1f4);
        s.is("conntrack.insert_failed", 0x14);
        s.is("conntrack.search_restart", 2);
        let s = parsed("6.18", "proc/net/stat/nf_conntrack");
        s.is("conntrack.count", 0x2b);
        s.is("conntrack.invalid", 0x12 + 3);
        s.is("conntrack.drop", 7);
        s.is("conntrack.early_drop", 0);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "proc/net/stat/nf_conntrack",
            b"entries drop new\n00000005 00000001\n0000000x 00000001 00000000\n00000005 00000002 00000000\n",
        );
        s.is("conntrack.count", 5);
        s.count(1);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad), (2, Some(2)));
        for bad in [&b""[..], b"00000005 00000001\n", b"drop new\n1 2\n", b"entries entries\n1 2\n"] {
            let s = Sample::of("proc/net/stat/nf_conntrack", bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1, "{bad:?}");
        }
    }
}
