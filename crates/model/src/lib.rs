//! The metric table, time, frames, series, captures and reports. No I/O.
//!
//! Every other crate depends on this one, and it depends on none of them. A sar file and a recording end in the same
//! [`SeriesSet`], so that the diagnosis does not depend on the source.

pub mod capture;
pub mod cgroup_name;
pub mod change;
pub mod compare;
pub mod escape;
pub mod event;
pub mod experiment;
pub mod frame;
pub mod growth;
pub mod incident_id;
pub mod kstack;
pub mod latency;
pub mod limits;
pub mod metric;
pub mod metrics;
pub mod report;
pub mod scheduled_job;
pub mod series;
pub mod sessions;
pub mod strings;
pub mod suspicion;
pub mod time;
pub mod values;
pub mod wall_clock;
pub mod words;

pub use capture::{CaptureRow, Captured};
pub use change::{Change, ChangeKind};
pub use escape::must_escape;
pub use event::{Event, EventKind, SourceLine};
pub use frame::{Frame, HostInfo, Key, NA, Table};
pub use kstack::{WaitKind, wait_kind};
pub use latency::Latency;
pub use metric::{Entity, Kernel, Kind, Metric, Unit, column, columns, lookup};
pub use scheduled_job::ScheduledJob;
pub use series::{Axis, Series, SeriesSet, TextSeries};
pub use strings::{StrId, Strings};
pub use suspicion::Suspicion;
pub use time::{Era, Span, Stamp};
pub use values::Values;
pub use wall_clock::WallClock;

/// The manual page of a condition or a kind of capture: the leading comment of its source file, without the marks.
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
