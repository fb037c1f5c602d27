//! From a range of time to a report.

use std::collections::BTreeSet;

use mitra_model::report::{
    Finding, GapEntry, Incident, Moment, RecorderState, Report, SCHEMA, UnavailableSource, Window,
};
use mitra_model::time::SECOND;
use mitra_model::{EventKind, Metric, SeriesSet, Span, cgroup_name, lookup};

use crate::changes::History;
use crate::condition::Condition;
use crate::engine::looks::{Detail, Loader, Looks};
use crate::engine::parts::{self, BASELINE_NS, Cost};
use crate::engine::{ahead, areas, check, episodes, graph, ledger, verdict};
use crate::view::View;
use crate::{conditions, growth, loads};

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
    let levels = ledger::METRICS.iter().chain(growth::LEVELS).chain(ahead::SCANNED).copied();
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
            .chain(cgroup_name::METRICS)
            .chain(ledger::TASK_METRICS.iter().copied())
            .chain(ahead::SCANNED.iter().chain(ahead::DETAILED).copied())
            .chain(ledger::METRICS.iter().copied()),
    )
}

fn named(names: impl Iterator<Item = &'static str>) -> Vec<&'static Metric> {
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().filter_map(lookup).collect()
}

/// Explains a window. `scan` holds [`scan_metrics`] of the window; `detail` loads [`detail_metrics`] of any span.
pub fn explain(request: &Request<'_>, scan: &SeriesSet, detail: &Detail<'_>) -> Report {
    let known = scan.span().unwrap_or(request.window);
    let window = request.window.intersect(known).unwrap_or(request.window);
    let mut loader = Loader::new(detail);
    let margin = BASELINE_NS + LEAD_NS;
    let whole = if window.nanos() <= WHOLE_NS {
        loader
            .load(Span { since: window.since.saturating_sub(margin), until: window.until.saturating_add(1) })
    } else {
        None
    };
    let everything = whole.as_deref().unwrap_or(scan);
    // An incident may have begun in the window's first seconds: the time before it is the better baseline.
    let before = whole
        .as_ref()
        .and_then(|set| set.span())
        .map_or(window, |s| Span { since: s.since.min(window.since), ..window });
    let found = episodes::find(everything, before);
    let cost = Cost::of(everything, before);
    let is_trouble = |span: Span| episodes::has_trouble(everything, span);
    let (chosen, left_out) = parts::worst(parts::cut(&found), is_trouble, &cost, window);
    let looks = Looks {
        request,
        scan,
        whole: whole.as_ref(),
        everything,
        cost: &cost,
        window,
        before,
        all: found.all(),
        found: &found,
        chosen: &chosen,
    };
    let mut waited = ledger::Waited::default();
    if let Some(set) = &whole {
        waited.add(set, window);
    }
    let (mut incidents, mut harmless, mut baseline_used) = (Vec::new(), Vec::new(), request.baseline);
    for (part, seen) in looks.at_each(&mut loader) {
        incidents.extend(seen.incidents.into_iter().map(|incident| (part, incident)));
        ahead::add(&mut harmless, seen.findings);
        baseline_used = baseline_used.or(seen.baseline);
        waited.extend(seen.waited);
    }
    let mut incidents = parts::join(incidents);
    incidents.sort_by_key(|i| i.onset);
    // What comes in bursts is found again in each of them.
    incidents.dedup_by(|later, first| {
        let (a, b) = (&later.root_cause, &first.root_cause);
        later.onset == first.onset && a.condition == b.condition && a.culprit == b.culprit
    });
    incidents.iter_mut().for_each(Incident::round_times);
    // Of those that begin together the most costly one comes first.
    incidents.sort_by(|a, b| {
        let cost = |i: &Incident| i.cost_s().unwrap_or(0.0);
        a.onset.cmp(&b.onset).then_with(|| cost(b).total_cmp(&cost(a)))
    });
    harmless.extend(verdict::take_free(&mut incidents, window.until));
    let mut findings = findings(scan, window, whole.as_deref(), &mut loader, &incidents);
    harmless.retain(|finding| !verdict::is_told(&finding.condition, &finding.culprit, &incidents));
    ahead::add(&mut findings, harmless);

    let services = areas::healthy_services(scan, window, &incidents);
    let healthy = areas::healthy(scan, window, &incidents);
    check::checked(Report {
        schema: SCHEMA,
        host: scan.host.hostname.clone(),
        source: if scan.source.is_empty() { "archive".to_owned() } else { scan.source.clone() },
        window: as_window(window),
        baseline: baseline_used.map(as_window),
        ledger: ledger::ledger(scan, window, waited),
        repeats: parts::repeats(&incidents),
        findings,
        left_out,
        incidents,
        healthy: healthy.into_iter().chain(services).collect(),
        loads: loads::runs(scan, window),
        recorder: recorder_state(scan, window, loader.troubles),
        ..Report::default()
    })
}

/// What has not hurt anybody yet: in the last minutes of a window with their tasks, and in all of it.
fn findings(
    scan: &SeriesSet,
    window: Span,
    whole: Option<&SeriesSet>,
    loader: &mut Loader<'_>,
    incidents: &[Incident],
) -> Vec<Finding> {
    let last = ahead::last_minutes(window);
    let loaded = if whole.is_some() { None } else { loader.load(last) };
    let mut all = Vec::new();
    if let Some(set) = whole.or(loaded.as_deref()) {
        let view = View::new(set, last, set, None);
        all = ahead::findings(&view, incidents);
        all.extend(verdict::findings(&view, incidents));
    }
    ahead::add(&mut all, ahead::findings(&View::new(scan, window, scan, None), incidents));
    all
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
