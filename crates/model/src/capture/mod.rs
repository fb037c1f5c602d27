//! Captures, schema `mitra.capture/1`.
//!
//! A rule or a person arms a capture for a bounded time. It has a header with reason and cost, tables, histograms and
//! stacks. [`Captured`] is stored and printed; [`Raw`] is the same before its stacks are symbolized.

mod frames;
pub mod heap;
mod leaves;
mod profile;
mod tree;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventKind};

pub use frames::{CodeAddress, InterpreterLayout, StackCopy, UnwindRule, UnwoundStack};
pub use profile::{Image, KERNEL_MARK, Profile, Raw, RawStack, Stack};
pub use tree::{FoldedCapture, StackNode, StackTree};

/// The value of [`Captured::schema`].
pub const SCHEMA: &str = "mitra.capture/1";
/// The maximum number of rows in an event.
pub const TOPS_MAX: usize = 20;

/// The result of a capture.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Captured {
    /// [`SCHEMA`].
    pub schema: String,
    /// The kind: `offcpu`, `faults`, ….
    pub kind: String,
    /// Who or which rule asked for it.
    pub why: String,
    /// The machine.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The start, in nanoseconds since 1970 UTC.
    pub since_real: i64,
    /// The start, on the monotonic clock.
    pub since_mono: i64,
    /// How long it was armed.
    pub seconds: f64,
    /// The filters: `pid`, `comm`, `cgroup`, `d-only`, ….
    pub filter: BTreeMap<String, String>,
    /// Events counted.
    pub events: u64,
    /// Events, or parts of them, that were dropped for lack of space.
    pub lost: u64,
    /// How it ended.
    pub ended: Ended,
    /// Its CPU time, kernel and user; `None` if the kernel does not measure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// The part of the BPF programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_kernel_ns: Option<u64>,
    /// Runs of the BPF programs, events that were filtered out included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u64>,
    /// CPU time of loading, before the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_setup_ns: Option<u64>,
    /// CPU time of symbolization, after the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_naming_ns: Option<u64>,
    /// Caveats for the reader.
    pub notes: Vec<String>,
    /// The top rows, largest first, at most [`TOPS_MAX`].
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
    /// The requested time has passed.
    #[default]
    Time,
    /// The requested number of events was reached.
    Events,
    /// The CPU budget was used up.
    Cost,
    /// It was stopped.
    Stopped,
    /// The watched process ended.
    Gone,
    /// An error.
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

    /// The reverse of [`Ended::id`]; what it does not know is an error in those words.
    #[must_use]
    pub fn of(id: &str) -> Self {
        match id {
            "time" => Ended::Time,
            "events" => Ended::Events,
            "cost" => Ended::Cost,
            "stopped" => Ended::Stopped,
            "gone" => Ended::Gone,
            other => Ended::Failed(other.strip_prefix("failed: ").unwrap_or(other).to_owned()),
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

/// One of the top rows, in a form that all kinds share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureRow {
    /// The process, if the row belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its name; empty without a process.
    pub comm: String,
    /// A file, directory, call, end of a stack, ….
    pub what: String,
    /// The device, if the row belongs to one.
    pub device: String,
    /// The number of events.
    pub count: f64,
    /// Seconds or bytes, depending on the kind; 0 if it has neither.
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
    /// The number of rows that were left out.
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
    /// Its meaning.
    pub help: Cow<'static, str>,
}

/// One cell. A value that was not measured is [`Cell::Unknown`], never zero.
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
    /// A number; [`Cell::Unknown`] if it is not finite.
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
    /// Upper bound and count of each bucket, ascending. The last bucket has no bound.
    pub buckets: Vec<(Option<f64>, u64)>,
}

impl Captured {
    /// The end, in nanoseconds since 1970 UTC.
    #[must_use]
    pub fn until_real(&self) -> i64 {
        self.since_real.saturating_add((self.seconds * 1e9) as i64)
    }

    /// Its event in an archive, at the time of its end. `file` has the whole capture.
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

    /// Its CPU usage as a share of one CPU.
    #[must_use]
    pub fn cost_share(&self) -> Option<f64> {
        let cost = self.cost_ns? as f64 * 1e-9;
        (self.seconds > 0.0).then(|| cost / self.seconds)
    }
}
