//! `numastat`: a table with a column for each node.
//!
//! ```text
//!                            node0           node1
//! numa_hit               273607755        71203311
//! other_node                     0            8812
//! ```
//! ```text
//! Per-node system memory usage (in MBs):
//!                           Node 0          Node 1           Total
//!                  --------------- --------------- ---------------
//! MemTotal                24105.55        24105.55        48211.10
//! ```
//!
//! With `-n` and `-v` the counters are in MiB of pages; then only what is not a counter of pages is taken.

use mitra_model::{Entity, lookup};

use super::keys::of_entity;
use super::sink::Sink;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("numastat", "hits and misses of NUMA nodes; with `-m` and `-n`", starts, read);

/// No machine has more nodes, and no table of them more columns.
const NODES_MAX: usize = 1024;

/// The numbers of the nodes in a heading: `node0 node1`, or `Node 0 Node 1 Total`, which is in MiB.
fn heading(line: &[u8]) -> Option<(Vec<String>, bool)> {
    let mut nodes = Vec::new();
    let mut list = words(line).peekable();
    let in_mib = list.peek() == Some(&&b"Node"[..]);
    while let Some(word) = list.next() {
        let number = if in_mib {
            if word == b"Total" && !nodes.is_empty() && list.peek().is_none() {
                break;
            }
            (word == b"Node").then(|| list.next())??
        } else {
            word.strip_prefix(b"node")?
        };
        integer(number)?;
        nodes.push(text(number));
        if nodes.len() > NODES_MAX {
            return None;
        }
    }
    (!nodes.is_empty()).then_some((nodes, in_mib))
}

fn is_title(line: &[u8]) -> bool {
    line.starts_with(b"Per-node ") && line.ends_with(b"(in MBs):")
}

/// What `numastat` says of keys that it does not know.
fn is_complaint(line: &[u8]) -> bool {
    line.starts_with(b"Token ") && line.ends_with(b" not in hash table.")
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    if is_title(line) {
        return true;
    }
    heading(line).is_some()
        && lines.soon(1, |next| {
            let mut list = words(next);
            let first = list.next().unwrap_or_default();
            first.starts_with(b"---") || (of_entity(Entity::Node, first).is_some() && list.next().is_some())
        })
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sink = Sink::default();
    let mut nodes: Option<(Vec<String>, bool)> = None;
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(found) = heading(line) {
            nodes = Some(found);
        } else if line.trim_ascii().is_empty() {
            if !lines.soon(1, is_title) {
                return Took::No;
            }
        } else if !(is_title(line) || is_complaint(line) || line.trim_ascii().starts_with(b"---")) {
            let Some((nodes, in_mib)) = &nodes else { return Took::No };
            if !row(line, nodes, *in_mib, at, &mut sink, import) {
                return Took::No;
            }
        }
        Took::Yes
    });
}

/// Whether the line has a number for each node.
fn row(line: &[u8], nodes: &[String], in_mib: bool, at: u32, sink: &mut Sink, import: &mut Import) -> bool {
    let mut list = words(line);
    let Some(key) = list.next() else { return false };
    let values: Option<Vec<f64>> = list.map(number).collect();
    let Some(values) = values.filter(|v| v.len() == nodes.len() + usize::from(in_mib)) else { return false };
    let (metric, factor) = if in_mib {
        let name = match key {
            b"MemTotal" => "node.mem_total",
            b"MemFree" => "node.mem_free",
            _ => return true,
        };
        (lookup(name), 1024.0 * 1024.0)
    } else {
        (of_entity(Entity::Node, key), 1.0)
    };
    let Some(metric) = metric else { return true };
    let form = if metric.is_rate() { Form::Total } else { Form::Level };
    let when = import.now();
    for (node, value) in nodes.iter().zip(values) {
        sink.put_as(import, metric, form, factor, node.as_bytes(), when, at, value);
    }
    true
}
