//! Processes that wait for each other, and nothing of which moves.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::{Series, SeriesSet, Span};

use super::{ROUNDED, STUCK, WAITS, is_unread, of_holder, split};
use crate::locks::NEED_S;
use crate::signal::Signal;
use crate::view::{High, View};

/// Samples without any movement, three in succession: in each of them four looks found no thread that had run.
const STILL_SAMPLES: usize = 3;

/// Processes of which nothing moves any more: all of their threads wait for each other, and nobody else can end that.
#[derive(Debug)]
pub struct Knot<'a> {
    /// Those that others of them wait for.
    pub(super) core: Vec<u32>,
    /// How many threads stood still, and since when.
    pub high: High,
    /// The waits.
    pub rows: Vec<&'a str>,
}

/// Looks for them at the end of what was seen.
#[must_use]
pub fn knot<'a>(view: &View<'a>) -> Option<Knot<'a>> {
    let set: &'a SeriesSet = view.set;
    let times: BTreeSet<i64> =
        set.each(WAITS).flat_map(|(_, series)| series.samples(view.window)).map(|(t, ..)| t).collect();
    let recent: Vec<i64> = times.into_iter().rev().take(STILL_SAMPLES).collect();
    let mut ends: BTreeMap<u32, Option<BTreeSet<u32>>> = BTreeMap::new();
    for (row, series) in set.each(WAITS) {
        let Some((pid, what)) = split(row).filter(|(_, what)| !is_unread(what)) else { continue };
        let at = |series: &Series, t: &i64| series.last(Span { since: *t, until: t.saturating_add(1) });
        let seen: Vec<(&i64, f64)> = recent.iter().filter_map(|t| Some((t, at(series, t)?))).collect();
        if seen.is_empty() {
            continue;
        }
        let stuck = set.get(STUCK, row);
        let is_still = seen.len() == STILL_SAMPLES
            && seen.iter().all(|(t, threads)| {
                stuck.and_then(|stuck| at(stuck, t)).is_some_and(|stuck| stuck >= threads - ROUNDED)
            });
        let other = set.get("wait.pid", row).and_then(|pid| pid.last(view.window)).filter(|pid| *pid >= 1.0);
        let ends = ends.entry(pid).or_insert_with(|| Some(BTreeSet::new()));
        match (what.split(':').next(), other, &mut *ends) {
            // What waits for threads of its own process moves if one of these does.
            (Some("futex"), ..) => {}
            (Some("mutex"), ..) if is_still => {}
            (_, Some(other), Some(ends)) if is_still => _ = ends.insert(other as u32),
            _ => *ends = None,
        }
    }
    let mut still: BTreeMap<u32, BTreeSet<u32>> =
        ends.into_iter().filter_map(|(pid, ends)| Some((pid, ends?))).collect();
    // Whoever waits for somebody that may move may move itself.
    loop {
        let known: BTreeSet<u32> = still.keys().copied().collect();
        still.retain(|_, ends| !ends.is_empty() && ends.is_subset(&known));
        if still.len() == known.len() {
            break;
        }
    }
    // Whoever nobody waits for is not on a circle, but hangs on one.
    let mut core = still.clone();
    loop {
        let waited_for: BTreeSet<u32> = core.values().flatten().copied().collect();
        let many = core.len();
        core.retain(|pid, _| waited_for.contains(pid));
        if core.len() == many {
            break;
        }
    }
    let is_in = |row: &str| split(row).is_some_and(|(pid, _)| still.contains_key(&pid));
    let rows: Vec<&'a str> = set.each(STUCK).map(|(row, _)| row).filter(|row| is_in(row)).collect();
    let stuck = Signal::sum(rows.iter().filter_map(|row| set.get(STUCK, row)), view.window)?;
    let high = view.high_signal(&stuck, 1.0, NEED_S, None)?;
    Some(Knot { core: core.into_keys().collect(), high, rows })
}

impl Knot<'_> {
    /// One of them, by its id and its name.
    #[must_use]
    pub fn first(&self, view: &View<'_>) -> (Option<u32>, Option<String>) {
        let pid = self.core.first().copied();
        let is_first = |row: &&&str| {
            view.set.get("wait.pid", row).and_then(|series| series.last(Span::ALL)) == pid.map(f64::from)
        };
        let row = self.rows.iter().find(is_first);
        let comm = row.and_then(|row| view.set.text("wait.comm", row)?.last());
        (pid, comm.map(str::to_owned))
    }

    /// Who waits for whom.
    #[must_use]
    pub fn words(&self, view: &View<'_>) -> String {
        let (pid, comm) = self.first(view);
        let Some(pid) = pid else { return String::new() };
        let name = comm.unwrap_or_else(|| "process".to_owned());
        let walk = of_holder(view, pid, None, self.high.run.span());
        format!(
            "nothing moves any more in {name} ({pid}): {}",
            walk.map(|walk| walk.words()).unwrap_or_default()
        )
    }
}
