//! The segment that is being filled: everything that sealing it will need, about as large as it will be.

use mitra_model::{Entity, EventKind, Frame, HostInfo, Stamp, Strings};
use serde::{Deserialize, Serialize};

use crate::arena::Arena;
use crate::table::OpenTable;
use crate::text_table::TextTable;
use crate::varint::{Corrupt, Got, Input, put, put_difference};

/// Two clocks read one after the other differ by less than this from one frame to the next, in microseconds,
/// unless one was set.
const CLOCK_NOISE_US: i64 = 2;

/// The times of one frame as they are stored: microseconds, because a sample takes longer than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Times {
    /// `CLOCK_BOOTTIME`.
    pub(crate) boot_us: i64,
    /// `CLOCK_MONOTONIC` minus boot time: falls during a suspend.
    pub(crate) mono_off_us: i64,
    /// `CLOCK_REALTIME` minus boot time: changes when the clock is set.
    pub(crate) real_off_us: i64,
    /// The interval that the recorder meant to keep.
    pub(crate) interval_us: i64,
    /// [`LOST_BEFORE`] or 0.
    pub(crate) flags: u8,
}

/// Frames before this one were in the log and could not be read.
pub(crate) const LOST_BEFORE: u8 = 1;

impl Times {
    pub(crate) fn of(frame: &Frame, before: Option<Times>) -> Times {
        let us = |ns: i64| ns.div_euclid(1000);
        // A source without a boot clock counts no suspends.
        let boot_us = us(frame.time.boot.max(frame.time.mono));
        let steady = |now: i64, before: i64| {
            if now.abs_diff(before) <= CLOCK_NOISE_US.unsigned_abs() { before } else { now }
        };
        let mut times = Times {
            boot_us,
            mono_off_us: us(frame.time.mono).saturating_sub(boot_us),
            real_off_us: us(frame.time.real).saturating_sub(boot_us),
            interval_us: i64::try_from(frame.interval_ns / 1000).unwrap_or(i64::MAX),
            flags: 0,
        };
        if let Some(before) = before {
            times.mono_off_us = steady(times.mono_off_us, before.mono_off_us);
            times.real_off_us = steady(times.real_off_us, before.real_off_us);
        }
        times
    }

    pub(crate) fn mono_us(self) -> i64 {
        self.boot_us.saturating_add(self.mono_off_us)
    }

    pub(crate) fn real_us(self) -> i64 {
        self.boot_us.saturating_add(self.real_off_us)
    }

    /// Whether a frame at this time may follow one at that time in the same segment.
    pub(crate) fn follows(self, before: Times) -> bool {
        self.boot_us > before.boot_us && self.mono_us() > before.mono_us()
    }

    pub(crate) fn put(self, out: &mut Vec<u8>, before: Times) {
        put_difference(out, self.boot_us.wrapping_sub(before.boot_us));
        put_difference(out, self.mono_off_us.wrapping_sub(before.mono_off_us));
        put_difference(out, self.real_off_us.wrapping_sub(before.real_off_us));
        put_difference(out, self.interval_us.wrapping_sub(before.interval_us));
        out.push(self.flags);
    }

    pub(crate) fn get(input: &mut Input<'_>, before: Times) -> Got<Times> {
        let mut field = |before: i64| {
            let difference = input.difference()?.ok_or(Corrupt("a time"))?;
            Ok(before.wrapping_add(difference))
        };
        Ok(Times {
            boot_us: field(before.boot_us)?,
            mono_off_us: field(before.mono_off_us)?,
            real_off_us: field(before.real_off_us)?,
            interval_us: field(before.interval_us)?,
            flags: input.byte()?,
        })
    }
}

/// What is said once in a file, as JSON: fields that are added need a default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) host: HostInfo,
    /// The same for all files that one recorder wrote without a break.
    #[serde(default)]
    pub(crate) session: u64,
    /// The crc32c of the schema of a sealed segment.
    #[serde(default)]
    pub(crate) schema_crc: u32,
    /// What could not be observed when the file ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unavailable: Vec<(String, String)>,
    /// How often detail was shed.
    #[serde(default)]
    pub(crate) sheds: u64,
}

impl Meta {
    fn note(&mut self, event: &EventKind) {
        match event {
            EventKind::Unavailable { source, why } => {
                match self.unavailable.iter_mut().find(|(known, _)| known == source) {
                    Some((_, known)) => known.clone_from(why),
                    None => self.unavailable.push((source.clone(), why.clone())),
                }
            }
            EventKind::Shed { level, .. } if level != "none" => self.sheds += 1,
            _ => {}
        }
    }
}

/// The open segment.
pub(crate) struct OpenSegment {
    pub(crate) meta: Meta,
    pub(crate) times: Vec<Times>,
    /// The time of the last frame as the collector has it.
    recorded: Option<Stamp>,
    pub(crate) texts: TextTable,
    pub(crate) tables: Vec<OpenTable>,
    pub(crate) arena: Arena,
    /// For each event how many frames after the one before, and its JSON.
    pub(crate) events: Vec<u8>,
    events_frame: u32,
}

impl OpenSegment {
    pub(crate) fn new(meta: Meta) -> Self {
        OpenSegment {
            meta,
            times: Vec::new(),
            recorded: None,
            texts: TextTable::default(),
            tables: Entity::ALL.into_iter().map(OpenTable::new).collect(),
            arena: Arena::default(),
            events: Vec::new(),
            events_frame: 0,
        }
    }

    /// Begins the next segment with the memory of this one.
    pub(crate) fn clear(&mut self) {
        self.meta.sheds = 0;
        self.times.clear();
        self.recorded = None;
        self.texts.clear();
        self.tables.iter_mut().for_each(OpenTable::clear);
        self.arena.clear();
        self.events.clear();
        self.events_frame = 0;
    }

    /// How many frames it has.
    pub(crate) fn frames(&self) -> u32 {
        self.times.len() as u32
    }

    /// Roughly the memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.tables.iter().map(OpenTable::bytes).sum::<usize>()
            + self.arena.bytes()
            + self.texts.bytes()
            + self.events.len()
            + self.times.len() * size_of::<Times>()
    }

    /// Roughly the memory that the rows of the last frame take.
    pub(crate) fn present_bytes(&self) -> usize {
        self.tables.iter().map(OpenTable::present_bytes).sum()
    }

    /// Finds what changed; see [`OpenTable::observe`].
    pub(crate) fn observe(&mut self, frame: &Frame, strings: &Strings) {
        self.texts.follow(strings);
        let trusts_kept = self.recorded.is_some() && self.recorded == frame.kept_from;
        for (open, table) in self.tables.iter_mut().zip(&frame.tables) {
            open.observe(table, trusts_kept, &mut self.texts, strings);
        }
    }

    /// Records the frame that was just observed.
    pub(crate) fn commit(&mut self, frame: &Frame, times: Times) {
        let number = self.frames();
        for table in &mut self.tables {
            table.commit(number, &mut self.arena);
        }
        self.times.push(times);
        self.recorded = Some(frame.time);
        for event in &frame.events {
            let Ok(json) = serde_json::to_vec(event) else { continue };
            put(&mut self.events, u64::from(number - self.events_frame));
            put(&mut self.events, json.len() as u64);
            self.events.extend_from_slice(&json);
            self.events_frame = number;
            self.meta.note(&event.kind);
        }
    }
}
