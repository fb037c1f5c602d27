//! Records of a log back to frames.

use std::path::Path;

use mitra_model::{Entity, Event, Frame, Key, NA, Stamp, StrId, Strings};

use super::encode::IS_BASE;
use super::record::{self, FILE_HEADER_BYTES, FRAME, Found, HEADER, record_at};
use crate::error::Skipped;
use crate::open::{LOST_BEFORE, Meta, Times};
use crate::schema::{Schema, convert};
use crate::varint::{Corrupt, Got, Input, reference};

/// More rows of one entity than any segment has; a writer seals long before.
pub(crate) const SLOTS_MAX: u32 = 1 << 21;
/// More cells than any frame has: a hundred thousand threads have six million. A new row takes two bytes in a record, and
/// as many cells as its entity has columns in memory.
const CELLS_MAX: usize = 1 << 25;
const NO_ROW: u32 = u32::MAX;
/// A row that was in the base and is gone.
const GONE: u32 = u32::MAX;

/// What a log had to say apart from its frames.
pub(crate) struct LogSummary {
    /// `None`: nothing in the log could be read.
    pub(crate) meta: Option<Meta>,
    /// Bytes up to the end of the last whole record.
    pub(crate) whole_bytes: usize,
    /// Whether a record at the end was cut off, as while it is being written.
    pub(crate) cut: bool,
    pub(crate) skipped: Vec<Skipped>,
}

/// The rows of one entity in columns as stored.
#[derive(Default, Clone)]
struct Rows {
    slots: Vec<u32>,
    keys: Vec<Key>,
    cells: Vec<i64>,
}

struct LogTable {
    entity: Option<Entity>,
    width: usize,
    /// For each stored column the column of the frame's table, whether it is a text, and the factor to its unit.
    columns: Vec<(Option<usize>, bool, f64)>,
    base: Rows,
    row_of_slot: Vec<u32>,
    now: Rows,
    /// Where in `now` the rows that are not of the base begin.
    added: usize,
}

struct LogDecoder {
    tables: Vec<LogTable>,
    base_seq: u64,
    base_times: Times,
    last_seq: u64,
    texts: Vec<Option<StrId>>,
    strings: Strings,
    frame: Frame,
}

/// Reads a log and hands each frame that is intact to `each`, with its times as stored.
pub(crate) fn read(
    bytes: &[u8],
    path: &Path,
    each: &mut dyn FnMut(&Meta, &Frame, Times, &Strings),
) -> LogSummary {
    let mut summary = LogSummary { meta: None, whole_bytes: 0, cut: false, skipped: Vec::new() };
    let skip = |offset: usize, why: String| Skipped { file: path.to_path_buf(), offset: offset as u64, why };
    let mut at = FILE_HEADER_BYTES;
    if bytes.len() < FILE_HEADER_BYTES {
        summary.cut = !bytes.is_empty();
        return summary;
    }
    if record::file_version(bytes, record::FILE_MAGIC).is_none() {
        summary.skipped.push(skip(0, "the file header is damaged; the records are read all the same".into()));
    }
    let mut decoder: Option<LogDecoder> = None;
    while at < bytes.len() {
        let (kind, payload, next) = match record_at(bytes, at) {
            Found::Record(kind, payload, next) => (kind, payload, next),
            Found::Cut | Found::Nothing => {
                let cut = matches!(record_at(bytes, at), Found::Cut);
                match record::find(bytes, at + 1) {
                    Some(next) => {
                        let why = format!("{} bytes are no whole record", next - at);
                        summary.skipped.push(skip(at, why));
                        at = next;
                        continue;
                    }
                    None if cut => summary.cut = true,
                    None => {
                        let why = format!("{} bytes at the end are no whole record", bytes.len() - at);
                        summary.skipped.push(skip(at, why));
                    }
                }
                break;
            }
        };
        match (kind, &mut decoder) {
            (HEADER, None) => match LogDecoder::begin(&payload) {
                Ok((meta, begun)) => {
                    summary.meta = Some(meta);
                    decoder = Some(begun);
                }
                Err(Corrupt(wanted)) => {
                    summary.skipped.push(skip(at, format!("header without {wanted}")));
                }
            },
            (FRAME, Some(decoder)) => match decoder.frame(&payload) {
                Ok(Some(times)) => {
                    if let Some(meta) = &summary.meta {
                        each(meta, &decoder.frame, times, &decoder.strings);
                    }
                }
                Ok(None) => {}
                Err(Corrupt(wanted)) => summary.skipped.push(skip(at, format!("frame without {wanted}"))),
            },
            (FRAME, None) => summary.skipped.push(skip(at, "frame before any header".into())),
            _ => {}
        }
        at = next;
        summary.whole_bytes = at;
    }
    summary
}

