//! `/sys/devices/system/node/nodeN/{numastat,meminfo}`: one NUMA node.
//!
//! ```text
//! numa_hit 4223399
//! numa_miss 0
//! numa_foreign 0
//! interleave_hit 1129
//! local_node 4223399
//! other_node 0
//! ```
//! ```text
//! Node 0 MemTotal:        4942028 kB
//! Node 0 MemFree:         4114832 kB
//! Node 0 HugePages_Total:     0
//! ```
//!
//! See `Documentation/admin-guide/numastat.rst` and `drivers/base/node.c`.

use mitra_model::{Entity, Frame, Key, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::flat_keyed::lines_of_numbers;
use crate::keyed::Keyed;
use crate::meminfo::{Field, parse_fields};
use crate::scan::digits;

/// The parser of the files of all nodes.
#[derive(Debug, Default)]
pub struct Node {
    numastat: Keyed<Option<Column>>,
    meminfo: Keyed<Option<Field>>,
    names: Vec<Key>,
    generation: u32,
}

/// No machine has more nodes.
const NODES_MAX: u32 = 4096;

impl Node {
    /// Fills the row of the node from `numastat`.
    pub fn numastat(&mut self, node: u32, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let Some(row) = self.row(node, strings, frame) else { return Outcome::bad_file() };
        let classify = |key: &[u8]| Column::in_area("node", key.strip_suffix(b" ")?);
        lines_of_numbers(&mut self.numastat, input, classify, row, |value| value)
    }

    /// Fills the row of the node from `meminfo`.
    pub fn meminfo(&mut self, node: u32, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let Some(row) = self.row(node, strings, frame) else { return Outcome::bad_file() };
        parse_fields(&mut self.meminfo, input, key_length, field, row)
    }

    fn row<'f>(&mut self, node: u32, strings: &mut Strings, frame: &'f mut Frame) -> Option<&'f mut [i64]> {
        if self.generation != strings.generation() {
            self.generation = strings.generation();
            self.names.clear();
        }
        while node < NODES_MAX && self.names.len() <= node as usize {
            self.names.push(Key::named(strings.intern(&self.names.len().to_string())));
        }
        let key = *self.names.get(node as usize)?;
        let table = frame.table_mut(Entity::Node);
        Some(match table.keys().iter().position(|k| *k == key) {
            Some(row) => table.row_mut(row),
            None => table.push(key),
        })
    }
}

/// `Node 0 MemTotal:` — the number of the node belongs to the key.
fn key_length(line: &[u8]) -> Option<usize> {
    let (_, rest) = digits(line.strip_prefix(b"Node ")?)?;
    let rest = rest.strip_prefix(b" ")?;
    let colon = rest.iter().position(|b| matches!(b, b':' | b'\n'))?;
    (colon > 0 && rest.get(colon) == Some(&b':')).then_some(line.len() - rest.len() + colon + 1)
}

/// The field of a line. Those that `/proc/meminfo` or `/proc/zoneinfo` have as well are known and left out.
fn field(key: &[u8]) -> Option<Field> {
    let (_, rest) = digits(key.strip_prefix(b"Node ")?)?;
    Field::of(match rest {
        b" MemTotal:" => "node.mem_total",
        b" MemFree:" => "node.mem_free",
        b" HugePages_Total:" => "node.huge_total",
        b" HugePages_Free:" => "node.huge_free",
        b" HugePages_Surp:" => "node.huge_surp",
        b" MemUsed:" | b" FilePages:" => return Some(Field::left_out()),
        _ => {
            crate::meminfo::field(rest.strip_prefix(b" ")?)?;
            return Some(Field::left_out());
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        parsed("3.10", "sys/devices/system/node/node0/numastat").row_is("0", "node.numa_hit", 71_203_311);
        let s = parsed("4.18", "sys/devices/system/node/node1/numastat");
        s.row_is("1", "node.numa_foreign", 20_113);
        s.row_is("1", "node.other_node", 8_812);
        parsed("4.18", "sys/devices/system/node/node1/meminfo").row_is("1", "node.mem_free", 1_204_776);
        parsed("5.15", "sys/devices/system/node/node0/meminfo").row_is("0", "node.huge_total", 64);
        parsed("6.1", "sys/devices/system/node/node0/numastat").row_is("0", "node.interleave_hit", 2_204);
        parsed("6.18", "sys/devices/system/node/node0/numastat").row_is("0", "node.local_node", 4_223_399);
        let s = parsed("6.18", "sys/devices/system/node/node0/meminfo");
        s.row_is("0", "node.mem_total", 4_942_028);
        s.row_is("0", "node.mem_free", 4_114_832);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "sys/devices/system/node/node0/numastat",
            b"numa_hit 5\nnuma_hit 6\nnuma_miss -1\nlocal_node x\nother_node\nnovel 2\nnuma_foreign 3\r\ninterleave_hit 4",
        );
        s.row_is("0", "node.numa_hit", 5);
        s.count(1);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad, s.outcome.unknown_keys), (6, Some(2), 1));
        let s = Sample::of(
            "sys/devices/system/node/node0/meminfo",
            b"Node 0 MemTotal: 5 kB\nNode 0 MemTotal: 6 kB\nNode x MemFree: 5 kB\nMemFree: 5 kB\nNode 0 MemFree: 7\nNode 0 : 3\n\
              Node 0 HugePages_Free: 2\r\nNode 0 Novel: 7 kB\nNode 0 HugePages_Total: 8",
        );
        s.row_is("0", "node.mem_total", 5);
        s.count(1);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad, s.outcome.unknown_keys), (7, Some(2), 1));
    }
}
