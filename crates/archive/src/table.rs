//! What the writer remembers of the rows of one entity while a segment is open.
//!
//! Each row that was ever present in the segment has a *slot*. Rows are matched by key, at the expected position
//! first, because the order hardly changes from one frame to the next. Then a row is compared with itself one
//! frame earlier in one go; only rows that differ are looked at cell by cell. So an idle task costs a comparison.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use mitra_model::{Entity, Key, Kind, NA, Strings, Table, columns};

use crate::arena::{Arena, Stream};
use crate::text_table::TextTable;
use crate::varint::{put, put_cell, reference};

/// Row is part of the log's base.
pub(crate) const IN_BASE: u8 = 1;
/// Row may differ from the log's base.
pub(crate) const DIRTY: u8 = 2;

const NONE: u32 = u32::MAX;
/// How far ahead a row is looked for when rows before it have gone.
const LOOK_AHEAD_ROWS: usize = 4;

/// More cells of changed rows than this, if they are more than this part of all, give their memory back.
const PENDING_KEPT: usize = 8 << 10;
const PENDING_SHARE: usize = 4;
/// Memory for this many rows is kept in any case.
const ROWS_KEPT: usize = 1024;

/// Keys are small integers without structure worth attacking; SipHash would cost more than the rest of the match.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The cells of one column of one row that changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changes {
    pub(crate) stream: Stream,
    /// The value at the row's first sample.
    pub(crate) first: i64,
    /// The sample of the row at which it changed last.
    last: u32,
}

/// A row of the current frame that is new or differs from the frame before; `cells` says where in
/// [`OpenTable::pending`] it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changed {
    pub(crate) slot: u32,
    cells: u32,
}

/// The rows of one entity.
pub(crate) struct OpenTable {
    entity: Entity,
    pub(crate) width: usize,
    text_columns: Vec<usize>,
    /// With numbers of [`TextTable`] in place of the collector's ids.
    pub(crate) keys: Vec<Key>,
    slots: HashMap<Key, u32, BuildHasherDefault<KeyHasher>>,
    /// The cells of each slot when it was last present.
    pub(crate) last: Vec<i64>,
    /// Rows as they were in the log's base, of slots that changed since.
    base: Vec<i64>,
    /// Which of those rows is the slot's; none if the slot is as it was.
    base_at: Vec<u32>,
    pub(crate) flags: Vec<u8>,
    pub(crate) base_rows: usize,
    /// Rows of numbers of `changes`, of slots that ever changed: for each column one, or none.
    streams: Vec<u32>,
    /// Which of those rows is the slot's.
    streams_at: Vec<u32>,
    pub(crate) changes: Vec<Changes>,
    /// How many samples each slot has.
    pub(crate) samples: Vec<u32>,
    /// The frame after the one in which the slot was last present.
    pub(crate) seen: Vec<u32>,
    pub(crate) run_start: Vec<u32>,
    /// Stretches of presence that ended and were followed by another: slot, first frame, frame after the last.
    pub(crate) closed_runs: Vec<(u32, u32, u32)>,
    /// The slots of the rows of the frame before, in its order.
    order: Vec<u32>,
    /// Where in `order` a slot is, if it is there.
    place: Vec<u32>,
    /// The observation that met the slot last.
    met: Vec<u64>,
    observation: u64,
    /// The slots of the rows of the current frame.
    pub(crate) current: Vec<u32>,
    pub(crate) changed: Vec<Changed>,
    pending: Vec<i64>,
    row: Vec<i64>,
    token: Vec<u8>,
}

impl OpenTable {
    pub(crate) fn new(entity: Entity) -> Self {
        let columns = columns(entity);
        let text_columns = columns.iter().enumerate().filter(|(_, m)| m.kind == Kind::Text).map(|(i, _)| i);
        OpenTable {
            entity,
            width: columns.len(),
            text_columns: text_columns.collect(),
            keys: Vec::new(),
            slots: HashMap::default(),
            last: Vec::new(),
            base: Vec::new(),
            flags: Vec::new(),
            base_rows: 0,
            base_at: Vec::new(),
            streams: Vec::new(),
            streams_at: Vec::new(),
            changes: Vec::new(),
            samples: Vec::new(),
            seen: Vec::new(),
            run_start: Vec::new(),
            closed_runs: Vec::new(),
            order: Vec::new(),
            place: Vec::new(),
            met: Vec::new(),
            observation: 0,
            current: Vec::new(),
            changed: Vec::new(),
            pending: Vec::new(),
            row: Vec::new(),
            token: Vec::new(),
        }
    }

