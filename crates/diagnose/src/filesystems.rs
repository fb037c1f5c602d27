//! Filesystems that filled up: with bytes, or with files.

use std::collections::BTreeMap;

use mitra_model::time::SECOND;
use mitra_model::{Series, SeriesSet, Span};

use crate::deaths;
use crate::process::{self, Process, Top};
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
    /// The metrics of what there is and of what is left.
    pub const fn metrics(self) -> &'static [&'static str; 2] {
        match self {
            Room::Bytes => &["fs.total_bytes", "fs.avail_bytes"],
            Room::Inodes => &["fs.inodes", "fs.inodes_free"],
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
/// The same where it took longer than the look: a slow log on a large filesystem is near its end for minutes.
const HAD_ROOM_LONG: f64 = 2.0;
/// How far back it is asked whether it was full before, and how many samples at least.
const BEFORE_NS: i64 = 600 * SECOND;
const BEFORE_STEPS: f64 = 10.0;

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
    /// What was left until then.
    left: Signal,
}

impl Full<'_> {
    /// Since when it filled, as far as the tasks of that time are known, and what was left then.
    pub fn known(&self, view: &View<'_>) -> (i64, f64) {
        let since = view.set.span().map_or(self.had_at, |known| known.since.max(self.had_at));
        let at = self.left.t.partition_point(|t| *t < since);
        (since, self.left.v.get(at).copied().unwrap_or(self.had))
    }
}

/// The filesystems that ran out of room inside a span, each when it had none for longest.
pub fn filled(set: &SeriesSet, span: Span, room: Room) -> Vec<Full<'_>> {
    let mut longest: Vec<Full<'_>> = Vec::new();
    for full in each_time(set, span, room) {
        match longest.iter_mut().find(|known| known.mount == full.mount) {
            Some(known) if known.run.high_s > full.run.high_s => {}
            Some(known) => *known = full,
            None => longest.push(full),
        }
    }
    longest
}

/// Each time that a filesystem ran out of room inside a span, by all that is known of the time before it; those that were full
/// when it began are as they were, and so is one that was full for most of the last minutes.
fn each_time(set: &SeriesSet, span: Span, room: Room) -> Vec<Full<'_>> {
    let [total_metric, left_metric] = room.metrics();
    let mut found = Vec::new();
    for (mount, series) in set.each(left_metric) {
        let Some(total) = set.get(total_metric, mount).and_then(|s| s.last(Span::ALL)).filter(|t| *t > 0.0)
        else {
            continue;
        };
        let nothing = room.nothing(total);
        let inside = Signal::of(series, span);
        if inside.v.iter().all(|left| *left > nothing) {
            continue;
        }
        let since = span.since.saturating_sub(before_ns(&inside));
        let left = Signal::of(series, Span { since, until: span.until });
        let none_left = left.clone().map(|left| if left <= nothing { 1.0 } else { 0.0 });
        let runs = none_left.runs(1.0).into_iter().filter(|run| run.onset >= span.since);
        found.extend(runs.filter_map(|run| {
            let (had_at, had, left) = before(&left, &run, span.since, nothing)?;
            Some(Full { mount, run, total, had, had_at, left })
        }));
    }
    found
}

/// The stretches in which a filesystem ran out of room.
pub fn stretches(set: &SeriesSet, window: Span, room: Room) -> Vec<Span> {
    let full = each_time(set, window, room).into_iter();
    full.map(|full| Span { since: full.run.onset, until: full.run.end }).collect()
}

/// How far back is asked, of samples that are so far apart.
fn before_ns(left: &Signal) -> i64 {
    BEFORE_NS.max((BEFORE_STEPS * left.step_s() * SECOND as f64) as i64)
}

