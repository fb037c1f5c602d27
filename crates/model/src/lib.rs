//! What Mitra measures and what it says about it: the metric table, time, frames, series and reports.
//!
//! Nothing in this crate reads or writes anything. Every other crate depends on it and it depends on none of
//! them, so a sar file and a live archive end in the same [`SeriesSet`] and the diagnosis cannot tell which
//! it was.

pub mod capture;
pub mod change;
pub mod compare;
pub mod deceives;
pub mod event;
pub mod frame;
pub mod kstack;
pub mod metric;
pub mod metrics;
pub mod report;
pub mod series;
pub mod strings;
pub mod suspicion;
pub mod time;
pub mod timetable;

pub use capture::{CaptureRow, Captured};
pub use change::{Change, ChangeKind};
pub use deceives::deceives;
pub use event::{Event, EventKind, Place};
pub use frame::{Frame, HostInfo, Key, NA, Table};
pub use kstack::{WaitKind, wait_kind};
pub use metric::{Entity, Kernel, Kind, Metric, Unit, column, columns, lookup};
pub use series::{Axis, Series, SeriesSet, TextSeries};
pub use strings::{StrId, Strings};
pub use suspicion::Suspicion;
pub use time::{Era, Span, Stamp};
pub use timetable::Timetable;

/// The manual page that stands at the top of a source file: its leading comment, without the marks. What has a file of its
/// own, as a condition or a kind of capture, is described there and nowhere else.
#[must_use]
pub fn manual(source: &str) -> String {
    let mut page = String::new();
    for line in source.lines() {
        let Some(text) = line.strip_prefix("//!") else { break };
        page.push_str(text.strip_prefix(' ').unwrap_or(text));
        page.push('\n');
    }
    page
}
