//! `/proc/net/softnet_stat`: what each CPU took from network devices. Hexadecimal, no names.
//!
//! ```text
//! 000017ac 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
//! ```
//!
//! See `softnet_seq_show` in `net/core/net-procfs.c`: processed, dropped, time squeeze, five unused, collisions (always
//! 0), received by RPS, flow limit (3.11), backlog and number of the CPU (5.10), and two parts of the backlog. Only
//! CPUs that are online have a line, so before 5.10 `/proc/stat` must tell which they are.

use mitra_model::{Entity, Frame, Key, NA, Strings, Table};

use crate::Outcome;
use crate::column::Column;
use crate::rows::{Rows, lossy};
use crate::scan::{Lines, hex, skip_blanks};
use crate::stat::online_cpu;

/// Numbers that are read of a line; more may follow.
const FIELDS: usize = 13;
const FIELDS_MIN: usize = 9;
/// The column of the CPU number.
const CPU: usize = 12;

/// The parser of `/proc/net/softnet_stat`.
#[derive(Debug)]
pub struct SoftNet {
    cpus: Rows,
    columns: [(usize, Column); 6],
}

impl Default for SoftNet {
    fn default() -> Self {
        SoftNet {
            cpus: Rows::default(),
            columns: [
                (0, Column::of("softnet.processed")),
                (1, Column::of("softnet.dropped")),
                (2, Column::of("softnet.time_squeeze")),
                (9, Column::of("softnet.received_rps")),
                (10, Column::of("softnet.flow_limit")),
                (11, Column::of("softnet.backlog")),
            ],
        }
    }
}

impl SoftNet {
    /// Fills the row of each CPU that is online.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let table = frame.table_mut(Entity::Cpu);
        // A file with fewer or more lines than there are CPUs cannot be told apart without their numbers.
        let in_order = table.len() == input.iter().filter(|b| **b == b'\n').count();
        self.cpus.begin(strings, table);
        while let Some(line) = lines.next(&mut outcome) {
            let mut values = [NA; FIELDS];
            let row = match fields(line, &mut values) {
                Some(count) if count > CPU => self.numbered(&values, strings, table),
                Some(_) if in_order => online_cpu(table, lines.number() as usize - 1),
                _ => None,
            };
            let Some(row) = row.and_then(|key| table.keys().iter().position(|k| *k == key)) else {
                outcome.bad(lines.number());
                continue;
            };
            let row = table.row_mut(row);
            for (field, column) in self.columns {
                column.set(row, values.get(field).copied().unwrap_or(NA));
            }
        }
        outcome
    }

    /// The row of the CPU whose number stands in the line; a number that came already has none.
    fn numbered(&mut self, values: &[i64; FIELDS], strings: &mut Strings, table: &mut Table) -> Option<Key> {
        let mut digits = [0; 20];
        let name = decimal(u64::try_from(*values.get(CPU)?).ok()?, &mut digits);
        let row = self.cpus.position(name, lossy, strings, table, false)?;
        table.keys().get(row).copied()
    }
}

/// Reads words of 8 hexadecimal digits; returns how many of those that are wanted there were.
fn fields(line: &[u8], values: &mut [i64; FIELDS]) -> Option<usize> {
    let mut rest = line;
    let mut count = 0;
    while !rest.is_empty() {
        let (value, tail) = hex(rest)?;
        if rest.len() - tail.len() != 8 {
            return None;
        }
        if let Some(slot) = values.get_mut(count) {
            *slot = value;
        }
        count += 1;
        rest = match tail {
            [] => tail,
            [b' ', ..] => skip_blanks(tail),
            _ => return None,
        };
    }
    (count >= FIELDS_MIN).then_some(count)
}

/// Writes a number in decimal digits at the end of the buffer.
fn decimal(mut value: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut start = buffer.len();
    for slot in buffer.iter_mut().rev() {
        *slot = b'0' + u8::try_from(value % 10).unwrap_or(0);
        start -= 1;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    buffer.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::decimal;
    use crate::testing::{Sample, parsed, parsed_after};

    #[test]
    fn each_kernel() {
        let s = parsed_after("3.10", &["proc/stat", "proc/net/softnet_stat"]);
        s.row_is("0", "softnet.processed", 0x01fa_3b2c);
        s.row_is("3", "softnet.time_squeeze", 0x21);
        s.row_none("3", "softnet.backlog");
        let s = parsed_after("5.15", &["proc/stat", "proc/net/softnet_stat"]);
        s.row_is("5", "softnet.processed", 0x4411);
        let s = parsed_after("6.18", &["proc/stat", "proc/net/softnet_stat"]);
        s.row_is("0", "softnet.processed", 0x17ac);
        s.row_is("1", "softnet.processed", 0x1bb5);
        s.row_is("1", "softnet.backlog", 0);
        parsed("6.18", "proc/net/softnet_stat").row_is("1", "softnet.processed", 0x1bb5);
    }

    #[test]
    fn damage() {
        let zeros = " 00000000".repeat(11);
        let line = |first: &str, cpu: &str| format!("{first}{zeros} {cpu} 00000000 00000000\n");
        let good = line("00000001", "00000000") + &line("00000002", "00000001");
        let s = Sample::of("proc/net/softnet_stat", good.as_bytes());
        s.row_is("1", "softnet.processed", 2);
        let again = line("00000001", "00000000") + &line("00000002", "00000000");
        let s = Sample::of("proc/net/softnet_stat", again.as_bytes());
        s.row_is("0", "softnet.processed", 1);
        assert_eq!(s.outcome.first_bad, Some(2));
        for bad in ["0000000g", "000000001", "-0000001", "", "00000001\r"] {
            let s = Sample::of("proc/net/softnet_stat", line(bad, "00000000").as_bytes());
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1, "{bad:?}");
        }
        // Without CPU numbers and without `/proc/stat` the CPU of a line is unknown.
        let s = Sample::of(
            "proc/net/softnet_stat",
            b"00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n",
        );
        s.count(0);
        assert_eq!(s.outcome.bad_lines, 1);
    }

    #[test]
    fn numbers_in_decimal() {
        for value in [0, 7, 10, 4_294_967_295, u64::MAX] {
            assert_eq!(decimal(value, &mut [0; 20]), value.to_string().as_bytes());
        }
    }
}
