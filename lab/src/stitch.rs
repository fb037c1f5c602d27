//! A long recording of short ones: real frames of a healthy machine, again and again, and real incidents between them.
//!
//! The kernel cannot be hurried, but what it does in a month can be put together. Clocks run on, and so do the counters of what is
//! there before and after a seam: at a seam each grows by its last step once more. Processes have started as long before their frame
//! as they had.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use mitra_archive::{Options, Reader, Writer};
use mitra_model::time::{SECOND, Stamp};
use mitra_model::{Entity, Frame, HostInfo, Key, Kind, NA, Span, Strings, columns};

/// The machine has been up for so long when it begins: every process of a recording was started after that.
const UP_NS: i64 = 100 * 86_400 * SECOND;

/// The frames of a recording, with the texts of the long one.
pub struct Piece(Vec<Frame>);

impl Piece {
    /// Seconds from its first frame to its last.
    pub fn seconds(&self) -> f64 {
        let ends = self.0.first().zip(self.0.last());
        ends.map_or(0.0, |(first, last)| (last.time.mono - first.time.mono) as f64 / SECOND as f64)
    }
}

/// A row that was written.
struct Row {
    /// What was written last.
    written: Vec<i64>,
    /// What stood in the piece then.
    read: Vec<i64>,
    /// By how much each counter grew last.
    step: Vec<i64>,
    /// In which play.
    play: u64,
    /// In which frame of all.
    frame: u64,
}

/// Writes the long recording.
pub struct Stitcher {
    writer: Writer,
    strings: Strings,
    now: Stamp,
    plays: u64,
    frames: u64,
    rows: HashMap<(Entity, Key), Row>,
}

impl Stitcher {
    /// An empty recording that begins at `real_ns`.
    pub fn new(to: &Path, host: &HostInfo, real_ns: i64) -> anyhow::Result<Self> {
        let options =
            Options { max_age: Duration::MAX, max_bytes: u64::MAX, behind_bytes: 0, ..Options::default() };
        Ok(Self {
            writer: Writer::open(to, host, options)?,
            strings: Strings::new(),
            now: Stamp { real: real_ns, mono: UP_NS, boot: UP_NS },
            plays: 0,
            frames: 0,
            rows: HashMap::new(),
        })
    }

    /// Reads a recording.
    pub fn load(&mut self, archive: &Path, span: Span) -> anyhow::Result<Piece> {
        let mut frames = Vec::new();
        let reader = Reader::open(archive).with_context(|| archive.display().to_string())?;
        reader.frames(span, &mut |frame, strings| frames.push(renamed(frame, strings, &mut self.strings)))?;
        anyhow::ensure!(!frames.is_empty(), "{}: no frames", archive.display());
        Ok(Piece(frames))
    }

    /// The time of the last frame.
    pub fn real_ns(&self) -> i64 {
        self.now.real
    }

    /// Plays the first seconds of a piece, over and over where it is shorter. Processes live on from one time to the next.
    pub fn fill(&mut self, piece: &Piece, seconds: f64) -> anyhow::Result<()> {
        let until = self.now.real + (seconds * SECOND as f64) as i64;
        while self.run(piece, UP_NS, until)? {}
        Ok(())
    }

    /// Plays a piece whole, with processes of its own or those of [`Self::fill`]. Returns what its clock has to be put on by.
    pub fn play(&mut self, piece: &Piece, has_own: bool) -> anyhow::Result<i64> {
        let Some(first) = piece.0.first() else { return Ok(0) };
        let ahead = self.now.real + SECOND - first.time.real;
        let boot_ns = if has_own { self.now.boot + SECOND } else { UP_NS };
        let _ = self.run(piece, boot_ns, i64::MAX)?;
        Ok(ahead)
    }

