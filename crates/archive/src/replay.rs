//! Segments back to the frames that they were made from.

use mitra_model::{Entity, Event, Frame, Key, NA, Stamp, StrId, Strings};

use crate::block::{Kind, NO_ENTITY};
use crate::log::decode::ns;
use crate::open::Times;
use crate::reader::Part;
use crate::schema::convert;
use crate::segment::column;
use crate::segment::decode::{Columns, Rows, events, texts};
use crate::segment::file::{Opened, SchemaCache};
use crate::segment::index::parse_times;

/// One column: the first values, and all values of the rows that change.
struct Expanded {
    column: usize,
    is_text: bool,
    /// To the unit of this version.
    factor: f64,
    firsts: Vec<i64>,
    /// Where in `values` the row begins, or [`STILL`].
    starts: Vec<u32>,
    values: Vec<i64>,
}

const STILL: u32 = u32::MAX;

struct Table {
    entity: Entity,
    rows: Rows,
    columns: Vec<Expanded>,
    /// Which stretch of presence each row is in, and how many samples of it have gone by.
    run: Vec<usize>,
    sample: Vec<usize>,
}

/// Hands the frames of a part of a segment to `each`. `generation` is that of its texts, another one than those of the parts before.
pub(crate) fn replay(
    opened: &mut Opened<'_>,
    schemas: &SchemaCache,
    part: &Part,
    generation: u32,
    each: &mut dyn FnMut(&Frame, &Strings),
) {
    let times = opened.either(Kind::Times, NO_ENTITY, |payload| parse_times(&payload));
    let Some(times) = times else { return };
    let words = opened.either(Kind::Texts, NO_ENTITY, |payload| texts(&payload)).unwrap_or_default();
    // Each part has a table of texts of its own; whoever keeps ids from one frame to the next has to know.
    let mut strings = Strings::of_generation(generation);
    let ids: Vec<StrId> = words.iter().map(|word| strings.intern(word)).collect();
    let mut tables = read_tables(opened, schemas, part);
    let frame_events = read_events(opened);
    let mut next_event = 0;
    let mut frame = Frame::new();
    for (number, times) in times.iter().enumerate().take(part.until) {
        frame.clear();
        stamp(&mut frame, *times);
        for table in &mut tables {
            table.fill(&mut frame, number as u32, &ids);
        }
        while let Some((_, event)) = frame_events.get(next_event).filter(|(of, _)| *of <= number as u32) {
            frame.events.push(event.clone());
            next_event += 1;
        }
        if number >= part.from {
            each(&frame, &strings);
        }
    }
}

fn stamp(frame: &mut Frame, times: Times) {
    frame.time = Stamp { real: ns(times.real_us()), mono: ns(times.mono_us()), boot: ns(times.boot_us) };
    frame.interval_ns = u64::try_from(ns(times.interval_us)).unwrap_or(0);
}

fn read_events(opened: &mut Opened<'_>) -> Vec<(u32, Event)> {
    let mut found = Vec::new();
    for number in 0..opened.index().blocks.len() {
        if opened.index().blocks[number].kind != Kind::Events {
            continue;
        }
        let Some(payload) = opened.block(number) else { continue };
        let done = events(&payload, &mut |frame, json| {
            found.extend(serde_json::from_slice(json).ok().map(|event| (frame, event)));
        });
        if let Err(corrupt) = done {
            opened.skip(number, corrupt);
        }
    }
    found
}

fn read_tables(opened: &mut Opened<'_>, schemas: &SchemaCache, part: &Part) -> Vec<Table> {
    let Some(schema) = opened.schema(schemas) else { return Vec::new() };
    let mut tables = Vec::new();
    for (number, stored) in schema.entities.iter().enumerate() {
        let Some(entity) = stored.entity else { continue };
        let number = number as u8;
        if !opened.index().blocks.iter().any(|block| block.kind == Kind::Rows && block.entity == number) {
            continue;
        }
        let rows = opened.either(Kind::Rows, number, |payload| Rows::parse(&payload, part.frames));
        let Some(rows) = rows else { continue };
        let mut columns = Vec::new();
        for block in 0..opened.index().blocks.len() {
            let of = &opened.index().blocks[block];
            if of.kind != Kind::Columns || of.entity != number {
                continue;
            }
            let Some(payload) = opened.block(block) else { continue };
            let done = Columns::parse(&payload, rows.len()).and_then(|parsed| {
                for (id, body) in &parsed.bodies {
                    let Some(stored) = stored.columns.get(*id as usize) else { continue };
                    let Some(metric) = stored.metric else { continue };
                    let Some(column) = mitra_model::column(metric.name) else { continue };
                    let expanded = expand(&parsed, body, &rows)?;
                    let (is_text, factor) = (stored.is_text, stored.factor());
                    columns.push(Expanded { column, is_text, factor, ..expanded });
                }
                Ok(())
            });
            if let Err(corrupt) = done {
                opened.skip(block, corrupt);
            }
        }
        let (run, sample) = (vec![0; rows.len()], vec![0; rows.len()]);
        tables.push(Table { entity, rows, columns, run, sample });
    }
    tables
}

fn expand<'a>(parsed: &Columns<'a>, body: &'a [u8], rows: &Rows) -> crate::varint::Got<Expanded> {
    let column = parsed.column(body)?;
    let mut starts = vec![STILL; rows.len()];
    let mut values = Vec::new();
    for active in &column.active {
        starts[active.row] = values.len() as u32;
        let samples = rows.samples[active.row] as usize;
        column::read(active.form, column.firsts[active.row], samples, active.bytes, &mut values)?;
    }
    Ok(Expanded { column: 0, is_text: false, factor: 1.0, firsts: column.firsts, starts, values })
}

impl Table {
    fn fill(&mut self, frame: &mut Frame, number: u32, ids: &[StrId]) {
        let out = frame.table_mut(self.entity);
        let text = |number: u64| usize::try_from(number).ok().and_then(|n| ids.get(n)).copied();
        for row in 0..self.rows.len() {
            let Some(&(start, end)) = self.rows.runs(row).get(self.run[row]) else { continue };
            if number < start {
                continue;
            }
            if number + 1 == end {
                self.run[row] += 1;
            }
            let sample = self.sample[row];
            self.sample[row] += 1;
            let key = self.rows.keys[row];
            let key = match self.entity {
                Entity::System | Entity::Task => Some(key),
                Entity::Exited => text(key.born).map(|comm| Key { id: key.id, born: u64::from(comm) }),
                _ => text(key.id).map(|name| Key { id: u64::from(name), born: key.born }),
            };
            // A row whose name is lost cannot be told from others.
            let Some(key) = key else { continue };
            let cells = out.push(key);
            for column in &self.columns {
                let raw = match column.starts[row] {
                    STILL => column.firsts[row],
                    start => column.values[start as usize + sample],
                };
                let Some(cell) = cells.get_mut(column.column) else { continue };
                *cell = if column.is_text {
                    usize::try_from(raw).ok().and_then(|n| ids.get(n)).map_or(NA, |id| i64::from(*id))
                } else {
                    convert(raw, column.factor)
                };
            }
        }
    }
}
