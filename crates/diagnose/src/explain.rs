//! From a range of time to a report.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::report::{
    GapEntry, Incident, Link, Moment, RecorderState, Report, Root, RuledOut, SCHEMA, UnavailableSource,
    Unknown, Window,
};
use mitra_model::time::SECOND;
use mitra_model::{EventKind, Metric, SeriesSet, Span, lookup};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::view::View;
use crate::{areas, conditions, episodes, graph, ledger};

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
const LEAD_NS: i64 = 5 * SECOND;
/// Ranges up to this are read whole, with their tasks, so that the ledger can name who waited.
const WHOLE_NS: i64 = 900 * SECOND;

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
        let baseline = request.baseline.or_else(|| quiet(&episodes, view_window, before));
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
        let found = incidents_of(&view, focus, window, scan);
        if !found.is_empty() && baseline_used.is_none() {
            baseline_used = focus.baseline;
        }
        incidents.extend(found);
    }
    incidents.sort_by_key(|i| i.onset);

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
        unknown: Vec::new(),
        advice: Vec::new(),
        comparison: None,
        files: Vec::new(),
    }
}

fn as_window(span: Span) -> Window {
    Window { since: Moment(span.since), until: Moment(span.until) }
}

/// The episodes that touch the window, those with most lost time first, as many as may be looked at.
fn worst(episodes: &[Span], scan: &SeriesSet, window: Span) -> Vec<Span> {
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

/// Quiet time to compare with: right before, or else the nearest free stretch before, or else after.
fn quiet(episodes: &[Span], window: Span, known: Span) -> Option<Span> {
    const LEAST_NS: i64 = 3 * SECOND;
    let mut until = window.since;
    for episode in episodes.iter().rev().filter(|e| e.since < window.since) {
        // The triggers' own edges are no quiet time.
        let free_from = episode.until + 2 * SECOND;
        if until - free_from >= LEAST_NS {
            return Some(Span { since: free_from.max(until - BASELINE_NS), until });
        }
        until = until.min(episode.since - 2 * SECOND);
        if window.since - until > BASELINE_NS {
            break;
        }
    }
    let since = known.since.max(until - BASELINE_NS);
    if until - since >= LEAST_NS && episodes.iter().all(|e| e.until <= since || e.since >= until) {
        return Some(Span { since, until });
    }
    let since = window.until + 2 * SECOND;
    let next = episodes.iter().map(|e| e.since).find(|s| *s > window.until).unwrap_or(known.until);
    let until = known.until.min(next).min(since + BASELINE_NS);
    (until - since >= LEAST_NS).then_some(Span { since, until })
}

/// An active condition with its number in the list.
struct Active {
    condition: &'static Condition,
    finding: Finding,
}

fn incidents_of(view: &View<'_>, focus: &Focus, window: Span, scan: &SeriesSet) -> Vec<Incident> {
    let mut active: BTreeMap<&'static str, Active> = BTreeMap::new();
    let mut inactive: Vec<(&'static Condition, String)> = Vec::new();
    let mut unknown: Vec<(&'static Condition, String)> = Vec::new();
    for condition in conditions() {
        match (condition.observe)(view) {
            Observation::Active(finding) => {
                active.insert(condition.id, Active { condition, finding: *finding });
            }
            Observation::Inactive(because) => inactive.push((condition, because)),
            Observation::CannotTell(needs) => unknown.push((condition, needs)),
        }
    }
    for one in active.values_mut() {
        // What lasts to the end of a long episode's first part ends with the episode.
        if one.finding.end.is_none() && view.window.until < window.until {
            one.finding.end = Some(focus.episode.until);
        }
        if one.finding.end.is_none() && scan.span().is_some_and(|s| s.until > view.window.until + LEAD_NS) {
            one.finding.end = Some(view.window.until);
        }
    }
    let step_s = view.system("sys.cpu_idle").map_or(1.0, |s| s.step_s());
    let links = Links::new(&active, step_s);
    let mut roots: Vec<&Active> = active
        .values()
        .filter(|a| a.condition.role == Role::Root && !links.caused_by_a_root(a.condition.id, &active))
        // What was over before the window began is another window's incident.
        .filter(|a| a.finding.end.is_none_or(|end| end > window.since))
        .collect();
    roots.sort_by_key(|a| a.finding.onset);

    let mut groups: Vec<Vec<&Active>> = Vec::new();
    for root in roots {
        let joins = groups.last().is_some_and(|group| {
            group.iter().any(|other| other.finding.end.is_none_or(|end| end > root.finding.onset))
        });
        match groups.last_mut() {
            Some(group) if joins => group.push(root),
            _ => groups.push(vec![root]),
        }
    }
    groups.iter().map(|group| incident(view, group, &active, &links, &inactive, &unknown)).collect()
}

/// The edges between active conditions that the timing allows.
struct Links {
    next: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Links {
    fn new(active: &BTreeMap<&'static str, Active>, step_s: f64) -> Links {
        // Three samples: counters of a node are folded once a second, and an onset is known to a sample.
        let tolerance = (3.0 * step_s.max(1.0) * SECOND as f64) as i64;
        let mut next: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
        for edge in graph::edges() {
            let (Some(cause), Some(effect)) = (active.get(edge.cause), active.get(edge.effect)) else {
                continue;
            };
            let overlap = cause.finding.end.is_none_or(|end| effect.finding.onset <= end + 10 * SECOND);
            if overlap && (edge.any_order || effect.finding.onset >= cause.finding.onset - tolerance) {
                next.entry(edge.cause).or_default().push(edge.effect);
            }
        }
        Links { next }
    }

    /// Everything that follows from a condition.
    fn effects(&self, id: &str) -> BTreeSet<&'static str> {
        let mut seen = BTreeSet::new();
        let mut stack: Vec<&'static str> = self.next.get(id).into_iter().flatten().copied().collect();
        while let Some(id) = stack.pop() {
            if seen.insert(id) {
                stack.extend(self.next.get(id).into_iter().flatten().copied());
            }
        }
        seen
    }

    fn caused_by_a_root(&self, id: &str, active: &BTreeMap<&'static str, Active>) -> bool {
        active
            .values()
            .filter(|a| a.condition.role == Role::Root && a.condition.id != id)
            .any(|a| self.effects(a.condition.id).contains(id))
    }
}

fn incident(
    view: &View<'_>,
    group: &[&Active],
    active: &BTreeMap<&'static str, Active>,
    links: &Links,
    inactive: &[(&'static Condition, String)],
    unknown: &[(&'static Condition, String)],
) -> Incident {
    let onset = group.iter().map(|a| a.finding.onset).min().unwrap_or(view.window.since);
    let end = group.iter().map(|a| a.finding.end).reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten();
    let span = Span { since: onset + 1, until: end.unwrap_or(view.window.until).saturating_add(1) };
    let lost = lost_above_baseline(view, span);
    let share = |finding: &Finding| -> Option<f64> {
        let (loss, lost) = (finding.loss_s?, lost?);
        (lost > 0.0).then(|| (loss / lost).clamp(0.0, 1.0))
    };
    let mut ranked: Vec<&Active> = group.to_vec();
    // A root that explains half of the lost time outranks one about whose loss nothing is known.
    let weight = |a: &Active| a.finding.confidence * (0.2 + share(&a.finding).unwrap_or(0.3));
    ranked.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let as_root = |a: &Active| Root {
        condition: a.condition.id.to_owned(),
        confidence: (a.finding.confidence.clamp(0.0, 1.0) * 100.0).round() / 100.0,
        share: share(&a.finding).map(|s| (s * 100.0).round() / 100.0),
        culprit: a.finding.culprit.clone(),
        statement: a.finding.statement.clone(),
        remarks: a.finding.remarks.clone(),
    };
    let first = ranked[0];
    let effects = links.effects(first.condition.id);
    let mut chain_ids: Vec<&Active> = active
        .values()
        .filter(|a| a.condition.id == first.condition.id || effects.contains(a.condition.id))
        .collect();
    let position = |id: &str| conditions().iter().position(|c| c.id == id).unwrap_or(usize::MAX);
    chain_ids.sort_by_key(|a| {
        (
            a.condition.id != first.condition.id,
            a.condition.role as u8,
            a.finding.onset,
            position(a.condition.id),
        )
    });
    let chain = chain_ids
        .iter()
        .map(|a| Link {
            condition: a.condition.id.to_owned(),
            onset: Moment(a.finding.onset),
            lag_s: ((a.finding.onset - first.finding.onset) as f64 / SECOND as f64 * 1000.0).round() / 1000.0,
            evidence: a.finding.evidence.clone(),
        })
        .collect();
    let symptoms = active
        .values()
        .filter(|a| a.condition.role == Role::Symptom)
        .filter(|a| a.finding.onset < span.until && a.finding.end.is_none_or(|end| end > onset))
        .map(|a| a.condition.id.to_owned())
        .collect();
    // Only what could have caused what is seen is worth ruling out.
    let seen: BTreeSet<&str> = effects.iter().copied().collect();
    let could: BTreeSet<&str> =
        graph::edges().iter().filter(|e| seen.contains(e.effect)).map(|e| e.cause).collect();
    let relevant = |c: &Condition| c.role == Role::Root && (could.contains(c.id) || seen.is_empty());
    let mut ruled_out: Vec<RuledOut> = inactive
        .iter()
        .filter(|(c, _)| relevant(c))
        .map(|(c, because)| RuledOut { condition: c.id.to_owned(), because: because.clone() })
        .collect();
    for a in active.values().filter(|a| a.condition.role == Role::Root && effects.contains(a.condition.id)) {
        ruled_out.push(RuledOut {
            condition: a.condition.id.to_owned(),
            because: format!("it follows from {}", first.condition.id),
        });
    }
    Incident {
        onset: Moment(onset),
        end: end.map(Moment),
        lost_task_seconds: lost.map(|l| (l * 1000.0).round() / 1000.0),
        symptoms,
        root_cause: as_root(first),
        other_roots: ranked[1..].iter().map(|a| as_root(a)).collect(),
        chain,
        ruled_out,
        unknown: unknown
            .iter()
            .filter(|(c, _)| c.role == Role::Root)
            .map(|(c, needs)| Unknown { condition: c.id.to_owned(), needs: needs.clone() })
            .collect(),
        remedies: ranked.iter().flat_map(|a| (a.condition.remedies)(&a.finding)).collect(),
        next: ranked.iter().flat_map(|a| (a.condition.next)(&a.finding)).collect(),
    }
}

/// What the incident cost beyond what the baseline loses in the same time.
fn lost_above_baseline(view: &View<'_>, span: Span) -> Option<f64> {
    let lost = ledger::lost(view.set, span)?;
    let before =
        view.baseline.and_then(|b| ledger::lost(view.base_set, b)).and_then(|b| b.mean()).unwrap_or(0.0);
    let seconds: f64 = lost.dt.iter().sum();
    Some((lost.total() - before * seconds).max(0.0))
}

fn recorder_state(set: &SeriesSet, window: Span, troubles: Vec<(String, String)>) -> RecorderState {
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
