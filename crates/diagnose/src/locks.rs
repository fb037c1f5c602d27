//! Locks of files that processes wait for (`/proc/locks`), mutexes that threads wait for, and who holds them.

use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span};

use crate::process::Process;
use crate::view::{High, View};
use crate::waits::{self, Walk};
use crate::words;

/// Processes that wait for a lock of a file.
pub const LOCKS: &str = "lock.waiters";
/// Tasks that wait for a lock of the kernel.
pub const OF_KERNEL: &str = "tasks.d_lock";
/// What the functions of this module read.
pub const NEEDS: &[&str] =
    &[LOCKS, "lock.pid", "lock.kind", "lock.waiter_pids", "wait.pid", "wait.comm", "wait.file"];
/// A lock that is held for as long as it takes to work on a file is free again by the next sample.
pub const NEED_S: f64 = 2.0;
/// Who holds a lock may wait for another one. A chain is not longer.
const CHAIN_MAX: usize = 8;

/// The queue of a lock, followed to its end.
#[derive(Debug)]
pub struct Queue<'a> {
    /// How many waited for the first of the locks.
    pub high: High,
    /// Whether the last holder waits for one of the locks before.
    pub is_circle: bool,
    /// Locks, and who holds each: processes, or threads of mutexes.
    chain: Vec<(&'a str, Option<u32>)>,
    /// Whom the last holder waits for, and not for a lock.
    beyond: Option<Walk<'a>>,
}

/// That of the lock that most wait for.
#[must_use]
pub fn longest<'a>(view: &View<'a>) -> Option<Queue<'a>> {
    let high = |row: &str| view.high(LOCKS, row, 1.0, NEED_S);
    let queues = view.each(LOCKS).filter_map(|(row, _)| Some((row, high(row)?)));
    let (mut row, high) = queues.max_by(|(_, a), (_, b)| a.peak.total_cmp(&b.peak))?;
    let until = high.run.end;
    let mut chain: Vec<(&str, Option<u32>)> = Vec::new();
    let is_circle = loop {
        let holder = holder_of(view.set, row, until);
        let is_known = chain.iter().any(|(known, _)| *known == row);
        if is_known || chain.len() >= CHAIN_MAX {
            break is_known;
        }
        chain.push((row, holder));
        let waits_for = |file: &str| holder.is_some_and(|pid| waiters(view.set, file, until).contains(&pid));
        match view.each(LOCKS).map(|(file, _)| file).find(|file| waits_for(file)) {
            Some(next) => row = next,
            None => break false,
        }
    };
    let holder =
        chain.last().filter(|_| !is_circle).and_then(|(row, holder)| Some((mutex_of(row), (*holder)?)));
    let span = high.run.span();
    let beyond = holder.and_then(|(process, holder)| match process {
        Some(pid) => waits::of_holder(view, pid, Some(holder), span),
        None => waits::of_holder(view, holder, None, span),
    });
    Some(Queue { high, is_circle, chain, beyond })
}

impl<'a> Queue<'a> {
    /// Whether who holds the last of them is known.
    #[must_use]
    pub fn has_holder(&self) -> bool {
        self.chain.last().is_some_and(|(_, holder)| holder.is_some())
    }

    /// The process that holds the lock which all others wait for in the end, or that this one waits for: its name and id.
    #[must_use]
    pub fn culprit(&self, view: &View<'_>) -> (Option<String>, Option<u32>) {
        if let Some((pid, comm)) = self.beyond.as_ref().and_then(Walk::culprit) {
            return (comm.map(str::to_owned).or_else(|| self::comm(view, Some(pid))), Some(pid));
        }
        let Some((row, holder)) = self.chain.last() else { return (None, None) };
        let pid = mutex_of(row).or(*holder);
        let seen = || seen(view.set, row, self.high.run.end)?.comm.map(str::to_owned);
        (comm(view, pid).or_else(seen), pid)
    }

