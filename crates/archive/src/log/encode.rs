//! Frames to records of the log.

use std::io;

use mitra_model::{Entity, Frame, Kind, NA, columns};

use super::record::{self, put_record};
use crate::compress::Compressor;
use crate::open::{OpenSegment, Times};
use crate::schema;
use crate::table::{Changed, IN_BASE, OpenTable};
use crate::varint::{put, put_bytes, put_cell, put_difference, reference};

/// Level of the packing of records: they are small, and short-lived.
const LEVEL: i32 = 1;
/// A row without cells in common with anything; what the first new row of a record is written against.
const NO_ROW: &[i64] = &[];

/// Buffers of this size are kept in any case.
const KEPT_BYTES: usize = 64 << 10;

/// Flag of a frame that later frames are written against.
pub(crate) const IS_BASE: u8 = 1;

/// Writes each frame as what differs from the base.
///
/// The base is a frame that was written before. Every frame says which one it needs, so losing one frame costs no
/// other. Differences grow with the distance, so there is a new base as soon as what they have cost since the last
/// one is what a base costs, which is twice its size because it is written twice.
pub(crate) struct LogEncoder {
    compressor: Compressor,
    /// The number of the last frame; the first has 1.
    seq: u64,
    base_seq: u64,
    base_times: Times,
    base_texts: usize,
    smallest: usize,
    excess: usize,
    rebase: bool,
    payload: Vec<u8>,
    tables: Vec<u8>,
    used_texts: Vec<u32>,
    text_columns: Vec<Vec<bool>>,
    rows: Vec<(u32, Option<Changed>)>,
    /// The record of a base that is to be written once more.
    copy: Vec<u8>,
    out: Vec<u8>,
    /// Where in `out` the record of the current frame begins.
    record: usize,
}

impl LogEncoder {
    pub(crate) fn new() -> io::Result<Self> {
        let text_columns =
            Entity::ALL.map(|entity| columns(entity).iter().map(|m| m.kind == Kind::Text).collect());
        Ok(LogEncoder {
            compressor: Compressor::new(LEVEL)?,
            seq: 0,
            base_seq: 0,
            base_times: Times::default(),
            base_texts: 0,
            smallest: usize::MAX,
            excess: 0,
            rebase: true,
            payload: Vec::new(),
            tables: Vec::new(),
            used_texts: Vec::new(),
            text_columns: text_columns.into(),
            rows: Vec::new(),
            copy: Vec::new(),
            out: Vec::new(),
            record: 0,
        })
    }

    /// Begins a new log.
    pub(crate) fn clear(&mut self) {
        self.seq = 0;
        self.base_seq = 0;
        self.base_times = Times::default();
        self.base_texts = 0;
        self.smallest = usize::MAX;
        self.excess = 0;
        self.rebase = true;
        self.copy.clear();
    }

    /// The beginning of a log: file header and the header record, twice.
    pub(crate) fn file_header(&mut self, segment: &OpenSegment, version: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        put_bytes(&mut payload, &serde_json::to_vec(&segment.meta).unwrap_or_default());
        payload.extend_from_slice(schema::current());
        let mut out = record::file_header(record::FILE_MAGIC, version).to_vec();
        put_record(&mut out, record::HEADER, &payload, &mut self.compressor);
        put_record(&mut out, record::HEADER, &payload, &mut self.compressor);
        out
    }

    /// The bytes to write for the frame that was just observed.
    pub(crate) fn encode(&mut self, segment: &OpenSegment, frame: &Frame, times: Times) -> &[u8] {
        self.tables.clear();
        self.used_texts.clear();
        for (entity, table) in segment.tables.iter().enumerate() {
            self.put_table(entity, table);
        }
        self.tables.push(0);
        if self.rebase {
            self.used_texts.extend(self.base_texts as u32..segment.texts.len() as u32);
        }
        self.used_texts.sort_unstable();
        self.used_texts.dedup();

        self.payload.clear();
        put(&mut self.payload, self.seq + 1);
        put(&mut self.payload, self.base_seq);
        self.payload.push(if self.rebase { IS_BASE } else { 0 });
        times.put(&mut self.payload, self.base_times);
        put(&mut self.payload, self.used_texts.len() as u64);
        let mut before = 0;
        for &text in &self.used_texts {
            put(&mut self.payload, u64::from(text - before));
            put_bytes(&mut self.payload, segment.texts.get(text as usize).as_bytes());
            before = text;
        }
        self.payload.extend_from_slice(&self.tables);
        put(&mut self.payload, frame.events.len() as u64);
        for event in &frame.events {
            put_bytes(&mut self.payload, &serde_json::to_vec(event).unwrap_or_default());
        }

        self.out.clear();
        self.out.extend_from_slice(&self.copy);
        self.record = self.out.len();
        put_record(&mut self.out, record::FRAME, &self.payload, &mut self.compressor);
        &self.out
    }

