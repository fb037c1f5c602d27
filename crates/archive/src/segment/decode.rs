//! Payloads of the blocks of a segment back to rows and columns.

use std::sync::Arc;

use mitra_model::{Key, NA};

use super::column::Form;
use super::index::members;
use crate::varint::{Corrupt, Got, Input};

/// The rows of one entity in a segment.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// With numbers of the segment's texts where the frame had ids.
    pub(crate) keys: Vec<Key>,
    /// Stretches of frames in which a row was present, of all rows one after the other.
    runs: Vec<(u32, u32)>,
    /// Where the stretches of a row end.
    run_ends: Vec<u32>,
    /// How many samples each row has.
    pub(crate) samples: Vec<u32>,
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The stretches of presence of a row: first frame, frame after the last.
    pub(crate) fn runs(&self, row: usize) -> &[(u32, u32)] {
        let start = row.checked_sub(1).map_or(0, |before| self.run_ends[before]);
        &self.runs[start as usize..self.run_ends[row] as usize]
    }

    pub(crate) fn parse(payload: &[u8], frames: u32) -> Got<Rows> {
        let mut input = Input::new(payload);
        let count = input.count(3)?;
        let mut rows = Rows::default();
        let mut key = Key::default();
        let field = |before: u64, input: &mut Input<'_>| {
            let difference = input.difference()?.ok_or(Corrupt("a key"))?;
            Ok(before.wrapping_add(difference as u64))
        };
        for _ in 0..count {
            key = Key { id: field(key.id, &mut input)?, born: field(key.born, &mut input)? };
            rows.keys.push(key);
        }
        for _ in 0..count {
            let runs = input.count(2)?;
            let mut samples = 0;
            if runs == 0 {
                rows.runs.push((0, frames));
                samples = frames;
            }
            let mut at = 0_u32;
            for _ in 0..runs {
                let start = at.checked_add(input.u32()?);
                let end = start.and_then(|start| start.checked_add(input.u32().ok()?));
                let (Some(start), Some(end)) = (start, end.filter(|end| *end <= frames)) else {
                    return Err(Corrupt("presence inside the segment"));
                };
                rows.runs.push((start, end));
                samples += end - start;
                at = end;
            }
            if samples == 0 {
                return Err(Corrupt("a row that was present"));
            }
            rows.samples.push(samples);
            rows.run_ends.push(rows.runs.len() as u32);
        }
        Ok(rows)
    }
}

/// Reads the payload of the texts block.
pub(crate) fn texts(payload: &[u8]) -> Got<Vec<Arc<str>>> {
    let mut input = Input::new(payload);
    let count = input.count(1)?;
    (0..count).map(|_| input.text().map(Arc::from)).collect()
}

/// Reads the payload of the events block: for each the frame and its JSON.
pub(crate) fn events<'a>(payload: &'a [u8], each: &mut dyn FnMut(u32, &'a [u8])) -> Got<()> {
    let mut input = Input::new(payload);
    let mut frame = 0_u32;
    while !input.is_empty() {
        frame = frame.checked_add(input.u32()?).ok_or(Corrupt("a frame number"))?;
        each(frame, input.bytes()?);
    }
    Ok(())
}

/// The columns of one block.
pub(crate) struct Columns<'a> {
    rows: usize,
    /// The number of each column in the schema, and its bytes.
    pub(crate) bodies: Vec<(u32, &'a [u8])>,
}

impl<'a> Columns<'a> {
    /// `rows`: how many the entity has in this segment.
    pub(crate) fn parse(payload: &'a [u8], rows: usize) -> Got<Self> {
        let mut input = Input::new(payload);
        if input.varint()? != rows as u64 {
            return Err(Corrupt("as many rows as the segment has"));
        }
        let members = members(&mut input)?;
        let lengths: Vec<usize> =
            members.iter().map(|_| input.varint().map(|length| length as usize)).collect::<Got<_>>()?;
        let bodies = members.into_iter().zip(lengths);
        let bodies = bodies.map(|(member, length)| Ok((member, input.take(length)?))).collect::<Got<_>>()?;
        Ok(Columns { rows, bodies })
    }

    /// Takes a column apart.
    pub(crate) fn column(&self, body: &'a [u8]) -> Got<Column<'a>> {
        let mut input = Input::new(body);
        let mut firsts = Vec::new();
        match input.byte()? {
            0 => firsts.resize(self.rows, input.cell(0)?),
            _ => {
                if input.len() < self.rows {
                    return Err(Corrupt("a first value for each row"));
                }
                let mut before = 0;
                for _ in 0..self.rows {
                    let first = input.cell(before)?;
                    if first != NA {
                        before = first;
                    }
                    firsts.push(first);
                }
            }
        }
        let count = input.count(2)?;
        let mut heads = Vec::with_capacity(count);
        let mut next = 0_usize;
        for _ in 0..count {
            let row = next.checked_add(input.varint()? as usize).filter(|row| *row < self.rows);
            let row = row.ok_or(Corrupt("a row that exists"))?;
            let head = input.varint()?;
            heads.push((row, Form::from_number(head & 3)?, (head >> 2) as usize));
            next = row + 1;
        }
        let active = heads
            .into_iter()
            .map(|(row, form, length)| Ok(Active { row, form, bytes: input.take(length)? }))
            .collect::<Got<_>>()?;
        Ok(Column { firsts, active })
    }
}

/// One column over all rows.
pub(crate) struct Column<'a> {
    /// The value of each row at its first sample.
    pub(crate) firsts: Vec<i64>,
    /// The rows whose value changes, in order.
    pub(crate) active: Vec<Active<'a>>,
}

/// A row whose value changes.
pub(crate) struct Active<'a> {
    pub(crate) row: usize,
    pub(crate) form: Form,
    pub(crate) bytes: &'a [u8],
}