impl LogDecoder {
    fn begin(payload: &[u8]) -> Got<(Meta, LogDecoder)> {
        let mut input = Input::new(payload);
        let meta: Meta =
            serde_json::from_slice(input.bytes()?).map_err(|_| Corrupt("a description of the host"))?;
        let schema = Schema::parse(input.take(input.len())?)?;
        let tables = schema.entities.into_iter().map(|stored| LogTable {
            entity: stored.entity,
            width: stored.columns.len(),
            columns: stored
                .columns
                .iter()
                .map(|c| (c.metric.and_then(|m| mitra_model::column(m.name)), c.is_text, c.factor()))
                .collect(),
            base: Rows::default(),
            row_of_slot: Vec::new(),
            now: Rows::default(),
            added: 0,
        });
        let decoder = LogDecoder {
            tables: tables.collect(),
            base_seq: 0,
            base_times: Times::default(),
            last_seq: 0,
            texts: Vec::new(),
            strings: Strings::new(),
            frame: Frame::new(),
        };
        Ok((meta, decoder))
    }

    /// Decodes one frame; `None` if it has been seen already.
    fn frame(&mut self, payload: &[u8]) -> Got<Option<Times>> {
        let mut input = Input::new(payload);
        let seq = input.varint()?;
        let parent = input.varint()?;
        let flags = input.byte()?;
        if seq <= self.last_seq {
            // The second copy of a base; it matters only where the first was lost, and then `last_seq` is less.
            return Ok(None);
        }
        if parent == 0 {
            self.forget_base();
        } else if parent != self.base_seq {
            return Err(Corrupt("the frame that it is written against"));
        }
        let mut times = Times::get(&mut input, self.base_times)?;
        self.texts(&mut input)?;
        for table in &mut self.tables {
            table.now.clone_from(&table.base);
            table.added = table.now.slots.len();
        }
        loop {
            let entity = usize::from(input.byte()?);
            let Some(entity) = entity.checked_sub(1) else { break };
            self.tables.get_mut(entity).ok_or(Corrupt("a known entity"))?.changes(&mut input)?;
        }
        self.frame.clear();
        for _ in 0..input.count(1)? {
            let json = input.bytes()?;
            let event: Event = serde_json::from_slice(json).map_err(|_| Corrupt("an event"))?;
            self.frame.events.push(event);
        }
        if seq != self.last_seq + 1 {
            times.flags |= LOST_BEFORE;
        }
        self.last_seq = seq;
        self.fill(times);
        if flags & IS_BASE != 0 {
            self.base_seq = seq;
            self.base_times = Times { flags: 0, ..times };
            for table in &mut self.tables {
                table.rebase();
            }
        }
        Ok(Some(times))
    }

    fn forget_base(&mut self) {
        self.base_times = Times::default();
        for table in &mut self.tables {
            table.base = Rows::default();
            table.row_of_slot.clear();
        }
    }

    fn texts(&mut self, input: &mut Input<'_>) -> Got<()> {
        let mut number = 0_u32;
        for _ in 0..input.count(2)? {
            number =
                number.checked_add(input.u32()?).filter(|n| *n < SLOTS_MAX * 4).ok_or(Corrupt("a text"))?;
            let id = self.strings.intern(input.text()?);
            if self.texts.len() <= number as usize {
                self.texts.resize(number as usize + 1, None);
            }
            self.texts[number as usize] = Some(id);
        }
        Ok(())
    }

    fn fill(&mut self, times: Times) {
        self.frame.time =
            Stamp { real: ns(times.real_us()), mono: ns(times.mono_us()), boot: ns(times.boot_us) };
        self.frame.interval_ns = u64::try_from(ns(times.interval_us)).unwrap_or(0);
        for table in &self.tables {
            let Some(entity) = table.entity else { continue };
            let out = self.frame.table_mut(entity);
            for row in 0..table.now.slots.len() {
                if table.now.slots[row] == GONE {
                    continue;
                }
                let mut key = table.now.keys[row];
                let text = |number: u64| {
                    let known =
                        usize::try_from(number).ok().and_then(|n| self.texts.get(n).copied().flatten());
                    known.map(u64::from)
                };
                // A row without a name cannot be told from others.
                match entity {
                    Entity::System | Entity::Task => {}
                    Entity::Exited => match text(key.born) {
                        Some(comm) => key.born = comm,
                        None => continue,
                    },
                    _ => match text(key.id) {
                        Some(name) => key.id = name,
                        None => continue,
                    },
                }
                let cells = &table.now.cells[row * table.width..(row + 1) * table.width];
                let to = out.push(key);
                for (cell, (column, is_text, factor)) in cells.iter().zip(&table.columns) {
                    let Some(to) = column.and_then(|column| to.get_mut(column)) else { continue };
                    *to = match usize::try_from(*cell) {
                        Ok(number) if *is_text => {
                            self.texts.get(number).copied().flatten().map_or(NA, i64::from)
                        }
                        _ if *is_text => NA,
                        _ => convert(*cell, *factor),
                    };
                }
            }
        }
    }
}