    /// Whether the frame that was just encoded is the new base.
    pub(crate) fn is_base(&self) -> bool {
        self.rebase
    }

    /// The bytes of [`LogEncoder::encode`] are in the file.
    pub(crate) fn written(&mut self, segment: &OpenSegment, times: Times) {
        self.seq += 1;
        self.copy.clear();
        self.shrink();
        let size = self.out.len() - self.record;
        if self.rebase {
            self.copy.extend_from_slice(&self.out[self.record..]);
            self.base_seq = self.seq;
            self.base_times = times;
            self.base_texts = segment.texts.len();
            self.smallest = usize::MAX;
            self.excess = 0;
            self.rebase = false;
        } else {
            self.smallest = self.smallest.min(size);
            self.excess += size - self.smallest;
            self.rebase = self.excess > 2 * size;
        }
    }

    /// Gives back what a large base took: there is one in hundreds of frames.
    fn shrink(&mut self) {
        let needed = KEPT_BYTES.max(2 * self.payload.len());
        let is_large = |buffer: &Vec<u8>| buffer.capacity() > 2 * needed;
        if !is_large(&self.payload) && !is_large(&self.out) && !is_large(&self.tables) {
            return;
        }
        for buffer in [&mut self.payload, &mut self.tables, &mut self.copy] {
            buffer.clear();
            buffer.shrink_to(needed);
        }
        self.out.shrink_to(needed);
        if let Ok(compressor) = Compressor::new(LEVEL) {
            self.compressor = compressor;
        }
    }

    fn put_table(&mut self, entity: usize, table: &OpenTable) {
        self.rows.clear();
        let mut changed = table.changed.iter().peekable();
        let mut present_of_base = 0;
        for &slot in &table.current {
            let flags = table.flags[slot as usize];
            present_of_base += usize::from(flags & IN_BASE);
            match changed.next_if(|changed| changed.slot == slot) {
                Some(changed) => self.rows.push((slot, Some(*changed))),
                None if flags != IN_BASE => self.rows.push((slot, None)),
                None => {}
            }
        }
        let gone = table.base_rows - present_of_base;
        if self.rows.is_empty() && gone == 0 {
            return;
        }
        self.tables.push(entity as u8 + 1);
        put(&mut self.tables, gone as u64);
        if gone > 0 {
            let mut next = 0;
            for slot in 0..table.keys.len() as u32 {
                if table.flags[slot as usize] & IN_BASE != 0 && !table.is_met(slot) {
                    put(&mut self.tables, u64::from(slot - next));
                    next = slot + 1;
                }
            }
        }
        self.rows.sort_unstable_by_key(|(slot, _)| *slot);
        self.put_rows(entity, table);
    }

    fn put_rows(&mut self, entity: usize, table: &OpenTable) {
        put(&mut self.tables, self.rows.len() as u64);
        let named = entity != Entity::Task as usize && entity != Entity::System as usize;
        let mut next = 0;
        let mut key_before = mitra_model::Key::default();
        let mut row_before = NO_ROW;
        for i in 0..self.rows.len() {
            let (slot, changed) = self.rows[i];
            let row = changed.map_or_else(|| table.last_row(slot), |changed| table.pending_row(changed));
            let known = table.flags[slot as usize] & IN_BASE != 0;
            put(&mut self.tables, u64::from(slot - next) << 1 | u64::from(!known));
            next = slot + 1;
            if known {
                self.put_cells(entity, row, table.base_row(slot));
                continue;
            }
            let key = table.keys[slot as usize];
            put_difference(&mut self.tables, key.id.wrapping_sub(key_before.id) as i64);
            put_difference(&mut self.tables, key.born.wrapping_sub(key_before.born) as i64);
            key_before = key;
            if named {
                self.use_text(if entity == Entity::Exited as usize { key.born } else { key.id } as i64);
            }
            self.put_cells(entity, row, row_before);
            row_before = row;
        }
    }

    fn use_text(&mut self, number: i64) {
        if let Ok(number) = u32::try_from(number)
            && number as usize >= self.base_texts
            && number != u32::MAX
        {
            self.used_texts.push(number);
        }
    }

    /// The number of cells that differ, and for each how many were equal before it, and the cell.
    fn put_cells(&mut self, entity: usize, row: &[i64], before: &[i64]) {
        let differ = |(i, cell): (usize, &i64)| before.get(i).copied().unwrap_or(NA) != *cell;
        put(&mut self.tables, row.iter().enumerate().filter(|c| differ(*c)).count() as u64);
        let mut next = 0;
        for (i, &cell) in row.iter().enumerate() {
            let before = before.get(i).copied().unwrap_or(NA);
            if cell == before {
                continue;
            }
            put(&mut self.tables, (i - next) as u64);
            next = i + 1;
            put_cell(&mut self.tables, cell, reference(before));
            if self.text_columns[entity][i] {
                self.use_text(cell);
            }
        }
    }
}
