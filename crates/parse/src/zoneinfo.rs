//! `/proc/zoneinfo`: watermarks and levels of each memory zone, and the statistics of each node.
//!
//! ```text
//! Node 0, zone   Normal
//!   per-node stats
//!       nr_inactive_anon 5833
//!   pages free     271296
//!         min      6273
//!         protection: (0, 0, 0, 0, 0)
//!       nr_free_pages 271296
//!   pagesets
//!     cpu: 0
//!               count:    3724
//!   node_unreclaimable:  0
//!   start_pfn:           1048576
//! ```
//!
//! See `zoneinfo_show_print` in `mm/vmstat.c`. Statistics by node came with 4.8 and stand before the first zone of
//! the node that has memory; before, all statistics were by zone and were printed above `protection`.

use mitra_model::{Entity, Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::keyed::{Keyed, KeyedLine};
use crate::rows::{Rows, lossy};
use crate::scan::{Lines, digits, only_number, skip_blanks, word};

/// The parser of `/proc/zoneinfo`.
#[derive(Debug, Default)]
pub struct ZoneInfo {
    keys: Keyed<Slot>,
    zones: Rows,
    nodes: Rows,
}

/// The one line without a value.
const PAGESETS: &[u8] = b"  pagesets";

/// The meaning of a line. Its key is indentation and first word, because only the indentation tells the watermark `high`
/// from the limit of a CPU's list.
#[derive(Debug, Clone, Copy)]
enum Slot {
    /// A statistic: of the node between `per-node stats` and `pages free`, otherwise of the zone.
    Stat { zone: Option<Column>, node: Option<Column> },
    /// A line of the zone.
    Zone(Column),
    /// The statistics below are the node's.
    PerNode,
    /// Ignored: any value, any number of times.
    Ignored,
    /// A counter that the metric table does not have.
    Unknown,
}

impl ZoneInfo {
    /// Fills a row for each zone and each node.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let (mut zone, mut node) = (None, None);
        let mut in_node = false;
        let mut in_zone = false;
        let mut after_header = false;
        self.zones.begin(strings, frame.table(Entity::Zone));
        self.nodes.begin(strings, frame.table(Entity::Node));
        self.keys.begin();
        while let Some(line) = lines.next(&mut outcome) {
            if let Some((number, name)) = zone_header(line) {
                self.keys.begin_pass();
                (in_node, in_zone) = (false, false);
                after_header = true;
                let table = frame.table_mut(Entity::Zone);
                zone = self.zones.position(line, |_| zone_name(number, name), strings, table, true);
                // A node has a line for each of its zones, so the second one finds its row taken.
                let table = frame.table_mut(Entity::Node);
                node = self.nodes.position(number, lossy, strings, table, true).or(node);
                if zone.is_none() {
                    outcome.bad(lines.number());
                }
                continue;
            }
            if line == PAGESETS {
                continue;
            }
            let follows_header = std::mem::replace(&mut after_header, false);
            let found = self.keys.find(line, key_length, slot);
            if is_out_of_place(line, found.as_ref(), follows_header) {
                // The header of a zone is missing or damaged: the lines below are of an unknown zone.
                (zone, node) = (None, None);
            }
            let Some(found) = found else {
                outcome.bad(lines.number());
                continue;
            };
            let (entity, row, column) = match found.slot {
                Slot::Ignored => continue,
                Slot::PerNode => {
                    in_node = true;
                    if node.is_none() {
                        outcome.bad(lines.number());
                    }
                    continue;
                }
                Slot::Zone(column) => {
                    (in_node, in_zone) = (false, true);
                    (Entity::Zone, zone, Some(column))
                }
                Slot::Stat { node: column, .. } if in_node => (Entity::Node, node, column),
                Slot::Stat { zone: column, .. } if in_zone => (Entity::Zone, zone, column),
                Slot::Stat { .. } => {
                    // Neither mark stands above it.
                    outcome.bad(lines.number());
                    continue;
                }
                Slot::Unknown => (Entity::Zone, zone, None),
            };
            match (only_number(found.rest), column, row) {
                (Some(_), None, _) => outcome.unknown_keys += u32::from(matches!(found.slot, Slot::Unknown)),
                (Some(value), Some(column), Some(row)) if !found.again => {
                    column.set(frame.table_mut(entity).row_mut(row), value);
                    if value == NA {
                        outcome.bad(lines.number());
                    }
                }
                _ => outcome.bad(lines.number()),
            }
        }
        outcome
    }
}

/// Whether the line cannot belong to the zone whose header came last.
fn is_out_of_place(line: &[u8], found: Option<&KeyedLine<'_, Slot>>, follows_header: bool) -> bool {
    match found {
        _ if !line.starts_with(b" ") => true,
        Some(KeyedLine { slot: Slot::PerNode, .. }) => !follows_header,
        Some(KeyedLine { again, .. }) => *again && line.starts_with(b"  pages free "),
        None => false,
    }
}

/// Number of the node and name of the zone of `Node 0, zone   Normal` and what may follow.
pub(crate) fn zone_header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"Node ")?;
    let (_, after) = digits(rest)?;
    let number = rest.get(..rest.len() - after.len())?;
    let (name, []) = word(after.strip_prefix(b", zone ")?)? else { return None };
    Some((number, name))
}

