//! What armed probes saw inside a view.

use mitra_model::capture::CaptureRow;
use mitra_model::time::SECOND;
use mitra_model::{Event, EventKind, Span};

use crate::view::View;

/// A capture is armed on a suspicion, so it may end a little after the trouble.
const AFTER_NS: i64 = 60 * SECOND;

/// A row of a capture.
pub struct Row<'a> {
    /// The capture.
    pub event: &'a Event,
    /// Its kind.
    pub kind: &'a str,
    /// For how many seconds it was armed.
    pub seconds: f64,
    /// The row.
    pub row: &'a CaptureRow,
}

/// The rows of the captures of some kinds that belong to the window.
#[must_use]
pub fn rows<'a>(view: &'a View<'_>, kinds: &[&str]) -> Vec<Row<'a>> {
    let until = view.window.until.saturating_add(AFTER_NS);
    let span = Span { since: view.window.since, until };
    let mut list = Vec::new();
    for event in view.set.events.iter().filter(|e| span.contains(e.real)) {
        if let EventKind::Capture { capture, seconds, tops, .. } = &event.kind
            && kinds.contains(&capture.as_str())
        {
            list.extend(tops.iter().map(|row| Row { event, kind: capture, seconds: *seconds, row }));
        }
    }
    list
}

/// Those of one process.
#[must_use]
pub fn of_process<'a>(view: &'a View<'_>, kinds: &[&str], pid: u32, comm: &str) -> Vec<Row<'a>> {
    let mut list = rows(view, kinds);
    list.retain(|r| match r.row.pid {
        Some(of) => of == pid,
        None => r.row.comm == comm,
    });
    list
}
