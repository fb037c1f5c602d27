//! One sample of the whole machine: a table for each entity.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::metric::{Entity, columns};
use crate::strings::{StrId, Strings};
use crate::time::Stamp;

pub use crate::event::{Event, EventKind, SourceLine};

/// A cell that was not measured. Unavailable is not zero.
pub const NA: i64 = i64::MIN;

/// The identity of a row, also across reused ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key {
    /// A task: its thread id. Exited: the parent's process id. Otherwise the [`StrId`] of the row's name.
    pub id: u64,
    /// A task: when it started, in nanoseconds since boot (`CLOCK_BOOTTIME`), so that a reused id is another row.
    /// Exited: the [`StrId`] of the command. Otherwise 0.
    pub born: u64,
}

impl Key {
    /// The key of the only row of the system table.
    pub const SYSTEM: Key = Key { id: 0, born: 0 };

    /// The key of a row that has a name.
    #[must_use]
    pub fn named(name: StrId) -> Key {
        Key { id: u64::from(name), born: 0 }
    }

    /// The key of a task.
    #[must_use]
    pub fn task(tid: u32, start_boot_ns: u64) -> Key {
        Key { id: u64::from(tid), born: start_boot_ns }
    }

    /// The key of exited tasks with one parent and one command.
    #[must_use]
    pub fn exited(parent_pid: u32, comm: StrId) -> Key {
        Key { id: u64::from(parent_pid), born: u64::from(comm) }
    }
}

/// The rows of one entity: row-major cells, one column for each metric of the entity.
#[derive(Debug, Clone)]
pub struct Table {
    entity: Entity,
    width: usize,
    keys: Vec<Key>,
    cells: Vec<i64>,
    /// Rows that are as in the frame before.
    kept: Vec<bool>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(entity: Entity) -> Self {
        let width = columns(entity).len();
        Table { entity, width, keys: Vec::new(), cells: Vec::new(), kept: Vec::new() }
    }

    /// The entity of the rows.
    #[must_use]
    pub fn entity(&self) -> Entity {
        self.entity
    }

    /// The number of columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Removes the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.cells.clear();
        self.kept.clear();
    }

    /// Appends a row whose cells are all unavailable and returns it. Keys must be unique within a frame.
    pub fn push(&mut self, key: Key) -> &mut [i64] {
        self.keys.push(key);
        self.kept.push(false);
        let start = self.cells.len();
        self.cells.resize(start + self.width, NA);
        &mut self.cells[start..]
    }

    /// The keys, in row order.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The cells of one row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[i64] {
        &self.cells[row * self.width..(row + 1) * self.width]
    }

    /// The cells of one row.
    pub fn row_mut(&mut self, row: usize) -> &mut [i64] {
        self.kept[row] = false;
        &mut self.cells[row * self.width..(row + 1) * self.width]
    }

    /// Says that a row is as it was in the frame of [`Frame::kept_from`].
    pub fn keep_row(&mut self, row: usize) {
        self.kept[row] = true;
    }

    /// Whether a row is known to be as it was in the frame of [`Frame::kept_from`].
    #[must_use]
    pub fn is_kept(&self, row: usize) -> bool {
        self.kept[row]
    }

    /// Removes the row; the last row takes its place.
    pub fn swap_remove(&mut self, row: usize) {
        let last = self.keys.len() - 1;
        self.keys.swap_remove(row);
        self.kept.swap_remove(row);
        if row != last {
            let (head, tail) = self.cells.split_at_mut(last * self.width);
            head[row * self.width..(row + 1) * self.width].copy_from_slice(tail);
        }
        self.cells.truncate(last * self.width);
    }

    /// Drops these rows, which are in ascending order; the others keep theirs.
    pub fn remove_rows(&mut self, rows: &[u32]) {
        let Some(first) = rows.first() else { return };
        let first = *first as usize;
        let mut to = first;
        let mut dropped = rows.iter().peekable();
        for from in first..self.len() {
            if dropped.next_if(|row| **row as usize == from).is_none() {
                self.keys[to] = self.keys[from];
                self.kept[to] = self.kept[from];
                self.cells.copy_within(from * self.width..(from + 1) * self.width, to * self.width);
                to += 1;
            }
        }
        self.keys.truncate(to);
        self.kept.truncate(to);
        self.cells.truncate(to * self.width);
    }

    /// Keys and cells, row by row.
    pub fn rows(&self) -> impl Iterator<Item = (Key, &[i64])> {
        self.keys.iter().copied().zip(self.cells.chunks_exact(self.width.max(1)))
    }
}

