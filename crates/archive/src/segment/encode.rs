//! The open segment to a sealed one.

use std::io;

use mitra_model::{Entity, columns};

use super::column::{Form, choose, put_values};
use super::index::{BlockRef, TRAILER_BYTES, trailer};
use crate::block::{self, Kind, NO_ENTITY};
use crate::compress::Compressor;
use crate::log::record::{FILE_HEADER_BYTES, file_header};
use crate::open::{Meta, OpenSegment, Times};
use crate::schema;
use crate::table::OpenTable;
use crate::varint::{Input, put, put_bytes, put_difference, reference};
use crate::writer::{SEGMENT_MAGIC, VERSION};

/// A block of columns is closed when it has become this large: it bounds the memory of sealing and what a damaged
/// block costs.
const BLOCK_BYTES: usize = 256 << 10;

/// Writes blocks one after the other and remembers where they are.
struct Sink<'a> {
    write: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
    compressor: Option<Compressor>,
    offset: u64,
    blocks: Vec<BlockRef>,
    buffer: Vec<u8>,
}

impl Sink<'_> {
    fn put(&mut self, kind: Kind, entity: u8, columns: &[u32], payload: &[u8]) -> io::Result<()> {
        self.buffer.clear();
        let header = block::put(&mut self.buffer, kind, entity, payload, self.compressor.as_mut());
        (self.write)(&self.buffer)?;
        let bytes = header.total_bytes();
        self.blocks.push(BlockRef { kind, entity, offset: self.offset, bytes, columns: columns.into() });
        self.offset += bytes;
        Ok(())
    }
}

/// Writes the segment. Without a level nothing is packed, for images that stay in memory.
pub(crate) fn write(
    segment: &OpenSegment,
    level: Option<i32>,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let compressor = level.map(Compressor::new).transpose()?;
    write(&file_header(SEGMENT_MAGIC, VERSION))?;
    let mut sink =
        Sink { write, compressor, offset: FILE_HEADER_BYTES as u64, blocks: Vec::new(), buffer: Vec::new() };

    // Everything that other blocks cannot be read without is there twice, far apart.
    let meta = Meta { schema_crc: crc32c::crc32c(schema::current()), ..segment.meta.clone() };
    let meta = serde_json::to_vec(&meta).unwrap_or_default();
    let mut twice = vec![
        (Kind::Meta, NO_ENTITY, meta.clone()),
        (Kind::Times, NO_ENTITY, times(&segment.times)),
        (Kind::Texts, NO_ENTITY, texts(segment)),
    ];
    for (number, table) in segment.tables.iter().enumerate() {
        if table.samples.iter().any(|samples| *samples > 0) {
            twice.push((Kind::Rows, number as u8, rows(table, segment.frames())));
        }
    }
    for (kind, entity, payload) in &twice {
        sink.put(*kind, *entity, &[], payload)?;
    }
    sink.put(Kind::Schema, NO_ENTITY, &[], schema::current())?;
    for (entity, table) in Entity::ALL.into_iter().zip(&segment.tables) {
        put_columns(&mut sink, segment, entity, table)?;
    }
    if !segment.events.is_empty() {
        sink.put(Kind::Events, NO_ENTITY, &[], &segment.events)?;
    }
    for (kind, entity, payload) in &twice {
        sink.put(*kind, *entity, &[], payload)?;
    }

    let offset = sink.offset;
    let index = super::index::payload(&sink.blocks, &segment.times, &meta);
    sink.put(Kind::Index, NO_ENTITY, &[], &index)?;
    (sink.write)(&trailer(offset, sink.offset - offset))?;
    Ok(sink.offset + TRAILER_BYTES as u64)
}

/// Each time against the one before, and all that is not boot time against a steady step.
fn times(times: &[Times]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, times.len() as u64);
    let mut expected = Times::default();
    let mut before = Times::default();
    for &now in times {
        now.put(&mut out, expected);
        let step = now.boot_us.wrapping_sub(before.boot_us);
        expected = Times { boot_us: now.boot_us.wrapping_add(step), flags: 0, ..now };
        before = now;
    }
    out
}

fn texts(segment: &OpenSegment) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, segment.texts.len() as u64);
    for number in 0..segment.texts.len() {
        put_bytes(&mut out, segment.texts.get(number).as_bytes());
    }
    out
}

fn present(table: &OpenTable) -> impl Iterator<Item = usize> {
    (0..table.keys.len()).filter(|slot| table.samples[*slot] > 0)
}

/// The number of rows, their keys, then for each the number of its stretches of presence (0: every frame) and for
/// each how many frames it was absent before, and present.
fn rows(table: &OpenTable, frames: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, present(table).count() as u64);
    let (mut id, mut born) = (0_u64, 0_u64);
    for slot in present(table) {
        let key = table.keys[slot];
        put_difference(&mut out, key.id.wrapping_sub(id) as i64);
        put_difference(&mut out, key.born.wrapping_sub(born) as i64);
        (id, born) = (key.id, key.born);
    }
    let mut closed = table.closed_runs.clone();
    closed.sort_unstable();
    let mut closed = closed.into_iter().peekable();
    for slot in present(table) {
        let mut runs = Vec::new();
        while let Some((_, start, end)) = closed.next_if(|(of, _, _)| *of as usize == slot) {
            runs.push((start, end));
        }
        runs.push((table.run_start[slot], table.seen[slot]));
        if runs == [(0, frames)] {
            put(&mut out, 0);
            continue;
        }
        put(&mut out, runs.len() as u64);
        let mut at = 0;
        for (start, end) in runs {
            put(&mut out, u64::from(start - at));
            put(&mut out, u64::from(end - start));
            at = end;
        }
    }
    out
}