/// When there was most left before a filesystem was full, how much, and all that is known of what was left until then; `None`
/// where it was as good as full before. What is seen inside the look counts, or else the last minutes.
fn before(left: &Signal, run: &Run, since: i64, nothing: f64) -> Option<(i64, f64, Signal)> {
    let until = run.onset.saturating_add(1);
    let long_ago = run.onset.saturating_sub(before_ns(left));
    let most = |left: &Signal| {
        let (at, most) = left.t.iter().zip(&left.v).max_by(|a, b| a.1.total_cmp(b.1))?;
        Some((*at, *most))
    };
    let inside = left.within(Span { since, until });
    if let Some((at, had)) = most(&inside).filter(|(_, had)| *had >= HAD_ROOM * nothing) {
        return Some((at, had, inside));
    }
    let longer = left.within(Span { since: long_ago, until });
    let free = longer.v.iter().filter(|left| **left > nothing).count();
    let (at, had) = most(&longer).filter(|(_, had)| *had >= HAD_ROOM_LONG * nothing)?;
    (2 * free > longer.v.len()).then_some((at, had, longer))
}

/// Who wrote most since a filesystem began to fill, if that is most of what filled it. What was cancelled before it was
/// written took no room; on a filesystem in memory all of what is written counts.
pub fn filler<'a>(view: &View<'a>, full: &Full<'_>, share: f64) -> Option<Top<'a>> {
    let (since, left) = full.known(view);
    let span = Span { since, until: full.run.onset.saturating_add(2 * SECOND) };
    let is_memory = view.set.text("fs.type", full.mount).and_then(|t| t.last()) == Some("tmpfs");
    let metric = if is_memory { "task.wchar" } else { "task.write_bytes" };
    let tops = process::ranking(view.processes(), span, |p| {
        p.total(view.set, metric, span) - p.total(view.set, "task.cancelled_write_bytes", span)
    });
    tops.into_iter().next().filter(|top| top.total >= share * left)
}

/// A filesystem that lost room within the last half minute, and who wrote what took it.
pub struct Shrank<'v, 'a> {
    /// Where it is mounted.
    pub mount: &'a str,
    /// What it lost.
    pub bytes: f64,
    /// The program that wrote half of that or more, itself or by children that came and went.
    pub writer: Option<&'v Process<'a>>,
}

/// So long before a limit of free space is reached, what reached it is written.
const SHORTLY_NS: i64 = 30 * SECOND;

/// A hundredth of it: logs and files that grow take less in that time.
const SHRANK: f64 = 0.01;

/// The only filesystem that lost a part of its room before a moment: of several nobody knows which one is meant.
pub fn shrank<'v, 'a>(view: &'v View<'a>, until: i64) -> Option<Shrank<'v, 'a>> {
    let span = Span { since: until.saturating_sub(SHORTLY_NS), until: until.saturating_add(3 * SECOND) };
    let [total, left] = Room::Bytes.metrics();
    let lost = |(mount, series): (&'a str, &Series)| {
        let bytes = series.max(span)? - series.last(span)?;
        let total = view.set.get(total, mount)?.last(Span::ALL)?;
        (total > 0.0 && bytes >= SHRANK * total).then_some((mount, bytes))
    };
    let all: Vec<(&str, f64)> = view.each(left).filter_map(lost).collect();
    let [(mount, bytes)] = all[..] else { return None };
    Some(Shrank { mount, bytes, writer: writer(view, span, 0.5 * bytes) })
}

fn writer<'v, 'a>(view: &'v View<'a>, span: Span, least: f64) -> Option<&'v Process<'a>> {
    let wrote = |p: &Process<'_>| p.total(view.set, "task.write_bytes", span);
    let most = |all: &BTreeMap<u32, f64>| {
        let (pid, most) = all.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        view.process(*pid).filter(|process| *most >= least && !process.kthread)
    };
    let mut all: BTreeMap<u32, f64> = view.processes().iter().map(|p| (p.pid, wrote(p))).collect();
    if let Some(one) = most(&all) {
        return Some(one);
    }
    for (process, parent) in view.processes().iter().filter_map(|p| Some((p, p.ppid?))) {
        *all.entry(parent).or_default() += wrote(process);
    }
    for (row, series) in view.each("exited.write_bytes") {
        let Some((parent, _)) = deaths::family(row) else { continue };
        *all.entry(parent).or_default() += series.total(span).unwrap_or(0.0);
    }
    most(&all)
}

/// The device that is mounted there, by the name that its own numbers have.
pub fn device(view: &View<'_>, mount: &str) -> Option<String> {
    let device = view.set.text("fs.device", mount)?.last()?;
    device.strip_prefix("/dev/").map(str::to_owned)
}