/// The name of a row: `0/Normal`.
pub(crate) fn zone_name(number: &[u8], name: &[u8]) -> String {
    format!("{}/{}", String::from_utf8_lossy(number), String::from_utf8_lossy(name))
}

/// The indentation and the first word with the blank or colon that ends it; `pages free ` counts as one word.
fn key_length(line: &[u8]) -> Option<usize> {
    let start = line.len() - skip_blanks(line).len();
    let word = line.get(start..)?;
    if word.starts_with(b"pages ") {
        // Neither of two keys may be the beginning of the other.
        return word.starts_with(b"pages free ").then_some(start + 11);
    }
    let end = word.iter().position(|b| matches!(b, b' ' | b':'))?;
    (end > 0).then_some(start + end + 1)
}

fn slot(key: &[u8]) -> Slot {
    let indent = key.len() - skip_blanks(key).len();
    let zone = |name: &[u8]| Column::in_area("zone", name).map_or(Slot::Unknown, Slot::Zone);
    match (indent, skip_blanks(key)) {
        (2, b"per-node ") => Slot::PerNode,
        (2, b"pages free ") => zone(b"free"),
        (2, b"node_unreclaimable:" | b"all_unreclaimable:") => zone(b"node_unreclaimable"),
        (2, b"vm " | b"start_pfn:" | b"inactive_ratio:" | b"prev_priority:" | b"page ")
        | (4, b"cpu:")
        | (14.., _)
        | (_, b"protection:")
        | (8, b"scanned ") => Slot::Ignored,
        (8, key) => zone(key.strip_suffix(b" ").unwrap_or_default()),
        (4 | 6, key) => {
            let name = key.strip_suffix(b" ").unwrap_or_default();
            let (zone, node) = (Column::in_area("zone", name), Column::in_area("node", name));
            // Whatever the machine as a whole counts is known, be it worth a column here or not.
            match zone.or(node).or(Column::in_area("vm", name)) {
                Some(_) => Slot::Stat { zone, node },
                None => Slot::Unknown,
            }
        }
        _ => Slot::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("3.10", "proc/zoneinfo");
        s.row_is("0/DMA", "zone.free", 3_973);
        s.row_is("0/Normal", "zone.nr_inactive_file", 120_331);
        s.row_is("0/Normal", "zone.node_unreclaimable", 0);
        s.row_is("0/DMA", "zone.node_unreclaimable", 1);
        let s = parsed("4.18", "proc/zoneinfo");
        s.row_is("0/Normal", "zone.high", 15_882);
        s.row_is("0", "node.nr_active_file", 411_002);
        s.row_is("1", "node.nr_active_file", 377_119);
        s.row_is("1/Normal", "zone.managed", 2_045_112);
        let s = parsed("5.15", "proc/zoneinfo");
        s.row_is("0/DMA32", "zone.cma", 0);
        s.row_is("0", "node.workingset_refault_file", 2_218_904);
        let s = parsed("6.1", "proc/zoneinfo");
        s.row_is("0/Normal", "zone.boost", 512);
        let s = parsed("6.18", "proc/zoneinfo");
        s.row_is("0/DMA", "zone.free", 3_840);
        s.row_is("0/DMA32", "zone.nr_free_pages_blocks", 771_072);
        s.row_is("0/Normal", "zone.promo", 10_977);
        s.row_is("0/Normal", "zone.nr_zone_active_file", 73_990);
        s.row_is("0/Device", "zone.present", 0);
        s.row_is("0", "node.nr_active_file", 79_693);
        s.row_is("0", "node.pgpromote_success", 0);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "proc/zoneinfo",
            b"  pages free     5\nNode 0, zone      DMA\n  pages free     3840\n        min      -52\n        low      65x\n\
              \x20       high     78\n        high     79\n        novel    3\n              high:    5\n  pagesets\nrubbish\n\
              Node 0, zone      DMA\n        min      1\nNode x, zone DMA\n        low      9\nNode 0, zone  Normal\n        low      9",
        );
        s.row_is("0/DMA", "zone.free", 3_840);
        s.row_is("0/DMA", "zone.high", 78);
        s.count(2);
        // Free without a zone, two numbers, a key that comes again, rubbish of no known form, a zone that comes
        // again with a line that belongs to it, a header of no form with another, and a line that was cut off.
        assert_eq!(s.outcome.first_bad, Some(1));
        assert_eq!((s.outcome.bad_lines, s.outcome.unknown_keys), (10, 1));
    }

    #[test]
    fn what_was_damaged_once_is_not_mistaken_later() {
        let good = b"Node 0, zone      DMA\n  pages free     3840\n        min      52\n  pagesets\n";
        let mut s = Sample::of(
            "proc/zoneinfo",
            b"Node 0, zone      DMA\n  pagesXfree     3840\n        mi\n  pagesets 5\n  page\n",
        );
        s.count(0);
        s.again(good);
        s.row_is("0/DMA", "zone.free", 3_840);
        s.row_is("0/DMA", "zone.min", 52);
        assert_eq!(s.outcome.bad_lines, 0);
    }
}