    /// The rows of the locks, the one that most wait for first.
    pub fn rows(&self) -> impl Iterator<Item = &'a str> {
        self.chain.iter().map(|(row, _)| *row)
    }

    /// Who waits for whom.
    #[must_use]
    pub fn words(&self, view: &View<'_>) -> String {
        let Some((first, holder)) = self.chain.first() else { return String::new() };
        let who = if is_mutex(first) { "thread" } else { "process" };
        let many = match (self.high.peak > 1.0, who) {
            (true, "thread") => format!("up to {} threads", words::count(self.high.peak)),
            (true, _) => format!("up to {} processes", words::count(self.high.peak)),
            (false, who) => format!("a {who}"),
        };
        let holder = named(view, first, *holder);
        let lock = lock_in_words(view, first, self.high.run.end);
        let mut text = format!("{many} waited for {lock}, which {holder} holds");
        for (row, holder) in self.chain.iter().skip(1) {
            let lock = lock_in_words(view, row, self.high.run.end);
            text.push_str(&format!(" while it waits for {lock}, which {} holds", named(view, row, *holder)));
        }
        text
    }

    /// Whom the holder waits for, and whether that is for something else than a lock.
    #[must_use]
    pub fn beyond(&self) -> Option<(String, bool)> {
        let walk = self.beyond.as_ref()?;
        Some((walk.words(), walk.culprit().is_some() && !walk.passes_a_lock()))
    }

    /// Whether a process that waits for the first of them, or whose threads do, answers requests of others.
    #[must_use]
    pub fn keeps_a_service(&self, view: &View<'_>) -> bool {
        let Some(first) = self.rows().next() else { return false };
        let waiters = waiters(view.set, first, self.high.run.end);
        let serves = |pid: u32| {
            let servers = |row| crate::services::Servers::of(view, row);
            view.services().iter().any(|service| servers(service.row).processes.iter().any(|p| p.pid == pid))
        };
        mutex_of(first).into_iter().chain(waiters).any(serves)
    }

    /// How many of those that wait for the first of them were seen at something else. Who waits from its birth on may have queued
    /// on purpose: `flock FILE COMMAND`, a build beside another one. Where no tasks were recorded all count.
    #[must_use]
    pub fn kept_from_work(&self, view: &View<'_>) -> usize {
        let Some(first) = self.rows().next() else { return 0 };
        let elsewhere_s = |process: &Process<'_>| {
            let of = |set| elsewhere_s(set, process, first);
            of(view.set).max(of(view.base_set))
        };
        let worked = |pid: u32| match view.process(pid) {
            _ if is_mutex(first) => true,
            Some(process) => elsewhere_s(process) >= NEED_S,
            // Of tasks that did nothing at all there are no rows.
            None => !view.has("task.tgid"),
        };
        waiters(view.set, first, self.high.run.end).into_iter().filter(|pid| worked(*pid)).count()
    }

    /// Who waits for the first of the locks.
    #[must_use]
    pub fn victims(&self, view: &View<'_>) -> Option<String> {
        let first = self.rows().next()?;
        let all = waiters(view.set, first, self.high.run.end);
        let mut names: Vec<(String, usize)> = Vec::new();
        for name in all.into_iter().map(|pid| named(view, first, Some(pid))) {
            match names.iter_mut().find(|(known, _)| *known == name) {
                Some((_, threads)) => *threads += 1,
                None => names.push((name, 1)),
            }
        }
        let who = |(name, threads): (String, usize)| match threads {
            1 => name,
            threads => format!("{threads} threads of {name}"),
        };
        let is_one = matches!(names[..], [(_, 1)]);
        let names: Vec<String> = names.into_iter().map(who).collect();
        let are = if is_one { "waits and is a victim" } else { "wait and are victims" };
        (!names.is_empty()).then(|| format!("{} {are}", names.join(", ")))
    }
}

/// How long a process was there without waiting for a lock.
fn elsewhere_s(set: &SeriesSet, process: &Process<'_>, lock: &str) -> f64 {
    let is_held = |t: i64| {
        let at = Span { since: t, until: t.saturating_add(1) };
        set.get(LOCKS, lock).and_then(|series| series.last(at)).is_some_and(|waiting| waiting >= 1.0)
    };
    let waits = |t: i64| is_held(t) && waiters(set, lock, t).contains(&process.pid);
    let leader = process.series(set, "task.tgid").next();
    let samples = leader.into_iter().flat_map(|series| series.samples(Span::ALL));
    samples.filter(|(t, dt, _)| dt.is_finite() && !waits(*t)).map(|(_, dt, _)| dt).sum()
}

/// The process of a mutex: `mutex:4242:7f10a0`.
fn mutex_of(row: &str) -> Option<u32> {
    row.strip_prefix("mutex:")?.split_once(':')?.0.parse().ok()
}

/// Whether a row is of a mutex inside of a process.
#[must_use]
pub fn is_mutex(row: &str) -> bool {
    mutex_of(row).is_some()
}

fn lock_in_words(view: &View<'_>, row: &str, until: i64) -> String {
    if let Some(pid) = mutex_of(row) {
        let address = row.rsplit(':').next().unwrap_or_default();
        return format!("the mutex at {address} of {}", process_in_words(view, Some(pid)));
    }
    let kind = view.set.text("lock.kind", row).and_then(|t| t.at(until)).unwrap_or("lock");
    match seen(view.set, row, until) {
        Some(Seen { file: Some(path), .. }) => format!("the {kind} lock of {path}"),
        _ => format!("the {kind} lock of file {row}"),
    }
}

