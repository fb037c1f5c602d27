//! The rows of waits: which threads of a process wait for whom.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::{SeriesSet, Span};

use super::{UNREAD, WAITS, text_of};

/// What threads of a process wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Other<'a> {
    Process(u32),
    /// Children of one name: who starts a child for each request waits for many.
    Children(&'a str),
    /// A mutex, by its address.
    Mutex(u32, &'a str),
    Address(&'a str),
    Unknown,
}

/// Threads that wait for the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait<'a> {
    pub(super) row: &'a str,
    pub(super) kind: &'a str,
    pub(super) other: Other<'a>,
    pub(super) threads: f64,
}

pub(super) fn split(row: &str) -> Option<(u32, &str)> {
    let (pid, what) = row.split_once('>')?;
    Some((pid.parse().ok()?, what))
}

/// What some processes wait for in a span, on average: what most wait for first. Empty where they were not looked at.
pub(super) fn waits_of<'a>(set: &'a SeriesSet, pids: &[u32], span: Span) -> Vec<Wait<'a>> {
    rows_of(set, pids, span, Of::Threads)
}

/// What has rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Threads,
    Connections,
}

pub(super) fn is_unread(what: &str) -> bool {
    what.starts_with(UNREAD)
}

pub(super) fn rows_of<'a>(set: &'a SeriesSet, pids: &[u32], span: Span, of: Of) -> Vec<Wait<'a>> {
    let mut all: BTreeMap<(&str, Other<'_>), Wait<'a>> = BTreeMap::new();
    for pid in pids {
        let own = set.each(WAITS).filter_map(|(row, series)| {
            let (waiter, what) = split(row)?;
            (waiter == *pid && is_unread(what) == (of == Of::Connections)).then_some((row, what, series))
        });
        let own: Vec<_> = own.collect();
        // A row is there only where somebody waits for it, and the process was looked at where it has any.
        let times: BTreeSet<i64> =
            own.iter().flat_map(|(_, _, series)| series.samples(span)).map(|(t, ..)| t).collect();
        for (row, what, series) in own {
            let threads: f64 = series.samples(span).map(|(_, _, threads)| threads).sum();
            let (kind, rest) = what.split_once(':').unwrap_or((what, ""));
            let other = match set.get("wait.pid", row).and_then(|pid| pid.last(span)) {
                Some(other) if other >= 1.0 => Other::Process(other as u32),
                _ if kind == "mutex" => Other::Mutex(*pid, rest),
                _ if rest.is_empty() => Other::Unknown,
                _ => Other::Address(rest),
            };
            let wait = Wait { row, kind, other, threads: 0.0 };
            all.entry((kind, other)).or_insert(wait).threads += threads / times.len().max(1) as f64;
        }
    }
    let mut all: Vec<Wait<'a>> = all.into_values().filter(|wait| wait.threads > 0.0).collect();
    all.sort_by(|a, b| b.threads.total_cmp(&a.threads));
    all
}

/// The same, with children of one name as one.
pub(super) fn waits_together<'a>(set: &'a SeriesSet, pids: &[u32], span: Span) -> Vec<Wait<'a>> {
    let mut all: Vec<Wait<'a>> = Vec::new();
    for mut wait in waits_of(set, pids, span) {
        if let (Other::Process(_), Some(comm)) = (wait.other, child_of(set, wait.row, span)) {
            wait.other = Other::Children(comm);
        }
        match all.iter_mut().find(|known| (known.kind, known.other) == (wait.kind, wait.other)) {
            Some(known) => known.threads += wait.threads,
            None => all.push(wait),
        }
    }
    all.sort_by(|a, b| b.threads.total_cmp(&a.threads));
    all
}

/// The name of the child that a row is about.
pub(super) fn child_of<'a>(set: &'a SeriesSet, row: &str, span: Span) -> Option<&'a str> {
    let (_, what) = split(row)?;
    what.starts_with("child:").then(|| text_of(set, "wait.comm", row, span))?
}

/// What one thread waits for, by the last look of a span.
pub(super) fn waits_of_thread<'a>(set: &'a SeriesSet, pid: u32, tid: u32, span: Span) -> Vec<Wait<'a>> {
    let has_thread = |wait: &Wait<'_>| {
        let tids = text_of(set, "wait.tids", wait.row, span).unwrap_or_default();
        tids.split(',').any(|named| named.parse() == Ok(tid))
    };
    let mut own: Vec<Wait<'a>> = waits_of(set, &[pid], span).into_iter().filter(has_thread).collect();
    // For any of several, or in two rows of different samples: nothing is certain.
    own.truncate(if own.len() == 1 { 1 } else { 0 });
    own.iter_mut().for_each(|wait| wait.threads = 1.0);
    own
}

impl Other<'_> {
    pub(super) fn process(self) -> Option<u32> {
        match self {
            Other::Process(pid) => Some(pid),
            _ => None,
        }
    }
}

pub(super) fn sum<'w>(waits: impl Iterator<Item = &'w Wait<'w>>) -> f64 {
    waits.map(|wait| wait.threads).fold(0.0, |a, b| a + b)
}
