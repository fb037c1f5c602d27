//! What an armed probe saw: `mitra.capture/1`.
//!
//! A capture is made on suspicion or by hand, for a bounded time. It has a header that says how it came about and
//! what it cost, tables, histograms and stacks. [`Captured`] is what is stored and printed; [`Raw`] is the same
//! before the addresses of its stacks have names.

mod frames;
pub mod heap;
mod leaves;
mod profile;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventKind};

pub use frames::{CodeAddress, InterpreterLayout, StackCopy, UnwindRule, UnwoundStack};
pub use profile::{Image, KERNEL_MARK, Profile, Raw, RawStack, Stack};

/// What [`Captured::schema`] says.
pub const SCHEMA: &str = "mitra.capture/1";
/// As many rows travel in an event.
pub const TOPS_MAX: usize = 20;
/// What an armed probe saw, and what it cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Captured {
    /// [`SCHEMA`].
    pub schema: String,
    /// The kind: `offcpu`, `faults`, ….
    pub kind: String,
    /// Who or what wanted it.
    pub why: String,
    /// The machine.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// When it began, in nanoseconds since 1970 UTC.
    pub since_real: i64,
    /// When it began, on the monotonic clock.
    pub since_mono: i64,
    /// For how long it was armed.
    pub seconds: f64,
    /// What was asked for beyond the kind: `pid`, `comm`, `cgroup`, `d-only`, ….
    pub filter: BTreeMap<String, String>,
    /// Events counted.
    pub events: u64,
    /// Events, or parts of them, for which there was no room.
    pub lost: u64,
    /// How it ended.
    pub ended: Ended,
    /// CPU time that it took, kernel and user together; none where the kernel does not measure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// The part of it that the programs in the kernel took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_kernel_ns: Option<u64>,
    /// How often the programs in the kernel ran, also for events that were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u64>,
    /// CPU time that it took to load it, before it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_setup_ns: Option<u64>,
    /// CPU time that it took to name the frames of its stacks, after it had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_naming_ns: Option<u64>,
    /// What a reader has to know beside the numbers.
    pub notes: Vec<String>,
    /// The rows that matter most, largest first, at most [`TOPS_MAX`].
    pub tops: Vec<CaptureRow>,
    /// Tables, the main one first.
    pub tables: Vec<CaptureTable>,
    /// Distributions.
    pub histograms: Vec<CaptureHistogram>,
    /// Stacks with their weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// How a capture ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Its time was over.
    #[default]
    Time,
    /// It had as many events as were asked for.
    Events,
    /// It had cost as much as it was allowed to.
    Cost,
    /// Somebody stopped it.
    Stopped,
    /// The process that it watched ended.
    Gone,
    /// Something went wrong.
    Failed(String),
}

impl Ended {
    /// In words.
    #[must_use]
    pub fn words(&self) -> Cow<'static, str> {
        match self {
            Ended::Time => "its time was over".into(),
            Ended::Events => "it had enough events".into(),
            Ended::Cost => "it cost more than it was allowed to".into(),
            Ended::Stopped => "it was stopped".into(),
            Ended::Gone => "the process ended".into(),
            Ended::Failed(why) => format!("it failed: {why}").into(),
        }
    }

    /// As [`EventKind::Capture`] has it: `time`, `events`, `cost`, `stopped`, `gone`, `failed: …`.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Ended::Time => "time".to_owned(),
            Ended::Events => "events".to_owned(),
            Ended::Cost => "cost".to_owned(),
            Ended::Stopped => "stopped".to_owned(),
            Ended::Gone => "gone".to_owned(),
            Ended::Failed(why) => format!("failed: {why}"),
        }
    }
}

/// One of the rows that matter most, in a form that all kinds share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureRow {
    /// The process, where the row belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its name; empty where the row belongs to none.
    pub comm: String,
    /// A file, directory, call, end of a stack, ….
    pub what: String,
    /// The device, where the row belongs to one.
    pub device: String,
    /// How often.
    pub count: f64,
    /// Seconds or bytes, by the kind; 0 where it has neither.
    pub amount: f64,
}

/// A table with named columns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureTable {
    /// What the rows are.
    pub name: String,
    /// The columns.
    pub columns: Vec<CaptureColumn>,
    /// The rows, the most important first; each has as many cells as there are columns.
    pub rows: Vec<Vec<Cell>>,
    /// Rows that were left out because there were too many.
    pub left_out: u64,
}

/// A column of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureColumn {
    /// Its name.
    pub name: Cow<'static, str>,
    /// The unit of its numbers: `s`, `B`, `1` for counts, and empty for texts.
    pub unit: Cow<'static, str>,
    /// What it means.
    pub help: Cow<'static, str>,
}

/// One cell. What was not measured is [`Cell::Unknown`], never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number in the unit of its column.
    Number(f64),
    /// A text.
    Text(String),
    /// Not known.
    Unknown(()),
}

impl Cell {
    /// A number; one that is not finite is not known.
    #[must_use]
    pub fn number(value: f64) -> Cell {
        if value.is_finite() { Cell::Number(value) } else { Cell::Unknown(()) }
    }

    /// A text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }
}

/// A distribution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureHistogram {
    /// What is counted.
    pub name: String,
    /// The unit of the bounds: `s` or `B`.
    pub unit: String,
    /// Upper bound of each bucket, rising, and how many fell into it. The last bucket has no bound.
    pub buckets: Vec<(Option<f64>, u64)>,
}

impl Captured {
    /// When it ended, in nanoseconds since 1970 UTC.
    #[must_use]
    pub fn until_real(&self) -> i64 {
        self.since_real.saturating_add((self.seconds * 1e9) as i64)
    }

    /// The event that an archive has of it; its time is the end. `file` is where the whole of it is.
    #[must_use]
    pub fn event(&self, file: Option<String>) -> Event {
        Event {
            real: self.until_real(),
            mono: Some(self.since_mono.saturating_add((self.seconds * 1e9) as i64)),
            place: None,
            kind: EventKind::Capture {
                capture: self.kind.clone(),
                why: self.why.clone(),
                seconds: self.seconds,
                events: self.events,
                lost: self.lost,
                ended: self.ended.id(),
                cost_ns: self.cost_ns,
                file,
                tops: self.tops.iter().take(TOPS_MAX).cloned().collect(),
            },
        }
    }

    /// Share of one CPU that it took.
    #[must_use]
    pub fn cost_share(&self) -> Option<f64> {
        let cost = self.cost_ns? as f64 * 1e-9;
        (self.seconds > 0.0).then(|| cost / self.seconds)
    }
}