    /// `boot_ns` is the age of the machine when what runs in the first frame is as old as it was. Whether all of it came before the end.
    fn run(&mut self, piece: &Piece, boot_ns: i64, until: i64) -> anyhow::Result<bool> {
        self.plays += 1;
        let mut before: Option<Stamp> = None;
        let Some(first) = piece.0.first() else { return Ok(false) };
        let born_ahead = boot_ns - first.time.boot;
        for frame in &piece.0 {
            let dt = before.replace(frame.time).map_or(SECOND, |before| frame.time.mono - before.mono);
            if self.now.real + dt > until {
                return Ok(false);
            }
            let Stamp { real, mono, boot } = self.now;
            self.now = Stamp { real: real + dt, mono: mono + dt, boot: boot + dt };
            self.frames += 1;
            let shifted = self.shifted(frame, born_ahead);
            self.writer.append(&shifted, &self.strings)?;
        }
        Ok(true)
    }

    fn shifted(&mut self, frame: &Frame, born_ahead: i64) -> Frame {
        let mut to = Frame { time: self.now, interval_ns: frame.interval_ns, ..Frame::new() };
        for table in &frame.tables {
            let entity = table.entity();
            for (key, cells) in table.rows() {
                let key = match entity {
                    Entity::Task => Key { born: key.born.saturating_add_signed(born_ahead), ..key },
                    _ => key,
                };
                let row = to.table_mut(entity).push(key);
                self.write(entity, key, cells, row);
            }
        }
        let (real, mono) = (self.now.real - frame.time.real, self.now.mono - frame.time.mono);
        to.events.clone_from(&frame.events);
        for event in &mut to.events {
            event.real += real;
            event.mono = event.mono.map(|at| at + mono);
        }
        to
    }

    fn write(&mut self, entity: Entity, key: Key, cells: &[i64], to: &mut [i64]) {
        let (play, frame) = (self.plays, self.frames);
        let row = self.rows.entry((entity, key)).or_insert_with(|| Row {
            written: vec![NA; cells.len()],
            read: vec![NA; cells.len()],
            step: vec![0; cells.len()],
            play: 0,
            frame: 0,
        });
        let (is_new, begins) = (row.frame + 1 != frame, row.play != play);
        for (i, (metric, cell)) in columns(entity).iter().zip(cells).enumerate() {
            let is_counter = matches!(metric.kind, Kind::Counter | Kind::Bucket) && *cell != NA;
            to[i] = if is_counter && is_new && begins && entity == Entity::Exited {
                // Of a row that is new everything has ended in its first second, and this one was there before its piece.
                0
            } else if is_counter && !is_new && row.written[i] != NA {
                if !begins && row.read[i] != NA {
                    row.step[i] = cell.saturating_sub(row.read[i]).max(0);
                }
                row.written[i].saturating_add(row.step[i])
            } else {
                *cell
            };
            row.read[i] = *cell;
            if to[i] != NA || is_new {
                row.written[i] = to[i];
            }
        }
        (row.play, row.frame) = (play, frame);
    }

    /// Ends the recording.
    pub fn finish(self) -> anyhow::Result<()> {
        self.writer.finish()?;
        Ok(())
    }
}

/// A frame whose texts are in another table.
fn renamed(frame: &Frame, from: &Strings, to: &mut Strings) -> Frame {
    let mut text = |cell: i64| from.cell(cell).map_or(NA, |text| i64::from(to.intern(text)));
    let mut new = Frame { time: frame.time, interval_ns: frame.interval_ns, ..Frame::new() };
    for table in &frame.tables {
        let entity = table.entity();
        for (key, cells) in table.rows() {
            let mut named = |id: u64| text(id.cast_signed()).cast_unsigned();
            let key = match entity {
                Entity::System | Entity::Task => key,
                Entity::Exited => Key { born: named(key.born), ..key },
                _ => Key { id: named(key.id), ..key },
            };
            let row = new.table_mut(entity).push(key);
            row.copy_from_slice(cells);
            for (cell, _) in row.iter_mut().zip(columns(entity)).filter(|(_, m)| m.kind == Kind::Text) {
                *cell = text(*cell);
            }
        }
    }
    new.events.clone_from(&frame.events);
    new
}