    /// Forgets everything and keeps the memory, unless it was far more than the last frame needs.
    pub(crate) fn clear(&mut self) {
        if self.keys.capacity() > 4 * self.order.len() + ROWS_KEPT {
            *self = OpenTable::new(self.entity);
            return;
        }
        self.keys.clear();
        self.slots.clear();
        self.last.clear();
        self.base.clear();
        self.flags.clear();
        self.base_rows = 0;
        self.base_at.clear();
        self.streams.clear();
        self.streams_at.clear();
        self.changes.clear();
        self.samples.clear();
        self.seen.clear();
        self.run_start.clear();
        self.closed_runs.clear();
        self.order.clear();
        self.place.clear();
        self.met.clear();
        self.current.clear();
        self.changed.clear();
        self.pending.clear();
    }

    /// Roughly the memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.len() * self.row_bytes()
            + self.changes.len() * size_of::<Changes>()
            + self.base.len() * size_of::<i64>()
            + self.streams.len() * size_of::<u32>()
    }

    /// Roughly the memory that the rows of the last frame take.
    pub(crate) fn present_bytes(&self) -> usize {
        self.order.len() * self.row_bytes()
    }

    fn row_bytes(&self) -> usize {
        // The cells, the key twice (one of them in the map), and the small vectors.
        size_of::<i64>() * self.width + 2 * size_of::<Key>() + 40
    }

    fn key(&self, key: Key, texts: &mut TextTable, strings: &Strings) -> Key {
        let text = |texts: &mut TextTable, id: u64| {
            let cell = i64::try_from(id).unwrap_or(NA);
            // An id that the collector itself does not know: there is no name, and readers leave the row out.
            u64::try_from(texts.cell(cell, strings)).unwrap_or(u64::from(u32::MAX))
        };
        match self.entity {
            Entity::System | Entity::Task => key,
            Entity::Exited => Key { id: key.id, born: text(texts, key.born) },
            _ => Key { id: text(texts, key.id), born: key.born },
        }
    }

    /// Matches the rows of a frame and finds those that changed; with `trusts_kept`, kept rows are known to be as they were
    /// recorded last. Nothing is recorded yet: a frame that could not be written is simply followed by the next call.
    pub(crate) fn observe(
        &mut self,
        table: &Table,
        trusts_kept: bool,
        texts: &mut TextTable,
        strings: &Strings,
    ) {
        self.current.clear();
        self.changed.clear();
        self.pending.clear();
        self.observation += 1;
        let mut expected = 0;
        for (row, (key, cells)) in table.rows().enumerate() {
            let key = self.key(key, texts, strings);
            let end = self.order.len().min(expected + LOOK_AHEAD_ROWS);
            let ahead = self.order[expected.min(end)..end].iter();
            let slot = match ahead.copied().position(|slot| self.keys[slot as usize] == key) {
                Some(skipped) => {
                    expected += skipped + 1;
                    self.order[expected - 1]
                }
                None => match self.slots.get(&key) {
                    Some(&slot) => {
                        let place = self.place[slot as usize] as usize;
                        if self.order.get(place) == Some(&slot) {
                            expected = place + 1;
                        }
                        slot
                    }
                    None => self.add(key),
                },
            };
            // Keys are unique within a frame; a second row of the same key cannot be told from the first.
            if std::mem::replace(&mut self.met[slot as usize], self.observation) == self.observation {
                continue;
            }
            self.current.push(slot);
            let is_new = self.samples[slot as usize] == 0;
            if trusts_kept && !is_new && table.is_kept(row) {
                continue;
            }
            self.row.clear();
            self.row.extend_from_slice(cells);
            for &column in &self.text_columns {
                self.row[column] = texts.cell(self.row[column], strings);
            }
            let start = slot as usize * self.width;
            if is_new || self.row != self.last[start..start + self.width] {
                self.changed.push(Changed { slot, cells: (self.pending.len() / self.width.max(1)) as u32 });
                self.pending.extend_from_slice(&self.row);
            }
        }
    }

    fn add(&mut self, key: Key) -> u32 {
        let slot = self.keys.len() as u32;
        self.keys.push(key);
        self.slots.insert(key, slot);
        self.last.resize(self.last.len() + self.width, NA);
        self.base_at.push(NONE);
        self.streams_at.push(NONE);
        self.flags.push(0);
        self.samples.push(0);
        self.place.push(NONE);
        self.met.push(0);
        self.seen.push(0);
        self.run_start.push(0);
        slot
    }

    /// Whether the frame that was just observed has the row.
    pub(crate) fn is_met(&self, slot: u32) -> bool {
        self.met[slot as usize] == self.observation
    }

    pub(crate) fn pending_row(&self, changed: Changed) -> &[i64] {
        let start = changed.cells as usize * self.width;
        &self.pending[start..start + self.width]
    }

    pub(crate) fn last_row(&self, slot: u32) -> &[i64] {
        let start = slot as usize * self.width;
        &self.last[start..start + self.width]
    }

    pub(crate) fn base_row(&self, slot: u32) -> &[i64] {
        match self.base_at[slot as usize] {
            NONE => self.last_row(slot),
            row => &self.base[row as usize * self.width..][..self.width],
        }
    }

    /// Records what [`OpenTable::observe`] found, as frame number `frame` of the segment.
    pub(crate) fn commit(&mut self, frame: u32, arena: &mut Arena) {
        for i in 0..self.changed.len() {
            let Changed { slot, cells } = self.changed[i];
            let slot = slot as usize;
            self.flags[slot] |= DIRTY;
            if self.flags[slot] & IN_BASE != 0 && self.base_at[slot] == NONE {
                self.base_at[slot] = (self.base.len() / self.width) as u32;
                self.base.extend_from_slice(&self.last[slot * self.width..(slot + 1) * self.width]);
            }
            let pending = cells as usize * self.width;
            let sample = self.samples[slot];
            for column in 0..self.width {
                let now = self.pending[pending + column];
                let before = std::mem::replace(&mut self.last[slot * self.width + column], now);
                if now != before && sample > 0 {
                    self.change(slot, column, sample, (before, now), arena);
                }
            }
        }
        for (place, &slot) in self.current.iter().enumerate() {
            let slot = slot as usize;
            self.place[slot] = place as u32;
            if self.seen[slot] != frame {
                if self.samples[slot] > 0 {
                    self.closed_runs.push((slot as u32, self.run_start[slot], self.seen[slot]));
                }
                self.run_start[slot] = frame;
            }
            self.seen[slot] = frame + 1;
            self.samples[slot] += 1;
        }
        std::mem::swap(&mut self.order, &mut self.current);
        // In the first frame of a segment all rows are new.
        if self.pending.len() > PENDING_KEPT && self.pending.len() * PENDING_SHARE > self.last.len() {
            self.pending = Vec::new();
        }
    }

    fn change(
        &mut self,
        slot: usize,
        column: usize,
        sample: u32,
        (before, now): (i64, i64),
        arena: &mut Arena,
    ) {
        if self.streams_at[slot] == NONE {
            self.streams_at[slot] = (self.streams.len() / self.width) as u32;
            self.streams.resize(self.streams.len() + self.width, NONE);
        }
        let cell = self.streams_at[slot] as usize * self.width + column;
        if self.streams[cell] == NONE {
            self.streams[cell] = self.changes.len() as u32;
            self.changes.push(Changes { stream: arena.stream(), first: before, last: 0 });
        }
        let changes = &mut self.changes[self.streams[cell] as usize];
        self.token.clear();
        put(&mut self.token, u64::from(sample - changes.last - 1));
        put_cell(&mut self.token, now, reference(before));
        changes.last = sample;
        arena.push(&mut changes.stream, &self.token);
    }

    /// The changes of a cell, if it ever changed.
    pub(crate) fn changes(&self, slot: usize, column: usize) -> Option<&Changes> {
        let row = self.streams_at[slot];
        if row == NONE {
            return None;
        }
        self.changes.get(self.streams[row as usize * self.width + column] as usize)
    }

    /// Makes the frame that was just recorded the log's base.
    pub(crate) fn rebase(&mut self, frame: u32) {
        self.base_rows = 0;
        self.base.clear();
        for slot in 0..self.keys.len() {
            let is_present = self.seen[slot] == frame + 1;
            self.base_rows += usize::from(is_present);
            self.flags[slot] = if is_present { IN_BASE } else { 0 };
            self.base_at[slot] = NONE;
        }
    }
}