fn comm(view: &View<'_>, pid: Option<u32>) -> Option<String> {
    let process = pid.and_then(|pid| view.process(pid));
    process.map(|p| p.comm.to_owned())
}

fn named(view: &View<'_>, row: &str, holder: Option<u32>) -> String {
    // A process that did nothing at all has no rows.
    let seen = || seen(view.set, row, view.window.until).filter(|seen| seen.holder == holder)?.comm;
    match (mutex_of(row), holder) {
        (Some(_), Some(tid)) => format!("thread {tid}"),
        (None, Some(pid)) if comm(view, holder).is_none() && seen().is_some() => {
            format!("{} ({pid})", seen().unwrap_or_default())
        }
        _ => process_in_words(view, holder),
    }
}

fn process_in_words(view: &View<'_>, pid: Option<u32>) -> String {
    match (comm(view, pid), pid) {
        (Some(name), Some(pid)) => format!("{name} ({pid})"),
        (None, Some(pid)) => format!("process {pid}"),
        _ => "a process that has it open".to_owned(),
    }
}

/// What was seen of a lock when those were looked at that wait for it.
struct Seen<'a> {
    holder: Option<u32>,
    comm: Option<&'a str>,
    file: Option<&'a str>,
}

/// Looks come each second.
const SEEN_NS: i64 = 5 * SECOND;

fn seen<'a>(set: &'a SeriesSet, lock: &str, until: i64) -> Option<Seen<'a>> {
    // Threads wait for a mutex, and these have ids of their own.
    if is_mutex(lock) {
        return None;
    }
    let span = Span { since: until.saturating_sub(SEEN_NS), until: until.saturating_add(1) };
    waiters(set, lock, until).into_iter().find_map(|pid| {
        let begin = format!("{pid}>lock");
        let is_meant =
            |row: &str| row.strip_prefix(&begin).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
        let waits = set
            .each(waits::WAITS)
            .filter(|(row, series)| is_meant(row) && series.max(span).is_some_and(|threads| threads > 0.0));
        // Of one that waits for several it is not known which is meant.
        let mut rows = waits.map(|(row, _)| row);
        let (row, None) = (rows.next()?, rows.next()) else { return None };
        let text = |metric: &str| waits::text_of(set, metric, row, span);
        let holder = set.get("wait.pid", row).and_then(|pid| pid.last(span)).filter(|pid| *pid >= 1.0);
        Some(Seen { holder: holder.map(|pid| pid as u32), comm: text("wait.comm"), file: text("wait.file") })
    })
}

/// The process that the kernel names took the lock, and may have left it to its children since.
fn holder_of(set: &SeriesSet, file: &str, until: i64) -> Option<u32> {
    if let Some(holder) = seen(set, file, until).and_then(|seen| seen.holder) {
        return Some(holder);
    }
    let span = Span { since: i64::MIN, until: until.saturating_add(1) };
    set.get("lock.pid", file)?.last(span).filter(|pid| *pid >= 1.0).map(|pid| pid as u32)
}

fn waiters(set: &SeriesSet, file: &str, until: i64) -> Vec<u32> {
    let text = set.text("lock.waiter_pids", file).and_then(|t| t.at(until)).unwrap_or_default();
    text.split(',').filter_map(|pid| pid.parse().ok()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use mitra_model::{Axis, Series, TextSeries, lookup, time::SECOND};

    use super::*;

    fn axis(n: i64) -> Arc<Axis> {
        Arc::new(Axis {
            t: (1..=n).map(|i| i * SECOND).collect(),
            dt: vec![1.0; n as usize],
            places: Vec::new(),
        })
    }

    pub(crate) fn series(set: &mut SeriesSet, metric: &str, row: &str, values: Vec<f64>) {
        let axis = axis(values.len() as i64);
        set.insert(lookup(metric).unwrap(), row.into(), Series { axis, start: 0, values: values.into() });
    }

    pub(crate) fn text(set: &mut SeriesSet, metric: &str, row: &str, text: &str) {
        let changes = vec![(SECOND, Some(text.into()))];
        set.insert_text(lookup(metric).unwrap(), row.into(), TextSeries { changes, place: None });
    }

    /// A file whose lock is held by one, and waited for by others, from the third second on.
    pub(crate) fn queue(set: &mut SeriesSet, file: &str, holder: f64, waiters: &str) {
        let count = waiters.split(',').count() as f64;
        let from_third =
            |value: f64| (1..=8).map(|i| if i > 2 { value } else { f64::NAN }).collect::<Vec<_>>();
        series(set, "lock.waiters", file, from_third(count));
        series(set, "lock.pid", file, from_third(holder));
        text(set, "lock.kind", file, "flock");
        text(set, "lock.waiter_pids", file, waiters);
    }
}
