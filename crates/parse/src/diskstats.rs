//! `/proc/diskstats`: requests, sectors and times of each block device and partition.
//!
//! ```text
//!  254       0 vda 66249 16985 28940962 223671 59098 31860 126456776 210896 0 23196 435197 5429 29 5063672 575 1377 53
//! ```
//!
//! See `Documentation/admin-guide/iostats.rst`. After major, minor and name stand 11 numbers, 15 since 4.18 (discards)
//! and 17 since 5.5 (flushes). Sectors are 512 bytes, times milliseconds.

use mitra_model::{Entity, Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::rows::{Rows, lossy};
use crate::scan::{Lines, number, numbers, word};

const FIELDS: usize = 17;

/// The parser of `/proc/diskstats`.
#[derive(Debug)]
pub struct DiskStats {
    disks: Rows,
    columns: [Column; FIELDS],
}

impl Default for DiskStats {
    fn default() -> Self {
        let columns = Column::list([
            "disk.reads",
            "disk.read_merges",
            "disk.read_bytes",
            "disk.read_time",
            "disk.writes",
            "disk.write_merges",
            "disk.write_bytes",
            "disk.write_time",
            "disk.in_flight",
            "disk.io_time",
            "disk.weighted_time",
            "disk.discards",
            "disk.discard_merges",
            "disk.discard_bytes",
            "disk.discard_time",
            "disk.flushes",
            "disk.flush_time",
        ]);
        DiskStats { disks: Rows::default(), columns }
    }
}

impl DiskStats {
    /// Fills a row for each device.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let table = frame.table_mut(Entity::Disk);
        self.disks.begin(strings, table);
        while let Some(line) = lines.next(&mut outcome) {
            let Some((name, values, count)) = device(line) else {
                outcome.bad(lines.number());
                continue;
            };
            let Some(row) = self.disks.row(name, lossy, strings, table) else {
                outcome.bad(lines.number());
                continue;
            };
            for (column, value) in self.columns.iter().zip(values.iter().take(count)) {
                column.set(row, *value);
            }
            if values.iter().take(count).any(|value| *value == NA) {
                outcome.bad(lines.number());
            }
        }
        outcome
    }
}

/// Name, numbers and how many of them the kernel prints.
fn device(line: &[u8]) -> Option<(&[u8], [i64; FIELDS], usize)> {
    let (_, rest) = number(line)?;
    let (_, rest) = number(rest)?;
    let (name, rest) = word(rest)?;
    let mut values = [NA; FIELDS];
    let count = numbers(rest, &mut values)?;
    matches!(count, 11 | 15 | 17).then_some((name, values, count))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("3.10", "proc/diskstats");
        s.row_is("sda", "disk.reads", 812_334);
        s.row_is("sda1", "disk.weighted_time", 1_402);
        s.row_none("sda", "disk.discards");
        let s = parsed("4.18", "proc/diskstats");
        s.row_is("nvme0n1", "disk.discard_bytes", 88_112_640);
        s.row_none("nvme0n1", "disk.flushes");
        let s = parsed("5.15", "proc/diskstats");
        s.row_is("dm-0", "disk.flush_time", 0);
        let s = parsed("6.1", "proc/diskstats");
        s.row_is("sda", "disk.flushes", 20_117);
        let s = parsed("6.18", "proc/diskstats");
        s.row_is("vda", "disk.reads", 66_249);
        s.row_is("vda", "disk.read_bytes", 28_940_962);
        s.row_is("vda", "disk.io_time", 23_196);
        s.row_is("vda", "disk.flush_time", 53);
        s.row_is("loop7", "disk.writes", 0);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "proc/diskstats",
            b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 1 sda1 1 2 3 4 5 6 7 8 9 10\n\
              8 2 sda2 1 2 3 4 5 6 7 8 9 10 11 12\n8 x sda3 1 2 3 4 5 6 7 8 9 10 11\n8 4 sda4 1 2 3 -4 5 6 7 8 9 10 11\n\
              8 5 sda5 1 2 3 4 5 6 7 8 9 10 11\r\n8 6 sda6 99999999999999999999 2 3 4 5 6 7 8 9 10 11\n8 7 sda7 1 2 3 4 5 6 7 8 9 10 11",
        );
        s.row_is("sda", "disk.weighted_time", 11);
        s.row_none("sda6", "disk.reads");
        s.row_is("sda6", "disk.read_merges", 2);
        s.count(11 + 10);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad), (8, Some(2)));
    }
}
