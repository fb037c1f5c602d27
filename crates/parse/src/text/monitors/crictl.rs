//! `crictl stats`: CPU and memory of containers of a node.
//!
//! ```text
//! CONTAINER           NAME                CPU %               MEM                 DISK                INODES
//! 4ee8a1f0c2d3a       web                 12.50               120.5MB             24.58kB             12
//! ```
//!
//! Sizes are powers of 1000. The old form has no name, and the new one may have a swap and a pod. Containers of several pods
//! have one name: the second one and further ones are named with their id.

use std::collections::HashSet;

use super::consoles::{cells, size};
use super::csv::step;
use super::wide::Cell;
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// See the module.
pub const FORMAT: Format = Format::new(
    "crictl stats",
    "CPU and memory of containers",
    |lines, _| lines.peek().and_then(header).is_some(),
    read,
);

/// The places of the columns that are read.
struct Columns {
    id: usize,
    name: usize,
    cpu: usize,
    memory: usize,
    width: usize,
}

fn header(line: &[u8]) -> Option<Columns> {
    if !line.starts_with(b"CONTAINER ") {
        return None;
    }
    let list = cells(line);
    let at = |name: &[u8]| list.iter().position(|cell| *cell == name);
    at(b"DISK").or_else(|| at(b"INODES"))?;
    let id = at(b"CONTAINER")?;
    Some(Columns {
        id,
        name: at(b"NAME").unwrap_or(id),
        cpu: at(b"CPU %")?,
        memory: at(b"MEM")?,
        width: list.len(),
    })
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let Some(mut columns) = lines.peek().and_then(header) else { return };
    let mut sink = Sink::default();
    let now = |import: &mut Import| import.context.stamp.unwrap_or_else(|| step(import));
    let mut when = now(import);
    let mut names: HashSet<Vec<u8>> = HashSet::new();
    lines.advance();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(found) = header(line) {
            columns = found;
            when = now(import);
            names.clear();
            return Took::Yes;
        }
        let list = cells(line);
        let cell = |at: usize| list.get(at).copied().unwrap_or_default();
        let (cpu, memory) = (number(cell(columns.cpu)), size(cell(columns.memory)));
        let (Some(cpu), Some(memory), true) = (cpu, memory, list.len() == columns.width) else {
            return Took::No;
        };
        let mut name = cell(columns.name).to_vec();
        if !names.insert(name.clone()) {
            name.push(b'-');
            name.extend_from_slice(cell(columns.id));
        }
        for (metric, form, factor, value) in
            [("cgroup.cpu_usage", Form::Rate, 0.01, cpu), ("cgroup.memory_current", Form::Level, 1.0, memory)]
        {
            if let Some(known) = Cell::new(metric, form, factor, &name) {
                known.put(value, when, at, &mut sink, import);
            }
        }
        Took::Yes
    });
}
