//! `/proc/buddyinfo`: free blocks of each size in each memory zone.
//!
//! ```text
//! Node 0, zone   Normal   2152   4409   3233   2190   1114    508    247    116     58     16    120
//! ```
//!
//! See `frag_show_print` in `mm/vmstat.c`. The n-th number counts free blocks of 2^n pages.

use mitra_model::{Entity, Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::rows::Rows;
use crate::scan::{Lines, numbers, skip_blanks};
use crate::zoneinfo::{zone_header, zone_name};

/// Orders that have a metric. Kernels for large pages have more; theirs are left out.
const ORDERS: usize = 11;
/// More numbers than that stand in no line.
const ORDERS_MAX: usize = 32;

/// The parser of `/proc/buddyinfo`.
#[derive(Debug)]
pub struct BuddyInfo {
    zones: Rows,
    columns: [Column; ORDERS],
}

impl Default for BuddyInfo {
    fn default() -> Self {
        let columns = Column::list([
            "zone.buddy_0",
            "zone.buddy_1",
            "zone.buddy_2",
            "zone.buddy_3",
            "zone.buddy_4",
            "zone.buddy_5",
            "zone.buddy_6",
            "zone.buddy_7",
            "zone.buddy_8",
            "zone.buddy_9",
            "zone.buddy_10",
        ]);
        BuddyInfo { zones: Rows::default(), columns }
    }
}

impl BuddyInfo {
    /// Fills a row for each zone.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let table = frame.table_mut(Entity::Zone);
        self.zones.begin(strings, table);
        while let Some(line) = lines.next(&mut outcome) {
            let Some((name, blocks, count)) = split(line) else {
                outcome.bad(lines.number());
                continue;
            };
            let text =
                |raw: &[u8]| zone_header(raw).map_or_else(String::new, |(node, zone)| zone_name(node, zone));
            let Some(row) = self.zones.row(name, text, strings, table) else {
                outcome.bad(lines.number());
                continue;
            };
            for (column, value) in self.columns.iter().zip(blocks.iter().take(count)) {
                column.set(row, *value);
            }
            if blocks.iter().take(count).any(|value| *value == NA) {
                outcome.bad(lines.number());
            }
        }
        outcome
    }
}

/// The part of the line that names the zone, and the numbers of blocks.
fn split(line: &[u8]) -> Option<(&[u8], [i64; ORDERS_MAX], usize)> {
    let after = skip_blanks(line.strip_prefix(b"Node ")?);
    let zone_at = after.windows(7).position(|window| window == b", zone ")?;
    let name_start = line.len() - skip_blanks(after.get(zone_at + 7..)?).len();
    let name_length = line.get(name_start..)?.iter().position(|b| *b == b' ')?;
    let (name, rest) = line.split_at_checked(name_start + name_length)?;
    zone_header(name)?;
    let mut blocks = [NA; ORDERS_MAX];
    let count = numbers(rest, &mut blocks)?;
    (count > 0).then_some((name, blocks, count))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        parsed("3.10", "proc/buddyinfo").row_is("0/Normal", "zone.buddy_0", 9_120);
        parsed("4.18", "proc/buddyinfo").row_is("1/Normal", "zone.buddy_10", 4_471);
        parsed("5.15", "proc/buddyinfo").row_is("0/DMA32", "zone.buddy_3", 122);
        parsed("6.1", "proc/buddyinfo").row_is("0/Normal", "zone.buddy_1", 4_005);
        let s = parsed("6.18", "proc/buddyinfo");
        s.row_is("0/DMA", "zone.buddy_8", 1);
        s.row_is("0/DMA", "zone.buddy_10", 3);
        s.row_is("0/DMA32", "zone.buddy_10", 752);
        s.row_is("0/Normal", "zone.buddy_0", 2_152);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "proc/buddyinfo",
            b"Node 0, zone      DMA      0      7 \nNode 0, zone      DMA      1      7 \nNode 0, zone   Normal      0      x \n\
              Node 0, zone   Normal\nNode 0, zone  High   0   -7 \nNode, zone High 1 2\nNode 1, zone  Normal   2   3 \r\nNode 0, zone  Movable    5",
        );
        s.row_is("0/DMA", "zone.buddy_0", 0);
        s.row_is("0/DMA", "zone.buddy_1", 7);
        s.count(2);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad), (7, Some(2)));
    }
}
