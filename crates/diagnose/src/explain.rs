//! From a range of time to a report.

use std::collections::BTreeSet;

use mitra_model::report::{
    GapEntry, Incident, Moment, RecorderState, Report, SCHEMA, UnavailableSource, Window,
};
use mitra_model::time::SECOND;
use mitra_model::{EventKind, Metric, SeriesSet, Span, lookup};

use crate::view::View;
use crate::{areas, conditions, episodes, ledger, verdict};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// What to explain.
    pub window: Span,
    /// What to compare it with; `None` lets the quiet time beside each episode serve.
    pub baseline: Option<Span>,
}

/// Episodes that are looked at, the worst first. A range with more has its rest in the ledger only.
const EPISODES_MAX: usize = 24;
/// How much of a long episode single tasks are read for.
const FOCUS_NS: i64 = 600 * SECOND;
/// Quiet time that is compared with.
const BASELINE_NS: i64 = 60 * SECOND;
/// Causes build up before they hurt, so the look begins a little before the first trigger.
pub(crate) const LEAD_NS: i64 = 5 * SECOND;
/// Ranges up to this are read whole, with their tasks, so that the ledger can name who waited.
const WHOLE_NS: i64 = 900 * SECOND;

/// By what a task is known to have done something in a time: of the others the second look needs nothing.
pub const AWAKE: &[&str] = &["task.cpu_time", "task.run_delay", "task.kstack"];
/// Who leads the process of a task, and has its name and its memory.
pub const LEADER: &str = "task.tgid";

/// The metrics of the first look, over the whole window.
#[must_use]
pub fn scan_metrics() -> Vec<&'static Metric> {
    named(episodes::metrics().chain(ledger::METRICS.iter().copied()).chain(areas::metrics()))
}

/// The metrics of the second look, at one episode.
#[must_use]
pub fn detail_metrics() -> Vec<&'static Metric> {
    const IDENTITY: &[&str] =
        &["task.tgid", "task.ppid", "task.comm", "task.kthread", "task.cgroup", "exited.parent_comm"];
    let needs = conditions().iter().flat_map(|c| c.needs.iter().copied());
    named(
        needs
            .chain(IDENTITY.iter().copied())
            .chain(ledger::TASK_METRICS.iter().copied())
            .chain(ledger::METRICS.iter().copied()),
    )
}

