//! Filesystems that filled up: with bytes, or with files.

use mitra_model::{SeriesSet, Span};

use crate::process::{self, Top};
use crate::signal::{Run, Signal};
use crate::view::View;

/// What a filesystem can run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Space for data.
    Bytes,
    /// Room for files and directories.
    Inodes,
}

impl Room {
    /// Both.
    pub const ALL: [Room; 2] = [Room::Bytes, Room::Inodes];

    /// The metrics of what there is and of what is left.
    #[must_use]
    pub fn metrics(self) -> (&'static str, &'static str) {
        match self {
            Room::Bytes => ("fs.total_bytes", "fs.avail_bytes"),
            Room::Inodes => ("fs.inodes", "fs.inodes_free"),
        }
    }

    /// From how much on there is none left. Allocators keep a little that no write gets, a thousandth at most and some
    /// megabytes; what is left beyond that can still be used.
    fn nothing(self, total: f64) -> f64 {
        match self {
            Room::Bytes => (total / 1000.0).clamp(65_536.0, 64e6),
            Room::Inodes => (total / 1000.0).min(16.0),
        }
    }
}

/// What is left has to have been this many times what counts as nothing, or a filesystem is made to be full.
const HAD_ROOM: f64 = 4.0;

/// A filesystem that ran out of room.
#[derive(Debug, Clone)]
pub struct Full<'a> {
    /// Where it is mounted.
    pub mount: &'a str,
    /// When there was none left.
    pub run: Run,
    /// What there is.
    pub total: f64,
    /// What was left before, at most.
    pub had: f64,
    /// When it had that for the last time.
    pub had_at: i64,
}

/// The filesystems that ran out of room inside a span; those that were full when it began are as they were.
#[must_use]
pub fn filled(set: &SeriesSet, span: Span, room: Room) -> Vec<Full<'_>> {
    let (total_metric, left_metric) = room.metrics();
    let mut found = Vec::new();
    for (mount, series) in set.each(left_metric) {
        let Some(total) = set.get(total_metric, mount).and_then(|s| s.last(Span::ALL)).filter(|t| *t > 0.0)
        else {
            continue;
        };
        let left = Signal::of(series, span);
        let nothing = room.nothing(total);
        let none_left = left.clone().map(|left| if left <= nothing { 1.0 } else { 0.0 });
        let Some(run) = none_left.run(1.0, 0.0) else { continue };
        let until = left.t.partition_point(|t| *t <= run.onset);
        let earlier = left.t.iter().zip(&left.v).take(until);
        let Some((had_at, had)) = earlier.max_by(|a, b| a.1.total_cmp(b.1)) else { continue };
        if *had >= HAD_ROOM * nothing {
            found.push(Full { mount, run, total, had: *had, had_at: *had_at });
        }
    }
    found
}

/// Who wrote most since a filesystem began to fill, if that is most of what filled it. What was cancelled before it was
/// written took no room; on a filesystem in memory all of what is written counts.
#[must_use]
pub fn filler<'a>(view: &View<'a>, full: &Full<'_>, share: f64) -> Option<Top<'a>> {
    let span = Span { since: full.had_at, until: full.run.onset.saturating_add(2_000_000_000) };
    let is_memory = view.set.text("fs.type", full.mount).and_then(|t| t.last()) == Some("tmpfs");
    let metric = if is_memory { "task.wchar" } else { "task.write_bytes" };
    let tops = process::ranking(view.processes(), span, |p| {
        p.total(view.set, metric, span) - p.total(view.set, "task.cancelled_write_bytes", span)
    });
    tops.into_iter().next().filter(|top| top.total >= share * full.had)
}
