//! From a range of time to a report.

use std::collections::BTreeSet;

use mitra_model::report::{
    GapEntry, Incident, Moment, RecorderState, Report, SCHEMA, UnavailableSource, Window,
};
use mitra_model::time::SECOND;
use mitra_model::{EventKind, Metric, SeriesSet, Span, lookup};

use crate::changes::History;
use crate::condition::Condition;
use crate::engine::parts::{self, BASELINE_NS, Part};
use crate::engine::{areas, episodes, graph, ledger, verdict};
use crate::view::View;
use crate::{conditions, growth};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What to explain.
    pub window: Span,
    /// What to compare it with; `None` lets the quiet time beside each episode serve.
    pub baseline: Option<Span>,
    /// What was changed on the machine in the window and in the day before.
    pub history: History<'a>,
}

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
    let levels = ledger::METRICS.iter().chain(growth::LEVELS).copied();
    named(episodes::metrics().chain(levels).chain(areas::metrics()))
}

/// By what tasks are put together to processes, and processes to families.
pub(crate) const IDENTITY: &[&str] =
    &["task.tgid", "task.ppid", "task.comm", "task.kthread", "task.cgroup", "exited.parent_comm"];

/// The metrics of the second look, at one episode.
#[must_use]
pub fn detail_metrics() -> Vec<&'static Metric> {
    let needs = conditions().iter().flat_map(Condition::needs);
    let settings = graph::feeds().iter().map(|feed| feed.setting.metric);
    named(
        needs
            .chain(settings)
            .chain(IDENTITY.iter().copied())
            .chain(ledger::TASK_METRICS.iter().copied())
            .chain(ledger::METRICS.iter().copied()),
    )
}

fn named(names: impl Iterator<Item = &'static str>) -> Vec<&'static Metric> {
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().filter_map(lookup).collect()
}

/// What was loaded for a second look.
struct Loader<'d> {
    detail: &'d mut dyn FnMut(Span) -> Result<SeriesSet, String>,
    sets: Vec<SeriesSet>,
    /// Quiet times that were loaded by themselves, each once for all parts that are compared with it.
    alone: Vec<(Span, usize)>,
    troubles: Vec<(String, String)>,
}

impl Loader<'_> {
    fn load(&mut self, span: Span) -> Option<usize> {
        match (self.detail)(span) {
            Ok(set) => {
                self.sets.push(set);
                Some(self.sets.len() - 1)
            }
            Err(why) => {
                self.troubles.push(("archive".to_owned(), why));
                None
            }
        }
    }

    fn load_alone(&mut self, span: Span) -> Option<usize> {
        if let Some((_, i)) = self.alone.iter().find(|(s, _)| *s == span) {
            return Some(*i);
        }
        let i = self.load(span)?;
        self.alone.push((span, i));
        Some(i)
    }

    /// What is looked at and what it is compared with: one set where they are near each other.
    fn both(&mut self, window: Span, quiet: Option<Span>) -> Option<(usize, Option<Span>, Option<usize>)> {
        match quiet {
            Some(quiet) if is_far(quiet, window) => {
                let set = self.load(window)?;
                // What cannot be loaded is nothing to compare with.
                let alone = self.load_alone(quiet);
                Some((set, alone.map(|_| quiet), alone))
            }
            Some(quiet) => {
                let since = window.since.min(quiet.since);
                let set = self.load(Span { since, until: window.until.max(quiet.until) })?;
                Some((set, Some(quiet), None))
            }
            None => Some((self.load(window)?, None, None)),
        }
    }
}

/// A part of an episode with what was loaded for it.
struct Focus {
    part: Part,
    window: Span,
    /// Whether the next part of the same episode is looked at too.
    goes_on: bool,
    baseline: Option<Span>,
    set: usize,
    /// The set of the baseline, where that is another one.
    base: Option<usize>,
}