fn named(names: impl Iterator<Item = &'static str>) -> Vec<&'static Metric> {
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().filter_map(lookup).collect()
}

/// A part of an episode with what was loaded for it.
struct Focus {
    window: Span,
    episode: Span,
    baseline: Option<Span>,
    set: usize,
}

/// Explains a window. `scan` holds [`scan_metrics`] of the window; `detail` loads [`detail_metrics`] of any span.
pub fn explain(
    request: &Request,
    scan: &SeriesSet,
    detail: &mut dyn FnMut(Span) -> Result<SeriesSet, String>,
) -> Report {
    let known = scan.span().unwrap_or(request.window);
    let window = request.window.intersect(known).unwrap_or(request.window);
    let mut troubles: Vec<(String, String)> = Vec::new();
    let mut sets: Vec<SeriesSet> = Vec::new();
    let mut load = |span: Span, sets: &mut Vec<SeriesSet>| -> Option<usize> {
        match detail(span) {
            Ok(set) => {
                sets.push(set);
                Some(sets.len() - 1)
            }
            Err(why) => {
                troubles.push(("archive".to_owned(), why));
                None
            }
        }
    };
    let margin = BASELINE_NS + LEAD_NS;
    let whole = if window.until - window.since <= WHOLE_NS {
        load(Span { since: window.since - margin, until: window.until.saturating_add(1) }, &mut sets)
    } else {
        None
    };
    let base = request.baseline.and_then(|span| load(span, &mut sets));

    // An incident may have begun in the window's first seconds: the time before it is the better baseline.
    let before = whole
        .and_then(|i| sets[i].span())
        .map_or(window, |s| Span { since: s.since.min(window.since), ..window });
    let episodes = match whole {
        Some(i) => episodes::find(&sets[i], before),
        None => episodes::find(scan, window),
    };
    let mut focuses: Vec<Focus> = Vec::new();
    for episode in worst(&episodes, scan, window) {
        let part = focus(episode, scan);
        let since = (part.since - LEAD_NS).max(before.since);
        let view_window = Span { since, until: (part.until + LEAD_NS).min(window.until.saturating_add(1)) };
        let step_s = episodes::step_s(scan, view_window);
        let baseline = request.baseline.or_else(|| quiet(&episodes, view_window, before, step_s));
        let wanted = baseline.map_or(view_window, |b| Span {
            since: view_window.since.min(b.since),
            until: view_window.until.max(b.until),
        });
        let wanted = if request.baseline.is_some() { view_window } else { wanted };
        let Some(set) = whole.or_else(|| load(wanted, &mut sets)) else { continue };
        focuses.push(Focus { window: view_window, episode, baseline, set });
    }

    let mut incidents: Vec<Incident> = Vec::new();
    let mut baseline_used = request.baseline;
    for focus in &focuses {
        let set = &sets[focus.set];
        let base_set = base.map_or(set, |i| &sets[i]);
        let view = View::new(set, focus.window, base_set, focus.baseline);
        let mut observed = verdict::observe(&view);
        // What lasts to the end of a long episode's first part ends with the episode.
        if view.window.until < window.until {
            observed.end_at(focus.episode.until);
        }
        if scan.span().is_some_and(|s| s.until > view.window.until + LEAD_NS) {
            observed.end_at(view.window.until);
        }
        let found = observed.incidents(&view, window.since);
        if !found.is_empty() && baseline_used.is_none() {
            baseline_used = focus.baseline;
        }
        incidents.extend(found);
    }
    incidents.sort_by_key(|i| i.onset);
    // What comes in bursts is found again in each of them.
    incidents.dedup_by(|later, first| {
        let (a, b) = (&later.root_cause, &first.root_cause);
        later.onset == first.onset && a.condition == b.condition && a.culprit == b.culprit
    });

    let details: Vec<(&SeriesSet, Span)> = match whole {
        Some(i) => vec![(&sets[i], window)],
        None => focuses.iter().map(|f| (&sets[f.set], f.window)).collect(),
    };
    Report {
        schema: SCHEMA,
        host: scan.host.hostname.clone(),
        source: if scan.source.is_empty() { "archive".to_owned() } else { scan.source.clone() },
        window: as_window(window),
        baseline: baseline_used.map(as_window),
        ledger: ledger::ledger(scan, window, &details),
        incidents,
        healthy: areas::healthy(scan, window),
        recorder: recorder_state(scan, window, troubles),
        ..Report::default()
    }
}

pub(crate) fn as_window(span: Span) -> Window {
    Window { since: Moment(span.since), until: Moment(span.until) }
}

/// The episodes that touch the window, those with most lost time first, as many as may be looked at.
pub(crate) fn worst(episodes: &[Span], scan: &SeriesSet, window: Span) -> Vec<Span> {
    let mut list: Vec<Span> = episodes.iter().copied().filter(|e| e.intersect(window).is_some()).collect();
    if list.len() > EPISODES_MAX {
        let lost = ledger::lost(scan, window);
        let weight = |span: &Span| lost.as_ref().map_or(span.seconds(), |l| l.within(*span).total());
        list.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        list.truncate(EPISODES_MAX);
    }
    list.sort_by_key(|span| span.since);
    list
}

/// The part of an episode that is looked at closely: all of it, or of a long one the stretch that begins where most
/// time was being lost.
fn focus(episode: Span, scan: &SeriesSet) -> Span {
    if episode.until - episode.since <= FOCUS_NS {
        return episode;
    }
    let first = Span { since: episode.since, until: episode.since + FOCUS_NS };
    let Some(lost) = ledger::lost(scan, episode) else { return first };
    // Where the mean of the following stretch is largest, unless the beginning is about as bad.
    let at = |since: i64| lost.within(Span { since, until: since + FOCUS_NS }).total();
    let steps = (episode.until - episode.since) / FOCUS_NS;
    let best = (0..=steps).map(|i| episode.since + i * FOCUS_NS).max_by(|a, b| at(*a).total_cmp(&at(*b)));
    match best {
        Some(since) if at(since) > 1.5 * at(episode.since) => {
            Span { since, until: (since + FOCUS_NS).min(episode.until) }
        }
        _ => first,
    }
}

/// Quiet time to compare with: right before, or else the nearest free stretch before, or else after. Of samples that are
/// `step_s` apart it takes three at least, and ten are wanted.
pub(crate) fn quiet(episodes: &[Span], window: Span, known: Span, step_s: f64) -> Option<Span> {
    let steps = |n: f64| (n * step_s * SECOND as f64) as i64;
    let (least_ns, baseline_ns) = (steps(3.0).max(3 * SECOND), steps(10.0).max(BASELINE_NS));
    let edge_ns = steps(1.0).max(2 * SECOND);
    let mut until = window.since;
    for episode in episodes.iter().rev().filter(|e| e.since < window.since) {
        // The triggers' own edges are no quiet time.
        let free_from = episode.until + edge_ns;
        if until - free_from >= least_ns {
            return Some(Span { since: free_from.max(until - baseline_ns), until });
        }
        until = until.min(episode.since - edge_ns);
        if window.since - until > baseline_ns {
            break;
        }
    }
    let since = known.since.max(until - baseline_ns);
    if until - since >= least_ns && episodes.iter().all(|e| e.until <= since || e.since >= until) {
        return Some(Span { since, until });
    }
    let since = window.until + edge_ns;
    let next = episodes.iter().map(|e| e.since).find(|s| *s > window.until).unwrap_or(known.until);
    let until = known.until.min(next).min(since + baseline_ns);
    (until - since >= least_ns).then_some(Span { since, until })
}

pub(crate) fn recorder_state(
    set: &SeriesSet,
    window: Span,
    troubles: Vec<(String, String)>,
) -> RecorderState {
    let gaps = set
        .gaps
        .iter()
        .filter(|g| g.span.intersect(window).is_some())
        .map(|g| GapEntry { since: Moment(g.span.since), until: Moment(g.span.until), why: g.why.clone() })
        .collect();
    let mut unavailable: Vec<UnavailableSource> = Vec::new();
    let events = set.events.iter().filter_map(|e| match &e.kind {
        EventKind::Unavailable { source, why } => Some((source.clone(), why.clone())),
        _ => None,
    });
    for (source, why) in set.unavailable.iter().cloned().chain(events).chain(troubles) {
        let entry = UnavailableSource { source, why };
        if !unavailable.contains(&entry) {
            unavailable.push(entry);
        }
    }
    RecorderState { gaps, unavailable }
}
