//! `/proc/net/dev`: packets and bytes of each network device.
//!
//! ```text
//! Inter-|   Receive                                                |  Transmit
//!  face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
//!     lo:  932240   10531    0    0    0     0          0         0   932240   10531    0    0    0     0       0          0
//! ```
//!
//! See `dev_seq_printf_stats` in `net/core/net-procfs.c`. A long name leaves no blank after the colon.

use mitra_model::{Entity, Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::rows::{Rows, lossy};
use crate::scan::{Lines, numbers, skip_blanks};

const FIELDS: usize = 16;
/// One more, to notice a line that is too long.
const FIELDS_READ: usize = FIELDS + 1;

/// The parser of `/proc/net/dev`.
#[derive(Debug)]
pub struct NetDev {
    devices: Rows,
    columns: [Column; FIELDS],
}

impl Default for NetDev {
    fn default() -> Self {
        let columns = Column::list([
            "nic.rx_bytes",
            "nic.rx_packets",
            "nic.rx_errs",
            "nic.rx_drop",
            "nic.rx_fifo",
            "nic.rx_frame",
            "nic.rx_compressed",
            "nic.rx_multicast",
            "nic.tx_bytes",
            "nic.tx_packets",
            "nic.tx_errs",
            "nic.tx_drop",
            "nic.tx_fifo",
            "nic.tx_colls",
            "nic.tx_carrier",
            "nic.tx_compressed",
        ]);
        NetDev { devices: Rows::default(), columns }
    }
}

impl NetDev {
    /// Fills a row for each device.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let table = frame.table_mut(Entity::Nic);
        self.devices.begin(strings, table);
        while let Some(line) = lines.next(&mut outcome) {
            if line.contains(&b'|') {
                continue;
            }
            let row = device(line)
                .and_then(|(name, values)| Some((self.devices.row(name, lossy, strings, table)?, values)));
            let Some((row, values)) = row else {
                outcome.bad(lines.number());
                continue;
            };
            for (column, value) in self.columns.iter().zip(values) {
                column.set(row, value);
            }
            if values.iter().take(FIELDS).any(|value| *value == NA) {
                outcome.bad(lines.number());
            }
        }
        outcome
    }
}

fn device(line: &[u8]) -> Option<(&[u8], [i64; FIELDS_READ])> {
    let line = skip_blanks(line);
    let colon = line.iter().position(|b| *b == b':')?;
    let (name, rest) = line.split_at_checked(colon)?;
    let mut values = [NA; FIELDS_READ];
    let count = numbers(rest.strip_prefix(b":")?, &mut values)?;
    (count == FIELDS && !name.is_empty()).then_some((name, values))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        parsed("3.10", "proc/net/dev").row_is("eth0", "nic.rx_bytes", 48_812_334_011);
        parsed("4.18", "proc/net/dev").row_is("ens192", "nic.rx_drop", 8_114);
        parsed("5.15", "proc/net/dev").row_is("enp0s31f6", "nic.tx_carrier", 3);
        parsed("6.1", "proc/net/dev").row_is("veth0123456789a", "nic.tx_packets", 911);
        let s = parsed("6.18", "proc/net/dev");
        s.row_is("lo", "nic.rx_bytes", 932_240);
        s.row_is("eth0", "nic.tx_packets", 1_753);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "proc/net/dev",
            b"Inter-| Receive\nlo:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nlo:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
              a: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\nb: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
              c 1 2\nd: -1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\ne: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\r\nf: 1 2 3",
        );
        s.row_is("lo", "nic.tx_compressed", 16);
        s.count(16);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad), (8, Some(3)));
    }
}