/// Explains a window. `scan` holds [`scan_metrics`] of the window; `detail` loads [`detail_metrics`] of any span.
pub fn explain(
    request: &Request<'_>,
    scan: &SeriesSet,
    detail: &mut dyn FnMut(Span) -> Result<SeriesSet, String>,
) -> Report {
    let known = scan.span().unwrap_or(request.window);
    let window = request.window.intersect(known).unwrap_or(request.window);
    let mut loader = Loader { detail, sets: Vec::new(), alone: Vec::new(), troubles: Vec::new() };
    let margin = BASELINE_NS + LEAD_NS;
    let whole = if window.until - window.since <= WHOLE_NS {
        loader.load(Span { since: window.since - margin, until: window.until.saturating_add(1) })
    } else {
        None
    };
    let focuses = focuses(request, scan, window, whole, &mut loader);
    let Loader { sets, troubles, .. } = loader;

    let mut found: Vec<(Part, Incident)> = Vec::new();
    let mut baseline_used = request.baseline;
    for focus in &focuses {
        let set = &sets[focus.set];
        let mut view = View::new(set, focus.window, focus.base.map_or(set, |i| &sets[i]), focus.baseline);
        view.around = whole.map_or(scan, |i| &sets[i]);
        view.history = request.history;
        let mut observed = verdict::observe(&view);
        // What lasts to the end of a part of which the next one is not looked at ends with the episode.
        if view.window.until < window.until && !focus.goes_on {
            observed.end_at(focus.part.episode.until);
        }
        if scan.span().is_some_and(|s| s.until > view.window.until + LEAD_NS) {
            observed.end_at(view.window.until);
        }
        let incidents = observed.incidents(&view, window.since);
        if !incidents.is_empty() && baseline_used.is_none() {
            baseline_used = focus.baseline;
        }
        found.extend(incidents.into_iter().map(|incident| (focus.part, incident)));
    }
    let mut incidents = parts::join(found);
    incidents.sort_by_key(|i| i.onset);
    // What comes in bursts is found again in each of them.
    incidents.dedup_by(|later, first| {
        let (a, b) = (&later.root_cause, &first.root_cause);
        later.onset == first.onset && a.condition == b.condition && a.culprit == b.culprit
    });
    incidents.iter_mut().for_each(Incident::round_times);

    let details: Vec<(&SeriesSet, Span)> = match whole {
        Some(i) => vec![(&sets[i], window)],
        None => focuses.iter().map(|f| (&sets[f.set], f.window)).collect(),
    };
    let services = areas::healthy_services(scan, window, &incidents);
    Report {
        schema: SCHEMA,
        host: scan.host.hostname.clone(),
        source: if scan.source.is_empty() { "archive".to_owned() } else { scan.source.clone() },
        window: as_window(window),
        baseline: baseline_used.map(as_window),
        ledger: ledger::ledger(scan, window, &details),
        incidents,
        healthy: areas::healthy(scan, window).into_iter().chain(services).collect(),
        recorder: recorder_state(scan, window, troubles),
        ..Report::default()
    }
}

/// The parts of the episodes that are looked at, with what was loaded for each.
fn focuses(
    request: &Request<'_>,
    scan: &SeriesSet,
    window: Span,
    whole: Option<usize>,
    loader: &mut Loader<'_>,
) -> Vec<Focus> {
    let base = request.baseline.and_then(|span| loader.load(span));
    let everything = whole.map_or(scan, |i| &loader.sets[i]);
    // An incident may have begun in the window's first seconds: the time before it is the better baseline.
    let before = whole
        .and_then(|_| everything.span())
        .map_or(window, |s| Span { since: s.since.min(window.since), ..window });
    let found = episodes::find(everything, before);
    let is_trouble =
        |span: Span| everything.events.iter().any(|e| span.contains(e.real) && episodes::is_trouble(&e.kind));
    let chosen = parts::worst(parts::cut(&found), is_trouble, scan, window);
    let (all, end) = (found.all(), window.until.saturating_add(1));
    let with_lead = |span: Span| Span {
        since: (span.since - LEAD_NS).max(before.since),
        until: (span.until + LEAD_NS).min(end),
    };
    let mut focuses = Vec::new();
    for part in &chosen {
        let view_window = with_lead(part.span);
        let goes_on = chosen.iter().any(|next| part.goes_on_in(next));
        let focus = Focus { part: *part, window: view_window, goes_on, baseline: None, set: 0, base: None };
        if let Some(baseline) = request.baseline {
            let Some(set) = whole.or_else(|| loader.load(view_window)) else { continue };
            focuses.push(Focus { baseline: Some(baseline), set, base, ..focus });
            continue;
        }
        let step_s = episodes::step_s(scan, view_window);
        let loud = if part.is_steady { &all } else { &found.new };
        // All parts of an episode are compared with what was before the whole of it.
        let quiet = parts::quiet(loud, with_lead(part.episode), before, step_s);
        let loaded = whole.map(|set| (set, quiet, None)).or_else(|| loader.both(view_window, quiet));
        let Some((set, baseline, base)) = loaded else { continue };
        focuses.push(Focus { baseline, set, base, ..focus });
    }
    focuses
}

/// Whether quiet time lies so far from a stretch that it is loaded by itself.
fn is_far(quiet: Span, window: Span) -> bool {
    (window.since - quiet.until).max(quiet.since - window.until) > BASELINE_NS
}

pub(crate) fn as_window(span: Span) -> Window {
    Window { since: Moment(span.since), until: Moment(span.until) }
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
