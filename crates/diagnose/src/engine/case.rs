//! The diagnosis of what other tools left behind.
//!
//! Files of one time line, with dates, are searched for episodes as a recording is. Otherwise all that was gathered is
//! the evidence of one case: each series is compared with the baseline where there is one, and with itself before; and
//! no order is claimed between what was sampled at times that do not compare.

use mitra_model::report::{FileRead, Moment, Report, SCHEMA, Window};
use mitra_model::{Era, SeriesSet, Span};

use crate::engine::ledger::{self, Waited};
use crate::engine::parts::{self, Part};
use crate::engine::verdict::{self, Observed};
use crate::engine::{areas, check, compare, episodes, explain};
use crate::view::View;

/// Explains what files hold. `good` is the baseline, where there is one.
#[must_use]
pub fn explain_files(set: &SeriesSet, good: Option<&SeriesSet>, files: Vec<FileRead>) -> Report {
    let known = known_span(set);
    let mut report = Report {
        schema: SCHEMA,
        host: set.host.hostname.clone(),
        source: "files".to_owned(),
        window: known.map(explain::as_window).unwrap_or_else(nowhere),
        baseline: good.and_then(known_span).map(explain::as_window),
        ledger: ledger::ledger(set, Span::ALL, Waited::of(set, Span::ALL)),
        recorder: explain::recorder_state(set, Span::ALL, Vec::new()),
        comparison: compare::comparison(set),
        files,
        ..Report::default()
    };
    if good.is_none() && is_one_time_line(set) {
        episodes_of(set, &mut report);
    }
    if report.incidents.is_empty() {
        let view = View::of_case(set, good);
        conclude(&view, &verdict::observe(&view), i64::MIN, &mut report);
    }
    report.incidents.sort_by_key(|i| i.onset);
    report.repeats = parts::repeats(&report.incidents);
    report.healthy = areas::healthy(set, Span::ALL, &report.incidents);
    check::checked(report)
}

fn conclude(view: &View<'_>, observed: &Observed, since: i64, report: &mut Report) {
    let found = observed.incidents(view, since);
    for finding in observed.findings(view) {
        if !report.findings.contains(&finding) {
            report.findings.push(finding);
        }
    }
    if found.is_empty() && report.incidents.is_empty() {
        (report.observed, report.unknown) = observed.without_root(view);
    } else {
        report.observed.clear();
        report.unknown.clear();
    }
    report.incidents.extend(found);
}

fn episodes_of(set: &SeriesSet, report: &mut Report) {
    let Some(known) = known_span(set) else { return };
    let found = episodes::find_in_files(set, known);
    let step_s = episodes::step_s(set, known);
    let all = found.iter().map(|episode| Part::whole(*episode)).collect();
    let (chosen, left_out) = parts::worst(all, |_| false, &parts::Cost::of(set, known), known);
    report.left_out = left_out;
    for Part { span: episode, .. } in chosen {
        let lead = explain::LEAD_NS;
        let window =
            Span { since: (episode.since - lead).max(known.since - lead), until: episode.until + lead };
        let baseline = parts::quiet(&found, window, known, step_s);
        let mut view = View::new(set, window, set, baseline);
        view.is_case = true;
        let mut observed = verdict::observe(&view);
        if known.until > window.until {
            observed.end_at(window.until);
        }
        conclude(&view, &observed, window.since, report);
    }
}

/// Whether everything that was sampled more than once has dates. What was observed once, settings and names, does not
/// matter here.
fn is_one_time_line(set: &SeriesSet) -> bool {
    let mut any = false;
    for (_, rows) in set.metrics() {
        for series in rows.values().filter(|s| s.axis.len() > 1) {
            if series.axis.t.first().map(|t| Era::of(*t)) != Some(Era::Dated) {
                return false;
            }
            any = true;
        }
    }
    any
}

/// The range of the calendar that the samples cover, or else that of the times of day.
fn known_span(set: &SeriesSet) -> Option<Span> {
    let range = |era: Era| -> Option<Span> {
        let series = set.metrics().flat_map(|(_, rows)| rows.values());
        let times = series.flat_map(|s| s.axis.t.iter().copied()).chain(set.events.iter().map(|e| e.real));
        times.filter(|t| Era::of(*t) == era).fold(None, |span: Option<Span>, t| {
            let (since, until) = span.map_or((t, t + 1), |s| (s.since.min(t), s.until.max(t + 1)));
            Some(Span { since, until })
        })
    };
    range(Era::Dated).or_else(|| range(Era::Day)).or_else(|| range(Era::Boot))
}

fn nowhere() -> Window {
    let never = Moment(Era::Fact.zero());
    Window { since: never, until: never }
}