/// The columns of an entity, those of one group next to each other.
fn put_columns(
    sink: &mut Sink<'_>,
    segment: &OpenSegment,
    entity: Entity,
    table: &OpenTable,
) -> io::Result<()> {
    let rows = present(table).count();
    if rows == 0 {
        return Ok(());
    }
    let mut groups: Vec<(&str, Vec<u32>)> = Vec::new();
    for (column, metric) in columns(entity).iter().enumerate() {
        let name = schema::group(entity, metric.name);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, columns)) => columns.push(column as u32),
            None => groups.push((name, vec![column as u32])),
        }
    }
    let mut scratch = Scratch::default();
    for (_, group) in groups {
        let mut bodies = Vec::new();
        let mut lengths = Vec::new();
        let mut members: Vec<u32> = Vec::new();
        for column in group {
            let start = bodies.len();
            put_column(&mut bodies, segment, table, column as usize, &mut scratch);
            lengths.push(bodies.len() - start);
            members.push(column);
            if bodies.len() >= BLOCK_BYTES {
                put_block(sink, entity, rows, &mut members, &mut lengths, &mut bodies)?;
            }
        }
        if !members.is_empty() {
            put_block(sink, entity, rows, &mut members, &mut lengths, &mut bodies)?;
        }
    }
    Ok(())
}

/// The number of rows, the number of columns, for each how many of the schema are passed over before it, for each
/// its length, then the columns.
fn put_block(
    sink: &mut Sink<'_>,
    entity: Entity,
    rows: usize,
    members: &mut Vec<u32>,
    lengths: &mut Vec<usize>,
    bodies: &mut Vec<u8>,
) -> io::Result<()> {
    let mut payload = Vec::with_capacity(bodies.len() + 4 * members.len() + 16);
    put(&mut payload, rows as u64);
    put_members(&mut payload, members);
    for length in lengths.drain(..) {
        put(&mut payload, length as u64);
    }
    payload.append(bodies);
    sink.put(Kind::Columns, entity as u8, members, &payload)?;
    members.clear();
    Ok(())
}

/// A growing list of column numbers.
pub(crate) fn put_members(out: &mut Vec<u8>, members: &[u32]) {
    put(out, members.len() as u64);
    let mut next = 0;
    for &member in members {
        put(out, u64::from(member - next));
        next = member + 1;
    }
}

#[derive(Default)]
struct Scratch {
    firsts: Vec<i64>,
    active: Vec<u8>,
    bodies: Vec<u8>,
    changes: Vec<u8>,
    values: Vec<i64>,
}

/// The first value of each row, against the row before, or one for all; then the number of rows that change, for
/// each how many do not before it, its form and its length; then those.
fn put_column(
    out: &mut Vec<u8>,
    segment: &OpenSegment,
    table: &OpenTable,
    column: usize,
    scratch: &mut Scratch,
) {
    scratch.firsts.clear();
    scratch.active.clear();
    scratch.bodies.clear();
    let mut active = 0;
    let mut next = 0;
    for (row, slot) in present(table).enumerate() {
        let Some(changes) = table.changes(slot, column) else {
            scratch.firsts.push(table.last_row(slot as u32)[column]);
            continue;
        };
        scratch.firsts.push(changes.first);
        scratch.changes.clear();
        segment.arena.copy(changes.stream, &mut scratch.changes);
        scratch.values.clear();
        expand(changes.first, table.samples[slot] as usize, &scratch.changes, &mut scratch.values);
        let form = choose(&scratch.values, scratch.changes.len());
        let start = scratch.bodies.len();
        match form {
            Form::Changes => scratch.bodies.extend_from_slice(&scratch.changes),
            form => put_values(&mut scratch.bodies, &scratch.values, form),
        }
        put(&mut scratch.active, (row - next) as u64);
        put(&mut scratch.active, ((scratch.bodies.len() - start) as u64) << 2 | form as u64);
        next = row + 1;
        active += 1;
    }
    let one = scratch.firsts.iter().all(|first| *first == scratch.firsts[0]);
    out.push(u8::from(!one));
    let mut before = 0;
    for &first in &scratch.firsts[..if one { 1 } else { scratch.firsts.len() }] {
        crate::varint::put_cell(out, first, before);
        if first != mitra_model::NA {
            before = first;
        }
    }
    put(out, active);
    out.extend_from_slice(&scratch.active);
    out.extend_from_slice(&scratch.bodies);
}

/// The values that the changes of a cell amount to; the bytes are our own.
fn expand(first: i64, samples: usize, changes: &[u8], out: &mut Vec<i64>) {
    let mut input = Input::new(changes);
    let mut at = first;
    out.push(first);
    while let Ok(equal) = input.varint() {
        out.resize(out.len() + equal as usize, at);
        let Ok(now) = input.cell(reference(at)) else { break };
        at = now;
        out.push(at);
    }
    out.resize(samples, at);
}
