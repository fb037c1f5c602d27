//! The machine at one moment of a recording, with the minutes before it: what the screens of `mitra live` and
//! `mitra replay` show. Only what the moment needs is read.

mod desk;
mod detail;
mod machine;
mod memory;
mod panels;
mod samples;
mod table;
mod timeline;
mod value;

use anyhow::Result;
use mitra_archive::Reader;
use mitra_model::series::Gap;
use mitra_model::time::SECOND;
use mitra_model::{Metric, Span, lookup};

pub use desk::Desk;
pub use detail::Detail;
pub use machine::{Level, MachineLine};
pub use panels::{Column, Panel, Unit};
pub use samples::At;
pub use table::{Row, Table};
pub use timeline::Timeline;
pub use value::{bars, mean};

/// The length of the small curves.
const HISTORY_NS: i64 = 300 * SECOND;
/// How far the view of one row looks to either side.
const AROUND_NS: i64 = 600 * SECOND;

/// What a screen wants to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub at: At,
    pub panel: Panel,
    /// The row that curves are wanted of.
    pub row: Option<String>,
    /// Whether these look to either side of the moment.
    pub is_near: bool,
}

#[derive(Debug, Clone)]
pub struct Moment {
    /// What was asked for.
    pub wanted: Wanted,
    /// Nanoseconds since 1970: that of the sample, or where none is the time that was asked for.
    pub at: i64,
    /// Whether a sample is there.
    pub is_sample: bool,
    /// Seconds that the sample covers; `NaN` if unknown.
    pub covers_s: f64,
    /// The gap that the moment lies in, or that ended with its sample.
    pub gap: Option<Gap>,
    /// From the first to just after the last sample that may be shown.
    pub recorded: Span,
    /// What the small curves cover.
    pub window: Span,
    pub host: String,
    /// Whether a recorder is at work.
    pub is_live: bool,
    pub machine: Vec<MachineLine>,
    pub table: Table,
    pub detail: Option<Detail>,
}

fn metrics(names: impl IntoIterator<Item = &'static str>) -> Vec<&'static Metric> {
    let mut found: Vec<&'static Metric> = Vec::new();
    for metric in names.into_iter().filter_map(lookup) {
        if !found.iter().any(|known| std::ptr::eq(*known, metric)) {
            found.push(metric);
        }
    }
    found
}

fn around(at: i64, recorded: Span) -> Span {
    let around = Span { since: at.saturating_sub(AROUND_NS), until: at.saturating_add(AROUND_NS) };
    around.intersect(recorded).unwrap_or(around)
}

/// Some minutes that end with the recording, or else lie around the moment: most of them before it.
fn window(at: i64, recorded: Span) -> Span {
    let length = HISTORY_NS.min(recorded.until.saturating_sub(recorded.since));
    let since =
        at.saturating_sub(length / 3 * 2).min(recorded.until.saturating_sub(length)).max(recorded.since);
    Span { since, until: since.saturating_add(length) }
}

/// Reads a moment inside of some limits; `None` while the archive has none.
pub fn read(reader: &Reader, limits: Span, wanted: &Wanted) -> Result<Option<Moment>> {
    let Some(recorded) = reader.span().and_then(|span| span.intersect(limits)) else { return Ok(None) };
    let place = samples::find(reader, recorded, wanted.at)?;
    let at = place.at;
    let window = window(at, recorded);
    let (machine, table) = match place.is_sample {
        true => {
            (machine::read(reader, wanted.panel, at, window)?, table::read(reader, wanted.panel, &place)?)
        }
        false => (Vec::new(), Table::empty(wanted.panel)),
    };
    let detail = match &wanted.row {
        Some(row) => detail::read(
            reader,
            wanted.panel,
            row,
            if wanted.is_near { around(at, recorded) } else { window },
        )?,
        None => None,
    };
    Ok(Some(Moment {
        wanted: wanted.clone(),
        at,
        is_sample: place.is_sample,
        covers_s: place.covers_s,
        gap: place.gap,
        recorded,
        window,
        host: reader.host().hostname.clone(),
        is_live: reader.is_live(),
        machine,
        table,
        detail,
    }))
}