/// Microseconds to nanoseconds.
pub(crate) fn ns(us: i64) -> i64 {
    us.saturating_mul(1000)
}

impl LogTable {
    fn changes(&mut self, input: &mut Input<'_>) -> Got<()> {
        let mut slot = 0;
        for _ in 0..input.count(1)? {
            let row = self.row_of_slot.get(next_slot(&mut slot, input.varint()?)?).copied();
            let gone = row.and_then(|row| self.now.slots.get_mut(row as usize));
            *gone.ok_or(Corrupt("a row of the base"))? = GONE;
        }
        let mut slot = 0;
        let mut key_before = Key::default();
        let mut row_before = None;
        for _ in 0..input.count(2)? {
            let head = input.varint()?;
            let slot = next_slot(&mut slot, head >> 1)?;
            if head & 1 == 0 {
                let row = self.row_of_slot.get(slot).map_or(NO_ROW, |row| *row) as usize;
                let start = row.checked_mul(self.width).filter(|_| row < self.added);
                let cells = start.and_then(|start| self.now.cells.get_mut(start..start + self.width));
                put_cells(input, cells.ok_or(Corrupt("a row of the base"))?)?;
                continue;
            }
            let mut field = |before: u64| {
                let difference = input.difference()?.ok_or(Corrupt("a key"))?;
                Ok(before.wrapping_add(difference as u64))
            };
            key_before = Key { id: field(key_before.id)?, born: field(key_before.born)? };
            let start = self.now.cells.len();
            if start.saturating_add(self.width) > CELLS_MAX {
                return Err(Corrupt("as few cells as any machine has"));
            }
            match row_before {
                None => self.now.cells.resize(start + self.width, NA),
                Some(before) => self.now.cells.extend_from_within(before..before + self.width),
            }
            row_before = Some(start);
            self.now.slots.push(slot as u32);
            self.now.keys.push(key_before);
            put_cells(input, &mut self.now.cells[start..])?;
        }
        Ok(())
    }

    fn rebase(&mut self) {
        self.base = Rows::default();
        self.row_of_slot.clear();
        for row in 0..self.now.slots.len() {
            let slot = self.now.slots[row];
            if slot == GONE {
                continue;
            }
            let new = self.base.slots.len() as u32;
            self.base.slots.push(slot);
            self.base.keys.push(self.now.keys[row]);
            let cells = row * self.width..(row + 1) * self.width;
            self.base.cells.extend_from_slice(&self.now.cells[cells]);
            if self.row_of_slot.len() <= slot as usize {
                self.row_of_slot.resize(slot as usize + 1, NO_ROW);
            }
            self.row_of_slot[slot as usize] = new;
        }
    }
}

fn next_slot(next: &mut u32, gap: u64) -> Got<usize> {
    let slot = u64::from(*next).checked_add(gap).filter(|slot| *slot < u64::from(SLOTS_MAX));
    let slot = slot.ok_or(Corrupt("a row number in bounds"))? as u32;
    *next = slot + 1;
    Ok(slot as usize)
}

fn put_cells(input: &mut Input<'_>, row: &mut [i64]) -> Got<()> {
    let mut next = 0_usize;
    for _ in 0..input.count(2)? {
        let column = next.checked_add(input.varint()? as usize).ok_or(Corrupt("a column"))?;
        let cell = row.get_mut(column).ok_or(Corrupt("a column that exists"))?;
        *cell = input.cell(reference(*cell))?;
        next = column + 1;
    }
    Ok(())
}

/// Decodes frames, each with its length in front, as a fuzzer makes them: no checksum, no packing.
pub(crate) fn fuzz_frame(bytes: &[u8]) {
    let mut header = Vec::new();
    let meta = serde_json::to_vec(&Meta::default()).unwrap_or_default();
    crate::varint::put_bytes(&mut header, &meta);
    header.extend_from_slice(crate::schema::current());
    let Ok((_, mut decoder)) = LogDecoder::begin(&header) else { return };
    let mut input = Input::new(bytes);
    while let Ok(payload) = input.bytes() {
        let _ = decoder.frame(payload);
    }
}