/// One sample of the whole machine.
#[derive(Debug, Clone)]
pub struct Frame {
    /// When it was taken.
    pub time: Stamp,
    /// The configured sampling interval, in nanoseconds.
    pub interval_ns: u64,
    /// The time of the frame that kept rows are equal to.
    pub kept_from: Option<Stamp>,
    /// One table for each entity, in the order of [`Entity::ALL`].
    pub tables: [Table; Entity::COUNT],
    /// The events since the last frame.
    pub events: Vec<Event>,
}

impl Default for Frame {
    fn default() -> Self {
        Self::new()
    }
}

impl Frame {
    /// A frame without rows.
    #[must_use]
    pub fn new() -> Self {
        Frame {
            time: Stamp::default(),
            interval_ns: 1_000_000_000,
            kept_from: None,
            tables: Entity::ALL.map(Table::new),
            events: Vec::new(),
        }
    }

    /// Empties the frame and keeps its memory.
    pub fn clear(&mut self) {
        self.clear_but(None);
    }

    /// Empties the frame but for the rows of one entity.
    pub fn clear_but(&mut self, kept: Option<Entity>) {
        for table in self.tables.iter_mut().filter(|table| Some(table.entity()) != kept) {
            table.clear();
        }
        self.events.clear();
        self.kept_from = None;
    }

    /// The table of an entity.
    #[must_use]
    pub fn table(&self, entity: Entity) -> &Table {
        &self.tables[entity as usize]
    }

    /// The table of an entity.
    pub fn table_mut(&mut self, entity: Entity) -> &mut Table {
        &mut self.tables[entity as usize]
    }

    /// The cells of the whole machine; the row is added if it is missing.
    pub fn system_mut(&mut self) -> &mut [i64] {
        let table = self.table_mut(Entity::System);
        if table.is_empty() { table.push(Key::SYSTEM) } else { table.row_mut(0) }
    }
}

/// The name of a row in queries and output: `vda`, `/system.slice`, `4242@81230000000` for a task,
/// `812:make` for the exited children of process 812.
#[must_use]
pub fn row_name(entity: Entity, key: Key, strings: &Strings) -> String {
    match entity {
        Entity::System => String::new(),
        Entity::Task => format!("{}@{}", key.id, key.born),
        Entity::Exited => {
            let comm = StrId::try_from(key.born).ok().and_then(|id| strings.get(id)).unwrap_or("?");
            format!("{}:{comm}", key.id)
        }
        _ => {
            let name = StrId::try_from(key.id).ok().and_then(|id| strings.get(id));
            name.map_or_else(|| format!("#{}", key.id), str::to_owned)
        }
    }
}

/// Facts that do not change while a machine is up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostInfo {
    /// Its node name.
    pub hostname: String,
    /// The kernel's release, `6.18.44`.
    pub kernel: String,
    /// From `/proc/sys/kernel/random/boot_id`; monotonic times compare only within one boot.
    pub boot_id: String,
    /// Online CPUs when recording began.
    pub cpus: u32,
    /// Bytes in a base page.
    pub page_bytes: u64,
    /// `MemTotal` in bytes.
    pub memory_bytes: u64,
    /// Ticks per second of the times in `/proc`.
    pub clock_ticks: u32,
    /// Further facts, such as the recorder's version.
    #[serde(default)]
    pub more: HashMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_start_unavailable_and_swap_remove_keeps_the_others() {
        let mut table = Table::new(Entity::Disk);
        for id in 0..3 {
            let row = table.push(Key::named(id));
            assert!(row.iter().all(|cell| *cell == NA));
            row.fill(i64::from(id));
        }
        table.swap_remove(0);
        let left: Vec<_> = table.rows().map(|(key, row)| (key.id, row[0])).collect();
        assert_eq!(left, [(2, 2), (1, 1)]);
        table.swap_remove(1);
        assert_eq!(table.len(), 1);
        assert_eq!(table.row(0)[0], 2);
    }
}
